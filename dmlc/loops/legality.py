"""Preconditions of the primitives, with the messages of refusals."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from dmlc.loops.nodes import (
    Dim,
    Kind,
    Loop,
    Nest,
    Node,
    Pack,
    Point,
    Reduce,
    Stage,
    find_shared,
    inside,
    list_arrangements,
    list_dims,
    list_loops,
    list_phases,
    walk,
)
from dmlc.loops.script import ScheduleError, demand, replace_node
from dmlc.source import list_names


def demand_serial(loop: Loop, what: str) -> Loop:
    demand(loop.kind is Kind.LOOP and not loop.extent, f"only serial loops are {what}")
    return loop


def demand_unpacked(loop: Loop, what: str) -> Loop:
    """The loop, if it is serial and may have a partial last step; else refuses."""
    packs = [n for n in walk(loop.body) if isinstance(n, Pack) and not n.in_words]
    packed = any(n.dim is loop.dim for n in packs)
    demand(not packed, f"a loop that stores vectors of packed points is not {what}")
    return demand_serial(loop, what)


def demand_ranges(loop: Loop) -> None:
    """Refuses to number the steps of a loop unless the inner loops use the range of a step."""
    finer = list_loops(loop.body, loop.dim)
    demand(loop.step == 1 or (bool(finer) and not finer[0].extent),
            "what is in a step that is numbered goes by its range")  # fmt: skip


def find_point(loop: Loop, what: str) -> int:
    """Phase of the element-wise point that is all of a loop's body; else refuses."""
    match loop.body:
        case (Point(phase=number, into=(), name=""),):
            return number
        case _:
            raise ScheduleError(f"single points are {what}")


def find_axis(nest: Nest, number: int, loop: Loop) -> int:
    """Axis of a phase that a loop iterates over."""
    if loop.dim not in nest.dims[number]:
        raise ScheduleError("the loop walks no dimension of what is computed")
    return nest.dims[number].index(loop.dim)


def chain(nodes: Sequence[Node]) -> list[Loop]:
    """The loops that stand one in the other and have nothing beside them, outermost first."""
    found: list[Loop] = []
    while len(nodes) == 1 and isinstance(nodes[0], Loop):
        found.append(nodes[0])
        nodes = nodes[0].body
    return found


def only_loop(outer: Loop | Reduce) -> Loop:
    """The loop that is all of another's body, or of a partial reduction."""
    if len(outer.body) == 1 and isinstance(outer.body[0], Loop):
        return outer.body[0]
    raise ScheduleError("there is not one loop in the other, and nothing beside it")


MOST_ITEMS = 1024
WIDTHS = 4, 8, 16
WIDTHS_ONLY = "vectors have 4, 8 or 16 lanes"
MOST_UNROLLED = 16
MOST_SHARED = 32


def take_lanes(nest: Nest, loop: Loop, name: str, extent: int, *, own: bool = False) -> Nest:
    """Nest with an axis of work items for a loop; of its block's `own`, if so."""
    path = find_path(nest.body, loop)
    alone = nest.block is None or not reduces(nest, loop)
    demand(alone, "work items share no block of outputs")
    demand(not list_scattered(nest), "one work item alone puts points into the elements of a row")
    stages = [i for i, n in enumerate(path) if isinstance(n, Stage)]
    if stages:
        return _allot_lanes(nest, path[stages[-1] + 1 :], loop, name, extent)
    if own:
        grouped = isinstance(path[0], Loop) and path[0].kind is Kind.GROUP
        demand(grouped, "blocks of a group have axes of their own")
        # All work items execute the counted loops around the block together.
        walked = [n for n in path[1:] if not (isinstance(n, Loop) and n.kind is Kind.LOOP
                                              and n.extent and n is not loop)]  # fmt: skip
        return _allot_lanes(nest, walked, loop, name, extent)
    loops = [n for n in path if isinstance(n, Loop) and n is not loop]
    plain = not any(isinstance(n, Reduce | Stage) for n in (*path, *walk(loop.body)))
    fits = all(n.kind in (Kind.GROUP, Kind.LANE) or
               (n.kind is Kind.UNROLL and (n.dim is loop.dim or plain)) for n in loops)  # fmt: skip
    demand(fits, "work items take the outermost loops of a group")
    written = any(n.kind is Kind.UNROLL for n in loops)
    shared = any(isinstance(n, Reduce) and find_shared(n) for n in walk(loop.body))
    meets = reduces(nest, loop) or shared
    demand(not written or not meets, "in what is written out, work items reduce nothing")
    demand(extent > 1 and extent & (extent - 1) == 0, "work items are a power of two")
    demand_free(nest, name)
    lanes = dict(nest.lanes)
    demand(lanes.setdefault(name, extent) == extent, "an axis of work items has one extent")
    loops += [n for n in walk(loop.body) if isinstance(n, Loop)]
    taken = {n.wanted for n in loops if n.kind is Kind.LANE}
    demand(name not in taken, "an axis of work items has one loop")
    demand(taken <= set(lanes), "the block has axes of its own")
    demand(math.prod(lanes.values()) <= MOST_ITEMS, "a group has so many work items at most")
    return dataclasses.replace(nest, lanes=tuple(lanes.items()))


def demand_free(nest: Nest, name: str) -> None:
    """Refuses an axis of all work items whose name a block uses for its own."""
    taken = {own for axes in list_arrangements(nest) for own, _ in axes}
    demand(name not in taken, f"a block has an axis '{name}' of its own")


def _allot_lanes(nest: Nest, path: Sequence[Node], loop: Loop, name: str, extent: int) -> Nest:
    """Nest where a block has work-item axes of its own, such as for filling a tile: no other block
    has them, and their product is at most the group's size."""
    loops = [n for n in path if isinstance(n, Loop) and n is not loop]
    fits = all(n.kind in (Kind.LANE, Kind.UNROLL) for n in loops) and len(loops) == len(path) - 1
    demand(fits, "work items take the outermost loops of a tile")
    shared = [n for n in walk(path) if isinstance(n, Stage) or
              (isinstance(n, Reduce) and not n.serial)]  # fmt: skip
    demand(not shared, "work items that stand otherwise share no reduction")
    inner = [n for n in walk(loop.body) if isinstance(n, Loop) and n.kind is Kind.LANE]
    other = any(n.wanted in dict(nest.lanes) for n in (*loops, *inner))
    demand(not other, "the block has other axes")
    demand(extent > 1 and extent & (extent - 1) == 0, "work items are a power of two")
    taken = {n.wanted for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.LANE}
    demand(name not in taken and name not in dict(nest.lanes), "an axis of a tile is its own")
    own = math.prod(n.extent for n in (*loops, *inner) if n.kind is Kind.LANE)
    there = math.prod(side for _, side in nest.lanes)
    demand(own * extent <= there, "a group has not so many work items")
    return nest


def find_path(nodes: Sequence[Node], wanted: Node) -> list[Node]:
    """A node and its enclosing nodes, outermost first."""
    for node in nodes:
        if node is wanted:
            return [node]
        found = find_path(inside(node), wanted)
        if found:
            return [node, *found]
    return []


def reduces(nest: Nest, loop: Loop) -> bool:
    """Whether a loop iterates over reduced points."""
    return any(isinstance(n, Reduce) for n in find_points_path(nest, loop))


def find_points_path(nest: Nest, loop: Loop) -> list[Node]:
    """A loop and its enclosing loops over the same points, without those that fill tiles."""
    path = find_path(nest.body, loop)
    stages = [i for i, n in enumerate(path) if isinstance(n, Stage)]
    return path[stages[-1] + 1 :] if stages else path


def rises(nest: Nest, node: Reduce) -> bool:
    """Whether each accumulator of a reduction, of a work item and of a lane of a vector, combines
    its points in the order of their numbers."""
    if node.resumes or not nest.phases[node.phase].counts_up:
        return False
    places = {dim: axis for axis, dim in enumerate(nest.dims[node.phase])}
    nodes, around, last = node.body, list[Loop](), -1
    while nodes != (Point(node.phase),):
        match nodes:
            case (Loop(backwards=False) as loop,):
                nodes = loop.body
            case _:
                return False
        if loop.kind in (Kind.GROUP, Kind.LANE):
            continue
        if around and loop.dim is around[-1].dim:
            if loop.step > around[-1].step:
                return False
        else:
            axes = [places.get(part, -1) for part, _ in loop.dim.parts or ((loop.dim, 1),)]
            if any(axis <= before for before, axis in itertools.pairwise([last, *axes])):
                return False
            last = axes[-1]
        around.append(loop)
    return True


def list_around(nest: Nest, loop: Loop) -> list[Loop]:
    """Enclosing loops over the same dimension, outermost first."""
    path = [n for n in find_path(nest.body, loop) if isinstance(n, Loop) and n.dim is loop.dim]
    return path[:-1]


def count_steps(nest: Nest, loop: Loop) -> int | None:
    """Number of steps of a loop; None if it is not constant."""
    # Cyclically distributed steps continue through the whole shared range.
    around = [n.step for n in list_around(nest, loop)
              if n.kind is not Kind.LANE or loop.step <= n.step]  # fmt: skip
    size = loop.dim.size
    # A tile has no partial steps.
    tile = size if loop.dim.within is not None and isinstance(size, int) else 0
    if any(tile % step for step in (loop.step, *around)):
        return None
    if around:
        whole, rest = divmod(min(around), loop.step)
        return whole if rest == 0 else None
    if not isinstance(size, int) or loop.dim.piece is not None or list_cuts(nest, loop.dim):
        return None
    return -(-size // loop.step)


def is_alone(nest: Nest, loop: Loop) -> bool:
    """Whether a loop by ones is all there is over its dimension, in loops and in numbered steps."""
    loops = list_loops(nest.body, loop.dim)
    return loop.step == 1 and len(loops) == 1 and not list_cuts(nest, loop.dim)


def list_cuts(nest: Nest, dim: Dim) -> list[int]:
    """Steps in which a dimension is numbered by loops over a part of it."""
    loops = [n for n in walk(nest.body) if isinstance(n, Loop)]
    return [step for n in loops for part, step in n.dim.parts if part is dim and step > 1]


def covers(whole: Dim, dim: Dim) -> bool:
    """Whether an index along a dimension determines the one along another."""
    return whole is dim or any(covers(part, dim) for part, _ in whole.parts)


def numbers_pieces(nest: Nest, outer: Dim, inner: Dim) -> bool:
    """Whether an index along one dimension selects the chunk of the other."""
    pieces = (dim for dim in list_dims(nest) if dim.piece is not None and covers(inner.whole, dim))
    return any(covers(outer.whole, dim.piece[0]) for dim in pieces if dim.piece is not None)


def list_scattered(nest: Nest) -> list[Dim]:
    """Dimensions of the points that select the elements they are combined with."""
    pairs = [each for each in zip(nest.phases, nest.dims, strict=True) if each[0].scatter]
    return [own[axis] for phase, own in pairs for axis in phase.space.inner]


def hold_points(nest: Nest) -> Nest:
    """Nest whose work items keep values that several phases read, if each has all of its points in
    one step."""
    loops = [n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.LOOP]
    read = [v.tensor for p in nest.phases if not p.is_parallel
            for v in dict.fromkeys(p.elements.buffers())]  # fmt: skip
    whole = all(n.step == n.dim.size for n in loops) and len(set(read)) < len(read)
    return dataclasses.replace(nest, holds=whole)


def forget_order(nest: Nest, loop: Loop) -> Nest:
    """Nest whose reductions no longer rely on the order of their points, if a loop iterates over
    these."""
    for node in find_points_path(nest, loop):
        if isinstance(node, Reduce) and node.serial:
            nest = replace_node(nest, node, dataclasses.replace(node, serial=False))
    return nest


def find_unlike(nodes: Sequence[Node]) -> Loop | None:
    """A loop over a dimension that sibling loops iterate over in another way: not all by its range,
    or in different numbers of steps."""
    around: list[tuple[Loop, dict[int, bool]]] = []
    """Enclosing loops, with whether the next inner loops over each dimension, by its identity, have
    a fixed number of steps."""

    def look(nodes: Sequence[Node]) -> Loop | None:
        for node in nodes:
            if not isinstance(node, Loop):
                found = look(inside(node))
            else:
                own = id(node.dim)
                for outer, kinds in reversed(around):
                    has = any(dim is node.dim for dim in _list_own(outer))
                    if has and kinds.setdefault(own, bool(node.extent)) != bool(node.extent):
                        return outer
                    if outer.dim is node.dim:
                        break
                around.append((node, {}))
                found = look(node.body)
                around.pop()
            if found is not None:
                return found
        return None

    return look(nodes)


def _list_own(loop: Loop) -> tuple[Dim, ...]:
    """Dimension of a loop, and those it was merged from."""
    return (loop.dim, *(part for part, _ in loop.dim.parts))


def describe_loops(nest: Nest) -> str:
    """Loops of a nest, each with the tensors that it sums or computes."""
    said: list[str] = []
    for loop in (n for n in walk(nest.body) if isinstance(n, Loop)):
        phases = [nest.phases[number] for number in list_phases(loop)]
        added = [each.name for phase in phases for each in phase.accumulators]
        what = ("reduces", added) if reduces(nest, loop) else ("computes", list[str]())
        if not what[1]:
            stored = [view.tensor for p in phases for view, _ in p.elements.results]
            what = ("computes", [*added, *stored])
        names = dict.fromkeys(name.partition("#")[0] for name in what[1])
        said.append(f"{loop.name} {what[0]} {list_names((*names,), 4)}")
    return f"loops: {'; '.join(said)}" if said else "there are no loops"
