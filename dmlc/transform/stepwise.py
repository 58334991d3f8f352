"""Splits a reduction along rows and columns into two, if a kernel reduces the rows anyway.

The loss of a classifier sums a value over rows that needs the largest logit of the row and the sum
of its exponentials. The gradient of an instance normalization by its scale sums the results of each
channel over instances. In two steps, the first is one more reduction along the rows, in a pass that
exists already; and the second reads one number per row. As a single reduction it would be another
pass over memory.

This changes the order of summation, and so the rounding; `fuse` decides for which devices it is
worth it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from dmlc.ir import Body, Function, Index, Load, Reduction, Stage, Tensor
from dmlc.ir.naming import take_name
from dmlc.ir.places import find_along
from dmlc.scalars import DataType
from dmlc.transform.simplify import is_inlinable

_LEAST_ROW = 128
"""Smallest number of elements of a row: the second step is smaller by that factor."""
_LEAST_ROWS = 128
"""Smallest number of rows: fewer are split into chunks, each reduced by many work groups."""
_MOST_LEAVES = 16
"""Largest number of tensors recorded as operands of a stage."""
_MOST_TRIED = 8
"""Largest number of reductions of one tensor that another is compared with."""
_MOST_WAITED = 256
"""Largest number of stages searched for a dependency."""

_Places: TypeAlias = Mapping[str, tuple[Index | None, ...]]
"""Tensors of which one element is read per point, each with the index along every axis (None along
an axis of size 1)."""


def reduce_stepwise(function: Function) -> Function:
    """Function with every such reduction in two stages; the same object if there is none."""
    known: dict[str, _Places] = {}
    tensors = function.tensors()
    noted: dict[str, list[Stage]] = {}
    for stage in function.stages:
        known[stage.name] = _trace(stage, tensors, known)
        if _is_plain(stage):
            for name in known[stage.name]:
                noted.setdefault(name, []).append(stage)
    names = {t.name: None for t in (*function.parameters, *function.tables, *function.stages)}
    made: list[Stage] = []
    for stage in function.stages:
        long = _is_plain(stage) and len(stage.axes) > 1
        rows = _find_rows(stage, tensors, known, noted) if long else None
        made += [stage] if rows is None else _split(stage, rows, names)
    return function.with_stages(made)


def _is_plain(stage: Stage) -> bool:
    """Whether a stage is a reduction of known sizes that may be split."""
    if stage.reduction is None or stage.is_positional:
        return False
    is_fixed = all(isinstance(extent, int) and extent for extent in stage.sizes)
    return is_fixed and stage.body.dtype is not DataType.BOOL


def _trace(stage: Stage, tensors: Mapping[str, Tensor], known: Mapping[str, _Places]) -> _Places:
    """Operands of a stage, through stages that are inlined."""
    found: dict[str, tuple[Index | None, ...]] = {}
    for load in dict.fromkeys(stage.body.loads()):
        source = tensors[load.tensor]
        places = find_along(stage, load, source.extents)
        if places is None:
            continue
        if not isinstance(source, Stage) or not is_inlinable(source):
            found.setdefault(load.tensor, places)
            continue
        for name, inner in known[source.name].items():
            there = (None if i is None else places[i.axis] for i in inner)
            found.setdefault(name, tuple(there))
    return dict(list(found.items())[:_MOST_LEAVES])


def _find_rows(
    stage: Stage,
    tensors: Mapping[str, Tensor],
    known: Mapping[str, _Places],
    noted: Mapping[str, list[Stage]],
) -> dict[Index, int] | None:
    """Row dimension of each index of a reduction, for rows that another reduction reduces without
    depending on it; None if there are none."""
    for name, places in known[stage.name].items():
        for other in noted[name][:_MOST_TRIED]:
            rows = _match(stage, places, other, known[other.name][name])
            if rows is not None and not _waits(other, stage, tensors):
                return rows
    return None


def _match(
    stage: Stage, places: tuple[Index | None, ...], other: Stage, along: tuple[Index | None, ...]
) -> dict[Index, int] | None:
    """Row dimensions of a tensor that reduction `other` reduces, if `stage` reduces these as well,
    and each row whole. Both must read every element of the tensor once."""
    pairs = [(a, b) for a, b in zip(places, along, strict=True) if a is not None or b is not None]
    own, its = ([pair[side] for pair in pairs] for side in (0, 1))
    for indices, reader in ((own, stage), (its, other)):
        if None in indices or len(set(indices)) < len(indices):
            return None
        if {i for i in reader.indices if reader.extent(i) != 1} != set(indices):
            return None
    rows = {a: b for a, b in pairs if a is not None and b is not None and not b.reduced}
    inner = [a for a, b in pairs if a is not None and b is not None and b.reduced]
    is_whole = all(index.reduced for index in inner)
    if not inner or not is_whole or not any(index.reduced for index in rows):
        return None
    if list(rows.values()) != sorted(rows.values(), key=lambda index: index.axis):
        return None
    row, many = (math.prod(map(stage.size, indices)) for indices in (inner, rows))
    if row < _LEAST_ROW or many < _LEAST_ROWS:
        return None
    return {index: number for number, index in enumerate(rows)}


def _waits(stage: Stage, other: Stage, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a stage depends on another, as far as the search goes."""
    seen: dict[str, None] = {}
    pending = [stage]
    while pending:
        for load in pending.pop().body.loads():
            source = tensors[load.tensor]
            if not isinstance(source, Stage) or source.name in seen:
                continue
            if source is other or len(seen) >= _MOST_WAITED:
                return True
            seen[source.name] = None
            pending.append(source)
    return False


def _split(stage: Stage, rows: Mapping[Index, int], names: dict[str, None]) -> Iterator[Stage]:
    """Reduction along rows, and reduction over these."""
    name = take_name(f"{stage.name}_rows", names)
    combiner = stage.combiner or ""
    inner, outer = (
        Reduction(combiner, tuple(a for a in stage.axes if (Index(a[0], True) in rows) is is_outer))
        for is_outer in (False, True)
    )
    domain = tuple(map(stage.size, rows))
    first = stage.body.map(lambda i: Index(rows[i]) if isinstance(i, Index) and i in rows else i)
    yield Stage(name, first.dtype, domain, first, inner, stage.span)
    load = Load(name, tuple(range(len(rows))), first.dtype)
    second = Body.make((*rows, load), len(rows))
    yield dataclasses.replace(stage, body=second, reduction=outer)
