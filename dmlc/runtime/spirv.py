"""What a SPIR-V module says of itself: the capabilities it needs, its group size, its memory.

A driver may run a module that is over its limits and give wrong results without a word, so the
host reads these numbers and judges for itself. It is a reader of a module's declarations; the
instructions of function bodies are passed over.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator

from dmlc.source import InternalError

_MAGIC = 0x07230203
_HEADER_WORDS = 5

# Opcodes, decorations and enumerants, by their names in the specification.
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
}
"""The capabilities a kernel may need, by their numbers. Any other is named by its number."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleFacts:
    """What a compute module declares."""

    capabilities: tuple[str, ...]
    group_size: tuple[int, int, int]
    group_shared_bytes: int
    """The group-shared variables together, each in the least memory it can take."""
    bindings: tuple[int, ...]
    """The bindings of its one descriptor set that it declares, in rising order."""


def read_module(code: bytes) -> ModuleFacts:
    """The facts of a module of one entry point; InternalError if it is no SPIR-V."""
    capabilities: list[str] = []
    group_size = (0, 0, 0)
    bindings: set[int] = set()
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
            case int(o), (_, decoration, number) if (
                o == _OP_DECORATE and decoration == _DECORATION_BINDING
            ):
                bindings.add(number)
            case int(o), (name,) if o == _OP_TYPE_BOOL:
                sizes[name] = 4
            case int(o), (name, bits, *_) if o in (_OP_TYPE_INT, _OP_TYPE_FLOAT):
                sizes[name] = bits // 8
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
    return ModuleFacts(tuple(capabilities), group_size, shared, tuple(sorted(bindings)))


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
