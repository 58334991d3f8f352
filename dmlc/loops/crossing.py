"""The primitive of rows that are reduced along, and down their columns too.

The work items that share a row have the same elements of every row. So what they read serves a
row's reductions and what applies these, and the sums of its columns stay in registers until all
rows are done. Then those of rows that stand side by side become one, and are stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.loops.legality import MOST_ITEMS, MOST_SHARED
from dmlc.loops.naive import name_inner, name_parallel, part_rows, tell_apart
from dmlc.loops.nodes import Dim, Kind, Loop, Nest, Node, Point, Reduce, Tile, number_steps
from dmlc.loops.phases import VECTOR
from dmlc.loops.script import Argument, On, demand, primitive
from dmlc.sizes import is_multiple


@primitive(Argument.NUMBER, Argument.NUMBER, Argument.NUMBER, takes_loop=False)
def cross(on: On, lanes: int, beside: int, unit: int) -> Nest:
    """Rows that are reduced along and down their columns, so many `beside` each other at a time.
    A row is shared by so many work items (`lanes`), each of which has so many neighbouring elements
    (`unit`) at once, the same of every row, and holds what it reads. It is the one call of a
    script: it makes all loops of the naive nest anew. Changes the order of sums.

    `for row: {s = sum(for k: f(row, k)); for k: t[k] += g(row, k, s)} -> for row in 0..n by beside:
    {column = the work item's row; s = sum(for k shared by lanes: f(row, k)); for k shared by lanes:
    t[k] += g(row, k, s)}`, and then `t[k] = sum(for column: t[k])`
    """
    phases = on.nest.phases
    wide = [phase for phase in phases if not phase.is_parallel]
    demand(any(phase.is_across for phase in phases), "nothing is reduced down the columns of rows")
    for count in (lanes, beside):
        demand(count > 0 and count & (count - 1) == 0, "work items are a power of two")
    demand(1 < lanes <= MOST_ITEMS // beside, f"a row has 2 to {MOST_ITEMS // beside:,} work items")
    even = all(p.begins_evenly(on.limits) and not p.has_positions for p in wide)
    demand(unit == 1 or (unit > 0 and unit % VECTOR == 0 and even),
            f"elements do not begin where vectors of {VECTOR} do")  # fmt: skip
    lengths = [phase.space.extents[-1] for phase in wide]
    fits = unit in (1, VECTOR) or all(is_multiple(length, unit) for length in lengths)
    demand(fits, "vectors do not come out even")
    (count, *_) = (-(-phase.space.inner_count // (lanes * unit)) for phase in wide)
    demand(count * max(1, unit // VECTOR) <= MOST_SHARED, "too many steps to write out")
    parallel = name_parallel(phases[-1])
    reduced, kept = part_rows(phases[-1])
    place = phases[-1].space.parallel.index
    rows = _merge("row", [parallel[place(axis)] for axis in reduced])
    parts = _merge("part", [parallel[place(axis)] for axis in kept])
    dims: list[tuple[Dim, ...]] = []
    nodes: list[Node] = []
    for number, phase in enumerate(phases):
        own = name_inner(phase, parallel, "i", number)
        dims.append(own)
        node: Node = Point(number)
        if not phase.is_parallel:
            element = _merge(tell_apart("element", number), [own[a] for a in phase.space.inner])
            node = _share(element, number, (lanes, unit, count))
        is_reduced = phase.accumulators and not phase.is_across
        nodes.append(Reduce(number, (node,)) if is_reduced else node)
    *body, store = nodes
    (across,) = (number for number, phase in enumerate(phases) if phase.is_across)
    several = Loop(rows, Kind.LANE, 1, tuple(body), "column", beside)
    each = Loop(rows, Kind.LOOP, beside, (several,), "step", rows.count_steps(beside))
    tile = Tile(count, unit, unit, min(unit, VECTOR), registers=True)
    joins = "column" if beside > 1 else ""
    sums = Reduce(across, (each,), array=True, tile=tile, joins=joins)
    groups = Loop(parts, Kind.GROUP, 1, (sums, store), "part")
    sides = (("row", lanes), ("column", beside))
    return Nest(phases, tuple(dims), (groups,), sides, holds=True)


def _merge(name: str, dims: Sequence[Dim]) -> Dim:
    return dims[0] if len(dims) == 1 else number_steps(name, [(dim, 1) for dim in dims])


def _share(element: Dim, number: int, shape: tuple[int, int, int]) -> Node:
    """Loops of work items over the elements of a row, in vectors of a number of adjacent ones,
    which lie in a tile. Elements beyond the end are read as the last one."""
    lanes, unit, count = shape
    node: Node = Point(number)
    if unit > 1:
        node = Loop(element, Kind.VECTOR, VECTOR, (node,), tell_apart("i", number), 1, clamps=True)
    if unit > VECTOR:
        name = tell_apart("part", number + 1)
        node = Loop(element, Kind.UNROLL, VECTOR, (node,), name, unit // VECTOR, output=VECTOR)
    width = lanes * unit
    name = tell_apart("k", number)
    node = Loop(element, Kind.UNROLL, width, (node,), name, count, output=unit, clamps=unit == 1)
    node = Loop(element, Kind.LANE, unit, (node,), tell_apart("row", number), lanes)
    if element.size == width * count:
        # There is nothing beyond the end.
        node = Loop(element, Kind.LOOP, width * count, (node,), tell_apart("whole", number))
    return node
