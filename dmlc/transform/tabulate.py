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
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

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
)
from dmlc.ir.index import IndexFacts, count_points, find_index_only, reach_back
from dmlc.ir.inside import is_empty
from dmlc.ir.naming import take_name
from dmlc.scalars import (
    COMBINERS,
    Array,
    DataType,
    combiner_identity,
    convert,
    data_type_of,
    find_same,
)
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
    """The tables of a function in the making: equal ones are one. `known` are the values of
    stages that depend on positions alone."""

    def __init__(
        self, function: Function, known: Mapping[str, Array] = MappingProxyType({})
    ) -> None:
        self.known = known
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


def is_index_only(stage: Stage, known: Container[str] = ()) -> bool:
    """Whether a stage depends on positions alone, and on what these find in `known`."""
    return all(find_index_only(stage.body, known))


def evaluate_stage(stage: Stage, known: Mapping[str, Array]) -> Array | None:
    """The elements of a reduction that depends on positions alone, and on what these find in
    `known`; None where it takes too many points. They are folded in their own type, point by
    point. Of an axis of the domain that they do not depend on there is one place."""
    reduction, body = stage.reduction, stage.body
    if reduction is None:
        return None
    facts = IndexFacts(stage, known)
    roots = [body.result] if body.guard is None else [body.result, body.guard]
    moving = [index for index in facts.depends_on(roots) if not index.reduced]
    over = (*moving, *(index for index in stage.indices if index.reduced))
    evaluated = facts.evaluate(roots, over)
    if evaluated is None:
        return None
    values, *holds = evaluated
    sizes = tuple(e for e in map(stage.extent, over) if isinstance(e, int))
    outer = sizes[: len(moving)]

    def list_points(every: Array) -> Array:
        return np.broadcast_to(every, sizes).reshape((*outer, -1))

    points = list_points(values)
    passing = list_points(holds[0]) if holds else np.ones(points.shape, np.bool_)
    combiner = reduction.combiner
    if combiner in POSITIONAL_COMBINERS:
        total = _find_extremes(points, passing, combiner)
    else:
        identity = np.asarray(combiner_identity(combiner, body.dtype), body.dtype.dtype)
        every = np.moveaxis(np.where(passing, points, identity), -1, 0)
        with np.errstate(all="ignore"):
            total = functools.reduce(
                COMBINERS[combiner].evaluate, every, np.broadcast_to(identity, outer)
            )
    kept = [size if Index(axis) in moving else 1 for axis, size in enumerate(stage.domain)]
    stored = np.asarray(convert(np.asarray(total), stage.dtype))
    whole = [size for size in kept if isinstance(size, int)]
    return stored.astype(stage.dtype.compute.dtype).reshape(whole)


def _find_extremes(points: Array, passing: Array, combiner: str) -> Array:
    """The number of the first smallest or largest of the points that pass, along the last axis;
    0 where none does. A NaN is more extreme than any number."""
    best, place = np.zeros(points.shape[:-1], points.dtype), np.zeros(points.shape[:-1], np.int64)
    found = np.zeros(points.shape[:-1], np.bool_)
    for number in range(points.shape[-1]):
        value = points[..., number]
        beats = value < best if combiner == "argmin" else value > best
        beats = beats | ((value != value) & (best == best)) | ~found
        better = passing[..., number] & beats
        best, place = np.where(better, value, best), np.where(better, number, place)
        found = found | better
    return place


def read_known(stage: Stage, tables: Tables) -> Stage | None:
    """A stage whose values are known as reads of a table; None where that were too large."""
    if stage.dtype.is_storage_only or stage.dtype.bytes < 4:
        return None  # Not every language has buffers of such types.
    values = tables.known[stage.name]
    if values.size > _MOST_VALUES:
        return None
    domain = [Index(axis) for axis, size in enumerate(values.shape) if size != 1]
    builder = Builder()
    packed = values.reshape([size for size in values.shape if size != 1])
    result = _read(builder, stage, tables, "values", packed, domain)
    made = Body.make(builder.instructions, result)
    return dataclasses.replace(stage, body=made, reduction=None)


# Values ------------------------------------------------------------------------------------


def tabulate_stage(stage: Stage, tables: Tables) -> Stage:
    """A stage whose fractions of positions alone come from tables, and whose positions that come
    from fractions are whole-number formulas."""
    body, facts = stage.body, IndexFacts(stage, tables.known)
    roots = [] if is_empty(stage) else _list_worthwhile(facts, tables.known)
    if not roots:
        return stage
    builder = Builder()
    replaced: dict[int, int] = {}
    for root in roots:
        made = _write_form(builder, facts, root)
        if made is not None:
            replaced[root] = made
    guarded = builder.copy(body, replaced)
    for root in roots:
        made = None if root in replaced else _replace(builder, facts, tables, root)
        if made is not None:
            replaced[root] = made
    numbers = builder.copy(body, replaced)
    # The guard reads no tables: it may be what proves reads inside.
    guard = None if body.guard is None else guarded[body.guard]
    return dataclasses.replace(stage, body=builder.make(numbers[body.result], guard))


def _list_worthwhile(facts: IndexFacts, known: Container[str]) -> list[int]:
    """The largest values worth evaluating."""
    instructions = facts.stage.body.instructions
    costs = _count_costs(instructions, known)
    chosen = [
        facts.known[number]
        and 1 <= len(facts.dependencies[number]) <= 2
        and (costs[number] >= _LEAST_COST or _is_counted(instructions, number))
        and _is_fraction(instructions, number, known)
        for number in range(len(instructions))
    ]
    return sorted(list_roots(facts.stage.body, chosen))


def list_roots(body: Body, chosen: Sequence[bool]) -> list[int]:
    """Those of the values chosen that something else than another such uses."""
    used: dict[int, None] = {}
    for number, instruction in enumerate(body.instructions):
        if not chosen[number]:
            used.update({o: None for o in operands(instruction) if chosen[o]})
    if chosen[body.result]:
        used[body.result] = None
    return list(used)


def _is_fraction(instructions: Sequence[Instruction], number: int, known: Container[str]) -> bool:
    """Whether a value is a fraction, or a position made of one or of what is known of a stage."""
    instruction = instructions[number]
    if isinstance(instruction, Cast) and instruction.dtype is DataType.INDEX:
        operand = instructions[instruction.operand]
        return value_type(operand).is_float or _is_known(operand, known)
    return value_type(instruction).is_float


def _is_known(instruction: Instruction, known: Container[str]) -> bool:
    return isinstance(instruction, Load) and instruction.tensor in known


def _is_counted(instructions: Sequence[Instruction], number: int) -> bool:
    """Whether a value is a whole number that was computed, as a fraction: how many elements are
    in a window, which may be the same everywhere."""
    instruction = instructions[number]
    if not isinstance(instruction, Cast) or not instruction.dtype.is_float:
        return False
    operand = instructions[instruction.operand]
    return isinstance(operand, Apply) and not operand.dtype.is_float


def _count_costs(instructions: Sequence[Instruction], known: Container[str]) -> list[int]:
    """About how many operations on fractions each value takes; what is known of a stage took some
    to compute."""
    costs: list[int] = []
    for instruction in instructions:
        own = _LEAST_COST if _is_known(instruction, known) else 0
        if isinstance(instruction, Apply) and instruction.dtype.is_float:
            dear = instruction.operation.transcendental or instruction.operation.name == "div"
            own = _LEAST_COST if dear else 1
        costs.append(min(1 << 20, own + sum(costs[o] for o in operands(instruction))))
    return costs


def _replace(builder: Builder, facts: IndexFacts, tables: Tables, root: int) -> int | None:
    """The value that stands for a root in the new body; None where the root stays."""
    stage, over = facts.stage, facts.dependencies[root]
    found = facts.evaluate([root])
    if found is None:
        return None
    (values,) = found
    if value_type(stage.body.instructions[root]) is DataType.INDEX:
        return _look_up(builder, stage, tables, values, over)
    values, kept = _drop_axes(values, _find_used(facts, over, tables.known), over)
    again = values.size * _READ_AGAIN <= count_points(stage, stage.indices)
    worth = values.size <= max(_MOST_VALUES if again else 0, _count_known(stage, root, tables))
    dear = _count_costs(stage.body.instructions, tables.known)[root] >= _LEAST_COST
    if kept and not (worth and dear):
        return None
    return _read(builder, stage, tables, "weights", values, kept)


def _write_form(builder: Builder, facts: IndexFacts, root: int) -> int | None:
    """A position along one axis as a formula; None where it has none."""
    over = facts.dependencies[root]
    position = value_type(facts.stage.body.instructions[root]) is DataType.INDEX
    found = facts.evaluate([root]) if position and len(over) == 1 else None
    if found is None:
        return None
    form = fit_clamped(np.arange(found[0].size), found[0])
    return None if form is None else form.write(builder, builder.add(over[0]))


def _look_up(
    builder: Builder, stage: Stage, tables: Tables, values: Array, over: Sequence[Index]
) -> int | None:
    limits = np.iinfo(np.int32)
    narrow = limits.min <= int(values.min()) and int(values.max()) <= limits.max
    again = values.size * _READ_AGAIN <= count_points(stage, stage.indices)
    worth = again and values.size <= _MOST_VALUES
    if not worth or not narrow or stage.body.guard is not None:
        return None  # A guard may prove what is read where, and knows nothing of tables.
    load = _read(builder, stage, tables, "places", values.astype(np.int32), over)
    return builder.add(Cast(load, DataType.INDEX))


def _count_known(stage: Stage, root: int, tables: Tables) -> int:
    """The elements of the tables that a value would be looked up in otherwise."""
    reached = (stage.body.instructions[value] for value in reach_back(stage.body, [root]))
    found = {instruction.tensor for instruction in reached if isinstance(instruction, Load)}
    sizes = (tables.known[name].size for name in found if name in tables.known)
    return min(_MOST_VALUES, sum(sizes))


def _find_used(facts: IndexFacts, over: Sequence[Index], known: Container[str]) -> Array:
    """Where the guard lets a point use a value, as far as whole-number conditions on the same axes
    tell."""
    costs = _count_costs(facts.stage.body.instructions, known)
    conditions = [c for c in facts.conditions if facts.is_over(c, over) and not costs[c]]
    used = facts.find_passing(conditions, over)
    if used is None:
        raise InternalError(f"%{facts.stage.name}: its positions are not known")
    return used


def _drop_axes(values: Array, used: Array, over: Sequence[Index]) -> tuple[Array, list[Index]]:
    """The values without the axes along which no two that are used differ."""
    values = np.broadcast_to(values, used.shape)
    kept = list(over)
    for index in over:
        axis = kept.index(index)
        first = np.expand_dims(used.argmax(axis=axis), axis)
        chosen = np.take_along_axis(values, first, axis=axis)
        if bool((find_same(values, chosen) | ~used).all()):
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
