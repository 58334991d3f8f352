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
import functools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dmlc.ir import Apply, Body, Function, Index, Load, Reduction, Stage
from dmlc.ir.builder import Builder
from dmlc.ir.index import IndexFacts
from dmlc.ir.naming import take_name
from dmlc.scalars import Array

_SIDE_BY_SIDE = 8
"""Sums along a row that are computed at once, their terms lying side by side in memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Product:
    """Some factors of a body's result, at the points where some conditions of its guard hold."""

    factors: tuple[int, ...]
    conditions: tuple[int, ...]

    def write(self, builder: Builder, numbers: Sequence[int], *first: int) -> Body:
        """The body that gives it, from the values that others have there."""
        factors = (*first, *(numbers[f] for f in self.factors))
        result = functools.reduce(lambda left, right: builder.apply("mul", left, right), factors)
        return builder.make(result, builder.join(numbers[c] for c in self.conditions))


@dataclasses.dataclass(frozen=True, slots=True)
class _Parts:
    """What of a sum's body belongs to the sum along rows (`outer`), over the reduced index `row`
    of so many places and weighted by the place along the stage's last axis, and what to the
    others."""

    row: Index
    size: int
    outer: _Product
    inner: _Product


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


def _part(stage: Stage, longest_row: int, known: Mapping[str, Array]) -> _Parts | None:
    """How to take a stage apart; None where that cannot be done or is no less work."""
    reduction = stage.reduction
    if reduction is None or reduction.combiner != "sum" or len(reduction.axes) < 2:
        return None
    extents = [stage.extent(index) for index in stage.indices]
    if not stage.domain or any(isinstance(e, str) or e == 0 for e in extents):
        return None
    facts = IndexFacts(stage, known)
    for label, extent in reversed(reduction.axes):
        if isinstance(extent, int) and extent <= longest_row:
            parts = _part_along(facts, Index(label, reduced=True), extent)
            if parts is not None and _is_less_work(facts, parts):
                return parts
    return None


def _part_along(facts: IndexFacts, row: Index, size: int) -> _Parts | None:
    dependencies = facts.dependencies
    place = Index(len(facts.stage.domain) - 1)

    def is_weight(value: int) -> bool:
        """Whether a value says how much of a row's places one place takes."""
        own = facts.known[value] and place in dependencies[value]
        return own and _list_reduced(facts, value) == [row]

    factors, conditions = list_factors(facts.stage.body), facts.conditions
    outer, inner = (
        _Product(
            tuple(f for f in factors if is_weight(f) is weighs),
            tuple(c for c in conditions if is_weight(c) is weighs),
        )
        for weighs in (True, False)
    )
    rest = (*inner.factors, *inner.conditions)
    if (
        outer == _Product((), ())
        or not inner.factors
        or any(place in dependencies[v] for v in rest)
    ):
        return None
    return _Parts(row, size, outer, inner)


def _list_reduced(facts: IndexFacts, value: int) -> list[Index]:
    return [index for index in facts.dependencies[value] if index.reduced]


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


def _is_less_work(facts: IndexFacts, parts: _Parts) -> bool:
    """Whether the two sums take less time than the one."""
    stage = facts.stage
    sizes = [e for e in stage.domain if isinstance(e, int)]
    along = _count_terms(facts, parts.row, parts.outer.conditions)
    inner = math.prod(
        _count_terms(facts, index, parts.inner.conditions)
        for index in stage.indices
        if index.reduced and index != parts.row
    )
    outputs = math.prod(sizes)
    rows = outputs // sizes[-1] * parts.size * inner / _SIDE_BY_SIDE
    return rows + outputs * along < outputs * along * inner


def _count_terms(facts: IndexFacts, index: Index, conditions: Sequence[int]) -> int:
    """The most places along a reduced index that conditions on it alone let through."""
    extent = facts.stage.extent(index)
    own = [c for c in conditions if facts.known[c] and _list_reduced(facts, c) == [index]]
    passing = facts.find_passing(own) if own else None
    if passing is None:
        return extent if isinstance(extent, int) else 1
    # A reduced index stands after those of the domain.
    return int(passing.sum(axis=-1).max())


def _split(stage: Stage, parts: _Parts, names: dict[str, None]) -> list[Stage]:
    """The sums for every place of a row, and the sum of these."""
    body, place = stage.body, len(stage.domain) - 1
    axes = () if stage.reduction is None else stage.reduction.axes
    along = tuple(axis for axis in axes if axis[0] == parts.row.axis)
    others = Reduction("sum", tuple(axis for axis in axes if axis not in along))
    builder = Builder()
    own = builder.add(Index(place))
    numbers = builder.copy(
        body, {n: own for n, i in enumerate(body.instructions) if i == parts.row}
    )
    inner = parts.inner.write(builder, numbers)
    name = take_name(f"{stage.name}_rows", names)
    domain = (*stage.domain[:-1], parts.size)
    rows = Stage(name, inner.dtype, domain, inner, others, stage.span)
    builder = Builder()
    numbers = builder.copy(body)
    at = tuple(builder.add(i) for i in (*stage.indices[:place], parts.row))
    outer = parts.outer.write(builder, numbers, builder.add(Load(name, at, inner.dtype)))
    return [rows, dataclasses.replace(stage, body=outer, reduction=Reduction("sum", along))]
