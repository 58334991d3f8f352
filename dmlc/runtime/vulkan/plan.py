"""Plan of a run on a Vulkan device, made before any allocation: launches, sizes, and refusals.

Drivers may exceed their limits silently and give wrong results, so every limit is checked here, by
name, against the needs of the program and the run. Nothing here calls a driver."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from dmlc.program import KernelSource, Program, constant_buffer_bytes, list_sharing
from dmlc.runtime.arrays import tensor_bytes
from dmlc.runtime.constants import fill_constants
from dmlc.runtime.copied import list_windows
from dmlc.runtime.hlsl import CompiledKernel
from dmlc.runtime.vulkan.device import VulkanDevice
from dmlc.source import UnsupportedError

INDEX_LIMIT = 1 << 32
"""Elements that a structured buffer can be indexed by: DXC cuts indices to 32 bits."""


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """Dispatch of a kernel."""

    kernel: int
    groups: tuple[int, int, int]
    window: tuple[int, int] | None
    """The first element and the number of elements of every tensor that it works on; None: all."""
    constants: bytes
    """The content of constant buffer b0; empty where the kernel has none."""
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
        size = made.facts.group_size
        for axis, (have, most) in enumerate(zip(size, limits.group_size, strict=True)):
            _refuse(have > most, device, f"{what} has {have:,} threads along {'xyz'[axis]}",
                    "maxComputeWorkGroupSize", f"{most:,}")  # fmt: skip
        threads = math.prod(size)
        _refuse(threads > limits.group_threads, device, f"{what} has {threads:,} threads per group",
                "maxComputeWorkGroupInvocations", f"{limits.group_threads:,}")  # fmt: skip
        shared = made.facts.group_shared_bytes
        _refuse(shared > limits.group_shared, device,
                f"{what} has {shared:,} bytes of group-shared memory",
                "maxComputeSharedMemorySize", f"{limits.group_shared:,}")  # fmt: skip
        count = len(kernel.buffers)
        for name, most in (
            ("maxPerStageDescriptorStorageBuffers", limits.stage_storage_buffers),
            ("maxDescriptorSetStorageBuffers", limits.set_storage_buffers),
        ):
            _refuse(count > most, device, f"{what} has {count} buffers", name, str(most))
        block = constant_buffer_bytes(kernel.scalars)
        _refuse(block > limits.uniform_range, device, f"{what} has {block:,} bytes of constants",
                "maxUniformBufferRange", f"{limits.uniform_range:,}")  # fmt: skip
        missing = [c for c in made.facts.capabilities if c not in device.capabilities]
        if missing:
            raise UnsupportedError(
                f"{what} needs {', '.join(missing)}, which {device.name} does not have"
            )


def _refuse(excess: bool, device: VulkanDevice, what: str, limit: str, most: str) -> None:
    if excess:
        raise UnsupportedError(f"{what}, and {device.name} allows {most} ({limit})")


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
        _refuse(size > limits.allocation, device, what,
                "maxMemoryAllocationSize", f"{limits.allocation:,}")  # fmt: skip
        if not program.elementwise:
            _refuse(size > limits.storage_range, device, what,
                    "maxStorageBufferRange", f"{limits.storage_range:,}")  # fmt: skip
            _refuse(count > INDEX_LIMIT, device, f"the tensor {tensor.name} has {count:,} elements",
                    "the width of an element index", f"{INDEX_LIMIT:,}")  # fmt: skip
        bytes_of[tensor.name] = size
    whole = program.scratch_bytes
    _refuse(whole > limits.allocation, device, f"all memory between kernels takes {whole:,} bytes",
            "maxMemoryAllocationSize", f"{limits.allocation:,}")  # fmt: skip
    launches: list[Launch] = []
    windows = list_windows(program, sizes, limits.storage_range, INDEX_LIMIT)
    for each in windows:
        window = None if len(windows) == 1 else (each.start, next(iter(each.sizes.values())))
        # Windows have no element in common, so none waits for the one before it.
        launches += _launch_all(program, each.sizes, device, window, _Touched(program))
    return Plan(bytes_of, tuple(launches))


def _launch_all(
    program: Program,
    sizes: Mapping[str, int],
    device: VulkanDevice,
    window: tuple[int, int] | None,
    touched: _Touched,
) -> tuple[Launch, ...]:
    limits = device.limits
    launches: list[Launch] = []
    for number, step in program.order(sizes):
        kernel = program.kernels[number]
        groups = kernel.dispatch.groups(dict(sizes))
        for axis, (have, most) in enumerate(zip(groups, limits.groups, strict=True)):
            _refuse(have > most, device,
                    f"the kernel {kernel.name} needs {have:,} groups along {'xyz'[axis]}",
                    "maxComputeWorkGroupCount", f"{most:,}")  # fmt: skip
        if 0 in groups:
            continue
        waits = touched.add(kernel)
        constants = fill_constants(kernel, {**sizes, **step})
        launches.append(Launch(number, groups, window, constants, waits))
    return tuple(launches)


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
