"""Vulkan devices, their properties, and the choice of one by a selector.

Properties are plain frozen data, so that the choice and the checks of limits need no driver.
`context` opens devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dmlc.matrices import NOTHING, Offer, Shape, find_denied
from dmlc.program import FLOAT_WIDTHS
from dmlc.runtime import interface, lavapipe
from dmlc.runtime.floats import FloatPromises
from dmlc.runtime.interface import CompileOptions, DeviceType
from dmlc.runtime.vulkan.api import INSTALL_LOADER, Vulkan
from dmlc.scalars import DataType
from dmlc.source import join_words

RUNTIME = "vulkan"


_TYPES = {
    2: DeviceType.DISCRETE_GPU,
    1: DeviceType.INTEGRATED_GPU,
    3: DeviceType.VIRTUAL_GPU,
    4: DeviceType.CPU,
}
"""Types of devices by Vulkan's numbers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a device. Sizes are in bytes; names in comments are Vulkan's."""

    groups: tuple[int, int, int]  # maxComputeWorkGroupCount
    group_size: tuple[int, int, int]  # maxComputeWorkGroupSize
    group_threads: int  # maxComputeWorkGroupInvocations
    group_shared: int  # maxComputeSharedMemorySize
    storage_range: int  # maxStorageBufferRange
    stage_storage_buffers: int  # maxPerStageDescriptorStorageBuffers
    set_storage_buffers: int  # maxDescriptorSetStorageBuffers
    uniform_range: int  # maxUniformBufferRange
    allocation: int  # maxMemoryAllocationSize
    storage_alignment: int  # minStorageBufferOffsetAlignment
    uniform_alignment: int  # minUniformBufferOffsetAlignment


@dataclasses.dataclass(frozen=True, slots=True)
class FloatControls:
    """Device's properties of VK_KHR_shader_float_controls: widths of floats, in bits, for which a
    module may request a mode. Names in comments are Vulkan's."""

    special: tuple[int, ...] = ()  # shaderSignedZeroInfNanPreserveFloat
    denormals: tuple[int, ...] = ()  # shaderDenormPreserveFloat
    flushed: tuple[int, ...] = ()  # shaderDenormFlushToZeroFloat
    independence: str = "NONE"  # denormBehaviorIndependence

    @property
    def promises(self) -> FloatPromises:
        """Promises to modules that request every mode possible. Some devices treat the denormals of
        several widths alike, so that a mode is requested for all of these or for none."""
        denormals = self.denormals
        for alike in _ALIKE[self.independence]:
            if not set(alike) <= set(denormals):
                denormals = tuple(width for width in denormals if width not in alike)
        return FloatPromises(self.special, denormals)

    @property
    def facts(self) -> tuple[str, ...]:
        """Modes that can be requested besides those in `promises`, in words."""
        if not self.flushed:
            return ()
        widths = join_words(map(str, self.flushed), "and")
        return (f"denormals of {widths} bits can be flushed to zero",)


_ALIKE: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "32_BIT_ONLY": ((16, 64),),
    "ALL": (),
    "NONE": (FLOAT_WIDTHS,),
}
"""The widths whose denormals are treated alike, by what a device says of their independence."""


@dataclasses.dataclass(frozen=True, slots=True)
class VulkanDevice:
    """Device that can run compute kernels."""

    runtime: ClassVar[str] = RUNTIME

    index: int
    """Its number in `devices()`, and in a selector `vulkan:<index>`."""
    name: str
    type: DeviceType
    driver: str
    """The driver's name and version, as it gives them."""
    limits: Limits
    capabilities: frozenset[str]
    """The SPIR-V capabilities whose features it has."""
    memory_bytes: int
    """Its largest heap."""
    import_alignment: int | None
    """Alignment in bytes of host memory that it can work in directly; None where it cannot."""
    timestamp_period: float | None
    """Nanoseconds per tick of its clock; None where it has none."""
    queue_family: int
    """The family of queues that kernels go to."""
    note: str = ""
    """What was chosen before its driver started, and why; empty for nothing."""
    float_controls: FloatControls = FloatControls()
    matrices: Offer = NOTHING
    """The matrix instructions it lists: nothing, where it cannot take kernels with any."""

    def __str__(self) -> str:
        return f"{self.name} ({self.type.value}, {self.driver})"

    @property
    def floats(self) -> FloatPromises:
        return self.float_controls.promises

    @property
    def compile_options(self) -> CompileOptions:
        return {}

    @property
    def facts(self) -> tuple[str, ...]:
        """Properties in words."""
        return (
            f"Vulkan, {self.type.value}",
            f"largest binding {self.limits.storage_range >> 20:,} MiB",
            f"{self.limits.group_threads:,} threads per group",
            *self.floats.facts,
            *self.float_controls.facts,
            *self.matrices.facts,
        )


_CORE_FEATURES = {"shaderFloat64": "Float64", "shaderInt64": "Int64", "shaderInt16": "Int16"}
_STORAGE_16BIT_FEATURES = {
    "storageBuffer16BitAccess": "StorageBuffer16BitAccess",
    "uniformAndStorageBuffer16BitAccess": "UniformAndStorageBuffer16BitAccess",
}
_STORAGE_8BIT_FEATURES = {"storageBuffer8BitAccess": "StorageBuffer8BitAccess"}
_SMALL_TYPE_FEATURES = {"shaderFloat16": "Float16", "shaderInt8": "Int8"}
_SUBGROUP_OPERATIONS = {
    "BASIC": "GroupNonUniform",
    "VOTE": "GroupNonUniformVote",
    "ARITHMETIC": "GroupNonUniformArithmetic",
    "BALLOT": "GroupNonUniformBallot",
    "SHUFFLE": "GroupNonUniformShuffle",
}
_SUBGROUP_FEATURES = {
    "subgroupSizeControl": "a size of subgroups",
    "computeFullSubgroups": "full subgroups",
}
"""These stand among the capabilities where a kernel may say how many items a subgroup has."""
_MEMORY_FEATURES = {
    "vulkanMemoryModel": "VulkanMemoryModel",
    "vulkanMemoryModelDeviceScope": "VulkanMemoryModelDeviceScope",
}
MATRIX_EXTENSION = "VK_KHR_cooperative_matrix"
SUBGROUP_EXTENSION = "VK_EXT_subgroup_size_control"
MATRIX_EXTENSIONS = (MATRIX_EXTENSION, "VK_KHR_vulkan_memory_model", SUBGROUP_EXTENSION)
"""What a device has whose matrix instructions kernels may use."""
_EXTENDED_FEATURES = (
    ("VkPhysicalDevice16BitStorageFeatures", "VK_KHR_16bit_storage", _STORAGE_16BIT_FEATURES),
    ("VkPhysicalDevice8BitStorageFeatures", "VK_KHR_8bit_storage", _STORAGE_8BIT_FEATURES),
    (
        "VkPhysicalDeviceShaderFloat16Int8Features",
        "VK_KHR_shader_float16_int8",
        _SMALL_TYPE_FEATURES,
    ),
    (
        "VkPhysicalDeviceCooperativeMatrixFeaturesKHR",
        MATRIX_EXTENSION,
        {"cooperativeMatrix": "CooperativeMatrixKHR"},
    ),
    ("VkPhysicalDeviceVulkanMemoryModelFeatures", MATRIX_EXTENSION, _MEMORY_FEATURES),
    (
        "VkPhysicalDeviceSubgroupSizeControlFeatures",
        MATRIX_EXTENSION,
        _SUBGROUP_FEATURES,
    ),
)
MATRIX_CAPABILITIES = (
    "CooperativeMatrixKHR",
    *_MEMORY_FEATURES.values(),
    *_SUBGROUP_FEATURES.values(),
)
HOST_MEMORY_EXTENSION = "VK_EXT_external_memory_host"
FLOAT_EXTENSION = "VK_KHR_shader_float_controls"


def describe_device(api: Vulkan, instance: Any, physical: Any, index: int) -> VulkanDevice | None:
    """Properties of a physical device; None if it runs no compute kernels."""
    family = _find_queue_family(api, physical)
    if family is None:
        return None
    extensions = device_extensions(api, physical)
    driver = api.make("VkPhysicalDeviceDriverProperties")
    subgroup = api.make("VkPhysicalDeviceSubgroupProperties")
    maintenance = api.make("VkPhysicalDeviceMaintenance3Properties", pNext=subgroup)
    host_memory = api.make("VkPhysicalDeviceExternalMemoryHostPropertiesEXT", pNext=maintenance)
    chain = host_memory if HOST_MEMORY_EXTENSION in extensions else maintenance
    if "VK_KHR_driver_properties" in extensions:
        driver.pNext = chain
        chain = driver
    sizes = api.make("VkPhysicalDeviceSubgroupSizeControlProperties", pNext=chain)
    if SUBGROUP_EXTENSION in extensions:
        chain = sizes
    floats = api.make("VkPhysicalDeviceFloatControlsProperties", pNext=chain)
    if FLOAT_EXTENSION in extensions:
        chain = floats
    asked = api.make("VkPhysicalDeviceProperties2", pNext=chain)
    api.lib.vkGetPhysicalDeviceProperties2(physical, asked)
    properties = asked.properties
    limits = properties.limits
    float_controls = _read_float_controls(api, floats) if chain is floats else FloatControls()
    has_clock = bool(limits.timestampComputeAndGraphics) and limits.timestampPeriod > 0
    capabilities = _capabilities(api, physical, extensions, subgroup.supportedOperations)
    has_matrices = capabilities.issuperset(MATRIX_CAPABILITIES) and bool(
        sizes.requiredSubgroupSizeStages & api.flags("SHADER_STAGE", "COMPUTE")
    )
    matrices, name = NOTHING, api.text(properties.deviceName)
    driver_name = _driver_name(api, driver) or f"driver {properties.driverVersion:#x}"
    if has_matrices:
        denied = find_denied(f"{name}, {driver_name}")
        matrices = _list_matrices(api, instance, physical, sizes, denied)
    else:
        capabilities = capabilities.difference(MATRIX_CAPABILITIES)
    can_import = HOST_MEMORY_EXTENSION in extensions
    return VulkanDevice(
        index=index,
        name=name,
        type=_TYPES.get(properties.deviceType, DeviceType.OTHER),
        driver=driver_name,
        limits=Limits(
            groups=_triple(limits.maxComputeWorkGroupCount),
            group_size=_triple(limits.maxComputeWorkGroupSize),
            group_threads=limits.maxComputeWorkGroupInvocations,
            group_shared=limits.maxComputeSharedMemorySize,
            storage_range=limits.maxStorageBufferRange,
            stage_storage_buffers=limits.maxPerStageDescriptorStorageBuffers,
            set_storage_buffers=limits.maxDescriptorSetStorageBuffers,
            uniform_range=limits.maxUniformBufferRange,
            allocation=maintenance.maxMemoryAllocationSize,
            storage_alignment=limits.minStorageBufferOffsetAlignment,
            uniform_alignment=limits.minUniformBufferOffsetAlignment,
        ),
        capabilities=capabilities | _list_float_capabilities(float_controls.promises),
        memory_bytes=_largest_heap(api, physical),
        import_alignment=host_memory.minImportedHostPointerAlignment if can_import else None,
        timestamp_period=limits.timestampPeriod if has_clock else None,
        queue_family=family,
        note=lavapipe.find_note(name),
        float_controls=float_controls,
        matrices=matrices,
    )


def _list_matrices(api: Vulkan, instance: Any, physical: Any, sizes: Any, denied: str) -> Offer:
    """Matrix products by subgroups that a device offers, of types that dmlc has."""
    listed = api.list_extended(
        instance,
        "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR",
        "VkCooperativeMatrixPropertiesKHR",
        physical,
    )
    types = {
        api.constant(f"COMPONENT_TYPE_{name}_KHR"): dtype for name, dtype in _COMPONENTS.items()
    }
    scope = api.constant("SCOPE_SUBGROUP_KHR")
    shapes: list[Shape] = []
    for each in listed:
        plain = each.scope == scope and not each.saturatingAccumulation
        known = all(t in types for t in (each.AType, each.CType))
        alike = each.AType == each.BType and each.CType == each.ResultType
        if plain and known and alike:
            factors, total = types[each.AType], types[each.CType]
            shapes.append(Shape(each.MSize, each.NSize, each.KSize, factors, total))
    return Offer(
        tuple(dict.fromkeys(shapes)), (sizes.minSubgroupSize, sizes.maxSubgroupSize), denied
    )


_COMPONENTS = {
    "FLOAT16": DataType.FLOAT16,
    "FLOAT32": DataType.FLOAT32,
    "FLOAT64": DataType.FLOAT64,
    "SINT8": DataType.INT8,
    "SINT32": DataType.INT32,
    "UINT8": DataType.UINT8,
    "UINT32": DataType.UINT32,
}
"""The types of elements, by Vulkan's names."""


def _read_float_controls(api: Vulkan, properties: Any) -> FloatControls:
    """Float controls from a VkPhysicalDeviceFloatControlsProperties."""

    def list_widths(name: str) -> tuple[int, ...]:
        return tuple(w for w in FLOAT_WIDTHS if getattr(properties, f"shader{name}Float{w}"))

    numbers = {api.constant(f"SHADER_FLOAT_CONTROLS_INDEPENDENCE_{n}"): n for n in _ALIKE}
    return FloatControls(
        list_widths("SignedZeroInfNanPreserve"),
        list_widths("DenormPreserve"),
        list_widths("DenormFlushToZero"),
        numbers.get(properties.denormBehaviorIndependence, "NONE"),
    )


def _list_float_capabilities(floats: FloatPromises) -> frozenset[str]:
    """Capabilities of modules that request the promised modes."""
    asked = {"SignedZeroInfNanPreserve": floats.special, "DenormPreserve": floats.denormals}
    return frozenset(name for name, widths in asked.items() if widths)


def _triple(values: Any) -> tuple[int, int, int]:
    return (values[0], values[1], values[2])


def _driver_name(api: Vulkan, driver: Any) -> str:
    return f"{api.text(driver.driverName)} {api.text(driver.driverInfo)}".strip()


def _find_queue_family(api: Vulkan, physical: Any) -> int | None:
    families = api.list_all(
        "vkGetPhysicalDeviceQueueFamilyProperties", "VkQueueFamilyProperties", physical
    )
    compute = api.flags("QUEUE", "COMPUTE")
    return next((k for k, f in enumerate(families) if f.queueFlags & compute), None)


def device_extensions(api: Vulkan, physical: Any) -> frozenset[str]:
    """Names of a physical device's extensions."""
    found = api.list_all(
        "vkEnumerateDeviceExtensionProperties", "VkExtensionProperties", physical, api.null
    )
    return frozenset(api.text(e.extensionName) for e in found)


def _largest_heap(api: Vulkan, physical: Any) -> int:
    memory = api.get(
        "vkGetPhysicalDeviceMemoryProperties", "VkPhysicalDeviceMemoryProperties", physical
    )
    return max((memory.memoryHeaps[k].size for k in range(memory.memoryHeapCount)), default=0)


def feature_chain(api: Vulkan, extensions: frozenset[str]) -> tuple[Any, list[tuple[Any, Any]]]:
    """VkPhysicalDeviceFeatures2 to be filled, and its parts with their capabilities."""
    parts: list[tuple[Any, Any]] = []
    chain = api.null
    for kind, extension, features in _EXTENDED_FEATURES:
        if extension in extensions:
            part = api.make(kind, pNext=chain)
            parts.append((part, features))
            chain = part
    whole = api.make("VkPhysicalDeviceFeatures2", pNext=chain)
    return whole, [(whole.features, _CORE_FEATURES), *parts]


def _capabilities(
    api: Vulkan, physical: Any, extensions: frozenset[str], subgroup_operations: int
) -> frozenset[str]:
    whole, parts = feature_chain(api, extensions)
    api.lib.vkGetPhysicalDeviceFeatures2(physical, whole)
    found = {"Shader"}
    for part, features in parts:
        found |= {capability for name, capability in features.items() if getattr(part, name)}
    for operation, capability in _SUBGROUP_OPERATIONS.items():
        if subgroup_operations & api.flags("SUBGROUP_FEATURE", operation):
            found.add(capability)
    return frozenset(found)


def enabled_features(api: Vulkan, extensions: frozenset[str], wanted: frozenset[str]) -> Any:
    """VkPhysicalDeviceFeatures2 that requests the features of these capabilities."""
    whole, parts = feature_chain(api, extensions)
    for part, features in parts:
        for name, capability in features.items():
            setattr(part, name, int(capability in wanted))
    return whole


def choose_device(devices: Sequence[VulkanDevice], selector: str | None) -> VulkanDevice:
    """Device of a selector: see `interface.choose_device`."""
    return interface.choose_device("Vulkan", devices, selector, [INSTALL_LOADER])
