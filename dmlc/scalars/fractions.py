"""Interval arithmetic over floats: ranges of fractions on every device.

`ranges` uses it for indices computed from fractions. A bound holds for every device and for the
reference: it is widened by far more than a rounding error, but never across zero, which rounding
does not cross. Bounds are floats, or infinite if nothing is known.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

_SLACK = 2.0**-20
"""Relative error of a rounded operation, with a large margin."""
_ROUGH = 2.0**-14
"""Relative error of a transcendental function, with a margin."""
_LARGEST, _SMALLEST = 2.0**127, 2.0**-126
"""Magnitudes above which FLOAT32 may be infinite, and below which a device may flush it to zero."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fraction:
    """Range of a float: from `low` to `high`, both included, or NaN if `nan` is set."""

    low: float
    high: float
    nan: bool = False

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def joined(self, other: Fraction) -> Fraction:
        """Union of two ranges."""
        nan = self.nan or other.nan
        return Fraction(min(self.low, other.low), max(self.high, other.high), nan)


ANYTHING = Fraction(-math.inf, math.inf, True)


def constant(value: float) -> Fraction:
    return ANYTHING if math.isnan(value) else Fraction(value, value)


def convert_whole(low: float, high: float) -> Fraction:
    """Range of a whole number as a float: large ones are rounded."""
    found, exact = Fraction(float(low), float(high)), max(abs(low), abs(high)) <= 2**24
    return found if exact else widen(found)


def widen(found: Fraction, slack: float = _SLACK) -> Fraction:
    """Range of a float after rounding, such as to another float type."""
    return Fraction(-_raise(-found.low, slack), _raise(found.high, slack), found.nan)


def _raise(bound: float, slack: float) -> float:
    """Upper bound on a rounded bound."""
    if bound > 0:
        bound *= 1 + slack
        return bound if bound < _LARGEST else math.inf
    bound *= 1 - slack
    return bound if bound <= -_SMALLEST else 0.0


def add(left: Fraction, right: Fraction) -> Fraction:
    opposite = max(left.high, right.high) == math.inf and min(left.low, right.low) == -math.inf
    if opposite and not (left.is_finite or right.is_finite):
        return ANYTHING
    nan = left.nan or right.nan
    return widen(Fraction(left.low + right.low, left.high + right.high, nan))


def subtract(left: Fraction, right: Fraction) -> Fraction:
    return add(left, negate(right))


def negate(given: Fraction) -> Fraction:
    return Fraction(-given.high, -given.low, given.nan)


def multiply(left: Fraction, right: Fraction) -> Fraction:
    if not (left.is_finite and right.is_finite):
        return ANYTHING
    ends = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    return widen(Fraction(min(ends), max(ends), left.nan or right.nan))


def divide(left: Fraction, right: Fraction) -> Fraction:
    # A divisor that small may be flushed to zero.
    apart = right.low >= _SMALLEST or right.high <= -_SMALLEST
    if not (apart and left.is_finite and right.is_finite):
        return ANYTHING
    ends = [a / b for a in (left.low, left.high) for b in (right.low, right.high)]
    return widen(Fraction(min(ends), max(ends), left.nan or right.nan))


def absolute(given: Fraction) -> Fraction:
    low = max(given.low, -given.high, 0.0)
    return Fraction(low, max(abs(given.low), abs(given.high)), given.nan)


def pick(choose: Callable[[float, float], float]) -> Callable[[Fraction, Fraction], Fraction]:
    """Range of the smaller or the larger of two floats: NaN if either is."""

    def choose_both(left: Fraction, right: Fraction) -> Fraction:
        low, high = choose(left.low, right.low), choose(left.high, right.high)
        return Fraction(low, high, left.nan or right.nan)

    return choose_both


def step(round_one: Callable[[float], int]) -> Callable[[Fraction], Fraction]:
    """Range of a nondecreasing function to whole numbers."""

    def round_both(given: Fraction) -> Fraction:
        low, high = (
            float(round_one(bound)) if math.isfinite(bound) else bound
            for bound in (given.low, given.high)
        )
        return Fraction(low, high, given.nan)

    return round_both


def multiply_add(left: Fraction, right: Fraction, other: Fraction) -> Fraction:
    return add(multiply(left, right), other)


def root(given: Fraction) -> Fraction:
    low, high = max(given.low, 0.0), max(given.high, 0.0)
    return widen(Fraction(math.sqrt(low), math.sqrt(high), given.nan or given.low < 0))


def between(low: float, high: float) -> Callable[[Fraction], Fraction]:
    """Range of a bounded function that maps numbers to numbers."""
    bounds = widen(Fraction(low, high), _ROUGH)
    return lambda given: dataclasses.replace(bounds, nan=given.nan)


def wave(given: Fraction) -> Fraction:
    bounds = widen(Fraction(-1.0, 1.0), _ROUGH)
    return dataclasses.replace(bounds, nan=given.nan or not given.is_finite)
