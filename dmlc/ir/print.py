"""Printer of the tensor IR's text form. `parse` reads it back to an equal function.

A value that is used once is nested in its use; one that is used again, or is nested too deep to
read, is named `v0`, `v1`, ... on a line of its own. A literal without a type is a FLOAT32 if it has
a point or an exponent (or is `inf` or `nan`), and an INDEX otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmlc.ir.nodes import (
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Index,
    Instruction,
    Load,
    Select,
    Stage,
    Step,
    Symbol,
    Table,
    operands,
)
from dmlc.scalars import DataType

_DEEPEST = 8
"""Largest depth of calls on one line; a deeper value gets a name."""


def print_table(table: Table) -> list[str]:
    """Lines of one table, one per row of its last axis."""
    head = f"table %{table.name}: {table.dtype.short}{print_sizes(table.extents)} = {{"
    texts = [number_text(table.dtype, value) for value in table.values]
    width = max(table.extents[-1], 1) if len(table.extents) > 1 else max(len(texts), 1)
    rows = [", ".join(texts[at : at + width]) for at in range(0, len(texts), width)]
    if len(rows) <= 1:
        return [head + "".join(rows) + "}"]
    return [head, *(f"  {row}," for row in rows[:-1]), f"  {rows[-1]}", "}"]


def print_stage(stage: Stage) -> list[str]:
    """Lines of one stage."""
    domain = ", ".join(f"i{axis} < {extent}" for axis, extent in enumerate(stage.extents))
    head = f"%{stage.name}: {stage.dtype.short}[{domain}] ="
    body = stage.body
    lets, texts = _spell(body)
    inline_guard = ""
    if body.guard is not None:
        if lets:
            lets.append(f"where {texts[body.guard]}")
        else:
            inline_guard = f" where {texts[body.guard]}"
    if stage.reduction is not None:
        axes = ", ".join(f"r{label} < {extent}" for label, extent in stage.reduction.axes)
        head += f" {stage.reduction.combiner}[{axes}{inline_guard}]"
    if not lets:
        return [f"{head} {texts[body.result]}"]
    return [f"{head} {{", *(f"  {let}" for let in lets), f"  {texts[body.result]}", "}"]


def _spell(body: Body) -> tuple[list[str], list[str]]:
    """Lines that name values, and the text of every value at its use."""
    uses = [0] * len(body.instructions)
    for instruction in body.instructions:
        for operand in operands(instruction):
            uses[operand] += 1
    lets: list[str] = []
    texts: list[str] = []
    depths: list[int] = []
    for number, instruction in enumerate(body.instructions):
        text = _instruction(instruction, texts)
        depth = 1 + max((depths[o] for o in operands(instruction)), default=0)
        leaf = isinstance(instruction, Constant | Index | Symbol | Step)
        used_on = uses[number] + (number == body.result) + (number == body.guard)
        if not leaf and (used_on > 1 or (depth > _DEEPEST and number != body.result)):
            name = f"v{len(lets)}"
            lets.append(f"{name} = {text}")
            text, depth = name, 0
        texts.append(text)
        depths.append(depth)
    return lets, texts


def _instruction(instruction: Instruction, texts: list[str]) -> str:
    match instruction:
        case Constant():
            return constant_text(instruction)
        case Index():
            return instruction.name
        case Symbol():
            return f"size({instruction.name})"
        case Step():
            return f"step({instruction.steps})"
        case Load():
            return f"%{instruction.tensor}[{', '.join(texts[i] for i in instruction.indices)}]"
        case Apply():
            given = ", ".join(texts[o] for o in instruction.operands)
            return f"{instruction.operation.name}({given})"
        case Select():
            parts = (instruction.condition, instruction.then, instruction.otherwise)
            return f"select({', '.join(texts[p] for p in parts)})"
        case Cast():
            return f"cast({texts[instruction.operand]}, {instruction.dtype.short})"


def constant_text(constant: Constant) -> str:
    """Literal that parses to the same constant."""
    text = number_text(constant.dtype, constant.value)
    plain = constant.dtype in (DataType.BOOL, DataType.INDEX, DataType.FLOAT32)
    return text if plain else f"{text}:{constant.dtype.short}"


def number_text(dtype: DataType, value: bool | int | float) -> str:
    """Literal without its type."""
    if dtype is DataType.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    number = float(value)
    if math.isnan(number):
        return "nan"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    return str(np.float32(number)) if dtype is DataType.FLOAT32 else repr(number)


def print_sizes(extents: Sequence[Extent]) -> str:
    """Sizes of a tensor's axes."""
    return f"[{', '.join(map(str, extents))}]"


def print_strides(strides: Sequence[Extent] | None) -> str:
    """Strides, unless those of a packed tensor."""
    return "" if strides is None else f"{{{', '.join(map(str, strides))}}}"
