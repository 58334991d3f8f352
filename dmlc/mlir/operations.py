"""Scalar operations of the IR in MLIR's dialects `arith` and `math`.

`scalars` defines the results. Where an operation of MLIR gives poison, its operands are replaced: a
divisor of 0, a shift by the width or more, a float beyond an integer type. Minima and maxima are
comparisons and selections: `arith.minimumf` orders zeros, and `arith.minnumf` drops NaN.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dmlc.mlir.region import Region, Value
from dmlc.scalars import LARGEST_INDEX, OPERATIONS, DataType, Domain, Kind, Operation
from dmlc.scalars import DataType as T
from dmlc.source import UnsupportedError


def _column(dtype: DataType) -> int:
    if dtype.is_float:
        return 0
    return 1 if dtype.kind in (Kind.SIGNED, Kind.INDEX) else 2


def _find(name: str, x: Value) -> str:
    """MLIR's operation on values of this type."""
    return OPERATIONS[name].mlir[_column(x.dtype)]


def write_operation(region: Region, operation: Operation, given: Sequence[Value]) -> Value:
    """Writes an operation on values of one type, and returns its result."""
    name = operation.name
    write = (_ON_FLOATS if given[0].dtype.is_float else _ON_INTEGERS).get(name)
    if write is not None:
        return write(region, *given)
    plain, formula = _find(name, given[0]), OPERATIONS[name].formula
    if plain:
        # A predicate is of the dialect of the comparison that has it.
        return (region.apply if "." in plain else region.compare)(plain, *given)
    if formula is None or not given[0].dtype.is_float:
        raise UnsupportedError(f"MLIR's dialects arith and math have no '{name}'")
    return _Floats(region).compute(formula, *given)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Floats(Domain[Value]):
    """Domain of formulas over floats, and their comparisons."""

    region: Region

    def type_of(self, value: Value) -> DataType:
        return value.dtype

    def apply(self, name: str, *given: Value) -> Value:
        return write_operation(self.region, OPERATIONS[name], given)

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        return self.region.select(condition, then, otherwise)

    def cast(self, value: Value, dtype: DataType) -> Value:
        return write_conversion(self.region, value, dtype)

    def literal(self, value: int | float, dtype: DataType) -> Value:
        return self.region.constant(float(value), dtype)


# Floats -----------------------------------------------------------------------------------


def _choose(predicate: str) -> Callable[[Region, Value, Value], Value]:
    """Selection of the second of two floats if the comparison holds or it is NaN, and else of the
    first, which may be NaN too."""

    def write(region: Region, x: Value, y: Value) -> Value:
        if _is_number(x):
            return region.select(region.compare(f"u{predicate}", y, x), y, x)
        second = region.compare(f"o{predicate}", y, x)
        if not _is_number(y):
            second = region.apply("arith.ori", second, _isnan(region, y))
        return region.select(second, y, x)

    return write


def _is_number(value: Value) -> bool:
    """Whether a float is known not to be NaN."""
    return value.constant is not None and value.constant == value.constant


def _sign(region: Region, x: Value) -> Value:
    # Zeros and NaN are what they were.
    kept = region.compare("ueq", x, region.constant(0.0, x.dtype))
    one = region.apply("math.copysign", region.constant(1.0, x.dtype), x)
    return region.select(kept, x, one)


def _isnan(region: Region, x: Value) -> Value:
    return region.compare("uno", x, x)


def _isinf(region: Region, x: Value) -> Value:
    infinity = region.constant(float("inf"), x.dtype)
    return region.compare("oeq", region.apply("math.absf", x), infinity)


def _round_float16(region: Region, x: Value) -> Value:
    return region.convert("arith.extf", region.convert("arith.truncf", x, T.FLOAT16), x.dtype)


def _round_bfloat16(region: Region, x: Value) -> Value:
    """Rounding to nearest even, by bits: compilers that compute BFLOAT16 in FLOAT32 remove
    conversions to it and back."""
    bits = region.convert("arith.bitcast", x, T.UINT32)
    shift, one = region.constant(16, T.UINT32), region.constant(1, T.UINT32)
    odd = region.apply("arith.andi", region.apply("arith.shrui", bits, shift), one)
    below_half = region.constant(0x7FFF, T.UINT32)
    carried = region.apply("arith.addi", bits, region.apply("arith.addi", odd, below_half))
    kept = region.apply("arith.andi", carried, region.constant(0xFFFF0000, T.UINT32))
    rounded = region.convert("arith.bitcast", kept, x.dtype)
    return region.select(_isnan(region, x), x, rounded)


_ON_FLOATS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        "min": _choose("lt"),
        "max": _choose("gt"),
        "sign": _sign,
        "isnan": _isnan,
        "isinf": _isinf,
        "round_float16": _round_float16,
        "round_bfloat16": _round_bfloat16,
    }
)


# Integers, positions and truth values -----------------------------------------------------


def _divide(region: Region, x: Value, y: Value) -> Value:
    operation = _find("div", x)
    if y.constant not in (None, 0, -1):
        return region.apply(operation, x, y)
    zero, one = region.constant(0, x.dtype), region.constant(1, x.dtype)
    by_zero = region.compare("eq", y, zero)
    if x.dtype.kind is Kind.UNSIGNED:
        quotient = region.apply(operation, x, region.select(by_zero, one, y))
        return region.select(by_zero, zero, quotient)
    # The smallest number has no opposite: that wraps.
    by_minus_one = region.compare("eq", y, region.constant(-1, x.dtype))
    unsafe = region.apply("arith.ori", by_zero, by_minus_one)
    quotient = region.apply(operation, x, region.select(unsafe, one, y))
    quotient = region.select(by_minus_one, region.apply("arith.subi", zero, x), quotient)
    return region.select(by_zero, zero, quotient)


def _modulo(region: Region, x: Value, y: Value) -> Value:
    operation = _find("mod", x)
    if y.constant not in (None, 0, -1):
        return region.apply(operation, x, y)
    # The remainder is 0 by 0, by 1 and by -1 alike.
    unsafe = region.compare("eq", y, region.constant(0, x.dtype))
    if x.dtype.kind is not Kind.UNSIGNED:
        by_minus_one = region.compare("eq", y, region.constant(-1, x.dtype))
        unsafe = region.apply("arith.ori", unsafe, by_minus_one)
    return region.apply(operation, x, region.select(unsafe, region.constant(1, x.dtype), y))


def _shift(name: str) -> Callable[[Region, Value, Value], Value]:
    def write(region: Region, x: Value, y: Value) -> Value:
        width = 8 * x.dtype.bytes
        if y.constant is None or not 0 <= y.constant < width:
            y = region.apply("arith.andi", y, region.constant(width - 1, y.dtype))
        return region.apply(_find(name, x), x, y)

    return write


def _absolute(region: Region, x: Value) -> Value:
    if x.dtype.kind is Kind.UNSIGNED:
        return x
    if x.dtype.kind is not Kind.INDEX:
        return region.apply("math.absi", x)
    zero = region.constant(0, x.dtype)
    return region.apply("arith.maxsi", x, region.apply("arith.subi", zero, x))


def _integer_sign(region: Region, x: Value) -> Value:
    one = region.constant(1, x.dtype)
    limited = region.apply(_find("min", x), x, one)
    if x.dtype.kind is Kind.UNSIGNED:
        return limited
    return region.apply("arith.maxsi", limited, region.constant(-1, x.dtype))


def _negate(region: Region, x: Value) -> Value:
    return region.apply("arith.subi", region.constant(0, x.dtype), x)


def _invert(region: Region, x: Value) -> Value:
    every_bit = True if x.dtype.kind is Kind.BOOL else int(np.invert(x.dtype.dtype.type(0)))
    return region.apply("arith.xori", x, region.constant(every_bit, x.dtype))


_ON_INTEGERS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        "div": _divide,
        "mod": _modulo,
        "neg": _negate,
        "abs": _absolute,
        "sign": _integer_sign,
        "bit_not": _invert,
        "shift_left": _shift("shift_left"),
        "shift_right": _shift("shift_right"),
        "not": _invert,
    }
)


# Conversions ------------------------------------------------------------------------------


def write_conversion(region: Region, value: Value, dtype: DataType) -> Value:
    """Writes a conversion with the rules of `scalars.convert`, and returns its result."""
    source = value.dtype
    if source is dtype:
        return value
    if dtype.kind is Kind.BOOL:
        zero = region.constant(0, source)
        return region.compare("une" if source.is_float else "ne", value, zero)
    if source.is_float:
        if not dtype.is_float:
            return _saturate(region, value, dtype)
        operation = "arith.extf" if dtype.bytes > source.bytes else "arith.truncf"
        return region.convert(operation, value, dtype)
    if dtype.is_float:
        if source.kind is Kind.INDEX:
            value = region.convert("arith.index_cast", value, DataType.INT64)
        signed = source.kind in (Kind.SIGNED, Kind.INDEX)
        return region.convert("arith.sitofp" if signed else "arith.uitofp", value, dtype)
    if dtype.kind is Kind.INDEX and source is DataType.UINT64:
        value = region.apply("arith.minui", value, region.constant(LARGEST_INDEX, source))
    signed = source.kind in (Kind.SIGNED, Kind.INDEX)
    if Kind.INDEX in (source.kind, dtype.kind):
        return region.convert("arith.index_cast" if signed else "arith.index_castui", value, dtype)
    if dtype.bytes == source.bytes and source.kind is not Kind.BOOL:
        return Value(value.name, dtype)
    if dtype.bytes < source.bytes:
        return region.convert("arith.trunci", value, dtype)
    return region.convert("arith.extsi" if signed else "arith.extui", value, dtype)


def _saturate(region: Region, value: Value, dtype: DataType) -> Value:
    """Float as an integer: truncated and saturated, and 0 for NaN."""
    held = DataType.INT64 if dtype.kind is Kind.INDEX else dtype
    limits = np.iinfo(held.dtype)
    ends = (_round(limit, value.dtype) for limit in (limits.min, limits.max))
    low, high = (region.constant(end, value.dtype) for end in ends)
    below, above = region.compare("ole", value, low), region.compare("oge", value, high)
    outside = region.apply("arith.ori", region.apply("arith.ori", below, above),
                           region.compare("uno", value, value))  # fmt: skip
    inside = region.select(outside, region.constant(0.0, value.dtype), value)
    signed = held.kind is Kind.SIGNED
    found = region.convert("arith.fptosi" if signed else "arith.fptoui", inside, held)
    found = region.select(below, region.constant(int(limits.min), held), found)
    found = region.select(above, region.constant(int(limits.max), held), found)
    return write_conversion(region, found, dtype)


def _round(number: int, dtype: DataType) -> float:
    """Integer as a float of that type: a limit that the type lacks becomes the next power of
    two."""
    return float(np.asarray(number, np.float64).astype(dtype.dtype))


def write_beats(region: Region, comparison: str, value: Value, best: Value) -> Value:
    """Whether a value replaces the best so far, for `argmin` or `argmax`: NaN does so for every
    number."""
    if not value.dtype.is_float:
        return write_operation(region, OPERATIONS[comparison], (value, best))
    beats = region.compare(f"u{comparison}", value, best)
    return region.apply("arith.andi", beats, region.compare("ord", best, best))
