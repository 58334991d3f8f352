"""Schedules for CPUs: long runs of elements in vectors, one run per work item.

Folded points that lie side by side in memory are added up in vectors; where outputs do, vectors
run across a block of outputs, whose accumulators are arrays. Short rows of many outputs are taken
in blocks too, so that a work item reads on in memory. Floating-point accumulators are flushed into
totals every few thousand points, for precision's sake. A pass that applies what was reduced runs
over the outermost dimension backwards: what was read last is still in the caches.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc import ir
from dmlc.kernel.target import Profile
from dmlc.loops.element import Gather, list_conditions
from dmlc.loops.legality import chain
from dmlc.loops.nodes import Nest
from dmlc.loops.permute import LANES
from dmlc.loops.phases import Phase, find_segments
from dmlc.loops.vectorize import Vectorization, vectorize_reads
from dmlc.schedules.rule import Rule, Work
from dmlc.schedules.streaming import CACHE_LINE

_MANY_READS = 12
"""Reads at computed places of one element, from which on work items have fewer elements."""

_TILE = 256, 8
"""The rows and columns of a tile. Tall, since each column of it lies on pages of its own, and
opening one costs more than reading on; narrow enough for its lines to stay near. Of 16 shapes tried
on matrices of 3072 by 4000 and 4096 by 4096, 1.4 to 3 times as quick as 64 by 16 or 16 by 16."""

_COLUMNS = 256
"""Neighbouring outputs in a block, at most, where vectors run across them."""
_WIDE_COLUMNS = 4096
"""The same, where the reduction stores as well: whole rows then stream, two in half the time
that blocks of 256 take, and the states still fit the first cache."""
_COLUMN_STEP = 64
"""Blocks of columns hold a multiple of these: whole cache lines, whatever the type."""
_SHORT_ROW = 200
"""A row of no more points than this is read together with its neighbours' rows."""
_ROWS = 16
"""Neighbouring outputs in a block of short rows."""

_SHORTEST_ROW = 4
"""Elements of a row that a vector across rows reduces sooner than one along it, at most."""
_SMALL_WINDOW = 64
"""Points of so few rows, at most."""

_BAND = 4
"""Rows walked side by side, where vectors run across outputs: rows lie far apart in memory, and
reads of several are under way at once."""
_STREAMING_BAND = 2
"""The same, where points are reduced and stored at once: of more streams, memory keeps up with
fewer. Measured: bands of four take 2.5 times as long, single rows 1.2 times."""

_FLUSH_ROW, _FLUSH_COLUMN = 4096, 1024
"""Points after which accumulators are flushed: of a vector of lanes, and of one lane."""

_LEAST_ROW, _LARGEST_ROW = 2048, 65536
"""Bytes of a row that is prefetched: no longer than stays cached until it is read. Measured: a
reduction of rows of 16-bit elements takes a quarter less time for it where caches hold the tensors;
one of 32-bit elements waits for memory with it and without, and a pass that stores finds what it
reads where the reduction before left it."""

_MOST_INTERLEAVED = 8
"""Outputs that a work item takes in turn, at most, reducing each beside what it does with the one
before. The first is reduced, and the last done with, by itself."""


def choose(work: Work) -> Nest:
    """The nest of element-wise work, or of reductions, which work items make output by output
    (`serial`) or in vectors."""
    phase = work.phases[0]
    if work.count is not None:
        return _choose_run(work)
    if work.phases[-1].scatter is not None:
        return _choose_walk(work)
    if len(work.phases) == 1 and phase.is_parallel and not phase.accumulators:
        return _choose_rows(work)
    return _choose_serial(work) if work.serial else _choose_vectors(work)


# Element-wise work ---------------------------------------------------------------------------


def _share_reads(phase: Phase, p: Profile) -> Profile:
    """The profile with fewer elements for a work item, where each takes many reads at computed
    places: such as bisect wait for one another."""
    reads = sum(isinstance(value, Gather) for value in phase.elements.values)
    if reads < _MANY_READS:
        return p
    share = max(p.lanes, p.per_item // reads)
    return dataclasses.replace(p, per_item=1 << share.bit_length() - 1)


def _choose_run(work: Work) -> Nest:
    """A work item computes `per_item` adjacent elements of packed tensors."""
    rule, phase = work.begin(), work.phases[0]
    p = _share_reads(phase, work.profile)
    (element,) = rule.outer
    rule.do("bind", rule.do("split", element, p.per_item, name="begin"), "group")
    if phase.lies_together(0):
        rule.do("stream", rule.do("vectorize", element, p.lanes))
    return rule.finish(f"each computes {p.per_item:,} adjacent elements")


def _choose_rows(work: Work) -> Nest:
    """Constant loops over the inner dimensions; the outer ones are shared out, and so are rows
    longer than a work item's share. Stores may pass the caches by where the tensors are large."""
    rule, (phase,) = work.begin(), work.phases
    p, large = _share_reads(phase, work.profile), work.streaming.is_large()
    crossing, sizes = _find_crossing_axis(phase), phase.space.sizes
    if crossing is not None:
        return _choose_tiles(rule, sizes, crossing, p)
    *outer, row = rule.outer
    last, is_long = len(sizes) - 1, sizes[-1] > p.per_item
    aligned = is_long or (large and _streams(phase))
    if is_long:
        row = rule.do("rename", row, name=f"i{last}")
        rule.do("split", row, p.per_item, name="piece")
        _walk_row(rule, phase, row, p, aligned=aligned, in_pieces=True)
        _share_blocks(rule, [*outer, "piece"], 1)
        return rule.finish(f"each computes {p.per_item:,} elements of a row")
    row = rule.do("rename", row, name="i")
    _walk_row(rule, phase, row, p, aligned=aligned, in_pieces=False)
    split = _part(sizes, p.per_item, last)
    each = math.prod(sizes[split:])
    run = _share_blocks(rule, outer[:split], p.per_item // each)
    return rule.finish(f"each computes {run * each:,} elements")


def _share_blocks(rule: Rule, loops: Sequence[str], most: int) -> int:
    """Work groups take the steps of some loops, so many each at most. Gives how many they take."""
    block = rule.fuse(loops, "block")
    (blocks,) = (loop.dim.size for loop in chain(rule.nest.body)[:1])
    count = blocks if isinstance(blocks, int) else 0
    run = max(1, min(most, count))
    if run > 1:
        block = rule.do("split", block, run, name="begin" if run < count else "block")
    rule.do("bind", block, "group")
    return run


def _walk_row(
    rule: Rule, phase: Phase, row: str, p: Profile, *, aligned: bool, in_pieces: bool
) -> None:
    """The innermost loop: in vectors whose reads lie apart, in vectors, one by one but stored in
    vectors, or one by one."""
    last = len(phase.space.sizes) - 1
    lanes = _find_lanes(rule.function, phase, last, aligned=aligned)
    if lanes is not None and not (in_pieces and lanes.first):
        rule.do(
            "stream", rule.do("vectorize", row, LANES, "aligned" if aligned else "gather", name="i")
        )
    elif phase.lies_together(last):
        rule.do("stream", rule.do("vectorize", row, p.lanes, name="i"))
    elif not in_pieces and _narrows(phase, last):
        rule.do("pack", row, p.lanes, name="block")


def _choose_tiles(rule: Rule, sizes: Sequence[int], rows: int, p: Profile) -> Nest:
    """Operands that lie across the others in memory take a new cache line for every element of a
    row. The lines of a tile's first row hold the elements of the rows below it: walking a tile to
    its end before the next uses each line up while it is near. A work item takes strips of rows."""
    height, columns = _TILE
    last, width = len(sizes) - 1, max(columns, p.per_item // height)
    outer = [name for axis, name in enumerate(rule.outer) if axis not in (rows, last)]
    row = rule.do("rename", rule.outer[rows], name="row")
    column = rule.do("rename", rule.outer[last], name="column")
    for _ in range(last - 1 - rows):
        rule.do("reorder", row)
    strip = rule.do("split", row, height, name="rows")
    part = rule.do("split", column, width, name="columns")
    rule.do("reorder", row)
    rule.do("split", column, columns, name="tile")
    rule.do("reorder", row)
    each = min(height, sizes[rows]) * min(width, sizes[last])
    run = _share_blocks(rule, [*outer, strip, part], p.per_item // each)
    return rule.finish(f"each computes {run * each:,} elements in tiles of {height} by {columns}")


def _find_crossing_axis(phase: Phase) -> int | None:
    """The dimension along which some operand is dense that takes a new line for each element of
    the innermost one; None where there is no such operand."""
    last = len(phase.space.sizes) - 1
    best: tuple[int, int] | None = None
    for view, strides in phase.space.known_strides.items():
        if not view.tensor or strides[last] * view.dtype.bytes < CACHE_LINE:
            continue
        for axis, step in enumerate(strides[:last]):
            if 0 < step * view.dtype.bytes < CACHE_LINE:
                best = min(best or (step, axis), (step, axis))
    return None if best is None else best[1]


def _streams(phase: Phase) -> bool:
    """Whether some results start whole cache lines apart in rows."""
    views = (v for v, _ in phase.elements.results)
    strides = phase.space.known_strides
    rows = ((v, strides[v]) for v in views)
    return any(
        s[-1] == 1 and not any(step * v.dtype.bytes % CACHE_LINE for step in s[:-1])
        for v, s in rows
    )


def _find_lanes(
    function: ir.Function, phase: Phase, axis: int, *, aligned: bool
) -> Vectorization | None:
    """How places along the innermost axis are vectorized, where not all is contiguous, or
    depends on where it is. Of floats that are read at even steps, compilers make vectors as
    good."""
    small = any(view.dtype.bytes < 4 for view in phase.elements.buffers())
    if not phase.has_positions and (not small or phase.lies_together(axis)):
        return None
    return vectorize_reads(function, [(phase, axis)], aligned=aligned)


def _narrows(phase: Phase, axis: int) -> bool:
    """Whether results that lie side by side along an axis are stored in 16 bits: converting them
    one by one takes longer than most of what they are computed from."""
    results = [view for view, _ in phase.elements.results]
    beside = all(phase.space.strides[view][axis] == 1 for view in results)
    return beside and any(view.dtype.is_storage_only for view in results)


# Reductions point by point -------------------------------------------------------------------


def _choose_serial(work: Work) -> Nest:
    """A work item has a run of outputs, each of which it reduces by itself; neighbouring ones go
    together where they can."""
    rule, phases, p = work.begin(), work.phases, work.profile
    parallel = phases[0].space.parallel_sizes
    outputs, share = rule.outer[: len(parallel)], _share_outputs(phases, p)
    if _lies_across(phases, p):
        # Work items take a stretch of the innermost axis at least, however long an output takes.
        width = min(parallel[-1], max(share // p.lanes, 1) * p.lanes)
        run = share_columns(rule, outputs, width, p, share // width)
        return rule.finish(f"each computes {run * width:,} outputs")
    split = _part(parallel, share, len(parallel))
    if split < len(parallel) and _find_together(work.function, phases, p) is not None:
        rule.do("vectorize", outputs[-1], LANES, "gather", name="i")
    each = math.prod(parallel[split:])
    run = _share_blocks(rule, outputs[:split], share // each)
    count = run * each
    return rule.finish(f"each computes {count:,} output{'' if count == 1 else 's'}")


def share_columns(rule: Rule, outputs: Sequence[str], width: int, p: Profile, most: int) -> int:
    """Work items take stretches of so many neighbouring outputs, in vectors: each lane reduces the
    points of an output of its own, one after the other. Gives how many stretches they take."""
    *outer, last = outputs
    part = rule.do("split", last, width, name="part")
    rule.do("vectorize", last, p.lanes, name="i")
    return _share_blocks(rule, [*outer, part], most)


def _choose_walk(work: Work) -> Nest:
    """A work item has rows of a result, whose points say which element each belongs to: it sets the
    elements, and goes through the points in their order."""
    rule, p, first = work.begin(), work.profile, work.phases[0]
    rows, run, last = rule.outer, 1, len(first.space.extents) - 1
    if last in first.space.inner and first.lies_together(last):
        rule.do("vectorize", rule.nest.dims[0][last].name, p.lanes)
    if rows:
        points = sum(phase.space.inner_count for phase in work.phases)
        run = _share_blocks(rule, rows, p.per_item // points)
    many = "" if run == 1 else "s"
    return rule.finish(f"each has {run:,} row{many}, and puts points into them in order")


# What suits work items that reduce outputs of their own ---------------------------------------


def arrange(
    function: ir.Function, phases: tuple[Phase, ...], written: tuple[Phase, ...], p: Profile
) -> tuple[tuple[Phase, ...], bool]:
    """Of phases that depend on positions those in the order of memory or those as they are
    `written`, and whether work items reduce outputs of their own."""
    first = phases[0]
    outputs = math.prod(first.space.parallel_sizes)
    # More points than one group is worth, and too few outputs to share out.
    has_few = outputs < p.groups and outputs * first.points > p.piece
    if first.space.inner_count <= _SMALL_WINDOW and not has_few:
        return written, True
    in_vectors = _goes_in_vectors(phases, p)
    if has_few:
        return phases if in_vectors else written, False
    # What a guard leaves out may be most of the points: loops of an output's own skip it.
    alone = not in_vectors or first.tests_guard
    if alone or _find_together(function, written, p) is not None:
        return written, True
    return phases, False


def reduces_small_windows(function: ir.Function, phases: Sequence[Phase], p: Profile) -> bool:
    """Whether each output reduces a few short rows, shorter than a vector, and neighbours go
    together: vectors along the rows would stay all but empty."""
    first, space = phases[0], phases[0].space
    if first.elements.results or not space.parallel or not space.inner:
        return False
    innermost = len(space.sizes) - 1
    short = innermost in space.inner and space.sizes[innermost] <= _SHORTEST_ROW
    if not short or space.inner_count > _SMALL_WINDOW:
        return False
    return _find_together(function, phases, p) is not None


def _find_together(
    function: ir.Function, phases: Sequence[Phase], p: Profile
) -> Vectorization | None:
    """How outputs of a work item are vectorized along the innermost of their axes; None where few
    are, or where work items have no more than a part of the axis."""
    parallel = phases[0].space.parallel_sizes
    if not parallel or parallel[-1] > _share_outputs(phases, p):
        return None
    return vectorize_reads(function, [(phase, phase.space.parallel[-1]) for phase in phases])


def _lies_across(phases: Sequence[Phase], p: Profile) -> bool:
    """Whether vectors run across outputs of which each reduces a stretch of points that elements
    choose, the same for all of a vector."""
    axes = {phase.space.parallel[-1] for phase in phases if phase.space.parallel}
    if not axes or not find_segments(phases[0]) or phases[0].space.parallel_sizes[-1] < p.lanes:
        return False
    for phase in phases:
        axis = phase.space.parallel[-1]
        moving = phase.find_moving(axis)
        if not phase.lies_together(axis) or any(moving[c] for c in list_conditions(phase.elements)):
            return False
    return True


def _share_outputs(phases: Sequence[Phase], p: Profile) -> int:
    """The outputs that a work item computes: enough to be worth it, few enough that all work
    items have some."""
    work = max(1, *(phase.points for phase in phases))
    outputs = math.prod(phases[0].space.parallel_sizes)
    return max(1, min(p.per_item // work, -(-outputs // p.groups)))


# Reductions in vectors -----------------------------------------------------------------------


def _choose_vectors(work: Work) -> Nest:
    """A work item reduces one output, or a block of neighbouring ones. Where the tensors are
    large, it takes several outputs, and reduces each beside what it does with the one before:
    reading and writing at once, memory moves more than in turns."""
    phases, p = work.phases, work.profile
    width = _choose_width(phases, p)
    each = max(1, *(phase.space.inner_count for phase in phases)) * width
    turns = min(count_items(phases, p) // p.groups, _MOST_INTERLEAVED)
    if work.streaming.is_large(3) and turns > 1 and width == 1:
        rule, words = _walk_phases(work, turns)
        if rule.offers("interleave", rule.outer[1]):
            return rule.finish(words)
    rule, words = _walk_phases(work, p.per_item // each)
    return rule.finish(words)


def _walk_phases(work: Work, most: int) -> tuple[Rule, str]:
    """The loops of all phases, for work items that have so many blocks of outputs at most, and
    words that say what each does."""
    rule, phases, p = work.begin(), work.phases, work.profile
    width = _choose_width(phases, p)
    outputs = rule.outer[: len(phases[0].space.parallel)]
    column = outputs[-1] if width > 1 else ""
    if column:
        outputs[-1] = rule.do("split", column, width, name="part")
    run = _share_blocks(rule, outputs, most)
    if column:
        rule.do("expand", column, name="j")
    for number, phase in enumerate(phases):
        block = rule.find_block(number)
        if block and not phase.is_parallel and rule.offers("hoist", block, name="factors"):
            lanes = rule.nest.phases[-1].choose_lanes(phase.space.parallel[-1], width, p.lanes)
            if lanes > 1:
                rule.do("vectorize", rule.find_block(len(rule.nest.phases) - 1), lanes, name="i")
        _walk_phase(rule, number, block, width, p)
    return rule, f"each computes {run * width:,} output{'s' if run * width > 1 else ''}"


def _walk_phase(rule: Rule, number: int, block: str, width: int, p: Profile) -> None:
    """The loops of a phase, one of which goes over a `block` of outputs if there is one. Points
    that lie side by side go in vectors; or the outputs of a block do, a few rows at a time."""
    phase, dims = rule.nest.phases[number], rule.nest.dims[number]
    inner, sizes = phase.space.inner, phase.space.sizes
    last = phase.space.parallel[-1] if block else -1
    outer = sum(axis < last for axis in inner)
    loops = [dims[axis].name for axis in inner]
    walked = [*loops[:outer], *([block] if block else []), *loops[outer:]]
    if not walked:
        return
    axis, long = (last, width) if walked[-1] == block else (inner[-1], sizes[inner[-1]])
    lanes = phase.choose_lanes(axis, long, p.lanes)
    across, row, height = bool(block) and 0 < outer == len(inner), walked[-1], 1
    if across:
        row, stores = loops[-1], phase.accumulators and phase.elements.results
        height = _STREAMING_BAND if stores else _BAND
        walked[-2] = loops[-1] = rule.do("split", row, height, name="band")
    for _ in range(outer):
        rule.do("reorder", block)
    strips = False
    if phase.accumulators:
        # So many points make a part each.
        most, first = (_FLUSH_COLUMN, 0) if across else (_FLUSH_ROW, outer)
        # A row that has more by itself is walked in strips.
        own = [sizes[axis] for axis in inner[first:]]
        split, strips = _part(own, most, len(own) - 1), own[-1] > most
        if strips:
            rule.do("split", loops[-1], most // height, name="strip")
        if strips or split:
            rule.do("partial", loops[first + split])
        elif not block and lanes == 1:
            rule.offers("relax", loops[0])
    if across:
        rule.do("unroll", row)
        if phase.accumulators:
            rule.do("resume", row)
    if lanes > 1:
        vectors = rule.do("vectorize", walked[-1], lanes, name="i")
        if inner and phase.elements.results:
            rule.do("stream", vectors)
        ahead = walked[-2:-1] if phase.accumulators and not strips else []
        fits = _LEAST_ROW <= 2 * long <= _LARGEST_ROW and ahead == loops[-2:-1]
        if ahead and fits and dims[inner[-2]].piece is None:
            rule.do("prefetch", *ahead)
    if number > 0 and not phase.accumulators and not phase.is_parallel and len(walked) > 1:
        rule.do("reverse", walked[0])


def _part(sizes: Sequence[int], most: int, start: int) -> int:
    """From which axis on there are at most so many points, but not after `start`."""
    while start > 0 and math.prod(sizes[start - 1 :]) <= most:
        start -= 1
    return start


def _choose_width(phases: Sequence[Phase], p: Profile) -> int:
    """The number of neighbouring outputs a work item reduces at once."""
    space = phases[0].space
    if not space.parallel:
        return 1
    last, neighbours = space.parallel[-1], space.parallel_sizes[-1]
    if last == len(space.sizes) - 1:
        columns = _WIDE_COLUMNS if phases[0].elements.results else _COLUMNS
        blocks = -(-neighbours // columns)
        each = -(-neighbours // blocks)
        return neighbours if blocks == 1 else -(-each // _COLUMN_STEP) * _COLUMN_STEP
    outside = any(axis < last for axis in space.inner)
    row = math.prod(space.sizes[axis] for axis in space.inner if axis > last)
    if not outside or row > _SHORT_ROW:
        return 1
    width = min(_ROWS, neighbours)
    while width > 1 and _count_blocks(space.parallel_sizes, width) < p.groups:
        width //= 2
    return width


def count_items(phases: Sequence[Phase], p: Profile) -> int:
    """The number of blocks of outputs, each of which one work item has to itself."""
    return _count_blocks(phases[0].space.parallel_sizes, _choose_width(phases, p))


def _count_blocks(parallel: tuple[int, ...], width: int) -> int:
    return math.prod(parallel[:-1]) * -(-parallel[-1] // width) if parallel else 1


def _goes_in_vectors(phases: Sequence[Phase], p: Profile) -> bool:
    """Whether whole vectors reduce, along the innermost axis."""
    space = phases[0].space
    axis = len(space.sizes) - 1
    long = _choose_width(phases, p) if axis in space.parallel else space.sizes[axis]
    return phases[0].choose_lanes(axis, long, p.lanes) == p.lanes
