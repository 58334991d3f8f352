"""HLSL programs on Vulkan devices: list of devices, and loading of a program.

The parts: `api` (the loader's functions), `device` (choosing a device), `context` (an opened
device), `hlsl` and `dxc` (the compiler), `plan` (checks and launches of a run), `memory`,
`pipeline`, `frame` (a recorded run), `executable` (the run)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dmlc.program import Program
from dmlc.runtime.arrays import Array, Shape
from dmlc.runtime.interface import Tool
from dmlc.runtime.report import Report
from dmlc.runtime.vulkan.context import (
    Objection,
    Validation,
    find_devices,
    open_context,
    set_validation,
)
from dmlc.runtime.vulkan.device import VulkanDevice, choose_device
from dmlc.runtime.vulkan.executable import Call, Executable, Options

__all__ = [
    "CHOICE",
    "Call",
    "Executable",
    "Options",
    "Report",
    "Validation",
    "VulkanDevice",
    "check_accesses",
    "devices",
    "find_device",
    "find_tool",
    "load",
    "load_on",
    "set_validation",
]


CHOICE = ""


def devices() -> tuple[VulkanDevice, ...]:
    """Every Vulkan device of this machine that runs compute kernels; UnavailableError, with the
    cure, if Vulkan is missing or the requested setup fails."""
    return find_devices()


def find_device(selector: str | None = None) -> VulkanDevice:
    """Device of a selector: see `device.choose_device`."""
    return choose_device(devices(), selector)


def load(
    program: Program, selector: str | None = None, options: Options | None = None
) -> Executable:
    """Builds a program on the selected device. Raises `UnavailableError` without Vulkan, DXC or
    such a device, and `UnsupportedError` for a program that was compiled for another target or
    exceeds a limit of the device."""
    return Executable(program, open_context(selector), options or Options())


def load_on(program: Program, device: VulkanDevice, options: Options | None = None) -> Executable:
    """Builds a program on a device of `devices()`. Raises as `load` does."""
    return load(program, f"vulkan:{device.index}", options)


def find_tool() -> Tool:
    """The validation layer, whether installed or not: see `check_accesses`."""
    return Tool("the validation layer", check_accesses)


def check_accesses(
    program: Program,
    device: VulkanDevice,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Shape],
) -> list[str]:
    """Errors that the validation layer reports for a run: misuse of Vulkan, races between kernels,
    and accesses outside buffers. Raises `UnavailableError` if the layer is not installed."""
    before = set_validation(Validation.ACCESSES)
    try:
        executable = load_on(program, device)
        executable(inputs, outputs)
        context = open_context(f"vulkan:{device.index}")
        with context.doing(f"ends a run of {program.name}"):
            # Newer layers tell of accesses when they find that the work has ended.
            context.wait_until_idle()
    except Objection as objection:
        return [_name_kernel(message, program) for message in objection.messages]
    finally:
        set_validation(before)
    return []


_DISPATCH = re.compile(r"Compute Dispatch Index (\d+)")


def _name_kernel(message: str, program: Program) -> str:
    """Message of the layer, with the kernel's name if it has the kernel's number."""
    found = _DISPATCH.search(message)
    number = int(found[1]) if found else len(program.kernels)
    named = number < len(program.kernels)
    return f"the kernel {program.kernels[number].name}: {message}" if named else message
