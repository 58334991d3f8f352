"""Conversion of PyTorch's tensors: data types, and CPU tensors as arrays over the same memory."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from dmlc.binding import TensorDesc
from dmlc.runtime.arrays import packed
from dmlc.scalars import DataType
from dmlc.source import UnsupportedError, join_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dmlc.runtime.arrays import Array

TORCH_TYPES: Mapping[DataType, torch.dtype] = MappingProxyType({
    DataType.BOOL: torch.bool,
    DataType.INT8: torch.int8,
    DataType.INT16: torch.int16,
    DataType.INT32: torch.int32,
    DataType.INT64: torch.int64,
    DataType.UINT8: torch.uint8,
    DataType.UINT16: torch.uint16,
    DataType.UINT32: torch.uint32,
    DataType.UINT64: torch.uint64,
    DataType.FLOAT16: torch.float16,
    DataType.BFLOAT16: torch.bfloat16,
    DataType.FLOAT32: torch.float32,
    DataType.FLOAT64: torch.float64,
})  # fmt: skip
"""PyTorch's type for each that a tensor may hold."""

DATA_TYPES: Mapping[torch.dtype, DataType] = MappingProxyType(
    {theirs: ours for ours, theirs in TORCH_TYPES.items()}
)


def data_type_of(dtype: torch.dtype) -> DataType:
    """Data type for a `torch.dtype`. Raises `UnsupportedError`."""
    found = DATA_TYPES.get(dtype)
    if found is None:
        raise UnsupportedError(
            f"a tensor holds {dtype}, which no tensor of dmlc can hold",
            notes=[f"tensors hold {join_words([str(t) for t in DATA_TYPES])}"],
        )
    return found


def describe(tensor: torch.Tensor) -> TensorDesc:
    """Description of a tensor, with its strides if it is not packed. The stride of a dimension of
    one element is never used, and is given as in a packed tensor."""
    dtype, sizes = data_type_of(tensor.dtype), tuple(tensor.shape)
    if tensor.is_contiguous() or tensor.numel() == 0:
        return TensorDesc(dtype, sizes)
    tight = zip(sizes, tensor.stride(), packed(sizes), strict=True)
    return TensorDesc(dtype, sizes, [t if size == 1 else step for size, step, t in tight])


def view_array(tensor: torch.Tensor) -> Array:
    """CPU tensor as an array over the same memory."""
    if tensor.dtype is torch.bfloat16:
        # NumPy's own types have no bfloat16, and PyTorch hands out no others.
        return tensor.detach().view(torch.int16).numpy().view(DataType.BFLOAT16.dtype)
    return tensor.detach().numpy()
