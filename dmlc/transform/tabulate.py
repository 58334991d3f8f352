"""Evaluates at compile time what depends on positions alone, and leaves it in tables.

Fractions, such as weights, become tables over the one or two axes they depend on, or constants
where they do not vary; what no point uses is not looked at. So do counts that serve as fractions,
where they do not vary. Positions that come from fractions become whole-number formulas where these
are exact, and tables elsewhere. Reductions that read no tensor are evaluated whole. Other
whole-number arithmetic stays arithmetic: kernels compute it as quickly as they would read it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Stage,
    Table,
    operands,
    value_type,
    with_operands,
)
from dmlc.ir.naming import take_name
from dmlc.ir.positions import (
    MOST_POINTS,
    count_points,
    evaluate_positions,
    find_dependencies,
    find_index_only,
    list_conjuncts,
    order_indices,
)
from dmlc.scalars import COMBINERS, Array, DataType, combiner_identity, convert, data_type_of
from dmlc.source import InternalError
from dmlc.transform.closed_form import fit_clamped
from dmlc.transform.simplify import Builder

_MOST_VALUES = 1 << 16
"""Elements of one table, at most."""

_READ_AGAIN = 4
"""How often each element of a table is read at least, for it to be worth its memory."""

_LEAST_COST = 2
"""Operations on fractions that are worth a table; a quotient counts as many."""


class Tables:
    """The tables of a function in the making: equal ones are one."""

    def __init__(self, function: Function) -> None:
        self._taken = dict.fromkeys(function.tensors())
        self._given = function.tables
        self._made: dict[tuple[object, ...], Table] = {}
        self._names = {t.name for t in function.tables}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def take(self, wanted: str, dtype: DataType, values: Array) -> str:
        """The name of a table of these values."""
        extents = tuple(int(n) for n in values.shape)
        packed = np.ascontiguousarray(values, dtype.dtype)
        key = (dtype, extents, packed.tobytes())
        if key not in self._made:
            name = take_name(wanted, self._taken)
            self._names.add(name)
            self._made[key] = Table(name, dtype, extents, tuple(packed.ravel().tolist()))
        return self._made[key].name

    def attach(self, function: Function) -> Function:
        """The function with those of the tables that it reads."""
        read = {load.tensor for stage in function.stages for load in stage.body.loads()}
        every = (*self._given, *self._made.values())
        return dataclasses.replace(function, tables=tuple(t for t in every if t.name in read))


# Stages ------------------------------------------------------------------------------------


def is_index_only(stage: Stage) -> bool:
    """Whether a stage depends on positions alone."""
    body = stage.body
    roots = [body.result] if body.guard is None else [body.result, body.guard]
    found = find_index_only(body)
    return all(found[root] for root in roots)


def evaluate_stage(stage: Stage, tables: Tables) -> Stage | None:
    """A reduction that depends on positions alone, as reads of a table; None where it takes too
    many points, or gives positions."""
    reduction, body = stage.reduction, stage.body
    if reduction is None or reduction.combiner in POSITIONAL_COMBINERS:
        return None
    if stage.dtype.is_storage_only or stage.dtype.bytes < 4:
        return None  # Not every language has buffers of such types.
    dependencies = find_dependencies(body)
    roots = [body.result] if body.guard is None else [body.result, body.guard]
    domain = [i for i in order_indices(i for r in roots for i in dependencies[r]) if not i.reduced]
    folded = [Index(label, reduced=True) for label, _ in reduction.axes]
    over = (*domain, *folded)
    extents = [stage.extent(index) for index in over]
    sizes = tuple(e for e in extents if isinstance(e, int))
    if len(sizes) != len(extents) or count_points(stage, over) > MOST_POINTS:
        return None
    if math.prod(sizes[: len(domain)]) > _MOST_VALUES:
        return None
    number = np.dtype(np.float64) if body.dtype.is_float else body.dtype.dtype
    found = evaluate_positions(stage, roots, over)
    values = np.broadcast_to(found[0].astype(number), sizes)
    identity = np.asarray(combiner_identity(reduction.combiner, body.dtype), number)
    if len(found) > 1:
        values = np.where(found[1], values, identity)
    points = values.reshape((*sizes[: len(domain)], -1))
    combine = COMBINERS[reduction.combiner].evaluate
    start = np.broadcast_to(identity, points.shape[:-1])
    total = functools.reduce(combine, np.moveaxis(points, -1, 0), start)
    stored = np.asarray(convert(np.asarray(total), stage.dtype))
    builder = Builder()
    result = _read(builder, stage, tables, "values", stored, domain)
    made = Body.make(builder.instructions, result)
    return dataclasses.replace(stage, body=made, reduction=None)


# Values ------------------------------------------------------------------------------------


def tabulate_stage(stage: Stage, tables: Tables) -> Stage:
    """A stage whose fractions of positions alone come from tables, and whose positions that come
    from fractions are whole-number formulas."""
    body = stage.body
    roots = _list_roots(stage)
    if not roots:
        return stage
    builder = Builder()
    replaced: dict[int, int] = {}
    guarded = _copy(builder, body, {})
    for root in roots:
        made = _replace(builder, stage, tables, root)
        if made is not None:
            replaced[root] = made
    numbers = _copy(builder, body, replaced)
    # The guard stays as it was: it may be what proves reads inside.
    guard = None if body.guard is None else guarded[body.guard]
    made_body = Body.make(builder.instructions, numbers[body.result], guard)
    return dataclasses.replace(stage, body=made_body)


def _copy(builder: Builder, body: Body, replaced: dict[int, int]) -> list[int]:
    numbers: list[int] = []
    for number, instruction in enumerate(body.instructions):
        if number in replaced:
            numbers.append(replaced[number])
            continue
        given = tuple(numbers[o] for o in operands(instruction))
        numbers.append(builder.add(with_operands(instruction, given)))
    return numbers


def _list_roots(stage: Stage) -> list[int]:
    """The largest values worth evaluating: those that something else than another such uses."""
    body = stage.body
    index_only, dependencies = find_index_only(body), find_dependencies(body)
    costs = _count_costs(body.instructions)
    chosen = [
        index_only[number]
        and 1 <= len(dependencies[number]) <= 2
        and (costs[number] >= _LEAST_COST or _is_counted(body.instructions, number))
        and _is_fraction(body.instructions, number)
        for number in range(len(body.instructions))
    ]
    used: dict[int, None] = {}
    for number, instruction in enumerate(body.instructions):
        if not chosen[number]:
            used.update({o: None for o in operands(instruction) if chosen[o]})
    if chosen[body.result]:
        used[body.result] = None
    return sorted(used)


def _is_fraction(instructions: Sequence[Instruction], number: int) -> bool:
    """Whether a value is a fraction, or a position made of one."""
    instruction = instructions[number]
    if isinstance(instruction, Cast) and instruction.dtype is DataType.INDEX:
        return value_type(instructions[instruction.operand]).is_float
    return value_type(instruction).is_float


def _is_counted(instructions: Sequence[Instruction], number: int) -> bool:
    """Whether a value is a whole number that was computed, as a fraction: how many elements are
    in a window, which may be the same everywhere."""
    instruction = instructions[number]
    if not isinstance(instruction, Cast) or not instruction.dtype.is_float:
        return False
    operand = instructions[instruction.operand]
    return isinstance(operand, Apply) and not operand.dtype.is_float


def _count_costs(instructions: Sequence[Instruction]) -> list[int]:
    """About how many operations on fractions each value takes."""
    costs: list[int] = []
    for instruction in instructions:
        own = 0
        if isinstance(instruction, Apply) and instruction.dtype.is_float:
            dear = instruction.operation.transcendental or instruction.operation.name == "div"
            own = _LEAST_COST if dear else 1
        costs.append(min(1 << 20, own + sum(costs[o] for o in operands(instruction))))
    return costs


def _replace(builder: Builder, stage: Stage, tables: Tables, root: int) -> int | None:
    """The value that stands for a root in the new body; None where the root stays."""
    over = find_dependencies(stage.body)[root]
    points = count_points(stage, over)
    if points > MOST_POINTS:
        return None
    (values,) = evaluate_positions(stage, [root], over)
    if value_type(stage.body.instructions[root]) is DataType.INDEX:
        return _replace_position(builder, stage, tables, values, over)
    values, kept = _drop_axes(values, _find_used(stage, root, over), over)
    worth = values.size * _READ_AGAIN <= _count_all(stage) and values.size <= _MOST_VALUES
    dear = _count_costs(stage.body.instructions)[root] >= _LEAST_COST
    if kept and not (worth and dear):
        return None
    return _read(builder, stage, tables, "weights", values, kept)


def _replace_position(
    builder: Builder, stage: Stage, tables: Tables, values: Array, over: Sequence[Index]
) -> int | None:
    if len(over) == 1:
        form = fit_clamped(np.arange(values.size), values)
        if form is not None:
            return form.write(builder, builder.add(over[0]))
    limits = np.iinfo(np.int32)
    narrow = limits.min <= int(values.min()) and int(values.max()) <= limits.max
    worth = values.size * _READ_AGAIN <= _count_all(stage) and values.size <= _MOST_VALUES
    if not worth or not narrow or stage.body.guard is not None:
        return None  # A guard may prove what is read where, and knows nothing of tables.
    load = _read(builder, stage, tables, "places", values.astype(np.int32), over)
    return builder.add(Cast(load, DataType.INDEX))


def _count_all(stage: Stage) -> float:
    axes = [Index(axis) for axis in range(len(stage.domain))]
    if stage.reduction is not None:
        axes += [Index(label, reduced=True) for label, _ in stage.reduction.axes]
    return count_points(stage, axes)


def _find_used(stage: Stage, root: int, over: Sequence[Index]) -> Array:
    """Where the guard lets a point use a value, as far as whole-number conditions on the same axes
    tell."""
    body = stage.body
    index_only, dependencies = find_index_only(body), find_dependencies(body)
    costs = _count_costs(body.instructions)
    shape = [e for e in map(stage.extent, over) if isinstance(e, int)]
    used: Array = np.ones(shape, np.bool_)
    conditions = [
        c
        for c in list_conjuncts(body)
        if index_only[c] and not costs[c] and set(dependencies[c]) <= set(over)
    ]
    for holds in evaluate_positions(stage, conditions, over) if conditions else ():
        np.logical_and(used, holds, out=used)
    return used


def _drop_axes(values: Array, used: Array, over: Sequence[Index]) -> tuple[Array, list[Index]]:
    """The values without the axes along which no two that are used differ."""
    values = np.broadcast_to(values, used.shape)
    kept = list(over)
    for index in over:
        axis = kept.index(index)
        first = np.expand_dims(used.argmax(axis=axis), axis)
        chosen = np.take_along_axis(values, first, axis=axis)
        same = (values == chosen) | (np.isnan(values) & np.isnan(chosen))
        if bool((same | ~used).all()):
            values = np.take(chosen, 0, axis=axis)
            used = np.asarray(used.any(axis=axis))
            kept.remove(index)
    return values, kept


def _read(
    builder: Builder,
    stage: Stage,
    tables: Tables,
    what: str,
    values: Array,
    over: Sequence[Index],
) -> int:
    """A read of a table over some axes; a constant where there are none."""
    dtype = data_type_of(values.dtype)
    if dtype is None:
        raise InternalError(f"%{stage.name}: no tensor holds {values.dtype}")
    if not over:
        return builder.add(Constant(dtype, values.item()))
    name = tables.take(f"{stage.name}_{what}", dtype, values)
    places = tuple(builder.add(index) for index in over)
    return builder.add(Load(name, places, dtype))
