"""A program's host code for Direct3D 12 as one C++ header: what `manifest.json` says, as code.

The header needs `d3d12.h` and the standard library, C++17. It makes the pipelines and records the
kernels into a command list; the host's are the device, the buffers and the values in them. It is
filled from `host_program`, as all hosts are, and from `barriers` (what waits for what);
`templates/host.hpp.j2` holds what the file looks like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dmlc.codegen.names import make_file_stem
from dmlc.codegen.targets import find_target
from dmlc.files import name_file
from dmlc.interop.barriers import Barrier, Part, plan_barriers
from dmlc.interop.cpp_names import CPP
from dmlc.interop.cpp_text import break_line
from dmlc.interop.host_names import Names
from dmlc.interop.host_program import (
    HostKernel,
    HostLaunch,
    HostPart,
    describe_part,
    describe_program,
)
from dmlc.interop.host_tensors import Slot
from dmlc.program import KernelSource, Program
from dmlc.source import UnsupportedError
from dmlc.templates import load_template

SUFFIX = ".hpp"
_NEEDS = {
    "64-bit integers": ("OPTIONS1", "Int64ShaderOps"),
    "16-bit types": ("OPTIONS4", "Native16BitShaderOpsSupported"),
    "FLOAT64": ("OPTIONS", "DoublePrecisionFloatShaderOps"),
}
"""What a kernel may ask of a device, as a feature of `d3d12.h` and the field that tells."""


_ROOT_WORDS = 64
"""D3D12_MAX_ROOT_COST: a constant is a word, and a view is two."""


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
    for kernel in program.kernels:
        _check_cost(kernel)
    names = Names(program, CPP)
    schedule = plan_barriers(program)
    described = describe_program(program, names, files)
    tensors: list[Slot] = described["tensors"]
    kernels: list[HostKernel] = described["kernels"]
    newest = max(kernel.shader_model for kernel in program.kernels)
    described |= {
        "names": names,
        "stored": schedule.stored,
        "has_constants": any(tensor.spec.values for tensor in tensors),
        "width": max([1, *(len(tensor.sizes) for tensor in tensors)]),
        "has_rows": any(k.row and k.fixed_groups is None for k in kernels),
        "has_fields": any(kernel.scalars for kernel in kernels),
        "parts": [_describe_part(part, names) for part in schedule.parts],
        "last": _spell_barriers(schedule.last, names),
        "needs": [_NEEDS[need] for need in dict.fromkeys(n for k in kernels for n in k.needs)],
        "shader_model": {"name": newest, "code": f"0x{newest.replace('.', '')}"},
    }
    text = load_template("host.hpp.j2").render(described)
    return "".join(f"{part}\n" for line in text.splitlines() for part in break_line(line))


def _check_cost(kernel: KernelSource) -> None:
    """Raises UnsupportedError where a root signature cannot hold a kernel's arguments."""
    cost = sum(s.bits // 32 for s in kernel.scalars) + 2 * len(kernel.buffers)
    if cost > _ROOT_WORDS:
        raise UnsupportedError(
            f"the kernel {kernel.name} has {len(kernel.buffers)} buffers and "
            f"{len(kernel.scalars)} sizes, {cost} words of root arguments: Direct3D 12 allows "
            f"{_ROOT_WORDS} (D3D12_MAX_ROOT_COST)",
            notes=["compute the operator in parts, or give its sizes as numbers"],
        )


def _describe_part(part: Part, names: Names) -> HostPart:
    launches = (
        HostLaunch(each.kernel, barriers=_spell_barriers(each.barriers, names))
        for each in part.launches
    )
    return describe_part(part.repeat, tuple(launches), names, _spell_barriers(part.last, names))


def _spell_barriers(barriers: Sequence[Barrier], names: Names) -> tuple[str, ...]:
    return tuple(f"{b.wait.value}(buffers[slot::{names.slots[b.buffer]}])" for b in barriers)
