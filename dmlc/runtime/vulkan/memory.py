"""Memory of a Vulkan device: buffers of its own, and host memory in which it works.

A buffer is a range of bytes that kernels can be bound to. Objects are destroyed by the ExitStack
that was passed in."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from typing import Any

import numpy as np

from dmlc.runtime.arrays import Array, Bytes
from dmlc.runtime.vulkan.api import VulkanError
from dmlc.runtime.vulkan.context import Context
from dmlc.source import DmlcError, InternalError


class Use(enum.Enum):
    """Users of a buffer, which determine the best memory type."""

    KERNELS = "kernels alone"
    SHARED = "kernels and the host"
    UPLOAD = "the host writes, the device copies"
    DOWNLOAD = "the device copies, the host reads"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Range of bytes that can be bound to kernels."""

    handle: Any
    offset: int
    """Where they begin within the Vulkan buffer."""
    size: int
    host: Bytes | None
    """The same bytes as the host sees them, where it does."""


class Allocator:
    """Allocator of buffers on one context's device."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._api = api = context.api
        self._types = api.ffi.new("VkPhysicalDeviceMemoryProperties *")
        api.lib.vkGetPhysicalDeviceMemoryProperties(context.physical, self._types)
        flags = {
            name: api.flags("MEMORY_PROPERTY", name)
            for name in ("HOST_VISIBLE", "HOST_COHERENT", "HOST_CACHED", "DEVICE_LOCAL")
        }
        self._host = flags["HOST_VISIBLE"] | flags["HOST_COHERENT"]
        local, cached = flags["DEVICE_LOCAL"], flags["HOST_CACHED"]
        # For each use: what memory must have, and what it had better have.
        self._wanted = {
            Use.KERNELS: (0, local),
            Use.SHARED: (self._host, local | cached),
            Use.UPLOAD: (self._host, 0),
            Use.DOWNLOAD: (self._host, cached),
        }
        self._storage = api.flags("BUFFER_USAGE", "STORAGE_BUFFER", "TRANSFER_SRC", "TRANSFER_DST")
        self._uniform = api.flags("BUFFER_USAGE", "UNIFORM_BUFFER")

    def allocate(
        self, stack: contextlib.ExitStack, size: int, use: Use, *, constants: bool = False
    ) -> Buffer:
        """New buffer. DmlcError if the device lacks the memory."""
        api, context = self._api, self._context
        usage = self._uniform if constants else self._storage
        must, better = self._wanted[use]
        try:
            buffer = context.make(
                "vkCreateBuffer",
                "VkBuffer",
                api.make("VkBufferCreateInfo", size=size, usage=usage),
            )
            stack.callback(context.destroyer("vkDestroyBuffer", buffer))
            needs = self._requirements(buffer)
            kind = self._find_type(needs.memoryTypeBits, must, better)
            if kind is None:
                raise InternalError(f"{context.device.name} has no memory for {use.value}")
            memory = context.make(
                "vkAllocateMemory",
                "VkDeviceMemory",
                api.make("VkMemoryAllocateInfo", allocationSize=needs.size, memoryTypeIndex=kind),
            )
        except VulkanError as error:
            raise DmlcError(
                f"{context.device.name} has no {size:,} bytes of memory left ({error.result})"
            ) from error
        stack.callback(context.destroyer("vkFreeMemory", memory))
        api.call("vkBindBufferMemory", context.handle, buffer, memory, 0)
        host = None
        if must & self._host:
            place = api.ffi.new("void **")
            api.call("vkMapMemory", context.handle, memory, 0, needs.size, 0, place)
            host = np.frombuffer(api.ffi.buffer(place[0], size), np.uint8)
        return Buffer(buffer, 0, size, host)

    def _requirements(self, buffer: Any) -> Any:
        needs = self._api.ffi.new("VkMemoryRequirements *")
        self._api.lib.vkGetBufferMemoryRequirements(self._context.handle, buffer, needs)
        return needs

    def _find_type(self, allowed: int, must: int, better: int) -> int | None:
        """Memory type with all flags of `must` and the most of `better`, the first in the driver's
        order."""
        best, best_score = None, -1
        for k in range(self._types.memoryTypeCount):
            flags = self._types.memoryTypes[k].propertyFlags
            score = (flags & better).bit_count()
            if allowed >> k & 1 and flags & must == must and score > best_score:
                best, best_score = k, score
        return best

    def lend(self, stack: contextlib.ExitStack, memory: Array) -> Buffer | None:
        """Buffer over host memory; None if the device cannot work in it.

        `memory` is contiguous, and neither freed nor moved while the buffer exists."""
        context, api = self._context, self._api
        page = context.device.import_alignment
        start = int(memory.__array_interface__["data"][0])
        # Kernels may work in whole words of 4 bytes, and none may reach beyond the array.
        if page is None or memory.nbytes % 4 or start % context.device.limits.storage_alignment:
            return None
        first = start // page * page
        size = -(-(start + memory.nbytes - first) // page) * page
        pointer = api.ffi.cast("void *", first)
        handle_type = api.constant("EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT")
        properties = api.make("VkMemoryHostPointerPropertiesEXT")
        if context.import_properties(context.handle, handle_type, pointer, properties):
            return None
        external = api.make("VkExternalMemoryBufferCreateInfo", handleTypes=handle_type)
        buffer = context.make(
            "vkCreateBuffer",
            "VkBuffer",
            api.make("VkBufferCreateInfo", pNext=external, size=size, usage=self._storage),
        )
        stack.callback(context.destroyer("vkDestroyBuffer", buffer))
        needs = self._requirements(buffer)
        allowed = properties.memoryTypeBits & needs.memoryTypeBits
        kind = self._find_type(allowed, self._host, 0)
        if kind is None or needs.size > size:
            return None
        lent = api.make(
            "VkImportMemoryHostPointerInfoEXT", handleType=handle_type, pHostPointer=pointer
        )
        asked = api.make(
            "VkMemoryAllocateInfo",
            pNext=lent,
            allocationSize=size,
            memoryTypeIndex=kind,
        )
        try:
            made = context.make("vkAllocateMemory", "VkDeviceMemory", asked)
        except VulkanError:
            # Read-only or already lent: the values go through a buffer of the device instead.
            return None
        stack.callback(context.destroyer("vkFreeMemory", made))
        api.call("vkBindBufferMemory", context.handle, buffer, made, 0)
        return Buffer(buffer, start - first, memory.nbytes, None)
