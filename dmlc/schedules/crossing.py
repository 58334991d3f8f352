"""Schedules for GPUs of reductions along rows, and of others down the columns of the same rows.

A group takes a number of rows, a few side by side at a time: the work items of each share its
elements, and have the same ones of every row. So what they read serves a row's reductions and what
applies these, and the sums of its columns stay in registers until all rows are done. Then those of
rows that stand side by side become one, and are stored as one part of many. Which rows a group
takes depends on sizes alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc.kernel.arithmetic import round_up
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.naive import name_inner, name_parallel, tell_apart
from dmlc.loops.nodes import Dim, Kind, Loop, Nest, Node, Point, Reduce, Tile, merge_dims
from dmlc.loops.phases import Phase
from dmlc.loops.space import cut, find_length
from dmlc.schedules.gpu import VECTOR, find_unit

_LEAST_LANES = 32
"""Work items that share a row, at least."""
_VECTORS = 4
"""Vectors, or elements, of a row that each of them has, as long as there are rows enough beside."""
_ELEMENTS = 16
"""Elements of a row that each has, at most, in a group of the usual size."""
_GROUPS = 1024
"""Groups that fill a large GPU."""
_FEW_GROUPS = 256
"""Groups that are worth more parts to combine."""
_COLUMN_BYTES, _FEW_ROWS = 64, 4
"""What a group reads of a column, at least: what it stores of it is then little beside that; and
rows where there are few groups."""


def cut_rows(phases: Sequence[Phase], p: Profile, limits: Limits) -> list[Phase]:
    """The phases, with the rows that a group takes as pieces of all."""
    *_, parts = phases
    reduced, kept = _part_parallel(parts)
    space = parts.space
    rows, others = (math.prod(space.sizes[axis] for axis in axes) for axes in (reduced, kept))
    outer = reduced[0]
    size = space.sizes[outer]
    within = rows // size
    (across,) = (phase for phase in phases if phase.is_across)
    reads = [v for v in across.elements.buffers() if across.space.count_steps(v) == space.count]
    least = _COLUMN_BYTES // max((view.dtype.bytes for view in reads), default=4)
    wanted = max(1, min(_GROUPS // others, rows // least))
    if wanted * others < _FEW_GROUPS:
        wanted = max(wanted, min(_FEW_GROUPS // others, rows // _FEW_ROWS))
    _, beside = _choose_sides(phases, p, limits)
    line = beside if within == 1 else 1
    length = min(size, find_length(size, max(1, min(wanted, size)), line))
    number = space.parallel.index(outer)
    divided: list[Phase] = []
    for phase in phases:
        made = cut(phase.space, phase.space.parallel[number], length, -(-size // length))
        strides = dict(made.strides)
        for view, _ in phase.elements.results if phase is parts else ():
            # Each piece has parts of its own, which lie packed.
            strides[view] = (space.count_steps(view) or 1, *strides[view][1:])
        divided.append(dataclasses.replace(phase, space=dataclasses.replace(made, strides=strides)))
    return divided


def _part_parallel(parts: Phase) -> tuple[list[int], list[int]]:
    """The parallel axes of what is stored of the columns: those that are reduced, and others."""
    space = parts.space
    views = [view for view, _ in parts.elements.results]
    moves = {axis: any(space.strides[v][axis] for v in views) for axis in space.parallel}
    return [a for a, moved in moves.items() if not moved], [
        a for a, moved in moves.items() if moved
    ]


def _choose_sides(phases: Sequence[Phase], p: Profile, limits: Limits) -> tuple[int, int]:
    """The work items that share a row, and the rows side by side: more of the former than a group
    has elsewhere, where each would have many elements."""
    unit = find_unit(phases, limits)
    row = max(phase.space.inner_count for phase in phases)
    slots = [(slot, p.is_across) for p in phases for each in p.accumulators for slot in each.slots]
    # Languages without narrower types hold values in 32 bits.
    shared = sum(max(4, slot.dtype.bytes) for slot, is_across in slots if not is_across)
    shared += unit * max(max(4, slot.dtype.bytes) for slot, _ in slots)
    size, most = p.group_size, min(p.holding, limits.group_size, limits.shared_bytes // shared)
    while 2 * size <= most and row > size * _ELEMENTS:
        size *= 2
    lanes = min(size, max(_LEAST_LANES, round_up(row // unit) // _VECTORS))
    return lanes, size // lanes


def choose_crossing(phases: Sequence[Phase], p: Profile, limits: Limits) -> Nest:
    """The nest of phases whose spaces are cut, the last of which stores what columns come to."""
    lanes, beside = _choose_sides(phases, p, limits)
    unit = find_unit(phases, limits)
    last = len(phases) - 1
    parallel = name_parallel(phases[last])
    reduced, kept = _part_parallel(phases[last])
    place = phases[last].space.parallel.index
    rows = _merge("row", [parallel[place(axis)] for axis in reduced])
    whole = _merge("part", [parallel[place(axis)] for axis in kept])
    dims: list[tuple[Dim, ...]] = []
    nodes: list[Node] = []
    count = 0
    for number, phase in enumerate(phases):
        own = name_inner(phase, parallel, "i", number)
        dims.append(own)
        if phase.is_parallel:
            nodes.append(Point(number))
            continue
        element = _merge(tell_apart("element", number), [own[axis] for axis in phase.space.inner])
        count = -(-phase.space.inner_count // (lanes * unit))
        point: tuple[Node, ...] = (Point(number),)
        if unit > 1:
            point = _take_unit(element, unit, Point(number))
        each = Loop(
            element, Kind.UNROLL, lanes * unit, point, "k", count, output=unit, clamps=unit == 1
        )
        made: Node = Loop(element, Kind.LANE, unit, (each,), "row", lanes)
        if phase.space.inner_count == lanes * unit * count:
            # There is nothing beyond the end.
            made = Loop(element, Kind.LOOP, lanes * unit * count, (made,))
        is_reduced = phase.accumulators and not phase.is_across
        nodes.append(Reduce(number, (made,)) if is_reduced else made)
    *body, store = nodes
    across = next(number for number, phase in enumerate(phases) if phase.is_across)
    several = Loop(rows, Kind.LANE, 1, tuple(body), "column", beside)
    steps = rows.count_steps(beside)
    each = Loop(rows, Kind.LOOP, beside, (several,), "step", steps)
    width = min(unit, VECTOR)
    tile = Tile(count, unit, unit, width, registers=True)
    joins = "column" if beside > 1 else ""
    sums = Reduce(across, (each,), array=True, tile=tile, joins=joins)
    groups = Loop(whole, Kind.GROUP, 1, (sums, store), "part")
    words = f"a group takes {rows.size} rows, {beside} at a time, with {lanes} lanes on each"
    sides = (("row", lanes), ("column", beside))
    return Nest(tuple(phases), tuple(dims), (groups,), sides, words=words, holds=True)


def _merge(name: str, dims: Sequence[Dim]) -> Dim:
    return dims[0] if len(dims) == 1 else merge_dims(name, dims)


def _take_unit(dim: Dim, unit: int, point: Point) -> tuple[Node, ...]:
    """A work item's neighbouring elements: a vector or two, whose sums lie in a tile; what is
    beyond the end is read there too."""
    vector = Loop(dim, Kind.VECTOR, VECTOR, (point,), "i", 1, clamps=True)
    if unit == VECTOR:
        return (vector,)
    return (Loop(dim, Kind.UNROLL, VECTOR, (vector,), "part", unit // VECTOR, output=VECTOR),)
