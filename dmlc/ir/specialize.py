"""Substitution of run-time sizes: numbers in place of symbols."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from dmlc.ir.function import Function
from dmlc.ir.nodes import (
    Constant,
    Extent,
    Instruction,
    Loop,
    Parameter,
    Result,
    Stage,
    Step,
    Symbol,
)
from dmlc.parameters import expect, expect_integer, expect_mapping
from dmlc.scalars import DataType
from dmlc.sizes import (
    Measure,
    as_extent,
    evaluate_size,
    measure,
    refuse_sizes,
    replace_symbols,
)
from dmlc.source import DmlcError


def specialize(function: Function, sizes: Mapping[str, int]) -> Function:
    """Function with numbers for its symbols; the same object if it has none. Raises `DmlcError` for
    missing sizes and for those that break its checks."""
    symbols = expect("function", function, Function, "an ir.Function").symbols()
    if not symbols:
        return function
    expect_mapping("sizes", sizes, "a mapping of symbols to their sizes")
    for symbol in symbols:
        if symbol not in sizes:
            raise DmlcError(f"'sizes' has no size for the symbol '{symbol}'")
        expect_integer(f"the size of '{symbol}'", sizes[symbol])
    refuse_sizes(function.name, function.checks, sizes)

    return dataclasses.replace(
        _change_sizes(
            function,
            lambda extent: evaluate_size(extent, sizes),
            lambda found: Constant(DataType.INDEX, evaluate_size(found.name, sizes)),
        ),
        checks=(),
    )


def replace_size(function: Function, symbol: str, by: Measure) -> Function:
    """Function with an equal size expression for a symbol. Checks are unchanged."""

    def compute(found: Symbol) -> Instruction:
        size = replace_extent(found.name, symbol, by)
        return Constant(DataType.INDEX, size) if isinstance(size, int) else Symbol(size)

    return _change_sizes(function, lambda extent: replace_extent(extent, symbol, by), compute)


def replace_extent(extent: Extent, symbol: str, by: Measure) -> Extent:
    """Extent with a size expression for a symbol."""
    return as_extent(replace_symbols(measure(extent), {symbol: by}))


def _change_sizes(
    function: Function,
    change: Callable[[Extent], Extent],
    compute: Callable[[Symbol], Instruction],
) -> Function:
    """Function with `change` applied to extents and strides, and `compute` to symbols in bodies."""

    def settle(extents: Sequence[Extent]) -> tuple[Extent, ...]:
        return tuple(map(change, extents))

    def lay_out(strides: Sequence[Extent] | None) -> tuple[Extent, ...] | None:
        return None if strides is None else settle(strides)

    parameters = [
        dataclasses.replace(p, extents=settle(p.extents), strides=lay_out(p.strides))
        for p in function.parameters
    ]
    results = [dataclasses.replace(r, strides=lay_out(r.strides)) for r in function.results]
    stages = [_change_stage(stage, change, compute) for stage in function.stages]
    loops: list[Loop] = []
    for loop in function.loops:
        delays = (dataclasses.replace(d, extents=settle(d.extents)) for d in loop.delays)
        loops.append(dataclasses.replace(loop, delays=tuple(delays)))
    one_step = function.one_step
    if one_step is not None:
        rows = {
            name: dataclasses.replace(row, size=change(row.size))
            for name, row in one_step.rows.items()
        }
        one_step = dataclasses.replace(one_step, steps=change(one_step.steps), rows=rows)
    return dataclasses.replace(
        function,
        parameters=tuple(parameters),
        stages=tuple(stages),
        results=tuple(results),
        loops=tuple(loops),
        one_step=one_step,
    )


def evaluate_strides(
    tensor: Parameter | Result, sizes: Mapping[str, int]
) -> tuple[int, ...] | None:
    """Strides of a tensor for these sizes of symbols, in elements; None if packed."""
    if tensor.strides is None:
        return None
    return tuple(evaluate_size(step, sizes) for step in tensor.strides)


def _change_stage(
    stage: Stage, change: Callable[[Extent], Extent], compute: Callable[[Symbol], Instruction]
) -> Stage:
    reduction = stage.reduction
    if reduction is not None:
        axes = tuple((label, change(extent)) for label, extent in reduction.axes)
        reduction = dataclasses.replace(reduction, axes=axes)

    def settle(instruction: Instruction) -> Instruction:
        match instruction:
            case Symbol():
                return compute(instruction)
            case Step(steps=steps):
                return Step(change(steps))
            case _:
                return instruction

    extents, body = tuple(map(change, stage.extents)), stage.body.map(settle)
    return dataclasses.replace(stage, extents=extents, body=body, reduction=reduction)
