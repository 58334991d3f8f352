"""A function of run-time sizes for the sizes that it is run with: numbers in place of symbols.

Where these come from is the callers' to know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.ir.function import Function
from dmlc.ir.nodes import (
    Body,
    Constant,
    Extent,
    Instruction,
    Loop,
    Parameter,
    Result,
    Stage,
    Symbol,
)
from dmlc.parameters import expect, expect_integer, expect_mapping
from dmlc.scalars import DataType
from dmlc.sizes import Shapes, evaluate_size, refuse_sizes
from dmlc.source import DmlcError


def specialize(function: Function, sizes: Mapping[str, int]) -> Function:
    """The function with numbers for its symbols; itself where it has none. Raises `DmlcError` for
    sizes that it was not made for."""
    symbols = expect("function", function, Function, "an ir.Function").symbols()
    if not symbols:
        return function
    expect_mapping("sizes", sizes, "a mapping of symbols to their sizes")
    for symbol in symbols:
        if symbol not in sizes:
            raise DmlcError(f"sizes have none for the symbol '{symbol}'")
        expect_integer(f"the size of '{symbol}'", sizes[symbol])
    refuse_sizes(function.name, function.checks, sizes)

    def settle(extents: Sequence[Extent]) -> tuple[int, ...]:
        return tuple(evaluate_size(e, sizes) for e in extents)

    parameters = [
        dataclasses.replace(p, extents=settle(p.extents), strides=evaluate_strides(p, sizes))
        for p in function.parameters
    ]
    results = [dataclasses.replace(r, strides=evaluate_strides(r, sizes)) for r in function.results]
    stages = [_settle_stage(stage, settle(stage.extents), sizes) for stage in function.stages]
    loops: list[Loop] = []
    for loop in function.loops:
        delays = (dataclasses.replace(d, extents=settle(d.extents)) for d in loop.delays)
        loops.append(dataclasses.replace(loop, delays=tuple(delays)))
    return dataclasses.replace(
        function,
        parameters=tuple(parameters),
        stages=tuple(stages),
        results=tuple(results),
        checks=(),
        loops=tuple(loops),
    )


def specialize_for(function: Function, shapes: Mapping[str, Sequence[int]]) -> Function:
    """The function for arrays of these shapes, by parameter. Raises `DmlcError` where one is
    missing or does not fit."""
    known = Shapes()
    for parameter in function.parameters:
        if parameter.name not in shapes:
            raise DmlcError(f"input '{parameter.name}' is missing")
        wrong = known.match(parameter.name, parameter.extents, shapes[parameter.name])
        if wrong is not None:
            raise DmlcError(f"the inputs of {function.name} do not fit: {wrong}")
    return specialize(function, known.sizes)


def evaluate_strides(
    tensor: Parameter | Result, sizes: Mapping[str, int]
) -> tuple[int, ...] | None:
    """The strides of a tensor where symbols have these sizes."""
    if tensor.strides is None:
        return None
    return tuple(evaluate_size(step, sizes) for step in tensor.strides)


def _settle_stage(stage: Stage, domain: tuple[int, ...], sizes: Mapping[str, int]) -> Stage:
    reduction = stage.reduction
    if reduction is not None:
        axes = tuple((label, evaluate_size(e, sizes)) for label, e in reduction.axes)
        reduction = dataclasses.replace(reduction, axes=axes)
    body = stage.body
    made: list[Instruction] = [
        Constant(DataType.INDEX, evaluate_size(i.name, sizes)) if isinstance(i, Symbol) else i
        for i in body.instructions
    ]
    return dataclasses.replace(
        stage, extents=domain, body=Body.make(made, body.result, body.guard), reduction=reduction
    )
