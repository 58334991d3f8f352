"""Conditions that admit one index along an axis, given by another value: `I[p] == e`.

If the axis is one of the domain, they select an element's points of a sum (`inverse_index`). If it
is one of the reduction, only one point is read (`one_place`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from dmlc.ir import Cast, Constant, Extent, Index, Select, Stage, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, list_conjuncts, read_comparison
from dmlc.scalars import COMBINERS, DataType
from dmlc.sizes import as_extent, measure


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A condition of a guard that admits at most one index along an axis: `value - first`."""

    condition: int
    value: int
    index: Index
    first: int | float
    extent: Extent


def guard_choices(stage: Stage, known: Sequence[bool] | None = None) -> Stage:
    """Reduction with conditions moved from selects with its identity into its guard: those whose
    second branch is the identity; or, with `known`, those with either branch, if the condition is
    known."""
    body, combiner = stage.body, stage.combiner
    if combiner is None or stage.is_positional:
        return stage
    nothing = Constant(body.dtype, COMBINERS[combiner].identity(body.dtype))
    result, chosen = body.result, list[tuple[int, bool]]()
    while isinstance(choice := body.instructions[result], Select):
        takes_first = body.instructions[choice.otherwise] == nothing
        takes_second = known is not None and body.instructions[choice.then] == nothing
        if not (takes_first or takes_second) or (known and not known[choice.condition]):
            break
        chosen.append((choice.condition, takes_first))
        result = choice.then if takes_first else choice.otherwise
    if not chosen:
        return stage
    builder = BodyBuilder()
    numbers = builder.copy(body)
    conditions = [numbers[c] for c in list_conjuncts(body)]
    conditions += (numbers[c] if holds else builder.apply("not", numbers[c]) for c, holds in chosen)
    made = builder.make(numbers[result], builder.join(conditions))
    return dataclasses.replace(stage, body=made)


def find_counted(stage: Stage) -> tuple[Index, int] | None:
    """The only axis, of known size, along which a stage counts points that pass its guard, and the
    size; None for other stages."""
    body = stage.body
    if stage.combiner != "sum" or len(stage.axes) != 1 or body.guard is None:
        return None
    ((label, count),) = stage.axes
    one = body.instructions[body.result]
    counts = isinstance(one, Constant) and one.dtype.is_integer and one.value == 1
    if not counts or not isinstance(count, int) or any(isinstance(e, str) for e in stage.extents):
        return None
    return Index(label, reduced=True), count


def find_keys(facts: IndexFacts, condition: int) -> Iterator[Key]:
    """Keys that a condition gives, if it compares a value with an index on which the value does not
    depend."""
    instructions = facts.stage.body.instructions
    for name, value, place in read_comparison(instructions, condition):
        over = facts.dependencies[place] if name == "eq" and facts.known[place] else ()
        if len(over) != 1 or over[0] in facts.dependencies[value]:
            continue
        extent, first = facts.stage.extent(over[0]), _find_first(facts, place)
        # Of an axis of open size, positions alone are held to the last place.
        is_held = isinstance(extent, int) or value_type(instructions[value]) is DataType.INDEX
        if first is not None and extent is not None and is_held:
            yield Key(condition, value, over[0], first, extent)


def find_point_keys(facts: IndexFacts, condition: int) -> Iterator[Key]:
    """Keys along a domain axis whose value depends on data of the points."""
    for key in find_keys(facts, condition):
        by_data = not facts.known[key.value] and not key.index.reduced
        is_numbered = by_data and isinstance(key.extent, int)
        if is_numbered and any(index.reduced for index in facts.dependencies[key.value]):
            yield key


def _find_first(facts: IndexFacts, place: int) -> int | float | None:
    """Value of an expression at index 0 of its axis, if it increases by one per index."""
    body, (index,) = facts.stage.body, facts.dependencies[place]
    instruction, extent = body.instructions[place], facts.stage.extent(index)
    match instruction:
        case Cast(operand=operand, dtype=dtype) if body.instructions[operand] == index:
            if dtype.is_integer and isinstance(extent, int):
                return 0 if extent - 1 <= np.iinfo(dtype.dtype).max else None
        case _ if instruction == index:
            return 0
        case _:
            pass
    found = None if value_type(instruction) is DataType.BOOL else facts.evaluate([place])
    if found is None:
        return None
    places = found[0].ravel()
    first = places[0].item()
    rises = np.array_equal(places - places[0], np.arange(places.size))
    return first if rises and float(first).is_integer() else None


def add_places(
    builder: BodyBuilder, keys: Sequence[Key], numbers: Sequence[int], strides: Sequence[int]
) -> tuple[int, list[int]]:
    """Linear index of the element that some keys give together, and the conditions that it is in
    bounds. `numbers` are those of their stage's values in this body."""
    total, conditions = builder.constant(0), list[int]()
    for key, stride in zip(keys, strides, strict=True):
        place, inside = find_place(builder, numbers[key.value], key)
        total = builder.apply("add", total, builder.apply("mul", place, builder.constant(stride)))
        conditions += inside
    return total, conditions


def find_place(builder: BodyBuilder, value: int, key: Key) -> tuple[int, list[int]]:
    """Index along its axis that a value gives, and the conditions that it is in bounds."""
    dtype = value_type(builder.instructions[value])
    first = builder.add(Constant(dtype, key.first))
    if isinstance(key.extent, str):
        last = end = builder.size(as_extent(measure(key.extent) + int(key.first) - 1))
    else:
        last = builder.add(Constant(dtype, key.first + key.extent - 1))
        end = builder.constant(int(key.first + key.extent - 1))
    conditions = [builder.apply("ge", value, first), builder.apply("le", value, last)]
    if dtype.is_float:
        conditions.append(builder.apply("eq", value, builder.apply("floor", value)))
    position = value if dtype is DataType.INDEX else builder.add(Cast(value, DataType.INDEX))
    first = builder.constant(int(key.first))
    held = builder.apply("max", builder.apply("min", position, end), first)
    return builder.apply("sub", held, first), conditions
