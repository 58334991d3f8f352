"""Primitives that transform nests, and `apply`, the only way to call them.

`naive` makes loops over the points of each phase in the order of its axes, all sequential; `apply`
transforms that, one `Call` at a time, and the calls are the nest's script. Rules, random tests and
users' schedules all use it. Each primitive refuses what would change a result. Float sums depend on
the order of their terms: primitives that change it say so, and do not affect sums of integers,
extremes and their indices.
"""

from __future__ import annotations

import dataclasses
import math

from dmlc import ir
from dmlc.kernel.passes import verifies_each
from dmlc.kernel.target import Limits
from dmlc.loops.legality import (
    MOST_ITEMS,
    MOST_SHARED,
    MOST_UNROLLED,
    WIDTHS,
    WIDTHS_ONLY,
    count_steps,
    covers,
    demand_free,
    demand_ranges,
    demand_serial,
    demand_unpacked,
    describe_loops,
    find_axis,
    find_path,
    find_point,
    find_unlike,
    forget_order,
    hold_points,
    is_alone,
    list_around,
    list_cuts,
    list_scattered,
    numbers_pieces,
    only_loop,
    reduces,
    take_lanes,
)
from dmlc.loops.nodes import (
    Call,
    Dim,
    Kind,
    Loop,
    Nest,
    Node,
    Numbers,
    Pack,
    Point,
    Reduce,
    find_shared,
    in_vectors,
    list_dims,
    list_loops,
    list_phases,
    number_steps,
    walk,
)
from dmlc.loops.parts import add_up_lanes
from dmlc.loops.permute import LANES
from dmlc.loops.phases import VECTOR
from dmlc.loops.script import (
    PRIMITIVES,
    Argument,
    On,
    ScheduleError,
    demand,
    primitive,
    replace_node,
)
from dmlc.loops.staging import check_items
from dmlc.loops.tensorize import check_products
from dmlc.loops.tiling import vectorize_tile
from dmlc.loops.vectorize import vectorize_reads
from dmlc.loops.verify import verify_nest
from dmlc.loops.whole import WHOLE, demand_whole
from dmlc.sizes import is_multiple

# The door --------------------------------------------------------------------------------------


def apply(nest: Nest, function: ir.Function, limits: Limits, *calls: Call) -> Nest:
    """Nest after some calls. Raises `ScheduleError`, which names the call, if one is not legal; for
    a user's call, with its source and the nest's loops."""
    for call in calls:
        try:
            nest = _apply(nest, function, limits, call)
        except ScheduleError as error:
            notes = [] if call.span is None else [describe_loops(nest)]
            message = f"{call}: {error.diagnostics[0].message}"
            raise ScheduleError(message, call.span, notes) from None
    return nest


def _apply(nest: Nest, function: ir.Function, limits: Limits, call: Call) -> Nest:
    found = PRIMITIVES.get(call.verb)
    if found is None:
        raise ScheduleError(f"no primitive is called so: {', '.join(sorted(PRIMITIVES))} are")
    loops = {n.name: n for n in walk(nest.body) if isinstance(n, Loop)}
    given, loop = list(call.arguments), next(iter(loops.values()), None)
    if found.takes_loop:
        demand(bool(given), "it names no loop")
        name = str(given.pop(0))
        demand(name in loops, f"no loop is called '{name}': {', '.join(loops)} are")
        loop = loops[name]
        whole = loop.dim is not nest.block or found.takes_block
        demand(whole, "the loop over a block of outputs stays whole")
        demand(loop.dim not in list_scattered(nest), "its points enter elements in their order")
    if loop is None:
        raise ScheduleError("there are no loops")
    takes = len(found.arguments)
    if not takes - found.optional <= len(given) <= takes:
        wanted = " and ".join(a.value for a in found.arguments) or "nothing"
        raise ScheduleError(f"it takes {'a loop and ' * found.takes_loop}{wanted}")
    for argument, value in zip(found.arguments, given, strict=False):
        fits = isinstance(value, int) is (argument is Argument.NUMBER)
        demand(fits, f"'{value}' is not {argument.value}")
    demand_whole(nest, call)
    made = found.run(On(nest, function, limits, loop, call.name), *given)
    if call.verb not in WHOLE:
        check_items(made)
    check_products(made)
    alike = find_unlike(made.body) is None
    demand(alike, "loops side by side have so many steps, or go by their range")
    made = dataclasses.replace(made, script=(*nest.script, call))
    if verifies_each():
        verify_nest(made)
    return made


# The primitives --------------------------------------------------------------------------------


@primitive(Argument.NUMBER)
def split(on: On, factor: int) -> Nest:
    """Splits a loop into an outer one, whose steps are `factor` times as large, and an inner one
    over each of these.

    `for i in 0..n -> for i_block in 0..n by factor: for i in i_block..i_block + factor`
    """
    loop = demand_serial(on.loop, "split")
    demand(factor > 1, "a loop is split by two steps at least")
    demand(loop.step * factor <= _MOST_POINTS, f"a step has {_MOST_POINTS:,} points at most")
    around = list_around(on.nest, loop)
    # The enclosing loop counts the steps, whatever it is bound to later.
    cuts = [each.step for each in around] + list_cuts(on.nest, loop.dim)
    fits = all(step >= loop.step * factor for step in cuts)
    demand(fits, "the part of a step is split into shorter ones")
    name = on.take(f"{loop.name}_block", beside=True)
    made = dataclasses.replace(loop, step=loop.step * factor, body=(loop,), name=name)
    return on.replace(dataclasses.replace(made, backwards=False))


@primitive()
def fuse(on: On) -> Nest:
    """Merges a loop, and the one that is all of its body, into one loop over the points of both.

    `for i in 0..m: for j in 0..n -> for i_j in 0..m * n: i, j = i_j / n, i_j % n`
    """
    outer, inner = on.loop, only_loop(on.loop)
    demand(inner.dim is not on.nest.block, "the loop over a block of outputs stays whole")
    parts: list[tuple[Dim, int]] = []
    for loop in (outer, inner):
        demand_serial(loop, "fused")
        first = list_loops(on.nest.body, loop.dim)[0]
        is_first = first is loop and not list_cuts(on.nest, loop.dim)
        demand(is_first, "of the loops over a dimension, the outermost is fused")
        finer = list_loops(loop.body, loop.dim)
        tiled = bool(finer) and finer[0].dim.within is loop.dim
        demand(loop.step == 1 or not loop.dim.parts or tiled, "fused loops are fused again by ones")
        demand(loop.dim.within is None, "the points of a tile are a loop of their own")
        packed = any(isinstance(n, Pack) and n.dim is loop.dim for n in walk(inner.body))
        demand(not packed, "pairs of points are a loop of their own")
        demand_ranges(loop)
        whole = [(loop.dim, loop.step)]
        parts += loop.dim.parts or whole if loop.step == 1 else whole
    # Points of a chunk are checked to be in bounds inside.
    meets = any(isinstance(n, Reduce) for n in walk(inner.body))
    demand(inner.dim.piece is None or not meets, "a piece of a longer dimension goes outermost")
    name = on.take(f"{outer.name}_{inner.name}")
    dim = number_steps(on.name_dim(name), parts)
    return on.replace(Loop(dim, Kind.LOOP, 1, inner.body, name))


@primitive()
def normalize(on: On) -> Nest:
    """Replaces a loop by one over the numbers of its steps.

    `for i in 0..n by 4 -> for block in 0..n / 4: i = 4 * block`
    """
    loop = demand_serial(on.loop, "normalized")
    is_first = list_loops(on.nest.body, loop.dim)[0] is loop
    is_first = is_first and not list_cuts(on.nest, loop.dim)
    demand(is_first, "of the loops over a dimension, the outermost is normalized")
    demand(loop.dim.is_plain, "what is made of others stays so")
    demand_ranges(loop)
    name = on.take(f"{loop.name}_number")
    dim = number_steps(on.name_dim(name), [(loop.dim, loop.step)])
    return on.replace(Loop(dim, Kind.LOOP, 1, loop.body, name))


@primitive(takes_loop=False)
def once(on: On) -> Nest:
    """Adds a loop of one step around the whole nest.

    `for i in 0..n -> for block in 0..1: for i in 0..n`
    """
    grouped = any(isinstance(n, Loop) and n.kind is Kind.GROUP for n in on.nest.body)
    demand(not grouped, "work groups take the outermost loop")
    name = on.take("once", beside=True)
    around = Loop(Dim(on.name_dim(name), 1), Kind.LOOP, 1, on.nest.body, name)
    return dataclasses.replace(on.nest, body=(around,))


@primitive()
def rename(on: On) -> Nest:
    """Renames a loop, and its dimension if no other loop has it."""
    loop, old = on.loop, on.loop.dim
    loops = [n for n in walk(on.nest.body) if isinstance(n, Loop)]
    alone = sum(old in (n.dim, n.dim.within, *(p for p, _ in n.dim.parts)) for n in loops) == 1
    demand(alone, "a dimension of several loops keeps its name")
    demand(old.is_plain, "a dimension of parts keeps its name")
    made_of = [part for dim in list_dims(on.nest) for part, _ in dim.parts]
    made_of += [dim.piece[0] for dim in list_dims(on.nest) if dim.piece is not None]
    made_of += [dim.within for dim in list_dims(on.nest) if dim.within is not None]
    demand(old not in made_of, "a dimension that others are made of keeps its name")
    name = on.take(loop.name)
    new = dataclasses.replace(old, name=on.name_dim(name, but=old))
    dims = tuple(tuple(new if d is old else d for d in own) for own in on.nest.dims)
    nest = on.replace(dataclasses.replace(loop, dim=new, name=name))
    return dataclasses.replace(nest, dims=dims)


@primitive(takes_block=True)
def reorder(on: On) -> Nest:
    """Exchanges a loop with the one that is all of its body. Changes the order of sums if both
    iterate over reduced points. A loop over a block of outputs moves into their partial reductions,
    whose results are then added to the whole more often.

    `for i: for j -> for j: for i` or `for i: s[i] += sum(for k: f(i, k)) -> for k: for i: s[i] +=
    f(i, k)`
    """
    outer, (first, *_) = on.loop, on.loop.body
    blocked = outer.dim is on.nest.block
    part = first if blocked and isinstance(first, Reduce) and not first.array else None
    inner = only_loop(part or outer)
    demand(outer.kind is not Kind.GROUP, "work groups take the outermost loop")
    if outer.dim is inner.dim:
        counted = all(n.extent for n in (outer, *list_loops(outer.body, outer.dim)))
        demand(counted, "the steps of a loop go by its range, which is settled outside")
        demand(inner.kind is not Kind.VECTOR, "of the loops over a dimension, vectors are inside")
    around, inside = ({n.dim, n.dim.within} - {None} for n in (outer, inner))
    settles = outer.dim is not inner.dim and any(
        covers(whole, dim) for whole in around for dim in inside if whole and dim
    )
    settles |= numbers_pieces(on.nest, outer.dim, inner.dim)
    demand(not settles, "the steps of a loop go by its range, which is settled outside")
    demand(not outer.interleaved and not inner.interleaved, "interleaved loops stay in place")
    if blocked:
        demand_serial(inner, "moved out of a block of outputs")
    body = (dataclasses.replace(part, body=inner.body),) if part else inner.body
    made = dataclasses.replace(
        inner, body=(dataclasses.replace(outer, body=body, backwards=False),)
    )
    return forget_order(on.replace(made), made)


@primitive(Argument.WORD, Argument.NUMBER, takes_loop=False)
def axis(on: On, name: str, extent: int) -> Nest:
    """Adds an axis of `extent` work items of a group. Items are contiguous along the last axis
    added this way; loops may add further axes, which vary more slowly."""
    lanes = dict(on.nest.lanes)
    demand(name not in lanes, f"there is an axis '{name}'")
    demand_free(on.nest, name)
    demand(name != "group" and "." not in name, "an axis is called otherwise")
    demand(extent > 0 and extent & (extent - 1) == 0, "work items are a power of two")
    loops = [n for n in walk(on.nest.body) if isinstance(n, Loop)]
    demand(not any(n.interleaved for n in loops), "axes come before interleaved loops")
    lanes[name] = extent
    demand(math.prod(lanes.values()) <= MOST_ITEMS, "a group has so many work items at most")
    return dataclasses.replace(on.nest, lanes=tuple(lanes.items()))


@primitive(Argument.WORD, Argument.WORD, optional=1)
def bind(on: On, axis: str, whose: str = "") -> Nest:
    """Distributes the steps of a loop over work groups (`group`), or over the work items of a group
    along an axis, one step each. With `own`, the axis belongs to the block only, and the items are
    arranged otherwise elsewhere. Changes the order of sums if the loop iterates over reduced
    points.

    `for i in 0..n -> i = group` or `-> i = the work item's number along the axis`
    """
    loop, nest = demand_unpacked(on.loop, "bound"), on.nest
    demand(whose in ("", "own"), "an axis is its block's own, if that is said")
    if axis == "group":
        bound = [n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.GROUP]
        demand(not bound, "there are work groups already")
        is_outermost = len(nest.body) == 1 and nest.body[0] is loop
        demand(is_outermost, "work groups take the outermost loop")
        demand(not reduces(nest, loop), "work groups share no reduction")
        return on.replace(dataclasses.replace(loop, kind=Kind.GROUP))
    extent = count_steps(nest, loop)
    name = on.take(axis)
    demand(name.partition(".")[0] == axis, "the loop of work items is called after their axis")
    nest = take_lanes(nest, loop, axis, extent or 0, own=whose == "own")
    made = dataclasses.replace(loop, kind=Kind.LANE, extent=extent or 1, name=name)
    return forget_order(replace_node(nest, loop, made), made)


@primitive(Argument.WORD, Argument.NUMBER, Argument.WORD, optional=1)
def deal(on: On, axis: str, extent: int, whose: str = "") -> Nest:
    """Distributes the steps of a loop cyclically over `extent` work items, each of which has a
    sequential loop over its steps; `own` is as for `bind`. Changes the order of sums if the loop
    iterates over reduced points.

    `for i in 0..n -> lane = the work item's number: for i in lane..n by extent`
    """
    loop, nest = demand_unpacked(on.loop, "dealt"), on.nest
    around, finer = list_around(nest, loop), list_loops(loop.body, loop.dim)
    demand(all(n.kind is Kind.GROUP for n in around), "a part of a step is not dealt")
    size = loop.dim.size if loop.dim.within is not None else 1
    even = isinstance(size, int) and size % (loop.step * extent) == 0
    fits = all(n.extent and n.kind is not Kind.LANE for n in finer)
    fits &= bool(around) or loop.step == 1 or even
    demand(fits, "what is in a step that is dealt is written out, in work groups")
    demand(not around or around[-1].step % (loop.step * extent) == 0,
            "work groups deal out whole rounds")  # fmt: skip
    shared = any(isinstance(n, Reduce) and find_shared(n) for n in walk(loop.body))
    demand(not shared, "work items that reduce together have as many steps each")
    name = on.take(axis, beside=True)
    demand(name.partition(".")[0] == axis, "the loop of work items is called after their axis")
    demand(whose in ("", "own"), "an axis is its block's own, if that is said")
    nest = take_lanes(nest, loop, axis, extent, own=whose == "own")
    # Work items of a group have a fixed number of steps each.
    rounds = around[-1].step // (loop.step * extent) if around else 0
    step = loop.step * extent
    inner = dataclasses.replace(loop, step=step, extent=rounds, backwards=False)
    made = Loop(loop.dim, Kind.LANE, loop.step, (inner,), name, extent)
    return forget_order(replace_node(nest, loop, made), inner)


@primitive(Argument.WORD, Argument.NUMBER, Argument.NUMBER, optional=2)
def share(on: On, axis: str, unit: int = 1, many: int = 1) -> Nest:
    """Distributes the points of a loop over all work items along an axis: each takes `many` times
    `unit` adjacent points, with strides of the items' total width, and repeats this through the
    loop. Adjacent points are vectorized. Changes the order of sums.

    `for i in 0..n -> for strip in 0..n by width * many: for k in 0..many: i = strip + k * width +
    item * unit, ..`
    """
    loop, nest = demand_serial(on.loop, "shared"), on.nest
    number = find_point(loop, "shared")
    phase, dim, lanes = nest.phases[number], loop.dim, dict(nest.lanes)
    demand(axis in lanes, f"no work items stand along an axis '{axis}'")
    rows = lanes.pop(axis)
    demand(is_alone(nest, loop), "a part of a dimension is not shared")
    last = dim.parts[-1][0] if dim.parts else dim
    inner = {nest.dims[number][a] for a in phase.space.inner}
    demand({part for part, _ in dim.parts or [(dim, 1)]} <= inner, "outputs are bound, not shared")
    if phase.accumulators:
        demand(reduces(nest, loop), "accumulators stand around what is shared")
    around = [n for n in find_path(nest.body, loop) if isinstance(n, Loop)][:-1]
    fits = all(n.kind is Kind.GROUP or (n.kind is Kind.LANE and n.wanted in lanes) for n in around)
    demand(fits, "work items take the outermost loops of a group")
    demand(0 < many <= MOST_SHARED, "too many steps to write out")
    point: tuple[Node, ...] = loop.body
    if unit > 1:
        demand(unit % VECTOR == 0 and phase.begins_evenly(on.limits),
               f"elements do not begin where vectors of {VECTOR} do")  # fmt: skip
        demand(last is nest.dims[number][-1], "vectors run along the last dimension")
        length = phase.space.extents[-1]
        demand(unit == VECTOR or is_multiple(length, unit), "vectors do not come out even")
        point = (Loop(dim, Kind.VECTOR, VECTOR, point, on.find_name("i"), 1),)
        if unit > VECTOR:
            part = on.find_name("part")
            point = (Loop(dim, Kind.UNROLL, VECTOR, point, part, unit // VECTOR),)
    width = rows * unit
    if many > 1:
        point = (Loop(dim, Kind.UNROLL, width, point, on.find_name("k"), many),)
    shared = Loop(dim, Kind.LANE, unit, point, on.find_name(axis), rows)
    made = Loop(dim, Kind.LOOP, width * many, (shared,), on.take("strip"))
    return forget_order(hold_points(on.replace(made)), made)


@primitive()
def unroll(on: On) -> Nest:
    """Unrolls a loop. The remainder of its steps is executed point by point, or guarded if work
    groups share the dimension.

    `for i in 0..4: f(i) -> f(0); f(1); f(2); f(3)`
    """
    loop, nest = demand_unpacked(on.loop, "written out"), on.nest
    shared = any(isinstance(n, Reduce) and find_shared(n) for n in walk(loop.body))
    demand(not shared, "in what is written out, work items reduce nothing")
    extent = count_steps(nest, loop)
    demand(extent is not None and extent <= MOST_UNROLLED, "too many steps to write out")
    around = list_around(nest, loop)
    whole = isinstance(loop.dim.size, int) and extent == -(-loop.dim.size // loop.step)
    shared = bool(around) and all(n.kind is Kind.GROUP or n.extent for n in around)
    if loop.step == 1 and not shared:
        serial = bool(around) and around[-1].kind is Kind.LOOP
        demand(whole or serial, "the steps are counted by the serial loop around")
    elif loop.dim.within is None:
        demand(shared and around[0].kind is Kind.GROUP,
                "steps of several elements are written out in work groups alone")  # fmt: skip
    name = on.take(loop.name)
    return on.replace(dataclasses.replace(loop, kind=Kind.UNROLL, extent=extent or 1, name=name))


_MOST_POINTS = 1 << 30
"""Largest number of points of a step: the last one may overrun the largest size, and indices have
32 bits."""


@primitive(Argument.NUMBER, Argument.WORD, optional=1, takes_block=True)
def vectorize(on: On, lanes: int, how: str = "") -> Nest:
    """Vectorizes a loop along which all operands and results are contiguous, or constant. Along
    reduced points, each lane has a partial sum, and these are combined at the end; along outputs
    that are reduced sequentially, each lane has its own output. `whole` makes one aligned vector of
    each step of a work group's loop; `gather` allows non-contiguous reads in patterns that repeat
    every few vectors, and so does `aligned`, starting at multiples of the vector length.

    `for i in 0..n -> for i in 0..n by lanes: i .. i + lanes at once`
    """
    if how == "whole" and on.loop.dim.within is not None:
        return vectorize_tile(on, lanes)
    loop = demand_serial(on.loop, "put in vectors")
    demand(loop.step == 1, "only serial loops by ones go in vectors")
    demand(lanes in WIDTHS, WIDTHS_ONLY)
    demand(how == "whole" or not loop.dim.parts, "vectors run along one dimension")
    demand(how == "" or loop.dim is not on.nest.block, "outputs of a block lie side by side")
    if how == "whole":
        return _put_whole(on, find_point(loop, "put in vectors"), lanes)
    nested = [n for n in (*find_path(on.nest.body, loop), *walk(loop.body)) if isinstance(n, Loop)]
    demand(all(n.kind is not Kind.VECTOR for n in nested), "there are no vectors of vectors")
    demand(loop.dim.within is None, "vectors of a tile are whole")
    checked = any(isinstance(n, Numbers) for n in walk(loop.body))
    demand(not checked, "outcomes are checked one by one")
    scattered = any(on.nest.phases[number].scatter for number in list_phases(loop))
    demand(not scattered, "points enter elements one by one")
    if loop.body != (Point(list_phases(loop)[0]),):
        inner, block = [n for n in walk(loop.body) if isinstance(n, Loop | Reduce)], on.nest.block
        plain = loop.dim is block or all(
            n.serial if isinstance(n, Reduce) else n.kind is Kind.LOOP and not n.extent
            for n in inner
        )
        each = loop.dim is block or any(isinstance(n, Reduce) for n in inner)
        outputs = plain and each and (loop.dim is block or not reduces(on.nest, loop))
        demand(outputs, "vectors run along the innermost loop")
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
        axis = find_axis(nest, number, loop)
        demand(phase.lies_together(axis), "what is read and stored does not lie side by side")
        moving = phase.find_moving(axis)
        guards = [f.guard for f in phase.elements.reductions if f.guard is not None]
        # Along points, and for outputs of a block, guards select the value that each lane adds.
        tested = phase.tests_guard and not reduces(nest, loop)
        demand(not tested or not any(moving[g] for g in guards),
                "a guard that protects reads is the same in all lanes")  # fmt: skip
    if loop.dim is nest.block:
        return on.replace(made)
    if not reduces(nest, loop):
        single = loop.body == (Point(list_phases(loop)[0]),)
        adds = single and any(nest.phases[n].accumulators for n in list_phases(loop))
        demand(not adds, "vectors across outputs need accumulators in arrays")
        return on.replace(made)
    return add_up_lanes(on.replace(made), made)


def _put_whole(on: On, number: int, lanes: int) -> Nest:
    nest, loop, phase = on.nest, on.loop, on.nest.phases[number]
    demand(lanes == VECTOR and phase.begins_evenly(on.limits),
            f"elements do not begin where vectors of {VECTOR} do")  # fmt: skip
    demand(not phase.accumulators, "vectors across outputs need accumulators in arrays")
    last = loop.dim.parts[-1][0] if loop.dim.parts else loop.dim
    demand(last is nest.dims[number][-1], "vectors run along the last dimension")
    around = list_around(nest, loop)
    grouped = bool(around) and around[0].kind is Kind.GROUP
    demand(grouped, "where vectors are whole, work groups decide")
    counted = all(n.extent for n in around[1:]) and around[-1].step == lanes
    demand(counted, "a vector is the step of the loop around, which is written out or shared")
    made = Loop(loop.dim, Kind.VECTOR, lanes, loop.body, on.take(loop.name), 1)
    return on.replace(made)


def _put_apart(on: On, lanes: int, *, aligned: bool) -> Nest:
    nest, loop = on.nest, on.loop
    demand(lanes == LANES, f"vectors of reads that lie apart have {LANES} lanes")
    demand(on.limits.vector_lanes == 0, "the target has no such vectors")
    demand(not reduces(nest, loop), "vectors across outputs need accumulators in arrays")
    numbers = list_phases(loop)
    demand(numbers == tuple(range(len(nest.phases))), "all that is computed goes in such vectors")
    work = [(nest.phases[n], find_axis(nest, n, loop)) for n in numbers]
    single = loop.body == (Point(list_phases(loop)[0]),)
    demand(not single or not work[0][0].accumulators,
            "vectors across outputs need accumulators in arrays")  # fmt: skip
    found = vectorize_reads(on.function, work, aligned=aligned)
    if found is None:
        raise ScheduleError("reads lie at places that are not alike")
    steps = [n.step for n in list_loops(nest.body, loop.dim) if n is not loop]
    steps += list_cuts(nest, loop.dim)
    whole = found.first == 0 and found.last % LANES == 0
    demand(not steps or whole, "a part of the dimension starts or ends where no vector does")
    demand(not any(step % LANES for step in steps), "a part of the dimension has half a vector")
    made = Loop(loop.dim, Kind.VECTOR, lanes, loop.body, on.take(loop.name), vectorization=found)
    return on.replace(made)


@primitive()
def interleave(on: On) -> Nest:
    """Overlaps the first reduction of a loop's body, for the next step, with the rest of this
    one."""
    return on.replace(dataclasses.replace(on.loop, interleaved=True))


@primitive(Argument.NUMBER)
def pack(on: On, lanes: int) -> Nest:
    """Makes a loop compute `lanes` points one by one, and store them as a vector.

    `for i in 0..n: y[i] = f(i) -> for i_block in 0..n by lanes: y[i_block .. ] = f(i_block), ...`
    """
    loop, nest = demand_serial(on.loop, "packed"), on.nest
    number = find_point(loop, "packed")
    phase = nest.phases[number]
    demand(not loop.dim.parts and loop.step == 1, "points of one dimension are packed, by ones")
    demand(is_alone(nest, loop), "a dimension in steps is not packed")
    axis = find_axis(nest, number, loop)
    results = [view for view, _ in phase.elements.results]
    beside = all(view.strides[axis] == 1 for view in results)
    beside = beside and bool(results) and not phase.accumulators
    demand(beside, "what is stored does not lie side by side")
    demand(lanes in WIDTHS, WIDTHS_ONLY)
    names = tuple(view.tensor for view in results)
    each = dataclasses.replace(loop, extent=lanes, name=on.find_name("j"))
    packed = Pack(loop.dim, names, lanes, (each,))
    name = on.take(f"{loop.name}_block")
    return on.replace(Loop(loop.dim, Kind.LOOP, lanes, (packed,), name))


@primitive()
def pair(on: On) -> Nest:
    """Makes a loop over pairs of points, whose 16-bit results are stored two to a word.

    `for i in 0..n: y[i] = f(i) -> for pair in 0..n / 2: words(y)[pair] = f(2 * pair), ...`
    """
    loop, nest = demand_serial(on.loop, "paired"), on.nest
    number = find_point(loop, "paired")
    phase, dim = nest.phases[number], loop.dim
    paired = (*on.limits.word_types, *on.limits.pair_types)
    stored = [v for v, _ in phase.elements.results if v.dtype in paired]
    demand(bool(stored), "nothing is stored in 16 bits")
    space = phase.space
    whole = len(list_loops(nest.body, dim)) == 1 and nest.body == (loop,) and loop.step == 1
    demand(whole, "pairs are made of all points of a kernel")
    packed = all(space.packed or v.strides == ir.packed_strides(space.sizes) for v in stored)
    demand(packed, "what is stored has gaps between its elements")
    size = -(-dim.size // 2) if isinstance(dim.size, int) else dim.size
    name = on.take("pair")
    walked = Dim(on.name_dim(name), size, ((dim, 2),))
    side = Loop(dim, Kind.UNROLL, 1, loop.body, on.find_name("side"), 2)
    names = tuple(view.tensor for view in stored)
    return on.replace(Loop(walked, Kind.LOOP, 1, (Pack(walked, names, 2, (side,)),), name))


@primitive(takes_block=True)
def stream(on: On) -> Nest:
    """Makes a loop's vector stores bypass the caches, if the kernel's footprint exceeds these."""
    loop = on.loop
    demand(loop.kind is Kind.VECTOR and not loop.extent, "loops in vectors stream")
    return dataclasses.replace(on.nest, streams=on.nest.streams | set(list_phases(loop)))
