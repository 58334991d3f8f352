"""How the driver reads what OpenCL says, with an OpenCL made up for the test; and its errors."""

from __future__ import annotations

import dataclasses
import os
import sys
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dmlc.runtime import opencl
from dmlc.runtime.opencl import builds, driver
from dmlc.runtime.opencl.device import DeviceKind, Memory
from dmlc.runtime.opencl.driver import open_session
from dmlc.runtime.opencl.executable import Executable
from dmlc.source import DmlcError, UnavailableError
from tests.runtime import handmade
from tests.runtime.test_instructions import AVX2, AVX512

GPU, CPU, OTHER = 4, 2, 8


class FakeError(Exception):
    pass


class FakePlatform:
    """A platform whose device list may depend on POCL_DEVICES, as PoCL's does."""

    def __init__(self, name: str, version: str, *devices: SimpleNamespace) -> None:
        self.name = name
        self.version = version
        self.devices = devices
        self.asked_with: list[str | None] = []
        self.libraries_asked_with: list[str | None] = []

    def get_devices(self) -> list[SimpleNamespace]:
        self.asked_with.append(os.environ.get("POCL_DEVICES"))
        self.libraries_asked_with.append(os.environ.get("POCL_KERNELLIB_NAME"))
        if not self.devices:
            raise FakeError("DEVICE_NOT_FOUND")
        for device in self.devices:
            device.platform = self
        return list(self.devices)


_numbers = iter(range(1, 1000))


INF_NAN, DENORM, CORRECTLY_ROUNDED = 1, 2, 4
"""The bits of what a device keeps of floats."""


def device(
    name: str, kind: int, *, unified: bool = True, fp64: bool = True, floats: int = INF_NAN
) -> SimpleNamespace:
    return SimpleNamespace(
        single_fp_config=floats,
        name=name, type=kind, host_unified_memory=unified, int_ptr=next(_numbers), version="3.0",
        driver_version="1.0",
        max_compute_units=2, global_mem_size=1 << 30, max_mem_alloc_size=1 << 28,
        mem_base_addr_align=1024,
        max_work_group_size=1024, extensions="cl_khr_fp64" if fp64 else "cl_khr_fp64_not",
    )  # fmt: skip


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts platforms in the place of the machine's: `fake(platform, ...)` gives the devices."""
    monkeypatch.delenv("POCL_DEVICES", raising=False)
    monkeypatch.delenv("POCL_KERNELLIB_NAME", raising=False)
    monkeypatch.setattr(driver, "_state", driver._State())

    def use(*platforms: FakePlatform) -> tuple[driver.Device, ...]:
        def get_platforms() -> list[FakePlatform]:
            if not platforms:
                raise FakeError("PLATFORM_NOT_FOUND_KHR")
            return list(platforms)

        kinds = SimpleNamespace(GPU=GPU, CPU=CPU)
        module = SimpleNamespace(
            Error=FakeError,
            get_platforms=get_platforms,
            device_type=kinds,
            device_fp_config=SimpleNamespace(
                INF_NAN=INF_NAN,
                DENORM=DENORM,
                CORRECTLY_ROUNDED_DIVIDE_SQRT=CORRECTLY_ROUNDED,
            ),
        )
        monkeypatch.setattr(driver, "_pyopencl", lambda: module)
        return driver.discover()

    return use


POCL = "Portable Computing Language"


def test_what_a_device_promises_of_floats(fake: Any) -> None:
    devices = device("a", CPU, floats=INF_NAN | DENORM), device("b", GPU, fp64=False)
    kept, flushed = fake(FakePlatform("A", "3.0", *devices))
    assert (kept.floats.special, kept.floats.denormals) == ((16, 32, 64), (16, 32, 64))
    assert (flushed.floats.special, flushed.floats.denormals) == ((16, 32), (16,))


def test_whether_programs_may_ask_for_correct_quotients(fake: Any) -> None:
    devices = device("a", CPU, floats=INF_NAN | CORRECTLY_ROUNDED), device("b", GPU)
    assert [d.divides_correctly for d in fake(FakePlatform("A", "3.0", *devices))] == [True, False]


def test_no_platform_is_no_device(fake: Any) -> None:
    assert fake() == ()


def test_a_platform_without_devices_is_passed_over(fake: Any) -> None:
    found = fake(FakePlatform("A", "1.2"), FakePlatform("B", "3.0", device("b", GPU)))
    assert [(d.index, d.name, d.platform_index) for d in found] == [(0, "b", 1)]


def test_memory_and_kind_follow_from_the_device(fake: Any) -> None:
    found = fake(
        FakePlatform(
            "Vendor",
            "3.0",
            device("discrete", GPU, unified=False, fp64=False),
            device("integrated", GPU),
            device("cpu", CPU),
            device("stick", OTHER, unified=False),
        )
    )
    assert [(d.kind, d.memory) for d in found] == [
        (DeviceKind.GPU, Memory.COPIED),
        (DeviceKind.GPU, Memory.MAPPED),
        (DeviceKind.CPU, Memory.MAPPED),
        (DeviceKind.OTHER, Memory.COPIED),
    ]
    assert [d.float64 for d in found] == [False, True, True, True]


def test_both_devices_of_pocl_are_one(fake: Any) -> None:
    platform = FakePlatform(
        POCL, "OpenCL 3.0 PoCL 3.1", device("basic-x", CPU), device("pthread-x", CPU)
    )
    (found,) = fake(platform)
    assert platform.asked_with == ["pthread basic"]
    assert "POCL_DEVICES" not in os.environ
    assert found.name == "pthread-x"
    assert found.small_key == platform.devices[0].int_ptr
    assert found.memory is Memory.SHARED


def test_a_pocl_with_one_device_is_left_so(fake: Any) -> None:
    (found,) = fake(FakePlatform(POCL, "OpenCL 3.0 PoCL 3.1", device("pthread-x", CPU)))
    assert found.small_key is None


def test_a_later_pocl_and_a_choice_of_the_user_are_left_alone(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = FakePlatform(POCL, "OpenCL 3.0 PoCL 6.0", device("cpu-x", CPU))
    fake(later)
    assert later.asked_with == [None]
    monkeypatch.setenv("POCL_DEVICES", "basic pthread")
    monkeypatch.setattr(driver, "_state", driver._State())
    chosen = FakePlatform(
        POCL, "OpenCL 3.0 PoCL 3.1", device("basic-x", CPU), device("pthread-x", CPU)
    )
    assert [d.name for d in fake(chosen)] == ["basic-x", "pthread-x"]
    assert os.environ["POCL_DEVICES"] == "basic pthread"


POCL_AND_LLVM = "OpenCL 3.0 PoCL 3.1+debian  Linux, None+Asserts, RELOC, SPIR, LLVM {}.0.6, DISTRO"


@pytest.mark.parametrize(
    ("version", "flags", "library"),
    [
        (POCL_AND_LLVM.format(15), AVX512, "avx2"),
        (POCL_AND_LLVM.format(19).replace("PoCL 3.1", "PoCL 6.0"), AVX512, "avx2"),
        (POCL_AND_LLVM.format(15), AVX2, None),
        (POCL_AND_LLVM.format(23), AVX512, None),
        (POCL_AND_LLVM.format(15).replace(", DISTRO", ""), AVX512, None),
    ],
)
def test_pocl_does_without_avx512_where_its_llvm_gets_it_wrong(
    version: str,
    flags: frozenset[str],
    library: str | None,
    fake: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "read_flags", lambda: flags)
    platform = FakePlatform(POCL, version, device("pthread-haswell-x", CPU))
    (found,) = fake(platform)
    assert platform.libraries_asked_with == [library]
    assert "POCL_KERNELLIB_NAME" not in os.environ
    assert found.note.startswith("without AVX-512" if library else "")
    assert bool(found.note) == bool(library)


def test_the_users_library_stands(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCL_KERNELLIB_NAME", "avx512")
    monkeypatch.setattr(driver, "read_flags", lambda: AVX512)
    platform = FakePlatform(POCL, POCL_AND_LLVM.format(15), device("pthread-skylake-avx512", CPU))
    (found,) = fake(platform)
    assert platform.libraries_asked_with == ["avx512"]
    assert found.note.startswith("with POCL_KERNELLIB_NAME=avx512, as you set it")


def test_a_pocl_that_was_opened_before_says_so(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name shows what it was opened for, whatever is asked of it later."""
    monkeypatch.setattr(driver, "read_flags", lambda: AVX512)
    (found,) = fake(
        FakePlatform(POCL, POCL_AND_LLVM.format(15), device("pthread-skylake-avx512", CPU))
    )
    assert found.note.startswith("with AVX-512, which its LLVM compiles wrongly: something else")


def test_other_platforms_are_not_told_anything(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "read_flags", lambda: AVX512)
    platform = FakePlatform("Vendor", POCL_AND_LLVM.format(15), device("gpu", GPU))
    (found,) = fake(platform)
    assert (platform.libraries_asked_with, found.note) == ([None], "")


def test_devices_are_asked_for_once(fake: Any) -> None:
    platform = FakePlatform("A", "1.2", device("a", CPU))
    assert fake(platform) is driver.discover()
    assert len(platform.asked_with) == 1


def test_what_a_fork_inherits_is_refused(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_state", driver._State())
    driver._state.after_fork()
    fake(FakePlatform("A", "1.2", device("a", CPU)))
    session = SimpleNamespace(usable=True)
    driver._state.sessions[driver.discover()[0]] = cast(Any, session)
    driver._state.after_fork()
    assert not session.usable
    with pytest.raises(UnavailableError, match=r"before this process was forked[\s\S]*spawn"):
        driver.discover()


def test_pyopencl_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    monkeypatch.setattr(driver, "_state", driver._State())
    with pytest.raises(UnavailableError, match=r"OpenCL cannot be used[\s\S]*apt-get install"):
        driver.discover()


# Errors of a real driver ----------------------------------------------------------------------


def test_an_unusable_session_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    session = open_session(opencl.find_device())
    executable = Executable(handmade.relu_grad(), session)
    arrays = {"X": np.ones(3, np.float32), "dY": np.ones(3, np.float32)}
    call = executable.bind(arrays)
    monkeypatch.setattr(session, "usable", False)
    for attempt in (lambda: executable(arrays), lambda: executable.bind(arrays), call):
        with pytest.raises(UnavailableError, match="before this process was forked"):
            attempt()


def test_errors_at_a_launch_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    session = driver.Session(opencl.find_device(), driver._state.handles)
    monkeypatch.setattr(session, "driver_error", FakeError)

    def refuse(*_: object) -> None:
        raise FakeError("clEnqueueNDRangeKernel failed:\n OUT_OF_RESOURCES")

    monkeypatch.setattr(session, "enqueue", refuse)
    executable = Executable(handmade.relu_grad(), session)
    arrays = {"X": np.ones(3, np.float32), "dY": np.ones(3, np.float32)}
    message = "the OpenCL driver says clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES"
    with pytest.raises(DmlcError, match=f"cannot run relu_grad: {message}"):
        executable(arrays)
    with pytest.raises(DmlcError, match=f"cannot run: {message}"):
        executable.bind(arrays)()


@pytest.mark.parametrize(
    ("log", "line", "column", "said"),
    [
        ("error: /tmp/x.cl:3:9: use of undeclared 'z'\nDevice failed", 3, 9, "of undeclared 'z'"),
        ("<kernel>:2:5: error: expected ';'\n 1 error", 2, 5, "expected ';'"),
        ("<kernel>:99:99: fatal error: no end", 5, 1, "no end"),
    ],
)
def test_a_compilers_message_is_shown_at_its_line(
    log: str, line: int, column: int, said: str
) -> None:
    source = "\n__kernel void f()\n{  int a = z;\n}\n}"
    kernel = dataclasses.replace(handmade.relu_grad().kernels[0], source=source)
    error = builds._build_error(kernel, opencl.find_device(), log)
    span = error.diagnostics[0].span
    assert span is not None
    assert (span.line, span.column) == (line, column)
    assert said in str(error)


def test_a_log_without_a_line_is_shown_as_it_is() -> None:
    kernel = handmade.relu_grad().kernels[0]
    error = builds._build_error(kernel, opencl.find_device(), "ptxas\n died")
    assert error.diagnostics[0].span is None
    assert "ptxas died" in str(error)
