"""Declarations of a SPIR-V module: required capabilities, group size, memory; and requests about
floats, which DXC leaves out.

A driver may run a module beyond its limits and give wrong results without an error, so the host
compares these numbers with the limits. A driver may also ignore NaN, the signs of zeros and
denormals, unless a module requests them: `ask_of_floats` adds the requests. Function bodies are
skipped.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Collection, Iterator, Mapping

from dmlc.source import InternalError

_MAGIC = 0x07230203
_HEADER_WORDS = 5

# Opcodes, decorations and enumerants, by their names in the specification.
_OP_EXTENSION = 10
_OP_ENTRY_POINT = 15
_OP_EXECUTION_MODE = 16
_OP_CAPABILITY = 17
_OP_TYPE_BOOL = 20
_OP_TYPE_INT = 21
_OP_TYPE_FLOAT = 22
_OP_TYPE_VECTOR = 23
_OP_TYPE_ARRAY = 28
_OP_TYPE_STRUCT = 30
_OP_TYPE_POINTER = 32
_OP_CONSTANT = 43
_OP_FUNCTION = 54
_OP_VARIABLE = 59
_OP_DECORATE = 71
_MODE_LOCAL_SIZE = 17
_CLASS_WORKGROUP = 4
_DECORATION_BINDING = 33

_FLOAT_MODES = {"SignedZeroInfNanPreserve": 4461, "DenormPreserve": 4459}
"""Execution modes that keep special floats, by the names of their capabilities."""
_FLOAT_EXTENSION = "SPV_KHR_float_controls"
"""Extension of those modes, which SPIR-V 1.4 includes; it accepts the extension too."""

CAPABILITIES = {
    1: "Shader",
    9: "Float16",
    10: "Float64",
    11: "Int64",
    12: "Int64Atomics",
    22: "Int16",
    39: "Int8",
    61: "GroupNonUniform",
    62: "GroupNonUniformVote",
    63: "GroupNonUniformArithmetic",
    64: "GroupNonUniformBallot",
    65: "GroupNonUniformShuffle",
    4433: "StorageBuffer16BitAccess",
    4434: "UniformAndStorageBuffer16BitAccess",
    4448: "StorageBuffer8BitAccess",
    4464: "DenormPreserve",
    4465: "DenormFlushToZero",
    4466: "SignedZeroInfNanPreserve",
    4467: "RoundingModeRTE",
    5345: "VulkanMemoryModel",
    5346: "VulkanMemoryModelDeviceScope",
    6022: "CooperativeMatrixKHR",
}
"""Names of the capabilities that a kernel may need, by number. Any other is shown by its number."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleFacts:
    """Declarations of a compute module."""

    capabilities: tuple[str, ...]
    group_size: tuple[int, int, int]
    group_shared_bytes: int
    """Least size of all group-shared variables together."""
    bindings: tuple[int, ...]
    """Declared bindings of its one descriptor set, in ascending order."""
    float_widths: tuple[int, ...]
    """Widths of its float types in bits, in ascending order."""
    float_modes: tuple[tuple[str, int], ...]
    """Its requests about floats: name of a mode and a width, in ascending order."""


def read_module(code: bytes) -> ModuleFacts:
    """Declarations of a module with one entry point; InternalError for anything but SPIR-V."""
    capabilities: list[str] = []
    group_size = (0, 0, 0)
    bindings: set[int] = set()
    widths: set[int] = set()
    modes: set[tuple[str, int]] = set()
    names = {number: name for name, number in _FLOAT_MODES.items()}
    sizes: dict[int, int] = {}
    constants: dict[int, int] = {}
    pointers: dict[int, tuple[int, int]] = {}
    shared = 0
    for opcode, words in list_instructions(code):
        match opcode, words:
            case int(o), (number,) if o == _OP_CAPABILITY:
                capabilities.append(CAPABILITIES.get(number, f"number {number}"))
            case int(o), (_, mode, x, y, z) if o == _OP_EXECUTION_MODE and mode == _MODE_LOCAL_SIZE:
                group_size = (x, y, z)
            case int(o), (_, mode, width) if o == _OP_EXECUTION_MODE and mode in names:
                modes.add((names[mode], width))
            case int(o), (_, decoration, number) if (
                o == _OP_DECORATE and decoration == _DECORATION_BINDING
            ):
                bindings.add(number)
            case int(o), (name,) if o == _OP_TYPE_BOOL:
                sizes[name] = 4
            case int(o), (name, bits, *_) if o in (_OP_TYPE_INT, _OP_TYPE_FLOAT):
                sizes[name] = bits // 8
                if o == _OP_TYPE_FLOAT:
                    widths.add(bits)
            case int(o), (name, item, count) if o == _OP_TYPE_VECTOR:
                sizes[name] = sizes[item] * count
            case int(o), (name, item, count) if o == _OP_TYPE_ARRAY and item in sizes:
                sizes[name] = sizes[item] * constants[count]
            case int(o), (name, *members) if o == _OP_TYPE_STRUCT:
                sizes[name] = sum(sizes.get(m, 0) for m in members)
            case int(o), (name, storage, item) if o == _OP_TYPE_POINTER:
                pointers[name] = (storage, item)
            case int(o), (_, name, value, *_) if o == _OP_CONSTANT:
                constants[name] = value
            case int(o), (kind, _, storage, *_) if (
                o == _OP_VARIABLE and storage == _CLASS_WORKGROUP
            ):
                shared += sizes[pointers[kind][1]]
            case int(o), _ if o == _OP_FUNCTION:
                break
            case _:
                continue
    return ModuleFacts(
        tuple(capabilities),
        group_size,
        shared,
        tuple(sorted(bindings)),
        tuple(sorted(widths)),
        tuple(sorted(modes)),
    )


def ask_of_floats(code: bytes, kept: Mapping[str, Collection[int]]) -> bytes:
    """Module with the execution modes of `kept` added, by name, each for those of its widths in
    bits that the module has floats of, and with the capabilities and the extension that these need.

    The modes are `SignedZeroInfNanPreserve` and `DenormPreserve`. Raises `InternalError` for
    anything but SPIR-V.
    """
    facts = read_module(code)
    asked = [
        (name, width)
        for name, widths in kept.items()
        for width in facts.float_widths
        if width in widths and (name, width) not in facts.float_modes
    ]
    if not asked:
        return code
    numbers = {name: number for number, name in CAPABILITIES.items()}
    needed = dict.fromkeys(name for name, _ in asked if name not in facts.capabilities)
    instructions = list(list_instructions(code))
    entries = [words[1] for opcode, words in instructions if opcode == _OP_ENTRY_POINT]
    extension = (_OP_EXTENSION, _spell(_FLOAT_EXTENSION))
    added = [
        *((_OP_CAPABILITY, (numbers[name],)) for name in needed),
        *(() if extension in instructions else (extension,)),
        *(
            (_OP_EXECUTION_MODE, (entry, _FLOAT_MODES[name], width))
            for entry in entries
            for name, width in asked
        ),
    ]
    for instruction in added:
        instructions.insert(_find_section_end(instructions, instruction[0]), instruction)
    words = [
        word
        for opcode, operands in instructions
        for word in (len(operands) + 1 << 16 | opcode, *operands)
    ]
    return code[: 4 * _HEADER_WORDS] + struct.pack(f"={len(words)}I", *words)


_SECTIONS = (_OP_CAPABILITY, _OP_EXTENSION, 11, 14, _OP_ENTRY_POINT, _OP_EXECUTION_MODE)
"""Opcodes of the first sections of a module, in order. 11 and 14 are OpExtInstImport and
OpMemoryModel."""


def _find_section_end(instructions: list[tuple[int, tuple[int, ...]]], opcode: int) -> int:
    """Index of the first instruction after a section."""
    before = _SECTIONS[: _SECTIONS.index(opcode) + 1]
    return next(k for k, (other, _) in enumerate(instructions) if other not in before)


def _spell(text: str) -> tuple[int, ...]:
    """String literal: terminated by a 0, and padded with 0 to words of four characters."""
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % 4)
    return struct.unpack(f"<{len(data) // 4}I", data)


def list_instructions(code: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Opcode and operand words of each instruction."""
    count = len(code) // 4
    if count < _HEADER_WORDS or len(code) % 4:
        raise InternalError(f"{len(code)} bytes are no SPIR-V module")
    words = struct.unpack(f"={count}I", code)
    if words[0] != _MAGIC:
        raise InternalError("a SPIR-V module begins with another word than these bytes do")
    at = _HEADER_WORDS
    while at < count:
        length = words[at] >> 16
        if length == 0 or at + length > count:
            raise InternalError(f"the SPIR-V instruction at word {at} has no end")
        yield words[at] & 0xFFFF, words[at + 1 : at + length]
        at += length
