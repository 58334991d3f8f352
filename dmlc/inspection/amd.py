"""Machine code of AMD's GPUs, GCN and RDNA, as printed by Mesa."""

from __future__ import annotations

import re

from dmlc.inspection.listing import Instruction, InstructionClass, Listing

_LABEL = re.compile(r"^\s*(BB\d+):")
_LINE = re.compile(r"^\s+(?P<name>[a-z]\w*)(?P<operands>[^;]*)(?:;|$)")
_VECTOR = re.compile(r"(?:buffer|tbuffer|global|flat)_(?P<what>load|store)_(?P<width>\w+)")
_SCRATCH = re.compile(r"scratch_(?:load|store)_(?P<width>\w+)")
_UNIFORM = re.compile(r"s_buffer_load_(?P<width>\w+)")
_FMA = re.compile(r"v_(?:dual_|pk_)?fma(?:c|ak|mk|_mix(?:lo|hi)?)?_f\d+")
_LEFT = re.compile(r"vmcnt\((\d+)\)")
_TARGET = re.compile(r"\bBB\d+\b")
_BYTES = {"ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2, "dword": 4}

_HINTS = ("s_delay_alu", "s_waitcnt_depctr")
"""Hints about the distance of dependent instructions. Mesa writes all of them for RDNA3 since
version 23."""

BEFORE_RDNA = ("tahiti", "pitcairn", "verde", "oland", "hainan", "bonaire", "kaveri", "kabini",
               "hawaii", "tonga", "iceland", "carrizo", "fiji", "stoney", "polaris", "vegam",
               "vega", "raven", "renoir", "mi100", "mi200", "gfx9")  # fmt: skip
"""Prefixes of the names of GPUs whose loads and stores share one counter."""


def read_listing(text: str, gpu: str) -> Listing:
    """Instructions of a listing for a GPU of that name in Mesa."""
    queued = gpu.lower().startswith(BEFORE_RDNA)
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        label, match = _LABEL.match(line), _LINE.match(line)
        if label is not None:
            labels[label[1]] = len(found)
        elif match is not None:
            found.append(_classify(match["name"], match["operands"], queued))
    return Listing(tuple(found), labels)


def _classify(name: str, operands: str, queued: bool) -> Instruction:
    vector = _VECTOR.match(name)
    if vector is not None:
        is_load = vector["what"] == "load"
        # A load straight into shared memory names no width of a register; it is a load still.
        return Instruction(
            name,
            InstructionClass.LOAD if is_load else InstructionClass.STORE,
            _count_bytes(vector["width"]),
            queued=not is_load and queued,
        )
    scratch = _SCRATCH.match(name)
    if scratch is not None:
        return Instruction(name, InstructionClass.SPILL, _count_bytes(scratch["width"]))
    uniform = _UNIFORM.match(name)
    if uniform is not None:
        return Instruction(name, InstructionClass.UNIFORM_LOAD, _count_bytes(uniform["width"]))
    if name.startswith("ds_"):
        return Instruction(name, InstructionClass.SHARED)
    if name == "s_barrier":
        return Instruction(name, InstructionClass.BARRIER)
    if name in _HINTS:
        return Instruction(name, InstructionClass.HINT)
    if name == "s_waitcnt":
        left = _LEFT.search(operands)
        return Instruction(name, InstructionClass.WAIT, left=None if left is None else int(left[1]))
    if name.startswith(("s_cbranch", "s_branch")):
        target = _TARGET.search(operands)
        return Instruction(
            name, InstructionClass.BRANCH, target=None if target is None else target[0]
        )
    if _FMA.match(name):
        return Instruction(name, InstructionClass.FMA)
    return Instruction(name, InstructionClass.OTHER)


def _count_bytes(width: str) -> int:
    """Bytes of a width: `b128`, `dwordx4`, `ushort`, `short_d16`, `d16_b16`, `u16`,
    `format_xyzw`."""
    words = re.fullmatch(r"dwordx(\d+)", width)
    if words is not None:
        return 4 * int(words[1])
    bits = re.search(r"(?:^|_)[a-z](8|16|32|64|96|128|256|512)(?:_|$)", width)
    if bits is not None and not width.startswith("d16_format"):
        return int(bits[1]) // 8
    channels = re.fullmatch(r"(d16_)?format_(?:d16_)?([xyzw]+)", width)
    if channels is not None:
        return (2 if "d16" in width else 4) * len(channels[2])
    return _BYTES.get(width.split("_")[0], 4)
