"""Counts elements of a monotone tensor below a value by bisection.

The indices of the elements that pass a condition are the numbers of points at which a running count
of these is at most `p` (`docs/explanation/scans.md`). As a running count never decreases, those are
the first points, and their number is found in `log2(n)` steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from dmlc.ir import Cast, Constant, Function, Load, Stage, Tensor
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, read_comparison
from dmlc.scalars import DataType
from dmlc.sizes import find_symbols
from dmlc.transform.keys import find_counted
from dmlc.transform.scans import LEAST_STEPS, find_scan
from dmlc.transform.sort import MOST_POINTS, bisect

_BISECTED = 16
"""Smallest ratio of steps without bisection to steps with it, as the latter depend on one
another."""


def bisect_counts(function: Function, *, always: bool = False) -> Function:
    """Function with long counts over monotone tensors found by bisection (short ones too with
    `always`); the same object if there are none."""
    rising: dict[str, int] = {}
    stages: list[Stage] = []
    tensors = function.tensors()
    for stage in function.stages:
        axis = _find_rising(stage)
        if axis is not None:
            rising[stage.name] = axis
        count = _find_count(stage, rising)
        if count is None or not (always or count.is_worth_it):
            stages.append(stage)
        else:
            stages.append(_bisect(count, tensors[count.load.tensor]))
    return function.with_stages(stages)


def _find_rising(stage: Stage) -> int | None:
    """Axis along which a running count never decreases; None for other stages."""
    scan = None if find_symbols(stage.sizes) else find_scan(stage)
    if scan is None or scan.goes_back or scan.element_conditions or len(scan.terms) != 1:
        return None
    term = scan.terms[0]
    one = scan.stage.body.instructions[term.value]
    counts = stage.combiner == "sum" and not term.steps
    points = math.prod(stage.size(index) for index in stage.indices if index.reduced)
    is_one = isinstance(one, Constant) and one.dtype.is_integer and one.value == 1
    if not counts or not is_one or points >= MOST_POINTS or stage.dtype.bytes < 4:
        return None
    own = [index for index, times in scan.last.factors if times > 0 and index not in scan.outer]
    return own[0].axis if own else None


@dataclasses.dataclass(frozen=True, slots=True)
class _Count:
    """A stage that counts the points at which an element is less than a value, or at most it."""

    stage: Stage
    load: Load
    axis: int
    """Axis of the tensor along which the points are."""
    comparison: str
    value: int
    points: int

    @property
    def is_worth_it(self) -> bool:
        elements = math.prod(e for e in self.stage.extents if isinstance(e, int))
        bisected = self.points.bit_length() * _BISECTED
        return elements * self.points >= LEAST_STEPS and self.points >= bisected


def _find_count(stage: Stage, rising: Mapping[str, int]) -> _Count | None:
    """Count along a monotone axis; None for other stages."""
    body, counted = stage.body, find_counted(stage)
    if counted is None or not counted[1] or body.guard is None:
        return None
    facts, (point, points) = IndexFacts(stage), counted
    for comparison, given, value in read_comparison(body.instructions, body.guard):
        load = body.instructions[given]
        if not isinstance(load, Load) or comparison not in ("le", "lt"):
            continue
        if load.tensor not in rising:
            continue
        axis = rising[load.tensor]
        moved = [n for n in load.indices if point in facts.dependencies[n]]
        along = body.instructions[load.indices[axis]] == point and len(moved) == 1
        if along and point not in facts.dependencies[value]:
            return _Count(stage, load, axis, comparison, value, points)
    return None


def _bisect(count: _Count, source: Tensor) -> Stage:
    """Stage that counts by bisection."""
    stage, body, builder = count.stage, count.stage.body, BodyBuilder()
    # Values that depend on the point are copied with the body, and then dropped as unused.
    none = dict.fromkeys((i for i in stage.indices if i.reduced), builder.constant(0))
    numbers = builder.copy(body, places=none)
    places = [numbers[n] for n in count.load.indices]

    def is_less(last: int) -> int:
        places[count.axis] = last
        return builder.apply(count.comparison, builder.load(source, *places), numbers[count.value])

    found = bisect(builder, count.points, is_less)
    dtype = body.dtype
    result = found if dtype is DataType.INDEX else builder.add(Cast(found, dtype))
    return dataclasses.replace(stage, body=builder.make(result), reduction=None)
