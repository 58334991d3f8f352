"""Bounds that are larger than the results they stand beside, which show nothing.

Where digits cancel, as in `1 - tanh(x)^2` times a large number, or a value may be too large for its
type, a bound is honest and yet so wide that any wrong result would pass. Such an element is
*loose*. A case with many of them is weak, and the harness draws other inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from dmlc.scalars import Array

MOST_LOOSE = 0.25
"""A case is weak where more than this part of its inexact elements is loose."""
_SMALL_PART = 1e-3
"""A bound is not loose that is no more than this part of the largest result of its output: a result
near 0 among larger ones."""
_SMALL = 1e-5
"""Nor is one of a result that is 0, where it is no more than this."""
_FLUSHED = 1e-36
"""Nor is what flushing denormals to zero may cost."""


@dataclasses.dataclass(frozen=True, slots=True)
class Looseness:
    """How many elements have bounds that are larger than their results."""

    loose: int = 0
    inexact: int = 0
    """Those that are finite and have a bound above 0; the others must be exact."""

    @property
    def share(self) -> float:
        """The loose part of the inexact elements."""
        return self.loose / self.inexact if self.inexact else 0.0

    @property
    def is_weak(self) -> bool:
        return self.share > MOST_LOOSE

    def __add__(self, other: Looseness) -> Looseness:
        return Looseness(self.loose + other.loose, self.inexact + other.inexact)

    def __str__(self) -> str:
        return f"{self.loose} of {self.inexact} inexact elements"


def find_looseness(expected: Array, allowed: Array) -> Looseness:
    """How many elements of an output are loose: `allowed` is what each may differ by from what is
    `expected`. Neither NaN nor an infinity is."""
    judged = (allowed > 0) & np.isfinite(expected.astype(np.float64))
    inexact = int(np.count_nonzero(judged))
    loose = int(np.count_nonzero(judged & _is_beyond(expected, allowed))) if inexact else 0
    return Looseness(loose, inexact)


def show_loosest(expected: Array, allowed: Array) -> str:
    """The loose element with the largest bound: where it is, its result and its bound."""
    finite = np.isfinite(expected.astype(np.float64))
    places = np.where(finite & _is_beyond(expected, allowed), allowed, -1.0)
    place = np.unravel_index(int(np.argmax(places)), places.shape)
    where = f"at {[int(i) for i in place]} " if place else ""
    return f"{where}it is {float(expected[place]):.3g}, and may be off by {allowed[place]:.3g}"


def _is_beyond(expected: Array, allowed: Array) -> Array:
    """Where a bound is larger than its result, and too large to be that of a result near 0."""
    size = np.abs(expected.astype(np.float64))
    size = np.where(np.isfinite(size), size, 0.0)
    small = np.where(size == 0, _SMALL, _FLUSHED)
    part = _SMALL_PART * float(size.max(initial=0.0))
    beyond: Array = allowed > np.maximum(size, np.maximum(small, part))
    return beyond


def add_up(found: Iterable[Looseness]) -> Looseness:
    """Of several outputs, or cases."""
    return sum(found, Looseness())
