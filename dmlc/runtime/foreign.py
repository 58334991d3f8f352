"""Arrays of other libraries as NumPy's, and results as arrays of those libraries.

Memory is shared and never copied: an array is imported through DLPack, NumPy's array interface or
the buffer protocol, and a result is exported with the `from_dlpack` of its library. No library is
named or imported here: an array identifies its own.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from dmlc.parameters import show_kind
from dmlc.runtime.arrays import LARGE, Array, Copy, Shape, empty, read_sizes
from dmlc.scalars import TENSOR_TYPES, DataType, Kind
from dmlc.source import ArgumentError, DmlcError, UnsupportedError

# Arrays in ------------------------------------------------------------------------------------


def as_array(name: str, value: object, what: str = "input") -> Array:
    """NumPy array that shares the memory of `value`; `name` and `what` (input or output) are for
    messages. The caller checks its data type.

    Raises `ArgumentError` for anything but an array, `UnsupportedError` for one in the memory of a
    device, and `DmlcError` for one whose library does not share it.
    """
    array = _find_array(name, value, what)
    if array is None:
        raise ArgumentError(
            f"the {what} {name} is {show_kind(value)}, and an array is expected", None,
            ["make one with its data type: numpy.asarray(values, dtype='float32')"],
        )  # fmt: skip
    return array


def _find_array(name: str, value: object, what: str) -> Array | None:
    """NumPy array that shares the memory of `value`; None for anything but an array."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, type):
        return None
    if isinstance(value, np.ma.MaskedArray):
        raise DmlcError(
            f"the {what} {name} is a masked array, and tensors have no mask",
            notes=["give it values for what is masked: array.filled(0)"],
        )
    if isinstance(value, np.ndarray):
        return np.asarray(cast(Array, value))
    if isinstance(value, np.generic):
        # NumPy's own scalars are values without memory that could be written to.
        array = np.asarray(cast(Any, value))
        array.flags.writeable = False
        return array
    if hasattr(value, "__dlpack__"):
        return _Export(name, value, what).open()
    try:
        described = hasattr(value, "__array_interface__")
        return np.asarray(value if described else memoryview(cast(bytes, value)))
    except TypeError:
        return None
    except Exception as problem:
        raise _refused(name, value, what, problem) from problem


def _refused(name: str, value: object, what: str, problem: Exception) -> DmlcError:
    said = str(problem).strip() or type(problem).__name__
    first, *others = said.splitlines()
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return DmlcError(
        f"the {what} {name} is a {kind} whose memory cannot be shared: {first}",
        notes=[line for line in others if line.strip()],
    )


# DLPack in ------------------------------------------------------------------------------------

_NEW, _OLD = b"dltensor_versioned", b"dltensor"
"""Names of a capsule in the new and the old version of DLPack."""
_HEAD = struct.Struct("@IIPPQ")
"""Header before the tensor in a capsule since version 1.0: version, two pointers of the producer,
and flags."""
_TENSOR = struct.Struct("@PiiiBBHPPQ")
"""Tensor: address, device type and number, rank, data type as code, bits and lanes, pointers to
sizes and strides, and offset in bytes."""
_CODE = struct.calcsize("@Piii")
"""Offset of the data type's code in a tensor."""
_READ_ONLY, _COPIED = 1, 2
"""Flags."""

_HOST = (1, 3, 11, 13)
"""Device types with memory that the processor can access: its own, and host memory pinned or
managed by CUDA and ROCm."""
_DEVICES = {
    2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 9: "VPI", 10: "ROCm", 12: "extension",
    14: "oneAPI", 15: "WebGPU", 16: "Hexagon", 17: "MAIA", 18: "Trainium",
}  # fmt: skip

_KIND_CODES = {Kind.SIGNED: 0, Kind.UNSIGNED: 1, Kind.FLOAT: 2, Kind.BOOL: 6}
_BFLOAT = 4
_TYPES = {
    (_BFLOAT if t is DataType.BFLOAT16 else _KIND_CODES[t.kind], t.bytes * 8, 1): t
    for t in TENSOR_TYPES
}
_CODE_NAMES = {
    0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat", 5: "complex", 6: "bool",
    **dict.fromkeys(range(7, 18), "float"),
}  # fmt: skip

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_named = ctypes.pythonapi.PyCapsule_IsValid
_is_named.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Memory:
    """Memory of a capsule for NumPy. An array over it keeps the capsule alive, and with it the
    memory, which an unconsumed capsule frees."""

    def __init__(self, interface: dict[str, object], capsule: object) -> None:
        self.__array_interface__ = interface
        self._capsule = capsule


class _Export:
    """Array of another library, to be opened."""

    def __init__(self, name: str, value: object, what: str) -> None:
        self._name = name
        self._value = cast(Any, value)
        self._what = what

    def open(self) -> Array:
        """NumPy array over its memory. NumPy reads the types it has, and quickly; `_read` reads the
        rest."""
        # PyTorch negates some views when they are read, and its export leaves that out.
        is_negated = getattr(self._value, "is_neg", None)
        if is_negated is not None and is_negated() is True:
            raise self._refused(BufferError("its values are negated when read: resolve_neg()"))
        array = self._read_by_numpy()
        if array is None or (self._what == "output" and not array.flags.writeable):
            return self._read()
        return array

    def _read_by_numpy(self) -> Array | None:
        try:
            if self._what == "input":
                return np.from_dlpack(self._value)
            return np.from_dlpack(self._value, copy=False)
        except Exception:
            # NumPy and the libraries have agreed on no kind of error: `_read` finds out what it is.
            return None

    def _read(self) -> Array:
        """Array as the capsule describes it, or its error."""
        capsule = self._take_capsule()
        flags, tensor = _open_capsule(capsule)
        address, device, number, rank, *dtype, sizes, steps, offset = _unpack(_TENSOR, tensor)
        if device not in _HOST:
            raise self._on_device(device, number)
        held = _TYPES.get(tuple(dtype))
        if held is None:
            raise self._unheld(*dtype)
        if self._what == "output" and flags is not None and flags & _COPIED:
            raise DmlcError(
                f"the array given for the output {self._name} shares a copy of its memory, which "
                "it would not get results from"
            )
        shape = _integers(sizes, rank)
        strides = None if not steps else tuple(s * held.bytes for s in _integers(steps, rank))
        # Only from version 1.0 on can a library say that its arrays are not to be written to.
        read_only = flags is None or bool(flags & _READ_ONLY)
        memory = _Memory(
            {
                "version": 3,
                "typestr": held.dtype.str,
                # No elements may lie nowhere, which not every NumPy takes.
                "data": ((address or tensor) + offset, read_only),
                "shape": shape,
                "strides": strides,
            },
            capsule,
        )
        return np.asarray(memory).view(held.dtype)

    def _take_capsule(self) -> object:
        try:
            try:
                return self._value.__dlpack__(max_version=(1, 0))
            except TypeError:
                # Libraries from before that version do not know the parameter.
                return self._value.__dlpack__()
        except Exception as problem:
            # There is no kind of error that libraries have agreed on.
            raise self._explain(problem) from problem

    def _explain(self, problem: Exception) -> DmlcError:
        try:
            device, number = self._value.__dlpack_device__()
        except Exception:
            return self._refused(problem)
        return self._refused(problem) if device in _HOST else self._on_device(device, number)

    def _refused(self, problem: Exception) -> DmlcError:
        return _refused(self._name, self._value, self._what, problem)

    def _unheld(self, code: int, bits: int, lanes: int) -> DmlcError:
        known = _CODE_NAMES.get(code)
        shown = f"{known}{bits}" if known else f"DLPack type {code} of {bits} bits"
        if lanes > 1:
            shown += f" in vectors of {lanes}"
        return DmlcError(
            f"the array given for {self._name} holds {shown}, which no tensor can hold",
            notes=[f"tensors hold {', '.join(t.name for t in TENSOR_TYPES)}"],
        )

    def _on_device(self, device: int, number: int) -> DmlcError:
        named = f"{_DEVICES.get(device, f'DLPack type {device}')} device {number}"
        return UnsupportedError(
            f"the {self._what} {self._name} is in the memory of {named}, and arrays are "
            "taken from the memory of the host",
            notes=["copy it to the host first, as tensor.cpu() does in PyTorch"],
        )


def _open_capsule(capsule: object) -> tuple[int | None, int]:
    """Flags of a capsule, None in the old version, and the address of its tensor."""
    if not _is_named(capsule, _NEW):
        return None, _pointer_of(capsule, _OLD)
    pointer = _pointer_of(capsule, _NEW)
    return _unpack(_HEAD, pointer)[-1], pointer + _HEAD.size


def _unpack(form: struct.Struct, pointer: int) -> tuple[Any, ...]:
    return form.unpack_from((ctypes.c_char * form.size).from_address(pointer))


def _integers(pointer: int, count: int) -> Shape:
    return tuple((ctypes.c_int64 * count).from_address(pointer)) if count else ()


# Results out ----------------------------------------------------------------------------------


class _Bfloat16:
    """BFLOAT16 array for DLPack, which NumPy does not export: its bits as integers, with the right
    type code."""

    def __init__(self, array: Array) -> None:
        self._bits = array.view(np.uint16)

    def __dlpack__(self, **options: Any) -> object:
        capsule = self._bits.__dlpack__(**options)
        _, tensor = _open_capsule(capsule)
        ctypes.c_uint8.from_address(tensor + _CODE).value = _BFLOAT
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._bits.__dlpack_device__()


@dataclasses.dataclass(frozen=True, slots=True)
class Library:
    """Array library: the module with its `from_dlpack`."""

    namespace: Any

    @property
    def name(self) -> str:
        return cast(str, self.namespace.__name__)

    def take(self, name: str, array: Array) -> Any:
        """Result `name` as an array of this library, over the same memory if the library permits
        it. Raises `DmlcError` if it cannot hold the result."""
        namespace = self.namespace
        dtype = _name_of(array.dtype)
        source = _Bfloat16(array) if dtype == "bfloat16" else array
        try:
            made = namespace.from_dlpack(source)
        except Exception as problem:
            # There is no kind of error that libraries have agreed on.
            first = (str(problem) or type(problem).__name__).splitlines()[0]
            raise DmlcError(
                f"the result {name} does not go to {self.name}: {first}",
                notes=["give NumPy arrays to get NumPy arrays"],
            ) from problem
        wanted = getattr(namespace, dtype, None)
        if wanted is not None and made.dtype != wanted:
            raise DmlcError(
                f"the result {name} holds {dtype}, and {self.name} makes {made.dtype} of it",
                notes=["give NumPy arrays to get NumPy arrays"],
            )
        return made


@functools.lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[Any]) -> str:
    """Name of a NumPy type, cached because NumPy builds it at each call."""
    return dtype.name


def like(name: str, array: Array, value: object) -> Any:
    """Result `name` as an array of the library of `value`, or itself if `value` is NumPy's or a
    plain buffer. Raises `DmlcError` if that library cannot hold it."""
    library = find_library(value)
    return array if library is None else library.take(name, array)


def find_library(value: object) -> Library | None:
    """Library of an array: the namespace that it names (`__array_namespace__`), or else the package
    of its class or a base; either has `from_dlpack`. None for NumPy arrays and for other objects,
    such as buffers."""
    if isinstance(value, np.ndarray | np.generic):
        return None
    named = getattr(value, "__array_namespace__", None)
    if named is None:
        return _library_of(type(value))
    namespace = named()
    return Library(namespace) if hasattr(namespace, "from_dlpack") and namespace is not np else None


@functools.lru_cache(maxsize=64)
def _library_of(kind: type) -> Library | None:
    for base in kind.__mro__:
        package = sys.modules.get(base.__module__.partition(".")[0])
        if hasattr(package, "from_dlpack"):
            return Library(package)
    return None


# Both -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """Caller's arguments of a run, as NumPy arrays over the same memory."""

    inputs: dict[str, Array]
    outputs: dict[str, Array | Shape]
    """Arrays to write into, and the sizes of other outputs."""
    owners: dict[str, Any]
    """Arrays to write into, in the caller's form."""
    library: Library | None
    """Library of the results; None for NumPy."""

    @property
    def large(self) -> int:
        """Size in bytes from which a result starts at a cache line, since some libraries share only
        aligned memory."""
        return LARGE if self.library is None else 0

    def hand_over(self, results: Mapping[str, Array]) -> dict[str, Any]:
        """Results of a run in the caller's form: an array that was given is returned itself."""
        return {name: self._hand_over(name, array) for name, array in results.items()}

    def _hand_over(self, name: str, array: Array) -> Any:
        if name in self.owners:
            return self.owners[name]
        return array if self.library is None else self.library.take(name, array)

    def keep(
        self, results: Mapping[str, Array]
    ) -> tuple[Callable[[], dict[str, Any]], tuple[Copy, ...]]:
        """Function that returns the results after each run into these same arrays, and the copies
        it makes each time: for a library with immutable arrays, or one that shares no memory."""
        kept = self.hand_over(results)
        library = self.library
        apart = [
            name
            for name, array in results.items()
            if library is not None and name not in self.owners and not _is_over(kept[name], array)
        ]
        if library is None or not apart:
            return kept.copy, ()

        def give() -> dict[str, Any]:
            return {**kept, **{n: library.take(n, _copy(results[n])) for n in apart}}

        reason = f"{library.name} has no arrays that change with every run"
        return give, tuple(Copy(name, reason) for name in apart)


def receive(inputs: Mapping[str, object], outputs: Mapping[str, object]) -> Given:
    """Arrays and sizes of a call. The library of the results is that of the first foreign array,
    inputs before outputs, each in the order given. Raises as `as_array` does."""
    arrays = {name: as_array(name, value) for name, value in inputs.items()}
    wanted: dict[str, Array | Shape] = {}
    owners: dict[str, object] = {}
    for name, value in outputs.items():
        are_sizes = isinstance(value, tuple | list)
        found = None if are_sizes else _find_array(name, value, "output")
        if found is None:
            wanted[name] = read_sizes(name, value)
        else:
            wanted[name] = found
            owners[name] = value
    library = None
    for value in (*inputs.values(), *owners.values()):
        library = find_library(value)
        if library is not None:
            break
    return Given(arrays, wanted, owners, library)


def _is_over(made: object, array: Array) -> bool:
    """Whether an array of a library shares this memory, so that it may change."""
    seen = as_array("", made)
    return seen.flags.writeable and (not array.size or np.shares_memory(seen, array))


def _copy(array: Array) -> Array:
    made = empty(array.shape, array.dtype, 0)
    made[...] = array
    return made
