"""Constants of a model in files beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import external_data_helper, helper

from dmlc.files import open_regular
from dmlc.onnx.importing.names import read_type
from dmlc.source import DmlcError


def load_external(model: onnx.ModelProto, folder: Path) -> None:
    """Reads external constants into the model. Raises `DmlcError` if a file is missing, or its
    bytes are not those of a constant of this type and these sizes."""
    for tensor in _list_tensors(model):
        if not external_data_helper.uses_external_data(tensor):
            continue
        what = f"the constant '{tensor.name}'"
        size, begin, place = _measure(tensor, what)
        try:
            path = folder / place
            with open_regular(path) as file:
                left = os.fstat(file.fileno()).st_size - begin
            if left < size:
                raise DmlcError(
                    f"{what} takes {size:,} bytes from {begin:,} on of '{path}', which has "
                    f"{max(left, 0):,} there"
                )
            loader: Any = external_data_helper
            loader.load_external_data_for_tensor(tensor, str(folder))
        except (ValueError, OSError, onnx.checker.ValidationError) as error:
            raise DmlcError(f"cannot read {what} from '{place}': {error}") from None
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _measure(tensor: onnx.TensorProto, what: str) -> tuple[int, int, str]:
    """Number of bytes of a constant, their offset, and their file."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    numbers: dict[str, int] = {}
    for key in ("offset", "length"):
        text = told.get(key, "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise DmlcError(f"{what} lies in a file with the {key} '{text}', which is no number")
        numbers[key] = int(text)
    read_type(tensor.data_type, what)
    count = math.prod(tensor.dims)
    if any(size < 0 for size in tensor.dims):
        raise DmlcError(f"{what} has the sizes {list(tensor.dims)}")
    size = count * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    if numbers["length"] not in (0, size):
        raise DmlcError(f"{what} takes {size:,} bytes, and {numbers['length']:,} are said")
    if not told.get("location"):
        raise DmlcError(f"{what} lies in a file without a name")
    # Without it, all that is left of the file would be read.
    del tensor.external_data[:]
    for key, value in {**told, "length": str(size)}.items():
        tensor.external_data.add(key=key, value=value)
    return size, numbers["offset"], told["location"]


def _list_tensors(message: Any) -> Iterator[Any]:
    """Tensors of a message and of its submessages."""
    pending: list[Any] = [message]
    while pending:
        found = pending.pop()
        if isinstance(found, onnx.TensorProto):
            yield found
            continue
        for field, value in found.ListFields():
            if field.type == field.TYPE_MESSAGE:
                pending.extend(value if field.is_repeated else [value])
