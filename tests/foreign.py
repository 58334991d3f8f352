"""Array libraries to stand in for others: what they make shares memory as theirs does."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlc.runtime.foreign import as_array

Array = npt.NDArray[Any]

LINE = 64
DEVICE, CODE, BITS = 8, 20, 21
"""Where the type of the device, and the code and the bits of the data type, are in a tensor of
DLPack."""


class Tensor:
    """An array of a library that takes and gives any layout, and writes in place."""

    library: ClassVar[ModuleType] = ModuleType("ample")

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array_namespace__(self) -> ModuleType:
        return self.library

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def address(self) -> int:
        return self.array.ctypes.data


class FrozenTensor(Tensor):
    """An array that never changes, of a library that knows no version of DLPack with which to say
    so, shares only what starts at a cache line, and holds no FLOAT64."""

    library: ClassVar[ModuleType] = ModuleType("frozen")
    copied = False
    """Whether its values were copied as it was made."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        return self.array.__dlpack__(stream=stream)


class PatchedTensor(Tensor):
    """An array that says otherwise of itself: its capsule has other bytes at some places."""

    def __init__(self, array: Array, device: tuple[int, int] = (1, 0), **patch: int) -> None:
        super().__init__(array)
        self.device = device
        self.patch = {DEVICE: device[0], **{globals()[n.upper()]: v for n, v in patch.items()}}

    def __dlpack__(self, **options: Any) -> object:
        capsule = self.array.__dlpack__()
        find = ctypes.pythonapi.PyCapsule_GetPointer
        find.restype, find.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        pointer = find(capsule, b"dltensor")
        for place, value in {**self.patch, DEVICE + 4: self.device[1]}.items():
            ctypes.c_uint8.from_address(pointer + place).value = value
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class PlainTensor:
    """An array of NumPy's older protocol."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__


def _make(given: Any) -> Tensor:
    return Tensor(as_array("", given, "output"))


def _freeze(given: Any) -> FrozenTensor:
    array = as_array("", given)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    made = FrozenTensor(array)
    if array.ctypes.data % LINE:
        made.array, made.copied = array.copy(), True
    return made


for library, make in ((Tensor.library, _make), (FrozenTensor.library, _freeze)):
    for name in ("float32", "float64", "int32"):
        setattr(library, name, np.dtype(name))
    library.__dict__["from_dlpack"] = make


def on_line(values: Array) -> Array:
    """The values in memory that starts at a cache line."""
    raw = np.empty(values.nbytes + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    made = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made
