"""Direct3D 12 on Linux: the C library is built, against a libvkd3d that computes without a GPU, and
what is missing is said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dmlc.devices import list_devices
from dmlc.files import private_folder
from dmlc.runtime import d3d12
from dmlc.runtime.d3d12 import device as d3d12_device
from dmlc.runtime.d3d12 import library, vkd3d
from dmlc.runtime.d3d12.device import Context, DeviceType, open_context
from dmlc.runtime.d3d12.package import Abilities
from dmlc.runtime.floats import LEAST
from dmlc.runtime.interface import find_runtime
from dmlc.source import DmlcError, UnavailableError, UnsupportedError

FAKE = Path(__file__).parent / "vkd3d"
DEFAULT, UPLOAD, READBACK = vkd3d.HEAP_DEFAULT, vkd3d.HEAP_UPLOAD, vkd3d.HEAP_READBACK
_KEPT = (library.load_library, vkd3d._library, vkd3d._open)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests share, and libraries to link with that hold nothing."""
    folder = tmp_path_factory.mktemp("vkd3d")
    for name in library._LIBRARIES:
        (folder / f"lib{name.removeprefix('-l')}.a").write_bytes(b"!<arch>\n")
    return folder


@pytest.fixture
def fake(built: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A process that has not opened a device, with the stand-in for libvkd3d."""
    monkeypatch.setattr(d3d12_device, "PLATFORM", "linux")
    monkeypatch.setattr(d3d12_device, "_contexts", {})
    monkeypatch.setattr(library, "FOLDERS", (str(FAKE),))
    monkeypatch.setenv("LIBRARY_PATH", str(built))
    monkeypatch.setenv("XDG_CACHE_HOME", str(built))
    for function in _KEPT:
        function.cache_clear()
    yield built
    for function in _KEPT:
        function.cache_clear()


@pytest.fixture
def context(fake: Path) -> Context:
    return open_context(d3d12.find_device())


def test_the_device_says_what_it_is(fake: Path) -> None:
    (device,) = d3d12.devices()
    assert device.name == "Paper GPU"
    assert device.type is DeviceType.DISCRETE_GPU
    assert device.driver == "vkd3d-shader 2.1 on no driver 1.0"
    assert device.note == ""
    assert (device.memory_bytes, device.shared_bytes) == (1 << 20, 2 << 20)
    assert device.vendor_id == 0x1234
    assert device.abilities == Abilities("6.0", int16=False, int64=True, float64=True)
    assert device.floats == LEAST


def test_a_library_is_built_once(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    d3d12.devices()
    (kept,) = (fake / "dmlc/d3d12").iterdir()
    assert kept.name.startswith("vkd3d-")
    assert os.stat(kept.parent).st_mode & 0o077 == 0
    library.load_library.cache_clear()
    monkeypatch.setattr(library, "COMPILER", "no-such-compiler")
    library.load_library()


def test_nothing_is_loaded_that_others_can_have_written(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "dmlc/d3d12"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert library._find_folder() == private_folder()
    folder.chmod(0o755)
    assert library._find_folder() == folder
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    assert library._find_folder() == private_folder()


def test_bytes_go_to_the_device_and_back(context: Context) -> None:
    upload, there, readback = (context.make_buffer(h, 1000) for h in (UPLOAD, DEFAULT, READBACK))
    assert [b.size for b in (upload, there, readback)] == [1024] * 3
    values = np.arange(250, dtype=np.uint32)
    values.flags.writeable = False
    upload.upload(values.view(np.uint8))
    upload.copy_to(there)
    there.copy_to(readback)
    found = np.zeros(250, np.uint32)
    readback.readback(found.view(np.uint8))
    assert np.array_equal(found, values)
    with pytest.raises(ValueError, match="1025 bytes do not fit a buffer of 1024"):
        upload.upload(bytes(1025))
    with pytest.raises(ValueError, match="1024 bytes do not fit a buffer of 256"):
        upload.copy_to(context.make_buffer(DEFAULT, 1))
    with pytest.raises(RuntimeError, match="CreateCommittedResource gave 0x8007000e"):
        context.make_buffer(DEFAULT, 1 << 40)
    with pytest.raises(RuntimeError, match="Map gave 0x80070057"):
        there.upload(b"1")


def fill(context: Context, word: int, heap: int = DEFAULT, stride: int = 4) -> vkd3d.Buffer:
    """A buffer whose first word is a number."""
    made, upload = context.make_buffer(heap, 256, stride), context.make_buffer(UPLOAD, 256)
    (made if heap == UPLOAD else upload).upload(np.uint32(word).tobytes())
    if heap == DEFAULT:
        upload.copy_to(made)
    assert isinstance(made, vkd3d.Buffer)
    return made


def read(context: Context, buffer: vkd3d.Buffer) -> int:
    readback, found = context.make_buffer(READBACK, 256), np.zeros(1, np.uint32)
    buffer.copy_to(readback)
    readback.readback(found.view(np.uint8))
    return int(found[0])


def test_a_pipeline_runs_on_its_buffers(context: Context) -> None:
    a, b, out, other = (fill(context, word) for word in (100, 20, 0, 0))
    constants = fill(context, 3, UPLOAD)
    first = context.make_compute(b"DXBCsum", [constants], [a, b], [out, other])
    # Two of its registers may hold one buffer.
    second = context.make_compute(b"DXBCsum", [], [out, out], [a])
    alone = context.make_compute(b"DXBCsum", [], [], [b])
    for _ in range(2):
        first.dispatch(4, 5, 1)
        assert read(context, out) == read(context, other) == 100 + 20 + 3 + 4 + 5 + 1
        second.dispatch(1, 1, 1)
        assert read(context, a) == 2 * 133 + 3
        a, b = fill(context, 100), fill(context, 20)
        first = context.make_compute(b"DXBCsum", [constants], [a, b], [out, other])
        second = context.make_compute(b"DXBCsum", [], [out, out], [a])
    alone.dispatch(2, 2, 2)
    with pytest.raises(RuntimeError, match="dmlc_make_compute gave 0x80070057"):
        context.make_compute(b"DXBCsum", [], [a] * 257, [])


@pytest.mark.parametrize(
    ("shader", "what", "said"),
    [
        (b"shares", "shared memory whose elements have 8 bytes", "0x80004001: E8021: Structured"),
        (b"branches", "values of 64 bits that branches pass on", "0x80004005: vkd3d:err:vsir"),
    ],
)
def test_what_vkd3d_cannot_translate_is_named(
    context: Context, shader: bytes, what: str, said: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"libvkd3d cannot translate {what}") as caught:
        context.make_compute(b"DXBC" + shader, [], [], [fill(context, 0)])
    assert said in str(caught.value)
    with pytest.raises(RuntimeError) as other:
        context.make_compute(b"DXBCwrong", [], [], [fill(context, 0)])
    assert str(other.value) == "CreateComputePipelineState gave 0x80004001"


def refusal() -> str:
    with pytest.raises(UnavailableError) as caught:
        d3d12.find_device()
    return str(caught.value)


def test_what_is_missing_is_said_with_its_cure(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "FOLDERS", ())
    monkeypatch.delenv("CPATH", raising=False)
    said = refusal()
    assert "Direct3D 12 on Linux needs vkd3d 2.0 or newer, and there is no vkd3d_utils.h" in said
    assert "apt-get install libvkd3d-dev" in said
    # As other devices that are missing, and not as those that this system cannot have.
    monkeypatch.setattr("dmlc.devices.RUNTIMES", ("d3d12",))
    assert [str(error) for error in list_devices()[1]] == [said]
    monkeypatch.setattr(library, "COMPILER", "no-such-compiler")
    assert "needs a C compiler, and there is no `no-such-compiler` here" in refusal()
    assert list(tmp_path.rglob("*.so")) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a.c:13:10: fatal error: vkd3d.h: No such file or directory", "there is no vkd3d.h here"),
        ("/i/vkd3d.h:30: fatal error: vulkan/vulkan.h: No such file", "no vulkan/vulkan.h here"),
        ("/usr/bin/ld: cannot find -lvkd3d-utils: No such file", "no libvkd3d-utils.so here"),
        ("a.c:9:1: error: 'VKD3D_X' undeclared", "does not do: a.c:9:1: error: 'VKD3D_X' undecl"),
    ],
)
def test_what_the_compiler_says_is_explained(line: str, said: str) -> None:
    assert said in library.explain(["In file included from b.h:3:", line, "terminated."])


def test_a_machine_without_a_driver_and_an_old_vkd3d(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VKD3D_FAILS", "1")
    said = refusal()
    assert "finds no Vulkan device that it can use: D3D12CreateDevice gave 0x80004005" in said
    assert "mesa-vulkan-drivers" in said
    monkeypatch.delenv("FAKE_VKD3D_FAILS")
    monkeypatch.setenv("FAKE_VKD3D_MODEL", "51")
    assert "runs shaders up to model 5.1 alone, and DXIL needs 6.0" in refusal()
    monkeypatch.setenv("FAKE_VKD3D_MODEL", "66")
    assert "Direct3D 12, shader model 6.6" in d3d12.find_device().facts


def test_a_device_serves_the_process_that_opened_it(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    d3d12.devices()
    monkeypatch.setattr(vkd3d.os, "getpid", lambda: -1)
    assert "was used before this process was forked" in refusal()


def test_what_a_device_refuses_is_an_error_of_the_run(context: Context) -> None:
    with (
        pytest.raises(DmlcError, match="cannot run: CreateComputePipelineState gave 0x80004001"),
        d3d12_device.reporting("cannot run"),
    ):
        context.make_compute(b"DXBCwrong", [], [], [fill(context, 0)])
    assert find_runtime("d3d12").find_tool() is None
