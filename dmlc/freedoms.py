"""What a device may do as it likes, and what it does then: numbers that a seed draws.

A number depends on the seed, on what it is for, and on the values it is for, so that a run can be
repeated. One instruction does the same to the same values always; two instructions may differ.
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
    """What a language leaves to devices, by the word that switches it on."""

    REMAINDERS = "remainders"
    """Quotients and remainders of signed integers are any number where an operand is negative, and
    all of them where the divisor is 0."""
    SPECIAL = "special"
    """Of floats of a width that no mode keeps: comparisons with NaN hold or do not, a minimum, a
    maximum and a choice by a comparison of its sides is either side, zeros have either sign."""
    DENORMALS = "denormals"
    """Each instruction takes denormals for zeros or does not, and gives zeros for them or not."""
    DIVISION = "division"
    """Quotients and square roots are as far off as the device promises at most."""
    CONTRACTION = "contraction"
    """A product that is added is rounded first or not, but for what makes the value of a `precise`
    local."""
    CONVERSIONS = "conversions"
    """A float that is NaN or out of range becomes any integer."""
    MEMORY = "memory"
    """Memory that nobody has written holds anything, such as what another tensor left there; what
    is read beyond a buffer is anything, and what is stored there is dropped."""
    ORDER = "order"
    """Groups run in any order, and so do kernels that wait for none of the others. What items of a
    group do between two barriers needs none: a race between them is a fault."""


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """What a simulated device takes in a launch."""

    seed: int
    freedoms: frozenset[Freedom]
    special: tuple[int, ...]
    """The widths of floats, in bits, whose NaN, infinities and signs of zeros a mode keeps."""
    quotient: int
    """The whole units of the last place that a rounded quotient may be moved by."""
    root: int
    """The same of a square root."""


def draw_key(seed: int, *names: object) -> int:
    """A number of 32 bits for what some names name."""
    text = " ".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())


def mix(values: Array, key: int) -> Numbers:
    """A number of 64 bits for each value, by its bits."""
    flat = np.ascontiguousarray(values)
    if flat.dtype.kind == "b":
        flat = flat.view(np.uint8)
    made = flat.view(f"u{flat.dtype.itemsize}").astype(np.uint64)
    made = (made + np.uint64(key)) * _ODD
    made = (made ^ (made >> _HALF)) * _OTHER
    return made ^ (made >> _HALF)


def mix_all(operands: tuple[Array, ...], key: int) -> Numbers:
    """A number of 64 bits for each row of values."""
    made = mix(operands[0], key)
    for number, operand in enumerate(operands[1:], 1):
        made = made + mix(operand, key + number) * _ODD
    return mix(made, key)


def draw_bits(count: int, dtype: np.dtype[np.generic], key: int) -> Array:
    """So many values of a type whose bits are anything."""
    made = mix(np.arange(count), key)
    if dtype.kind == "b":
        return (made & np.uint64(1)).astype(np.bool_)
    return made.astype(f"u{dtype.itemsize}").view(dtype)


def flush(values: Array) -> Array:
    """Zeros of their signs in place of denormals."""
    tiny = np.finfo(values.dtype).tiny
    return np.where(np.abs(values) < tiny, np.copysign(values.dtype.type(0), values), values)


def step_away(values: Array, numbers: Numbers, most: int) -> Array:
    """Values that are up to so many units of the last place off; zeros, infinities and NaN stay,
    and none becomes another of these."""
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
    """The width of the floats that a type is computed in, in bits."""
    return 8 * dtype.compute.bytes
