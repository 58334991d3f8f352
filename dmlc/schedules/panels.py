"""Schedules of contractions for CPUs: panels of both factors are packed into private arrays, and
blocks of outputs in registers go over them in vectors.

A work item has a tile of outputs. For some points at a time it packs the rows and the columns of
the tile, so that each is read from memory once and lies where the caches keep it. A block of a few
rows by one vector of columns then takes all of these points at once, and goes on from what the
points before have come to. Every output is one sum, whose points are added in their order.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc.kernel.target import Profile
from dmlc.loops.contraction import Contraction, Factor, guard_factor, multiply_tiles
from dmlc.loops.naive import name_inner, name_parallel
from dmlc.loops.nodes import (
    Buffer,
    Dim,
    Into,
    Kind,
    Loop,
    Nest,
    Node,
    Numbers,
    Point,
    Reduce,
    Stage,
    Tile,
    in_vectors,
)
from dmlc.loops.phases import Phase
from dmlc.schedules.cpu import choose_lanes
from dmlc.schedules.tiles import lies_along

_BLOCK = 6
"""Rows of a block: with a vector of columns each, sums and factors fit the registers of machines
with 16 of half the vector."""
_LEAST_ROWS = 4 * _BLOCK
"""Rows of a tile, at least, where tiles are made smaller for more work items."""
_SQUARE = 8
"""Columns and points of a panel that are transposed in registers: these hold so many vectors."""
_STORE = 8
"""The elements that are packed in order, and not transposed, for each output that is stored across
memory: measured (products of 16 to 1,800 rows, points of 64 to 4,096) it pays from there on."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    """Some axes as a tile has them: one point of the outer ones, a stretch of one, and all of the
    inner ones."""

    outer: tuple[Dim, ...]
    cut: Dim
    step: int
    inner: tuple[Dim, ...]

    @property
    def count(self) -> int:
        """The points of a tile."""
        return self.step * math.prod(map(_count, self.inner))

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions that a tile walks."""
        return (self.cut, *self.inner)

    def list_steps(self, step: int) -> list[tuple[Dim, int]]:
        """The dimensions of a tile, each with how far apart its neighbours lie where points do by
        `step`."""
        steps: list[tuple[Dim, int]] = []
        for dim in reversed(self.dims):
            steps.append((dim, step))
            step *= _count(dim)
        return steps[::-1]

    def list_parts(self) -> list[tuple[Dim, int]]:
        """The dimensions that tiles share out, each with the steps it is taken in."""
        return [*((dim, 1) for dim in self.outer), (self.cut, self.step)]

    def count_tiles(self) -> int:
        return math.prod(dim.count_steps(step) for dim, step in self.list_parts())


def _cut(dims: Sequence[Dim], most: int) -> _Cut:
    """So many points at most, of even tiles."""
    place, inner = len(dims) - 1, 1
    while place > 0 and inner * _count(dims[place]) <= most:
        inner *= _count(dims[place])
        place -= 1
    size = _count(dims[place])
    tiles = -(-size // max(1, most // inner))
    return _Cut(tuple(dims[:place]), dims[place], -(-size // tiles), tuple(dims[place + 1 :]))


def _count(dim: Dim) -> int:
    return dim.size if isinstance(dim.size, int) else 0


def count_panels(found: Contraction, p: Profile) -> int:
    """The work items that have tiles."""
    return _Packed(found, p).count_tiles()


def choose_panels(found: Contraction, after: Phase, p: Profile) -> Nest:
    """The nest of a contraction, and of what derives from it."""
    return _Packed(found, p).choose(after)


class _Packed:
    """Tiles that a work item has to itself."""

    def __init__(self, found: Contraction, p: Profile) -> None:
        self._found = found = _orient(found)
        self._p = p
        self._parallel = name_parallel(found.phase)
        self._own = own = name_inner(found.phase, self._parallel, "k", 0)
        most, columns, depth = p.panel
        self._columns = _cut([own[axis] for axis in found.right.axes], columns)
        self._points = _cut([own[axis] for axis in found.inner], depth)
        rows = [own[axis] for axis in found.left.axes]
        self._rows = _cut(rows, most)
        while self.count_tiles() < p.groups and most > _LEAST_ROWS:
            most //= 2
            self._rows = _cut(rows, most)

    def count_tiles(self) -> int:
        return self._found.batches * self._rows.count_tiles() * self._columns.count_tiles()

    def choose(self, after: Phase) -> Nest:
        found, lanes = self._found, self._p.lanes
        rows = -(-self._rows.count // _BLOCK) * _BLOCK
        columns = -(-self._columns.count // lanes) * lanes
        depth = self._points.count
        left = self._pack(0, found.left, self._rows, rows, "left")
        right = self._pack(1, found.right, self._columns, columns, "right")
        row, column, point = Dim("row", rows), Dim("column", columns), Dim("point", depth)
        product = multiply_tiles(found, (rows, columns, depth), left.place, right.place)
        own = name_inner(after, self._parallel, "i", 3)
        phases = (left.phase, right.phase, product, after)
        dims = (self._own, self._own, (row, column, point), own)
        block: Node = Loop(column, Kind.VECTOR, lanes, (Point(2),), "across", 1)
        block = Loop(row, Kind.UNROLL, 1, (block,), "down", _BLOCK, output=lanes)
        block = Loop(point, Kind.LOOP, 1, (block,), "point")
        registers = Tile(_BLOCK, lanes, lanes, lanes, registers=True)
        block = Reduce(2, (block,), array=True, resumes=True, tile=registers)
        block = Loop(row, Kind.LOOP, _BLOCK, (block,), "row", output=columns)
        block = Loop(column, Kind.LOOP, lanes, (block,), "column", output=1)
        strip: Node = Loop(
            self._points.cut,
            Kind.LOOP,
            self._points.step,
            (left.stage, right.stage, block),
            "strip",
        )
        for dim in reversed(self._points.outer):
            strip = Loop(dim, Kind.LOOP, 1, (strip,), dim.wanted)
        sums = Tile(rows, columns, columns, lanes, registers=False)
        body: tuple[Node, ...] = (self._go_over(after, Point(3), columns),)
        if found.has_holes:
            phases += (found.phase, after)
            again = name_inner(found.phase, self._parallel, "k", 4)
            dims += (again, own)
            node: Node = Point(4)
            for axis in reversed(found.inner):
                node = Loop(again[axis], Kind.LOOP, 1, (node,), again[axis].wanted)
            others: tuple[Node, ...] = (Reduce(4, (node,), serial=True), Point(5))
            for dim in reversed((*self._rows.dims, *self._columns.dims)):
                others = (Loop(dim, Kind.LOOP, 1, others, dim.wanted),)
            body = (Numbers(2, body, others),)
        body = (Reduce(2, (strip,), array=True, tile=sums), *body)
        parts = [(self._own[axis], 1) for axis in found.batch]
        parts += [*self._rows.list_parts(), *self._columns.list_parts()]
        whole = Dim("tile", math.prod(d.count_steps(step) for d, step in parts), tuple(parts))
        groups = Loop(whole, Kind.GROUP, 1, body, "tile")
        words = f"each computes a tile of {self._rows.count} by {self._columns.count} outputs"
        buffers = (left.buffer, right.buffer)
        return Nest(phases, dims, (groups,), buffers=buffers, words=words)

    def _go_over(self, after: Phase, point: Node, pitch: int) -> Node:
        """The outputs of a tile, in vectors where they lie side by side."""
        last = self._columns.dims[-1]
        axis = after.space.parallel[self._parallel.index(last)]
        length = self._columns.step if last is self._columns.cut else _count(last)
        lanes = choose_lanes(after, axis, length, self._p)
        steps = [*self._rows.list_steps(pitch), *self._columns.list_steps(1)]
        node = point
        for dim, step in reversed(steps):
            loop = Loop(dim, Kind.LOOP, 1, (node,), dim.wanted)
            if dim is last and lanes > 1:
                loop = in_vectors(dim, lanes, (node,), dim.wanted)
            node = dataclasses.replace(loop, output=step)
        return node

    def _pack(self, number: int, factor: Factor, own: _Cut, count: int, name: str) -> _Panel:
        """How the panel of a factor is packed: columns of it lie side by side, and so do rows, or
        their points, as memory has them."""
        found, points = self._found, self._points
        phase, conditions = guard_factor(found, factor, f"{name}#panel")
        is_along = lies_along(phase, found.inner[-1], factor.axes[-1])
        # Rows of panels a power of two long would lie on the same few lines of a cache.
        apart, step = count, 1
        if number == 0 and is_along:
            apart, step = 1, points.count + self._p.lanes
        if number == 1:
            apart += self._p.lanes
        size = max(step * count, apart * points.count)
        buffer = Buffer(
            f"{name}#panel",
            phase.elements.results[0][0].dtype,
            size,
            points.cut,
            f"{name}_panel",
            linear=True,
        )
        tile = (*own.list_steps(step), *points.list_steps(apart))
        order = (*own.dims, *points.dims) if is_along else (*points.dims, *own.dims)
        last = order[-1]
        into = Into(buffer, last, tile=tile, lane=dict(tile)[last], in_vectors=True)
        axis = self._own.index(last)
        length = (
            (points if is_along else own).step
            if len((points if is_along else own).dims) == 1
            else _count(last)
        )
        lanes = choose_lanes(phase, axis, length, self._p)
        moving = phase.find_moving(axis)
        if any(moving[condition] for condition in conditions):
            # A condition is tested once for all lanes.
            lanes = 1
        node: Node = Point(number, (into,))
        beside, square = own.dims[-1], 1
        long = (own.step if beside is own.cut else _count(beside)) >= _SQUARE
        if number == 1 and is_along and long and lanes == self._p.lanes and not conditions:
            lanes = square = _SQUARE
            node = Loop(beside, Kind.UNROLL, 1, (node,), beside.wanted, square)
        for dim in reversed(order):
            if dim is last and lanes > 1:
                node = in_vectors(dim, lanes, (node,), dim.wanted)
            else:
                node = Loop(dim, Kind.LOOP, square if dim is beside else 1, (node,), dim.wanted)
        steps = ((own.cut, own.step), (points.cut, points.step))
        is_whole = own.count == count
        stage = Stage((buffer,), (node,), steps, is_whole, conditions)
        return _Panel(phase, buffer, (buffer.name, step, apart), stage)


def _orient(found: Contraction) -> Contraction:
    """The contraction with the factor as columns whose panel is cheaper to pack. A panel of columns
    whose points lie side by side in memory is packed transposed, element by element, and one of
    rows is not. Outputs are then stored one by one, across memory."""
    made = [(guard_factor(found, f, "panel")[0], f.axes[-1]) for f in (found.left, found.right)]
    transposed = [lies_along(phase, found.inner[-1], axis) for phase, axis in made]
    saved = found.columns * transposed[1] - found.rows * transposed[0]
    if saved * found.depth < _STORE * found.rows * found.columns:
        return found
    return dataclasses.replace(found, left=found.right, right=found.left)


@dataclasses.dataclass(frozen=True, slots=True)
class _Panel:
    """A packed part of a factor."""

    phase: Phase
    buffer: Buffer
    place: tuple[str, int, int]
    """Its name, and how far apart rows or columns, and points, lie in it."""
    stage: Stage
