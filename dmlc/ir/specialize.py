"""Functions of run-time sizes for the sizes that they are run with.

Symbols are found in the sizes of arrays, each of which is named where another disagrees; a function
with these in place of its symbols has none. Who has the arrays is the callers' to know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dmlc.ir.function import Function
from dmlc.ir.nodes import (
    Body,
    Constant,
    Extent,
    Instruction,
    Parameter,
    Reduction,
    Stage,
    Symbol,
)
from dmlc.scalars import DataType


def specialize(function: Function, sizes: Mapping[str, int]) -> Function:
    """The function with numbers for its symbols; itself where it has none."""
    if not function.symbols():
        return function

    def settle(extents: Sequence[Extent]) -> tuple[int, ...]:
        return tuple(sizes[e] if isinstance(e, str) else e for e in extents)

    parameters = [dataclasses.replace(p, extents=settle(p.extents)) for p in function.parameters]
    stages = [_settle_stage(stage, settle(stage.domain), sizes) for stage in function.stages]
    return dataclasses.replace(function, parameters=tuple(parameters), stages=tuple(stages))


def _settle_stage(stage: Stage, domain: tuple[int, ...], sizes: Mapping[str, int]) -> Stage:
    reduction = stage.reduction
    if reduction is not None:
        axes = ((label, sizes[e] if isinstance(e, str) else e) for label, e in reduction.axes)
        reduction = Reduction(reduction.combiner, tuple(axes))
    body = stage.body
    made: list[Instruction] = [
        Constant(DataType.INDEX, sizes[i.name]) if isinstance(i, Symbol) else i
        for i in body.instructions
    ]
    return dataclasses.replace(
        stage, domain=domain, body=Body.make(made, body.result, body.guard), reduction=reduction
    )


def list_open(tensors: Iterable[Parameter | Stage]) -> list[Parameter | Stage]:
    """Those of some tensors that have sizes known at run time only."""
    return [t for t in tensors if any(isinstance(e, str) for e in t.extents)]
