"""Kernels as Vulkan pipelines, each made once per device and kept while in use.

A pipeline takes one descriptor set: the kernel's buffers and its constant buffer, at the bindings
that `KernelSource.shifts` gives them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from dmlc.program import KernelSource
from dmlc.runtime.hlsl import CompiledKernel
from dmlc.runtime.vulkan.context import Context

_FULL = 2
"""VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT, which the package `vulkan` lacks."""
_KEPT = 64
"""Pipelines per device that outlive the last executable that used them."""


def close_in_process(process: int, stack: contextlib.ExitStack) -> None:
    """Closes a stack, unless this process is a child of the one that made its objects."""
    if os.getpid() == process:
        stack.close()


class Pipeline:
    """Kernel ready to be launched on a device. It destroys its objects when dropped."""

    def __init__(self, context: Context, kernel: KernelSource, compiled: CompiledKernel) -> None:
        api = context.api
        shifts = kernel.shifts
        bindings = [
            layout_binding(api, "STORAGE", shifts.find_binding(b.slot, b.written))
            for b in kernel.buffers
        ]
        if kernel.scalars:
            bindings.append(layout_binding(api, "UNIFORM", shifts.b))
        stack = contextlib.ExitStack()
        self.close = weakref.finalize(self, close_in_process, context.process, stack)
        # At the end of the process everything goes at once.
        self.close.atexit = False
        self.set_layout, self.layout, self.handle = build_pipeline(
            context,
            stack,
            compiled.spirv,
            kernel.entry_point,
            bindings,
            subgroup=0 if kernel.matrix is None else kernel.matrix.subgroup,
        )


def build_pipeline(
    context: Context,
    stack: contextlib.ExitStack,
    spirv: bytes,
    entry_point: str,
    bindings: Sequence[Any],
    flags: int = 0,
    subgroup: int = 0,
) -> tuple[Any, Any, Any]:
    """Pipeline of a module, with VkDescriptorSetLayoutBindings: the layouts of its descriptor set
    and of itself, and its handle. Subgroups have the size `subgroup`, unless that is 0. `stack`
    destroys the objects."""
    api = context.api
    asked = api.make(
        "VkDescriptorSetLayoutCreateInfo", bindingCount=len(bindings), pBindings=bindings
    )
    set_layout = context.make("vkCreateDescriptorSetLayout", "VkDescriptorSetLayout", asked)
    stack.callback(context.destroyer("vkDestroyDescriptorSetLayout", set_layout))
    asked = api.make("VkPipelineLayoutCreateInfo", setLayoutCount=1, pSetLayouts=[set_layout])
    layout = context.make("vkCreatePipelineLayout", "VkPipelineLayout", asked)
    stack.callback(context.destroyer("vkDestroyPipelineLayout", layout))
    code = api.ffi.from_buffer("uint32_t[]", spirv)
    asked = api.make("VkShaderModuleCreateInfo", codeSize=len(spirv), pCode=code)
    module = context.make("vkCreateShaderModule", "VkShaderModule", asked)
    destroy_module = context.destroyer("vkDestroyShaderModule", module)
    try:
        sized = api.make(
            "VkPipelineShaderStageRequiredSubgroupSizeCreateInfo", requiredSubgroupSize=subgroup
        )
        stage = api.make(
            "VkPipelineShaderStageCreateInfo",
            pNext=sized if subgroup else api.null,
            flags=_FULL if subgroup else 0,
            stage=api.flags("SHADER_STAGE", "COMPUTE"),
            module=module,
            pName=entry_point,
        )
        asked = api.make("VkComputePipelineCreateInfo", flags=flags, stage=stage, layout=layout)
        arguments = (context.handle, api.null, 1, asked, api.null)
        handle = api.get("vkCreateComputePipelines", "VkPipeline", *arguments)
    finally:
        destroy_module()
    stack.callback(context.destroyer("vkDestroyPipeline", handle))
    return set_layout, layout, handle


def layout_binding(api: Any, kind: str, number: int) -> Any:
    """VkDescriptorSetLayoutBinding of a buffer: `STORAGE` or `UNIFORM`."""
    return api.make(
        "VkDescriptorSetLayoutBinding",
        binding=number,
        descriptorType=api.constant(f"DESCRIPTOR_TYPE_{kind}_BUFFER"),
        descriptorCount=1,
        stageFlags=api.flags("SHADER_STAGE", "COMPUTE"),
    )


class PipelineCache:
    """Pipelines of one context, by kernel."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._made: weakref.WeakValueDictionary[KernelSource, Pipeline] = (
            weakref.WeakValueDictionary()
        )
        self._recent: dict[KernelSource, Pipeline] = {}

    def find(self, kernel: KernelSource, compiled: CompiledKernel) -> Pipeline:
        """Pipeline of a kernel, made now if it is new."""
        with self._lock:
            found = self._made.get(kernel)
            if found is None:
                with self._context.doing(f"builds the kernel {kernel.name}"):
                    found = self._made[kernel] = Pipeline(self._context, kernel, compiled)
            self._recent.pop(kernel, None)
            self._recent[kernel] = found
            if len(self._recent) > _KEPT:
                del self._recent[next(iter(self._recent))]
            return found

    def clear(self) -> None:
        """Drops the pipelines that no executable uses."""
        with self._lock:
            self._recent.clear()
