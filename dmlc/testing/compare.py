"""Elementwise comparison of arrays within an error bound per element. NaN and infinities must
agree, except where the bound is infinite. `bounds` computes the bounds."""

from __future__ import annotations

import dataclasses
from typing import cast

import numpy as np

from dmlc.parameters import expect
from dmlc.scalars import Array, held_type
from dmlc.source import DmlcError
from dmlc.testing.loose import Looseness, find_looseness


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerance `|actual - expected| <= absolute + relative * |expected|`; exact if both are 0, and
    for whole numbers."""

    relative: float
    absolute: float

    def allow(self, expected: Array) -> Array:
        """Permitted error of each element."""
        _expect_array("expected", expected)
        dtype = held_type(expected.dtype)
        if dtype is None or not dtype.is_float:
            return np.zeros(expected.shape)
        with np.errstate(all="ignore"):
            return self.absolute + self.relative * np.abs(expected.astype(np.float64))


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Result of comparing two arrays of one type within an error bound of each element; differences
    are taken where both are finite."""

    elements: int
    holds: bool = True
    """Whether every element is within its bound."""
    different: int = 0
    """Number of unequal elements (NaN equals NaN, and -0 equals 0)."""
    largest: float = 0.0
    """Largest absolute difference."""
    largest_relative: float = 0.0
    largest_ulp: float | None = None
    """Largest difference in units in the last place; None for whole numbers."""
    misplaced: int = 0
    """Number of elements where one is NaN or infinite, the other is not the same, and the bound is
    finite."""
    worst: tuple[int, ...] | None = None
    """Index of the element that exceeds its bound most, or comes closest to it; None if no element
    differs."""
    found: bool | int | float | None = None
    """Computed value of that element."""
    wanted: bool | int | float | None = None
    """Expected value of that element."""
    most: float | None = None
    """Bound of that element."""
    share: float = 0.0
    """Largest error of an element relative to its bound."""
    looseness: Looseness = dataclasses.field(default_factory=Looseness)
    """Number of elements whose bounds exceed the expected values, which test nothing."""

    @staticmethod
    def of(actual: Array, expected: Array, allowed: Array | float) -> Verdict:
        """Compares two arrays of one shape and type. `allowed` is the permitted error: one number,
        or one per element."""
        _expect_array("actual", actual)
        _expect_array("expected", expected)
        if actual.shape != expected.shape or actual.dtype != expected.dtype:
            raise DmlcError(
                f"arrays of one type and shape are compared, and these are "
                f"{actual.dtype}{list(actual.shape)} and {expected.dtype}{list(expected.shape)}"
            )
        given = np.asarray(_expect_allowed(allowed), np.float64)
        try:
            bounds = np.broadcast_to(given, actual.shape)
        except ValueError:
            raise DmlcError(
                f"allowed has the shape {list(given.shape)}, and the arrays {list(actual.shape)}"
            ) from None
        dtype = held_type(actual.dtype)
        whole = dtype is None or not dtype.is_float
        with np.errstate(invalid="ignore"):  # Devices may leave NaNs that signal.
            a, b = actual.astype(np.float64), expected.astype(np.float64)
        # As they are: float64 does not tell the largest whole numbers apart.
        unequal = np.asarray(actual != expected) & ~(np.isnan(a) & np.isnan(b))
        looseness = find_looseness(expected, bounds)
        if not unequal.any():
            exact = None if whole else 0.0
            return Verdict(actual.size, largest_ulp=exact, looseness=looseness)
        odd = unequal & ~(np.isfinite(a) & np.isfinite(b))
        misplaced = odd & ~np.isposinf(bounds)
        with np.errstate(all="ignore"):
            difference = np.where(unequal & ~odd, np.abs(a - b), 0.0)
            relative = np.where(difference > 0, difference / np.abs(b), 0.0)
            over = np.where(unequal, difference - bounds, -np.inf)
            # Where whole numbers are too large for float64 to tell apart, a difference may be 0.
            wrong = misplaced | (unequal & np.less(bounds, 1)) if whole else misplaced
            excess = np.where(wrong, np.inf, over)
            shares = np.where(misplaced, np.inf, np.where(unequal, difference / bounds, 0.0))
        worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
        steps = None if whole else np.where(difference > 0, _steps(actual, expected), 0)
        return Verdict(
            actual.size,
            bool(excess[worst] <= 0),
            int(np.count_nonzero(unequal)),
            float(difference.max()),
            float(relative.max()),
            None if steps is None else float(steps.max()),
            int(np.count_nonzero(misplaced)),
            tuple(int(i) for i in worst),
            actual[worst].item(),
            expected[worst].item(),
            float(bounds[worst]),
            float(np.where(np.isnan(shares), np.inf, shares).max()),
            looseness,
        )

    def __str__(self) -> str:
        if self.different == 0:
            return f"exact ({self.elements:,} elements)"
        text = f"{self.different:,} of {self.elements:,} elements differ"
        text += f", by {self.largest:.3g} at most"
        if self.largest_ulp is not None:
            text += f" ({self.largest_relative:.3g} relative, {self.largest_ulp:.0f} ulp)"
        if self.misplaced:
            text += f"; NaN or infinity out of place at {self.misplaced:,}"
        if self.holds:
            return text
        must = f"it may be off by {self.most:.3g} at most" if self.most else "it must be exact"
        place = f" at {list(self.worst)}" if self.worst else ""
        found, wanted = (
            f"{v:.9g}" if isinstance(v, float) else str(v) for v in (self.found, self.wanted)
        )
        return f"{text};{place} it is {found} where {wanted} is expected: {must}"


def find_within(actual: Array, expected: Array, allowed: Array | float) -> Array:
    """Whether each element is within its bound, in the sense of `compare`."""
    same = np.asarray(actual == expected)
    dtype = held_type(actual.dtype)
    with np.errstate(invalid="ignore"):  # Devices may leave NaNs that signal.
        a, b = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= allowed)
    if dtype is None or not dtype.is_float:
        near &= np.greater_equal(allowed, 1)
    near |= np.isposinf(allowed)
    return same | near | (np.isnan(a) & np.isnan(b))


def _expect_array(parameter: str, given: object) -> None:
    array: Array = expect(parameter, given, np.ndarray, "an array")
    if held_type(array.dtype) is None:
        raise DmlcError(f"{parameter} holds {array.dtype}, which no tensor can hold")


def _expect_allowed(given: object) -> Array | float:
    """Checks that the permitted errors are numbers."""
    if isinstance(given, np.ndarray) and cast(Array, given).dtype.kind in "iuf":
        return cast(Array, given)
    expected = "a number, or an array of numbers"
    return float(expect("allowed", cast("object", given), (float, int, np.floating), expected))


def _steps(a: Array, b: Array) -> Array:
    """Distance of two floats in representable values of their type; both zeros are one value."""
    return np.abs(_rank(a) - _rank(b))


def _rank(values: Array) -> Array:
    """Ordinal of every float, in the order of values and without gaps."""
    bits = values.view(f"i{values.dtype.itemsize}").astype(np.int64)
    lowest = -(1 << (8 * values.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits).astype(np.longdouble)
