"""Values to compute with: ordinary ones, and every one that is special."""

from __future__ import annotations

import zlib

import numpy as np

from dmlc.scalars import Array, DataType

_FLOATS = (
    0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-7, -1e-7,
    100.25, -100.25, 3e4, 6e-8, 1e-40, -1e-40,
)  # fmt: skip


def special_values(dtype: DataType) -> Array:
    """Zeros, infinities, NaN, halves and denormals; or bounds and small numbers."""
    if dtype is DataType.BOOL:
        return np.array([False, True])
    if dtype.is_float:
        return np.array(_FLOATS).astype(dtype.dtype)
    limits = np.iinfo(dtype.dtype)
    values = [0, 1, 2, 3, 5, limits.max, limits.max - 1, limits.min, limits.min + 1]
    return np.array(values + ([-1, -2] if limits.min else [7]), dtype.dtype)


def sample(dtype: DataType, shape: tuple[int, ...], seed: str) -> Array:
    """Random values, the same for the same seed, with special ones among them."""
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    if dtype is DataType.BOOL:
        return random.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        values = (random.normal(size=shape) * 3).astype(dtype.dtype)
    else:
        limits = np.iinfo(dtype.dtype)
        values = random.integers(limits.min, limits.max, shape, dtype.dtype, endpoint=True)
    special = special_values(dtype)
    chosen = random.random(shape) < 0.3
    return np.where(chosen, random.choice(special, shape), values).astype(dtype.dtype)


def sample_pairs(dtype: DataType, count: int, seed: str) -> tuple[Array, Array]:
    """Two arrays in which every special value meets every other, and equals meet."""
    left, right = sample(dtype, (count,), f"{seed}/a"), sample(dtype, (count,), f"{seed}/b")
    special = special_values(dtype)
    first, second = (side.ravel() for side in np.meshgrid(special, special))
    used = min(count, first.size)
    left[:used], right[:used] = first[:used], second[:used]
    right[used : used + 64] = left[used : used + 64]
    return left, right
