"""The schedule of a kernel that keeps rows of a reduction at hand: each row is made in a private
array, and reduced along.

What is reduced, and over what, is `rows`' business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlc.kernel.collapse import Walk
from dmlc.kernel.element import Elements, Gather, Place, Read, View, list_conditions, operands
from dmlc.kernel.names import local_name, split_words
from dmlc.kernel.phases import Phase
from dmlc.kernel.rows import Copied, Rows
from dmlc.kernel.schedule import Profile
from dmlc.kernel.schedule.nest import (
    Buffer,
    Dim,
    Fill,
    Into,
    Kind,
    Loop,
    Nest,
    Node,
    Pick,
    Point,
    Reduce,
    Turns,
    in_vectors,
    name_kept,
    share_blocks,
)
from dmlc.kernel.space import Space
from dmlc.transform.pick import LANES

_ROWS_AT_ONCE = 4
"""Rows that are made before they are reduced along, at most. Loads of what was only just stored
have to wait, unless each has one store's elements."""

_MOST_AT_ONCE = 4096
"""Elements that the rows at hand have at most, where there are several."""


def choose_rows_at_hand(rows: Rows, p: Profile) -> Nest:
    """The nest of such phases."""
    return _RowNest(rows, p).choose()


class _RowNest:
    def __init__(self, rows: Rows, p: Profile) -> None:
        self._rows = rows
        self._p = p
        self._phases: list[Phase] = []
        self._dims: list[tuple[Dim, ...]] = []
        self._buffers: list[Buffer] = []
        self._kept = name_kept(rows.row)
        blocks = math.prod(rows.row.space.kept_sizes)
        work = sum(phase.space.inner_count for phase in rows.phases)
        run = max(1, min(p.per_item // max(1, work), -(-blocks // p.groups)))
        self._row_size = rows.row.space.sizes[len(self._kept)]
        size = rows.stored.space.sizes[-1]
        reach = (0, 0) if rows.picks is None else rows.picks.reach
        front = _round_up(max(0, -reach[0]))
        pitch = self._row_size
        if rows.picks is not None:
            pitch = _round_up(front + max(reach[1], self._row_size))
        self._at_once = self._count_at_once(blocks, min(run, _ROWS_AT_ONCE), pitch)
        self._run = run // self._at_once * self._at_once
        self._lead = Dim("block", blocks, tuple((dim, 1) for dim in self._kept))
        self._row_x, self._x = Dim("x", self._row_size), Dim("x", size)
        whole = rows.picks is not None and size % LANES == 0 and rows.repeats_in_rows
        self._stores_picked = whole and _runs_in_vectors(rows.stored)
        """Whether outputs leave as vectors, as soon as they are made of the row."""
        self._row = self._make_buffer(
            rows.row,
            self._row_x,
            pitch * self._at_once,
            linear=True,
            rows=self._lead,
            pitch=pitch,
            front=front,
        )
        if not self._stores_picked:
            room = size if rows.picks is None else _round_up(size)
            self._total = self._make_buffer(rows.total, self._x, room)

    def _count_at_once(self, blocks: int, most: int, pitch: int) -> int:
        """So many rows at once that they come out even."""
        if self._rows.picks is None:
            return 1
        most = min(most, max(1, _MOST_AT_ONCE // pitch))
        return max(n for n in range(1, most + 1) if blocks % n == 0)

    def _make_buffer(
        self,
        phase: Phase,
        dim: Dim,
        size: int,
        *,
        linear: bool = False,
        rows: Dim | None = None,
        pitch: int = 0,
        front: int = 0,
    ) -> Buffer:
        """The buffer of a reduction, an element for each place along a row."""
        stage, dtype = phase.gathered[0].stages[0]
        wanted = f"{split_words(stage)}_row"
        made = Buffer(stage, dtype.compute, size, dim, wanted, linear, rows, pitch, front)
        self._buffers.append(made)
        return made

    def _add(self, phase: Phase, dims: Sequence[Dim]) -> int:
        self._phases.append(phase)
        self._dims.append(tuple(dims))
        return len(self._phases) - 1

    def choose(self) -> Nest:
        """The nest."""
        rows, at_once = self._rows, self._at_once
        make, fold = self._make_row(), self._fold_row()
        before = [node for copied in rows.copied for node in self._copy(copied)]
        if at_once == 1:
            parts, body = [(dim, 1) for dim in self._kept], (*make, *fold)
        else:
            parts = [(self._lead, at_once)]
            loops = (Loop(self._lead, Kind.LOOP, 1, each, "row", at_once) for each in (make, fold))
            body = tuple(loops)
        if rows.picks is not None:
            row, end = self._row, self._row.front + self._row_size
            fills = (Fill(row, 0, row.front), Fill(row, end, row.pitch))
            before = [*(f for f in fills if f.first < f.last), *before]
        shared = share_blocks(parts, self._run // at_once, body)
        width = rows.stored.space.sizes[-1]
        outputs = f"{width:,} output{'' if width == 1 else 's'}"
        many = f"{self._run:,} rows of {outputs}"
        words = f"each computes {f'a row of {outputs}' if self._run == 1 else many}"
        return Nest(
            tuple(self._phases),
            tuple(self._dims),
            (*before, *shared),
            buffers=tuple(self._buffers),
            words=words,
        )

    def _loop(self, phase: Phase, dim: Dim, body: tuple[Node, ...]) -> Node:
        """A loop along a row, in vectors where they can be."""
        if _runs_in_vectors(phase):
            return in_vectors(dim, self._p.lanes, body, "x")
        return Loop(dim, Kind.LOOP, 1, body, "x")

    def _reduce(self, phase: Phase, x: Dim, buffer: Buffer) -> tuple[Node, ...]:
        """What one place of a row reduces."""
        along = len(self._kept)
        inner = [Dim("k", size) for size in phase.space.sizes[along + 1 :]]
        number = self._add(phase, (*self._kept, x, *inner))
        node: Node = Point(number)
        # Reads that a guard protects have a loop of their own, if need be one of a single point.
        for dim in reversed(inner or [Dim("k", 1)]):
            node = Loop(dim, Kind.LOOP, 1, (node,), "k")
        return (Reduce(number, (node,), serial=True, into=Into(buffer, x)),)

    def _make_row(self) -> tuple[Node, ...]:
        """The row that is reduced along."""
        rows, (begin, end) = self._rows, self._rows.row_stretch
        turn = Dim("turn", max(1, end - begin))
        lead = self._kept if rows.is_row_uniform else (*self._kept[:-1], turn)
        cases: list[tuple[Node, ...]] = []
        for phase in rows.written_rows:
            number = self._add(phase, (*lead, self._row_x))
            point = Point(number, (Into(self._row, self._row_x),))
            cases.append((self._loop(phase, self._row_x, (point,)),))
        if rows.is_row_uniform:
            return cases[0]
        others: tuple[Node, ...] = ()
        if not (cases and rows.repeats_over_rows):
            body = self._reduce(rows.row, self._row_x, self._row)
            others = (self._loop(rows.row, self._row_x, body),)
        if not cases:
            return others
        return (Turns(self._kept[-1], begin, end, turn, tuple(cases), others),)

    def _fold_row(self) -> tuple[Node, ...]:
        """What is reduced along a row at hand, and leaves."""
        rows, (begin, end) = self._rows, self._rows.stretch
        size = rows.stored.space.sizes[-1]
        made: list[Node] = []
        stored: int | None = None
        if begin < end and rows.picks is not None:
            (phase,) = rows.written
            number = self._add(phase, (*self._kept, self._x))
            inner: tuple[Node, ...] = (Point(number, name=rows.total.gathered[0].name),)
            if self._stores_picked:
                stored = self._add(rows.stored, (*self._kept, self._x))
                inner += (Point(stored),)
            else:
                inner = (Point(number, (Into(self._total, self._x),)),)
            picked = (Pick(rows.picks.patterns, self._row, self._x, inner),)
            whole = (begin, begin + _round_up(end - begin))
            made.append(Loop(self._x, Kind.VECTOR, LANES, picked, "x", part=whole))
        elif begin < end:
            period = len(rows.written)
            turn = Dim("turn", (end - begin) // period)
            points: list[Node] = []
            for place, phase in enumerate(rows.written):
                number = self._add(phase, (*self._kept, turn))
                into = Into(self._total, turn, period, begin + place)
                points.append(Point(number, (into,)))
            made.append(Loop(turn, Kind.LOOP, 1, tuple(points), "turn"))
        rest = [part for part in ((0, begin), (end, size)) if part[0] < part[1]]
        if rest:
            body = self._reduce(rows.total, self._x, self._total)
            loops = [Loop(self._x, Kind.LOOP, 1, body, "x", part=part) for part in rest]
            made = [*loops[:1], *made, *loops[1:]] if begin else [*made, *loops]
        if stored is None:
            stored = self._add(rows.stored, (*self._kept, self._x))
            made.append(self._loop(rows.stored, self._x, (Point(stored),)))
        return tuple(made)

    def _copy(self, copied: Copied) -> list[Node]:
        """Fills a buffer with a part of a table."""
        dim = Dim("turn", copied.count)
        size = copied.count if self._rows.picks is None else _round_up(copied.count)
        name = local_name(copied.view.tensor)
        buffer = Buffer(copied.name, copied.dtype, size, dim, name, linear=True)
        self._buffers.append(buffer)
        near = View(copied.name, copied.dtype, (1,), near=True)
        read = Read(copied.view, copied.dtype)
        elements = Elements((copied.count,), (read,), ((near, 0),))
        strides = {copied.view: copied.view.strides[-1:], near: (1,)}
        space = Space(Walk((copied.count,), strides, packed=False), ())
        number = self._add(Phase(elements, space), (dim,))
        point = Point(number, (Into(buffer, dim),))
        nodes: list[Node] = [Loop(dim, Kind.LOOP, 1, (point,), "turn")]
        return nodes if size == copied.count else [*nodes, Fill(buffer, copied.count, size)]


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
