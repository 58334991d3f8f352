"""Rewriting of reductions whose bodies read nothing.

Such a body has no operand, and IREE 3.13 takes its value for the result of the reduction: a product
of two constants comes out as one of them. So a known result becomes a table, a sum of one number a
product, and any other body a stage of its own that the reduction reads.
"""

from __future__ import annotations

import dataclasses

from dmlc.ir import (
    Body,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Reduction,
    Stage,
    Table,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts
from dmlc.ir.naming import take_name
from dmlc.scalars import DataType


def replace_loadless(function: Function) -> Function:
    """Function without such reductions; itself if there is none."""
    taken = dict.fromkeys(function.tensors())
    stages: list[Stage] = []
    tables = list(function.tables)
    for stage in function.stages:
        reduction, body = stage.reduction, stage.body
        if reduction is None or body.loads() or body.dtype is DataType.INDEX:
            stages.append(stage)
            continue
        table = _evaluate(stage, f"{stage.name}.values")
        if table is not None:
            table = dataclasses.replace(table, name=take_name(table.name, taken))
            tables.append(table)
            stages.append(_read_table(stage, table))
        elif _is_count(stage, reduction):
            stages.append(_multiply(stage, reduction))
        else:
            stages += _split(stage, reduction, take_name(f"{stage.name}.values", taken))
    made = function.with_stages(stages)
    unchanged = len(tables) == len(function.tables)
    return made if unchanged else dataclasses.replace(made, tables=tuple(tables))


def _evaluate(stage: Stage, name: str) -> Table | None:
    """Elements of a reduction, with size 1 along the axes that they do not depend on; None for open
    sizes."""
    values = IndexFacts(stage).reduce()
    if values is None or len(values.shape) != len(stage.extents):
        return None
    numbers = tuple(values.ravel().tolist())
    return Table(name, stage.dtype.compute, values.shape, numbers, span=stage.span)


def _read_table(stage: Stage, table: Table) -> Stage:
    builder = BodyBuilder()
    at = tuple(
        builder.index(axis) if extent == stage.extents[axis] else builder.constant(0)
        for axis, extent in enumerate(table.extents)
    )
    only = table.constants()
    result: Instruction = only[0] if len(only) == 1 else Load(table.name, at, table.dtype)
    body = builder.make(builder.add(result))
    return dataclasses.replace(stage, body=body, reduction=None)


def _is_count(stage: Stage, reduction: Reduction) -> bool:
    """Whether a stage is a number times the number of points."""
    body = stage.body
    one = isinstance(body.instructions[body.result], Constant)
    return one and body.guard is None and reduction.combiner == "sum"


def _multiply(stage: Stage, reduction: Reduction) -> Stage:
    builder, dtype = BodyBuilder(), stage.body.dtype
    points = builder.constant(1)
    for _, extent in reduction.axes:
        points = builder.apply("mul", points, builder.size(extent))
    number = builder.add(stage.body.instructions[stage.body.result])
    result = builder.apply("mul", number, builder.cast(points, dtype))
    return dataclasses.replace(stage, body=builder.make(result), reduction=None)


def _split(stage: Stage, reduction: Reduction, name: str) -> tuple[Stage, Stage]:
    """Stage of the values, and stage of their reduction."""
    body, rank = stage.body, len(stage.extents)
    moved: dict[Instruction, Index] = {
        Index(label, reduced=True): Index(rank + place)
        for place, (label, _) in enumerate(reduction.axes)
    }
    values = Stage(
        name,
        body.dtype,
        (*stage.extents, *(extent for _, extent in reduction.axes)),
        Body.make([moved.get(i, i) for i in body.instructions], body.result),
        span=stage.span,
    )
    instructions: list[Instruction] = [*body.instructions, *stage.indices]
    at = tuple(range(len(body.instructions), len(instructions)))
    instructions.append(Load(name, at, body.dtype))
    read = Body.make(instructions, len(instructions) - 1, body.guard)
    return values, dataclasses.replace(stage, body=read)
