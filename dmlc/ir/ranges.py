"""Interval analysis of the values of a stage's body.

`verify` uses it to prove that loads are in bounds. Intervals of floats are those of `fractions`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from dmlc.index.intervals import (
    NEGATED,
    UNKNOWN,
    WRAPS,
    Bound,
    Interval,
    combine,
    compare,
    hull,
    meet,
    size_range,
)
from dmlc.ir.nodes import (
    IR_OPERATIONS,
    Apply,
    Cast,
    Constant,
    Extent,
    Index,
    Instruction,
    Load,
    Select,
    Stage,
    Step,
    Symbol,
    Table,
    value_type,
)
from dmlc.scalars import LARGEST_INDEX, DataType, fractions, integer_limits
from dmlc.scalars.fractions import Fraction
from dmlc.sizes import LARGEST


class Ranges:
    """Intervals of a body's values, added in order by `add`.

    Subscripting gives the interval of an integer value, and `UNKNOWN` for other types. An element
    of a tensor has the interval in `known`, or else that of its type; so has a value that may wrap
    around.
    """

    def __init__(self, stage: Stage, known: Mapping[str, Interval] = MappingProxyType({})) -> None:
        self._stage = stage
        self._known = known
        self._whole: list[Interval] = []
        self._fractions: list[Fraction] = []
        """Intervals of the first values as floats, found when first needed."""
        self._truths: list[Interval] = []

    @classmethod
    def of(
        cls,
        stage: Stage,
        known: Mapping[str, Interval] = MappingProxyType({}),
        said: Mapping[int, Interval] = MappingProxyType({}),
    ) -> Ranges:
        """Intervals of all values of a stage; `said` are intervals known from elsewhere, by
        value."""
        found = cls(stage, known)
        for value, instruction in enumerate(stage.body.instructions):
            found.add(instruction)
            if value in said:
                found.narrow(value, said[value])
        return found

    def __getitem__(self, value: int) -> Interval:
        return self._whole[value]

    def add(self, instruction: Instruction) -> Interval:
        """Adds the next value, and returns its interval."""
        limits = _LIMITS.get(value_type(instruction))
        found = UNKNOWN if limits is None else self._find_whole(instruction, limits)
        self._whole.append(found)
        return found

    def truth(self, value: int) -> Interval:
        """Interval of a BOOL value, as 0 or 1."""
        instructions = self._stage.body.instructions
        for instruction in instructions[len(self._truths) : value + 1]:
            self._truths.append(self._find_truth(instruction))
        return self._truths[value]

    def settle(self, value: int, found: Interval) -> None:
        """Replaces the interval of an integer value."""
        self._fraction(len(self._whole) - 1)
        self._whole[value] = found

    def bounds(self, value: int) -> Interval:
        """Interval of an integer or float value wherever it is not NaN."""
        if not self._type(value).is_float:
            return self[value]
        fraction = self._fraction(value)
        return fraction.low, fraction.high

    def may_be_nan(self, value: int) -> bool:
        return self._type(value).is_float and self._fraction(value).nan

    def narrow(self, value: int, said: Interval) -> None:
        """Intersects the interval of a value with `said`. A float that may be NaN keeps 0 in it,
        the conversion of NaN to an integer."""
        self._fraction(len(self._whole) - 1)
        low, high = meet(self.bounds(value), said)
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
                return 0, _find_most(self._stage.extent(instruction)) - 1
            case Symbol(name=name):
                low, high = size_range(name)
                return low, min(high, LARGEST)
            case Step(steps=steps):
                return 0, max(_find_most(steps), 1) - 1
            case Load():
                return self._known.get(instruction.tensor, limits)
            case Select():
                return hull(self[instruction.then], self[instruction.otherwise])
            case Cast(operand=operand):
                source = self._type(operand)
                if source.is_float:
                    # The conversion saturates, and NaN gives 0.
                    given = self._fraction(operand)
                    low, high = (_hold(bound, limits) for bound in (given.low, given.high))
                    return (min(low, 0), max(high, 0)) if given.nan else (low, high)
                given = (0, 1) if source is DataType.BOOL else self[operand]
                if instruction.dtype is DataType.INDEX and source is DataType.UINT64:
                    given = min(given[0], LARGEST_INDEX), min(given[1], LARGEST_INDEX)
            case Apply():
                operands = [self[o] for o in instruction.operands]
                given = combine(instruction.operation.name, operands)
        if limits == UNKNOWN and WRAPS <= given[1] < math.inf:
            return UNKNOWN  # Beyond 64 bits an INDEX wraps.
        # Beyond its range a type's arithmetic wraps to any value.
        return given if limits[0] <= given[0] and given[1] <= limits[1] else limits

    def _fraction(self, value: int) -> Fraction:
        """Interval of a float value, computed with those of all values before it. They must be
        computed before `narrow` or `settle` changes a value."""
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
            case Select(then=then, otherwise=otherwise):
                return self._fractions[then].joined(self._fractions[otherwise])
            case Cast(operand=operand):
                source = self._type(operand)
                if source.is_float:
                    return fractions.widen(self._fractions[operand])
                whole = (0, 1) if source is DataType.BOOL else self[operand]
                return fractions.convert_whole(*whole)
            case Apply():
                given = [self._fractions[o] for o in instruction.operands]
                find_range = IR_OPERATIONS[instruction.operation.name].range
                return fractions.ANYTHING if find_range is None else find_range(*given)
            case _:
                return fractions.ANYTHING

    def _find_truth(self, instruction: Instruction) -> Interval:
        if value_type(instruction) is not DataType.BOOL:
            return 0, 1
        match instruction:
            case Constant(value=value):
                return int(value), int(value)
            case Apply(operation=operation, operands=given):
                name, truths = operation.name, [self._truths[operand] for operand in given]
            case _:
                return 0, 1
        if name == "not":
            return 1 - truths[0][1], 1 - truths[0][0]
        if name in ("and", "or"):
            return combine("min" if name == "and" else "max", truths)
        if name not in NEGATED or self._type(given[0]) is DataType.BOOL:
            return 0, 1
        low, high = compare(name, *map(self.bounds, given))
        nan = any(map(self.may_be_nan, given))
        return (0 if nan else low), (1 if nan and name == "ne" else high)

    def _type(self, value: int) -> DataType:
        return value_type(self._stage.body.instructions[value])


def _find_most(extent: Extent | None) -> Bound:
    """The most places that an axis may have: the sizes of all are checked to be no more than
    `LARGEST`."""
    return min(size_range(extent)[1], LARGEST) if isinstance(extent, str) else extent or 0


def _hold(bound: float, limits: Interval) -> Bound:
    if math.isinf(bound):
        return limits[0] if bound < 0 else limits[1]
    low, high = (-WRAPS, WRAPS - 1) if limits == UNKNOWN else limits
    return min(max(math.trunc(bound), low), high)


def table_ranges(tables: Sequence[Table]) -> dict[str, Interval]:
    """Smallest and largest value of each table of integers."""
    return {
        table.name: (int(min(table.values)), int(max(table.values)))
        for table in tables
        if table.dtype.is_integer and table.values
    }


def stage_range(stage: Stage, found: Ranges) -> Interval | None:
    """Interval of the elements of an integer stage, given the intervals of its body's values; None
    if it is that of the type."""
    if stage.reduction is not None:
        return _find_reduced(stage)
    return found[stage.body.result] if stage.dtype.is_integer else None


def number_ranges(stages: Iterable[Stage]) -> dict[str, Interval]:
    """Interval of each stage that is a positional reduction or a sum of one integer constant."""
    found = ((stage.name, _find_reduced(stage)) for stage in stages)
    return {name: held for name, held in found if held is not None}


def _find_reduced(stage: Stage) -> Interval | None:
    """Interval of a positional reduction, or of a sum of one integer constant under a guard."""
    points = math.prod(e if isinstance(e, int) else math.inf for _, e in stage.axes)
    if stage.is_positional:
        return 0, max(points - 1, 0)
    each = stage.body.instructions[stage.body.result]
    if stage.combiner != "sum" or not isinstance(each, Constant) or math.isinf(points):
        return None
    limits = _LIMITS.get(stage.dtype)
    if limits is None:
        return None
    total = int(each.value) * int(points)
    within = limits[0] <= total <= limits[1]
    return (min(total, 0), max(total, 0)) if within else None


_LIMITS: dict[DataType, Interval] = {d: integer_limits(d) for d in DataType if d.is_integer}
_LIMITS[DataType.INDEX] = UNKNOWN
"""Range of the values of each integer type; an INDEX is unlimited."""
