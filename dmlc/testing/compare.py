"""Compares results with the reference's, and says how near they must be.

The bounds are those of the numerics: what only selects, moves and compares is exact; arithmetic
may differ by a few units in the last place of the type it is computed in; transcendental functions
by 1e-5 relative; a result stored in 16 bits by one rounding more. NaN and infinities must agree in
place, always.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from dmlc.ir import Apply, Cast, Function
from dmlc.scalars import Array, DataType, data_type_of

_ARITHMETIC_ULP = 4
_TRANSCENDENTAL = 1e-5
_NEAR_ZERO = 1e-6
_EXACT = frozenset(("neg", "abs", "sign", "min", "max", "floor", "ceil", "round", "trunc"))
"""Operations on floats that round nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """`|actual - expected| <= absolute + relative * |expected|`; exact where both are 0."""

    relative: float
    absolute: float

    @property
    def exact(self) -> bool:
        return self.relative == 0 and self.absolute == 0

    def __str__(self) -> str:
        if self.exact:
            return "exactly equal"
        return f"within {self.relative:.2g} relative, or {self.absolute:.2g}"


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """How near two arrays of one type are; differences are taken where both are finite."""

    elements: int
    different: int
    """Places that are not equal (NaN equals NaN, and -0 equals 0)."""
    largest: float
    """The largest absolute difference."""
    largest_relative: float
    misplaced: int
    """Places where one is NaN or infinite and the other is not the same."""
    worst: tuple[int, ...] | None
    """Where the largest excess over the tolerance is, if anything differs."""
    within: bool
    """Whether every place keeps to the tolerance."""

    def __str__(self) -> str:
        if self.different == 0:
            return f"exact ({self.elements:,} elements)"
        text = (
            f"{self.different:,} of {self.elements:,} elements differ, "
            f"by {self.largest:.3g} at most ({self.largest_relative:.3g} relative)"
        )
        if self.misplaced:
            text += f"; NaN or infinity out of place at {self.misplaced:,}"
        return text


def find_tolerance(function: Function, result: str) -> Tolerance:
    """How near a backend must come to the reference for a result, from the operations that the
    function computes with."""
    stage = function.stage(result)
    if stage is None:
        raise KeyError(result)
    dtype = stage.dtype
    relative = absolute = 0.0
    for instruction in (i for s in function.stages for i in s.body.instructions):
        if isinstance(instruction, Cast) and instruction.dtype.is_float:
            relative = max(relative, _epsilon(instruction.dtype) / 2)
        if not isinstance(instruction, Apply):
            continue
        operation = instruction.operation
        computed = instruction.dtype
        if operation.transcendental:
            relative, absolute = max(relative, _TRANSCENDENTAL), _NEAR_ZERO
        elif computed.is_float and operation.name not in _EXACT:
            relative += _ARITHMETIC_ULP * _epsilon(computed)
            absolute = max(absolute, float(np.finfo(computed.dtype).tiny))
    if not dtype.is_float:
        return Tolerance(0.0, 0.0)
    if relative and dtype.is_storage_only:
        relative += _epsilon(dtype)
        absolute = max(absolute, _smallest(dtype))
    return Tolerance(relative, absolute)


def _epsilon(dtype: DataType) -> float:
    bits = {DataType.FLOAT64: 52, DataType.FLOAT32: 23, DataType.FLOAT16: 10, DataType.BFLOAT16: 7}
    return 2.0 ** -bits[dtype]


def _smallest(dtype: DataType) -> float:
    """The smallest positive value a type holds."""
    return {DataType.FLOAT16: 2.0**-24, DataType.BFLOAT16: 2.0**-133}[dtype]


def compare(actual: Array, expected: Array, tolerance: Tolerance) -> Comparison:
    """Compares two arrays of one shape and type, place by place."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise ValueError(f"{actual.dtype}{actual.shape} and {expected.dtype}{expected.shape}")
    dtype = data_type_of(actual.dtype)
    whole = dtype is None or not dtype.is_float
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    if whole:
        # Compared as they are: float64 does not tell the largest apart.
        unequal = np.asarray(actual != expected)
    else:
        unequal = (a != b) & ~(np.isnan(a) & np.isnan(b))
    misplaced = unequal & ~(np.isfinite(a) & np.isfinite(b))
    count = int(np.count_nonzero(unequal))
    if count == 0:
        return Comparison(actual.size, 0, 0.0, 0.0, 0, None, True)
    with np.errstate(all="ignore"):
        difference = np.where(unequal & ~misplaced, np.abs(a - b), 0.0)
        relative = np.where(difference > 0, difference / np.abs(b), 0.0)
        allowed = tolerance.absolute + tolerance.relative * np.abs(b)
        excess = np.where(misplaced, np.inf, np.where(unequal, difference - allowed, -np.inf))
    place = np.unravel_index(int(np.argmax(excess)), excess.shape)
    worst = tuple(int(i) for i in place)
    return Comparison(
        actual.size,
        count,
        float(difference.max()),
        float(relative.max()),
        int(np.count_nonzero(misplaced)),
        worst,
        not whole and bool(excess[place] <= 0),
    )
