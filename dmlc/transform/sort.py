"""Stages that sort numbers, and that find the start of each value among sorted ones.

The tensor IR loads anywhere and stores at its own index only, so that sorting is expressed by what
each element of the result loads. Short blocks are sorted by rank: the number of smaller elements.
Sorted runs are then merged pairwise: the number of preceding elements from the left run is found by
bisection, unrolled step by step. Nothing is scattered or atomic. The sort is stable, and the same
numbers give the same order on every device. NaN comes last.

If only the first elements of a row are wanted, no run is longer than that, and every merge discards
the rest. Long rows of which more is wanted have kernels of their own (`rank_rows`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from dmlc.ir import Cast, Extent, Index, Reduction, Stage, Tensor
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.naming import take_name
from dmlc.scalars import DataType, integer_limits
from dmlc.source import InternalError

BLOCK = 512
"""Elements that are sorted by rank. Ranks are vectorized sums without branches: with this many
points, they take as long as the bisections of the merges that they replace."""

NUMBER = DataType.INT32
"""Type of sort keys, and of their original indices."""

_POINT = Index(0, reduced=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Sorted:
    """Sorted rows of numbers."""

    stages: tuple[Stage, ...]
    """All stages that compute them."""
    numbers: Stage
    places: Stage
    """Stage of each number's original index in its row."""


def count_padded(count: int, block: int = BLOCK) -> int:
    """Length of a sorted row of `count` numbers, rounded up to whole blocks."""
    return count if count <= block else -(-count // block) * block


def count_merges(count: int) -> int:
    """Number of merge steps for a row."""
    return max(0, (-(-count // BLOCK) - 1).bit_length())


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """Sort order of rows."""

    descends: bool = False
    is_bounded: bool = False
    """Whether the rows hold integers that all have a successor."""

    @property
    def _names(self) -> tuple[str, str]:
        return ("gt", "ge") if self.descends else ("lt", "le")

    def is_less(self, body: BodyBuilder, left: int, right: int) -> int:
        """Whether a number comes before another, whatever their indices."""
        if body.type_of(left).is_float:
            return body.apply("not", self.is_in_order(body, right, left))
        return body.apply(self._names[0], left, right)

    def is_in_order(self, body: BodyBuilder, left: int, right: int) -> int:
        """Whether a number comes before another that is at a later index."""
        in_order = body.apply(self._names[1], left, right)
        if not body.type_of(left).is_float:
            return in_order
        return body.apply("or", in_order, body.apply("ne", right, right))

    def comes_before(self, body: BodyBuilder, other: int, own: int, stands_before: int) -> int:
        """Whether another number comes before one's own, given whether its index does."""
        if self.is_bounded:
            # For integers this means less, or equal at an earlier index.
            own = body.apply("add", own, body.add(Cast(stands_before, NUMBER)))
            return self.is_less(body, other, own)
        in_order, less = self.is_in_order(body, other, own), self.is_less(body, other, own)
        return body.apply("or", less, body.apply("and", stands_before, in_order))


def find_last(dtype: DataType, order: Order) -> bool | int | float:
    """Value of a type that no other value follows: the padding of rows."""
    if dtype.is_float:
        return math.nan
    return integer_limits(dtype)[0 if order.descends else 1]


def sort_rows(
    keys: Stage,
    wanted: str,
    names: dict[str, None],
    order: Order,
    most: int | None = None,
    block: int = BLOCK,
) -> Sorted:
    """Sorted rows of a stage, or the first `most` elements of each: with a last axis of
    `count_padded` numbers. Stages are named after `wanted`."""
    count = _count(keys)
    block = min(count, block)
    most = count if most is None else most

    def name(what: str) -> str:
        return take_name(f"{wanted}_{what}", names)

    def pick(what: str, stage: Stage, places: Stage) -> Stage:
        """Numbers of a row at the indices that stage `places` gives."""
        body = _Body(places.extents)
        place = body.add(Cast(body.read(places, body.place), DataType.INDEX))
        last = body.apply("min", place, body.constant(_count(stage) - 1))
        inside = body.apply("max", last, body.constant(0))
        return body.stage(name(what), body.read(stage, inside), dtype=stage.dtype)

    ranks, width = _rank(keys, block, name("rank"), order), min(block, most)
    places = _invert(ranks, count, block, width, name("order"))
    numbers = pick("sorted", keys, places)
    stages = [ranks, places, numbers]
    while width < _count(numbers):
        longest = min(2 * width, most)
        merged = _merge(numbers, width, longest, name("merge"), order)
        numbers, places = pick("sorted", numbers, merged), pick("order", places, merged)
        stages += [merged, numbers, places]
        width = longest
    return Sorted(tuple(stages), numbers, places)


def rank_rows(
    keys: Stage, wanted: str, names: dict[str, None], order: Order, most: int | None = None
) -> Sorted:
    """Sorted rows of a stage by definition, or the first `most` elements of each: ranks, and their
    inverse. Kernels sort these (`ranked`)."""
    count = _count(keys)
    extents = (*keys.extents[:-1], count if most is None else most)
    axes, body = ((_POINT.axis, count),), _Body(keys.extents)

    def reduce(what: str, combiner: str, body: _Body, value: int, guard: int) -> Stage:
        name, reduction = take_name(f"{wanted}_{what}", names), Reduction(combiner, axes)
        dtype = keys.dtype if what == "sorted" else NUMBER
        return Stage(name, dtype, body.domain, body.make(value, guard), reduction)

    point = body.add(_POINT)
    own, other = body.read(keys, body.place), body.read(keys, point)
    stands_before = body.apply("lt", point, body.place)
    plain = dataclasses.replace(order, is_bounded=False)
    comes = plain.comes_before(body, other, own, stands_before)
    ranks = reduce("rank", "sum", body, body.constant(1, NUMBER), comes)
    body = _Body(extents)
    point = body.add(_POINT)
    stands = body.apply("eq", body.read(ranks, point), body.number(body.place))
    places = reduce("order", "sum", body, body.number(point), stands)
    numbers = reduce("sorted", "max", body, body.read(keys, point), stands)
    return Sorted((ranks, places, numbers), numbers, places)


def find_starts(numbers: Stage, most: int, name: str) -> Stage:
    """Number of elements of each sorted row that are less than `n`, for each `n` from 0 to
    `most`."""
    body = _Body((*numbers.extents[:-1], most + 1))
    own = body.number(body.place)

    def is_less(last: int) -> int:
        return body.apply("lt", body.read(numbers, last), own)

    return body.stage(name, body.number(bisect(body, _count(numbers), is_less)))


def bisect(body: BodyBuilder, count: int, is_less: Callable[[int], int]) -> int:
    """Number of the `count` points before the first at which `is_less` is false, given that it is
    false at all later ones. It takes as many steps as the count has bits."""
    found = body.constant(0)
    for step in list_steps(count):
        further = body.apply("add", found, body.constant(step))
        further = body.apply("min", further, body.constant(count))
        less = is_less(body.apply("sub", further, body.constant(1)))
        found = body.select(less, further, found)
    return found


def _count(stage: Stage) -> int:
    """Numbers of a row."""
    last = stage.extents[-1]
    if not isinstance(last, int):
        raise InternalError(f"%{stage.name} is sorted, and has rows of a run-time size")
    return last


def list_steps(most: int) -> list[int]:
    """Powers of two, descending, some of which add up to any number up to `most`."""
    return [1 << bit for bit in reversed(range(most.bit_length()))]


class _Body(BodyBuilder):
    """Builder of the body of an integer stage over rows."""

    def __init__(self, domain: Sequence[Extent], rank: int = 1) -> None:
        """The last `rank` axes of the domain are those of a row."""
        super().__init__()
        self.domain = tuple(domain)
        self._outer = tuple(self.add(Index(axis)) for axis in range(len(domain) - rank))
        self.place = self.add(Index(len(domain) - 1))
        """Index along the last axis."""

    def read(self, tensor: Tensor, *places: int) -> int:
        """Element of another tensor in the same row."""
        return self.load(tensor, *self._outer, *places)

    def number(self, place: int) -> int:
        """Index as a number."""
        return self.add(Cast(place, NUMBER))

    def stage(
        self, name: str, result: int, points: int | None = None, dtype: DataType = NUMBER
    ) -> Stage:
        """Stage whose value is a number, or its sum over `points`."""
        reduction = None if points is None else Reduction("sum", ((_POINT.axis, points),))
        return Stage(name, dtype, self.domain, self.make(result), reduction)


# Blocks ------------------------------------------------------------------------------------


def _rank(keys: Stage, block: int, name: str, order: Order) -> Stage:
    """Rank of each number in its block: the number of smaller elements, and of equal ones at
    earlier indices."""
    blocks = _count(keys) // block
    body = _Body((*keys.extents[:-1], blocks, block), rank=2)
    first = body.apply("mul", body.add(Index(len(keys.extents) - 1)), body.constant(block))
    point = body.add(_POINT)
    own, other = (body.read(keys, body.apply("add", first, p)) for p in (body.place, point))
    comes = order.comes_before(body, other, own, body.apply("lt", point, body.place))
    return body.stage(name, body.add(Cast(comes, NUMBER)), block)


def _invert(ranks: Stage, count: int, block: int, width: int, name: str) -> Stage:
    """Original index in its row of `count` numbers of each element of sorted blocks, by rank."""
    body = _Body((*ranks.extents[:-2], count // block * width))
    length, size = body.constant(block), body.constant(width)
    number, rank = body.apply("div", body.place, size), body.apply("mod", body.place, size)
    point = body.add(_POINT)
    found = body.apply("eq", body.read(ranks, number, point), body.number(rank))
    place = body.apply("add", body.apply("mul", number, length), point)
    none = body.constant(0, NUMBER)
    return body.stage(name, body.select(found, body.number(place), none), block)


# Runs --------------------------------------------------------------------------------------


def _merge(numbers: Stage, width: int, wanted: int, name: str, order: Order) -> Stage:
    """Merge of pairs of adjacent sorted runs: the original index of each of their first `wanted`
    numbers. Runs have `width` numbers, except the last one, which may be shorter and alone."""
    count = _count(numbers)
    pairs, rest = divmod(count, 2 * width)
    places = pairs * wanted + min(rest, wanted)
    body = _Body((*numbers.extents[:-1], places))
    size, zero = body.constant(width), body.constant(0)
    made = body.constant(wanted)
    rank = body.apply("mod", body.place, made)
    left = body.apply("mul", body.apply("div", body.place, made), body.constant(2 * width))
    right = body.apply("add", left, size)

    def measure(run: int) -> int:
        rest = body.apply("sub", body.constant(count), run)
        return body.apply("max", body.apply("min", rest, size), zero)

    def read(place: int) -> int:
        last = body.apply("min", place, body.constant(count - 1))
        return body.read(numbers, body.apply("max", last, zero))

    # The number of elements from the left run: its last one is at most the first element of the
    # right run that comes after.
    on_left, on_right = measure(left), measure(right)
    most = body.apply("min", rank, on_left)
    found = body.apply("max", body.apply("sub", rank, on_right), zero)
    for step in list_steps(min(width, wanted)):
        further = body.apply("min", body.apply("add", found, body.constant(step)), most)
        last = read(body.apply("sub", body.apply("add", left, further), body.constant(1)))
        first = read(body.apply("sub", body.apply("add", right, rank), further))
        found = body.select(order.is_in_order(body, last, first), further, found)
    other = body.apply("sub", rank, found)
    own, first = body.apply("add", left, found), body.apply("add", right, other)
    comes_first = order.is_in_order(body, read(own), read(first))
    is_first = body.apply("or", body.apply("ge", other, on_right), comes_first)
    from_left = body.apply("and", body.apply("lt", found, on_left), is_first)
    return body.stage(name, body.number(body.select(from_left, own, first)))
