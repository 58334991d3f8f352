"""Conversion of ONNX's names, sizes and types to those of the IR."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlc.building.functions import Tensor
from dmlc.ir import Extent
from dmlc.onnx.importing.nodes import Value
from dmlc.scalars import Array, DataType
from dmlc.sizes import Size, as_extent, parse_size
from dmlc.source import DmlcError, UnsupportedError

_RENAMED = {"FLOAT": "FLOAT32", "DOUBLE": "FLOAT64"}
"""The data types that have other names in ONNX."""


def spell_domain(text: str) -> str:
    """Canonical domain of operators; ONNX's own has two names."""
    return "" if text == "ai.onnx" else text


def spell_name(name: str) -> str:
    """Name that the IR can spell."""
    found = re.sub(r"[^A-Za-z0-9_]+", "_", name)
    return f"_{found}" if found[:1].isdigit() else found


def spell_symbol(text: str, known: Container[str]) -> Extent:
    """Open size from ONNX's text: a formula of `known` symbols, or one symbol; any other text
    becomes one symbol with a similar name, such as the `a*b` of a model that has no axis of size
    `a`."""
    try:
        size = parse_size(text)
    except DmlcError:
        return _spell_alone(text)
    symbols = size.symbols if isinstance(size, Size) else ()
    alone = as_extent(size) == text.strip() and text.strip().isidentifier()
    return as_extent(size) if alone or all(s in known for s in symbols) else _spell_alone(text)


def _spell_alone(text: str) -> str:
    return spell_name(text[:_LONGEST]) or "_"


_LONGEST = 200
"""The most characters of a name that a symbol is called after."""


def read_type(number: int, what: str = "it") -> DataType:
    """Data type for a number of ONNX. Raises `UnsupportedError`."""
    names = {value: name for name, value in onnx.TensorProto.DataType.items()}
    shown = names.get(number, f"the type {number}")
    wanted = _RENAMED.get(shown, shown)
    found = next((dtype for dtype in DataType if dtype.name == wanted), None)
    if found is None or found is DataType.INDEX:
        raise UnsupportedError(f"{what} holds {shown}, which no tensor can hold")
    return found


def describe_type(value: Value | None) -> onnx.TypeProto:
    """Type of a value, in ONNX's form; empty if unknown."""
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, Tensor):
        number = helper.np_dtype_to_tensor_dtype(value.dtype.dtype)
        sizes = [extent if isinstance(extent, int) else None for extent in value.extents]
        return helper.make_tensor_type_proto(number, sizes)
    return helper.make_tensor_type_proto(number_type(value), value.shape)


def number_type(array: Array) -> int:
    """ONNX's number for the type of an array. Objects are open sizes."""
    if array.dtype == np.dtype(object):
        return onnx.TensorProto.INT64
    if array.dtype.kind == "U":
        return onnx.TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def read_attribute(attribute: onnx.AttributeProto) -> object:
    """Attribute as a Python value: strings decoded, tensors as arrays."""
    try:
        value: Any = helper.get_attribute_value(attribute)
    except ValueError:
        raise DmlcError(f"its attribute '{attribute.name}' has no type") from None
    if isinstance(value, bytes):
        return _decode(value, attribute.name)
    if isinstance(value, onnx.TensorProto):
        return read_tensor(value, f"its attribute '{attribute.name}'")
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [_decode(text, attribute.name) for text in value]
    return list(cast("Sequence[object]", value)) if isinstance(value, Sequence) else value


def _decode(text: bytes, name: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise DmlcError(f"its attribute '{name}' holds a text that is no UTF-8") from None


_DENSEST = 8
"""The most elements that a byte of a tensor holds."""


def read_tensor(tensor: onnx.TensorProto, what: str) -> Array:
    """Constant of a model as an array; strings have NumPy's type. Raises `DmlcError` if its data
    does not fit its type and sizes."""
    sizes = list(tensor.dims)
    held = len(tensor.raw_data) + sum(
        len(getattr(tensor, name))
        for name in ("float_data", "int32_data", "string_data", "int64_data", "double_data",
                     "uint64_data")
    )  # fmt: skip
    if any(size < 0 for size in sizes) or math.prod(sizes) > _DENSEST * held:
        raise DmlcError(f"{what} has the sizes {sizes}, and not as many elements")
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
        return array.astype(np.str_) if array.dtype == np.dtype(object) else array
    except (KeyError, OverflowError, TypeError, ValueError, onnx.checker.ValidationError):
        raise DmlcError(f"what {what} holds is not of its type and its sizes, {sizes}") from None


def check_texts(model: Any, what: str) -> None:
    """Raises `DmlcError` if a string in a message of ONNX is not UTF-8."""
    pending: list[Any] = [model]
    while pending:
        message = pending.pop()
        try:
            fields: Any = message.ListFields()
        except UnicodeDecodeError:
            raise _no_text(message, what) from None
        for field, value in fields:
            if field.type == field.TYPE_MESSAGE:
                pending.extend(value if field.is_repeated else [value])
            elif field.type == field.TYPE_STRING:
                texts: Any = value if field.is_repeated else [value]
                if any(isinstance(text, bytes) for text in texts):
                    raise _no_text(message, what)


def _no_text(message: Any, what: str) -> DmlcError:
    kind = message.DESCRIPTOR.name.removesuffix("Proto").lower()
    return DmlcError(f"{what} has a {kind} with a name or another text that is no UTF-8")
