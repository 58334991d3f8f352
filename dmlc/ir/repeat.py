"""Periodicity of a body's values along an index.

Sums, quotients by constants, remainders, clamps, and comparisons of these are periodic in an index,
up to a linear term. The exceptions are the few edges where a clamp or a comparison switches sides;
the interval between two edges is a *stretch*. It is found from the instructions alone, in time
independent of the axis' length.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from dmlc.index.intervals import Interval
from dmlc.ir.nodes import Apply, Constant, Index, Instruction, Select, Stage
from dmlc.ir.ranges import Ranges
from dmlc.scalars import DataType

_Bound: TypeAlias = Fraction | float


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """Periodicity of a value `v` in index `i`: for `first <= i` and `i + period < last`,
    `v(i + period)` is `v(i) + rise`. In that interval `v(i) - i * rise / period` lies from `low` to
    `high`."""

    period: int
    rise: int
    first: int
    last: int
    low: _Bound
    high: _Bound

    @property
    def slope(self) -> Fraction:
        return Fraction(self.rise, self.period)

    @property
    def constant(self) -> int | None:
        """The value, if it is the same constant for all `i`."""
        finite = self.rise == 0 and self.low == self.high and not math.isinf(self.low)
        return int(self.low) if finite else None


def find_repeats(stage: Stage, index: Index) -> tuple[Repeat | None, ...]:
    """Periodicity of each value of a stage's body along an index, whatever the other indices; None
    if unknown."""
    extent, ranges = stage.extent(index), Ranges(stage)

    def find(instruction: Instruction, given: list[Repeat | None]) -> Repeat | None:
        reach = ranges.add(instruction)
        known = [repeat for repeat in given if repeat is not None]
        if not isinstance(extent, int) or len(known) < len(given):
            return None
        if instruction == index:
            return Repeat(1, 1, 0, extent, Fraction(0), Fraction(0))
        return _apply(instruction, known, extent, reach)

    return stage.body.interpret(find)


def join_repeats(found: Sequence[Repeat], size: int, period: int = 1) -> tuple[int, int, int]:
    """Interval (first, last) of `size` indices in which all values are periodic, and their common
    period."""
    first = max((each.first for each in found), default=0)
    last = min((each.last for each in found), default=size)
    return first, last, math.lcm(period, *(each.period for each in found))


def _apply(
    instruction: Instruction, given: list[Repeat], extent: int, reach: Interval
) -> Repeat | None:
    first, last, period = join_repeats(given, extent)
    if isinstance(instruction, Constant) and not instruction.dtype.is_float:
        value = Fraction(int(instruction.value))
        return Repeat(1, 0, 0, extent, value, value)
    name = instruction.operation.name if isinstance(instruction, Apply) else ""
    if isinstance(instruction, Select) and given[0].constant is not None:
        chosen = given[1] if given[0].constant else given[2]
        return dataclasses.replace(chosen, first=first, last=last)
    if name in _COMPARED or (name in ("min", "max") and given[0].slope != given[1].slope):
        return _compare(name, given[0], given[1], first, last, period)
    low, high = (Fraction(int(b)) if math.isfinite(b) else b for b in reach)
    if not any(each.rise for each in given):
        # Any function of periodic operands is periodic.
        return Repeat(period, 0, first, last, low, high)
    if not isinstance(instruction, Apply) or instruction.dtype is not DataType.INDEX:
        return None
    rises = [each.rise * period // each.period for each in given]
    match name:
        case "add":
            low, high = given[0].low + given[1].low, given[0].high + given[1].high
            return Repeat(period, sum(rises), first, last, low, high)
        case "sub":
            low, high = given[0].low - given[1].high, given[0].high - given[1].low
            return Repeat(period, rises[0] - rises[1], first, last, low, high)
        case "neg":
            return Repeat(period, -rises[0], first, last, -given[0].high, -given[0].low)
        case "min" | "max":
            choose = min if name == "min" else max
            low = choose(given[0].low, given[1].low)
            return Repeat(period, rises[0], first, last, low, choose(given[0].high, given[1].high))
        case "mul":
            scaled, times = (given[0], given[1].constant)
            if times is None:
                scaled, times = given[1], given[0].constant
            if times is None:
                return None
            ends = sorted((scaled.low * times, scaled.high * times))
            return Repeat(scaled.period, scaled.rise * times, first, last, ends[0], ends[1])
        case "div" | "mod":
            return _divide(name, given[0], given[1].constant, first, last)
        case _:
            return None


def _divide(name: str, given: Repeat, by: int | None, first: int, last: int) -> Repeat | None:
    """Periodicity of a quotient or remainder of a dividend of at least 0, where rounding is
    downwards."""
    if by is None or by <= 0 or math.isinf(given.low) or math.isinf(given.high):
        return None
    turn = -given.low / given.slope
    if given.slope > 0:
        first = max(first, math.ceil(turn))
    else:
        last = min(last, math.floor(turn) + 1)
    times = by // math.gcd(given.rise, by)
    period = given.period * times
    if name == "mod":
        return Repeat(period, 0, first, last, Fraction(0), Fraction(by - 1))
    low, high = Fraction(given.low) / by - 1, Fraction(given.high) / by
    return Repeat(period, given.rise * times // by, first, last, low, high)


_COMPARED = {
    "lt": (True, False), "le": (True, False), "gt": (False, True), "ge": (False, True),
    "eq": (False, False), "ne": (True, True),
}  # fmt: skip
"""Results of a comparison if the first operand is less than the second, and if it is greater."""


def _compare(
    name: str, left: Repeat, right: Repeat, first: int, last: int, period: int
) -> Repeat | None:
    """Periodicity of a comparison, minimum or maximum, on the longer side of the index where it
    switches."""
    slope = left.slope - right.slope
    if slope == 0:
        return Repeat(period, 0, first, last, Fraction(0), Fraction(1))
    low, high = left.low - right.high, left.high - right.low
    if math.isinf(low) or math.isinf(high):
        return None
    if slope < 0:
        slope, low, high = -slope, -high, -low
    before = min(last, math.ceil(-high / slope))
    after = max(first, math.floor(-low / slope) + 1)
    is_after = last - after >= before - first
    first, last = (after, last) if is_after else (first, before)
    is_more = is_after == (left.slope > right.slope)
    if name in _COMPARED:
        holds = Fraction(int(_COMPARED[name][is_more]))
        return Repeat(1, 0, first, last, holds, holds)
    chosen = left if is_more == (name == "max") else right
    return dataclasses.replace(chosen, first=first, last=last)
