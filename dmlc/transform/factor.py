"""Re-association of sums where that is less work: the only pass that re-associates floats.

Loop-invariant factors are moved out of sums: `sum(a * b)` becomes `a * sum(b)`. The sum then takes
fewer operations, and sums that differed only in such factors become equal: a gradient's sum of
`dY * centered * c` is the sum of `dY * centered`, which the same gradient needs anyway.

A sum over several axes is taken one axis at a time if its weights are separable: resampling an
image becomes columns first, then rows.

    sum[r, s](x[r, s] * a(i, r) * b(j, s))  ->  sum[s](t[i, s] * b(j, s)),
                                                t[i, s] = sum[r](x[r, s] * a(i, r))

The weights of the last axis are constant over the other sums, and are moved out of these. A point
that fails the guard is excluded from one of the two sums, so that no weight of 0 meets an infinity
or a NaN. The split pays only if the sums over one row stay in a line buffer, so that the caller
gives the longest row; schedules choose the kernel.

A `select` with 0 on a loop-invariant condition is moved out too: `sum(c ? a : 0)` becomes
`c ? sum(a) : 0`.

Special values may change, all else is equal. An infinite or NaN factor now multiplies the sum and
not each term, so that a NaN from infinity times 0, or from infinities of both signs, may become
infinite or stay NaN; a quotient by 0 likewise. Terms may overflow or underflow with the factor and
not without it, and vice versa. A zero sum may change sign. Index-only factors that are infinite or
NaN somewhere stay, as do divisors that are 0 somewhere. Empty sums are unchanged: no factor is
moved out of a sum whose guard may exclude all points. Products and negations of integers, which
wrap, are exact; their quotients stay.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Reduction,
    Select,
    Stage,
    operands,
    with_operands,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, find_dependencies
from dmlc.ir.inside import find_open_reads
from dmlc.ir.naming import take_name
from dmlc.ir.ranges import table_ranges
from dmlc.scalars import Array
from dmlc.transform.inline import clamp_stage, inline_stages
from dmlc.transform.simplify import is_inlinable, replace_stages

_MOST_FACTORS = 32
"""Largest number of factors moved out of one sum; repeated squaring has any number."""

MOST_LOOKED_THROUGH = 16
"""Largest number of stages searched for the factors or conditions of one reduction."""

_Steps: TypeAlias = tuple[tuple[str, int | None], ...]
"""Operations applied to a sum in order: `mul` or `div` by a value of the body, `neg`, `where` (0 if
a condition is false) or `unless` (0 if it is true)."""


def take_out_factors(function: Function) -> Function:
    """Function in which every loop-invariant factor of a sum is applied to the sum instead.

    A sum with such factors becomes two stages: the sum of the varying part, and an element-wise
    stage over its domain that applies the factors. The same object if there is none.
    """
    names = {t.name: None for t in (*function.parameters, *function.stages)}
    earlier: dict[str, Stage] = {}
    stages: list[Stage] = []
    reach = table_ranges(function.tables)
    for stage in function.stages:
        made = [stage]
        pair = _split(stage, earlier, names)
        if pair is not None and not _may_be_empty(stage, function):
            total, outer = pair
            known = {**function.tensors(), total.name: total}
            # Factors may not contain loads that only the sum's guard keeps in bounds.
            if not find_open_reads(outer, known, reach)[0]:
                made = [clamp_stage(total, known, reach)[0], outer]
        stages += made
        earlier[stage.name] = stage
    if len(stages) == len(function.stages):
        return function
    return replace_stages(function, stages)


def _split(
    stage: Stage, earlier: Mapping[str, Stage], names: dict[str, None]
) -> tuple[Stage, Stage] | None:
    """Sum without its loop-invariant factors, and the stage that applies them; None if it has
    none."""
    if stage.combiner != "sum" or any(extent == 0 for _, extent in stage.axes):
        return None
    parted = _split_factors(stage.body)
    seen = dataclasses.replace(stage, body=_look_through(stage, earlier))
    if seen.body is not stage.body:
        deeper = _split_factors(seen.body)
        parted, seen = (deeper, seen) if len(deeper.steps) > len(parted.steps) else (parted, stage)
    if not parted.steps or _has_special(seen, parted.steps):
        return None
    name = stage.name if stage.name.endswith("_sum") else f"{stage.name}_sum"
    name = take_name(name, names)
    inner = Body.make(parted.instructions, parted.kept, parted.guard)
    total = dataclasses.replace(stage, name=name, dtype=stage.body.dtype, body=inner)
    return total, dataclasses.replace(stage, body=_apply(total, parted), reduction=None)


def _has_special(stage: Stage, steps: _Steps) -> bool:
    """Whether a step by an index-only value divides by 0, or multiplies or divides by an infinity
    or a NaN."""
    if not stage.body.dtype.is_float:
        return False
    facts = IndexFacts(stage, {})
    for name, factor in steps:
        found = facts.evaluate([factor]) if factor is not None and facts.known[factor] else None
        if found is not None:
            special = ~np.isfinite(found[0]) | ((found[0] == 0) & (name == "div"))
            if special.any():
                return True
    return False


def _may_be_empty(stage: Stage, function: Function) -> bool:
    """Whether the guard of a float sum may exclude all points of some element, whose 0 would become
    NaN if a factor is infinite or NaN."""
    if stage.body.guard is None or not stage.body.dtype.is_float:
        return False
    facts = IndexFacts(stage, function.arrays())
    moving = facts.dependencies
    groups: list[list[int]] = []
    """Conditions, grouped by shared indices."""
    for condition in facts.conditions:
        near = [g for g in groups if any(set(moving[c]) & set(moving[condition]) for c in g)]
        groups = [g for g in groups if g not in near]
        groups.append([c for g in near for c in g] + [condition])
    for joined in groups:
        passing = facts.find_passing(joined)
        reduced = tuple(n for n, i in enumerate(facts.depends_on(joined)) if i.reduced)
        if passing is None or not np.any(passing, axis=reduced).all():
            return True
    return False


@dataclasses.dataclass(frozen=True, slots=True)
class _Parted:
    """A body whose value `kept` varies over the reduction, and the steps from the sum of `kept` to
    that of the body's result."""

    instructions: tuple[Instruction, ...]
    kept: int
    steps: _Steps
    guard: int | None


def _split_factors(body: Body) -> _Parted:
    """Splits the factors of a body's result into those that vary over the reduction and those that
    do not."""
    made = list(body.instructions)
    varies: list[bool] = []
    parted: list[tuple[int, _Steps]] = []
    for value, instruction in enumerate(body.instructions):
        own = isinstance(instruction, Index) and instruction.reduced
        varies.append(own or any(varies[o] for o in operands(instruction)))
        parted.append((value, ()))
        if not varies[value] or not isinstance(instruction, Apply | Select):
            continue
        if isinstance(instruction, Select):
            found = _split_choice(body, instruction, varies, parted)
        else:
            found = _split_operation(instruction, varies, parted)
        if found is None or not 0 < len(found[1]) <= _MOST_FACTORS:
            continue
        new, steps = found
        if len(new) == 1:
            parted[value] = (new[0], steps)
        else:
            parted[value] = (len(made), steps)
            made.append(with_operands(instruction, new))
    kept, steps = parted[body.result]
    return _Parted(tuple(made), kept, steps, body.guard)


def _split_operation(
    instruction: Apply, varies: Sequence[bool], parted: Sequence[tuple[int, _Steps]]
) -> tuple[tuple[int, ...], _Steps] | None:
    """Operands of an operation that still need to be split, and the steps moved out: one operand if
    the operation itself is a step. None if factors cannot be moved out of it."""
    name = instruction.operation.name
    kept = [parted[o][0] for o in instruction.operands]
    if name == "neg":
        return (kept[0],), (*parted[instruction.operands[0]][1], ("neg", None))
    if name not in ("mul", "div") or (name == "div" and not instruction.dtype.is_float):
        return None
    left, right = instruction.operands
    if not varies[right]:
        return (kept[0],), (*parted[left][1], (name, right))
    if name == "div":
        return ((kept[0], right), parted[left][1]) if varies[left] else None
    if not varies[left]:
        return (kept[1],), (*parted[right][1], (name, left))
    return (kept[0], kept[1]), (*parted[left][1], *parted[right][1])


def _split_choice(
    body: Body, instruction: Select, varies: Sequence[bool], parted: Sequence[tuple[int, _Steps]]
) -> tuple[tuple[int, ...], _Steps] | None:
    """Operands of a `select` between a value and 0, and the steps moved out; None for other
    selects."""
    condition, then, otherwise = operands(instruction)
    if varies[condition]:
        return None
    for value, other, name in ((then, otherwise, "where"), (otherwise, then, "unless")):
        if _is_zero(body, other):
            return (parted[value][0],), (*parted[value][1], (name, condition))
    return None


def _is_zero(body: Body, value: int) -> bool:
    instruction = body.instructions[value]
    return isinstance(instruction, Constant) and instruction.value == 0


def _apply(total: Stage, parted: _Parted) -> Body:
    """Body that applies the steps to the elements of a sum."""
    builder = BodyBuilder()
    numbers = builder.copy(Body(parted.instructions, parted.kept))
    value = builder.read(total)
    for name, factor in parted.steps:
        if factor is None:
            value = builder.apply(name, value)
        elif name in ("where", "unless"):
            zero = builder.constant(0, total.body.dtype)
            then, otherwise = (value, zero) if name == "where" else (zero, value)
            value = builder.select(numbers[factor], then, otherwise)
        else:
            value = builder.apply(name, value, numbers[factor])
    return builder.make(value)


def _look_through(stage: Stage, earlier: Mapping[str, Stage]) -> Body:
    """Body of a sum with stages inlined that may contain factors."""
    for _ in range(MOST_LOOKED_THROUGH):
        found = _find_product(stage.body, earlier)
        made = stage if found is None else inline_stages(stage, {found.name: found})
        if made is stage:
            break
        stage = made
    return stage.body


def _find_product(body: Body, earlier: Mapping[str, Stage]) -> Stage | None:
    """Stage that is read as a factor and has a factor itself that some reader could move out."""
    pending = [body.result]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        instruction = body.instructions[value]
        if isinstance(instruction, Apply) and instruction.operation.name in ("mul", "div", "neg"):
            quotient = instruction.operation.name == "div"
            pending += instruction.operands[: 1 if quotient else 2]
        elif isinstance(instruction, Select):
            pending += operands(instruction)[1:]
        elif isinstance(instruction, Load) and instruction.tensor in earlier:
            found = earlier[instruction.tensor]
            if _may_hold_factor(found):
                return found
    return None


def _may_hold_factor(stage: Stage) -> bool:
    """Whether a stage may contain a loop-invariant factor of a reader: it is a negation; a product
    or quotient of which one side, or the divisor, is constant along an axis on which the other
    depends; or a select with 0 on such a condition. Storing it must round nothing."""
    root = stage.body.instructions[stage.body.result]
    if is_inlinable(stage) and isinstance(root, Select):
        dependencies = find_dependencies(stage.body)
        condition, then, otherwise = operands(root)
        sides = [n for n in (then, otherwise) if not _is_zero(stage.body, n)]
        own = set(dependencies[condition])
        return len(sides) == 1 and bool(set(dependencies[sides[0]]) - own)
    if not is_inlinable(stage) or not isinstance(root, Apply):
        return False
    name = root.operation.name
    if name not in ("mul", "div"):
        return name == "neg"
    dependencies = find_dependencies(stage.body)
    left, right = (set(dependencies[o]) for o in root.operands)
    return bool(left - right) or (name == "mul" and left != right)


# One axis at a time ------------------------------------------------------------------------


_SIDE_BY_SIDE = 8
"""Sums along a row that are computed at once, as their terms are adjacent in memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Product:
    """Product of some factors of a body's result, with some conditions of its guard."""

    factors: tuple[int, ...]
    conditions: tuple[int, ...]

    def write(self, builder: BodyBuilder, numbers: Sequence[int], *first: int) -> Body:
        """Body of the product, from the values' new numbers."""
        result = builder.fold("mul", (*first, *(numbers[f] for f in self.factors)))
        return builder.make(result, builder.join(numbers[c] for c in self.conditions))


@dataclasses.dataclass(frozen=True, slots=True)
class _Parts:
    """Split of a sum's body: the part of the sum along rows (`outer`), over the reduced index `row`
    of `places` values and weighted by the index along the stage's last axis, and the part of the
    other sums."""

    row: Index
    size: int
    outer: _Product
    inner: _Product


def factor_separable(
    function: Function, longest_row: int, known: Mapping[str, Array] = MappingProxyType({})
) -> Function:
    """Function in which every sum that takes less work row by row is split: a stage with the sums
    along one axis for every index of a row of at most `longest_row` elements, and the sum over
    these. The same object if there is none. `known` are elements of index-only stages."""
    names = {t.name: None for t in (*function.parameters, *function.stages)}
    stages: list[Stage] = []
    reach = table_ranges(function.tables)
    for stage in function.stages:
        made = [stage]
        parts = None if stage.name in known else _find_split(stage, longest_row, known)
        if parts is not None:
            rows, outer = _split_rows(stage, parts, names)
            tensors = {**function.tensors(), rows.name: rows}
            # Neither sum may contain loads that only the other's conditions keep in bounds. A row
            # that is out of bounds is one that the sum over rows excludes.
            if not find_open_reads(outer, tensors, reach)[0]:
                made = [clamp_stage(rows, tensors, reach)[0], outer]
        stages += made
    return function.with_stages(stages)


def _find_split(stage: Stage, longest_row: int, known: Mapping[str, Array]) -> _Parts | None:
    """Split of a stage; None if it is impossible or saves no work."""
    if stage.combiner != "sum" or len(stage.axes) < 2:
        return None
    if not stage.extents or any(isinstance(e, str) or e == 0 for e in stage.sizes):
        return None
    facts = IndexFacts(stage, known)
    for label, extent in reversed(stage.axes):
        if isinstance(extent, int) and extent <= longest_row:
            parts = _split_along(facts, Index(label, reduced=True), extent)
            if parts is not None and _is_less_work(facts, parts):
                return parts
    return None


def _split_along(facts: IndexFacts, row: Index, size: int) -> _Parts | None:
    dependencies = facts.dependencies
    place = Index(len(facts.stage.extents) - 1)

    def is_weight(value: int) -> bool:
        """Whether a value is a weight along a row."""
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
    moves = any(place in dependencies[value] for value in (*inner.factors, *inner.conditions))
    if moves or outer == _Product((), ()) or not inner.factors:
        return None
    return _Parts(row, size, outer, inner)


def _list_reduced(facts: IndexFacts, value: int) -> list[Index]:
    return [index for index in facts.dependencies[value] if index.reduced]


def list_factors(body: Body) -> list[int]:
    """Values whose product is a body's result, in the order written."""
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
    """Whether the split into two sums takes less time than the original sum."""
    stage = facts.stage
    sizes = [e for e in stage.extents if isinstance(e, int)]
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
    """Largest number of values of a reduced index that the conditions on it alone admit."""
    own = [c for c in conditions if facts.known[c] and _list_reduced(facts, c) == [index]]
    passing = facts.find_passing(own) if own else None
    if passing is None:
        return facts.stage.size(index)
    # A reduced index stands after those of the domain.
    return int(passing.sum(axis=-1).max())


def _split_rows(stage: Stage, parts: _Parts, names: dict[str, None]) -> tuple[Stage, Stage]:
    """Stage of the sums for every index of a row, and the sum over these."""
    body, place = stage.body, len(stage.extents) - 1
    along = tuple(axis for axis in stage.axes if axis[0] == parts.row.axis)
    others = Reduction("sum", tuple(axis for axis in stage.axes if axis not in along))
    builder = BodyBuilder()
    numbers = builder.copy(body, places={parts.row: builder.add(Index(place))})
    inner = parts.inner.write(builder, numbers)
    name = take_name(f"{stage.name}_rows", names)
    extents = (*stage.extents[:-1], parts.size)
    rows = Stage(name, inner.dtype, extents, inner, others, stage.span)
    builder = BodyBuilder()
    numbers = builder.copy(body)
    at = tuple(builder.add(i) for i in (*stage.indices[:place], parts.row))
    outer = parts.outer.write(builder, numbers, builder.add(Load(name, at, inner.dtype)))
    return rows, dataclasses.replace(stage, body=outer, reduction=Reduction("sum", along))
