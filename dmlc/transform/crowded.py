"""Splits stages that read more tensors than a kernel of the target can have buffers.

A part is a value that depends on several of the tensors; it becomes a stage. It is stored in its
compute type, so that nothing is rounded, at every point of the original stage, reduction axes
included if it depends on them. Fusion does not inline a part if that would exceed the limit again.
"""

from __future__ import annotations

import dataclasses

from dmlc.ir import Function, Index, Instruction, Load, Stage
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import find_dependencies
from dmlc.ir.naming import take_name
from dmlc.ir.nodes import value_type
from dmlc.scalars import DataType
from dmlc.transform.inline import clamp_reads

_MOST_TRIED = 8
"""Largest number of values tried as a part."""


def split_crowded(function: Function, most_buffers: int) -> Function:
    """Function whose stages each read fewer than `most_buffers` tensors, as far as their values
    have parts that do; the same object if all do. Stages of loops are not split."""
    most = most_buffers - 1
    if function.loops or function.one_step or all(_count(s) <= most for s in function.stages):
        return function
    names = dict.fromkeys(function.tensors())
    made: list[Stage] = []
    for stage in function.stages:
        left = stage
        while _count(left) > most:
            found = _split(left, most, take_name(f"{stage.name}_part", names))
            if found is None:
                break
            part, left = found
            made.append(part)
        made.append(left)
    split = function.with_stages(made)
    return split.with_stages(clamp_reads(split, split.stages))


def _count(stage: Stage) -> int:
    """Number of tensors that a stage reads."""
    return len({load.tensor for load in stage.body.loads()})


def _split(stage: Stage, most: int, name: str) -> tuple[Stage, Stage] | None:
    """A part of a stage that reads at most `most` tensors, and the rest of the stage; None if no
    part reduces the number."""
    body = stage.body
    bits: dict[str, int] = {}

    def read(instruction: Instruction, given: list[int]) -> int:
        own = 0
        if isinstance(instruction, Load):
            own = 1 << bits.setdefault(instruction.tensor, len(bits))
        for tensors in given:
            own |= tensors
        return own

    counts = [tensors.bit_count() for tensors in body.interpret(read)]
    parts = [
        number
        for number, instruction in enumerate(body.instructions)
        if 1 < counts[number] <= most and value_type(instruction) is not DataType.INDEX
    ]
    parts.sort(key=lambda number: (counts[number], number), reverse=True)
    for number in parts[:_MOST_TRIED]:
        part, left = _extract(stage, number, name)
        if _count(left) < len(bits):
            return part, left
    return None


def _extract(stage: Stage, number: int, name: str) -> tuple[Stage, Stage]:
    """A value of a stage as a stage of its own, and the stage that reads it."""
    body = stage.body
    needed = {index for index in find_dependencies(body)[number] if index.reduced}
    axes = [(label, extent) for label, extent in stage.axes if Index(label, reduced=True) in needed]
    builder = BodyBuilder()
    first = len(stage.extents)
    places = {
        Index(label, reduced=True): builder.add(Index(first + place))
        for place, (label, _) in enumerate(axes)
    }
    values = builder.copy(body, places=places)
    dtype = value_type(body.instructions[number])
    extents = (*stage.extents, *(extent for _, extent in axes))
    part = Stage(name, dtype, extents, builder.make(values[number]), span=stage.span)
    builder = BodyBuilder()
    here = [builder.add(Index(axis)) for axis in range(first)]
    here += [builder.add(Index(label, reduced=True)) for label, _ in axes]
    numbers = builder.copy(body, {number: builder.add(Load(name, tuple(here), dtype))})
    guard = None if body.guard is None else numbers[body.guard]
    left = dataclasses.replace(stage, body=builder.make(numbers[body.result], guard))
    return part, left
