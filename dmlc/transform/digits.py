"""Positions as sums of digits: parts of indices, places along axes, quotients and remainders.

A digit is an index, or a part of one that a reshape takes apart. `invert` solves for them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TypeAlias

from dmlc.ir import Extent, Symbol
from dmlc.ir.linear import Linear
from dmlc.ir.ranges import Bound, Interval, size_range
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


@dataclasses.dataclass(frozen=True, slots=True)
class Sum(Linear["Term"]):
    """A sum of terms times constants, and a constant."""

    @property
    def interval(self) -> Interval:
        low: Bound = self.constant
        high: Bound = self.constant
        for term, factor in self.factors:
            ends = [bound * factor for bound in _find_interval(term)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def digits(self) -> list[tuple[Digit, int]]:
        return [(term, factor) for term, factor in self.factors if isinstance(term, Digit)]

    def replaced(self, digit: Digit, by: Sum) -> Sum:
        """The sum with another in a digit's place, within quotients too."""
        made = Sum(self.constant)
        for term, factor in self.factors:
            one = by if term == digit else as_sum(term)
            if isinstance(term, Quotient):
                given = term.given.replaced(digit, by)
                one = take_part(given, term.divisor, remains=term.remains)
            made = made.plus(one, factor)
        return made


def _find_interval(term: Term) -> Interval:
    if isinstance(term, Symbol):
        return size_range(term.name)
    if not isinstance(term, Quotient):
        return 0, term.extent - 1 if isinstance(term.extent, int) else math.inf
    low, high = term.given.interval
    if term.remains:
        return 0, min(high, term.divisor - 1)
    return max(low // term.divisor, 0), high // term.divisor


def read_size(text: str) -> Sum:
    """A size that is known at run time only, as a sum."""
    size, made = measure(text), Sum()
    for symbols, number in size.terms if isinstance(size, Size) else (((), size),):
        term = Sum(0, ((Symbol(" * ".join(symbols)), number),)) if symbols else Sum(number)
        made = made.plus(term)
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
        case Quotient():
            least, most = _find_interval(term)
            return int(least), int(most) if math.isfinite(most) else None
        case _:
            return 0, measure(term.extent) - 1


def as_sum(term: Term) -> Sum:
    return Sum(0, ((term, 1),))


def divide(given: Sum, divisor: int, remains: bool) -> Sum | None:
    """The quotient or the remainder of a sum that is not negative, where its terms fall into
    multiples of the divisor and what stays below it."""
    whole = Sum(
        given.constant // divisor,
        tuple((t, f // divisor) for t, f in given.factors if f % divisor == 0),
    )
    rest = given.plus(whole, -divisor)
    low, high = rest.interval
    if low < 0 or high >= divisor:
        return None
    return rest if remains else whole


def take_part(given: Sum, divisor: int, *, remains: bool) -> Sum:
    """The quotient or the remainder of a sum that is not negative wherever it counts."""
    if divisor == 1:
        return Sum() if remains else given
    made = divide(given, divisor, remains)
    return as_sum(Quotient(given, divisor, remains)) if made is None else made


def list_digits(form: Sum) -> list[Digit]:
    """The digits that a sum is made of, those in quotients too."""
    inner = (list_digits(t.given) if isinstance(t, Quotient) else [t] for t, _ in form.factors)
    return [term for terms in inner for term in terms if isinstance(term, Digit)]
