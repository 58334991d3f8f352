"""Direct3D 12 devices, their selection and their limits.

On Windows, Direct3D is reached through the Python package compushady, which is imported only here,
at the first call that needs it; on Linux through `vkd3d`. `package` is the interface of both. The
limits are those that Direct3D 12 promises for every device of feature level 12_0, the level that
compushady requests; they have the names of `d3d12.h`. `executable` runs programs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
import threading
from collections.abc import Generator, Sequence
from typing import Any, ClassVar, cast

from dmlc.program import FLOAT_WIDTHS
from dmlc.runtime import interface
from dmlc.runtime.d3d12.package import Abilities, Buffer, Compute, Handle, Package
from dmlc.runtime.floats import CORRECT, LEAST, Division, FloatPromises
from dmlc.runtime.interface import CompileOptions, DeviceType, ForeignError, open_once
from dmlc.shader_model import NEEDS
from dmlc.source import DmlcError, Note, UnavailableError

UNTESTED = "untested on hardware"
"""Note of every device on Windows: this runtime was tested over vkd3d on Linux, and never on a
machine with Windows' Direct3D."""

INSTALL_PACKAGE = Note("install what reaches Direct3D 12 with: pip install dmlc[d3d12]")
PLATFORM: str = sys.platform
_PACKAGE = "compushady"
_BACKEND = "d3d12"


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """Limit of Direct3D 12, and its name in `d3d12.h`."""

    name: str
    value: int


GROUPS = Limit("D3D12_CS_DISPATCH_MAX_THREAD_GROUPS_PER_DIMENSION", 65535)
GROUP_THREADS = Limit("D3D12_CS_THREAD_GROUP_MAX_THREADS_PER_GROUP", 1024)
WRITTEN_BUFFERS = Limit("D3D12_UAV_SLOT_COUNT", 64)
CONSTANT_BYTES = Limit("D3D12_REQ_CONSTANT_BUFFER_ELEMENT_COUNT of 16 bytes", 4096 * 16)
VIEW_ELEMENTS = Limit("D3D12_REQ_BUFFER_RESOURCE_TEXEL_COUNT_2_TO_EXP", 1 << 27)
BUFFER_BYTES = Limit("D3D12_REQ_RESOURCE_SIZE_IN_MEGABYTES_EXPRESSION_C_TERM", 2048 << 20)
_PROMISED_BYTES = 128 << 20
"""Size of one buffer on a device with little dedicated memory: the A term of that expression."""


STRICT = FloatPromises(FLOAT_WIDTHS, (16, 64), Division(1.0, 1.0), Division(CORRECT, CORRECT))
"""Promises of every Direct3D device, for shaders compiled with strict arithmetic: only denormals of
FLOAT32 may be flushed."""
TRANSLATED = dataclasses.replace(LEAST, lost=FLOAT_WIDTHS)
"""Promises that remain if vkd3d translates DXIL to SPIR-V: those of Vulkan, without NaN, which no
module requests, so that Mesa makes 0 of `x - x`."""


@dataclasses.dataclass(frozen=True, slots=True)
class D3D12Device:
    """Adapter that Direct3D lists. Sizes are in bytes."""

    runtime: ClassVar[str] = _BACKEND

    index: int
    """Number in `devices()`, and in a selector `d3d12:<index>`."""
    name: str
    type: DeviceType
    vendor_id: int
    memory_bytes: int
    """Dedicated video memory."""
    shared_bytes: int
    """Host memory that it may use in addition."""
    driver: str = UNTESTED
    """Driver of the shaders, if known."""
    note: str = UNTESTED
    abilities: Abilities | None = None
    """Features of the device; None if the package does not list them, and the driver refuses what
    it lacks."""
    floats: FloatPromises = STRICT

    def __str__(self) -> str:
        notes = [self.note] if self.note else []
        return f"{self.name} ({', '.join((self.type.value, 'Direct3D 12', *notes))})"

    @property
    def compile_options(self) -> CompileOptions:
        """Options for a package with a root signature of its own."""
        made: CompileOptions = {"root_signature": False}
        if self.abilities is not None:
            made["shader_model"] = self.abilities.dialect
        return made

    @property
    def facts(self) -> tuple[str, ...]:
        """Properties in words."""
        can = self.abilities
        if can is None:
            return ("Direct3D 12", self.type.value, *self.floats.facts)
        return (
            f"Direct3D 12, shader model {can.shader_model}",
            self.driver,
            self.type.value,
            *(f"no {lack}" for lack in can.list_missing(NEEDS)),
            *self.floats.facts,
        )

    @property
    def promised_bytes(self) -> int:
        """Size of a buffer that is always possible: min(max(128 MiB, a quarter of the video
        memory), 2 GiB)."""
        return min(max(_PROMISED_BYTES, self.memory_bytes // 4), BUFFER_BYTES.value)


def load_package() -> Package:
    """Implementation of Direct3D 12 on this machine. UnavailableError, with the cure, if there is
    none."""
    if PLATFORM == "linux":
        return cast(Package, importlib.import_module("dmlc.runtime.d3d12.vkd3d"))
    if PLATFORM == "win32":
        return cast(Package, _load_compushady())
    raise ForeignError(
        "Direct3D 12 is a part of Windows, and this is another system",
        notes=["on Linux, vkd3d runs it"],
    )


def _load_compushady() -> Any:
    """Package compushady, set to Direct3D 12."""
    try:
        package = importlib.import_module(_PACKAGE)
    except ImportError as problem:
        raise UnavailableError(
            f"Direct3D 12 is reached through the package {_PACKAGE}, which cannot be imported: "
            f"{problem}",
            notes=[INSTALL_PACKAGE],
        ) from problem
    # The package serves one interface per process: the first that is used. The environment may
    # have asked for another, so what is wanted is said before the first use.
    config: Any = importlib.import_module(f"{_PACKAGE}.config")
    if config.wanted_backend != _BACKEND:
        config.set_backend(_BACKEND)
    try:
        backend = package.get_backend()
    except ImportError as problem:
        raise UnavailableError(
            f"{_PACKAGE} cannot load its Direct3D 12 part: {problem}", notes=[INSTALL_PACKAGE]
        ) from problem
    serves = str(backend.__name__).rpartition(".")[2]
    if serves != _BACKEND:
        raise UnavailableError(
            f"{_PACKAGE} serves {serves} in this process, where it was used before",
            notes=[f"call {_PACKAGE}.config.set_backend('{_BACKEND}') before its first use"],
        )
    return package


@contextlib.contextmanager
def reporting(what: str) -> Generator[None]:
    """Converts errors of Direct3D or the package to a `DmlcError` that says `what` cannot be
    done."""
    try:
        yield
    except DmlcError:
        raise
    except Exception as problem:
        # The package raises plain Exception with the text of the status Direct3D gave.
        raise DmlcError(f"{what}: {problem}") from problem


def find_devices() -> tuple[D3D12Device, ...]:
    """Every adapter, in Direct3D's order."""
    package = load_package()
    with reporting("Direct3D 12 cannot list its devices"):
        handles = package.get_discovered_devices()
    return tuple(_describe(number, handle) for number, handle in enumerate(handles))


def _describe(index: int, handle: Handle) -> D3D12Device:
    kind = DeviceType.CPU
    if handle.is_hardware:
        kind = DeviceType.DISCRETE_GPU if handle.is_discrete else DeviceType.INTEGRATED_GPU
    device = D3D12Device(
        index=index,
        name=handle.name.strip(),
        type=kind,
        vendor_id=handle.vendor_id,
        memory_bytes=handle.dedicated_video_memory,
        shared_bytes=handle.shared_system_memory,
    )
    said: Any = handle
    if not hasattr(said, "abilities"):
        return device
    return dataclasses.replace(
        device, driver=said.driver, note=said.note, abilities=said.abilities, floats=TRANSLATED
    )


def choose_device(devices: Sequence[D3D12Device], selector: str | None) -> D3D12Device:
    """Device of a selector: see `interface.choose_device`."""
    return interface.choose_device(
        "Direct3D 12", devices, selector, (), lambda d: d.name, lambda d: d.memory_bytes
    )


class Context:
    """Opened device.

    The package records every command in one list per device and releases Python's lock while it
    waits, so `lock` is held around every use of the device.
    """

    def __init__(self, device: D3D12Device) -> None:
        self.device = device
        self.package = load_package()
        self.lock = threading.Lock()
        with reporting(f"{device.name} cannot be opened"):
            self._handle = self.package.get_discovered_devices()[device.index]

    def make_buffer(self, heap: int, size: int, stride: int = 0) -> Buffer:
        """Buffer of at least `size` bytes; of structures of `stride` bytes, if that is not 0."""
        return self.package.Buffer(size, heap, stride=stride, device=self._handle)

    def make_compute(
        self, shader: bytes, cbv: Sequence[Buffer], srv: Sequence[Buffer], uav: Sequence[Buffer]
    ) -> Compute:
        """Pipeline with its buffers: each list fills registers from number 0 on."""
        return self.package.Compute(
            shader, cbv=list(cbv), srv=list(srv), uav=list(uav), device=self._handle
        )


_contexts: dict[D3D12Device, Context] = {}


def open_context(device: D3D12Device) -> Context:
    """Context of a device, made once, since two would record into the same list."""
    return open_once(_contexts, device, Context)
