"""Intervals of values at the points that pass a stage's guard.

`ranges` bounds the values of a body at every point; here the comparisons that the guard joins
narrow them, elements of tensors included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from dmlc.index.intervals import DIFFERENCES, UNKNOWN, Bound, Interval, meet
from dmlc.ir.index import list_comparisons, list_conjuncts
from dmlc.ir.nodes import Apply, Body, Cast, Stage, value_type
from dmlc.ir.ranges import Ranges
from dmlc.scalars import DataType, integer_limits

_ROUNDS = 3
"""Passes over the conditions: one may narrow a value that another compares with."""


def assume_guard(
    stage: Stage, tables: Mapping[str, Interval] = MappingProxyType({})
) -> list[Interval] | None:
    """Interval of each value of a stage at the points that pass its guard; None if no point passes.
    A float has one if conditions compare it with constants; if it may be NaN there, the interval
    contains 0, the conversion of NaN to an integer."""
    known: dict[int, Interval] = {}
    found = Ranges.of(stage, tables, known)
    values = range(len(stage.body.instructions))
    for _ in range(_ROUNDS):
        before = dict(known)
        for condition in list_conjuncts(stage.body):
            _narrow(stage.body, condition, found, known)
        found = Ranges.of(stage, tables, known)
        if any(low > high for low, high in map(found.bounds, values)):
            return None
        if known == before:
            break
    return [found.bounds(value) for value in values]


def _narrow(body: Body, condition: int, found: Ranges, known: dict[int, Interval]) -> None:
    """Adds the intervals implied by a true condition to `known`."""
    for (name, value, other), holds in list_comparisons(body.instructions, condition):
        real = value_type(body.instructions[value]).is_float
        _compare_difference(body, value, other, name, known)
        # A comparison that was negated is also false for NaN, so floats may be NaN.
        if not holds and found.may_be_nan(other):
            continue
        low, high = _compare(found, value, name, other, real)
        widened = real and not holds
        _add(body, value, (min(low, 0), max(high, 0)) if widened else (low, high), known)


def _compare(found: Ranges, value: int, symbol: str, other: int, real: bool) -> Interval:
    """Interval of a value that compares so with another; `real` means that they are floats."""
    low, high = found.bounds(other)
    if symbol in DIFFERENCES:
        least, most = DIFFERENCES[symbol]
        return _move(low, least, real), _move(high, most, real)
    if low == high and not real:
        # The number is excluded if it is an end of the interval.
        least, most = found[value]
        return least + (least == low), most - (most == low)
    return UNKNOWN


def _compare_difference(
    body: Body, left: int, right: int, symbol: str, known: dict[int, Interval]
) -> None:
    """Adds the intervals that a comparison of two indices implies for their differences."""
    for value, instruction in enumerate(body.instructions):
        if not isinstance(instruction, Apply) or instruction.dtype is not DataType.INDEX:
            continue
        is_difference = instruction.operation.name == "sub"
        if is_difference and instruction.operands == (left, right) and symbol in DIFFERENCES:
            _add(body, value, DIFFERENCES[symbol], known)


def _move(bound: Bound, by: Bound, real: bool) -> Bound:
    """Bound moved by a difference; for floats, a difference of 1 means the adjacent float."""
    if real and abs(by) == 1 and math.isfinite(bound):
        return math.nextafter(bound, by * math.inf)
    return by if math.isinf(by) else bound + by


def _add(body: Body, value: int, said: Interval, known: dict[int, Interval]) -> None:
    """Narrows a value, and the operand of a conversion that preserves it."""
    while True:
        known[value] = meet(known.get(value, UNKNOWN), said)
        instruction = body.instructions[value]
        if not isinstance(instruction, Cast) or not _keeps(body, instruction):
            return
        value = instruction.operand


def _keeps(body: Body, cast: Cast) -> bool:
    """Whether a conversion preserves every integer."""
    source = value_type(body.instructions[cast.operand])
    if not source.is_integer or not (cast.dtype.is_integer or cast.dtype is DataType.INDEX):
        return False
    (least, most), (low, high) = integer_limits(source), integer_limits(cast.dtype)
    return low <= least and most <= high
