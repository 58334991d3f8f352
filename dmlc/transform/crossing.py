"""Fusion of row and column reductions of the same tensors into one group.

The gradients of a layer normalization are such a pair: the sums of each row and their use read the
same tensors as the sums of each column, which are the gradients of scale and bias. Separately, each
goes through memory once. Fused, they do so together: a work group takes one row after the other,
keeps it in registers between its reductions and their use, and accumulates its partial sum of each
column. This takes rows that fit in a work group's registers, and many of them.

The fusion is decided here, once all groups are complete; see `passes` for their content, and
`grouping` for their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dmlc.ir import Extent
from dmlc.transform.cost import Budget
from dmlc.transform.passes import Axes, Crossed, Draft

_LEAST_ROW = 128
"""Smallest number of elements of a row: of shorter rows a group takes so many at once that
combining their partial sums takes long."""
_LEAST_ROWS = 256
"""Smallest number of rows: fewer keep too few work groups busy that take several each."""


def cross(rows: Draft, columns: Draft, budget: Budget) -> bool:
    """Merges a group that reduces outer axes (`columns`) into one that reduces inner axes (`rows`),
    if its stages can be computed in the same pass and a row fits in registers. Neither may read
    what the other derives from its reductions, except row reductions at the same row, and values
    stored by the same pass at the same point. Returns whether it did."""
    inner = _find_inner(rows)
    if inner is None or rows.crossed is not None or columns.crossed is not None:
        return False
    places = _map(rows, columns, inner)
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
    # Results of one group's reductions are available to the other after the kernel only.
    apart = rows.homes.keys().isdisjoint(reads) and columns.homes.keys().isdisjoint(used)
    if number is None or not apart:
        return False
    crossed = Crossed(columns.parallel, columns.passes())
    rows.take_across(number, inner, axes, columns, crossed)
    return True


def _find_inner(rows: Draft) -> tuple[Extent, ...] | None:
    """Inner dimensions common to a group's passes; None if they differ, or if a pass does not go
    row by row."""
    found = {made.inner for made in rows.opened if made.inner}
    if len(found) != 1:
        return None
    (inner,) = found
    order = tuple(range(len(rows.parallel) + len(inner)))
    in_order = all(made.order == order for made in rows.opened if made.inner)
    is_known = all(isinstance(size, int) for size in (*rows.parallel, *inner))
    return inner if in_order and is_known else None


def _map(rows: Draft, columns: Draft, inner: tuple[Extent, ...]) -> Mapping[int, int] | None:
    """Dimension of the row group for each dimension of the column group; None if the column group
    reduces along rows, or shares no tensor."""
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
    """Whether a work group's registers hold a row of all tensors, and its partial sums of the
    columns."""
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
    """Pass of the row group at which all that the column group reads of it is available: its last
    element-wise pass, or a new one at the end."""
    applying = [n for n, p in enumerate(rows.opened) if p.inner == inner and not p.reduces]
    for number in (*applying[-1:], len(rows.opened)):
        if all(rows.reads_at_hand(columns.stages[name], axes[name], number) for name in axes):
            return number
    return None
