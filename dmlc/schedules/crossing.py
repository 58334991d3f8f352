"""Schedules for GPUs of reductions along rows, and of others down the columns of the same rows.

A group takes a number of rows, and stores what their columns come to as one part of many: see
`cross`. Which rows it takes, how many at a time, and how many work items share one, depends on
sizes alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc.kernel.arithmetic import round_up
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.arrange import cut, find_length
from dmlc.loops.naive import part_rows
from dmlc.loops.nodes import Nest
from dmlc.loops.phases import Phase
from dmlc.schedules.gpu import find_unit
from dmlc.schedules.rule import Work

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
    reduced, kept = part_rows(parts)
    space = parts.space
    rows, others = (math.prod(space.sizes[axis] for axis in axes) for axes in (reduced, kept))
    outer = reduced[0]
    size = space.sizes[outer]
    within = rows // size
    (across,) = (phase for phase in phases if phase.is_across)
    reads = [v for v in across.elements.buffers() if across.count_steps(v) == space.count]
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
        axis = phase.space.parallel[number]
        made = cut(phase.elements, axis, length, -(-size // length))
        if phase is parts:
            # Each piece has parts of its own, which lie packed.
            results = tuple(
                (dataclasses.replace(v, strides=(parts.count_steps(v) or 1, *v.strides)), root)
                for v, root in parts.elements.results
            )
            made = dataclasses.replace(made, results=results)
        divided.append(dataclasses.replace(phase, elements=made))
    return divided


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


def choose_crossing(work: Work) -> Nest | None:
    """The nest of phases whose spaces are cut, the last of which stores what columns come to."""
    if not any(phase.is_across for phase in work.phases):
        return None
    rule = work.begin()
    lanes, beside = _choose_sides(work.phases, work.profile, work.limits)
    rule.do("cross", lanes, beside, find_unit(work.phases, work.limits))
    parts = work.phases[-1]
    rows = math.prod(parts.space.sizes[axis] for axis in part_rows(parts)[0])
    return rule.finish(f"a group takes {rows} rows, {beside} at a time, with {lanes} lanes on each")
