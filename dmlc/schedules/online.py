"""Schedule of online softmax-weighted sums: attention in one kernel.

Each lane of a vector has one row of scores, and visits the keys in blocks, which are the same for
all rows of a group. A block computes the scores of its keys, their maximum, the weights, and their
contributions to the sums, which stay in registers. Operands of the rows are first copied to a tile
with lanes contiguous.

On a GPU, both products are distributed like matrix products: a work item has some rows by some keys
of the scores, and the same rows by some columns of the sums. Items that share rows reduce the
maximum together, and exchange weights through a tile.

If all weights are known, as in the gradient of attention, there is no maximum. The weights of each
sum are then its factor that is the same for all columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dmlc import ir
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.element import Elements, Read, View
from dmlc.loops.nodes import (
    Buffer,
    Dim,
    Into,
    Kind,
    Loop,
    Nest,
    Node,
    Point,
    Reduce,
    Rescale,
    Stage,
    Tile,
    Where,
    number_steps,
)
from dmlc.loops.phases import VECTOR, Phase
from dmlc.loops.tiling import count_points, measure_shared
from dmlc.schedules.online_phases import PAD, Phases, Shape
from dmlc.source import InternalError
from dmlc.transform.fuse import Group
from dmlc.transform.online import Online
from dmlc.transform.passes import Member

_SHAPES = (
    (64, Shape(4, 64, 32, 4, 8, 4)),
    (96, Shape(4, 64, 32, 4, 4, 4)),
    (96, Shape(4, 64, 64, 8, 8, 8)),
    (96, Shape(4, 64, 32, 8, 4, 4)),
    (96, Shape(4, 32, 64, 8, 4, 8)),
    (96, Shape(4, 32, 32, 16, 4, 4)),
    (256, Shape(4, 16, 16, 16, 4, 4)),
)
"""Shapes for GPUs: the first that fits in a group's memory, with no more scores and sums per work
item. RADV spills registers with many more of these, and with longer strips."""
_SHARED = 1 << 15
"""Largest shared memory of a group in bytes, which Direct3D guarantees."""


def choose_online(function: ir.Function, group: Group, p: Profile, limits: Limits) -> Nest:
    """Nest of a group whose sums are computed online."""
    found = group.online
    if found is None:
        raise InternalError(f"no group that is computed online: {', '.join(group.stages)}")
    (members,) = group.passes
    derived = [m for m in members.members if m not in found.members]
    local = frozenset(group.local)
    shapes = [Shape(p.lanes, p.lanes)]
    if p.grouped:
        shapes = [shape for most, shape in _SHAPES if _count_sums(found, shape) <= most]
    for shape in shapes:
        nest = _Nests(function, found, derived, local, shape, limits).choose()
        # Maxima, and sums with only the rows as domain, are also combined there.
        plain = [m for m in found.totals if len(m.axes) == found.rows + 1]
        joined = 4 * len(plain) * shape.lanes * shape.items
        if measure_shared(nest.buffers) + joined <= _SHARED or shape is shapes[-1]:
            return nest
    raise InternalError("no sizes of tiles")


def _count_sums(found: Online, shape: Shape) -> int:
    """Number of scores and sums per work item."""
    columns = found.sizes[found.rows + 1 + len(found.scores) :]
    parts = sum(-(-size // shape.part) * VECTOR for size in columns)
    return shape.lanes * (len(found.scores) * shape.keys // shape.across + parts)


class _Nests(Phases):
    """A nest under construction."""

    def choose(self) -> Nest:
        """The nest."""
        found, shape = self._found, self._shape
        scores = [
            (self._reduce(member, self._own(found.rows, d), {}), d)
            for member, d in zip(found.scores, self._inner, strict=True)
        ]
        at_hand, largest = self._list_local(found.scores), None
        if found.largest is not None:
            largest = self._reduce(found.largest, self._own(found.rows), at_hand)
            at_hand |= self._list_local([found.largest])
        sums, lanes = self._weigh(at_hand), shape.lanes
        block = [self._write_scores(*each) for each in scores]
        if largest is not None:
            grown: Node = self._keys(Point(largest))
            if self._sides:
                grown = Reduce(largest, (grown,), joins="columns")
            block.append(Rescale(largest, tuple(number for number, _ in sums), (grown,)))
        weights = [(w.buffer, self._keys(Point(n, (w,)))) for _, n, w in self._weights.values()]
        if self._sides and weights:
            block.append(_fill_all(weights, repeats=True))
        else:
            block += [node for _, node in weights]
        block += [self._write_sum(number, extra) for number, extra in sums]
        if self._within:
            block.insert(0, _fill_all(self._within, repeats=True))
        reached = self._find_reached()
        if reached is not None:
            block = [Where(reached, tuple(block))]
        nodes: tuple[Node, ...] = (Loop(self._k, Kind.LOOP, shape.keys, tuple(block), "block"),)
        for number, extra in reversed(sums):
            if extra is None:
                nodes = (Reduce(number, nodes),)
                continue
            side = self._sides.get(extra, self._dims[extra])
            tile = Tile(
                count_points(side) // shape.across, lanes, lanes, lanes, registers=bool(self._sides)
            )
            nodes = (Reduce(number, nodes, array=True, tile=tile),)
        if largest is not None:
            nodes = (Reduce(largest, nodes),)
        if self._sides:
            nodes = (self._take_rows(nodes), *self._write_ends())
        else:
            nodes = self._write_copies(nodes)
        before = (_fill_all(self._before, repeats=False),) if self._before else ()
        parts = [(dim, 1) for n, dim in enumerate(self._dims[: found.rows]) if n != found.along]
        tiles = number_steps("tile", [*parts, (self._x, shape.rows)])
        items = (("rows", shape.rows // lanes), ("columns", shape.across)) if self._sides else ()
        each = f"{lanes} a work item" if self._sides else "a lane each"
        return Nest(
            tuple(self._phases),
            tuple(self._axes),
            (Loop(tiles, Kind.GROUP, 1, (*before, *nodes), "tile"),),
            lanes=items,
            buffers=tuple(self._buffers),
            words=f"a group goes through all keys for {shape.rows} rows, {each}",
        )

    def _write_scores(self, number: int, place: int) -> Node:
        """Computes the scores of a work item's rows and keys."""
        shape, d = self._shape, self._dims[place]
        tile = Tile(shape.keys // shape.across, *(shape.lanes,) * 3, registers=True)
        if not self._sides:
            node = Loop(d, Kind.LOOP, 1, (self._keys(Point(number)),), d.name)
        else:
            node = self._keys(Point(number), lambda n: self._write_out(self._sides[place], n))
            nodes = (_fill_all(self._strips[place], repeats=True), node)
            node = Loop(d, Kind.LOOP, shape.depth, nodes, "strip")
        return Reduce(number, (node,), array=True, tile=tile)

    def _write_sum(self, number: int, extra: int | None) -> Node:
        """Adds a block's contribution to a sum, for the work item's columns if it has some."""
        lanes = self._shape.lanes
        if extra is None:
            return self._keys(Point(number), counted=bool(self._sides))
        if not self._sides:
            tile = Tile(1, lanes, lanes, lanes, registers=True)
            node: Node = self._keys(Point(number), counted=False)
            node = Reduce(number, (node,), array=True, resumes=True, tile=tile)
            dim = self._dims[extra]
            return Loop(dim, Kind.LOOP, 1, (node,), dim.name, output=lanes)
        side, shape = self._sides[extra], self._shape
        node = self._take_columns(side, (Point(number),))
        if (many := count_points(side) // shape.part) > 1:
            output = VECTOR * lanes
            node = Loop(side, Kind.UNROLL, shape.part, (node,), "part", many, output=output)
        node = self._write_out(self._turn, node)
        node = Loop(side, Kind.LANE, VECTOR, (node,), "columns", shape.across)
        tiles, many = self._strips.get(extra), shape.keys // shape.turn
        filled = (_fill_all(tiles, repeats=True),) if tiles else ()
        return Loop(self._key, Kind.LOOP, shape.turn, (*filled, node), "strip", many)

    def _take_columns(self, side: Dim, nodes: tuple[Node, ...]) -> Node:
        """Loop over a work item's columns of a part of a tile."""
        return Loop(side, Kind.UNROLL, 1, nodes, "column", VECTOR, output=self._shape.lanes)

    def _write_out(self, dim: Dim, node: Node) -> Node:
        """Loop over all points of a tile."""
        return Loop(dim, Kind.UNROLL, 1, (node,), dim.name, count_points(dim))

    def _take_rows(self, nodes: tuple[Node, ...]) -> Node:
        """Loop over a work item's rows, or over those of a vector."""
        shape = self._shape
        node: Node = Loop(self._row, Kind.VECTOR, shape.lanes, nodes, "row", 1)
        if not self._sides:
            return node
        return Loop(self._row, Kind.LANE, shape.lanes, (node,), "rows", shape.rows // shape.lanes)

    # What leaves: work items put it into a tile, and store that side by side --------------------

    def _write_ends(self) -> list[Node]:
        """Stores of the results on a GPU."""
        found, shape, ends = self._found, self._shape, self._finish()
        made: list[Node] = []
        extras = dict.fromkeys(d for m in found.sums for _, d in m.axes if d > found.rows)
        for extra in (None, *extras):
            kept: list[tuple[Buffer, Node]] = []
            for member, buffer in self._kept.items():
                if next((d for _, d in member.axes if d > found.rows), None) == extra:
                    kept.append((buffer, self._keep(member, buffer, extra)))
            nodes: list[Node] = [_fill_all(kept, repeats=extra is not None)] if kept else []
            for number, own, member in ends:
                if own == extra:
                    tiles = {d.name.rpartition("_")[2]: d for d in self._axes[number]}
                    sides = [(tiles["row"], shape.rows)]
                    if extra is not None:
                        sides.insert(0, (tiles["column"], shape.part))
                    nodes.append(self._share(number, sides, member.stage))
            if extra is not None:
                dim, many = self._dims[extra], count_points(self._sides[extra]) // shape.part
                output = VECTOR * shape.lanes
                nodes = [
                    Loop(dim, Kind.UNROLL, shape.part, tuple(nodes), "part", many, output=output)
                ]
            made += nodes
        return made

    def _keep(self, member: Member, buffer: Buffer, extra: int | None) -> Node:
        """Stores a work item's part of a sum to a tile."""
        shape, numbers = self._shape, self._own(*([] if extra is None else [extra]))
        collector = self._collect(numbers, {}, 0)
        steps = (*(1 for _ in numbers), 1, 0)
        tiles, tile = dict[Dim, Dim](), [(self._row, 1)]
        if extra is not None:
            steps = (*steps, 1, 0)
            column = Dim(f"{member.stage}_part", shape.part, within=self._dims[extra])
            tiles[self._sides[extra]] = column
            tile = [(self._row, shape.part + PAD), (column, 1)]
        view = View(member.stage, buffer.dtype, steps, local=True)
        held = View(buffer.name, buffer.dtype, (0,) * len(steps), local=True)
        elements = Elements(collector.elements().domain, (Read(view, buffer.dtype),), ((held, 0),))
        lane = tile[0][1]
        put = Into(buffer, buffer.dim, tile=tuple(tile), lane=lane, in_vectors=lane == 1)
        node: Node = Point(self._add(elements, numbers, tiles=tiles), (put,))
        for column in tiles.values():
            node = self._take_columns(column, (node,))
            node = Loop(column, Kind.LANE, VECTOR, (node,), "columns", shape.across)
        return self._take_rows((node,))

    def _write_copies(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Stores of the results on a CPU, after some nodes."""
        after: list[Node] = []
        for number, extra, member in self._finish():
            dim = None if extra is None else self._dims[extra]
            point, copied = self._copy(number, dim, member)
            after.append(copied)
            node: Node = point
            if dim is not None:
                node = Loop(dim, Kind.LOOP, 1, (node,), dim.name, output=self._shape.lanes)
            nodes = (*nodes, node)
        return (self._take_rows(nodes), *after)

    def _measure(self, dim: Dim) -> int:
        """Size of a dimension."""
        return self._found.sizes[self._dims.index(dim)]

    def _keys(
        self, node: Node, around: Callable[[Node], Node] | None = None, *, counted: bool = True
    ) -> Node:
        """Loop over a work item's keys of a block."""
        shape = self._shape
        each, output = shape.keys // shape.across, shape.lanes if counted else 0
        node = Loop(self._key, Kind.UNROLL, 1, (node,), "key", each, output=output)
        node = node if around is None else around(node)
        if not self._sides:
            return node
        return Loop(self._key, Kind.LANE, each, (node,), "columns", shape.across)

    def _copy(self, number: int, extra: Dim | None, member: Member) -> tuple[Point, Node]:
        """Point that stores a result to a tile with lanes contiguous, and the node that copies that
        to memory."""
        phase, axes = self._phases[number], self._axes[number]
        ((view, root),) = phase.elements.results
        dtype = phase.elements.values[root].dtype
        name = f"{member.stage}#rows"
        size = self._shape.lanes * (1 if extra is None else self._measure(extra))
        row = Dim(f"{member.stage}_row", self._shape.rows, within=self._x)
        buffer = Buffer(name, dtype, size, extra or self._row, f"{member.stage}_rows", linear=True)
        self._buffers.append(buffer)
        steps = [self._shape.lanes * (dim is extra) for dim in axes[:-2]]
        own = View(name, dtype, (*steps, 1, 0), local=True)
        elements = dataclasses.replace(phase.elements, results=((own, root),))
        strides = {v: phase.space.strides.get(v, own.strides) for v in elements.views()}
        space = dataclasses.replace(phase.space, strides=strides)
        self._phases[number] = Phase(elements, space)
        copied = Elements(elements.domain, (Read(own, dtype),), ((view, 0),))
        space = dataclasses.replace(space, strides={own: own.strides, view: view.strides})
        self._phases.append(Phase(copied, space))
        self._axes.append((*axes[:-2], row, self._key))
        node: Node = Point(len(self._phases) - 1)
        if extra is not None:
            node = Loop(extra, Kind.LOOP, 1, (node,), extra.name)
        node = Loop(row, Kind.LOOP, 1, (node,), "row", self._shape.rows)
        return Point(
            number, (Into(buffer, buffer.dim, 1 if extra is None else self._shape.lanes),)
        ), node


def _fill_all(tiles: Sequence[tuple[Buffer, Node]], *, repeats: bool) -> Stage:
    return Stage(tuple(b for b, _ in tiles), tuple(node for _, node in tiles), repeats=repeats)
