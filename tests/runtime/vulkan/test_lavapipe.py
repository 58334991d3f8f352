"""Which LLVM lavapipe was built with, found as the loader finds drivers; and what follows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dmlc.runtime import lavapipe
from dmlc.runtime.instructions import Choice
from dmlc.runtime.lavapipe import find_llvm, read_version
from dmlc.runtime.vulkan.context import Instance, Validation
from tests.runtime.test_instructions import AVX2, AVX512


def make_driver(folder: Path, version: str, path: str | None = None) -> Path:
    """A manifest of a lavapipe whose library names this version of LLVM."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libvulkan_lvp.so"
    library.write_bytes(b"\x7fELF..Mesa 22.3.6 (LLV\0llvmpipe (LLVM " + version.encode() + b", %u")
    manifest = folder / "lvp_icd.json"
    named = {"library_path": str(library) if path is None else path, "api_version": "1.1.0"}
    manifest.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": named}))
    return manifest


def alone(folder: Path) -> dict[str, str]:
    """An environment in which nothing is found but below a folder."""
    places = ("XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_DATA_DIRS")
    return {place: str(folder / "empty") for place in places}


def test_the_library_says_which_llvm_it_was_built_with(tmp_path: Path) -> None:
    make_driver(tmp_path, "15.0.6")
    assert read_version(tmp_path / "libvulkan_lvp.so") == 15
    for content in (b"", b"llvmpipe (LLVM , "):
        (tmp_path / "other.so").write_bytes(content)
        assert read_version(tmp_path / "other.so") is None
    assert read_version(tmp_path / "missing.so") is None


@pytest.mark.parametrize("variable", ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"])
def test_drivers_that_are_named_are_found(variable: str, tmp_path: Path) -> None:
    manifest = make_driver(tmp_path / "a", "17.0.1")
    later = make_driver(tmp_path / "b", "19.1.7")
    elsewhere = alone(tmp_path)
    assert find_llvm(elsewhere) is None
    assert find_llvm(elsewhere | {variable: str(manifest)}) == 17
    assert find_llvm(elsewhere | {variable: f"{later}:{manifest.parent}"}) == 17
    assert find_llvm(elsewhere | {variable: str(tmp_path / "missing.json")}) is None


@pytest.mark.parametrize("place", ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_DATA_DIRS"])
def test_drivers_in_the_usual_places_are_found(place: str, tmp_path: Path) -> None:
    make_driver(tmp_path / "vulkan" / "icd.d", "18.1.0")
    assert find_llvm(alone(tmp_path) | {place: str(tmp_path)}) == 18


def test_libraries_are_found_beside_the_manifest_and_where_the_system_looks(
    tmp_path: Path,
) -> None:
    beside = make_driver(tmp_path / "a", "15.0.0", "./libvulkan_lvp.so")
    assert find_llvm({"VK_DRIVER_FILES": str(beside)}) == 15
    bare = make_driver(tmp_path / "b", "16.0.0", "libvulkan_lvp_made_up.so")
    assert find_llvm({"VK_DRIVER_FILES": str(bare)}) is None
    (tmp_path / "b" / "libvulkan_lvp.so").rename(tmp_path / "b" / "libvulkan_lvp_made_up.so")
    found = {"VK_DRIVER_FILES": str(bare), "LD_LIBRARY_PATH": f"{tmp_path}:{tmp_path / 'b'}"}
    assert find_llvm(found) == 16


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ICD": {"library_path": 3}}', "\ufeff{"])
def test_what_is_no_manifest_of_lavapipe_is_passed_over(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "b.json").write_text('{"ICD": {"library_path": "libvulkan_radeon.so"}}')
    assert find_llvm({"VK_DRIVER_FILES": str(tmp_path)}) is None


def test_manifests_without_end_and_pipes_are_passed_over(tmp_path: Path) -> None:
    """A pipe that nobody writes to would be waited for."""
    library = tmp_path / "libvulkan_lvp.so"
    os.mkfifo(library)
    (tmp_path / "a.json").write_text("[" * 100_000)
    (tmp_path / "b.json").write_text(json.dumps({"ICD": {"library_path": str(library)}}))
    os.mkfifo(tmp_path / "c.json")
    assert find_llvm({"VK_DRIVER_FILES": f"{tmp_path}:/dev/zero"}) is None


@pytest.fixture
def choose_anew() -> Iterator[None]:
    lavapipe.choose_instructions.cache_clear()
    yield
    lavapipe.choose_instructions.cache_clear()


def pretend(
    monkeypatch: pytest.MonkeyPatch, maps: Path, flags: frozenset[str], llvm: int | None
) -> None:
    def find(_: Mapping[str, str]) -> int | None:
        return llvm

    monkeypatch.delenv("GALLIUM_OVERRIDE_CPU_CAPS", raising=False)
    monkeypatch.setattr(lavapipe, "read_flags", lambda: flags)
    monkeypatch.setattr(lavapipe, "find_llvm", find)
    monkeypatch.setattr(lavapipe, "_MAPS", maps)


@pytest.mark.usefixtures("choose_anew")
@pytest.mark.parametrize(
    ("flags", "llvm", "maps", "value"),
    [
        (AVX512, 15, "", "avx"),
        (AVX512, 15, None, "avx"),
        (AVX512, 15, "7f0 r-xp /usr/lib/libvulkan_lvp.so", None),
        (AVX512, 23, "", None),
        (AVX2, 15, "", None),
    ],
)
def test_the_choice_for_lavapipe(
    flags: frozenset[str],
    llvm: int,
    maps: str | None,
    value: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if maps is not None:
        (tmp_path / "maps").write_text(maps)
    pretend(monkeypatch, tmp_path / "maps", flags, llvm)
    found = lavapipe.choose_instructions()
    assert found.value == value
    assert ("something else in this process" in found.note) == bool(maps)


def test_devices_of_lavapipe_say_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Choice("DMLC_NOBODY_READS", "1", "without something")
    monkeypatch.setattr(lavapipe, "choose_instructions", lambda: said)
    instance = Instance(Validation.NONE)
    (device,) = (d for d in instance.devices if d.name.startswith("llvmpipe"))
    assert device.note == "without something"
    assert lavapipe.find_note("A GPU") == ""
    instance.close()
