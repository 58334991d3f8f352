"""HLSL compiled by DXC, Microsoft's shader compiler: to DXIL for Direct3D, to SPIR-V for Vulkan.

Also its disassembly, its validator, and its reflection of a shader's bindings, which `hlsl`
compares with the program. Everything here is thread-safe.
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import re
import uuid
from collections.abc import Collection, Sequence
from typing import Any

from dmlc.program import FLOAT_WIDTHS
from dmlc.runtime.dxc_library import (
    ComObject,
    Guid,
    call_slot,
    check,
    load_library,
)
from dmlc.runtime.spirv import ask_of_floats
from dmlc.shader_model import (
    DRAFTS,
    RegisterShifts,
    dxil_arguments,
    is_signed,
    spirv_arguments,
)
from dmlc.source import Diagnostic, InternalError, Source, Span, UnsupportedError

_COMPILER = (
    uuid.UUID("228b4687-5a6a-4730-900c-9702b2203f54"),
    uuid.UUID("73e22d93-e6ce-47f3-b5bf-f0664f39c1b0"),
)
_UTILITIES = (
    uuid.UUID("4605c4cb-2019-492a-ada4-65f20bb7d67f"),
    uuid.UUID("6245d6af-66e0-48fd-80b4-4d271796748c"),
)
_RESULT = uuid.UUID("58346cda-dde7-4497-9461-6f87af5e0659")
_BLOB = uuid.UUID("8ba5fb08-5195-40e2-ac58-0d989c3a0102")
_TEXT = uuid.UUID("3da636c9-ba71-4024-a301-30cbf125305b")
_SHADER_REFLECTION = uuid.UUID("5a58797d-a72c-478d-8ba2-efc6b0efe88e")
"""Identifiers of interfaces. The first two stand beside that of a class, of which new objects are
made; objects of the others are given by other objects."""

_UTF8 = 65001
_OBJECT, _ERRORS = 1, 2  # kinds of output


@dataclasses.dataclass(frozen=True, slots=True)
class Shader:
    """Compiled kernel."""

    code: bytes
    """DXIL container, or SPIR-V words in native byte order."""
    warnings: tuple[str, ...]
    """Compiler's warnings, one message each, with the line in the source."""

    @property
    def is_signed(self) -> bool:
        """Whether DXIL has a digest in its header, which retail Direct3D requires."""
        return is_signed(self.code)


class ResourceKind(enum.IntEnum):
    """Type of a register's resource. The values are those of D3D_SHADER_INPUT_TYPE."""

    CONSTANT_BUFFER = 0
    TYPED_BUFFER = 2
    TYPED_READ_WRITE_BUFFER = 4
    STRUCTURED_BUFFER = 5
    READ_WRITE_STRUCTURED_BUFFER = 6
    BYTE_ADDRESS_BUFFER = 7
    READ_WRITE_BYTE_ADDRESS_BUFFER = 8

    @property
    def register_class(self) -> str:
        """Register class: `b`, `t` or `u`."""
        if self is ResourceKind.CONSTANT_BUFFER:
            return "b"
        return "u" if "READ_WRITE" in self.name else "t"

    @property
    def is_structured(self) -> bool:
        """Whether it is a structured buffer."""
        return "STRUCTURED" in self.name


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """Register that a shader uses."""

    name: str
    kind: ResourceKind
    slot: int
    space: int
    stride: int
    """Bytes per element of a structured buffer; 0 for any other resource."""

    @property
    def register(self) -> str:
        return f"{self.kind.register_class}{self.slot}"


@dataclasses.dataclass(frozen=True, slots=True)
class Constant:
    """Variable of a constant buffer: its offset and size in bytes."""

    buffer: str
    name: str
    offset: int
    size: int
    type: str


@dataclasses.dataclass(frozen=True, slots=True)
class Reflection:
    """Bindings of a shader as the compiler reports them, without unused ones."""

    group_size: tuple[int, int, int]
    resources: tuple[Resource, ...]
    constants: tuple[Constant, ...]


def compile_dxil(
    source: str,
    entry_point: str = "main",
    *,
    name: str = "kernel.hlsl",
    shader_model: str = "6.2",
) -> Shader:
    """DXIL of a compute shader, validated; signed on Windows only.

    `name` is the source's name in messages. InternalError with the source's line if it does not
    compile; UnavailableError without a compiler.
    """
    _check_model(shader_model)
    options = dxil_arguments(source, entry_point, shader_model)
    if not load_library().signs:
        options += ["-select-validator", "internal"]
    return _compile(source, name, options)


def compile_spirv(
    source: str,
    entry_point: str = "main",
    *,
    name: str = "kernel.hlsl",
    shader_model: str = "6.2",
    shifts: RegisterShifts | None = None,
    special: Collection[int] = FLOAT_WIDTHS,
    denormals: Collection[int] = (),
) -> Shader:
    """SPIR-V for Vulkan 1.1, with register t<n> at binding `shifts.t + n` of set 0 and so on. For
    the float widths in `special`, in bits, it requests that NaN, infinities and the signs of zeros
    are kept, and for those in `denormals` that denormals are."""
    _check_model(shader_model)
    shifts = shifts or RegisterShifts()
    options = spirv_arguments(source, entry_point, shader_model)
    for letter, first in (("t", shifts.t), ("u", shifts.u), ("b", shifts.b)):
        options += [f"-fvk-{letter}-shift", str(first), "0"]
    made = _compile(source, name, options)
    kept = {"SignedZeroInfNanPreserve": special, "DenormPreserve": denormals}
    return dataclasses.replace(made, code=ask_of_floats(made.code, kept))


def _check_model(shader_model: str) -> None:
    if shader_model in DRAFTS:
        raise UnsupportedError(f"shader model {shader_model} is a draft: {DRAFTS[shader_model]}")
    if re.fullmatch(r"6\.[0-8]", shader_model) is None:
        raise UnsupportedError(
            f"unknown shader model '{shader_model}'", None, ("known are 6.0 to 6.8",)
        )


class _Buffer(ctypes.Structure):
    """DxcBuffer."""

    _fields_ = (
        ("pointer", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("encoding", ctypes.c_uint32),
    )


def _compile(source: str, name: str, options: Sequence[str]) -> Shader:
    text = source.encode()
    buffer = _Buffer(text, len(text), _UTF8)
    words = (ctypes.c_wchar_p * (len(options) + 1))(name, *options)
    with (
        load_library().create(*_COMPILER) as compiler,
        compiler.make(
            "compile a shader",
            3,
            (ctypes.c_void_p, ctypes.addressof(buffer)),
            (ctypes.c_void_p, ctypes.addressof(words)),
            (ctypes.c_uint32, len(words)),
            (ctypes.c_void_p, None),
            *_wanted(_RESULT),
        ) as result,
    ):
        said = _output(result, _ERRORS, _TEXT).decode(errors="replace")
        if _status(result) < 0:
            raise InternalError(_explain(source, name, said))
        return Shader(_output(result, _OBJECT, _BLOB), _messages(source, name, said))


def _wanted(interface: uuid.UUID) -> tuple[tuple[Any, Any], ...]:
    """Arguments that request an interface of a new object; its identifier lives as long as the
    tuple."""
    return ((ctypes.POINTER(Guid), ctypes.pointer(Guid.of(interface))),)


def _status(result: ComObject) -> int:
    status = ctypes.c_int32()
    check(result.call(3, (ctypes.c_void_p, ctypes.addressof(status))), "give a status")
    return status.value


def _output(result: ComObject, kind: int, interface: uuid.UUID) -> bytes:
    """Output of a result; empty if it has none of that kind."""
    if not result.call(6, (ctypes.c_uint32, kind)):
        return b""
    made = ctypes.c_size_t()
    arguments = (
        (ctypes.c_uint32, kind),
        *_wanted(interface),
        (ctypes.c_void_p, ctypes.addressof(made)),
        (ctypes.c_void_p, None),
    )
    check(result.call(7, *arguments), "give its output")
    if not made.value:
        return b""
    with ComObject(made.value) as blob:
        data = _contents(blob)
        return data.rstrip(b"\0") if interface is _TEXT else data


def _contents(blob: ComObject) -> bytes:
    size: int = blob.call(4, result=ctypes.c_size_t)
    pointer: int | None = blob.call(3, result=ctypes.c_void_p)
    return ctypes.string_at(pointer, size) if pointer and size else b""


# Messages -------------------------------------------------------------------------------------

_MESSAGE = re.compile(r"^(?P<file>[^\n]*?):(?P<line>\d+):(?P<column>\d+): (?P<rest>.*)$")


_UNPLACED = re.compile(
    r"error: |warning: |fatal error: |validation errors$|note: at|Function: ", re.I
)


def _messages(source: str, name: str, said: str) -> tuple[str, ...]:
    """Compiler's messages, each with its line of the source. The compiler prints that line and a
    caret below it; both are replaced by our excerpt."""
    place = Source(name, source)
    made: list[str] = []
    for line in said.splitlines():
        found = _MESSAGE.match(line)
        if found is not None and found["file"] == name:
            span = _span(place, int(found["line"]), int(found["column"]))
            text = found["rest"].removeprefix("error: ").removeprefix("warning: ")
            made.append(Diagnostic(text, span).render().replace(": error: ", ": ", 1))
        elif _UNPLACED.match(line):
            made.append(line)
    # Messages about a function that is used twice may occur twice.
    return tuple(dict.fromkeys(made))


def _span(place: Source, line: int, column: int) -> Span:
    start = 0
    for _ in range(line - 1):
        start = place.text.find("\n", start) + 1
    return Span(place, start + column - 1, start + column)


def _explain(source: str, name: str, said: str) -> str:
    messages = _messages(source, name, said) or (said.strip() or "it gave no reason",)
    return "\n".join([f"DXC refuses the HLSL of {name}", *messages])


# DXIL -----------------------------------------------------------------------------------------


class _ShaderDescription(ctypes.Structure):
    """Beginning of D3D12_SHADER_DESC, padded to its size."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("creator", ctypes.c_char_p),
        ("flags", ctypes.c_uint32),
        ("constant_buffers", ctypes.c_uint32),
        ("bound_resources", ctypes.c_uint32),
        ("rest", ctypes.c_uint32 * 64),
    )


class _BindDescription(ctypes.Structure):
    """D3D12_SHADER_INPUT_BIND_DESC."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_uint32),
        ("point", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("return_type", ctypes.c_uint32),
        ("dimension", ctypes.c_uint32),
        ("samples", ctypes.c_uint32),
        ("space", ctypes.c_uint32),
        ("identifier", ctypes.c_uint32),
    )


class _BufferDescription(ctypes.Structure):
    """D3D12_SHADER_BUFFER_DESC."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_uint32),
        ("variables", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    )


class _VariableDescription(ctypes.Structure):
    """D3D12_SHADER_VARIABLE_DESC."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("offset", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("default", ctypes.c_void_p),
        ("rest", ctypes.c_uint32 * 4),
    )


class _TypeDescription(ctypes.Structure):
    """D3D12_SHADER_TYPE_DESC."""

    _fields_ = (
        ("numbers", ctypes.c_uint32 * 7),
        ("name", ctypes.c_char_p),
    )


def reflect(dxil: bytes) -> Reflection:
    """Group size, registers and constant buffer of a DXIL container."""
    buffer = _Buffer(dxil, len(dxil), 0)
    with (
        load_library().create(*_UTILITIES) as utilities,
        utilities.make(
            "reflect on a shader",
            13,
            (ctypes.c_void_p, ctypes.addressof(buffer)),
            *_wanted(_SHADER_REFLECTION),
        ) as reflection,
    ):
        shader = _ShaderDescription()
        check(reflection.call(3, _filled(shader)), "describe a shader")
        resources: list[Resource] = []
        for k in range(shader.bound_resources):
            bound = _BindDescription()
            check(reflection.call(6, (ctypes.c_uint32, k), _filled(bound)), "describe a register")
            kind = ResourceKind(bound.kind)
            stride = bound.samples if kind.is_structured else 0
            resources.append(Resource(bound.name.decode(), kind, bound.point, bound.space, stride))
        constants: list[Constant] = []
        for k in range(shader.constant_buffers):
            # The reflection object owns these parts of it: they have no reference count.
            part: int = reflection.call(4, (ctypes.c_uint32, k), result=ctypes.c_size_t)
            constants += _constants(part)
        size = (ctypes.c_uint32 * 3)()
        first = ctypes.addressof(size)
        reflection.call(20, *((ctypes.c_void_p, first + 4 * k) for k in range(3)))
        return Reflection((size[0], size[1], size[2]), tuple(resources), tuple(constants))


def _filled(structure: ctypes.Structure) -> tuple[Any, Any]:
    return (ctypes.c_void_p, ctypes.addressof(structure))


def _constants(buffer: int) -> list[Constant]:
    described = _BufferDescription()
    check(call_slot(buffer, 0, ctypes.c_int32, (_filled(described),)), "describe a buffer")
    if described.kind != 0:  # D3D_CT_CBUFFER; structured buffers are listed here too
        return []
    found: list[Constant] = []
    for k in range(described.variables):
        variable: int = call_slot(buffer, 1, ctypes.c_size_t, ((ctypes.c_uint32, k),))
        of_variable, of_type = _VariableDescription(), _TypeDescription()
        check(
            call_slot(variable, 0, ctypes.c_int32, (_filled(of_variable),)), "describe a constant"
        )
        kind: int = call_slot(variable, 1, ctypes.c_size_t)
        check(call_slot(kind, 0, ctypes.c_int32, (_filled(of_type),)), "describe a type")
        found.append(
            Constant(
                described.name.decode(),
                of_variable.name.decode(),
                of_variable.offset,
                of_variable.size,
                of_type.name.decode(),
            )
        )
    return found
