"""Gives booleans between stages another type, for languages whose buffers cannot hold them."""

from __future__ import annotations

import dataclasses

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Instruction,
    Load,
    Reduction,
    Stage,
    operands,
    with_operands,
)
from dmlc.scalars import OPERATIONS, DataType

_COMBINERS = {"any": "max", "all": "min"}
"""On 0 and 1 as unsigned numbers; also where no point takes part, since 0 is the least of these
and all but 0 are true."""


def widen_booleans(function: Function) -> Function:
    """The function with every BOOL reduction that does not leave it as one of UINT32.

    Element-wise stages need no memory, and stay. Exact: whoever reads the numbers compares them
    with 0.
    """
    results = {r.name for r in function.results}
    widened = {
        s.name
        for s in function.stages
        if s.dtype is DataType.BOOL and s.reduction is not None and s.name not in results
    }
    if not widened:
        return function
    stages = tuple(_widen(stage, widened) for stage in function.stages)
    return dataclasses.replace(function, stages=stages)


def _widen(stage: Stage, widened: set[str]) -> Stage:
    made: list[Instruction] = []
    numbers: list[int] = []
    for instruction in stage.body.instructions:
        moved = with_operands(instruction, tuple(numbers[o] for o in operands(instruction)))
        if isinstance(moved, Load) and moved.tensor in widened:
            made += [
                dataclasses.replace(moved, dtype=DataType.UINT32),
                Constant(DataType.UINT32, 0),
            ]
            moved = Apply(OPERATIONS["ne"], (len(made) - 2, len(made) - 1), DataType.BOOL)
        numbers.append(len(made))
        made.append(moved)
    result = numbers[stage.body.result]
    guard = None if stage.body.guard is None else numbers[stage.body.guard]
    if stage.name not in widened or stage.reduction is None:
        return dataclasses.replace(stage, body=Body.make(made, result, guard))
    made.append(Cast(result, DataType.UINT32))
    reduction = Reduction(_COMBINERS[stage.reduction.combiner], stage.reduction.axes)
    body = Body.make(made, len(made) - 1, guard)
    return dataclasses.replace(stage, dtype=DataType.UINT32, body=body, reduction=reduction)
