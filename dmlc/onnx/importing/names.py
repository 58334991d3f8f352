"""Names, sizes and types of ONNX as the IR has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlc.building.functions import Tensor
from dmlc.ir import Extent
from dmlc.onnx.importing.nodes import Value
from dmlc.scalars import DataType
from dmlc.sizes import as_extent, parse_size
from dmlc.source import DmlcError, UnsupportedError

_RENAMED = {"FLOAT": "FLOAT32", "DOUBLE": "FLOAT64"}
"""The data types that have other names in ONNX."""


def spell_domain(text: str) -> str:
    """A domain of operators: that of ONNX itself has two names."""
    return "" if text == "ai.onnx" else text


def spell_name(name: str) -> str:
    """A name as the IR can spell it."""
    found = re.sub(r"[^A-Za-z0-9_]+", "_", name)
    return f"_{found}" if found[:1].isdigit() else found


def spell_symbol(text: str) -> Extent:
    """A size that is left open: what ONNX has for it where that is a size, or a symbol like it."""
    try:
        return as_extent(parse_size(text))
    except DmlcError:
        return spell_name(text)


def read_type(number: int, what: str = "it") -> DataType:
    """The data type that a number of ONNX stands for. Raises `UnsupportedError`."""
    names = {value: name for name, value in onnx.TensorProto.DataType.items()}
    shown = names.get(number, f"the type {number}")
    wanted = _RENAMED.get(shown, shown)
    found = next((dtype for dtype in DataType if dtype.name == wanted), None)
    if found is None or found is DataType.INDEX:
        raise UnsupportedError(f"{what} holds {shown}, which no tensor can hold")
    return found


def describe_type(value: Value | None) -> onnx.TypeProto:
    """The type of a value, as ONNX describes one; an empty one where there is none."""
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, Tensor):
        number = helper.np_dtype_to_tensor_dtype(value.dtype.dtype)
        sizes = [extent if isinstance(extent, int) else None for extent in value.extents]
        return helper.make_tensor_type_proto(number, sizes)
    dtype = np.dtype(np.int64) if value.dtype == np.dtype(object) else value.dtype
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), value.shape)


def read_attribute(attribute: onnx.AttributeProto) -> object:
    """An attribute as Python has it: texts decoded, tensors as arrays."""
    value: Any = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [text.decode() for text in value]
    return list(cast("Sequence[object]", value)) if isinstance(value, Sequence) else value
