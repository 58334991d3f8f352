"""Sorted rows by definition, and bisection in sorted rows.

A rank is the number of elements that come before: those less than the element, and equal ones at
smaller indices. A sorted row has at each index the element of that rank. Kernels sort long rows
(`ranked`); short ones are computed as they stand, in two reductions over the row. The sort is
stable, and the same numbers give the same order on every device. NaN comes last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dmlc.ir import Cast, Extent, Index, Reduction, Stage, Tensor
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.naming import take_name
from dmlc.scalars import DataType, Value
from dmlc.source import InternalError

LEAST_ROW = 128
"""Length up to which rows are ranked by definition. The model has kernels for rows 3 times as fast
from 256 elements on, on GPUs and CPUs, and 3 times as slow on GPUs at 100."""

NUMBER = DataType.INT32
"""Type of sort keys, and of their original indices."""

MOST_POINTS = 1 << 30
"""Largest number of points, so that indices a little beyond the last fit in 32 bits."""

_POINT = Index(0, reduced=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Sorted:
    """Sorted rows of numbers."""

    ranks: Stage
    places: Stage
    """Stage of each number's original index in its row."""
    numbers: Stage


def rank_rows(
    keys: Stage, wanted: str, names: dict[str, None], *, descends: bool, most: int | None = None
) -> Sorted:
    """Sorted rows of a stage, or the first `most` elements of each, by ranks and their inverse.
    Stages are named after `wanted`."""
    count = _count(keys)
    extents = (*keys.extents[:-1], count if most is None else most)
    axes, body = ((_POINT.axis, count),), _Body(keys.extents)

    def reduce(what: str, combiner: str, body: _Body, value: int, guard: int) -> Stage:
        name, reduction = take_name(f"{wanted}_{what}", names), Reduction(combiner, axes)
        dtype = keys.dtype if what == "sorted" else NUMBER
        return Stage(name, dtype, body.domain, body.make(value, guard), reduction)

    point = body.add(_POINT)
    own, other = (body.wrap(body.read(keys, place)) for place in (body.place, point))
    stands_before = body.wrap(point) < body.wrap(body.place)
    comes = body.unwrap(_comes_before(other, own, stands_before, descends=descends))
    ranks = reduce("rank", "sum", body, body.constant(1, NUMBER), comes)
    body = _Body(extents)
    point = body.add(_POINT)
    stands = body.apply("eq", body.read(ranks, point), body.number(body.place))
    places = reduce("order", "sum", body, body.number(point), stands)
    numbers = reduce("sorted", "max", body, body.read(keys, point), stands)
    return Sorted(ranks, places, numbers)


def _comes_before(other: Value, own: Value, stands_before: Value, *, descends: bool) -> Value:
    """Whether another number comes before one's own, given whether its index does."""
    less, at_most = ("gt", "ge") if descends else ("lt", "le")
    is_less, in_order = other.apply(less, own), other.apply(at_most, own)
    if own.dtype.is_float:
        in_order = in_order | own.differs(own)
        is_less = ~(own.apply(at_most, other) | other.differs(other))
    return is_less | (stands_before & in_order)


def find_starts(numbers: Stage, most: int, name: str) -> Stage:
    """Number of elements of each sorted row that are less than `n`, for each `n` from 0 to
    `most`."""
    body = _Body((*numbers.extents[:-1], most + 1))
    own = body.number(body.place)

    def is_less(last: int) -> int:
        return body.apply("lt", body.read(numbers, last), own)

    found = body.number(bisect(body, _count(numbers), is_less))
    return Stage(name, NUMBER, body.domain, body.make(found))


def bisect(body: BodyBuilder, count: int, is_less: Callable[[int], int]) -> int:
    """Number of the `count` points before the first at which `is_less` is false, given that it is
    false at all later ones. It takes as many steps as the count has bits."""
    found = body.wrap(body.constant(0))
    for bit in reversed(range(count.bit_length())):
        further = (found + (1 << bit)).apply("min", count)
        found = body.wrap(is_less(body.unwrap(further - 1))).select(further, found)
    return body.unwrap(found)


def _count(stage: Stage) -> int:
    """Numbers of a row."""
    last = stage.extents[-1]
    if not isinstance(last, int):
        raise InternalError(f"%{stage.name} is sorted, and has rows of a run-time size")
    return last


class _Body(BodyBuilder):
    """Builder of the body of a stage over rows, which lie along the last axis of its domain."""

    def __init__(self, domain: Sequence[Extent]) -> None:
        super().__init__()
        self.domain = tuple(domain)
        self._outer = tuple(self.add(Index(axis)) for axis in range(len(domain) - 1))
        self.place = self.add(Index(len(domain) - 1))
        """Index along the last axis."""

    def read(self, tensor: Tensor, *places: int) -> int:
        """Element of another tensor in the same row."""
        return self.load(tensor, *self._outer, *places)

    def number(self, place: int) -> int:
        """Index as a number."""
        return self.add(Cast(place, NUMBER))
