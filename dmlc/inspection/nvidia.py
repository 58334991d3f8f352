"""Machine code of NVIDIA's GPUs, SASS, as printed by nvdisasm."""

from __future__ import annotations

import re

from dmlc.inspection.listing import Instruction, InstructionClass, Listing

_LABEL = re.compile(r"^(\.L_[\w.]+):")
_LINE = re.compile(
    r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z][\w.]*)(?P<operands>[^;]*);"
)
_ROUTINE = re.compile(r"^\$[\w$]+:")
_TARGET = re.compile(r"`\((\.L_[\w.]+)\)")
_REGISTER = re.compile(r"\bR(\d+)(\.64)?\b")
_FAR = ("LDG", "LD")
_NEAR = ("LDS", "STS", "ATOMS", "LDSM")
_OWN = ("LDL", "STL")
_FMA = ("FFMA", "HFMA2", "DFMA")


def read_listing(text: str) -> Listing:
    """Instructions of a kernel, without those of routines that it calls, such as for denormal
    divisors."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if _ROUTINE.match(line):
            break
        label, match = _LABEL.match(line), _LINE.match(line)
        if label is not None:
            labels[label[1]] = len(found)
        elif match is not None and not match["name"].startswith("NOP"):
            found.append(_classify(match["name"], match["operands"]))
    return Listing(tuple(found), labels)


def _classify(name: str, operands: str) -> Instruction:
    family, *modifiers = name.split(".")
    numbers = [int(number) for number, _ in _REGISTER.findall(operands)]
    if family in _FAR:
        size = _count_bytes(modifiers)
        into = numbers[0] if numbers and operands.strip().startswith("R") else 0
        filled = tuple(f"R{into + k}" for k in range(max(1, size // 4)))
        return Instruction(
            name,
            InstructionClass.LOAD,
            size,
            writes=filled,
            reads=_list_registers(operands.partition(",")[2]),
        )
    reads = _list_registers(operands)
    if family in ("STG", "ST"):
        return Instruction(name, InstructionClass.STORE, _count_bytes(modifiers), reads=reads)
    if family in _OWN:
        return Instruction(name, InstructionClass.SPILL, _count_bytes(modifiers), reads=reads)
    if family in _NEAR:
        return Instruction(name, InstructionClass.SHARED, reads=reads)
    if family == "BAR":
        return Instruction(name, InstructionClass.BARRIER)
    if family == "BRA":
        target = _TARGET.search(operands)
        return Instruction(
            name, InstructionClass.BRANCH, target=None if target is None else target[1]
        )
    # One that names no register but its result's moves a constant.
    if family in _FMA and len(numbers) > 1:
        return Instruction(name, InstructionClass.FMA, reads=reads)
    return Instruction(name, InstructionClass.OTHER, reads=reads)


def _list_registers(operands: str) -> tuple[str, ...]:
    """Registers that operands name, with both halves of pairs."""
    found: list[str] = []
    for number, pair in _REGISTER.findall(operands):
        found.append(f"R{number}")
        if pair:
            found.append(f"R{int(number) + 1}")
    return tuple(found)


def _count_bytes(modifiers: list[str]) -> int:
    """Bytes of an access: `E`, `E.128.CONSTANT`, `E.U16`."""
    for modifier in modifiers:
        bits = re.fullmatch(r"[US]?(8|16|64|128)", modifier)
        if bits is not None:
            return int(bits[1]) // 8
    return 4
