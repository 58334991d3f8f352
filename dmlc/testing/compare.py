"""Elementwise comparison of arrays within an error bound per element. NaN and infinities must
agree, except where the bound is infinite. `bounds` computes the bounds."""

from __future__ import annotations

import dataclasses
from typing import cast

import numpy as np

from dmlc.parameters import expect
from dmlc.scalars import Array, held_type
from dmlc.source import DmlcError


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
class Comparison:
    """Result of comparing two arrays of one type; differences are taken where both are finite."""

    elements: int
    different: int
    """Number of unequal elements (NaN equals NaN, and -0 equals 0)."""
    largest: float
    """Largest absolute difference."""
    largest_relative: float
    largest_ulp: float | None
    """Largest difference in units in the last place; None for whole numbers."""
    misplaced: int
    """Number of elements where one is NaN or infinite, the other is not the same, and the bound is
    finite."""
    worst: tuple[int, ...] | None
    """Index of the element that exceeds its bound most; None if no element differs."""
    within: bool
    """Whether every element is within its bound."""

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
    """Compares two arrays of one shape and type. `allowed` is the permitted error: one number, or
    one per element."""
    _expect_array("actual", actual)
    _expect_array("expected", expected)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise DmlcError(
            f"arrays of one type and shape are compared, and these are "
            f"{actual.dtype}{list(actual.shape)} and {expected.dtype}{list(expected.shape)}"
        )
    try:
        np.broadcast_to(_expect_allowed(allowed), actual.shape)
    except ValueError:
        raise DmlcError(
            f"allowed has the shape {list(np.shape(allowed))}, and the arrays {list(actual.shape)}"
        ) from None
    dtype = held_type(actual.dtype)
    whole = dtype is None or not dtype.is_float
    with np.errstate(invalid="ignore"):  # Devices may leave NaNs that signal.
        a, b = actual.astype(np.float64), expected.astype(np.float64)
    # As they are: float64 does not tell the largest whole numbers apart.
    unequal = np.asarray(actual != expected) & ~(np.isnan(a) & np.isnan(b))
    odd = unequal & ~(np.isfinite(a) & np.isfinite(b))
    misplaced = odd & ~np.isposinf(allowed)
    count = int(np.count_nonzero(unequal))
    if count == 0:
        return Comparison(actual.size, 0, 0.0, 0.0, None if whole else 0.0, 0, None, True)
    with np.errstate(all="ignore"):
        difference = np.where(unequal & ~odd, np.abs(a - b), 0.0)
        relative = np.where(difference > 0, difference / np.abs(b), 0.0)
        over = np.where(unequal, difference - allowed, -np.inf)
        # Where whole numbers are too large for float64 to tell apart, a difference may be 0.
        wrong = misplaced | (unequal & np.less(allowed, 1)) if whole else misplaced
        excess = np.where(wrong, np.inf, over)
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
        bool(excess[place] <= 0),
    )


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
