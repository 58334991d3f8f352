"""Interval arithmetic over whole numbers: how far a position can reach.

`verify` asks it whether a load stays inside its tensor. Bounds are exact integers, or infinite
where nothing is known; they only ever err outwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from dmlc.ir.nodes import (
    POSITIONAL_COMBINERS,
    Apply,
    Cast,
    Constant,
    Index,
    Instruction,
    Load,
    Select,
    Stage,
    Table,
    value_type,
)
from dmlc.scalars import LARGEST_INDEX, DataType

Bound: TypeAlias = int | float
"""An integer, or minus or plus infinity."""

Interval: TypeAlias = tuple[Bound, Bound]
"""The smallest and the largest value, both included."""

UNKNOWN: Interval = (-math.inf, math.inf)
_LIMIT = 2**63


def instruction_range(
    stage: Stage,
    instruction: Instruction,
    earlier: Sequence[Interval],
    tables: Mapping[str, Interval] = MappingProxyType({}),
) -> Interval:
    """The interval a whole number lies in, given those of the values before it; what is no whole
    number has none. One read from a tensor lies in its type's, and so does one that wraps; one
    read from a table lies among the table's: `tables` has those of each."""
    limits = _limits(value_type(instruction))
    if limits is None:
        return UNKNOWN
    match instruction:
        case Constant():
            return int(instruction.value), int(instruction.value)
        case Index():
            extent = stage.extent(instruction)
            return (0, extent - 1) if isinstance(extent, int) else (0, math.inf)
        case Load():
            return tables.get(instruction.tensor, limits)
        case Select():
            then, otherwise = earlier[instruction.then], earlier[instruction.otherwise]
            return min(then[0], otherwise[0]), max(then[1], otherwise[1])
        case Cast():
            source = value_type(stage.body.instructions[instruction.operand])
            given = (0, 1) if source is DataType.BOOL else earlier[instruction.operand]
            if instruction.dtype is DataType.INDEX and source is DataType.UINT64:
                given = min(given[0], LARGEST_INDEX), min(given[1], LARGEST_INDEX)
        case Apply():
            given = _apply(instruction.operation.name, [earlier[o] for o in instruction.operands])
    if limits == UNKNOWN and _LIMIT <= given[1] < math.inf:
        return UNKNOWN  # Beyond 64 bits positions wrap.
    # Beyond the type the arithmetic wraps, and nothing is known.
    return given if limits[0] <= given[0] and given[1] <= limits[1] else limits


def table_ranges(tables: Sequence[Table]) -> dict[str, Interval]:
    """The smallest and the largest value of each table of whole numbers."""
    return {
        table.name: (int(min(table.values)), int(max(table.values)))
        for table in tables
        if table.dtype.is_integer and table.values
    }


def stage_range(stage: Stage, found: Sequence[Interval]) -> Interval | None:
    """The interval that the elements of a stage of whole numbers lie in, given those of its body's
    values; None where nothing is known but their type."""
    reduction = stage.reduction
    if reduction is None:
        return found[stage.body.result] if stage.dtype.is_integer else None
    if reduction.combiner not in POSITIONAL_COMBINERS:
        return None
    points = math.prod(e if isinstance(e, int) else math.inf for _, e in reduction.axes)
    return 0, max(points - 1, 0)


def _limits(dtype: DataType) -> Interval | None:
    """What a value of a type may be, if it is a whole number: a position may be anything."""
    if dtype is DataType.INDEX:
        return UNKNOWN
    if not dtype.is_integer:
        return None
    found = np.iinfo(dtype.dtype)
    return int(found.min), int(found.max)


def _apply(name: str, given: list[Interval]) -> Interval:
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
    (low, high), (divisor, same) = given
    if divisor != same or divisor <= 0:
        return UNKNOWN
    return _truncate(low, divisor), _truncate(high, divisor)


def _truncate(value: int, divisor: int) -> int:
    return value // divisor if value >= 0 else -(-value // divisor)


def _remain(given: list[_Whole]) -> Interval:
    (low, high), (divisor, same) = given
    if divisor != same or divisor <= 0:
        return UNKNOWN
    most = divisor - 1
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
