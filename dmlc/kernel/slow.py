"""Warnings about kernels that are slow on a GPU because of how their formula is written.

A *serial* kernel takes many steps, few of them in parallel. A *dense* one visits many points for
each element, most of which are excluded by conditions on indices: known at compile time, yet not a
bound of its loops. Or elements of tensors select the points, and no index of them was built
(`inverse_index`). Each warning says what the author of the formula can change; shortcomings of
schedules are not reported.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterator, Sequence

import numpy as np

from dmlc import ir
from dmlc.ir.index import IndexFacts
from dmlc.ir.specialize import specialize
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import bind_sizes
from dmlc.kernel.counts import Steps
from dmlc.kernel.rows import STEP
from dmlc.kernel.steps import count_steps
from dmlc.scalars import Array
from dmlc.sizes import holds
from dmlc.source import Diagnostic, Note
from dmlc.transform.inverse_index import Choice, find_choice
from dmlc.transform.orders import find_orders
from dmlc.transform.scans import find_scan

FEW_THREADS = 1024
MANY_STEPS = 1 << 20
MANY_POSITIONS = 64
_LONG = 4 * MANY_STEPS
"""Value of one open size, while the others are 1."""
_MOST_ELEMENTS = 1 << 40
"""Largest number of elements that a kernel then computes; several axes may have the same size."""
_NEEDLESS = 4
"""Ratio of visited to needed points above which a kernel is dense."""

_SAMPLES = 8
_MOST_POINTS = 1 << 18


def find_slow(
    function: ir.Function, kernels: Sequence[k.Kernel], counted: Sequence[Steps | None]
) -> tuple[Diagnostic, ...]:
    """Warnings about kernels of `function`; `counted` are the steps of each."""
    pairs = zip(kernels, counted, strict=True)
    found = [warning for kernel, steps in pairs for warning in _judge(function, kernel, steps)]
    return tuple(dict.fromkeys(found))


def find_slow_open(function: ir.Function, kernels: Sequence[k.Kernel]) -> tuple[Diagnostic, ...]:
    """Warnings about kernels of open sizes that are slow if one size is large and the others are
    small."""
    found: list[Diagnostic] = []
    own, rows = function.symbols(), {n for o in find_orders(function) for n in o.names}
    symbols = tuple(dict.fromkeys((*own, *function.inherited)))
    for long in own:
        size = _LONG
        sizes, made = _bind_long(symbols, long, size, kernels)
        while size > 1 and max(map(_count_elements, made), default=0) > _MOST_ELEMENTS:
            size //= 2
            sizes, made = _bind_long(symbols, long, size, kernels)
        if not all(holds(check, sizes) for check in function.checks):
            continue
        counted = [count_steps(kernel, function.tables, traffic=False) for kernel in made]
        where = f", where '{long}' is {size:,}" + (" and others are 1" if symbols[1:] else "")
        settled = specialize(function, sizes)
        found += [
            dataclasses.replace(each, message=each.message + where)
            for each in (*_find_scans(settled, rows), *find_slow(settled, made, counted))
        ]
    return tuple(dict.fromkeys(found))


def _bind_long(
    symbols: Sequence[str], long: str, size: int, kernels: Sequence[k.Kernel]
) -> tuple[dict[str, int], list[k.Kernel]]:
    """Sizes of which one is large and the others are 1, and the kernels for these sizes; for a loop
    over time, those of its first step."""
    sizes = dict.fromkeys(symbols, 1) | {long: size}
    return sizes, [bind_sizes(kernel, {STEP: 0, **sizes}) for kernel in kernels]


def _count_elements(kernel: k.Kernel) -> int:
    count = kernel.launch.count
    return count if isinstance(count, int) else 0


def _find_scans(settled: ir.Function, rows: Container[str]) -> Iterator[Diagnostic]:
    """Warnings about scans, except over whole `rows`, that would be blocked if sizes were known."""
    for stage, scan in ((stage, find_scan(stage)) for stage in settled.stages):
        if scan is not None and scan.is_worth_it and stage.name not in rows:
            yield Diagnostic(
                f"'{stage.name}' reduces up to {scan.count:,} points again for each element",
                stage.span,
                (Note("give its sizes numbers: then it goes in blocks, through each point once"),),
                warning=True,
                code="W0901",
            )


def _judge(function: ir.Function, kernel: k.Kernel, steps: Steps | None) -> Iterator[Diagnostic]:
    if steps is None or not steps.total or not steps.longest:
        return
    stages = [s for s in map(function.stage, kernel.stages) if s and s.reduction is not None]
    threads = steps.threads
    if threads < FEW_THREADS and steps.total > MANY_STEPS:
        stage = max(stages, key=count_points, default=function.stage(kernel.stages[0]))
        yield _warn_of_serial(stage, steps, threads)
    tables = function.arrays()
    # Kernels from text, such as sorts, have no passes over points.
    for stage in stages if kernel.passes else ():
        points, reduced = count_points(stage), count_reduced(stage)
        each = steps.total / max(1, points // max(1, reduced))
        if min(each, reduced) <= MANY_POSITIONS:
            continue
        needed, loads = find_density(function, stage) * reduced, max(1, len(stage.body.loads()))
        if needed < reduced and each > _NEEDLESS * max(1, needed) * loads:
            yield _warn_of_dense(stage, needed)
            continue
        choice = find_choice(stage, tables)
        if choice is not None and choice.is_long and choice.elements > _NEEDLESS:
            yield _warn_of_choice(stage, choice, reduced / choice.elements)


def _warn_of_serial(stage: ir.Stage | None, steps: Steps, threads: int) -> Diagnostic:
    name = "a kernel" if stage is None else f"'{stage.name}'"
    return Diagnostic(
        f"{name} takes {steps.total or 0:,.0f} steps, and a GPU does at most {threads:,} of them "
        "at once",
        None if stage is None else stage.span,
        (
            Note(
                "reduce it in two steps, first along some of the axes and then over what that "
                "gives, so that more threads share the work"
            ),
        ),
        warning=True,
        code="W0901",
    )


def _warn_of_dense(stage: ir.Stage, needed: float) -> Diagnostic:
    return Diagnostic(
        f"'{stage.name}' goes through {count_reduced(stage):,} positions for each element that it "
        f"gives, of which about {math.ceil(needed):,} count",
        stage.span,
        (
            Note(
                "write what counts as a window with a few positions of its own: "
                "sum[k : 5] (x[i + k - 2] else 0)"
            ),
        ),
        warning=True,
        code="W0902",
    )


def _warn_of_choice(stage: ir.Stage, choice: Choice, needed: float) -> Diagnostic:
    if choice.suits and not choice.is_worth_it:
        why = (
            f"an index of the points of each would take about {choice.short_steps:,} steps, "
            f"and without it there are {choice.dense_steps:,}"
        )
    elif choice.suits:
        why = "it reads what its condition protects: clamp the positions of what it reads"
    else:
        why = (
            "an index of the points of each is built for sums, products, extremes, 'any' and "
            "'all', and for up to 2 ** 31 elements and points"
        )
    return Diagnostic(
        f"'{stage.name}' goes through {count_reduced(stage):,} positions for each element that it "
        f"gives, of which elements of tensors choose about {math.ceil(needed):,}",
        stage.span,
        (Note(why),),
        warning=True,
        code="W0903",
    )


def count_points(stage: ir.Stage) -> int:
    """Number of points of a stage's domain, times points reduced per element."""
    return math.prod(map(stage.size, stage.indices))


def count_reduced(stage: ir.Stage) -> int:
    """Number of points reduced per element of a stage."""
    return math.prod(stage.size(index) for index in stage.indices if index.reduced)


def find_density(function: ir.Function, stage: ir.Stage) -> float:
    """Fraction of a stage's points that contribute to its reduction, by a sample of its domain:
    points where index-only values neither falsify its guard nor make a factor 0. It is 1 if no
    value is index-only."""
    facts = IndexFacts(stage, function.arrays())
    guards = [c for c in facts.conditions if facts.known[c]]
    deciding = [*guards, *_list_factors(stage, facts)]
    indices = facts.depends_on(deciding)
    if not indices:
        return 1.0
    folded = sum(index.reduced for index in indices)
    most = int((_MOST_POINTS / _SAMPLES ** (len(indices) - folded)) ** (1 / max(1, folded)))
    places: dict[ir.Index, Array] = {}
    for index in indices:
        extent = stage.extent(index)
        if not isinstance(extent, int) or extent == 0 or most < 1:
            return 1.0
        count = min(extent, most if index.reduced else _SAMPLES)
        # Midpoints of equal intervals, so that the ends have no extra weight.
        places[index] = (2 * np.arange(count, dtype=np.int64) + 1) * extent // (2 * count)
    found = IndexFacts(stage, function.arrays(), places).evaluate(deciding, tuple(places))
    if found is None:
        return 1.0
    counts = np.ones([len(p) for p in places.values()], np.bool_)
    for values in found:
        counts = counts & (values != 0)
    return float(counts.mean())


def _list_factors(stage: ir.Stage, facts: IndexFacts) -> list[int]:
    """Index-only values that make a summand 0 if they are 0: factors, and conditions of selects
    with 0."""
    if stage.reduction is None or stage.reduction.combiner != "sum":
        return []
    found: list[int] = []
    pending = [stage.body.result]
    while pending:
        value = pending.pop()
        match stage.body.instructions[value]:
            case _ if facts.known[value]:
                found.append(value)
            case ir.Apply(operation=operation, operands=operands) if operation.name == "mul":
                pending += operands
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                left_out = stage.body.instructions[otherwise]
                is_zero = isinstance(left_out, ir.Constant) and not left_out.value
                if is_zero and facts.known[condition]:
                    found.append(condition)
                    pending.append(then)
            case _:
                pass
    return found
