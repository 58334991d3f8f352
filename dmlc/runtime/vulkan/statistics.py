"""Driver's statistics of compiled kernels: registers, instructions, machine code.

A program of its own, which reads modules from standard input and writes what it finds to
standard output: `python -m dmlc.runtime.vulkan.statistics`. So its caller can choose a driver by
variables that the loader and the driver read as they start. The kernels are compiled, and not run.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import pickle
import sys
from collections.abc import Sequence
from typing import Any

from dmlc.runtime.vulkan.api import Vulkan, VulkanError
from dmlc.runtime.vulkan.context import Context, Instance, Validation
from dmlc.runtime.vulkan.pipeline import build_pipeline, layout_binding


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """Kernel to compile: SPIR-V, and its bindings."""

    spirv: bytes
    entry_point: str
    storage: tuple[int, ...]
    """The bindings of its buffers."""
    uniform: tuple[int, ...]
    """Those of its constants."""
    capabilities: tuple[str, ...]


def dump(modules: Sequence[Module]) -> str:
    """Modules as JSON text."""
    return base64.b64encode(pickle.dumps(modules)).decode()


def _report(modules: Sequence[Module]) -> dict[str, Any]:
    """Statistics of each module, from the driver of the first device."""
    instance = Instance(Validation.NONE)
    if not instance.devices:
        return {"device": None}
    device = instance.devices[0]
    found: dict[str, Any] = {"device": device.name, "driver": device.driver}
    needed = {c for module in modules for c in module.capabilities}
    missing = sorted(c for c in needed if c not in device.capabilities)
    if missing:
        return found | {"missing": missing}
    context = Context(instance, device, reports=True)
    return found | {"kernels": [_compile(context, module) for module in modules]}


def _compile(context: Context, module: Module) -> dict[str, Any]:
    api = context.api
    bindings = [
        layout_binding(api, kind, number)
        for kind, numbers in (("STORAGE", module.storage), ("UNIFORM", module.uniform))
        for number in numbers
    ]
    flags = api.constant("PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR")
    flags |= api.constant("PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR")
    with contextlib.ExitStack() as stack:
        _, _, pipeline = build_pipeline(
            context, stack, module.spirv, module.entry_point, bindings, flags
        )
        asked = api.make("VkPipelineInfoKHR", pipeline=pipeline)
        properties = _list(context, "Properties", asked)
        asked = api.make("VkPipelineExecutableInfoKHR", pipeline=pipeline, executableIndex=0)
        statistics = _list(context, "Statistics", asked)
        return {
            "wave": properties[0].subgroupSize,
            "statistics": {api.text(s.name): s.value.u64 for s in statistics},
            "texts": _read_texts(context, asked),
        }


_KINDS = {
    "Properties": "VkPipelineExecutablePropertiesKHR",
    "Statistics": "VkPipelineExecutableStatisticKHR",
    "InternalRepresentations": "VkPipelineExecutableInternalRepresentationKHR",
}


def _list(context: Context, what: str, asked: Any) -> Any:
    """Array from one of the extension's functions."""
    api = context.api
    count = api.ffi.new("uint32_t *")
    _call(context, what, asked, count, api.null)
    places = api.array(_KINDS[what], [api.make(_KINDS[what]) for _ in range(count[0])])
    _call(context, what, asked, count, places)
    return places


def _call(context: Context, what: str, *arguments: Any) -> None:
    name = f"vkGetPipelineExecutable{what}KHR"
    result: int = context.api.extension_function(context.handle, name)(context.handle, *arguments)
    if result:
        raise context.api.error(name, result)


def _read_texts(context: Context, asked: Any) -> dict[str, str]:
    """Textual representations of a kernel, by the driver's names for them."""
    api: Vulkan = context.api
    places = _list(context, "InternalRepresentations", asked)
    memory = [api.ffi.new("char[]", max(1, place.dataSize)) for place in places]
    for place, characters in zip(places, memory, strict=True):
        place.pData = characters
    count = api.ffi.new("uint32_t *", len(places))
    _call(context, "InternalRepresentations", asked, count, places)
    return {api.text(p.name): api.text(m) for p, m in zip(places, memory, strict=True) if p.isText}


def main() -> int:
    modules: Sequence[Module] = pickle.loads(base64.b64decode(sys.stdin.read()))
    try:
        found = _report(modules)
    except VulkanError as error:
        found = {"device": None, "error": str(error)}
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
