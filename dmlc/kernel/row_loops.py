"""The loops of a kernel that keeps a row at hand: how a work item makes rows and folds along them.

What is folded, and over what, is `rows`' business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.accumulate import contribute, finish, merge, start
from dmlc.kernel.build import Builder, Shape
from dmlc.kernel.element import (
    Gather,
    Place,
    Read,
    View,
    list_conditions,
    list_joins,
    operands,
)
from dmlc.kernel.emit import (
    Emitter,
    Names,
    Near,
    Position,
    add,
    find_guarded,
    index,
    local_name,
    multiply,
    operate,
    split_words,
)
from dmlc.kernel.guards import enter
from dmlc.kernel.phases import Gathered, Phase
from dmlc.kernel.picked import load_patterns
from dmlc.kernel.rows import Copied, Rows
from dmlc.kernel.schedule import Limits, Profile
from dmlc.scalars import OPERATIONS
from dmlc.source import InternalError
from dmlc.transform.pick import LANES, Picks

Known = dict[int, k.Expression]

_FOUR = 4
"""The lanes of shorter vectors, for what long ones leave over."""

_ROWS_AT_ONCE = 4
"""Rows that are made before they are folded along, at most. Loads of what was only just stored
have to wait, unless each has one store's elements."""

_MOST_AT_ONCE = 4096
"""Elements of rows that are at hand at once, at most, where it is more than one."""


def lower_rows(
    rows: Rows, names: Names, profile: Profile, limits: Limits, buffers: tuple[k.Buffer, ...]
) -> tuple[Shape, tuple[k.Array, ...]]:
    """The kernel of such phases, and the arrays it needs."""
    outer = rows.row.space.kept_sizes
    blocks = math.prod(outer)
    work = sum(p.space.inner_count for p in rows.phases)
    run = max(1, min(profile.per_item // max(1, work), -(-blocks // profile.groups)))
    writer = _Writer(rows, names, profile, limits, buffers, min(run, _ROWS_AT_ONCE))
    at_once = writer.at_once
    run = run // at_once * at_once

    def enter(
        block: k.Expression, write: Callable[[Known], list[k.Statement]]
    ) -> list[k.Statement]:
        known: Known = {}
        made = writer.builder.decompose(block, list(enumerate(outer)), known)
        return made + write(known)

    def make(block: k.Expression) -> list[k.Statement]:
        if at_once == 1:
            return enter(block, lambda known: writer.make_row(known) + writer.fold_row(known))
        first = multiply(block, at_once)
        return [
            writer.loop_rows(lambda row: enter(add(first, row), writer.make_row)),
            writer.loop_rows(lambda row: enter(add(first, row), writer.fold_row)),
        ]

    shared = writer.builder.share_blocks(blocks // at_once, run // at_once, make)
    body = [*writer.copy_tables(), *writer.fill_ends(), *shared]
    width = rows.stored.space.sizes[-1]
    outputs = f"{width:,} output{'' if width == 1 else 's'}"
    what = f"a row of {outputs}" if run == 1 else f"{run:,} rows of {outputs}"
    return Shape(k.Launch(blocks, run, 1), f"each computes {what}", body), writer.arrays


class _Writer:
    """Writes what is done for one row of outputs."""

    def __init__(
        self,
        rows: Rows,
        names: Names,
        profile: Profile,
        limits: Limits,
        buffers: tuple[k.Buffer, ...],
        most_at_once: int,
    ) -> None:
        self._rows = rows
        self._names = names
        self._lanes = profile.lanes
        self._near: dict[str, Near] = {}
        self._row_size = rows.row.space.sizes[len(rows.row.space.kept)]
        first, end = (0, 0) if rows.picks is None else rows.picks.reach
        self._front = _round_up(max(0, -first))
        """Zeros before a row."""
        end = self._front + max(end, self._row_size)
        self._pitch = self._row_size if rows.picks is None else _round_up(end)
        """The elements from one row at hand to the next."""
        self.at_once = self._count_at_once(most_at_once)
        """How many rows are made before they are folded along."""
        self._row: k.Expression = index(0)
        """Which of the rows at hand it is."""
        self._builders = [
            Builder(p.elements, p.space.walk, profile, limits, buffers, names) for p in rows.phases
        ]
        self._row_array = self._make_array(rows.row, self._pitch * self.at_once, self._place)
        self._copies = tuple(self._make_copy(copied) for copied in rows.copied)
        self.arrays = (self._row_array, *self._copies)
        self._total_array: k.Array | None = None
        if not self._stores_picked:
            size = rows.stored.space.sizes[-1]
            size = size if rows.picks is None else _round_up(size)
            self._total_array = self._make_array(rows.total, size, lambda place: place)
            self.arrays = (self._row_array, self._total_array, *self._copies)

    @property
    def builder(self) -> Builder:
        return self._builders[0]

    @property
    def _stores_picked(self) -> bool:
        """Whether outputs leave as vectors, as soon as they are made of the row."""
        rows = self._rows
        whole = rows.stored.space.sizes[-1] % LANES == 0 and rows.repeats_in_rows
        return rows.picks is not None and whole and _runs_in_vectors(rows.stored)

    def _count_at_once(self, most: int) -> int:
        """So many rows at once that they come out even."""
        if self._rows.picks is None:
            return 1
        blocks = math.prod(self._rows.row.space.kept_sizes)
        most = min(most, max(1, _MOST_AT_ONCE // self._pitch))
        return max(n for n in range(1, most + 1) if blocks % n == 0)

    def _place(self, place: k.Expression) -> k.Expression:
        """Where an element of the row is in the array."""
        return add(multiply(self._row, self._pitch), place, index(self._front))

    def loop_rows(self, write: Callable[[k.Expression], list[k.Statement]]) -> k.Statement:
        """A loop over the rows at hand."""
        row = k.Local(self._names.take("row"), k.INDEX)
        self._row = row
        return k.For(row, index(0), index(self.at_once), 1, tuple(write(row)))

    def fill_ends(self) -> list[k.Statement]:
        """Zeros on both sides of the rows, and behind the copies of tables."""
        if self._rows.picks is None:
            return []

        def fill(row: k.Expression) -> list[k.Statement]:
            before = self._fill(self._row_array, row, 0, self._front)
            end = self._front + self._row_size
            return before + self._fill(self._row_array, row, end, self._pitch)

        filled: list[k.Statement] = fill(index(0))
        if filled and self.at_once > 1:
            filled = [self.loop_rows(fill)]
        for copied, array in zip(self._rows.copied, self._copies, strict=True):
            filled += self._fill(array, index(0), copied.count, array.size)
        return filled

    def _fill(self, array: k.Array, row: k.Expression, first: int, last: int) -> list[k.Statement]:
        """Zeros at some places of a row of an array."""
        if first == last:
            return []
        place = k.Local(self._names.take("x"), k.INDEX)
        zero = k.Literal(k.Type(array.dtype), 0.0 if array.dtype.is_float else 0)
        put = k.Put(array.name, add(multiply(row, self._pitch), place), zero)
        return [k.For(place, index(first), index(last), 1, (put,))]

    def fold_row(self, known: Known) -> list[k.Statement]:
        """What is folded along a row at hand, and leaves; from the positions along the outer
        axes."""
        body: list[k.Statement] = []
        (begin, end), picks = self._rows.stretch, self._rows.picks
        size = self._rows.stored.space.sizes[-1]
        if begin:
            body.append(self._fold(1, known, (0, begin), 1))
        if begin < end and picks is not None:
            body += self._pick_out(picks, known)
        elif begin < end:
            body.append(self._write_out(known, (begin, end)))
        if end < size:
            body.append(self._fold(1, known, (end, size), 1))
        return body if self._stores_picked else body + self._store(known, size)

    def make_row(self, known: Known) -> list[k.Statement]:
        """The row that is folded along, from the positions along the outer axes."""
        size = self._row_size
        loops = self._share(self._rows.row, size)
        folded = [self._fold(0, known, (first, last), lanes) for lanes, first, last in loops]
        phases, (begin, end) = self._rows.written_rows, self._rows.row_stretch
        if not phases:
            return folded
        if self._rows.is_row_uniform:
            return self._write_row(0, known, size)
        outer = len(phases[0].space.kept) - 1
        at = known[outer]
        gone = operate("sub", at, index(begin)) if begin else at
        written: list[k.Statement] = []
        for number in range(len(phases)):
            written += self._write_turn(number, {**known, outer: gone}, outer, size)
        if self._rows.repeats_over_rows:
            return written
        inside = operate("lt", at, index(end))
        if begin:
            after = operate("ge", at, index(begin))
            inside = k.Operate(OPERATIONS["and"], (after, inside), k.BOOL)
        let = self.builder.let("inside", inside)
        otherwise = k.Operate(OPERATIONS["not"], (let.local,), k.BOOL)
        return [let, k.If(let.local, tuple(written)), k.If(otherwise, tuple(folded))]

    def _write_turn(self, number: int, known: Known, outer: int, size: int) -> list[k.Statement]:
        """The row, if it is one of those that a written fold is for; along `outer` it is known how
        many rows the stretch had before."""
        gone, period = known[outer], len(self._rows.written_rows)
        if period == 1 and not isinstance(gone, k.Operate):
            return self._write_row(number, known, size)
        turn = gone if period == 1 else operate("div", gone, index(period))
        let = self.builder.let("turn", turn)
        body = [let, *self._write_row(number, {**known, outer: let.local}, size)]
        if period == 1:
            return body
        phase = operate("mod", gone, index(period))
        return [k.If(operate("eq", phase, index(number)), tuple(body))]

    def _write_row(self, number: int, known: Known, size: int) -> list[k.Statement]:
        """The row, where the same points are folded as in others; `known` has the turn."""
        phase = self._rows.written_rows[number]
        number = 3 + len(self._rows.written) + number
        emitter, outside = self._emitter(number), self._position(number, known, {})
        body = emitter.lets(0, outside) + emitter.lets(1, outside)
        for lanes, first, last in self._share(phase, size):
            place = k.Local(self._names.take("x"), k.INDEX)
            position = self._position(number, known, {len(phase.space.kept): place})
            inside = emitter.lets(2, position, lanes)
            ((_, value),) = phase.elements.results
            put = k.Put(self._row_array.name, self._place(place), emitter.value(value, lanes))
            inside.append(put)
            body.append(k.For(place, index(first), index(last), lanes, tuple(inside)))
        return body

    def _make_array(
        self, phase: Phase, size: int, find: Callable[[k.Expression], k.Expression]
    ) -> k.Array:
        """The array that holds a fold along a row, each at the place that is found for it."""
        (gathered,) = phase.gathered
        (stage, dtype) = gathered.stages[0]
        name = self._names.take(f"{split_words(stage)}_row")
        array = k.Array(name, dtype.compute, size)
        self._near[stage] = lambda place, lanes: k.Element(
            array.name, find(place), k.Type(array.dtype, lanes)
        )
        return array

    def _make_copy(self, copied: Copied) -> k.Array:
        """The array that holds a part of a table."""
        name = self._names.take(local_name(copied.view.tensor))
        size = copied.count if self._rows.picks is None else _round_up(copied.count)
        array = k.Array(name, copied.dtype, size)
        self._near[copied.name] = lambda place, lanes: k.Element(
            name, place, k.Type(copied.dtype, lanes)
        )
        return array

    def copy_tables(self) -> list[k.Statement]:
        """Fills the arrays that hold parts of tables."""
        loops: dict[int, tuple[k.Local, list[k.Statement]]] = {}
        for copied, array in zip(self._rows.copied, self._copies, strict=True):
            if copied.count not in loops:
                loops[copied.count] = k.Local(self._names.take("turn"), k.INDEX), []
            turn, puts = loops[copied.count]
            view = copied.view
            at = add(multiply(turn, view.strides[-1]), index(view.offset))
            puts.append(k.Put(array.name, turn, k.Load(view.tensor, at, k.Type(copied.dtype))))
        return [
            k.For(turn, index(0), index(count), 1, tuple(puts))
            for count, (turn, puts) in loops.items()
        ]

    def _share(self, phase: Phase, size: int) -> Iterator[tuple[int, int, int]]:
        """Lanes and bounds of the loops along a row: vectors, and what they leave over."""
        start_at = 0
        for lanes in (self._lanes, _FOUR, 1) if _runs_in_vectors(phase) else (1,):
            stop = start_at + (size - start_at) // lanes * lanes
            if stop > start_at:
                yield lanes, start_at, stop
                start_at = stop

    def _emitter(self, number: int) -> Emitter:
        """Scopes: the outer axes, then each inner axis in turn."""
        phase = self._rows.phases[number]
        space, along = phase.space, len(phase.space.kept)
        levels = dict.fromkeys(space.kept, 1)
        levels |= {axis: 2 + place for place, axis in enumerate(space.inner)}
        scope = self._builders[number].depth(levels.__getitem__)
        return Emitter(
            phase.elements,
            self._names,
            scope,
            self._near,
            lambda view: bool(space.walk.strides[view][along]),
            guarded=find_guarded(phase.elements, self._names, scope, 2),
            apart=list_joins(phase.elements),
        )

    def _position(self, number: int, known: Known, inner: Known) -> Position:
        return self._builders[number].at({**known, **inner})

    def _fold(
        self,
        number: int,
        known: Known,
        bounds: tuple[int, int],
        lanes: int,
    ) -> k.Statement:
        """A stretch of a row: each of its places folds its own points, into the array."""
        phase, names = self._rows.phases[number], self._names
        emitter, space, along = self._emitter(number), phase.space, len(phase.space.kept)
        (gathered,) = phase.gathered
        (slot,) = gathered.slots
        place = k.Local(names.take("x"), k.INDEX)
        state = k.Local(names.take(local_name(gathered.name)), k.Type(slot.dtype, lanes))
        conditions = list_conditions(phase.elements)

        def loop(axis: int, inner: Known) -> list[k.Statement]:
            if axis == len(space.sizes):
                return gather(self._builders[number], emitter, gathered, (state,), lanes)
            variable = k.Local(names.take("k"), k.INDEX)
            further = {**inner, axis: variable}
            body = self._open(number, emitter, known, further, conditions, lanes,
                              lambda: loop(axis + 1, further))  # fmt: skip
            size = space.sizes[axis]
            return [k.For(variable, index(0), index(size), 1, tuple(body))]

        outside = emitter.lets(0, self._position(number, known, {}), rest=True)
        outside += emitter.lets(1, self._position(number, known, {}), rest=True)
        body = [
            *outside,
            k.Variable(state, start(slot, lanes)),
            *self._open(number, emitter, known, {along: place}, conditions, lanes,
                        lambda: loop(along + 1, {along: place})),
            self._put_fold(number, place, finish(gathered.fold, (state,), slot.dtype)),
        ]  # fmt: skip
        return k.For(place, index(bounds[0]), index(bounds[1]), lanes, tuple(body))

    def _put_fold(self, number: int, place: k.Expression, value: k.Expression) -> k.Statement:
        if number == 0:
            return k.Put(self._row_array.name, self._place(place), value)
        return self._put_total(place, value)

    def _put_total(self, place: k.Expression, value: k.Expression) -> k.Statement:
        if self._total_array is None:
            raise InternalError("outputs that leave at once have no array")
        return k.Put(self._total_array.name, place, value)

    def _pick_out(self, picks: Picks, known: Known) -> list[k.Statement]:
        """The outputs that are computed in vectors made of the row."""
        phase = self._rows.written[0]
        emitter, outside = self._emitter(3), self._position(3, known, {})
        before = emitter.lets(0, outside) + emitter.lets(1, outside)
        place = k.Local(self._names.take("x"), k.INDEX)
        inside = self._load_picks(picks, place)
        position = self._position(3, known, {len(phase.space.kept): place})
        inside += emitter.lets(2, position, LANES)
        ((_, number),) = phase.elements.results
        value = emitter.value(number, LANES)
        if self._stores_picked:
            self._near[self._rows.total.gathered[0].name] = lambda place, lanes: value
            around, stored = self._store_at(known, place, LANES)
            before += around
            inside += stored
        else:
            inside.append(self._put_total(place, value))
        first, last = self._rows.stretch
        return [*before, k.For(place, index(first), index(last), LANES, tuple(inside))]

    def _load_picks(self, picks: Picks, place: k.Expression) -> list[k.Statement]:
        """What vectors are made of, at an output that is the first of one: loads, from which
        `_near` has what is picked."""
        base, array = multiply(self._row, self._pitch), self._row_array

        def load(place: k.Expression, lanes: int) -> k.Expression:
            return k.Element(array.name, place, k.Type(array.dtype, lanes))

        lets, picked = load_patterns(
            picks.patterns, place, base, self._front, load, self.builder.let
        )
        for name, value in picked.items():
            self._near[name] = lambda place, lanes, value=value: value
        return list[k.Statement](lets)

    def _write_out(self, known: Known, bounds: tuple[int, int]) -> k.Statement:
        """The stretch of a row in which the same points are folded again and again."""
        (begin, end), period = bounds, len(self._rows.written)
        turn = k.Local(self._names.take("turn"), k.INDEX)
        body: list[k.Statement] = []
        for phase, written in enumerate(self._rows.written):
            number = 3 + phase
            emitter, along = self._emitter(number), len(written.space.kept)
            position = self._position(number, known, {along: turn})
            for level in range(3):
                body += emitter.lets(level, position, rest=True)
            ((_, value),) = written.elements.results
            place = add(multiply(turn, period), index(begin + phase))
            body.append(self._put_total(place, emitter.value(value)))
        turns = (end - begin) // period
        return k.For(turn, index(0), index(turns), 1, tuple(body))

    def _open(
        self,
        number: int,
        emitter: Emitter,
        known: Known,
        inner: Known,
        conditions: Sequence[int],
        lanes: int,
        inside: Callable[[], list[k.Statement]],
    ) -> list[k.Statement]:
        """The values of the scope that the last of `inner` opens, and what is inside."""
        level = 1 + len(inner)
        here = [c for c in conditions if max(2, emitter.level(c)) == level]
        elements = self._rows.phases[number].elements
        position = self._position(number, known, inner)
        return enter(elements, emitter, level, position, here, inside, lanes)

    def _store(self, known: Known, size: int) -> list[k.Statement]:
        """What leaves."""
        body: list[k.Statement] = []
        for lanes, first, last in self._share(self._rows.stored, size):
            place = k.Local(self._names.take("x"), k.INDEX)
            before, inside = self._store_at(known, place, lanes)
            body += [*before, k.For(place, index(first), index(last), lanes, tuple(inside))]
        return body

    def _store_at(
        self, known: Known, place: k.Expression, lanes: int
    ) -> tuple[list[k.Statement], list[k.Statement]]:
        """What leaves at a place of a row: what is done before the loop over these, and in it."""
        along = len(self._rows.stored.space.kept)
        emitter, outside = self._emitter(2), self._position(2, known, {})
        at = self._position(2, known, {along: place})

        def position(view: View) -> k.Expression:
            return place if view.near else at(view)

        before = emitter.lets(0, outside) + emitter.lets(1, outside)
        return before, emitter.lets(2, position, lanes) + emitter.stores(position, lanes, {})


def _round_up(count: int) -> int:
    """To a whole number of vectors."""
    return -(-count // LANES) * LANES


def _runs_in_vectors(phase: Phase) -> bool:
    """Whether points side by side along a row can be computed at once."""
    elements, along = phase.elements, len(phase.space.kept)
    moving: set[int] = set()
    for number, value in enumerate(elements.values):
        step = 0
        if isinstance(value, Read | Place | Gather):
            step = phase.space.walk.strides[value.view][along]
            if step not in (0, 1) or (step and isinstance(value, Place)):
                return False
        if step or any(o in moving for o in operands(value)):
            moving.add(number)
    if any(condition in moving for condition in list_conditions(elements)):
        return False
    return all(phase.space.walk.strides[view][along] == 1 for view, _ in elements.results)


def gather(
    b: Builder,
    emitter: Emitter,
    gathered: Gathered,
    state: tuple[k.Local, ...],
    lanes: int = 1,
    masks: Sequence[int] = (),
) -> list[k.Statement]:
    """A point, or as many as there are lanes, enters a state, after those before it. That its guard
    holds has been tested, but for `masks`, which leave lanes out."""
    fold = gathered.fold
    place = None if fold.place is None else emitter.value(fold.place, lanes)
    guard: k.Expression | None = None
    for mask in masks:
        holds = emitter.value(mask, lanes)
        if guard is not None:
            holds = k.Operate(OPERATIONS["and"], (guard, holds), holds.type)
        guard = holds
    point = contribute(gathered.slots, emitter.value(fold.value, lanes), guard, place)
    statements, merged = merge(fold, state, point, b.names.take, in_order=True)
    return statements + [k.Assign(s, m) for s, m in zip(state, merged, strict=True)]
