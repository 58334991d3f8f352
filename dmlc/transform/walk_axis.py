"""How an axis of a reduction is walked in fewer places than it has.

The conditions of a guard that involve the axis, and at most one axis of the domain, are evaluated
over both. What is walked then are the places `first(i) + step * k`, with `first` in closed form, or
else places that a table lists. What is made of a plan is `narrow`'s business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dmlc.ir import Apply, Cast, Constant, Index, Load, Stage
from dmlc.ir.positions import (
    MOST_POINTS,
    count_points,
    evaluate_positions,
    find_dependencies,
    find_index_only,
    list_conjuncts,
    order_indices,
)
from dmlc.scalars import OPERATIONS, Array, DataType
from dmlc.transform.closed_form import FloorForm, fit_clamped, fit_floor
from dmlc.transform.simplify import Builder
from dmlc.transform.tabulate import Tables


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The places that pass at each position of the domain: how many, the first and the last; and
    for all positions, `count` steps that meet them."""

    counts: Array
    first: Array
    last: Array
    step: int
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How an axis is walked: over `count` places for each position `index` of the domain."""

    label: int
    size: int
    index: Index | None
    conditions: tuple[int, ...]
    """Those that are settled by it."""
    holds: Array
    """By position and place, whether all of them hold."""
    window: Window
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

    def fit_last(self) -> FloorForm | None:
        """The last place at each position in closed form, where those of the places walked that
        are not beyond it are just those that pass."""
        positions, filled = np.arange(len(self.window.counts)), self.window.counts > 0
        form = fit_clamped(positions[filled], self.window.last[filled])
        if form is None:
            return None
        walked = self.places <= form.evaluate(positions)[:, None]
        inside = (self.places >= 0) & (self.places < self.size)
        within = np.clip(self.places, 0, self.size - 1)
        passes = np.take_along_axis(self.holds, within, axis=1) & inside
        return form if bool((walked & (self.places >= 0) == passes).all()) else None


def plan_axis(
    stage: Stage, label: int, size: int, known: Mapping[str, Array] = MappingProxyType({})
) -> Plan | None:
    """How an axis can be walked in fewer places; None where it cannot. `known` are the elements of
    stages that depend on positions alone."""
    reduced = Index(label, reduced=True)
    body = stage.body
    index_only, dependencies = find_index_only(body, known), find_dependencies(body)
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
    for found in evaluate_positions(stage, conditions, over, known):
        holds = holds & found.reshape((1,) * (2 - found.ndim) + found.shape)
    return _shorten(label, size, index, tuple(conditions), holds)


def _has_one_partner(indices: Sequence[Index]) -> bool:
    """Whether a condition on a reduction axis involves at most one other, of the domain."""
    return sum(i.reduced for i in indices) == 1 and len(indices) <= 2


def _shorten(
    label: int, size: int, index: Index | None, conditions: tuple[int, ...], holds: Array
) -> Plan | None:
    counts = holds.sum(axis=1)
    most = int(counts.max(initial=0))
    if most == 0:
        return None
    window = _find_window(holds)
    forms = _list_firsts(window) if window.count <= 2 * most and window.count < size else []
    plans = [
        Plan(label, size, index, conditions, holds, window, form, _list_places(form, window))
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
    return Plan(label, size, index, conditions, holds, listed, None, places)


def _rate(form: FloorForm | None) -> tuple[int, int]:
    """How much there is to compute, for the least to be chosen."""
    return (form.divisor, abs(form.scale)) if form is not None else (0, 0)


def _find_window(holds: Array) -> Window:
    size = holds.shape[1]
    counts = holds.sum(axis=1)
    rows, columns = np.nonzero(holds)
    gaps = np.diff(columns)[np.diff(rows) == 0]
    step = int(np.gcd.reduce(gaps)) if gaps.size else 1
    first = holds.argmax(axis=1)
    last = size - 1 - holds[:, ::-1].argmax(axis=1)
    count = int(((last - first)[counts > 0] // step).max()) + 1
    return Window(counts, first, last, step, count)


def _list_places(form: FloorForm, window: Window) -> Array:
    """By position of the domain and number, the place that is walked."""
    starts = form.evaluate(np.arange(len(window.first)))
    return starts[:, None] + window.step * np.arange(window.count)[None, :]


def _list_firsts(window: Window) -> list[FloorForm]:
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


def write_place(
    stage: Stage, plan: Plan, tables: Tables, builder: Builder, number: int
) -> tuple[int, list[int]]:
    """The place walked that has a number, and the conditions that it is one."""
    row = builder.add(Constant(DataType.INDEX, 0) if plan.index is None else plan.index)

    def constant(value: int) -> int:
        return builder.add(Constant(DataType.INDEX, value))

    def operate(name: str, left: int, right: int) -> int:
        operation = OPERATIONS[name]
        dtype = operation.result_type(DataType.INDEX)
        return builder.add(Apply(operation, (left, right), dtype))

    counts = plan.window.counts
    if plan.form is None:
        place = read_places(builder, tables, f"{stage.name}_places", plan.places, (row, number))
        if int(counts.min()) == plan.count:
            return place, []
        length = read_places(builder, tables, f"{stage.name}_counts", counts, (row,))
        return place, [operate("lt", number, length)]

    conditions: list[int] = []
    steps = operate("mul", number, constant(plan.window.step))
    start = plan.form.write(builder, row)
    place = operate("add", start, steps)
    settles = plan.is_exact and not plan.is_whole
    length = fit_clamped(np.arange(len(counts)), counts) if settles else None
    last = plan.fit_last() if settles and length is None else None
    if int(plan.places.min()) < 0:
        conditions.append(operate("ge", place, constant(0)))
    if last is not None:
        return place, [*conditions, operate("le", place, last.write(builder, row))]
    if int(plan.places.max()) >= plan.size:
        conditions.append(operate("lt", place, constant(plan.size)))
    if length is not None:
        conditions.append(operate("lt", number, length.write(builder, row)))
    elif settles:
        bound = read_places(builder, tables, f"{stage.name}_counts", counts, (row,))
        conditions.append(operate("lt", number, bound))
    return place, conditions


def read_places(
    builder: Builder, tables: Tables, name: str, values: Array, places: tuple[int, ...]
) -> int:
    """Whole numbers from a table, as a position."""
    table = tables.take(name, DataType.INT32, values)
    load = builder.add(Load(table, places, DataType.INT32))
    return builder.add(Cast(load, DataType.INDEX))


def join(builder: Builder, conditions: Sequence[int]) -> int | None:
    """Conditions joined by `and`, in order."""
    guard: int | None = None
    for condition in dict.fromkeys(conditions):
        both = (condition,) if guard is None else (guard, condition)
        guard = (
            both[0]
            if len(both) == 1
            else builder.add(Apply(OPERATIONS["and"], both, DataType.BOOL))
        )
    return guard
