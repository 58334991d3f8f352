"""Reductions whose points say which element each belongs to, for devices whose work items have much
to do each: one goes through the points in their order, and puts each where it belongs.

That takes a step per point and one per element, and no index. Nothing is shared and nothing atomic:
what a work item writes it alone has, so that an element's points come one after the other. Where a
result has too few rows to share out, its points are cut into pieces, each of which makes a whole
result, and these are combined in the order of the pieces. Sums of floats are made in FLOAT64, since
one element may have all points. How elements are chosen is `inverse_index`' to find, which is for
other devices, and for what does not suit here.
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
from dmlc.transform.inverse_index import Choice, find_choice
from dmlc.transform.keys import find_place
from dmlc.transform.ranked import list_ordered

PLACE = DataType.INT32
"""Where an element lies in a row of results; less than 0 where a point belongs to none."""

_MOST_ELEMENTS = 1 << 30
_LEAST_ELEMENTS = 32
_LEAST_STEPS = 1 << 20
"""Steps without a walk that make one worth it."""
_GAIN = 8
"""How many times the steps of a walk there are to be: those are of neighbours, in vectors."""
_MOST_BEHIND = 4
"""Elements behind those that keys choose, at most: rows of them are walked one by one, and lie in
the same lines of memory."""
_ROWS = 4
"""Rows of results that are enough to share out."""


@dataclasses.dataclass(frozen=True, slots=True)
class Walk:
    """A reduction whose points are walked, row by row of its results."""

    stage: Stage
    combiner: str
    rows: tuple[Index, ...]
    """The axes of the domain that no key chooses."""
    place: Stage
    """For each row and point where in the result it belongs, from where the row begins."""
    value: Stage
    """What it adds there."""


def split_walks(function: Function) -> Function:
    """The function with the reductions whose points are to be walked in types that hold a sum of
    all, and in as many pieces as it takes to share them out."""
    names, tables = dict.fromkeys(function.tensors()), function.arrays()
    ordered, stages = list_ordered(function, walks=True), list[Stage]()
    for stage in function.stages:
        choice = None if stage.name in ordered else find_choice(stage, tables)
        made = [stage] if choice is None or not _pays(choice) else _split(choice, names)
        if made != [stage]:
            known = dataclasses.replace(function, stages=(*stages, *made))
            sound = are_sound(function, stages, made) and find_walk(known, made[0]) is not None
            made = made if sound else [stage]
        stages += made
    return function.with_stages(stages)


def find_walk(function: Function, stage: Stage) -> Walk | None:
    """How the points of a stage are walked; None where that does not suit, or does not pay."""
    tables = function.arrays()
    choice = find_choice(stage, tables)
    if choice is None or not _pays(choice) or _find_total_type(stage) is not stage.dtype:
        return None
    steps = tuple(step for step in function.strides(stage.name) if isinstance(step, int))
    walk = _make_walk(choice, steps) if len(steps) == len(stage.extents) else None
    if walk is None:
        return None
    # What a condition may protect is read for every point here.
    return walk if are_sound(function, function.stages, (walk.place, walk.value)) else None


def list_walked(function: Function) -> list[str]:
    """The stages whose points are walked, and those of rows in order, which are too."""
    ordered = list_ordered(function, walks=True)
    walked = (stage for stage in function.stages if stage.name not in ordered)
    return [*ordered, *(s.name for s in walked if find_walk(function, s) is not None)]


def _pays(choice: Choice) -> bool:
    """Whether a walk is much shorter than going through all points for each element, and its result
    is of a type that all points may be added up in."""
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
    """The type in which points are combined one by one; None where no type holds all."""
    own = stage.body.dtype
    if stage.combiner != "sum" or not own.is_float:
        return own
    if own is DataType.FLOAT32:
        return DataType.FLOAT64
    last = stage.body.instructions[stage.body.result]
    # Of what was FLOAT32 a FLOAT64 loses nothing that counts, however many there are.
    is_widened = isinstance(last, Cast) and (
        value_type(stage.body.instructions[last.operand]) is DataType.FLOAT32
    )
    return own if is_widened else None


# Pieces ----------------------------------------------------------------------------------------


def _split(choice: Choice, names: dict[str, None]) -> list[Stage]:
    """A stage as partial results, one for each piece of its points, and what combines them."""
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
    """The axis of the points that is cut, and into how many pieces."""
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
    """The partial results: the number of the piece is their first axis."""
    stage, builder = choice.stage, BodyBuilder()
    size = choice.count([cut])
    length = -(-size // count)
    moved = {
        i: builder.add(Index(i.axis + 1)) for i in stage.indices if not i.reduced
    }  # The piece stands first.
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


def _make_walk(choice: Choice, steps: Sequence[int]) -> Walk | None:
    """The walk over the points of a stage, whose neighbours along each axis lie so far apart; None
    where something else than the places that keys say depends on the elements."""
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
    total, conditions = builder.constant(0), [numbers[condition] for condition in left]
    for key in choice.keys:
        place, inside = find_place(builder, numbers[key.value], key)
        step = builder.constant(steps[key.index.axis])
        total = builder.apply("add", total, builder.apply("mul", place, step))
        conditions += inside
    found = builder.add(Cast(total, PLACE))
    for condition in conditions:
        found = builder.add(Select(condition, found, builder.constant(-1, PLACE), PLACE))
    place = Stage(f"{stage.name}#place", PLACE, domain, builder.make(found))
    builder, numbers = begin()
    value = Stage(f"{stage.name}#value", stage.dtype, domain, builder.make(numbers[body.result]))
    return Walk(stage, reduction.combiner, rows, place, value)
