"""Kernels with reductions on a GPU: a work group folds a few neighbouring outputs at once.

The lanes of a group stand in `rows` of `columns`: a column is one output, and its rows share the
points folded into it. Where outputs lie side by side in memory, neighbours read side by side
across the columns; where the folded points do, across the rows. States become one in a tree, in
memory that the group shares. Every lane walks the same loops, so that barriers are met by all:
lanes past the last output repeat it, and store nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.accumulate import contribute, finish, merge, start
from dmlc.kernel.build import Builder, Shape
from dmlc.kernel.element import list_conditions, list_joins, list_stored
from dmlc.kernel.emit import (
    Emitter,
    Names,
    Near,
    Position,
    add,
    index,
    local_name,
    multiply,
    operate,
    split_words,
)
from dmlc.kernel.guards import enter
from dmlc.kernel.phases import Gathered, Phase
from dmlc.kernel.schedule import Limits, Profile
from dmlc.scalars import OPERATIONS

_COLUMNS = 32
"""Neighbouring outputs in a group, where they are neighbours in memory: a cache line of floats, or
two."""
_POINTS = 4
"""Points that one lane folds at least, before further rows share an output's points."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """How the lanes of a group share the work."""

    rows: int
    columns: int


def choose_tile(phases: Sequence[Phase], profile: Profile) -> Tile:
    """The shape of the groups: powers of two, `group_size` lanes in all."""
    first = phases[0].space
    most = max(phase.space.inner_count for phase in phases)
    rows = _round_up(most) // _POINTS
    last = len(first.walk.sizes) - 1
    outputs = math.prod(first.kept_sizes)
    if first.kept and last == first.kept[-1]:
        widest = min(_COLUMNS, _round_up(outputs))
        rows = min(rows, profile.group_size // widest)
    rows = max(rows, profile.group_size // _round_up(outputs), 1)
    rows = min(rows, profile.group_size)
    return Tile(rows, profile.group_size // rows)


def count_groups(phases: Sequence[Phase], profile: Profile) -> int:
    tile = choose_tile(phases, profile)
    return -(-math.prod(phases[0].space.kept_sizes) // tile.columns)


def _round_up(count: int) -> int:
    """The power of two that is not below."""
    return 1 << max(0, count - 1).bit_length()


def lower_groups(
    phases: Sequence[Phase],
    names: Names,
    profile: Profile,
    limits: Limits,
    buffers: tuple[k.Buffer, ...],
) -> tuple[Shape, tuple[k.Array, ...]]:
    """The kernel of some phases, and the arrays it needs."""
    return _Groups(phases, names, profile, limits, buffers).lower()


class _Groups:
    """Writes one kernel, phase by phase."""

    def __init__(
        self,
        phases: Sequence[Phase],
        names: Names,
        profile: Profile,
        limits: Limits,
        buffers: tuple[k.Buffer, ...],
    ) -> None:
        self._phases = phases
        self._names = names
        self._profile = profile
        self._limits = limits
        self._buffers = buffers
        self._tile = choose_tile(phases, profile)
        self._near: dict[str, Near] = {}
        self._arrays: list[k.Array] = []
        self._row: k.Expression = index(0)
        self._column: k.Expression = index(0)
        self._inside: k.Expression | None = None
        """Whether this lane's output is one of its own; None where all are."""

    def lower(self) -> tuple[Shape, tuple[k.Array, ...]]:
        tile, kept = self._tile, self._phases[0].space.kept_sizes
        outputs = math.prod(kept)
        groups = -(-outputs // tile.columns)
        row = self._limits.row if self._limits.row and groups > self._limits.row else None
        launch = k.Launch(outputs, tile.columns, self._profile.group_size, row)
        body: list[k.Statement] = []
        output = self._locate(outputs, row is not None, body)
        known: dict[int, k.Expression] = {}
        builders = [self._make_builder(phase) for phase in self._phases]
        body += builders[0].decompose(output, list(enumerate(kept)), known)
        for phase, builder in zip(self._phases, builders, strict=True):
            at = {axis: known[number] for number, axis in enumerate(phase.space.kept)}
            if phase.is_kept:
                body += self._store(phase, builder, at)
            else:
                body += self._walk(phase, builder, at)
        outputs_each = f"{tile.columns} outputs" if tile.columns > 1 else "1 output"
        lanes = f"{tile.rows} {'lane' if tile.rows == 1 else 'lanes'}"
        words = f"a group computes {outputs_each}, with {lanes} on each"
        return Shape(launch, words, body), tuple(self._arrays)

    def _make_builder(self, phase: Phase) -> Builder:
        return Builder(
            phase.elements,
            phase.space.walk,
            self._profile,
            self._limits,
            self._buffers,
            self._names,
        )

    def _locate(self, outputs: int, rows: bool, body: list[k.Statement]) -> k.Expression:
        """This lane's row and output; where there are more lanes than outputs, the last again."""
        tile = self._tile
        lane: k.Expression = k.Position(k.Geometry.LANE)
        if tile.rows > 1:
            value = operate("div", lane, index(tile.columns)) if tile.columns > 1 else lane
            self._row = self._name(body, "row", value)
        if tile.columns > 1:
            value = operate("mod", lane, index(tile.columns)) if tile.rows > 1 else lane
            self._column = self._name(body, "column", value)
        if outputs == 1 and tile.columns == 1:
            return index(0)
        number = add(multiply(k.Position(k.Geometry.GROUP), tile.columns), self._column)
        output = self._name(body, "output", number)
        if outputs % tile.columns or rows:
            self._inside = operate("lt", output, index(outputs))
            output = self._name(body, "at", operate("min", output, index(outputs - 1)))
        return output

    def _name(self, body: list[k.Statement], name: str, value: k.Expression) -> k.Local:
        local = k.Local(self._names.take(name), value.type)
        body.append(k.Let(local, value))
        return local

    def _store(
        self, phase: Phase, builder: Builder, known: dict[int, k.Expression]
    ) -> list[k.Statement]:
        """Stores what each output has one of, from its first row."""
        emitter = Emitter(phase.elements, self._names, builder.depth(lambda _: 1), self._near)
        position = _position(builder, known)
        inside = emitter.lets(0, position) + emitter.lets(1, position)
        inside += emitter.stores(position, 1, {})
        conditions: list[k.Expression] = []
        if self._tile.rows > 1:
            conditions.append(operate("eq", self._row, index(0)))
        if self._inside is not None:
            conditions.append(self._inside)
        return _guard(conditions, inside)

    def _walk(
        self, phase: Phase, builder: Builder, known: dict[int, k.Expression]
    ) -> list[k.Statement]:
        """Folds, or stores, every point of this lane's output that falls to its row."""
        space, elements = phase.space, phase.elements
        emitter = Emitter(
            elements,
            self._names,
            builder.depth(lambda axis: 1 if axis in space.kept else 2),
            self._near,
            guarded=2,
            apart=list_joins(elements) if phase.tests_guard else (),
        )
        position = _position(builder, known)
        body = emitter.lets(0, position) + emitter.lets(1, position)
        states = [
            tuple(
                k.Local(self._names.take(f"{local_name(g.name)}{slot.suffix}"), k.Type(slot.dtype))
                for slot in g.slots
            )
            for g in phase.gathered
        ]
        for gathered, state in zip(phase.gathered, states, strict=True):
            body += [
                k.Variable(local, start(slot))
                for local, slot in zip(state, gathered.slots, strict=True)
            ]
        stop, rest = self._inner(phase, known, body)
        element = k.Local(self._names.take("element"), k.INDEX)
        inner = dict(known)
        axes = [(axis, space.sizes[axis]) for axis in space.inner]
        before = builder.decompose(element, axes, inner)
        inside: list[k.Statement] = []
        position = _position(builder, inner)

        def gather() -> list[k.Statement]:
            return [
                statement
                for gathered, state in zip(phase.gathered, states, strict=True)
                for statement in self._gather(phase, emitter, gathered, state)
            ]

        if phase.tests_guard:
            inside += emitter.lets(2, position, only=list_stored(elements))
            stores = emitter.stores(position, 1, {})
            conditions = list_conditions(elements)
            folded = enter(elements, emitter, 2, position, conditions, gather)
        else:
            inside += emitter.lets(2, position)
            folded = gather()
            stores = emitter.stores(position, 1, {})
        inside += folded
        inside += _guard([self._inside] if self._inside is not None and stores else [], stores)
        if rest is not None:
            axis, length = rest
            inside = _guard([operate("lt", inner[axis], length)], inside)
        body.append(k.For(element, self._row, stop, self._tile.rows, (*before, *inside)))
        if self._tile.rows > 1:
            body += self._join(phase.gathered, states)
        for gathered, state in zip(phase.gathered, states, strict=True):
            self._keep(gathered, state, body)
        return body

    def _inner(
        self, phase: Phase, known: dict[int, k.Expression], body: list[k.Statement]
    ) -> tuple[k.Expression, tuple[int, k.Expression] | None]:
        """How many points there are; and the axis along which some of these are none, with how
        far those go that are: a piece of a longer axis, inside others, of which less is left."""
        space = phase.space
        count, axes = index(space.inner_count), space.inner
        for axis, piece in space.pieces.items():
            if axis not in axes or piece.size % piece.length == 0:
                continue
            before = multiply(known[piece.number], piece.length)
            rest = operate("sub", index(piece.size), before)
            length = operate("min", index(piece.length), rest)
            if axis != axes[0]:
                return count, (axis, self._name(body, "length", length))
            each = space.inner_count // piece.length
            return self._name(body, "points", multiply(length, each)), None
        return count, None

    def _gather(
        self, phase: Phase, emitter: Emitter, gathered: Gathered, state: tuple[k.Local, ...]
    ) -> list[k.Statement]:
        fold = gathered.fold
        tested = fold.guard is None or phase.tests_guard
        guard = None if fold.guard is None or tested else emitter.value(fold.guard)
        place = None if fold.place is None else emitter.value(fold.place)
        point = contribute(gathered.slots, emitter.value(fold.value), guard, place)
        statements, merged = merge(fold, state, point, self._names.take)
        return statements + [k.Assign(s, m) for s, m in zip(state, merged, strict=True)]

    def _join(
        self, gathered: Sequence[Gathered], states: Sequence[tuple[k.Local, ...]]
    ) -> list[k.Statement]:
        """The rows' states become one, in a tree; every row gets it."""
        tile, size = self._tile, self._profile.group_size
        lane = k.Position(k.Geometry.LANE)
        arrays: list[tuple[str, ...]] = []
        body: list[k.Statement] = []
        for each, state in zip(gathered, states, strict=True):
            own: list[str] = []
            for slot, local in zip(each.slots, state, strict=True):
                name = self._names.take(f"{split_words(each.name)}{slot.suffix}_lanes")
                self._arrays.append(k.Array(name, slot.dtype, size, shared=True))
                body.append(k.Put(name, lane, local))
                own.append(name)
            arrays.append(tuple(own))
        if not arrays:
            return []
        width = k.Local(self._names.take("width"), k.INDEX)
        other = add(lane, operate("mul", width, index(tile.columns)) if tile.columns > 1 else width)
        inside: list[k.Statement] = []
        for each, state, names in zip(gathered, states, arrays, strict=True):
            theirs = [k.Element(n, other, s.type) for n, s in zip(names, state, strict=True)]
            statements, merged = merge(each.fold, state, theirs, self._names.take)
            inside += statements
            for name, local, value in zip(names, state, merged, strict=True):
                inside += [k.Assign(local, value), k.Put(name, lane, local)]
        step = k.If(operate("lt", self._row, width), tuple(inside))
        body += [k.Barrier(), k.Halve(width, tile.rows // 2, (step, k.Barrier()))]
        for state, names in zip(states, arrays, strict=True):
            body += [
                k.Assign(local, k.Element(name, self._column, local.type))
                for name, local in zip(names, state, strict=True)
            ]
        return body

    def _keep(
        self, gathered: Gathered, state: tuple[k.Local, ...], body: list[k.Statement]
    ) -> None:
        """Has a state, and the reductions it is, at hand from here on."""
        for number, local in enumerate(state):
            self._near[gathered.slot_name(number)] = _always(local)
        for stage, dtype in gathered.stages:
            value = finish(gathered.fold, state, dtype.compute)
            if not isinstance(value, k.Local):
                value = self._name(body, local_name(stage), value)
            self._near[stage] = _always(value)


def _always(value: k.Expression) -> Near:
    return lambda position, lanes: value


def _position(builder: Builder, known: dict[int, k.Expression]) -> Position:
    at = builder.at(known)
    return lambda view: index(0) if view.near else at(view)


def _guard(
    conditions: Sequence[k.Expression], statements: Sequence[k.Statement]
) -> list[k.Statement]:
    """The statements where all conditions hold."""
    if not conditions or not statements:
        return list(statements)
    whole = conditions[0]
    for condition in conditions[1:]:
        whole = k.Operate(OPERATIONS["and"], (whole, condition), k.BOOL)
    return [k.If(whole, tuple(statements))]
