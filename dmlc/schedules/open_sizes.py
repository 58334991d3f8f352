"""Schedules for open sizes: a fixed shape each, correct for all sizes.

The distribution of work and the order of points depend on sizes alone, as elsewhere; no parameter
here is chosen by one. On a GPU, the work items of a group share the points of an output with its
own operands, and take an output each if outputs share loads, as in a matrix product, or load at
computed indices. On a CPU, a work item takes a run of outputs, in vectors if these are contiguous,
and sequentially otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.kernel.target import Profile
from dmlc.loops.nodes import Nest
from dmlc.loops.phases import Phase
from dmlc.schedules import cpu, gpu
from dmlc.schedules.rule import Work
from dmlc.source import UnsupportedError

_RUN = 64
"""Outputs of a CPU's work item if they are reduced from the same elements."""
_ROWS = 16
"""Rows of elements of a CPU's work item."""


def choose(work: Work) -> Nest | None:
    """Nest of phases of open sizes; None for others. Raises `UnsupportedError` for results that are
    stored two to a word."""
    if not work.is_open:
        return None
    phases, p, limits = work.phases, work.profile, work.limits
    for view in (view for phase in phases for view, _ in phase.elements.results):
        if view.dtype in limits.word_types:
            raise UnsupportedError(
                f"'{view.tensor}' is {view.dtype.name} with sizes that are left open, and without "
                "16-bit types kernels store two elements at a time",
                notes=["give its sizes numbers, or compile for shader model 6.2"],
            )
    alone = len(phases) == 1 and not phases[0].accumulators
    if not p.grouped:
        if alone or not _runs_across(phases):
            return _choose_runs(work)
        rule = work.begin()
        cpu.share_columns(rule, rule.outer, _RUN, p, 1)
        return rule.finish(f"each computes {_RUN} neighbouring outputs")
    if alone:
        vectors = gpu.takes_vectors(phases[0], limits)
        return gpu.choose_vectors(work) if vectors else gpu.choose_flat(work)
    settled = [_assume_sizes(phase, p) for phase in phases]
    if settled[0].has_positions and gpu.suits_serial(settled[0], p):
        return gpu.choose_serial(work)
    holding = gpu.count_holding(phases, p, limits)
    if holding:
        return gpu.share_outputs(work, holding, max(1, p.group_size // holding), times=1)
    shape = gpu.choose_tile(settled, p, limits, few=p.groups)
    return gpu.share_outputs(work, *shape, p.taken)


def _assume_sizes(phase: Phase, p: Profile) -> Phase:
    """Phase with assumed values for its open sizes."""
    found = phase.settle(p.taken)
    return dataclasses.replace(found, elements=found.elements.drop_ones())


def _shares_reads(first: Phase) -> bool:
    """Whether outputs are reduced from the same elements, or load at computed indices."""
    if first.has_positions:
        return True
    return not any(all(view.strides) for view in first.elements.buffers())


def _runs_across(phases: Sequence[Phase]) -> bool:
    """Whether outputs are contiguous, and their operands are contiguous or constant along them."""
    for phase in phases:
        space = phase.space
        axis = space.parallel[-1] if space.parallel else None
        serial = axis is not None and not phase.tests_guard and phase.counts_up
        if axis is None or not serial or not phase.lies_together(axis):
            return False
    space = phases[0].space
    return space.parallel[-1] == len(space.extents) - 1


def _choose_runs(work: Work) -> Nest:
    """Nest in which each work item has a run of outputs, or of rows of elements. Contiguous points
    of each are vectorized."""
    rule, phases = work.begin(), work.phases
    alone = len(phases) == 1 and not phases[0].accumulators
    output = rule.fuse(rule.outer[:-1] if alone else rule.outer, "output")
    for phase, dims in zip(phases, rule.nest.dims, strict=True):
        axes = phase.space.parallel if alone else phase.space.inner
        if axes and phase.lies_together(axes[-1]) and not phase.tests_guard:
            rule.do("vectorize", dims[axes[-1]].name, work.profile.lanes)
    run = _ROWS if alone else _RUN if _shares_reads(phases[0]) else 1
    if run > 1:
        output = rule.do("split", output, run, name="first")
    rule.do("bind", output, "group")
    return rule.finish(f"each computes {run} {'row' if alone else 'output'}{'s' * (run > 1)}")
