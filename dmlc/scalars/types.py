"""Data types, and conversions between them.

Conversion from float to integer truncates and saturates, NaN giving 0; between integers it wraps,
but a position saturates too, so that what lies beyond all ends stays there.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dmlc.parameters import wrong_kind
from dmlc.source import DmlcError, unknown_name

try:
    import ml_dtypes
except ModuleNotFoundError:
    # Not every Python has the package: Pyodide 0.29, which runs in browsers, has not. Without it
    # NumPy keeps the bits, and `convert` alone knows what they mean.
    _bfloat16 = np.dtype([("bfloat16", "V2")])
else:
    _bfloat16 = np.dtype(ml_dtypes.bfloat16)

Array = npt.NDArray[Any]


class Kind(enum.Enum):
    """Kind of number that a data type holds."""

    FLOAT = "float"
    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    BOOL = "bool"
    INDEX = "index"


class DataType(enum.Enum):
    """A data type: long name as DirectML spells it, short name as oneDNN spells it.

    `INDEX` is the type of positions and sizes inside the compiler; tensors never hold it.
    """

    FLOAT64 = ("f64", Kind.FLOAT, np.dtype(np.float64))
    FLOAT32 = ("f32", Kind.FLOAT, np.dtype(np.float32))
    FLOAT16 = ("f16", Kind.FLOAT, np.dtype(np.float16))
    BFLOAT16 = ("bf16", Kind.FLOAT, _bfloat16)
    INT8 = ("s8", Kind.SIGNED, np.dtype(np.int8))
    INT16 = ("s16", Kind.SIGNED, np.dtype(np.int16))
    INT32 = ("s32", Kind.SIGNED, np.dtype(np.int32))
    INT64 = ("s64", Kind.SIGNED, np.dtype(np.int64))
    UINT8 = ("u8", Kind.UNSIGNED, np.dtype(np.uint8))
    UINT16 = ("u16", Kind.UNSIGNED, np.dtype(np.uint16))
    UINT32 = ("u32", Kind.UNSIGNED, np.dtype(np.uint32))
    UINT64 = ("u64", Kind.UNSIGNED, np.dtype(np.uint64))
    BOOL = ("boolean", Kind.BOOL, np.dtype(np.bool_))
    INDEX = ("index", Kind.INDEX, np.dtype(np.int64))

    def __init__(self, short: str, kind: Kind, dtype: np.dtype[Any]) -> None:
        self.short = short
        self.kind = kind
        self.dtype = dtype
        """NumPy type of an array that stores it."""
        self.bytes = dtype.itemsize
        """Bytes per element in memory (1 for BOOL)."""
        self.is_float = kind is Kind.FLOAT
        self.is_integer = kind in (Kind.SIGNED, Kind.UNSIGNED)
        """A tensor's integer, signed or not; neither BOOL nor INDEX."""
        self.is_storage_only = self.is_float and self.bytes == 2
        """Whether values are widened on load and rounded on store."""

    # There is one object of each type; an enumeration's own hash is that of its name, in Python.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"DataType.{self.name}"

    @classmethod
    def _missing_(cls, value: object) -> DataType:
        """`DataType("f32")`, `DataType(np.float32)`."""
        return as_data_type("value", value)

    @property
    def compute(self) -> DataType:
        """Type that values of this type are computed in: the two 16-bit floats widen to FLOAT32."""
        return DataType.FLOAT32 if self.is_storage_only else self


LARGEST_INDEX = int(np.iinfo(DataType.INDEX.dtype).max)
"""Largest index: conversions to INDEX saturate there."""

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)

TENSOR_TYPES: tuple[DataType, ...] = tuple(t for t in DataType if t is not DataType.INDEX)
"""Types that a tensor may have."""

_NAMES: Mapping[str, DataType] = MappingProxyType(
    {t.name: t for t in TENSOR_TYPES}
    | {t.short: t for t in TENSOR_TYPES}
    | {"BOOLEAN": DataType.BOOL, "bool": DataType.BOOL}
)
_FOLDED: Mapping[str, DataType] = MappingProxyType({n.lower(): t for n, t in _NAMES.items()})


def data_type_names() -> tuple[str, ...]:
    """Accepted spellings, for messages."""
    return tuple(_NAMES)


def find_data_type(name: str) -> DataType | None:
    """Data type with that long or short name (`FLOAT32`, `f32`; case does not matter)."""
    return _FOLDED.get(name.lower())


def as_data_type(parameter: str, given: object) -> DataType:
    """Data type of a tensor from a caller's argument: itself, one of its names, or NumPy's type or
    dtype for it. Python's own `int` and `float` have no width, and are refused. Raises
    `DmlcError`."""
    found: DataType | None = None
    if isinstance(given, DataType):
        found = given
    elif isinstance(given, str):
        found = find_data_type(given)
        if found is None:
            raise DmlcError(unknown_name("data type", given, data_type_names(), code="E0203"))
    elif given is bool:
        found = DataType.BOOL
    elif isinstance(given, np.dtype) or (isinstance(given, type) and issubclass(given, np.generic)):
        found = held_type(np.dtype(cast("npt.DTypeLike", given)))
    else:
        expected = "a data type: a dmlc.DataType, a name such as 'FLOAT32', or a NumPy dtype"
        raise wrong_kind(parameter, expected, cast("object", given))
    if found is None or found is DataType.INDEX:
        shown = given.name if isinstance(given, DataType) else np.dtype(cast("Any", given))
        raise DmlcError(
            f"{parameter} is {shown}, which no tensor can hold",
            notes=[f"tensors hold {', '.join(t.name for t in TENSOR_TYPES)}"],
            code="E0802",
        )
    return found


@functools.lru_cache(maxsize=64)
def held_type(dtype: np.dtype[Any]) -> DataType | None:
    """Data type of an array of that dtype, or None if no tensor can hold it."""
    return data_type_of(dtype) if dtype.kind in "biufV" else None


def data_type_of(dtype: npt.DTypeLike) -> DataType | None:
    """Data type of a NumPy dtype (of any byte order), or None."""
    found = np.dtype(dtype).newbyteorder("=")
    return next((t for t in TENSOR_TYPES if t.dtype == found), None)


def convert(values: Array, to: DataType) -> Array:
    """`values` converted as the language's `cast` does it (see the module's rules).

    Floats are rounded once, to nearest even, from float64 and from integers below 2**53.
    """
    source = np.asarray(values)
    if _bfloat16.names and source.dtype == _bfloat16:
        source = (source.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if to is DataType.BFLOAT16 and (source.dtype.itemsize > 2 or _bfloat16.names):
        # ml_dtypes goes through float32, which would round a second time.
        with np.errstate(all="ignore"):
            odd = _round_to_odd(source.astype(np.float64))
            return _upper_halves(odd) if _bfloat16.names else odd.astype(to.dtype)
    if to.kind is Kind.BOOL:
        return source != 0
    if to.kind in (Kind.SIGNED, Kind.UNSIGNED, Kind.INDEX) and source.dtype.kind not in "biu":
        return _saturate(source, to)
    if to.kind is Kind.INDEX and source.dtype == np.uint64:
        source = np.minimum(source, np.uint64(LARGEST_INDEX))
    with np.errstate(all="ignore"):
        return source.astype(to.dtype)


def find_same(left: Array, right: Array) -> Array:
    """Mask of the elements that two arrays have in common: -0 differs from 0, and all NaN are
    equal."""
    same = left == right
    if left.dtype.kind != "f":
        return same
    return same & (np.signbit(left) == np.signbit(right)) | (np.isnan(left) & np.isnan(right))


@functools.cache
def integer_limits(dtype: DataType) -> tuple[int, int]:
    """Smallest and largest whole number of a type."""
    found = np.iinfo(dtype.dtype)
    return int(found.min), int(found.max)


@dataclasses.dataclass(frozen=True, slots=True)
class FloatLimits:
    """Limits of a floating type."""

    epsilon: float
    """Distance of 1 from the next number."""
    smallest: float
    """Smallest normal number."""
    step: float
    """Smallest denormal."""
    largest: float
    exponents: tuple[int, int]
    """Exponents of the smallest normal number and of the largest, as powers of 2."""


_DIGITS = {
    DataType.FLOAT64: 53, DataType.FLOAT32: 24, DataType.FLOAT16: 11, DataType.BFLOAT16: 8,
}  # fmt: skip
"""Binary digits of the significands of floating types; the other bits are those of exponents."""


@functools.cache
def float_limits(dtype: DataType) -> FloatLimits:
    """Limits of a floating type."""
    digits = _DIGITS[dtype]
    most = (1 << (8 * dtype.bytes - digits - 1)) - 1
    least, epsilon = 1 - most, 2.0 ** (1 - digits)
    largest = (2 - epsilon) * 2.0**most
    return FloatLimits(epsilon, 2.0**least, epsilon * 2.0**least, largest, (least, most))


def is_float32(value: float) -> bool:
    """Whether FLOAT32 represents the value exactly; all NaN are equal."""
    if not math.isfinite(value):
        return True
    return abs(value) <= _LARGEST_FLOAT32 and float(np.float32(value)) == value


def _round_to_odd(values: Array) -> Array:
    """float64 to float32, inexact values to the neighbour whose last bit is odd.

    A second rounding, to a type of 22 bits or fewer, then gives what one rounding would have.
    """
    near = values.astype(np.float32)
    bits = near.view(np.uint32)
    back = near.astype(np.float64)
    inexact = (back != values) & np.isfinite(values) & np.isfinite(near)
    toward_zero = np.where(np.abs(back) > np.abs(values), bits - np.uint32(1), bits)
    return np.where(inexact, toward_zero | np.uint32(1), bits).view(np.float32)


def _upper_halves(values: Array) -> Array:
    """Rounding of float32 to BFLOAT16 by bits, to nearest even; NaN keeps its sign."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    quiet = bits & np.uint32(1 << 31) | np.uint32(0x7FC00000)
    found = np.where(np.isnan(values), quiet, rounded) >> np.uint32(16)
    return found.astype(np.uint16).view(_bfloat16)


def _saturate(values: Array, to: DataType) -> Array:
    limits = np.iinfo(to.dtype)
    wide = np.trunc(values.astype(np.float64))
    # The largest integer of 64 bits is no float64, so the bounds are compared, never converted.
    low, high = wide <= float(limits.min), wide >= float(limits.max)
    inside = np.where(low | high | np.isnan(wide), 0.0, wide).astype(to.dtype)
    bounded = np.where(low, to.dtype.type(limits.min), inside)
    return np.where(high, to.dtype.type(limits.max), bounded)


CONVERSIONS: tuple[tuple[str, float | bool, str, float | bool], ...] = (
    ("FLOAT32", 2.9, "INT32", 2),
    ("FLOAT32", -2.9, "INT32", -2),
    ("FLOAT32", float("nan"), "INT32", 0),
    ("FLOAT32", float("inf"), "INT8", 127),
    ("FLOAT32", -1.0, "UINT8", 0),
    ("FLOAT64", 1e300, "UINT64", 18446744073709551615),
    ("INT32", 300, "UINT8", 44),
    ("INT8", -1, "UINT16", 65535),
    ("UINT64", 18446744073709551615, "INDEX", 9223372036854775807),
    ("INT32", 16777217, "FLOAT32", 16777216.0),
    ("FLOAT64", 1e39, "FLOAT32", float("inf")),
    ("FLOAT32", -0.0, "BOOL", False),
    ("FLOAT32", float("nan"), "BOOL", True),
    ("BOOL", True, "FLOAT32", 1.0),
)
"""Edge cases of `cast`: a value of a type, and its value in another."""
