"""Scalar operations of the IR in MLIR's dialects `arith` and `math`.

`scalars` defines the results, those too for which an operation of MLIR gives poison. Minima and
maxima of floats are comparisons and selections: `arith.minimumf` orders zeros, and `arith.minnumf`
drops NaN.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dmlc.mlir.region import Region, Value
from dmlc.scalars import LARGEST_INDEX, OPERATIONS, DataType, Kind, Operation
from dmlc.scalars import DataType as T
from dmlc.scalars.defined import OpenDomain
from dmlc.source import UnsupportedError


def write_operation(region: Region, operation: Operation, given: Sequence[Value]) -> Value:
    """Writes an operation on values of one type, and returns its result."""
    return _Scalars(region).apply(operation.name, *given)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Scalars(OpenDomain[Value]):
    """Values of a body."""

    region: Region

    def type_of(self, value: Value) -> DataType:
        return value.dtype

    def number(self, held: Value) -> int | float | None:
        return held.constant

    def truncate(self, held: Value, dtype: DataType) -> Value:
        operation = "arith.fptosi" if dtype.kind is Kind.SIGNED else "arith.fptoui"
        return self.region.convert(operation, held, dtype)

    def plain(self, name: str, *given: Value) -> Value | None:
        dtype = given[0].dtype
        write = (_ON_FLOATS if dtype.is_float else _ON_INTEGERS).get(name)
        if write is not None:
            return write(self.region, *given)
        column = 0 if dtype.is_float else 1 if dtype.kind in (Kind.SIGNED, Kind.INDEX) else 2
        spelled = OPERATIONS[name].mlir[column]
        # A predicate is of the dialect of the comparison that has it.
        write = self.region.apply if "." in spelled else self.region.compare
        return write(spelled, *given) if spelled else None

    def apply(self, name: str, *given: Value) -> Value:
        made = self.define(OPERATIONS[name], *given)
        if made is None:
            raise UnsupportedError(f"MLIR's dialects arith and math have no '{name}'")
        return made

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        return self.region.select(condition, then, otherwise)

    def cast(self, value: Value, dtype: DataType) -> Value:
        return write_conversion(self.region, value, dtype)

    def literal(self, value: int | float, dtype: DataType) -> Value:
        return self.region.constant(float(value) if dtype.is_float else value, dtype)


# Floats -----------------------------------------------------------------------------------


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
        "isnan": _isnan,
        "isinf": _isinf,
        "round_float16": _round_float16,
        "round_bfloat16": _round_bfloat16,
    }
)


# Integers, positions and truth values -----------------------------------------------------


def _absolute(region: Region, x: Value) -> Value:
    if x.dtype.kind is not Kind.INDEX:
        return region.apply("math.absi", x)
    return region.apply("arith.maxsi", x, _negate(region, x))


def _negate(region: Region, x: Value) -> Value:
    return region.apply("arith.subi", region.constant(0, x.dtype), x)


def _invert(region: Region, x: Value) -> Value:
    every_bit = True if x.dtype.kind is Kind.BOOL else int(np.invert(x.dtype.dtype.type(0)))
    return region.apply("arith.xori", x, region.constant(every_bit, x.dtype))


_ON_INTEGERS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {"neg": _negate, "abs": _absolute, "bit_not": _invert, "not": _invert}
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
            held = DataType.INT64 if dtype.kind is Kind.INDEX else dtype
            return write_conversion(region, _Scalars(region).saturate(value, held), dtype)
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


def write_beats(region: Region, comparison: str, value: Value, best: Value) -> Value:
    """Whether a value replaces the best so far, for `argmin` or `argmax`: NaN does so for every
    number."""
    if not value.dtype.is_float:
        return write_operation(region, OPERATIONS[comparison], (value, best))
    beats = region.compare(f"u{comparison}", value, best)
    return region.apply("arith.andi", beats, region.compare("ord", best, best))
