"""Sequential scatter: reductions whose points select their elements, for devices whose work items
do much work each.

A work item visits its points in order, and adds each to the element that its key selects. That
takes a step per point and one per element, and no index. A work item owns the elements it writes,
so that an element's points are combined in order. If a result has too few rows to distribute,
chunks of its points make partial results, which are combined in order. Float sums are made in
FLOAT64, since one element may have all points. `inverse_index` serves all other reductions by keys.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc.ir import Cast, Function, Index, Reduction, Select, Stage, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts
from dmlc.ir.naming import take_name
from dmlc.ir.verify import are_sound
from dmlc.scalars import DataType
from dmlc.transform.cost import Budget
from dmlc.transform.inverse_index import Choice, find_choice
from dmlc.transform.keys import add_places
from dmlc.transform.ranked import find_sorted

PLACE = DataType.INT32
"""Type of an element's index in a row of results; negative if a point belongs to none."""

_MOST_ELEMENTS = 1 << 30
_LEAST_ELEMENTS = 32
_LEAST_STEPS = 1 << 20
"""Smallest number of dense steps that makes a sequential scatter worth it."""
_GAIN = 8
"""Smallest ratio of dense steps to sequential ones, as the former are vectorized."""
_MOST_BEHIND = 4
"""Largest number of elements behind those that keys select: rows of these are visited separately,
and share cache lines."""
_ROWS = 4
"""Number of rows of results that is enough to distribute."""
_WALKING = Budget(walks=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Keyed:
    """Order of a reduction by sequential scatter, row by row of its results."""

    stage: Stage
    rows: tuple[Index, ...]
    """Domain indices that no key selects."""
    place: Stage
    """Stage of the element's index in its row of results, for each row and point."""
    value: Stage
    """Stage of the value added there."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.stage.name,)

    def __str__(self) -> str:
        return f"%{self.stage.name} adds each point to the element that its key names"


def split_walks(function: Function) -> Function:
    """Function whose sequential scatters have accumulator types that hold a sum of all points, and
    enough chunks to distribute."""
    names, tables = dict.fromkeys(function.tensors()), function.arrays()
    ranked, stages = set[str](), list[Stage]()
    for stage in function.stages:
        order = find_sorted(function, stage, _WALKING)
        ranked.update(() if order is None else order.readers)
        choice = None if stage.name in ranked else find_choice(stage, tables)
        made = [stage] if choice is None or not _pays(choice) else _split(choice, names)
        if made != [stage]:
            known = dataclasses.replace(function, stages=(*stages, *made))
            sound = are_sound(function, stages, made) and find_keyed(known, made[0], _WALKING)
            made = made if sound else [stage]
        stages += made
    return function.with_stages(stages)


def find_keyed(function: Function, stage: Stage, budget: Budget) -> Keyed | None:
    """Sequential scatter of a stage; None if it does not suit, or does not pay, or if no work items
    walk points."""
    choice = find_choice(stage, function.arrays()) if budget.walks else None
    if choice is None or not _pays(choice) or _find_total_type(stage) is not stage.dtype:
        return None
    steps = tuple(step for step in function.strides(stage.name) if isinstance(step, int))
    walk = _make_walk(choice, steps) if len(steps) == len(stage.extents) else None
    if walk is None:
        return None
    # Loads that a condition may keep in bounds would be executed for every point.
    return walk if are_sound(function, function.stages, (walk.place, walk.value)) else None


def _pays(choice: Choice) -> bool:
    """Whether a sequential scatter takes much less work than the dense reduction, and its result
    has an accumulator type for all points."""
    stage = choice.stage
    sizes = tuple(extent for extent in stage.extents if isinstance(extent, int))
    if not choice.suits or choice.elements < _LEAST_ELEMENTS or _find_total_type(stage) is None:
        return False
    first = min(key.index.axis for key in choice.keys)
    behind = {Index(axis) for axis in range(first, len(sizes))}
    behind -= {*choice.batch, *(key.index for key in choice.keys)}
    if math.prod(sizes) >= _MOST_ELEMENTS or choice.count(tuple(behind)) > _MOST_BEHIND:
        return False
    dense = choice.dense_steps
    return dense >= _LEAST_STEPS and dense >= _GAIN * (math.prod(sizes) + dense // choice.elements)


def _find_total_type(stage: Stage) -> DataType | None:
    """Type in which points are accumulated sequentially; None if no type holds the sum."""
    own = stage.body.dtype
    if stage.combiner != "sum" or not own.is_float:
        return own
    if own is DataType.FLOAT32:
        return DataType.FLOAT64
    last = stage.body.instructions[stage.body.result]
    # FLOAT64 sums any number of FLOAT32 values without significant loss.
    is_widened = isinstance(last, Cast) and (
        value_type(stage.body.instructions[last.operand]) is DataType.FLOAT32
    )
    return own if is_widened else None


# Pieces ----------------------------------------------------------------------------------------


def _split(choice: Choice, names: dict[str, None]) -> list[Stage]:
    """Partial results, one for each chunk of a stage's points, and the stage that combines them."""
    stage, reduction, total = choice.stage, choice.stage.reduction, _find_total_type(choice.stage)
    if reduction is None or total is None:
        return [choice.stage]
    cut, count = _choose_pieces(choice)
    if count == 1 and total is stage.dtype:
        return [stage]
    parts = _make_parts(
        choice, reduction, total, cut, count, take_name(f"{stage.name}_parts", names)
    )
    builder = BodyBuilder()
    places = [builder.index(axis) for axis in range(len(stage.extents))]
    found = [builder.load(parts, builder.constant(number), *places) for number in range(count)]
    combined = builder.fold(reduction.record.operation.name, found)
    if total is not stage.dtype.compute:
        combined = builder.add(Cast(combined, stage.dtype.compute))
    whole = Stage(stage.name, stage.dtype, stage.extents, builder.make(combined), None, stage.span)
    return [parts, whole]


def _choose_pieces(choice: Choice) -> tuple[Index, int]:
    """Axis of the points to cut, and the number of chunks."""
    sizes = {index: choice.count([index]) for index in choice.points}
    rows = choice.count([i for i in choice.stage.indices if not i.reduced]) // choice.elements
    points = choice.count(choice.points)
    wanted = min(_ROWS, 2 * points // choice.elements) if rows < _ROWS else 1
    for index, size in sizes.items():
        if size >= 2 * wanted:
            return index, max(1, wanted)
    return choice.points[0], 1


def _make_parts(
    choice: Choice, reduction: Reduction, total: DataType, cut: Index, count: int, name: str
) -> Stage:
    """Partial results, with the chunk's number as their first axis."""
    stage, builder = choice.stage, BodyBuilder()
    size = choice.count([cut])
    length = -(-size // count)
    moved = {
        i: builder.add(Index(i.axis + 1)) for i in stage.indices if not i.reduced
    }  # The chunk's number is the first axis.
    own = builder.apply(
        "add", builder.apply("mul", builder.index(0), builder.constant(length)), builder.add(cut)
    )
    last = builder.constant(size - 1)
    moved[cut] = builder.apply("min", own, last) if length * count > size else own
    numbers = builder.copy(stage.body, places=moved)
    guards = [] if stage.body.guard is None else [numbers[stage.body.guard]]
    if length * count > size:
        guards.append(builder.apply("le", own, last))
    result = numbers[stage.body.result]
    if total is not stage.body.dtype:
        result = builder.add(Cast(result, total))
    axes = tuple((label, length if label == cut.axis else n) for label, n in reduction.axes)
    body = builder.make(result, builder.join(guards))
    domain = (count, *stage.extents)
    return Stage(name, total, domain, body, Reduction(reduction.combiner, axes))


# Points ----------------------------------------------------------------------------------------


def _make_walk(choice: Choice, steps: Sequence[int]) -> Keyed | None:
    """Sequential scatter of a stage with these strides; None if the element affects more than the
    indices that keys determine."""
    stage, reduction = choice.stage, choice.stage.reduction
    if reduction is None:
        return None
    body, facts = stage.body, IndexFacts(stage)
    settled = {key.condition for key in choice.keys}
    left = [condition for condition in facts.conditions if condition not in settled]
    keys = {key.index for key in choice.keys}
    if keys.intersection(facts.depends_on([*left, body.result])):
        return None
    rows = tuple(i for i in stage.indices if not i.reduced and i not in keys)
    axes = (*rows, *(i for i in stage.indices if i.reduced))
    domain = tuple(choice.count([index]) for index in axes)

    def begin() -> tuple[BodyBuilder, list[int]]:
        builder = BodyBuilder()
        moved = {index: builder.add(Index(axis)) for axis, index in enumerate(axes)}
        return builder, builder.copy(body, places=moved)

    builder, numbers = begin()
    strides = [steps[key.index.axis] for key in choice.keys]
    total, inside = add_places(builder, choice.keys, numbers, strides)
    found = builder.add(Cast(total, PLACE))
    for condition in (*(numbers[condition] for condition in left), *inside):
        found = builder.add(Select(condition, found, builder.constant(-1, PLACE), PLACE))
    place = Stage(f"{stage.name}#place", PLACE, domain, builder.make(found))
    builder, numbers = begin()
    value = Stage(f"{stage.name}#value", stage.dtype, domain, builder.make(numbers[body.result]))
    return Keyed(stage, rows, place, value)
