"""What is known of numbers where conditions hold: intervals, narrowed by comparisons.

The conditions are those that a guard joins. `ranges` bounds the values of a body at every point;
here they are bounded at the points that the guard lets through, whatever tensors they come from.
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
"""How often conditions are looked at: what one says may narrow what another compares with."""


def assume_guard(
    stage: Stage, tables: Mapping[str, Interval] = MappingProxyType({})
) -> list[Interval] | None:
    """The interval of each value of a stage at the points that its guard lets through; None where
    it lets none through. A float has one where conditions compare it with constants; if it may be
    NaN there, 0 is inside, which NaN becomes as a whole number."""
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
    """Adds what a condition that holds says of the values it compares."""
    for (name, value, other), holds in list_comparisons(body.instructions, condition):
        real = value_type(body.instructions[value]).is_float
        _compare_difference(body, value, other, name, known)
        # Where the comparison as it is written does not hold, floats may be NaN.
        if not holds and found.may_be_nan(other):
            continue
        low, high = _compare(found, value, name, other, real)
        widened = real and not holds
        _add(body, value, (min(low, 0), max(high, 0)) if widened else (low, high), known)


def _compare(found: Ranges, value: int, symbol: str, other: int, real: bool) -> Interval:
    """Where a value lies that compares so with another; `real` says that they are floats."""
    low, high = found.bounds(other)
    if symbol in DIFFERENCES:
        least, most = DIFFERENCES[symbol]
        return _move(low, least, real), _move(high, most, real)
    if low == high and not real:
        # The interval is one without that number, where it is at one of its ends.
        least, most = found[value]
        return least + (least == low), most - (most == low)
    return UNKNOWN


def _compare_difference(
    body: Body, left: int, right: int, symbol: str, known: dict[int, Interval]
) -> None:
    """Adds what a comparison of two positions says of their difference."""
    for value, instruction in enumerate(body.instructions):
        if not isinstance(instruction, Apply) or instruction.dtype is not DataType.INDEX:
            continue
        is_difference = instruction.operation.name == "sub"
        if is_difference and instruction.operands == (left, right) and symbol in DIFFERENCES:
            _add(body, value, DIFFERENCES[symbol], known)


def _move(bound: Bound, by: Bound, real: bool) -> Bound:
    """A bound moved by a difference: of floats, one of 1 is one to the next float."""
    if real and abs(by) == 1 and math.isfinite(bound):
        return math.nextafter(bound, by * math.inf)
    return by if math.isinf(by) else bound + by


def _add(body: Body, value: int, said: Interval, known: dict[int, Interval]) -> None:
    """Notes an interval of a value, and of what it is converted from."""
    while True:
        known[value] = meet(known.get(value, UNKNOWN), said)
        instruction = body.instructions[value]
        if not isinstance(instruction, Cast) or not _keeps(body, instruction):
            return
        value = instruction.operand


def _keeps(body: Body, cast: Cast) -> bool:
    """Whether a conversion gives every whole number as it is."""
    source = value_type(body.instructions[cast.operand])
    if not source.is_integer or not (cast.dtype.is_integer or cast.dtype is DataType.INDEX):
        return False
    (least, most), (low, high) = integer_limits(source), integer_limits(cast.dtype)
    return low <= least and most <= high
