"""Running HLSL programs on Vulkan devices: which devices there are, and a program loaded on one.

The parts: `api` (the loader's functions), `device` (choosing a device),
`context` (a device made ready), `hlsl` and `dxc` (the compiler), `plan` (what a run
does, and whether it may), `memory`, `pipeline`, `frame` (a run recorded),
`executable` (the run).
"""

from __future__ import annotations

from dmlc.program import Program
from dmlc.runtime.dxc_library import load_library
from dmlc.runtime.report import Report
from dmlc.runtime.vulkan.context import find_devices, open_context, set_validation
from dmlc.runtime.vulkan.device import VulkanDevice, choose_device
from dmlc.runtime.vulkan.executable import Call, Executable, Options

__all__ = [
    "Call",
    "Executable",
    "Options",
    "Report",
    "VulkanDevice",
    "check_tools",
    "devices",
    "find_device",
    "is_chosen",
    "is_possible",
    "load",
    "load_on",
    "set_validation",
]


def is_possible() -> bool:
    """Every system may have Vulkan."""
    return True


def devices() -> tuple[VulkanDevice, ...]:
    """Every Vulkan device of this machine that runs compute kernels; UnavailableError, with the
    cure, where Vulkan itself is missing or cannot be set up as asked."""
    return find_devices()


def check_tools() -> None:
    """UnavailableError, with the cure, where HLSL cannot be compiled."""
    load_library()


def is_chosen() -> bool:
    """No variable names a device."""
    return False


def find_device(selector: str | None = None) -> VulkanDevice:
    """The device that a selector means: see `device.choose_device`."""
    return choose_device(find_devices(), selector)


def load(
    program: Program, selector: str | None = None, options: Options | None = None
) -> Executable:
    """Builds a program on the device that the selector means.

    Raises `UnavailableError` without Vulkan, DXC or such a device, and `UnsupportedError` where
    the program was compiled for another target or exceeds a limit of the device.
    """
    return Executable(program, open_context(selector), options or Options())


def load_on(program: Program, device: VulkanDevice, options: Options | None = None) -> Executable:
    """Builds a program on a device of `devices()`. Raises as `load` does."""
    return load(program, f"vulkan:{device.index}", options)
