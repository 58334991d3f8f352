"""Schedules for GPUs: adjacent work items on adjacent elements.

A group of element-wise work has a run of elements, of which each work item takes a few, with the
group's width as stride. For reductions, the work items of a group form rows and columns: a column
is one output, and its rows share the output's points. If outputs are contiguous in memory, adjacent
items are in adjacent columns; if points are, in adjacent rows. Points are distributed by sizes
alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlc import ir
from dmlc.kernel.arithmetic import round_up
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.access import MOST_ALONE
from dmlc.loops.legality import chain
from dmlc.loops.nodes import Nest
from dmlc.loops.phases import VECTOR, Phase
from dmlc.loops.thin import find_sparse
from dmlc.schedules.rule import Rule, Work
from dmlc.schedules.transposed import choose_transposed, lies_both_ways
from dmlc.sizes import Taken, find_most, is_multiple, multiply
from dmlc.source import UnsupportedError

_BYTES = 16
"""Bytes that a work item loads at once: a vector of floats, or two of halves."""
_MOST_WRITTEN = 64
"""Largest number of unrolled vector operations: with more, arithmetic dominates, and compiling
takes long."""
_FUNCTION = 16
"""Approximate number of operations of a logarithm or a remainder."""
_FEW_COLUMNS = 8
"""Largest number of adjacent outputs in a group if some operands are contiguous along the points: a
sector of floats."""
_SECTOR = 32
"""Smallest number of bytes of adjacent outputs in a group if there are few outputs."""
_MOST_POINTS = 16
"""Largest number of points that a work item loads one by one before it adds the first, while there
are too few groups to keep memory busy with fewer loads."""
_BUSY = 512
"""Number of groups that keep memory busy."""
_SERIAL_GROUPS = 64
"""Number of groups that suffices if each work item reduces its own outputs."""
_PARTS = 8
"""Partial results that a work item loads before it adds the first."""
_FEW_PARTS = 64
"""Largest number of an output's partial results that one work item combines."""
_HELD = 32
"""Largest number of elements that a work item keeps in registers between passes over its points."""
_MOST_HELD = 1024
"""Largest number of unrolled operations on elements kept in registers."""


def choose(work: Work) -> Nest | None:
    """Nest of element-wise work, or of reductions by single work items (`serial`) or by several
    together; None if it is for a CPU."""
    if not work.is_gpu:
        return None
    phase, p, limits = work.phases[0], work.profile, work.limits
    if work.serial:
        return choose_serial(work)
    if len(work.phases) > 1 or not phase.is_parallel or phase.accumulators:
        return share_outputs(work, *choose_tile(work.phases, p, limits))
    paired = _list_paired(phase, limits)
    if paired and not limits.word_types and takes_vectors(phase, limits):
        return choose_vectors(work)
    turned = None if paired else choose_transposed(work)
    if turned is not None:
        return turned
    if not paired and takes_vectors(phase, limits):
        return choose_vectors(work)
    return choose_flat(work, paired=bool(paired))


def _list_paired(phase: Phase, limits: Limits) -> list[str]:
    """Results that are stored two to a word. Raises `UnsupportedError` if one has gaps between its
    elements, and half a word cannot be stored."""
    types = (*limits.word_types, *limits.pair_types)
    paired = [view for view, _ in phase.elements.results if view.dtype in types]
    space = phase.space
    for view in paired:
        if not space.packed and view.strides != ir.packed_strides(space.sizes):
            if view.dtype in limits.pair_types:
                return []
            raise UnsupportedError(
                f"'{view.tensor}' is {view.dtype.name} with strides, and without 16-bit types "
                "kernels store two elements at a time",
                notes=["store it packed, or compile for shader model 6.2"],
            )
    return [view.tensor for view in paired]


def suits_serial(first: Phase, p: Profile) -> bool:
    """Whether sharing the points of an output gains nothing: there are enough outputs, or few
    points."""
    outputs, points = math.prod(first.space.parallel_sizes), first.points
    return outputs >= _SERIAL_GROUPS * p.group_size or points <= max(outputs, MOST_ALONE)


def reduces_few(phase: Phase) -> bool:
    """Whether an output has no more points than a single work item may reduce."""
    return 1 < phase.space.inner_count <= MOST_ALONE


def takes_vectors(phase: Phase, limits: Limits) -> bool:
    """Whether four adjacent elements are loaded and stored at once."""
    return _weigh(phase) <= _MOST_WRITTEN and phase.begins_evenly(limits)


def _weigh(phase: Phase) -> int:
    """Approximate number of operations per point, without values that are the same for all points
    of an output."""
    axes = phase.space.inner or range(len(phase.space.extents))
    moving = [any(each) for each in zip(*map(phase.find_moving, axes), strict=True)]
    values = zip(phase.elements.values, moving, strict=True)
    operations = [v.operation for v, moves in values if moves and isinstance(v, ir.Apply)]
    return sum(_FUNCTION if each.transcendental or each.name == "mod" else 1 for each in operations)


def choose_vectors(work: Work) -> Nest:
    """Nest in which each work item takes a few vectors, with a group's width of vectors as stride:
    all are loaded before the first is stored."""
    rule, p, (phase,) = work.begin(), work.profile, work.phases
    element, unit = _flatten(rule), _measure_unit((phase,))
    (whole,) = (loop.dim for loop in chain(rule.nest.body))
    once = p.group_size * unit
    many = _count_written(phase, p.vectors, unit)
    while many > 1 and isinstance(whole.size, int) and whole.size < many * once * p.groups:
        many //= 2
    rule.do("bind", rule.do("split", element, once * many, name="group"), "group")
    each = rule.do("unroll", rule.do("split", element, once, name="k"))
    rule.do("bind", rule.do("split", element, unit, name="lane"), "lane")
    if unit > VECTOR:
        rule.do("unroll", rule.do("split", element, VECTOR, name="part"))
    rule.do("vectorize", element, VECTOR, "whole")
    rule.do("reorder", each)
    several = f"{many} times {unit} neighbouring elements"
    return rule.finish(f"each computes {several if many > 1 else f'{unit} neighbouring elements'}")


def _flatten(rule: Rule) -> str:
    """Merges the loops over all points into one, and returns its name."""
    return rule.fuse(rule.outer, "i") if len(rule.outer) > 1 else rule.outer[0]


def _measure_unit(phases: Sequence[Phase]) -> int:
    """Adjacent elements per work item: 16 bytes of the narrowest stored type."""
    sizes = [
        view.dtype.bytes
        for phase in phases
        for view in phase.elements.buffers()
        if view.strides[-1]
    ]
    return max(VECTOR, _BYTES // max(sizes, default=4))


def _count_written(phase: Phase, most: int, unit: int) -> int:
    """Largest number of unrolled steps: fewer if each computes much."""
    weight = max(1, unit // VECTOR) * _weigh(phase)
    while most > 1 and most * weight > _MOST_WRITTEN:
        most //= 2
    return most


def choose_flat(work: Work, *, paired: bool = False) -> Nest:
    """Nest in which each work item takes elements with a group's width as stride, or pairs of them
    for results stored two to a word."""
    rule, p = work.begin(), work.profile
    element, width = _flatten(rule), 1
    if paired:
        element, width = rule.do("pair", element, name="pair"), 2
    rule.do("bind", rule.do("split", element, p.per_group // width, name="group"), "group")
    each = rule.do("unroll", rule.do("split", element, p.group_size, name="k"))
    rule.do("bind", element, "lane")
    rule.do("reorder", each)
    what = f"{p.per_item // 2} pairs of" if paired else f"{p.per_item}"
    return rule.finish(f"each computes {what} elements, {p.group_size} apart")


def choose_serial(work: Work) -> Nest:
    """Nest in which each work item reduces the points of one output sequentially."""
    rule = work.begin()
    while (sparse := find_sparse(rule.nest.phases[0], even=False)) is not None:
        rule.do("thin", rule.nest.dims[0][sparse.axis].name, sparse.number)
    output = rule.fuse(rule.outer, "output")
    rule.do("bind", rule.do("split", output, work.profile.group_size, name="group"), "group")
    rule.do("bind", output, "lane")
    stored = [view.tensor for phase in work.phases for view, _ in phase.elements.results]
    many = max(stored.count(name) for name in stored)
    several = "1 output" if many == 1 else f"{many} neighbouring outputs"
    return rule.finish(f"each computes {several}")


def share_outputs(work: Work, rows: int, columns: int, taken: Taken = (), times: int = 0) -> Nest:
    """Nest of groups with `columns` columns of work items, one output each, whose points are shared
    by `rows` rows of them. Each item takes several points, or vectors, with a row of work items as
    stride, and loads them all before it adds the first. For chunked outputs, the combination of
    partial results is repeated for each chunk, and derived values are stored once. Open sizes have
    the values `taken` where steps are counted, unless a work item takes points `times` times."""
    rule, phases, limits, p = work.begin(), work.phases, work.limits, work.profile
    unit, most = find_unit(phases, limits), len(_find_widest(phases).space.parallel)
    held = times or _count_held(phases, rows, unit)
    rule.do("axis", "row", rows)
    rule.do("axis", "column", columns)
    output = rule.fuse(rule.outer[:most], "output")
    if columns > 1:
        rule.do("bind", rule.do("split", output, columns, name="group"), "group")
        rule.do("bind", output, "column")
    else:
        rule.do("bind", output, "group")
    for phase, dims in zip(phases, rule.nest.dims, strict=True):
        inner = [dims[axis].name for axis in phase.space.inner]
        if not inner:
            continue
        element = rule.fuse(inner, "element") if len(inner) > 1 else inner[0]
        again = len(phase.space.parallel) < most
        settled = phase.settle(taken)
        if again and settled.space.inner_count <= _FEW_PARTS:
            rule.do("split", element, _PARTS, name="part")
            rule.do("unroll", element, name="part")
        else:
            # Outputs that are contiguous may not be so in partial results of chunks.
            own = find_unit((phase,), limits) if again else unit
            is_open, times = phase.is_open, 0 if again else held
            times = times or _count_times(settled, p, rows, own, columns, is_open=is_open)
            rule.do("share", element, "row", own, times, name="strip")
    several = f"{columns} outputs" if columns > 1 else "1 output"
    lanes = f"{rows} {'lane' if rows == 1 else 'lanes'}"
    return rule.finish(f"a group computes {several}, with {lanes} on each")


def _count_times(
    phase: Phase, p: Profile, rows: int, unit: int, columns: int, *, is_open: bool
) -> int:
    """Number of times that a work item loads `unit` points before it adds the first."""
    if phase.tests_guard:
        return 1
    points = multiply(phase.space.extents[axis] for axis in phase.space.inner)
    if not isinstance(points, int):
        return _count_written(phase, p.points, unit)
    most, outputs = p.points, multiply(phase.space.outputs)
    moved = max((v.dtype.bytes for v in phase.elements.buffers()), default=_BYTES)
    if unit == 1:
        most = max(most, _BYTES // moved)
    if unit == 1 and isinstance(outputs, int):
        most = max(most, min(_MOST_POINTS, p.points * _BUSY // -(-outputs // columns)))
    many = _count_written(phase, most, unit)
    if unit == 1 and not is_open:
        # Four elements take as many operations as a vector of them, and are worth as many loads.
        many = max(many, _BYTES // moved)
        while many > most or many * _weigh(phase) > VECTOR * _MOST_WRITTEN:
            many //= 2
    return max(1, min(many, points // (rows * unit)))


def _find_widest(phases: Sequence[Phase]) -> Phase:
    """Phase with the most parallel dimensions; others may lack the chunk's number."""
    return max(phases, key=lambda phase: len(phase.space.parallel))


def find_unit(phases: Sequence[Phase], limits: Limits) -> int:
    """Points that a work item takes at once."""
    shared = _list_wide(phases)
    if not all(takes_vectors(phase, limits) for phase in shared):
        return 1
    unit = _measure_unit(shared)
    whole = all(is_multiple(phase.space.extents[-1], unit) for phase in shared)
    return unit if whole else VECTOR


def _list_wide(phases: Sequence[Phase]) -> list[Phase]:
    """Phases with points that have the most parallel dimensions."""
    widest = len(_find_widest(phases).space.parallel)
    return [p for p in phases if not p.is_parallel and len(p.space.parallel) == widest]


def _find_held(phases: Sequence[Phase]) -> tuple[int, int]:
    """Points of an output that several phases use, and the number of them that a work item may keep
    in registers, so that loads and arithmetic are not repeated. 0 if nothing is repeated, or it is
    too much."""
    wide = _list_wide(phases)
    reads = [{view.tensor for view in phase.elements.buffers()} for phase in wide]
    again = {name for own in reads for name in own if sum(name in each for each in reads) > 1}
    points = {multiply(p.space.extents[axis] for axis in p.space.inner) for p in wide}
    if not again or len(points) > 1 or any(p.tests_guard or p.has_positions for p in wide):
        return 0, 0
    (count,) = points
    most = min(_HELD // len(again), _MOST_HELD // max(1, *map(_weigh, wide)))
    return (count, most) if isinstance(count, int) else (0, 0)


def _count_held(phases: Sequence[Phase], rows: int, unit: int) -> int:
    """Number of times that a work item takes `unit` points if it keeps all of its points in
    registers; 0 if it does not."""
    points, most = _find_held(phases)
    return 0 if points % (rows * unit) or points > rows * most else points // (rows * unit)


def count_holding(phases: Sequence[Phase], p: Profile, limits: Limits) -> int:
    """Number of work items that keep all points of an output of open but bounded size in registers,
    one vector each. 0 if a group cannot, or nothing is repeated."""
    wide, unit = _list_wide(phases), find_unit(phases, limits)
    sizes = {multiply(each.space.extents[axis] for axis in each.space.inner) for each in wide}
    (size, *others) = sizes
    most = None if others or isinstance(size, int) else find_most(size, p.bounds)
    if most is None or unit == 1 or any(p.tests_guard or p.has_positions for p in wide):
        return 0
    rows = round_up(-(-most // unit))
    return rows if rows <= limits.group_size else 0


def lies_across(phases: Sequence[Phase]) -> bool:
    """Whether outputs are contiguous in memory rather than the points of each."""
    space = _find_widest(phases).space
    last = len(space.extents) - 1
    beside = bool(space.parallel) and last == space.parallel[-1]
    return beside or any(map(lies_both_ways, phases))


def choose_tile(
    phases: Sequence[Phase], p: Profile, limits: Limits, *, is_narrow: bool = True, few: int = 1
) -> tuple[int, int]:
    """Rows and columns of a group: powers of two. For few outputs of many points each, groups may
    be so narrow (`is_narrow`) that adjacent items fill no cache line. At most `few` outputs have
    one large group each, however few points there are."""
    first = _find_widest(phases).space
    wide = [phase.space for phase in phases if len(phase.space.parallel) == len(first.parallel)]
    unit = find_unit(phases, limits)
    points, each = _find_held(phases)
    holding = round_up(points // each) if each else 0
    most = max(space.inner_count for space in wide) // unit
    is_heavy = any(_weigh(phase) > _FUNCTION for phase in _list_wide(phases))
    rows = round_up(-(-most // (max(p.points, each // unit) if is_heavy else p.points)))
    last = len(first.extents) - 1
    outputs = math.prod(first.parallel_sizes)
    widest = 0
    if any(map(lies_both_ways, phases)):
        widest = _FEW_COLUMNS
        rows = min(p.group_size // widest, round_up(most))
    elif first.parallel and last == first.parallel[-1]:
        widest = min(p.columns, round_up(outputs))
        beside = (v.dtype.bytes for p in _list_wide(phases) for v in p.elements.buffers()
                  if v.strides[p.space.parallel[-1]] == 1)  # fmt: skip
        least = _SECTOR // min(beside, default=4)
        if is_narrow and 0 < holding * _FEW_COLUMNS <= limits.group_size:
            widest = min(widest, _FEW_COLUMNS)
        while widest > least and is_narrow and outputs < p.fill * widest:
            widest //= 2
        rows = min(rows, p.group_size // widest)
    else:
        while rows < most and outputs * rows < p.fill * p.group_size:
            rows = max(1, 2 * rows)
    rows = max(rows, p.group_size // round_up(outputs), 1)
    rows = min(rows, p.group_size)
    if rows < holding and p.group_size < holding * widest <= limits.group_size:
        # A larger group keeps all points of an output in registers.
        return holding, widest
    count = max(space.inner_count for space in wide)
    if count > MOST_ALONE and (
        outputs == 1 or (outputs <= max(few, p.groups) and rows == p.group_size)
    ):
        # Few groups may be as large as their accumulators in shared memory allow, as long as more
        # work items keep memory busier, and each has enough to read.
        slots = [slot for phase in phases for a in phase.accumulators for slot in a.slots]
        sums = limits.shared_bytes // max(1, sum(max(4, s.dtype.bytes) for s in slots))
        larger = min(limits.group_size, sums)
        if outputs > few:
            # So many work items as these have enough under way for memory.
            larger = min(larger, most // p.points, 2 * p.groups * p.group_size // outputs)
        rows = max(rows, round_up(larger + 1) // 2)
    return rows, max(1, p.group_size // rows)


def count_groups(phases: Sequence[Phase], p: Profile, limits: Limits) -> int:
    """Number of groups that the outputs are distributed over."""
    _, columns = choose_tile(phases, p, limits, is_narrow=False)
    return -(-math.prod(_find_widest(phases).space.parallel_sizes) // columns)
