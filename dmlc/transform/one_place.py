"""Replaces reductions along an axis of which at most one index takes part by a load at that index.

    sum[r < n](select(eq(t, r), v(r), 0))  ->  0 <= t < n ? v(t) : 0

The value `t` comes from data or other indices, and does not depend on `r`: the sum of a one-hot
vector, or a table row selected by a product with one. All other points contribute the identity, so
that the result is bit-identical; a sum of a single -0 is 0, as sums start with 0. The index is
clamped to the axis, and the value loaded out of bounds is not used. The condition may also be in
the guard, or in a stage that the sum reads at its own index.

Indices known at compile time are left to `tighten`; domain axes selected by data, as in the
gradient of a gather, to `inverse_index`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dmlc.ir import Function, Load, Reduction, Select, Stage
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts
from dmlc.ir.verify import are_sound
from dmlc.transform.factor import MOST_LOOKED_THROUGH
from dmlc.transform.inline import inline_stages
from dmlc.transform.keys import Key, find_keys, find_place, guard_choices
from dmlc.transform.simplify import is_inlinable, replace_stages


def read_one_place(function: Function) -> Function:
    """Function with every such reduction replaced; the same object if there is none."""
    earlier: dict[str, Stage] = {}
    stages: list[Stage] = []
    for stage in function.stages:
        made = _shorten(stage, earlier)
        if made is not stage:
            # Loads that only a condition keeps in bounds rule it out.
            made = made if are_sound(function, stages, [made]) else stage
        stages.append(made)
        earlier[stage.name] = made
    if all(made is stage for made, stage in zip(stages, function.stages, strict=True)):
        return function
    return replace_stages(function, stages)


def _shorten(stage: Stage, earlier: Mapping[str, Stage]) -> Stage:
    """Stage without the reduction axes of which one index takes part; the same object if it has
    none."""
    if stage.reduction is None or stage.is_positional:
        return stage
    made = guard_choices(_look_through(stage, earlier))
    found = False
    while 0 not in made.sizes and (key := _find_key(made)) is not None:
        made, found = _read_there(made, key), True
    return made if found else stage


def _look_through(stage: Stage, earlier: Mapping[str, Stage]) -> Stage:
    """Reduction with stages inlined that may contain such a condition."""
    for _ in range(MOST_LOOKED_THROUGH):
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
    """Condition that determines the index along a reduction axis."""
    facts = IndexFacts(stage)
    keys = (key for condition in facts.conditions for key in find_keys(facts, condition))
    return next((key for key in keys if key.index.reduced), None)


def _read_there(stage: Stage, key: Key) -> Stage:
    """Stage at the index that a condition determines, without that axis."""
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
