"""The intervals of the values of a stage's body: how far a position can reach.

`verify` asks it whether a load stays inside its tensor. What is made of floats is as far as these
reach, which is `fractions`' to say.
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
    POSITIONAL_COMBINERS,
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
        self._truths: list[Interval] = []

    @classmethod
    def of(
        cls,
        stage: Stage,
        known: Mapping[str, Interval] = MappingProxyType({}),
        said: Mapping[int, Interval] = MappingProxyType({}),
    ) -> Ranges:
        """The intervals of all values of a stage, some of which are `said` to lie in others."""
        found = cls(stage, known)
        for value, instruction in enumerate(stage.body.instructions):
            found.add(instruction)
            if value in said:
                found.narrow(value, said[value])
        return found

    def __getitem__(self, value: int) -> Interval:
        return self._whole[value]

    def add(self, instruction: Instruction) -> Interval:
        """Adds the next value, and gives its interval."""
        limits = _LIMITS.get(value_type(instruction))
        found = UNKNOWN if limits is None else self._find_whole(instruction, limits)
        self._whole.append(found)
        return found

    def truth(self, value: int) -> Interval:
        """The interval of a condition, which is 1 where it holds."""
        instructions = self._stage.body.instructions
        for instruction in instructions[len(self._truths) : value + 1]:
            self._truths.append(self._find_truth(instruction))
        return self._truths[value]

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
                # So are those that kernels are given.
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
                    # It is held to the limits, and NaN gives 0.
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
    """The smallest and the largest value of each table of whole numbers."""
    return {
        table.name: (int(min(table.values)), int(max(table.values)))
        for table in tables
        if table.dtype.is_integer and table.values
    }


def stage_range(stage: Stage, found: Ranges) -> Interval | None:
    """The interval that the elements of a stage of whole numbers lie in, given those of its body's
    values; None where nothing is known but their type."""
    if stage.reduction is not None:
        return _find_reduced(stage)
    return found[stage.body.result] if stage.dtype.is_integer else None


def number_ranges(stages: Iterable[Stage]) -> dict[str, Interval]:
    """The interval of each stage that gives the numbers of points, or how many there are."""
    found = ((stage.name, _find_reduced(stage)) for stage in stages)
    return {name: held for name, held in found if held is not None}


def _find_reduced(stage: Stage) -> Interval | None:
    """The interval of numbers of points, or of sums of one whole number."""
    points = math.prod(e if isinstance(e, int) else math.inf for _, e in stage.axes)
    if stage.combiner in POSITIONAL_COMBINERS:
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
"""What a value of a type may be, if it is a whole number: a position may be anything."""
