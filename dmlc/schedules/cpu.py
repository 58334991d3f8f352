"""Schedules for CPUs: long runs of elements in vectors, one run per work item.

Reduced points that are contiguous in memory are summed in vectors; if the outputs are, vectors run
across a block of outputs, with accumulators in arrays. Short rows of many outputs are blocked too,
so that a work item reads contiguous memory. Float accumulators are flushed into totals every few
thousand points, for precision. A pass that uses a reduction runs over the outermost dimension
backwards, as the elements read last are still cached.
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
from dmlc.schedules.streaming import CACHE_LINE, has_aligned_rows
from dmlc.sizes import known

_MANY_READS = 12
"""Number of loads at computed indices per element from which work items have fewer elements."""

_TILE = 256, 8
"""Rows and columns of a tile. It is tall, since each of its columns is on pages of its own, and
opening a page costs more than reading on; and narrow enough for its cache lines to stay cached. Of
16 shapes measured on matrices of 3072 by 4000 and 4096 by 4096, it is 1.4 to 3 times as fast as 64
by 16 or 16 by 16."""

_COLUMNS = 256
"""Largest number of adjacent outputs in a block with vectors across them."""
_WIDE_COLUMNS = 4096
"""The same if the reduction stores as well: whole rows then stream, two in half the time of blocks
of 256, and the accumulators still fit in the L1 cache."""
_COLUMN_STEP = 64
"""Number that divides the columns of a block: whole cache lines, whatever the type."""
_SHORT_ROW = 200
"""Largest number of points of a row that is reduced together with neighbouring rows."""
_ROWS = 16
"""Adjacent outputs in a block of short rows."""

_SHORTEST_ROW = 4
"""Largest number of elements of a row that is reduced faster by a vector across rows than by one
along it."""
_SMALL_WINDOW = 64
"""Largest number of points of such rows."""

_BAND = 4
"""Rows processed side by side, with vectors across outputs: rows are far apart in memory, and
several loads are in flight at once."""
_STREAMING_BAND = 2
"""The same if points are reduced and stored at once, as memory sustains fewer such streams.
Measured: bands of four take 2.5 times as long, single rows 1.2 times."""

_FLUSH_ROW, _FLUSH_COLUMN = 4096, 1024
"""Points after which accumulators are flushed: with vectors along points, and across outputs."""

_LEAST_ROW, _LARGEST_ROW = 2048, 65536
"""Smallest and largest size in bytes of a row that is prefetched, and stays cached. Measured: a
reduction of rows of 16-bit elements takes a quarter less time for it where caches hold the tensors;
one of 32-bit elements waits for memory with it and without, and a pass that stores finds what it
reads where the reduction before left it."""

_MOST_INTERLEAVED = 8
"""Largest number of outputs that a work item processes in turn, overlapping each reduction with the
rest of the previous one."""


def choose(work: Work) -> Nest:
    """Nest of element-wise work; or of reductions, output by output (`serial`) or in vectors."""
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
    """Profile with fewer elements per work item if each takes many dependent loads at computed
    indices, as a bisection does."""
    reads = sum(isinstance(value, Gather) for value in phase.elements.values)
    if reads < _MANY_READS:
        return p
    share = max(p.lanes, p.per_item // reads)
    return dataclasses.replace(p, per_item=1 << share.bit_length() - 1)


def _choose_run(work: Work) -> Nest:
    """Nest in which a work item computes `per_item` contiguous elements of packed tensors."""
    rule, phase = work.begin(), work.phases[0]
    p = _share_reads(phase, work.profile)
    (element,) = rule.outer
    rule.do("bind", rule.do("split", element, p.per_item, name="begin"), "group")
    if phase.lies_together(0):
        rule.do("stream", rule.do("vectorize", element, p.lanes))
    return rule.finish(f"each computes {p.per_item:,} adjacent elements")


def _choose_rows(work: Work) -> Nest:
    """Nest with constant loops over the inner dimensions; the outer ones are distributed, and so
    are rows longer than a work item's share. Stores may bypass the caches if the tensors are
    large."""
    rule, (phase,) = work.begin(), work.phases
    p, large = _share_reads(phase, work.profile), work.streaming.is_large()
    crossing, sizes = _find_crossing_axis(phase), phase.space.sizes
    if crossing is not None:
        return _choose_tiles(rule, sizes, crossing, p)
    *outer, row = rule.outer
    last, is_long = len(sizes) - 1, sizes[-1] > p.per_item
    aligned = is_long or (
        large and any(has_aligned_rows(view) for view, _ in phase.elements.results)
    )
    if is_long:
        row = rule.do("rename", row, name=f"i{last}")
        rule.do("split", row, p.per_item, name="piece")
        _walk_row(rule, phase, row, p, aligned=aligned, in_pieces=True)
        _share_blocks(rule, [*outer, "piece"], 1)
        return rule.finish(f"each computes {p.per_item:,} elements of a row")
    row = rule.do("rename", row, name="i")
    _walk_row(rule, phase, row, p, aligned=aligned, in_pieces=False)
    split = _find_split_axis(sizes, p.per_item, last)
    each = math.prod(sizes[split:])
    run = _share_blocks(rule, outer[:split], p.per_item // each)
    return rule.finish(f"each computes {run * each:,} elements")


def _share_blocks(rule: Rule, loops: Sequence[str], most: int) -> int:
    """Distributes the steps of some loops over work groups, at most `most` each. Returns how many
    each takes."""
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
    """The innermost loop: vectorized with non-contiguous reads, vectorized, scalar with vector
    stores, or scalar."""
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
    """Nest in tiles, for operands transposed against the others, which need a new cache line for
    every element of a row. The lines of a tile's first row contain the elements of its other rows:
    processing a whole tile before the next uses each line while it is cached. A work item takes
    strips of rows."""
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
    """Dimension along which a transposed operand is dense; None if there is no such operand."""
    last = len(phase.space.sizes) - 1
    best: tuple[int, int] | None = None
    for view in phase.elements.views():
        strides = known(view.strides)
        if not view.tensor or strides[last] * view.dtype.bytes < CACHE_LINE:
            continue
        for axis, step in enumerate(strides[:last]):
            if 0 < step * view.dtype.bytes < CACHE_LINE:
                best = min(best or (step, axis), (step, axis))
    return None if best is None else best[1]


def _find_lanes(
    function: ir.Function, phase: Phase, axis: int, *, aligned: bool
) -> Vectorization | None:
    """Vectorization of the innermost axis, if not all is contiguous, or values depend on the index.
    Float loads at constant strides are left to compilers."""
    small = any(view.dtype.bytes < 4 for view in phase.elements.buffers())
    if not phase.has_positions and (not small or phase.lies_together(axis)):
        return None
    return vectorize_reads(function, [(phase, axis)], aligned=aligned)


def _narrows(phase: Phase, axis: int) -> bool:
    """Whether results that are contiguous along an axis are stored in 16 bits: converting them one
    by one takes longer than most of their computation."""
    results = [view for view, _ in phase.elements.results]
    beside = all(view.strides[axis] == 1 for view in results)
    return beside and any(view.dtype.is_storage_only for view in results)


# Reductions point by point -------------------------------------------------------------------


def _choose_serial(work: Work) -> Nest:
    """Nest in which a work item reduces a run of outputs one by one; adjacent ones in vectors if
    possible."""
    rule, phases, p = work.begin(), work.phases, work.profile
    parallel = phases[0].space.parallel_sizes
    outputs, share = rule.outer[: len(parallel)], _share_outputs(phases, p)
    if _runs_across(phases, p):
        # A work item takes at least part of the innermost axis, however long an output takes.
        width = min(parallel[-1], max(share // p.lanes, 1) * p.lanes)
        run = share_columns(rule, outputs, width, p, share // width)
        return rule.finish(f"each computes {run * width:,} outputs")
    split = _find_split_axis(parallel, share, len(parallel))
    if split < len(parallel) and _find_together(work.function, phases, p) is not None:
        rule.do("vectorize", outputs[-1], LANES, "gather", name="i")
    each = math.prod(parallel[split:])
    run = _share_blocks(rule, outputs[:split], share // each)
    return rule.finish(f"each computes {run * each:,} output{'s' if run * each > 1 else ''}")


def share_columns(rule: Rule, outputs: Sequence[str], width: int, p: Profile, most: int) -> int:
    """Distributes runs of `width` adjacent outputs over work items, in vectors whose lanes reduce
    an output each, sequentially. Returns how many runs each takes."""
    *outer, last = outputs
    part = rule.do("split", last, width, name="part")
    rule.do("vectorize", last, p.lanes, name="i")
    return _share_blocks(rule, [*outer, part], most)


def _choose_walk(work: Work) -> Nest:
    """Nest of a sequential scatter: a work item owns rows of the result, initializes their
    elements, and visits their points in order."""
    rule, p, first = work.begin(), work.profile, work.phases[0]
    rows, run, last = rule.outer, 1, len(first.space.extents) - 1
    if last in first.space.inner and first.lies_together(last):
        rule.do("vectorize", rule.nest.dims[0][last].name, p.lanes)
    if rows:
        points = sum(phase.space.inner_count for phase in work.phases)
        run = _share_blocks(rule, rows, p.per_item // points)
    return rule.finish(f"each has {run:,} row{'s' * (run > 1)}, and puts points into them in order")


# What suits work items that reduce outputs of their own ---------------------------------------


def arrange(
    function: ir.Function, phases: tuple[Phase, ...], written: tuple[Phase, ...], p: Profile
) -> tuple[tuple[Phase, ...], bool]:
    """Phases that depend on indices, in memory order or as `written`, and whether each work item
    reduces its own outputs."""
    first = phases[0]
    outputs = math.prod(first.space.parallel_sizes)
    # More points than one group should reduce, and too few outputs to distribute.
    has_few = outputs < p.groups and outputs * first.points > p.piece
    if first.space.inner_count <= _SMALL_WINDOW and not has_few:
        return written, True
    in_vectors = _goes_in_vectors(phases, p)
    if has_few:
        return phases if in_vectors else written, False
    # A guard may exclude most of the points: loops of each output skip these.
    alone = not in_vectors or first.tests_guard
    if alone or _find_together(function, written, p) is not None:
        return written, True
    return phases, False


def reduces_small_windows(function: ir.Function, phases: Sequence[Phase], p: Profile) -> bool:
    """Whether each output reduces a few rows shorter than a vector, and neighbours can be
    vectorized: vectors along the rows would be nearly empty."""
    first, space = phases[0], phases[0].space
    if first.elements.results or not space.parallel or not space.inner:
        return False
    innermost = len(space.sizes) - 1
    short = innermost in space.inner and space.sizes[innermost] <= _SHORTEST_ROW
    suits = short and space.inner_count <= _SMALL_WINDOW
    return suits and _find_together(function, phases, p) is not None


def _find_together(
    function: ir.Function, phases: Sequence[Phase], p: Profile
) -> Vectorization | None:
    """Vectorization of a work item's outputs along the innermost of their axes; None if few can be,
    or if work items have only a part of the axis."""
    parallel = phases[0].space.parallel_sizes
    if not parallel or parallel[-1] > _share_outputs(phases, p):
        return None
    return vectorize_reads(function, [(phase, phase.space.parallel[-1]) for phase in phases])


def _runs_across(phases: Sequence[Phase], p: Profile) -> bool:
    """Whether vectors run across outputs that each reduce a data-dependent segment, the same for
    all lanes."""
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
    """Outputs per work item: enough to be worth it, few enough that all work items have some."""
    work = max(1, *(phase.points for phase in phases))
    outputs = math.prod(phases[0].space.parallel_sizes)
    return max(1, min(p.per_item // work, -(-outputs // p.groups)))


# Reductions in vectors -----------------------------------------------------------------------


def _choose_vectors(work: Work) -> Nest:
    """Nest in which a work item reduces one output, or a block of adjacent ones. For large tensors,
    it takes several outputs, and overlaps each reduction with the rest of the previous one: memory
    moves more when reading and writing at once."""
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
    """Loops of all phases, for work items with at most `most` blocks of outputs each, and a
    description of a work item's part."""
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
    """Loops of a phase, one of which is over a `block` of outputs if there is one. Contiguous
    points are vectorized; or else the outputs of a block, a few rows at a time."""
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
        # Each partial sum has this many points.
        most, first = (_FLUSH_COLUMN, 0) if across else (_FLUSH_ROW, outer)
        # A row with more points is processed in strips.
        own = [sizes[axis] for axis in inner[first:]]
        split, strips = _find_split_axis(own, most, len(own) - 1), own[-1] > most
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


def _find_split_axis(sizes: Sequence[int], most: int, start: int) -> int:
    """First axis, at most `start`, from which on there are at most `most` points."""
    while start > 0 and math.prod(sizes[start - 1 :]) <= most:
        start -= 1
    return start


def _choose_width(phases: Sequence[Phase], p: Profile) -> int:
    """Number of adjacent outputs that a work item reduces at once."""
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
    """Number of blocks of outputs, one work item each."""
    return _count_blocks(phases[0].space.parallel_sizes, _choose_width(phases, p))


def _count_blocks(parallel: tuple[int, ...], width: int) -> int:
    return math.prod(parallel[:-1]) * -(-parallel[-1] // width) if parallel else 1


def _goes_in_vectors(phases: Sequence[Phase], p: Profile) -> bool:
    """Whether the innermost axis is reduced by full vectors."""
    space = phases[0].space
    axis = len(space.sizes) - 1
    long = _choose_width(phases, p) if axis in space.parallel else space.sizes[axis]
    return phases[0].choose_lanes(axis, long, p.lanes) == p.lanes
