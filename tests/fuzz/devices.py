"""Where functions run: OpenCL in both profiles, Vulkan in both shader models, WebGPU, the
reference, ONNX models in ONNX's own evaluator, the simulated strict device, and the kernels of all
targets in NumPy, where a read outside a tensor and a race are faults. What is computed of errors
runs beside them.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from dmlc.devices import compile_for, find_device, load_on
from dmlc.ir import Function
from dmlc.kernel.interpret import run_kernels
from dmlc.onnx import export
from dmlc.pipeline import compile, make_kernels
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan, wgpu
from dmlc.source import UnavailableError
from dmlc.testing.bounds import bound_errors
from tests.fuzz.possible import DEVICE, FLUSHING, REFERENCE, STRICT, Array, Rules
from tests.onnx.corpus import run_model

Run = Callable[[Function, Mapping[str, Array]], dict[str, Array]]


class BoundError(Exception):
    """A kernel that is right is further from the reference than the computed bound says."""

    def __init__(self, name: str, got: float, wanted: float, bound: float) -> None:
        super().__init__(f"{name}: {got!r} and {wanted!r}, which may be {bound!r} apart")


@dataclasses.dataclass(frozen=True)
class Backend:
    """A place to run a function, and what it keeps to."""

    name: str
    run: Run
    rules: Rules
    find: Callable[[], object] | None = None
    """What finds its device, whose driver builds kernels for it, which takes time. It raises
    `UnavailableError` where there is none."""

    @property
    def device(self) -> bool:
        return self.find is not None


def _opencl(profile: str) -> Run:
    return lambda f, inputs: opencl.load(compile(f, "opencl", profile))(inputs)


def _vulkan(model: str) -> Run:
    return lambda f, inputs: vulkan.load(compile(f, "hlsl", shader_model=model))(inputs)


def _strict(function: Function, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every function has a seed of its own, the same each time."""
    device = find_device(f"strict:{zlib.crc32(str(function).encode()) % 1000}")
    assert device is not None
    return load_on(compile_for(function, device), device)(inputs)


def _wgsl(function: Function, inputs: Mapping[str, Array]) -> dict[str, Array]:
    return wgpu.load(compile(function, "wgsl"))(inputs)


def _onnx(function: Function, inputs: Mapping[str, Array]) -> dict[str, Array]:
    return run_model(export(function), inputs)


def _kernels(target: str, profile: str | None = None, model: str | None = None) -> Run:
    def run(function: Function, inputs: Mapping[str, Array]) -> dict[str, Array]:
        fused, kernels = make_kernels(function, target, profile, shader_model=model)
        return run_kernels(fused, kernels, inputs, misaligned=len(function.stages) % 2)

    return run


def run_bounded(function: Function, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The kernels' results, where these are as near to the reference's as the computed bounds say.
    Where either is infinite or NaN, `BACKENDS` judge it by themselves."""
    got = BACKENDS["kernels cpu"].run(function, inputs)
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, values in got.items():
        a, b = (v.astype(np.float64) for v in (values, wanted[name]))
        with np.errstate(all="ignore"):
            beyond = np.isfinite(a) & np.isfinite(b) & ~(np.abs(a - b) <= allowed[name])
        if beyond.any():
            raise BoundError(name, a[beyond][0], b[beyond][0], allowed[name][beyond][0])
    return got


BACKENDS = {
    b.name: b
    for b in (
        Backend("reference", evaluate, REFERENCE),
        Backend("kernels cpu", _kernels("opencl", "cpu"), DEVICE),
        Backend("kernels gpu", _kernels("opencl", "gpu"), DEVICE),
        Backend("kernels 6.2", _kernels("hlsl", model="6.2"), DEVICE),
        Backend("kernels 6.0", _kernels("hlsl", model="6.0"), DEVICE),
        Backend("kernels wgsl", _kernels("wgsl"), DEVICE),
        Backend("strict", _strict, STRICT),
        Backend("onnx", _onnx, DEVICE),
        Backend("bounds", run_bounded, DEVICE),
        Backend("opencl cpu", _opencl("cpu"), DEVICE, opencl.find_device),
        Backend("opencl gpu", _opencl("gpu"), DEVICE, opencl.find_device),
        Backend("vulkan 6.2", _vulkan("6.2"), FLUSHING, vulkan.find_device),
        Backend("vulkan 6.0", _vulkan("6.0"), FLUSHING, vulkan.find_device),
        Backend("wgsl", _wgsl, FLUSHING, wgpu.find_device),
    )
}


def find_missing(names: Iterable[str]) -> dict[str, str]:
    """Those of the backends that have no device here, or lack its package, and why."""
    missing: dict[str, str] = {}
    for name in names:
        find = BACKENDS[name].find
        try:
            if find is not None:
                find()
        except UnavailableError as error:
            missing[name] = str(error)
    return missing
