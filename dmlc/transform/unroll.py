"""Writes a reduction of few points out, along the places where it is the same again and again.

A window cut off by an edge folds fewer points than one inside, and where a ratio is 3 to 2, every
second window is a point longer. Which points the guard lets through is known at compile time; over
the longest stretch in which that repeats, the fold is as many terms, one after the other in the
order of the points, without a guard, a loop, or a table whose entries repeat too.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Apply,
    Body,
    Constant,
    Function,
    Index,
    Load,
    Stage,
    operands,
    with_operands,
)
from dmlc.ir.positions import (
    MOST_POINTS,
    count_points,
    evaluate_positions,
    find_dependencies,
    find_index_only,
    list_conjuncts,
)
from dmlc.scalars import COMBINERS, Array, DataType, combiner_identity
from dmlc.transform.simplify import Builder

_MOST_TERMS = 16
"""Points written out, at most."""

_LONGEST_PERIOD = 4
"""Places after which the same points are folded again, at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """Places `first .. last` along an axis of a stage. `stages` compute what the reduction comes
    to there without folding: number k of n at the places `first + k`, `first + k + n` and so on,
    all up to `last`."""

    first: int
    last: int
    stages: tuple[Stage, ...]


def unroll(
    function: Function, stage: Stage, axis: int, longest_period: int = _LONGEST_PERIOD
) -> Stretch | None:
    """The longest stretch of a reduction along an axis that can be written out, its points
    repeating after no more than so many places; None where none is worth it."""
    reduction, body = stage.reduction, stage.body
    if reduction is None or reduction.combiner in POSITIONAL_COMBINERS:
        return None
    if body.dtype is DataType.BOOL:
        return None
    over = (Index(axis), *(Index(label, reduced=True) for label, _ in reduction.axes))  # fmt: skip
    extents = [stage.extent(index) for index in over]
    if count_points(stage, over) > MOST_POINTS or any(e == 0 for e in extents):
        return None
    size, *inner = (e for e in extents if isinstance(e, int))
    if np.prod(inner) > _MOST_TERMS:
        return None
    tables = {t.name: t.array() for t in function.tables}
    conditions = list_conjuncts(body)
    known, dependencies = find_index_only(body, tables), find_dependencies(body)
    if not all(known[c] and set(dependencies[c]) <= set(over) for c in conditions):
        return None
    holds = np.ones((size, *inner), np.bool_)
    for found in evaluate_positions(stage, conditions, over, tables):
        holds = holds & found
    first, last, period = _find_stretch(holds.reshape(size, -1), longest_period)
    if last - first < max(2 * period, size // 2):
        return None
    stages = [
        _write_out(stage, over, holds, range(first + phase, last, period), tables)
        for phase in range(period)
    ]
    return Stretch(first, last, tuple(stages))


def _find_stretch(holds: Array, longest_period: int) -> tuple[int, int, int]:
    """From where to where, and after how many places, the rows of `holds` repeat."""
    best = (0, min(1, len(holds)), 1)
    for period in range(1, min(longest_period, len(holds) - 1) + 1):
        same = (holds[period:] == holds[:-period]).all(axis=1)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            length = (int(stop) - int(start)) // period * period + period
            if length > best[1] - best[0]:
                best = (int(start), int(start) + length, period)
    return best


def _write_out(
    stage: Stage, over: tuple[Index, ...], holds: Array, places: range, tables: Mapping[str, Array]
) -> Stage:
    """The stage without its reduction, right at some places, where the same points pass."""
    reduction, body = stage.reduction, stage.body
    if reduction is None:
        return stage
    dtype = body.dtype
    first = combiner_identity(reduction.combiner, dtype)
    builder = Builder()
    total = builder.add(Constant(dtype, first))
    rows = np.asarray(places)
    read = _list_tables(stage, over, tables)
    for point in itertools.product(*(range(n) for n in holds.shape[1:])):
        if not holds[(places[0], *point)]:
            continue
        fixed = dict(zip(over[1:], point, strict=True))
        numbers: list[int] = []
        for number, instruction in enumerate(body.instructions):
            if isinstance(instruction, Index) and instruction in fixed:
                numbers.append(builder.add(Constant(DataType.INDEX, fixed[instruction])))
                continue
            values = read[number][(rows, *point)] if number in read else None
            if values is not None and isinstance(instruction, Load) and np.ptp(values) == 0:
                numbers.append(builder.add(Constant(instruction.dtype, values[0].item())))
                continue
            given = tuple(numbers[o] for o in operands(instruction))
            numbers.append(builder.add(with_operands(instruction, given)))
        term = numbers[body.result]
        total = builder.add(Apply(COMBINERS[reduction.combiner], (total, term), dtype))
    made = Body.make(builder.instructions, total)
    return dataclasses.replace(stage, dtype=dtype, body=made, reduction=None)


def _list_tables(
    stage: Stage, over: tuple[Index, ...], tables: Mapping[str, Array]
) -> dict[int, Array]:
    """What each load of a table gives, along the axis and at each point; loads at positions
    that depend on other axes are left out."""
    body = stage.body
    known, dependencies = find_index_only(body, tables), find_dependencies(body)
    wanted = [
        number
        for number, instruction in enumerate(body.instructions)
        if isinstance(instruction, Load)
        and instruction.tensor in tables
        and known[number]
        and set(dependencies[number]) <= set(over)
    ]
    shape = tuple(e for e in (stage.extent(index) for index in over) if isinstance(e, int))
    found = evaluate_positions(stage, wanted, over, tables)
    return {
        number: np.broadcast_to(values, shape) for number, values in zip(wanted, found, strict=True)
    }
