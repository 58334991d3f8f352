"""Online softmax-weighted sums of a kernel, written as stages in the order of the kernel.

The error analysis then treats their roundings as those of all other stages: each block of keys has
weights relative to the largest score so far, and its partial sum is scaled by `exp(m - m')`
wherever a later block has a larger score. Sums with known weights are unchanged, except for masked
keys.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Function,
    Index,
    Load,
    Reduction,
    Select,
    Stage,
)
from dmlc.ir.naming import take_name
from dmlc.scalars import DataType, Value
from dmlc.testing.plain import PlainBuilder
from dmlc.transform.cost import Budget
from dmlc.transform.inline import inline_producers
from dmlc.transform.online import KEYS, Online, find_online, list_stages, may_be_online
from dmlc.transform.passes import Member
from dmlc.transform.recompute import recompute

_BUDGET = Budget(least_rows=1, cached_bytes=0)
_FLOAT = DataType.FLOAT32


def write_online(function: Function) -> Function | None:
    """Function with its softmax-weighted sums computed online; None if it has none."""
    if not may_be_online(function):
        return None
    drawn = inline_producers(recompute(function, _BUDGET), {}, (), _BUDGET)
    drawn_function = dataclasses.replace(function, stages=drawn.stages)
    found = find_online(drawn_function, _BUDGET)
    if not found:
        return None
    made: dict[str, list[Stage]] = {}
    names = dict.fromkeys(drawn_function.tensors())
    for each in found:
        if each.largest is None:
            stages = list_stages(drawn_function, [member.stage for member in each.sums])
            made |= {stage.name: [_leave_out(stage)] for stage in stages}
            continue
        writer = _Writer(drawn_function, each, each.largest, names)
        made[each.largest.stage] = writer.write_largest()
        made |= {member.stage: writer.write_sum(member) for member in each.sums}
    stages = [s for stage in drawn.stages for s in made.get(stage.name, [stage])]
    return drawn_function.with_stages(stages)


class _Writer:
    """Writer of the stages of one pattern."""

    def __init__(
        self, function: Function, found: Online, largest: Member, names: dict[str, None]
    ) -> None:
        self._found = found
        self._stages = {s.name: s for s in function.stages}
        self._rows = dict(largest.axes)
        self._largest = self._stages[largest.stage]
        self._names = names
        self._keys = found.sizes[found.rows]
        self._blocks = -(-self._keys // KEYS)
        self._extents = (*self._largest.extents, self._blocks)
        """Extents of a value per row and block."""
        self._block = Index(len(self._largest.extents))
        self._top = take_name(f"{self._largest.name}_so_far", names)
        self._scale = take_name(f"{self._largest.name}_scale", names)

    def write_largest(self) -> list[Stage]:
        """Stages of the largest score, of the running maximum of each block, and of the final scale
        of each block's partial sums."""
        whole = self._largest
        reduction = whole.reduction or Reduction("max", ())
        ((label, _),) = reduction.axes
        made = PlainBuilder(whole.body)
        before = made.value(Index(label, reduced=True)) < KEYS * (1 + made.value(self._block))
        body = made.finish(whole.body.result, before)
        running = Stage(self._top, _FLOAT, self._extents, body, reduction)
        made = PlainBuilder()
        rows = [made.index(axis) for axis in range(len(whole.extents))]
        later = made.value(Index(0, reduced=True))
        places = (made.unwrap(place) for place in (later + -1, later))
        old, new = (made.value(Load(self._top, (*rows, at), _FLOAT)) for at in places)
        scale = old.equals(new).select(1.0, (old - new).apply("exp"))
        body = made.finish(scale, later > made.value(self._block))
        axes = ((0, self._blocks),)
        scales = Stage(self._scale, _FLOAT, self._extents, body, Reduction("product", axes))
        return [whole, running, scales]

    def write_sum(self, member: Member) -> list[Stage]:
        """Stages of a sum: the partial sums of the blocks, and their combination."""
        whole, axes = self._stages[member.stage], dict(member.axes)
        reduction = whole.reduction or Reduction("sum", ())
        ((label, _),) = reduction.axes
        key, block = Index(label, reduced=True), Index(len(whole.extents))
        made = PlainBuilder(whole.body)
        at_block = made.value(block)
        position = at_block * KEYS + made.value(key)
        for number, instruction in enumerate(whole.body.instructions):
            if instruction == key:
                made.instructions[number] = made.instructions[made.unwrap(position)]
            if isinstance(instruction, Load) and instruction.tensor == self._largest.name:
                places = (*instruction.indices, made.unwrap(at_block))
                top = made.value(Load(self._top, places, _FLOAT))
                chosen = top.equals(-math.inf).select(0.0, top)
                made.instructions[number] = made.instructions[made.unwrap(chosen)]
        inside = _exclude_masked(made, whole.body, position < self._keys)
        body = made.finish(whole.body.result, inside)
        part = Stage(
            take_name(f"{whole.name}_part", self._names), _FLOAT, (*whole.extents, self._blocks),
            body, Reduction("sum", ((label, KEYS),)),
        )  # fmt: skip
        made = PlainBuilder()
        own = [made.index(axis) for axis in range(len(whole.extents))]
        at = made.reduced(0)
        rows = self._place_rows(made, own, axes)
        parts = made.value(Load(part.name, (*own, at), _FLOAT))
        scales = made.value(Load(self._scale, (*rows, at), _FLOAT))
        body = made.finish(parts * scales)
        total = Stage(
            take_name(f"{whole.name}_total", self._names), _FLOAT, whole.extents, body,
            Reduction("sum", ((0, self._blocks),)),
        )  # fmt: skip
        made = PlainBuilder()
        own = [made.index(axis) for axis in range(len(whole.extents))]
        rows = self._place_rows(made, own, axes)
        largest = made.value(Load(self._largest.name, tuple(rows), _FLOAT))
        summed = made.value(Load(total.name, tuple(own), _FLOAT))
        body = made.finish(largest.equals(-math.inf).select(math.nan, summed))
        return [part, total, Stage(whole.name, whole.dtype, whole.extents, body, span=whole.span)]

    def _place_rows(self, made: PlainBuilder, own: list[int], axes: dict[Index, int]) -> list[int]:
        """Index of a row in the indices of a sum."""
        places = {
            dimension: own[index.axis] for index, dimension in axes.items() if not index.reduced
        }
        rows = self._rows
        return [
            places[rows[Index(axis)]] if Index(axis) in rows else made.constant(0)
            for axis in range(len(self._largest.extents))
        ]


def _leave_out(stage: Stage) -> Stage:
    """Sum with known weights, without masked keys."""
    if not any(_list_masks(stage.body)):
        return stage
    made = PlainBuilder(stage.body)
    inside = _exclude_masked(made, stage.body, made.value(Constant(DataType.BOOL, value=True)))
    return dataclasses.replace(stage, body=made.finish(stage.body.result, inside))


def _exclude_masked(made: PlainBuilder, body: Body, inside: Value) -> Value:
    """Condition `inside`, and that a key is not masked: a kernel may or may not read masked
    ones."""
    for number, holds in _list_masks(body):
        condition = made.wrap(number)
        inside = inside & (condition if holds else ~condition)
    return inside


def _list_masks(body: Body) -> Iterator[tuple[int, bool]]:
    """Conditions that mask a score, each with whether it must hold."""
    made = body.instructions
    distances = [
        made[i.operands[0]] for i in made if isinstance(i, Apply) and i.operation.name == "exp"
    ]
    scores = {
        i.operands[0] for i in distances if isinstance(i, Apply) and i.operation.name == "sub"
    }
    at = scores.pop() if len(scores) == 1 else len(made)
    while at < len(made) and isinstance(chosen := made[at], Select):
        sides = [made[chosen.then], made[chosen.otherwise]]
        none = [isinstance(s, Constant) and s.value == -math.inf for s in sides]
        if not any(none):
            return
        yield chosen.condition, none[1]
        at = chosen.then if none[1] else chosen.otherwise
