"""Gives the places of arg-max and arg-min reductions whose axes have been made short.

The fold numbers the places that are walked, which stand in the order of the axes as they were: so
the first of equals is still the first. What its number stands for is computed from it, element by
element, as the place along each axis that it counts to:

    number = argmax[k < 3, l < 3](x[2 * i + k - 1, 2 * j + l - 1])
    place  = (2 * i + number / 3 - 1) * columns + (2 * j + number % 3 - 1)

Where no point passes the guard the place is 0, as it was.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc.ir import (
    Body,
    Cast,
    Constant,
    Function,
    Index,
    Load,
    Select,
    Stage,
    operands,
    packed_strides,
)
from dmlc.ir.builder import Builder
from dmlc.ir.index import IndexFacts
from dmlc.ir.naming import take_name
from dmlc.scalars import DataType
from dmlc.transform.tabulate import Tables
from dmlc.transform.walk_axis import Plan, write_place

_MOST_POINTS = 2**31
"""Points that are numbered in 32 bits."""


def find_positions(function: Function) -> frozenset[str]:
    """The stages whose elements say where others read. Linear in the number of instructions."""
    found: set[str] = set()
    for stage in reversed(function.stages):
        body = stage.body
        wanted: set[int] = set()
        if stage.name in found:
            wanted.add(body.result)
        for number in range(len(body.instructions) - 1, -1, -1):
            instruction = body.instructions[number]
            if isinstance(instruction, Load):
                wanted.update(instruction.indices)
                if number in wanted:
                    found.add(instruction.tensor)
            elif number in wanted:
                wanted.update(operands(instruction))
    return frozenset(found)


def give_places(
    stage: Stage, short: Stage, plans: Sequence[Plan], tables: Tables, *, is_bounded: bool
) -> list[Stage]:
    """A stage that gives the places it gave, and before it the folds of the `short` one, whose axes
    are walked as planned. `is_bounded` keeps what it gives within the axes whatever the number."""
    axes = () if stage.reduction is None else stage.reduction.axes
    if any(isinstance(e, str) for _, e in axes) or math.prod(_list_sizes(short)) >= _MOST_POINTS:
        return [stage]
    made: list[Stage] = []
    builder = Builder()

    def load(fold: Stage, what: str) -> int:
        name = take_name(f"{stage.name}_{what}", tables.names)
        made.append(dataclasses.replace(fold, name=name, dtype=DataType.INT32))
        return builder.add(Cast(builder.read(made[-1]), DataType.INDEX))

    number = builder.constant(0) if short.reduction is None else load(short, "number")
    place = _write_number(stage, short, plans, tables, builder, number, is_bounded)
    found: list[int] = []
    if _settle_all(stage, plans, tables):
        found = [c for plan in plans for c in _write_filled(plan, tables, builder)]
    elif short.reduction is not None:
        # Which points pass is known at run time only: this is positive where some point does.
        body = short.body
        only = (*body.instructions, Constant(DataType.INT32, 1))
        folded = dataclasses.replace(short.reduction, combiner="max")
        passing = Body.make(only, len(body.instructions), body.guard)
        presence = load(dataclasses.replace(short, body=passing, reduction=folded), "found")
        found.append(builder.apply("gt", presence, builder.constant(0)))
    condition = builder.join(found)
    if condition is not None:
        place = builder.add(Select(condition, place, builder.constant(0), DataType.INDEX))
    body = builder.make(builder.add(Cast(place, stage.dtype)))
    return [*made, dataclasses.replace(stage, body=body, reduction=None)]


def _write_number(
    stage: Stage,
    short: Stage,
    plans: Sequence[Plan],
    tables: Tables,
    builder: Builder,
    number: int,
    is_bounded: bool,
) -> int:
    """The number that a stage gives, from that among the points of the short one."""
    axes = () if stage.reduction is None else stage.reduction.axes
    walked = () if short.reduction is None else short.reduction.axes
    counts = _list_sizes(short)
    steps = {axis[0]: step for axis, step in zip(walked, packed_strides(counts), strict=True)}
    sizes = _list_sizes(stage)
    by_label = {plan.label: plan for plan in plans}
    total = builder.constant(0)
    for (label, _), size, stride in zip(axes, sizes, packed_strides(sizes), strict=True):
        part = builder.constant(0)
        if label in steps:
            part = builder.apply("div", number, builder.constant(steps[label]))
            if label != walked[0][0]:
                part = builder.apply("mod", part, builder.constant(int(dict(walked)[label])))
        if label in by_label:
            plan = by_label[label]
            part, _ = write_place(plan, tables, builder, part)
            if is_bounded and int(plan.places.min()) < 0:
                part = builder.apply("max", part, builder.constant(0))
            if is_bounded and int(plan.places.max()) >= size:
                part = builder.apply("min", part, builder.constant(size - 1))
        part = builder.apply("mul", part, builder.constant(stride))
        total = builder.apply("add", total, part)
    return total


def _list_sizes(stage: Stage) -> tuple[int, ...]:
    axes = () if stage.reduction is None else stage.reduction.axes
    return tuple(e for _, e in axes if isinstance(e, int))


def _settle_all(stage: Stage, plans: Sequence[Plan], tables: Tables) -> bool:
    """Whether the plans settle all conditions of a stage's guard, each along its axis."""
    facts = IndexFacts(stage, tables.known)

    def settles(plan: Plan, condition: int) -> bool:
        own = Index(plan.label, reduced=True)
        return facts.is_over(condition, plan.over) and own in facts.dependencies[condition]

    return all(any(settles(p, c) for p in plans) for c in facts.conditions)


def _write_filled(plan: Plan, tables: Tables, builder: Builder) -> list[int]:
    """The conditions that there is a place at all along an axis."""
    filled = plan.counts > 0
    if plan.index is None or bool(filled.all()):
        return []
    row = builder.add(plan.index)
    first, last = int(filled.argmax()), len(filled) - 1 - int(filled[::-1].argmax())
    if not bool(filled[first : last + 1].all()):
        name = f"{plan.facts.stage.name}_counts"
        number = tables.read_position(builder, name, plan.counts, (row,))
        return [builder.apply("gt", number, builder.constant(0))]
    ends = [("ge", first)] * (first > 0) + [("le", last)] * (last + 1 < len(filled))
    return [builder.apply(name, row, builder.constant(end)) for name, end in ends]
