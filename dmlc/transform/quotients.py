"""Makes quotients correctly rounded that affect indices.

Devices may be off by a few units in the last place in a quotient. If a pixel is loaded at the floor
of one, that changes the pixel; and index-only values, such as weights, are known exactly at compile
time, so that a device must not differ. These quotients become `div_nearest`, which rounds alike on
every device:

- quotients that depend on indices, sizes and constants alone, whatever their use;
- quotients of elements that affect an index, or a condition that selects points.

The search does not continue through float comparisons and argmin or argmax: a near tie goes either
way on any device, because of other operations as well. Quotients by powers of two are exact
everywhere.
"""

from __future__ import annotations

import math

from dmlc.ir import Apply, Constant, Function, Instruction, Load, Stage, operands, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import find_index_only


def round_quotients(function: Function) -> Function:
    """Function with correctly rounded quotients wherever they affect indices; the same object if
    none does."""
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
    """Values of a stage's body on which indices depend. Tensors among them are added to
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
    """Whether a value is a float quotient that devices may round differently."""
    if not isinstance(instruction, Apply) or instruction.operation.name != "div":
        return False
    if not instruction.dtype.is_float:
        return False
    divisor = stage.body.instructions[instruction.operands[1]]
    return not isinstance(divisor, Constant) or abs(math.frexp(divisor.value)[0]) != 0.5


def _round(stage: Stage, chosen: set[int]) -> Stage:
    """Stage with the chosen quotients correctly rounded."""
    builder = BodyBuilder()

    def change(number: int, moved: Instruction) -> int | None:
        if number not in chosen or not isinstance(moved, Apply):
            return None
        return builder.apply("div_nearest", *moved.operands)

    return builder.remake(stage, change)
