"""The primitive of online softmax-weighted sums: attention in one kernel.

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
from dmlc.loops.element import Collector, Elements, Read, View
from dmlc.loops.legality import MOST_ITEMS, MOST_SHARED, WIDTHS
from dmlc.loops.naive import find_kept
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
    name_apart,
    number_steps,
)
from dmlc.loops.online_phases import PAD, Phases, Shape, find_extra, map_views
from dmlc.loops.phases import VECTOR, Phase
from dmlc.loops.script import Argument, On, ScheduleError, demand, primitive
from dmlc.loops.tiling import count_points
from dmlc.transform.online import Online, match_online, place_derived
from dmlc.transform.passes import Member

_N = Argument.NUMBER


@primitive(_N, _N, _N, _N, _N, _N, takes_loop=False)
def online(on: On, lanes: int, rows: int, keys: int, across: int, depth: int, turn: int) -> Nest:
    """Sums weighted by the exponential of scores, or by factors of these, for `rows` of a work
    group, in blocks of so many `keys`; no score is stored. A work item has vectors of `lanes` rows;
    so many (`across`) share these. If `depth` is not 0, queries and keys are in shared memory,
    `depth` elements at a time, and so are the values of `turn` keys. It is the only call of a
    script, and replaces all loops of the naive nest. Changes the order of sums.

    `for row: {for k: s[k] = sum(d: q(row, d) * x(k, d)); m = max(k: s[k]); for e: o = sum(k:
    exp(s[k] - m) * v(k, e))} -> for rows of a group: for block of k: {s[k in block] = sum(d:
    q(row, d) * x(k, d)); if max(s) > m: o *= exp(m - max(s)), m = max(s); for e: o[e] += sum(k in
    block: exp(s[k] - m) * v(k, e))}`
    """
    limits, shape = on.limits, Shape(lanes, rows, keys, across, depth, turn)
    found = match(on.function, on.nest.phases)
    if found is None:
        raise ScheduleError("there are no sums of a row that are weighted by its scores")
    demand(min(lanes, rows, keys, across) > 0, "a group has rows and keys, and a block has keys")
    if depth:
        demand(lanes == VECTOR, f"a work item has vectors of {VECTOR} rows")
        demand(rows % lanes == keys % across == 0, "work items share rows and keys evenly")
        demand(turn > 0 and keys % turn == 0, "values of a block's keys are shared in equal parts")
        demand(shape.items <= MOST_ITEMS, f"a group has {MOST_ITEMS:,} work items at most")
        demand(keys // across * lanes <= MOST_SHARED, "too many scores to write out")
    else:
        demand(limits.vector_lanes == 0, "the target has no vectors of rows")
        demand(lanes in WIDTHS, "a work item has 4, 8 or 16 rows")
        demand(rows == lanes and across == 1 and turn == 0,
                "work items that share nothing have rows of their own")  # fmt: skip
        demand(keys <= MOST_SHARED, "too many scores to write out")
    return _Nests(on.function, found.online, found.ends, shape, limits).choose()


@dataclasses.dataclass(frozen=True, slots=True)
class Matched:
    """A pattern with the element-wise stages derived from it, and the sums that are not stored."""

    online: Online
    derived: tuple[Member, ...]
    local: frozenset[str]

    @property
    def ends(self) -> tuple[Member, ...]:
        """Sums that are stored, and what is derived from them."""
        return (*(m for m in self.online.totals if m.stage not in self.local), *self.derived)


def match(function: ir.Function, phases: Sequence[Phase]) -> Matched | None:
    """Pattern of some phases; None if they have none."""
    reduced = {a.name for phase in phases for a in phase.accumulators}
    found = match_online(function, reduced) if find_kept(phases) else None
    if found is None:
        return None
    stored = {v.tensor for p in phases if not p.accumulators for v, _ in p.elements.results}
    derived: list[Member] = []
    for name in function.sort_tensors(stored - reduced):
        stage = function.stage(name)
        member = stage and place_derived(function, stage, found, reduced)
        if member is None:
            return None
        derived.append(member)
    return Matched(found, tuple(derived), frozenset(reduced - stored))


def collect_online(
    function: ir.Function, found: Online, derived: Sequence[Member], local: Sequence[str]
) -> tuple[Phase, ...]:
    """Phases of a pattern: the scores, which lie along a row, the sums of a row, and what stores
    them and is `derived` from them; those in `local` are not stored."""
    matched = Matched(found, tuple(derived), frozenset(local))
    tensors, rows = function.tensors(), range(found.rows)
    scores = {member.stage for member in found.scores}
    near = {m.stage: tensors[m.stage].dtype for m in found.members}

    def collect(member: Member, parallel: Sequence[int], inner: Sequence[int]) -> Phase:
        numbers = (*parallel, *inner)
        domain = tuple(found.sizes[n] for n in numbers)
        known = {name: dtype for name, dtype in near.items() if name != member.stage}
        collector = Collector(function, domain, known, len(parallel))
        axes = {index: numbers.index(d) for index, d in member.axes if d in numbers}
        if inner:
            collector.add_reduction(member.stage, axes)
        elif member in found.totals:
            collector.add_copy(member.stage, axes)
        else:
            collector.add_stage(member.stage, axes)

        def place(view: View) -> View:
            # An array has the scores of a row.
            steps = tuple(int(n == found.rows) for n in numbers)
            return dataclasses.replace(view, strides=steps) if view.tensor in scores else view

        elements = map_views(collector.elements(), place)
        return Phase(elements.with_parallel(range(len(parallel))))

    made = [
        collect(member, (*rows, found.rows), (d,))
        for d, member in enumerate(found.scores, found.rows + 1)
    ]
    for extra in dict.fromkeys((None, *(find_extra(found, m) for m in found.totals))):
        own = (*rows, *([] if extra is None else [extra]))
        made += [
            collect(member, own, (found.rows,))
            for member in found.totals
            if find_extra(found, member) == extra
        ]
        made += [
            collect(member, own, ())
            for member in matched.ends
            if find_extra(found, member) == extra
        ]
    return tuple(made)


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
            nodes = (self._loop_rows(nodes), *self._write_ends())
        else:
            nodes = self._write_copies(nodes)
        before = (_fill_all(self._before, repeats=False),) if self._before else ()
        parts = [(dim, 1) for n, dim in enumerate(self._dims[: found.rows]) if n != found.along]
        tiles = number_steps("tile", [*parts, (self._x, shape.rows)])
        items = (("rows", shape.rows // lanes), ("columns", shape.across)) if self._sides else ()
        return Nest(
            tuple(self._phases),
            tuple(self._axes),
            name_apart((Loop(tiles, Kind.GROUP, 1, (*before, *nodes), "tile"),)),
            lanes=items,
            buffers=tuple(self._buffers),
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
        node = self._loop_columns(side, (Point(number),))
        if (many := count_points(side) // shape.part) > 1:
            output = VECTOR * lanes
            node = Loop(side, Kind.UNROLL, shape.part, (node,), "part", many, output=output)
        node = self._write_out(self._turn, node)
        node = Loop(side, Kind.LANE, VECTOR, (node,), "columns", shape.across)
        tiles, many = self._strips.get(extra), shape.keys // shape.turn
        filled = (_fill_all(tiles, repeats=True),) if tiles else ()
        return Loop(self._key, Kind.LOOP, shape.turn, (*filled, node), "strip", many)

    def _loop_columns(self, side: Dim, nodes: tuple[Node, ...]) -> Node:
        """Loop over a work item's columns of a part of a tile."""
        return Loop(side, Kind.UNROLL, 1, nodes, "column", VECTOR, output=self._shape.lanes)

    def _write_out(self, dim: Dim, node: Node) -> Node:
        """Loop over all points of a tile."""
        return Loop(dim, Kind.UNROLL, 1, (node,), dim.name, count_points(dim))

    def _loop_rows(self, nodes: tuple[Node, ...]) -> Node:
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
        for extra in dict.fromkeys((None, *(find_extra(found, m) for m in found.sums))):
            kept: list[tuple[Buffer, Node]] = []
            for member, buffer in self._kept.items():
                if find_extra(found, member) == extra:
                    kept.append((buffer, self._store_partial(member, buffer, extra)))
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

    def _store_partial(self, member: Member, buffer: Buffer, extra: int | None) -> Node:
        """Stores a work item's part of a sum to a tile."""
        shape, numbers = self._shape, self._own(extra)
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
        elements = Elements(collector.elements().space, (Read(view, buffer.dtype),), ((held, 0),))
        lane = tile[0][1]
        put = Into(buffer, buffer.dim, tile=tuple(tile), lane=lane, in_vectors=lane == 1)
        node: Node = Point(self._add(elements, numbers, tiles=tiles), (put,))
        for column in tiles.values():
            node = self._loop_columns(column, (node,))
            node = Loop(column, Kind.LANE, VECTOR, (node,), "columns", shape.across)
        return self._loop_rows((node,))

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
        return (self._loop_rows(nodes), *after)

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
        self._phases[number] = Phase(elements)
        copied = Elements(elements.space, (Read(own, dtype),), ((view, 0),))
        self._phases.append(Phase(copied))
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
