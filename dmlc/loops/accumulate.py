"""Accumulators of reductions: their slots, how a point is combined, and how two are merged.

A state is one value; for argmin and argmax, the most extreme value so far and the number of its
point. BOOL is accumulated as INT32, 0 and 1, which every language has in vectors and arrays. States
may be merged in any order, but float sums depend on it: schedules fix it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import operate, widen
from dmlc.scalars import COMBINERS, Combiner, DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """One component of a reduction's state, with its initial value."""

    dtype: DataType
    first: bool | int | float
    suffix: str
    """Suffix of its name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reduction:
    """Reduction of a value over the inner dimensions; or of the product of two `values`, by fused
    multiply-add. Points where `guard` is false are excluded. `place` is the number of the point, if
    the combiner needs it."""

    combiner: str
    values: tuple[int, ...]
    guard: int | None
    place: int | None
    dtype: DataType
    """Type of the value."""
    place_type: DataType | None = None
    """Type of the points' numbers, if the combiner needs them."""
    stages: tuple[tuple[str, DataType], ...] = ()
    """Stages that it is the value of, each with its type."""

    @property
    def record(self) -> Combiner:
        """All that is known of the combiner."""
        return COMBINERS[self.combiner]

    @property
    def name(self) -> str:
        """Name of its first stage."""
        return self.stages[0][0]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Components of its state."""
        return list_slots(self.combiner, self.dtype, self.place_type)

    def slot_name(self, number: int) -> str:
        """Local name of a slot of its state, which no tensor has."""
        return f"{self.name}{self.slots[number].suffix}#state"

    def renumbered(self, numbers: Mapping[int, int]) -> Reduction:
        """The same with values renumbered."""
        guard, place = (None if n is None else numbers[n] for n in (self.guard, self.place))
        values = tuple(numbers[n] for n in self.values)
        return dataclasses.replace(self, values=values, guard=guard, place=place)


@functools.cache
def list_slots(combiner: str, dtype: DataType, place: DataType | None) -> tuple[Slot, ...]:
    """Components of the state of a reduction of values of a type; `place` is the type of the
    points' numbers, if the combiner needs them."""
    first = COMBINERS[combiner].identity(dtype)
    if dtype is DataType.BOOL:
        return (Slot(DataType.INT32, int(first), ""),)
    own = Slot(dtype, first, "")
    return (own,) if place is None else (own, Slot(place, int(np.iinfo(place.dtype).max), "_place"))


def start(slot: Slot, lanes: int = 1) -> k.Expression:
    """Initial value of a slot."""
    return widen(k.Literal(k.Type(slot.dtype), slot.first), lanes)


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """A point of a sum of products, or a vector of points: added by fused multiply-add where
    `guard` is true."""

    factors: Sequence[k.Expression]
    guard: k.Expression | None


State: TypeAlias = Sequence[k.Expression] | Product
"""Operand of a merge: another state, or a point."""


def count_lanes(state: State) -> int:
    parts = state.factors if isinstance(state, Product) else state
    return parts[0].type.lanes


def contribute(
    slots: Sequence[Slot],
    values: Sequence[k.Expression],
    guard: k.Expression | None,
    place: k.Expression | None,
) -> State:
    """Contribution of one point, or of a vector of points."""
    if len(values) > 1:
        return Product(values, guard)
    (value,) = values
    lanes = value.type.lanes
    if value.type.dtype is DataType.BOOL:
        value = k.Convert(value, k.Type(DataType.INT32, lanes))
    parts = (value,) if place is None else (value, place)
    if guard is None:
        return parts
    return tuple(
        k.Select(guard, part, start(slot, lanes), part.type)
        for part, slot in zip(parts, slots, strict=True)
    )


def combine(combiner: str, total: k.Expression, values: Sequence[k.Expression]) -> k.Expression:
    """Value, or FLOAT32 product by fused multiply-add, combined with a total."""
    if len(values) == 2 and total.type.dtype is DataType.FLOAT32:
        return operate("fma", *values, total)
    value = values[0] if len(values) == 1 else operate("mul", *values)
    return operate(COMBINERS[combiner].operation.name, total, value)


def merge(
    reduction: Reduction,
    mine: Sequence[k.Expression],
    other: State,
    name: Callable[[str], str],
    *,
    in_order: bool = False,
) -> tuple[list[k.Statement], tuple[k.Expression, ...]]:
    """Two states merged, and the statements that this takes first. Of equal extremes, the one with
    the lower number stays, and a NaN is more extreme than any number. With `in_order`, `other` has
    the higher number."""
    if isinstance(other, Product):
        made = combine(reduction.combiner, mine[0], other.factors)
        return [], (
            made if other.guard is None else k.Select(other.guard, made, mine[0], made.type),
        )
    record = reduction.record
    if reduction.dtype is DataType.BOOL:
        record = COMBINERS[record.counterpart]
    if not record.positional:
        return [], (operate(record.operation.name, mine[0], other[0]),)
    statements: list[k.Statement] = []
    named: list[k.Local] = []
    # Both are read before the choice: reads inside it would take branches.
    for part, wanted in zip(other, ("candidate", "place"), strict=True):
        if not isinstance(part, k.Local):
            local = k.Local(name(wanted), part.type)
            statements.append(k.Let(local, part))
            part = local
        named.append(part)
    value, place = named
    if in_order:
        # Comparisons with NaN are false: a new value is rejected only if it is compared and worse,
        # or if the current value is NaN.
        stays = operate(record.matches, mine[0], value)
        if reduction.dtype.is_float:
            stays = operate("or", stays, operate("isnan", mine[0]))
        if reduction.guard is not None:
            stays = operate("and", stays, operate("ne", mine[1], _none(mine[1])))
        same = k.Local(name("stays"), stays.type)
        statements.append(k.Let(same, stays))
        return statements, _choose(same, mine, named)
    beats = operate(record.beats, value, mine[0])
    ties = operate("eq", value, mine[0])
    if reduction.dtype.is_float:
        new, old = operate("isnan", value), operate("isnan", mine[0])
        beats = operate("or", beats, operate("and", new, operate("not", old)))
        ties = operate("or", ties, operate("and", new, old))
    better = operate("or", beats, operate("and", ties, operate("lt", place, mine[1])))
    chosen = k.Local(name("better"), better.type)
    statements.append(k.Let(chosen, better))
    return statements, _choose(chosen, named, mine)


def _choose(
    condition: k.Expression, then: Sequence[k.Expression], otherwise: Sequence[k.Expression]
) -> tuple[k.Expression, ...]:
    """One of two states."""
    pairs = zip(then, otherwise, strict=True)
    return tuple(k.Select(condition, one, other, one.type) for one, other in pairs)


def _none(place: k.Expression) -> k.Expression:
    """Number that means no point."""
    dtype = place.type.dtype
    last = int(np.iinfo(dtype.dtype).max)
    return widen(k.Literal(k.Type(dtype), last), place.type.lanes)


def begin(reduction: Reduction, lanes: int) -> list[k.Expression]:
    """Initial state of a reduction in order of the points. If no point is excluded, the number of
    the first point is the initial one, unless another point beats the initial value."""
    slots = reduction.slots
    made = [start(slot, lanes) for slot in slots]
    if reduction.record.positional and reduction.guard is None:
        made[1] = start(dataclasses.replace(slots[1], first=0), lanes)
    return made


def finish(
    reduction: Reduction, state: Sequence[k.Expression], dtype: DataType, *, in_order: bool = False
) -> k.Expression:
    """Result of a state, in the compute type `dtype`. `in_order` means that it started with
    `begin`."""
    lanes = state[0].type.lanes
    if reduction.record.positional:
        found = place = state[1]
        if not in_order or reduction.guard is not None:
            zero = widen(k.Literal(k.Type(place.type.dtype), 0), lanes)
            found = k.Select(operate("eq", place, _none(place)), zero, place, place.type)
        return found if dtype is place.type.dtype else k.Convert(found, k.Type(dtype, lanes))
    if reduction.dtype is DataType.BOOL:
        zero = widen(k.Literal(k.Type(DataType.INT32), 0), lanes)
        return operate("ne", state[0], zero)
    return state[0]
