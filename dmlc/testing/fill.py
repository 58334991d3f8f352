"""Data for a call's inputs: ordinary values, and those that kernels often get wrong."""

from __future__ import annotations

import math

import numpy as np

from dmlc.binding import TensorDesc
from dmlc.scalars import Array, DataType, float_limits
from dmlc.testing.case import Call, lay_out

KINDS = ("random", "special", "denormal", "large", "ties", "far")
"""Kinds of data: values about 1; zeros of both signs, infinities, NaN and limits; values about the
smallest normal number; values up to the largest; few values that recur; values on one side of 0,
with similar magnitudes."""
MILD = "mild"
"""Kind of data with values from 0.5 to 1.5, where the error bounds of most formulas are small."""

_SPECIAL = (
    0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-7, -1e-7,
    100.25, -100.25, 3e4, 65504.0, 6e-8, 1e-40, -1e-40,
)  # fmt: skip


def fill(call: Call, kind: str, random: np.random.Generator) -> dict[str, Array]:
    """Arrays for the inputs of a call, with its strides. `kind` is one of `KINDS`, or `MILD`."""
    return {name: draw_values(desc, kind, random) for name, desc in call.inputs.items()}


def draw_values(desc: TensorDesc, kind: str, random: np.random.Generator) -> Array:
    """Array of this description, with its strides."""
    sizes = desc.shape
    dtype = desc.data_type
    if dtype is DataType.BOOL:
        return lay_out(random.integers(0, 2, sizes).astype(np.bool_), desc)
    with np.errstate(all="ignore"):
        values = _draw_floats if dtype.is_float else _draw_integers
        return lay_out(values(dtype, sizes, kind, random), desc)


def _draw_floats(
    dtype: DataType, sizes: tuple[int, ...], kind: str, random: np.random.Generator
) -> Array:
    values = random.standard_normal(sizes)
    if kind == MILD:
        values = random.uniform(0.5, 1.5, sizes)
    elif kind == "denormal":
        values *= 2.0 ** (float_limits(dtype).exponents[0] + random.integers(-4, 5, sizes))
    elif kind == "large":
        # Half of them ordinary: sums of large values only come to infinities.
        far = random.uniform(0, float_limits(dtype).exponents[1], sizes)
        values = np.where(random.random(sizes) < 0.5, values, np.sign(values) * 2.0**far)
    elif kind == "far":
        values += random.choice([-1.0, 1.0]) * 10.0 ** random.uniform(2, 4)
    elif kind == "ties":
        values = random.choice([-1.0, 0.0, 0.5, 1.0, 2.0], sizes)
    elif random.random() < 0.3:
        # Variances and the like have no sign.
        values = np.abs(values)
    found = values.astype(dtype.dtype)
    if kind != "special":
        return found
    among = random.choice(np.array(_SPECIAL), sizes).astype(dtype.dtype)
    often = float(random.choice([0.05, 0.3, 1.0]))
    return np.where(random.random(sizes) < often, among, found).astype(dtype.dtype)


def _draw_integers(
    dtype: DataType, sizes: tuple[int, ...], kind: str, random: np.random.Generator
) -> Array:
    limits = np.iinfo(dtype.dtype)
    if kind == "large":
        return random.integers(limits.min, limits.max, sizes, dtype.dtype.type, endpoint=True)
    if kind == "special":
        far = [0, 1, 2, limits.max, limits.max - 1, limits.min, limits.min + 1]
        return random.choice(np.array(far, dtype.dtype), sizes)
    # Small ones: they may be positions.
    low, high = (-1, 2) if kind == "ties" else (-4, 12)
    return random.integers(max(low, limits.min), high, sizes, dtype.dtype.type)
