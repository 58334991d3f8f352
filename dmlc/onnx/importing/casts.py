"""Operators of ONNX that convert types, quantization included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.tensors import map_elements
from dmlc.ir import Extent
from dmlc.onnx.importing.names import read_type
from dmlc.onnx.importing.nodes import Node, Rule, Value, dtype_of, extents_of
from dmlc.scalars import DataType, convert
from dmlc.source import DmlcError, UnsupportedError


def cast_tensor(node: Node, tensor: Tensor, dtype: DataType) -> Tensor:
    """Tensor converted to another type."""
    if tensor.dtype is dtype:
        return tensor
    return map_elements(node.builder, node.name, lambda x: x.cast(dtype.compute), tensor,
                        dtype=dtype)  # fmt: skip


def _cast(node: Node) -> Tensor:
    return cast_tensor(node, node.tensor(0), read_type(node.integer("to")))


def _cast_like(node: Node) -> Value:
    value, dtype = node.value(0), dtype_of(node.value(1))
    if isinstance(value, np.ndarray) and value.dtype != object:
        node.hold(value.size * dtype.bytes)
        return convert(value, dtype)
    return cast_tensor(node, node.tensor(0), dtype)


def _bit_cast(node: Node) -> Tensor:
    tensor, dtype = node.tensor(0), read_type(node.integer("to"))
    if tensor.dtype is dtype:
        return tensor
    if not (tensor.dtype.is_integer and dtype.is_integer and tensor.dtype.bytes == dtype.bytes):
        raise UnsupportedError(f"the bits of {tensor.dtype.name} cannot be read as {dtype.name}")
    return cast_tensor(node, tensor, dtype)


# Quantisation ---------------------------------------------------------------------------------


def _align(node: Node, x: Tensor, value: Value, axis: int, block: int) -> tuple[Extent, ...]:
    """Sizes of a scale or a zero point that broadcast to its tensor: one number for all, for each
    index along an axis, or for each block of these."""
    extents = extents_of(value)
    if all(extent == 1 for extent in extents):
        return (1,) * x.rank
    if not block and len(extents) == 1:
        return tuple(extents[0] if k == axis else 1 for k in range(x.rank))
    if len(extents) != x.rank:
        raise DmlcError("its scale has other axes than its tensor")
    return extents


def _read_aligned(
    at: Point, tensor: Tensor, extents: Sequence[Extent], axis: int, block: int
) -> Scalar:
    """Scale or zero point for an element."""
    if tensor.rank == 0:
        return at.read(tensor)
    if len(extents) == tensor.rank:
        own = [
            at.constant(0, DataType.INDEX) if e == 1 else at.indices[k] / block
            if block and k == axis else at.indices[k]
            for k, e in enumerate(extents)
        ]  # fmt: skip
        return at.read(tensor, *own)
    if tensor.extents == (1,):
        return at.read(tensor, 0)
    return at.read(tensor, at.indices[axis])


def _parameters(node: Node, x: Tensor) -> tuple[int, int]:
    axis = node.integer("axis")
    return (axis % x.rank if x.rank else 0), node.integer("block_size")


def _limits(dtype: DataType) -> tuple[int, int]:
    found = np.iinfo(dtype.dtype)
    return int(found.min), int(found.max)


def round_into(value: Scalar, zero: Scalar | None, dtype: DataType) -> Scalar:
    """Number rounded to an integer type, offset by a zero point and saturated."""
    moved = value.apply("round")
    if zero is not None:
        moved = moved + zero.cast(moved.dtype)
    low, high = _limits(dtype)
    return moved.apply("max", low).apply("min", high).cast(dtype)


def _quantize(node: Node) -> Tensor:
    x, scale, zero = node.tensor(0), node.tensor(1), node.optional(2)
    chosen = node.integer("output_dtype")
    dtype = zero.dtype if zero is not None else read_type(chosen) if chosen else DataType.UINT8
    if not dtype.is_integer:
        raise UnsupportedError(f"it quantises to {dtype.name}")
    axis, block = _parameters(node, x)
    shape = _align(node, x, scale, axis, block)

    def element(at: Point) -> Scalar:
        value = at.read(x, *at.indices)
        step = _read_aligned(at, scale, shape, axis, block)
        if not value.dtype.is_float:
            value = value.cast(step.dtype)
        offset = None if zero is None else _read_aligned(at, zero, shape, axis, block)
        return round_into(value / step.cast(value.dtype), offset, dtype)

    return node.builder.compute(node.name, x.extents, element, dtype)


def _dequantize(node: Node) -> Tensor:
    x, scale, zero = node.tensor(0), node.tensor(1), node.optional(2)
    axis, block = _parameters(node, x)
    shape = _align(node, x, scale, axis, block)
    chosen = node.integer("output_dtype")
    dtype = read_type(chosen) if chosen else scale.dtype

    def element(at: Point) -> Scalar:
        step = _read_aligned(at, scale, shape, axis, block)
        value = at.read(x, *at.indices).cast(DataType.INT32)
        if zero is not None:
            value = value - _read_aligned(at, zero, shape, axis, block).cast(DataType.INT32)
        return (value.cast(step.dtype) * step).cast(dtype.compute)

    return node.builder.compute(node.name, x.extents, element, dtype)


RULES: Mapping[str, Rule] = {
    "BitCast": _bit_cast,
    "Cast": _cast,
    "CastLike": _cast_like,
    "DequantizeLinear": _dequantize,
    "QuantizeLinear": _quantize,
}
