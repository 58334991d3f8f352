"""A stage as a line for a person: `Y[i0] = X[i0] > 0 ? X[i0] : 0`, `S[] = sum[r0 < 3](X[r0])`.

For comments only; the tensor IR's own text form is `dmlc.ir`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from dmlc import ir
from dmlc.scalars import DataType
from dmlc.source import InternalError

_LONGEST = 300
"""Characters of a formula; a longer one is only summed up."""


Read: TypeAlias = Callable[[ir.Load, Sequence[str]], str]
"""How a load is spelled, given the texts of its positions."""


def describe_stage(function: ir.Function, name: str) -> str:
    """The formula of a stage."""
    stage = function.stage(name)
    if stage is None:
        raise InternalError(f"a kernel names a stage that is not there: {name}")
    axes = ", ".join(f"i{axis}" for axis in range(len(stage.domain)))
    text, guard = spell_body(stage.body, _read_element)
    if stage.reduction is not None:
        over = ", ".join(f"r{label} < {extent}" for label, extent in stage.reduction.axes)
        where = ""
        if stage.body.guard is not None:
            where = f" where {guard}"
        text = f"{stage.reduction.combiner}[{over}{where}]({text})"
    return f"{stage.name}[{axes}] = {text}"


def spell_body(body: ir.Body, read: Read) -> tuple[str, str]:
    """The formulas of a body's result and of its guard, which is empty where there is none; one
    that is too long is summed up."""
    texts: list[tuple[str, bool]] = []
    for instruction in body.instructions:
        text, compound = _spell(instruction, texts, read)
        texts.append((text if len(text) <= _LONGEST else "", compound))
    text = texts[body.result][0]
    if not text:
        reads = ", ".join(dict.fromkeys(load.tensor for load in body.loads()))
        steps = sum(isinstance(i, ir.Apply | ir.Select) for i in body.instructions)
        text = f"a formula of {steps} operations on {reads or 'constants'}"
    if body.guard is None:
        return text, ""
    return text, texts[body.guard][0] or "a condition holds"


def _read_element(load: ir.Load, positions: Sequence[str]) -> str:
    return f"{load.tensor}[{', '.join(positions)}]"


def _spell(
    instruction: ir.Instruction, texts: Sequence[tuple[str, bool]], read: Read
) -> tuple[str, bool]:
    """The text of a value, and whether it needs parentheses inside an infix operation. An empty
    text stands for one that has grown too long."""
    parts = [texts[o] for o in ir.operands(instruction)]
    if any(not text for text, _ in parts):
        return "", False
    inner = [f"({text})" if compound else text for text, compound in parts]
    match instruction:
        case ir.Constant():
            return _spell_constant(instruction), False
        case ir.Index():
            return instruction.name, False
        case ir.Load():
            return read(instruction, [text for text, _ in parts]), False
        case ir.Select():
            return f"{inner[0]} ? {inner[1]} : {inner[2]}", True
        case ir.Cast():
            return f"{instruction.dtype.name.lower()}({parts[0][0]})", False
        case ir.Apply(operation=operation):
            if operation.symbol is None:
                return f"{operation.name}({', '.join(text for text, _ in parts)})", False
            if operation.arity == 1:
                return f"{operation.symbol}{inner[0]}", True
            return f" {operation.symbol} ".join(inner), True


def _spell_constant(constant: ir.Constant) -> str:
    value = constant.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        return f"{value:.0f}"
    if constant.dtype is DataType.FLOAT32:
        return str(np.float32(value))
    return str(value)
