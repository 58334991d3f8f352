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
from types import MappingProxyType

import numpy as np

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Index,
    Load,
    Reduction,
    Stage,
    operands,
    value_type,
    with_operands,
)
from dmlc.ir.positions import (
    MOST_POINTS,
    count_points,
    evaluate_positions,
    find_dependencies,
    find_index_only,
    list_conjuncts,
    order_indices,
)
from dmlc.ir.verify import find_stage_fault
from dmlc.scalars import OPERATIONS, Array, DataType
from dmlc.transform.clamp import clamp_reads
from dmlc.transform.closed_form import FloorForm, fit_clamped, fit_floor
from dmlc.transform.inline import TooManyPlacesError, inline_stages
from dmlc.transform.simplify import Builder, drop_unsound_pairs, list_live
from dmlc.transform.tabulate import Tables, evaluate_stage, is_index_only, tabulate_stage


def narrow(function: Function) -> Function:
    """The function with short reductions, and with tables of what depends on positions alone.

    Results are equal to those before, but for the rounding of sums whose terms were grouped
    otherwise. Deterministic.
    """
    results = {r.name for r in function.results}
    tables = Tables(function)
    known: dict[str, Stage] = {}
    stages: list[Stage] = []
    for stage in function.stages:
        made = _inline(stage, known)
        if is_index_only(made) and made.reduction is not None:
            made = evaluate_stage(made, tables) or made
        else:
            made = _narrow_soundly(function, stages, made, tables)
        if made.name not in results and _is_known(made, tables, known):
            known[made.name] = made
        stages.append(made)
    whole = tables.attach(dataclasses.replace(function, stages=list_live(stages, results)))
    clamped = clamp_reads(whole, whole.stages)
    return drop_unsound_pairs(dataclasses.replace(whole, stages=clamped))


def _narrow_soundly(
    function: Function, stages: Sequence[Stage], stage: Stage, tables: Tables
) -> Stage:
    """A stage with short axes and tables, as far as its reads can still be proved inside: what
    comes from a table is known by its smallest and its largest value alone. `stages` are those
    before it."""
    short = tabulate_stage(narrow_stage(stage, tables), tables)
    if not any(load.tensor in tables for load in short.body.loads()):
        return short
    known = tables.attach(dataclasses.replace(function, stages=(*stages, short)))
    if find_stage_fault(known, short) is None:
        return short
    plain = narrow_stage(stage, tables, listed=False)
    made = tabulate_stage(plain, tables)
    known = tables.attach(dataclasses.replace(function, stages=(*stages, made)))
    return plain if find_stage_fault(known, made) else made


def _is_known(stage: Stage, tables: Tables, known: dict[str, Stage]) -> bool:
    """Whether a stage is had without memory from positions and tables."""
    if stage.reduction is not None or stage.dtype.is_storage_only:
        return False
    return all(load.tensor in tables or load.tensor in known for load in stage.body.loads())


def _inline(stage: Stage, known: dict[str, Stage]) -> Stage:
    """A stage that computes what is known of positions itself."""
    if not any(load.tensor in known for load in stage.body.loads()):
        return stage
    try:
        return dataclasses.replace(stage, body=inline_stages(stage, known))
    except TooManyPlacesError:
        return stage


def narrow_stage(stage: Stage, tables: Tables, *, listed: bool = True) -> Stage:
    """A stage with each of its reduction axes as short as its guard allows; where `listed`, also
    those whose places only a table can list."""
    stage = _drop_certain(stage)
    if stage.reduction is None or stage.body.guard is None:
        return stage
    if stage.reduction.combiner in POSITIONAL_COMBINERS:
        return stage  # The numbers of points depend on the extents.
    for label, extent in stage.reduction.axes:
        if isinstance(extent, int):
            plan = _plan(stage, label, extent)
            if plan is not None and (listed or plan.is_whole):
                stage = _rewrite(stage, plan, tables)
    return stage


# Conditions --------------------------------------------------------------------------------


def _drop_certain(stage: Stage) -> Stage:
    """A stage without the conditions of its guard that hold at every point."""
    body = stage.body
    if body.guard is None:
        return stage
    conditions = list_conjuncts(body)
    index_only, dependencies = find_index_only(body), find_dependencies(body)
    certain: list[int] = []
    for condition in conditions:
        if index_only[condition] and count_points(stage, dependencies[condition]) <= MOST_POINTS:
            (holds,) = evaluate_positions(stage, [condition])
            if holds.all():
                certain.append(condition)
    if not certain:
        return stage
    kept = [c for c in conditions if c not in certain]
    builder = Builder()
    numbers = _copy(builder, body, {})
    guard = _join(builder, [numbers[c] for c in kept])
    made = Body.make(builder.instructions, numbers[body.result], guard)
    return dataclasses.replace(stage, body=made)


def _join(builder: Builder, conditions: Sequence[int]) -> int | None:
    """Conditions joined by `and`, in order."""
    guard: int | None = None
    for condition in dict.fromkeys(conditions):
        both = (condition,) if guard is None else (guard, condition)
        guard = both[0] if len(both) == 1 else builder.add(_apply("and", both, DataType.BOOL))
    return guard


def _copy(
    builder: Builder,
    body: Body,
    replaced: Mapping[Index, int],
    values: Mapping[int, int] = MappingProxyType({}),
) -> list[int]:
    """A body's values, with indices and some of the values replaced by others."""
    numbers: list[int] = []
    for number, instruction in enumerate(body.instructions):
        if number in values:
            numbers.append(values[number])
            continue
        if isinstance(instruction, Index) and instruction in replaced:
            numbers.append(replaced[instruction])
            continue
        given = tuple(numbers[o] for o in operands(instruction))
        numbers.append(builder.add(with_operands(instruction, given)))
    return numbers


def _apply(name: str, given: tuple[int, ...], dtype: DataType) -> Apply:
    return Apply(OPERATIONS[name], given, dtype)


# Axes --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Window:
    """The places that pass at each position of the domain: how many, the first and the last; and
    for all positions, `count` steps that meet them."""

    counts: Array
    first: Array
    last: Array
    step: int
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """How an axis is walked: over `count` places for each position `index` of the domain."""

    label: int
    size: int
    index: Index | None
    conditions: tuple[int, ...]
    """Those that are settled by it."""
    holds: Array
    """By position and place, whether all of them hold."""
    window: _Window
    form: FloorForm | None
    """The first place, in closed form; None where places come from a table."""
    places: Array
    """By position and number: the place walked."""

    @property
    def count(self) -> int:
        return self.window.count

    def leaves_out(self, holds: Array) -> bool:
        """Whether a condition that holds there fails at some place that is walked."""
        inside = (self.places >= 0) & (self.places < self.size)
        within = np.clip(self.places, 0, self.size - 1)
        return not bool((np.take_along_axis(holds, within, axis=1) | ~inside).all())

    @property
    def is_whole(self) -> bool:
        """Whether every place that is walked, and is one, passes."""
        return self.form is not None and not self.leaves_out(self.holds)

    @property
    def is_exact(self) -> bool:
        """Whether the places that pass are the first of those walked."""
        filled = self.window.counts > 0
        starts = self.places[:, 0] == self.window.first
        gapless = (
            self.window.last == self.window.first + (self.window.counts - 1) * self.window.step
        )
        return bool((starts & gapless)[filled].all())


def _plan(stage: Stage, label: int, size: int) -> _Plan | None:
    """How an axis can be walked in fewer places; None where it cannot."""
    reduced = Index(label, reduced=True)
    body = stage.body
    index_only, dependencies = find_index_only(body), find_dependencies(body)
    involved = [
        c
        for c in list_conjuncts(body)
        if index_only[c] and reduced in dependencies[c] and _has_one_partner(dependencies[c])
    ]
    partners = [i for c in involved for i in dependencies[c] if i != reduced]
    index = partners[0] if partners else None
    conditions = [c for c in involved if set(dependencies[c]) <= {reduced, index}]
    over = order_indices((reduced,) if index is None else (index, reduced))
    if not conditions or count_points(stage, over) > MOST_POINTS:
        return None
    extent = 1 if index is None else stage.extent(index)
    if not isinstance(extent, int):
        return None
    holds = np.ones((extent, size), np.bool_)
    for found in evaluate_positions(stage, conditions, over):
        holds = holds & found.reshape((1,) * (2 - found.ndim) + found.shape)
    return _shorten(label, size, index, tuple(conditions), holds)


def _has_one_partner(indices: Sequence[Index]) -> bool:
    """Whether a condition on a reduction axis involves at most one other, of the domain."""
    return sum(i.reduced for i in indices) == 1 and len(indices) <= 2


def _shorten(
    label: int, size: int, index: Index | None, conditions: tuple[int, ...], holds: Array
) -> _Plan | None:
    counts = holds.sum(axis=1)
    most = int(counts.max(initial=0))
    if most == 0:
        return None
    window = _find_window(holds)
    forms = _list_firsts(window) if window.count <= 2 * most and window.count < size else []
    plans = [
        _Plan(label, size, index, conditions, holds, window, form, _list_places(form, window))
        for form in forms
    ]
    if plans:
        return min(plans, key=lambda p: (not p.is_whole, not p.is_exact, _rate(p.form)))
    if 2 * most > size:
        return None
    # The places that pass, and then the last of them again.
    order = np.argsort(~holds, axis=1, kind="stable")[:, :most]
    number = np.minimum(np.arange(most)[None, :], np.maximum(counts - 1, 0)[:, None])
    places = np.take_along_axis(order, number, axis=1)
    listed = dataclasses.replace(window, count=most, step=1)
    return _Plan(label, size, index, conditions, holds, listed, None, places)


def _rate(form: FloorForm | None) -> tuple[int, int]:
    """How much there is to compute, for the least to be chosen."""
    return (form.divisor, abs(form.scale)) if form is not None else (0, 0)


def _find_window(holds: Array) -> _Window:
    size = holds.shape[1]
    counts = holds.sum(axis=1)
    rows, columns = np.nonzero(holds)
    gaps = np.diff(columns)[np.diff(rows) == 0]
    step = int(np.gcd.reduce(gaps)) if gaps.size else 1
    first = holds.argmax(axis=1)
    last = size - 1 - holds[:, ::-1].argmax(axis=1)
    count = int(((last - first)[counts > 0] // step).max()) + 1
    return _Window(counts, first, last, step, count)


def _list_places(form: FloorForm, window: _Window) -> Array:
    """By position of the domain and number, the place that is walked."""
    starts = form.evaluate(np.arange(len(window.first)))
    return starts[:, None] + window.step * np.arange(window.count)[None, :]


def _list_firsts(window: _Window) -> list[FloorForm]:
    """Where to start at each position, so that all steps together meet every place that passes.
    Edges cut windows off, so that a formula may hold for whole windows alone."""
    positions = np.arange(len(window.first))
    first, last, filled = window.first, window.last, window.counts > 0
    reach = (window.count - 1) * window.step
    full = filled & (last == first + reach)
    found: dict[FloorForm, None] = {}
    for sure in (filled, filled & (first > 0), full):
        form = fit_floor(positions[sure], first[sure])
        if form is None:
            continue
        starts = form.evaluate(positions)[filled]
        inside = (starts <= first[filled]) & (last[filled] <= starts + reach)
        if bool((inside & ((first[filled] - starts) % window.step == 0)).all()):
            found[form] = None
    return list(found)


def _rewrite(stage: Stage, plan: _Plan, tables: Tables) -> Stage:
    """The stage with an axis walked as planned."""
    reduction = stage.reduction
    if reduction is None:
        return stage
    body, builder = stage.body, Builder()
    own = Index(plan.label, reduced=True)
    number = builder.add(Constant(DataType.INDEX, 0) if plan.count == 1 else own)
    place, conditions = _write_place(stage, plan, tables, builder, number)
    listed = _list_values(stage, plan, tables, builder, number)
    numbers = _copy(builder, body, {own: place}, listed)
    conditions += _list_open(stage, plan, numbers)
    others = [c for c in list_conjuncts(body) if c not in plan.conditions]
    guard = _join(builder, [*conditions, *(numbers[c] for c in others)])
    made = Body.make(builder.instructions, numbers[body.result], guard)
    axes = tuple((a, plan.count if a == plan.label else e) for a, e in reduction.axes)
    if plan.count == 1 and (len(axes) > 1 or made.guard is None):
        axes = tuple(axis for axis in axes if axis[0] != plan.label)
    kept = Reduction(reduction.combiner, axes) if axes else None
    return dataclasses.replace(stage, body=made, reduction=kept)


def _write_place(
    stage: Stage, plan: _Plan, tables: Tables, builder: Builder, number: int
) -> tuple[int, list[int]]:
    """The place walked, and the conditions that it is one."""
    row = builder.add(Constant(DataType.INDEX, 0) if plan.index is None else plan.index)

    def constant(value: int) -> int:
        return builder.add(Constant(DataType.INDEX, value))

    counts = plan.window.counts
    conditions: list[int] = []
    if plan.form is not None:
        steps = builder.add(_apply("mul", (number, constant(plan.window.step)), DataType.INDEX))
        start = plan.form.write(builder, row)
        place = builder.add(_apply("add", (start, steps), DataType.INDEX))
        if int(plan.places.min()) < 0:
            conditions.append(builder.add(_apply("ge", (place, constant(0)), DataType.BOOL)))
        if int(plan.places.max()) >= plan.size:
            bound = constant(plan.size)
            conditions.append(builder.add(_apply("lt", (place, bound), DataType.BOOL)))
        if not plan.is_whole and plan.is_exact:
            length = fit_clamped(np.arange(len(counts)), counts)
            if length is not None:
                bound = length.write(builder, row)
            else:
                bound = _read(builder, tables, f"{stage.name}_counts", counts, (row,))
            conditions.append(builder.add(_apply("lt", (number, bound), DataType.BOOL)))
        return place, conditions

    place = _read(builder, tables, f"{stage.name}_places", plan.places, (row, number))
    if int(counts.min()) < plan.count:
        length = _read(builder, tables, f"{stage.name}_counts", counts, (row,))
        conditions.append(builder.add(_apply("lt", (number, length), DataType.BOOL)))
    return place, conditions


def _read(
    builder: Builder, tables: Tables, name: str, values: Array, places: tuple[int, ...]
) -> int:
    """Whole numbers from a table, as a position."""
    table = tables.take(name, DataType.INT32, values)
    load = builder.add(Load(table, places, DataType.INT32))
    return builder.add(Cast(load, DataType.INDEX))


def _list_values(
    stage: Stage, plan: _Plan, tables: Tables, builder: Builder, number: int
) -> dict[int, int]:
    """Where places come from a table, so do the positions and fractions that derive from them:
    what they are at the places walked is all that is known of them."""
    if plan.form is not None:
        return {}
    body, reduced = stage.body, Index(plan.label, reduced=True)
    index_only, dependencies = find_index_only(body), find_dependencies(body)
    over = order_indices((reduced,) if plan.index is None else (plan.index, reduced))
    inside = [
        index_only[n]
        and reduced in dependencies[n]
        and set(dependencies[n]) <= set(over)
        and (value_type(i) is DataType.INDEX or value_type(i) is DataType.FLOAT32)
        for n, i in enumerate(body.instructions)
    ]
    roots: dict[int, None] = {}
    for n, instruction in enumerate(body.instructions):
        if not inside[n]:
            roots.update({o: None for o in operands(instruction) if inside[o]})
    if inside[body.result]:
        roots[body.result] = None
    row = builder.add(Constant(DataType.INDEX, 0) if plan.index is None else plan.index)
    filled = plan.window.counts[:, None] > 0
    made: dict[int, int] = {}
    for root, values in zip(roots, evaluate_positions(stage, list(roots), over), strict=True):
        whole = np.broadcast_to(
            values.reshape((1,) * (2 - values.ndim) + values.shape), plan.holds.shape
        )
        found = np.where(filled, np.take_along_axis(whole, plan.places, axis=1), 0)
        name = f"{stage.name}_{'places' if values.dtype == np.int64 else 'weights'}"
        if values.dtype == np.int64:
            made[root] = _read(builder, tables, name, found, (row, number))
        else:
            table = tables.take(name, DataType.FLOAT32, found)
            made[root] = builder.add(Load(table, (row, number), DataType.FLOAT32))
    return made


def _list_open(stage: Stage, plan: _Plan, numbers: Sequence[int]) -> list[int]:
    """The settled conditions that still do not hold everywhere, in the new body."""
    if plan.form is None or plan.is_whole or plan.is_exact:
        return []
    reduced = Index(plan.label, reduced=True)
    over = order_indices((reduced,) if plan.index is None else (plan.index, reduced))
    found: list[int] = []
    for condition, holds in zip(
        plan.conditions, evaluate_positions(stage, plan.conditions, over), strict=True
    ):
        whole = np.broadcast_to(
            holds.reshape((1,) * (2 - holds.ndim) + holds.shape), plan.holds.shape
        )
        if plan.leaves_out(whole):
            found.append(numbers[condition])
    return found
