"""Analysis of *index-only* values: values that depend on indices and constants alone.

Such a value is known at compile time at every point of its stage. `IndexFacts` gives its
dependencies, its affine form and its values. Values are evaluated in their own type, operation by
operation, in the order written, so that they are the same wherever they are used; FLOAT32 rounds
after each operation. The verifier proves reads in bounds with it, the reference evaluates with it,
and loop structure and tables come from it.

Values that depend on elements of tensors are out of its scope; `ranges` bounds indices without
evaluating them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from dmlc.index.affine import Affine, combine
from dmlc.index.intervals import EMPTY, MIRRORED, NEGATED, UNKNOWN, Interval, is_within
from dmlc.ir.nodes import (
    Apply,
    Body,
    Cast,
    Constant,
    Index,
    Instruction,
    Load,
    Select,
    Stage,
    Step,
    Symbol,
    Table,
    operands,
    value_type,
)
from dmlc.ir.repeat import Cycle, find_repeats
from dmlc.lazy import kept
from dmlc.parameters import expect
from dmlc.scalars import COMBINERS, Array, DataType, convert
from dmlc.source import InternalError

MOST_POINTS = 1 << 22
"""Largest number of points at which a value is evaluated."""


class IndexFacts:
    """Compile-time facts about the values of a stage's body, each computed on first use. `tables`
    are tensors whose elements are known, by name. `places` restricts an index to an array of
    values; other indices take their whole extent."""

    def __init__(
        self,
        stage: Stage,
        tables: Mapping[str, Array] = MappingProxyType({}),
        places: Mapping[Index, Array] = MappingProxyType({}),
    ) -> None:
        self.stage = stage
        self._tables = tables
        self._places = places
        self._repeats: dict[Index, tuple[Cycle | None, ...]] = {}

    @functools.cached_property
    def known(self) -> tuple[bool, ...]:
        """Whether each value is index-only."""
        return find_index_only(self.stage.body, self._tables)

    @functools.cached_property
    def dependencies(self) -> tuple[tuple[Index, ...], ...]:
        """Indices that each value depends on."""
        return find_dependencies(self.stage.body)

    @functools.cached_property
    def forms(self) -> tuple[Affine[Index] | None, ...]:
        """Affine form of each INDEX value: a sum of indices times constants, or None."""
        return _find_forms(self.stage.body)

    @functools.cached_property
    def conditions(self) -> tuple[int, ...]:
        """Conditions that the guard joins by `and`, as value numbers."""
        return list_conjuncts(self.stage.body)

    def depends_on(self, values: Iterable[int]) -> tuple[Index, ...]:
        """Indices that any of the values depends on."""
        return order_indices(index for value in values for index in self.dependencies[value])

    def is_over(self, value: int, over: Iterable[Index]) -> bool:
        """Whether a value is index-only and depends on indices of `over` alone."""
        return self.known[value] and set(self.dependencies[value]) <= set(over)

    def repeat(self, value: int, index: Index) -> Cycle | None:
        """Periodicity of a value along an index; None if unknown."""
        if index not in self._repeats:
            self._repeats[index] = find_repeats(self.stage, index)
        return self._repeats[index][value]

    def count_points(self, over: Iterable[Index]) -> float:
        """Number of points that the indices range over together, restricted to `places`; an empty
        axis counts as one."""
        return math.prod(max(1, self._count_values(index)) for index in over)

    def _count_values(self, index: Index) -> float:
        """Number of values that an index takes."""
        if index in self._places:
            return len(self._places[index])
        return count_points(self.stage, [index])

    def evaluate(
        self, values: Sequence[int], over: Sequence[Index] | None = None
    ) -> tuple[Array, ...] | None:
        """Result of `evaluate_positions`; None if a value depends on an index not in `over`, or if
        there are more than `MOST_POINTS` points."""
        over = self.depends_on(values) if over is None else over
        if not all(self.is_over(value, over) for value in values):
            return None
        if self.count_points(over) > MOST_POINTS:
            return None
        return evaluate_positions(self.stage, values, over, self._tables, self._places)

    def evaluate_at(
        self, values: Sequence[int], places: Mapping[Index, Array]
    ) -> tuple[Array, ...]:
        """Index-only values where indices take the values in `places`, broadcast to one shape."""
        found = evaluate_values(self.stage.body, values, places, self._tables)
        shape = np.broadcast_shapes(*(each.shape for each in places.values()))
        return tuple(np.broadcast_to(each, shape) for each in found)

    def find_passing(
        self, conditions: Sequence[int], over: Sequence[Index] | None = None
    ) -> Array | None:
        """Mask of the points where all conditions hold, with one axis for each index of `over`, of
        that index' extent; None if they cannot be evaluated."""
        over = self.depends_on(conditions) if over is None else over
        found = self.evaluate(conditions, over)
        if found is None:
            return None
        passing: Array = np.ones([int(self._count_values(i)) for i in over], np.bool_)
        for holds in found:
            passing = passing & holds
        return passing

    def reduce(self) -> Array | None:
        """Elements of an index-only reduction, combined in its own type, point by point; None
        without a reduction, without a point, or with more than `MOST_POINTS`. A domain axis on
        which the elements do not depend has size 1."""
        stage, body, combiner = self.stage, self.stage.body, self.stage.combiner
        if combiner is None:
            return None
        roots = [body.result] if body.guard is None else [body.result, body.guard]
        moving = [index for index in self.depends_on(roots) if not index.reduced]
        over = (*moving, *(index for index in stage.indices if index.reduced))
        found, passing = self.evaluate(roots[:1], over), self.find_passing(roots[1:], over)
        if found is None or passing is None or not passing.size:
            return None
        outer = passing.shape[: len(moving)]
        points = np.broadcast_to(found[0], passing.shape).reshape((*outer, -1))
        total = _reduce(combiner, body.dtype, points, passing.reshape(points.shape))
        stored = np.asarray(convert(total, stage.dtype), stage.dtype.compute.dtype)
        sizes = (e if Index(n) in moving else 1 for n, e in enumerate(stage.extents))
        return stored.reshape([size for size in sizes if isinstance(size, int)])


def _reduce(combiner: str, dtype: DataType, points: Array, passing: Array) -> Array:
    """Reduction along the last axis of the points that pass. For `argmin` and `argmax`, NaN is more
    extreme than any number, and the result is the first such index, or 0 if no point passes."""
    record = COMBINERS[combiner]
    identity = record.identity(dtype)
    every = np.moveaxis(np.where(passing, points, points.dtype.type(identity)), -1, 0)
    with np.errstate(all="ignore"):
        first = np.full(points.shape[:-1], identity, points.dtype)
        found = np.asarray(functools.reduce(record.operation.evaluate, every, first))
    if not record.positional:
        return found
    best = found[..., None]
    same = (points == best) | ((points != points) & (best != best))
    return np.argmax(passing & same, axis=-1)


def find_longest(holds: Array) -> tuple[int, int]:
    """Start and end of the longest run of true elements, the first one if several are as long."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], holds, [False]]).astype(np.int8)))
    runs = [(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]
    return max(runs, key=lambda run: run[1] - run[0], default=(0, 0))


def list_arrays(tables: Iterable[Table]) -> dict[str, Array]:
    """Elements of tables, by name."""
    return {table.name: table.array() for table in tables}


def find_index_only(
    body: Body, tables: Container[str] = (), *, open_sizes: bool = False
) -> tuple[bool, ...]:
    """Whether each value of a body depends on indices, constants and elements of `tables` alone;
    with `open_sizes`, also on sizes known at run time."""
    if tables and any(load.tensor in tables for load in body.loads()):
        return _find_index_only(body, tables, open_sizes)
    return _find_open(body) if open_sizes else _find_closed(body)


@kept
def _find_open(body: Body) -> tuple[bool, ...]:
    return _find_index_only(body, (), True)


@kept
def _find_closed(body: Body) -> tuple[bool, ...]:
    return _find_index_only(body, (), False)


def _find_index_only(body: Body, tables: Container[str], open_sizes: bool) -> tuple[bool, ...]:
    def find(instruction: Instruction, given: list[bool]) -> bool:
        loads = isinstance(instruction, Load) and instruction.tensor not in tables
        known = not loads and (open_sizes or not isinstance(instruction, Symbol | Step))
        return known and all(given)

    return body.interpret(find)


@kept
def find_dependencies(body: Body) -> tuple[tuple[Index, ...], ...]:
    """Indices that each value of a body depends on, in the order of `order_indices`."""
    return body.interpret(_join_indices)


def _join_indices(instruction: Instruction, given: list[tuple[Index, ...]]) -> tuple[Index, ...]:
    if isinstance(instruction, Index):
        return (instruction,)
    some = [indices for indices in given if indices]
    if all(indices == some[0] for indices in some[1:]):
        return some[0] if some else ()
    return order_indices(index for indices in some for index in indices)


def order_indices(indices: Iterable[Index]) -> tuple[Index, ...]:
    """Distinct indices: those of the domain, then those of the reduction, ascending."""
    return tuple(sorted(dict.fromkeys(indices), key=lambda index: (index.reduced, index.axis)))


@kept
def list_conjuncts(body: Body) -> tuple[int, ...]:
    """Conditions that a body's guard joins by `and`, in the order written; empty without a
    guard."""
    return part_conditions(body.instructions, body.guard)[1]


def part_conditions(
    values: Sequence[Any], *roots: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The values that join conditions by `and`, up to some roots, and the conditions that they
    join, in the order written."""
    joins: dict[int, None] = {}
    found: dict[int, None] = {}
    pending = [root for root in roots if root is not None]
    while pending:
        number = pending.pop()
        value = values[number]
        if isinstance(value, Apply) and value.operation.name == "and":
            joins[number] = None
            pending += reversed(value.operands)
        else:
            found[number] = None
    return tuple(joins), tuple(found)


Comparison: TypeAlias = tuple[str, int, int]
"""The name of a comparison, and its two sides."""


def read_comparison(
    values: Sequence[Any], condition: int, holds: bool = True
) -> tuple[Comparison, ...]:
    """Comparisons that follow from a condition being true, or false, each in both directions; empty
    if it compares no numbers."""
    match values[condition]:
        case Apply(operation=operation, operands=(left, right)) if operation.name in NEGATED:
            name = operation.name if holds else NEGATED[operation.name]
        case _:
            return ()
    if value_type(values[left]) is DataType.BOOL:
        return ()
    return (name, left, right), (MIRRORED[name], right, left)


def list_comparisons(
    values: Sequence[Instruction], condition: int, holds: bool = True
) -> Iterator[tuple[Comparison, bool]]:
    """Comparisons implied by a condition being true, or false without `holds`, both ways round, and
    whether each occurs as written rather than negated."""
    pending = [(condition, holds)]
    while pending:
        value, wanted = pending.pop()
        instruction = values[value]
        if not isinstance(instruction, Apply):
            continue
        name, given = instruction.operation.name, instruction.operands
        if name == "not":
            pending.append((given[0], not wanted))
        elif name == ("and" if wanted else "or"):
            pending += [(operand, wanted) for operand in given]
        for each in read_comparison(values, value, wanted):
            yield each, wanted


def count_points(stage: Stage, indices: Sequence[Index]) -> float:
    """Number of points that indices range over together; infinite for a run-time extent."""
    extents = [stage.extent(index) for index in indices]
    return math.prod(e if isinstance(e, int) else math.inf for e in extents)


def evaluate_positions(
    stage: Stage,
    wanted: Sequence[int],
    over: Sequence[Index] | None = None,
    tables: Mapping[str, Array] = MappingProxyType({}),
    places: Mapping[Index, Array] = MappingProxyType({}),
) -> tuple[Array, ...]:
    """Index-only values at all points where they differ. A table index out of bounds is clamped. An
    index ranges over its `places` if they are given, and over its extent otherwise.

    Each array has one axis for every index of `over`, in that order: of that index' extent, or of
    size 1 if the value does not depend on it. `over` must contain every index that a value depends
    on; by default it is exactly those, in `order_indices`. Raises `InternalError` for a value that
    is not index-only, or an index of run-time extent.
    """
    body = stage.body
    if over is None:
        reached = (body.instructions[value] for value in reach_back(body.instructions, wanted))
        over = order_indices(i for i in reached if isinstance(i, Index))
    axes: dict[Index, Array] = {}
    for axis, index in enumerate(over):
        extent = stage.extent(index)
        if not isinstance(extent, int):
            raise InternalError(f"%{stage.name}: {index.name} has no extent known here")
        every = places[index] if index in places else np.arange(extent, dtype=np.int64)
        axes[index] = every.reshape([every.size if n == axis else 1 for n in range(len(over))])
    found = evaluate_values(body, wanted, axes, tables)
    rank = len(over)
    return tuple(each.reshape((1,) * (rank - each.ndim) + each.shape) for each in found)


def evaluate_values(
    body: Body,
    wanted: Sequence[int],
    axes: Mapping[Index, Array],
    tables: Mapping[str, Array] = MappingProxyType({}),
) -> list[Array]:
    """Index-only values, element by element, where each index takes the values in `axes`."""
    made: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for value in reach_back(body.instructions, wanted):
            instruction = body.instructions[value]
            given = [made[o] for o in operands(instruction)]
            if isinstance(instruction, Load) and instruction.tensor in tables:
                table = tables[instruction.tensor]
                ends = zip(given, table.shape, strict=True)
                made[value] = table[tuple(np.clip(g, 0, n - 1) for g, n in ends)]
            else:
                made[value] = evaluate_instruction(instruction, given, axes, body)
    return [made[value] for value in wanted]


def reach_back(
    values: Sequence[Instruction],
    wanted: Iterable[int],
    given: Container[int] = (),
    leaves: Container[int] = (),
) -> list[int]:
    """Numbers of the values that `wanted` are computed from, themselves included, ascending. Values
    in `given` and their operands are left out, and so are the operands of `leaves`."""
    found: set[int] = set()
    pending = list(wanted)
    while pending:
        value = pending.pop()
        if value not in found and value not in given:
            found.add(value)
            pending += () if value in leaves else operands(values[value])
    return sorted(found)


def evaluate_instruction(
    instruction: Instruction, given: Sequence[Array], axes: Mapping[Index, Array], body: Body
) -> Array:
    """Result of one index-only instruction on its operands' values, in its own type. `axes` are the
    values of each index. NumPy warnings are left for the caller to silence."""
    match instruction:
        case Constant():
            return np.asarray(instruction.value, instruction.dtype.dtype)
        case Index():
            return axes[instruction]
        case Apply(operation=operation) if not operation.transcendental:
            return np.asarray(operation.evaluate(*given))
        case Apply(operation=operation):
            # Rounded once from float64, as NumPy's float32 results depend on the machine.
            exact = [np.asarray(g, np.float64) for g in np.broadcast_arrays(*given)]
            return np.asarray(operation.evaluate(*exact)).astype(instruction.dtype.dtype)
        case Select():
            return np.where(given[0], given[1], given[2])
        case Cast():
            if value_type(body.instructions[instruction.operand]) is instruction.dtype:
                return given[0]
            return np.asarray(convert(given[0], instruction.dtype))
        case Load(tensor=name):
            raise InternalError(f"an element of %{name} is no index-only value")
        case Symbol() | Step():
            raise InternalError(f"this is known only when a program runs: {instruction}")


# Affine forms -------------------------------------------------------------------------------


def find_affine(body: Body) -> tuple[Affine[Index] | None, ...]:
    """Affine form of each INDEX value of a body: a sum of indices times constants, or None."""
    return _find_forms(expect("body", body, Body, "an ir.Body"))


@kept
def _find_forms(body: Body) -> tuple[Affine[Index] | None, ...]:
    return body.interpret(_find_form)


def _find_form(instruction: Instruction, given: list[Affine[Index] | None]) -> Affine[Index] | None:
    known = [form for form in given if form is not None]
    match instruction:
        case Index():
            return Affine(0, ((instruction, 1),))
        case Constant(dtype=DataType.INDEX, value=value):
            return Affine(int(value))
        case Apply(operation=operation, dtype=DataType.INDEX) if len(known) == len(given):
            return combine(operation.name, known)
        case _:
            return None


def find_part(body: Body, number: int) -> tuple[int, int, int | None]:
    """Decomposition of a value into `value / step % count`, as (value, step, count); `count` is
    None without a remainder. A value of another form is (itself, 1, None)."""
    match body.instructions[number]:
        case Apply(operation=operation, operands=(given, by)) if operation.name in ("div", "mod"):
            divisor = body.instructions[by]
        case _:
            return number, 1, None
    if not isinstance(divisor, Constant) or divisor.dtype is not DataType.INDEX:
        return number, 1, None
    size, (value, step, count) = int(divisor.value), find_part(body, given)
    if size <= 0:
        return number, 1, None
    if count is not None and count % size:
        value, step, count = given, 1, None
    if operation.name == "mod":
        return value, step, size
    return value, step * size, None if count is None else count // size


# Reach -------------------------------------------------------------------------------------


def find_reach(stage: Stage, position: int, size: int) -> Interval:
    """Smallest and largest value of an INDEX value where the stage's guard holds.

    The interval is exact unless it already lies within `0` to `size - 1`, or evaluating it takes
    more than `MOST_POINTS` points; then fewer conditions of the guard are used, and it may be too
    wide. `UNKNOWN` for values that depend on elements of tensors or on run-time extents; `EMPTY` if
    no point passes the guard.
    """
    if 0 in stage.sizes:
        return EMPTY
    facts = IndexFacts(stage)
    if not facts.known[position]:
        return UNKNOWN
    conditions = [c for c in facts.conditions if facts.known[c]]
    over, found = facts.dependencies[position], UNKNOWN
    while True:
        known = [c for c in conditions if facts.is_over(c, over)]
        reached = facts.evaluate([position, *known], over)
        if reached is None:
            return found
        values, *holds = reached
        if holds:
            passing = functools.reduce(np.logical_and, holds)
            values, passing = np.broadcast_arrays(values, passing)
            values = values[passing]
        found = (int(values.min()), int(values.max())) if values.size else EMPTY
        if is_within(found, size):
            return found
        near = [c for c in conditions if set(facts.dependencies[c]) & set(over)]
        wider = order_indices((*over, *facts.depends_on(near)))
        if wider == over:
            # Conditions on other indices alone may be false everywhere.
            wider = order_indices((*over, *facts.depends_on(conditions)))
        if wider == over:
            return found
        over = wider
