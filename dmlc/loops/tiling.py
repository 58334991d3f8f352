"""Tiling primitives: points relative to the start of a tile, several outputs reduced side by side
by a work item, and vectors of adjacent ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from dmlc.kernel.target import Limits
from dmlc.loops.contraction import list_divided, part_parallel, settle_quotients
from dmlc.loops.element import prune
from dmlc.loops.legality import (
    MOST_UNROLLED,
    count_steps,
    covers,
    demand_serial,
    demand_unpacked,
    find_path,
    is_alone,
    list_around,
    numbers_pieces,
    reduces,
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
    list_dims,
    list_phases,
    name_loops,
    take_name,
    walk,
)
from dmlc.loops.phases import VECTOR, Phase, with_elements
from dmlc.loops.script import Argument, On, ScheduleError, demand, primitive, replace_node
from dmlc.source import InternalError


def list_names(nest: Nest) -> set[str]:
    """Names of loops and dimensions."""
    return name_loops(nest) | {dim.name for dim in list_dims(nest)}


@primitive(Argument.NUMBER)
def part(on: On, length: int) -> Nest:
    """Splits a loop over outputs, with an inner loop of `length` points, where indices along it are
    divided by that number: the loops then iterate over quotients and remainders.

    `for i in 0..n: f(i / len, i % len) -> for i in 0..n / len: for j in 0..len: f(i, j)`
    """
    loop, nest = demand_serial(on.loop, "parted"), on.nest
    dim = loop.dim
    demand(dim.is_plain and is_alone(nest, loop), "a whole dimension is parted")
    axes = {n: own.index(dim) for n, own in enumerate(nest.dims) if dim in own}
    spaces = {number: nest.phases[number].space for number in axes}
    demand(all(axis in spaces[n].parallel for n, axis in axes.items()), "outputs are parted")
    found = [n for n, axis in axes.items() if length in list_divided(nest.phases[n], axis)]
    demand(bool(found), f"no positions along it are divided by {length}")
    if isinstance(dim.size, int) and length >= dim.size:
        for number in found:
            settled = settle_quotients(nest.phases[number], axes[number], length)
            nest = nest.with_phase(number, settled)
        return nest
    name = on.take(f"{loop.name}_rest", beside=True)
    size = dim.size if isinstance(dim.size, int) else 1
    demand(size % length == 0, "it does not come out even")
    pair = dataclasses.replace(dim, size=size // length), Dim(on.name_dim(name), length)
    inner = Loop(pair[1], Kind.LOOP, 1, loop.body, name)
    nest = on.replace(Loop(pair[0], Kind.LOOP, 1, (inner,), loop.name))
    for number, axis in axes.items():
        place, own = spaces[number].parallel.index(axis), nest.dims[number]
        parted = part_parallel(nest.phases[number], place, length)
        nest = nest.with_phase(number, parted, (*own[:axis], *pair, *own[axis + 1 :]))
    return nest


@primitive(Argument.NUMBER)
def tile(on: On, size: int) -> Nest:
    """Splits a loop, with an inner loop over a tile of `size` points, whose indices are relative to
    the start of the tile. Points of the last tile that are out of bounds are skipped one by one.

    `for i in 0..n -> for i in 0..n by size: for j in 0..size: i + j, if that is less than n`
    """
    loop, nest = demand_serial(on.loop, "tiled"), on.nest
    dim = loop.dim
    alone = is_alone(nest, loop) and dim.within is None
    demand(alone, "a dimension in steps is not tiled")
    demand(not loop.backwards and not loop.interleaved, "only loops from first to last are tiled")
    computed = any(covers(dim, each) for own in nest.dims for each in own)
    demand(computed, "the loop walks no dimension of what is computed")
    demand(all(step == 1 for _, step in dim.parts), "numbered steps are not tiled")
    demand(size > 1, "a tile has two points at least")
    name = on.take(f"{loop.name}_tile", beside=True)
    demand(name not in list_names(nest), f"there is a dimension '{name}'")
    inner = Loop(Dim(name, size, within=dim), Kind.LOOP, 1, loop.body, name)
    return on.replace(dataclasses.replace(loop, step=size, body=(inner,)))


def count_points(tile: Dim) -> int:
    """Number of points of a tile."""
    if not isinstance(tile.size, int):
        raise InternalError("tiles have so many points")
    return tile.size


def measure_shared(buffers: Iterable[Buffer]) -> int:
    """Bytes of shared tiles, in compute types, as no language packs them."""
    shared = [(b.size, b.dtype) for b in buffers if b.shared]
    return sum(n * (t.bytes if t.is_storage_only else max(4, t.bytes)) for n, t in shared)


# Several outputs at once -----------------------------------------------------------------------


@primitive()
def jam(on: On) -> Nest:
    """Reduces the outputs of a loop side by side, each with its own accumulator: in registers if
    the loop is unrolled. No sum changes its order.

    `for i in 0..4: s = sum(k: f(i, k)); g(i, s) -> for k: for i in 0..4: s[i] += f(i,
    k)`, and then `for i in 0..4: g(i, s[i])`
    """
    loop, nest = on.loop, on.nest
    demand(loop.kind in (Kind.LOOP, Kind.UNROLL) and not loop.interleaved, "work items jam nothing")
    demand(not _in_vectors(nest, loop), "outputs of vectors are not jammed")
    demand(not reduces(nest, loop), "only outputs are reduced side by side")
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
    demand(not any(numbers_pieces(nest, loop.dim, n.dim) for n in inner),
           "which piece is reduced, the loop says")  # fmt: skip
    demand(not nest.phases[reduce.phase].is_across, "it is reduced in parts")
    found = [n for node in after for n in _list_always(node) if isinstance(n, Reduce)]
    demand(not found, "there is more than one reduction")
    before = reduce.tile or Tile(1, 1, 1, 1, registers=True)
    size = before.rows * before.pitch
    registers = before.registers and loop.kind is Kind.UNROLL
    columns = before.columns if reduce.tile else many
    tile = Tile(size * many // columns, columns, columns, 1, registers=registers)
    taken = list_names(nest)

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
            body = (put(node.body, take_name(loop.name, taken)),)
            others = (put(node.others, take_name(loop.name, taken), rare=True),)
            made.append(dataclasses.replace(node, body=body, others=others))
    rest = [node for node in after if not isinstance(node, Numbers)]
    if rest:
        made.append(put(rest, take_name(loop.name, taken)))
    return replace_node(nest, loop, *made)


@primitive()
def roll(on: On) -> Nest:
    """Makes a loop count its steps, and asks compilers not to unroll it.

    `for i in 0..64 by 4 -> for n in 0..16, rolled: i = 4 * n`
    """
    loop, nest = demand_unpacked(on.loop, "rolled"), on.nest
    demand(loop.dim.within is not None, "the steps of tiles are counted")
    extent = count_steps(nest, loop)
    demand(extent is not None, "its steps are not one number")
    return on.replace(dataclasses.replace(loop, extent=extent or 1))


@primitive(Argument.WORD)
def fission(on: On, results: str) -> Nest:
    """Splits loops whose steps store several results into two, the first for `results`, the names
    of tensors separated by `,`.

    `for i: y[i] = f(i); z[i] = g(i) -> for i: y[i] = f(i)`, and then `for i: z[i] = g(i)`
    """
    loop, nest = on.loop, on.nest
    inner = list(walk((loop,)))
    *loops, point = inner
    plain = isinstance(point, Point) and not point.into and not point.name
    serial = all(isinstance(n, Loop) and n.kind is Kind.LOOP and not n.extent for n in loops)
    demand(plain and serial, "serial loops around a point are made two")
    (number,), names = list_phases(loop), results.split(",")
    phase = nest.phases[number]
    stored = phase.elements.results
    ahead = tuple(each for each in stored if each[0].tensor in names)
    rest = tuple(each for each in stored if each[0].tensor not in names)
    demand(bool(ahead and rest) and not phase.accumulators and phase.scatter is None,
           "it stores no such results, and others")  # fmt: skip
    demand(not any(view.local for view, _ in stored), "what others read is made once")
    first, second = (
        with_elements(phase, prune(dataclasses.replace(phase.elements, results=each)))
        for each in (ahead, rest)
    )
    taken, count = list_names(nest), len(nest.phases)

    def copy(node: Node) -> Node:
        if isinstance(node, Loop):
            body = tuple(map(copy, node.body))
            return dataclasses.replace(node, name=take_name(node.name, taken), body=body)
        return Point(count)

    nest = replace_node(nest, loop, loop, copy(loop)).with_phase(number, first)
    return nest.with_phase(count, second, nest.dims[number])


def _in_vectors(nest: Nest, loop: Loop) -> bool:
    path = find_path(nest.body, loop)
    return any(isinstance(n, Loop) and n.kind is Kind.VECTOR for n in path)


def _list_always(node: Node) -> list[Node]:
    """A node and its descendants, without those in rare branches."""
    nodes = node.body if isinstance(node, Numbers) else inside(node)
    return [node, *(n for each in nodes for n in _list_always(each))]


@primitive()
def recheck(on: On) -> Nest:
    """Adds a branch for a loop's reduction that is taken if a result is NaN, which is rare: it
    repeats the reduction as it is now, with the values derived from it. Later calls may then handle
    infinities and NaNs incorrectly in the first reduction.

    `s = sum(f); g(s) -> s = sum(f); if s is a number: g(s), else: t = sum(f); g(t)`
    """
    loop, nest = on.loop, on.nest
    demand(not _in_vectors(nest, loop), "outcomes are checked one by one")
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
    demand(all(each.dtype.is_float and each.combiner == "sum"
               for each in accumulators), "sums of floats are checked")  # fmt: skip
    numbers, taken, made = dict[int, int](), list_names(nest), dict[Dim, Dim]()
    walked = {n.dim for n in found if isinstance(n, Loop)}

    def renew(dim: Dim) -> Dim:
        """Copy of a dimension, with copies of its parts."""
        if dim not in made:
            parts = tuple((renew(part), step) for part, step in dim.parts)
            within = None if dim.within is None else renew(dim.within)
            new = dataclasses.replace(dim, parts=parts, within=within)
            is_own = dim in walked or new != dim
            made[dim] = dataclasses.replace(new, name=take_name(dim.name, taken)) if is_own else dim
        return made[dim]

    for number in dict.fromkeys(n.phase for n in found if isinstance(n, Reduce | Point)):
        numbers[number] = len(nest.phases)
        dims = tuple(map(renew, nest.dims[number]))
        nest = nest.with_phase(numbers[number], nest.phases[number], dims)

    def copy(node: Node) -> Node:
        match node:
            case Loop():
                name = take_name(node.name, taken)
                body = tuple(map(copy, node.body))
                return dataclasses.replace(node, dim=renew(node.dim), name=name, body=body)
            case Reduce():
                body = tuple(map(copy, node.body))
                return dataclasses.replace(node, phase=numbers[node.phase], body=body)
            case Point():
                return dataclasses.replace(node, phase=numbers[node.phase])
            case _:
                raise InternalError("what is not serial is made once more")

    others = tuple(map(copy, loop.body))
    checked = Numbers(reduce.phase, tuple(after), others)
    return replace_node(nest, loop, dataclasses.replace(loop, body=(reduce, checked)))


# Vectors ---------------------------------------------------------------------------------------


def takes_vectors(phase: Phase, axis: int, limits: Limits) -> bool:
    """Whether neighbours along an axis are read and stored as vectors."""
    return not limits.word_types and not phase.has_positions and phase.begins_evenly(limits, axis)


def vectorize_tile(on: On, lanes: int) -> Nest:
    """Makes adjacent points of a tile one aligned vector."""
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
    steps = [*(n.step for n in around), count_points(loop.dim)]
    demand(not any(step % lanes for step in steps), "vectors do not come out even")
    many = count_steps(nest, loop)
    demand(loop.step == 1 and many == lanes, "a vector is the step of the loop around")
    into = tuple(
        dataclasses.replace(each, lane=step, in_vectors=_is_aligned(each, loop.dim, lanes))
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


def _is_aligned(into: Into, dim: Dim, lanes: int) -> bool:
    """Whether vectors along a dimension are aligned in a buffer."""
    return not any(step % lanes for other, step in into.tile if other is not dim)
