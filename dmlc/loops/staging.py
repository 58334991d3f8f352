"""Primitives of staging: tiles of points, several outputs in registers, and values that the work
items of a group put into shared memory before they read them.

What a tile of a value takes is inferred: the points that move it and that the loops below go over.
Who puts it there is a block of loops like any other, which further calls split, bind and unroll.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from dmlc import ir
from dmlc.kernel.target import Limits
from dmlc.loops.contraction import is_plain, list_divided, part_parallel, settle_quotients
from dmlc.loops.element import (
    Elements,
    Gather,
    Place,
    Read,
    Value,
    View,
    list_conditions,
    list_needed,
    operands,
    prune,
)
from dmlc.loops.legality import (
    MOST_UNROLLED,
    count_steps,
    demand_serial,
    find_path,
    list_around,
    list_cuts,
)
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
    inside,
    list_loops,
    walk,
)
from dmlc.loops.phases import VECTOR, Phase, with_elements
from dmlc.loops.script import Argument, On, ScheduleError, demand, primitive, replace_node
from dmlc.loops.space import Space
from dmlc.scalars import OPERATIONS, DataType
from dmlc.sizes import known as known_sizes
from dmlc.source import InternalError

FACTORS = ("left", "right")
"""What the operands of a product are called that is summed."""


def _list_names(nest: Nest) -> set[str]:
    """What loops and the dimensions that they walk are called."""
    loops = [n for n in walk(nest.body) if isinstance(n, Loop)]
    return {name for n in loops for name in (n.name, n.dim.name)}


@primitive(Argument.NUMBER)
def part(on: On, length: int) -> Nest:
    """A loop over outputs as two, the inner one of so many points, where positions along it are
    divided by that number: the quotients and remainders are what the two loops count.

    `for i in 0..n: f(i / len, i % len) -> for i in 0..n / len: for j in 0..len: f(i, j)`
    """
    loop, nest = demand_serial(on.loop, "parted"), on.nest
    dim = loop.dim
    plain = loop.step == 1 and not dim.parts and dim.piece is None and dim.within is None
    demand(plain and len(list_loops(nest.body, dim)) == 1, "a whole dimension is parted")
    demand(not list_cuts(nest, dim), "a whole dimension is parted")
    axes = {n: own.index(dim) for n, own in enumerate(nest.dims) if dim in own}
    spaces = {number: nest.phases[number].space for number in axes}
    demand(all(axis in spaces[n].parallel for n, axis in axes.items()), "outputs are parted")
    found = [n for n, axis in axes.items() if length in list_divided(nest.phases[n], axis)]
    demand(bool(found), f"no positions along it are divided by {length}")
    phases, dims = list(nest.phases), list(nest.dims)
    if isinstance(dim.size, int) and length >= dim.size:
        for number in found:
            phases[number] = settle_quotients(phases[number], axes[number], length)
        return dataclasses.replace(nest, phases=tuple(phases))
    name = on.take(f"{loop.name}_rest", beside=True)
    size = dim.size if isinstance(dim.size, int) else 1
    demand(size % length == 0, "it does not come out even")
    pair = dataclasses.replace(dim, size=size // length), Dim(name, length)
    for number, axis in axes.items():
        phases[number] = part_parallel(
            phases[number], spaces[number].parallel.index(axis), length
        )
        dims[number] = (*dims[number][:axis], *pair, *dims[number][axis + 1 :])
    inner = Loop(pair[1], Kind.LOOP, 1, loop.body, name)
    nest = on.replace(Loop(pair[0], Kind.LOOP, 1, (inner,), loop.name))
    return dataclasses.replace(nest, phases=tuple(phases), dims=tuple(dims))


@primitive(Argument.NUMBER)
def tile(on: On, size: int) -> Nest:
    """A loop as two, the inner one over a tile of so many points, which are counted from where the
    tile starts. What the last tile has beyond the end is left out, point by point.

    `for i in 0..n -> for i in 0..n by size: for j in 0..size: i + j, if that is less than n`
    """
    loop, nest = demand_serial(on.loop, "tiled"), on.nest
    dim = loop.dim
    alone = loop.step == 1 and len(list_loops(nest.body, dim)) == 1 and not list_cuts(nest, dim)
    demand(alone and dim.within is None, "a dimension in steps is not tiled")
    demand(size > 1, "a tile has two points at least")
    name = on.take(f"{loop.name}_tile", beside=True)
    demand(name not in _list_names(nest), f"there is a dimension '{name}'")
    inner = Loop(Dim(name, size, within=dim), Kind.LOOP, 1, loop.body, name)
    return on.replace(dataclasses.replace(loop, step=size, body=(inner,)))


def _covers(whole: Dim, dim: Dim) -> bool:
    """Whether a point along a dimension says which one it is along another."""
    return whole is dim or any(_covers(part, dim) for part, _ in whole.parts)


# Several outputs at once -----------------------------------------------------------------------


@primitive()
def jam(on: On) -> Nest:
    """The outputs of a loop are reduced side by side, each in an accumulator of its own: in
    registers where the loop is written out. No sum changes its order.

    `for i in 0..4: s = sum(k: f(i, k)); g(i, s) -> for k: for i in 0..4: s[i] += f(i, k)`, and then
    `for i in 0..4: g(i, s[i])`
    """
    loop, nest = on.loop, on.nest
    demand(loop.kind in (Kind.LOOP, Kind.UNROLL) and not loop.interleaved, "work items jam nothing")
    extent = count_steps(nest, loop)
    demand(extent is not None and extent <= MOST_UNROLLED, "too many outputs at once")
    match loop.body:
        case (Reduce() as reduce, *after):
            pass
        case _:
            raise ScheduleError("no reduction comes first in the loop")
    many = extent or 1
    nested = list(walk(reduce.body))
    plain = reduce.ends and not reduce.resumes and reduce.into is None and nest.block is None
    plain = plain and not any(isinstance(n, Reduce | Stage) for n in nested)
    demand(plain and (reduce.tile is not None or not reduce.array), "it is reduced in parts")
    inner = [n for n in nested if isinstance(n, Loop)]
    demand(all(n.kind in (Kind.LOOP, Kind.UNROLL) for n in inner), "work items, or vectors, reduce")
    demand(not any(n.dim.piece is not None and _covers(loop.dim, n.dim.piece[0]) for n in inner),
           "which piece is reduced, the loop says")  # fmt: skip
    demand(not nest.phases[reduce.phase].is_across, "it is reduced in parts")
    found = [n for node in after for n in _list_always(node) if isinstance(n, Reduce)]
    demand(not found, "there is more than one reduction")
    before = reduce.tile or Tile(1, 1, 1, 1, registers=True)
    size = before.rows * before.pitch
    registers = before.registers and loop.kind is Kind.UNROLL
    columns = before.columns if reduce.tile else many
    tile = Tile(size * many // columns, columns, columns, 1, registers=registers)
    names = _Names(nest)

    def put(nodes: Sequence[Node], name: str, *, rare: bool = False) -> Loop:
        kind = Kind.LOOP if rare else loop.kind
        return dataclasses.replace(
            loop, body=tuple(nodes), name=name, kind=kind, extent=many, output=size, backwards=False
        )

    def sink(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        match nodes:
            case (Loop(output=0) as around,):
                return (dataclasses.replace(around, body=sink(around.body)),)
            case _:
                return (put(nodes, loop.name),)

    made: list[Node] = [
        dataclasses.replace(reduce, body=sink(reduce.body), array=True, tile=tile, serial=False)
    ]
    for node in after:
        if isinstance(node, Numbers):
            body = (put(node.body, names.take(loop.name)),)
            others = (put(node.others, names.take(loop.name), rare=True),)
            made.append(dataclasses.replace(node, body=body, others=others))
    rest = [node for node in after if not isinstance(node, Numbers)]
    if rest:
        made.append(put(rest, names.take(loop.name)))
    return _replace_all(nest, loop, made)


def _list_always(node: Node) -> list[Node]:
    """A node and all inside, but what is done in rare cases."""
    nodes = node.body if isinstance(node, Numbers) else inside(node)
    return [node, *(n for each in nodes for n in _list_always(each))]


def _replace_all(nest: Nest, old: Node, new: Sequence[Node]) -> Nest:
    """The nest with several nodes in place of one."""
    *_, around, _ = (None, *find_path(nest.body, old))
    if around is None:
        return dataclasses.replace(
            nest, body=tuple(m for n in nest.body for m in (new if n is old else (n,)))
        )
    if not isinstance(around, Loop | Stage | Numbers):
        raise ScheduleError("it stands in a reduction")
    if isinstance(around, Numbers):
        raise ScheduleError("what is rare is not changed")
    body = tuple(m for n in around.body for m in (new if n is old else (n,)))
    return replace_node(nest, around, dataclasses.replace(around, body=body))


class _Names:
    """Names that no loop has, nor one that was taken here."""

    def __init__(self, nest: Nest) -> None:
        self._taken = _list_names(nest)

    def take(self, wanted: str) -> str:
        stem = wanted.partition(".")[0]
        names = (f"{stem}.{number}" for number in range(2, len(self._taken) + 3))
        name = next(each for each in (wanted, *names) if each not in self._taken)
        self._taken.add(name)
        return name


@primitive()
def recheck(on: On) -> Nest:
    """Where an outcome of the reduction in a loop is no number, which is rare, it is made once more
    as it is now, and so is what derives from it. Calls that follow may leave to that what an
    infinity or no number meets.

    `s = sum(f); g(s) -> s = sum(f); if s is a number: g(s), else: t = sum(f); g(t)`
    """
    loop, nest = on.loop, on.nest
    match loop.body:
        case (Reduce(serial=True) as reduce, *after) if after:
            pass
        case _:
            raise ScheduleError("there is no loop of a serial reduction and what derives from it")
    found = [n for node in loop.body for n in walk((node,))]
    plain = all(isinstance(n, Reduce | Point) or (isinstance(n, Loop) and n.kind is Kind.LOOP)
                for n in found)  # fmt: skip
    single = sum(isinstance(n, Reduce) for n in found) == 1
    demand(plain and single, "there is more than one reduction, or it is not as it was written")
    accumulators = nest.phases[reduce.phase].accumulators
    demand(all(each.reduction.dtype.is_float and each.reduction.combiner == "sum"
               for each in accumulators), "sums of floats are checked")  # fmt: skip
    phases, dims, numbers = list(nest.phases), list(nest.dims), dict[int, int]()
    names, walked = _Names(nest), dict[Dim, Dim]()
    for node in found:
        if isinstance(node, Loop) and node.dim not in walked:
            walked[node.dim] = dataclasses.replace(node.dim, name=names.take(node.dim.name))
    for number in dict.fromkeys(n.phase for n in found if isinstance(n, Reduce | Point)):
        numbers[number] = len(phases)
        phases.append(nest.phases[number])
        dims.append(tuple(walked.get(dim, dim) for dim in nest.dims[number]))

    def copy(node: Node) -> Node:
        match node:
            case Loop():
                name = names.take(node.name)
                body = tuple(map(copy, node.body))
                return dataclasses.replace(node, dim=walked[node.dim], name=name, body=body)
            case Reduce():
                body = tuple(map(copy, node.body))
                return dataclasses.replace(node, phase=numbers[node.phase], body=body)
            case Point():
                return dataclasses.replace(node, phase=numbers[node.phase])
            case _:
                raise InternalError("what is not serial is made once more")

    others = tuple(map(copy, loop.body))
    checked = Numbers(reduce.phase, tuple(after), others)
    nest = on.replace(dataclasses.replace(loop, body=(reduce, checked)))
    return dataclasses.replace(nest, phases=tuple(phases), dims=tuple(dims))


# Values in shared memory -----------------------------------------------------------------------


@primitive(Argument.WORD, Argument.WORD, Argument.WORD, Argument.NUMBER, optional=1)
def stage(on: On, value: str, memory: str, beside: str, pad: int = 0) -> Nest:
    """A value is put into memory that the work items of a group share, for each step of a loop: as
    much of it as the tiles that the loops below go over. It is what is read of a tensor of that
    name, or the `left` or `right` operand of the products that are summed. Along the tile `beside`
    its elements lie side by side, and `pad` more lie between the rows of it. One work item puts it
    there, until calls share the loops out that do.

    `for k in 0..n by 16: s += f(a[i, k]) -> for k in 0..n by 16: t[..] = a[..]; s += f(t[i, k])`
    """
    nest, loop = on.nest, on.loop
    demand(memory == "shared", "values are put into shared memory")
    point = _find_user(loop)
    number, path = point.phase, find_path(nest.body, point)
    phase, dims = nest.phases[number], nest.dims[number]
    own = [axis for axis, dim in enumerate(dims) if dim.within is None]
    root = _find_value(phase, value)
    loops = [n for n in path if isinstance(n, Loop)]
    around = loops[: next(i for i, n in enumerate(loops) if n is loop) + 1]
    tiles = list(dict.fromkeys(n.dim for n in loops if n.dim.within is not None))
    footprint, settled = dict[Dim, None](), set[Dim]()
    for axis in own:
        dim = dims[axis]
        found = [t for t in tiles if t.within is not None and _covers(t.within, dim)]
        if not found and not any(_covers(n.dim, dim) for n in loops[len(around) :]):
            settled.add(dim)
        if phase.find_moving(axis)[root]:
            footprint |= dict.fromkeys(found)
            known = bool(found) or dim in settled
            demand(known, f"what it goes over along '{dim.name}' is no tile")
    footprint = {each: None for each in tiles if each in footprint}
    demand(bool(footprint), "nothing that the loops below go over moves it")
    for each in footprint:
        starts = [n for n in around if each.within is not None and _covers(n.dim, each.within)]
        demand(bool(starts), f"where '{each.name}' starts is not known yet")
    _demand_meeting(nest, loop)
    sides = {each.name: each for each in footprint}
    demand(beside in sides, f"it lies along {' and '.join(sides)}")
    places, step = dict[Dim, int](), 1
    for each in (sides[beside], *(t for t in footprint if t.name != beside)):
        places[each] = step
        step *= _count(each) + (pad if step == 1 else 0)
    taken = {buffer.name for buffer in nest.buffers}
    name = on.name or value
    demand(f"{name}#tile" not in taken, f"there is a tile '{name}'")
    conditions = _list_own(phase, dims, footprint, settled)
    made = stage_value(_without_tiles(phase, own), root, conditions, f"{name}#tile")
    dtype = made.elements.results[0][0].dtype
    first = next(iter(footprint))
    wanted = f"{name.partition('.')[0]}_tile"
    buffer = Buffer(f"{name}#tile", dtype, step, first, wanted, linear=True, shared=True)
    held = sum(b.size * max(4, b.dtype.bytes) for b in (*nest.buffers, buffer) if b.shared)
    demand(held <= _MOST_BYTES, "tiles take more memory than a group has")
    filled, fill = _fill(
        len(nest.phases), name, buffer, footprint, places, is_padded=bool(phase.accumulators)
    )
    for each in filled:
        demand(each.name not in _list_names(nest), f"there is a dimension '{each.name}'")
    read = Read(View(buffer.name, dtype, (), local=True), dtype)
    changed, axes = _read_tile(nest, number, root, read, places, settled)
    stages = Stage((buffer,), (fill,), repeats=loop.kind is not Kind.GROUP)
    body = loop.body
    match body:
        case (Stage() as others, *rest):
            stages = dataclasses.replace(
                others, buffers=(*others.buffers, buffer), body=(*others.body, fill)
            )
            body = tuple(rest)
    nest = on.replace(dataclasses.replace(loop, body=(stages, *body)))
    phases = (*nest.phases[:number], changed, *nest.phases[number + 1 :], made)
    every = (*nest.dims[:number], axes, *nest.dims[number + 1 :], tuple(dims[a] for a in own))
    return dataclasses.replace(nest, phases=phases, dims=every, buffers=(*nest.buffers, buffer))


_MOST_BYTES = 1 << 15
"""Of shared memory: what every language and device gives a group."""


def _count(dim: Dim) -> int:
    if not isinstance(dim.size, int):
        raise InternalError("tiles have so many points")
    return dim.size


def _find_user(loop: Loop) -> Point:
    """The one point inside a loop that may read what is put into memory there."""
    points = [n for node in loop.body if not isinstance(node, Stage)
              for n in walk((node,)) if isinstance(n, Point)]  # fmt: skip
    demand(len(points) == 1 and not points[0].into, "one phase reads what is staged")
    return points[0]


def _find_value(phase: Phase, name: str) -> int:
    """The number of a value that is called so, and can be computed anywhere."""
    elements, found = phase.elements, list[int]()
    if name in FACTORS and len(elements.reductions) == 1:
        product = elements.values[elements.reductions[0].value]
        if isinstance(product, ir.Apply) and product.operation.name == "mul":
            found = [product.operands[FACTORS.index(name)]]
    if not found:
        reads = enumerate(elements.values)
        found = [n for n, v in reads if isinstance(v, Read | Gather) and v.view.tensor == name]
        guards = [f.guard for f in elements.reductions if f.guard is not None]
        tested = {v for guard in guards for v in list_needed(elements, guard)}
        demand(tested.isdisjoint(found), f"'{name}' says which points take part")
    demand(len(found) == 1, f"not one value is called '{name}'")
    dtype = elements.values[found[0]].dtype
    stageable = dtype in STAGED and is_plain(elements, found[0], dtype)
    demand(stageable and not phase.has_several_guards, f"'{name}' cannot be computed elsewhere")
    return found[0]


STAGED = (DataType.FLOAT32, DataType.INT32, DataType.UINT32)
"""The types of what tiles hold."""


def _demand_meeting(nest: Nest, loop: Loop) -> None:
    """Refuses work items that share memory where some of a group may not come, or come more often
    than others."""
    path = find_path(nest.body, loop)
    demand(all(isinstance(n, Loop | Reduce) for n in path), "not all work items come there")
    reduced, lanes = False, list[Dim]()
    for node in path:
        if not isinstance(node, Loop):
            reduced = True
            continue
        own = node.dim.within or node.dim
        if node.kind is Kind.LANE:
            demand(not reduced, "work items reduce different points")
            lanes.append(own)
        if node.kind is Kind.LOOP and not node.extent and not node.interleaved:
            alone = not any(_covers(lane, own) or _covers(own, lane) for lane in lanes)
            demand(alone, "work items take different numbers of steps")
        elif node.kind is not Kind.GROUP:
            finer = node.dim.within is not None and bool(list_loops(node.body, node.dim))
            demand(finer, "work items have points of their own")


def _list_own(
    phase: Phase, dims: Sequence[Dim], footprint: Collection[Dim], settled: Collection[Dim]
) -> list[int]:
    """The conditions of the guard that leave out points of a value with such a footprint: those
    that nothing else moves which is not settled. Refuses those that other outputs move, too."""
    if not any(f.guard is not None for f in phase.elements.reductions):
        return []
    axes = [axis for axis, dim in enumerate(dims) if dim.within is None]
    mine = {a for a in axes if any(_covers(t.within or t, dims[a]) for t in footprint)}
    found: list[int] = []
    for condition in list_conditions(phase.elements):
        moves = [a for a in axes if phase.find_moving(a)[condition]]
        others = [a for a in moves if a not in mine and dims[a] not in settled]
        both = others and mine.intersection(moves, phase.space.parallel)
        demand(not both, "a condition moves several factors")
        found += [] if others else [condition]
    return found


def _fill(
    number: int,
    name: str,
    buffer: Buffer,
    footprint: Iterable[Dim],
    places: Mapping[Dim, int],
    *,
    is_padded: bool,
) -> tuple[list[Dim], Node]:
    """The block that puts a value into its tile, and the dimensions that it walks."""
    own = {t: Dim(f"{name}_{t.wanted}", t.size, within=t.within) for t in footprint}
    tile = tuple((own[each], step) for each, step in places.items())
    node: Node = Point(number, (Into(buffer, tile[0][0], tile=tile, is_padded=is_padded),))
    for dim in reversed(own.values()):
        node = Loop(dim, Kind.LOOP, 1, (node,), dim.name)
    return list(own.values()), node


def _read_tile(
    nest: Nest,
    number: int,
    root: int,
    read: Read,
    places: Mapping[Dim, int],
    settled: Collection[Dim],
) -> tuple[Phase, tuple[Dim, ...]]:
    """A phase that reads a value from its tile, and the dimensions of its axes: those of tiles come
    last."""
    phase, dims = nest.phases[number], nest.dims[number]
    space, outputs = phase.space, [dims[axis] for axis in phase.space.parallel]
    new = [t for t in places if t not in dims]
    axes = range(len(dims), len(dims) + len(new))
    dims = (*dims, *new)
    ends = [a for a in axes if any(_covers(dims[a].within or dims[a], dim) for dim in outputs)]
    steps = tuple(places.get(dim, 0) for dim in dims)
    read = dataclasses.replace(read, view=dataclasses.replace(read.view, strides=steps))
    elements = _replace_value(phase.elements, root, read)
    known = {v: (*s, *(0 for _ in new)) for v, s in space.strides.items()} | {read.view: steps}
    strides = {view: known[view] for view in elements.views()}
    extents = (*space.extents, *map(_count, new))
    space = Space(extents, strides, (*space.parallel, *ends), space.pieces)
    made = _with_reductions(dataclasses.replace(phase, elements=elements, space=space))
    if _reads_tiles(nest, number, made, dims, settled):
        (reduction,) = elements.reductions
        free = dataclasses.replace(reduction, guard=None)
        elements = prune(dataclasses.replace(elements, reductions=(free,)))
        made = _with_reductions(dataclasses.replace(made, elements=elements))
        loops = [n.dim for n in walk(nest.body) if isinstance(n, Loop)]
        kept = [axis for axis, dim in enumerate(dims) if dim.within is not None]
        kept.sort(key=lambda axis: loops.index(dims[axis]))
        return _keep(made, kept), tuple(dims[axis] for axis in kept)
    return made, dims


def _keep(phase: Phase, axes: Sequence[int]) -> Phase:
    """A phase that moves along some of its axes alone."""
    space = phase.space
    parallel = tuple(axes.index(axis) for axis in space.parallel if axis in axes)
    strides = {v: tuple(space.strides[v][a] for a in axes) for v in phase.elements.views()}
    extents = tuple(space.extents[axis] for axis in axes)
    return dataclasses.replace(phase, space=Space(extents, strides, parallel))


def _without_tiles(phase: Phase, axes: Sequence[int]) -> Phase:
    """A phase without the axes of tiles, which come last."""
    space, count = phase.space, len(axes)
    strides = {view: steps[:count] for view, steps in space.strides.items()}
    parallel = tuple(axis for axis in space.parallel if axis < count)
    own = Space(space.extents[:count], strides, parallel, space.pieces)
    return dataclasses.replace(phase, space=own)


def _replace_value(elements: Elements, root: int, read: Read) -> Elements:
    """The same with a read in place of a value: of the sum's, where it is one of its factors."""
    values = list(elements.values)
    if len(elements.reductions) == 1:
        (reduction,) = elements.reductions
        product = values[reduction.value]
        if isinstance(product, ir.Apply) and root in product.operands:
            operands = tuple(len(values) if o == root else o for o in product.operands)
            values += [read, dataclasses.replace(product, operands=operands)]
            reduction = dataclasses.replace(reduction, value=len(values) - 1)
            return prune(
                dataclasses.replace(elements, values=tuple(values), reductions=(reduction,))
            )
    values[root] = read
    return prune(dataclasses.replace(elements, values=tuple(values)))


def _with_reductions(phase: Phase) -> Phase:
    """A phase whose accumulators are of its own reductions."""
    pairs = zip(phase.accumulators, phase.elements.reductions, strict=True)
    made = tuple(dataclasses.replace(each, reduction=own) for each, own in pairs)
    return dataclasses.replace(phase, accumulators=made)


def _reads_tiles(
    nest: Nest, number: int, phase: Phase, dims: Sequence[Dim], settled: Collection[Dim]
) -> bool:
    """Whether all that a sum adds comes from tiles, which are 0 beyond the end and where a
    condition does not hold: then it takes any point that there is in them."""
    elements, space = phase.elements, phase.space
    if len(elements.reductions) != 1 or elements.reductions[0].combiner != "sum":
        return False
    (reduction,) = elements.reductions
    product, numbers = elements.values[reduction.value], (reduction.value,)
    if isinstance(product, ir.Apply) and product.operation.name == "mul":
        numbers = product.operands
    reads = [elements.values[n] for n in numbers]
    views = [v.view for v in reads if isinstance(v, Read) and v.view.local]
    if len(views) < len(reads) or elements.results:
        return False
    own = [[d for d, s in zip(dims, space.strides[v], strict=True) if s] for v in views]
    points = {dims[axis] for axis in space.inner} - settled
    tiles = {dim for dim in points if dim.within is not None}
    covered = all(any(_covers(t.within or t, dim) for t in tiles) for dim in points - tiles)
    if not covered or not all(tiles <= set(each) for each in own):
        return False
    if reduction.guard is None:
        return True
    conditions = [set(_list_own(phase, dims, each, settled)) for each in own]
    if set[int]().union(*conditions) != set(list_conditions(elements)):
        return False
    checked = any(isinstance(n, Numbers) and n.phase == number for n in walk(nest.body))
    apart = reduction.dtype.is_float and any(each != conditions[0] for each in conditions)
    demand(checked or not apart, "a factor is 0 where the other may be no number: recheck it first")
    return True


def stage_value(phase: Phase, root: int, conditions: Sequence[int], name: str) -> Phase:
    """The phase that makes a value of another one, over all axes, for a buffer of that name: 0
    where one of some conditions does not hold."""
    elements = phase.elements
    values: list[Value] = []
    numbers: dict[int, int] = {}
    holds: int | None = None
    bounded: dict[int, int] = {}
    def add(value: Value) -> int:
        values.append(value)
        return len(values) - 1

    def copy(root: int) -> int:
        for number in sorted(list_needed(elements, root)):
            if number in numbers:
                continue
            value = elements.values[number]
            if isinstance(value, Gather):
                terms = tuple((protect(n, value.guarded), step) for n, step in value.terms)
                value = dataclasses.replace(value, terms=terms)
            elif not isinstance(value, Read | Place):
                made = ir.with_operands(value, tuple(numbers[o] for o in operands(value)))
                if isinstance(made, ir.Index | ir.Load):
                    raise InternalError(f"not a scalar operation: {made}")
                value = made
            numbers[number] = add(value)
        return numbers[root]

    def protect(number: int, guarded: bool) -> int:
        """A position, which is 0 where it may be outside."""
        own = numbers[number]
        if not guarded or holds is None:
            return own
        if own not in bounded:
            zero = add(ir.Constant(DataType.INDEX, 0))
            bounded[own] = add(ir.Select(holds, own, zero, DataType.INDEX))
        return bounded[own]

    for condition in conditions:
        own = copy(condition)
        joined = None if holds is None else (holds, own)
        holds = own if joined is None else add(ir.Apply(OPERATIONS["and"], joined, DataType.BOOL))
    dtype = elements.values[root].dtype
    made = copy(root)
    if holds is not None:
        zero = add(ir.Constant(dtype, 0.0 if dtype.is_float else 0))
        made = add(ir.Select(holds, made, zero, dtype))
    view = View(name, dtype, (0,) * len(phase.space.extents), local=True)
    own = Elements(elements.domain, tuple(values), ((view, made),), (), elements.reach)
    return with_elements(phase, own)


# Vectors ---------------------------------------------------------------------------------------


def takes_vectors(phase: Phase, axis: int, limits: Limits) -> bool:
    """Whether neighbours along an axis are read and stored at once, as many as a vector has."""
    if limits.vector_lanes == 1 or limits.word_types or phase.has_positions:
        return False
    space = phase.space
    if space.is_open:
        return False
    piece, strides = space.pieces.get(axis), space.known_strides
    lengths = (space.sizes[axis],) if piece is None else known_sizes((piece.length, piece.size))
    if any(length % VECTOR for length in lengths):
        return False
    views = phase.elements.buffers()
    return all(begins_evenly(view, strides[view], axis) for view in views) and any(
        strides[view][axis] for view in views
    )


def begins_evenly(view: View, strides: Sequence[int], last: int) -> bool:
    """Whether vectors of a view along an axis begin where those of memory do."""
    if strides[last] not in (0, 1) or view.dtype.bytes > 4:
        return False
    others = [step for axis, step in enumerate(strides) if axis != last]
    return strides[last] == 0 or not any(step % VECTOR for step in (view.offset, *others))


def vectorize_tile(on: On, lanes: int) -> Nest:
    """Neighbouring points of a tile as one vector, whose elements begin where vectors do."""
    loop, nest = on.loop, on.nest
    match loop.body:
        case (Point() as point,) if loop.kind in (Kind.LOOP, Kind.UNROLL):
            phase, dims = nest.phases[point.phase], nest.dims[point.phase]
        case _:
            raise ScheduleError("vectors run along the innermost loop")
    demand(not phase.accumulators, "sums are added one by one")
    whole = loop.dim.within or loop.dim
    last = whole.parts[-1][0] if whole.parts else whole
    demand(last in dims and lanes == VECTOR, f"vectors have {VECTOR} elements of one dimension")
    demand(takes_vectors(phase, dims.index(last), on.limits),
           f"elements do not begin where vectors of {VECTOR} do")  # fmt: skip
    around = list_around(nest, loop)
    steps = [n.step for n in (*around, Loop(loop.dim, Kind.LOOP, _count(loop.dim), ()))]
    demand(not any(step % lanes for step in steps), "vectors do not come out even")
    many = count_steps(nest, loop)
    demand(loop.step == 1 and many == lanes, "a vector is the step of the loop around")
    into = tuple(
        dataclasses.replace(each, lane=step, in_vectors=_lies_evenly(each, loop.dim, lanes))
        for each in point.into
        for dim, step in each.tile
        if dim is loop.dim
    )
    demand(len(into) == len(point.into), "it lies along other dimensions")
    made = dataclasses.replace(
        loop, kind=Kind.VECTOR, step=lanes, extent=1, output=0, name=on.take(loop.name),
        body=(dataclasses.replace(point, into=into),),
    )  # fmt: skip
    return on.replace(made)


def _lies_evenly(into: Into, dim: Dim, lanes: int) -> bool:
    """Whether vectors along a dimension begin where those of a buffer do."""
    return not any(step % lanes for other, step in into.tile if other is not dim)
