"""Schedules for sizes that are known at run time only: one fixed shape each, right for all sizes.

Which work item computes what, and in which order points are reduced, depends on sizes alone, as it
does elsewhere; no number here is chosen by one. On a GPU the work items of a group share the points
of an output that reads its own ones, and take an output each where outputs read the same elements,
as in a product of matrices, or at computed positions. On a CPU a work item takes a run of outputs,
in vectors where they are neighbours, and else one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlc import ir
from dmlc.kernel.arithmetic import make_size, measure
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.nodes import (
    Dim,
    Kind,
    Loop,
    Nest,
    Node,
    Point,
    Reduce,
    in_vectors,
    merge_dims,
    name_inner,
    tell_apart,
)
from dmlc.loops.phases import Phase
from dmlc.loops.space import Space, cut
from dmlc.schedules import gpu
from dmlc.schedules.rule import Rule
from dmlc.sizes import divide_up, multiply
from dmlc.source import UnsupportedError

_PIECES = 4
"""Groups of a reduction in pieces, by those that keep a device busy."""
_COLUMNS = 32
"""Neighbouring outputs in a group, where they are neighbours in memory."""
_RUN = 64
"""Outputs of a work item of a CPU, where they are reduced from the same elements."""
_ROWS = 16
"""Rows of elements of a work item of a CPU."""


def choose(function: ir.Function, phases: Sequence[Phase], p: Profile, limits: Limits) -> Nest:
    """The nest of some phases of open sizes. Raises `UnsupportedError` for results that are stored
    two to a word."""
    for view in (view for phase in phases for view, _ in phase.elements.results):
        if view.dtype in limits.word_types:
            raise UnsupportedError(
                f"'{view.tensor}' is {view.dtype.name} with sizes that are left open, and without "
                "16-bit types kernels store two elements at a time",
                notes=["give its sizes numbers, or compile for shader model 6.2"],
            )
    alone = len(phases) == 1 and not phases[0].accumulators
    if p.lanes > 1:
        if alone:
            return _choose_rows(function, phases[0], p, limits)
        return _choose_columns(phases, p) if _lies_across(phases) else _choose_runs(phases, p)
    if alone:
        vectors = gpu.takes_vectors(phases[0], limits)
        choose_one = gpu.choose_vectors if vectors else gpu.choose_flat
        return choose_one(function, phases[0], None, p, limits)
    serial = _shares_reads(phases[0])
    return _choose_serial(phases, p) if serial else _choose_shared(phases, p, limits)


def count_pieces(phases: Sequence[Phase], p: Profile) -> int:
    """In how many pieces a reduction goes whose outputs are known to be few; 0 where they are many,
    or may be."""
    space = phases[0].space
    outputs = multiply(space.extents[axis] for axis in space.parallel)
    if not phases[0].accumulators or not isinstance(outputs, int) or outputs >= p.groups:
        return 0
    return -(-_PIECES * p.groups // max(outputs, 1))


def cut_up(phases: Sequence[Phase], p: Profile) -> Space | None:
    """The space of the first phase with its outermost inner axis cut into pieces, as long as sizes
    make them; None where one kernel does."""
    space, pieces = phases[0].space, count_pieces(phases, p)
    if not pieces:
        return None
    axis = space.inner[0]
    return cut(space, axis, divide_up(space.extents[axis], pieces), pieces)


def _shares_reads(first: Phase) -> bool:
    """Whether outputs are reduced from the same elements, or at computed positions."""
    if first.has_positions:
        return True
    strides = first.space.strides
    return not any(all(strides[view]) for view in first.elements.buffers())


# Dimensions --------------------------------------------------------------------------------


def _name_axes(space: Space, name: str, axes: Sequence[int]) -> dict[int, Dim]:
    """The dimensions of some axes of a space."""
    return {axis: Dim(f"{name}{axis}", make_size(space.extents[axis])) for axis in axes}


def _name_all(phases: Sequence[Phase]) -> tuple[list[Dim], list[tuple[Dim, ...]]]:
    """The parallel dimensions, which phases share, and all that each has."""
    first = phases[0].space
    parallel = list(_name_axes(first, "i", first.parallel).values())
    names = ("k" if phase.accumulators else "i" for phase in phases)
    return parallel, [
        name_inner(p, parallel, name, number)
        for number, (p, name) in enumerate(zip(phases, names, strict=True))
    ]


# Element-wise work -------------------------------------------------------------------------


def _choose_rows(function: ir.Function, phase: Phase, p: Profile, limits: Limits) -> Nest:
    """Each work item takes some rows, in vectors where neighbours lie side by side."""
    rule = Rule(function, limits, (phase,))
    *rows, along = rule.outer
    if phase.lies_together(len(phase.space.extents) - 1):
        rule.do("vectorize", along, p.lanes)
    rule.do("bind", rule.do("split", rule.fuse(rows, "row"), _ROWS, name="first"), "group")
    return rule.finish(f"each computes {_ROWS} rows")


# Reductions --------------------------------------------------------------------------------


def _nest_points(phases: Sequence[Phase], dims: Sequence[tuple[Dim, ...]]) -> tuple[Node, ...]:
    """The loops over the points of one output, in order: what is reduced is reduced one after the
    other."""
    nodes: list[Node] = []
    for number, (phase, own) in enumerate(zip(phases, dims, strict=True)):
        node: Node = Point(number)
        for axis in reversed(phase.space.inner):
            node = Loop(own[axis], Kind.LOOP, 1, (node,), own[axis].wanted)
        nodes.append(Reduce(number, (node,), serial=True) if phase.accumulators else node)
    return tuple(nodes)


def _choose_serial(phases: Sequence[Phase], p: Profile) -> Nest:
    """Each work item has an output, whose points it reduces one after the other."""
    parallel, dims = _name_all(phases)
    output = merge_dims("output", parallel)
    lanes = Loop(output, Kind.LANE, 1, _nest_points(phases, dims), "lane", p.group_size)
    groups = Loop(output, Kind.GROUP, p.group_size, (lanes,), "group")
    sides = (("lane", p.group_size),)
    return Nest(tuple(phases), tuple(dims), (groups,), sides, words="each computes 1 output")


def _choose_shared(phases: Sequence[Phase], p: Profile, limits: Limits) -> Nest:
    """The work items of a group share the points of an output, or of a few neighbouring ones: in
    vectors where they begin where those of memory do whatever the sizes are."""
    unit = gpu.find_unit(phases, limits)
    space = phases[0].space
    beside = bool(space.parallel) and space.parallel[-1] == len(space.extents) - 1
    columns = _COLUMNS if beside else 1
    rows = p.group_size // columns
    parallel, dims = _name_all(phases)
    output = merge_dims("output", parallel)
    body: list[Node] = []
    for number, (phase, own) in enumerate(zip(phases, dims, strict=True)):
        if phase.is_parallel:
            body.append(Point(number))
            continue
        inner = [own[axis] for axis in phase.space.inner]
        element = inner[0] if len(inner) == 1 else merge_dims(tell_apart("element", number), inner)
        node: Node = gpu.share_points(phase, number, element, rows, unit)
        body.append(Reduce(number, (node,)) if phase.accumulators else node)
    outputs = Loop(output, Kind.LANE, 1, tuple(body), "column", columns)
    groups = Loop(output, Kind.GROUP, columns, (outputs,))
    several = f"{columns} outputs" if columns > 1 else "1 output"
    words = f"a group computes {several}, with {rows} lanes on each"
    sides = (("row", rows), ("column", columns))
    return Nest(tuple(phases), tuple(dims), (groups,), sides, words=words)


def _lies_across(phases: Sequence[Phase]) -> bool:
    """Whether outputs lie side by side, and what they are reduced from does, or is the same."""
    for phase in phases:
        space = phase.space
        axis = space.parallel[-1] if space.parallel else None
        if axis is None or phase.tests_guard or not phase.lies_together(axis):
            return False
    space = phases[0].space
    return space.parallel[-1] == len(space.extents) - 1


def _choose_columns(phases: Sequence[Phase], p: Profile) -> Nest:
    """Each work item has a run of neighbouring outputs, in vectors: each lane reduces the points of
    an output of its own, one after the other."""
    parallel, dims = _name_all(phases)
    *rows, column = parallel
    outputs = in_vectors(column, p.lanes, _nest_points(phases, dims), column.wanted)
    runs = divide_up(measure(column.size), _RUN)
    count = multiply((*(measure(row.size) for row in rows), runs))
    parts = (*((row, 1) for row in rows), (column, _RUN))
    block = Dim("block", make_size(count), parts)
    groups = Loop(block, Kind.GROUP, 1, (outputs,), "block")
    words = f"each computes {_RUN} neighbouring outputs"
    return Nest(tuple(phases), tuple(dims), (groups,), words=words)


def _choose_runs(phases: Sequence[Phase], p: Profile) -> Nest:
    """Each work item has a run of outputs. It goes through the points of each in vectors where they
    lie side by side."""
    parallel, dims = _name_all(phases)
    output = merge_dims("output", parallel)
    nodes: list[Node] = []
    for number, (phase, own) in enumerate(zip(phases, dims, strict=True)):
        node: Node = Point(number)
        axes = phase.space.inner
        wide = bool(axes) and phase.lies_together(axes[-1]) and not phase.tests_guard
        for axis in reversed(axes):
            vector = wide and axis == axes[-1]
            dim = own[axis]
            node = in_vectors(dim, p.lanes, (node,), dim.wanted) if vector else Loop(
                dim, Kind.LOOP, 1, (node,), dim.wanted
            )  # fmt: skip
        if phase.accumulators:
            node = Reduce(number, (node,), serial=not wide)
            # The lanes of a vector have sums of their own, which become one at the end.
            node = Reduce(number, (node,), array=True) if wide else node
        nodes.append(node)
    each = Loop(output, Kind.LOOP, 1, tuple(nodes), "output")
    run = _RUN if _shares_reads(phases[0]) else 1
    groups = Loop(output, Kind.GROUP, run, (each,), "first")
    words = f"each computes {run} output{'s' * (run > 1)}"
    return Nest(tuple(phases), tuple(dims), (groups,), words=words)
