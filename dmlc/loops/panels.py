"""Primitives for matrix products on CPUs: panels of factors are packed into private arrays, and
register blocks of outputs iterate over them in vectors.

A work item has a tile of outputs. For a strip of points, `panel` packs the rows and columns of the
tile, so that each element is read from memory once and stays in the caches. A block of a few rows
by one vector of columns then processes all points of the strip, and adds to its previous sums.
Every output is one sum, in order of the points. `dot` packs the rows alone, and its vectors run
along the points, so that an output is the sum of a vector's lanes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from dmlc.loops.contraction import (
    Contraction,
    Factor,
    find_contraction,
    guard_factor,
    lies_along,
    multiply,
    part_axes,
)
from dmlc.loops.element import Read, View
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
from dmlc.source import InternalError

BLOCK = 6
"""Rows of a block: with a vector of columns each, sums and factors fit in 16 vector registers of
half the vector's length."""
_MOST = 1 << 20
"""Largest number of elements of a panel, and of sums of a tile."""
_SQUARE = 8
"""Columns and points of a panel that are transposed in registers, which hold as many vectors."""
_REGISTERS, _ROWS, _COLUMNS = 15, 5, 8
"""Vectors of accumulators and rows of a block with vectors along the points, and its rows and
columns at most."""
_STORE = 8
"""Smallest number of elements packed in order, instead of transposed, per output stored with a
stride, for which that pays: measured for products of 16 to 1,800 rows and 64 to 4,096 points."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Box:
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

    @property
    def length(self) -> int:
        """Points of a tile along its last dimension."""
        return _count(self.inner[-1]) if self.inner else self.step

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


def _tile(dims: Sequence[Dim], most: int) -> _Box:
    """Tile of at most `most` points, in tiles of about equal size."""
    dims = dims or [Dim("single", 1)]
    place, inner = len(dims) - 1, 1
    while place > 0 and inner * _count(dims[place]) <= most:
        inner *= _count(dims[place])
        place -= 1
    size = _count(dims[place])
    tiles = -(-size // max(1, most // inner))
    return _Box(tuple(dims[:place]), dims[place], -(-size // tiles), tuple(dims[place + 1 :]))


def _count(dim: Dim) -> int:
    return dim.size if isinstance(dim.size, int) else 0


@primitive(*[Argument.NUMBER] * 4, takes_loop=False)
def panel(on: On, rows: int, columns: int, depth: int, lanes: int) -> Nest:
    """Computes a product in tiles of at most `rows` and `columns`, one for each work group of one
    work item. For strips of `depth` points, it packs the rows and columns of its tile into private
    arrays, and register blocks of outputs iterate over these in vectors. It is the only call of a
    script, and replaces all loops of the naive nest. No sum changes its order.

    `for i: for j: s = sum(k: a[i, k] * b[k, j]); g(s) -> for tile: for strip of k: p = a[rows,
    strip]; q = b[strip, columns]; for blocks of i, j: s[i, j] += sum(k in strip: p[i, k] * q[k,
    j])`, and then `for i, j in tile: g(s[i, j])`
    """
    demand(min(rows, columns, depth) > 0, "a tile has rows, columns and points")
    phases, found = _begin(on, lanes, find_contraction)
    return _check(Panels(orient(found), rows, columns, depth, lanes).pack(phases[1]))


def _begin(
    on: On, lanes: int, find: Callable[[Sequence[Phase]], Contraction | None]
) -> tuple[Sequence[Phase], Contraction]:
    """Phases of a nest, and their contraction."""
    demand(on.limits.vector_lanes == 0, "the target has no such vectors")
    demand(lanes in WIDTHS[1:], "a product has vectors of 8 or 16 lanes")
    phases = part_axes(on.nest.phases)
    found = None if any(phase.is_open for phase in phases) else find(phases)
    if found is None:
        raise ScheduleError("there is no sum of products of rows and columns, of known sizes")
    return phases, found


def _check(made: Nest) -> Nest:
    """The nest, if its arrays are not too large."""
    tiles = [n.tile for n in walk(made.body) if isinstance(n, Reduce) and n.tile is not None]
    largest = max([t.rows * t.columns for t in tiles] + [b.size for b in made.buffers])
    demand(largest <= _MOST, f"an array has {largest:,} elements, of {_MOST:,} at most")
    return made


@primitive(Argument.NUMBER, Argument.NUMBER, takes_loop=False)
def dot(on: On, columns: int, lanes: int) -> Nest:
    """Computes a product of a few rows in tiles of at most `columns` columns, one for each work
    group of one work item. It packs all rows, with their points contiguous; the points of a column
    are contiguous in memory. Blocks of outputs iterate over both in vectors along the points. It is
    the only call of a script. Changes the order of sums.

    `for i: for j: s = sum(k: a[i, k] * b[j, k]); g(s) -> for tile: p = a; for blocks of i, j: s[i,
    j] = sum(k in vectors: p[i, k] * b[j, k])`, and then `for i, j in tile: g(s[i, j])`
    """
    demand(columns > 0, "a tile has columns")
    phases, found = _begin(on, lanes, find_dots)
    demand(found.depth >= lanes, "there are fewer points than lanes")
    return _check(Panels(found, found.rows, columns, found.depth, lanes).dot(phases[1]))


def find_dots(phases: Sequence[Phase]) -> Contraction | None:
    """Contraction whose right factor is contiguous in memory along the points, and whose left
    factor is 0 where points are excluded; with the fewest rows. None if it is none."""
    found = find_contraction(phases, single=True)
    if found is None or any(phase.space.pieces for phase in phases):
        return None
    turned = dataclasses.replace(found, left=found.right, right=found.left)
    sides = (each for each in (found, turned) if each.right.axes and find_line(each) is not None)
    return min(sides, key=lambda each: each.rows, default=None)


def find_line(found: Contraction) -> View | None:
    """View that is the right factor of a contraction, if its points are contiguous in memory, and
    all of them take part where the left factor has a point; else None."""
    value, space, step = found.phase.elements.values[found.right.value], found.phase.space, 1
    if not isinstance(value, Read) or value.view.dtype is not found.dtype:
        return None
    for axis in reversed(found.inner):
        if space.sizes[axis] > 1 and value.view.strides[axis] != step:
            return None
        step *= space.sizes[axis]
    return value.view if set(found.right.conditions) <= set(found.left.conditions) else None


class Panels:
    """Tiles of one work item each, of at most `rows`, `columns` and `depth` points. The contraction
    is one that `orient` has turned."""

    def __init__(self, found: Contraction, rows: int, columns: int, depth: int, lanes: int) -> None:
        self._found = found
        self._lanes = lanes
        self._parallel = name_parallel(found.phase)
        self._own = own = name_inner(found.phase, self._parallel, "k", 0)
        self._columns = _tile([own[axis] for axis in found.right.axes], columns)
        self._points = _tile([own[axis] for axis in found.inner], depth)
        self._rows = _tile([own[axis] for axis in found.left.axes], rows)

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
        views = left.view((left.step, 0, left.apart)), right.view((0, right.step, right.apart))
        product = multiply(found, (rows, columns, depth), *views)
        block: Node = Loop(column, Kind.VECTOR, lanes, (Point(2),), "across", 1)
        block = Loop(row, Kind.UNROLL, 1, (block,), "down", BLOCK, output=lanes)
        block = Loop(point, Kind.LOOP, 1, (block,), "point")
        registers = Tile(BLOCK, lanes, lanes, lanes, registers=True)
        block = Reduce(2, (block,), array=True, resumes=True, tile=registers)
        block = Loop(row, Kind.LOOP, BLOCK, (block,), "row", output=columns)
        block = Loop(column, Kind.LOOP, lanes, (block,), "column", output=1)
        cut, filled = self._points.cut, (left.stage, right.stage, block)
        strip: Node = Loop(cut, Kind.LOOP, self._points.step, filled, "strip")
        for dim in reversed(self._points.outer):
            strip = Loop(dim, Kind.LOOP, 1, (strip,), dim.wanted)
        sums = Tile(rows, columns, columns, lanes, registers=False)
        reduce = Reduce(2, (strip,), array=True, tile=sums)
        sides = (self._rows, columns), (self._columns, 1)
        own = row, column, point
        return self._close((left, right), (product, own), None, reduce, sides, after)

    def dot(self, after: Phase) -> Nest:
        """The same with vectors along the points: those of the rows are packed, and those of the
        columns read in place."""
        found, lanes, (rows, columns) = self._found, self._lanes, (self._rows, self._columns)
        left = self._pack(0, found.left, rows, rows.count, "left", dots=True)
        space, depth, line = found.phase.space, self._points.count, find_line(found)
        if line is None:
            raise InternalError("columns are read in place whose points lie apart")
        axes = (*found.batch, *found.right.axes)
        steps = (*(line.strides[axis] for axis in axes), 0, 1)
        line = dataclasses.replace(line, strides=steps)
        packed = left.view((*[0] * len(axes), left.step, 1))
        sizes = (*(space.sizes[axis] for axis in axes), rows.count, depth)
        product = multiply(found, sizes, packed, line)
        row, point, last = Dim("row", rows.count), Dim("point", depth), columns.dims[-1]
        own = (*(self._own[axis] for axis in axes), row, point)
        side = next((n for n in range(_ROWS, 2, -1) if rows.count % n == 0), rows.count)
        most = max(1, min(_COLUMNS, _REGISTERS // side - 1))
        count = next(n for n in range(most, 0, -1) if _count(last) % n == 0 or 2 * n <= most)
        if not columns.inner:
            columns = dataclasses.replace(columns, step=-(-columns.step // count) * count)
            self._columns = columns
        (view, _), *_ = after.elements.results
        axis = after.space.parallel[self._parallel.index(last)]
        is_beside = view.strides[axis] == 1

        def lay(rows: int, count: int) -> tuple[Tile, int, int]:
            """Accumulators of so many rows and columns, and their strides along these."""
            if is_beside:
                return Tile(rows, count, count, 1, registers=False), count, 1
            return Tile(count, rows, rows, 1, registers=False), 1, rows

        def go_over(name: str, down: int, across: int) -> tuple[Node, ...]:
            each = Loop(row, Kind.UNROLL, 1, (Point(1),), f"row.{name}", side, output=down)
            own = f"{last.wanted}.{name}"
            return (Loop(last, Kind.UNROLL, 1, (each,), own, count, output=across),)

        part, down, across = lay(side, count)
        part, whole = dataclasses.replace(part, registers=True), depth // lanes * lanes
        body: tuple[Node, ...] = go_over("vector", down, across)
        body = (Loop(point, Kind.VECTOR, lanes, body, "point", part=(0, whole)),)
        body = (Reduce(1, body, array=True, tile=part),)
        # The last columns are computed one by one, in as many accumulators.
        sums, down, across = lay(rows.count, columns.count + count - 1)
        if whole < depth:
            rest = go_over("rest", down, across)
            body += (Loop(point, Kind.LOOP, 1, rest, "point.rest", part=(whole, depth)),)
        if side < rows.count:
            body = (Loop(row, Kind.LOOP, side, body, "row", output=down),)
        for dim, output in reversed(columns.list_steps(across)):
            step = count if dim is last else 1
            body = (Loop(dim, Kind.LOOP, step, body, dim.wanted, output=output),)
        one, other = (rows, down), (columns, across)
        sides = (one, other) if is_beside else (other, one)
        reduce = Reduce(1, body, array=True, tile=sums)
        return self._close((left,), (product, own), left.stage, reduce, sides, after)

    def _close(
        self,
        panels: tuple[_Panel, ...],
        product: tuple[Phase, tuple[Dim, ...]],
        before: Stage | None,
        reduce: Reduce,
        sides: _Sides,
        after: Phase,
    ) -> Nest:
        """Nest of a tile's products, and of what derives from them: its outputs have these strides
        in the accumulators along both sides."""
        found, number = self._found, len(panels)
        own = name_inner(after, self._parallel, "i", number + 1)
        phases = (*(panel.phase for panel in panels), product[0], after)
        dims = (*[self._own] * number, product[1], own)
        body: tuple[Node, ...] = (self._go_over(after, Point(number + 1), sides),)
        tested = any(panel.stage.conditions for panel in panels) and found.dtype.is_float
        if found.has_holes or (tested and number == 1):
            phases += (found.phase, after)
            again = name_inner(found.phase, self._parallel, "k", number + 2)
            dims += (again, own)
            node: Node = Point(number + 2)
            for axis in reversed(found.inner):
                node = Loop(again[axis], Kind.LOOP, 1, (node,), f"{again[axis].wanted}.again")
            others: tuple[Node, ...] = (Reduce(number + 2, (node,), serial=True), Point(number + 3))
            for dim in reversed((*self._rows.dims, *self._columns.dims)):
                others = (Loop(dim, Kind.LOOP, 1, others, f"{dim.wanted}.again"),)
            body = (Numbers(number, body, others),)
        body = (*([before] if before else []), reduce, *body)
        parts = [(self._own[axis], 1) for axis in found.batch]
        parts += [*self._rows.list_parts(), *self._columns.list_parts()]
        whole = Dim("tile", math.prod(d.count_steps(step) for d, step in parts), tuple(parts))
        groups = Loop(whole, Kind.GROUP, 1, body, "tile")
        buffers = tuple(panel.buffer for panel in panels)
        return Nest(phases, dims, (groups,), buffers=buffers, words=self.words)

    def _go_over(self, after: Phase, point: Node, sides: _Sides) -> Node:
        """Loops over the outputs of a tile, in vectors along contiguous ones."""
        cut = sides[-1][0]
        last = cut.dims[-1]
        lanes = 1
        if last in self._parallel:
            axis = after.space.parallel[self._parallel.index(last)]
            lanes = after.choose_lanes(axis, cut.length, self._lanes)
        steps = [each for side, step in sides for each in side.list_steps(step)]
        node = point
        for dim, step in reversed(steps):
            name = f"{dim.wanted}.output"
            loop = Loop(dim, Kind.LOOP, 1, (node,), name)
            if dim is last and lanes > 1:
                loop = in_vectors(dim, lanes, (node,), name)
            node = dataclasses.replace(loop, output=step)
        return node

    def _pack(
        self, number: int, factor: Factor, own: _Box, count: int, name: str, *, dots: bool = False
    ) -> _Panel:
        """Packing of a factor's panel: with columns contiguous; and rows, or their points, as in
        memory, or their points for `dots`."""
        found, points = self._found, self._points
        phase, conditions = guard_factor(found, factor, f"{name}#panel")
        is_along = not factor.axes or lies_along(phase, found.inner[-1], factor.axes[-1])
        # Rows with a power-of-two stride would map to the same few cache sets.
        apart, step = count, 1
        if dots or (number == 0 and is_along):
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
        axis, length = self._own.index(last), (points if is_along else own).length
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
        return _Panel(phase, buffer, step, apart, stage)


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
    step: int
    """Stride between rows or columns."""
    apart: int
    """Stride between points."""
    stage: Stage

    def view(self, strides: tuple[int, ...]) -> View:
        """View of it for a phase with other axes."""
        return View(self.buffer.name, self.buffer.dtype, strides, local=True)


_Sides: TypeAlias = tuple[tuple[_Box, int], tuple[_Box, int]]
"""Both sides of a tile, with the strides of its accumulators along them."""
