"""Spelling of data types, numbers, tables and sizes in MLIR. Integers are signless; signs belong to
operations. BOOL is `i1`, in tensors too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from dmlc.ir import Extent, Table
from dmlc.scalars import Array, DataType, Kind

_FLOATS: Mapping[DataType, str] = MappingProxyType(
    {
        DataType.FLOAT64: "f64",
        DataType.FLOAT32: "f32",
        DataType.FLOAT16: "f16",
        DataType.BFLOAT16: "bf16",
    }
)


def spell_type(dtype: DataType) -> str:
    """Type of an element."""
    if dtype.kind is Kind.INDEX:
        return "index"
    if dtype.kind is Kind.BOOL:
        return "i1"
    return _FLOATS.get(dtype) or f"i{8 * dtype.bytes}"


def spell_tensor(dtype: DataType, extents: Iterable[Extent]) -> str:
    """Type of a tensor: `tensor<2x?xf32>`, where the second size is dynamic."""
    sizes = (str(e) if isinstance(e, int) else "?" for e in extents)
    return f"tensor<{'x'.join((*sizes, spell_type(dtype)))}>"


def spell_number(dtype: DataType, value: bool | int | float) -> str:
    """Literal without its type. MLIR reads decimals as FLOAT64 and rounds these, so a FLOAT32 has
    enough digits to survive double rounding."""
    if dtype.kind is Kind.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    number = float(value)
    if not math.isfinite(number):
        return _spell_bits(np.array(number, dtype.dtype))
    text = repr(number)
    if dtype is DataType.FLOAT32:
        short = str(np.float32(number))
        text = short if np.float32(float(short)) == np.float32(number) else text
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{mark}{exponent}"


def _spell_bits(number: Array) -> str:
    """Float by its bits, in hexadecimal, as infinities and NaN are written."""
    return f"0x{number.astype(number.dtype.newbyteorder('>')).tobytes().hex().upper()}"


def name_number(dtype: DataType, value: bool | int | float) -> str:
    """Name of a constant: `c2` as an index, `true`, `f32_0.5`, `i32_-1`."""
    if dtype.kind is Kind.BOOL:
        return spell_number(dtype, value)
    if dtype.kind is Kind.INDEX:
        return f"c{int(value)}"
    finite = not dtype.is_float or math.isfinite(value)
    text = spell_number(dtype, value) if finite else str(float(value))
    return f"{spell_type(dtype)}_{text.replace('+', '')}"


def list_bytes(table: Table) -> bytes:
    """Elements of a table in memory, little-endian."""
    values = table.array()
    return values.astype(values.dtype.newbyteorder("<")).tobytes()


def spell_table(table: Table) -> str:
    """Table as a dense constant, in hexadecimal. Booleans are spelled out, since their memory
    layout differs between versions of MLIR."""
    kind = spell_tensor(table.dtype, table.extents)
    if 0 in table.extents:
        return f"dense<> : {kind}"
    if table.dtype.kind is Kind.BOOL:
        return f"dense<{_nest(table.array())}> : {kind}"
    return f'dense<"0x{list_bytes(table).hex().upper()}"> : {kind}'


def _nest(values: Array) -> str:
    if not values.ndim:
        return "true" if values else "false"
    return f"[{', '.join(map(_nest, values))}]"
