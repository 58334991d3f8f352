"""The schedule of softmax-weighted sums that are computed online: attention in one kernel.

Each lane has a row of scores: a work item on a GPU, and a lane of the vectors of one on a CPU. It
goes through the keys in blocks, which are the same for all rows of a group. A block takes the
scores of its keys, the largest one, the weights, and what they add to the sums, which stay in
registers. What is read of the rows is put into a tile first, where lanes lie side by side.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from dmlc import ir
from dmlc.kernel.target import Profile
from dmlc.loops.element import (
    Collector,
    Elements,
    Gather,
    Place,
    Read,
    Value,
    View,
    operands,
    prune,
)
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
    number_steps,
)
from dmlc.loops.phases import Accumulator, Phase, make_accumulators
from dmlc.loops.space import Space
from dmlc.scalars import OPERATIONS, DataType
from dmlc.source import InternalError
from dmlc.transform.fuse import Group
from dmlc.transform.online import Online
from dmlc.transform.passes import Member

_KEYS = 8
"""Keys of a block: their scores are computed side by side, in registers."""
_ITEMS = 128
"""Work items of a group."""


def choose_online(function: ir.Function, group: Group, p: Profile) -> Nest:
    """The nest of a group whose sums are computed online."""
    if group.online is None:
        raise InternalError(f"no group that is computed online: {', '.join(group.stages)}")
    (members,) = group.passes
    derived = [m for m in members.members if m not in group.online.members]
    local = frozenset(group.local)
    return _Rows(function, group.online, derived, local, p).choose()


class _Rows:
    """A nest in the making."""

    def __init__(
        self,
        function: ir.Function,
        found: Online,
        derived: Sequence[Member],
        local: frozenset[str],
        p: Profile,
    ) -> None:
        self._function, self._found, self._derived, self._local = function, found, derived, local
        self._tensors = function.tensors()
        self._lanes = p.lanes
        self._items = _ITEMS if p.lanes == 1 else p.lanes
        count = found.rows
        names = [f"i{n}" for n in range(count)] + ["k", "d"]
        names += [f"e{n or ''}" for n in range(len(found.sizes) - count - 2)]
        self._dims = [Dim(name, size) for name, size in zip(names, found.sizes, strict=True)]
        self._x, self._k = self._dims[found.along], self._dims[count]
        self._row = Dim("row", self._items, within=self._x)
        self._key = Dim("key", _KEYS, within=self._k)
        self._phases: list[Phase] = []
        self._axes: list[tuple[Dim, ...]] = []
        self._buffers: list[Buffer] = []
        self._tiles: dict[View, View] = {}
        """What stands for what is read of the rows."""
        self._before: list[tuple[Buffer, Node]] = []
        """What fills tiles once, and for each block of keys."""
        self._within: list[tuple[Buffer, Node]] = []

    # What is computed ------------------------------------------------------------------------

    def _own(self, *further: int) -> tuple[int, ...]:
        """The numbers of the dimensions of rows, and of some others."""
        return (*range(self._found.rows), *further)

    def _collect(
        self, numbers: Sequence[int], local: Mapping[str, DataType], parallel: int
    ) -> Collector:
        """For work over some dimensions, and then over rows and keys of a block."""
        domain = (*(self._found.sizes[n] for n in numbers), self._items, _KEYS)
        return Collector(self._function, domain, local, parallel)

    def _place(self, member: Member, numbers: Sequence[int]) -> dict[ir.Index, int]:
        """The axis of some work that each index of a stage is."""
        return {i: numbers.index(d) for i, d in member.axes if d in numbers}

    def _add(
        self, elements: Elements, numbers: Sequence[int], states: tuple[Accumulator, ...] = ()
    ) -> int:
        """A phase over some dimensions; gives its number."""
        strides = {view: view.strides for view in elements.views()}
        parallel = tuple(n for n, d in enumerate(numbers) if d < self._found.rows)
        self._phases.append(Phase(elements, Space(elements.domain, strides, parallel), states))
        self._axes.append((*(self._dims[n] for n in numbers), self._row, self._key))
        return len(self._phases) - 1

    def _read_lanes(self, elements: Elements) -> Elements:
        """The same with what is at hand read lane by lane: it differs from row to row."""
        along = self._found.along

        def change(view: View) -> View:
            if not view.local or view.strides[-2]:
                return view
            strides = (*view.strides[:-2], view.strides[along], view.strides[-1])
            return dataclasses.replace(view, strides=strides)

        return _map_views(elements, change)

    def _stage(self, elements: Elements, numbers: Sequence[int]) -> Elements:
        """The same with tiles in place of what is read of the rows; each is filled by a phase."""
        along = self._found.along
        axes = [self._dims[n] for n in numbers]

        def change(view: View) -> View:
            if view.local or not view.strides[along]:
                return view
            if self._lanes == 1 and self._k in [
                axes[a] for a in range(len(axes)) if view.strides[a]
            ]:
                return view
            if view not in self._tiles:
                self._tiles[view] = self._fill(view, numbers)
            return self._tiles[view]

        return _map_views(elements, change)

    def _fill(self, view: View, numbers: Sequence[int]) -> View:
        """The tile of what is read, for which a phase is made that fills it."""
        wide, count = self._lanes > 1, len(self._tiles)
        name, own = f"{view.tensor}#tile{count or ''}", f"{view.tensor}{count or ''}"
        step, strides = self._lanes, [0] * len(view.strides)
        strides[-2] = int(wide)
        row = Dim(f"{own}_row", self._items, within=self._x)
        key = Dim(f"{own}_key", _KEYS, within=self._k)
        loops, tile, size = [(row, self._items)] if wide else [], [(row, 1)] if wide else [], step
        last, moves = row, False
        for axis, number in enumerate(numbers):
            dim = self._dims[number]
            if not view.strides[axis] or number < self._found.rows:
                continue
            if dim is self._k:
                last, count, moves, strides[-1] = key, _KEYS, True, step
            else:
                last, count, strides[axis] = dim, self._found.sizes[number], step
            loops.append((last, count))
            tile.append((last, step))
            size *= count
        dtype = view.dtype.compute
        made = View(name, dtype, tuple(strides), local=True)
        buffer = Buffer(name, dtype, size, last, f"{view.tensor}_tile", linear=True)
        self._buffers.append(buffer)
        elements = Elements(
            (*(self._found.sizes[n] for n in numbers), self._items, _KEYS),
            (Read(view, dtype),), ((made, 0),),
        )  # fmt: skip
        into = Into(buffer, last, tile=tuple(tile))
        node: Node = Point(self._add(elements, numbers), (into,))
        for dim, count in reversed(loops):
            kind = Kind.LOOP if wide else Kind.UNROLL
            node = Loop(
                dim, kind, 1, (node,), dim.name, 0 if dim.within is None and wide else count
            )
        (self._within if moves else self._before).append((buffer, node))
        return made

    def _reduce(self, member: Member, numbers: Sequence[int], local: Mapping[str, DataType]) -> int:
        """A phase that reduces one stage."""
        collector = self._collect(numbers, local, self._found.rows + 1)
        collector.add_reduction(member.stage, self._place(member, numbers))
        elements = self._stage(self._read_lanes(collector.elements()), numbers)
        dtype = self._tensors[member.stage].dtype
        return self._add(elements, numbers, make_accumulators(elements, [(member.stage, dtype, 0)]))

    def _weigh(
        self, local: Mapping[str, DataType]
    ) -> tuple[int, Into, list[tuple[int, Dim | None]]]:
        """The phase of the weights of a block, where it puts them, and those of the sums, each
        with the dimension that it keeps besides rows."""
        found = self._found
        weights = View("weights#block", DataType.FLOAT32, (), local=True)
        made: list[tuple[int, Dim | None]] = []
        first: Elements | None = None
        for member in found.sums:
            extra = [d for _, d in member.axes if d > found.rows]
            numbers = self._own(found.rows, *extra)
            collector = self._collect(numbers, local, found.rows + 1)
            collector.add_reduction(member.stage, self._place(member, numbers))
            elements = self._read_lanes(collector.elements())
            weight = _find_weight(elements, found.largest.stage)
            own = dataclasses.replace(
                weights, strides=(*(0 for _ in numbers), int(self._lanes > 1), self._lanes)
            )
            if first is None:
                plain = self._own(found.rows)
                first = dataclasses.replace(elements, results=((own, weight),), reductions=())
                first = self._stage(_keep_axes(prune(first), numbers, plain), plain)
            values = list(elements.values)
            values[weight] = Read(own, DataType.FLOAT32)
            elements = prune(dataclasses.replace(elements, values=tuple(values)))
            elements = self._stage(elements, numbers)
            dtype = self._tensors[member.stage].dtype
            states = make_accumulators(elements, [(member.stage, dtype, 0)])
            made.append(
                (self._add(elements, numbers, states), self._dims[extra[0]] if extra else None)
            )
        if first is None:
            raise InternalError("nothing is summed online")
        buffer = Buffer(
            weights.tensor, DataType.FLOAT32, _KEYS * self._lanes, self._key, "weights", linear=True
        )
        self._buffers.append(buffer)
        into = Into(buffer, self._key, self._lanes)
        return self._add(first, self._own(found.rows)), into, made

    def _finish(self) -> list[tuple[int, Dim | None, Member]]:
        """The phases of what leaves."""
        found = self._found
        local = {m.stage: self._tensors[m.stage].dtype for m in (found.largest, *found.sums)}
        stored = [m for m in (found.largest, *found.sums) if m.stage not in self._local]
        made: list[tuple[int, Dim | None, Member]] = []
        for member in (*stored, *self._derived):
            extra = [d for _, d in member.axes if d > found.rows]
            numbers = self._own(*extra)
            collector = self._collect(numbers, local, len(numbers))
            axes = self._place(member, numbers)
            if member in stored:
                collector.add_copy(member.stage, axes)
            else:
                collector.add_stage(member.stage, axes)
            elements = self._lose_empty(self._read_lanes(collector.elements()), local)
            made.append(
                (self._add(elements, numbers), self._dims[extra[0]] if extra else None, member)
            )
        return made

    def _lose_empty(self, elements: Elements, local: Mapping[str, DataType]) -> Elements:
        """The same where sums are NaN of rows all of whose scores are negative infinities, which
        are no distance from the largest one."""
        own = self._found.largest.stage
        values: list[Value] = []
        numbers: dict[int, int] = {}
        for number, value in enumerate(elements.values):
            if isinstance(value, ir.Apply | ir.Select | ir.Cast):
                value = ir.with_operands(value, tuple(numbers[o] for o in operands(value)))
            elif not isinstance(value, Read) and operands(value):
                terms = tuple((numbers[n], step) for n, step in value.terms)
                value = dataclasses.replace(value, terms=terms)
            values.append(value)
            if isinstance(value, Read) and value.view.local and value.view.tensor in local:
                if value.view.tensor != own:
                    values.append(Read(dataclasses.replace(value.view, tensor=own), value.dtype))
                    at = len(values)
                    values.append(ir.Constant(DataType.FLOAT32, -math.inf))
                    values.append(ir.Apply(OPERATIONS["eq"], (at - 1, at), DataType.BOOL))
                    values.append(ir.Constant(DataType.FLOAT32, math.nan))
                    values.append(ir.Select(at + 1, at + 2, at - 2, DataType.FLOAT32))
            numbers[number] = len(values) - 1
        results = tuple((view, numbers[number]) for view, number in elements.results)
        return dataclasses.replace(elements, values=tuple(values), results=results)

    # The nest --------------------------------------------------------------------------------

    def choose(self) -> Nest:
        """The nest."""
        found, lanes, is_wide = self._found, self._lanes, self._lanes > 1
        dtypes = {m.stage: self._tensors[m.stage].dtype for m in found.members}
        scores = self._reduce(found.scores, self._own(found.rows, found.rows + 1), {})
        at_hand = {found.scores.stage: dtypes[found.scores.stage]}
        largest = self._reduce(found.largest, self._own(found.rows), at_hand)
        at_hand[found.largest.stage] = dtypes[found.largest.stage]
        weighted, into, sums = self._weigh(at_hand)
        ends = self._finish()
        inner = Kind.LOOP if is_wide else Kind.UNROLL
        d = self._dims[found.rows + 1]
        node: Node = Loop(d, inner, 1, (self._keys(Point(scores)),), "d", 0 if is_wide else d.size)
        tile = Tile(_KEYS, lanes, lanes, lanes, registers=True)
        block: list[Node] = [Reduce(scores, (node,), array=True, tile=tile)]
        numbers = tuple(number for number, _ in sums)
        block.append(Rescale(largest, numbers, (self._keys(Point(largest)),)))
        block.append(self._keys(Point(weighted, (into,))))
        for number, extra in sums:
            node = self._keys(Point(number), counted=False)
            if extra is not None and is_wide:
                part = Tile(1, lanes, lanes, lanes, registers=True)
                node = Reduce(number, (node,), array=True, resumes=True, tile=part)
            if extra is not None:
                count = 0 if is_wide else extra.size
                node = Loop(extra, inner, 1, (node,), "e", count, output=lanes)
            block.append(node)
        if self._within:
            block.insert(0, _fill_all(self._within))
        nodes: tuple[Node, ...] = (Loop(self._k, Kind.LOOP, _KEYS, tuple(block), "keys"),)
        for number, extra in reversed(sums):
            if extra is None:
                nodes = (Reduce(number, nodes),)
                continue
            tile = Tile(extra.size, lanes, lanes, lanes, registers=not is_wide)
            nodes = (Reduce(number, nodes, array=True, tile=tile),)
        nodes = (Reduce(largest, nodes),)
        after: list[Node] = []
        for number, extra, member in ends:
            point = Point(number)
            if is_wide:
                point, copied = self._copy(number, extra, member)
                after.append(copied)
            node = point
            if extra is not None:
                node = Loop(
                    extra, inner, 1, (node,), "e", 0 if is_wide else extra.size, output=lanes
                )
            nodes = (*nodes, node)
        if is_wide:
            nodes = (Loop(self._row, Kind.VECTOR, lanes, nodes, "row", 1),)
        filled = (_fill_all(self._before),) if self._before else ()
        nodes = (*filled, *nodes, *after)
        if not is_wide:
            nodes = (Loop(self._row, Kind.LANE, 1, nodes, "row", self._items),)
        parts = [(dim, 1) for n, dim in enumerate(self._dims[: found.rows]) if n != found.along]
        tiles = number_steps("tile", [*parts, (self._x, self._items)])
        return Nest(
            tuple(self._phases),
            tuple(self._axes),
            (Loop(tiles, Kind.GROUP, 1, nodes, "tile"),),
            lanes=() if is_wide else (("row", self._items),),
            buffers=tuple(self._buffers),
            words=f"a group goes through all keys for {self._items} rows, a lane each",
        )

    def _keys(self, node: Node, *, counted: bool = True) -> Node:
        """What is done for each key of a block."""
        output = self._lanes if counted else 0
        return Loop(self._key, Kind.UNROLL, 1, (node,), "key", _KEYS, output=output)

    def _copy(self, number: int, extra: Dim | None, member: Member) -> tuple[Point, Node]:
        """A point that puts what leaves into a tile, lanes side by side, and what copies that."""
        phase, axes = self._phases[number], self._axes[number]
        ((view, root),) = phase.elements.results
        dtype = phase.elements.values[root].dtype
        name = f"{member.stage}#rows"
        size = self._lanes * (1 if extra is None else self._found.sizes[self._dims.index(extra)])
        row = Dim(f"{member.stage}_row", self._items, within=self._x)
        buffer = Buffer(name, dtype, size, extra or self._row, f"{member.stage}_rows", linear=True)
        self._buffers.append(buffer)
        steps = [self._lanes * (dim is extra) for dim in axes[:-2]]
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
            node = Loop(extra, Kind.LOOP, 1, (node,), "e")
        node = Loop(row, Kind.LOOP, 1, (node,), "row", self._items)
        return Point(number, (Into(buffer, buffer.dim, 1 if extra is None else self._lanes),)), node


def _fill_all(tiles: Sequence[tuple[Buffer, Node]]) -> Stage:
    return Stage(tuple(b for b, _ in tiles), tuple(node for _, node in tiles))


def _find_weight(elements: Elements, largest: str) -> int:
    """The value of some work that is the weight of a point."""
    for number, value in enumerate(elements.values):
        if isinstance(value, ir.Apply) and value.operation.name == "exp":
            taken = elements.values[value.operands[0]]
            if isinstance(taken, ir.Apply) and taken.operation.name == "sub":
                right = elements.values[taken.operands[1]]
                if isinstance(right, Read) and right.view.tensor == largest:
                    return number
    raise InternalError(f"no weight by '{largest}' is summed")


def _map_views(elements: Elements, change: Callable[[View], View]) -> Elements:
    """The same with other views read."""
    values = [
        dataclasses.replace(v, view=change(v.view)) if isinstance(v, Read) else v
        for v in elements.values
    ]
    return dataclasses.replace(elements, values=tuple(values))


def _keep_axes(elements: Elements, numbers: Sequence[int], kept: Sequence[int]) -> Elements:
    """Work over some dimensions as over those of them alone along which it changes."""
    places = [n for n, number in enumerate(numbers) if number in kept]
    places += [len(numbers), len(numbers) + 1]

    def change(view: View) -> View:
        return dataclasses.replace(view, strides=tuple(view.strides[n] for n in places))

    values = tuple(
        dataclasses.replace(v, view=change(v.view)) if isinstance(v, Read | Place | Gather) else v
        for v in elements.values
    )
    results = tuple((change(view), number) for view, number in elements.results)
    domain = tuple(elements.domain[n] for n in places)
    return dataclasses.replace(elements, domain=domain, values=values, results=results)
