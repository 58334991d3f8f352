"""WebGPU devices, their selection, and opened devices.

WebGPU is reached through the package `wgpu`, imported only here, at the first call that needs it. A
device is requested with all limits of its adapter; WebGPU itself promises less.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar

from dmlc.runtime import interface, lavapipe
from dmlc.runtime.floats import LEAST, FloatPromises
from dmlc.runtime.interface import CompileOptions, DeviceType, open_once, refuse_fork
from dmlc.source import DmlcError, Note, UnavailableError

RUNTIME = "wgpu"
INSTALL_PACKAGE = Note("install what reaches WebGPU with: pip install dmlc[wgpu]")
INSTALL_DRIVER = Note(
    "install a driver: on Debian or Ubuntu, `apt-get install libvulkan1 mesa-vulkan-drivers` runs "
    "kernels on the CPU; a GPU needs its vendor's driver"
)
_BACKENDS = ("Vulkan", "Metal", "D3D12")
_F16 = "shader-f16"


_TYPES = {
    "DiscreteGPU": DeviceType.DISCRETE_GPU,
    "IntegratedGPU": DeviceType.INTEGRATED_GPU,
    "CPU": DeviceType.CPU,
}
"""Types of devices by WebGPU's names."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a device. Sizes are in bytes; names in comments are WebGPU's."""

    groups: int  # maxComputeWorkgroupsPerDimension
    group_size: int  # maxComputeInvocationsPerWorkgroup
    group_shared: int  # maxComputeWorkgroupStorageSize
    storage_buffers: int  # maxStorageBuffersPerShaderStage
    storage_range: int  # maxStorageBufferBindingSize
    uniform_range: int  # maxUniformBufferBindingSize
    buffer: int  # maxBufferSize


_LIMITS: Mapping[str, str] = {
    "groups": "max-compute-workgroups-per-dimension",
    "group_size": "max-compute-invocations-per-workgroup",
    "group_shared": "max-compute-workgroup-storage-size",
    "storage_buffers": "max-storage-buffers-per-shader-stage",
    "storage_range": "max-storage-buffer-binding-size",
    "uniform_range": "max-uniform-buffer-binding-size",
    "buffer": "max-buffer-size",
}
"""Names of the limits in the package."""
_ALSO_ASKED = ("max-compute-workgroup-size-x", "max-bindings-per-bind-group")


@dataclasses.dataclass(frozen=True, slots=True)
class WgpuDevice:
    """Device that WebGPU reaches through one of the system's interfaces."""

    runtime: ClassVar[str] = RUNTIME

    index: int
    """Number in `devices()`, and in a selector `wgpu:<index>`."""
    name: str
    type: DeviceType
    backend: str
    """Interface: `Vulkan`, `Metal` or `D3D12`."""
    driver: str
    limits: Limits
    float16: bool
    """Whether kernels may use f16."""
    note: str = ""
    """Choice made before its driver started, with the reason; empty for none."""

    def __str__(self) -> str:
        return f"{self.name} ({self.type.value}, WebGPU on {self.backend}, {self.driver})"

    @property
    def floats(self) -> FloatPromises:
        """Promises of WebGPU, which has no way to request more from a driver."""
        return LEAST

    @property
    def compile_options(self) -> CompileOptions:
        return {}

    @property
    def facts(self) -> tuple[str, ...]:
        """Properties in words."""
        return (
            f"WebGPU on {self.backend}, {self.type.value}",
            f"largest binding {self.limits.storage_range >> 20:,} MiB",
            f"{self.limits.storage_buffers} buffers per kernel",
            "f16" if self.float16 else "no f16",
            *self.floats.facts,
        )


def load_package() -> Any:
    """Package `wgpu`. UnavailableError, with the cure, if it cannot be imported."""
    try:
        return importlib.import_module("wgpu")
    except (ImportError, OSError) as problem:
        raise UnavailableError(
            f"WebGPU is reached through the package wgpu, which cannot be imported: {problem}",
            notes=[INSTALL_PACKAGE],
        ) from problem


@contextlib.contextmanager
def reporting(what: str) -> Generator[None]:
    """Converts errors of WebGPU to a `DmlcError` that says `what` cannot be done."""
    errors: Any = importlib.import_module("wgpu").GPUError
    try:
        yield
    except (errors, RuntimeError) as problem:
        raise DmlcError(f"{what}: {problem}") from problem


@functools.cache
def _list_adapters() -> tuple[list[Any], int]:
    """Adapters, and the process that listed them."""
    package = load_package()
    extras: Any = importlib.import_module("wgpu.backends.wgpu_native.extras")
    # OpenGL, which it looks at too unless told otherwise, cannot run what is generated here. It
    # can be told once in a process, and somebody may have done so already.
    with contextlib.suppress(RuntimeError):
        extras.set_instance_extras(backends=("Vulkan", "Metal", "DX12"))
    with lavapipe.starting(), reporting("WebGPU cannot list its devices"):
        found: list[Any] = package.gpu.enumerate_adapters_sync()
    return [a for a in found if a.info["backend_type"] in _BACKENDS], os.getpid()


def _adapters() -> list[Any]:
    adapters, process = _list_adapters()
    refuse_fork("WebGPU", process)
    return adapters


def find_devices() -> tuple[WgpuDevice, ...]:
    """Every device, in WebGPU's order."""
    return tuple(_describe(number, adapter) for number, adapter in enumerate(_adapters()))


def _describe(index: int, adapter: Any) -> WgpuDevice:
    info: Any = adapter.info
    limits: Any = adapter.limits
    name = str(info["device"])
    return WgpuDevice(
        index=index,
        name=name,
        type=_TYPES.get(info["adapter_type"], DeviceType.OTHER),
        backend=info["backend_type"],
        driver=str(info["description"]) or "unknown driver",
        limits=Limits(**{field: limits[said] for field, said in _LIMITS.items()}),
        float16=_F16 in adapter.features,
        note=lavapipe.find_note(name),
    )


def choose_device(devices: Sequence[WgpuDevice], selector: str | None) -> WgpuDevice:
    """Device of a selector: see `interface.choose_device`."""
    return interface.choose_device("WebGPU", devices, selector, [INSTALL_DRIVER])


class Context:
    """Opened device. `lock` is held around every use of it."""

    def __init__(self, device: WgpuDevice) -> None:
        self.device = device
        self.lock = threading.Lock()
        self.package = load_package()
        adapter = _adapters()[device.index]
        names = (*_LIMITS.values(), *_ALSO_ASKED)
        with reporting(f"{device.name} cannot be opened"):
            self.handle: Any = adapter.request_device_sync(
                required_features=[_F16] if device.float16 else [],
                required_limits={name: adapter.limits[name] for name in names},
            )


_contexts: dict[WgpuDevice, Context] = {}


def open_context(device: WgpuDevice) -> Context:
    """Context of a device, made once."""
    return open_once(_contexts, device, Context)
