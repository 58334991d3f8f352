"""Bounds inference: makes the loops of reductions as short as their guards allow.

An index-only guard is known at compile time. For each reduction axis, the conditions that involve
it and at most one domain axis are evaluated over both, and the loop then visits only the indices
that pass. If these are evenly spaced, as in windows, an index is `first(i) + step * k` with `first`
in closed form; otherwise it comes from a table. A condition stays only if some visited indices fail
it; for idempotent combiners, the nearest index that passes is visited again instead. An axis with a
single index needs no loop.

Other index-only values, such as weights, are left to `tabulate`, which runs here on every stage.
The points that take part, their order and their values are unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from dmlc.ir import Function, Index, Reduction, Stage, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, find_index_only
from dmlc.ir.ranges import Ranges
from dmlc.ir.verify import find_stage_fault
from dmlc.scalars import Array, DataType
from dmlc.transform.inline import clamp_reads, inline_stages
from dmlc.transform.keys import guard_choices
from dmlc.transform.simplify import is_inlinable, list_live, replace_stages
from dmlc.transform.tabulate import Settled, Tables, list_roots, read_known, settle, tabulate_stage
from dmlc.transform.walk_axis import Plan, find_positions, give_places, plan_axis, write_place


def tighten_bounds(function: Function, settled: Settled | None = None) -> Function:
    """Function with tightened reductions, and with tables of index-only values.

    Results are equal except for the rounding of sums whose terms are grouped differently.
    Deterministic. `settled` is the function's compile-time knowledge, if the caller has it.
    """
    settled = settle(function) if settled is None else settled
    function, results = settled.function, {r.name for r in function.results}
    tables = Tables(function, settled.known)
    positions = find_positions(function)
    read: dict[str, Stage] = {}
    stages: list[Stage] = []
    for stage in function.stages:
        made = read_known(stage, tables) if stage.name in settled.known else None
        if made is None:
            short = _narrow_soundly(function, stages, stage, tables, stage.name in positions)
            *before, made = (inline_stages(each, read) for each in short)
            stages += before
        tabulated = all(load.tensor in tables for load in made.body.loads())
        if made.name not in results and tabulated and is_inlinable(made):
            read[made.name] = made
        stages.append(made)
    whole = tables.attach(function.with_stages(list_live(stages, results)))
    return replace_stages(whole, clamp_reads(whole, whole.stages))


def _narrow_soundly(
    function: Function, before: Sequence[Stage], stage: Stage, tables: Tables, is_position: bool
) -> list[Stage]:
    """Stage with tightened axes and tables, as far as its loads can still be proved in bounds: of a
    table, only the smallest and the largest value are known. `before` are the preceding stages."""
    plain: list[Stage] = []
    for listed in (True, False):
        plain = _narrow(stage, tables, listed, is_position)
        made = [tabulate_stage(each, tables) for each in plain]
        read = {load.tensor for each in made for load in each.body.loads()}
        if not any(name in tables for name in read):
            return made
        near = [each for each in before if each.name in read]
        known = tables.attach(dataclasses.replace(function, stages=(*near, *made)))
        if all(find_stage_fault(known, each) is None for each in made):
            return made
    return plain


def _narrow(stage: Stage, tables: Tables, listed: bool, is_position: bool) -> list[Stage]:
    """Stage with each reduction axis as short as its guard allows; with `listed`, also where only a
    table can give the indices. For a positional reduction, preceding stages find the number of the
    visited point, and the stage computes the index that it stands for. With `is_position`, that
    index is clamped to the tensor, as others load at it."""
    stage = _drop_certain(stage, tables.known)
    # Points whose value is the identity by an index-only condition are excluded.
    short, plans = guard_choices(stage, find_index_only(stage.body, tables.known)), list[Plan]()
    if stage.reduction is None or short.body.guard is None:
        return [stage]
    again = stage.reduction.record.idempotent
    for label, extent in stage.reduction.axes:
        if not isinstance(extent, int):
            continue
        plan = plan_axis(short, label, extent, tables.known, may_repeat=again)
        if plan is not None and (listed or plan.is_whole):
            short = _rewrite(short, plan, tables)
            plans.append(plan)
    if not plans:
        return [stage]
    if not stage.reduction.is_positional:
        return [short]
    return give_places(stage, short, plans, tables, is_bounded=is_position)


# Conditions --------------------------------------------------------------------------------


def _drop_certain(stage: Stage, known: Mapping[str, Array]) -> Stage:
    """Stage without the conditions of its guard that are true at every point."""
    if stage.body.guard is None:
        return stage
    facts, ranges, builder = IndexFacts(stage, known), Ranges.of(stage), BodyBuilder()
    unsure = [c for c in facts.conditions if ranges.truth(c) != (1, 1)]
    passing = ((c, facts.find_passing([c])) for c in unsure)
    left = [c for c, holds in passing if holds is None or not holds.all()]
    if len(left) == len(facts.conditions):
        return stage
    numbers = builder.copy(stage.body)
    guard = builder.join(numbers[c] for c in left)
    return dataclasses.replace(stage, body=builder.make(numbers[stage.body.result], guard))


# Axes --------------------------------------------------------------------------------------


def _rewrite(stage: Stage, plan: Plan, tables: Tables) -> Stage:
    """Stage with a planned axis."""
    body, builder, combiner = stage.body, BodyBuilder(), stage.combiner or ""
    facts, own = plan.facts, Index(plan.label, reduced=True)
    number = builder.constant(0) if plan.count == 1 else builder.add(own)
    place, conditions = write_place(plan, tables, builder, number)
    listed = _list_values(plan, tables, builder, number)
    numbers = builder.copy(body, listed, places={own: place})
    if plan.form is not None and not plan.is_whole and not plan.is_exact:
        # Some of the plan's conditions may still be false at visited indices.
        found = zip(plan.conditions, plan.evaluate(plan.conditions), strict=True)
        conditions += [numbers[c] for c, holds in found if plan.leaves_out(holds)]
    conditions += [numbers[c] for c in facts.conditions if c not in plan.conditions]
    result, guard = numbers[body.result], builder.join(conditions)
    axes = tuple((a, plan.count if a == plan.label else e) for a, e in stage.axes)
    if plan.count == 1 and (len(axes) > 1 or guard is None):
        axes = tuple(axis for axis in axes if axis[0] != plan.label)
    kept = Reduction(combiner, axes) if axes else None
    if kept is None:
        result = builder.total(combiner, result)
    return dataclasses.replace(stage, body=builder.make(result, guard), reduction=kept)


def _list_values(plan: Plan, tables: Tables, builder: BodyBuilder, number: int) -> dict[int, int]:
    """Index-only values that depend on an axis whose indices come from a table, as tables: only
    their values at the visited indices are known."""
    if plan.form is not None:
        return {}
    facts, stage, body = plan.facts, plan.facts.stage, plan.facts.stage.body
    inside = [
        facts.is_over(n, plan.over)
        and plan.over[-1] in facts.dependencies[n]
        and value_type(i) in (DataType.INDEX, DataType.FLOAT32)
        for n, i in enumerate(body.instructions)
    ]
    roots = list_roots(body, inside)
    row = plan.row(builder)
    made: dict[int, int] = {}
    for root, values in zip(roots, plan.evaluate(roots), strict=True):
        found = np.where(plan.counts[:, None] > 0, values, 0)
        whole = values.dtype == np.int64
        read, what = (tables.read_position, "places") if whole else (tables.read, "weights")
        made[root] = read(builder, f"{stage.name}_{what}", found, (row, number))
    return made
