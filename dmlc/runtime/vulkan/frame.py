"""Run of a program recorded as Vulkan commands over fixed buffers, to be submitted repeatedly.

A frame owns its buffers, descriptor sets, command buffer and fence. The commands include barriers
between launches, and copies on a device with memory of its own; copies by the host are its `Moves`.
One thread uses a frame at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmlc.program import Program, Role, TensorSpec
from dmlc.runtime.arrays import Array, Bytes, as_bytes, constant_array, is_loaded
from dmlc.runtime.profile import Interval, read_ticks
from dmlc.runtime.vulkan.context import Context
from dmlc.runtime.vulkan.memory import Allocator, Buffer, Use
from dmlc.runtime.vulkan.pipeline import Pipeline, close_in_process
from dmlc.runtime.vulkan.plan import Plan
from dmlc.source import InternalError

_WAIT_NANOSECONDS = 100_000_000
"""After so long a wait returns to Python, which may have been interrupted, and goes on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """Transfer of a tensor's values between the host and the device."""

    tensor: str
    host: Bytes
    inward: bool
    outward: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Moves:
    """Copies by the host, each with its target and source: of inputs before a run, and of results
    after it. Tensors in whose memory the device works itself have none."""

    inward: Sequence[tuple[Bytes, Bytes]]
    outward: Sequence[tuple[Bytes, Bytes]]

    def load(self) -> None:
        for target, source in self.inward:
            target[:] = source

    def store(self) -> None:
        for target, source in self.outward:
            target[:] = source


class Recording:
    """Recorded run, which destroys its objects when it is dropped."""

    def __init__(
        self,
        context: Context,
        allocator: Allocator,
        program: Program,
        pipelines: Mapping[int, Pipeline],
        plan: Plan,
        *,
        lent: Mapping[str, Array],
        staged: bool,
        timed: bool,
        turns: int = 1,
        each: bool = False,
    ) -> None:
        """`pipelines` are those of the plan's kernels, by number. `lent` are arrays of the caller
        to work in if the device can, which live as long as the frame. With `staged`, values go
        through memory that only copies access. The kernels run `turns` times between the copies.
        With `each`, launches do not overlap, and each is timed."""
        self._context = context
        self._program = program
        self._pipelines = pipelines
        self._lent = dict(lent)
        self.transfers: list[Transfer] = []
        self._stack = contextlib.ExitStack()
        self._close = weakref.finalize(self, close_in_process, context.process, self._stack)
        self._close.atexit = False
        self._copies_in: list[tuple[Buffer, Buffer]] = []
        self._copies_out: list[tuple[Buffer, Buffer]] = []
        self._buffers: dict[str, Buffer] = {}
        with context.doing(f"prepares a run of {program.name}"):
            self._place(allocator, plan, staged)
            self._order = [launch.kernel for launch in plan.launches]
            self._marks = len(self._order) + 1 if each else 2
            self._each = each
            self._clock = self._make_clock() if timed or each else None
            self._sets = self._describe(plan, self._place_constants(allocator, plan))
            self._record(plan, turns)
        apart = {t.name for t in program.scratch if t.offset is not None} | self._borrowed
        self.bytes = sum(size for name, size in plan.bytes_of.items() if name not in apart)
        self.bytes += program.scratch_bytes

    # Buffers ----------------------------------------------------------------------------------

    def _place(self, allocator: Allocator, plan: Plan, staged: bool) -> None:
        borrowed: dict[tuple[int, int], Buffer] = {}
        self._borrowed: set[str] = set()
        shared: Buffer | None = None
        if self._program.scratch_bytes:
            whole = max(4, -(-self._program.scratch_bytes // 4) * 4)
            shared = allocator.allocate(self._stack, whole, Use.KERNELS)
        for tensor in self._program.tensors:
            # Kernels may work in whole words of 4 bytes; and no buffer may be empty.
            size = max(4, -(-plan.bytes_of[tensor.name] // 4) * 4)
            if tensor.role is Role.SCRATCH and shared is not None and tensor.offset is not None:
                self._buffers[tensor.name] = Buffer(shared.handle, tensor.offset, size, None)
                continue
            if tensor.role is Role.SCRATCH:
                self._buffers[tensor.name] = allocator.allocate(self._stack, size, Use.KERNELS)
                continue
            if tensor.role is Role.CONSTANT:
                self._place_table(allocator, tensor, size, staged)
                continue
            memory = self._lent.get(tensor.name)
            if memory is not None and memory.nbytes:
                place = (int(memory.__array_interface__["data"][0]), memory.nbytes)
                buffer = borrowed.get(place) or allocator.lend(self._stack, memory)
                if buffer is not None:
                    borrowed[place] = self._buffers[tensor.name] = buffer
                    self._borrowed.add(tensor.name)
                    continue
            is_output = tensor.role is Role.OUTPUT
            inward = is_loaded(tensor)
            used = slice(0, plan.bytes_of[tensor.name])
            if not staged:
                buffer = allocator.allocate(self._stack, size, Use.SHARED)
                host = _host_bytes(buffer)[used]
                self.transfers.append(Transfer(tensor.name, host, inward, is_output))
            else:
                buffer = allocator.allocate(self._stack, size, Use.KERNELS)
                if inward:
                    upload = allocator.allocate(self._stack, size, Use.UPLOAD)
                    self._copies_in.append((upload, buffer))
                    host = _host_bytes(upload)[used]
                    self.transfers.append(Transfer(tensor.name, host, True, False))
                if is_output:
                    download = allocator.allocate(self._stack, size, Use.DOWNLOAD)
                    self._copies_out.append((buffer, download))
                    host = _host_bytes(download)[used]
                    self.transfers.append(Transfer(tensor.name, host, False, True))
            self._buffers[tensor.name] = buffer

    def _place_table(
        self, allocator: Allocator, tensor: TensorSpec, size: int, staged: bool
    ) -> None:
        """Buffer of a constant tensor, whose values are copied to the host's side once."""
        shared = allocator.allocate(self._stack, size, Use.UPLOAD if staged else Use.SHARED)
        values = as_bytes(constant_array(tensor))
        _host_bytes(shared)[: values.size] = values
        self._buffers[tensor.name] = shared
        if staged:
            buffer = allocator.allocate(self._stack, size, Use.KERNELS)
            self._copies_in.append((shared, buffer))
            self._buffers[tensor.name] = buffer

    def _place_constants(self, allocator: Allocator, plan: Plan) -> list[Buffer | None]:
        """Constants of all launches, side by side in one buffer."""
        alignment = max(16, self._context.device.limits.uniform_alignment)
        starts: list[int] = []
        end = 0
        for launch in plan.launches:
            starts.append(end)
            end += -(-len(launch.constants) // alignment) * alignment
        if end == 0:
            return [None] * len(plan.launches)
        whole = allocator.allocate(self._stack, end, Use.UPLOAD, constants=True)
        host = _host_bytes(whole)
        placed: list[Buffer | None] = []
        for launch, start in zip(plan.launches, starts, strict=True):
            size = len(launch.constants)
            if size == 0:
                placed.append(None)
                continue
            host[start : start + size] = np.frombuffer(launch.constants, np.uint8)
            placed.append(Buffer(whole.handle, start, size, None))
        return placed

    def _describe(self, plan: Plan, constants: Sequence[Buffer | None]) -> list[Any]:
        """Descriptor set of each launch."""
        api, context = self._context.api, self._context
        storage = api.constant("DESCRIPTOR_TYPE_STORAGE_BUFFER")
        uniform = api.constant("DESCRIPTOR_TYPE_UNIFORM_BUFFER")
        launches = plan.launches
        kernels = [self._program.kernels[launch.kernel] for launch in launches]
        pipelines = [self._pipelines[launch.kernel] for launch in launches]
        counts = {
            storage: sum(len(k.buffers) for k in kernels),
            uniform: sum(c is not None for c in constants),
        }
        sizes = [
            api.make("VkDescriptorPoolSize", type=kind, descriptorCount=count)
            for kind, count in counts.items()
            if count
        ]
        pool = context.make(
            "vkCreateDescriptorPool",
            "VkDescriptorPool",
            api.make(
                "VkDescriptorPoolCreateInfo",
                maxSets=len(launches),
                poolSizeCount=len(sizes),
                pPoolSizes=sizes,
            ),
        )
        self._stack.callback(context.destroyer("vkDestroyDescriptorPool", pool))
        sets = api.ffi.new("VkDescriptorSet[]", len(launches))
        asked = api.make(
            "VkDescriptorSetAllocateInfo",
            descriptorPool=pool,
            descriptorSetCount=len(launches),
            pSetLayouts=[p.set_layout for p in pipelines],
        )
        api.call("vkAllocateDescriptorSets", context.handle, asked, sets)
        writes: list[Any] = []
        for launch, kernel, block, target in zip(launches, kernels, constants, sets, strict=True):
            shifts = kernel.shifts
            for buffer in kernel.buffers:
                place = self._buffers[buffer.tensor]
                if launch.window is not None:
                    place = _slice_window(place, launch.window, self._program.tensor(buffer.tensor))
                binding = shifts.find_binding(buffer.slot, buffer.written)
                writes.append(_write(api, target, binding, storage, place))
            if block is not None:
                writes.append(_write(api, target, shifts.b, uniform, block))
        api.lib.vkUpdateDescriptorSets(
            context.handle, len(writes), api.array("VkWriteDescriptorSet", writes), 0, api.null
        )
        return list(sets)

    # Commands ---------------------------------------------------------------------------------

    def _make_clock(self) -> Any:
        api, context = self._context.api, self._context
        clock = context.make(
            "vkCreateQueryPool",
            "VkQueryPool",
            api.make(
                "VkQueryPoolCreateInfo",
                queryType=api.constant("QUERY_TYPE_TIMESTAMP"),
                queryCount=self._marks,
            ),
        )
        self._stack.callback(context.destroyer("vkDestroyQueryPool", clock))
        return clock

    def _record(self, plan: Plan, turns: int) -> None:
        api, context = self._context.api, self._context
        pool = context.make(
            "vkCreateCommandPool",
            "VkCommandPool",
            api.make("VkCommandPoolCreateInfo", queueFamilyIndex=context.device.queue_family),
        )
        self._stack.callback(context.destroyer("vkDestroyCommandPool", pool))
        asked = api.make(
            "VkCommandBufferAllocateInfo", commandPool=pool, level=0, commandBufferCount=1
        )
        commands = api.get("vkAllocateCommandBuffers", "VkCommandBuffer", context.handle, asked)
        api.call("vkBeginCommandBuffer", commands, api.make("VkCommandBufferBeginInfo"))
        shader, transfer, host = "COMPUTE_SHADER", "TRANSFER", "HOST"
        both = ("SHADER_READ", "SHADER_WRITE")
        for source, target in self._copies_in:
            self._copy(commands, source, target)
        if self._copies_in:
            self._barrier(commands, transfer, ("TRANSFER_WRITE",), shader, both)
        self._read_clock(commands, 0)
        pairs = list(zip(plan.launches, self._sets, strict=True))
        for number, (launch, target) in enumerate(pairs * turns):
            pipeline = self._pipelines[launch.kernel]
            # Each turn stores over what the one before it stored.
            if launch.waits or (number and (self._each or number % len(pairs) == 0)):
                self._barrier(commands, shader, both, shader, both)
            point = api.constant("PIPELINE_BIND_POINT_COMPUTE")
            api.lib.vkCmdBindPipeline(commands, point, pipeline.handle)
            api.lib.vkCmdBindDescriptorSets(
                commands, point, pipeline.layout, 0, 1,
                api.array("VkDescriptorSet", [target]), 0, api.null,
            )  # fmt: skip
            api.lib.vkCmdDispatch(commands, *launch.groups)
            if self._each:
                self._read_clock(commands, number + 1)
        if not self._each:
            self._read_clock(commands, 1)
        if self._copies_out:
            self._barrier(commands, shader, ("SHADER_WRITE",), transfer, ("TRANSFER_READ",))
            for source, target in self._copies_out:
                self._copy(commands, source, target)
            self._barrier(commands, transfer, ("TRANSFER_WRITE",), host, ("HOST_READ",))
        else:
            self._barrier(commands, shader, ("SHADER_WRITE",), host, ("HOST_READ",))
        api.call("vkEndCommandBuffer", commands)
        fence = context.make("vkCreateFence", "VkFence", api.make("VkFenceCreateInfo"))
        self._stack.callback(context.destroyer("vkDestroyFence", fence))
        self._fence, self._fences = fence, api.array("VkFence", [fence])
        self._reset: Any = api.lib.vkResetFences
        self._wait: Any = api.lib.vkWaitForFences
        self._timeout = api.constant("TIMEOUT")
        self._running = context.doing(f"runs {self._program.name}")
        self._submission = api.make(
            "VkSubmitInfo", commandBufferCount=1, pCommandBuffers=[commands]
        )

    def _copy(self, commands: Any, source: Buffer, target: Buffer) -> None:
        api = self._context.api
        region = api.make(
            "VkBufferCopy", srcOffset=source.offset, dstOffset=target.offset, size=source.size
        )
        api.lib.vkCmdCopyBuffer(commands, source.handle, target.handle, 1, region)

    def _barrier(
        self,
        commands: Any,
        before: str,
        done: Sequence[str],
        after: str,
        to_do: Sequence[str],
    ) -> None:
        api = self._context.api
        barrier = api.make(
            "VkMemoryBarrier",
            srcAccessMask=api.flags("ACCESS", *done),
            dstAccessMask=api.flags("ACCESS", *to_do),
        )
        api.lib.vkCmdPipelineBarrier(
            commands,
            api.flags("PIPELINE_STAGE", before),
            api.flags("PIPELINE_STAGE", after),
            0, 1, barrier, 0, api.null, 0, api.null,
        )  # fmt: skip

    def _read_clock(self, commands: Any, number: int) -> None:
        if self._clock is None:
            return
        api = self._context.api
        if number == 0:
            api.lib.vkCmdResetQueryPool(commands, self._clock, 0, self._marks)
        stage = api.flags("PIPELINE_STAGE", "TOP_OF_PIPE" if number == 0 else "BOTTOM_OF_PIPE")
        api.lib.vkCmdWriteTimestamp(commands, stage, self._clock, number)

    # Running ----------------------------------------------------------------------------------

    def move(self, memories: Mapping[str, Array]) -> Moves:
        """Copies by the host before and after a run on `memories`."""
        pairs = [(each, as_bytes(memories[each.tensor])) for each in self.transfers]
        return Moves(
            [(each.host, memory) for each, memory in pairs if each.inward],
            [(memory, each.host) for each, memory in pairs if each.outward],
        )

    def run(self) -> None:
        """Submits the commands and waits for their end."""
        context = self._context
        device, fences, timeout = context.handle, self._fences, self._timeout
        with self._running:
            # At the start, so that a run that was interrupted leaves nothing to make good.
            result: int = self._reset(device, 1, fences)
            if result:
                raise context.api.error("vkResetFences", result)
            try:
                context.submit(self._submission, self._fence)
                result = timeout
                while result == timeout:
                    result = self._wait(device, 1, fences, 1, _WAIT_NANOSECONDS)
                if result:
                    raise context.api.error("vkWaitForFences", result)
            except BaseException:
                # Interrupted or lost: nothing may be given back while the device is at it.
                context.wait_until_idle()
                raise

    def seconds(self) -> float | None:
        """Seconds of the last run's kernels on the device; None without a clock."""
        ticks = self._read_marks()
        if ticks is None:
            return None
        return (ticks[1] - ticks[0]) * (self._context.device.timestamp_period or 0.0) * 1e-9

    def launches(self) -> list[Interval]:
        """Time of each launch of the last run, in a frame that times them; empty without a
        clock."""
        ticks, period = self._read_marks(), self._context.device.timestamp_period
        return [] if ticks is None else read_ticks(self._order, ticks, period or 0.0)

    def _read_marks(self) -> list[int] | None:
        """Clock readings at the timestamps; None without a clock."""
        if self._clock is None or self._context.device.timestamp_period is None:
            return None
        api, count = self._context.api, self._marks
        ticks = api.ffi.new(f"uint64_t[{count}]")
        flags = api.flags("QUERY_RESULT", "64", "WAIT")
        api.call(
            "vkGetQueryPoolResults",
            self._context.handle, self._clock, 0, count, 8 * count, ticks, 8, flags,
        )  # fmt: skip
        return [int(tick) for tick in ticks]


def _host_bytes(buffer: Buffer) -> Bytes:
    if buffer.host is None:
        raise InternalError("the host has no view of a buffer that it works in")
    return buffer.host


def _slice_window(whole: Buffer, window: tuple[int, int], tensor: TensorSpec) -> Buffer:
    """Part of a buffer with a window's elements, in whole words of 4 bytes."""
    first, count = (n * tensor.dtype.bytes for n in window)
    return Buffer(whole.handle, whole.offset + first, -(-count // 4) * 4, None)


def _write(api: Any, target: Any, binding: int, kind: int, place: Buffer) -> Any:
    info = api.make(
        "VkDescriptorBufferInfo", buffer=place.handle, offset=place.offset, range=place.size
    )
    return api.make(
        "VkWriteDescriptorSet",
        dstSet=target,
        dstBinding=binding,
        descriptorCount=1,
        descriptorType=kind,
        pBufferInfo=info,
    )
