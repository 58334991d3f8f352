"""Evaluates index-only values at compile time, and puts them into tables.

Fractions, such as weights, become tables over the one or two axes they depend on, or constants if
they do not vary; values that no point uses are ignored. So do integer counts used as fractions, if
they do not vary. Indices computed from fractions become integer formulas if these are exact, and
tables otherwise. Other integer arithmetic stays: kernels compute it as fast as they would load it.

First, index-only stages are found (`settle`). An element-wise one is inlined into its readers,
whose values thereby become index-only. A reduction is evaluated: weights that are sums of a few
terms, counts, bounds. Passes decide what loads of either become.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Select,
    Stage,
    Table,
    operands,
    value_type,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.floor import FloorForm, fit_clamped, fit_floor, fit_periodic
from dmlc.ir.index import IndexFacts, count_points, find_index_only, reach_back
from dmlc.ir.inside import is_empty
from dmlc.ir.naming import take_name
from dmlc.scalars import Array, DataType, data_type_of, find_same, integer_limits
from dmlc.source import InternalError
from dmlc.transform.inline import inline_stages
from dmlc.transform.simplify import is_inlinable, list_live, replace_stages

_MOST_VALUES = 1 << 16
"""Largest number of elements of one table."""

_READ_AGAIN = 4
"""Smallest number of reads per element for a table to be worth its memory."""

_LEAST_COST = 2
"""Number of float operations that is worth a table; a quotient counts as many."""

_CHOICE_COST = 0.25
"""Cost of a select: a few are faster than a load, and those of a long array are not."""


class Tables:
    """Tables of a function under construction, without duplicates. `known` are the values of
    index-only stages."""

    def __init__(self, function: Function, known: Mapping[str, Array]) -> None:
        self.known = known
        self.names = dict.fromkeys(function.tensors())
        """Names in use, those of stages too."""
        self._given = function.tables
        self._made: dict[tuple[object, ...], Table] = {}
        self._own = {t.name for t in function.tables}

    def __contains__(self, name: str) -> bool:
        return name in self._own

    def read(self, builder: BodyBuilder, wanted: str, values: Array, places: Sequence[int]) -> int:
        """Element of a table with these values; a constant if they have no axes."""
        dtype = data_type_of(values.dtype)
        if dtype is None:
            raise InternalError(f"no tensor holds {values.dtype}")
        if not values.ndim:
            return builder.add(Constant(dtype, values.item()))
        packed = np.ascontiguousarray(values)
        key = (dtype, values.shape, packed.tobytes())
        if key not in self._made:
            name, extents = take_name(wanted, self.names), tuple(int(n) for n in values.shape)
            self._own.add(name)
            self._made[key] = Table(name, dtype, extents, tuple(packed.ravel().tolist()))
        return builder.add(Load(self._made[key].name, tuple(places), dtype))

    def read_position(
        self, builder: BodyBuilder, wanted: str, values: Array, places: Sequence[int]
    ) -> int:
        """Element of a table of integers, as an INDEX; by a formula instead if they have one along
        an axis, and do not vary along others."""
        long = [axis for axis, size in enumerate(values.shape) if size != 1]
        if len(long) == 1:
            sequence = values.ravel().astype(np.int64)
            form = fit_periodic(sequence) or fit_floor(np.arange(sequence.size), sequence)
            if form is not None:
                return form.write(builder, places[long[0]])
        element = self.read(builder, wanted, values.astype(np.int32), places)
        return builder.add(Cast(element, DataType.INDEX))

    def attach(self, function: Function) -> Function:
        """Function with those of the tables that it reads."""
        read = {load.tensor for stage in function.stages for load in stage.body.loads()}
        every = (*self._given, *self._made.values())
        tables = tuple(t for t in every if t.name in read)
        same = tables == function.tables
        return function if same else dataclasses.replace(function, tables=tables)


# Stages ------------------------------------------------------------------------------------


def read_known(stage: Stage, tables: Tables) -> Stage | None:
    """Stage with known values as loads of a table; None if that would be too large."""
    if stage.dtype.is_storage_only or stage.dtype.bytes < 4:
        return None  # Not every language has buffers of such types.
    values = tables.known[stage.name]
    if values.size > _MOST_VALUES:
        return None
    builder = BodyBuilder()
    places = [builder.add(Index(axis)) for axis, size in enumerate(values.shape) if size != 1]
    result = tables.read(builder, f"{stage.name}_values", values.squeeze(), places)
    return dataclasses.replace(stage, body=builder.make(result), reduction=None)


def tabulate_stage(stage: Stage, tables: Tables) -> Stage:
    """Stage with its index-only fractions loaded from tables, and indices computed from fractions
    as integer formulas."""
    body, facts = stage.body, IndexFacts(stage, tables.known)
    found = zip(facts.known, body.instructions, strict=True)
    if is_empty(stage) or not any(known and operands(each) for known, each in found):
        return stage
    costs = _count_costs(body, tables.known)
    roots = _list_worthwhile(facts, tables.known, costs)
    if not roots:
        return stage
    builder = BodyBuilder()
    replaced: dict[int, int] = {}
    for root in roots:
        made = _write_form(builder, facts, root)
        if made is not None:
            replaced[root] = made
    guarded = builder.copy(body, replaced)
    for root in roots:
        made = None if root in replaced else _look_up(builder, facts, tables, root, costs)
        if made is not None:
            replaced[root] = made
    numbers = builder.copy(body, replaced)
    # The guard reads no tables, as it may be needed to prove loads in bounds.
    guard = None if body.guard is None else guarded[body.guard]
    return dataclasses.replace(stage, body=builder.make(numbers[body.result], guard))


# What is worth it --------------------------------------------------------------------------


def _list_worthwhile(facts: IndexFacts, known: Container[str], costs: Sequence[float]) -> list[int]:
    """Largest subexpressions worth evaluating: fractions, and indices computed from a fraction or
    from an index-only stage."""
    instructions = facts.stage.body.instructions

    def is_worth(number: int) -> bool:
        instruction = instructions[number]
        if not 1 <= len(facts.dependencies[number]) <= 2:
            return False
        operand = instructions[instruction.operand] if isinstance(instruction, Cast) else None
        if value_type(instruction) is DataType.INDEX:
            real = operand is not None and value_type(operand).is_float
            return costs[number] >= _LEAST_COST and (real or _is_known(operand, known))
        # The number of elements in a window, as a fraction, may be constant.
        counted = isinstance(operand, Apply) and not operand.dtype.is_float
        return value_type(instruction).is_float and (costs[number] >= _LEAST_COST or counted)

    chosen = [own and is_worth(number) for number, own in enumerate(facts.known)]
    return sorted(list_roots(facts.stage.body, chosen))


def _is_known(instruction: Instruction | None, known: Container[str]) -> bool:
    return isinstance(instruction, Load) and instruction.tensor in known


def list_roots(body: Body, chosen: Sequence[bool]) -> list[int]:
    """Chosen values that a value not chosen uses, and the result if chosen."""
    used: dict[int, None] = {}
    for number, instruction in enumerate(body.instructions):
        if not chosen[number]:
            used.update({o: None for o in operands(instruction) if chosen[o]})
    if chosen[body.result]:
        used[body.result] = None
    return list(used)


def _count_costs(body: Body, known: Container[str]) -> tuple[float, ...]:
    """Estimated number of float operations for each value, those for elements of index-only stages
    included."""

    def find(instruction: Instruction, given: list[float]) -> float:
        own = _LEAST_COST if _is_known(instruction, known) else 0.0
        if isinstance(instruction, Select) and instruction.dtype is not DataType.INDEX:
            own = _CHOICE_COST
        if isinstance(instruction, Apply) and instruction.dtype.is_float:
            dear = instruction.operation.transcendental or instruction.operation.name == "div"
            own = _LEAST_COST if dear else 1
        return min(1 << 20, own + sum(given))

    return body.interpret(find)


# Values ------------------------------------------------------------------------------------


def _write_form(builder: BodyBuilder, facts: IndexFacts, root: int) -> int | None:
    """INDEX value along one axis as a formula; None if it has none."""
    over = facts.dependencies[root]
    position = value_type(facts.stage.body.instructions[root]) is DataType.INDEX
    found = facts.evaluate([root]) if position and len(over) == 1 else None
    form = None if found is None else fit_clamped(np.arange(found[0].size), found[0])
    return None if form is None else form.write(builder, builder.add(over[0]))


def _look_up(
    builder: BodyBuilder, facts: IndexFacts, tables: Tables, root: int, costs: Sequence[float]
) -> int | None:
    """Value that replaces a root in the new body; None if the root stays."""
    stage, over = facts.stage, facts.dependencies[root]
    found = facts.evaluate([root])
    if found is None:
        return None
    (values,) = found
    position = value_type(stage.body.instructions[root]) is DataType.INDEX
    if not position:
        values, over = _drop_axes(facts, values, over, costs)
    again = values.size * _READ_AGAIN <= count_points(stage, stage.indices)
    most = _MOST_VALUES if again else 0
    places = [builder.add(index) for index in over]
    if position:
        least, largest = integer_limits(DataType.INT32)
        narrow = least <= int(values.min()) and int(values.max()) <= largest
        if values.size > most or not narrow or stage.body.guard is not None:
            return None  # A guard may prove loads in bounds, which a table would prevent.
        return tables.read_position(builder, f"{stage.name}_places", values, places)
    # Otherwise a value would be loaded from the tables that it is computed from.
    instructions = stage.body.instructions
    reached = (instructions[value] for value in reach_back(instructions, [root]))
    found = {instruction.tensor for instruction in reached if isinstance(instruction, Load)}
    sizes = (tables.known[name].size for name in found if name in tables.known)
    worth = values.size <= max(most, min(_MOST_VALUES, sum(sizes)))
    if over and not (worth and costs[root] >= _LEAST_COST):
        return None
    return tables.read(builder, f"{stage.name}_weights", values, places)


def _drop_axes(
    facts: IndexFacts, values: Array, over: Sequence[Index], costs: Sequence[float]
) -> tuple[Array, tuple[Index, ...]]:
    """Values without the axes along which they do not vary over the points that use them, according
    to the guard's integer conditions on the same axes."""
    conditions = [c for c in facts.conditions if facts.is_over(c, over) and not costs[c]]
    used = facts.find_passing(conditions, over)
    if used is None:
        raise InternalError(f"%{facts.stage.name}: its positions are not known")
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
    return values, tuple(kept)


# What is known ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """A function with its element-wise index-only stages inlined; and the elements of its
    index-only reductions, by stage."""

    function: Function
    known: Mapping[str, Array]


def settle(function: Function) -> Settled:
    """Compile-time knowledge of a function. Linear in the number of stages."""
    results = {r.name for r in function.results}
    inlined: dict[str, Stage] = {}
    known: dict[str, Array] = {}
    stages: list[Stage] = []
    for stage in function.stages:
        made = inline_stages(stage, _list_placed(stage, inlined))
        if all(find_index_only(made.body, known)):
            values = IndexFacts(made, known).reduce()
            counted = None if values is None else _write_count(made, values)
            if counted is not None and made.name not in results:
                made = inlined[made.name] = counted
            elif values is not None:
                known[made.name] = values
            elif made.name not in results and is_inlinable(made):
                inlined[made.name] = made
        stages.append(made)
    if not inlined:
        return Settled(function, known)
    return Settled(replace_stages(function, list_live(stages, results)), known)


def _write_count(stage: Stage, values: Array) -> Stage | None:
    """Integer reduction as a formula of the index along one axis, such as the number of elements in
    a window; None if it has none."""
    long = [axis for axis, size in enumerate(values.shape) if size != 1]
    if stage.dtype is not DataType.INT32 or len(long) > 1:
        return None
    builder = BodyBuilder()
    sequence = values.ravel().astype(np.int64)
    form = _fit_window(sequence)
    if form is None:
        return None
    place = form.write(builder, builder.add(Index(long[0])) if long else builder.constant(0))
    result = builder.add(Cast(place, stage.dtype))
    return dataclasses.replace(stage, body=builder.make(result), reduction=None)


def _fit_window(counts: Array) -> FloorForm | None:
    """Number of elements in a window that exceeds one end at most, as a formula; None if it has
    none."""
    places, most = np.arange(counts.size), int(counts.max(initial=0))
    for at, step in ((0, counts[1:2]), (counts.size - 1, counts[-2:-1])):
        scale = int(step[0] - counts[at]) * (1 if at == 0 else -1) if step.size else 0
        form = FloorForm(scale, int(counts[at]) - scale * at, 1, None, most)
        if bool((form.evaluate(places) == counts).all()):
            return form
    return None


def _list_placed(stage: Stage, inlined: Mapping[str, Stage]) -> dict[str, Stage]:
    """Inlined stages that a stage reads at index-only indices. Those read at other indices may be
    loaded from tables."""
    loads = [load for load in stage.body.loads() if load.tensor in inlined]
    index_only = find_index_only(stage.body) if loads else ()
    elsewhere = {load.tensor for load in loads if not all(index_only[i] for i in load.indices)}
    return {i.tensor: inlined[i.tensor] for i in loads if i.tensor not in elsewhere}
