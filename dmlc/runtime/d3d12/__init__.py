"""HLSL programs on Direct3D 12 devices: list of devices, and loading of a program.

On Linux, vkd3d runs them, on any Vulkan device. On Windows it is untested on hardware: see
`device.UNTESTED`, which every device there carries as its note.

The parts: `package` (interface to Direct3D), `vkd3d` and `library` (its implementation on Linux),
`device` (choosing a device, the limits), `plan` (checks and windows of a run), `frame` (buffers and
pipelines), `executable` (the run).
"""

from __future__ import annotations

from dmlc.program import Program
from dmlc.runtime.copied import Call
from dmlc.runtime.d3d12.device import (
    UNTESTED,
    D3D12Device,
    choose_device,
    find_devices,
    open_context,
)
from dmlc.runtime.d3d12.executable import Executable

__all__ = [
    "CHOICE",
    "UNTESTED",
    "Call",
    "D3D12Device",
    "Executable",
    "devices",
    "find_device",
    "find_tool",
    "load",
    "load_on",
]


CHOICE = ""


def devices() -> tuple[D3D12Device, ...]:
    """Every Direct3D 12 device of this machine; UnavailableError, with the cure, without an
    implementation: on Windows the package that `dmlc[d3d12]` installs, on Linux vkd3d."""
    return find_devices()


def find_device(selector: str | None = None) -> D3D12Device:
    """Device of a selector: see `device.choose_device`."""
    return choose_device(devices(), selector)


def find_tool() -> None:
    """Returns None: no tool checks the kernels' memory accesses there."""


def load(program: Program, selector: str | None = None) -> Executable:
    """Builds a program on the selected device.

    Raises `UnavailableError` without Direct3D 12, DXC or such a device, and `UnsupportedError` for
    a program that was compiled for another target or exceeds a limit of Direct3D 12.
    """
    return load_on(program, find_device(selector))


def load_on(program: Program, device: D3D12Device) -> Executable:
    """Builds a program on a device of `devices()`. Raises as `load` does."""
    return Executable(program, open_context(device))
