"""Finds the stages that depend on positions alone, whose elements are known at compile time.

An element-wise one is computed by its readers, wherever they read it: so what it computes is
index-only there. A reduction is evaluated: weights that are sums of a few terms, counts, bounds.
What passes make of a load of either is theirs to say.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from dmlc.ir import POSITIONAL_COMBINERS, Function, Index, Stage
from dmlc.ir.index import IndexFacts, find_index_only
from dmlc.scalars import COMBINERS, Array, combiner_identity, convert
from dmlc.transform.inline import inline_stages, is_inlinable
from dmlc.transform.simplify import drop_unsound_pairs, list_live


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """A function whose stages compute themselves what element by element depends on positions
    alone; and the elements of the reductions that do, by their stages' names."""

    function: Function
    known: Mapping[str, Array]


def settle(function: Function) -> Settled:
    """What of a function is known at compile time. Linear in the number of stages."""
    results = {r.name for r in function.results}
    inlined: dict[str, Stage] = {}
    known: dict[str, Array] = {}
    stages: list[Stage] = []
    for stage in function.stages:
        made = inline_stages(stage, _list_placed(stage, inlined))
        if all(find_index_only(made.body, known)):
            values = evaluate_stage(made, known)
            if values is not None:
                known[made.name] = values
            elif made.name not in results and is_inlinable(made):
                inlined[made.name] = made
        stages.append(made)
    if not inlined:
        return Settled(function, known)
    live = list_live(stages, results)
    whole = dataclasses.replace(function, stages=live)
    return Settled(drop_unsound_pairs(whole), known)


def _list_placed(stage: Stage, inlined: Mapping[str, Stage]) -> dict[str, Stage]:
    """Those that a stage reads at positions that are known themselves. What others read may be
    looked up where it cannot be evaluated."""
    index_only = find_index_only(stage.body)
    elsewhere = {
        load.tensor
        for load in stage.body.loads()
        if not all(index_only[position] for position in load.indices)
    }
    read = dict.fromkeys(load.tensor for load in stage.body.loads())
    return {n: inlined[n] for n in read if n in inlined and n not in elsewhere}


def evaluate_stage(stage: Stage, known: Mapping[str, Array]) -> Array | None:
    """The elements of a reduction that depends on positions alone, and on what these find in
    `known`; None where it takes too many points. They are folded in their own type, point by
    point. Of an axis of the domain that they do not depend on there is one place."""
    reduction, body = stage.reduction, stage.body
    if reduction is None:
        return None
    facts = IndexFacts(stage, known)
    roots = [body.result] if body.guard is None else [body.result, body.guard]
    moving = [index for index in facts.depends_on(roots) if not index.reduced]
    over = (*moving, *(index for index in stage.indices if index.reduced))
    found, passing = facts.evaluate(roots[:1], over), facts.find_passing(roots[1:], over)
    if found is None or passing is None:
        return None
    outer = passing.shape[: len(moving)]
    points = np.broadcast_to(found[0], passing.shape).reshape((*outer, -1))
    passing = passing.reshape(points.shape)
    if reduction.combiner in POSITIONAL_COMBINERS:
        bound = reduction.combiner.removeprefix("arg")
        worst = combiner_identity(bound, body.dtype)
        total = _find_extremes(points, passing, bound, worst)
    else:
        identity = np.asarray(combiner_identity(reduction.combiner, body.dtype), points.dtype)
        every = np.moveaxis(np.where(passing, points, identity), -1, 0)
        combine = COMBINERS[reduction.combiner].evaluate
        with np.errstate(all="ignore"):
            total = functools.reduce(combine, every, np.broadcast_to(identity, outer))
    stored = np.asarray(convert(np.asarray(total), stage.dtype), stage.dtype.compute.dtype)
    sizes = (e if Index(n) in moving else 1 for n, e in enumerate(stage.domain))
    return stored.reshape([size for size in sizes if isinstance(size, int)])


def _find_extremes(points: Array, passing: Array, bound: str, worst: bool | int | float) -> Array:
    """The number of the first smallest or largest of the points that pass, along the last axis;
    0 where none does. A NaN is more extreme than any number."""
    choose = np.min if bound == "min" else np.max
    best = choose(points, axis=-1, keepdims=True, initial=worst, where=passing)
    same = (points == best) | ((points != points) & (best != best))
    return np.argmax(passing & same, axis=-1)
