"""Opened Vulkan: the instance with its messages, and devices with their queues.

One context per device and process serves every program. It does not survive a fork: the child opens
its own, and never uses its parent's. Other modules make objects on a device."""

from __future__ import annotations

import atexit
import contextlib
import enum
import functools
import os
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

from dmlc.processes import setting
from dmlc.runtime import lavapipe
from dmlc.runtime.vulkan.api import Vulkan, VulkanError, load_vulkan
from dmlc.runtime.vulkan.device import (
    FLOAT_EXTENSION,
    HOST_MEMORY_EXTENSION,
    MATRIX_EXTENSIONS,
    VulkanDevice,
    choose_device,
    describe_device,
    device_extensions,
    enabled_features,
)
from dmlc.source import InternalError, UnavailableError

REPORT_EXTENSION = "VK_KHR_pipeline_executable_properties"
VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
_WATCHES_KERNELS = "VK_KHRONOS_VALIDATION_SYNCVAL_SHADER_ACCESSES_HEURISTIC"
"""The variable that has the validation layer find races between kernels: newer versions (1.4.309)
do not by themselves."""
_OF_ITSELF = ("VALIDATION-SETTINGS", "WARNING-Setting", "WARNING-GPU-Assisted-Validation")
"""How the names of messages begin that the validation layer gives of its own settings."""
_INSTALL_LAYER = "on Debian or Ubuntu: apt-get install vulkan-validationlayers"


class Validation(enum.Enum):
    """Extent of the checks by the validation layer."""

    NONE = ()
    CALLS = ("SYNCHRONIZATION_VALIDATION",)
    """Every call, and that no kernel races with another."""
    ACCESSES = ("SYNCHRONIZATION_VALIDATION", "GPU_ASSISTED")
    """Every access of a kernel to a buffer too: the layer writes checks into kernels."""


class Objection(InternalError):
    """Error or warning that Vulkan reported."""

    def __init__(self, doing: str, messages: Sequence[str]) -> None:
        lines = [f"Vulkan objects while dmlc {doing}:", *(f"  {m}" for m in messages)]
        super().__init__("\n".join(lines))
        self.messages = tuple(messages)


class Messages:
    """Messages since the last `take`. Drivers send them from their own threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: list[str] = []

    def add(self, message: str) -> None:
        with self._lock:
            self._said.append(message)

    def take(self) -> list[str]:
        """All messages, which are then removed."""
        with self._lock:
            said, self._said = self._said, []
            return said

    def raise_if_any(self, doing: str) -> None:
        """Raises `Objection` with all messages, if there are any; `doing` names the action."""
        said = self.take() if self._said else None
        if said:
            raise Objection(doing, said)


class Instance:
    """Vulkan's instance in this process, which collects messages from the first moment."""

    def __init__(self, validation: Validation) -> None:
        self.api = api = load_vulkan()
        self.validation = validation
        _check_layers(api)
        self.messages = Messages()
        self._callback = _message_callback(api, self.messages)
        messenger = api.make(
            "VkDebugUtilsMessengerCreateInfoEXT",
            messageSeverity=_severities(api),
            messageType=_message_types(api),
            pfnUserCallback=self._callback,
        )
        chain = messenger
        layers: list[str] = []
        extensions = ["VK_EXT_debug_utils"]
        if validation is not Validation.NONE:
            layers.append(VALIDATION_LAYER)
            extensions.append("VK_EXT_validation_features")
            chain = api.make(
                "VkValidationFeaturesEXT",
                pNext=messenger,
                enabledValidationFeatureCount=len(validation.value),
                pEnabledValidationFeatures=[
                    api.constant(f"VALIDATION_FEATURE_ENABLE_{f}_EXT") for f in validation.value
                ],
            )
        asked = api.make(
            "VkInstanceCreateInfo",
            pNext=chain,
            pApplicationInfo=api.make(
                "VkApplicationInfo", pApplicationName="dmlc", apiVersion=1 << 22 | 1 << 12
            ),
            enabledLayerCount=len(layers),
            ppEnabledLayerNames=layers,
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=extensions,
        )
        watches = None if validation is Validation.NONE else "true"
        with lavapipe.starting(), setting(_WATCHES_KERNELS, watches):
            try:
                self.handle = api.get("vkCreateInstance", "VkInstance", asked, api.null)
                self.physical = api.list_all(
                    "vkEnumeratePhysicalDevices", "VkPhysicalDevice", self.handle
                )
            except VulkanError as error:
                raise self._unavailable(error) from error
        said = self.messages.take()
        if said:
            # A driver that was named and cannot be loaded: others may work, but not as asked.
            raise UnavailableError("Vulkan could not be set up as asked", notes=said)
        self._messenger = api.ffi.new("VkDebugUtilsMessengerEXT *")
        create = api.extension_function(self.handle, "vkCreateDebugUtilsMessengerEXT")
        if create(self.handle, messenger, api.null, self._messenger):
            raise InternalError("the Vulkan loader refuses to pass messages on")
        described = (describe_device(api, self.handle, p, k) for k, p in enumerate(self.physical))
        self.devices = tuple(d for d in described if d is not None)

    def _unavailable(self, error: VulkanError) -> UnavailableError:
        notes = self.messages.take()
        if error.result == "VK_ERROR_LAYER_NOT_PRESENT":
            return UnavailableError(
                "the Vulkan validation layer is not installed", notes=(*notes, _INSTALL_LAYER)
            )
        return UnavailableError(f"Vulkan could not be set up: {error}", notes=notes)

    def close(self) -> None:
        """Destroys the instance; every context on it must be closed before."""
        destroy = self.api.extension_function(self.handle, "vkDestroyDebugUtilsMessengerEXT")
        destroy(self.handle, self._messenger[0], self.api.null)
        self.api.lib.vkDestroyInstance(self.handle, self.api.null)


def _check_layers(api: Vulkan) -> None:
    """Raises for layers that the user names and the loader cannot find, since the loader ignores
    these."""
    named = [n for n in os.environ.get("VK_INSTANCE_LAYERS", "").split(os.pathsep) if n]
    if named:
        layers = api.list_all("vkEnumerateInstanceLayerProperties", "VkLayerProperties")
        known = [api.text(layer.layerName) for layer in layers]
        missing = [n for n in named if n not in known]
        if missing:
            raise UnavailableError(
                f"there is no Vulkan layer {', '.join(missing)}, which VK_INSTANCE_LAYERS names",
                notes=(f"layers here: {', '.join(known) or 'none'}",),
            )


def _severities(api: Vulkan) -> int:
    return api.constant("DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT") | api.constant(
        "DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT"
    )


def _message_types(api: Vulkan) -> int:
    return (
        api.constant("DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT")
        | api.constant("DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT")
        | api.constant("DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT")
    )


def _message_callback(api: Vulkan, messages: Messages) -> Any:
    error_bit = api.constant("DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT")
    validity_bits = api.constant("DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT") | api.constant(
        "DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT"
    )

    def receive(severity: int, kinds: int, data: Any, _: Any) -> int:
        # Warnings of a loader, a layer or a driver about itself are none of the user's business.
        of_itself = api.text(data.pMessageIdName).startswith(_OF_ITSELF)
        if severity & error_bit or (kinds & validity_bits and not of_itself):
            messages.add(api.text(data.pMessage))
        return 0

    return api.ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT", receive)


class Doing:
    """Context manager that converts failures of Vulkan's functions, and any message, to an
    InternalError that names the action. It can be entered any number of times."""

    __slots__ = ("_messages", "_what")

    def __init__(self, messages: Messages, what: str) -> None:
        self._messages = messages
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if error is None:
            self._messages.raise_if_any(self._what)
        elif isinstance(error, VulkanError):
            said = [f"  {m}" for m in self._messages.take()]
            raise InternalError(
                "\n".join([f"Vulkan failed while dmlc {self._what}: {error}", *said])
            ) from error


class Context:
    """Opened device with its one queue, to which any thread may submit. With `reports`, its driver
    can be asked for statistics of kernels."""

    def __init__(self, instance: Instance, device: VulkanDevice, *, reports: bool = False) -> None:
        self.instance = instance
        self.api = api = instance.api
        self.device = device
        self.process = os.getpid()
        self.physical = instance.physical[device.index]
        extensions = device_extensions(api, self.physical)
        wanted = [e for e in (HOST_MEMORY_EXTENSION, FLOAT_EXTENSION) if e in extensions]
        wanted += MATRIX_EXTENSIONS if device.matrices.shapes else ()
        features = enabled_features(api, extensions, device.capabilities)
        if reports:
            if REPORT_EXTENSION not in extensions:
                raise UnavailableError(f"the driver of {device.name} does not report on kernels")
            wanted.append(REPORT_EXTENSION)
            features = api.make(
                "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR",
                pNext=features,
                pipelineExecutableInfo=1,
            )
        queue = api.make(
            "VkDeviceQueueCreateInfo",
            queueFamilyIndex=device.queue_family,
            queueCount=1,
            pQueuePriorities=[1.0],
        )
        asked = api.make(
            "VkDeviceCreateInfo",
            pNext=features,
            queueCreateInfoCount=1,
            pQueueCreateInfos=queue,
            enabledExtensionCount=len(wanted),
            ppEnabledExtensionNames=wanted,
        )
        with self.doing(f"opens {device.name}"):
            self.handle = api.get("vkCreateDevice", "VkDevice", self.physical, asked, api.null)
        place = api.ffi.new("VkQueue *")
        api.lib.vkGetDeviceQueue(self.handle, device.queue_family, 0, place)
        self._queue = place[0]
        self._queue_lock = threading.Lock()
        self._submit: Any = api.lib.vkQueueSubmit
        self.import_properties: Any = (
            api.extension_function(self.handle, "vkGetMemoryHostPointerPropertiesEXT")
            if device.import_alignment is not None
            else None
        )

    def doing(self, what: str) -> Doing:
        """Context manager that converts failures of Vulkan's functions, and any message, to an
        InternalError."""
        return Doing(self.instance.messages, what)

    def make(self, function: str, kind: str, asked: Any) -> Any:
        """Handle made by one of the functions `vkCreate...` or `vkAllocateMemory`."""
        return self.api.get(function, kind, self.handle, asked, self.api.null)

    def destroyer(self, function: str, handle: Any) -> Callable[[], None]:
        """Function that destroys a handle by one of the functions `vkDestroy...` or
        `vkFreeMemory`."""
        destroy: Callable[[Any, Any, Any], None] = getattr(self.api.lib, function)
        return functools.partial(destroy, self.handle, handle, self.api.null)

    def submit(self, submission: Any, fence: Any) -> None:
        """Submits one VkSubmitInfo to the queue."""
        with self._queue_lock:
            result: int = self._submit(self._queue, 1, submission, fence)
        if result:
            raise self.api.error("vkQueueSubmit", result)

    def wait_until_idle(self) -> None:
        """Waits for all work on the device, whether it succeeds or not."""
        with self._queue_lock:
            self.api.lib.vkDeviceWaitIdle(self.handle)

    def close(self) -> None:
        """Waits for all work and destroys the device; objects made on it must be gone."""
        with self.doing("closes a device"):
            self.wait_until_idle()
            self.api.lib.vkDestroyDevice(self.handle, self.api.null)


class _Process:
    """Instances and contexts of this process, each made once."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.validation = Validation.NONE
        self.instances: dict[Validation, Instance] = {}
        self.contexts: dict[tuple[Validation, int], Context] = {}

    def forget(self) -> None:
        """Drops the parent's objects and lock after a fork; the lock may be held for ever."""
        self.lock = threading.RLock()
        self.instances = {}
        self.contexts = {}

    def close_watched(self) -> None:
        """Destroys the contexts that are under validation before the process ends: newer validation
        layers (1.4.309) abort it if they still instrument kernels of a device."""
        for validation, index in list(self.contexts):
            if validation is Validation.ACCESSES:
                # What was made on the device and is still in use goes with it.
                with contextlib.suppress(Objection):
                    self.contexts.pop((validation, index)).close()
        if Validation.ACCESSES in self.instances:
            self.instances.pop(Validation.ACCESSES).close()

    def instance(self, validation: Validation) -> Instance:
        with self.lock:
            if validation not in self.instances:
                self.instances[validation] = Instance(validation)
            return self.instances[validation]

    def context(self, selector: str | None) -> Context:
        with self.lock:
            device = choose_device(self.instance(self.validation).devices, selector)
            return self.context_of(device, self.validation)

    def context_of(self, device: VulkanDevice, validation: Validation) -> Context:
        with self.lock:
            key = (validation, device.index)
            if key not in self.contexts:
                self.contexts[key] = Context(self.instance(validation), device)
            return self.contexts[key]


_process = _Process()
atexit.register(_process.close_watched)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forget)


def set_validation(validation: Validation) -> Validation:
    """Sets the validation of contexts opened from now on, and returns the previous one. Every
    misuse of Vulkan, and every race between kernels, is then an InternalError. It is slow."""
    with _process.lock:
        before, _process.validation = _process.validation, validation
        return before


def open_context(selector: str | None = None) -> Context:
    """Context of a device's selector (see `choose_device`)."""
    return _process.context(selector)


def reopen_context(context: Context) -> Context:
    """Context of the same device in this process: the same one, except after a fork."""
    return _process.context_of(context.device, context.instance.validation)


def find_devices() -> tuple[VulkanDevice, ...]:
    """Every device that runs compute kernels. UnavailableError without Vulkan."""
    return _process.instance(_process.validation).devices
