"""Expected results from the reference, in bounded time.

The reference evaluates every point of a reduction, whatever its guard: formally, a resampling sums
all of an image for every pixel. Here the reduction domains are narrowed first
(`transform.tighten`), which changes no point that takes part.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

from dmlc.ir import Function
from dmlc.parameters import expect
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.transform.simplify import simplify
from dmlc.transform.tighten import tighten_bounds


def find_expected(function: Function, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Results of a function by name, with the values and errors of `reference.evaluate`."""
    expect("function", function, Function, "an ir.Function")
    return evaluate(shorten(function), inputs)


@functools.lru_cache(maxsize=32)
def shorten(function: Function) -> Function:
    """Function with narrowed reductions. Cached for other devices and values: it takes longer than
    evaluating small arrays."""
    return function if function.loops else tighten_bounds(simplify(function))


def find_work(function: Function) -> int:
    """Number of instructions executed over all points of all stages, reductions included: the work
    of an evaluation, as far as sizes are known."""
    total = 0
    for stage in function.stages:
        axes = () if stage.reduction is None else stage.reduction.axes
        extents = (*stage.extents, *(extent for _, extent in axes))
        points = math.prod(extent for extent in extents if isinstance(extent, int))
        total += points * len(stage.body.instructions)
    return total
