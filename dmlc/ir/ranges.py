"""Interval arithmetic over whole numbers: how far a position can reach.

`verify` asks it whether a load stays inside its tensor. Bounds are exact integers, or infinite
where nothing is known; they only ever err outwards. What is made of floats is as far as these
reach, which is `fractions`' to say.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from dmlc.ir import fractions
from dmlc.ir.fractions import Fraction
from dmlc.ir.nodes import (
    POSITIONAL_COMBINERS,
    Apply,
    Cast,
    Constant,
    Index,
    Instruction,
    Load,
    Reduction,
    Select,
    Stage,
    Step,
    Symbol,
    Table,
    value_type,
)
from dmlc.scalars import LARGEST_INDEX, DataType
from dmlc.sizes import LARGEST, Size, has_quotients, measure, part_quotient

Bound: TypeAlias = int | float
"""An integer, or minus or plus infinity."""

Interval: TypeAlias = tuple[Bound, Bound]
"""The smallest and the largest value, both included."""

UNKNOWN: Interval = (-math.inf, math.inf)
_LIMIT = 2**63


class Ranges:
    """The intervals of a body's values, one after the other: `add` takes them in order.

    That of a whole number is given by its number; it is `UNKNOWN` for what is none. One read from
    a tensor lies in its type's, and so does one that wraps; one read from a tensor that `known`
    has lies in that one's.
    """

    def __init__(self, stage: Stage, known: Mapping[str, Interval] = MappingProxyType({})) -> None:
        self._stage = stage
        self._known = known
        self._whole: list[Interval] = []
        self._fractions: list[Fraction] = []
        """Those of the first values: they are found once a whole number is made of one."""

    def __getitem__(self, value: int) -> Interval:
        return self._whole[value]

    def add(self, instruction: Instruction) -> Interval:
        """Adds the next value, and gives its interval."""
        limits = _LIMITS.get(value_type(instruction))
        found = UNKNOWN if limits is None else self._find_whole(instruction, limits)
        self._whole.append(found)
        return found

    def settle(self, value: int, found: Interval) -> None:
        """Says what is known of a value otherwise."""
        self._fraction(len(self._whole) - 1)
        self._whole[value] = found

    def bounds(self, value: int) -> Interval:
        """The interval of a value, whole number or float, wherever it is not NaN."""
        if not self._type(value).is_float:
            return self[value]
        fraction = self._fraction(value)
        return fraction.low, fraction.high

    def may_be_nan(self, value: int) -> bool:
        return self._type(value).is_float and self._fraction(value).nan

    def narrow(self, value: int, said: Interval) -> None:
        """Says that a value lies in an interval too. A float that may be NaN there has 0 in it,
        which NaN becomes as a whole number."""
        self._fraction(len(self._whole) - 1)
        low, high = self.bounds(value)
        low, high = max(low, said[0]), min(high, said[1])
        if self._type(value).is_float:
            nan = self._fractions[value].nan and said[0] <= 0 <= said[1]
            self._fractions[value] = Fraction(float(low), float(high), nan)
        else:
            self._whole[value] = low, high

    def _find_whole(self, instruction: Instruction, limits: Interval) -> Interval:
        match instruction:
            case Constant():
                return int(instruction.value), int(instruction.value)
            case Index():
                extent = self._stage.extent(instruction)
                # The sizes of all axes are checked to be no more than `LARGEST`.
                most = extent if isinstance(extent, int) else size_range(extent)[1]
                return 0, (most if isinstance(extent, int) else min(most, LARGEST)) - 1
            case Symbol(name=name):
                # So are those that kernels are given.
                low, high = size_range(name)
                return low, min(high, LARGEST)
            case Step(steps=steps):
                return 0, max(steps, 1) - 1
            case Load():
                return self._known.get(instruction.tensor, limits)
            case Select():
                then, otherwise = self[instruction.then], self[instruction.otherwise]
                return min(then[0], otherwise[0]), max(then[1], otherwise[1])
            case Cast(operand=operand):
                source = self._type(operand)
                if source.is_float:
                    return _truncate_fraction(self._fraction(operand), limits)
                given = (0, 1) if source is DataType.BOOL else self[operand]
                if instruction.dtype is DataType.INDEX and source is DataType.UINT64:
                    given = min(given[0], LARGEST_INDEX), min(given[1], LARGEST_INDEX)
            case Apply():
                operands = [self[o] for o in instruction.operands]
                given = combine_whole(instruction.operation.name, operands)
        if limits == UNKNOWN and _LIMIT <= given[1] < math.inf:
            return UNKNOWN  # Beyond 64 bits positions wrap.
        # Beyond the type the arithmetic wraps, and nothing is known.
        return given if limits[0] <= given[0] and given[1] <= limits[1] else limits

    def _fraction(self, value: int) -> Fraction:
        """How far a value reaches if it is a float. Those before it are found first, and all of
        them before anything else is said of a value."""
        instructions = self._stage.body.instructions
        for instruction in instructions[len(self._fractions) : value + 1]:
            is_float = value_type(instruction).is_float
            made = self._find_fraction(instruction) if is_float else fractions.ANYTHING
            self._fractions.append(made)
        return self._fractions[value]

    def _find_fraction(self, instruction: Instruction) -> Fraction:
        match instruction:
            case Constant():
                return fractions.constant(float(instruction.value))
            case Select():
                then, otherwise = (
                    self._fractions[o] for o in (instruction.then, instruction.otherwise)
                )
                return then.joined(otherwise)
            case Cast(operand=operand):
                source = self._type(operand)
                if source.is_float:
                    return fractions.narrow(self._fractions[operand])
                return fractions.convert_whole(
                    *((0, 1) if source is DataType.BOOL else self[operand])
                )
            case Apply():
                given = [self._fractions[o] for o in instruction.operands]
                return fractions.apply(instruction.operation.name, given)
            case _:
                return fractions.ANYTHING

    def _type(self, value: int) -> DataType:
        return value_type(self._stage.body.instructions[value])


def _truncate_fraction(given: Fraction, limits: Interval) -> Interval:
    """A float as a whole number between two limits, which it is held to; NaN gives 0."""
    low, high = (_hold(bound, limits) for bound in (given.low, given.high))
    return (min(low, 0), max(high, 0)) if given.nan else (low, high)


def _hold(bound: float, limits: Interval) -> Bound:
    if math.isinf(bound):
        return limits[0] if bound < 0 else limits[1]
    low, high = (-_LIMIT, _LIMIT - 1) if limits == UNKNOWN else limits
    return min(max(math.trunc(bound), low), high)


@functools.lru_cache(1024)
def size_range(text: str) -> Interval:
    """What a size that is known at run time only may be."""
    size = measure(text)
    if not isinstance(size, Size):
        return size, size
    low, high = size.bounds()
    most = sum(
        n * math.prod(_find_most(symbol) if n > 0 else 1 for symbol in symbols)
        for symbols, n in size.terms
        if n > 0 or not has_quotients(Size(((symbols, n),)))
    )
    return low, min(high, most if most < _LIMIT else math.inf)


def _find_most(symbol: str) -> int:
    """The most that a symbol, or a quotient, may be."""
    quotient = part_quotient(symbol)
    if quotient is None:
        return LARGEST
    size, by = quotient
    terms = size.terms if isinstance(size, Size) else (((), size),)
    return sum(n * math.prod(map(_find_most, symbols)) for symbols, n in terms) // by


def table_ranges(tables: Sequence[Table]) -> dict[str, Interval]:
    """The smallest and the largest value of each table of whole numbers."""
    return {
        table.name: (int(min(table.values)), int(max(table.values)))
        for table in tables
        if table.dtype.is_integer and table.values
    }


def stage_range(stage: Stage, found: Ranges) -> Interval | None:
    """The interval that the elements of a stage of whole numbers lie in, given those of its body's
    values; None where nothing is known but their type."""
    reduction = stage.reduction
    if reduction is None:
        return found[stage.body.result] if stage.dtype.is_integer else None
    return _find_reduced(stage, reduction)


def number_ranges(stages: Iterable[Stage]) -> dict[str, Interval]:
    """The interval of each stage that gives the numbers of points, or how many there are."""
    found: dict[str, Interval] = {}
    for stage in stages:
        if stage.reduction is not None:
            held = _find_reduced(stage, stage.reduction)
            if held is not None:
                found[stage.name] = held
    return found


def _find_reduced(stage: Stage, reduction: Reduction) -> Interval | None:
    """The interval of numbers of points, or of sums of one whole number."""
    points = math.prod(e if isinstance(e, int) else math.inf for _, e in reduction.axes)
    if reduction.combiner in POSITIONAL_COMBINERS:
        return 0, max(points - 1, 0)
    each = stage.body.instructions[stage.body.result]
    if reduction.combiner != "sum" or not isinstance(each, Constant) or math.isinf(points):
        return None
    limits = _LIMITS.get(stage.dtype)
    if limits is None:
        return None
    total = int(each.value) * int(points)
    within = limits[0] <= total <= limits[1]
    return (min(total, 0), max(total, 0)) if within else None


def _find_limits(dtype: DataType) -> Interval:
    found = np.iinfo(dtype.dtype)
    return int(found.min), int(found.max)


_LIMITS: dict[DataType, Interval] = {d: _find_limits(d) for d in DataType if d.is_integer}
_LIMITS[DataType.INDEX] = UNKNOWN
"""What a value of a type may be, if it is a whole number: a position may be anything."""


def combine_whole(name: str, given: list[Interval]) -> Interval:
    """The interval of what an operation of that name makes of whole numbers; `UNKNOWN` for one that
    is not followed, and beyond 64 bits."""
    if name in ("min", "max"):
        choose = min if name == "min" else max
        return choose(given[0][0], given[1][0]), choose(given[0][1], given[1][1])
    if name not in _BOUNDED or any(math.isinf(bound) for pair in given for bound in pair):
        return UNKNOWN
    whole = [(int(low), int(high)) for low, high in given]
    low, high = _BOUNDED[name](whole)
    # Beyond 64 bits positions wrap.
    return (low, high) if low >= -_LIMIT and high < 2 * _LIMIT else UNKNOWN


_Whole: TypeAlias = tuple[int, int]


def _multiply(given: list[_Whole]) -> Interval:
    ends = [a * b for a in given[0] for b in given[1]]
    return min(ends), max(ends)


def _divide(given: list[_Whole]) -> Interval:
    (low, high), divisors = given
    if divisors[0] <= 0:
        return UNKNOWN
    ends = [_truncate(end, divisor) for end in (low, high) for divisor in divisors]
    return min(ends), max(ends)


def _truncate(value: int, divisor: int) -> int:
    return value // divisor if value >= 0 else -(-value // divisor)


def _remain(given: list[_Whole]) -> Interval:
    (low, high), (least, largest) = given
    if least <= 0:
        return UNKNOWN
    most = largest - 1
    return max(min(low, 0), -most), min(max(high, 0), most)


def _absolute(given: list[_Whole]) -> Interval:
    low, high = given[0]
    return max(low, -high, 0), max(abs(low), abs(high))


_BOUNDED: dict[str, Callable[[list[_Whole]], Interval]] = {
    "add": lambda g: (g[0][0] + g[1][0], g[0][1] + g[1][1]),
    "sub": lambda g: (g[0][0] - g[1][1], g[0][1] - g[1][0]),
    "neg": lambda g: (-g[0][1], -g[0][0]),
    "abs": _absolute,
    "mul": _multiply,
    "div": _divide,
    "mod": _remain,
}
"""Index operations whose result is known from their operands', by name."""
