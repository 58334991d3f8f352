"""Where functions run: OpenCL in both profiles, Vulkan in both shader models, the reference, and
the kernels of each of these in NumPy, where a read outside a tensor and a race are faults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from dmlc.ir import Function
from dmlc.kernel.interpret import run_kernels
from dmlc.pipeline import compile, make_kernels
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from tests.fuzz.possible import DEVICE, FLUSHING, REFERENCE, Array, Rules

Run = Callable[[Function, Mapping[str, Array]], dict[str, Array]]


@dataclasses.dataclass(frozen=True)
class Backend:
    """A place to run a function, and what it keeps to."""

    name: str
    run: Run
    rules: Rules
    device: bool = False
    """Whether a driver builds kernels for it, which takes time."""


def _opencl(profile: str) -> Run:
    return lambda f, inputs: opencl.load(compile(f, "opencl", profile))(inputs)


def _vulkan(model: str) -> Run:
    return lambda f, inputs: vulkan.load(compile(f, "hlsl", shader_model=model))(inputs)


def _kernels(target: str, profile: str | None = None, model: str | None = None) -> Run:
    def run(function: Function, inputs: Mapping[str, Array]) -> dict[str, Array]:
        fused, kernels = make_kernels(function, target, profile, shader_model=model)
        return run_kernels(fused, kernels, inputs, misaligned=len(function.stages) % 2)

    return run


BACKENDS = {
    b.name: b
    for b in (
        Backend("reference", evaluate, REFERENCE),
        Backend("kernels cpu", _kernels("opencl", "cpu"), DEVICE),
        Backend("kernels gpu", _kernels("opencl", "gpu"), DEVICE),
        Backend("kernels 6.2", _kernels("hlsl", model="6.2"), DEVICE),
        Backend("kernels 6.0", _kernels("hlsl", model="6.0"), DEVICE),
        Backend("opencl cpu", _opencl("cpu"), DEVICE, device=True),
        Backend("opencl gpu", _opencl("gpu"), DEVICE, device=True),
        Backend("vulkan 6.2", _vulkan("6.2"), FLUSHING, device=True),
        Backend("vulkan 6.0", _vulkan("6.0"), FLUSHING, device=True),
    )
}
