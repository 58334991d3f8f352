"""The stages of a function as its gradient sees them.

Element-wise stages are computed where each of their elements is read once: what a choice leaves out
then stays out of all that is computed from it. Stages that others are copies of are read from
these, where these are at hand. Nothing here is about derivatives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Sequence

from dmlc.ir import Apply, Extent, Function, Index, Load, Stage
from dmlc.ir.builder import BodyBuilder
from dmlc.transform.inline import inline_stages
from dmlc.transform.simplify import is_inlinable

_MOST_SHARED = 24
"""The most instructions of an element-wise stage that several stages compute where they read it."""

_MOST_INLINED = 256
"""The most instructions of a body that others are computed in."""


def find_copies(function: Function, kept: Iterable[str]) -> dict[str, Stage]:
    """The stages that kept tensors are copies of, in other sizes perhaps, or rounded when they were
    stored, as stages that read these instead."""
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
    """The stages, with element-wise ones computed where each of their elements is read once."""
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
    """Whether a stage reads every element of a tensor at one of its points."""
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
    """The stages that others add, subtract or divide by, the same one at several points: a mean, or
    a maximum. These may cancel."""
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
