"""Plan of a WebGPU run, made before any allocation, with all refusals. WebGPU checks every limit
itself; a check here gives a message in the program's terms. Nothing here calls a driver."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dmlc.program import KernelSource, Program, constant_buffer_bytes
from dmlc.runtime.arrays import tensor_bytes
from dmlc.runtime.copied import Window, groups_of, list_windows
from dmlc.runtime.interface import check_target
from dmlc.runtime.wgpu.device import WgpuDevice
from dmlc.source import UnsupportedError

_ELEMENTS = 1 << 32
_SHARED = re.compile(r"var<workgroup> \w+: array<(?:vec(\d)<\w+>|\w+), (\d+)>")
_WORD = 4
"""Granularity in bytes of buffers and of shared memory."""


def check_program(program: Program, device: WgpuDevice) -> None:
    """Raises UnsupportedError for a program that exceeds a device's features at all sizes."""
    check_target(program, "wgsl", "WebGPU devices")
    limits = device.limits
    for kernel in program.kernels:
        what = f"the kernel {kernel.name}"
        count = len(kernel.buffers)
        _refuse(device, f"{what} has {count} buffers", count, limits.storage_buffers,
                "maxStorageBuffersPerShaderStage")  # fmt: skip
        threads = kernel.dispatch.group_size
        _refuse(device, f"{what} has {threads:,} invocations per group", threads,
                limits.group_size, "maxComputeInvocationsPerWorkgroup")  # fmt: skip
        arrays = _SHARED.findall(kernel.source)
        shared = _WORD * sum(int(lanes or 1) * int(count) for lanes, count in arrays)
        _refuse(device, f"{what} has {shared:,} bytes of shared memory", shared,
                limits.group_shared, "maxComputeWorkgroupStorageSize")  # fmt: skip
        block = constant_buffer_bytes(kernel.scalars)
        _refuse(device, f"{what} has {block:,} bytes of arguments", block,
                limits.uniform_range, "maxUniformBufferBindingSize")  # fmt: skip
        if not device.float16 and program.language.list_needs(kernel.source):
            raise UnsupportedError(f"{what} needs f16, which {device.name} does not have")


def _refuse(device: WgpuDevice, what: str, have: int, most: int, limit: str) -> None:
    if have > most:
        raise UnsupportedError(f"{what}, and {device.name} allows {most:,} ({limit})")


def buffer_bytes(size: int) -> int:
    """Size of a tensor's buffer: whole words, and never 0."""
    return max(-(-size // _WORD), 1) * _WORD


def plan_windows(
    program: Program, sizes: Mapping[str, int], device: WgpuDevice
) -> tuple[Window, ...]:
    """Windows of a run, first to last; none if there is nothing to compute.

    An element-wise program on tensors larger than a binding runs in several windows. Any other
    program has one, and UnsupportedError names the limit it exceeds.
    """
    largest = min(device.limits.storage_range, device.limits.buffer)
    windows = list_windows(program, sizes, largest, _ELEMENTS)
    for window in windows:
        for tensor in program.tensors:
            size = buffer_bytes(tensor_bytes(tensor, window.sizes))
            _refuse(device, f"the tensor {tensor.name} takes {size:,} bytes", size, largest,
                    "maxStorageBufferBindingSize")  # fmt: skip
        for kernel in program.kernels:
            _check_groups(kernel, window, device)
    return tuple(w for w in windows if any(0 not in groups_of(k, w) for k in program.kernels))


def _check_groups(kernel: KernelSource, window: Window, device: WgpuDevice) -> None:
    for axis, have in zip("xyz", groups_of(kernel, window), strict=True):
        _refuse(device, f"the kernel {kernel.name} needs {have:,} groups along {axis}", have,
                device.limits.groups, "maxComputeWorkgroupsPerDimension")  # fmt: skip
