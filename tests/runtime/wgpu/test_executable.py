"""The WebGPU host: devices, what is refused, and runs of programs written by hand."""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlc.program import BufferBinding
from dmlc.runtime import wgpu
from dmlc.runtime.wgpu import device as wgpu_device
from dmlc.runtime.wgpu.device import DeviceType, Limits, WgpuDevice, choose_device
from dmlc.runtime.wgpu.plan import check_program, plan_windows
from dmlc.source import DmlcError, UnavailableError, UnsupportedError
from tests.runtime import handmade
from tests.runtime.handmade_wgsl import F16, relu_grad

ROOT = Path(__file__).parents[3]
LIMITS = Limits(65535, 256, 16384, 8, 128 << 20, 64 << 10, 256 << 20)


def make_device(index: int, name: str, kind: DeviceType, float16: bool = True) -> WgpuDevice:
    return WgpuDevice(index, name, kind, "Vulkan", "maker 1.0", LIMITS, float16)


CPU = make_device(0, "llvmpipe", DeviceType.CPU)
SMALL = make_device(1, "Radiant 700M", DeviceType.INTEGRATED_GPU, float16=False)
LARGE = make_device(2, "Radiant 9000", DeviceType.DISCRETE_GPU)


def given(count: int, dtype: type = np.float32) -> dict[str, Any]:
    random = np.random.default_rng(count)
    return {name: random.standard_normal(count).astype(dtype) for name in ("X", "dY")}


def wanted(arrays: dict[str, Any]) -> Any:
    return np.where(arrays["X"] > 0, arrays["dY"], 0)


# Devices --------------------------------------------------------------------------------------


def test_a_device_of_this_machine() -> None:
    found = wgpu.find_device("wgpu:llvmpipe")
    assert found in wgpu.devices()
    assert found.runtime == "wgpu"
    assert found.backend == "Vulkan"
    assert "WebGPU on Vulkan" in str(found)
    assert any("buffers per kernel" in fact for fact in found.facts)


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [(None, LARGE), ("wgpu", LARGE), ("wgpu:1", SMALL), ("700", SMALL), ("wgpu:LLVM", CPU)],
)
def test_selectors(selector: str | None, chosen: WgpuDevice) -> None:
    assert choose_device((CPU, SMALL, LARGE), selector) == chosen


def test_selectors_that_match_nothing() -> None:
    with pytest.raises(UnavailableError, match="no WebGPU device matches 'GeForce'") as caught:
        choose_device((CPU,), "wgpu:GeForce")
    assert "devices here: wgpu:0 is llvmpipe" in str(caught.value)
    with pytest.raises(DmlcError, match="the device 'wgpu:' names nothing after the colon"):
        choose_device((CPU,), "wgpu:")
    with pytest.raises(UnavailableError, match=r"no WebGPU device was found[\s\S]*apt-get"):
        choose_device((), None)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> Any:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", find_nothing)
    with pytest.raises(UnavailableError, match=r"cannot be imported[\s\S]*dmlc\[wgpu\]"):
        wgpu_device.load_package()


def test_a_forked_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wgpu.devices()
    process = os.getpid()
    monkeypatch.setattr(wgpu_device.os, "getpid", lambda: process + 1)
    with pytest.raises(UnavailableError, match=r"before this process was forked[\s\S]*'spawn'"):
        wgpu.devices()


def test_lavapipe_is_started_as_vulkan_starts_it() -> None:
    """Without AVX-512 where its LLVM gets that wrong, and nothing of it stays in the environment.
    Nor does the package say anything of OpenGL."""
    code = (
        "import os; before = dict(os.environ); from dmlc.runtime import lavapipe, wgpu;"
        "note = wgpu.find_device('wgpu:llvmpipe').note;"
        "assert note == lavapipe.choose_instructions().note, note;"
        "assert dict(os.environ) == before"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# Refusals -------------------------------------------------------------------------------------


def test_a_program_for_another_target() -> None:
    with pytest.raises(UnsupportedError, match=r"compiled for opencl[\s\S]*target='wgsl'"):
        wgpu.load(handmade.relu_grad())


def test_limits_are_refused_by_name() -> None:
    program = relu_grad()
    (kernel,) = program.kernels
    check_program(program, CPU)
    buffers = tuple(
        BufferBinding(f"B{k}", "X", kernel.buffers[0].dtype, False, True, k) for k in range(9)
    )
    shared = kernel.source + "var<workgroup> lanes: array<f32, 4097>;"
    for changes, said in (
        ({"buffers": buffers}, r"has 9 buffers, and llvmpipe allows 8 \(maxStorageBuffersPer"),
        ({"source": shared}, r"has 16,388 bytes of shared memory, and llvmpipe allows 16,384"),
        ({"dispatch": dataclasses.replace(kernel.dispatch, group_size=257)}, "257 invocations"),
    ):
        changed = dataclasses.replace(kernel, **changes)
        with pytest.raises(UnsupportedError, match=said):
            check_program(dataclasses.replace(program, kernels=(changed,)), CPU)
    with pytest.raises(UnsupportedError, match="needs f16, which Radiant 700M does not have"):
        check_program(relu_grad(F16), SMALL)


def test_large_runs_go_in_windows_or_are_refused() -> None:
    count = (32 << 20) + 5
    windows = plan_windows(relu_grad(), {"n": count}, CPU)
    assert [(w.start, w.sizes["n"]) for w in windows] == [(0, 32 << 20), (32 << 20, 5)]
    with pytest.raises(UnsupportedError, match=r"takes 134,217,748 bytes.*maxStorageBufferBinding"):
        plan_windows(relu_grad(elementwise=False), {"n": count}, CPU)
    few = dataclasses.replace(CPU, limits=dataclasses.replace(LIMITS, groups=3))
    with pytest.raises(UnsupportedError, match="needs 4 groups along x"):
        plan_windows(relu_grad(), {"n": 4 * 64}, few)
    assert plan_windows(relu_grad(), {"n": 0}, CPU) == ()


def test_wgsl_that_is_no_wgsl() -> None:
    program = relu_grad()
    broken = dataclasses.replace(program.kernels[0], source="fn main() { let x = ; }")
    with pytest.raises(DmlcError, match="WebGPU refuses the WGSL of relu_grad"):
        wgpu.load(dataclasses.replace(program, kernels=(broken,)))


# Runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 63, 65, 100_001])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_runs(count: int, dtype: type) -> None:
    executable = wgpu.load(relu_grad(F16) if dtype is np.float16 else relu_grad())
    arrays = given(count, dtype)
    np.testing.assert_array_equal(executable(arrays)["dX"], wanted(arrays))
    assert executable.last_report.copies == ()


def test_windows_of_a_run_are_put_together() -> None:
    executable = wgpu.load(relu_grad())
    small = dataclasses.replace(executable.device.limits, storage_range=65536 * 4)
    executable.device = dataclasses.replace(executable.device, limits=small)
    arrays = given(65536 * 2 + 77)
    np.testing.assert_array_equal(executable(arrays)["dX"], wanted(arrays))


def test_a_fixed_call_and_arrays_of_the_caller() -> None:
    executable = wgpu.load(relu_grad())
    arrays, out = given(300), np.zeros(300, np.float32)
    call = executable.bind(arrays, {"dX": out})
    assert call()["dX"] is out
    np.testing.assert_array_equal(out, wanted(arrays))
    arrays["X"] *= -1
    call()
    np.testing.assert_array_equal(out, wanted(arrays))
    strided = {name: np.repeat(a, 2)[::2] for name, a in arrays.items()}
    results, report = executable.run(strided)
    np.testing.assert_array_equal(results["dX"], wanted(arrays))
    assert len(report.copies) == 2


def test_threads_take_turns() -> None:
    executable = wgpu.load(relu_grad())
    wrong: list[int] = []

    def work(number: int) -> None:
        for count in (number + 1, 500 + number):
            arrays = given(count)
            if not np.array_equal(executable(arrays)["dX"], wanted(arrays)):
                wrong.append(count)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
