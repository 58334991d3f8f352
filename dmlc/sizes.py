"""Sizes that are known at run time only: sums of products of symbols and whole numbers.

A symbol is 1 or more. A sum has one form, whatever it was made from, so that equal sizes are equal
values; a sum without symbols is an integer. A quotient that is rounded up stands in it as a symbol
does. Its text is C: `64 * N + 1`, `3 * ((N + 63) / 64)`. What symbols stand for, and who binds
them, is not known here.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from dmlc.source import DmlcError, InternalError

TYPICAL = 1024
"""What a symbol is taken for where costs are weighed."""

LARGEST = 2**31 - 2**16
"""The most that a symbol, or the elements of a tensor that has one, may come to at run time: then
positions have 32 bits, also those that windows reach beyond a tensor, and do not wrap while the
last group is rounded up."""

_QUOTIENT = re.compile(r"\(\(([^()]*)\) / (\d+)\)")
_FACTOR = re.compile(r"\(\([^()]*\) / \d+\)|[A-Za-z_]\w*|\d+", re.ASCII)
_TERM = re.compile(rf"(?:{_FACTOR.pattern})(?:\s*\*\s*(?:{_FACTOR.pattern}))*", re.ASCII)
_SIGN = re.compile(r"\s*([-+]?)\s*")


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """A sum of products, each of symbols and one number."""

    terms: tuple[tuple[tuple[str, ...], int], ...]
    """Sorted: the symbols of each product, sorted too, and its number, which is not 0."""

    @staticmethod
    def of(symbol: str) -> Size:
        """The size that a symbol is."""
        return Size((((symbol,), 1),))

    @property
    def symbols(self) -> tuple[str, ...]:
        """Those that it depends on, in order of first use."""
        return list_symbols(" ".join(s for symbols, _ in self.terms for s in symbols))

    def __add__(self, other: Measure) -> Measure:
        return _collect((*self.terms, *_terms(other)))

    def __radd__(self, other: int) -> Measure:
        return self + other

    def __sub__(self, other: Measure) -> Measure:
        return self + other * -1

    def __rsub__(self, other: int) -> Measure:
        return self * -1 + other

    def __mul__(self, other: Measure) -> Measure:
        pairs = ((a, x, b, y) for a, x in self.terms for b, y in _terms(other))
        return _collect((tuple(sorted((*a, *b))), x * y) for a, x, b, y in pairs)

    def __rmul__(self, other: int) -> Measure:
        return self * other

    def divide(self, by: int) -> Measure | None:
        """The quotient; None where it is no size, whatever the symbols are."""
        if any(n % by for _, n in self.terms):
            return None
        return Size(tuple((symbols, n // by) for symbols, n in self.terms))

    def bounds(self) -> tuple[float, float]:
        """The least and the most that it may be, without regard to `LARGEST`."""
        low = sum(n if n > 0 or not symbols else -math.inf for symbols, n in self.terms)
        high = sum(n if n < 0 or not symbols else math.inf for symbols, n in self.terms)
        return low, high

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """What it is where symbols have these sizes."""
        return sum(n * math.prod(_find(s, sizes) for s in symbols) for symbols, n in self.terms)

    def __str__(self) -> str:
        made = ""
        for symbols, number in self.terms:
            factors = [*([str(abs(number))] if abs(number) != 1 or not symbols else []), *symbols]
            sign = "-" if number < 0 else "+"
            lead = ("-" if number < 0 else "") if not made else f" {sign} "
            made += lead + " * ".join(factors)
        return made


def _find(symbol: str, sizes: Mapping[str, int]) -> int:
    """What a symbol stands for, or a quotient."""
    match = None if symbol in sizes else _QUOTIENT.fullmatch(symbol)
    return sizes[symbol] if match is None else evaluate_size(match[1], sizes) // int(match[2])


Measure: TypeAlias = int | Size
"""A number of elements, known when a program is made or when it runs."""


def _terms(of: Measure) -> tuple[tuple[tuple[str, ...], int], ...]:
    return of.terms if isinstance(of, Size) else (((), of),)


def _collect(terms: Iterable[tuple[tuple[str, ...], int]]) -> Measure:
    """The sum of products in its one form: those of most symbols first, numbers last."""
    found: dict[tuple[str, ...], int] = {}
    for symbols, number in terms:
        found[symbols] = found.get(symbols, 0) + number
    kept = [(symbols, number) for symbols, number in found.items() if number]
    if not any(symbols for symbols, _ in kept):
        return kept[0][1] if kept else 0
    return Size(tuple(sorted(kept, key=lambda term: (-len(term[0]), term[0]))))


def measure(extent: int | str) -> Measure:
    """An extent as a size: a number, or the symbol of that name."""
    return Size.of(extent) if isinstance(extent, str) else extent


def multiply(extents: Iterable[int | str | Size]) -> Measure:
    """The product of extents."""
    product: Measure = 1
    for extent in extents:
        product = (measure(extent) if isinstance(extent, str) else extent) * product
    return product


def divide_up(size: Measure, by: int) -> Measure:
    """A quotient, rounded up, of a size that has none."""
    if isinstance(size, int):
        return -(-size // by)
    return Size.of(f"(({size} + {by - 1}) / {by})")


def pack_strides(extents: Sequence[int | str | Size]) -> tuple[Measure, ...]:
    """The strides, in elements, of a packed tensor of these sizes: last axis fastest."""
    strides: list[Measure] = []
    step: Measure = 1
    for extent in reversed(extents):
        strides.append(step)
        size = measure(extent) if isinstance(extent, int | str) else extent
        step = (max(size, 1) if isinstance(size, int) else size) * step
    return tuple(reversed(strides))


def known(sizes: Iterable[Measure]) -> tuple[int, ...]:
    """Sizes all of which are numbers. Raises `InternalError` where one is not."""
    given = tuple(sizes)
    found = tuple(size for size in given if isinstance(size, int))
    if len(found) < len(given):
        raise InternalError(f"a size is known at run time only: {', '.join(map(str, given))}")
    return found


def estimate(size: int | str | Size) -> int:
    """About how much a size is: symbols are `TYPICAL`."""
    found = measure(size) if isinstance(size, str) else size
    return found.evaluate(_Typical()) if isinstance(found, Size) else found


class _Typical(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return TYPICAL


@functools.lru_cache(4096)
def parse_size(text: str) -> Measure:
    """The size that a text spells, as `str` gives it. Raises `DmlcError`."""
    total: Measure = 0
    sign, at = _SIGN.match(text), 0
    while sign is not None and (sign[1] or at == 0):
        term = _TERM.match(text, sign.end())
        if term is None:
            break
        product: Measure = -1 if sign[1] == "-" else 1
        for factor in _FACTOR.findall(term[0]):
            product = (int(factor) if factor.isdecimal() else Size.of(factor)) * product
        total, at = product + total, term.end()
        if at == len(text):
            return total
        sign = _SIGN.match(text, at)
    raise DmlcError(f"'{text}' is no size: expected sums of products of numbers and symbols")


def evaluate_size(size: int | str, sizes: Mapping[str, int]) -> int:
    """What a size comes to, given as a number or as a text."""
    if isinstance(size, int):
        return size
    if size in sizes:
        return sizes[size]
    found = parse_size(size)
    return found.evaluate(sizes) if isinstance(found, Size) else found


# Conditions ---------------------------------------------------------------------------------

_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
_CONDITION = re.compile(r"(.+?) (==|!=|<=|>=|<|>) (.+)")


def write_condition(left: Measure, relation: str, right: Measure) -> str:
    """A comparison of sizes in C, with nothing taken from anything: sizes have no sign there."""
    difference = left + right * -1 if isinstance(left, Size) else right * -1 + left
    terms = difference.terms if isinstance(difference, Size) else (((), difference),)
    above = _collect((symbols, n) for symbols, n in terms if n > 0)
    below = _collect((symbols, -n) for symbols, n in terms if n < 0)
    return f"{above} {relation} {below}"


def holds(condition: str, sizes: Mapping[str, int]) -> bool:
    """Whether a condition that `write_condition` wrote holds. Raises `DmlcError` for any other."""
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise DmlcError(f"'{condition}' is no condition on sizes: expected one such as 'N != 1'")
    left, relation, right = match.groups()
    return _RELATIONS[relation](evaluate_size(left, sizes), evaluate_size(right, sizes))


def refuse_sizes(name: str, conditions: Iterable[str], sizes: Mapping[str, int]) -> None:
    """Raises `DmlcError` where sizes break a condition that something was made under."""
    for condition in conditions:
        if not holds(condition, sizes):
            values = " and ".join(f"{s} is {sizes[s]}" for s in list_symbols(condition))
            raise DmlcError(
                f"{name} was made for sizes where {condition}, and {values}",
                notes=["bind the sizes themselves: that gives a function for these"],
            )


def list_symbols(text: str) -> tuple[str, ...]:
    """The symbols in the text of a size or a condition, in order of first use."""
    return tuple(dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text)))


class Shapes:
    """The sizes of symbols, learnt from the shapes of arrays one after the other."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self._places: dict[str, str] = {}

    def match(self, name: str, extents: Sequence[int | str], shape: Sequence[int]) -> str | None:
        """Why an array has not the sizes that its tensor has; None where it has, and symbols have
        been learnt from it."""
        shown = ", ".join(map(str, extents))
        if len(shape) != len(extents):
            return (
                f"{name} has the sizes [{shown}], {len(extents)} of them, and the array given has "
                f"{len(shape)}: {list(shape)}"
            )
        for axis, (extent, size) in enumerate(zip(extents, shape, strict=True)):
            place = f"axis {axis} of {name}"
            if isinstance(extent, int):
                if extent != size:
                    return f"{place} has {extent} elements, and the array given has {size} there"
                continue
            if size == 0:
                return (
                    f"{place} has 0 elements, and the size '{extent}' that is left open there is 1 "
                    "or more"
                )
            if self.sizes.setdefault(extent, size) != size:
                known = self.sizes[extent]
                return (
                    f"the size '{extent}' is {known} along {self._places[extent]}, and {size} "
                    f"along {place}"
                )
            self._places.setdefault(extent, place)
        return None
