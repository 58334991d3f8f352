"""Makes the loops of reductions as short as their guards allow.

A guard that depends on positions alone is known at compile time. For each reduction axis the
conditions that involve it, and at most one axis of the domain, are evaluated over both: the axis
is then walked over the places that pass alone. Where these lie evenly, as windows do, a place is
`first(i) + step * k` with `first` in closed form, or else it comes from a table. A condition stays
only where not every place that is walked passes. An axis with one place is no loop at all.

What else depends on positions alone, weights for one, is `tabulate`'s, which runs here on every
stage. The points that take part, their order and what each contributes stay as they were.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Constant,
    Function,
    Index,
    Load,
    Reduction,
    Select,
    Stage,
    value_type,
)
from dmlc.ir.index import IndexFacts
from dmlc.ir.verify import find_stage_fault
from dmlc.scalars import Array, DataType, combiner_identity
from dmlc.transform.clamp import clamp_reads
from dmlc.transform.give_places import find_positions, give_places
from dmlc.transform.settle import Settled, compute_within, settle
from dmlc.transform.simplify import Builder, drop_unsound_pairs, list_live
from dmlc.transform.tabulate import Tables, list_roots, read_known, tabulate_stage
from dmlc.transform.walk_axis import Plan, plan_axis, read_places, write_place


def narrow(function: Function, settled: Settled | None = None) -> Function:
    """The function with short reductions, and with tables of what depends on positions alone.

    Results are equal to those before, but for the rounding of sums whose terms were grouped
    otherwise. Deterministic. `settled` is the function with what is known of it, for who knows.
    """
    settled = settle(function) if settled is None else settled
    function, results = settled.function, {r.name for r in function.results}
    tables = Tables(function, settled.known)
    names = dict.fromkeys(function.tensors())
    positions = find_positions(function)
    read: dict[str, Stage] = {}
    stages: list[Stage] = []
    for stage in function.stages:
        made = read_known(stage, tables) if stage.name in settled.known else None
        if made is None:
            short = _narrow_soundly(function, stages, stage, tables, names, stage.name in positions)
            *before, made = (compute_within(each, read) for each in short)
            stages += before
        if made.name not in results and _is_read(made, tables):
            read[made.name] = made
        stages.append(made)
    whole = tables.attach(dataclasses.replace(function, stages=list_live(stages, results)))
    clamped = clamp_reads(whole, whole.stages)
    return drop_unsound_pairs(dataclasses.replace(whole, stages=clamped))


def _narrow_soundly(
    function: Function,
    stages: Sequence[Stage],
    stage: Stage,
    tables: Tables,
    names: dict[str, None],
    is_position: bool,
) -> list[Stage]:
    """A stage with short axes and tables, as far as its reads can still be proved inside: what
    comes from a table is known by its smallest and its largest value alone. `stages` are those
    before it."""
    plain: list[Stage] = []
    for listed in (True, False):
        plain = narrow_stage(stage, tables, names, listed=listed, is_position=is_position)
        made = [tabulate_stage(each, tables) for each in plain]
        if not any(load.tensor in tables for each in made for load in each.body.loads()):
            return made
        known = tables.attach(dataclasses.replace(function, stages=(*stages, *made)))
        if all(find_stage_fault(known, each) is None for each in made):
            return made
    return plain


def _is_read(stage: Stage, tables: Tables) -> bool:
    """Whether a stage is had without memory from positions and tables."""
    if stage.reduction is not None or stage.dtype.is_storage_only:
        return False
    return all(load.tensor in tables for load in stage.body.loads())


def narrow_stage(
    stage: Stage,
    tables: Tables,
    names: dict[str, None],
    *,
    listed: bool = True,
    is_position: bool = False,
) -> list[Stage]:
    """A stage with each of its reduction axes as short as its guard allows; where `listed`, also
    those whose places only a table can list. Other stages come before it where it gives positions:
    they number the places that are walked, and it gives the place that this number is of. Where
    others read at what it gives (`is_position`), that stays within bounds on its face. `names` are
    taken."""
    stage = _drop_certain(stage, tables.known)
    guarded = _guard_choice(stage, tables.known)
    if stage.reduction is None or guarded.body.guard is None:
        return [stage]
    short, plans = guarded, list[Plan]()
    for label, extent in stage.reduction.axes:
        if isinstance(extent, int):
            plan = plan_axis(short, label, extent, tables.known)
            if plan is not None and (listed or plan.is_whole):
                short = _rewrite(short, plan, tables)
                plans.append(plan)
    if not plans:
        return [stage]
    if stage.reduction.combiner not in POSITIONAL_COMBINERS:
        return [short]
    return give_places(stage, short, plans, tables, names, is_bounded=is_position)


# Conditions --------------------------------------------------------------------------------


def _drop_certain(stage: Stage, known: Mapping[str, Array]) -> Stage:
    """A stage without the conditions of its guard that hold at every point."""
    if stage.body.guard is None:
        return stage
    facts, certain = IndexFacts(stage, known), set[int]()
    for condition in facts.conditions:
        holds = facts.evaluate([condition])
        if holds is not None and holds[0].all():
            certain.add(condition)
    if not certain:
        return stage
    body, builder = stage.body, Builder()
    numbers = builder.copy(body)
    guard = builder.join(numbers[c] for c in facts.conditions if c not in certain)
    return dataclasses.replace(stage, body=builder.make(numbers[body.result], guard))


def _guard_choice(stage: Stage, known: Mapping[str, Array]) -> Stage:
    """A stage whose guard leaves out the points at which its body is the combiner's identity by a
    choice that depends on positions alone: these change nothing."""
    reduction, body = stage.reduction, stage.body
    if reduction is None or reduction.combiner in POSITIONAL_COMBINERS:
        return stage
    facts = IndexFacts(stage, known)
    identity = Constant(body.dtype, combiner_identity(reduction.combiner, body.dtype))
    builder = Builder()
    numbers = builder.copy(body)
    conditions, result = [numbers[c] for c in facts.conditions], body.result
    while isinstance(choice := body.instructions[result], Select) and facts.known[choice.condition]:
        condition = numbers[choice.condition]
        if body.instructions[choice.otherwise] == identity:
            result = choice.then
        elif body.instructions[choice.then] == identity:
            result = choice.otherwise
            condition = builder.apply("not", condition)
        else:
            break
        conditions.append(condition)
    if result == body.result:
        return stage
    made = builder.make(numbers[result], builder.join(conditions))
    return dataclasses.replace(stage, body=made)


# Axes --------------------------------------------------------------------------------------


def _rewrite(stage: Stage, plan: Plan, tables: Tables) -> Stage:
    """The stage with an axis walked as planned."""
    reduction = stage.reduction
    if reduction is None:
        return stage
    body, builder = stage.body, Builder()
    facts, own = IndexFacts(stage, tables.known), Index(plan.label, reduced=True)
    number = builder.constant(0) if plan.count == 1 else builder.add(own)
    place, conditions = write_place(stage, plan, tables, builder, number)
    listed = _list_values(facts, plan, tables, builder, number)
    moved = {n: place for n, instruction in enumerate(body.instructions) if instruction == own}
    numbers = builder.copy(body, moved | listed)
    conditions += _list_open(facts, plan, numbers)
    conditions += [numbers[c] for c in facts.conditions if c not in plan.conditions]
    result, guard = numbers[body.result], builder.join(conditions)
    axes = tuple((a, plan.count if a == plan.label else e) for a, e in reduction.axes)
    if plan.count == 1 and (len(axes) > 1 or guard is None):
        axes = tuple(axis for axis in axes if axis[0] != plan.label)
    kept = Reduction(reduction.combiner, axes) if axes else None
    if kept is None and reduction.combiner == "sum" and body.dtype.is_float:
        # A sum of one -0 is 0.
        result = builder.apply("add", result, builder.add(Constant(body.dtype, 0.0)))
    return dataclasses.replace(stage, body=builder.make(result, guard), reduction=kept)


def _list_values(
    facts: IndexFacts, plan: Plan, tables: Tables, builder: Builder, number: int
) -> dict[int, int]:
    """Where places come from a table, so do the positions and fractions that derive from them:
    what they are at the places walked is all that is known of them."""
    if plan.form is not None:
        return {}
    stage, body = facts.stage, facts.stage.body
    inside = [
        facts.is_over(n, plan.over)
        and plan.over[-1] in facts.dependencies[n]
        and value_type(i) in (DataType.INDEX, DataType.FLOAT32)
        for n, i in enumerate(body.instructions)
    ]
    roots = list_roots(body, inside)
    row = plan.row(builder)
    filled = plan.window.counts[:, None] > 0
    made: dict[int, int] = {}
    for root, whole in zip(roots, _spread(facts, plan, roots), strict=True):
        found = np.where(filled, np.take_along_axis(whole, plan.places, axis=1), 0)
        if whole.dtype == np.int64:
            name = f"{stage.name}_places"
            made[root] = read_places(builder, tables, name, found, (row, number))
        else:
            table = tables.take(f"{stage.name}_weights", DataType.FLOAT32, found)
            made[root] = builder.add(Load(table, (row, number), DataType.FLOAT32))
    return made


def _list_open(facts: IndexFacts, plan: Plan, numbers: Sequence[int]) -> list[int]:
    """The settled conditions that still do not hold everywhere, in the new body."""
    if plan.form is None or plan.is_whole or plan.is_exact:
        return []
    found = zip(plan.conditions, _spread(facts, plan, plan.conditions), strict=True)
    return [numbers[condition] for condition, holds in found if plan.leaves_out(holds)]


def _spread(facts: IndexFacts, plan: Plan, values: Sequence[int]) -> list[Array]:
    """Values by position of the domain and place of the axis."""
    found = facts.evaluate(values, plan.over) or ()
    return [
        np.broadcast_to(v.reshape((1,) * (2 - v.ndim) + v.shape), plan.holds.shape) for v in found
    ]
