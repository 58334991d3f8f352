"""Formulas of stages for comments: `Y[i0] = X[i0] > 0 ? X[i0] : 0`, `S[] = sum[r0 < 3](X[r0])`.

`dmlc.ir` has the tensor IR's own text form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from dmlc import ir
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.kernel.infix import needs_parentheses
from dmlc.scalars import DataType
from dmlc.source import InternalError

_LONGEST = 600
"""Characters of a formula in a comment; a longer one is only summed up."""


Read: TypeAlias = Callable[[ir.Load, Sequence[str]], str]
"""How a load is spelled, given the texts of its positions."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Text:
    text: str
    operator: str = ""
    """The outermost one: `?` where it always goes in parentheses, empty where it never does."""

    def beside(self, operator: str, *, is_first: bool = False) -> str:
        """Text as an operand of `operator`, in parentheses if needed."""
        if self.operator and needs_parentheses(self.operator, operator, is_first=is_first):
            return f"({self.text})"
        return self.text


def describe_stage(function: ir.Function, name: str, longest: int = _LONGEST) -> str:
    """Formula of a stage; abbreviated if longer than `longest` characters."""
    stage = function.stage(name)
    if stage is None:
        raise InternalError(f"a kernel names a stage that is not there: {name}")
    axes = ", ".join(f"i{axis}" for axis in range(len(stage.extents)))
    text, guard = spell_body(
        stage.body, lambda load, at: f"{load.tensor}[{', '.join(at)}]", longest
    )
    if stage.reduction is not None:
        over = ", ".join(f"r{label} < {extent}" for label, extent in stage.reduction.axes)
        where = ""
        if stage.body.guard is not None:
            where = f" where {guard}"
        text = f"{stage.reduction.combiner}[{over}{where}]({text})"
    return f"{stage.name}[{axes}] = {text}"


def spell_body(body: ir.Body, read: Read, longest: int) -> tuple[str, str]:
    """Formulas of a body's result and of its guard (empty without one), each abbreviated if longer
    than `longest` characters."""

    def spell(instruction: ir.Instruction, parts: Sequence[_Text]) -> _Text:
        made = _spell(instruction, parts, read)
        return made if len(made.text) <= longest else _Text("")

    texts = body.interpret(spell)
    text = texts[body.result].text
    if not text:
        reads = ", ".join(dict.fromkeys(load.tensor for load in body.loads()))
        steps = sum(isinstance(i, ir.Apply | ir.Select) for i in body.instructions)
        text = f"a formula of {steps} operations on {reads or 'constants'}"
    if body.guard is None:
        return text, ""
    return text, texts[body.guard].text or "a condition holds"


def _spell(instruction: ir.Instruction, parts: Sequence[_Text], read: Read) -> _Text:
    """Text of a value; empty if it is too long."""
    if any(not part.text for part in parts):
        return _Text("")
    match instruction:
        case ir.Constant():
            return _Text(_spell_constant(instruction))
        case ir.Index():
            return _Text(instruction.name)
        case ir.Symbol():
            return _Text(instruction.name)
        case ir.Step():
            return _Text("step")
        case ir.Load():
            return _Text(read(instruction, [part.text for part in parts]))
        case ir.Select():
            condition, then, otherwise = (part.beside("?") for part in parts)
            return _Text(f"{condition} ? {then} : {otherwise}", "?")
        case ir.Cast():
            return _Text(f"{instruction.dtype.name.lower()}({parts[0].text})")
        case ir.Apply(operation=operation):
            symbol = IR_OPERATIONS[operation.name].symbol
            if symbol is None:
                return _Text(f"{operation.name}({', '.join(part.text for part in parts)})")
            if operation.arity == 1:
                return _Text(f"{symbol}{parts[0].beside('?')}", "?")
            first, second = parts
            left = first.beside(symbol, is_first=True)
            right = second.beside(symbol)
            return _Text(f"{left} {symbol} {right}", symbol)


def _spell_constant(constant: ir.Constant) -> str:
    value = constant.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        return f"{value:.0f}"
    if constant.dtype is DataType.FLOAT32:
        return str(np.float32(value))
    return str(value)
