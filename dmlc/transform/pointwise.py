"""Prepares the stages of a function for differentiation.

Element-wise stages are inlined where each of their elements is read once, so that a NaN of a branch
not taken stays out of everything computed from it. Copies of available tensors are read from these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Sequence

from dmlc.ir import Apply, Extent, Function, Index, Load, Stage
from dmlc.ir.builder import BodyBuilder
from dmlc.transform.inline import inline_stages
from dmlc.transform.simplify import is_inlinable

_MOST_SHARED = 24
"""Largest number of instructions of an element-wise stage that is inlined into several readers."""

_MOST_INLINED = 256
"""Largest number of instructions of a body with inlined stages."""


def find_copies(function: Function, kept: Iterable[str]) -> dict[str, Stage]:
    """Stages of which kept tensors are copies, perhaps reshaped or rounded when stored, as stages
    that read these tensors instead."""
    found: dict[str, Stage] = {}
    for name in kept:
        copy = function.stage(name)
        load = None if copy is None else copy.body.instructions[copy.body.result]
        source = function.stage(load.tensor) if isinstance(load, Load) else None
        if copy is None or source is None or not isinstance(load, Load) or copy.reduction:
            continue
        alike = copy.dtype.compute is source.dtype.compute
        if alike and _reads_each_once(copy, load, source.extents):
            axes = {copy.body.instructions[n]: axis for axis, n in enumerate(load.indices)}
            builder = BodyBuilder()
            at = (
                builder.index(axes[Index(axis)]) if extent != 1 else builder.constant(0)
                for axis, extent in enumerate(copy.extents)
            )
            body = builder.make(builder.load(copy, *at))
            found[source.name] = dataclasses.replace(source, body=body, reduction=None)
    return found


def inline_pointwise(function: Function, kept: Container[str]) -> list[Stage]:
    """Stages, with element-wise ones inlined where each of their elements is read once."""
    tensors, readers = function.tensors(), function.readers()
    open_stages: dict[str, Stage] = {}
    made: list[Stage] = []
    for stage in function.stages:
        whole = stage
        for name in dict.fromkeys(load.tensor for load in stage.body.loads()):
            loads = [load for load in whole.body.loads() if load.tensor == name]
            if name not in open_stages:
                continue
            if all(_reads_each_once(whole, load, tensors[name].extents) for load in loads):
                tried = inline_stages(whole, {name: open_stages[name]})
                if len(tried.body.instructions) <= _MOST_INLINED:
                    whole = tried
        made.append(whole)
        most = _MOST_SHARED if len(readers.get(stage.name, ())) > 1 else _MOST_INLINED
        if is_inlinable(whole) and stage.name not in kept and len(whole.body.instructions) <= most:
            open_stages[stage.name] = whole
    return made


def _reads_each_once(stage: Stage, load: Load, extents: Sequence[Extent]) -> bool:
    """Whether a stage reads every element of a tensor at exactly one of its points."""
    found: list[Index] = []
    for number, extent in zip(load.indices, extents, strict=True):
        position = stage.body.instructions[number]
        if isinstance(position, Index):
            found.append(position)
        elif extent != 1:
            return False
    long = {index for index in stage.indices if stage.extent(index) != 1}
    return len(set(found)) == len(found) and long <= set(found)


def find_shifting(stages: Iterable[Stage]) -> set[str]:
    """Stages that others add, subtract or divide by, one element at several points, such as a mean
    or a maximum: their contributions may cancel."""
    known = {stage.name: stage for stage in stages}
    found: set[str] = set()
    for stage in known.values():
        values = stage.body.instructions
        shifts = {
            operand
            for value in values
            if isinstance(value, Apply) and value.operation.name in ("add", "sub", "div")
            for operand in value.operands
        }
        for number in shifts:
            load = values[number]
            if isinstance(load, Load) and load.tensor in known:
                source = known[load.tensor]
                if not _reads_each_once(stage, load, source.extents):
                    found.add(load.tensor)
    return found
