"""Schedules of contractions: tiles of both factors are put into buffers, where each element serves
all outputs of a row or a column.

On a GPU the work items of a group share two tiles, and each has four rows by four columns of
outputs in registers, or eight by eight. Sizes alone decide how large tiles are. Every output is one
sum, whose points are added in their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.kernel.arithmetic import make_size, measure
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.contraction import (
    Contraction,
    Factor,
    multiply_tiles,
    stage_factor,
)
from dmlc.loops.element import Gather, View
from dmlc.loops.naive import name_inner, name_parallel, tell_apart
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
    merge_dims,
)
from dmlc.loops.phases import Phase
from dmlc.sizes import divide_up, known
from dmlc.sizes import multiply as multiply_sizes

_LARGE, _SMALL = 64, 32
"""Rows and columns of a tile: small ones where large ones would leave most of a GPU idle."""
_DEPTH = 16
"""Points of a tile."""
_AT_ONCE = 4
"""Points whose factors are read before any of them is added. More take registers, and no fewer
instructions."""
_MANY, _FEW = 8, 4
"""Rows, and columns, of outputs that one work item has: many where there are tiles enough, for a
group has fewer work items then. Each takes fewer reads of shared memory, and all more registers."""
_WRITTEN = 256
"""Products of a work item that are written out, at most."""
_VECTOR = 4
"""Elements that are read and stored at once."""
_PAD = 4
"""Elements between the rows of a tile in shared memory, so that those of a column lie in several
banks, and vectors still begin where vectors do."""


def count_tiles(found: Contraction, p: Profile) -> int:
    """The groups that tiles take."""
    side, _ = _choose_sides(found, p)
    return found.batches * -(-found.rows // side) * -(-found.columns // side)


def choose_tiles(found: Contraction, after: Phase, p: Profile, limits: Limits) -> Nest:
    """The nest of a contraction, and of what derives from it."""
    return _Shared(found, after, p, limits).choose()


def _choose_sides(found: Contraction, p: Profile) -> tuple[int, int]:
    """The rows, and columns, of a tile, and those of a work item in it."""
    if found.is_open:
        # One tile for all sizes: a work item with many outputs would leave small ones few groups.
        return _LARGE, _FEW
    many = found.batches * -(-found.rows // _LARGE) * -(-found.columns // _LARGE)
    side = _LARGE if many >= p.groups else _SMALL
    return side, _MANY if many >= 2 * p.groups else _FEW


@dataclasses.dataclass(frozen=True, slots=True)
class _Filled:
    """A tile of a factor in shared memory."""

    phase: Phase
    buffer: Buffer
    place: tuple[str, int, int]
    """Its name, and how far apart rows or columns, and points, lie in it."""
    axes: tuple[tuple[str, int], ...]
    """Those along which work items stand that fill it."""
    body: Node
    """What they do."""


class _Shared:
    """Tiles that the work items of a group share."""

    def __init__(self, found: Contraction, after: Phase, p: Profile, limits: Limits) -> None:
        self._found = found
        self._after = after
        self._limits = limits
        self._side, self._each = _choose_sides(found, p)
        self._across = self._side // self._each
        """Work items along the rows, and along the columns, of a tile."""
        self._parallel = name_parallel(found.phase)
        self._own = name_inner(found.phase, self._parallel, "k", 0)
        self._rows = self._merge("m", found.left.axes)
        self._columns = self._merge("n", found.right.axes)
        pieces = found.phase.space.pieces
        self._order = sorted(found.inner, key=lambda axis: axis not in pieces)
        """The axes of the points, a piece of a longer one first."""
        self._points = self._merge("k.0", self._order)

    def _merge(self, name: str, axes: Sequence[int]) -> Dim:
        dims = [self._own[axis] for axis in axes]
        return dims[0] if len(dims) == 1 else merge_dims(name, dims)

    def choose(self) -> Nest:
        found, side = self._found, self._side
        filled = [
            self._fill(0, found.left, self._rows, "left"),
            self._fill(1, found.right, self._columns, "right"),
        ]
        left, right = filled
        row = Dim("row", side, within=self._rows)
        column = Dim("column", side, within=self._columns)
        point = Dim("point", _DEPTH)
        phases = (
            left.phase,
            right.phase,
            multiply_tiles(found, (side, side, _DEPTH), left.place, right.place),
            self._after,
        )
        after = name_inner(self._after, self._parallel, "i", 3)
        dims = (self._own, self._own, (row, column, point), after)
        add = self._go_over(row, column, Kind.UNROLL, Point(2))
        some: Node = Loop(point, Kind.UNROLL, 1, (add,), "point", _AT_ONCE)
        some = self._part(column, some, Kind.UNROLL, 1)
        is_little = self._each**2 * _DEPTH <= _WRITTEN
        kind = Kind.UNROLL if is_little else Kind.LOOP
        multiply = Loop(point, kind, _AT_ONCE, (some,), "points", _DEPTH // _AT_ONCE)
        buffers = (left.buffer, right.buffer)
        stage = Stage(buffers, (left.body, right.body))
        strips = Loop(self._points, Kind.LOOP, _DEPTH, (stage, multiply), "strip")
        tile = Tile(self._each, self._each, self._each, 1, registers=True)
        wide = self._takes_vectors(self._after, found.right.axes)
        last = Kind.VECTOR if wide else Kind.UNROLL
        every = self._go_over(row, column, last, Point(3))
        body: tuple[Node, ...] = (self._part(column, every, Kind.UNROLL, 1),)
        if found.has_holes:
            phases += (found.phase, self._after)
            own = name_inner(found.phase, self._parallel, "k", 4)
            dims += (own, after)
            node: Node = Point(4)
            for axis in reversed(found.inner):
                node = Loop(own[axis], Kind.LOOP, 1, (node,), own[axis].wanted)
            again = Reduce(4, (node,), serial=True)
            others = self._go_over(row, column, Kind.LOOP, again, Point(5))
            body = (Numbers(2, body, (self._part(column, others, Kind.LOOP, 1),)),)
        body = (Reduce(2, (strips,), array=True, tile=tile), *body)
        for dim in (column, row):
            body = (Loop(dim, Kind.LANE, _VECTOR, body, dim.wanted, self._across),)
        parts = [(self._own[axis], 1) for axis in found.batch]
        parts += [(self._rows, side), (self._columns, side)]
        tiles = multiply_sizes(divide_up(measure(dim.size), step) for dim, step in parts)
        whole = Dim("tile", make_size(tiles), tuple(parts))
        groups = Loop(whole, Kind.GROUP, 1, body, "tile")
        each = f"{self._each} by {self._each}"
        words = f"a group computes a tile of {side} by {side} outputs, and each {each}"
        lanes = (("row", self._across), ("column", self._across))
        staging = (left.axes, right.axes)
        return Nest(phases, dims, (groups,), lanes, buffers, words=words, staging=staging)

    def _go_over(self, row: Dim, column: Dim, kind: Kind, *body: Node) -> Node:
        """The outputs of one work item in a few of its columns: those of a vector."""
        several = Kind.LOOP if kind is Kind.LOOP else Kind.UNROLL
        if kind is Kind.VECTOR:
            few = Loop(column, kind, _VECTOR, body, "lane", 1)
        else:
            few = Loop(column, kind, 1, body, "lane", _VECTOR, output=1)
        line = Loop(row, several, 1, (few,), "line", _VECTOR, output=self._each)
        return self._part(row, line, several, self._each)

    def _part(self, dim: Dim, body: Node, kind: Kind, output: int) -> Node:
        """What a work item does with a few rows or columns, for all that it has: between these few
        lie those of others, so that neighbours read side by side."""
        few = self._each // _VECTOR
        if few == 1:
            return body
        step = self._across * _VECTOR
        return Loop(dim, kind, step, (body,), "part", few, output=output * _VECTOR)

    def _fill(self, number: int, factor: Factor, whole: Dim, name: str) -> _Filled:
        """How the work items fill the tile of a factor: neighbours read side by side, four elements
        each where that can be, and these lie side by side in the tile too."""
        phase = stage_factor(self._found, factor, f"{name}#tile")
        own = Dim(tell_apart("own", number), self._side, within=whole)
        point = Dim(tell_apart("point", 1 + number), _DEPTH, within=self._points)
        is_along = lies_along(phase, self._order[-1], factor.axes[-1])
        along, other = (point, own) if is_along else (own, point)
        wide = self._takes_vectors(phase, self._order if is_along else factor.axes)
        inner, outer = (along, other) if wide else (own, point)
        pitch = _count(inner) + _PAD
        size = _count(outer) * pitch
        dtype = phase.elements.results[0][0].dtype
        buffer = Buffer(
            f"{name}#tile", dtype, size, whole, f"{name}_tile", linear=True, shared=True
        )
        steps = {inner: 1, outer: pitch}
        tile = tuple(steps.items())
        into = Into(buffer, whole, tile=tile, lane=steps[along], in_vectors=wide)
        width, items = _VECTOR if wide else 1, self._across**2
        across = min(_count(along) // width, items)
        down = items // across
        axes = ((f"{name}_row", down), (f"{name}_column", across))
        node: Node = Point(number, (into,))
        if wide:
            node = Loop(along, Kind.VECTOR, width, (node,), "part", 1)
        node = Loop(along, Kind.LANE, width, (node,), axes[1][0], across)
        if _count(other) > down:
            many = _count(other) // down
            node = Loop(other, Kind.UNROLL, down, (node,), "each", many)
        node = Loop(other, Kind.LANE, 1, (node,), axes[0][0], down)
        return _Filled(phase, buffer, (buffer.name, steps[own], steps[point]), axes, node)

    def _takes_vectors(self, phase: Phase, axes: Sequence[int]) -> bool:
        """Whether four neighbours along the last of some axes, which are walked as one, are read
        and stored at once."""
        if self._limits.vector_lanes == 1 or self._limits.word_types or phase.has_positions:
            return False
        if phase.is_parallel:
            order = self._found.phase.space.parallel
            axes = [phase.space.parallel[order.index(axis)] for axis in axes]
        last, space = axes[-1], phase.space
        if space.is_open:
            return False
        piece, strides = space.pieces.get(last), space.known_strides
        lengths = (space.sizes[last],) if piece is None else known((piece.length, piece.size))
        if any(length % _VECTOR for length in lengths):
            return False
        views = phase.elements.buffers()
        return all(begins_evenly(view, strides[view], last) for view in views) and any(
            strides[view][last] for view in views
        )


def begins_evenly(view: View, strides: Sequence[int], last: int) -> bool:
    """Whether vectors of a view along an axis begin where those of memory do."""
    if strides[last] not in (0, 1) or view.dtype.bytes > 4:
        return False
    others = [step for axis, step in enumerate(strides) if axis != last]
    return strides[last] == 0 or not any(step % _VECTOR for step in (view.offset, *others))


def lies_along(phase: Phase, first: int, second: int) -> bool:
    """Whether what a phase reads lies side by side along the first of two axes, sooner than along
    the second."""
    values = phase.elements.values
    reads = [v for v in phase.elements.buffers() if not v.local]

    def count(axis: int) -> int:
        moving = phase.find_moving(axis)
        beside = [v for v in reads if phase.space.strides[v][axis] == 1]
        gathers = [v for n, v in enumerate(values) if isinstance(v, Gather) and moving[n]]
        beside += [v.view for v in gathers if any(s == 1 and moving[n] for n, s in v.terms)]
        return max((phase.space.count_steps(view) or 0 for view in beside), default=-1)

    return count(first) > count(second)


def _count(dim: Dim) -> int:
    return dim.size if isinstance(dim.size, int) else 0
