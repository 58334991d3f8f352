"""Counts by bisection how far something that rises stays below a value.

Where the elements that pass a condition lie is written by a running count of them:

    seen[i]  = sum[k : n where k <= i && c(k)](1)
    place[p] = sum[k : n where seen[k] <= p](1)

The second goes through all points for each element. Those at which `seen` is no more than `p` are
the first ones, for a running count never falls: how many there are is found in `log2(n)` steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from dmlc.ir import Cast, Constant, Function, Load, Stage, Tensor
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, read_comparison
from dmlc.scalars import DataType
from dmlc.transform.keys import find_counted
from dmlc.transform.scans import find_scan
from dmlc.transform.sort import bisect

_LEAST_STEPS = 1 << 16
"""Steps of a count that is worth the bisection."""
_BISECTED = 16
"""How many times the steps of one there are to be: they wait for one another."""
_MOST_POINTS = 1 << 30
"""Points, at most: positions a little beyond the last have 32 bits."""


def bisect_counts(function: Function, *, always: bool = False) -> Function:
    """The function with long counts of what rises found by bisection, or `always`, however short
    they are; the function itself where there are none."""
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
    """The axis along which a running count of what passes a condition never falls."""
    scan = find_scan(stage)
    if scan is None or scan.goes_back or scan.element_conditions or len(scan.terms) != 1:
        return None
    term = scan.terms[0]
    one = scan.stage.body.instructions[term.value]
    counts = stage.combiner == "sum" and not term.steps
    points = math.prod(e for _, e in stage.axes if isinstance(e, int))
    is_one = isinstance(one, Constant) and one.dtype.is_integer and one.value == 1
    if not counts or not is_one or points >= _MOST_POINTS or stage.dtype.bytes < 4:
        return None
    own = [index for index, times in scan.last.factors if times > 0 and index not in scan.outer]
    return own[0].axis if own else None


@dataclasses.dataclass(frozen=True, slots=True)
class _Count:
    """A stage that counts the points at which an element is less than a value, or no more."""

    stage: Stage
    load: Load
    axis: int
    """The axis of the tensor that the points are along."""
    comparison: str
    value: int
    points: int

    @property
    def is_worth_it(self) -> bool:
        elements = math.prod(e for e in self.stage.extents if isinstance(e, int))
        bisected = self.points.bit_length() * _BISECTED
        return elements * self.points >= _LEAST_STEPS and self.points >= bisected


def _find_count(stage: Stage, rising: Mapping[str, int]) -> _Count | None:
    """How a stage counts along what rises; None where it does not."""
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
    """The stage that counts by bisection."""
    stage, body, builder = count.stage, count.stage.body, BodyBuilder()
    # What depends on the point is part of the body still, and is dropped.
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
