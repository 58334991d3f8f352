"""Error bounds that exceed the results beside them, and so test nothing.

After cancellation, as in `1 - tanh(x)^2` times a large number, or near overflow, a correct bound
may be so wide that any wrong result passes. Such an element is *loose*. A case with many of them is
weak, and the harness draws other inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from dmlc.scalars import Array

MOST_LOOSE = 0.25
"""Part of its inexact elements that must be loose for a case to be weak."""
_SMALL_PART = 1e-3
"""Bound, relative to the largest result of the output, up to which an element is not loose: it is a
result near 0 among larger ones."""
_SMALL = 1e-5
"""Bound up to which an element whose result is 0 is not loose."""
_FLUSHED = 1e-36
"""Bound up to which no element is loose: that of flushing denormals."""


@dataclasses.dataclass(frozen=True, slots=True)
class Looseness:
    """Numbers of elements with bounds that exceed their results."""

    loose: int = 0
    inexact: int = 0
    """Number of finite elements with a bound above 0; the others must be exact."""

    @property
    def share(self) -> float:
        """Loose part of the inexact elements."""
        return self.loose / self.inexact if self.inexact else 0.0

    @property
    def is_weak(self) -> bool:
        return self.share > MOST_LOOSE

    def __add__(self, other: Looseness) -> Looseness:
        return Looseness(self.loose + other.loose, self.inexact + other.inexact)

    def __str__(self) -> str:
        return f"{self.loose} of {self.inexact} inexact elements"


def find_looseness(expected: Array, allowed: Array) -> Looseness:
    """Looseness of an output with error bounds `allowed`. NaN and infinities are not counted."""
    judged = (allowed > 0) & np.isfinite(expected.astype(np.float64))
    inexact = int(np.count_nonzero(judged))
    loose = int(np.count_nonzero(judged & _is_beyond(expected, allowed))) if inexact else 0
    return Looseness(loose, inexact)


def show_loosest(expected: Array, allowed: Array) -> str:
    """Index, result and bound of the loose element with the largest bound."""
    finite = np.isfinite(expected.astype(np.float64))
    places = np.where(finite & _is_beyond(expected, allowed), allowed, -1.0)
    place = np.unravel_index(int(np.argmax(places)), places.shape)
    where = f"at {[int(i) for i in place]} " if place else ""
    return f"{where}it is {float(expected[place]):.3g}, and may be off by {allowed[place]:.3g}"


def _is_beyond(expected: Array, allowed: Array) -> Array:
    """Elements whose bound exceeds the result, and is too large for a result near 0."""
    size = np.abs(expected.astype(np.float64))
    size = np.where(np.isfinite(size), size, 0.0)
    small = np.where(size == 0, _SMALL, _FLUSHED)
    part = _SMALL_PART * float(size.max(initial=0.0))
    beyond: Array = allowed > np.maximum(size, np.maximum(small, part))
    return beyond


def add_up(found: Iterable[Looseness]) -> Looseness:
    """Sum over several outputs, or cases."""
    return sum(found, Looseness())
