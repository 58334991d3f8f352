"""Kernels for tests of schedules. Each that is made here is verified, and run by the interpreter,
whatever the test asks of it: its results are the reference's, within the bounds of rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.passes import find_sizes
from dmlc.kernel.target import Profile
from dmlc.lowering.group import lower_group, lower_stages
from dmlc.pipeline import make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors
from dmlc.transform.fuse import Fusion
from tests.goldens import make_inputs

MOST_POINTS = 1 << 20
"""Functions of more points are verified alone: what they show of a schedule is its shape."""
NO_REDUCTION = ir.Reduction("sum", ())
COUNT = 1001
"""The elements of a run-time size."""


def lower_fusion(fusion: Fusion, profile: Profile, target: str = "opencl") -> tuple[k.Kernel, ...]:
    """The kernels of a function that is fused."""
    limits = find_dialect(target).limits
    kernels = tuple(
        kernel
        for group in fusion.groups
        for kernel in lower_group(fusion.function, group, profile, limits)
    )
    run(fusion.function, kernels)
    return kernels


def lower_elements(function: ir.Function, profile: Profile, target: str = "opencl") -> k.Kernel:
    """The one kernel of an element-wise function."""
    limits = find_dialect(target).limits
    kernel = lower_stages(function, tuple(stage.name for stage in function.stages), profile, limits)
    run(function, (kernel,))
    return kernel


def interpret(
    function: ir.Function,
    inputs: Mapping[str, Array],
    target: str = "opencl",
    profile: str | None = None,
    *,
    misaligned: int = 0,
) -> dict[str, Array]:
    """The results of a function's kernels, as they are compiled for a target, verified and run."""
    fused, kernels = make_kernels(function, target, profile)
    return run_kernels(fused, kernels, inputs, misaligned=misaligned)


def run(function: ir.Function, kernels: tuple[k.Kernel, ...]) -> None:
    """Interprets kernels that compute a function, and holds the results to the reference's."""
    if count_points(function, kernels) > MOST_POINTS:
        return
    inputs = make_inputs(function, COUNT)
    got = run_kernels(function, kernels, inputs, misaligned=1)
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, values in got.items():
        found, expected = (v.astype(np.float64) for v in (values, wanted[name]))
        with np.errstate(all="ignore"):
            beyond = np.isfinite(found) & np.isfinite(expected)
            beyond &= ~(np.abs(found - expected) <= allowed[name])
        assert not beyond.any(), f"{name}: {found[beyond][0]} where {expected[beyond][0]} must be"


def count_points(function: ir.Function, kernels: tuple[k.Kernel, ...]) -> int:
    """The points that all stages of a function compute, and the elements of its kernels' memory."""
    points = [
        (*stage.extents, *(extent for _, extent in (stage.reduction or NO_REDUCTION).axes))
        for stage in function.stages
    ]
    memory = [size for kernel in kernels for size in find_sizes(function, kernel).values()]
    return sum(memory) + sum(
        math.prod(e if isinstance(e, int) else COUNT for e in each) for each in points
    )
