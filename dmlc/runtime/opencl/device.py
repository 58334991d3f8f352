"""Properties of an OpenCL device, and the choice of a device by a selector.

Plain data and pure functions: nothing here calls a driver, so that the rules can be tested with
devices that do not exist. `driver` fills in the values."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from dmlc.runtime.floats import LEAST, FloatPromises
from dmlc.runtime.interface import CompileOptions, find_matching
from dmlc.source import Note, UnavailableError

RUNTIME = "opencl"

INSTALL_NOTE = Note(
    "install an OpenCL driver: on Debian or Ubuntu, `apt-get install pocl-opencl-icd` runs "
    "kernels on the CPU; a GPU needs its vendor's driver"
)


class DeviceKind(enum.Enum):
    GPU = "gpu"
    CPU = "cpu"
    OTHER = "other"


class Memory(enum.Enum):
    """Way of an array from host memory to a kernel."""

    SHARED = "shared"
    """Kernels work on the array itself; nothing is needed before or after a launch."""
    MAPPED = "mapped"
    """Kernels work on the array itself, handed over by unmapping and taken back by mapping."""
    COPIED = "copied"
    """The device has memory of its own: inputs are copied there and outputs back."""


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """OpenCL device. Sizes are in bytes."""

    runtime: ClassVar[str] = RUNTIME

    index: int
    """Its number in `devices()`, and in a selector `opencl:<index>`."""
    name: str
    platform: str
    platform_index: int
    kind: DeviceKind
    version: str
    compute_units: int
    memory_size: int
    max_allocation: int
    """The largest single buffer."""
    memory: Memory
    float64: bool
    """Whether kernels may compute in float64."""
    driver: str = ""
    """The driver's version, as the platform and the device give it."""
    note: str = ""
    """What was chosen before its driver started, and why; empty for nothing."""
    floats: FloatPromises = LEAST
    divides_correctly: bool = False
    """Whether programs may ask for correctly rounded quotients of FLOAT32."""
    part_alignment: int = 256
    """A part of a buffer begins at a multiple of this."""
    key: int = dataclasses.field(default=0, repr=False)
    """What the driver knows the device by."""
    small_key: int | None = dataclasses.field(default=None, repr=False)
    """The same processor behind an interface with a quicker launch and one thread, if any."""

    def __str__(self) -> str:
        return f"{self.name} ({self.platform})"

    @property
    def compile_options(self) -> CompileOptions:
        return {"profile": "gpu" if self.kind is DeviceKind.GPU else "cpu"}

    @property
    def facts(self) -> tuple[str, ...]:
        """Properties in words."""
        return (
            f"{self.platform}, {self.version.strip()}",
            self.kind.value,
            f"{self.compute_units} compute units",
            f"{self.memory_size >> 20:,} MiB",
            f"largest buffer {self.max_allocation >> 20:,} MiB",
            "float64" if self.float64 else "no float64",
            f"memory {self.memory.value}",
            *self.floats.facts,
        )


def choose(
    devices: Sequence[Device], selector: str | None, environment: Mapping[str, str]
) -> Device:
    """Device of a selector. `selector` is `opencl`, `opencl:<index or part of a name>`, the part
    after the colon alone, or None.

    Without a part after the colon, the variable PYOPENCL_CTX of `environment` decides (`<platform>`
    or `<platform>:<device>`, each an index or a part of a name), and without that the first GPU,
    then the first CPU, then the first device of any kind. Raises `UnavailableError` if there is no
    device, or none that matches."""
    if not devices:
        raise UnavailableError("there is no OpenCL device on this machine", notes=[INSTALL_NOTE])
    chosen = find_matching("OpenCL", devices, selector, lambda d: d.name)
    context = environment.get("PYOPENCL_CTX", "")
    if chosen is None and context:
        return _choose_by_context(devices, context)
    preference = (DeviceKind.GPU, DeviceKind.CPU)
    preferred = (d for kind in preference for d in devices if d.kind is kind)
    return chosen or next(preferred, devices[0])


def _match(
    devices: Sequence[Device],
    wanted: str,
    number: Callable[[Device], int],
    name: Callable[[Device], str],
) -> list[Device]:
    """Devices whose number is `wanted`; else those whose name contains it, ignoring case."""
    if wanted.isascii() and wanted.isdigit():
        numbered = [d for d in devices if number(d) == int(wanted)]
        if numbered:
            return numbered
    return [d for d in devices if wanted.lower() in name(d).lower()]


def _choose_by_context(devices: Sequence[Device], context: str) -> Device:
    platform, colon, rest = context.partition(":")
    found: Sequence[Device] = devices
    if platform.strip():
        found = _match(found, platform.strip(), lambda d: d.platform_index, lambda d: d.platform)
    wanted = rest.strip()
    if found and colon and wanted:
        place = {device: number for number, device in enumerate(found)}
        found = _match(found, wanted, lambda d: place[d], lambda d: d.name)
    if not found:
        known = [f"{d.platform_index} is {d.platform}, with {d}" for d in devices[:20]]
        raise UnavailableError(
            f"no OpenCL device matches PYOPENCL_CTX='{context}'",
            notes=[f"platforms here: {'; '.join(known)}"],
        )
    return found[0]
