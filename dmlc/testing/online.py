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
    Instruction,
    Load,
    Reduction,
    Select,
    Stage,
)
from dmlc.ir.naming import take_name
from dmlc.scalars import OPERATIONS, DataType
from dmlc.transform.cost import Budget
from dmlc.transform.inline import inline_producers
from dmlc.transform.online import KEYS, Online, find_online, list_stages, may_be_online
from dmlc.transform.passes import Member
from dmlc.transform.recompute import recompute

_BUDGET = Budget(least_rows=1, cached_bytes=0)
_INDEX, _FLOAT, _BOOL = DataType.INDEX, DataType.FLOAT32, DataType.BOOL


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


class _Body:
    """Body under construction from the instructions of another."""

    def __init__(self, instructions: tuple[Instruction, ...] = ()) -> None:
        self.made = list(instructions)

    def add(self, instruction: Instruction) -> int:
        self.made.append(instruction)
        return len(self.made) - 1

    def number(self, value: int) -> int:
        return self.add(Constant(_INDEX, value))

    def apply(self, name: str, *operands: int, dtype: DataType = _INDEX) -> int:
        return self.add(Apply(OPERATIONS[name], operands, dtype))

    def keep(self, body: Body, inside: int) -> int:
        """Value masked to `inside`: a kernel may or may not read masked keys."""
        for condition, holds in _list_masks(body):
            kept = condition if holds else self.apply("not", condition, dtype=_BOOL)
            inside = self.apply("and", inside, kept, dtype=_BOOL)
        return inside

    def choose(self, condition: int, value: float, otherwise: int) -> int:
        """Number where a condition holds, and `otherwise` elsewhere."""
        return self.add(Select(condition, self.add(Constant(_FLOAT, value)), otherwise, _FLOAT))


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
        made = _Body(whole.body.instructions)
        end = made.apply(
            "mul", made.number(KEYS), made.apply("add", made.number(1), made.add(self._block))
        )
        before = made.apply("lt", made.add(Index(label, reduced=True)), end, dtype=_BOOL)
        body = Body.make(made.made, whole.body.result, before)
        running = Stage(self._top, _FLOAT, self._extents, body, reduction)
        made = _Body()
        rows = [made.add(Index(axis)) for axis in range(len(whole.extents))]
        later = made.add(Index(0, reduced=True))
        earlier = made.apply("add", later, made.number(-1))
        old, new = (made.add(Load(self._top, (*rows, at), _FLOAT)) for at in (earlier, later))
        grown = made.apply("exp", made.apply("sub", old, new, dtype=_FLOAT), dtype=_FLOAT)
        scale = made.choose(made.apply("eq", old, new, dtype=_BOOL), 1.0, grown)
        after = made.apply("gt", later, made.add(self._block), dtype=_BOOL)
        body = Body.make(made.made, scale, after)
        axes = ((0, self._blocks),)
        scales = Stage(self._scale, _FLOAT, self._extents, body, Reduction("product", axes))
        return [whole, running, scales]

    def write_sum(self, member: Member) -> list[Stage]:
        """Stages of a sum: the partial sums of the blocks, and their combination."""
        whole, axes = self._stages[member.stage], dict(member.axes)
        reduction = whole.reduction or Reduction("sum", ())
        ((label, _),) = reduction.axes
        key, block = Index(label, reduced=True), Index(len(whole.extents))
        made = _Body(whole.body.instructions)
        at_block = made.add(block)
        place = made.apply("mul", at_block, made.number(KEYS))
        position = made.apply("add", place, made.add(key))
        for number, instruction in enumerate(whole.body.instructions):
            if instruction == key:
                made.made[number] = made.made[position]
            if isinstance(instruction, Load) and instruction.tensor == self._largest.name:
                top = made.add(Load(self._top, (*instruction.indices, at_block), _FLOAT))
                none = made.add(Constant(_FLOAT, -math.inf))
                is_none = made.apply("eq", top, none, dtype=_BOOL)
                chosen = made.choose(is_none, 0.0, top)
                made.made[number] = made.made[chosen]
        inside = made.apply("lt", position, made.number(self._keys), dtype=_BOOL)
        inside = made.keep(whole.body, inside)
        body = Body.make(made.made, whole.body.result, inside)
        part = Stage(
            take_name(f"{whole.name}_part", self._names), _FLOAT, (*whole.extents, self._blocks),
            body, Reduction("sum", ((label, KEYS),)),
        )  # fmt: skip
        made = _Body()
        own = [made.add(Index(axis)) for axis in range(len(whole.extents))]
        at = made.add(Index(0, reduced=True))
        rows = self._place_rows(made, own, axes)
        parts = made.add(Load(part.name, (*own, at), _FLOAT))
        scales = made.add(Load(self._scale, (*rows, at), _FLOAT))
        body = Body.make(made.made, made.apply("mul", parts, scales, dtype=_FLOAT))
        total = Stage(
            take_name(f"{whole.name}_total", self._names), _FLOAT, whole.extents, body,
            Reduction("sum", ((0, self._blocks),)),
        )  # fmt: skip
        made = _Body()
        own = [made.add(Index(axis)) for axis in range(len(whole.extents))]
        rows = self._place_rows(made, own, axes)
        largest = made.add(Load(self._largest.name, tuple(rows), _FLOAT))
        none = made.add(Constant(_FLOAT, -math.inf))
        is_none = made.apply("eq", largest, none, dtype=_BOOL)
        summed = made.add(Load(total.name, tuple(own), _FLOAT))
        body = Body.make(made.made, made.choose(is_none, math.nan, summed))
        return [part, total, Stage(whole.name, whole.dtype, whole.extents, body, span=whole.span)]

    def _place_rows(self, made: _Body, own: list[int], axes: dict[Index, int]) -> list[int]:
        """Index of a row in the indices of a sum."""
        places = {
            dimension: own[index.axis] for index, dimension in axes.items() if not index.reduced
        }
        rows = self._rows
        return [
            places[rows[Index(axis)]] if Index(axis) in rows else made.number(0)
            for axis in range(len(self._largest.extents))
        ]


def _leave_out(stage: Stage) -> Stage:
    """Sum with known weights, without masked keys."""
    if not any(_list_masks(stage.body)):
        return stage
    made = _Body(stage.body.instructions)
    inside = made.keep(stage.body, made.add(Constant(_BOOL, value=True)))
    return dataclasses.replace(stage, body=Body.make(made.made, stage.body.result, inside))


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
