"""Function over tensors with permuted axes, a permutation for each tensor; every element is
computed as before."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeAlias, TypeVar

from dmlc.ir import (
    Body,
    Function,
    Index,
    Instruction,
    Load,
    Loop,
    Parameter,
    Reduction,
    Result,
    Stage,
    Table,
    verify,
)

Order: TypeAlias = tuple[int, ...]
"""Permutation: old axis at each new position."""
_T = TypeVar("_T")


def draw_orders(function: Function, random: Random) -> dict[str, Order]:
    """Random permutations of a function's tensors, none the identity for tensors with axes to
    exchange."""
    found: dict[str, Order] = {}
    looped = {name for loop in function.loops for name in loop.stages}
    for name, tensor in function.tensors().items():
        plain = list(range(len(tensor.extents)))
        drawn = plain[:]
        # A loop goes along the first axis.
        free = plain[1:] if name in looped else plain[:]
        while len(free) > 1 and drawn == plain:
            random.shuffle(free)
            drawn = [*drawn[: len(plain) - len(free)], *free]
        found[name] = tuple(drawn)
    found |= {delay.name: found[delay.of] for delay in function.delays()}
    return found


def invert(order: Order) -> Order:
    """Inverse permutation."""
    return tuple(order.index(axis) for axis in range(len(order)))


def permute_axes(function: Function, orders: Mapping[str, Order], random: Random) -> Function:
    """Function with the axes of each tensor permuted, and those of its reductions at random, except
    in argmin and argmax. Packed tensors are packed in the new order."""
    made = dataclasses.replace(
        function,
        parameters=tuple(_permute_parameter(p, orders[p.name]) for p in function.parameters),
        tables=tuple(_permute_table(t, orders[t.name]) for t in function.tables),
        stages=tuple(_permute_stage(s, orders, random) for s in function.stages),
        results=tuple(
            Result(r.name, r.strides and _arrange(r.strides, orders[r.name]))
            for r in function.results
        ),
        in_place=(),
        loops=tuple(_permute_loop(loop, orders) for loop in function.loops),
    )
    verify(made, "permute_axes")
    return made


def _permute_loop(loop: Loop, orders: Mapping[str, Order]) -> Loop:
    delays = (
        dataclasses.replace(delay, extents=_arrange(delay.extents, orders[delay.name]))
        for delay in loop.delays
    )
    return dataclasses.replace(loop, delays=tuple(delays))


def _arrange(values: Sequence[_T], order: Order) -> tuple[_T, ...]:
    return tuple(values[axis] for axis in order)


def _permute_parameter(parameter: Parameter, order: Order) -> Parameter:
    return dataclasses.replace(
        parameter,
        extents=_arrange(parameter.extents, order),
        strides=parameter.strides and _arrange(parameter.strides, order),
    )


def _permute_table(table: Table, order: Order) -> Table:
    values = table.array().transpose(order)
    return dataclasses.replace(table, extents=values.shape, values=tuple(values.ravel().tolist()))


def _permute_stage(stage: Stage, orders: Mapping[str, Order], random: Random) -> Stage:
    order = orders[stage.name]
    back = invert(order)

    def move(instruction: Instruction) -> Instruction:
        match instruction:
            case Index(axis=axis, reduced=False):
                return Index(back[axis])
            case Load(tensor=tensor, indices=indices):
                return dataclasses.replace(instruction, indices=_arrange(indices, orders[tensor]))
            case _:
                return instruction

    body = Body.make(
        [move(i) for i in stage.body.instructions], stage.body.result, stage.body.guard
    )
    reduction = stage.reduction
    if reduction is not None and not reduction.is_positional:
        axes = list(reduction.axes)
        random.shuffle(axes)
        reduction = Reduction(reduction.combiner, tuple(axes))
    return dataclasses.replace(
        stage, extents=_arrange(stage.extents, order), body=body, reduction=reduction
    )
