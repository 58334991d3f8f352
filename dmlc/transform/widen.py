"""Gives booleans between stages another type, for languages whose buffers cannot hold them."""

from __future__ import annotations

import dataclasses

from dmlc.ir import (
    Body,
    Cast,
    Function,
    Instruction,
    Load,
    Reduction,
    Stage,
)
from dmlc.scalars import DataType
from dmlc.transform.simplify import Builder

_COMBINERS = {"any": "max", "all": "min"}
"""On 0 and 1 as unsigned numbers; also where no point takes part, since 0 is the least of these
and all but 0 are true."""


def widen_booleans(function: Function) -> Function:
    """The function with every BOOL stage that does not leave it as one of UINT32. Fusion goes
    first: what it computes where it is read needs no memory.

    Exact: whoever reads the numbers compares them with 0.
    """
    results = {r.name for r in function.results}
    widened = {s.name for s in function.stages if s.dtype is DataType.BOOL} - results
    if not widened:
        return function
    stages = tuple(_widen(stage, widened) for stage in function.stages)
    return dataclasses.replace(function, stages=stages)


def _widen(stage: Stage, widened: set[str]) -> Stage:
    builder = Builder()

    def compare(number: int, moved: Instruction) -> int | None:
        if not isinstance(moved, Load) or moved.tensor not in widened:
            return None
        found = builder.add(dataclasses.replace(moved, dtype=DataType.UINT32))
        return builder.apply("ne", found, builder.constant(0, DataType.UINT32))

    made = builder.remake(stage, compare)
    if stage.name not in widened:
        return made
    instructions = (*made.body.instructions, Cast(made.body.result, DataType.UINT32))
    body = Body.make(instructions, len(instructions) - 1, made.body.guard)
    reduction = stage.reduction
    if reduction is not None:
        reduction = Reduction(_COMBINERS[reduction.combiner], reduction.axes)
    return dataclasses.replace(stage, dtype=DataType.UINT32, body=body, reduction=reduction)
