"""WGSL programs on WebGPU, through the package `wgpu`: list of devices, and loading of a program.

The parts: `device` (the package, choosing a device, its limits), `plan` (checks and windows of a
run), `frame` (buffers and pipelines), `executable` (the run).
"""

from __future__ import annotations

from dmlc.program import Program
from dmlc.runtime.copied import Call
from dmlc.runtime.wgpu.device import WgpuDevice, choose_device, find_devices, open_context
from dmlc.runtime.wgpu.executable import Executable

__all__ = [
    "CHOICE",
    "Call",
    "Executable",
    "WgpuDevice",
    "devices",
    "find_device",
    "find_tool",
    "load",
    "load_on",
]


CHOICE = ""


def devices() -> tuple[WgpuDevice, ...]:
    """Every device of this machine that WebGPU lists; UnavailableError, with the cure, without the
    package."""
    return find_devices()


def find_device(selector: str | None = None) -> WgpuDevice:
    """Device of a selector: see `device.choose_device`."""
    return choose_device(devices(), selector)


def find_tool() -> None:
    """Returns None: no tool checks the kernels' memory accesses there."""


def load(program: Program, selector: str | None = None) -> Executable:
    """Builds a program on the selected device.

    Raises `UnavailableError` without the package or such a device, and `UnsupportedError` for a
    program that was compiled for another target or exceeds a limit of the device.
    """
    return load_on(program, find_device(selector))


def load_on(program: Program, device: WgpuDevice) -> Executable:
    """Builds a program on a device of `devices()`. Raises as `load` does."""
    return Executable(program, open_context(device))
