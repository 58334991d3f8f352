"""The verbs that make one nest of another. Each refuses what would change a result.

`naive` walks the points of each phase in the order of its axes, one after the other; everything
else is made of that. The sum of floats depends on the order of its terms: verbs that change this
say so, and those of integers, extremes and their places stay the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from dmlc.kernel import nodes as k
from dmlc.loops.nodes import (
    Dim,
    Kind,
    Loop,
    Nest,
    Node,
    Point,
    Reduce,
    in_vectors,
    inside,
    list_loops,
    list_phases,
    merge_dims,
    name_parallel,
    nest_serial,
    walk,
)
from dmlc.loops.phases import Phase


class ScheduleError(ValueError):
    """A verb would change what a nest computes, or has nothing to work on."""


def naive(phases: Sequence[Phase], count: k.Scalar | None = None) -> Nest:
    """Loops over the dimensions that all phases share, and in them the loops of each phase. `count`
    stands for the number of elements where that is an argument."""
    parallel = (Dim("i", count),) if count is not None else name_parallel(phases[0])
    dims, nodes = nest_serial(phases, parallel)
    for dim in reversed(parallel):
        nodes = (Loop(dim, Kind.LOOP, 1, nodes, dim.wanted),)
    return Nest(tuple(phases), dims, nodes)


def chain(nodes: Sequence[Node]) -> list[Loop]:
    """The loops that stand one in the other and have nothing beside them, outermost first."""
    found: list[Loop] = []
    while len(nodes) == 1 and isinstance(nodes[0], Loop):
        found.append(nodes[0])
        nodes = nodes[0].body
    return found


def split(nest: Nest, loop: Loop, by: int) -> Nest:
    """A loop as two: one by `by` of its steps, and in it one over these."""
    _demand(loop.kind is Kind.LOOP and not loop.extent, "only serial loops are split")
    _demand(by > 1, "a loop is split by two steps at least")
    loops = list_loops(nest.body, loop.dim)
    around = loops[: next(i for i, each in enumerate(loops) if each is loop)]
    # Steps of loops are counted by the loop around, whatever that is bound to later on.
    fits = all(each.step >= loop.step * by for each in around)
    _demand(fits, "the part of a step is split into shorter ones")
    name = f"{loop.name}_block"
    outer = dataclasses.replace(loop, step=loop.step * by, body=(loop,), name=name)
    return _replace(nest, loop, outer)


def merge(nest: Nest, outer: Loop, name: str) -> Nest:
    """Two loops, the second of which is all that the first has, as one over the points of both."""
    inner = _only_loop(outer)
    for loop in (outer, inner):
        _demand(loop.kind is Kind.LOOP and loop.step == 1, "only serial loops by ones are merged")
        _demand(len(list_loops(nest.body, loop.dim)) == 1, "a dimension in steps is not merged")
        _demand(isinstance(loop.dim.size, int), "a dimension of unknown extent is not merged")
    _demand(inner.dim.piece is None, "a piece of a longer dimension goes outermost")
    parts = [
        part
        for loop in (outer, inner)
        for part in ([p for p, _ in loop.dim.parts] if loop.dim.parts else [loop.dim])
    ]
    made = Loop(merge_dims(name, parts), Kind.LOOP, 1, inner.body, name)
    return _replace(nest, outer, made)


def reorder(nest: Nest, outer: Loop) -> Nest:
    """A loop and the one that is all it has, the other way round. Changes the order of sums where
    both walk reduced points."""
    inner = _only_loop(outer)
    _demand(outer.kind is not Kind.GROUP, "work groups take the outermost loop")
    if outer.dim is inner.dim:
        counted = bool(outer.extent and inner.extent)
        _demand(counted, "the steps of a loop go by its range, which is settled outside")
    _demand(not outer.interleaved and not inner.interleaved, "interleaved loops stay in place")
    made = dataclasses.replace(
        inner, body=(dataclasses.replace(outer, body=inner.body, backwards=False),)
    )
    return _forget_order(_replace(nest, outer, made), made)


def bind(nest: Nest, loop: Loop, kind: Kind, name: str = "lane") -> Nest:
    """A loop whose steps work groups, or the work items of a group, take one each. Changes the
    order of sums where it walks reduced points."""
    _demand(loop.kind is Kind.LOOP and not loop.extent, "only serial loops are bound")
    if kind is Kind.GROUP:
        bound = [n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.GROUP]
        _demand(not bound, "there are work groups already")
        _demand(len(nest.body) == 1 and nest.body[0] is loop, "work groups take the outermost loop")
        _demand(not _reduces(nest, loop), "work groups share no reduction")
        return _replace(nest, loop, dataclasses.replace(loop, kind=kind))
    _demand(kind is Kind.LANE, "loops are bound to work groups or work items")
    extent = _count(nest, loop)
    nest = _take_lanes(nest, loop, name, extent or 0)
    made = dataclasses.replace(loop, kind=kind, extent=extent or 1, name=name)
    return _forget_order(_replace(nest, loop, made), made)


def deal(nest: Nest, loop: Loop, name: str, extent: int) -> Nest:
    """A loop whose points are dealt to so many work items, neighbours to neighbours, each of which
    has a serial loop over its own. Changes the order of sums where it walks reduced points."""
    _demand(loop.kind is Kind.LOOP and loop.step == 1 and not loop.extent,
            "only serial loops by ones are dealt")  # fmt: skip
    _demand(len(list_loops(nest.body, loop.dim)) == 1, "a dimension in steps is not dealt")
    nest = _take_lanes(nest, loop, name, extent)
    inner = dataclasses.replace(loop, step=extent)
    made = Loop(loop.dim, Kind.LANE, 1, (inner,), name, extent)
    return _forget_order(_replace(nest, loop, made), inner)


def _take_lanes(nest: Nest, loop: Loop, name: str, extent: int) -> Nest:
    """The nest with an axis of work items that a loop may take."""
    loops = [n for n in _path(nest.body, loop) if isinstance(n, Loop) and n is not loop]
    _demand(all(n.kind in (Kind.GROUP, Kind.LANE) for n in loops),
            "work items take the outermost loops of a group")  # fmt: skip
    _demand(extent > 1 and extent & (extent - 1) == 0, "work items are a power of two")
    lanes = dict(nest.lanes)
    _demand(lanes.setdefault(name, extent) == extent, "an axis of work items has one extent")
    loops += [n for n in walk(loop.body) if isinstance(n, Loop)]
    taken = {n.name for n in loops if n.kind is Kind.LANE}
    _demand(name not in taken, "an axis of work items has one loop")
    _demand(math.prod(lanes.values()) <= _MOST_ITEMS, "a group has so many work items at most")
    return dataclasses.replace(nest, lanes=tuple(lanes.items()))


_MOST_ITEMS = 1024


def unroll(nest: Nest, loop: Loop) -> Nest:
    """A loop that is written out. What its steps do not come out even with goes one by one."""
    _demand(loop.kind is Kind.LOOP and not loop.extent, "only serial loops are written out")
    extent = _count(nest, loop)
    _demand(extent is not None and extent <= _MOST_UNROLLED, "too many steps to write out")
    around = [n for n in _path(nest.body, loop) if isinstance(n, Loop) and n.dim is loop.dim]
    whole = isinstance(loop.dim.size, int) and extent == -(-loop.dim.size // loop.step)
    serial = len(around) > 1 and around[-2].kind is Kind.LOOP
    _demand(whole or serial, "the steps are counted by the serial loop around")
    _demand(loop.step == 1, "steps of several elements are not written out")
    made = dataclasses.replace(loop, kind=Kind.UNROLL, extent=extent or 1)
    return _replace(nest, loop, made)


_MOST_UNROLLED = 16


def vectorize(nest: Nest, loop: Loop, lanes: int) -> Nest:
    """A loop in vectors, along which all that is read and stored lies side by side, or is the same.
    Along reduced points each lane makes a part of the sum, which become one at the end."""
    _demand(loop.kind is Kind.LOOP and loop.step == 1 and not loop.extent,
            "only serial loops by ones go in vectors")  # fmt: skip
    _demand(not loop.dim.parts, "vectors run along one dimension")
    (number, *more) = list_phases(loop)
    _demand(not more, "a loop of several phases does not go in vectors")
    _demand(loop.body == (Point(number),), "vectors run along the innermost loop")
    phase, dims = nest.phases[number], nest.dims[number]
    axis = dims.index(loop.dim)
    vectorization = phase.lies_together(axis)
    _demand(vectorization, "what is read and stored does not lie side by side")
    made = in_vectors(loop.dim, lanes, loop.body, loop.name)
    if not phase.accumulators:
        return _replace(nest, loop, made)
    _demand(_reduces(nest, loop), "vectors across outputs need accumulators in arrays")
    moving = phase.find_moving(axis)
    guards = [f.guard for f in phase.elements.reductions if f.guard is not None]
    _demand(not any(moving[g] for g in guards) or not phase.tests_guard,
            "a guard that protects reads is the same in all lanes")  # fmt: skip
    (around,) = [n for n in _path(nest.body, loop) if isinstance(n, Reduce)][-1:]
    _demand(not around.array and around.into is None, "lanes have accumulators already")
    nest = _replace(nest, loop, made)
    (whole,) = [n for n in _path(nest.body, made) if isinstance(n, Reduce)][-1:]
    part = dataclasses.replace(whole, serial=False)
    return _replace(nest, whole, Reduce(number, (part,), array=True))


def interleave(nest: Nest, loop: Loop) -> Nest:
    """A loop whose first reduction is made for the next step beside what is done with that of the
    present one."""
    return _replace(nest, loop, dataclasses.replace(loop, interleaved=True))


def _check_interleaved(nest: Nest, loop: Loop) -> None:
    """Refuses an interleaved loop that each step of would not find the next one's points in."""
    serial = loop.kind is Kind.LOOP and not loop.extent and loop.step == 1
    _demand(serial and not list_loops(loop.body, loop.dim),
            "only serial loops by ones are interleaved")  # fmt: skip
    _demand(loop.dim is not nest.block, "blocks of outputs are not interleaved")
    first, *between = loop.body
    last = between.pop() if between else None
    _demand(isinstance(first, Reduce) and first.array, "what is made ahead is kept in arrays")
    loops = [n for n in walk(loop.body) if isinstance(n, Loop)]
    parted = [(n.dim.size, n.step) for n in loops if list_loops(n.body, n.dim)]
    even = all(isinstance(size, int) and size % step == 0 for size, step in parted)
    _demand(even and all(n.dim.piece is None for n in loops),
            "pieces may end at different places")  # fmt: skip
    fits = last is not None and all(isinstance(n, Point) for n in between)
    _demand(fits and last is not None and list_steps(first) == list_steps(last),
            "a reduction and what is done beside it have different loops")  # fmt: skip


def list_steps(node: Node) -> list[tuple[Kind, int, int | k.Scalar]]:
    """The loops in a node, outermost first: their kinds, steps and extents."""
    loops = [n for n in walk((node,)) if isinstance(n, Loop)]
    return [(n.kind, n.step, n.dim.size) for n in loops]


# What the verbs ask --------------------------------------------------------------------------


def _demand(holds: bool, message: str) -> None:
    if not holds:
        raise ScheduleError(message)


def _only_loop(outer: Loop) -> Loop:
    """The loop that is all another has."""
    if len(outer.body) == 1 and isinstance(outer.body[0], Loop):
        return outer.body[0]
    raise ScheduleError("there is not one loop in the other, and nothing beside it")


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
    path = [n for n in _path(nest.body, loop) if isinstance(n, Loop) and n.dim is loop.dim]
    if len(path) > 1:
        whole, rest = divmod(path[-2].step, loop.step)
        return whole if rest == 0 else None
    if not isinstance(loop.dim.size, int) or loop.dim.piece is not None:
        return None
    return -(-loop.dim.size // loop.step)


def _forget_order(nest: Nest, loop: Loop) -> Nest:
    """Has reductions no longer rely on the order of their points, where a loop walks these."""
    for node in _path(nest.body, loop):
        if isinstance(node, Reduce) and node.serial:
            nest = _replace(nest, node, dataclasses.replace(node, serial=False))
    return nest


def _replace(nest: Nest, old: Node, new: Node) -> Nest:
    """The nest with one node for another. Loops that are interleaved still can be."""
    made = dataclasses.replace(nest, body=_map(nest.body, lambda n: new if n is old else None))
    for node in walk(made.body):
        if isinstance(node, Loop) and node.interleaved:
            _check_interleaved(made, node)
    return made


def _map(nodes: Sequence[Node], change: Callable[[Node], Node | None]) -> tuple[Node, ...]:
    """The nodes, some of them changed; those that nothing changes in stay themselves."""
    made: list[Node] = []
    for node in nodes:
        changed = change(node)
        if changed is None and isinstance(node, Loop | Reduce):
            body = _map(node.body, change)
            same = all(a is b for a, b in zip(body, node.body, strict=True))
            changed = node if same else dataclasses.replace(node, body=body)
        made.append(node if changed is None else changed)
    return tuple(made)
