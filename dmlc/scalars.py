"""Data types and scalar operations, one table each.

The NumPy function of an operation is its definition: the reference evaluator calls it, the
constant folder calls it, and every backend is tested against it. The rules come from IEEE 754
and the choices are: `min`, `max` propagate NaN and keep the first operand on a tie; `sign`
keeps zeros; integers wrap; integer division truncates, and dividing by zero gives 0;
conversion from float to integer truncates and saturates, NaN giving 0; between integers it
wraps, but a position saturates too, so that what lies beyond all ends stays there.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from dmlc.parameters import expect, expect_text, wrong_kind
from dmlc.source import DmlcError, UnknownNameError, unknown_name

Array = npt.NDArray[Any]


class Kind(enum.Enum):
    """What sort of number a data type holds."""

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
    BFLOAT16 = ("bf16", Kind.FLOAT, np.dtype(ml_dtypes.bfloat16))
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
        """The NumPy type of an array that stores it."""
        self.bytes = dtype.itemsize
        """Bytes per element in memory (1 for BOOL)."""
        self.is_float = kind is Kind.FLOAT
        self.is_integer = kind in (Kind.SIGNED, Kind.UNSIGNED)
        """A tensor's integer, signed or not; neither BOOL nor INDEX."""
        self.is_storage_only = self.is_float and self.bytes == 2
        """True where a value is widened on load and rounded on store."""

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
        """The type values of this type are computed in: the two 16-bit floats widen to FLOAT32."""
        return DataType.FLOAT32 if self.is_storage_only else self


LARGEST_INDEX = int(np.iinfo(DataType.INDEX.dtype).max)
"""The largest position: a conversion to INDEX of what is larger gives this."""

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)

TENSOR_TYPES: tuple[DataType, ...] = tuple(t for t in DataType if t is not DataType.INDEX)
"""The types a tensor may hold."""

_NAMES: Mapping[str, DataType] = MappingProxyType(
    {t.name: t for t in TENSOR_TYPES}
    | {t.short: t for t in TENSOR_TYPES}
    | {"BOOLEAN": DataType.BOOL, "bool": DataType.BOOL}
)
_FOLDED: Mapping[str, DataType] = MappingProxyType({n.lower(): t for n, t in _NAMES.items()})


def data_type_names() -> tuple[str, ...]:
    """Every accepted spelling, for messages."""
    return tuple(_NAMES)


def find_data_type(name: str) -> DataType | None:
    """The data type with that long or short name (`FLOAT32`, `f32`; case does not matter)."""
    return _FOLDED.get(name.lower())


def as_data_type(parameter: str, given: object) -> DataType:
    """The data type of a tensor that a caller means: itself, one of its names, or NumPy's type or
    dtype for it. Python's own `int` and `float` say no width, and so mean none. Raises `DmlcError`.
    """
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
    """The data type of an array of that dtype, or None where no tensor can hold it."""
    return data_type_of(dtype) if dtype.kind in "biufV" else None


def data_type_of(dtype: npt.DTypeLike) -> DataType | None:
    """The data type that a NumPy dtype (of any byte order) holds, or None."""
    found = np.dtype(dtype).newbyteorder("=")
    return next((t for t in TENSOR_TYPES if t.dtype == found), None)


def convert(values: Array, to: DataType) -> Array:
    """`values` converted as the language's `cast` does it (see the module's rules).

    Floats are rounded once, to nearest even, from float64 and from integers below 2**53.
    """
    source = np.asarray(values)
    if to is DataType.BFLOAT16 and source.dtype.itemsize > 2:
        # ml_dtypes goes through float32, which would round a second time.
        with np.errstate(all="ignore"):
            return _round_to_odd(source.astype(np.float64)).astype(to.dtype)
    if to.kind is Kind.BOOL:
        return source != 0
    if to.kind in (Kind.SIGNED, Kind.UNSIGNED, Kind.INDEX) and source.dtype.kind not in "biu":
        return _saturate(source, to)
    if to.kind is Kind.INDEX and source.dtype == np.uint64:
        source = np.minimum(source, np.uint64(LARGEST_INDEX))
    with np.errstate(all="ignore"):
        return source.astype(to.dtype)


def find_same(left: Array, right: Array) -> Array:
    """Where two arrays hold the same: -0 is not 0, and any NaN is the one NaN."""
    same = left == right
    if left.dtype.kind != "f":
        return same
    return same & (np.signbit(left) == np.signbit(right)) | (np.isnan(left) & np.isnan(right))


@functools.cache
def integer_limits(dtype: DataType) -> tuple[int, int]:
    """The least and the largest whole number of a type."""
    found = np.iinfo(dtype.dtype)
    return int(found.min), int(found.max)


def is_float32(value: float) -> bool:
    """Whether FLOAT32 has the very value, whichever NaN it is."""
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


def _saturate(values: Array, to: DataType) -> Array:
    limits = np.iinfo(to.dtype)
    wide = np.trunc(values.astype(np.float64))
    # The largest integer of 64 bits is no float64, so the bounds are compared, never converted.
    low, high = wide <= float(limits.min), wide >= float(limits.max)
    inside = np.where(low | high | np.isnan(wide), 0.0, wide).astype(to.dtype)
    bounded = np.where(low, to.dtype.type(limits.min), inside)
    return np.where(high, to.dtype.type(limits.max), bounded)


class Operands(enum.Enum):
    """Which operands an operation takes. All operands of one operation share one type."""

    NUMBER = "numbers"
    FLOAT = "floating-point numbers"
    FLOAT32 = "numbers of type FLOAT32"
    INTEGER = "integers"
    BOOL = "booleans"
    ANY = "values"

    def accept(self, dtype: DataType) -> bool:
        match self:
            case Operands.NUMBER:
                return dtype.kind is not Kind.BOOL
            case Operands.FLOAT:
                return dtype.is_float
            case Operands.FLOAT32:
                return dtype is DataType.FLOAT32
            case Operands.INTEGER:
                return dtype.is_integer or dtype.kind is Kind.INDEX
            case Operands.BOOL:
                return dtype.kind is Kind.BOOL
            case Operands.ANY:
                return True


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A scalar operation: one row of the table. Compared by identity."""

    name: str
    arity: int
    operands: Operands
    evaluate: Callable[..., Array]
    """NumPy arrays of one type in, one array out. Warnings are the caller's to silence."""
    gives_bool: bool = False
    transcendental: bool = False
    """True where a backend may differ from the reference by a few units in the last place."""
    symbol: str | None = None
    """The infix or prefix spelling in the operator language, if it has one."""
    rounds_to: DataType | None = None
    """The 16-bit type whose values alone the result takes, as storing and loading it would: what
    `cast(x, FLOAT16)` does. Passes make such operations too."""
    internal: bool = False
    """True where the operator language has no name for it: passes alone make it."""

    def __repr__(self) -> str:
        return f"Operation({self.name})"

    def result_type(self, operand: DataType) -> DataType:
        """The type of the result where the operands have type `operand`."""
        return DataType.BOOL if self.gives_bool else operand


def _integral(x: Array) -> bool:
    return x.dtype.kind in "iu"


def _are_natural(x: Array, y: Array) -> bool:
    """Whether many numbers that are not negative are divided by one that is greater than 0: as most
    positions are."""
    return y.size == 1 and x.size > 1 and y.item() > 0 and x.min().item() >= 0


def _divide(x: Array, y: Array) -> Array:
    if not _integral(x):
        return np.divide(x, y)
    if _are_natural(x, y):
        return np.floor_divide(x, y)
    zero = y == 0
    divisor = np.where(zero, y.dtype.type(1), y)
    # Floor division and remainder round towards minus infinity: step back to truncate. MIN // -1
    # wraps to MIN, with a remainder of 0.
    quotient: Array = np.floor_divide(x, divisor)
    inexact = (np.remainder(x, divisor) != 0) & ((x < 0) != (divisor < 0))
    return np.where(zero, x.dtype.type(0), np.asarray(quotient + inexact.astype(x.dtype)))


def _modulo(x: Array, y: Array) -> Array:
    if not _integral(x):
        return np.fmod(x, y)
    if _are_natural(x, y):
        # NumPy divides by one number fast, and takes long over a remainder.
        return np.asarray(x - np.floor_divide(x, y) * y)
    zero = y == 0
    return np.where(zero, x.dtype.type(0), np.fmod(x, np.where(zero, y.dtype.type(1), y)))


def _power(x: Array, y: Array) -> Array:
    """`pow` of IEEE 754. NumPy takes the square root where one exponent of 0.5 is for all, which is
    another of a negative infinity, and of -0: each element has an exponent of its own."""
    x, y = np.broadcast_arrays(x, y)
    return np.asarray(np.power(x.ravel(), y.ravel()).reshape(x.shape))


def _minimum(x: Array, y: Array) -> Array:
    if _integral(x):
        return np.minimum(x, y)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(y < x, y, x)).astype(x.dtype)


def _maximum(x: Array, y: Array) -> Array:
    if _integral(x):
        return np.maximum(x, y)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(y > x, y, x)).astype(x.dtype)


def _sign(x: Array) -> Array:
    return np.asarray(np.where(x == 0, x, np.sign(x)))


def _absolute(x: Array) -> Array:
    return np.abs(x)


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=x.dtype)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _multiply_add(x: Array, y: Array, z: Array) -> Array:
    """x * y + z of FLOAT32, rounded once. More digits than that, as the reference has, stay."""
    if x.dtype != np.float32:
        return np.asarray(x * y + z)
    product, added = x.astype(np.float64) * y, z.astype(np.float64)
    whole = np.asarray(product + added)
    result = whole.astype(np.float32)
    # Rounding twice differs from rounding once where FLOAT64 gives what is as near to two
    # neighbours in FLOAT32: half of the bits that go, or any below the smallest normal number.
    tie = (whole.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    tie |= (np.abs(result) <= np.float32(2**-126)) & (whole != 0)
    if tie.any():
        parts = np.broadcast_arrays(product, added, whole)
        result[tie] = _round_once(*(part[tie] for part in parts))
    return result


def _round_once(product: Array, added: Array, whole: Array) -> Array:
    """What rounding a sum to FLOAT64 loses decides between neighbours in FLOAT32 that are as near:
    it is kept in the last bit, which rounding to odd sets."""
    back = whole - product
    lost = (product - (whole - back)) + (added - back)
    bits = whole.view(np.int64)
    inexact = (lost != 0) & np.isfinite(whole) & np.isfinite(lost) & (bits & 1 == 0)
    nearer = np.where((lost > 0) == (whole > 0), 1, -1)
    return np.where(inexact, bits + nearer, bits).view(np.float64).astype(np.float32)


def _round_to(dtype: DataType) -> Callable[[Array], Array]:
    return lambda x: convert(x, dtype).astype(x.dtype)


def _bits(y: Array) -> Array:
    """A shift distance, taken modulo the width as GPUs do."""
    return y & y.dtype.type(y.dtype.itemsize * 8 - 1)


def _shift_left(x: Array, y: Array) -> Array:
    return np.left_shift(x, _bits(y))


def _shift_right(x: Array, y: Array) -> Array:
    return np.right_shift(x, _bits(y))


def _table() -> dict[str, Operation]:
    number, floating, integer = Operands.NUMBER, Operands.FLOAT, Operands.INTEGER
    boolean, anything = Operands.BOOL, Operands.ANY
    rows = [
        Operation("add", 2, number, np.add, symbol="+"),
        Operation("sub", 2, number, np.subtract, symbol="-"),
        Operation("mul", 2, number, np.multiply, symbol="*"),
        Operation("fma", 3, Operands.FLOAT32, _multiply_add, internal=True),
        Operation("div", 2, number, _divide, symbol="/"),
        Operation("div_nearest", 2, floating, np.divide, internal=True),
        Operation("mod", 2, number, _modulo, symbol="%"),
        Operation("neg", 1, number, np.negative, symbol="-"),
        Operation("abs", 1, number, _absolute),
        Operation("sign", 1, number, _sign),
        Operation("min", 2, number, _minimum),
        Operation("max", 2, number, _maximum),
        Operation("eq", 2, anything, np.equal, gives_bool=True, symbol="=="),
        Operation("ne", 2, anything, np.not_equal, gives_bool=True, symbol="!="),
        Operation("lt", 2, number, np.less, gives_bool=True, symbol="<"),
        Operation("le", 2, number, np.less_equal, gives_bool=True, symbol="<="),
        Operation("gt", 2, number, np.greater, gives_bool=True, symbol=">"),
        Operation("ge", 2, number, np.greater_equal, gives_bool=True, symbol=">="),
        Operation("and", 2, boolean, np.logical_and, gives_bool=True, symbol="&&"),
        Operation("or", 2, boolean, np.logical_or, gives_bool=True, symbol="||"),
        Operation("not", 1, boolean, np.logical_not, gives_bool=True, symbol="!"),
        Operation("floor", 1, floating, np.floor),
        Operation("ceil", 1, floating, np.ceil),
        Operation("round", 1, floating, np.rint),
        Operation("trunc", 1, floating, np.trunc),
        Operation("sqrt", 1, floating, np.sqrt),
        Operation("rsqrt", 1, floating, _rsqrt, transcendental=True),
        Operation("isnan", 1, floating, np.isnan, gives_bool=True),
        Operation("isinf", 1, floating, np.isinf, gives_bool=True),
        Operation("bit_and", 2, integer, np.bitwise_and),
        Operation("bit_or", 2, integer, np.bitwise_or),
        Operation("bit_xor", 2, integer, np.bitwise_xor),
        Operation("bit_not", 1, integer, np.invert),
        Operation("shift_left", 2, integer, _shift_left),
        Operation("shift_right", 2, integer, _shift_right),
    ]
    transcendental: list[tuple[str, int, Callable[..., Array]]] = [
        ("exp", 1, np.exp), ("exp2", 1, np.exp2), ("expm1", 1, np.expm1),
        ("log", 1, np.log), ("log2", 1, np.log2), ("log1p", 1, np.log1p),
        ("pow", 2, _power), ("sin", 1, np.sin), ("cos", 1, np.cos), ("tan", 1, np.tan),
        ("asin", 1, np.arcsin), ("acos", 1, np.arccos), ("atan", 1, np.arctan),
        ("atan2", 2, np.arctan2), ("sinh", 1, np.sinh), ("cosh", 1, np.cosh),
        ("tanh", 1, np.tanh), ("asinh", 1, np.arcsinh), ("acosh", 1, np.arccosh),
        ("atanh", 1, np.arctanh), ("erf", 1, _erf), ("sigmoid", 1, _sigmoid),
    ]  # fmt: skip
    rows += [
        Operation(name, 1, Operands.FLOAT32, _round_to(dtype), rounds_to=dtype, internal=True)
        for name, dtype in (
            ("round_float16", DataType.FLOAT16), ("round_bfloat16", DataType.BFLOAT16),
        )
    ]  # fmt: skip
    rows += [
        Operation(name, arity, floating, function, transcendental=True)
        for name, arity, function in transcendental
    ]
    return {row.name: row for row in rows}


OPERATIONS: Mapping[str, Operation] = MappingProxyType(_table())
"""Every scalar operation by name. `select(condition, a, b)` and `cast` are not here: their
operands do not share one type, so both IRs spell them as instructions of their own."""

GRADIENT_MARKS: Mapping[str, Operation] = MappingProxyType(
    {
        "stop_gradient": Operation("stop_gradient", 1, Operands.FLOAT, lambda x: x),
        "with_gradient": Operation(
            "with_gradient", 3, Operands.FLOAT, lambda value, x, slope: value, internal=True
        ),
    }
)
"""Operations that give their first operand and say something to differentiation alone, by name.

The derivative of `stop_gradient(x)` is 0. `with_gradient(value, x, slope)` moves with x by `slope`,
and with `value` by 1. Functions of the tensor IR have them until `transform.simplify` drops them,
which is before anything is lowered or exported.
"""

COMBINERS: Mapping[str, Operation] = MappingProxyType(
    {"sum": OPERATIONS["add"], "product": OPERATIONS["mul"], "min": OPERATIONS["min"],
     "max": OPERATIONS["max"], "any": OPERATIONS["or"], "all": OPERATIONS["and"]}
)  # fmt: skip
"""What a reduction folds its values with, by the reduction's name."""


ROUNDINGS: Mapping[DataType, Operation] = MappingProxyType(
    {o.rounds_to: o for o in OPERATIONS.values() if o.rounds_to is not None}
)
"""The operation that rounds as storing a value in a 16-bit type does."""


def combiner_identity(combiner: str, dtype: DataType) -> bool | int | float:
    """The value an empty reduction gives: 0 for sum, +inf for a float min, and so on."""
    expect("dtype", dtype, DataType, "a dmlc.DataType")
    match expect_text("combiner", combiner):
        case "sum":
            return 0.0 if dtype.is_float else 0
        case "product":
            return 1.0 if dtype.is_float else 1
        case "any":
            return False
        case "all":
            return True
        case "min":
            return math.inf if dtype.is_float else int(np.iinfo(dtype.dtype).max)
        case "max":
            return -math.inf if dtype.is_float else int(np.iinfo(dtype.dtype).min)
        case _:
            raise UnknownNameError(unknown_name("combiner", combiner, COMBINERS, code="E0204"))
