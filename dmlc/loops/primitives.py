"""The primitives that make one nest of another, and the one door that all of them go through.

`naive` walks the points of each phase in the order of its axes, one after the other; `apply` makes
everything else of that, one `Call` at a time, and the calls are the nest's script. Rules that
choose, tests that draw, and people who write a schedule of their own use the same door. Each
primitive refuses what would change a result. The sum of floats depends on the order of its terms:
primitives that change this say so, and those of integers, extremes and their places stay the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits
from dmlc.loops.nodes import (
    Call,
    Dim,
    Kind,
    Loop,
    Nest,
    Node,
    Pack,
    Point,
    Reduce,
    find_shared,
    in_vectors,
    inside,
    list_loops,
    list_phases,
    name_parallel,
    nest_serial,
    number_steps,
    walk,
)
from dmlc.loops.permute import LANES
from dmlc.loops.phases import VECTOR, Phase
from dmlc.loops.script import (
    PRIMITIVES,
    Argument,
    On,
    ScheduleError,
    demand,
    primitive,
    replace_node,
)
from dmlc.loops.vectorize import vectorize_reads
from dmlc.source import InternalError


def naive(phases: Sequence[Phase], count: k.Scalar | None = None) -> Nest:
    """Loops over the dimensions that all phases share, and in them the loops of each phase. `count`
    stands for the number of elements where that is an argument."""
    first = phases[0]
    flat = len(phases) == len(first.space.extents) == 1 and not first.accumulators
    if count is not None or flat:
        size = count if count is not None else name_parallel(first)[0].size
        parallel = (Dim("i", size),)
    else:
        parallel = name_parallel(first)
    dims, nodes = nest_serial(phases, parallel)
    for dim in reversed(parallel):
        nodes = (Loop(dim, Kind.LOOP, 1, nodes, dim.name),)
    return Nest(tuple(phases), dims, nodes)


def chain(nodes: Sequence[Node]) -> list[Loop]:
    """The loops that stand one in the other and have nothing beside them, outermost first."""
    found: list[Loop] = []
    while len(nodes) == 1 and isinstance(nodes[0], Loop):
        found.append(nodes[0])
        nodes = nodes[0].body
    return found


# The door --------------------------------------------------------------------------------------


def apply(nest: Nest, function: ir.Function, limits: Limits, *calls: Call) -> Nest:
    """A nest after some calls. Raises `ScheduleError`, which names the call, where one is not
    legal."""
    for call in calls:
        try:
            nest = _apply(nest, function, limits, call)
        except ScheduleError as error:
            raise ScheduleError(f"{call}: {error.diagnostics[0].message}") from None
    return nest


def _apply(nest: Nest, function: ir.Function, limits: Limits, call: Call) -> Nest:
    found = PRIMITIVES.get(call.verb)
    if found is None:
        raise ScheduleError(f"no primitive is called so: {', '.join(PRIMITIVES)} are")
    loops = {n.name: n for n in walk(nest.body) if isinstance(n, Loop)}
    given, loop = list(call.arguments), next(iter(loops.values()), None)
    if found.takes_loop:
        demand(bool(given), "it names no loop")
        name = str(given.pop(0))
        demand(name in loops, f"no loop is called '{name}': {', '.join(loops)} are")
        loop = loops[name]
    if loop is None:
        raise ScheduleError("there are no loops")
    if len(loops) < sum(isinstance(n, Loop) for n in walk(nest.body)):
        raise InternalError(f"two loops have one name:\n{nest}")
    takes = len(found.arguments)
    if not takes - found.optional <= len(given) <= takes:
        wanted = " and ".join(a.value for a in found.arguments) or "nothing"
        raise ScheduleError(f"it takes {'a loop and ' * found.takes_loop}{wanted}")
    for argument, value in zip(found.arguments, given, strict=False):
        fits = isinstance(value, int) is (argument is Argument.NUMBER)
        demand(fits, f"'{value}' is not {argument.value}")
    made = found.run(On(nest, function, limits, loop, call.name), *given)
    return dataclasses.replace(made, script=(*nest.script, call))


# The primitives --------------------------------------------------------------------------------


@primitive(Argument.NUMBER)
def split(on: On, factor: int) -> Nest:
    """A loop as two: one by so many of its steps, and in it one over these.

    `for i in 0..n -> for i_block in 0..n by factor: for i in i_block..i_block + factor`
    """
    loop = _demand_serial(on.loop, "split")
    demand(factor > 1, "a loop is split by two steps at least")
    loops = list_loops(on.nest.body, loop.dim)
    around = loops[: next(i for i, each in enumerate(loops) if each is loop)]
    # Steps of loops are counted by the loop around, whatever that is bound to later on.
    fits = all(each.step >= loop.step * factor for each in around)
    demand(fits, "the part of a step is split into shorter ones")
    name = on.take(f"{loop.name}_block", beside=True)
    return on.replace(dataclasses.replace(loop, step=loop.step * factor, body=(loop,), name=name))


@primitive()
def fuse(on: On) -> Nest:
    """A loop, and the one that is all it has, as one over the points of both.

    `for i in 0..m: for j in 0..n -> for i_j in 0..m * n: i, j = i_j / n, i_j % n`
    """
    outer, inner = on.loop, _only_loop(on.loop)
    parts: list[tuple[Dim, int]] = []
    for loop in (outer, inner):
        _demand_serial(loop, "fused")
        first = list_loops(on.nest.body, loop.dim)[0]
        is_first = first is loop and not _list_cuts(on.nest, loop.dim)
        demand(is_first, "of the loops over a dimension, the outermost is fused")
        demand(loop.step == 1 or not loop.dim.parts, "fused loops are fused again by ones")
        _demand_ranges(loop)
        parts += loop.dim.parts or [(loop.dim, loop.step)]
    demand(inner.dim.piece is None, "a piece of a longer dimension goes outermost")
    name = on.take(f"{outer.name}_{inner.name}")
    return on.replace(Loop(number_steps(name, parts), Kind.LOOP, 1, inner.body, name))


@primitive()
def normalize(on: On) -> Nest:
    """A loop over the numbers of the steps of one.

    `for i in 0..n by 4 -> for block in 0..n / 4: i = 4 * block`
    """
    loop = _demand_serial(on.loop, "normalized")
    is_first = list_loops(on.nest.body, loop.dim)[0] is loop
    is_first = is_first and not _list_cuts(on.nest, loop.dim)
    demand(is_first, "of the loops over a dimension, the outermost is normalized")
    demand(not loop.dim.parts and loop.dim.piece is None, "what is made of others stays so")
    _demand_ranges(loop)
    name = on.take(f"{loop.name}_number")
    dim = number_steps(name, [(loop.dim, loop.step)])
    return on.replace(Loop(dim, Kind.LOOP, 1, loop.body, name))


@primitive(takes_loop=False)
def once(on: On) -> Nest:
    """A loop of one step around all there is.

    `for i in 0..n -> for block in 0..1: for i in 0..n`
    """
    grouped = any(isinstance(n, Loop) and n.kind is Kind.GROUP for n in on.nest.body)
    demand(not grouped, "work groups take the outermost loop")
    name = on.take("once", beside=True)
    around = Loop(Dim(name, 1), Kind.LOOP, 1, on.nest.body, name)
    return dataclasses.replace(on.nest, body=(around,))


@primitive()
def rename(on: On) -> Nest:
    """A loop, and the dimension that it alone walks, by another name."""
    loop, old = on.loop, on.loop.dim
    demand(len(list_loops(on.nest.body, old)) == 1, "a dimension of several loops keeps its name")
    demand(not old.parts and old.piece is None, "a dimension of parts keeps its name")
    new = dataclasses.replace(old, name=on.take(loop.name))
    dims = tuple(tuple(new if d is old else d for d in own) for own in on.nest.dims)
    nest = on.replace(dataclasses.replace(loop, dim=new, name=new.name))
    return dataclasses.replace(nest, dims=dims)


@primitive()
def reorder(on: On) -> Nest:
    """A loop and the one that is all it has, the other way round. Changes the order of sums where
    both walk reduced points.

    `for i: for j -> for j: for i`
    """
    outer, inner = on.loop, _only_loop(on.loop)
    demand(outer.kind is not Kind.GROUP, "work groups take the outermost loop")
    if outer.dim is inner.dim:
        counted = bool(outer.extent and inner.extent)
        demand(counted, "the steps of a loop go by its range, which is settled outside")
    settles = any(inner.dim is part for part, _ in outer.dim.parts)
    demand(not settles, "the steps of a loop go by its range, which is settled outside")
    demand(not outer.interleaved and not inner.interleaved, "interleaved loops stay in place")
    made = dataclasses.replace(
        inner, body=(dataclasses.replace(outer, body=inner.body, backwards=False),)
    )
    return _forget_order(on.replace(made), made)


@primitive(Argument.WORD)
def bind(on: On, axis: str) -> Nest:
    """A loop whose steps work groups take, one each (`group`); or the work items of a group, which
    stand along an axis of that name. Changes the order of sums where it walks reduced points.

    `for i in 0..n -> i = group` or `-> i = the work item's number along the axis`
    """
    loop, nest = _demand_unpacked(on.loop, "bound"), on.nest
    if axis == "group":
        bound = [n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.GROUP]
        demand(not bound, "there are work groups already")
        is_outermost = len(nest.body) == 1 and nest.body[0] is loop
        demand(is_outermost, "work groups take the outermost loop")
        demand(not _reduces(nest, loop), "work groups share no reduction")
        return on.replace(dataclasses.replace(loop, kind=Kind.GROUP))
    extent = _count(nest, loop)
    name = on.take(axis)
    nest = _take_lanes(nest, loop, axis, extent or 0)
    made = dataclasses.replace(loop, kind=Kind.LANE, extent=extent or 1, name=name)
    return _forget_order(replace_node(nest, loop, made), made)


@primitive(Argument.WORD, Argument.NUMBER)
def deal(on: On, axis: str, extent: int) -> Nest:
    """A loop whose steps are dealt to so many work items, neighbours to neighbours, each of which
    has a serial loop over its own. Changes the order of sums where it walks reduced points.

    `for i in 0..n -> lane = the work item's number: for i in lane..n by extent`
    """
    loop, nest = _demand_unpacked(on.loop, "dealt"), on.nest
    loops = list_loops(nest.body, loop.dim)
    place = next(i for i, each in enumerate(loops) if each is loop)
    around, finer = loops[:place], loops[place + 1 :]
    demand(all(n.kind is Kind.GROUP for n in around), "a part of a step is not dealt")
    fits = all(n.extent for n in finer) and (bool(around) or loop.step == 1)
    demand(fits, "what is in a step that is dealt is written out, in work groups")
    demand(not around or around[-1].step % (loop.step * extent) == 0,
            "work groups deal out whole rounds")  # fmt: skip
    shared = any(isinstance(n, Reduce) and find_shared(n) for n in walk(loop.body))
    demand(not shared, "work items that reduce together have as many steps each")
    name = on.take(axis, beside=True)
    demand(name.partition(".")[0] == axis, "the loop of work items is called after their axis")
    nest = _take_lanes(nest, loop, axis, extent)
    # A group's range is settled by who walks it: each work item has so many steps.
    rounds = around[-1].step // (loop.step * extent) if around else 0
    inner = dataclasses.replace(loop, step=loop.step * extent, extent=rounds)
    made = Loop(loop.dim, Kind.LANE, loop.step, (inner,), name, extent)
    return _forget_order(replace_node(nest, loop, made), inner)


@primitive()
def unroll(on: On) -> Nest:
    """A loop that is written out. What its steps do not come out even with goes one by one, or is
    tested for where work groups share the dimension.

    `for i in 0..4: f(i) -> f(0); f(1); f(2); f(3)`
    """
    loop, nest = _demand_unpacked(on.loop, "written out"), on.nest
    extent = _count(nest, loop)
    demand(extent is not None and extent <= _MOST_UNROLLED, "too many steps to write out")
    around = [n for n in _path(nest.body, loop) if isinstance(n, Loop) and n.dim is loop.dim][:-1]
    whole = isinstance(loop.dim.size, int) and extent == -(-loop.dim.size // loop.step)
    shared = bool(around) and all(n.kind is Kind.GROUP or n.extent for n in around)
    if loop.step == 1 and not shared:
        serial = bool(around) and around[-1].kind is Kind.LOOP
        demand(whole or serial, "the steps are counted by the serial loop around")
    else:
        demand(shared and around[0].kind is Kind.GROUP,
                "steps of several elements are written out in work groups alone")  # fmt: skip
    name = on.take(loop.name)
    return on.replace(dataclasses.replace(loop, kind=Kind.UNROLL, extent=extent or 1, name=name))


_MOST_UNROLLED = 16


@primitive(Argument.NUMBER, Argument.WORD, optional=1)
def vectorize(on: On, lanes: int, how: str = "") -> Nest:
    """A loop in vectors, along which all that is read and stored lies side by side, or is the same.
    Along reduced points each lane makes a part of the sum, which become one at the end; along
    outputs that are reduced one after the other, each lane has an output of its own. `whole` makes
    one vector of the step of a work group's loop, whose elements begin where vectors of memory do;
    `gather` takes reads that lie apart as well, at places that are alike every few vectors, and
    `aligned` too, from where whole vectors start.

    `for i in 0..n -> for i in 0..n by lanes: i .. i + lanes at once`
    """
    loop = _demand_serial(on.loop, "put in vectors")
    demand(loop.step == 1, "only serial loops by ones go in vectors")
    demand(how == "whole" or not loop.dim.parts, "vectors run along one dimension")
    if how == "whole":
        return _put_whole(on, _find_point(loop, "put in vectors"), lanes)
    nested = [n for n in (*_path(on.nest.body, loop), *walk(loop.body)) if isinstance(n, Loop)]
    demand(all(n.kind is not Kind.VECTOR for n in nested), "there are no vectors of vectors")
    if loop.body != (Point(list_phases(loop)[0]),):
        inner = [n for n in walk(loop.body) if isinstance(n, Loop | Reduce)]
        plain = all(n.serial if isinstance(n, Reduce) else n.kind is Kind.LOOP and not n.extent
                    for n in inner)  # fmt: skip
        outputs = plain and any(isinstance(n, Reduce) for n in inner)
        demand(outputs and not _reduces(on.nest, loop), "vectors run along the innermost loop")
    match how:
        case "":
            return _put_side_by_side(on, lanes)
        case "gather" | "aligned":
            return _put_apart(on, lanes, aligned=how == "aligned")
        case _:
            raise ScheduleError("vectors are whole, gather or aligned, if that is said")


def _put_side_by_side(on: On, lanes: int) -> Nest:
    nest, loop = on.nest, on.loop
    made = in_vectors(loop.dim, lanes, loop.body, on.take(loop.name))
    for number in list_phases(loop):
        phase = nest.phases[number]
        axis = _find_axis(nest, number, loop)
        demand(phase.lies_together(axis), "what is read and stored does not lie side by side")
        moving = phase.find_moving(axis)
        guards = [f.guard for f in phase.elements.reductions if f.guard is not None]
        demand(not any(moving[g] for g in guards) or not phase.tests_guard,
                "a guard that protects reads is the same in all lanes")  # fmt: skip
    if not _reduces(nest, loop):
        single = loop.body == (Point(list_phases(loop)[0]),)
        adds = single and any(nest.phases[n].accumulators for n in list_phases(loop))
        demand(not adds, "vectors across outputs need accumulators in arrays")
        return on.replace(made)
    (around,) = [n for n in _path(nest.body, loop) if isinstance(n, Reduce)][-1:]
    demand(not around.array and around.into is None, "lanes have accumulators already")
    nest = on.replace(made)
    (part_of,) = [n for n in _path(nest.body, made) if isinstance(n, Reduce)][-1:]
    part = dataclasses.replace(part_of, serial=False)
    return replace_node(nest, part_of, Reduce(part.phase, (part,), array=True))


def _put_whole(on: On, number: int, lanes: int) -> Nest:
    nest, loop, phase = on.nest, on.loop, on.nest.phases[number]
    demand(lanes == VECTOR and phase.begins_evenly(on.limits),
            f"elements do not begin where vectors of {VECTOR} do")  # fmt: skip
    demand(not phase.accumulators, "vectors across outputs need accumulators in arrays")
    last = loop.dim.parts[-1][0] if loop.dim.parts else loop.dim
    demand(last is nest.dims[number][-1], "vectors run along the last dimension")
    path = [n for n in _path(nest.body, loop) if isinstance(n, Loop) and n.dim is loop.dim]
    *around, _ = path
    grouped = bool(around) and around[0].kind is Kind.GROUP
    demand(grouped, "where vectors are whole, work groups decide")
    demand(around[-1].step == lanes, "a vector is the step of the loop around")
    made = Loop(loop.dim, Kind.VECTOR, lanes, loop.body, on.take(loop.name), 1)
    return on.replace(made)


def _put_apart(on: On, lanes: int, *, aligned: bool) -> Nest:
    nest, loop = on.nest, on.loop
    demand(lanes == LANES, f"vectors of reads that lie apart have {LANES} lanes")
    demand(on.limits.vector_lanes == 0, "the target has no such vectors")
    demand(not _reduces(nest, loop), "vectors across outputs need accumulators in arrays")
    numbers = list_phases(loop)
    demand(numbers == tuple(range(len(nest.phases))), "all that is computed goes in such vectors")
    work = [(nest.phases[n], _find_axis(nest, n, loop)) for n in numbers]
    single = loop.body == (Point(list_phases(loop)[0]),)
    demand(not single or not work[0][0].accumulators,
            "vectors across outputs need accumulators in arrays")  # fmt: skip
    found = vectorize_reads(on.function, work, aligned=aligned)
    if found is None:
        raise ScheduleError("reads lie at places that are not alike")
    steps = [n.step for n in list_loops(nest.body, loop.dim) if n is not loop]
    steps += _list_cuts(nest, loop.dim)
    demand(not steps or found.first == 0, "a part of the dimension starts where no vector does")
    demand(not any(step % LANES for step in steps), "a part of the dimension has half a vector")
    made = Loop(loop.dim, Kind.VECTOR, lanes, loop.body, on.take(loop.name), vectorization=found)
    return on.replace(made)


@primitive()
def interleave(on: On) -> Nest:
    """A loop whose first reduction is made for the next step beside what is done with that of the
    present one."""
    return interleave_loop(on.nest, on.loop)


@primitive(Argument.NUMBER)
def pack(on: On, lanes: int) -> Nest:
    """A loop by so many points, which are computed one by one and stored as a vector.

    `for i in 0..n: y[i] = f(i) -> for i_block in 0..n by lanes: y[i_block .. ] = f(i_block), ...`
    """
    loop, nest = _demand_serial(on.loop, "packed"), on.nest
    number = _find_point(loop, "packed")
    phase = nest.phases[number]
    demand(not loop.dim.parts and loop.step == 1, "points of one dimension are packed, by ones")
    demand(len(list_loops(nest.body, loop.dim)) == 1, "a dimension in steps is not packed")
    axis = _find_axis(nest, number, loop)
    results = [view for view, _ in phase.elements.results]
    beside = all(phase.space.strides[view][axis] == 1 for view in results)
    beside = beside and bool(results) and not phase.accumulators
    demand(beside and lanes > 1, "what is stored does not lie side by side")
    names = tuple(view.tensor for view in results)
    each = dataclasses.replace(loop, extent=lanes, name=on.find_name("j"))
    packed = Pack(loop.dim, names, lanes, (each,))
    name = on.take(f"{loop.name}_block")
    return on.replace(Loop(loop.dim, Kind.LOOP, lanes, (packed,), name))


@primitive()
def pair(on: On) -> Nest:
    """A loop over pairs of points, whose results of 16 bits are stored two to a word.

    `for i in 0..n: y[i] = f(i) -> for pair in 0..n / 2: words(y)[pair] = f(2 * pair), ...`
    """
    loop, nest = _demand_serial(on.loop, "paired"), on.nest
    number = _find_point(loop, "paired")
    phase, dim = nest.phases[number], loop.dim
    stored = [v for v, _ in phase.elements.results if v.dtype in on.limits.word_types]
    demand(bool(stored), "nothing is stored in 16 bits")
    space = phase.space
    whole = len(list_loops(nest.body, dim)) == 1 and nest.body == (loop,) and loop.step == 1
    demand(whole, "pairs are made of all points of a kernel")
    packed = all(space.packed or space.strides[v] == ir.packed_strides(space.sizes) for v in stored)
    demand(packed, "what is stored has gaps between its elements")
    size = -(-dim.size // 2) if isinstance(dim.size, int) else dim.size
    name = on.take("pair")
    walked = Dim(name, size, ((dim, 2),))
    side = Loop(dim, Kind.UNROLL, 1, loop.body, on.find_name("side"), 2)
    names = tuple(view.tensor for view in stored)
    return on.replace(Loop(walked, Kind.LOOP, 1, (Pack(walked, names, 2, (side,)),), name))


@primitive()
def stream(on: On) -> Nest:
    """Vectors that a loop stores pass the caches by, where the kernel touches more memory than
    these keep."""
    loop = on.loop
    demand(loop.kind is Kind.VECTOR and not loop.extent, "loops in vectors stream")
    return dataclasses.replace(on.nest, streams=on.nest.streams | set(list_phases(loop)))


def interleave_loop(nest: Nest, loop: Loop) -> Nest:
    """The nest with a loop interleaved. Raises `ScheduleError` where that cannot be."""
    return replace_node(nest, loop, dataclasses.replace(loop, interleaved=True))


# What the primitives ask -----------------------------------------------------------------------


def _demand_serial(loop: Loop, what: str) -> Loop:
    demand(loop.kind is Kind.LOOP and not loop.extent, f"only serial loops are {what}")
    return loop


def _demand_unpacked(loop: Loop, what: str) -> Loop:
    """A serial loop, whose last step may be a short one."""
    packs = [n for n in walk(loop.body) if isinstance(n, Pack) and not n.in_words]
    packed = any(n.dim is loop.dim for n in packs)
    demand(not packed, f"a loop that stores vectors of packed points is not {what}")
    return _demand_serial(loop, what)


def _demand_ranges(loop: Loop) -> None:
    """Steps that are numbered have loops inside that go by the range of one."""
    finer = list_loops(loop.body, loop.dim)
    demand(loop.step == 1 or (bool(finer) and not finer[0].extent),
            "what is in a step that is numbered goes by its range")  # fmt: skip


def _find_point(loop: Loop, what: str) -> int:
    """The phase of element-wise work that is all a loop has."""
    match loop.body:
        case (Point(phase=number, into=(), name=""),):
            return number
        case _:
            raise ScheduleError(f"single points are {what}")


def _find_axis(nest: Nest, number: int, loop: Loop) -> int:
    """The axis of a phase that a loop walks."""
    if loop.dim not in nest.dims[number]:
        raise ScheduleError("the loop walks no dimension of what is computed")
    return nest.dims[number].index(loop.dim)


def _only_loop(outer: Loop) -> Loop:
    """The loop that is all another has."""
    if len(outer.body) == 1 and isinstance(outer.body[0], Loop):
        return outer.body[0]
    raise ScheduleError("there is not one loop in the other, and nothing beside it")


_MOST_ITEMS = 1024


def _take_lanes(nest: Nest, loop: Loop, name: str, extent: int) -> Nest:
    """The nest with an axis of work items that a loop may take."""
    loops = [n for n in _path(nest.body, loop) if isinstance(n, Loop) and n is not loop]
    fits = all(n.kind in (Kind.GROUP, Kind.LANE) or (n.kind is Kind.UNROLL and n.dim is loop.dim)
               for n in loops)  # fmt: skip
    demand(fits, "work items take the outermost loops of a group")
    written = any(n.kind is Kind.UNROLL for n in loops)
    meets = _reduces(nest, loop) or any(isinstance(n, Reduce) for n in walk(loop.body))
    demand(not written or not meets, "in what is written out, work items reduce nothing")
    demand(extent > 1 and extent & (extent - 1) == 0, "work items are a power of two")
    lanes = dict(nest.lanes)
    demand(lanes.setdefault(name, extent) == extent, "an axis of work items has one extent")
    loops += [n for n in walk(loop.body) if isinstance(n, Loop)]
    taken = {n.wanted for n in loops if n.kind is Kind.LANE}
    demand(name not in taken, "an axis of work items has one loop")
    demand(math.prod(lanes.values()) <= _MOST_ITEMS, "a group has so many work items at most")
    return dataclasses.replace(nest, lanes=tuple(lanes.items()))


def _path(nodes: Sequence[Node], wanted: Node) -> list[Node]:
    """A node and those around it, outermost first."""
    for node in nodes:
        if node is wanted:
            return [node]
        found = _path(inside(node), wanted)
        if found:
            return [node, *found]
    return []


def _reduces(nest: Nest, loop: Loop) -> bool:
    """Whether a loop walks points that are reduced."""
    return any(isinstance(n, Reduce) for n in _path(nest.body, loop))


def _count(nest: Nest, loop: Loop) -> int | None:
    """The steps of a loop; None where they are not one number."""
    around = [n for n in _path(nest.body, loop) if isinstance(n, Loop) and n.dim is loop.dim][:-1]
    if around and around[-1].kind is Kind.LANE and loop.step > around[-1].step:
        # What is dealt out goes on through all that the work items share.
        around = around[:-1]
    if around:
        whole, rest = divmod(around[-1].step, loop.step)
        return whole if rest == 0 else None
    size = loop.dim.size
    if not isinstance(size, int) or loop.dim.piece is not None or _list_cuts(nest, loop.dim):
        return None
    return -(-size // loop.step)


def _list_cuts(nest: Nest, dim: Dim) -> list[int]:
    """The steps that are numbered of a dimension: the loops over it have a part."""
    loops = [n for n in walk(nest.body) if isinstance(n, Loop)]
    return [step for n in loops for part, step in n.dim.parts if part is dim and step > 1]


def _forget_order(nest: Nest, loop: Loop) -> Nest:
    """Has reductions no longer rely on the order of their points, where a loop walks these."""
    for node in _path(nest.body, loop):
        if isinstance(node, Reduce) and node.serial:
            nest = replace_node(nest, node, dataclasses.replace(node, serial=False))
    return nest
