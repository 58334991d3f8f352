"""Writes a reduction of few points out, along the places where it is the same again and again.

A window cut off by an edge folds fewer points than one inside, and where a ratio is 3 to 2, every
second window is a point longer. Which points the guard lets through is known at compile time; over
a long stretch in which that repeats, the fold is as many terms, one after the other in the order
of the points, without a guard or a loop. Entries of tables that repeat too are constants there, and
positions go up by equal steps.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Apply,
    Body,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Stage,
    operands,
    value_type,
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
from dmlc.scalars import COMBINERS, OPERATIONS, Array, DataType, combiner_identity
from dmlc.transform.simplify import Builder

_MOST_TERMS = 16
"""Points written out, at most."""

_LONGEST_PERIOD = 4
"""Places after which the same points are folded again, at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """Places `first .. last` along an axis of a stage. `stages` compute what the reduction comes
    to there without folding: number k of n at the places `first + k + n * turn`, all up to `last`.
    There the axis is that of the turns."""

    first: int
    last: int
    stages: tuple[Stage, ...]


def unroll(
    function: Function,
    stage: Stage,
    axis: int,
    longest_period: int = _LONGEST_PERIOD,
    *,
    signed_zeros: bool = True,
) -> Stretch | None:
    """A long stretch of a reduction along an axis that can be written out, its points repeating
    after no more than so many places; None where none is worth it.

    Of stretches about as long it is the one with the fewest tables and uneven positions, and of
    these the one that repeats first. Without `signed_zeros` a sum of negative zeros may stay one,
    where the fold, which starts from 0, gives a positive one: one addition fewer.
    """
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
    steady = _list_steady(stage, over, tables)
    found = [
        (first, last, period)
        for first, last, period in _find_stretches(holds.reshape(size, -1), longest_period)
        if last - first >= max(2 * period, size // 2)
    ]
    if not found:
        return None
    longest = max(last - first for first, last, _ in found)
    written: list[tuple[int, Stretch]] = []
    for first, last, period in found:
        if last - first <= longest - period:
            continue
        made = [
            _write_out(stage, over, holds, range(first + phase, last, period), steady, signed_zeros)
            for phase in range(period)
        ]
        uneven = sum(number for _, number in made)
        written.append((uneven, Stretch(first, last, tuple(stage for stage, _ in made))))
    return min(written, key=lambda each: (each[0], len(each[1].stages)))[1]


def _find_stretches(holds: Array, longest_period: int) -> Iterator[tuple[int, int, int]]:
    """For each number of places after which the rows of `holds` may repeat, the longest stretch in
    which they do: from where, to where, after how many."""
    for period in range(1, min(longest_period, len(holds) - 1) + 1):
        best = (0, period, period)
        same = (holds[period:] == holds[:-period]).all(axis=1)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            length = (int(stop) - int(start)) // period * period + period
            if length > best[1] - best[0]:
                best = (int(start), int(start) + length, period)
        yield best


def _write_out(
    stage: Stage,
    over: tuple[Index, ...],
    holds: Array,
    places: range,
    steady: Mapping[int, Array],
    signed_zeros: bool,
) -> tuple[Stage, int]:
    """The stage without its reduction, right at some places, where the same points pass; and the
    number of tables and positions that do not go up by equal steps from place to place."""
    reduction, body = stage.reduction, stage.body
    if reduction is None:
        return stage, 0
    dtype = body.dtype
    first = combiner_identity(reduction.combiner, dtype)
    if reduction.combiner == "sum" and dtype.is_float and not signed_zeros:
        first = -0.0
    builder = Builder()
    total = builder.add(Constant(dtype, first))
    turn = builder.add(over[0])
    rows = np.asarray(places)
    positions = {i for load in body.loads() for i in load.indices}
    uneven = 0
    for point in itertools.product(*(range(n) for n in holds.shape[1:])):
        if not holds[(places[0], *point)]:
            continue
        fixed = dict(zip(over[1:], point, strict=True))
        numbers: list[int] = []
        for number, instruction in enumerate(body.instructions):
            if isinstance(instruction, Index) and instruction in fixed:
                numbers.append(builder.add(Constant(DataType.INDEX, fixed[instruction])))
                continue
            if number in steady:
                values = steady[number][(rows, *point)]
                line = _write_line(builder, instruction, values, turn)
                if line is not None:
                    numbers.append(line)
                    continue
                uneven += number in positions or isinstance(instruction, Load)
            given = tuple(numbers[o] for o in operands(instruction))
            numbers.append(builder.add(with_operands(instruction, given)))
        term = numbers[body.result]
        total = builder.add(Apply(COMBINERS[reduction.combiner], (total, term), dtype))
    made = Body.make(builder.instructions, total)
    axis = over[0].axis
    domain = (*stage.domain[:axis], len(places), *stage.domain[axis + 1 :])
    made_of = dataclasses.replace(stage, dtype=dtype, domain=domain, body=made, reduction=None)
    return made_of, uneven


def _write_line(builder: Builder, instruction: Instruction, values: Array, turn: int) -> int | None:
    """A value that is the same in every turn, or a position that goes up by equal steps."""
    dtype = value_type(instruction)
    if np.ptp(values) == 0:
        return builder.add(Constant(dtype, values[0].item()))
    steps = np.diff(values)
    if dtype is not DataType.INDEX or np.ptp(steps) != 0:
        return None
    step = builder.add(Constant(dtype, steps[0].item()))
    start = builder.add(Constant(dtype, values[0].item()))
    gone = builder.add(Apply(OPERATIONS["mul"], (turn, step), dtype))
    return builder.add(Apply(OPERATIONS["add"], (gone, start), dtype))


def _list_steady(
    stage: Stage, over: tuple[Index, ...], tables: Mapping[str, Array]
) -> dict[int, Array]:
    """What each position is, and each load of a table gives, along the axis and at each point;
    those that depend on other axes are left out."""
    body = stage.body
    known, dependencies = find_index_only(body, tables), find_dependencies(body)
    wanted = [
        number
        for number, instruction in enumerate(body.instructions)
        if known[number]
        and over[0] in dependencies[number]
        and set(dependencies[number]) <= set(over)
        and (isinstance(instruction, Load) or value_type(instruction) is DataType.INDEX)
    ]
    shape = tuple(e for e in (stage.extent(index) for index in over) if isinstance(e, int))
    found = evaluate_positions(stage, wanted, over, tables)
    return {
        number: np.broadcast_to(values, shape) for number, values in zip(wanted, found, strict=True)
    }
