"""Finds the stages that depend on positions alone, whose elements are known at compile time.

An element-wise one is computed by its readers, wherever they read it: so what it computes is
index-only there. A reduction is evaluated: weights that are sums of a few terms, counts, bounds.
What passes make of a load of either is theirs to say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dmlc.ir import Function, Stage
from dmlc.ir.index import find_index_only
from dmlc.scalars import Array
from dmlc.transform.inline import inline_stages, is_inlinable
from dmlc.transform.simplify import drop_unsound_pairs, list_live
from dmlc.transform.tabulate import evaluate_stage, is_index_only


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
        if is_index_only(made, known):
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
