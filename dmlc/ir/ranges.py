"""Interval arithmetic over index values: how far a position can reach.

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
from dmlc.scalars import DataType, Kind

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
    """The interval an INDEX value lies in, given those of the values before it. A whole number
    read from a tensor lies in its type's, and one read from a table among the table's: `tables`
    has those of each."""
    if isinstance(instruction, Load):
        return tables.get(instruction.tensor, UNKNOWN)
    if value_type(instruction) is not DataType.INDEX:
        return UNKNOWN
    match instruction:
        case Constant():
            return int(instruction.value), int(instruction.value)
        case Index():
            extent = stage.extent(instruction)
            return (0, extent - 1) if isinstance(extent, int) else (0, math.inf)
        case Select():
            then, otherwise = earlier[instruction.then], earlier[instruction.otherwise]
            return min(then[0], otherwise[0]), max(then[1], otherwise[1])
        case Cast():
            source = value_type(stage.body.instructions[instruction.operand])
            if source is DataType.BOOL:
                return 0, 1
            if earlier[instruction.operand] != UNKNOWN:
                return earlier[instruction.operand]
            if source.kind not in (Kind.SIGNED, Kind.UNSIGNED) or source is DataType.UINT64:
                return UNKNOWN
            limits = np.iinfo(source.dtype)
            return int(limits.min), int(limits.max)
        case Apply():
            return _apply(instruction.operation.name, [earlier[o] for o in instruction.operands])
        case _:
            return UNKNOWN


def table_ranges(tables: Sequence[Table]) -> dict[str, Interval]:
    """The smallest and the largest value of each table of whole numbers."""
    return {
        table.name: (int(min(table.values)), int(max(table.values)))
        for table in tables
        if table.dtype.is_integer and table.values
    }


def _apply(name: str, given: list[Interval]) -> Interval:
    if name in ("min", "max"):
        choose = min if name == "min" else max
        return choose(given[0][0], given[1][0]), choose(given[0][1], given[1][1])
    if name not in _BOUNDED or any(math.isinf(bound) for pair in given for bound in pair):
        return UNKNOWN
    whole = [(int(low), int(high)) for low, high in given]
    low, high = _BOUNDED[name](whole)
    # Beyond 64 bits the arithmetic wraps, and nothing is known.
    return (low, high) if low >= -_LIMIT and high < _LIMIT else UNKNOWN


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
