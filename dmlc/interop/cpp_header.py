"""A program's host code for Direct3D 12 as one C++ header: what `manifest.json` says, as code.

The header needs `d3d12.h` and the standard library, C++17. It makes the pipelines and records the
kernels into a command list; the host's are the device, the buffers and the values in them. The
parts: `host_sizes` and `host_tensors`, which all languages of hosts share; `cpp_kernels` (what a
launch sets), `barriers` (what waits for what), `cpp_names` and `cpp_text`. `templates/host.hpp.j2`
holds what the file looks like.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dmlc.codegen.names import make_comment, make_file_stem
from dmlc.codegen.targets import find_target
from dmlc.files import name_file
from dmlc.interop.barriers import Barrier, Launch, StepLoop, plan_barriers
from dmlc.interop.cpp_kernels import CppKernel, describe_kernel
from dmlc.interop.cpp_names import CPP
from dmlc.interop.cpp_text import break_line, wrap_text
from dmlc.interop.host_names import Names
from dmlc.interop.host_sizes import describe_sizes
from dmlc.interop.host_tensors import list_slots, list_values
from dmlc.program import VERSION, Program
from dmlc.sizes import show_count
from dmlc.source import UnsupportedError
from dmlc.templates import load_template

SUFFIX = ".hpp"
_NEEDS = {
    "64-bit integers": ("OPTIONS1", "Int64ShaderOps"),
    "16-bit types": ("OPTIONS4", "Native16BitShaderOpsSupported"),
    "FLOAT64": ("OPTIONS", "DoublePrecisionFloatShaderOps"),
}
"""What a kernel may ask of a device, as a feature of `d3d12.h` and the field that tells."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """Part of `record`: kernels with the barriers before each, in a loop or not."""

    loop: str | None
    """The head of the loop."""
    launches: tuple[tuple[int, tuple[str, ...]], ...]
    last: tuple[str, ...]
    """The barriers at the end of each step."""


def header_name(program: Program) -> str:
    """File name for the text of `write_header`."""
    return name_file(make_file_stem(program.name), SUFFIX)


def write_header(program: Program, files: Mapping[str, bytes] = MappingProxyType({})) -> str:
    """Header of a program in HLSL. Of the shaders among `files`, which are keyed by name, it
    accepts those that are there and signed; the others must be compiled again by the user. Raises
    `UnsupportedError` if the program is in another language, or a kernel has more arguments than a
    root signature."""
    if "cpp" not in find_target(program.target).hosts:
        raise UnsupportedError(
            f"C++ for Direct3D 12 runs HLSL, and {program.name} is compiled to "
            f"{program.language.title}",
            notes=["compile it for the target hlsl"],
        )
    names = Names(program, CPP)
    text = load_template("host.hpp.j2").render(
        program=make_comment(program.name),
        version=VERSION,
        names=names,
        **describe_sizes(program, names),
        **_describe_contents(program, names, files),
    )
    return "".join(f"{part}\n" for line in text.splitlines() for part in break_line(line))


def _describe_contents(
    program: Program, names: Names, files: Mapping[str, bytes]
) -> dict[str, Any]:
    """Variables of the template: tensors, kernels and their order."""
    schedule = plan_barriers(program)
    count = len(program.kernels)
    kernels = [describe_kernel(program, number, names, files) for number in range(count)]
    slots = list_slots(program, names, schedule.stored)
    needs = dict.fromkeys(n for k in program.manifest()["kernels"] for n in k["requires"])
    newest = max(kernel.shader_model for kernel in program.kernels)
    return {
        "slots": slots,
        "width": max([1, *(len(slot.sizes) for slot in slots)]),
        "rounds": any("round_up" in slot.bytes for slot in slots),
        "constants": list_values(program, names),
        "kernels": kernels,
        "has_rows": any(k.row is not None and k.fixed_groups is None for k in kernels),
        "has_fields": any(kernel.fields for kernel in kernels),
        "order": [line for p in schedule.parts for line in wrap_text(_tell_part(p, kernels))],
        "parts": [_describe_part(part, names) for part in schedule.parts],
        "last": _spell_barriers(schedule.last, names),
        "needs": [_NEEDS[need] for need in needs],
        "shader_model": {"name": newest, "code": f"0x{newest.replace('.', '')}"},
    }


def _describe_part(part: Launch | StepLoop, names: Names) -> _Part:
    if isinstance(part, Launch):
        return _Part(None, ((part.kernel, _spell_barriers(part.barriers, names)),), ())
    steps = names.spell_size(part.repeat.steps)
    if isinstance(part.repeat.steps, str):
        steps = f"static_cast<std::uint32_t>({steps})"
    head = f"std::uint32_t step = 0; step < {steps}; ++step"
    if part.repeat.backwards:
        head = f"std::uint32_t step = {steps}; step-- > 0;"
    launches = ((each.kernel, _spell_barriers(each.barriers, names)) for each in part.launches)
    return _Part(head, tuple(launches), _spell_barriers(part.last, names))


def _spell_barriers(barriers: Sequence[Barrier], names: Names) -> tuple[str, ...]:
    return tuple(f"{b.wait.value}({names.find_buffer(b.buffer)})" for b in barriers)


def _tell_part(part: Launch | StepLoop, kernels: Sequence[CppKernel]) -> str:
    """Part of the program in words."""
    if isinstance(part, Launch):
        kernel = kernels[part.kernel]
        return f"{kernel.name}: {kernel.rule}"
    names = ", ".join(kernels[launch.kernel].name for launch in part.launches)
    order = "from the last to the first" if part.repeat.backwards else "from the first to the last"
    return f"for each of {show_count(part.repeat.steps)} steps, {order}: {names}"
