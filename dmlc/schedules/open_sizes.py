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
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.nodes import Call, Nest
from dmlc.loops.phases import Phase
from dmlc.loops.rfactor import PIECES, make_cut
from dmlc.schedules import cpu, gpu
from dmlc.schedules.rule import Rule
from dmlc.sizes import multiply
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
        if alone or not _lies_across(phases):
            return _choose_runs(function, phases, p, limits)
        rule = Rule(function, limits, phases)
        cpu.share_columns(rule, rule.outer, _RUN, p, 1)
        return rule.finish(f"each computes {_RUN} neighbouring outputs")
    if alone:
        vectors = gpu.takes_vectors(phases[0], limits)
        choose_one = gpu.choose_vectors if vectors else gpu.choose_flat
        return choose_one(function, phases[0], None, p, limits)
    if _shares_reads(phases[0]):
        return gpu.choose_serial(function, phases, p, limits)
    return _choose_shared(function, phases, p, limits)


def count_pieces(phases: Sequence[Phase], p: Profile) -> int:
    """In how many pieces a reduction goes whose outputs are known to be few; 0 where they are many,
    or may be."""
    space = phases[0].space
    outputs = multiply(space.extents[axis] for axis in space.parallel)
    if not phases[0].accumulators or not isinstance(outputs, int) or outputs >= p.groups:
        return 0
    return -(-_PIECES * p.groups // max(outputs, 1))


def cut_up(phases: Sequence[Phase], p: Profile) -> Call | None:
    """The call that cuts the outermost inner axis of the first phase into pieces, as long as sizes
    make them; None where one kernel does."""
    pieces = count_pieces(phases, p)
    return make_cut(phases[0], phases[0].space.inner[0], pieces, PIECES) if pieces else None


def _shares_reads(first: Phase) -> bool:
    """Whether outputs are reduced from the same elements, or at computed positions."""
    if first.has_positions:
        return True
    strides = first.space.strides
    return not any(all(strides[view]) for view in first.elements.buffers())


# Reductions --------------------------------------------------------------------------------


def _choose_shared(
    function: ir.Function, phases: Sequence[Phase], p: Profile, limits: Limits
) -> Nest:
    """The work items of a group share the points of an output, or of a few neighbouring ones: in
    vectors where they begin where those of memory do whatever the sizes are."""
    space = phases[0].space
    beside = bool(space.parallel) and space.parallel[-1] == len(space.extents) - 1
    columns = _COLUMNS if beside else 1
    return gpu.share_outputs(function, phases, limits, p.group_size // columns, columns)


def _lies_across(phases: Sequence[Phase]) -> bool:
    """Whether outputs lie side by side, and what they are reduced from does, or is the same."""
    for phase in phases:
        space = phase.space
        axis = space.parallel[-1] if space.parallel else None
        if axis is None or phase.tests_guard or not phase.lies_together(axis):
            return False
    space = phases[0].space
    return space.parallel[-1] == len(space.extents) - 1


def _choose_runs(
    function: ir.Function, phases: Sequence[Phase], p: Profile, limits: Limits
) -> Nest:
    """Each work item has a run of outputs, or of rows of elements. It goes through the points of
    each in vectors where they lie side by side."""
    rule = Rule(function, limits, phases)
    alone = len(phases) == 1 and not phases[0].accumulators
    output = rule.fuse(rule.outer[:-1] if alone else rule.outer, "output")
    for phase, dims in zip(phases, rule.nest.dims, strict=True):
        axes = phase.space.parallel if alone else phase.space.inner
        if axes and phase.lies_together(axes[-1]) and not phase.tests_guard:
            rule.do("vectorize", dims[axes[-1]].name, p.lanes)
    run = _ROWS if alone else _RUN if _shares_reads(phases[0]) else 1
    if run > 1:
        output = rule.do("split", output, run, name="first")
    rule.do("bind", output, "group")
    return rule.finish(f"each computes {run} {'row' if alone else 'output'}{'s' * (run > 1)}")
