"""Inputs for sweeps of the transcendental functions, and how far results are from float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dmlc.scalars import OPERATIONS, Array

TRANSCENDENTAL = [o.name for o in OPERATIONS.values() if o.transcendental]

SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e-45,
     -1e-45, 1.17549435e-38, 3.4028235e38, -3.4028235e38, 88.72283, 88.72284, -87.33655, -103.97208,
     16384.0, 8388608.0, 16777216.0, 0.99999994, 1.0000001, -0.99999994, 1e18, 1e-30], np.float32,
)  # fmt: skip


def make_inputs(count: int) -> Array:
    """Random bit patterns, ranges where the functions do most, multiples of pi/2, specials."""
    random = np.random.default_rng(7)
    patterns = random.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    quarter_turns = (np.arange(1, count // 8) * np.pi / 2).astype(np.float32)
    near_one = 1 + random.uniform(-1, 1, count // 8) * 10.0 ** random.uniform(-7, 0, count // 8)
    ranges = [
        random.uniform(-bound, bound, count // 8).astype(np.float32) for bound in (1.2, 10, 110)
    ]
    parts = [
        patterns.view(np.float32), *ranges, quarter_turns, near_one.astype(np.float32),
        np.nextafter(quarter_turns, np.float32(0)), SPECIAL,
    ]  # fmt: skip
    return np.concatenate(parts)


def reference(name: str) -> Callable[..., Array]:
    if name == "sigmoid":
        # Without the cancellation of 1 / (1 + exp(-x)) where that overflows.
        return lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))
    return OPERATIONS[name].evaluate


def error_in_ulp(actual: Array, expected: Array) -> Array:
    """The distance from float64 values in units of the last place of float32; infinite where
    NaN, an infinity or the sign of a zero is out of place."""
    rounded = expected.astype(np.float32)
    finite = np.isfinite(rounded)
    unit = np.spacing(np.abs(np.where(finite, rounded, 1)).astype(np.float32)).astype(np.float64)
    error = np.where(finite, np.abs(actual.astype(np.float64) - expected) / unit, 0.0)
    wrong = np.isnan(rounded) != np.isnan(actual)
    wrong |= np.isinf(rounded) & (actual != rounded)
    wrong |= (rounded == 0) & (actual == 0) & (np.signbit(rounded) != np.signbit(actual))
    return np.where(wrong, np.inf, error)


def make_arguments(name: str, count: int) -> list[Array]:
    """One array per operand, of `count` values and more; every special value meets every other."""
    x = make_inputs(count)
    if OPERATIONS[name].arity == 1:
        return [x]
    order = np.random.default_rng(3).permutation(len(x))
    powers = np.random.default_rng(4).uniform(-40, 40, len(x)).astype(np.float32)
    grid = np.meshgrid(SPECIAL, SPECIAL)
    return [
        np.concatenate([x, np.abs(x), grid[0].ravel()]),
        np.concatenate([x[order], powers, grid[1].ravel()]),
    ]
