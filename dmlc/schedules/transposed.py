"""Schedules of element-wise work for GPUs where some operands lie across others in memory.

Neighbouring work items take neighbours along the axis along which results lie side by side. An
operand that lies so along another axis would be read from a sector of memory for each element. A
tile of it goes through shared memory instead: it is put there along its own axis, and read from
there across. A result that lies along the other axis is computed in that order too, from the same
tiles. Tiles are cut by sizes alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

from dmlc.kernel.arithmetic import round_up
from dmlc.kernel.names import split_words
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.element import (
    Gather,
    Place,
    Read,
    Value,
    View,
    list_needed,
    operands,
    prune,
    reads_elements,
)
from dmlc.loops.naive import tell_apart
from dmlc.loops.nodes import Buffer, Dim, Into, Kind, Loop, Nest, Node, Point, Stage
from dmlc.loops.phases import Phase, with_elements
from dmlc.loops.tiling import begins_evenly
from dmlc.scalars import DataType
from dmlc.source import InternalError

_SECTOR = 32
"""Bytes that memory moves at least."""
_WORTH = 4
"""How many times as many bytes an element moves across as along, at least, to go through a tile."""
_SIDE = 32
"""Elements of a row, and of a column, of a tile: a cache line of floats. Where one axis is shorter,
tiles are longer along the other."""
_LEAST = 8
"""Elements along each axis, at least: of fewer, a group takes whole sectors anyway."""
_GROUPS = 1024
"""Groups that fill a large GPU: where there are twice as many, each takes twice as much."""
_SHARED_BYTES = 1 << 14
"""Memory of a group's tiles, at most: several groups share a unit."""
_BANKS = 32
"""Of shared memory, each of which answers one work item at a time."""
_ELEMENT = 4
"""Bytes of an element of a tile."""
_MOST_TILES = _SHARED_BYTES // (_ELEMENT * _SIDE * (_SIDE + 1))
_BESIDE = 8
"""Work items that take a line, in vectors."""
_VECTOR = 4
_BYTES = 16
"""What a work item reads and stores at once, where it can."""
_TYPES = (DataType.FLOAT32, DataType.INT32, DataType.UINT32)
"""What tiles are made of. Types of 16 bits are read as one of these."""

Steps: TypeAlias = tuple[int, ...]
"""How many bytes it is to the neighbour along each axis."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Staged:
    """A value that goes through a tile."""

    value: int
    along: int
    """The axis along which it is read."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Crossing:
    """Two axes of element-wise work, along each of which something lies side by side."""

    row: int
    column: int
    """The one along which the first result does."""
    staged: tuple[_Staged, ...]
    turned: tuple[int, ...] = ()
    """The results that lie along the other one."""


def choose_transposed(phase: Phase, p: Profile, limits: Limits) -> Nest | None:
    """The nest of element-wise work some of which lies across; None where tiles help nothing."""
    if phase.space.is_open or len(phase.space.sizes) < 2:
        return None
    found = _find_crossing(phase)
    return None if found is None else _Tiles(phase, found, p, limits).choose()


def lies_both_ways(phase: Phase) -> bool:
    """Whether some of what a phase reads and stores lies along outputs, and some along the points
    of one. Work items then stand along both, a sector's width or so: each is moved once."""
    space = phase.space
    if space.is_open or not space.inner or not space.parallel:
        return False
    output, point = space.parallel[-1], space.inner[-1]
    if min(space.sizes[output], space.sizes[point]) < _LEAST:
        return False
    strides = space.known_strides
    stored = (view for view, _ in phase.elements.results if not view.local)
    steps = [_in_bytes(strides[view], view.dtype.bytes) for view in stored]
    steps += _measure_reads(phase).values()
    ways = ((output, point), (point, output))
    return all(any(_crosses(own, walked, along) for own in steps) for walked, along in ways)


# What lies across ----------------------------------------------------------------------------


def _find_crossing(phase: Phase) -> _Crossing | None:
    elements, column = phase.elements, len(phase.space.sizes) - 1
    steps = _measure_reads(phase)
    lies = {n: _find_side(own, column) for n, own in steps.items()}
    strides = phase.space.known_strides
    stored = [_in_bytes(strides[view], view.dtype.bytes) for view, _ in elements.results]
    stands = [_find_side(own, column) for own in stored]
    sides = [axis for axis in (*lies.values(), *stands) if axis is not None]
    if not sides:
        return None
    row = max(sides, key=lambda axis: (sides.count(axis), axis))
    if not _cut(phase, row, column):
        return None
    turned = tuple(n for n, axis in enumerate(stands) if axis == row)
    across = [n for n, axis in lies.items() if axis == row and _is_stageable(phase, n)]
    if turned:
        roots = [root for _, root in elements.results]
        others = (root for n, root in enumerate(roots) if n not in turned)
        ahead = {v for root in others for v in list_needed(elements, root)}
        needed = {v for n in turned for v in list_needed(elements, roots[n])}
        back = [n for n, own in steps.items() if n in needed and _crosses(own, row, column)]
        staged = [_Staged(n, row) for n in across if n in ahead]
        staged += [_Staged(n, column) for n in back]
        if staged and len(staged) <= _MOST_TILES and all(_is_stageable(phase, n) for n in back):
            return _Crossing(row, column, tuple(staged), turned)
    made = _join_across(phase, across, column)
    chosen = made if len(made) <= len(across) else across
    staged = [_Staged(n, row) for n in chosen[:_MOST_TILES]]
    return _Crossing(row, column, tuple(staged)) if staged else None


def _measure_reads(phase: Phase) -> dict[int, Steps]:
    """How far each read of memory moves; one at computed positions as if each of them moved by
    one where it moves, and anywhere where elements of tensors say so."""
    strides = phase.space.known_strides
    found: dict[int, Steps] = {}
    moving: list[tuple[bool, ...]] = []
    for number, value in enumerate(phase.elements.values):
        if not isinstance(value, Read | Gather) or value.view.local:
            continue
        steps = strides[value.view]
        if isinstance(value, Gather):
            moving = moving or [phase.find_moving(axis) for axis in range(len(steps))]
            terms = [
                (n, _SECTOR if reads_elements(phase.elements, n) else step)
                for n, step in value.terms
                if isinstance(step, int)
            ]
            steps = tuple(
                own + sum(step for n, step in terms if moves[n])
                for own, moves in zip(steps, moving, strict=True)
            )
        found[number] = _in_bytes(steps, value.view.dtype.bytes)
    return found


def _in_bytes(strides: Sequence[int], size: int) -> Steps:
    return tuple(abs(step) * size for step in strides)


def _find_side(steps: Steps, column: int) -> int | None:
    """The axis along which something lies that the columns take a sector of for each element."""
    axes = [axis for axis in range(len(steps)) if _crosses(steps, column, axis)]
    return min(axes, key=lambda axis: steps[axis], default=None)


def _crosses(steps: Steps, walked: int, along: int) -> bool:
    """Whether memory moves much more for elements along one axis than along another."""
    return steps[along] > 0 and _WORTH * steps[along] <= min(steps[walked], _SECTOR)


def _is_stageable(phase: Phase, number: int) -> bool:
    return phase.elements.values[number].dtype in _TYPES


def _join_across(phase: Phase, across: Sequence[int], column: int) -> list[int]:
    """The values that come of what is read across, and of nothing that the columns move: these go
    through tiles in place of what is read. All of what is read, where some have another type."""
    values, moving = phase.elements.values, phase.find_moving(column)
    joins: list[bool] = []
    for number, value in enumerate(values):
        is_read = isinstance(value, Read | Place | Gather)
        own = operands(value)
        inside = all(joins[o] or not moving[o] for o in own) and any(joins[o] for o in own)
        joins.append(number in across if is_read else inside)
    used = {o for n, value in enumerate(values) if not joins[n] for o in operands(value)}
    used.update(number for _, number in phase.elements.results)
    made = [number for number in sorted(used) if joins[number]]
    return made if all(_is_stageable(phase, n) for n in made) else list(across)


# Tiles ---------------------------------------------------------------------------------------


def _cut(phase: Phase, row: int, column: int) -> tuple[int, int] | None:
    """The rows and columns of a tile; None where the axes are too short for one."""
    lengths = [round_up(phase.space.sizes[axis]) for axis in (row, column)]
    rows, columns = (min(_SIDE, length) for length in lengths)
    points = _SIDE * _SIDE
    if rows < _SIDE:
        columns = points // rows
    elif columns < _SIDE:
        rows = points // columns
    too_short = min(phase.space.sizes[axis] for axis in (row, column)) < _LEAST
    return None if too_short or rows > lengths[0] or columns > lengths[1] else (rows, columns)


def _find_pitch(rows: int, columns: int) -> int:
    """From one row of a tile in shared memory to the next: what lies in a column lies in several
    banks."""
    return columns + max(1, _BANKS // rows)


def _repeat(side: Dim, step: int, node: Node) -> Node:
    """What a work item does in steps along a side of a tile."""
    many = side.count_steps(step)
    return Loop(side, Kind.UNROLL, step, (node,), "each", many) if many > 1 else node


class _Tiles:
    """The tiles of a group, and how its work items go over them."""

    def __init__(self, phase: Phase, found: _Crossing, p: Profile, limits: Limits) -> None:
        self._phase, self._found, self._limits = phase, found, limits
        self._items = p.group_size
        self._dims = tuple(Dim(f"i{axis}", size) for axis, size in enumerate(phase.space.sizes))
        rows, columns = self._choose_sides()
        self._sides = {found.row: rows, found.column: columns}
        self._places = {found.row: _find_pitch(rows, columns), found.column: 1}
        """How far apart neighbours along each axis lie in a tile."""

    def _choose_sides(self) -> tuple[int, int]:
        """The rows and columns of a tile: twice as many rows where there are groups enough."""
        found, sizes = self._found, self._phase.space.sizes
        cut = _cut(self._phase, found.row, found.column)
        if cut is None:
            raise InternalError("axes are too short for tiles")
        rows, columns = cut
        size = 2 * rows * _find_pitch(2 * rows, columns) * _ELEMENT
        fits = len(found.staged) * size <= _SHARED_BYTES
        many = math.prod(sizes) // (rows * columns) >= 2 * _GROUPS
        is_large = many and fits and sizes[found.row] >= 2 * rows
        return (2 * rows if is_large else rows), columns

    def choose(self) -> Nest:
        found, elements = self._found, self._phase.elements
        phases: list[Phase] = []
        buffers: list[Buffer] = []
        stages: list[Node] = []
        axes: list[tuple[tuple[str, int], ...]] = []
        tiles: dict[int, Value] = {}
        for number, staged in enumerate(found.staged):
            dtype, name = (
                elements.values[staged.value].dtype,
                f"{self._name(staged.value)}#tile{number}",
            )
            view = View(name, dtype, (0,) * len(self._dims), local=True)
            phases.append(self._take(elements.values, ((view, staged.value),)))
            wanted = f"{split_words(name)}_tile"
            dim = self._dims[staged.along]
            size = self._sides[found.row] * self._places[found.row]
            buffers.append(Buffer(name, dtype, size, dim, wanted, linear=True, shared=True))
            lanes, node = self._go_over(phases[-1], number, staged.along, buffers[-1])
            axes.append(lanes)
            stages.append(node)
            strides = tuple(self._places.get(axis, 0) for axis in range(len(self._dims)))
            tiles[staged.value] = Read(dataclasses.replace(view, strides=strides), dtype)
        values = [tiles.get(number, value) for number, value in enumerate(elements.values)]
        body: list[Node] = [Stage(tuple(buffers), tuple(stages), repeats=False)]
        for axis in (found.row, found.column):
            results = [
                result
                for number, result in enumerate(elements.results)
                if (number in found.turned) is (axis == found.row)
            ]
            if results:
                phases.append(self._take(values, results))
                lanes, node = self._go_over(phases[-1], len(phases) - 1, axis, None)
                axes.append(lanes)
                body.append(node)
        parts = [(dim, self._sides.get(axis, 1)) for axis, dim in enumerate(self._dims)]
        whole = Dim("tile", math.prod(d.count_steps(step) for d, step in parts), tuple(parts))
        groups = Loop(whole, Kind.GROUP, 1, tuple(body), "tile")
        rows, columns = self._sides.values()
        return Nest(
            tuple(phases),
            tuple(self._dims for _ in phases),
            (groups,),
            axes[-1],
            tuple(buffers),
            words=f"a group computes a tile of {rows} by {columns} elements",
        )

    def _take(self, values: Sequence[Value], results: Sequence[tuple[View, int]]) -> Phase:
        """The same points, for some of the work."""
        changed = dataclasses.replace(
            self._phase.elements, values=tuple(values), results=tuple(results)
        )
        return with_elements(self._phase, prune(changed))

    def _name(self, number: int) -> str:
        """A tensor that a value comes of."""
        values = self._phase.elements.values
        needed = (values[n] for n in sorted(list_needed(self._phase.elements, number)))
        return next(v.view.tensor for v in needed if isinstance(v, Read | Gather))

    def _go_over(
        self, phase: Phase, number: int, axis: int, buffer: Buffer | None
    ) -> tuple[tuple[tuple[str, int], ...], Node]:
        """How the work items of a group take the points of a tile, neighbours along an axis; what
        they compute is put into a buffer, where there is one. Gives the axes they stand along,
        too."""
        found = self._found
        tile = {
            found.row: Dim(
                tell_apart("row", number), self._sides[found.row], within=self._dims[found.row]
            ),
            found.column: Dim(
                tell_apart("column", number),
                self._sides[found.column],
                within=self._dims[found.column],
            ),
        }
        beyond = found.column if axis == found.row else found.row
        along, other = tile[axis], tile[beyond]
        # What is read from a tile as a vector lies in a row of it.
        reads_row = buffer is not None or axis == found.column
        width = self._measure_width(phase, axis) if reads_row else 1
        # What is further on than a line shares the banks of its beginning.
        across = min(self._sides[axis], max(_SIDE, _BESIDE * width)) // width
        across = max(across, self._items // self._sides[beyond])
        down = self._items // across
        into: tuple[Into, ...] = ()
        if buffer is not None:
            places = tuple((dim, self._places[a]) for a, dim in tile.items())
            into = (
                Into(buffer, buffer.dim, tile=places, lane=self._places[axis], is_padded=False),
            )
        node: Node = Point(number, into)
        if width > 1:
            node = Loop(along, Kind.VECTOR, _VECTOR, (node,), "part", 1)
        if width > _VECTOR:
            node = Loop(along, Kind.UNROLL, _VECTOR, (node,), "part", width // _VECTOR)
        axes = ((f"row{number}", down), (f"column{number}", across))
        node = _repeat(along, width * across, node)
        node = Loop(along, Kind.LANE, width, (node,), axes[1][0], across)
        node = _repeat(other, down, node)
        return axes, Loop(other, Kind.LANE, 1, (node,), axes[0][0], down)

    @property
    def _points(self) -> int:
        return math.prod(self._sides.values())

    def _measure_width(self, phase: Phase, axis: int) -> int:
        """The neighbours along an axis that a work item takes at once."""
        if self._limits.vector_lanes == 1 or self._limits.word_types or phase.has_positions:
            return 1
        views, strides = phase.elements.buffers(), phase.space.known_strides
        moved = [view.dtype.bytes for view in views if strides[view][axis]]
        even = all(begins_evenly(view, strides[view], axis) for view in views)
        size = phase.space.sizes[axis]
        if not moved or not even or size % _VECTOR:
            return 1
        width = max(_VECTOR, _BYTES // max(moved))
        return width if size % width == 0 and width * self._items <= self._points else _VECTOR
