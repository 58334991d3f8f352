"""Makes sums over the points that read an element short, where elements of a tensor say which.

The gradient of a read at positions that come from data, `Y[p] = X[I[p]]`, is a sum over all points
with the condition that a point reads this element: `dX[e] = sum[p : n where I[p] == e](dY[p])`. As
it stands it goes through every point for each element. Where that is long, stages first build the
inverse index: each point's key, which is the number of the element it reads; the points in the
order of their keys (`sort`); and where each element's begin among them. The sum then goes through
those of its element alone, `start[e] <= k < start[e + 1]`, and reads the point `order[k]`.

The points of an element keep their order, so that what is reduced is the same values in the same
order, and no two points write to one place. Points whose data lie outside of every element have the
largest key and fall to none. Several conditions, one for each axis of the element, make one key;
what they read may depend on further axes of the result, for which there is an index each.

Sizes alone say where it pays. Sums that stay as they are `slow` warns of, once they are compiled.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Index,
    Load,
    Reduction,
    Select,
    Stage,
    packed_strides,
    value_type,
)
from dmlc.ir.builder import Builder
from dmlc.ir.index import IndexFacts
from dmlc.ir.naming import take_name
from dmlc.ir.verify import find_stage_fault
from dmlc.scalars import DataType, combiner_identity
from dmlc.transform.sort import BLOCK, NUMBER, count_merges, count_padded, find_starts, sort_rows

_LEAST_STEPS = 1 << 23
"""Steps of a sum that is worth the launches."""
_GAIN = 4
"""How many times the steps there are to be without an index."""
_NEIGHBOURS = 4
"""Points of a rank that take as long as one step that reads somewhere."""
_BISECTED = 4
"""Steps that one of a bisection takes."""


def index_inverses(function: Function) -> Function:
    """The function with an inverse index for each long sum over points that data choose by their
    keys; the function itself where it has none. Results are equal bit for bit to those of sums in
    the order of points."""
    names = dict.fromkeys(function.tensors())
    stages: list[Stage] = []
    for stage in function.stages:
        made = _index(stage, names)
        known = dataclasses.replace(function, stages=(*stages, *made))
        # What a condition may protect can be read no longer where points come from an index.
        sound = len(made) == 1 or all(find_stage_fault(known, each) is None for each in made)
        stages += made if sound else [stage]
    return function.with_stages(stages)


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A condition of a sum's guard that holds for one place along an axis of the domain, which
    data say: where `value` is `first`, it is the place 0, and so on."""

    condition: int
    value: int
    index: Index
    first: int | float
    extent: int


def find_keys(stage: Stage) -> tuple[Key, ...]:
    """The conditions of a reduction's guard that make up the key of a point, each for an axis of
    its own. What they read does not depend on these axes."""
    if stage.reduction is None or any(isinstance(stage.extent(i), str) for i in stage.indices):
        return ()
    facts = IndexFacts(stage)
    found: list[Key] = []
    for condition in facts.conditions:
        match stage.body.instructions[condition]:
            case Apply(operation=operation, operands=(left, right)) if operation.name == "eq":
                keys = (_find_key(facts, condition, *pair) for pair in ((left, right), (right, left)))
                found += [key for key in keys if key is not None and _suits(facts, found, key)][:1]
            case _:
                pass
    return tuple(found)


def _find_key(facts: IndexFacts, condition: int, value: int, place: int) -> Key | None:
    """What a condition says that compares a `value` of data with a `place`."""
    over = facts.dependencies[place]
    if facts.known[value] or not facts.known[place] or len(over) != 1 or over[0].reduced:
        return None
    if not any(index.reduced for index in facts.dependencies[value]):
        return None
    evaluated = facts.evaluate([place])
    if evaluated is None or not evaluated[0].size:
        return None
    places = evaluated[0].ravel()
    if value_type(facts.stage.body.instructions[place]) is DataType.BOOL:
        return None
    first = places[0].item()
    steps = places.astype(np.float64) - first
    if first != math.floor(first) or not np.array_equal(steps, np.arange(places.size)):
        return None
    return Key(condition, value, over[0], first, places.size)


def _suits(facts: IndexFacts, others: Sequence[Key], key: Key) -> bool:
    """Whether a key goes with others: each has an axis, on which none of them depends."""
    every = [*others, key]
    axes = [each.index for each in every]
    read = {index for each in every for index in facts.dependencies[each.value]}
    return len(set(axes)) == len(axes) and not read.intersection(axes)


# Sizes ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """A sum to be taken by an inverse index."""

    stage: Stage
    keys: tuple[Key, ...]
    batch: tuple[Index, ...]
    """The indices of the domain on which keys depend: each place of theirs has an index."""
    points: tuple[Index, ...]
    """Those of the reduction that number the points."""

    def count(self, indices: Sequence[Index]) -> int:
        extents = (self.stage.extent(index) for index in indices)
        return math.prod(e for e in extents if isinstance(e, int))

    @property
    def elements(self) -> int:
        """The keys that a point may have, without that of those outside."""
        return math.prod(key.extent for key in self.keys)

    @property
    def is_worth_it(self) -> bool:
        """Whether the sum is long, and much shorter with an index."""
        points, elements = self.count(self.points), self.elements
        if elements >= np.iinfo(NUMBER.dtype).max or points >= 1 << 30:
            return False
        each = self.count(self.batch)
        others = self.count(self.stage.indices) // (each * elements * points)
        depth = max(1, points.bit_length())
        padded, merges = count_padded(points), count_merges(points)
        ranks = padded * min(padded, BLOCK) // _NEIGHBOURS
        sorting = ranks + _BISECTED * depth * (padded * merges + elements)
        dense, short = points * elements * others, sorting + (points + elements) * others
        return each * dense >= _LEAST_STEPS and dense >= _GAIN * short


def _plan(stage: Stage) -> _Plan | None:
    """How a stage is reduced by an inverse index; None where it is not, or had better not be."""
    reduction = stage.reduction
    if reduction is None or reduction.combiner in POSITIONAL_COMBINERS:
        return None
    stage = _guard_choices(stage, reduction)
    keys = find_keys(stage)
    if not keys or 0 in (stage.extent(index) for index in stage.indices):
        return None
    facts = IndexFacts(stage)
    read = facts.depends_on(key.value for key in keys)
    batch = tuple(index for index in read if not index.reduced)
    points = tuple(i for i in stage.indices if i.reduced and i in read)
    plan = _Plan(stage, keys, batch, points)
    return plan if plan.is_worth_it else None


def _guard_choices(stage: Stage, reduction: Reduction) -> Stage:
    """A reduction whose guard leaves out the points at which its body chooses what changes
    nothing."""
    body = stage.body
    nothing = Constant(body.dtype, combiner_identity(reduction.combiner, body.dtype))
    result, conditions = body.result, [] if body.guard is None else [body.guard]
    while isinstance(choice := body.instructions[result], Select):
        if body.instructions[choice.otherwise] != nothing:
            break
        conditions.append(choice.condition)
        result = choice.then
    if result == body.result:
        return stage
    builder = Builder()
    numbers = builder.copy(body)
    guard = builder.join(numbers[c] for c in conditions)
    return dataclasses.replace(stage, body=builder.make(numbers[result], guard))


# Stages --------------------------------------------------------------------------------------


def _index(stage: Stage, names: dict[str, None]) -> list[Stage]:
    """A stage that is reduced by an inverse index, after the stages that build that; or the stage
    as it is."""
    plan = _plan(stage)
    if plan is None:
        return [stage]
    keys = _make_keys(plan, take_name(f"{stage.name}_keys", names))
    made = sort_rows(keys, stage.name, names)
    starts = find_starts(made.numbers, plan.elements, take_name(f"{stage.name}_start", names))
    return [keys, *made.stages, starts, _reduce(plan, made.places, starts)]


def _make_keys(plan: _Plan, name: str) -> Stage:
    """The key of each point, and of those that fill the last block."""
    builder, body = Builder(), plan.stage.body
    count = plan.count(plan.points)
    own = builder.add(Index(len(plan.batch)))
    number = builder.apply("min", own, builder.constant(count - 1))
    moved = {index: builder.add(Index(axis)) for axis, index in enumerate(plan.batch)}
    moved |= _part(plan, builder, number)
    numbers = builder.copy(body, _find_indices(body, moved, builder))
    total, conditions = builder.constant(0), [builder.apply("lt", own, builder.constant(count))]
    strides = packed_strides(tuple(key.extent for key in plan.keys))
    for key, stride in zip(plan.keys, strides, strict=True):
        place, inside = _find_place(builder, numbers[key.value], key)
        total = builder.apply("add", total, builder.apply("mul", place, builder.constant(stride)))
        conditions += inside
    outside = builder.constant(plan.elements, NUMBER)
    found = builder.add(Cast(total, NUMBER))
    for condition in conditions:
        found = builder.add(Select(condition, found, outside, NUMBER))
    sizes = (plan.stage.extent(index) for index in plan.batch)
    domain = (*(size for size in sizes if size is not None), count_padded(count))
    return Stage(name, NUMBER, domain, builder.make(found))


def _find_place(builder: Builder, value: int, key: Key) -> tuple[int, list[int]]:
    """The place along its axis that a value of data says, and the conditions that it is one."""
    dtype = value_type(builder.instructions[value])
    last = key.first + key.extent - 1
    ends = (builder.add(Constant(dtype, end)) for end in (key.first, last))
    conditions = [
        builder.apply(name, value, end) for name, end in zip(("ge", "le"), ends, strict=True)
    ]
    if dtype.is_float:
        conditions.append(builder.apply("eq", value, builder.apply("floor", value)))
    position = value if dtype is DataType.INDEX else builder.add(Cast(value, DataType.INDEX))
    first, end = builder.constant(int(key.first)), builder.constant(int(last))
    held = builder.apply("max", builder.apply("min", position, end), first)
    return builder.apply("sub", held, first), conditions


def _reduce(plan: _Plan, places: Stage, starts: Stage) -> Stage:
    """The stage that reduces the points of each element, which lie side by side."""
    stage, reduction, body, builder = plan.stage, plan.stage.reduction, plan.stage.body, Builder()
    count, first = plan.count(plan.points), plan.points[0]
    outer = tuple(builder.add(index) for index in plan.batch)
    number = builder.add(first)
    found = builder.add(Load(places.name, (*outer, number), NUMBER))
    last = builder.apply("min", builder.add(Cast(found, DataType.INDEX)), builder.constant(count - 1))
    point = builder.apply("max", last, builder.constant(0))
    numbers = builder.copy(body, _find_indices(body, _part(plan, builder, point), builder))
    element = builder.constant(0)
    strides = packed_strides(tuple(key.extent for key in plan.keys))
    for key, stride in zip(plan.keys, strides, strict=True):
        step = builder.apply("mul", builder.add(key.index), builder.constant(stride))
        element = builder.apply("add", element, step)
    ends: list[int] = []
    for place in (element, builder.apply("add", element, builder.constant(1))):
        start = builder.add(Load(starts.name, (*outer, place), NUMBER))
        ends.append(builder.add(Cast(start, DataType.INDEX)))
    settled = {key.condition for key in plan.keys}
    left = [numbers[c] for c in IndexFacts(stage).conditions if c not in settled]
    inside = [builder.apply("ge", number, ends[0]), builder.apply("lt", number, ends[1])]
    made = builder.make(numbers[body.result], builder.join([*inside, *left]))
    axes = () if reduction is None else reduction.axes
    kept = tuple(
        (label, count if label == first.axis else extent)
        for label, extent in axes
        if label == first.axis or Index(label, reduced=True) not in plan.points
    )
    combiner = "" if reduction is None else reduction.combiner
    return dataclasses.replace(stage, body=made, reduction=Reduction(combiner, kept))


def _part(plan: _Plan, builder: Builder, number: int) -> dict[Index, int]:
    """Where a point lies along each axis, of those that number the points."""
    sizes = tuple(plan.count([index]) for index in plan.points)
    found: dict[Index, int] = {}
    for index, size, stride in zip(plan.points, sizes, packed_strides(sizes), strict=True):
        place = builder.apply("div", number, builder.constant(stride)) if stride > 1 else number
        if index is not plan.points[0]:
            place = builder.apply("mod", place, builder.constant(size))
        found[index] = place
    return found


def _find_indices(
    body: Body, moved: Mapping[Index, int], builder: Builder
) -> dict[int, int]:
    """The values of a body that are indices, and the values that stand for these."""
    return {
        number: moved[instruction]
        for number, instruction in enumerate(body.instructions)
        if isinstance(instruction, Index) and instruction in moved
    }
