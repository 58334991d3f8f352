"""How an axis of a reduction is walked in fewer places than it has.

The conditions of a guard that involve the axis, and at most one axis of the domain, are evaluated
over both. What is walked then are the places `first(i) + step * k`, with `first` in closed form, or
else places that a table lists. What is made of a plan is `narrow`'s business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dmlc.ir import Index, Stage
from dmlc.ir.builder import Builder
from dmlc.ir.floor import FloorForm, fit_clamped, fit_floor
from dmlc.ir.index import IndexFacts
from dmlc.scalars import Array
from dmlc.transform.tabulate import Tables


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How an axis is walked: over some `places` for each position `index` of the domain."""

    facts: IndexFacts
    label: int
    index: Index | None
    conditions: tuple[int, ...]
    """Those that are settled by it."""
    holds: Array
    """By position and place, whether all of them hold."""
    places: Array
    """By position and number, the place that is walked; some may be beyond the axis."""
    step: int = 1
    form: FloorForm | None = None
    """The first place, in closed form; None where places come from a table."""

    @property
    def count(self) -> int:
        """The places that are walked."""
        return self.places.shape[1]

    @property
    def size(self) -> int:
        """The places that the axis has."""
        return self.holds.shape[1]

    @property
    def counts(self) -> Array:
        """The places that pass, by position."""
        return self.holds.sum(axis=1)

    @property
    def over(self) -> tuple[Index, ...]:
        """The indices that the conditions depend on."""
        own = Index(self.label, reduced=True)
        return (own,) if self.index is None else (self.index, own)

    def row(self, builder: Builder) -> int:
        """The position of the domain, as a value."""
        return builder.constant(0) if self.index is None else builder.add(self.index)

    def evaluate(self, values: Sequence[int]) -> list[Array]:
        """Values at the places walked, or at those nearest to them."""
        found = self.facts.evaluate(values, self.over) or ()
        return [self._take(np.broadcast_to(v, v.shape[:-2] + self.holds.shape)) for v in found]

    def _take(self, values: Array) -> Array:
        return np.take_along_axis(values, np.clip(self.places, 0, self.size - 1), axis=1)

    @property
    def _are_places(self) -> Array:
        return (self.places >= 0) & (self.places < self.size)

    @property
    def _passing(self) -> Array:
        return self._take(self.holds) & self._are_places

    def leaves_out(self, holds: Array) -> bool:
        """Whether a condition that holds there fails at some place that is walked."""
        return bool((self._are_places & ~holds).any())

    @property
    def is_whole(self) -> bool:
        """Whether every place that is walked, and is one, passes."""
        return self.form is not None and not self.leaves_out(self._take(self.holds))

    @property
    def is_exact(self) -> bool:
        """Whether the places that pass are the first of those walked."""
        first = np.arange(self.count) < self.counts[:, None]
        return bool((first == self._passing).all())

    def fit_last(self) -> FloorForm | None:
        """The last place at each position in closed form, where those of the places walked that
        are not beyond it are just those that pass."""
        positions, filled = np.arange(len(self.holds)), self.counts > 0
        form = fit_clamped(positions[filled], _find_last(self.holds)[filled])
        if form is None:
            return None
        walked = (self.places <= form.evaluate(positions)[:, None]) & (self.places >= 0)
        return form if bool((walked == self._passing).all()) else None


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
    plan = Plan(facts, label, index, conditions, holds.reshape(-1, size), np.empty((0, 0)))
    return _shorten(plan)


def _has_one_partner(indices: Sequence[Index]) -> bool:
    """Whether a condition on a reduction axis involves at most one other, of the domain."""
    return sum(i.reduced for i in indices) == 1 and len(indices) <= 2


def _shorten(plan: Plan) -> Plan | None:
    """The best of the ways to walk an axis, of which is planned where it is to be walked."""
    holds, counts = plan.holds, plan.counts
    most = int(counts.max(initial=0))
    if most == 0:
        return None
    first, last, filled = holds.argmax(axis=1), _find_last(holds), counts > 0
    rows, columns = np.nonzero(holds)
    gaps = np.diff(columns)[np.diff(rows) == 0]
    step = int(np.gcd.reduce(gaps)) if gaps.size else 1
    count = int(((last - first)[filled] // step).max()) + 1
    steps = step * np.arange(count)
    if count <= 2 * most and count < plan.size:
        plans = [
            dataclasses.replace(plan, places=starts[:, None] + steps, step=step, form=form)
            for form, starts in _list_firsts(first, last, filled, steps)
        ]
        if plans:
            return min(plans, key=lambda p: (not p.is_whole, not p.is_exact, _rate(p.form)))
    if 2 * most > plan.size:
        return None
    # The places that pass, and then the last of them again.
    order = np.argsort(~holds, axis=1, kind="stable")[:, :most]
    number = np.minimum(np.arange(most)[None, :], np.maximum(counts - 1, 0)[:, None])
    return dataclasses.replace(plan, places=np.take_along_axis(order, number, axis=1))


def _find_last(holds: Array) -> Array:
    """The last place that passes at each position."""
    return holds.shape[1] - 1 - holds[:, ::-1].argmax(axis=1)


def _rate(form: FloorForm | None) -> tuple[int, int]:
    """How much there is to compute, for the least to be chosen."""
    return (form.divisor, abs(form.scale)) if form is not None else (0, 0)


def _list_firsts(
    first: Array, last: Array, filled: Array, steps: Array
) -> Iterator[tuple[FloorForm, Array]]:
    """Where to start at each position, so that all steps together meet every place that passes.
    Edges cut windows off, so that a formula may hold for whole windows alone."""
    positions, reach = np.arange(len(first)), steps[-1]
    full = filled & (last == first + reach)
    found: dict[FloorForm, None] = {}
    for sure in (filled, filled & (first > 0), full):
        form = fit_floor(positions[sure], first[sure])
        if form is None or form in found:
            continue
        found[form] = None
        starts = form.evaluate(positions)
        before = (first - starts)[filled]
        inside = (before >= 0) & ((last - starts)[filled] <= reach)
        if bool((inside & np.isin(before, steps)).all()):
            yield form, starts


def write_place(plan: Plan, tables: Tables, builder: Builder, number: int) -> tuple[int, list[int]]:
    """The place walked that has a number, and the conditions that it is one."""
    row, name = plan.row(builder), plan.facts.stage.name
    counts = plan.counts
    if plan.form is None:
        place = tables.read_position(builder, f"{name}_places", plan.places, (row, number))
        if int(counts.min()) == plan.count:
            return place, []
        length = tables.read_position(builder, f"{name}_counts", counts, (row,))
        return place, [builder.apply("lt", number, length)]

    conditions: list[int] = []
    steps = builder.apply("mul", number, builder.constant(plan.step))
    place = builder.apply("add", plan.form.write(builder, row), steps)
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
        bound = tables.read_position(builder, f"{name}_counts", counts, (row,))
        conditions.append(builder.apply("lt", number, bound))
    return place, conditions
