"""Computes products again where they are weighed, block by block, in place of storing them.

Scores are as many as rows times keys, and what they are computed from is far less. Several kernels
that read them compute them again: each has a copy of the stages of its own. In the gradient of
attention one finds what the weights of each row take, and others sum, for each query or key, what
the weights make of the gradient; there all weights are known, and no sum is rescaled.

What reads a product is found by its index notation alone: see `online`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.ir import Function, Stage
from dmlc.ir.naming import take_name
from dmlc.transform.cost import Budget
from dmlc.transform.inline import inline_producers
from dmlc.transform.online import (
    find_online,
    list_summed,
    list_weighing,
)
from dmlc.transform.simplify import list_live, redirect_loads


def recompute(function: Function, budget: Budget) -> Function:
    """The function with copies of what several kernels compute again, where none of it needs to be
    stored then."""
    if not budget.least_rows or function.one_step is not None:
        return function
    whole = dataclasses.replace(function, stages=inline_producers(function, {}, (), budget).stages)
    for products in _list_products(whole):
        made = _copy(function, products, budget)
        function = function if made is None else made
    return function


def _list_products(function: Function) -> list[set[str]]:
    """The products that are read together, where a maximum is among what reads them."""
    parts: list[tuple[set[str], bool]] = []
    for stage in function.stages:
        scores = {each.scores.name for each in list_weighing(function, stage)}
        read = scores | {product.name for product, _ in list_summed(function, stage)}
        own = [part for part in parts if not read.isdisjoint(part[0])]
        if read:
            joined = read.union(*(names for names, _ in own))
            parts = [part for part in parts if part not in own]
            parts.append((joined, bool(scores) or any(has for _, has in own)))
    return [names for names, has_scores in parts if has_scores]


def _copy(function: Function, products: set[str], budget: Budget) -> Function | None:
    """The function with a copy of each of some products for each kernel that reads it; None where
    some of what reads them does not suit."""
    between: set[str] = set()
    for stage in function.stages:
        read = {load.tensor for load in stage.body.loads()}
        if stage.reduction is None and not read.isdisjoint(products | between):
            between.add(stage.name)
    kept = {s.name: "" for s in function.stages if s.name not in between}
    drawn = dataclasses.replace(
        function, stages=inline_producers(function, kept, (), budget).stages
    )
    readers = {n for name in products for n in drawn.readers().get(name, ())}
    groups = _group(drawn, [s for s in drawn.stages if s.name in readers])
    if len(groups) < 2:
        return None
    names = dict.fromkeys(function.tensors())
    stages = {stage.name: [stage] for stage in drawn.stages}
    for group in groups[1:]:
        own = {s.name: take_name(s.name, names) for s in drawn.stages if s.name in products}
        used: set[str] = set()
        for name in group:
            (reader,) = stages[name][-1:]
            stages[name][-1] = redirect_loads(reader, own)
            used |= {load.tensor for load in reader.body.loads()} & own.keys()
        copies = [dataclasses.replace(s, name=own[s.name]) for s in drawn.stages if s.name in used]
        first = next(s.name for s in drawn.stages if s.name in group)
        stages[first] = [*copies, *stages[first]]
    made = [stage for parts in stages.values() for stage in parts]
    copied = drawn.with_stages(list_live(made, {r.name for r in function.results}))
    found = find_online(copied, budget)
    ready = {m.stage for each in found for m in each.totals}
    return copied if readers <= ready else None


def _group(function: Function, readers: Sequence[Stage]) -> list[list[str]]:
    """What reads products, as kernels take it: a maximum with what is weighted by it, and sums that
    have the same rows. None of a kernel's sums waits for another one."""
    waits: dict[str, set[str]] = {}
    for stage in function.stages:
        read = {load.tensor for load in stage.body.loads()}
        waits[stage.name] = read.union(*(waits.get(name, ()) for name in read))
    left = {stage.name: stage for stage in readers}
    groups: list[list[str]] = []
    for largest in readers:
        for weighing in list_weighing(function, largest):
            own = [s.name for s in left.values() if weighing.weigh(s)]
            own = [name for name in own if waits[name].isdisjoint(own)]
            if own and largest.name in left:
                groups.append([largest.name, *own])
                for name in groups[-1]:
                    del left[name]
    by_rows: dict[object, list[str]] = {}
    for stage in left.values():
        product, own = next(iter(list_summed(function, stage)), (None, {}))
        key = next((axis for axis, n in own.items() if n == len(own) - 1), None)
        place = product and product.name, key, 0
        while not waits[stage.name].isdisjoint(by_rows.get(place, ())):
            place = *place[:2], place[2] + 1
        by_rows.setdefault(place, []).append(stage.name)
    return groups + list(by_rows.values())
