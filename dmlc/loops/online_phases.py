"""Phases of nests of online softmax-weighted sums, and the tiles that they read.

Operands of the rows are copied to a tile in which the lanes of vectors are contiguous; on a GPU, so
are operands of the keys. Phases that read only tiles have the tiles' axes alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from dmlc import ir
from dmlc.kernel.target import Limits
from dmlc.loops.element import (
    Collector,
    Elements,
    Gather,
    Place,
    Read,
    Value,
    View,
    find_moving,
    operands,
    prune,
    renumber,
)
from dmlc.loops.nodes import Buffer, Dim, Into, Kind, Loop, Node, Point
from dmlc.loops.phases import VECTOR, Phase
from dmlc.loops.reached import find_reached
from dmlc.loops.staging import STAGED
from dmlc.loops.tiling import count_points, takes_vectors
from dmlc.scalars import OPERATIONS, DataType
from dmlc.source import InternalError
from dmlc.transform.online import KEYS, Online
from dmlc.transform.passes import Member


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Distribution of rows and keys."""

    lanes: int
    """Rows per vector of a work item."""
    rows: int
    """Rows per group."""
    keys: int = KEYS
    """Keys per block."""
    across: int = 1
    """Work items that have the same rows, and share keys and columns of sums."""
    depth: int = 0
    """Elements of queries and keys in shared memory at once; 0: none."""
    turn: int = 0
    """Keys whose values are in shared memory at once."""

    @property
    def items(self) -> int:
        """Work items of a group."""
        return self.rows // self.lanes * self.across

    @property
    def part(self) -> int:
        """Columns of sums per work items that share rows, a few adjacent ones each."""
        return VECTOR * self.across


def find_extra(found: Online, member: Member) -> int | None:
    """Dimension of a sum, or of what is derived from it, that is none of the rows'."""
    return next((d for _, d in member.axes if d > found.rows), None)


PAD = 4
"""Padding in elements of a tile's rows whose columns are stored contiguously."""


class Phases:
    """Phases of a nest under construction."""

    def __init__(
        self, function: ir.Function, found: Online, ends: Sequence[Member], shape: Shape,
        limits: Limits,
    ) -> None:  # fmt: skip
        self._limits = limits
        self._function, self._found, self._ends = function, found, ends
        self._tensors, self._shape = function.tensors(), shape
        count = found.rows
        self._inner = range(count + 1, count + 1 + len(found.scores))
        """Dimensions that scores reduce."""
        names = [f"i{n}" for n in range(count)] + ["k"]
        names += [f"d{n or ''}" for n in range(len(self._inner))]
        names += [f"e{n or ''}" for n in range(len(found.sizes) - len(names))]
        self._dims = [Dim(name, size) for name, size in zip(names, found.sizes, strict=True)]
        self._x, self._k = self._dims[found.along], self._dims[count]
        self._row = Dim("row", shape.rows, within=self._x)
        self._key = Dim("key", shape.keys, within=self._k)
        self._turn = Dim("turn", shape.turn, within=self._key)
        self._sides: dict[int, Dim] = {}
        """Tiles, on a GPU, of the dimensions other than rows of queries and keys, and of sums."""
        for number, dim in enumerate(self._dims if shape.depth else ()):
            if number in self._inner:
                self._sides[number] = Dim(f"point{dim.name[1:]}", shape.depth, within=dim)
            elif number > count:
                size = -(-found.sizes[number] // shape.part) * shape.part
                self._sides[number] = Dim(f"column{dim.name[1:]}", size, within=dim)
        self._phases: list[Phase] = []
        self._axes: list[tuple[Dim, ...]] = []
        self._buffers: list[Buffer] = []
        self._tiles: dict[tuple[Elements, int], View] = {}
        """Tile that replaces an operand of rows or keys, by the operand and its other dimension."""
        self._weights: dict[Elements | None, tuple[View, int, Into]] = {}
        """Weights of sums: the view read, the phase that stores it, and the target. None: the
        weight of all sums."""
        self._before: list[tuple[Buffer, Node]] = []
        """Nodes that fill tiles: once, for each block of keys, and, by the dimension of a product,
        for some elements of queries and keys, or with a block's weights."""
        self._within: list[tuple[Buffer, Node]] = []
        self._strips: dict[int, list[tuple[Buffer, Node]]] = {}
        self._kept: dict[Member, Buffer] = {}
        """Tiles of the results."""

    # What is computed ------------------------------------------------------------------------

    def _own(self, *further: int | None) -> tuple[int, ...]:
        """Numbers of the row dimensions, and of some others; None is no dimension."""
        return (*range(self._found.rows), *(d for d in further if d is not None))

    def _collect(
        self, numbers: Sequence[int], local: Mapping[str, DataType], parallel: int
    ) -> Collector:
        """Collector for work over some dimensions, then over rows and keys of a block, and a tile
        of the last dimension."""
        domain = (
            *(self._found.sizes[n] for n in numbers),
            *(count_points(d) for d in self._list_tiles(numbers)),
        )
        return Collector(self._function, domain, local, parallel)

    def _list_tiles(self, numbers: Sequence[int]) -> tuple[Dim, ...]:
        """Further tiles of work over some dimensions."""
        side = self._sides.get(numbers[-1])
        if side is None:
            return (self._row, self._key)
        turn = () if numbers[-1] in self._inner else (self._turn,)
        return (self._row, self._key, side, *turn)

    def _map_axes(self, member: Member, numbers: Sequence[int]) -> dict[ir.Index, int]:
        """Axis of some work for each index of a stage."""
        return {i: numbers.index(d) for i, d in member.axes if d in numbers}

    def _add(
        self,
        elements: Elements,
        numbers: Sequence[int],
        tiles: Mapping[Dim, Dim] = MappingProxyType({}),
    ) -> int:
        """Adds a phase over some dimensions, perhaps over other tiles; returns its number."""
        found, side = self._found, self._sides.get(numbers[-1])
        dims = [self._dims[n] for n in numbers]
        dims += [tiles.get(d, d) for d in self._list_tiles(numbers)]
        dims = dims[: len(elements.space.extents)]
        kept = {*self._dims[: found.rows], self._row}
        if elements.reductions and side is not None:
            # Each score and sum belongs to a single work item.
            kept.add(self._key if numbers[-1] in self._inner else side)
        tiled = self._sides and all(
            v.view.local and self._is_linear(v.view)
            if isinstance(v, Read)
            else not isinstance(v, Place | Gather)
            for v in elements.values
        )
        if tiled and elements.reductions:
            # Tiles are 0 out of bounds.
            elements = elements.select(range(len(numbers), len(dims)))
            dims = dims[len(numbers) :]
        parallel = tuple(axis for axis, dim in enumerate(dims) if dim in kept)
        self._phases.append(Phase(elements.with_parallel(parallel)))
        self._axes.append(tuple(dims))
        return len(self._phases) - 1

    def _is_linear(self, view: View) -> bool:
        return any(b.name == view.tensor and b.linear for b in self._buffers)

    def _read_lanes(self, elements: Elements, numbers: Sequence[int]) -> Elements:
        """Work with local values read lane by lane, as they differ from row to row."""
        along, row = self._found.along, len(numbers)

        def change(view: View) -> View:
            if not view.local or view.strides[row]:
                return view
            strides = (*view.strides[:row], view.strides[along], *view.strides[row + 1 :])
            return dataclasses.replace(view, strides=strides)

        return map_views(elements, change)

    def _stage(self, elements: Elements, numbers: Sequence[int]) -> Elements:
        """Work with tiles in place of operands of rows, and on a GPU of keys, each filled by a
        phase. Values computed from either alone are computed once, as the tile is filled."""
        moving = {n: find_moving(elements, axis) for axis, n in enumerate(numbers)}
        along, keys = moving[self._found.along], moving.get(self._found.rows)
        if keys is not None and numbers[-1] != self._found.rows:
            inner = moving[numbers[-1]]
            for of_rows in (True, False) if self._sides else (True,):
                fits = [
                    inner[n] and along[n] is of_rows and keys[n] is not of_rows
                    for n in range(len(elements.values))
                ]
                elements = self._replace(elements, fits, numbers)
        # Tiles do not hold BOOL, but the values that they select.
        own = [isinstance(v, Read | ir.Select) and along[n] for n, v in enumerate(elements.values)]
        return self._replace(elements, own, numbers)

    def _replace(
        self, elements: Elements, fits: Sequence[bool], numbers: Sequence[int]
    ) -> Elements:
        """Work with tiles for the largest suitable values that depend on loads alone."""
        plain: list[bool] = []
        for value in elements.values:
            own = isinstance(value, ir.Constant | ir.Apply | ir.Select | ir.Cast)
            own = own and all(plain[o] for o in operands(value))
            plain.append(own or (isinstance(value, Read) and not value.view.local))
        suits = [
            f and p and v.dtype in STAGED
            for f, p, v in zip(fits, plain, elements.values, strict=True)
        ]
        used = {o for n, v in enumerate(elements.values) if suits[n] for o in operands(v)}
        values = list(elements.values)
        for number, value in enumerate(elements.values):
            if suits[number] and number not in used:
                work = prune(elements, number)
                key = work, numbers[-1]
                if key not in self._tiles:
                    self._tiles[key] = self._fill(work, numbers)
                values[number] = Read(self._tiles[key], value.dtype)
        # Replaced values keep their numbers until here.
        return prune(dataclasses.replace(elements, values=tuple(values)))

    def _fill(self, elements: Elements, numbers: Sequence[int]) -> View:
        """Tile of the last value of some work, and the phase that fills it."""
        count, dtype = len(self._tiles), elements.values[-1].dtype
        (first, *_) = elements.buffers()
        own = f"{first.tensor}{count or ''}"
        moves = [n for axis, n in enumerate(numbers) if find_moving(elements, axis)[-1]]
        size, places = 1, [0] * len(elements.space.extents)
        sides: list[tuple[Dim, int]] = []
        """Dimensions of the tile with their extents; the first is contiguous."""
        tile: list[tuple[Dim, int]] = []
        for number, dim, axis in self._list_sides(numbers):
            if number not in moves:
                continue
            side = dim
            if dim.within is not None:
                side = Dim(f"{own}_{dim.name}", dim.size, within=dim.within)
            places[axis] = size
            sides.append((side, count_points(dim)))
            tile.append((side, size))
            size *= sides[-1][1]
            if len(sides) == 1 and self._sides:
                size += PAD
        made = View(f"{own}#tile", dtype, tuple(places), local=True)
        buffer = Buffer(
            made.tensor, dtype, size, sides[-1][0], f"{first.tensor}_tile", linear=True,
            shared=bool(self._sides),
        )  # fmt: skip
        self._buffers.append(buffer)
        held = View(made.tensor, dtype, (0,) * len(places), local=True)
        work = dataclasses.replace(elements, results=((held, len(elements.values) - 1),))
        if self._sides:
            work = work.select(range(len(numbers)))
        number, keys = self._add(work, numbers), self._found.rows
        filled = self._within if keys in moves else self._before
        if (last := numbers[-1]) in self._sides and (
            keys in moves or (last in moves and last in self._inner)
        ):
            filled = self._strips.setdefault(last, [])
        if self._sides:
            node = self._share(number, sides, own, (buffer, tile))
        else:
            node = Point(number, (Into(buffer, buffer.dim, tile=tuple(tile)),))
            for dim, extent in reversed(sides):
                steps = 0 if dim.within is None else extent
                node = Loop(dim, Kind.LOOP, 1, (node,), dim.name, steps)
        filled.append((buffer, node))
        return made

    def _list_sides(self, numbers: Sequence[int]) -> list[tuple[int, Dim, int]]:
        """Dimensions of a tile: each with the number of its dimension, and its axis. Elements that
        work items read together are contiguous: rows, and keys or columns."""
        found, last, row = self._found, numbers[-1], len(numbers)
        rows, keys = (found.along, self._row, row), (found.rows, self._key, row + 1)
        if last <= found.rows:
            return [rows, keys]
        if not self._sides:
            return [rows, (last, self._dims[last], row - 1), keys]
        side = (last, self._sides[last], row + 2)
        turn = (found.rows, self._turn, row + 3)
        return [rows, keys, side] if last in self._inner else [rows, side, turn]

    def _share(
        self, number: int, sides: Sequence[tuple[Dim, int]], own: str,
        into: tuple[Buffer, Sequence[tuple[Dim, int]]] | None = None,
    ) -> Node:  # fmt: skip
        """Loops of the work items over a tile, to fill or read it: adjacent items on adjacent
        elements in memory, in vectors if possible."""
        phase, axes = self._phases[number], self._axes[number]
        places = {dim: axes.index(dim.whole) for dim, _ in sides}
        views = [v for v in phase.elements.buffers() if not v.local]

        def suits(side: tuple[Dim, int]) -> tuple[bool, bool]:
            axis = places[side[0]]
            beside = any(v.strides[axis] == 1 for v in views)
            return beside and takes_vectors(phase, axis, self._limits), beside

        fast, extent = best = max(sides, key=suits)
        width = unit = VECTOR if suits(best)[0] else 1
        if width > 1 and all(v.dtype.bytes == 2 for v in views) and not extent % (2 * VECTOR):
            unit = 2 * VECTOR
        node: Node = Point(number)
        if into is not None:
            buffer, tile = into
            lane = dict(tile)[fast]
            put = Into(buffer, fast, tile=tuple(tile), lane=lane, in_vectors=lane == 1)
            node = Point(number, (put,))
        if width > 1:
            node = Loop(fast, Kind.VECTOR, width, (node,), fast.name, 1)
        if unit > width:
            node = Loop(fast, Kind.UNROLL, width, (node,), f"{own}_half", unit // width)
        left = self._shape.items
        for dim, count in [best, *(side for side in sides if side is not best)]:
            step = unit if dim is fast else 1
            items = math.gcd(count // step, left)
            left //= items
            if count > step * items:
                many = count // step // items
                node = Loop(dim, Kind.UNROLL, step * items, (node,), dim.name, many)
            node = Loop(dim, Kind.LANE, step, (node,), f"{dim.name}s", items)
        return node

    def _reduce(self, member: Member, numbers: Sequence[int], local: Mapping[str, DataType]) -> int:
        """Phase that reduces one stage."""
        collector = self._collect(numbers, local, self._found.rows + 1)
        collector.add_reduction(member.stage, self._map_axes(member, numbers))
        elements = self._stage(self._read_lanes(collector.elements(), numbers), numbers)
        return self._add(elements, numbers)

    def _find_reached(self) -> int | None:
        """Phase that computes whether any score of a block and a group's rows matters; None if
        every block may."""
        found, numbers = self._found, self._own(self._found.rows)
        collector = self._collect(numbers, self._list_local(found.scores), found.rows + 1)
        for member in found.totals if found.largest is None else [found.largest]:
            collector.add_reduction(member.stage, self._map_axes(member, numbers))
        spans = {found.along: self._shape.rows - 1, found.rows: self._shape.keys - 1}
        reached = find_reached(collector.elements(), spans)
        return None if reached is None else self._add(reached, numbers)

    def _list_local(self, members: Sequence[Member]) -> dict[str, DataType]:
        """Types of the local values."""
        return {m.stage: self._tensors[m.stage].dtype for m in members}

    def _weigh(self, local: Mapping[str, DataType]) -> list[tuple[int, int | None]]:
        """Phases of the sums, each with its dimension other than rows."""
        found = self._found
        scores = {member.stage for member in found.scores}
        made: list[tuple[int, int | None]] = []
        for member in found.sums:
            extra = find_extra(found, member)
            numbers = self._own(found.rows, extra)
            collector = self._collect(numbers, local, found.rows + 1)
            collector.add_reduction(member.stage, self._map_axes(member, numbers))
            elements = self._read_lanes(collector.elements(), numbers)
            weight = _find_weight(elements, found, numbers)
            if weight is not None:
                elements = self._load_weight(elements, weight, numbers, found.largest is not None)
                elements = prune(elements)
            for number, value in enumerate(elements.values):
                # Operands of a sum have one element per key, as weights have, unless the work item
                # that has the score sums it.
                alone = self._sides and extra is None
                if isinstance(value, Read) and value.view.tensor in scores and not alone:
                    elements = self._load_weight(elements, number, numbers, False)
            elements = self._stage(prune(elements), numbers)
            made.append((self._add(elements, numbers), extra))
        return made

    def _load_weight(
        self, elements: Elements, weight: int, numbers: Sequence[int], is_one: bool
    ) -> Elements:
        """Work that reads a weight which a phase stores to a tile before, for each key of a block;
        `is_one` if it is the weight of all sums."""
        plain, shape = self._own(self._found.rows), self._shape
        places = [*map(numbers.index, plain), len(numbers), len(numbers) + 1]
        work = prune(elements, weight).select(places)
        key = None if is_one else work
        if key not in self._weights:
            name, size = f"weights{len(self._weights) or ''}#block", shape.keys * shape.rows
            view = View(name, DataType.FLOAT32, (*(0 for _ in plain), 1, shape.rows), local=True)
            buffer = Buffer(
                name, DataType.FLOAT32, size, self._key, "weights", linear=True,
                shared=bool(self._sides),
            )  # fmt: skip
            self._buffers.append(buffer)
            work = dataclasses.replace(work, results=((view, len(work.values) - 1),))
            into = Into(buffer, self._key, shape.rows)
            if self._sides:
                tile = ((self._row, 1), (self._key, shape.rows))
                into = Into(buffer, self._key, tile=tile, in_vectors=True)
            self._weights[key] = view, self._add(self._stage(work, plain), plain), into
        view, *_ = self._weights[key]
        further = len(elements.space.extents) - len(numbers) - 2
        steps = (*(0 for _ in numbers), *view.strides[-2:], *(0 for _ in range(further)))
        values = list(elements.values)
        values[weight] = Read(dataclasses.replace(view, strides=steps), DataType.FLOAT32)
        return dataclasses.replace(elements, values=tuple(values))

    def _finish(self) -> list[tuple[int, int | None, Member]]:
        """Phases that store the results."""
        found = self._found
        local = self._list_local(found.totals)
        made: list[tuple[int, int | None, Member]] = []
        for member in self._ends:
            extra = find_extra(found, member)
            numbers = self._own(extra)
            collector = self._collect(numbers, local, len(numbers))
            axes = self._map_axes(member, numbers)
            if member in found.totals:
                collector.add_copy(member.stage, axes)
            else:
                collector.add_stage(member.stage, axes)
            elements = self._read_lanes(collector.elements(), numbers)
            tiles = dict[Dim, Dim]()
            if found.largest is not None:
                elements = self._lose_empty(elements, found.largest.stage, local)
            if self._sides:
                elements = map_views(elements, lambda v, n=numbers: self._read_kept(v, n))
                tiles = self._tile_ends(member, numbers)
            else:
                elements = self._stage(elements, numbers)
            number = self._add(elements, numbers, tiles=tiles)
            made.append((number, extra, member))
        return made

    def _lose_empty(self, elements: Elements, own: str, local: Mapping[str, DataType]) -> Elements:
        """Work in which sums are NaN for rows whose scores are all negative infinity, as these have
        no difference from the maximum."""
        values: list[Value] = []
        numbers: dict[int, int] = {}
        for number, value in enumerate(elements.values):
            value = renumber(value, numbers)
            values.append(value)
            if isinstance(value, Read) and value.view.tensor in local.keys() - {own}:
                at = len(values) - 1
                values += (
                    Read(dataclasses.replace(value.view, tensor=own), value.dtype),
                    ir.Constant(DataType.FLOAT32, -math.inf),
                    ir.Apply(OPERATIONS["eq"], (at + 1, at + 2), DataType.BOOL),
                    ir.Constant(DataType.FLOAT32, math.nan),
                    ir.Select(at + 3, at + 4, at, DataType.FLOAT32),
                )
            numbers[number] = len(values) - 1
        results = tuple((view, numbers[number]) for view, number in elements.results)
        return dataclasses.replace(elements, values=tuple(values), results=results)

    def _read_kept(self, view: View, numbers: Sequence[int]) -> View:
        """View read in place of a work item's sums."""
        if not view.local:
            return view
        found, row = self._found, len(numbers)
        (member,) = (m for m in found.totals if m.stage == view.tensor)
        extra = find_extra(found, member)
        steps = [0] * len(view.strides)
        steps[row] = 1 if extra is None else self._shape.part + PAD
        if extra is not None:
            steps[row + 2] = 1
        if member not in self._kept:
            dtype, size = self._tensors[member.stage].dtype, self._shape.rows * steps[row]
            name, wanted = f"{member.stage}#kept", f"{member.stage}_kept"
            made = Buffer(name, dtype, size, self._row, wanted, linear=True, shared=True)
            # Weights, and results stored before, are no longer needed.
            free = [into.buffer for *_, into in self._weights.values()] + [*self._kept.values()]
            taken = [b for m, b in self._kept.items() if find_extra(found, m) in (None, extra)]
            free = [b for b in free if extra is not None and b not in taken and b.size >= size]
            if not free:
                self._buffers.append(made)
            self._kept[member] = (*free, made)[0]
        name = self._kept[member].name
        return View(name, view.dtype, tuple(steps), local=True)

    def _tile_ends(self, member: Member, numbers: Sequence[int]) -> dict[Dim, Dim]:
        """Tiles that work items store."""
        tiles = {self._row: Dim(f"{member.stage}_row", self._shape.rows, within=self._x)}
        if numbers[-1] in self._sides:
            whole = self._dims[numbers[-1]]
            side = Dim(f"{member.stage}_column", self._shape.part, within=whole)
            tiles[self._sides[numbers[-1]]] = side
        return tiles


def _find_weight(elements: Elements, found: Online, numbers: Sequence[int]) -> int | None:
    """Value that is the weight of a point: if all are known, the factor that does not vary along a
    sum's further dimension. None if the sum has no such dimension."""
    if found.largest is None:
        moves = find_moving(elements, len(numbers) - 1)
        values = elements.reductions[0].values
        return next((v for v in values if not moves[v]), None) if numbers[-1] > found.rows else None
    largest = found.largest.stage
    for number, value in enumerate(elements.values):
        if isinstance(value, ir.Apply) and value.operation.name == "exp":
            taken = elements.values[value.operands[0]]
            if isinstance(taken, ir.Apply) and taken.operation.name == "sub":
                right = elements.values[taken.operands[1]]
                if isinstance(right, Read) and right.view.tensor == largest:
                    return number
    raise InternalError(f"no weight by '{largest}' is summed")


def map_views(elements: Elements, change: Callable[[View], View]) -> Elements:
    """Work with other views read."""
    values = [
        dataclasses.replace(v, view=change(v.view)) if isinstance(v, Read) else v
        for v in elements.values
    ]
    return dataclasses.replace(elements, values=tuple(values))
