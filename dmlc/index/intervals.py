"""Interval arithmetic over integers: the values that an index may have.

Bounds are exact integers, or infinite if unknown; they may be too wide, and never too narrow."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from dmlc.sizes import LARGEST, Measure, Size, has_quotients, measure, part_quotient

Bound: TypeAlias = int | float
"""An integer, or minus or plus infinity."""

Interval: TypeAlias = tuple[Bound, Bound]
"""The smallest and the largest value, both included."""

UNKNOWN: Interval = (-math.inf, math.inf)
EMPTY: Interval = (math.inf, -math.inf)
"""The interval of a position that no point takes."""

MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
"""Comparisons, and those with their sides exchanged."""
NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
"""Comparisons, and those that hold of whole numbers where they do not."""
DIFFERENCES: Mapping[str, Interval] = MappingProxyType(
    {"lt": (-math.inf, -1), "le": (-math.inf, 0), "gt": (1, math.inf), "ge": (0, math.inf),
     "eq": (0, 0)}
)  # fmt: skip
"""What the difference of two whole numbers is that compare so."""
WRAPS = 2**63
"""Positions wrap from here on."""


def meet(*given: Interval) -> Interval:
    """Intersection of intervals."""
    return max(low for low, _ in given), min(high for _, high in given)


def hull(*given: Interval) -> Interval:
    """Smallest interval that contains all of some intervals."""
    return min(low for low, _ in given), max(high for _, high in given)


def is_within(given: Interval, size: Bound) -> bool:
    """Whether all numbers of an interval are valid indices along an axis of that size."""
    return given[0] >= 0 and given[1] < size


def combine(name: str, given: Sequence[Interval]) -> Interval:
    """Interval of an operation's result, given those of its integer operands; `UNKNOWN` for other
    operations, and beyond 64 bits."""
    if name in ("min", "max"):
        choose = min if name == "min" else max
        return choose(given[0][0], given[1][0]), choose(given[0][1], given[1][1])
    if name not in _BOUNDED or any(math.isinf(bound) for pair in given for bound in pair):
        return UNKNOWN
    whole = [(int(low), int(high)) for low, high in given]
    low, high = _BOUNDED[name](whole)
    # Beyond 64 bits positions wrap.
    return (low, high) if low >= -WRAPS and high < 2 * WRAPS else UNKNOWN


def compare(name: str, left: Interval, right: Interval) -> Interval:
    """Interval of a comparison's result, which is 1 if it is true and 0 if not."""
    if name in ("gt", "ge"):
        return compare(MIRRORED[name], right, left)
    match name:
        case "lt":
            return int(left[1] < right[0]), int(left[0] < right[1])
        case "le":
            return int(left[1] <= right[0]), int(left[0] <= right[1])
        case "eq":
            same, (low, high) = left[0] == left[1] == right[0] == right[1], meet(left, right)
            return int(same), int(low <= high)
        case _:
            low, high = compare("eq", left, right)
            return 1 - high, 1 - low


_Whole: TypeAlias = tuple[int, int]


def _multiply(given: list[_Whole]) -> Interval:
    ends = [a * b for a in given[0] for b in given[1]]
    return min(ends), max(ends)


def _divide(given: list[_Whole]) -> Interval:
    """Interval of a truncated quotient."""
    divided, divisors = given
    if divisors[0] <= 0:
        return UNKNOWN
    ends = [e // d if e >= 0 else -(-e // d) for e in divided for d in divisors]
    return min(ends), max(ends)


def _remain(given: list[_Whole]) -> Interval:
    (low, high), (least, largest) = given
    if least <= 0:
        return UNKNOWN
    most = largest - 1
    return max(min(low, 0), -most), min(max(high, 0), most)


def _absolute(given: list[_Whole]) -> Interval:
    low, high = given[0]
    return max(low, -high, 0), max(abs(low), abs(high))


_BOUNDED: dict[str, Callable[[list[_Whole]], Interval]] = {
    "add": lambda g: (g[0][0] + g[1][0], g[0][1] + g[1][1]),
    "sub": lambda g: (g[0][0] - g[1][1], g[0][1] - g[1][0]),
    "neg": lambda g: (-g[0][1], -g[0][0]),
    "abs": _absolute,
    "mul": _multiply,
    "div": _divide,
    "mod": _remain,
}
"""Index operations whose result is known from their operands', by name."""


# Sizes that are known at run time only --------------------------------------------------------


@functools.lru_cache(1024)
def size_range(size: str | Measure) -> Interval:
    """Interval of a size that is known at run time only."""
    size = measure(size) if isinstance(size, str) else size
    if not isinstance(size, Size):
        return size, size
    low, high = size.bounds()
    most = sum(
        n * math.prod(_find_most(symbol) if n > 0 else 1 for symbol in symbols)
        for symbols, n in size.terms
        if n > 0 or not has_quotients(Size(((symbols, n),)))
    )
    return low, min(high, most if most < WRAPS else math.inf)


def _find_most(symbol: str) -> int:
    """Largest value of a symbol, or of a quotient."""
    quotient = part_quotient(symbol)
    if quotient is None:
        return LARGEST
    size, by = quotient
    terms = size.terms if isinstance(size, Size) else (((), size),)
    return sum(n * math.prod(map(_find_most, symbols)) for symbols, n in terms) // by
