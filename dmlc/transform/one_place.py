"""Reductions along an axis of which one place takes part, at most: what is there is read instead.

    sum[r < n](select(eq(t, r), v(r), 0))  ->  0 <= t < n ? v(t) : 0

The value `t` comes from data or from other positions, and does not depend on `r`: it is the sum of
a one-hot, or a row of a table that a product with one looks up. All other points change nothing, so
that the result is the same, bit by bit; a sum of one -0 is 0, as sums begin with that. The position
is held to the axis, and what is read where there is none does not show. The choice may stand in the
guard too, or in a stage that the sum reads at its own place.

Places that are known at compile time are `tighten`'s; an axis of the domain that data choose, as in
the gradient of a read, is `inverse_index`'s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dmlc.ir import Function, Load, Reduction, Select, Stage
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts
from dmlc.ir.verify import are_sound
from dmlc.transform.inline import inline_stages
from dmlc.transform.keys import Key, find_keys, find_place, guard_choices
from dmlc.transform.simplify import is_inlinable, replace_stages

_MOST_LOOKED_THROUGH = 16
"""How many stages one reduction is searched through for choices."""


def read_one_place(function: Function) -> Function:
    """The function with every reduction read where it has one place along an axis; the function
    itself where there is none."""
    earlier: dict[str, Stage] = {}
    stages: list[Stage] = []
    for stage in function.stages:
        made = _shorten(stage, earlier)
        if made is not stage:
            # What a condition may protect can be read no longer where others say the place.
            made = made if are_sound(function, stages, [made]) else stage
        stages.append(made)
        earlier[stage.name] = made
    if all(made is stage for made, stage in zip(stages, function.stages, strict=True)):
        return function
    return replace_stages(function, stages)


def _shorten(stage: Stage, earlier: Mapping[str, Stage]) -> Stage:
    """A stage without the axes along which it reads one place; the stage itself without such."""
    if stage.reduction is None or stage.is_positional:
        return stage
    made = guard_choices(_look_through(stage, earlier))
    found = False
    while 0 not in made.sizes and (key := _find_key(made)) is not None:
        made, found = _read_there(made, key), True
    return made if found else stage


def _look_through(stage: Stage, earlier: Mapping[str, Stage]) -> Stage:
    """A reduction with the stages computed in it that choose what it reduces."""
    for _ in range(_MOST_LOOKED_THROUGH):
        body = guard_choices(stage).body
        root = body.instructions[body.result]
        found = earlier.get(root.tensor) if isinstance(root, Load) else None
        if found is None or not is_inlinable(found):
            break
        if not isinstance(found.body.instructions[found.body.result], Select | Load):
            break
        made = inline_stages(stage, {found.name: found})
        if made is stage:
            break
        stage = made
    return stage


def _find_key(stage: Stage) -> Key | None:
    """A condition that says the place along an axis of the reduction."""
    facts = IndexFacts(stage)
    keys = (key for condition in facts.conditions for key in find_keys(facts, condition))
    return next((key for key in keys if key.index.reduced), None)


def _read_there(stage: Stage, key: Key) -> Stage:
    """The stage at the place that a condition says, and without its axis."""
    body, builder, combiner = stage.body, BodyBuilder(), stage.combiner or ""
    value = builder.copy(body)[key.value]
    place, conditions = find_place(builder, value, key)
    numbers = builder.copy(body, places={key.index: place})
    others = (c for c in IndexFacts(stage).conditions if c != key.condition)
    conditions += dict.fromkeys(numbers[c] for c in others)
    holds = builder.fold("and", conditions)
    result = numbers[body.result]
    axes = tuple(axis for axis in stage.axes if axis[0] != key.index.axis)
    if axes:
        kept = Reduction(combiner, axes)
        return dataclasses.replace(stage, body=builder.make(result, holds), reduction=kept)
    nothing = builder.nothing(combiner, body.dtype)
    result = builder.total(combiner, result)
    result = builder.add(Select(holds, result, nothing, body.dtype))
    return dataclasses.replace(stage, body=builder.make(result), reduction=None)
