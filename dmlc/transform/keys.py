"""Conditions that hold for one place along an axis, which another value says: `I[p] == e`.

Where the axis is one of the domain, they choose among the points of a sum those of an element,
which is `inverse_index`'s business. Where it is one of the reduction, there is one place to read
(`one_place`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from dmlc.ir import Cast, Constant, Index, Select, Stage, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, list_conjuncts, read_comparison
from dmlc.scalars import COMBINERS, DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A condition of a guard that holds for one place along an axis, at most, which another value
    says: where `value` is `first`, it is the place 0, and so on."""

    condition: int
    value: int
    index: Index
    first: int | float
    extent: int


def guard_choices(stage: Stage, known: Sequence[bool] | None = None) -> Stage:
    """A reduction whose guard leaves out the points at which its body chooses what changes nothing:
    as its second branch; or as either, by conditions that are `known`, where these are given."""
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
    """The one axis, of known size, that a stage counts some points along, and how many points it
    has; None where it does something else, or has an open size."""
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
    """What a condition says that compares a value with a place on which that does not depend."""
    instructions = facts.stage.body.instructions
    for name, value, place in read_comparison(instructions, condition):
        over = facts.dependencies[place] if name == "eq" and facts.known[place] else ()
        if len(over) != 1 or over[0] in facts.dependencies[value]:
            continue
        extent, first = facts.stage.extent(over[0]), _find_first(facts, place)
        if first is not None and isinstance(extent, int):
            yield Key(condition, value, over[0], first, extent)


def find_point_keys(facts: IndexFacts, condition: int) -> Iterator[Key]:
    """Of those, what data say of each point: at which place of the domain it belongs."""
    for key in find_keys(facts, condition):
        by_data = not facts.known[key.value] and not key.index.reduced
        if by_data and any(index.reduced for index in facts.dependencies[key.value]):
            yield key


def _find_first(facts: IndexFacts, place: int) -> int | float | None:
    """A whole number that a value is at the first place of its axis, where it goes up by one from
    place to place."""
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


def find_place(builder: BodyBuilder, value: int, key: Key) -> tuple[int, list[int]]:
    """The place along its axis that a value says, and the conditions that it is one."""
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
