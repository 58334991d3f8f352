"""Indices as linear combinations of digits, tensor indices, and quotients and remainders.

A digit is an index, or a part of one that a reshape splits off. `invert` solves for them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TypeAlias

from dmlc.index.affine import Affine, single
from dmlc.index.intervals import Interval, size_range
from dmlc.ir import Extent, Symbol
from dmlc.sizes import Measure, Size, measure


@dataclasses.dataclass(frozen=True, slots=True)
class Digit:
    """Part of an index of the reading stage, with its own extent."""

    number: int
    extent: Extent


@dataclasses.dataclass(frozen=True, slots=True)
class TensorIndex:
    """Index along an axis of the tensor that is read."""

    axis: int
    extent: Extent


@dataclasses.dataclass(frozen=True, slots=True)
class Quotient:
    """Quotient or remainder of a sum by a constant. The sum is not negative wherever its value
    matters."""

    given: Sum
    divisor: int
    remains: bool


Term: TypeAlias = "Digit | TensorIndex | Quotient | Symbol"
"""Term of a sum. A symbol is a run-time size, or a product of sizes."""
Sum: TypeAlias = "Affine[Term]"


def list_digits(form: Sum) -> list[tuple[Digit, int]]:
    """Digits that are terms of a sum, with their factors."""
    return [(term, factor) for term, factor in form.factors if isinstance(term, Digit)]


def walk_digits(form: Sum) -> Iterator[Digit]:
    """Digits of a sum, those inside quotients too."""
    for term in form.terms:
        match term:
            case Digit():
                yield term
            case Quotient(given=given):
                yield from walk_digits(given)
            case _:
                pass


def replace_digit(form: Sum, digit: Digit, by: Sum) -> Sum:
    """Sum with `by` in place of a digit, inside quotients too."""
    made: Sum = Affine(form.constant)
    for term, factor in form.factors:
        one = by if term == digit else single(term)
        if isinstance(term, Quotient):
            given = replace_digit(term.given, digit, by)
            one = take_part(given, term.divisor, remains=term.remains)
        made = made.plus(one, factor)
    return made


def find_ends(form: Sum) -> tuple[Measure | None, Measure | None]:
    """Smallest and largest value of a sum, as size expressions; None where unknown."""
    low: Measure | None = form.constant
    high: Measure | None = form.constant
    for term, factor in form.factors:
        least, most = _find_ends(term)
        if factor < 0:
            least, most = most, least
        low = None if low is None or least is None else low + least * factor
        high = None if high is None or most is None else high + most * factor
    return low, high


def _find_ends(term: Term) -> tuple[Measure | None, Measure | None]:
    match term:
        case Symbol(name=name):
            return measure(name), measure(name)
        case Quotient(given=given, divisor=divisor, remains=remains):
            low, high = find_interval(given)
            if remains:
                return 0, int(min(high, divisor - 1))
            return int(max(low, 0)) // divisor, int(high) // divisor if high < math.inf else None
        case Digit() | TensorIndex():
            return 0, measure(term.extent) - 1


def find_interval(form: Sum) -> Interval:
    """Numeric interval of a sum, for all sizes."""
    low, high = find_ends(form)
    least = -math.inf if low is None else size_range(low)[0]
    return least, math.inf if high is None else size_range(high)[1]


def read_size(text: str) -> Sum:
    """Run-time size as a sum."""
    size = measure(text)
    if not isinstance(size, Size):
        return Affine(size)
    terms = ((Symbol(" * ".join(symbols)), number) for symbols, number in size.terms if symbols)
    return Affine(dict(size.terms).get((), 0), tuple(terms))


def divide(given: Sum, divisor: int, remains: bool) -> Sum | None:
    """Quotient or remainder of a non-negative sum, if its terms are either multiples of the divisor
    or together less than it; else None."""
    whole, rest = given.divide(divisor)
    low, high = find_interval(rest)
    if low < 0 or high >= divisor:
        return None
    return rest if remains else whole


def take_part(given: Sum, divisor: int, *, remains: bool) -> Sum:
    """Quotient or remainder of a sum that is not negative wherever its value matters."""
    if divisor == 1:
        return Affine() if remains else given
    made = divide(given, divisor, remains)
    return single(Quotient(given, divisor, remains)) if made is None else made
