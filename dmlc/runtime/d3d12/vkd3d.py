"""Direct3D 12 on Linux: the interface of `package` over libvkd3d, which translates Direct3D 12 to
Vulkan.

The C library in between is built at first use: see `library`. There is one device, which libvkd3d
chooses; the environment variable VKD3D_VULKAN_DEVICE selects another by number.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from dmlc.runtime import lavapipe
from dmlc.runtime.arrays import Bytes
from dmlc.runtime.d3d12.library import INSTALL, load_library
from dmlc.runtime.d3d12.package import Abilities
from dmlc.runtime.environment import keeping_caches
from dmlc.runtime.interface import refuse_fork
from dmlc.source import UnavailableError, UnsupportedError

HEAP_DEFAULT = 0
HEAP_UPLOAD = 1
HEAP_READBACK = 2

_DISCRETE, _CPU = 2, 4
"""Types of Vulkan's devices."""


class Facts(ctypes.Structure):
    """Properties of a device: the structure `facts` of the library's source."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("driver", ctypes.c_char * 1024),
        ("memory_bytes", ctypes.c_uint64),
        ("shared_bytes", ctypes.c_uint64),
        ("vendor_id", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("shader_model", ctypes.c_uint32),
        ("int16", ctypes.c_uint32),
        ("int64", ctypes.c_uint32),
        ("float64", ctypes.c_uint32),
    )


class Device:
    """Opened device."""

    def __init__(self, handle: int, facts: Facts) -> None:
        self.handle = handle
        self.name: str = facts.name.decode(errors="replace")
        self.driver: str = facts.driver.decode(errors="replace")
        self.note = lavapipe.find_note(self.name)
        self.vendor_id: int = facts.vendor_id
        self.is_hardware: bool = facts.kind != _CPU
        self.is_discrete: bool = facts.kind == _DISCRETE
        self.dedicated_video_memory: int = facts.memory_bytes
        self.shared_system_memory: int = facts.shared_bytes
        model = f"{facts.shader_model >> 4}.{facts.shader_model & 15}"
        self.abilities = Abilities(model, bool(facts.int16), bool(facts.int64), bool(facts.float64))


def get_discovered_devices() -> Sequence[Device]:
    """List with the one device. Raises `UnavailableError`, with the cure, if there is none."""
    device, process = _open()
    refuse_fork("Direct3D 12", process)
    return (device,)


@functools.cache
def _open() -> tuple[Device, int]:
    library = _library()
    facts = Facts()
    with lavapipe.starting(), keeping_caches():
        handle = library.dmlc_open(ctypes.byref(facts))
    if not handle:
        raise UnavailableError(
            f"vkd3d finds no Vulkan device that it can use: {_message()}", notes=INSTALL
        )
    device = Device(handle, facts)
    if not device.abilities.reaches("6.0"):
        raise UnavailableError(
            f"{device.driver} runs shaders up to model {device.abilities.shader_model} alone, and "
            "DXIL needs 6.0",
            notes=INSTALL,
        )
    return device, os.getpid()


_POINTER = ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "dmlc_message": (ctypes.c_char_p, ()),
    "dmlc_open": (_POINTER, (_POINTER,)),
    "dmlc_make_buffer": (_POINTER, (_POINTER, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint32)),
    "dmlc_free_buffer": (None, (_POINTER,)),
    "dmlc_buffer_bytes": (ctypes.c_uint64, (_POINTER,)),
    "dmlc_upload": (ctypes.c_int, (_POINTER, _POINTER, ctypes.c_uint64)),
    "dmlc_readback": (ctypes.c_int, (_POINTER, _POINTER, ctypes.c_uint64)),
    "dmlc_copy": (ctypes.c_int, (_POINTER, _POINTER)),
    "dmlc_make_compute": (
        _POINTER,
        (_POINTER, ctypes.c_char_p, ctypes.c_uint64, *(ctypes.c_int,) * 3, _POINTER),
    ),
    "dmlc_free_compute": (None, (_POINTER,)),
    "dmlc_dispatch": (ctypes.c_int, (_POINTER, *(ctypes.c_uint,) * 3)),
}
"""Result and argument types of each function of the library."""


@functools.cache
def _library() -> Any:
    library: Any = load_library()
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _message() -> str:
    said = cast(bytes, _library().dmlc_message()).decode(errors="replace")
    return " ".join(said.split())


def _check(is_done: object) -> None:
    if not is_done:
        raise explain(_message())


_LIMITS = {
    "Structured TGSM byte stride 8": "shared memory whose elements have 8 bytes",
    "vsir_write_mask_64_from_32": "values of 64 bits that branches pass on",
}
"""Constructs that libvkd3d 2.1 cannot translate, by its message about them. Any other failure is an
error."""


def explain(said: str) -> Exception:
    """Exception for a failure that the library reports."""
    for words, what in _LIMITS.items():
        if words in said:
            return UnsupportedError(f"libvkd3d cannot translate {what}", notes=[said])
    return RuntimeError(said)


class Buffer:
    """Buffer of one heap: see `package.Buffer`."""

    def __init__(self, size: int, heap_type: int, *, stride: int, device: Device) -> None:
        handle = _library().dmlc_make_buffer(device.handle, heap_type, size, stride)
        _check(handle)
        self.handle: int = handle
        self.size: int = _library().dmlc_buffer_bytes(handle)
        weakref.finalize(self, _library().dmlc_free_buffer, handle)

    def upload(self, data: Any) -> None:
        values: Bytes = np.frombuffer(data, np.uint8)
        self._fit(values)
        _check(_library().dmlc_upload(self.handle, values.ctypes.data, values.size) == 0)

    def readback(self, target: Any) -> None:
        values: Bytes = np.frombuffer(target, np.uint8)
        self._fit(values)
        _check(_library().dmlc_readback(self.handle, values.ctypes.data, values.size) == 0)

    def copy_to(self, destination: Buffer) -> None:
        if self.size > destination.size:
            raise ValueError(f"{self.size} bytes do not fit a buffer of {destination.size}")
        _check(_library().dmlc_copy(self.handle, destination.handle) == 0)

    def _fit(self, values: Bytes) -> None:
        if values.size > self.size:
            raise ValueError(f"{values.size} bytes do not fit a buffer of {self.size}")


class Compute:
    """Pipeline with its buffers: see `package.Compute`."""

    def __init__(
        self,
        shader: bytes,
        *,
        cbv: list[Buffer],
        srv: list[Buffer],
        uav: list[Buffer],
        device: Device,
    ) -> None:
        self._buffers = (*cbv, *srv, *uav)
        handles = (_POINTER * len(self._buffers))(*(b.handle for b in self._buffers))
        counts = (len(cbv), len(srv), len(uav))
        handle = _library().dmlc_make_compute(
            device.handle, shader, len(shader), *counts, ctypes.addressof(handles)
        )
        _check(handle)
        self._handle: int = handle
        weakref.finalize(self, _library().dmlc_free_compute, handle)

    def dispatch(self, x: int, y: int, z: int) -> None:
        _check(_library().dmlc_dispatch(self._handle, x, y, z) == 0)
