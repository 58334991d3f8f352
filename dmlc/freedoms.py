"""Freedoms that languages give to devices, and their effects: numbers drawn by a seed.

A number depends on the seed, on its purpose, and on the values it is for, so that a run can be
repeated. One instruction always does the same to the same values; two instructions may differ.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib

import numpy as np
import numpy.typing as npt

from dmlc.scalars import Array, DataType

Numbers = npt.NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


class Freedom(enum.StrEnum):
    """Freedom of devices, by the word that enables it."""

    REMAINDERS = "remainders"
    """Quotients and remainders of signed integers are arbitrary if an operand is negative, and all
    of them if the divisor is 0."""
    SPECIAL = "special"
    """For floats of a width that no mode keeps: comparisons with NaN hold or not; a minimum, a
    maximum and a choice by a comparison of its sides give either side; zeros have either sign."""
    DENORMALS = "denormals"
    """Each instruction reads denormals as zeros or not, and flushes its results or not."""
    DIVISION = "division"
    """Quotients and square roots have the largest errors that the device promises."""
    CONTRACTION = "contraction"
    """A product that is added is rounded first or not, except in the value of a `precise` local."""
    CONVERSIONS = "conversions"
    """A float that is NaN or out of range converts to any integer."""
    MEMORY = "memory"
    """Uninitialised memory contains anything, such as another tensor's values; reads out of bounds
    give anything, and stores out of bounds are dropped."""
    ORDER = "order"
    """Groups run in any order, and so do kernels without dependencies. Items of a group have none
    between two barriers: a race between them is an error."""


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """Freedoms that a simulated device takes in a launch."""

    seed: int
    freedoms: frozenset[Freedom]
    special: tuple[int, ...]
    """Widths of floats, in bits, whose NaN, infinities and signs of zeros a mode keeps."""
    quotient: int
    """Whole units in the last place by which a rounded quotient may be moved."""
    root: int
    """The same for a square root."""


def draw_key(seed: int, *names: object) -> int:
    """32-bit hash of some names."""
    text = " ".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())


def mix(values: Array, key: int) -> Numbers:
    """64-bit hash of each value, by its bits."""
    flat = np.ascontiguousarray(values)
    if flat.dtype.kind == "b":
        flat = flat.view(np.uint8)
    made = flat.view(f"u{flat.dtype.itemsize}").astype(np.uint64)
    made = (made + np.uint64(key)) * _ODD
    made = (made ^ (made >> _HALF)) * _OTHER
    return made ^ (made >> _HALF)


def mix_all(operands: tuple[Array, ...], key: int) -> Numbers:
    """64-bit hash of each row of values."""
    made = mix(operands[0], key)
    for number, operand in enumerate(operands[1:], 1):
        made = made + mix(operand, key + number) * _ODD
    return mix(made, key)


def draw_bits(count: int, dtype: np.dtype[np.generic], key: int) -> Array:
    """Values of a type with random bits."""
    made = mix(np.arange(count), key)
    if dtype.kind == "b":
        return (made & np.uint64(1)).astype(np.bool_)
    return made.astype(f"u{dtype.itemsize}").view(dtype)


def flush(values: Array) -> Array:
    """Values with denormals replaced by zeros of their sign."""
    tiny = np.finfo(values.dtype).tiny
    return np.where(np.abs(values) < tiny, np.copysign(values.dtype.type(0), values), values)


def step_away(values: Array, numbers: Numbers, most: int) -> Array:
    """Values moved by up to `most` units in the last place; zeros, infinities and NaN stay, and no
    other value becomes one of them."""
    if most < 1:
        return values
    width = values.dtype.itemsize
    bits = values.view(f"i{width}")
    steps = (numbers % np.uint64(2 * most + 1)).astype(f"i{width}") - most
    moved = np.asarray(bits + steps).view(values.dtype)
    kept = np.isfinite(values) & np.isfinite(moved) & (values != 0) & (moved != 0)
    kept &= np.signbit(values) == np.signbit(moved)
    return np.where(kept, moved, values)


def width_of(dtype: DataType) -> int:
    """Width in bits of the floats that a type is computed in."""
    return 8 * dtype.compute.bytes
