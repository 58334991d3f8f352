"""The loops of a kernel on a CPU: long runs of elements in vectors, one run per work item."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.build import Builder, Shape
from dmlc.kernel.element import View, lies_together
from dmlc.kernel.emit import Emitter, Position, add, index, multiply, operate, split_words
from dmlc.kernel.lanes import Lanes, find_lanes
from dmlc.kernel.picked import spread_loads, start_again
from dmlc.kernel.tiles import find_crossing_axis, lower_tiles
from dmlc.transform.pick import LANES


def lower_run(b: Builder) -> Shape:
    """A work item computes `per_item` adjacent elements, in vectors and then one by one."""
    count, per_item = b.take_count(), b.profile.per_item
    launch = k.Launch(b.walk.count, per_item, 1)
    words = f"each computes {per_item:,} adjacent elements"
    emitter = Emitter(b.elements, b.names, b.depth(lambda axis: 1), numbered=True)
    group = k.Position(k.Geometry.GROUP)
    begin = b.let("begin", multiply(group, per_item))
    end = b.let("end", operate("min", add(begin.local, index(per_item)), count))
    streaming, lead, flags = b.streaming_run(count) if _takes_vectors(b, 0) else ({}, None, [])
    body: list[k.Statement] = [*emitter.lets(0, b.fixed), begin, end, *flags]
    start: k.Expression = begin.local
    if lead is not None:
        # Every run starts a whole number of cache lines into the memory, so that the first
        # aligned vector is as far into each.
        reached = operate("min", add(begin.local, lead), end.local)
        start_let = b.let("vector_begin", reached)
        body.append(start_let)
        start = start_let.local
    loops = _loop_vectors(b, emitter, 1, 0, {}, start, end.local, streaming, begin.local)
    return Shape(launch, words, body + loops)


def lower_nest(function: ir.Function, b: Builder) -> Shape:
    """Constant loops over the inner dimensions; the outer ones are found from the number of
    the work item."""
    crossing = find_crossing_axis(b)
    if crossing is not None:
        return lower_tiles(b, crossing)
    sizes = b.sizes()
    last, per_item = len(sizes) - 1, b.profile.per_item
    split = last
    while split > 0 and math.prod(sizes[split - 1 :]) <= per_item:
        split -= 1
    if sizes[last] > per_item:
        return _nest_pieces(function, b, sizes)
    inner = math.prod(sizes[split:])
    blocks = math.prod(sizes[:split])
    run = min(max(1, per_item // inner), blocks)
    launch = k.Launch(blocks, run, 1)
    words = f"each computes {run * inner:,} elements"
    depths = {axis: 1 if axis < split else axis - split + 2 for axis in range(last + 1)}
    emitter = Emitter(b.elements, b.names, b.depth(lambda axis: depths[axis]), numbered=True)
    streaming, flags = b.streaming()
    lanes = _find_lanes(function, b, last, aligned=bool(streaming))
    if lanes is None and not _takes_vectors(b, last) and not _narrows(b, last):
        streaming, flags = {}, []
    body: list[k.Statement] = [*emitter.lets(0, b.fixed), *flags]

    def make(block: k.Expression) -> list[k.Statement]:
        known: dict[int, k.Expression] = {}
        inside = b.decompose(block, list(enumerate(sizes[:split])), known)
        inside += emitter.lets(1, b.at(known))
        return inside + _nest(b, emitter, split, split, known, streaming, lanes)

    return Shape(launch, words, body + b.share_blocks(blocks, run, make))


def _nest_pieces(function: ir.Function, b: Builder, sizes: tuple[int, ...]) -> Shape:
    """Rows longer than a work item's share are cut into pieces."""
    last, per_item = len(sizes) - 1, b.profile.per_item
    rows, pieces = math.prod(sizes[:-1]), -(-sizes[-1] // per_item)
    launch = k.Launch(rows * pieces, 1, 1)
    words = f"each computes {per_item:,} elements of a row"
    depths = {axis: 1 if axis < last else 2 for axis in range(last + 1)}
    emitter = Emitter(b.elements, b.names, b.depth(depths.__getitem__), numbered=True)
    lanes = _find_lanes(function, b, last, aligned=True)
    lanes = None if lanes is None or lanes.first else lanes
    in_vectors = _takes_vectors(b, last) or lanes is not None
    streaming, flags = b.streaming() if in_vectors else ({}, [])
    body: list[k.Statement] = [*emitter.lets(0, b.fixed), *flags]
    piece: k.Expression = k.Position(k.Geometry.GROUP)
    known: dict[int, k.Expression] = {}
    if rows > 1:
        row = b.let("row", operate("div", piece, index(pieces)))
        piece = operate("mod", piece, index(pieces))
        body += [row, *b.decompose(row.local, list(enumerate(sizes[:-1])), known)]
    begin = b.let("begin", multiply(piece, per_item))
    stop = operate("min", add(begin.local, index(per_item)), index(sizes[-1]))
    end = b.let("end", stop)
    body += [begin, end, *emitter.lets(1, b.at(known))]
    bases = b.bases(known, last, body)
    if lanes is None:
        body += _loop_vectors(b, emitter, 2, last, bases, begin.local, end.local, streaming)
        return Shape(launch, words, body)
    whole: k.Expression = end.local
    if lanes.last < sizes[last]:
        whole = operate("max", begin.local, operate("min", end.local, index(lanes.last)))
        vector_end = b.let("vector_end", whole)
        body.append(vector_end)
        whole = vector_end.local
    body += _loop_lanes(b, lanes, depths, known, bases, begin.local, whole, streaming)
    body += _loop_places(b, emitter, 2, last, bases, whole, end.local)
    return Shape(launch, words, body)


def _nest(
    b: Builder,
    emitter: Emitter,
    split: int,
    axis: int,
    known: dict[int, k.Expression],
    streaming: dict[str, k.Expression],
    lanes: Lanes | None,
) -> list[k.Statement]:
    """The loops over dimensions `axis` and further in."""
    sizes = b.sizes()
    level = axis - split + 2
    body: list[k.Statement] = []
    if axis == len(sizes) - 1:
        bases = b.bases(known, axis, body)
        if lanes is None:
            start, stop = index(0), index(sizes[axis])
            return body + _loop_vectors(b, emitter, level, axis, bases, start, stop, streaming)
        first, stop, size = index(lanes.first), index(lanes.last), index(sizes[axis])
        depths = {a: 1 if a < split else a - split + 2 for a in range(axis + 1)}
        before = _loop_places(b, emitter, level, axis, bases, index(0), first)
        vectors = _loop_lanes(b, lanes, depths, known, bases, first, stop, streaming)
        after = _loop_places(b, emitter, level, axis, bases, stop, size)
        return body + before + vectors + after
    variable = k.Local(b.names.take(f"i{axis}"), k.INDEX)
    inner = {**known, axis: variable}
    body += emitter.lets(level, b.at(inner))
    body += _nest(b, emitter, split, axis + 1, inner, streaming, lanes)
    return [k.For(variable, index(0), index(sizes[axis]), 1, tuple(body))]


def _loop_vectors(
    b: Builder,
    emitter: Emitter,
    level: int,
    axis: int,
    bases: dict[View, k.Expression],
    start: k.Expression,
    stop: k.Expression,
    streaming: dict[str, k.Expression],
    begin: k.Expression | None = None,
) -> list[k.Statement]:
    """The innermost loop: whole vectors from `start`, and what is left over one by one, before it
    from `begin` (where that is not `start` itself) and after."""
    lanes = b.profile.lanes
    variable = k.Local(b.names.take("i"), k.INDEX)

    def at(place: k.Expression) -> Position:
        return _place_at(b, axis, bases, place)

    position = at(variable)

    def inner(width: int) -> tuple[k.Statement, ...]:
        made = emitter.lets(level, position, width)
        return (*made, *emitter.stores(position, width, streaming))

    if not _takes_vectors(b, axis):
        if _narrows(b, axis) and isinstance(stop, k.Literal):
            return _loop_blocks(b, emitter, level, at, int(stop.value), streaming)
        return [k.For(variable, start, stop, 1, inner(1))]
    if isinstance(stop, k.Literal):
        whole = int(stop.value) // lanes * lanes
        loops: list[k.Statement] = []
        if whole:
            loops.append(k.For(variable, start, index(whole), lanes, inner(lanes)))
        if whole != stop.value:
            loops.append(k.For(variable, index(whole), stop, 1, inner(1)))
        return loops
    left_over = operate("mod", operate("sub", stop, start), index(lanes))
    middle = b.let("vector_end", operate("sub", stop, left_over))
    before: list[k.Statement] = []
    if begin is not None and begin != start:
        before.append(k.For(variable, begin, start, 1, inner(1)))
    return [
        middle,
        *before,
        k.For(variable, start, middle.local, lanes, inner(lanes)),
        k.For(variable, middle.local, stop, 1, inner(1)),
    ]


def _loop_places(
    b: Builder,
    emitter: Emitter,
    level: int,
    axis: int,
    bases: dict[View, k.Expression],
    first: k.Expression,
    last: k.Expression,
) -> list[k.Statement]:
    """The innermost loop over some places, one by one."""
    if first == last:
        return []
    variable = k.Local(b.names.take("i"), k.INDEX)
    position = _place_at(b, axis, bases, variable)
    made = (*emitter.lets(level, position), *emitter.stores(position, 1, {}))
    return [k.For(variable, first, last, 1, made)]


def _find_lanes(function: ir.Function, b: Builder, axis: int, *, aligned: bool) -> Lanes | None:
    """Which places along the innermost axis go together, where not all lies side by side, or
    depends on where it is. Of floats that are read at even steps, compilers make vectors as
    good."""
    small = any(view.dtype.bytes < 4 for view in b.elements.buffers())
    if not b.elements.has_positions and (not small or _takes_vectors(b, axis)):
        return None
    return find_lanes(function, [(b.elements, b.walk, axis)], aligned=aligned)


def _loop_lanes(
    b: Builder,
    lanes: Lanes,
    depths: Mapping[int, int],
    known: dict[int, k.Expression],
    bases: dict[View, k.Expression],
    first: k.Expression,
    last: k.Expression,
    streaming: dict[str, k.Expression],
) -> list[k.Statement]:
    """The innermost loop over places that go together, though their reads lie apart. `depths` gives
    the scope that each axis is walked in."""
    axis = len(b.sizes()) - 1
    (patterns,), (slants,), (fixed,) = lanes.patterns, lanes.slants, lanes.fixed
    emitter = Emitter(
        b.elements,
        b.names,
        b.depth(depths.__getitem__),
        wide=lambda view: bool(b.walk.strides[view][axis]),
        spread=spread_loads(patterns, b.let),
        slants=slants,
        fixed=fixed,
    )
    body: list[k.Statement] = []
    for outer in range(depths[axis]):
        body += emitter.lets(outer, b.at(known))
    place = k.Local(b.names.take("i"), k.INDEX)
    position = _place_at(b, axis, bases, place)
    variable, inside = place, list[k.Statement]()
    if (lanes.last - lanes.first) % LANES:
        variable, inside = start_again(b, place, lanes.last)
    inside += emitter.lets(depths[axis], position, LANES)
    inside += emitter.stores(position, LANES, streaming)
    return [*body, k.For(variable, first, last, LANES, tuple(inside))]


def _place_at(
    b: Builder, axis: int, bases: dict[View, k.Expression], place: k.Expression
) -> Position:
    """Positions at a place along the innermost axis."""
    steps = {view: strides[axis] for view, strides in b.walk.strides.items()}
    return lambda view: add(bases.get(view, index(view.offset)), multiply(place, steps[view]))


def _takes_vectors(b: Builder, axis: int) -> bool:
    """Whether neighbours along an axis are computed together: all lies side by side there."""
    return lies_together(b.elements, b.walk.strides, axis)


def _narrows(b: Builder, axis: int) -> bool:
    """Whether results that lie side by side along an axis are stored in 16 bits: converting them
    one by one takes longer than most of what they are computed from."""
    results = [view for view, _ in b.elements.results]
    beside = all(b.walk.strides[view][axis] == 1 for view in results)
    return beside and any(view.dtype.is_storage_only for view in results)


def _loop_blocks(
    b: Builder,
    emitter: Emitter,
    level: int,
    at: Callable[[k.Expression], Position],
    size: int,
    streaming: dict[str, k.Expression],
) -> list[k.Statement]:
    """The innermost loop, computed one by one and stored in vectors."""
    lanes, variable = b.profile.lanes, k.Local(b.names.take("i"), k.INDEX)
    whole = size // lanes * lanes
    loops: list[k.Statement] = []
    if whole:
        block, lane = k.Local(b.names.take("block"), k.INDEX), k.Local(b.names.take("j"), k.INDEX)
        arrays = {
            view: b.take_array(f"{split_words(view.tensor)}_block", view.dtype.compute, lanes)
            for view, _ in b.elements.results
        }
        body: list[k.Statement] = [k.Let(variable, add(block, lane))]
        body += emitter.lets(level, at(variable))
        body += [
            k.Put(arrays[view].name, lane, emitter.value(value))
            for view, value in b.elements.results
        ]
        stores = [
            k.Store(
                view.tensor,
                at(block)(view),
                k.Element(arrays[view].name, index(0), k.Type(view.dtype.compute, lanes)),
                streaming.get(view.tensor),
            )
            for view, _ in b.elements.results
        ]
        inside = (k.For(lane, index(0), index(lanes), 1, tuple(body)), *stores)
        loops.append(k.For(block, index(0), index(whole), lanes, inside))
    if whole != size:
        left = at(variable)
        made = (*emitter.lets(level, left), *emitter.stores(left, 1, streaming))
        loops.append(k.For(variable, index(whole), index(size), 1, made))
    return loops
