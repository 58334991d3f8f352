"""A stand-in for the package compushady 0.17.5 as it is on Windows, over Direct3D 12.

Names, signatures, constants, the order of checks, exceptions and their texts are the package's own:
its Python layer (`compushady/__init__.py`, `compushady/config.py`) as it is in the wheel, and the
part in C++ for Direct3D 12 as its source has it. What a retail Direct3D 12 demands beyond that is
demanded here too: shaders hold their checksum, one command list is recorded at a time, and memory
of the default heap cannot be mapped. A shader does what the test has taught the machine that it
does.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dmlc.runtime.dxbc import find_checksum

HEAP_DEFAULT = 0
HEAP_UPLOAD = 1
HEAP_READBACK = 2

Bytes = npt.NDArray[np.uint8]


class BufferException(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Bound:
    """What a dispatch gives a shader: bytes by register number."""

    cbv: list[Bytes]
    srv: list[Bytes]
    uav: list[Bytes]
    groups: tuple[int, int, int]


Kernel = Callable[[Bound], None]


class Machine:
    """The computer: its adapters, what its shaders do, and all that was asked of it, in order."""

    def __init__(self) -> None:
        self.adapters = [
            DeviceHandle(self, "Integrated 1", 128 << 20, hardware=True, discrete=False),
            DeviceHandle(self, "Discrete 2", 8 << 30, hardware=True, discrete=True),
            DeviceHandle(self, "Microsoft Basic Render Driver", 0, hardware=False, discrete=False),
        ]
        self.shaders: dict[bytes, Kernel] = {}
        self.log: list[tuple[Any, ...]] = []
        self.buffers: list[Resource] = []
        self.computes: list[Compute] = []
        self.enumerations = 0

    def named(self, what: str) -> list[tuple[Any, ...]]:
        """The entries of the log that begin with a word."""
        return [entry for entry in self.log if entry[0] == what]


class DeviceHandle:
    """compushady.backends.d3d12.Device"""

    def __init__(
        self, machine: Machine, name: str, memory: int, *, hardware: bool, discrete: bool
    ) -> None:
        self.machine = machine
        self.name = name
        self.dedicated_video_memory = memory
        self.dedicated_system_memory = 0
        self.shared_system_memory = 16 << 30
        self.vendor_id = 0x10DE
        self.device_id = 0x10DE
        self.is_hardware = hardware
        self.is_discrete = discrete
        self.refuses_pipelines = False
        self._recording = threading.Lock()

    @contextmanager
    def commands(self) -> Iterator[None]:
        """The one command list of a device, which is reset, recorded, run and waited for; the
        interpreter's lock is given up meanwhile."""
        if not self._recording.acquire(blocking=False):
            raise AssertionError("a command list was reset while it was in flight")
        try:
            threading.Event().wait(0.0005)
            yield
        finally:
            self._recording.release()

    def create_buffer(
        self, heap_type: int, size: int, stride: int, format: int, heap: None, heap_offset: int
    ) -> Resource:
        for number in (heap_type, size, stride, format, heap_offset):
            assert type(number) is int
        assert heap is None
        if not size:
            raise BufferException("zero size buffer")
        if heap_type not in (HEAP_DEFAULT, HEAP_UPLOAD, HEAP_READBACK):
            raise ValueError(f"invalid heap type: {heap_type}")
        made = Resource(self, heap_type, size, stride, format)
        self.machine.buffers.append(made)
        return made

    def create_compute(
        self,
        shader: bytes,
        cbv: list[Resource] | None = None,
        srv: list[Resource] | None = None,
        uav: list[Resource] | None = None,
        samplers: list[Any] | None = None,
    ) -> Compute:
        assert not samplers
        memoryview(shader)
        for resource in (*(cbv or ()), *(srv or ()), *(uav or ())):
            if not isinstance(resource, Resource):
                raise ValueError("Expected a Resource object")
        if self.refuses_pipelines or shader[4:20] != find_checksum(shader):
            raise Exception("Unable to create Compute Pipeline State: The parameter is incorrect.")
        made = Compute(self, shader, cbv or [], srv or [], uav or [])
        self.machine.computes.append(made)
        return made

    def get_debug_messages(self) -> list[str]:
        return []


class Resource:
    """compushady.backends.d3d12.Resource, of a buffer."""

    def __init__(
        self, device: DeviceHandle, heap_type: int, size: int, stride: int, format: int
    ) -> None:
        self.device = device
        self.heap_type = heap_type
        self.requested_size = size
        self.size = -(-size // 256) * 256
        self.stride = stride
        self.format = format
        # Nothing may hang on a fresh buffer's content.
        self.memory = np.full(self.size, 0xCD, np.uint8)

    def upload(self, data: Any, offset: int) -> None:
        view = memoryview(data)
        assert view.c_contiguous
        if offset + view.nbytes > self.size:
            raise ValueError(
                f"supplied buffer is bigger than resource size: (offset {offset}) {view.nbytes} "
                f"(expected no more than {self.size})"
            )
        self._map("Unable to Map() ID3D12Resource1")
        assert self.heap_type == HEAP_UPLOAD
        self.memory[offset : offset + view.nbytes] = np.frombuffer(view.cast("B"), np.uint8)
        self.device.machine.log.append(("upload", self, view.nbytes))

    def readback(self, size: int, offset: int) -> bytes:
        if size == 0:
            size = self.requested_size - offset
        if offset + size > self.size:
            raise ValueError(
                f"requested buffer out of bounds: (offset {offset}) {size} "
                f"(expected no more than {self.size})"
            )
        self._map("Unable Map() ID3D12Resource1")
        return self.memory[offset : offset + size].tobytes()

    def readback_to_buffer(self, buffer: Any, offset: int) -> None:
        view = memoryview(buffer)
        assert view.c_contiguous
        if offset > self.size:
            raise ValueError(
                f"requested buffer out of bounds: {offset} (expected no more than {self.size})"
            )
        self._map("Unable Map() ID3D12Resource1")
        assert self.heap_type == HEAP_READBACK
        # The package writes whether the memory may be written or not.
        assert not view.readonly
        count = min(view.nbytes, self.size - offset)
        view.cast("B")[:count] = self.memory[offset : offset + count].tobytes()
        self.device.machine.log.append(("readback", self, count))

    def copy_to(self, destination: Resource) -> None:
        if not isinstance(destination, Resource):
            raise ValueError("Expected a Resource object")
        if self.size > destination.size:
            raise ValueError(
                f"Resource size is bigger than destination size: {self.size} "
                f"(expected no more than {destination.size})"
            )
        assert destination.device is self.device
        assert destination.heap_type != HEAP_UPLOAD, "a buffer to upload from is only read"
        assert self.heap_type != HEAP_READBACK, "a buffer to read back from is only copied to"
        with self.device.commands():
            destination.memory[: self.size] = self.memory
        self.device.machine.log.append(("copy", self, destination))

    def _map(self, failure: str) -> None:
        if self.heap_type == HEAP_DEFAULT:
            raise Exception(f"{failure}: The parameter is incorrect.")


class Compute:
    """compushady.backends.d3d12.Compute"""

    def __init__(
        self,
        device: DeviceHandle,
        shader: bytes,
        cbv: list[Resource],
        srv: list[Resource],
        uav: list[Resource],
    ) -> None:
        self.device = device
        self.shader = shader
        self.cbv, self.srv, self.uav = cbv, srv, uav
        for view in (*srv, *uav):
            # A view without a format and a stride is of no kind that Direct3D knows.
            assert view.format == 0
            assert view.stride > 0
            assert view.stride % 2 == 0
        for view in uav:
            assert view.heap_type == HEAP_DEFAULT, "only the default heap can be written by shaders"
            assert view not in srv, "a buffer cannot be read and written through two views"

    def dispatch(self, x: int, y: int, z: int) -> None:
        for number in (x, y, z):
            assert type(number) is int
            assert 0 < number <= 65535
        kernel = self.device.machine.shaders[self.shader]
        with self.device.commands():
            parts = [[r.memory for r in kind] for kind in (self.cbv, self.srv, self.uav)]
            kernel(Bound(parts[0], parts[1], parts[2], (x, y, z)))
        self.device.machine.log.append(("dispatch", self, (x, y, z)))


def install(monkeypatch: pytest.MonkeyPatch, wanted_backend: str = "d3d12") -> Machine:
    """Puts the package, new, where an import finds it; `wanted_backend` is what the variable
    COMPUSHADY_BACKEND of the environment asks for."""
    machine = Machine()
    config = types.ModuleType("compushady.config")
    backend = types.ModuleType("compushady.backends.d3d12")
    package = types.ModuleType("compushady")
    state: dict[str, Any] = {"backend": None, "devices": None, "current": None}

    def set_backend(backend_name: str) -> None:
        vars(config)["wanted_backend"] = backend_name

    def enumerate_adapters() -> list[DeviceHandle]:
        machine.enumerations += 1
        return list(machine.adapters)

    def get_backend() -> types.ModuleType:
        if state["backend"] is None:
            wanted = vars(config)["wanted_backend"]
            if wanted == "d3d12":
                state["backend"] = backend
            else:
                state["backend"] = types.ModuleType(f"compushady.backends.{wanted}")
        made: types.ModuleType = state["backend"]
        return made

    def get_discovered_devices() -> list[DeviceHandle]:
        if state["devices"] is None:
            state["devices"] = vars(get_backend())["get_discovered_devices"]()
        made: list[DeviceHandle] = state["devices"]
        return made

    def set_current_device(index: int) -> None:
        state["current"] = get_discovered_devices()[index]

    def get_current_device() -> DeviceHandle:
        if state["current"] is None:
            state["current"] = sorted(
                get_discovered_devices(),
                key=lambda x: (x.is_hardware, x.is_discrete, x.dedicated_video_memory),
            )[-1]
        made: DeviceHandle = state["current"]
        return made

    class PyResource:
        handle: Resource

        def copy_to(self, destination: PyResource) -> None:
            self.handle.copy_to(destination.handle)

        @property
        def size(self) -> int:
            return self.handle.size

    class Buffer(PyResource):
        def __init__(
            self,
            size: int,
            heap_type: int = HEAP_DEFAULT,
            stride: int = 0,
            format: int = 0,
            heap: Any = None,
            heap_offset: int = 0,
            device: DeviceHandle | None = None,
        ) -> None:
            self.device = device if device else get_current_device()
            self.heap = heap
            self.handle = self.device.create_buffer(
                heap_type, size, stride, format, heap.handle if heap else None, heap_offset
            )

        def upload(self, data: Any, offset: int = 0) -> None:
            self.handle.upload(data, offset)

        def readback(self, buffer_or_size: Any = 0, offset: int = 0) -> bytes | None:
            if isinstance(buffer_or_size, int):
                return self.handle.readback(buffer_or_size, offset)
            self.handle.readback_to_buffer(buffer_or_size, offset)
            return None

    class PyCompute:
        def __init__(
            self,
            shader: bytes,
            cbv: Any = (),
            srv: Any = (),
            uav: Any = (),
            samplers: Any = (),
            device: DeviceHandle | None = None,
        ) -> None:
            self.device = device if device else get_current_device()
            self.handle = self.device.create_compute(
                shader,
                cbv=[resource.handle for resource in cbv],
                srv=[resource.handle for resource in srv],
                uav=[resource.handle for resource in uav],
                samplers=[sampler.handle for sampler in samplers],
            )

        def dispatch(self, x: int, y: int, z: int) -> None:
            self.handle.dispatch(x, y, z)

    vars(config).update(wanted_backend=wanted_backend, debug=False, set_backend=set_backend)
    vars(backend)["get_discovered_devices"] = enumerate_adapters
    vars(package).update(
        # Where the compiler's library is found: it is no part of what is stood in for.
        __spec__=importlib.util.find_spec("compushady"),
        __path__=[],
        config=config,
        HEAP_DEFAULT=HEAP_DEFAULT,
        HEAP_UPLOAD=HEAP_UPLOAD,
        HEAP_READBACK=HEAP_READBACK,
        BufferException=BufferException,
        get_backend=get_backend,
        get_discovered_devices=get_discovered_devices,
        set_current_device=set_current_device,
        get_current_device=get_current_device,
        Buffer=Buffer,
        Compute=PyCompute,
    )
    monkeypatch.setitem(sys.modules, "compushady", package)
    monkeypatch.setitem(sys.modules, "compushady.config", config)
    return machine
