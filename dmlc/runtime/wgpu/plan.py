"""Plan of a WebGPU run, made before any allocation, with all refusals. WebGPU checks every limit
itself; a check here gives a message in the program's terms. Nothing here calls a driver."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dmlc.program import Program, constant_buffer_bytes
from dmlc.runtime import copied
from dmlc.runtime.arrays import tensor_bytes
from dmlc.runtime.copied import Window, check_groups, refuse_excess
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
        threads = kernel.dispatch.group_size
        arrays = _SHARED.findall(kernel.source)
        shared = _WORD * sum(int(lanes or 1) * int(count) for lanes, count in arrays)
        block = constant_buffer_bytes(kernel.scalars)
        for has, have, most, limit in (
            (f"{count} buffers", count, limits.storage_buffers, "maxStorageBuffersPerShaderStage"),
            (f"{threads:,} invocations per group", threads, limits.group_size,
             "maxComputeInvocationsPerWorkgroup"),
            (f"{shared:,} bytes of shared memory", shared, limits.group_shared,
             "maxComputeWorkgroupStorageSize"),
            (f"{block:,} bytes of arguments", block, limits.uniform_range,
             "maxUniformBufferBindingSize"),
        ):  # fmt: skip
            refuse_excess(device.name, f"{what} has {has}", have, most, limit)
        if not device.float16 and program.language.list_needs(kernel.source):
            raise UnsupportedError(f"{what} needs f16, which {device.name} does not have")


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

    def check(sizes: Mapping[str, int]) -> None:
        for tensor in program.tensors:
            size = buffer_bytes(tensor_bytes(tensor, sizes))
            refuse_excess(device.name, f"the tensor {tensor.name} takes {size:,} bytes", size,
                          largest, "maxStorageBufferBindingSize")  # fmt: skip
        most = (device.limits.groups,) * 3
        check_groups(device.name, program, sizes, most, "maxComputeWorkgroupsPerDimension")

    return copied.plan_windows(program, sizes, largest, _ELEMENTS, check)
