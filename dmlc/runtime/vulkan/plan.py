"""Plan of a run on a Vulkan device, made before any allocation: launches, sizes, and refusals.

Drivers may exceed their limits silently and give wrong results, so every limit is checked here, by
name, against the needs of the program and the run. Nothing here calls a driver."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from dmlc.program import KernelSource, Program, constant_buffer_bytes, list_sharing
from dmlc.runtime import copied
from dmlc.runtime.arrays import tensor_bytes
from dmlc.runtime.copied import check_groups, list_launches, list_windows, refuse_excess
from dmlc.runtime.hlsl import CompiledKernel
from dmlc.runtime.vulkan.device import VulkanDevice
from dmlc.source import UnsupportedError

INDEX_LIMIT = 1 << 32
"""Elements that a structured buffer can be indexed by: DXC cuts indices to 32 bits."""


@dataclasses.dataclass(frozen=True, slots=True)
class Launch(copied.Launch):
    """Dispatch of a kernel."""

    window: tuple[int, int] | None
    """The first element and the number of elements of every tensor that it works on; None: all."""
    waits: bool
    """Whether a barrier stands before it: it touches what a launch since the last one stored, or
    stores what one read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Run of a program with known sizes."""

    bytes_of: Mapping[str, int]
    """The memory of each tensor."""
    launches: tuple[Launch, ...]


def check_kernels(
    program: Program, compiled: Sequence[CompiledKernel], device: VulkanDevice
) -> None:
    """Raises UnsupportedError for a kernel that exceeds a device's abilities at all sizes."""
    limits = device.limits
    for kernel, made in zip(program.kernels, compiled, strict=True):
        what = f"the kernel {kernel.name}"
        size, shared = made.facts.group_size, made.facts.group_shared_bytes
        for axis, have, most in zip("xyz", size, limits.group_size, strict=True):
            refuse_excess(device.name, f"{what} has {have:,} threads along {axis}", have, most,
                          "maxComputeWorkGroupSize")  # fmt: skip
        threads, count = math.prod(size), len(kernel.buffers)
        block = constant_buffer_bytes(kernel.scalars)
        for has, have, most, limit in (
            (f"{threads:,} threads per group", threads, limits.group_threads,
             "maxComputeWorkGroupInvocations"),
            (f"{shared:,} bytes of group-shared memory", shared, limits.group_shared,
             "maxComputeSharedMemorySize"),
            (f"{count} buffers", count, limits.stage_storage_buffers,
             "maxPerStageDescriptorStorageBuffers"),
            (f"{count} buffers", count, limits.set_storage_buffers,
             "maxDescriptorSetStorageBuffers"),
            (f"{block:,} bytes of constants", block, limits.uniform_range, "maxUniformBufferRange"),
        ):  # fmt: skip
            refuse_excess(device.name, f"{what} has {has}", have, most, limit)
        missing = [c for c in made.facts.capabilities if c not in device.capabilities]
        if missing:
            raise UnsupportedError(
                f"{what} needs {', '.join(missing)}, which {device.name} does not have"
            )


def make_plan(program: Program, sizes: Mapping[str, int], device: VulkanDevice) -> Plan:
    """Launches of a run for these sizes of symbols.

    An element-wise program with tensors larger than one binding runs window by window. Raises
    `UnsupportedError` if a run exceeds a limit of the device, which the message names.
    """
    limits = device.limits
    bytes_of: dict[str, int] = {}
    for tensor in program.tensors:
        size = tensor_bytes(tensor, sizes)
        count = size // tensor.dtype.bytes
        what = f"the tensor {tensor.name} takes {size:,} bytes"
        refuse_excess(device.name, what, size, limits.allocation, "maxMemoryAllocationSize")
        if not program.elementwise:
            refuse_excess(device.name, what, size, limits.storage_range, "maxStorageBufferRange")
            refuse_excess(device.name, f"the tensor {tensor.name} has {count:,} elements", count,
                          INDEX_LIMIT, "the width of an element index")  # fmt: skip
        bytes_of[tensor.name] = size
    whole = program.scratch_bytes
    refuse_excess(device.name, f"all memory between kernels takes {whole:,} bytes", whole,
                  limits.allocation, "maxMemoryAllocationSize")  # fmt: skip
    launches: list[Launch] = []
    windows = list_windows(program, sizes, limits.storage_range, INDEX_LIMIT)
    for each in windows:
        window = None if len(windows) == 1 else (each.start, next(iter(each.sizes.values())))
        check_groups(device.name, program, each.sizes, limits.groups, "maxComputeWorkGroupCount")
        # Windows have no element in common, so none waits for the one before it.
        touched = _Touched(program)
        for launch in list_launches(program, each.sizes):
            waits = touched.add(program.kernels[launch.kernel])
            launches.append(Launch(launch.kernel, launch.groups, launch.constants, window, waits))
    return Plan(bytes_of, tuple(launches))


class _Touched:
    """Tensors that the launches since the last barrier read and stored."""

    def __init__(self, program: Program) -> None:
        self._sharing = list_sharing(program.tensors)
        self._read: set[str] = set()
        self._written: set[str] = set()

    def add(self, kernel: KernelSource) -> bool:
        """Adds a launch. Returns whether it needs a barrier before it."""
        reads = self._list_touched(b.tensor for b in kernel.buffers if b.read)
        writes = self._list_touched(b.tensor for b in kernel.buffers if b.written)
        waits = bool(reads & self._written or writes & self._written or writes & self._read)
        if waits:
            self._read, self._written = reads, writes
        else:
            self._read |= reads
            self._written |= writes
        return waits

    def _list_touched(self, tensors: Iterable[str]) -> set[str]:
        """Tensors, and those that share memory with them."""
        return {name for tensor in tensors for name in self._sharing.get(tensor, (tensor,))}
