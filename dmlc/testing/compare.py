"""Compares arrays place by place, within what each place is allowed to differ by.

NaN and infinities must agree in place, always. How much a result may differ from the reference is
for `bounds` to say.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from dmlc.scalars import Array, data_type_of


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """`|actual - expected| <= absolute + relative * |expected|`; exact where both are 0."""

    relative: float
    absolute: float

    def allow(self, expected: Array) -> Array:
        """What each place may differ by."""
        with np.errstate(all="ignore"):
            return self.absolute + self.relative * np.abs(expected.astype(np.float64))


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """How near two arrays of one type are; differences are taken where both are finite."""

    elements: int
    different: int
    """Places that are not equal (NaN equals NaN, and -0 equals 0)."""
    largest: float
    """The largest absolute difference."""
    largest_relative: float
    largest_ulp: float | None
    """The same in steps between neighbouring values of the type; None for whole numbers."""
    misplaced: int
    """Places where one is NaN or infinite and the other is not the same."""
    worst: tuple[int, ...] | None
    """Where the largest excess over what is allowed is, if anything differs."""
    within: bool
    """Whether every place keeps to what is allowed."""

    def __str__(self) -> str:
        if self.different == 0:
            return f"exact ({self.elements:,} elements)"
        text = f"{self.different:,} of {self.elements:,} elements differ"
        text += f", by {self.largest:.3g} at most"
        if self.largest_ulp is not None:
            text += f" ({self.largest_relative:.3g} relative, {self.largest_ulp:.0f} ulp)"
        if self.misplaced:
            text += f"; NaN or infinity out of place at {self.misplaced:,}"
        return text


def compare(actual: Array, expected: Array, allowed: Array | float) -> Comparison:
    """Compares two arrays of one shape and type. `allowed` is what places may differ by: one
    number, or one for each."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise ValueError(f"{actual.dtype}{actual.shape} and {expected.dtype}{expected.shape}")
    dtype = data_type_of(actual.dtype)
    whole = dtype is None or not dtype.is_float
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    # As they are: float64 does not tell the largest whole numbers apart.
    unequal = np.asarray(actual != expected) & ~(np.isnan(a) & np.isnan(b))
    misplaced = unequal & ~(np.isfinite(a) & np.isfinite(b))
    count = int(np.count_nonzero(unequal))
    if count == 0:
        return Comparison(actual.size, 0, 0.0, 0.0, None if whole else 0.0, 0, None, True)
    with np.errstate(all="ignore"):
        difference = np.where(unequal & ~misplaced, np.abs(a - b), 0.0)
        relative = np.where(difference > 0, difference / np.abs(b), 0.0)
        excess = np.where(misplaced, np.inf, np.where(unequal, difference - allowed, -np.inf))
    place = np.unravel_index(int(np.argmax(excess)), excess.shape)
    worst = tuple(int(i) for i in place)
    return Comparison(
        actual.size,
        count,
        float(difference.max()),
        float(relative.max()),
        None if whole else float(np.where(difference > 0, _steps(actual, expected), 0).max()),
        int(np.count_nonzero(misplaced)),
        worst,
        not whole and bool(excess[place] <= 0),
    )


def _steps(a: Array, b: Array) -> Array:
    """How many values of their float type lie from `a` to `b`, zeros of both signs being one."""
    return np.abs(_rank(a) - _rank(b))


def _rank(values: Array) -> Array:
    """A number for every float, in the order of their values and without gaps."""
    bits = values.view(f"i{values.dtype.itemsize}").astype(np.int64)
    lowest = -(1 << (8 * values.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits).astype(np.longdouble)
