"""How many elements of a tensor some loads read, each element counted once.

An axis at a time: a load reads every combination of the places it reaches along each axis, where
no index of it counts along two of them. Which places these are is evaluated, if positions are
index-only; what loads reach together is counted by taking turns at adding and subtracting what
they share. Where one of this cannot be said, the whole tensor counts.

What a load reads counts whether or not a choice then uses it. `traffic` makes bytes of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from dmlc.ir import Index, Load
from dmlc.ir.index import IndexFacts
from dmlc.scalars import Array

MOST_PARTS = 6
"""The most parts whose union is counted, once those are joined that differ along one axis only."""

Part: TypeAlias = tuple[Array, ...]
"""For each axis, which of its places are reached; together, every combination of those."""


def _reads_all(facts: IndexFacts, load: Load, sizes: Sequence[int]) -> bool:
    """Whether every axis has an index of its own that runs over the whole of it; axes of one
    element need none. Quick: it evaluates nothing, and may be false of what reads all."""
    stage = facts.stage
    if stage.body.guard is not None:
        return False
    read = [stage.body.instructions[v] for v in load.indices]
    own = [i for i, size in zip(read, sizes, strict=True) if size != 1]
    return len(set(own)) == len(own) and all(
        size == 1 or (isinstance(i, Index) and stage.extent(i) == size)
        for i, size in zip(read, sizes, strict=True)
    )


def _find_part(facts: IndexFacts, load: Load, sizes: Sequence[int]) -> Part | None:
    """What a load reaches of a tensor of these sizes; None where that cannot be said axis by
    axis."""
    used = [i for value in load.indices for i in facts.dependencies[value]]
    if len(set(used)) != len(used):
        return None
    part: list[Array] = []
    for value, size in zip(load.indices, sizes, strict=True):
        reached = _find_places(facts, value, size)
        if reached is None:
            return None
        part.append(reached)
    return tuple(part)


def _find_places(facts: IndexFacts, value: int, size: int) -> Array | None:
    """Along one axis. Of the guard, the conditions on this position's indices alone hold."""
    over = facts.dependencies[value]
    conditions = [c for c in facts.conditions if facts.is_over(c, over)]
    reached = np.zeros(size, np.bool_)
    form = facts.forms[value]
    if form is not None and len(form.factors) == 1 and not conditions:
        ((index, factor),) = form.factors
        extent = facts.stage.extent(index)
        if isinstance(extent, int) and factor > 0 and form.constant >= 0:
            reached[form.constant : form.constant + extent * factor : factor] = True
            return reached
    found, passing = facts.evaluate([value], over), facts.find_passing(conditions, over)
    if found is None or passing is None:
        return None
    places = np.broadcast_to(found[0], passing.shape)[passing]
    reached[places[(places >= 0) & (places < size)]] = True
    return reached


def count_read(
    reads: Sequence[tuple[IndexFacts, Load]], sizes: Sequence[int], repeated: Sequence[bool]
) -> int:
    """How many elements of a tensor of these sizes some loads read together. An axis that is
    `repeated` holds one element for all its places."""
    if 0 in sizes:
        return 0
    kept = [1 if same else size for size, same in zip(sizes, repeated, strict=True)]
    whole = math.prod(kept)
    if any(_reads_all(facts, load, sizes) for facts, load in reads):
        return whole
    parts: list[Part] = []
    for facts, load in reads:
        part = _find_part(facts, load, sizes)
        if part is None:
            return whole
        part = tuple(
            np.array([axis.any()]) if same else axis
            for axis, same in zip(part, repeated, strict=True)
        )
        _join(parts, part)
    return whole if len(parts) > MOST_PARTS else _count_union(parts)


def _join(parts: list[Part], part: Part) -> None:
    """Adds a part, as one with others that differ from it along one axis at most."""
    while True:
        for number, other in enumerate(parts):
            unlike = [
                axis
                for axis, (a, b) in enumerate(zip(part, other, strict=True))
                if not np.array_equal(a, b)
            ]
            if len(unlike) <= 1:
                part = tuple(a | b for a, b in zip(part, other, strict=True))
                del parts[number]
                break
        else:
            parts.append(part)
            return


def _count_union(parts: Sequence[Part]) -> int:
    total = 0
    for count in range(1, len(parts) + 1):
        for chosen in itertools.combinations(parts, count):
            shared = [np.logical_and.reduce(axes) for axes in zip(*chosen, strict=True)]
            common = math.prod(int(np.count_nonzero(axis)) for axis in shared)
            total += common if count % 2 else -common
    return total
