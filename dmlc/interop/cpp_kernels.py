"""Kernels of a program in a C++ header: root arguments and thread groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dmlc.codegen.names import Mangler, make_comment
from dmlc.files import name_file
from dmlc.interop.cpp_names import is_reserved
from dmlc.interop.cpp_text import wrap_text
from dmlc.interop.host_names import Names
from dmlc.program import STEP, Dispatch, KernelSource, Program, ScalarBinding
from dmlc.shader_model import dxil_arguments, is_signed
from dmlc.source import UnsupportedError

_ROOT_WORDS = 64
"""D3D12_MAX_ROOT_COST: a constant is a word, and a view is two."""


@dataclasses.dataclass(frozen=True, slots=True)
class RootView:
    """View in a root signature."""

    kind: str
    """`SRV` or `UAV`."""
    register: str
    """With its letter: `t0`."""
    number: int
    name: str
    """The shader's name for the buffer."""
    buffer: str
    """The buffer, as an expression."""
    method: str
    """What a command list sets it with."""


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """Number in the constant buffer, with its value as an expression."""

    name: str
    type: str
    value: str
    comment: tuple[str, ...]
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Digest:
    """Checksum by which a header recognizes a file. It detects accidents only; SHA-256 is in the
    manifest."""

    bytes: int
    hash: str
    """As a number of C++."""


@dataclasses.dataclass(frozen=True, slots=True)
class CppKernel:
    """Kernel, and the namespace of its declarations."""

    space: str
    name: str
    entry_point: str
    arguments: str
    """Of DXC."""
    fields: tuple[Field, ...]
    constant_bytes: int
    parameters: tuple[RootView, ...]
    groups: str
    """How many groups there are in all, as an expression."""
    row: int | None
    fixed_groups: tuple[int, ...] | None
    """The groups along x, y and z, where no size decides."""
    takes_step: bool
    rule: str
    """How it is launched, in words."""
    comment: tuple[str, ...]
    source: Digest
    """Of its HLSL."""
    shader: Digest
    """Of its DXIL; of nothing where that is not known."""


def describe_kernel(
    program: Program, number: int, names: Names, files: Mapping[str, bytes]
) -> CppKernel:
    """Kernel of a program; its DXIL is among `files`, by name, if there. Raises `UnsupportedError`
    if a root signature cannot hold its arguments."""
    kernel = program.kernels[number]
    _check_cost(kernel)
    dispatch = kernel.dispatch
    rule: str = program.manifest()["kernels"][number]["dispatch"]["rule"]
    arguments = dxil_arguments(kernel.source, kernel.entry_point, kernel.shader_model)
    return CppKernel(
        space=names.kernels[number],
        name=kernel.name,
        entry_point=kernel.entry_point,
        arguments=" ".join(arguments),
        fields=tuple(_list_fields(kernel, names)),
        constant_bytes=sum(s.bits // 8 for s in kernel.scalars),
        parameters=tuple(_list_parameters(kernel, names)),
        groups=spell_groups(dispatch, names),
        row=dispatch.row,
        fixed_groups=dispatch.groups({}) if isinstance(dispatch.count, int) else None,
        takes_step=any(s.value == STEP for s in kernel.scalars),
        rule=rule,
        source=digest(kernel.source.encode()),
        shader=_digest_shader(files.get(name_file(kernel.name, ".dxil"), b"")),
        comment=wrap_text(f"{kernel.name}, groups of {dispatch.group_size} threads: {rule}"),
    )


def digest(content: bytes) -> Digest:
    """FNV-1a hash of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return Digest(len(content), f"0x{value:016x}")


def _digest_shader(code: bytes) -> Digest:
    """Digest of a shader's DXIL; that of an empty file if it is not signed, as another compiler
    then has to compile the shader again."""
    return digest(code) if is_signed(code) else Digest(0, "0")


def _check_cost(kernel: KernelSource) -> None:
    cost = sum(s.bits // 32 for s in kernel.scalars) + 2 * len(kernel.buffers)
    if cost > _ROOT_WORDS:
        raise UnsupportedError(
            f"the kernel {kernel.name} has {len(kernel.buffers)} buffers and "
            f"{len(kernel.scalars)} sizes, {cost} words of root arguments: Direct3D 12 allows "
            f"{_ROOT_WORDS} (D3D12_MAX_ROOT_COST)",
            notes=["compute the operator in parts, or give its sizes as numbers"],
        )


def _list_fields(kernel: KernelSource, names: Names) -> list[Field]:
    """Fields of the constant buffer, by offset."""
    members = Mangler(is_reserved)

    def describe(scalar: ScalarBinding) -> Field:
        is_step = scalar.value == STEP
        return Field(
            name=members.make(scalar.name),
            type=f"std::uint{scalar.bits}_t",
            value=STEP if is_step else names.spell_size(scalar.value),
            comment=() if scalar.name == scalar.value else wrap_text(str(scalar.value)),
            offset=scalar.offset,
        )

    return [describe(s) for s in sorted(kernel.scalars, key=lambda s: s.offset)]


def _list_parameters(kernel: KernelSource, names: Names) -> list[RootView]:
    """Views of a kernel's buffers: the buffers that it reads, then those that it stores."""
    return [
        RootView(
            kind="UAV" if b.written else "SRV",
            register=f"{'u' if b.written else 't'}{b.slot}",
            number=b.slot,
            name=make_comment(b.name),
            buffer=names.find_buffer(b.tensor),
            method=f"SetComputeRoot{'UnorderedAccess' if b.written else 'ShaderResource'}View",
        )
        for b in sorted(kernel.buffers, key=lambda b: (b.written, b.slot))
    ]


def spell_groups(dispatch: Dispatch, names: Names) -> str:
    """Total number of thread groups of a launch, as an expression of the host's language."""
    count = names.spell_size(dispatch.count)
    if dispatch.per_group == 1:
        return count
    less, by = map(names.spelling.number.format, (dispatch.per_group - 1, dispatch.per_group))
    return f"({count} + {less}) / {by}"
