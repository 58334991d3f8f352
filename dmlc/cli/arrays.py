"""Array files of the command line: `.npy` in, `.npy` out. Pickled objects are never read.

NumPy's format has no name for bfloat16: `numpy.save` writes such an array as two plain bytes per
element. So two plain bytes are read as bfloat16, as are 16-bit integers for a BFLOAT16 tensor;
results in bfloat16 are written as plain bytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import dmlc
from dmlc import ir
from dmlc.binding import ir_name
from dmlc.files import name_file, open_regular
from dmlc.npy import read_npy
from dmlc.scalars import Array, DataType, data_type_of
from dmlc.sizes import Shapes
from dmlc.source import DmlcError
from dmlc.testing.verify import bind_for_arrays


def read_arrays(
    paths: Mapping[str, str], tensors: Mapping[str, dmlc.TensorDesc]
) -> dict[str, Array]:
    """Arrays of `--input NAME=FILE.npy`, each checked against its `--tensor`."""
    found: dict[str, Array] = {}
    for name, path in paths.items():
        desc = tensors.get(name)
        array = read_array(path, None if desc is None else desc.data_type)
        if desc is not None:
            _check_described(name, path, array, desc)
        found[name] = array
    return found


def read_array(path: str, dtype: DataType | None = None) -> Array:
    """Array of a `.npy` file of any version and order, in native byte order. `dtype` is the
    declared type. Raises `DmlcError` for a file that is missing, irregular, truncated or no `.npy`
    file, and for an element type that no tensor has."""
    try:
        with open_regular(path) as file:
            array = read_npy(file)
    except OSError as error:
        raise DmlcError(f"cannot read '{path}': {error.strerror or error}") from error
    except ValueError as error:
        raise DmlcError(
            f"'{path}' is not a .npy file that can be read: {error}",
            notes=["write one with numpy.save('x.npy', array)"],
        ) from error
    words = array.dtype.kind in "iu" and array.dtype.itemsize == 2
    plain = array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None
    if plain or (words and dtype is DataType.BFLOAT16):
        array = array.view(DataType.BFLOAT16.dtype)
    found = data_type_of(array.dtype) if array.dtype.names is None else None
    if found is None:
        raise DmlcError(f"'{path}' holds {array.dtype}, which no tensor can hold")
    return array if array.dtype.isnative else array.astype(found.dtype)


def find_weights(path: str | Path) -> Path:
    """Folder of the weights of a function in a file, as written by `dmlc import-onnx`."""
    return Path(path).with_suffix(".weights")


def read_weights(path: str, function: ir.Function, given: Mapping[str, Array]) -> dict[str, Array]:
    """Weights of a function in a file, for those parameters that are not given."""
    folder, found = find_weights(path), dict[str, Array]()
    for parameter in function.parameters:
        place = folder / name_file(parameter.name, ".npy")
        if parameter.name not in given and place.is_file():
            found[parameter.name] = read_array(str(place), parameter.dtype)
    return found


def _check_described(name: str, path: str, array: Array, desc: dmlc.TensorDesc) -> None:
    dtype = data_type_of(array.dtype)
    if desc.data_type is not dtype:
        shown = array.dtype if dtype is None else dtype.name
        raise DmlcError(f"--tensor says that {name} is {desc.data_type.name}, but '{path}' "
                        f"holds {shown}")  # fmt: skip
    if desc.symbols:
        wrong = Shapes().match(name, desc.sizes or (), array.shape)
        if wrong is not None:
            raise DmlcError(f"'{path}' does not fit what --tensor says: {wrong}")
        return
    if desc.sizes is not None and desc.sizes != array.shape:
        raise DmlcError(
            f"--tensor says that {name} has the sizes {list(desc.sizes)}, but '{path}' has "
            f"{list(array.shape)}"
        )


def make_outputs(
    subject: dmlc.Operator | dmlc.Graph,
    arrays: Mapping[str, Array],
    tensors: Mapping[str, dmlc.TensorDesc],
    attributes: Mapping[str, object],
    dims: Mapping[str, int],
) -> dict[str, Array]:
    """Arrays for the outputs that `--tensor` describes, of its type and of given or inferred
    sizes."""
    described = {
        name: desc for name, desc in tensors.items() if name not in arrays and not desc.symbols
    }
    if not described:
        return {}
    types = {name: data_type_of(array.dtype) for name, array in arrays.items()}
    given = {n: dmlc.TensorDesc(t, arrays[n].shape) for n, t in types.items() if t is not None}
    function = bind_for_arrays(subject, {**given, **described}, attributes, dims)
    made: dict[str, Array] = {}
    for stage in function.stages:
        name = next((n for n in described if ir_name(n) == stage.name), None)
        if name is not None:
            sizes = tuple(e for e in stage.extents if isinstance(e, int))
            made[name] = np.empty(sizes, stage.dtype.dtype)
    return made


def bind_open(
    subject: dmlc.Operator | dmlc.Graph,
    arrays: Mapping[str, Array],
    tensors: Mapping[str, dmlc.TensorDesc],
    attributes: Mapping[str, object],
    dims: Mapping[str, int],
) -> ir.Function | None:
    """Function for all values of the open sizes in `--tensor`; None if there are none."""
    if not any(desc.symbols for desc in tensors.values()):
        return None
    types = {name: data_type_of(array.dtype) for name, array in arrays.items()}
    given = {n: dmlc.TensorDesc(t, arrays[n].shape) for n, t in types.items() if t is not None}
    return bind_for_arrays(subject, {**given, **tensors}, attributes, dims)


def encode_array(array: Array) -> bytes:
    """Array as the bytes of a `.npy` file."""
    buffer = io.BytesIO()
    plain = array.view(np.dtype("V2")) if array.dtype == DataType.BFLOAT16.dtype else array
    np.lib.format.write_array(buffer, plain, allow_pickle=False)
    return buffer.getvalue()
