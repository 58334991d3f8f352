"""What results are held to: the reference's, in time that a person waits for.

The reference takes every point of a reduction, whatever its guard. On paper a resampling sums all
of an image for every pixel; here the function is given short loops first (`transform.tighten`),
which change no point that takes part.
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
    """The function's results by name, as `reference.evaluate` gives and refuses them."""
    expect("function", function, Function, "an ir.Function")
    return evaluate(shorten(function), inputs)


@functools.lru_cache(maxsize=32)
def shorten(function: Function) -> Function:
    """The function as it is evaluated. Kept for the next device, or the next values: it takes
    longer than small arrays do."""
    return function if function.loops else tighten_bounds(simplify(function))


def find_work(function: Function) -> int:
    """The instructions that all stages of a function run over all their points, those of reductions
    included: what evaluating it takes, as far as sizes are known."""
    total = 0
    for stage in function.stages:
        axes = () if stage.reduction is None else stage.reduction.axes
        extents = (*stage.extents, *(extent for _, extent in axes))
        points = math.prod(extent for extent in extents if isinstance(extent, int))
        total += points * len(stage.body.instructions)
    return total
