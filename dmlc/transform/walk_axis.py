"""Plans shorter loops over a reduction axis.

The conditions of a guard that involve the axis and at most one domain axis are evaluated over both.
The loop then visits the indices `first(i) + step * k`, with `first` in closed form, or indices from
a table. `tighten` applies the plans, except for argmax and argmin, whose result is an index. These
first find the number of the visited point, in the original order of the axes, so that the first of
equal values stays first. The original index is computed from that number, element by element:

    number = argmax[k < 3, l < 3](x[2 * i + k - 1, 2 * j + l - 1])
    place  = (2 * i + number / 3 - 1) * columns + (2 * j + number % 3 - 1)

If no point passes the guard, the result is 0, as before.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dmlc.ir import Body, Cast, Constant, Function, Index, Load, Select, Stage, packed_strides
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.floor import FloorForm, fit_clamped, fit_floor, fit_periodic
from dmlc.ir.index import IndexFacts, reach_back
from dmlc.ir.naming import take_name
from dmlc.scalars import Array, DataType
from dmlc.transform.band import find_band
from dmlc.transform.cost import is_product
from dmlc.transform.tabulate import Tables


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a loop over an axis: the indices `places` to visit, for each value of domain index
    `index`."""

    facts: IndexFacts
    label: int
    index: Index | None
    conditions: tuple[int, ...]
    """Conditions that the plan replaces."""
    size: int
    """Size of the axis."""
    band: Array
    """Candidate indices for each row (value of `index`): all for which the conditions may hold."""
    holds: Array
    """Whether all conditions hold, for each row and candidate."""
    places: Array
    """Indices to visit, for each row and iteration; some may be out of bounds."""
    may_repeat: bool = False
    """Whether the reduction does not change if an index is visited twice."""
    step: int = 1
    form: FloorForm | None = None
    """First index in closed form; None if indices come from a table."""

    @property
    def count(self) -> int:
        """Number of iterations."""
        return self.places.shape[1]

    @property
    def counts(self) -> Array:
        """Number of indices that pass, for each row."""
        return self.holds.sum(axis=1)

    @property
    def over(self) -> tuple[Index, ...]:
        """Indices that the conditions depend on."""
        own = Index(self.label, reduced=True)
        return (own,) if self.index is None else (self.index, own)

    def row(self, builder: BodyBuilder) -> int:
        """Domain index as a value."""
        return builder.constant(0) if self.index is None else builder.add(self.index)

    def evaluate(self, values: Sequence[int]) -> tuple[Array, ...]:
        """Values at the visited indices, clamped to the axis."""
        places = np.clip(self.places, 0, self.size - 1)
        return self.facts.evaluate_at(values, _list_values(self.facts.stage, self.over, places))

    @property
    def _passing(self) -> Array:
        column = self.places - self.band[:, :1]
        inside = (column >= 0) & (column < self.band.shape[1])
        column = np.clip(column, 0, self.band.shape[1] - 1)
        return np.take_along_axis(self.holds, column, axis=1) & inside

    def leaves_out(self, holds: Array) -> bool:
        """Whether a condition, with its values at the visited indices, is false at one in
        bounds."""
        return bool(((self.places >= 0) & (self.places < self.size) & ~holds).any())

    @property
    def is_whole(self) -> bool:
        """Whether every visited index that is in bounds passes."""
        return self.form is not None and not self.leaves_out(self._passing)

    @property
    def is_exact(self) -> bool:
        """Whether the indices that pass are the first ones visited."""
        first = np.arange(self.count) < self.counts[:, None]
        return bool((first == self._passing).all())

    @property
    def holds_back(self) -> bool:
        """Whether the nearest index that passes is visited again instead of indices beyond: that
        needs no condition, and gives the same result. The first of equal values stays first."""
        return self.may_repeat and self.step == 1 and int(self.counts.min()) > 0

    @property
    def rank(self) -> tuple[bool, bool, int, int]:
        """Sort key by the cost of conditions and index arithmetic."""
        divisor, scale = (0, 0) if self.form is None else (self.form.divisor, self.form.scale)
        return not self.is_whole, not self.is_exact, divisor, abs(scale)

    def fit_last(self) -> FloorForm | None:
        """Last index of each row in closed form, if the visited indices up to it are exactly those
        that pass; else None."""
        positions, filled = np.arange(len(self.holds)), self.counts > 0
        form = fit_clamped(positions[filled], _find_last(self)[filled])
        if form is None:
            return None
        walked = (self.places <= form.evaluate(positions)[:, None]) & (self.places >= 0)
        return form if bool((walked == self._passing).all()) else None


def plan_axis(
    stage: Stage, label: int, size: int, known: Mapping[str, Array], *, may_repeat: bool = False
) -> Plan | None:
    """Plan of a shorter loop over an axis; None if there is none. `known` are the elements of
    index-only stages. An index is visited again only if it `may_repeat`."""
    reduced = Index(label, reduced=True)
    facts = IndexFacts(stage, known)
    # Conditions that involve the axis, and at most one domain axis.
    others = {
        c: [i for i in facts.dependencies[c] if i != reduced]
        for c in facts.conditions
        if facts.known[c] and reduced in facts.dependencies[c]
    }
    others = {c: i for c, i in others.items() if len(i) <= 1 and not any(n.reduced for n in i)}
    index = next((i for found in others.values() for i in found), None)
    over = (reduced,) if index is None else (index, reduced)
    conditions = tuple(c for c in others if facts.is_over(c, over))
    if not conditions or not size:
        return None
    band = find_band(stage, conditions, index, reduced, size)
    if band is None:
        return None
    found = facts.evaluate_at(conditions, _list_values(facts.stage, over, band))
    holds = functools.reduce(np.logical_and, found)
    nowhere = np.empty((0, 0))
    return _shorten(Plan(facts, label, index, conditions, size, band, holds, nowhere, may_repeat))


def _list_values(stage: Stage, over: Sequence[Index], places: Array) -> dict[Index, Array]:
    """Values to evaluate conditions at: `places` of the last index, all of the others by row."""
    sizes = ((index, stage.extent(index)) for index in over[:-1])
    rows = {i: np.arange(n, dtype=np.int64)[:, None] for i, n in sizes if isinstance(n, int)}
    return {over[-1]: places, **rows}


def _shorten(plan: Plan) -> Plan | None:
    """Cheapest plan of the loop; None if it saves too little."""
    holds, counts = plan.holds, plan.counts
    most = int(counts.max(initial=0))
    if most == 0:
        return None
    first, last, filled = plan.band[:, 0] + holds.argmax(axis=1), _find_last(plan), counts > 0
    rows, columns = np.nonzero(holds)
    gaps = np.diff(columns)[np.diff(rows) == 0]
    step = int(np.gcd.reduce(gaps)) if gaps.size else 1
    count = int(((last - first)[filled] // step).max()) + 1
    steps = step * np.arange(count)
    if count <= 2 * most and count < plan.size:
        # A start that an output shifts makes both factors of a deep product depend on that.
        is_deep = math.prod(_list_sizes(plan.facts.stage)) >= _DEEP
        stays = is_deep and is_product(plan.facts.stage, 2) and 2 * count > plan.size
        plans = [
            dataclasses.replace(plan, places=starts[:, None] + steps, step=step, form=form)
            for form, starts in _list_firsts(first, last, filled, steps)
            if not (stays and form.scale)
        ]
        if plans:
            return min(plans, key=lambda p: p.rank)
    if 2 * most > plan.size:
        return None
    # The indices that pass, then the last of them again.
    order = np.argsort(~holds, axis=1, kind="stable")[:, :most]
    number = np.minimum(np.arange(most)[None, :], np.maximum(counts - 1, 0)[:, None])
    places = plan.band[:, :1] + np.take_along_axis(order, number, axis=1)
    # Tables of indices would break the structure of matrix products; schedules skip the points
    # between strides themselves.
    is_formula = most == 1 == int(counts.min()) and fit_periodic(places.ravel()) is not None
    if is_product(plan.facts.stage) and not is_formula:
        return None
    return dataclasses.replace(plan, places=places)


def _find_last(plan: Plan) -> Array:
    """Last index that passes, for each row."""
    return plan.band[:, -1] - plan.holds[:, ::-1].argmax(axis=1)


def _list_firsts(
    first: Array, last: Array, filled: Array, steps: Array
) -> Iterator[tuple[FloorForm, Array]]:
    """Closed forms of the first index, with its values, such that the steps from it reach every
    index that passes. As edges cut windows off, the form is also fitted to full windows alone."""
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


def write_place(
    plan: Plan, tables: Tables, builder: BodyBuilder, number: int
) -> tuple[int, list[int]]:
    """Visited index of an iteration, and the conditions that it passes."""
    row, name = plan.row(builder), plan.facts.stage.name
    counts = plan.counts

    def count() -> int:
        return tables.read_position(builder, f"{name}_counts", counts, (row,))

    if plan.form is None:
        place = tables.read_position(builder, f"{name}_places", plan.places, (row, number))
        full = int(counts.min()) == plan.count
        return place, [] if full else [builder.apply("lt", number, count())]
    conditions: list[int] = []
    settles = plan.is_exact and not plan.is_whole
    length = fit_clamped(np.arange(len(counts)), counts) if settles else None
    last = plan.fit_last() if settles and length is None else None

    def hold(value: int, name: str, end: int) -> int:
        """A value clamped to, or else compared with, a bound on visited indices."""
        if plan.holds_back:
            nearest = builder.apply("sub", end, builder.constant(1)) if name == "lt" else end
            return builder.apply("max" if name == "ge" else "min", value, nearest)
        conditions.append(builder.apply(name, value, end))
        return value

    if settles and last is None:
        number = hold(number, "lt", count() if length is None else length.write(builder, row))
    steps = builder.apply("mul", number, builder.constant(plan.step))
    place = builder.apply("add", plan.form.write(builder, row), steps)
    if int(plan.places.min()) < 0:
        place = hold(place, "ge", builder.constant(0))
    if last is not None:
        place = hold(place, "le", last.write(builder, row))
    elif int(plan.places.max()) >= plan.size:
        place = hold(place, "lt", builder.constant(plan.size))
    return place, conditions


# Places that are given -----------------------------------------------------------------------


_DEEP = 16
"""Smallest number of points of a sum of products that schedules of products are worth."""
_MOST_POINTS = 2**31
"""Bound of the number of points, so that their numbers fit in 32 bits."""


def find_positions(function: Function) -> frozenset[str]:
    """Stages whose elements determine indices of loads. Linear in the number of instructions."""
    found: set[str] = set()
    for stage in reversed(function.stages):
        body = stage.body
        places = (place for load in body.loads() for place in load.indices)
        wanted = [place for place in places if not isinstance(body.instructions[place], Index)]
        wanted += [body.result] if stage.name in found else []
        reached = (body.instructions[value] for value in reach_back(body.instructions, wanted))
        found.update(each.tensor for each in reached if isinstance(each, Load))
    return frozenset(found)


def give_places(
    stage: Stage, short: Stage, plans: Sequence[Plan], tables: Tables, *, is_bounded: bool
) -> list[Stage]:
    """Positional reduction by a shorter one: reductions of the `short` stage, whose axes have
    plans, and the stage that computes the original index. With `is_bounded`, that index is clamped
    to the axes."""
    is_open = any(isinstance(extent, str) for _, extent in stage.axes)
    if is_open or math.prod(_list_sizes(short)) >= _MOST_POINTS:
        return [stage]
    made: list[Stage] = []
    builder = BodyBuilder()

    def load(total: Stage, what: str) -> int:
        name = take_name(f"{stage.name}_{what}", tables.names)
        made.append(dataclasses.replace(total, name=name, dtype=DataType.INT32))
        return builder.add(Cast(builder.read(made[-1]), DataType.INDEX))

    number = builder.constant(0) if short.reduction is None else load(short, "number")
    place = _write_number(stage, short, plans, tables, builder, number, is_bounded)
    found: list[int] = []
    facts = IndexFacts(stage, tables.known)
    if all(
        any(facts.is_over(c, p.over) and p.over[-1] in facts.dependencies[c] for p in plans)
        for c in facts.conditions
    ):
        # The plans replace all conditions of the guard, each along its axis.
        found = [c for plan in plans for c in _write_filled(plan, tables, builder)]
    elif short.reduction is not None:
        # Points pass by data: this is positive if some point does.
        body = short.body
        only = (*body.instructions, Constant(DataType.INT32, 1))
        largest = dataclasses.replace(short.reduction, combiner="max")
        passing = Body.make(only, len(body.instructions), body.guard)
        presence = load(dataclasses.replace(short, body=passing, reduction=largest), "found")
        found.append(builder.apply("gt", presence, builder.constant(0)))
    condition = builder.join(found)
    if condition is not None:
        place = builder.add(Select(condition, place, builder.constant(0), DataType.INDEX))
    body = builder.make(builder.add(Cast(place, stage.dtype)))
    return [*made, dataclasses.replace(stage, body=body, reduction=None)]


def _write_number(
    stage: Stage,
    short: Stage,
    plans: Sequence[Plan],
    tables: Tables,
    builder: BodyBuilder,
    number: int,
    is_bounded: bool,
) -> int:
    """Linear index in the original axes, from the linear index among the visited points."""
    counts, sizes = _list_sizes(short), _list_sizes(stage)
    walked = zip(short.axes, counts, packed_strides(counts), strict=True)
    steps = {label: (count, step) for (label, _), count, step in walked}
    by_label = {plan.label: plan for plan in plans}
    total = builder.wrap(builder.constant(0))
    for (label, _), size, stride in zip(stage.axes, sizes, packed_strides(sizes), strict=True):
        part = total.like(0)
        if label in steps:
            count, step = steps[label]
            part = builder.wrap(number) / step
            if label != next(iter(steps)):
                part = part % count
        if label in by_label:
            plan = by_label[label]
            part = builder.wrap(write_place(plan, tables, builder, builder.unwrap(part))[0])
            held = plan.holds_back or not is_bounded
            if not held and int(plan.places.min()) < 0:
                part = part.apply("max", 0)
            if not held and int(plan.places.max()) >= size:
                part = part.apply("min", size - 1)
        total = total + part * stride
    return builder.unwrap(total)


def _list_sizes(stage: Stage) -> tuple[int, ...]:
    return tuple(e for _, e in stage.axes if isinstance(e, int))


def _write_filled(plan: Plan, tables: Tables, builder: BodyBuilder) -> list[int]:
    """Conditions that some index passes along an axis."""
    filled = plan.counts > 0
    if plan.index is None or bool(filled.all()):
        return []
    row = builder.add(plan.index)
    first, last = int(filled.argmax()), len(filled) - 1 - int(filled[::-1].argmax())
    if not bool(filled[first : last + 1].all()):
        name = f"{plan.facts.stage.name}_counts"
        number = tables.read_position(builder, name, plan.counts, (row,))
        return [builder.apply("gt", number, builder.constant(0))]
    ends = [("ge", first)] * (first > 0) + [("le", last)] * (last + 1 < len(filled))
    return [builder.apply(name, row, builder.constant(end)) for name, end in ends]
