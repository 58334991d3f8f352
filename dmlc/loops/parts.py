"""Primitives that divide the work of a reduction: into partial sums, and over blocks of outputs.

A block of outputs is reduced side by side, with an array of accumulators: `expand` gives each phase
its own loop over the block, which `reorder` then moves inside the loops over points. The points of
a loop may have a partial sum, which is added to the whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc import ir
from dmlc.loops.element import Elements, Gather, Place, Read, View, operands, prune
from dmlc.loops.legality import (
    demand_serial,
    demand_unpacked,
    find_axis,
    find_path,
    find_points_path,
    forget_order,
    list_around,
    list_cuts,
)
from dmlc.loops.nodes import (
    Buffer,
    Into,
    Kind,
    Loop,
    Nest,
    Node,
    Point,
    Reduce,
    list_loops,
    list_phases,
    name_loops,
    take_name,
    walk,
)
from dmlc.loops.phases import Phase, with_elements
from dmlc.loops.script import On, ScheduleError, change, demand, primitive, replace_node
from dmlc.scalars import DataType

_LANES = 16
"""Multiple to which arrays are padded: whole vectors of any length."""
_MOST_OUTPUTS = 4096
"""Largest number of outputs of a block, so that its arrays fit in the L1 cache."""


@primitive()
def expand(on: On) -> Nest:
    """Distributes a loop over outputs over the phases inside, one loop each. Accumulators become
    arrays, with one element for each output.

    `for i: {s = sum(for k: f(i, k)); y[i] = s} -> for i: s[i] = sum(for k: f(i, k)); for i: y[i] =
    s[i]`
    """
    loop, nest = demand_serial(on.loop, "parted"), on.nest
    demand(nest.block is None, "outputs are in a block already")
    plain = loop.step == 1 and not loop.dim.parts and loop.dim.piece is None
    demand(plain and not loop.interleaved, "a block is made of the points of one dimension")
    cuts = set(list_cuts(nest, loop.dim))
    demand(not list_around(nest, loop) and len(cuts) < 2, "the steps around are numbered first")
    demand(list_loops(nest.body, loop.dim) == [loop], "several loops go over what is in a block")
    size = loop.dim.size
    known = isinstance(size, int) and min([*cuts, size]) <= _MOST_OUTPUTS
    demand(known, f"a block has {_MOST_OUTPUTS:,} outputs at most")
    path = [n for n in find_path(nest.body, loop) if isinstance(n, Loop)]
    demand(all(n.kind is not Kind.VECTOR for n in path), "there are no vectors of blocks")
    for number in range(len(nest.phases)):
        axis = find_axis(nest, number, loop)
        demand(axis in nest.phases[number].space.parallel, "what is in a block are outputs")
    _demand_innermost(nest, loop)
    taken = name_loops(nest) - {loop.name}
    name, made = on.take(loop.name), list[Node]()
    for node in loop.body:
        _demand_plain(node)
        own = dataclasses.replace(loop, name=take_name(name, taken))
        if isinstance(node, Reduce):
            nested = any(isinstance(n, Reduce) for n in walk(node.body))
            part = node.body if nested else (dataclasses.replace(node, serial=False),)
            own = dataclasses.replace(own, body=part)
            made.append(Reduce(node.phase, (own,), array=True))
        else:
            made.append(dataclasses.replace(own, body=(node,)))
    nest = dataclasses.replace(nest, block=loop.dim)
    return replace_node(nest, loop, *made)


def _demand_innermost(nest: Nest, loop: Loop) -> None:
    """Refuses a loop over outputs that contains another."""
    pairs = zip(nest.dims, nest.phases, strict=True)
    inner = {own[axis] for own, phase in pairs for axis in phase.space.inner}
    dims = [n.dim for n in walk(loop.body) if isinstance(n, Loop)]
    innermost = all(part in inner for dim in dims for part, _ in dim.parts or [(dim, 1)])
    demand(innermost, "the loop is not the innermost over outputs")


def _demand_plain(node: Node) -> None:
    """Refuses a node whose loops cannot be in a loop over outputs."""
    parted = isinstance(node, Reduce) or not any(isinstance(n, Reduce) for n in walk((node,)))
    demand(parted and len(list_phases(node)) == 1, "phases are parted that have their own loops")
    parts = [n for n in walk((node,)) if isinstance(n, Reduce)][1:]
    demand(not any(part.array for part in parts), "parts of one output have no parts")
    plain = all(isinstance(n, Reduce | Point) or (isinstance(n, Loop) and n.vectorization is None)
                for n in walk((node,)))  # fmt: skip
    demand(plain, "only loops are parted, and vectors of what lies side by side")


@primitive(takes_block=True)
def partial(on: On) -> Nest:
    """Gives the points of a loop a partial sum, which is then added to the whole; enclosing loops
    of the whole stay outside. Changes the order of sums.

    `s = sum(for k: for l: f(k, l)) -> s = sum(for k: sum(for l: f(k, l)))`
    """
    loop, nest = on.loop, on.nest
    path = find_points_path(nest, loop)
    around = [n for n in path if isinstance(n, Reduce)]
    demand(bool(around), "the loop walks no points that are reduced")
    whole = around[-1]
    demand(whole.tile is None and whole.into is None, "tiles have no parts")
    between = path[path.index(whole) + 1 : -1]
    demand(bool(between), "all that is reduced is no part")
    if len(around) > 1:
        # The existing partial reduction starts further inside.
        demand(not whole.array, "parts of parts have no parts")
        made = dataclasses.replace(whole, body=(loop,))
        nest = replace_node(nest, whole, *change(whole.body, loop, made))
    else:
        within = any(isinstance(n, Reduce) for n in walk(loop.body))
        of_one = any(isinstance(n, Loop) and n.dim is nest.block for n in between)
        demand(not within or not of_one, "parts of one output have no parts")
        nest = replace_node(nest, loop, Reduce(whole.phase, (loop,)))
        nest = forget_order(nest, loop)
    return _set_arrays(nest, whole.phase)


def _set_arrays(nest: Nest, number: int) -> Nest:
    """Moves accumulators with partial reductions to arrays, if a phase has several: for the outputs
    of a block, or the lanes of vectors."""
    for node in [n for n in walk(nest.body) if isinstance(n, Reduce) and n.phase == number]:
        blocked = nest.block is not None and bool(list_loops(node.body, nest.block))
        parted = any(isinstance(n, Reduce) for n in walk(node.body))
        array = parted and (blocked or bool(_list_wide(node.body)))
        if node.array != array:
            nest = replace_node(nest, node, dataclasses.replace(node, array=array))
    return nest


def _list_wide(nodes: Sequence[Node]) -> list[Loop]:
    """Vectorized loops of which each lane has its own accumulators."""
    loops = [n for n in walk(nodes) if isinstance(n, Loop)]
    return [n for n in loops if n.kind is Kind.VECTOR and not n.extent]


def add_up_lanes(nest: Nest, loop: Loop) -> Nest:
    """Nest after a loop along reduced points was vectorized: each of its lanes has partial
    accumulators."""
    around = [n for n in find_points_path(nest, loop) if isinstance(n, Reduce)]
    part = dataclasses.replace(around[-1], serial=False)
    demand(part.into is None and part.tile is None and not part.resumes,
           "lanes have accumulators of their own")  # fmt: skip
    whole = Reduce(part.phase, (part,)) if len(around) == 1 else part
    return _set_arrays(replace_node(nest, around[-1], whole), part.phase)


@primitive()
def relax(on: On) -> Nest:
    """Allows the points of a loop to be combined in any order. Changes no sum, only how equal
    extremes are resolved, and where guards are tested.

    `s = sum(for k in order: f(k)) -> s = sum(for k: f(k))`
    """
    demand(forget_order(on.nest, on.loop) != on.nest, "nothing is reduced in order")
    return forget_order(on.nest, on.loop)


@primitive()
def resume(on: On) -> Nest:
    """Makes a partial sum whose body is the loop continue with the whole's accumulators for its
    output, instead of being added to them. Changes the order of sums.

    `s[i] += sum(for k: f(i, k)) -> t = s[i]; for k: t += f(i, k); s[i] = t`
    """
    loop, nest = on.loop, on.nest
    around = [n for n in find_points_path(nest, loop) if isinstance(n, Reduce)]
    part = around[-1] if around else None
    if part is None or len(around) < 2 or part.body != (loop,) or part.array:
        raise ScheduleError("the loop is not all of a part")
    wide = any(n.dim is not nest.block for n in _list_wide(around[0].body))
    in_block = around[-2].array and not wide
    demand(in_block, "the whole has no accumulator for each output of a block")
    return replace_node(nest, part, dataclasses.replace(part, resumes=True))


@primitive(takes_block=True)
def reverse(on: On) -> Nest:
    """Runs a loop from its last step to the first, as the elements read last are still cached.
    Changes the order of sums if it iterates over reduced points.

    `for i in 0..n -> for i in 0..n backwards`
    """
    loop = demand_unpacked(on.loop, "reversed")
    finer = list_loops(loop.body, loop.dim)
    demand(loop.step == 1 or (bool(finer) and bool(finer[0].extent)),
           "what is in a step that is reversed is written out")  # fmt: skip
    tiled = [n for n in (loop, *finer) if n.dim.within is not None]
    demand(not tiled, "tiles are walked from first to last")
    made = dataclasses.replace(loop, backwards=not loop.backwards)
    return forget_order(on.replace(made), made)


@primitive()
def prefetch(on: On) -> Nest:
    """Prefetches, in a vectorized inner loop, the elements that the next step of the loop reads.

    `for i: for j: f(i, j) -> for i: for j: {fetch what f(i + 1, j) reads; f(i, j)}`
    """
    loop, nest = on.loop, on.nest
    demand(loop.step == 1 and loop.dim.piece is None, "what is fetched is of a step that there is")
    others = [n for n in _list_wide(loop.body) if n.dim is not loop.dim]
    wide = [n for n in others if n.vectorization is None and isinstance(n.body[0], Point)]
    demand(bool(wide), "loops in vectors fetch")
    for node in wide:
        nest = replace_node(nest, node, dataclasses.replace(node, ahead=loop.dim))
    return nest


@primitive(takes_block=True)
def hoist(on: On) -> Nest:
    """Moves values that are the same for all points of an output to a phase before, which stores
    them in an array for the outputs of a block. The loop is the one over the block.

    `for i: for j: f(g(i), j) -> for i: t[i] = g(i); for i: for j: f(t[i], j)`
    """
    loop, nest = on.loop, on.nest
    demand(loop.dim is nest.block, "what is hoisted is of a block of outputs")
    _demand_innermost(nest, loop)
    (number,) = list_phases(loop)
    axis = find_axis(nest, number, loop)
    before, rest = _hoist_values(nest.phases[number], axis, len(nest.buffers))
    size = loop.dim.size if isinstance(loop.dim.size, int) else 0
    width = -(-max(1, min([*list_cuts(nest, loop.dim), size])) // _LANES) * _LANES
    views = [view for view, _ in before.elements.results]
    buffers = [Buffer(v.tensor, v.dtype, width, loop.dim, "factors") for v in views]
    into = tuple(Into(buffer, loop.dim) for buffer in buffers)
    name = on.take("factors", beside=True)
    own = Loop(loop.dim, Kind.LOOP, 1, (Point(len(nest.phases), into),), name)
    top, inner = loop, {nest.dims[number][axis] for axis in rest.space.inner}
    for node in reversed(find_path(nest.body, loop)[:-1]):
        if not isinstance(node, Reduce) and not (isinstance(node, Loop) and node.dim in inner):
            break
        top = node
    nest = replace_node(nest, top, own, top).with_phase(number, rest)
    nest = nest.with_phase(len(nest.phases), before, nest.dims[number])
    return dataclasses.replace(nest, buffers=(*nest.buffers, *buffers))


def _hoist_values(phase: Phase, axis: int, first: int) -> tuple[Phase, Phase]:
    """The phase to run before, over parallel dimensions alone, and the phase without the hoisted
    values, which are numbered from `first` on. `axis` is the one along which outputs of a block
    are. Refuses phases in which nothing is worth it; a plain load is not."""
    elements = phase.elements
    inner = phase.space.inner
    moves = phase.find_moving(axis)
    varies: list[bool] = []
    for value in elements.values:
        own = any(varies[operand] for operand in operands(value))
        if isinstance(value, Read | Place | Gather):
            own |= any(value.view.strides[a] for a in inner)
        if isinstance(value, Gather):
            own |= value.guarded
        # The number of a point belongs to the points, even if there is only one.
        varies.append(own or (isinstance(value, Place) and value.dtype is not DataType.INDEX))
    taken = _choose_hoisted(elements, varies, moves)
    demand(bool(taken), "nothing that takes work is the same for all points of an output")
    local = tuple(int(a in phase.space.parallel) for a in range(len(phase.space.sizes)))
    views = {
        number: View(f"factor#{count}", elements.values[number].dtype, local, local=True)
        for count, number in enumerate(taken, first)
    }
    values = list(elements.values)
    for number, view in views.items():
        values[number] = Read(view, view.dtype)
    rest = prune(dataclasses.replace(elements, values=tuple(values)))
    results = tuple((v, n) for n, v in views.items())
    work = prune(Elements(elements.space, elements.values, results))
    return with_elements(phase, work), with_elements(phase, rest)


def _choose_hoisted(elements: Elements, varies: Sequence[bool], moves: Sequence[bool]) -> list[int]:
    """Outermost values that are the same for all points of an output, and cost something. Indices
    and index conditions are cheaper to recompute than to store."""
    needed = set(elements.roots())
    taken: list[int] = []
    for number in range(len(elements.values) - 1, -1, -1):
        value = elements.values[number]
        if number not in needed:
            continue
        fixed = not varies[number] and moves[number]
        plain = isinstance(value, Read | Place | ir.Constant)
        if fixed and not plain and value.dtype not in (DataType.BOOL, DataType.INDEX):
            taken.append(number)
        else:
            needed.update(operands(value))
    return taken[::-1]
