"""Buffers and constants that a foreign SPIR-V module declares, and their renumbering.
`dmlc.runtime.spirv` reads the program's own modules."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping, Sequence

from dmlc.runtime.spirv import list_instructions
from dmlc.source import InternalError

_OP_NAME, _OP_MEMBER_NAME = 5, 6
_OP_ENTRY_POINT, _OP_EXECUTION_MODE = 15, 16
_OP_INT, _OP_FLOAT, _OP_VECTOR = 21, 22, 23
_OP_ARRAY, _OP_RUNTIME_ARRAY, _OP_STRUCT, _OP_POINTER = 28, 29, 30, 32
_OP_VARIABLE, _OP_DECORATE, _OP_MEMBER_DECORATE = 59, 71, 72
_LOCAL_SIZE, _COMPUTE = 17, 5
_BUFFER_BLOCK, _NON_WRITABLE, _BINDING, _SET, _OFFSET = 3, 24, 33, 34, 35
_UNIFORM, _PUSH_CONSTANT, _STORAGE = 2, 9, 12
_IMAGE = 0
_CLASSES = {_UNIFORM: "uniform", _STORAGE: "storage", _PUSH_CONSTANT: "push constants",
            _IMAGE: "an image or a sampler"}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """Member of a block of constants."""

    name: str
    type: str
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """Buffer, or block of constants."""

    identity: int
    """Identifier of the variable in the module."""
    name: str
    uniform: bool
    written: bool
    type: str
    """Type of a buffer's elements, such as `float` or `uint4`; empty for a structure."""
    unit: int
    """Size of an element in bytes."""
    members: tuple[Member, ...]
    """Members of a block of constants."""


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """Interface of a module to its host."""

    entries: tuple[str, ...]
    items: tuple[int, int, int]
    """Work items in a group along x, y and z."""
    variables: tuple[Variable, ...]
    """Variables in the order of their bindings."""


def read_interface(code: bytes) -> Interface:
    """Interface of a compute module. Raises `InternalError` for anything but SPIR-V, and for
    variables other than buffers."""
    names: dict[int, str] = {}
    member_names: dict[tuple[int, int], str] = {}
    decorated: dict[tuple[int, int], int] = {}
    members: dict[tuple[int, int, int], int] = {}
    types: dict[int, tuple[str, int]] = {}
    made: dict[int, tuple[int, Sequence[int]]] = {}
    variables: list[tuple[int, int, int]] = []
    entries: list[str] = []
    items = (0, 0, 0)
    for opcode, found_words in list_instructions(code):
        words = list(found_words)
        match opcode:
            case int(o) if o == _OP_NAME:
                names[words[0]] = _text(words[1:])
            case int(o) if o == _OP_MEMBER_NAME:
                member_names[words[0], words[1]] = _text(words[2:])
            case int(o) if o == _OP_ENTRY_POINT and words[0] == _COMPUTE:
                entries.append(_text(words[2:]))
            case int(o) if o == _OP_EXECUTION_MODE and words[1] == _LOCAL_SIZE:
                items = (words[2], words[3], words[4])
            case int(o) if o == _OP_DECORATE:
                decorated[words[0], words[1]] = words[2] if len(words) > 2 else 1
            case int(o) if o == _OP_MEMBER_DECORATE:
                members[words[0], words[1], words[2]] = words[3] if len(words) > 3 else 1
            case int(o) if o in (_OP_INT, _OP_FLOAT):
                types[words[0]] = (_spell_type(o, words), words[1] // 8)
            case int(o) if o == _OP_VECTOR and words[1] in types:
                name, size = types[words[1]]
                types[words[0]] = (f"{name}{words[2]}", size * words[2])
            case int(o) if o in (_OP_ARRAY, _OP_RUNTIME_ARRAY, _OP_STRUCT, _OP_POINTER):
                made[words[0]] = (o, words[1:])
            case int(o) if o == _OP_VARIABLE and words[2] in _CLASSES:
                variables.append((words[1], words[0], words[2]))
            case _:
                continue
    found: list[tuple[int, Variable]] = []
    for identity, pointer, kind in variables:
        block = made[pointer][1][1]
        own = made.get(block, (0, ()))
        if own[0] != _OP_STRUCT or kind not in (_UNIFORM, _STORAGE):
            what = "is of a kind" if kind in (_UNIFORM, _STORAGE) else f"is {_CLASSES[kind]},"
            raise InternalError(f"{names.get(identity) or 'a variable'} {what} which is no buffer")
        uniform = kind == _UNIFORM and (block, _BUFFER_BLOCK) not in decorated
        first = own[1][0]
        element = made[first][1][0] if first in made and made[first][0] != _OP_STRUCT else first
        name, unit = types.get(element, ("", 0))
        frozen = (identity, _NON_WRITABLE) in decorated or (block, 0, _NON_WRITABLE) in members
        title = names.get(identity) or member_names.get((block, 0)) or names.get(block, "")
        listed = tuple(
            Member(member_names.get((block, k), f"member {k}"), types.get(t, ("a structure", 0))[0],
                   members.get((block, k, _OFFSET), 0))
            for k, t in enumerate(own[1])
        )  # fmt: skip
        variable = Variable(identity, title, uniform, not frozen and not uniform, name, unit,
                            listed if uniform else ())  # fmt: skip
        found.append((decorated.get((identity, _BINDING), 0), variable))
    ordered = [variable for _, variable in sorted(found, key=lambda each: each[0])]
    if sum(v.uniform for v in ordered) > 1:
        raise InternalError("it has several blocks of constants, and one can be bound")
    return Interface(tuple(entries), items, tuple(ordered))


def renumber(code: bytes, bindings: Mapping[int, int]) -> bytes:
    """Module whose variables, by identifier, have these bindings in descriptor set 0."""
    words = [word for (word,) in struct.iter_unpack("=I", code)]
    at = 5
    for opcode, operands in list_instructions(code):
        if opcode == _OP_DECORATE and operands[0] in bindings:
            if operands[1] == _BINDING:
                words[at + 3] = bindings[operands[0]]
            elif operands[1] == _SET:
                words[at + 3] = 0
        at += len(operands) + 1
    return struct.pack(f"={len(words)}I", *words)


def _spell_type(opcode: int, words: Sequence[int]) -> str:
    if opcode == _OP_FLOAT:
        return {16: "half", 32: "float", 64: "double"}.get(words[1], "")
    sign = "" if words[2] else "u"
    return {8: f"{sign}char", 32: f"{sign}int"}.get(words[1], f"{sign}int{words[1]}_t")


def _text(words: Sequence[int]) -> str:
    """String literal, terminated by a 0."""
    data = struct.pack(f"<{len(words)}I", *words)
    return data.partition(b"\0")[0].decode(errors="replace")
