"""Output files: all of them or none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dmlc import ir
from dmlc.files import cache_folder, name_file, open_regular, read_bounded, write_files
from dmlc.pipeline import compile
from dmlc.source import DmlcError


def test_files_are_written_into_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert write_files(folder, {"x": b"1", "y": b"2"}) == [folder / "x", folder / "y"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {"x": b"1", "y": b"2"}


@pytest.mark.parametrize(("folder", "name"), [("a\0b", "x"), ("a", "x\0")])
def test_what_is_no_name(folder: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(DmlcError, match="this is no file name"):
        write_files(tmp_path / folder, {name: b"1"})
    assert list(tmp_path.iterdir()) == []


def test_files_are_replaced_and_keep_their_permissions(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(0o600)
    write_files(tmp_path, {"x": b"new"})
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["is_a_folder", "n" * 300])
def test_a_file_that_cannot_be_written_leaves_none(name: str, tmp_path: Path) -> None:
    (tmp_path / "is_a_folder").mkdir()
    (tmp_path / "first").write_bytes(b"old")
    with pytest.raises(DmlcError, match="cannot write") as raised:
        write_files(tmp_path, {"first": b"new", name: b"2"})
    assert name in str(raised.value)
    assert {p.name for p in tmp_path.iterdir()} == {"is_a_folder", "first"}
    assert (tmp_path / "first").read_bytes() == b"old"


def test_a_disk_that_fills_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(DmlcError, match="x': No space left on device"):
        write_files(tmp_path, {"x": b"1"})
    assert list(tmp_path.iterdir()) == []


_KILLED = """
import os, pathlib, sys
from dmlc.files import write_files
root, replace = pathlib.Path(sys.argv[1]), os.replace
for number in range(12):
    folder = root / str(number)
    write_files(folder, {name: b"old" for name in "abc"})
    if os.fork() == 0:
        calls = []
        def stop(*paths):
            calls.append(paths)
            if len(calls) > number:
                os._exit(9)
            replace(*paths)
        os.replace = stop
        write_files(folder, {name: b"new" for name in "abc"})
        os._exit(0)
    os.wait()
"""


def test_a_process_that_is_killed_leaves_no_new_file_beside_an_old_one(tmp_path: Path) -> None:
    """A host would take an old manifest's sizes for a new kernel's."""
    subprocess.run([sys.executable, "-c", _KILLED, tmp_path], check=True)
    found: list[set[bytes]] = []
    for number in range(12):
        shown = [p for p in (tmp_path / str(number)).iterdir() if not p.name.startswith(".")]
        found.append({path.read_bytes() for path in shown})
    assert all(len(contents) <= 1 for contents in found)
    assert found[0] == {b"old"}
    assert found[-1] == {b"new"}


def test_what_was_there_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the second of two files cannot get its name."""
    write_files(tmp_path, {"x": b"old", "y": b"old"})
    replace = os.replace

    def fail(source: Path, target: Path) -> None:
        if source.suffix == ".tmp" and target.name == "y":
            raise OSError(5, "Input/output error", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(DmlcError, match="y': Input/output error"):
        write_files(tmp_path, {"x": b"new", "y": b"new"})
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"x": b"old", "y": b"old"}


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(DmlcError, match="cannot write") as raised:
            write_files(folder, {"x": b"1"})
        assert raised.value.diagnostics[0].notes[0].message == (
            "give an output folder that you may write to"
        )


@pytest.mark.parametrize(
    ("environment", "platform", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c"}, "linux", "/c/dmlc"),
        ({"XDG_CACHE_HOME": "c"}, "linux", "~/.cache/dmlc"),
        ({}, "linux", "~/.cache/dmlc"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/dmlc"),
        ({}, "win32", "~/AppData/Local/dmlc"),
        ({"XDG_CACHE_HOME": "/c"}, "darwin", "~/Library/Caches/dmlc"),
    ],
)
def test_the_users_cache_folder(environment: dict[str, str], platform: str, folder: str) -> None:
    assert cache_folder(environment, platform) == Path(folder).expanduser()


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("pipe", "null"):
        with pytest.raises(DmlcError, match=f"cannot write '.*{name}': it is no regular file"):
            write_files(tmp_path, {name: b"1"})
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert (tmp_path / "null").is_symlink()


def test_regular_files_are_read_as_far_as_they_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345678" * (1 << 17))
    assert read_bounded(path, 1 << 20) == path.read_bytes()
    with pytest.raises(DmlcError, match="is larger than 0 MiB"):
        read_bounded(path, (1 << 20) - 1)
    with pytest.raises(DmlcError, match="it is a directory"):
        open_regular(tmp_path)
    with pytest.raises(DmlcError, match="it is no regular file"):
        read_bounded("/dev/zero", 8)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("aux", "aux_.cl"), ("NUL", "NUL_.cl"), ("con.x", "con_.x.cl"), ("Lpt1", "Lpt1_.cl"),
        ("auxiliary", "auxiliary.cl"), ("x.con", "x.con.cl"), ("com", "com.cl"),
        ("aux_", "aux__.cl"), ("COM²", "COM²_.cl"),
    ],
)  # fmt: skip
def test_no_file_is_named_as_a_device_of_windows(name: str, file: str) -> None:
    assert name_file(name, ".cl") == file
    function = ir.parse("func @aux(%a: f32[3]) -> (%y) { %y: f32[i0 < 3] = exp(%a[i0]) }")
    program = compile(function, "opencl")
    assert program.manifest()["kernels"][0]["file"] == "aux_.cl"
