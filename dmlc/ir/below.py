"""Proofs that indices are in bounds along axes whose sizes are known at run time only.

A value is bounded symbolically, by expressions of sizes: an index by its axis, a sum by the bounds
of its operands, a clamp or a remainder by its limits, and any value by the comparisons of the
guard. It is in bounds if such a bound is below the size for all values of the symbols. `ranges`
finds numeric intervals.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable, Sequence

from dmlc.index.intervals import DIFFERENCES, MIRRORED, Interval
from dmlc.ir.index import list_comparisons
from dmlc.ir.nodes import (
    Apply,
    Constant,
    Index,
    Instruction,
    Select,
    Stage,
    Step,
    Symbol,
    value_type,
)
from dmlc.ir.ranges import Ranges
from dmlc.scalars import DataType
from dmlc.sizes import LARGEST, Measure, Size, divide_down, find_least, measure, read_counted

_DEEPEST = 24
"""Depth of nested operations that a proof examines."""
_MOST_NESTED = 3
"""Depth of nested selects whose branches are examined under their condition."""
_MOST = 4
"""Number of bounds kept for one value."""


def is_inside_open(
    stage: Stage, value: int, size: str, ranges: Ranges, checks: Iterable[str] = ()
) -> bool:
    """Whether an INDEX value of a stage is at least 0 and below `size` at every point that passes
    the guard, given `checks` on symbols. `ranges` are the intervals of the values before it."""
    return SizeBounds(stage, ranges, measure(size), checks).is_inside(value)


@dataclasses.dataclass(frozen=True, slots=True)
class _Reach:
    """Lower and upper bounds of a value; all of them hold."""

    low: tuple[Measure, ...] = ()
    high: tuple[Measure, ...] = ()

    def negated(self) -> _Reach:
        return _Reach(_product(self.high, (-1,)), _product(self.low, (-1,)))

    def plus(self, other: _Reach) -> _Reach:
        return _Reach(_sum(self.low, other.low), _sum(self.high, other.high))


_COMPARED = {
    name: _Reach(*(() if math.isinf(end) else (int(end),) for end in ends))
    for name, ends in DIFFERENCES.items()
}
"""Bounds of the difference of two values, by the comparison between them."""


class SizeBounds:
    """Symbolic bounds of a stage's INDEX values at points where its guard and `conditions` hold,
    given `checks` on symbols. `conditions` are (value, whether it is true) pairs. `size` is that of
    the axis in question; `ranges` are the intervals of the values, if already known."""

    def __init__(
        self,
        stage: Stage,
        ranges: Ranges | None = None,
        size: Measure = 1,
        checks: Iterable[str] = (),
        conditions: Iterable[tuple[int, bool]] = (),
    ) -> None:
        self._stage = stage
        self._values = stage.body.instructions
        self._size = size
        self._ranges = Ranges.of(stage) if ranges is None else ranges
        self._conditions = _list_conditions(self._values, stage.body.guard, True)
        for condition, holds in conditions:
            self._conditions += _list_conditions(self._values, condition, holds)
        self._nested = 0
        self._found: dict[int, _Reach] = {}
        steps = (i.steps for i in self._values if isinstance(i, Step))
        open_sizes = dict.fromkeys(e for e in (*stage.sizes, *steps) if isinstance(e, str))
        sizes = [size, *map(measure, open_sizes)]
        # Axes have at least one element.
        self._counted = [*(each - 1 for each in sizes), *read_counted(checks)]
        """Sizes and expressions of sizes that are 0 or more."""

    def is_inside(self, value: int) -> bool:
        reach = self._reach(value, 0)
        counted = any(self._least(low) >= 0 for low in reach.low)
        return counted and any(self._least(self._size - 1 - high) >= 0 for high in reach.high)

    def interval(self, value: int) -> Interval:
        """Numeric interval of an INDEX value, for all sizes."""
        reach = self._reach(value, 0)
        low = max((b for b in reach.low if isinstance(b, int)), default=-math.inf)
        return low, min((b for b in reach.high if isinstance(b, int)), default=math.inf)

    def is_at_most(self, value: int, other: int, below: int = 0) -> bool:
        """Whether an INDEX value is always at least `below` less than another."""
        high, low = self._reach(value, 0).high, self._reach(other, 0).low
        return any(self._least(b - a) >= below for a in high for b in low)

    def is_certain(self, condition: int, holds: bool = True) -> bool:
        """Whether a condition is true at every point; without `holds`, false at every point."""
        instruction = self._values[condition]
        if not isinstance(instruction, Apply):
            return isinstance(instruction, Constant) and instruction.value is holds
        name, given = instruction.operation.name, instruction.operands
        if name == "not":
            return self.is_certain(given[0], not holds)
        if name == ("and" if holds else "or"):
            return all(self.is_certain(operand, holds) for operand in given)
        made = _list_conditions(self._values, condition, holds)
        return bool(made) and all(self._is_ordered(*each) for each in made)

    def _is_ordered(self, name: str, left: int, right: int) -> bool:
        """Whether a comparison of two values is always true."""
        if name in ("gt", "ge"):
            return self._is_ordered(MIRRORED[name], right, left)
        if name == "eq":
            return self.is_at_most(left, right) and self.is_at_most(right, left)
        return self.is_at_most(left, right, below=int(name == "lt"))

    def _least(self, given: Measure) -> float:
        """Lower bound of an expression of sizes, directly or by its excess over one of
        `_counted`."""
        if not isinstance(given, Size):
            return given
        return max(map(find_least, (given, *(given - counted for counted in self._counted))))

    # Values -----------------------------------------------------------------------------------

    def _reach(self, value: int, depth: int) -> _Reach:
        """Bounds of a value."""
        if value in self._found:
            return self._found[value]
        low, high = self._ranges[value]
        numbers = _Reach(
            (int(low),) if math.isfinite(low) else (),
            (int(high),) if math.isfinite(high) and high < LARGEST - 1 else (),
        )
        if depth > _DEEPEST:
            return numbers
        if isinstance(self._values[value], Constant | Symbol):
            self._found[value] = self._find(self._values[value], depth)
            return self._found[value]
        self._found[value] = numbers  # A guard may compare a value with an expression of itself.
        reaches = [numbers, self._find(self._values[value], depth + 1)]
        reaches += [
            self._compare(name, other, depth + 1)
            for name, left, other in self._conditions
            if left == value
        ]
        reaches.reverse()
        lows = dict.fromkeys(bound for reach in reaches for bound in reach.low)
        highs = dict.fromkeys(bound for reach in reaches for bound in reach.high)
        found = _Reach(tuple(lows)[:_MOST], tuple(highs)[:_MOST])
        self._found[value] = found
        return found

    def _compare(self, name: str, other: int, depth: int) -> _Reach:
        """Bounds of a value from its comparison with another."""
        return self._reach(other, depth).plus(_COMPARED[name])

    def _find(self, instruction: Instruction, depth: int) -> _Reach:
        match instruction:
            case Index():
                extent = self._stage.extent(instruction)
                return _Reach((0,), () if extent is None else (measure(extent) - 1,))
            case Step(steps=steps):
                return _Reach((0,), (measure(steps) - 1,))
            case Constant(dtype=DataType.INDEX):
                return _Reach((int(instruction.value),), (int(instruction.value),))
            case Symbol(name=name):
                return _Reach((measure(name),), (measure(name),))
            case Select():
                one = self._assume(instruction.condition, True)._reach(instruction.then, depth)
                other = self._assume(instruction.condition, False)._reach(
                    instruction.otherwise, depth
                )
                return _Reach(self._lower(one.low, other.low), self._upper(one.high, other.high))
            case Apply(operation=operation, operands=given, dtype=DataType.INDEX):
                return self._combine(operation.name, [self._reach(o, depth) for o in given])
            case _:
                return _Reach()

    def _assume(self, condition: int, holds: bool) -> SizeBounds:
        """Proof with a further condition that is true, or false without `holds`."""
        made = _list_conditions(self._values, condition, holds)
        if not made or self._nested >= _MOST_NESTED:
            return self
        inner = copy.copy(self)
        inner._conditions = [*self._conditions, *made]
        inner._found, inner._nested = {}, self._nested + 1
        return inner

    def _lower(
        self, one: Iterable[Measure], other: Iterable[Measure], end: Measure = 0, sign: int = 1
    ) -> tuple[Measure, ...]:
        """Common lower bounds of two values, out of theirs and `end`; with a negative `sign`,
        common upper bounds."""
        found = (
            bound
            for a in one
            for b in other
            for bound in (a, b, end)
            if all(self._least((value - bound) * sign) >= 0 for value in (a, b))
        )
        return tuple(dict.fromkeys(found))

    def _upper(self, one: Iterable[Measure], other: Iterable[Measure]) -> tuple[Measure, ...]:
        """Common upper bounds of two values."""
        return self._lower(one, other, self._size - 1, -1)

    # Operations -------------------------------------------------------------------------------

    def _combine(self, name: str, given: list[_Reach]) -> _Reach:
        first, second = given[0], given[-1]
        match name:
            case "add":
                return first.plus(second)
            case "sub":
                return first.plus(second.negated())
            case "neg":
                return first.negated()
            case "mul":
                return self._multiply(first, second)
            case "div":
                return self._divide(first, second)
            case "mod":
                return self._remain(first, second)
            case "min":
                return _Reach(self._lower(first.low, second.low), (*first.high, *second.high))
            case "max":
                highs = self._upper(first.high, second.high)
                if self._is_counted(first) and self._is_counted(second):
                    highs = (*highs, *_sum(first.high, second.high))
                return _Reach((*first.low, *second.low), highs)
            case _:
                return _Reach()

    def _is_counted(self, reach: _Reach) -> bool:
        return any(self._least(low) >= 0 for low in reach.low)

    def _multiply(self, first: _Reach, second: _Reach) -> _Reach:
        if self._is_counted(first) and self._is_counted(second):
            lows = (low for low in _product(first.low, second.low) if self._least(low) >= 0)
            return _Reach((*lows, 0), _product(first.high, second.high))
        for one, other in ((first, second), (second, first)):
            factor = _exact(other)
            if factor is not None and self._least(factor * -1) >= 0:
                one, factor = one.negated(), factor * -1
            if factor is not None and self._least(factor) >= 0:
                return _Reach(_product(one.low, (factor,)), _product(one.high, (factor,)))
        return _Reach()

    def _divide(self, first: _Reach, second: _Reach) -> _Reach:
        """Bounds of a quotient rounded towards 0."""
        divisor = _exact(second)
        if isinstance(divisor, int) and divisor > 0:
            high = (divide_down(h, divisor) for h in first.high if self._least(h) >= 0)
            return _Reach(tuple(divide_down(low, divisor) for low in first.low), tuple(high))
        if not self._is_counted(first) or not any(self._least(low) >= 1 for low in second.low):
            return _Reach()
        high = list(first.high)
        if isinstance(divisor, Size):
            made = (self._divide_by(bound, divisor) for bound in first.high)
            high = [*(bound for bound in made if bound is not None), *high]
        return _Reach((0,), tuple(high))

    def _divide_by(self, bound: Measure, divisor: Size) -> Measure | None:
        """Quotient of a bound by a size, rounded down; None if the remainder's terms may reach the
        size."""
        if len(divisor.terms) != 1 or not isinstance(bound, Size):
            return None
        symbols, number = next(iter(divisor.terms))
        whole: Measure = 0
        for factors, n in bound.terms:
            rest = list(factors)
            for symbol in symbols:
                if symbol in rest:
                    rest.remove(symbol)
            if len(rest) == len(factors) - len(symbols) and n % number == 0:
                whole = Size(((tuple(rest), n // number),)) + whole if rest else whole + n // number
        over = bound - whole * divisor
        if self._least(divisor - 1 - over) < 0:
            return None
        return whole - 1 if self._least(-1 - over) >= 0 else whole

    def _remain(self, first: _Reach, second: _Reach) -> _Reach:
        """Bounds of a remainder, which has the dividend's sign."""
        positive = any(self._least(low) >= 1 for low in second.low)
        last = _sum(second.high, (-1,)) if positive else ()
        if self._is_counted(first):
            return _Reach((0,), (*last, *first.high))
        return _Reach(_product(last, (-1,)), last)


def _sum(one: Iterable[Measure], other: Sequence[Measure]) -> tuple[Measure, ...]:
    return tuple(dict.fromkeys(a + b for a in one for b in other))


def _product(one: Iterable[Measure], other: Sequence[Measure]) -> tuple[Measure, ...]:
    return tuple(dict.fromkeys(a * b for a in one for b in other))


def _exact(reach: _Reach) -> Measure | None:
    """The value itself, if a lower and an upper bound coincide."""
    return next((low for low in reach.low if low in reach.high), None)


def _list_conditions(
    values: Sequence[Instruction], condition: int | None, holds: bool
) -> list[tuple[str, int, int]]:
    """Comparisons of INDEX values implied by a condition, each in both directions."""
    if condition is None:
        return []
    return [
        each
        for each, _ in list_comparisons(values, condition, holds)
        if each[0] != "ne" and value_type(values[each[1]]) is DataType.INDEX
    ]
