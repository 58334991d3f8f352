"""A program as data for templates of host code: the facts of `manifest.json`.

The templates of `templates/` for C++ with Direct3D 12, Rust, C# and ONNX Runtime's plug-in are
filled from this one description. Except for C++ with Direct3D 12, `launches(sizes)` lists what
runs: the kernel, its groups, the values of its scalars, and whether it waits for those before. The
host that records them is the same file for all programs in a language.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dmlc.codegen.names import Mangler, make_comment
from dmlc.files import name_file
from dmlc.interop.cpp_text import wrap_text
from dmlc.interop.host_names import Names
from dmlc.interop.host_sizes import describe_sizes
from dmlc.interop.host_tensors import list_slots
from dmlc.program import (
    STEP,
    VERSION,
    Dispatch,
    KernelSource,
    Program,
    Repeat,
    ScalarBinding,
    constant_buffer_bytes,
)
from dmlc.shader_model import RegisterShifts, dxil_arguments, is_signed
from dmlc.sizes import find_least, measure, show_count


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """Buffer argument of a kernel."""

    tensor: int
    """The number of the buffer among the program's tensors."""
    name: str
    """The shader's name for it."""
    written: bool
    slot: int
    """HLSL: the number of the register. OpenCL: that of the argument."""
    register: str
    """HLSL: the register with its letter, such as `t0`."""
    place: int
    """HLSL: the number of the binding in Vulkan. OpenCL: the number of the argument."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """Number that a launch passes to its kernel."""

    place: int
    """HLSL: the offset in the constant buffer, in bytes. OpenCL: the number of the argument."""
    bits: int
    name: str
    """Its name among those of a kernel."""
    value: str
    """An expression of the host's language."""
    comment: tuple[str, ...]
    """The formula of the value, where the name does not say it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Digest:
    """Checksum by which host code recognizes a file. It detects accidents only; SHA-256 is in the
    manifest."""

    bytes: int
    hash: str
    """As a number of C++, Rust and C#."""


def digest(content: bytes) -> Digest:
    """FNV-1a of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return Digest(len(content), f"0x{value:016x}")


@dataclasses.dataclass(frozen=True, slots=True)
class HostKernel:
    """A kernel, its arguments and its launch."""

    space: str
    """The namespace of what belongs to it, in a language that has namespaces."""
    name: str
    entry_point: str
    arguments: str
    """HLSL: those of DXC."""
    source: tuple[str, ...]
    """The text, in pieces that any C++ compiler takes as literals."""
    bindings: tuple[Binding, ...]
    """What it reads, and then what it stores, by their registers."""
    scalars: tuple[Scalar, ...]
    """In the order of their offsets."""
    constant_place: int
    """HLSL: the number of the constant buffer's binding in Vulkan."""
    constant_bytes: int
    """HLSL: the size of the constant buffer; 0 where there is none."""
    items: tuple[int, int, int]
    groups: str
    """How many groups a launch has in all: an expression of the host's language."""
    fixed_groups: tuple[int, ...] | None
    """The groups along x, y and z, where no size decides."""
    row: int
    """The most groups along x; 0 where there is no limit."""
    comment: tuple[str, ...]
    needs: tuple[str, ...]
    hlsl: Digest
    dxil: Digest
    """Of nothing where it is not known, or not signed: then it is to be compiled again."""
    spirv: Digest
    """Of nothing where it is not known."""

    @property
    def takes_step(self) -> bool:
        """Whether a scalar is the number of a loop's step."""
        return any(scalar.value == STEP for scalar in self.scalars)


@dataclasses.dataclass(frozen=True, slots=True)
class HostLaunch:
    """A launch of a kernel."""

    kernel: int
    waits: bool = False
    """Whether kernels before it have to be done."""
    barriers: tuple[str, ...] = ()
    """Direct3D 12: what they have to be done with, as calls of C++."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostPart:
    """Consecutive launches, which are repeated if there are steps."""

    launches: tuple[HostLaunch, ...]
    steps: str = ""
    """How often: an expression of the host's language."""
    backwards: bool = False
    last: tuple[str, ...] = ()
    """Direct3D 12: the barriers at the end of each step."""


_PIECE = 8_000
"""The characters of a literal: MSVC takes 16,380 bytes."""


def describe_program(program: Program, names: Names, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The names that a template of host code takes. `files` has the `.spv` and `.dxil` of kernels,
    by name, as far as they are known."""
    kernels = [
        _describe_kernel(program, kernel, space, names, files)
        for kernel, space in zip(program.kernels, names.kernels, strict=True)
    ]
    tensors = list_slots(program, names)
    return {
        "program": make_comment(program.name),
        "version": VERSION,
        "space": names.space,
        "tensors": tensors,
        "rounds": any("round_up" in tensor.bytes for tensor in tensors),
        "kernels": kernels,
        "parts": _list_parts(program, names),
        "order": _describe_order(program),
        **describe_sizes(program, names),
    }


def _describe_kernel(
    program: Program, kernel: KernelSource, space: str, names: Names, files: Mapping[str, bytes]
) -> HostKernel:
    in_registers = bool(kernel.shader_model)
    shifts = kernel.shifts if in_registers else RegisterShifts(0, 0, 0)
    bindings = (
        Binding(
            tensor=names.find_slot(b.tensor),
            name=make_comment(b.name),
            written=b.written,
            slot=b.slot,
            register=b.register,
            place=shifts.find_binding(b.slot, b.written),
        )
        for b in sorted(kernel.buffers, key=lambda b: (b.written, b.slot))
    )
    members = Mangler(names.spelling.is_reserved)
    arguments: list[str] = []
    if in_registers:
        arguments = dxil_arguments(kernel.source, kernel.entry_point, kernel.shader_model)
    dispatch = kernel.dispatch
    about = f"{kernel.name}, groups of {dispatch.group_size} threads: {dispatch.rule}"
    dxil = files.get(name_file(kernel.name, ".dxil"), b"")
    return HostKernel(
        space=space,
        name=kernel.name,
        entry_point=kernel.entry_point,
        arguments=" ".join(arguments),
        source=tuple(_split_lines(kernel.source)),
        bindings=tuple(bindings),
        scalars=tuple(
            _describe_scalar(scalar, members, names, in_registers)
            for scalar in sorted(kernel.scalars, key=lambda s: s.offset)
        ),
        constant_place=shifts.b,
        constant_bytes=constant_buffer_bytes(kernel.scalars) if in_registers else 0,
        items=dispatch.items,
        groups=_spell_groups(dispatch, names),
        fixed_groups=dispatch.groups({}) if isinstance(dispatch.count, int) else None,
        row=dispatch.row or 0,
        comment=wrap_text(about),
        needs=tuple(program.language.list_needs(kernel.source)),
        hlsl=digest(kernel.source.encode()),
        dxil=digest(dxil if is_signed(dxil) else b""),
        spirv=digest(files.get(name_file(kernel.name, ".spv"), b"")),
    )


def _describe_scalar(
    scalar: ScalarBinding, members: Mangler, names: Names, in_registers: bool
) -> Scalar:
    return Scalar(
        place=scalar.offset if in_registers else scalar.slot,
        bits=scalar.bits,
        name=members.make(scalar.name),
        value=STEP if scalar.value == STEP else names.spell_size(scalar.value),
        comment=() if scalar.name == scalar.value else wrap_text(str(scalar.value)),
    )


def _spell_groups(dispatch: Dispatch, names: Names) -> str:
    count = names.spell_size(dispatch.count)
    if dispatch.per_group == 1:
        return count
    less, by = map(names.spelling.number.format, (dispatch.per_group - 1, dispatch.per_group))
    return f"({count} + {less}) / {by}"


def _split_lines(source: str) -> list[str]:
    """Text in pieces of whole lines."""
    pieces = [""]
    for line in source.splitlines(keepends=True):
        if len(pieces[-1]) + len(line) > _PIECE and pieces[-1]:
            pieces.append("")
        pieces[-1] += line
    return pieces


def describe_part(
    repeat: Repeat | None,
    launches: tuple[HostLaunch, ...],
    names: Names,
    last: tuple[str, ...] = (),
) -> HostPart:
    """Launches of a loop, or of no loop."""
    if repeat is None:
        return HostPart(launches)
    return HostPart(launches, names.spell_size(repeat.steps), repeat.backwards, last)


def _list_parts(program: Program, names: Names) -> list[HostPart]:
    """All launches, in order."""
    made: list[HostPart] = []
    for repeat, numbers in program.parts():
        launches: list[HostLaunch] = []
        # Between two steps everything is waited for, before the first kernel that runs.
        begins = repeat is not None
        for number in numbers:
            kernel = program.kernels[number]
            launches.append(HostLaunch(number, begins or bool(kernel.after)))
            begins &= _may_be_left_out(kernel.dispatch)
        made.append(describe_part(repeat, tuple(launches), names))
    return made


def _may_be_left_out(dispatch: Dispatch) -> bool:
    """Whether a launch has no groups for some sizes."""
    return dispatch.is_chosen or find_least(measure(dispatch.count)) < 1


def _describe_order(program: Program) -> list[str]:
    """Launches in words."""
    told: list[str] = []
    for repeat, numbers in program.parts():
        kernels = [program.kernels[number] for number in numbers]
        if repeat is not None:
            end = "from the last to the first" if repeat.backwards else "from the first to the last"
            steps = show_count(repeat.steps)
            told.append(f"for each of {steps} steps, {end}, all down to {kernels[-1].name}:")
        told += [f"{kernel.name}: {kernel.dispatch.rule}" for kernel in kernels]
    return [line for text in told for line in wrap_text(text)]
