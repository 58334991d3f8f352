"""The devices of every runtime by one name, and functions compiled for and loaded on them.

`opencl`, `vulkan` and `d3d12` name a runtime, each also followed by `:` and an index or a part of
a device's name; `reference` means that NumPy evaluates. Which of a runtime's devices a name means,
the runtime decides.
"""

from __future__ import annotations

import functools
from typing import TypeAlias

from dmlc.ir import Function
from dmlc.parameters import expect_text
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.runtime import d3d12, opencl, vulkan
from dmlc.runtime.d3d12 import D3D12Device
from dmlc.runtime.opencl.device import Device, DeviceKind
from dmlc.runtime.opencl.executable import Executable
from dmlc.runtime.vulkan import VulkanDevice
from dmlc.source import DmlcError, unknown_name

AnyDevice: TypeAlias = Device | VulkanDevice | D3D12Device
AnyExecutable: TypeAlias = Executable | vulkan.Executable | d3d12.Executable

_WORDS = ("opencl", "vulkan", "d3d12", "reference")


def find_device(device: str) -> AnyDevice | None:
    """The device that a device text means, or None for the reference."""
    expect_text("device", device, "the name of a device, such as 'opencl'")
    head = device.partition(":")[0]
    if device == "reference":
        return None
    if head == "opencl":
        return opencl.find_device(device)
    if head == "vulkan":
        return vulkan.find_device(device)
    if head == "d3d12":
        return d3d12.find_device(device)
    raise DmlcError(unknown_name("device", device, _WORDS))


def selector_of(device: AnyDevice) -> str:
    """The text that names a device and no other."""
    if isinstance(device, VulkanDevice):
        return f"vulkan:{device.index}"
    if isinstance(device, D3D12Device):
        return f"d3d12:{device.index}"
    return f"opencl:{device.index}"


def load_on(program: Program, device: AnyDevice) -> AnyExecutable:
    """Builds a program on a device. Raises as the device's runtime does."""
    if isinstance(device, VulkanDevice):
        return vulkan.load_on(program, device)
    if isinstance(device, D3D12Device):
        return d3d12.load_on(program, device)
    return opencl.load_on(program, device)


def compile_for(function: Function, device: AnyDevice) -> Program:
    """The program of a function in the language and the shape that a device takes."""
    if isinstance(device, VulkanDevice):
        return compile(function, "hlsl")
    if isinstance(device, D3D12Device):
        # compushady brings a root signature of its own.
        return compile(function, "hlsl", root_signature=False)
    return compile(function, "opencl", "gpu" if device.kind is DeviceKind.GPU else "cpu")


@functools.lru_cache(maxsize=256)
def load_function(function: Function, device: AnyDevice) -> AnyExecutable:
    """A function compiled for a device and built there; the latest are kept."""
    return load_on(compile_for(function, device), device)
