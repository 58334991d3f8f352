"""The schedule of softmax-weighted sums that are computed online: attention in one kernel.

Each lane has a row of scores: a work item on a GPU, and a lane of the vectors of one on a CPU. It
goes through the keys in blocks, which are the same for all rows of a group. A block takes the
scores of its keys, the largest one, the weights, and what they add to the sums, which stay in
registers. What is read of the rows is put into a tile first, where lanes lie side by side.

Where all weights are known, as in the gradient of attention, there is no largest score. Then the
factor of each sum that is the same for all columns is what sums weigh by: one for each of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from dmlc import ir
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.element import (
    Collector,
    Elements,
    Gather,
    Place,
    Read,
    Reduction,
    Value,
    View,
    find_moving,
    operands,
    prune,
    renumber,
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
    Where,
    number_steps,
)
from dmlc.loops.phases import VECTOR, Accumulator, Phase, make_accumulators
from dmlc.loops.reached import find_reached
from dmlc.loops.space import Space
from dmlc.loops.staging import STAGED
from dmlc.loops.tiling import takes_vectors
from dmlc.scalars import OPERATIONS, DataType
from dmlc.sizes import measure
from dmlc.source import InternalError
from dmlc.transform.fuse import Group
from dmlc.transform.online import KEYS, Online
from dmlc.transform.passes import Member

_ITEMS = 64
"""Work items of a group."""
_SHARED = 16 << 10
"""Bytes of what is read of the rows of a group, at most, that lie in shared memory. More are a
private array of each work item."""
_KEY_BYTES = 8 << 10
"""Bytes of tiles of keys, from which on no more are put there."""
_ACROSS = 16
"""Work items that read a key side by side."""


def _none(number: int) -> Reduction:
    """What keeps a value."""
    return Reduction("sum", (number,), None, None, DataType.FLOAT32)


def choose_recomputed(function: ir.Function, group: Group, p: Profile, limits: Limits) -> Nest:
    """The nest of a group whose sums are computed online."""
    if group.online is None:
        raise InternalError(f"no group that is computed online: {', '.join(group.stages)}")
    (members,) = group.passes
    derived = [m for m in members.members if m not in group.online.members]
    local = frozenset(group.local)
    return _Rows(function, group.online, derived, local, p, limits).choose()


class _Rows:
    """A nest in the making."""

    def __init__(
        self,
        function: ir.Function,
        found: Online,
        derived: Sequence[Member],
        local: frozenset[str],
        p: Profile,
        limits: Limits,
    ) -> None:
        self._limits = limits
        self._function, self._found, self._derived, self._local = function, found, derived, local
        self._tensors = function.tensors()
        self._lanes = p.lanes
        self._items = _ITEMS if p.lanes == 1 else p.lanes
        count = found.rows
        inner = len(found.scores)
        names = [f"i{n}" for n in range(count)] + ["k", *(f"d{n or ''}" for n in range(inner))]
        names += [f"e{n or ''}" for n in range(len(found.sizes) - len(names))]
        self._dims = [Dim(name, size) for name, size in zip(names, found.sizes, strict=True)]
        self._x, self._k = self._dims[found.along], self._dims[count]
        self._row = Dim("row", self._items, within=self._x)
        self._key = Dim("key", KEYS, within=self._k)
        self._phases: list[Phase] = []
        self._axes: list[tuple[Dim, ...]] = []
        self._buffers: list[Buffer] = []
        self._tiles: dict[tuple[Elements, int], View] = {}
        """What stands for what is read of rows, and of keys, by the dimension besides. Scores and
        sums have tiles of their own: compilers kept what both read in registers, and spilled."""
        self._weights: dict[Elements | None, tuple[View, int, Into]] = {}
        """What sums weigh by: what is read, the phase that puts it there, and where."""
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
        domain = (*(self._found.sizes[n] for n in numbers), self._items, KEYS)
        return Collector(self._function, domain, local, parallel)

    def _place(self, member: Member, numbers: Sequence[int]) -> dict[ir.Index, int]:
        """The axis of some work that each index of a stage is."""
        return {i: numbers.index(d) for i, d in member.axes if d in numbers}

    def _add(
        self, elements: Elements, numbers: Sequence[int], states: tuple[Accumulator, ...] = ()
    ) -> int:
        """A phase over some dimensions; gives its number."""
        strides = {view: view.strides for view in elements.views()}
        parallel = *(n for n, d in enumerate(numbers) if d < self._found.rows), len(numbers)
        sizes = tuple(map(measure, elements.domain))
        self._phases.append(Phase(elements, Space(sizes, strides, parallel), states))
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
        """The same with tiles in place of what is read of rows, and of keys; each is filled by a
        phase. What is computed from either alone is computed once, as the tile is filled."""
        strides = {view: view.strides for view in elements.views()}
        moving = {n: find_moving(elements, strides, axis) for axis, n in enumerate(numbers)}
        along, keys = moving[self._found.along], moving.get(self._found.rows)
        if keys is not None and numbers[-1] != self._found.rows:
            inner = moving[numbers[-1]]
            for of_rows in (True, False):
                taken = sum(buffer.size * buffer.dtype.bytes for buffer, _ in self._within)
                if not of_rows and (self._lanes > 1 or taken > _KEY_BYTES):
                    continue
                fits = [
                    inner[n] and along[n] is of_rows and keys[n] is not of_rows
                    for n in range(len(elements.values))
                ]
                elements = self._replace(elements, fits, numbers)
        if self._lanes == 1:
            return elements
        # A tile has no flags, but what they choose.
        own = [isinstance(v, Read | ir.Select) and along[n] for n, v in enumerate(elements.values)]
        return self._replace(elements, own, numbers)

    def _replace(
        self, elements: Elements, fits: Sequence[bool], numbers: Sequence[int]
    ) -> Elements:
        """The same with tiles for the largest of some values made of what is read alone."""
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
                made = prune(dataclasses.replace(elements, results=(), reductions=(_none(number),)))
                work = dataclasses.replace(made, reductions=())
                key = work, numbers[-1]
                if key not in self._tiles:
                    self._tiles[key] = self._fill(work, numbers)
                values[number] = Read(self._tiles[key], value.dtype)
        # Those that stand for nothing any longer keep their numbers until here.
        return prune(dataclasses.replace(elements, values=tuple(values)))

    def _fill(self, elements: Elements, numbers: Sequence[int]) -> View:
        """The tile of the last value of some work, for which a phase is made that fills it."""
        count, dtype = len(self._tiles), elements.values[-1].dtype
        (first, *_) = elements.buffers()
        own = f"{first.tensor}{count or ''}"
        strides = {view: view.strides for view in elements.views()}
        moves = [n for axis, n in enumerate(numbers) if find_moving(elements, strides, axis)[-1]]
        of_rows, of_keys = self._found.along in moves, self._found.rows in moves
        row = Dim(f"{own}_row", self._items, within=self._x)
        key = Dim(f"{own}_key", KEYS, within=self._k)
        sides = [(d, self._dims[d], self._found.sizes[d]) for d in moves if d > self._found.rows]
        is_shared = self._lanes == 1
        if of_rows and is_shared:
            # Each work item fills what it reads.
            is_shared, row = (
                self._share_bytes() + self._items * 4 * sides[0][2] <= _SHARED,
                self._row,
            )
        apart = of_rows and (is_shared or self._lanes > 1)
        size, places = (self._items if apart else 1), [0] * (len(numbers) + 2)
        loops, tile = list[tuple[Dim, int]](), list[tuple[Dim, int]]()
        if apart:
            tile, places[-2] = [(row, 1)], 1
            loops = [(row, self._items)] if self._lanes > 1 else []
        last = row
        if of_keys:
            sides.append((self._found.rows, key, KEYS))
        for number, dim, extent in sides:
            places[-1 if dim is key else numbers.index(number)] = size
            loops.append((dim, extent))
            tile.append((dim, size))
            last, size = dim, size * extent
        made = View(f"{own}#tile", dtype, tuple(places), local=True)
        buffer = Buffer(
            made.tensor, dtype, size, last, f"{first.tensor}_tile", linear=True, shared=is_shared
        )
        self._buffers.append(buffer)
        work = dataclasses.replace(elements, results=((made, len(elements.values) - 1),))
        node: Node = Point(self._add(work, numbers), (Into(buffer, last, tile=tuple(tile)),))
        if not of_rows:
            ((inner, extent), _) = loops
            node = self._share(node, inner, extent, key, numbers)
        else:
            for dim, extent in reversed(loops):
                kind = Kind.LOOP if self._lanes > 1 else Kind.UNROLL
                steps = 0 if dim.within is None and self._lanes > 1 else extent
                node = Loop(dim, kind, 1, (node,), dim.name, steps)
        (self._within if of_keys else self._before).append((buffer, node))
        return made

    def _share_bytes(self) -> int:
        """What tiles of rows take of shared memory so far."""
        held = (buffer for buffer, _ in self._before if buffer.shared)
        return sum(buffer.size * buffer.dtype.bytes for buffer in held)

    def _share(self, node: Node, inner: Dim, extent: int, key: Dim, numbers: Sequence[int]) -> Node:
        """How work items fill a tile of keys: neighbours read side by side, in vectors where they
        can."""
        axis = numbers.index(self._dims.index(inner))
        width = VECTOR if takes_vectors(self._phases[-1], axis, self._limits) else 1
        across = math.gcd(extent // width, _ACROSS)
        down = min(KEYS, self._items // across)
        if width > 1:
            node = Loop(inner, Kind.VECTOR, width, (node,), inner.name, 1)
        parts = extent // width // across
        own = key.name.removesuffix("_key")
        if parts > 1:
            node = Loop(inner, Kind.UNROLL, width * across, (node,), inner.name, parts)
        node = Loop(inner, Kind.LANE, width, (node,), f"{own}_columns", across)
        if down < KEYS:
            node = Loop(key, Kind.UNROLL, down, (node,), key.name, KEYS // down)
        return Loop(key, Kind.LANE, 1, (node,), f"{own}_rows", down)

    def _reduce(self, member: Member, numbers: Sequence[int], local: Mapping[str, DataType]) -> int:
        """A phase that reduces one stage."""
        collector = self._collect(numbers, local, self._found.rows + 1)
        collector.add_reduction(member.stage, self._place(member, numbers))
        elements = self._stage(self._read_lanes(collector.elements()), numbers)
        dtype = self._tensors[member.stage].dtype
        return self._add(elements, numbers, make_accumulators(elements, [(member.stage, dtype, 0)]))

    def _find_reached(self) -> int | None:
        """The phase that says whether any score of a block and the rows of a group counts; None
        where that may be so of all."""
        found, numbers = self._found, self._own(self._found.rows)
        collector = self._collect(numbers, self._list_local(found.scores), found.rows + 1)
        for member in found.totals if found.largest is None else [found.largest]:
            collector.add_reduction(member.stage, self._place(member, numbers))
        spans = {found.along: self._items - 1, found.rows: KEYS - 1}
        reached = find_reached(collector.elements(), spans)
        return None if reached is None else self._add(reached, numbers)

    def _list_local(self, members: Sequence[Member]) -> dict[str, DataType]:
        """The types of what is at hand."""
        return {m.stage: self._tensors[m.stage].dtype for m in members}

    def _weigh(self, local: Mapping[str, DataType]) -> list[tuple[int, Dim | None]]:
        """The phases of the sums, each with the dimension that it keeps besides rows."""
        found = self._found
        scores = {member.stage for member in found.scores}
        made: list[tuple[int, Dim | None]] = []
        for member in found.sums:
            extra = [d for _, d in member.axes if d > found.rows]
            numbers = self._own(found.rows, *extra)
            collector = self._collect(numbers, local, found.rows + 1)
            collector.add_reduction(member.stage, self._place(member, numbers))
            elements = self._read_lanes(collector.elements())
            weight = _find_weight(elements, found, numbers)
            if weight is not None:
                elements = self._keep_weight(elements, weight, numbers, found.largest is not None)
                elements = prune(elements)
            for number, value in enumerate(elements.values):
                # What a sum reads of a point has a place of its own for each key, as weights have.
                if isinstance(value, Read) and value.view.tensor in scores:
                    elements = self._keep_weight(elements, number, numbers, False)
            elements = self._stage(elements, numbers)
            dtype = self._tensors[member.stage].dtype
            states = make_accumulators(elements, [(member.stage, dtype, 0)])
            made.append(
                (self._add(elements, numbers, states), self._dims[extra[0]] if extra else None)
            )
        return made

    def _keep_weight(
        self, elements: Elements, weight: int, numbers: Sequence[int], is_one: bool
    ) -> Elements:
        """The same with a value read that a phase puts into registers before, for each key of a
        block; `is_one` where it is the weight of all sums."""
        plain = self._own(self._found.rows)
        work = prune(dataclasses.replace(elements, results=(), reductions=(_none(weight),)))
        work = _keep_axes(dataclasses.replace(work, reductions=()), numbers, plain)
        key = None if is_one else work
        if key not in self._weights:
            name = f"weights{len(self._weights) or ''}#block"
            steps = (*(0 for _ in plain), int(self._lanes > 1), self._lanes)
            view = View(name, DataType.FLOAT32, steps, local=True)
            buffer = Buffer(
                name, DataType.FLOAT32, KEYS * self._lanes, self._key, "weights", linear=True
            )
            self._buffers.append(buffer)
            work = dataclasses.replace(work, results=((view, len(work.values) - 1),))
            number = self._add(self._stage(work, plain), plain)
            self._weights[key] = view, number, Into(buffer, self._key, self._lanes)
        view, *_ = self._weights[key]
        own = dataclasses.replace(view, strides=(*(0 for _ in numbers), *view.strides[-2:]))
        values = list(elements.values)
        values[weight] = Read(own, DataType.FLOAT32)
        return dataclasses.replace(elements, values=tuple(values))

    def _finish(self) -> list[tuple[int, Dim | None, Member]]:
        """The phases of what leaves."""
        found = self._found
        local = self._list_local(found.totals)
        stored = [m for m in found.totals if m.stage not in self._local]
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
            elements = self._read_lanes(collector.elements())
            if found.largest is not None:
                elements = self._lose_empty(elements, found.largest.stage, local)
            elements = self._stage(elements, numbers)
            made.append(
                (self._add(elements, numbers), self._dims[extra[0]] if extra else None, member)
            )
        return made

    def _lose_empty(self, elements: Elements, own: str, local: Mapping[str, DataType]) -> Elements:
        """The same where sums are NaN of rows all of whose scores are negative infinities, which
        are no distance from the largest one."""
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

    # The nest --------------------------------------------------------------------------------

    def choose(self) -> Nest:
        """The nest."""
        found, lanes, is_wide = self._found, self._lanes, self._lanes > 1
        scores = [
            (self._reduce(m, self._own(found.rows, found.rows + 1 + n), {}), found.rows + 1 + n)
            for n, m in enumerate(found.scores)
        ]
        at_hand = self._list_local(found.scores)
        largest: int | None = None
        if found.largest is not None:
            largest = self._reduce(found.largest, self._own(found.rows), at_hand)
            at_hand |= self._list_local([found.largest])
        sums = self._weigh(at_hand)
        ends = self._finish()
        inner = Kind.LOOP if is_wide else Kind.UNROLL
        block: list[Node] = []
        tile = Tile(KEYS, lanes, lanes, lanes, registers=True)
        for number, place in scores:
            d = self._dims[place]
            count = 0 if is_wide else self._measure(d)
            node: Node = Loop(d, inner, 1, (self._keys(Point(number)),), d.name, count)
            block.append(Reduce(number, (node,), array=True, tile=tile))
        if largest is not None:
            numbers = tuple(number for number, _ in sums)
            block.append(Rescale(largest, numbers, (self._keys(Point(largest)),)))
        block += [self._keys(Point(number, (into,))) for _, number, into in self._weights.values()]
        for number, extra in sums:
            node = self._keys(Point(number), counted=False)
            if extra is not None and is_wide:
                part = Tile(1, lanes, lanes, lanes, registers=True)
                node = Reduce(number, (node,), array=True, resumes=True, tile=part)
            if extra is not None:
                count = 0 if is_wide else self._measure(extra)
                node = Loop(extra, inner, 1, (node,), extra.name, count, output=lanes)
            block.append(node)
        if self._within:
            block.insert(0, _fill_all(self._within, repeats=True))
        reached = self._find_reached()
        if reached is not None:
            block = [Where(reached, tuple(block))]
        nodes: tuple[Node, ...] = (Loop(self._k, Kind.LOOP, KEYS, tuple(block), "block"),)
        for number, extra in reversed(sums):
            if extra is None:
                nodes = (Reduce(number, nodes),)
                continue
            tile = Tile(self._measure(extra), lanes, lanes, lanes, registers=not is_wide)
            nodes = (Reduce(number, nodes, array=True, tile=tile),)
        if largest is not None:
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
                    extra,
                    inner,
                    1,
                    (node,),
                    extra.name,
                    0 if is_wide else self._measure(extra),
                    output=lanes,
                )
            nodes = (*nodes, node)
        if is_wide:
            nodes = (Loop(self._row, Kind.VECTOR, lanes, nodes, "row", 1),)
        # What a group shares is filled by all its work items, and a private array by its own.
        kinds = [[t for t in self._before if t[0].shared is shared] for shared in (True, False)]
        filled = tuple(_fill_all(tiles, repeats=False) for tiles in kinds if tiles)
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

    def _measure(self, dim: Dim) -> int:
        """The size of a dimension."""
        return self._found.sizes[self._dims.index(dim)]

    def _keys(self, node: Node, *, counted: bool = True) -> Node:
        """What is done for each key of a block."""
        output = self._lanes if counted else 0
        return Loop(self._key, Kind.UNROLL, 1, (node,), "key", KEYS, output=output)

    def _copy(self, number: int, extra: Dim | None, member: Member) -> tuple[Point, Node]:
        """A point that puts what leaves into a tile, lanes side by side, and what copies that."""
        phase, axes = self._phases[number], self._axes[number]
        ((view, root),) = phase.elements.results
        dtype = phase.elements.values[root].dtype
        name = f"{member.stage}#rows"
        size = self._lanes * (1 if extra is None else self._measure(extra))
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
            node = Loop(extra, Kind.LOOP, 1, (node,), extra.name)
        node = Loop(row, Kind.LOOP, 1, (node,), "row", self._items)
        return Point(number, (Into(buffer, buffer.dim, 1 if extra is None else self._lanes),)), node


def _fill_all(tiles: Sequence[tuple[Buffer, Node]], *, repeats: bool) -> Stage:
    return Stage(tuple(b for b, _ in tiles), tuple(node for _, node in tiles), repeats=repeats)


def _find_weight(elements: Elements, found: Online, numbers: Sequence[int]) -> int | None:
    """The value of some work that is the weight of a point: where all are known, the factor that
    is the same for all that a sum keeps besides rows. None where the sum keeps nothing."""
    if found.largest is None:
        strides = {view: view.strides for view in elements.views()}
        moves = find_moving(elements, strides, len(numbers) - 1)
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
