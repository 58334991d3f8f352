"""Has quotients correctly rounded that decide positions.

Devices may be off by a few units of the last place in a quotient. Where a pixel is read at the
floor of one, that is another pixel; where what depends on positions alone is known exactly, as
weights are, it is another weight. So these are `div_nearest`, which rounds alike on every device:

- quotients that depend on positions, sizes and constants alone, whatever they are for;
- quotients of elements that a position is made of, or a condition of which points take part.

A comparison of floats ends the search, and so does the position of the smallest or the largest:
a close call goes either way on any device, by the other operations as well. A power of two divides
exactly everywhere.
"""

from __future__ import annotations

import math

from dmlc.ir import (
    Apply,
    Constant,
    Function,
    Instruction,
    Load,
    Stage,
    operands,
    value_type,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import find_index_only


def round_quotients(function: Function) -> Function:
    """The function with correctly rounded quotients wherever these decide positions; the function
    itself where none does."""
    placed = {table.name for table in function.tables}
    known: dict[str, tuple[bool, ...]] = {}
    for stage in function.stages:
        known[stage.name] = find_index_only(stage.body, placed, open_sizes=True)
        if all(known[stage.name]):
            placed.add(stage.name)
    deciding: set[str] = set()
    made: dict[str, Stage] = {}
    for stage in reversed(function.stages):
        found = _find_deciding(stage, deciding)
        chosen = {
            number
            for number, instruction in enumerate(stage.body.instructions)
            if (number in found or known[stage.name][number]) and _may_differ(stage, instruction)
        }
        made[stage.name] = _round(stage, chosen) if chosen else stage
    return function.with_stages(made[stage.name] for stage in function.stages)


def _find_deciding(stage: Stage, deciding: set[str]) -> set[int]:
    """The values of a stage's body that positions are made of. The tensors that are among them join
    `deciding`."""
    body = stage.body
    pending = [place for load in body.loads() for place in load.indices]
    if body.guard is not None:
        pending.append(body.guard)
    if stage.name in deciding and not stage.is_positional:
        pending.append(body.result)
    found: set[int] = set()
    while pending:
        number = pending.pop()
        if number in found:
            continue
        found.add(number)
        instruction = body.instructions[number]
        if isinstance(instruction, Load):
            deciding.add(instruction.tensor)
        given = operands(instruction)
        compares = isinstance(instruction, Apply) and instruction.operation.gives_bool
        if not compares or not value_type(body.instructions[given[0]]).is_float:
            pending += given
    return found


def _may_differ(stage: Stage, instruction: Instruction) -> bool:
    """Whether a value is a quotient of floats that devices may round in their own ways."""
    if not isinstance(instruction, Apply) or instruction.operation.name != "div":
        return False
    if not instruction.dtype.is_float:
        return False
    divisor = stage.body.instructions[instruction.operands[1]]
    return not isinstance(divisor, Constant) or abs(math.frexp(divisor.value)[0]) != 0.5


def _round(stage: Stage, chosen: set[int]) -> Stage:
    """The stage with some of its quotients correctly rounded."""
    builder = BodyBuilder()

    def change(number: int, moved: Instruction) -> int | None:
        if number not in chosen or not isinstance(moved, Apply):
            return None
        return builder.apply("div_nearest", *moved.operands)

    return builder.remake(stage, change)
