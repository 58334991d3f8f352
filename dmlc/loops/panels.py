"""The primitive for matrix products on CPUs: panels of both factors are packed into private arrays,
and register blocks of outputs iterate over them in vectors.

A work item has a tile of outputs. For a strip of points, it packs the rows and columns of the tile,
so that each element is read from memory once and stays in the caches. A block of a few rows by one
vector of columns then processes all points of the strip, and adds to its previous sums. Every
output is one sum, in order of the points.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc.loops.contraction import (
    Contraction,
    Factor,
    find_contraction,
    guard_factor,
    lies_along,
    multiply_tiles,
    part_axes,
)
from dmlc.loops.legality import WIDTHS
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
    walk,
)
from dmlc.loops.phases import Phase
from dmlc.loops.script import Argument, On, ScheduleError, demand, primitive

BLOCK = 6
"""Rows of a block: with a vector of columns each, sums and factors fit in 16 vector registers of
half the vector's length."""
_MOST = 1 << 20
"""Largest number of elements of a panel, and of sums of a tile."""
_SQUARE = 8
"""Columns and points of a panel that are transposed in registers, which hold as many vectors."""
_STORE = 8
"""Smallest number of elements packed in order, instead of transposed, per output stored with a
stride, for which that pays: measured for products of 16 to 1,800 rows and 64 to 4,096 points."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    """Axes of a tile: one index of the outer ones, a range of one, and all of the inner ones."""

    outer: tuple[Dim, ...]
    cut: Dim
    step: int
    inner: tuple[Dim, ...]

    @property
    def count(self) -> int:
        """Points of a tile."""
        return self.step * math.prod(map(_count, self.inner))

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Dimensions that a tile iterates over."""
        return (self.cut, *self.inner)

    def list_steps(self, step: int) -> list[tuple[Dim, int]]:
        """Dimensions of a tile, each with its stride if points have stride `step`."""
        steps: list[tuple[Dim, int]] = []
        for dim in reversed(self.dims):
            steps.append((dim, step))
            step *= _count(dim)
        return steps[::-1]

    def list_parts(self) -> list[tuple[Dim, int]]:
        """Dimensions that are distributed over tiles, each with its step."""
        return [*((dim, 1) for dim in self.outer), (self.cut, self.step)]

    def count_tiles(self) -> int:
        return math.prod(dim.count_steps(step) for dim, step in self.list_parts())


def _cut(dims: Sequence[Dim], most: int) -> _Cut:
    """Tile of at most `most` points, in tiles of about equal size."""
    place, inner = len(dims) - 1, 1
    while place > 0 and inner * _count(dims[place]) <= most:
        inner *= _count(dims[place])
        place -= 1
    size = _count(dims[place])
    tiles = -(-size // max(1, most // inner))
    return _Cut(tuple(dims[:place]), dims[place], -(-size // tiles), tuple(dims[place + 1 :]))


def _count(dim: Dim) -> int:
    return dim.size if isinstance(dim.size, int) else 0


@primitive(
    Argument.NUMBER, Argument.NUMBER, Argument.NUMBER, Argument.NUMBER, takes_loop=False
)  # fmt: skip
def panel(on: On, rows: int, columns: int, depth: int, lanes: int) -> Nest:
    """Computes a product in tiles of at most `rows` and `columns`, one for each work group of one
    work item. For strips of `depth` points, it packs the rows and columns of its tile into private
    arrays, and register blocks of outputs iterate over these in vectors. It is the only call of a
    script, and replaces all loops of the naive nest. No sum changes its order.

    `for i: for j: s = sum(k: a[i, k] * b[k, j]); g(s) -> for tile: for strip of k: p = a[rows,
    strip]; q = b[strip, columns]; for blocks of i, j: s[i, j] += sum(k in strip: p[i, k] * q[k,
    j])`, and then `for i, j in tile: g(s[i, j])`
    """
    nest = on.nest
    demand(on.limits.vector_lanes == 0, "the target has no such vectors")
    demand(lanes in WIDTHS[1:], "panels have vectors of 8 or 16 lanes")
    demand(min(rows, columns, depth) > 0, "a tile has rows, columns and points")
    phases = part_axes(nest.phases)
    found = None if any(phase.space.is_open for phase in phases) else find_contraction(phases)
    if found is None:
        raise ScheduleError("there is no sum of products of rows and columns, of known sizes")
    made = Panels(orient(found), rows, columns, depth, lanes).pack(phases[1])
    tiles = [n.tile for n in walk(made.body) if isinstance(n, Reduce) and n.tile is not None]
    largest = max([t.rows * t.columns for t in tiles] + [b.size for b in made.buffers])
    demand(largest <= _MOST, f"an array has {largest:,} elements, of {_MOST:,} at most")
    return made


class Panels:
    """Tiles of one work item each, of at most `rows`, `columns` and `depth` points. The contraction
    is one that `orient` has turned."""

    def __init__(self, found: Contraction, rows: int, columns: int, depth: int, lanes: int) -> None:
        self._found = found
        self._lanes = lanes
        self._parallel = name_parallel(found.phase)
        self._own = own = name_inner(found.phase, self._parallel, "k", 0)
        self._columns = _cut([own[axis] for axis in found.right.axes], columns)
        self._points = _cut([own[axis] for axis in found.inner], depth)
        self._rows = _cut([own[axis] for axis in found.left.axes], rows)

    @property
    def count(self) -> int:
        """Number of tiles."""
        return self._found.batches * self._rows.count_tiles() * self._columns.count_tiles()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a tile, in whole blocks."""
        rows, columns = self._rows.count, self._columns.count
        return -(-rows // BLOCK) * BLOCK, -(-columns // self._lanes) * self._lanes

    @property
    def words(self) -> str:
        """Work of a work item, for readers."""
        return f"each computes a tile of {self._rows.count} by {self._columns.count} outputs"

    def pack(self, after: Phase) -> Nest:
        """Nest of the contraction and its derived phases."""
        found, lanes = self._found, self._lanes
        rows, columns = self.shape
        depth = self._points.count
        left = self._pack(0, found.left, self._rows, rows, "left")
        right = self._pack(1, found.right, self._columns, columns, "right")
        row, column, point = Dim("row", rows), Dim("column", columns), Dim("point", depth)
        product = multiply_tiles(found, (rows, columns, depth), left.place, right.place)
        own = name_inner(after, self._parallel, "i", 3)
        phases = (left.phase, right.phase, product, after)
        dims = (self._own, self._own, (row, column, point), own)
        block: Node = Loop(column, Kind.VECTOR, lanes, (Point(2),), "across", 1)
        block = Loop(row, Kind.UNROLL, 1, (block,), "down", BLOCK, output=lanes)
        block = Loop(point, Kind.LOOP, 1, (block,), "point")
        registers = Tile(BLOCK, lanes, lanes, lanes, registers=True)
        block = Reduce(2, (block,), array=True, resumes=True, tile=registers)
        block = Loop(row, Kind.LOOP, BLOCK, (block,), "row", output=columns)
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
                node = Loop(again[axis], Kind.LOOP, 1, (node,), f"{again[axis].wanted}.again")
            others: tuple[Node, ...] = (Reduce(4, (node,), serial=True), Point(5))
            for dim in reversed((*self._rows.dims, *self._columns.dims)):
                others = (Loop(dim, Kind.LOOP, 1, others, f"{dim.wanted}.again"),)
            body = (Numbers(2, body, others),)
        body = (Reduce(2, (strip,), array=True, tile=sums), *body)
        parts = [(self._own[axis], 1) for axis in found.batch]
        parts += [*self._rows.list_parts(), *self._columns.list_parts()]
        whole = Dim("tile", math.prod(d.count_steps(step) for d, step in parts), tuple(parts))
        groups = Loop(whole, Kind.GROUP, 1, body, "tile")
        buffers = (left.buffer, right.buffer)
        return Nest(phases, dims, (groups,), buffers=buffers, words=self.words)

    def _go_over(self, after: Phase, point: Node, pitch: int) -> Node:
        """Loops over the outputs of a tile, in vectors along contiguous ones."""
        last = self._columns.dims[-1]
        axis = after.space.parallel[self._parallel.index(last)]
        length = self._columns.step if last is self._columns.cut else _count(last)
        lanes = after.choose_lanes(axis, length, self._lanes)
        steps = [*self._rows.list_steps(pitch), *self._columns.list_steps(1)]
        node = point
        for dim, step in reversed(steps):
            name = f"{dim.wanted}.output"
            loop = Loop(dim, Kind.LOOP, 1, (node,), name)
            if dim is last and lanes > 1:
                loop = in_vectors(dim, lanes, (node,), name)
            node = dataclasses.replace(loop, output=step)
        return node

    def _pack(self, number: int, factor: Factor, own: _Cut, count: int, name: str) -> _Panel:
        """Packing of a factor's panel: with columns contiguous; and rows, or their points, as in
        memory."""
        found, points = self._found, self._points
        phase, conditions = guard_factor(found, factor, f"{name}#panel")
        is_along = lies_along(phase, found.inner[-1], factor.axes[-1])
        # Rows with a power-of-two stride would map to the same few cache sets.
        apart, step = count, 1
        if number == 0 and is_along:
            apart, step = 1, points.count + self._lanes
        if number == 1:
            apart += self._lanes
        size = max(step * count, apart * points.count)
        dtype, panel = phase.elements.results[0][0].dtype, f"{name}#panel"
        buffer = Buffer(panel, dtype, size, points.cut, f"{name}_panel", linear=True)
        tile = (*own.list_steps(step), *points.list_steps(apart))
        order = (*own.dims, *points.dims) if is_along else (*points.dims, *own.dims)
        last = order[-1]
        into = Into(buffer, last, tile=tile, lane=dict(tile)[last], in_vectors=True)
        axis = self._own.index(last)
        side = points if is_along else own
        length = side.step if len(side.dims) == 1 else _count(last)
        lanes = phase.choose_lanes(axis, length, self._lanes)
        moving = phase.find_moving(axis)
        if any(moving[condition] for condition in conditions):
            # A condition is tested once for all lanes.
            lanes = 1
        node: Node = Point(number, (into,))
        beside, square = own.dims[-1], 1
        long = (own.step if beside is own.cut else _count(beside)) >= _SQUARE
        if number == 1 and is_along and long and lanes == self._lanes and not conditions:
            lanes = square = _SQUARE
            node = Loop(beside, Kind.UNROLL, 1, (node,), f"{beside.wanted}.square", square)
        for dim in reversed(order):
            own_name = f"{dim.wanted}.{name}"
            if dim is last and lanes > 1:
                node = in_vectors(dim, lanes, (node,), own_name)
            else:
                node = Loop(dim, Kind.LOOP, square if dim is beside else 1, (node,), own_name)
        steps = ((own.cut, own.step), (points.cut, points.step))
        # A piece that is all of a strip may have fewer points than others.
        is_whole = own.count == count and all(dim.piece is None for dim in points.inner)
        stage = Stage((buffer,), (node,), steps, is_whole, conditions)
        return _Panel(phase, buffer, (buffer.name, step, apart), stage)


def orient(found: Contraction) -> Contraction:
    """Contraction with the factor as columns whose panel is cheaper to pack. A panel of columns
    whose points are contiguous in memory is packed transposed, element by element, and one of rows
    is not. Outputs are then stored one by one, with a stride."""
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
    """Its name, and its strides between rows or columns, and between points."""
    stage: Stage
