"""Stages that sort whole numbers, and that find where each begins among those sorted.

Tensor IR reads wherever it likes and writes at its own place alone, so sorting is written as what
each place of the result reads. Short blocks are sorted by rank: as many as are less stand before a
number. Sorted runs are then merged two by two: how many of a place's forerunners come from the left
run is found by bisection, written out step by step. Nothing is scattered, so nothing is atomic;
equal numbers keep their order, and the same numbers give the same places on every device.

Of `n` numbers that takes about `n * (2 * BLOCK + 2 * log2(n / BLOCK) * log2(n))` short steps in
`log2(n / BLOCK) + 2` kernels, in each of which all places are computed at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.ir import Cast, Extent, Index, Reduction, Stage, Tensor
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.naming import take_name
from dmlc.scalars import DataType
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


def count_padded(count: int) -> int:
    """The numbers of a row that is sorted where there are so many: whole blocks."""
    return count if count <= BLOCK else -(-count // BLOCK) * BLOCK


def count_merges(count: int) -> int:
    """How often the runs of so many numbers are merged."""
    return max(0, (-(-count // BLOCK) - 1).bit_length())


def sort_rows(keys: Stage, wanted: str, names: dict[str, None]) -> Sorted:
    """The rows of a stage sorted, each by itself: INT32, a last axis of `count_padded` numbers. The
    stages are called after what is `wanted`."""
    count = _count(keys)
    block = min(count, BLOCK)

    def name(what: str) -> str:
        return take_name(f"{wanted}_{what}", names)

    def pick(what: str, stage: Stage, places: Stage) -> Stage:
        """The numbers of a row that stand at the places another stage gives."""
        body = _Body(places.extents)
        place = body.add(Cast(body.read(places, body.place), DataType.INDEX))
        last = body.apply("min", place, body.constant(count - 1))
        inside = body.apply("max", last, body.constant(0))
        return body.stage(name(what), body.read(stage, inside))

    ranks = _rank(keys, block, name("rank"))
    places = _invert(ranks, keys.extents, block, name("order"))
    numbers = pick("sorted", keys, places)
    stages = [ranks, places, numbers]
    width = block
    while width < count:
        merged = _merge(numbers, width, name("merge"))
        numbers, places = pick("sorted", numbers, merged), pick("order", places, merged)
        stages += [merged, numbers, places]
        width *= 2
    return Sorted(tuple(stages), numbers, places)


def find_starts(numbers: Stage, most: int, name: str) -> Stage:
    """For each number from 0 to `most`, how many of a row of sorted ones are less."""
    count = _count(numbers)
    body = _Body((*numbers.extents[:-1], most + 1))
    own, found = body.number(body.place), body.constant(0)
    for step in _list_steps(count):
        further = body.apply("add", found, body.constant(step))
        further = body.apply("min", further, body.constant(count))
        last = body.apply("sub", further, body.constant(1))
        less = body.apply("lt", body.read(numbers, last), own)
        found = body.select(less, further, found)
    return body.stage(name, body.number(found))


def _count(stage: Stage) -> int:
    """The numbers of a row."""
    last = stage.extents[-1]
    if not isinstance(last, int):
        raise InternalError(f"%{stage.name} is sorted, and has rows of a run-time size")
    return last


def _list_steps(most: int) -> list[int]:
    """Powers of two, the largest first, of which some add up to any number up to `most`."""
    return [1 << bit for bit in reversed(range(most.bit_length()))]


class _Body(BodyBuilder):
    """The body of a stage of whole numbers over rows, in the making."""

    def __init__(self, domain: Sequence[Extent], rank: int = 1) -> None:
        """The last `rank` axes of the domain are those of a row."""
        super().__init__()
        self._domain = tuple(domain)
        self._outer = tuple(self.add(Index(axis)) for axis in range(len(domain) - rank))
        self.place = self.add(Index(len(domain) - 1))
        """Along the last axis."""

    def read(self, tensor: Tensor, *places: int) -> int:
        """The element of another tensor in the same row."""
        return self.load(tensor, *self._outer, *places)

    def number(self, place: int) -> int:
        """A position as a number."""
        return self.add(Cast(place, NUMBER))

    def stage(self, name: str, result: int, points: int | None = None) -> Stage:
        """The stage that gives a number, or the sum of it over so many points."""
        reduction = None if points is None else Reduction("sum", ((_POINT.axis, points),))
        return Stage(name, NUMBER, self._domain, self.make(result), reduction)


# Blocks ------------------------------------------------------------------------------------


def _rank(keys: Stage, block: int, name: str) -> Stage:
    """For each number of a block how many of it come before: those that are less, and those that
    are equal and stand before it."""
    blocks = _count(keys) // block
    body = _Body((*keys.extents[:-1], blocks, block), rank=2)
    first = body.apply("mul", body.add(Index(len(keys.extents) - 1)), body.constant(block))
    point = body.add(_POINT)
    own, other = (body.read(keys, body.apply("add", first, p)) for p in (body.place, point))
    # Of whole numbers this is less or equal where the other stands before.
    before = body.add(Cast(body.apply("lt", point, body.place), NUMBER))
    comes = body.apply("lt", other, body.apply("add", own, before))
    return body.stage(name, body.add(Cast(comes, NUMBER)), block)


def _invert(ranks: Stage, domain: Sequence[Extent], block: int, name: str) -> Stage:
    """For each place of sorted blocks, where in its row the number was that has this rank."""
    body = _Body(domain)
    length = body.constant(block)
    number, rank = body.apply("div", body.place, length), body.apply("mod", body.place, length)
    point = body.add(_POINT)
    found = body.apply("eq", body.read(ranks, number, point), body.number(rank))
    place = body.apply("add", body.apply("mul", number, length), point)
    none = body.constant(0, NUMBER)
    return body.stage(name, body.select(found, body.number(place), none), block)


# Runs --------------------------------------------------------------------------------------


def _merge(numbers: Stage, width: int, name: str) -> Stage:
    """Where in its row each number stands of two neighbouring sorted runs as one. The runs have
    `width` numbers, but for the last one, which may have fewer or be alone."""
    count = _count(numbers)
    body = _Body(numbers.extents)
    size, zero = body.constant(width), body.constant(0)
    rank = body.apply("mod", body.place, body.constant(2 * width))
    left = body.apply("sub", body.place, rank)
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
    for step in _list_steps(width):
        further = body.apply("min", body.apply("add", found, body.constant(step)), most)
        last = read(body.apply("sub", body.apply("add", left, further), body.constant(1)))
        first = read(body.apply("sub", body.apply("add", right, rank), further))
        found = body.select(body.apply("le", last, first), further, found)
    other = body.apply("sub", rank, found)
    own, first = body.apply("add", left, found), body.apply("add", right, other)
    comes_first = body.apply("le", read(own), read(first))
    is_first = body.apply("or", body.apply("ge", other, on_right), comes_first)
    from_left = body.apply("and", body.apply("lt", found, on_left), is_first)
    return body.stage(name, body.number(body.select(from_left, own, first)))
