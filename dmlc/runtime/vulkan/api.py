"""Vulkan's functions and structures as Python values, over the package `vulkan`.

The package brings the declarations and the loader; this module adds what it leaves open: every
result is checked, a structure keeps alive what it points to, and the loader's absence is an error
with a cure. Nothing here knows what the functions are used for.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

from dmlc.source import InternalError, UnavailableError

INSTALL_PACKAGE = "install it with: pip install dmlc[vulkan]"
INSTALL_LOADER = (
    "install the Vulkan loader and a driver: on Debian or Ubuntu, `apt-get install libvulkan1 "
    "mesa-vulkan-drivers` runs kernels on the CPU; a GPU needs its vendor's driver"
)


class VulkanError(Exception):
    """A Vulkan function's result that says failure. What it means to a user, the caller knows."""

    def __init__(self, function: str, result: str) -> None:
        super().__init__(f"{function} gave {result}")
        self.function = function
        self.result = result


class Vulkan:
    """The loader's functions. Handles and structures are cffi values, so of type Any."""

    def __init__(self, module: Any) -> None:
        self.constants = module
        self.ffi: Any = module.ffi
        self.lib: Any = module.lib
        self.null: Any = module.ffi.NULL
        self._kept: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()
        self._names = {
            getattr(module, name): name
            for name in dir(module)
            if name.startswith(("VK_ERROR_", "VK_NOT_READY", "VK_TIMEOUT", "VK_INCOMPLETE"))
        }

    def constant(self, name: str) -> int:
        """The value of VK_<name>."""
        return int(getattr(self.constants, f"VK_{name}"))

    def flags(self, prefix: str, *names: str) -> int:
        """The bits VK_<prefix>_<name>_BIT together."""
        found = 0
        for name in names:
            found |= self.constant(f"{prefix}_{name}_BIT")
        return found

    # Structures -------------------------------------------------------------------------------

    def make(self, kind: str, **fields: Any) -> Any:
        """A pointer to a new structure, zero but for `fields`, with its `sType` set.

        A field may be a number, a handle, a string, another such pointer (where the field is a
        pointer or a structure), or a sequence of any of these where the field points to an array.
        All of them live as long as the structure.
        """
        made = self.ffi.new(f"{kind} *")
        self._set_type(kind, made)
        types = dict(self.ffi.typeof(kind).fields)
        kept: list[Any] = []
        for name, value in fields.items():
            lowered = self._lower(types[name].type, value)
            kept += [value, lowered]
            setattr(made, name, lowered)
        self._kept[made] = tuple(kept)
        return made

    def _set_type(self, kind: str, structure: Any) -> None:
        """Sets the `sType` of a structure, if it has one."""
        maker: Any = getattr(self.constants, kind, None)
        found = None if maker is None else _structure_type(maker)
        if found is not None:
            structure.sType = found

    def _lower(self, wanted: Any, value: Any) -> Any:
        if isinstance(value, str):
            return self.ffi.new("char[]", value.encode())
        if wanted.kind == "pointer" and isinstance(value, (list, tuple)):
            return self.array(wanted.item.cname, cast("Sequence[Any]", value))
        if wanted.kind == "struct" and self._is_pointer(value):
            return value[0]
        return value

    def _is_pointer(self, value: Any) -> bool:
        return isinstance(value, self.ffi.CData) and self.ffi.typeof(value).kind == "pointer"

    def array(self, kind: str, items: Sequence[Any]) -> Any:
        """A new array; its items as the fields of `make`."""
        of = self.ffi.typeof(kind)
        lowered = [self._lower(of, item) for item in items]
        made = self.ffi.new(f"{kind}[]", lowered)
        self._kept[made] = (*items, *lowered)
        return made

    def text(self, characters: Any) -> str:
        """A string that Vulkan gave."""
        return self.ffi.string(characters).decode(errors="replace")

    # Calls ------------------------------------------------------------------------------------

    def call(self, function: str, *arguments: Any) -> None:
        """Calls one of the loader's functions; VulkanError unless it succeeds."""
        result: int | None = getattr(self.lib, function)(*arguments)
        if result:
            raise self.error(function, result)

    def error(self, function: str, result: int) -> VulkanError:
        return VulkanError(function, self._names.get(result, f"the result {result}"))

    def get(self, function: str, kind: str, *arguments: Any) -> Any:
        """What a function stores through its last argument, a pointer to a `kind`."""
        place = self.ffi.new(f"{kind} *")
        self.call(function, *arguments, place)
        return place[0]

    def list_all(self, function: str, kind: str, *arguments: Any) -> Any:
        """The array that a function gives which counts first and fills then. Structures in it
        live as long as the array."""
        return self._list(functools.partial(self.call, function), kind, arguments)

    def list_extended(self, owner: Any, function: str, kind: str, *arguments: Any) -> Any:
        """The same of a function of an extension of an instance or a device."""
        found = self.extension_function(owner, function)

        def call(*given: Any) -> None:
            result: int = found(*given)
            if result:
                raise self.error(function, result)

        return self._list(call, kind, arguments)

    def _list(self, call: Callable[..., None], kind: str, arguments: Sequence[Any]) -> Any:
        count = self.ffi.new("uint32_t *")
        call(*arguments, count, self.null)
        places = self.ffi.new(f"{kind}[]", count[0])
        for place in places:
            self._set_type(kind, place)
        call(*arguments, count, places)
        return places

    def extension_function(self, owner: Any, function: str) -> Any:
        """A function of an extension of an instance or a device, as a bare cffi function."""
        is_device = self.ffi.typeof(owner) is self.ffi.typeof("VkDevice")
        finder = self.lib.vkGetDeviceProcAddr if is_device else self.lib.vkGetInstanceProcAddr
        found = finder(owner, function.encode())
        if found == self.null:
            raise InternalError(f"the Vulkan driver has no function {function}")
        return self.ffi.cast(f"PFN_{function}", found)


@functools.cache
def _structure_type(maker: Any) -> int | None:
    """`sType` of the structure that a function of the package makes: the default of its
    parameter."""
    parameter = inspect.signature(maker).parameters.get("sType")
    return None if parameter is None else int(parameter.default)


@functools.cache
def load_vulkan() -> Vulkan:
    """The loader; UnavailableError, with the cure, where the package or the loader is missing."""
    try:
        # The package's face hides its cffi objects, which are what is wanted here.
        return Vulkan(importlib.import_module("vulkan._vulkan"))
    except ImportError as error:
        raise UnavailableError(
            "the Python package 'vulkan' is not installed", notes=(INSTALL_PACKAGE,)
        ) from error
    except OSError as error:
        raise UnavailableError("no Vulkan loader was found", notes=(INSTALL_LOADER,)) from error
