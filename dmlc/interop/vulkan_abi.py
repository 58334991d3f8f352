"""The part of Vulkan's C interface that generated hosts use, for all their languages.

Names, orders and numbers are those of Vulkan's registry, which never change. A host that declares
them itself needs no binding, and works beside any."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class AbiMember:
    """Member of a structure, or argument of a function."""

    name: str
    type: str
    """`u32`, `i32`, `u64`, `usize`, `ptr`, or the name of a structure. Handles are `ptr` where
    Vulkan dispatches by them, and else `u64`."""
    count: int = 1
    """The elements of an array."""


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """Structure whose name in Vulkan begins with `Vk`."""

    name: str
    members: tuple[AbiMember, ...]
    kind: int | None = None
    """Its VkStructureType, where it has one."""


@dataclasses.dataclass(frozen=True, slots=True)
class AbiFunction:
    """Function whose name in Vulkan begins with `vk`."""

    name: str
    level: str
    """`global`, `instance` or `device`: what finds it."""
    arguments: tuple[AbiMember, ...]
    gives: bool = True
    """Whether it gives a VkResult."""


def _members(text: str) -> tuple[AbiMember, ...]:
    """Members or arguments from text such as `u32 count, ptr values, u32[4] rest`."""
    made: list[AbiMember] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        kind, name = part.split()
        kind, _, count = kind.partition("[")
        made.append(AbiMember(name, kind, int(count.rstrip("]") or 1)))
    return tuple(made)


def _structure(name: str, members: str, kind: int | None = None) -> Structure:
    head = "" if kind is None else "u32 sType, ptr pNext, "
    return Structure(name, _members(head + members), kind)


STRUCTURES: tuple[Structure, ...] = (
    _structure("ApplicationInfo", "ptr pApplicationName, u32 applicationVersion, ptr pEngineName, "
               "u32 engineVersion, u32 apiVersion", 0),
    _structure("InstanceCreateInfo", "u32 flags, ptr pApplicationInfo, u32 enabledLayerCount, "
               "ptr ppEnabledLayerNames, u32 enabledExtensionCount, ptr ppEnabledExtensionNames",
               1),
    _structure("DeviceQueueCreateInfo", "u32 flags, u32 queueFamilyIndex, u32 queueCount, "
               "ptr pQueuePriorities", 2),
    _structure("DeviceCreateInfo", "u32 flags, u32 queueCreateInfoCount, ptr pQueueCreateInfos, "
               "u32 enabledLayerCount, ptr ppEnabledLayerNames, u32 enabledExtensionCount, "
               "ptr ppEnabledExtensionNames, ptr pEnabledFeatures", 3),
    _structure("PhysicalDeviceFeatures2", "u32[55] features", 1000059000),
    _structure("PhysicalDevice16BitStorageFeatures", "u32[4] features", 1000083000),
    _structure("PhysicalDeviceShaderFloat16Int8Features", "u32[2] features", 1000082000),
    # Larger than VkPhysicalDeviceProperties; of it, what is read lies at fixed places.
    _structure("PhysicalDeviceProperties", "u64[128] words"),
    _structure("QueueFamilyProperties", "u32 queueFlags, u32 queueCount, u32[4] rest"),
    _structure("MemoryType", "u32 propertyFlags, u32 heapIndex"),
    _structure("PhysicalDeviceMemoryProperties", "u32 memoryTypeCount, u32[64] memoryTypes, "
               "u32 memoryHeapCount, u64[32] memoryHeaps"),
    _structure("BufferCreateInfo", "u32 flags, u64 size, u32 usage, u32 sharingMode, "
               "u32 queueFamilyIndexCount, ptr pQueueFamilyIndices", 12),
    _structure("MemoryRequirements", "u64 size, u64 alignment, u32 memoryTypeBits"),
    _structure("MemoryAllocateInfo", "u64 allocationSize, u32 memoryTypeIndex", 5),
    _structure("DescriptorSetLayoutBinding", "u32 binding, u32 descriptorType, "
               "u32 descriptorCount, u32 stageFlags, ptr pImmutableSamplers"),
    _structure("DescriptorSetLayoutCreateInfo", "u32 flags, u32 bindingCount, ptr pBindings", 32),
    _structure("PipelineLayoutCreateInfo", "u32 flags, u32 setLayoutCount, ptr pSetLayouts, "
               "u32 pushConstantRangeCount, ptr pPushConstantRanges", 30),
    _structure("ShaderModuleCreateInfo", "u32 flags, usize codeSize, ptr pCode", 16),
    _structure("PipelineShaderStageCreateInfo", "u32 flags, u32 stage, u64 module, ptr pName, "
               "ptr pSpecializationInfo", 18),
    _structure("ComputePipelineCreateInfo", "u32 flags, PipelineShaderStageCreateInfo stage, "
               "u64 layout, u64 basePipelineHandle, i32 basePipelineIndex", 29),
    _structure("DescriptorPoolSize", "u32 type_, u32 descriptorCount"),
    _structure("DescriptorPoolCreateInfo", "u32 flags, u32 maxSets, u32 poolSizeCount, "
               "ptr pPoolSizes", 33),
    _structure("DescriptorSetAllocateInfo", "u64 descriptorPool, u32 descriptorSetCount, "
               "ptr pSetLayouts", 34),
    _structure("DescriptorBufferInfo", "u64 buffer, u64 offset, u64 range"),
    _structure("WriteDescriptorSet", "u64 dstSet, u32 dstBinding, u32 dstArrayElement, "
               "u32 descriptorCount, u32 descriptorType, ptr pImageInfo, ptr pBufferInfo, "
               "ptr pTexelBufferView", 35),
    _structure("CommandPoolCreateInfo", "u32 flags, u32 queueFamilyIndex", 39),
    _structure("CommandBufferAllocateInfo", "u64 commandPool, u32 level, u32 commandBufferCount",
               40),
    _structure("CommandBufferBeginInfo", "u32 flags, ptr pInheritanceInfo", 42),
    _structure("MemoryBarrier", "u32 srcAccessMask, u32 dstAccessMask", 46),
    _structure("SubmitInfo", "u32 waitSemaphoreCount, ptr pWaitSemaphores, ptr pWaitDstStageMask, "
               "u32 commandBufferCount, ptr pCommandBuffers, u32 signalSemaphoreCount, "
               "ptr pSignalSemaphores", 4),
)  # fmt: skip
"""In an order in which each comes before those that hold it."""


def _list_functions(level: str, text: str) -> list[AbiFunction]:
    """Functions from text, one per line: the name and the arguments; a name with `!` returns
    nothing."""
    made: list[AbiFunction] = []
    for line in filter(None, (each.strip() for each in text.splitlines())):
        name, _, arguments = line.partition(":")
        made.append(AbiFunction(name.rstrip("!"), level, _members(arguments), "!" not in name))
    return made


FUNCTIONS: tuple[AbiFunction, ...] = (
    *_list_functions("global", """
        CreateInstance: ptr pCreateInfo, ptr pAllocator, ptr pInstance
    """),
    *_list_functions("instance", """
        DestroyInstance!: ptr instance, ptr pAllocator
        EnumeratePhysicalDevices: ptr instance, ptr pCount, ptr pDevices
        GetPhysicalDeviceProperties!: ptr physical, ptr pProperties
        GetPhysicalDeviceQueueFamilyProperties!: ptr physical, ptr pCount, ptr pProperties
        GetPhysicalDeviceMemoryProperties!: ptr physical, ptr pProperties
        GetPhysicalDeviceFeatures2!: ptr physical, ptr pFeatures
        CreateDevice: ptr physical, ptr pCreateInfo, ptr pAllocator, ptr pDevice
    """),
    *_list_functions("device", """
        DestroyDevice!: ptr device, ptr pAllocator
        GetDeviceQueue!: ptr device, u32 family, u32 index, ptr pQueue
        CreateBuffer: ptr device, ptr pCreateInfo, ptr pAllocator, ptr pBuffer
        DestroyBuffer!: ptr device, u64 buffer, ptr pAllocator
        GetBufferMemoryRequirements!: ptr device, u64 buffer, ptr pRequirements
        AllocateMemory: ptr device, ptr pAllocateInfo, ptr pAllocator, ptr pMemory
        FreeMemory!: ptr device, u64 memory, ptr pAllocator
        BindBufferMemory: ptr device, u64 buffer, u64 memory, u64 offset
        MapMemory: ptr device, u64 memory, u64 offset, u64 size, u32 flags, ptr ppData
        CreateShaderModule: ptr device, ptr pCreateInfo, ptr pAllocator, ptr pModule
        DestroyShaderModule!: ptr device, u64 module, ptr pAllocator
        CreateDescriptorSetLayout: ptr device, ptr pCreateInfo, ptr pAllocator, ptr pLayout
        DestroyDescriptorSetLayout!: ptr device, u64 layout, ptr pAllocator
        CreatePipelineLayout: ptr device, ptr pCreateInfo, ptr pAllocator, ptr pLayout
        DestroyPipelineLayout!: ptr device, u64 layout, ptr pAllocator
        CreateComputePipelines: ptr device, u64 cache, u32 count, ptr pInfos, ptr pAllocator, \
            ptr pPipelines
        DestroyPipeline!: ptr device, u64 pipeline, ptr pAllocator
        CreateDescriptorPool: ptr device, ptr pCreateInfo, ptr pAllocator, ptr pPool
        DestroyDescriptorPool!: ptr device, u64 pool, ptr pAllocator
        AllocateDescriptorSets: ptr device, ptr pAllocateInfo, ptr pSets
        UpdateDescriptorSets!: ptr device, u32 writeCount, ptr pWrites, u32 copyCount, ptr pCopies
        CreateCommandPool: ptr device, ptr pCreateInfo, ptr pAllocator, ptr pPool
        DestroyCommandPool!: ptr device, u64 pool, ptr pAllocator
        AllocateCommandBuffers: ptr device, ptr pAllocateInfo, ptr pCommands
        BeginCommandBuffer: ptr commands, ptr pBeginInfo
        EndCommandBuffer: ptr commands
        CmdBindPipeline!: ptr commands, u32 bindPoint, u64 pipeline
        CmdBindDescriptorSets!: ptr commands, u32 bindPoint, u64 layout, u32 first, u32 count, \
            ptr pSets, u32 offsetCount, ptr pOffsets
        CmdUpdateBuffer!: ptr commands, u64 buffer, u64 offset, u64 size, ptr pData
        CmdPipelineBarrier!: ptr commands, u32 srcStages, u32 dstStages, u32 flags, \
            u32 memoryCount, ptr pMemory, u32 bufferCount, ptr pBuffers, u32 imageCount, ptr pImages
        CmdDispatch!: ptr commands, u32 x, u32 y, u32 z
        QueueSubmit: ptr queue, u32 count, ptr pSubmits, u64 fence
        QueueWaitIdle: ptr queue
    """),
)  # fmt: skip
"""All that hosts call besides `vkGetInstanceProcAddr` and `vkGetDeviceProcAddr`."""
