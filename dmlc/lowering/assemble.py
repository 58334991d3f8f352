"""Assembly of a kernel: its buffers, schedule, statements and launch.

Phases define its computation, `schedules` the loop nest, and `lower` the statements of that.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc import ir
from dmlc.index.intervals import Interval
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import OPEN, name_sizes
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.names import Names
from dmlc.kernel.passes import run_passes, verifies_each
from dmlc.kernel.rows import guard_rows, place_rows
from dmlc.kernel.target import RUN_TIME_COUNT, Limits, Profile
from dmlc.loops.element import Gather, Read, View
from dmlc.loops.line_buffer import has_lines, measure_effort
from dmlc.loops.naive import naive
from dmlc.loops.nodes import Kind, Loop, Multiply, Nest, Pack, Permute, walk
from dmlc.loops.phases import Phase
from dmlc.loops.primitives import apply
from dmlc.loops.script import ScheduleError
from dmlc.loops.sections import NONE, Section, Sections
from dmlc.loops.tensorize import check_staged
from dmlc.loops.verify import verify_nest
from dmlc.lowering.lower import lower_nest
from dmlc.schedules.choose import choose
from dmlc.schedules.streaming import Streaming, measure_footprint
from dmlc.sizes import Measure, as_extent, estimate
from dmlc.source import UnsupportedError


def make_kernel(
    function: ir.Function,
    phases: Sequence[Phase],
    stages: tuple[str, ...],
    passes: tuple[tuple[str, ...], ...],
    profile: Profile,
    limits: Limits,
    *,
    serial: bool = False,
    pieces: Measure | None = None,
    nest: Nest | None = None,
    own: Sections = NONE,
    cut: tuple[str, ...] = (),
) -> k.Kernel:
    """Kernel of some phases, which read the operands of the stages in `passes`. With `serial`, each
    work item reduces its own outputs sequentially; otherwise work items share them. With `pieces`,
    it reduces these chunks, as `cut` says, and another kernel combines them. Its schedule is the
    section for it in `own`, or `nest`, or the choice for the profile.

    Raises `UnsupportedError` if it exceeds a limit of the target.
    """
    buffers = _list_buffers(function, phases)
    count = max(_count_points(phase) for phase in phases)
    reached = max(_reach(function, phase) for phase in phases)
    check_limits(function, max(count, reached), len(buffers), limits)
    names = Names(b.name for b in buffers)
    first = phases[0].space
    scalars: tuple[tuple[k.Scalar, int | str], ...] = ()
    if first.packed and nest is None:
        count_of = first.count
        value = count_of if isinstance(count_of, int) else str(count_of)
        scalars = ((k.Scalar(names.take("n")), value),)
    given = scalars[0][0] if scalars else None
    # Vectors of rows along a loop may be unaligned, and are read again soon.
    threshold = profile.streaming_bytes if function.one_step is None else None
    streaming = Streaming(buffers, threshold)
    title, section = name_kernel(function, phases), None
    if nest is None or nest.script:
        section = own.find(title)
    if nest is None:
        nest = choose(function, phases, profile, limits, streaming, serial=serial, count=given)
    is_own = section is not None and section.calls not in ((), nest.script)
    if section is not None and is_own:
        nest = apply(naive(phases, given), function, limits, *section.calls)
        nest = dataclasses.replace(nest, words="by a schedule of its own")
        _check_words(nest, limits, section)
    if verifies_each():
        verify_nest(nest)
    own.see(title, nest)
    # Tables that a nest has as constants are not read.
    touched = _list_touched(nest.phases)
    buffers = tuple(buffer for buffer in buffers if buffer.name in touched)
    if nest.holds:
        passes = (tuple(dict.fromkeys(name for each in passes for name in each)),)
    launch = _find_launch(nest, limits, given)
    if given is not None and scalars:
        counted = {n.dim.size for n in walk(nest.body) if isinstance(n, Loop)}
        if launch.count != given.name or any(isinstance(n, k.Scalar) for n in counted - {given}):
            raise ScheduleError(
                f"the elements of '{title}' are counted when it runs: work groups take the "
                "outermost loop over them, and its steps are not numbered",
                None if section is None else section.span,
            )
        launch = dataclasses.replace(launch, count=scalars[0][1])
    lanes = profile.lanes
    if is_own:
        vectors = [n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.VECTOR]
        lanes = max((n.step for n in vectors if not n.extent), default=lanes)
    check_staged(nest, limits)
    statements, arrays, matrices = lower_nest(
        nest, names, lanes, streaming, launch.row, profile.bounds
    )
    if function.one_step is not None:
        statements = place_rows(statements, function.one_step, names)
    body, sizes = name_sizes(statements, names)
    scalars += sizes
    low = min(phase.elements.reach[0] for phase in phases)
    high = max(phase.elements.reach[1] for phase in phases)
    if low < 0 and isinstance(launch.count, int):
        # Signed indices of idle work items must not wrap either, as they would seem to be in range.
        high = max(high, launch.count_groups(launch.count) * launch.per_group - 1)
    index = find_index(max(count, reached - 1), (low, high), limits)
    summary = [describe_stage(function, name) for name in stages]
    if pieces is not None:
        many = f"{pieces:,}" if isinstance(pieces, int) else pieces
        summary = [f"{line}, in {many} pieces" for line in summary]
    made = k.Kernel(
        function.name,
        buffers,
        scalars,
        launch,
        tuple(body),
        index.bits,
        tuple(summary),
        nest.words,
        arrays,
        _measure_effort(phases, nest),
        index.signed,
        stages,
        passes,
        schedule=tuple(nest.list_lines()),
        title=title,
        script=tuple(map(str, nest.script)),
        cut=cut,
        matrices=matrices,
    )
    # Elements kept between passes over a row are recognized only in unrolled loops.
    asked = dataclasses.replace(limits, unrolls=limits.unrolls and not nest.holds)
    made = run_passes(made, function, asked)
    if function.one_step is not None:
        made = guard_rows(made, function.one_step)
    if section is not None and is_own:
        _check_own(made, nest, limits, section)
    return made


def _check_words(nest: Nest, limits: Limits, section: Section) -> None:
    """Refuses to store half of a word."""
    whole = {
        name for n in walk(nest.body) if isinstance(n, Pack) and n.in_words for name in n.buffers
    }
    for view in (view for phase in nest.phases for view, _ in phase.elements.results):
        if view.dtype in limits.word_types and not view.local and view.tensor not in whole:
            raise ScheduleError(
                f"'{view.tensor}' is {view.dtype.name}, of which target '{limits.target}' stores "
                "two elements at a time: 'pair' does that", section.span,
            )  # fmt: skip


def _check_own(made: k.Kernel, nest: Nest, limits: Limits, section: Section) -> None:
    """Refuses requests of a user's schedule that the target does not support."""
    size, most = made.launch.group_size, limits.group_size
    if size > most:
        raise ScheduleError(
            f"a group of '{made.title}' has {size:,} work items, and target '{limits.target}' "
            f"allows {most:,}", section.span,
        )  # fmt: skip
    shared = sum(a.size * a.lanes * max(4, a.dtype.bytes) for a in made.arrays if a.shared)
    if shared > limits.shared_bytes:
        raise ScheduleError(
            f"a group of '{made.title}' shares {shared:,} bytes, and target '{limits.target}' "
            f"allows {limits.shared_bytes:,}", section.span,
        )  # fmt: skip


def name_kernel(function: ir.Function, phases: Sequence[Phase]) -> str:
    """Title of a kernel: the last tensor that it stores or reduces; or the one that it stores for
    another kernel."""
    stored = [view.tensor for p in phases for view, _ in p.elements.results if not view.local]
    stored += [phase.scatter.view.tensor for phase in phases if phase.scatter is not None]
    reduced = {name for p in phases for each in p.accumulators for name, _ in each.stages}
    tensors = function.tensors()
    between = [name for name in stored if name not in tensors]
    # Partial results are named after their tensor.
    made = {name.partition("#")[0] for name in (*stored, *reduced)}
    return between[0] if between else function.sort_tensors(made)[-1]


def _find_launch(nest: Nest, limits: Limits, given: k.Scalar | None) -> k.Launch:
    """Launch of a nest. Work groups are counted in points of their loop's dimension; in elements,
    if that is a single dimension, or has the extent `given`."""
    loops = [n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.GROUP]
    items = math.prod(extent for _, extent in nest.lanes)
    products = [n for n in walk(nest.body) if isinstance(n, Multiply)]
    subgroup = products[0].instruction.subgroup if products else 0
    if not loops:
        return k.Launch(1, 1, items)
    (groups,) = loops
    dim, step = groups.dim, groups.step
    if len(dim.parts) == 1 and (nest.lanes or dim.parts[0][0].size is given):
        dim, each = dim.parts[0]
        step *= each
    row = limits.row
    if row is not None and step * row > RUN_TIME_COUNT and not nest.lanes:
        row = None
    if isinstance(dim.size, k.Scalar):
        return k.Launch(dim.size.name.removeprefix(OPEN), step, items, row, subgroup)
    return k.Launch(dim.size, step, items, lay_in_rows(dim.size, step, row), subgroup)


def lay_in_rows(count: int, step: int, row: int | None) -> int | None:
    """Number of groups per row of a two-dimensional launch with at most `row`, for rows of about
    equal length; the last row may have idle groups. None if one row suffices."""
    rows = 1 if row is None else -(-count // (step * row))
    return -(-count // (step * rows)) if rows > 1 else None


ACCESS = {
    (True, False): k.Access.READ,
    (False, True): k.Access.WRITE,
    (True, True): k.Access.READ_WRITE,
}
"""Access of a buffer, by whether it is read and whether it is written."""


def _list_buffers(function: ir.Function, phases: Sequence[Phase]) -> tuple[k.Buffer, ...]:
    """Buffers of a kernel: tensors in the function's order, then memory between kernels."""
    read: dict[str, View] = {}
    written: dict[str, View] = {}
    sizes: dict[str, int | str] = {}
    for phase in phases:
        for value in phase.elements.values:
            if isinstance(value, Read | Gather) and not value.view.local:
                read[value.view.tensor] = value.view
        written.update({v.tensor: v for v, _ in phase.elements.results if not v.local})
        if phase.scatter is not None:
            read[phase.scatter.view.tensor] = written[phase.scatter.view.tensor]
        for view in phase.elements.buffers():
            sizes[view.tensor] = max(
                sizes.get(view.tensor, 0), as_extent(_measure_view(phase, view)), key=estimate
            )
    touched = measure_footprint(function, phases)
    tensors = function.tensors()
    made = [
        k.Buffer(
            name, tensors[name].dtype, ACCESS[name in read, name in written], None, touched[name]
        )
        for name in function.sort_tensors(n for n in read | written if n in tensors)
    ]
    for name, view in (read | written).items():
        if name not in tensors:
            access = ACCESS[name in read, name in written]
            made.append(k.Buffer(name, view.dtype, access, sizes[name], touched[name]))
    return tuple(made)


def count_buffers(phases: Sequence[Phase]) -> int:
    """Number of buffers of some phases."""
    return len(_list_touched(phases))


def _list_touched(phases: Sequence[Phase]) -> set[str]:
    """Buffers that phases read or store."""
    views = [view for phase in phases for view in phase.elements.buffers()]
    views += [phase.scatter.view for phase in phases if phase.scatter is not None]
    return {view.tensor for view in views}


def _measure_view(phase: Phase, view: View) -> Measure:
    """Number of elements up to the last one that a view accesses."""
    steps = zip(phase.space.extents, view.strides, strict=True)
    return sum(((size - 1) * step for size, step in steps), 1 + view.offset)


def _reach(function: ir.Function, phase: Phase) -> int:
    """Number of elements up to the last one that a phase accesses."""
    if phase.is_open:
        return 1
    views = [estimate(_measure_view(phase, view)) for view in phase.elements.views()]
    gathers = [v.view.tensor for v in phase.elements.values if isinstance(v, Gather)]
    return max([0, *views, *(function.find_end(name) or 0 for name in gathers)])


def _count_points(phase: Phase) -> int:
    """Largest number of outputs, or of points that each reduces."""
    if phase.is_open:
        return 0
    return max(phase.space.inner_count, math.prod(phase.space.parallel_sizes))


@dataclasses.dataclass(frozen=True, slots=True)
class IndexType:
    """Integer type of a kernel's indices."""

    bits: int
    signed: bool


def find_index(largest: int, reach: Interval, limits: Limits) -> IndexType:
    """Narrowest index type for values up to `largest`, and for intermediate indices in `reach`."""
    low, high = reach
    if low >= -RUN_TIME_COUNT - 1 and max(high, largest) <= RUN_TIME_COUNT:
        return IndexType(32, low < 0)
    if low >= 0 and high <= RUN_TIME_COUNT:
        return IndexType(limits.index_bits, signed=False)
    if not limits.has_wide_positions:
        raise UnsupportedError(
            f"positions go beyond 32 bits, and target '{limits.target}' has no wider integers",
            notes=[
                "clamp them, compare them with the sizes of what is read, or take fewer elements"
            ],
        )
    return IndexType(64, signed=True)


def check_limits(function: ir.Function, reached: int, buffers: int, limits: Limits) -> None:
    """Raises `UnsupportedError` if a kernel has more buffers than the target allows, or accesses
    one beyond its limit of elements."""
    if buffers > limits.buffers:
        raise UnsupportedError(
            f"'{function.name}' needs {buffers} buffers in one kernel, and target "
            f"'{limits.target}' allows {limits.buffers} ({limits.buffers_reason}); "
            "compute it in several operators",
            function.span,
        )
    if reached > limits.elements:
        raise UnsupportedError(
            f"'{function.name}' reaches element {reached:,} of a tensor, and target "
            f"'{limits.target}' allows {limits.elements:,} ({limits.elements_reason}); "
            "split the tensors",
            function.span,
        )


def _measure_effort(phases: Sequence[Phase], nest: Nest) -> float:
    """Bytes that all phases compute with, divided by those of the buffers."""
    if has_lines(phases):
        is_permuted = any(isinstance(n, Permute) for n in walk(nest.body))
        return measure_effort(phases, is_permuted=is_permuted)
    if not any(phase.accumulators for phase in phases):
        return 1.0
    computed = 0
    stored: dict[str, int] = {}
    for phase in phases:
        for view in phase.elements.buffers():
            count = phase.count_steps(view) or 0
            computed += count * view.dtype.compute.bytes
            stored[view.tensor] = max(stored.get(view.tensor, 0), count * view.dtype.bytes)
    return max(1.0, computed / max(1, sum(stored.values())))
