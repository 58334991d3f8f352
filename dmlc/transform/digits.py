"""Positions as sums of digits: parts of indices, places along axes, quotients and remainders.

A digit is an index, or a part of one that a reshape takes apart. `invert` solves for them.
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
    """A part of an index of the stage that reads, of its own extent."""

    number: int
    extent: Extent


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The position along an axis of the tensor that is read."""

    axis: int
    extent: Extent


@dataclasses.dataclass(frozen=True, slots=True)
class Quotient:
    """The quotient or the remainder of a sum by a constant. The sum is not negative wherever this
    counts."""

    given: Sum
    divisor: int
    remains: bool


Term: TypeAlias = "Digit | Place | Quotient | Symbol"
"""A symbol is a size that is known at run time only, or a product of such."""
Sum: TypeAlias = "Affine[Term]"


def list_digits(form: Sum) -> list[tuple[Digit, int]]:
    """The digits that are terms of a sum, and their factors."""
    return [(term, factor) for term, factor in form.factors if isinstance(term, Digit)]


def walk_digits(form: Sum) -> Iterator[Digit]:
    """The digits that a sum is made of, those in quotients too."""
    for term in form.terms:
        match term:
            case Digit():
                yield term
            case Quotient(given=given):
                yield from walk_digits(given)
            case _:
                pass


def replace_digit(form: Sum, digit: Digit, by: Sum) -> Sum:
    """The sum with another in a digit's place, within quotients too."""
    made: Sum = Affine(form.constant)
    for term, factor in form.factors:
        one = by if term == digit else single(term)
        if isinstance(term, Quotient):
            given = replace_digit(term.given, digit, by)
            one = take_part(given, term.divisor, remains=term.remains)
        made = made.plus(one, factor)
    return made


def find_ends(form: Sum) -> tuple[Measure | None, Measure | None]:
    """The smallest and the largest that a sum may be, as sizes; None where they are not known."""
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
        case Digit() | Place():
            return 0, measure(term.extent) - 1


def find_interval(form: Sum) -> Interval:
    """The numbers that a sum lies between, whatever sizes are."""
    low, high = find_ends(form)
    least = -math.inf if low is None else size_range(low)[0]
    return least, math.inf if high is None else size_range(high)[1]


def read_size(text: str) -> Sum:
    """A size that is known at run time only, as a sum."""
    size = measure(text)
    if not isinstance(size, Size):
        return Affine(size)
    terms = ((Symbol(" * ".join(symbols)), number) for symbols, number in size.terms if symbols)
    return Affine(dict(size.terms).get((), 0), tuple(terms))


def divide(given: Sum, divisor: int, remains: bool) -> Sum | None:
    """The quotient or the remainder of a sum that is not negative, where its terms fall into
    multiples of the divisor and what stays below it."""
    whole, rest = given.divide(divisor)
    low, high = find_interval(rest)
    if low < 0 or high >= divisor:
        return None
    return rest if remains else whole


def take_part(given: Sum, divisor: int, *, remains: bool) -> Sum:
    """The quotient or the remainder of a sum that is not negative wherever it counts."""
    if divisor == 1:
        return Affine() if remains else given
    made = divide(given, divisor, remains)
    return single(Quotient(given, divisor, remains)) if made is None else made
