"""Where functions run: OpenCL in both profiles, Vulkan in both shader models, the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from dmlc.ir import Function
from dmlc.pipeline import compile
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


def _opencl(profile: str) -> Run:
    return lambda f, inputs: opencl.load(compile(f, "opencl", profile))(inputs)


def _vulkan(model: str) -> Run:
    return lambda f, inputs: vulkan.load(compile(f, "hlsl", shader_model=model))(inputs)


BACKENDS = {
    b.name: b
    for b in (
        Backend("reference", lambda f, inputs: evaluate(f, inputs), REFERENCE),
        Backend("opencl cpu", _opencl("cpu"), DEVICE),
        Backend("opencl gpu", _opencl("gpu"), DEVICE),
        Backend("vulkan 6.2", _vulkan("6.2"), FLUSHING),
        Backend("vulkan 6.0", _vulkan("6.0"), FLUSHING),
    )
}
