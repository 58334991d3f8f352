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

from dmlc.ir import Cast, Index, Load, Stage
from dmlc.ir.index import IndexFacts
from dmlc.scalars import Array, DataType
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

    @property
    def size(self) -> int:
        """The places that the axis has."""
        return self.holds.shape[1]

    @property
    def over(self) -> tuple[Index, ...]:
        """The indices that the conditions depend on."""
        own = Index(self.label, reduced=True)
        return (own,) if self.index is None else (self.index, own)

    def row(self, builder: Builder) -> int:
        """The position of the domain, as a value."""
        return builder.constant(0) if self.index is None else builder.add(self.index)

    def leaves_out(self, holds: Array) -> bool:
        """Whether a condition that holds there fails at some place that is walked."""
        return not bool((self._pass_there(holds) | ~self._are_places()).all())

    def _are_places(self) -> Array:
        return (self.places >= 0) & (self.places < self.size)

    def _pass_there(self, holds: Array) -> Array:
        """Whether a condition holds at the places walked, or at those nearest to them."""
        return np.take_along_axis(holds, np.clip(self.places, 0, self.size - 1), axis=1)

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
        passes = self._pass_there(self.holds) & self._are_places()
        return form if bool((walked & (self.places >= 0) == passes).all()) else None


def plan_axis(
    stage: Stage, label: int, size: int, known: Mapping[str, Array] = MappingProxyType({})
) -> Plan | None:
    """How an axis can be walked in fewer places; None where it cannot. `known` are the elements of
    stages that depend on positions alone."""
    reduced = Index(label, reduced=True)
    facts = IndexFacts(stage, known)
    involved = [
        c
        for c in facts.conditions
        if facts.known[c]
        and reduced in facts.dependencies[c]
        and _has_one_partner(facts.dependencies[c])
    ]
    index = next((i for c in involved for i in facts.dependencies[c] if i != reduced), None)
    over = (reduced,) if index is None else (index, reduced)
    conditions = tuple(c for c in involved if facts.is_over(c, over))
    holds = facts.find_passing(conditions, over)
    if not conditions or holds is None or not size:
        return None
    return _shorten(label, index, conditions, holds.reshape(-1, size))


def _has_one_partner(indices: Sequence[Index]) -> bool:
    """Whether a condition on a reduction axis involves at most one other, of the domain."""
    return sum(i.reduced for i in indices) == 1 and len(indices) <= 2


def _shorten(
    label: int, index: Index | None, conditions: tuple[int, ...], holds: Array
) -> Plan | None:
    """The best of the ways to walk an axis, given by position and place where it is to be."""
    size, counts = holds.shape[1], holds.sum(axis=1)
    most = int(counts.max(initial=0))
    if most == 0:
        return None
    window = _find_window(holds)
    forms = _list_firsts(window) if window.count <= 2 * most and window.count < size else []
    plans = [
        Plan(label, index, conditions, holds, window, form, _list_places(form, window))
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
    return Plan(label, index, conditions, holds, listed, None, places)


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
    row = plan.row(builder)
    counts = plan.window.counts
    if plan.form is None:
        place = read_places(builder, tables, f"{stage.name}_places", plan.places, (row, number))
        if int(counts.min()) == plan.count:
            return place, []
        length = read_places(builder, tables, f"{stage.name}_counts", counts, (row,))
        return place, [builder.apply("lt", number, length)]

    conditions: list[int] = []
    steps = builder.apply("mul", number, builder.constant(plan.window.step))
    start = plan.form.write(builder, row)
    place = builder.apply("add", start, steps)
    settles = plan.is_exact and not plan.is_whole
    length = fit_clamped(np.arange(len(counts)), counts) if settles else None
    last = plan.fit_last() if settles and length is None else None
    if int(plan.places.min()) < 0:
        conditions.append(builder.apply("ge", place, builder.constant(0)))
    if last is not None:
        return place, [*conditions, builder.apply("le", place, last.write(builder, row))]
    if int(plan.places.max()) >= plan.size:
        conditions.append(builder.apply("lt", place, builder.constant(plan.size)))
    if length is not None:
        conditions.append(builder.apply("lt", number, length.write(builder, row)))
    elif settles:
        bound = read_places(builder, tables, f"{stage.name}_counts", counts, (row,))
        conditions.append(builder.apply("lt", number, bound))
    return place, conditions


def read_places(
    builder: Builder, tables: Tables, name: str, values: Array, places: tuple[int, ...]
) -> int:
    """Whole numbers from a table, as a position."""
    table = tables.take(name, DataType.INT32, values)
    load = builder.add(Load(table, places, DataType.INT32))
    return builder.add(Cast(load, DataType.INDEX))
