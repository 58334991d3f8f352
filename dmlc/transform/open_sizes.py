"""Which reductions one kernel computes for all values of its sizes, and which not.

A condition that positions alone decide bounds the loops of a kernel where sizes are known: it is a
table, evaluated when the kernel is made. Along an axis whose size is left open there is no such
table, and the loop would go through all of the axis for each output. A comparison of positions, as
in the rows of a triangle, leaves out a part of the points and stays; weights of an interpolation
leave out almost all, and are refused.
"""

from __future__ import annotations

from dmlc.ir import Apply, Function, Index, Load, Stage, operands, value_type
from dmlc.ir.index import IndexFacts
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, Note, UnsupportedError

_ORDERED = ("lt", "le", "gt", "ge")


def check_open(function: Function) -> None:
    """Raises `UnsupportedError` for reductions that need tables along axes whose sizes are left
    open, each with the size and the place."""
    if not function.symbols():
        return
    found = [d for stage in function.stages for d in _list_tables(stage)]
    if found:
        raise UnsupportedError(list(dict.fromkeys(found)))


def _list_tables(stage: Stage) -> list[Diagnostic]:
    """What a stage would need tables for."""
    found: list[Diagnostic] = []
    if stage.reduction is None or stage.body.guard is None:
        return found
    facts = IndexFacts(stage)
    for condition in facts.conditions:
        if not _is_placed(stage, condition) or _compares_positions(stage, condition):
            continue
        for index in facts.dependencies[condition]:
            extent = stage.extent(index)
            if isinstance(extent, str) and index.reduced:
                found.append(_refuse(stage, index, extent))
    return found


def _refuse(stage: Stage, index: Index, symbol: str) -> Diagnostic:
    return Diagnostic(
        f"'{stage.name}' reduces over an axis of size '{symbol}' ({index.name}), and positions "
        f"along it alone say which of its points count: that is a table, and there is none while "
        f"'{symbol}' is left open",
        stage.span,
        (Note(f"give '{symbol}' a number, or write the points that count as a window"),),
    )


def _is_placed(stage: Stage, value: int) -> bool:
    """Whether a value depends on positions, sizes and constants alone."""
    found: list[bool] = []
    for instruction in stage.body.instructions[: value + 1]:
        given = operands(instruction)
        found.append(not isinstance(instruction, Load) and all(found[o] for o in given))
    return found[value]


def _compares_positions(stage: Stage, value: int) -> bool:
    """Whether a condition puts two positions in order."""
    instruction = stage.body.instructions[value]
    if not isinstance(instruction, Apply) or instruction.operation.name not in _ORDERED:
        return False
    sides = (stage.body.instructions[o] for o in instruction.operands)
    return all(value_type(side) is DataType.INDEX for side in sides)
