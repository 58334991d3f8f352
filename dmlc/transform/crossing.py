"""Reductions over the outer axes of tensors, in the group that reduces the inner ones.

The gradients of a layer normalization are such a pair: the sums of each row, and what applies them,
read the same tensors as the sums of each column, which are the gradients of scale and bias. Each
goes through memory once. Together they do so once: work items take one row after the other, hold it
between its reductions and their use, and add up what they have of each column meanwhile. That takes
rows that a work group can hold, and many of them.

Whether a group takes another in is decided here, once all are made: see `passes` for what one has,
and `grouping` for the order in which they run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dmlc.ir import Extent
from dmlc.transform.cost import Budget
from dmlc.transform.passes import Axes, Crossed, Draft

_LEAST_ROW = 128
"""Elements of a row, at least: of shorter ones a work group takes so many at once that what they
add up to takes long to combine."""
_LEAST_ROWS = 256
"""Rows, at least: fewer keep too few work groups busy that take several each."""


def cross(rows: Draft, columns: Draft, budget: Budget) -> bool:
    """Has a group that reduces the inner axes of tensors take in one that reduces their outer axes,
    where it can compute that on its way, and holds what a row takes. None reads what the other's
    passes derive, but reductions at their own row, and what a pass stores at their own point."""
    inner = _find_inner(rows)
    if inner is None or rows.crossed is not None or columns.crossed is not None:
        return False
    places = _place(rows, columns, inner)
    if places is None or not _holds(rows, columns, inner, budget):
        return False
    first = columns.opened[0]
    axes = {
        name: {index: places[dimension] for index, dimension in own.items()}
        for name, own in first.axes.items()
    }
    number = _find_pass(rows, columns, axes, inner)
    derived = [name for made in columns.opened[1:] for name in made.axes]
    reads = [load.tensor for name in derived for load in columns.stages[name].body.loads()]
    used = [load.tensor for stage in rows.stages.values() for load in stage.body.loads()]
    # What either has reduced, the other comes to have once its kernel is done.
    apart = rows.homes.keys().isdisjoint(reads) and columns.homes.keys().isdisjoint(used)
    if number is None or not apart:
        return False
    crossed = Crossed(columns.parallel, columns.passes())
    rows.take_across(number, inner, axes, columns, crossed)
    return True


def _find_inner(rows: Draft) -> tuple[Extent, ...] | None:
    """The inner dimensions of a group's passes, which are the same for all that have any; None
    where they are not, or a pass goes through its points in another order than row by row."""
    found = {made.inner for made in rows.opened if made.inner}
    if len(found) != 1:
        return None
    (inner,) = found
    order = tuple(range(len(rows.parallel) + len(inner)))
    in_order = all(made.order == order for made in rows.opened if made.inner)
    is_known = all(isinstance(size, int) for size in (*rows.parallel, *inner))
    return inner if in_order and is_known else None


def _place(rows: Draft, columns: Draft, inner: tuple[Extent, ...]) -> Mapping[int, int] | None:
    """For each dimension that a group reduces or keeps, which one it is of a group of rows whose
    tensors it reads; None where it reduces along rows, or not down them alone."""
    first, *derived = columns.opened
    if not first.reduces or first.order is None or any(p.reduces or p.inner for p in derived):
        return None
    sizes = (*columns.parallel, *first.inner)
    in_order = tuple(sizes[dimension] for dimension in first.order)
    if rows.list_whole().isdisjoint(first.whole) or in_order != (*rows.parallel, *inner):
        return None
    places = {dimension: place for place, dimension in enumerate(first.order)}
    kept = [places[dimension] for dimension in range(len(columns.parallel))]
    along = range(len(rows.parallel), len(places))
    return places if kept == sorted(kept) and set(along) <= set(kept) else None


def _holds(rows: Draft, columns: Draft, inner: tuple[Extent, ...], budget: Budget) -> bool:
    """Whether a work group holds a row of all tensors, and its part of the sums of the columns."""
    first = columns.opened[0]
    row, many = (
        math.prod(n for n in sizes if isinstance(n, int)) for sizes in (inner, first.inner)
    )
    whole = set[str]().union(first.whole, *(made.whole for made in rows.opened))
    sums = sum(columns.stages[name].reduction is not None for name in first.axes)
    enough = row >= _LEAST_ROW and many >= _LEAST_ROWS
    return enough and row * (len(whole) + sums) <= budget.held


def _find_pass(
    rows: Draft, columns: Draft, axes: Mapping[str, Axes], inner: tuple[Extent, ...]
) -> int | None:
    """The pass of a group of rows that has at hand what some stages read of the group: the last one
    that reduces nothing, or a new one after all others."""
    applying = [n for n, p in enumerate(rows.opened) if p.inner == inner and not p.reduces]
    for number in (*applying[-1:], len(rows.opened)):
        if all(rows.reads_at_hand(columns.stages[name], axes[name], number) for name in axes):
            return number
    return None
