"""Recomputes scores, block by block, in every kernel that reads them, instead of storing them.

Scores are as many as rows times keys, and their operands are far fewer. If several kernels read
them, each recomputes them by a copy of their stages. In the gradient of attention, one kernel finds
the maximum and the sum of the weights of each row, and others sum, for each query or key, products
of the gradient with the weights, which are then known, so that no sum is rescaled.

Readers of scores are recognized by index notation alone, as in `online`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.ir import Apply, Body, Constant, Function, Index, Stage, operands
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.naming import take_name
from dmlc.transform.cost import Budget
from dmlc.transform.inline import inline_producers
from dmlc.transform.online import (
    find_online,
    list_stages,
    list_summed,
    list_weighing,
    may_be_online,
)
from dmlc.transform.simplify import list_live, redirect_loads


def recompute(function: Function, budget: Budget) -> Function:
    """Function with copies of the scores for each kernel that recomputes them, if then none of them
    needs to be stored."""
    if not budget.least_rows or function.one_step is not None or not may_be_online(function):
        return function
    whole = dataclasses.replace(function, stages=inline_producers(function, {}, (), budget).stages)
    for products in _list_products(whole):
        if len(_group(whole, products)[0]) > 1:
            made = _copy(function, products, budget)
            function = function if made is None else made
    return function


def _list_products(function: Function) -> list[set[str]]:
    """Sets of score reductions that are read together, if a maximum is among their readers."""
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
    """Function with a copy of the scores for each kernel that reads them; None if some of their
    readers do not suit."""
    between: set[str] = set()
    for stage in function.stages:
        read = {load.tensor for load in stage.body.loads()}
        if stage.reduction is None and not read.isdisjoint(products | between):
            between.add(stage.name)
    kept = {s.name: "" for s in function.stages if s.name not in between}
    drawn = function.with_stages(inline_producers(function, kept, (), budget).stages)
    readers = {n for name in products for n in drawn.readers().get(name, ())}
    names = dict.fromkeys(function.tensors())
    parted = [_split(s, names) if s.name in readers else (s,) for s in drawn.stages]
    drawn = drawn.with_stages(stage for stages in parted for stage in stages)
    groups, waits = _group(drawn, products)
    stages = {stage.name: [stage] for stage in drawn.stages}
    for group in groups[1:]:
        own = {s.name: take_name(s.name, names) for s in drawn.stages if s.name in products}
        read = {name for reader in group for name in waits[reader] & products}
        copies = [dataclasses.replace(s, name=own[s.name]) for s in drawn.stages if s.name in read]
        for name in group:
            stages[name] = [redirect_loads(stages[name][0], own)]
        first = next(s.name for s in drawn.stages if s.name in group)
        stages[first] = [*copies, *stages[first]]

    def rank(stage: Stage) -> int:
        """Number of the first kernel that depends on a stage."""
        needed = (n for n, g in enumerate(groups) if _is_needed(stage.name, g, waits))
        return next(needed, len(groups))

    made = [stage for s in sorted(drawn.stages, key=rank) for stage in stages[s.name]]
    copied = drawn.with_stages(list_live(made, {r.name for r in function.results}))
    ready = {m.stage for found in find_online(copied, budget) for m in found.totals}
    return copied if waits.keys() <= ready else None


def _is_needed(name: str, group: Sequence[str], waits: Mapping[str, set[str]]) -> bool:
    return name in group or any(name in waits[reader] for reader in group)


def _find_waits(function: Function, stage: Stage) -> set[str]:
    """Tensors on which a stage depends, directly or not."""
    waits: set[str] = set()
    pending = [stage]
    while pending:
        read = {load.tensor for load in pending.pop().body.loads()} - waits
        waits |= read
        pending += list_stages(function, read)
    return waits


def _split(stage: Stage, names: dict[str, None]) -> tuple[Stage, ...]:
    """Split of a reduction that uses an index only by its quotient and remainder by one number: the
    reduction over both, and a stage that recombines them. Adjacent attention heads are indexed so.
    A conversion to a storage type is split off as well. The stage alone if neither applies."""
    if stage.dtype is not stage.body.dtype:
        whole = dataclasses.replace(
            stage, name=take_name(f"{stage.name}_sum", names), dtype=stage.body.dtype
        )
        builder = BodyBuilder()
        rounded = builder.make(builder.read(whole))
        last = Stage(stage.name, stage.dtype, stage.extents, rounded, span=stage.span)
        return *_split(whole, names), last
    made, uses = stage.body.instructions, list[tuple[int, str, int, int]]()
    for number, instruction in enumerate(made):
        for operand in operands(instruction):
            at = made[operand]
            if not isinstance(at, Index) or at.reduced:
                continue
            name, size = "", 0
            if isinstance(instruction, Apply) and instruction.operation.name in ("div", "mod"):
                by = made[instruction.operands[1]]
                if isinstance(by, Constant) and instruction.operands[0] == operand:
                    name, size = instruction.operation.name, int(by.value)
            uses.append((at.axis, name, size, number))
    for axis, extent in enumerate(stage.extents):
        own = [use for use in uses if use[0] == axis]
        sizes = {size for _, _, size, _ in own}
        if {name for _, name, _, _ in own} != {"div", "mod"} or len(sizes) != 1:
            continue
        (size,) = sizes
        if not isinstance(extent, int) or extent % size:
            continue
        places = {number: axis + (name == "mod") for _, name, _, number in own}
        changed = [
            Index(places[n])
            if n in places
            else Index(i.axis + (i.axis > axis), i.reduced)
            if isinstance(i, Index) and not i.reduced
            else i
            for n, i in enumerate(made)
        ]
        extents = (*stage.extents[:axis], extent // size, size, *stage.extents[axis + 1 :])
        body = Body.make(changed, stage.body.result, stage.body.guard)
        whole = dataclasses.replace(
            stage, name=take_name(f"{stage.name}_parts", names), extents=extents, body=body
        )
        builder = BodyBuilder()
        own_places = [builder.index(n) for n in range(len(stage.extents))]
        parts = [builder.apply(n, own_places[axis], builder.constant(size)) for n in ("div", "mod")]
        place = [*own_places[:axis], *parts, *own_places[axis + 1 :]]
        read = builder.make(builder.load(whole, *place))
        return whole, Stage(stage.name, stage.dtype, stage.extents, read, span=stage.span)
    return (stage,)


def _group(function: Function, products: set[str]) -> tuple[list[list[str]], dict[str, set[str]]]:
    """Readers of scores, grouped by kernel: a maximum with the sums weighted by it, and sums over
    the same rows. No sum of a kernel depends on another. Also the dependencies of each reader."""
    names = {n for name in products for n in function.readers().get(name, ())}
    readers = [stage for stage in function.stages if stage.name in names]
    waits = {stage.name: _find_waits(function, stage) for stage in readers}
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
        summed = list_summed(function, stage)
        # No kernel is found for a reader that is no sum of products.
        place, turn = None, 0
        for product, own in summed[:1]:
            place = product.name, next(axis for axis, n in own.items() if n == len(own) - 1)
        while not waits[stage.name].isdisjoint(by_rows.get((place, turn), ())):
            turn += 1
        by_rows.setdefault((place, turn), []).append(stage.name)
    return groups + list(by_rows.values()), waits
