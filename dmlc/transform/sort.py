"""Stages that sort numbers, and that find where each begins among those sorted.

Tensor IR reads wherever it likes and writes at its own place alone, so sorting is written as what
each place of the result reads. Short blocks are sorted by rank: as many as are less stand before a
number. Sorted runs are then merged two by two: how many of a place's forerunners come from the left
run is found by bisection, written out step by step. Nothing is scattered, so nothing is atomic;
equal numbers keep their order, and the same numbers give the same places on every device. NaN comes
after all numbers.

Where the first few of a row are wanted, no run is longer than that, and there are fewer numbers
with every merge. Long rows of which more is wanted have kernels of their own (`rank_rows`).
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
"""The numbers that are sorted by rank. Ranks are sums over neighbours without branches: so many
points of them take as long as the bisections of the merges that they save."""

NUMBER = DataType.INT32
"""What is sorted, and what says where it was."""

_POINT = Index(0, reduced=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Sorted:
    """Rows of numbers in order."""

    stages: tuple[Stage, ...]
    """All that compute them."""
    numbers: Stage
    places: Stage
    """Where in its row each number was."""


def count_padded(count: int, block: int = BLOCK) -> int:
    """The numbers of a row that is sorted where there are so many: whole blocks."""
    return count if count <= block else -(-count // block) * block


def count_merges(count: int) -> int:
    """How often the runs of so many numbers are merged."""
    return max(0, (-(-count // BLOCK) - 1).bit_length())


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """How rows are sorted."""

    descends: bool = False
    is_bounded: bool = False
    """Whether they hold whole numbers, each of which has a next one."""

    @property
    def _names(self) -> tuple[str, str]:
        return ("gt", "ge") if self.descends else ("lt", "le")

    def is_less(self, body: BodyBuilder, left: int, right: int) -> int:
        """Whether a number comes before another, wherever they stand."""
        if body.type_of(left).is_float:
            return body.apply("not", self.is_in_order(body, right, left))
        return body.apply(self._names[0], left, right)

    def is_in_order(self, body: BodyBuilder, left: int, right: int) -> int:
        """Whether a number comes before another that stands behind it."""
        in_order = body.apply(self._names[1], left, right)
        if not body.type_of(left).is_float:
            return in_order
        return body.apply("or", in_order, body.apply("ne", right, right))

    def comes_before(self, body: BodyBuilder, other: int, own: int, stands_before: int) -> int:
        """Whether another number comes before one's own."""
        if self.is_bounded:
            # Of whole numbers this is less or equal where the other stands before.
            own = body.apply("add", own, body.add(Cast(stands_before, NUMBER)))
            return self.is_less(body, other, own)
        in_order, less = self.is_in_order(body, other, own), self.is_less(body, other, own)
        return body.apply("or", less, body.apply("and", stands_before, in_order))


def find_last(dtype: DataType, order: Order) -> bool | int | float:
    """What comes after all that a type holds, or is equal to it: it fills rows."""
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
    """The rows of a stage sorted, each by itself, or the first so many of each: a last axis of
    `count_padded` numbers. The stages are called after what is `wanted`."""
    count = _count(keys)
    block = min(count, block)
    most = count if most is None else most

    def name(what: str) -> str:
        return take_name(f"{wanted}_{what}", names)

    def pick(what: str, stage: Stage, places: Stage) -> Stage:
        """The numbers of a row that stand at the places another stage gives."""
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
    """The rows of a stage sorted as they are defined, or the first so many of each: each number has
    a rank, and at each place stands what has that rank. Kernels put these in order (`ranked`)."""
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
    """For each number from 0 to `most`, how many of a row of sorted ones are less."""
    body = _Body((*numbers.extents[:-1], most + 1))
    own = body.number(body.place)

    def is_less(last: int) -> int:
        return body.apply("lt", body.read(numbers, last), own)

    return body.stage(name, body.number(bisect(body, _count(numbers), is_less)))


def bisect(body: BodyBuilder, count: int, is_less: Callable[[int], int]) -> int:
    """How many of `count` points there are before the first at which something is not less; it is
    less at none after that. That takes as many steps as the count has bits."""
    found = body.constant(0)
    for step in list_steps(count):
        further = body.apply("add", found, body.constant(step))
        further = body.apply("min", further, body.constant(count))
        less = is_less(body.apply("sub", further, body.constant(1)))
        found = body.select(less, further, found)
    return found


def _count(stage: Stage) -> int:
    """The numbers of a row."""
    last = stage.extents[-1]
    if not isinstance(last, int):
        raise InternalError(f"%{stage.name} is sorted, and has rows of a run-time size")
    return last


def list_steps(most: int) -> list[int]:
    """Powers of two, the largest first, of which some add up to any number up to `most`."""
    return [1 << bit for bit in reversed(range(most.bit_length()))]


class _Body(BodyBuilder):
    """The body of a stage of whole numbers over rows, in the making."""

    def __init__(self, domain: Sequence[Extent], rank: int = 1) -> None:
        """The last `rank` axes of the domain are those of a row."""
        super().__init__()
        self.domain = tuple(domain)
        self._outer = tuple(self.add(Index(axis)) for axis in range(len(domain) - rank))
        self.place = self.add(Index(len(domain) - 1))
        """Along the last axis."""

    def read(self, tensor: Tensor, *places: int) -> int:
        """The element of another tensor in the same row."""
        return self.load(tensor, *self._outer, *places)

    def number(self, place: int) -> int:
        """A position as a number."""
        return self.add(Cast(place, NUMBER))

    def stage(
        self, name: str, result: int, points: int | None = None, dtype: DataType = NUMBER
    ) -> Stage:
        """The stage that gives a number, or the sum of it over so many points."""
        reduction = None if points is None else Reduction("sum", ((_POINT.axis, points),))
        return Stage(name, dtype, self.domain, self.make(result), reduction)


# Blocks ------------------------------------------------------------------------------------


def _rank(keys: Stage, block: int, name: str, order: Order) -> Stage:
    """For each number of a block how many of it come before: those that are less, and those that
    are equal and stand before it."""
    blocks = _count(keys) // block
    body = _Body((*keys.extents[:-1], blocks, block), rank=2)
    first = body.apply("mul", body.add(Index(len(keys.extents) - 1)), body.constant(block))
    point = body.add(_POINT)
    own, other = (body.read(keys, body.apply("add", first, p)) for p in (body.place, point))
    comes = order.comes_before(body, other, own, body.apply("lt", point, body.place))
    return body.stage(name, body.add(Cast(comes, NUMBER)), block)


def _invert(ranks: Stage, count: int, block: int, width: int, name: str) -> Stage:
    """For each of the first places of sorted blocks, where in its row of `count` the number was
    that has this rank."""
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
    """Where in its row each number stands of two neighbouring sorted runs as one, of which the
    first so many are wanted. The runs have `width` numbers, but for the last one, which may have
    fewer or be alone."""
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

    # How many of the left run come before this place: the last of them is no greater than the first
    # of the right run that does not.
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
