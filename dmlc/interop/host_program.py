"""A program as data for templates of host code: the facts of `manifest.json`.

The templates in `templates/` for Rust, C# and ONNX Runtime's plug-in are filled from this one
description. In each, `launches(sizes)` lists the launches: the kernel, its groups, the values of
its scalars, and whether it waits for earlier ones. The host that records them is one file for all
programs in a language."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dmlc.codegen.names import make_comment
from dmlc.files import name_file
from dmlc.interop.cpp_kernels import Digest, digest, spell_groups
from dmlc.interop.cpp_text import fill_lines, wrap_text
from dmlc.interop.host_names import Names
from dmlc.interop.host_sizes import describe_sizes
from dmlc.interop.host_tensors import Slot, list_slots
from dmlc.program import (
    STEP,
    VERSION,
    Dispatch,
    KernelSource,
    Program,
    Repeat,
    Role,
    constant_buffer_bytes,
)
from dmlc.runtime.arrays import constant_array
from dmlc.shader_model import RegisterShifts
from dmlc.sizes import find_least, measure, show_count


@dataclasses.dataclass(frozen=True, slots=True)
class HostTensor:
    """Buffer, with its values if it is a constant."""

    slot: Slot
    values: tuple[str, ...]
    """Lines of bytes, as numbers with commas."""
    axes: tuple[int, ...]
    """For each axis the number of the symbol that its size is; -1 where the size is none alone."""


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """Buffer argument of a kernel."""

    tensor: int
    """The number of the buffer among the program's tensors."""
    name: str
    """The shader's name for it."""
    register: str
    """HLSL: with its letter, such as `t0`; else nothing."""
    place: int
    """HLSL: the number of the binding in Vulkan. OpenCL: the number of the argument."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """Number that a launch passes to its kernel."""

    place: int
    """HLSL: the offset in the constant buffer, in bytes. OpenCL: the number of the argument."""
    bits: int


@dataclasses.dataclass(frozen=True, slots=True)
class HostKernel:
    """Kernel, as a row of the table of kernels."""

    name: str
    entry_point: str
    source: tuple[str, ...]
    """The text, in pieces that any C++ compiler takes as literals."""
    bindings: tuple[Binding, ...]
    scalars: tuple[Scalar, ...]
    constant_place: int
    """HLSL: the number of the constant buffer's binding in Vulkan."""
    constant_bytes: int
    """HLSL: the size of the constant buffer; 0 where there is none."""
    items: tuple[int, int, int]
    needs: tuple[str, ...]
    digest: Digest
    """Of its SPIR-V, as `cpp_kernels.digest` makes it; of nothing where that is not known."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostLaunch:
    """Launch of a kernel. Texts are expressions of the host's language."""

    kernel: int
    waits: bool
    """Whether kernels before it have to be done."""
    groups: str
    """How many in all."""
    row: int
    """The most of them along x; 0 where there is no limit."""
    values: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class HostPart:
    """Consecutive launches, which are repeated if there are steps."""

    launches: tuple[HostLaunch, ...]
    steps: str = ""
    """How often: an expression of the host's language."""
    backwards: bool = False


_PIECE = 8_000
"""The characters of a literal: MSVC takes 16,380 bytes."""


def describe_program(program: Program, names: Names, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Variables of a template of host code. `files` has the `.spv` of kernels, by name, where
    available."""
    waiting = [bool(kernel.after) for kernel in program.kernels]
    kernels = [_describe_kernel(program, kernel, names, files) for kernel in program.kernels]
    tensors = [_describe_tensor(program, slot, name, names)
               for slot, name in zip(list_slots(program, names, frozenset()), names.slots,
                                     strict=True)]  # fmt: skip
    sizes = describe_sizes(program, names)
    return {
        "program": make_comment(program.name),
        "version": VERSION,
        "space": names.space,
        "tensors": tensors,
        "rounds": any("round" in tensor.slot.bytes for tensor in tensors),
        "kernels": kernels,
        "parts": _list_parts(program, names, waiting),
        "order": _tell_order(program),
        **sizes,
    }


def _describe_kernel(
    program: Program, kernel: KernelSource, names: Names, files: Mapping[str, bytes]
) -> HostKernel:
    in_registers = bool(kernel.shader_model)
    shifts = RegisterShifts.for_registers((b.slot, b.written) for b in kernel.buffers)
    bindings = [
        Binding(
            tensor=names.find_slot(b.tensor),
            name=make_comment(b.name),
            register=f"{'u' if b.written else 't'}{b.slot}" if in_registers else "",
            place=b.slot + ((shifts.u if b.written else shifts.t) if in_registers else 0),
        )
        for b in kernel.buffers
    ]
    return HostKernel(
        name=kernel.name,
        entry_point=kernel.entry_point,
        source=tuple(_cut(kernel.source)),
        bindings=tuple(bindings),
        scalars=tuple(Scalar(s.offset if in_registers else s.slot, s.bits) for s in kernel.scalars),
        constant_place=shifts.b,
        constant_bytes=constant_buffer_bytes(kernel.scalars) if in_registers else 0,
        items=kernel.dispatch.items,
        needs=tuple(program.language.list_needs(kernel.source)),
        digest=digest(files.get(name_file(kernel.name, ".spv"), b"")),
    )


def _cut(source: str) -> list[str]:
    """Text in pieces of whole lines."""
    pieces = [""]
    for line in source.splitlines(keepends=True):
        if len(pieces[-1]) + len(line) > _PIECE and pieces[-1]:
            pieces.append("")
        pieces[-1] += line
    return pieces


def _describe_tensor(program: Program, slot: Slot, name: str, names: Names) -> HostTensor:
    tensor = program.tensor(name)
    values: tuple[str, ...] = ()
    if tensor.role is Role.CONSTANT and tensor.values:
        values = tuple(fill_lines([str(byte) for byte in constant_array(tensor).tobytes()]))
    symbols = list(names.symbols)
    axes = tuple(symbols.index(e) if e in symbols else -1 for e in map(str, tensor.extents))
    return HostTensor(slot, values, axes)


def _list_parts(program: Program, names: Names, waiting: Sequence[bool]) -> list[HostPart]:
    """All launches, in order."""
    made: list[HostPart] = []
    number = 0
    repeats: dict[int, Repeat] = {repeat.first: repeat for repeat in program.repeats}
    while number < len(program.kernels):
        repeat = repeats.get(number)
        if repeat is None:
            made.append(HostPart((_describe_launch(program, number, names, waiting[number]),)))
            number += 1
            continue
        launches: list[HostLaunch] = []
        # Between two steps everything is waited for, before the first kernel that runs.
        begins = True
        for each in range(repeat.first, repeat.last + 1):
            launches.append(_describe_launch(program, each, names, begins or waiting[each]))
            begins &= _may_be_left_out(program.kernels[each].dispatch)
        steps = names.spell_size(repeat.steps)
        made.append(HostPart(tuple(launches), steps, repeat.backwards))
        number = repeat.last + 1
    return made


def _may_be_left_out(dispatch: Dispatch) -> bool:
    """Whether a launch has no groups for some sizes."""
    return dispatch.is_chosen or find_least(measure(dispatch.count)) < 1


def _describe_launch(program: Program, number: int, names: Names, waits: bool) -> HostLaunch:
    kernel = program.kernels[number]
    return HostLaunch(
        kernel=number,
        waits=waits,
        groups=spell_groups(kernel.dispatch, names),
        row=kernel.dispatch.row or 0,
        values=tuple(
            STEP if s.value == STEP else names.spell_size(s.value) for s in kernel.scalars
        ),
    )


def _tell_order(program: Program) -> list[str]:
    """Launches in words."""
    rules = [f"{each['name']}: {each['dispatch']['rule']}"
             for each in program.manifest()["kernels"]]  # fmt: skip
    told: list[str] = []
    firsts = {repeat.first: repeat for repeat in program.repeats}
    for number, rule in enumerate(rules):
        if (repeat := firsts.get(number)) is not None:
            end = "from the last to the first" if repeat.backwards else "from the first to the last"
            last = program.kernels[repeat.last].name
            told.append(f"{show_count(repeat.steps)} times, {end}, all down to {last}:")
        told.append(rule)
    return [line for text in told for line in wrap_text(text)]
