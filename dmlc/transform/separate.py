"""Takes a sum over several axes one axis at a time, where its weights allow it and that is less
work: resampling an image becomes columns first, then rows.

    sum[r, s](x[r, s] * a(i, r) * b(j, s))  ->  sum[s](t[i, s] * b(j, s)),
                                                t[i, s] = sum[r](x[r, s] * a(i, r))

The weights of the last axis are a factor that is constant over the other sums, and leave these:
the one re-association there is (`factor` says what it does to special values). A point that the
guard leaves out is left out of one of the two sums, so that no weight of 0 meets an infinity or a
NaN. On integers, which wrap, the result is the same.

Which kernel computes the two is not decided here; they are worth it only where the sums over one
row stay at hand, so that a caller says how long a row may be.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dmlc.ir import (
    Apply,
    Body,
    Function,
    Index,
    Instruction,
    Load,
    Reduction,
    Stage,
)
from dmlc.ir.index import IndexFacts
from dmlc.ir.naming import take_name
from dmlc.scalars import Array
from dmlc.transform.simplify import Builder


def separate(
    function: Function, longest_row: int, known: Mapping[str, Array] = MappingProxyType({})
) -> Function:
    """The function with every sum that is less work by rows of at most so many elements taken
    apart: into a stage of the sums along one axis for every place of a row, and the sum over
    these. The function itself where there is none. `known` are the elements of stages that depend
    on positions alone."""
    names = {t.name: None for t in (*function.parameters, *function.stages)}
    stages: list[Stage] = []
    for stage in function.stages:
        parts = None if stage.name in known else _part(stage, longest_row, known)
        stages += [stage] if parts is None else _split(stage, parts, names)
    if len(stages) == len(function.stages):
        return function
    return dataclasses.replace(function, stages=tuple(stages))


@dataclasses.dataclass(frozen=True, slots=True)
class _Parts:
    """What of a sum's body belongs to the sum along rows (`outer`), over the reduced index `row`
    and weighted by the place along the stage's last axis, and what to the others."""

    row: Index
    outer_factors: tuple[int, ...]
    inner_factors: tuple[int, ...]
    outer_conditions: tuple[int, ...]
    inner_conditions: tuple[int, ...]


def _part(stage: Stage, longest_row: int, known: Mapping[str, Array]) -> _Parts | None:
    """How to take a stage apart; None where that cannot be done or is no less work."""
    reduction = stage.reduction
    if reduction is None or reduction.combiner != "sum" or len(reduction.axes) < 2:
        return None
    extents = [*stage.domain, *(extent for _, extent in reduction.axes)]
    if not stage.domain or any(isinstance(e, str) or e == 0 for e in extents):
        return None
    facts = IndexFacts(stage, known)
    for label, extent in reversed(reduction.axes):
        parts = _part_along(facts, Index(label, reduced=True))
        fits = isinstance(extent, int) and extent <= longest_row
        if parts is not None and fits and _is_less_work(facts, parts):
            return parts
    return None


def _part_along(facts: IndexFacts, row: Index) -> _Parts | None:
    body, dependencies = facts.stage.body, facts.dependencies
    place = Index(len(facts.stage.domain) - 1)

    def is_weight(value: int) -> bool:
        """Whether a value says how much of a row's places one place takes."""
        found = [i for i in dependencies[value] if i.reduced]
        return facts.known[value] and found == [row] and place in dependencies[value]

    factors, conditions = list_factors(body), facts.conditions
    parts = _Parts(
        row,
        tuple(f for f in factors if is_weight(f)),
        tuple(f for f in factors if not is_weight(f)),
        tuple(c for c in conditions if is_weight(c)),
        tuple(c for c in conditions if not is_weight(c)),
    )
    inner = (*parts.inner_factors, *parts.inner_conditions)
    weights = (*parts.outer_factors, *parts.outer_conditions)
    if not weights or not parts.inner_factors or any(place in dependencies[v] for v in inner):
        return None
    return parts


def list_factors(body: Body) -> list[int]:
    """The values whose product a body's result is, in the order written."""
    found: list[int] = []
    pending = [body.result]
    while pending:
        value = pending.pop()
        instruction = body.instructions[value]
        if isinstance(instruction, Apply) and instruction.operation.name == "mul":
            pending += reversed(instruction.operands)
        else:
            found.append(value)
    return found


_SIDE_BY_SIDE = 8
"""Sums along a row that are computed at once, their terms lying side by side in memory."""


def _is_less_work(facts: IndexFacts, parts: _Parts) -> bool:
    """Whether the two sums take less time than the one."""
    stage = facts.stage
    outputs = math.prod(e for e in stage.domain if isinstance(e, int))
    size, row = stage.domain[-1], stage.extent(parts.row)
    if not isinstance(size, int) or not isinstance(row, int):
        return False
    along = _count_terms(facts, parts.row, parts.outer_conditions)
    inner = math.prod(
        _count_terms(facts, index, parts.inner_conditions)
        for index in stage.indices
        if index.reduced and index != parts.row
    )
    rows = outputs // size * row * inner / _SIDE_BY_SIDE
    return rows + outputs * along < outputs * along * inner


def _count_terms(facts: IndexFacts, index: Index, conditions: Sequence[int]) -> int:
    """The most places along a reduced index that conditions on it alone let through."""
    extent = facts.stage.extent(index)
    own = [
        c
        for c in conditions
        if facts.known[c] and [i for i in facts.dependencies[c] if i.reduced] == [index]
    ]
    passing = facts.find_passing(own) if own else None
    if passing is None:
        return extent if isinstance(extent, int) else 1
    # A reduced index stands after those of the domain.
    return int(passing.sum(axis=-1).max())


def _split(stage: Stage, parts: _Parts, names: dict[str, None]) -> list[Stage]:
    """The sums for every place of a row, and the sum of these."""
    reduction, place = stage.reduction, Index(len(stage.domain) - 1)
    row = stage.extent(parts.row)
    if reduction is None or row is None:
        return [stage]
    instructions = [place if i == parts.row else i for i in stage.body.instructions]
    inner = _make_body(instructions, parts.inner_factors, parts.inner_conditions)
    axes = tuple(a for a in reduction.axes if a[0] != parts.row.axis)
    name = take_name(f"{stage.name}_rows", names)
    rows = Stage(
        name, inner.dtype, (*stage.domain[:-1], row), inner, Reduction("sum", axes), stage.span
    )
    made: list[Instruction] = list(stage.body.instructions)
    at = tuple(range(len(made), len(made) + len(stage.domain)))
    made += [*(Index(axis) for axis in range(len(stage.domain) - 1)), parts.row]
    made.append(Load(name, at, inner.dtype))
    outer = _make_body(made, (len(made) - 1, *parts.outer_factors), parts.outer_conditions)
    along = Reduction("sum", tuple(a for a in reduction.axes if a[0] == parts.row.axis))
    return [rows, dataclasses.replace(stage, body=outer, reduction=along)]


def _make_body(
    instructions: Sequence[Instruction], factors: Sequence[int], conditions: Sequence[int]
) -> Body:
    """The body of a product of some values, at the points where some conditions hold."""
    builder = Builder()
    numbers = builder.copy(Body(tuple(instructions), 0))
    result, *others = (numbers[factor] for factor in factors)
    for factor in others:
        result = builder.apply("mul", result, factor)
    return builder.make(result, builder.join(numbers[c] for c in conditions))
