"""Counts the bytes that kernels read from memory and write to it, by tensor.

Each element counts once in every pass over it; caches are ignored. Of a tensor that is read in
part, the part counts, axis by axis: a load reads every combination of the indices it reaches along
each axis, unless one loop index occurs in two of them. Index-only indices are evaluated. In all
other cases the whole tensor counts. A load counts even if a select ignores it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from dmlc.ir import Function, Index, Load, Parameter, Tensor
from dmlc.ir.index import IndexFacts
from dmlc.scalars import Array

_MOST_PARTS = 32
"""Largest number of parts whose union is counted, as there may be many combinations."""
_MOST_PLACES = 1 << 26
"""Longest axis whose indices are evaluated, as they take memory."""

_Part: TypeAlias = tuple[Array, ...]
"""Mask of the indices reached along each axis; the part is every combination of these."""


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Bytes that a kernel reads and writes of one tensor; None if a size is known at run time
    only."""

    tensor: str
    read: int | None = 0
    written: int | None = 0


def list_moves(
    function: Function, stages: Iterable[str], local: Container[str] = ()
) -> tuple[Move, ...]:
    """Bytes moved by one pass of these stages: tensors that they read and do not compute, then the
    stages, except those in `local`, which stay in registers.

    An element broadcast by a stride of 0 counts once. The part of a tensor that is read is exact if
    its indices are index-only and no loop index occurs in two of them, as in slices, windows and
    strides; conditions that relate several axes are ignored. Otherwise, as for data-dependent
    indices, the whole tensor counts.
    """
    tensors = function.tensors()
    tables = function.arrays()
    own = dict.fromkeys(stages)
    read: dict[str, list[tuple[IndexFacts, Load]]] = {}
    for stage in filter(None, map(function.stage, own)):
        facts = IndexFacts(stage, tables)
        for load in stage.body.loads():
            if load.tensor not in own:
                read.setdefault(load.tensor, []).append((facts, load))
    incoming = [Move(n, read=_count_read(tensors[n], loads)) for n, loads in read.items()]
    outgoing = [Move(n, written=count_bytes(tensors[n])) for n in own]
    return tuple(m for m in (*incoming, *outgoing) if m.tensor not in local)


def add_moves(moves: Iterable[Move]) -> tuple[Move, ...]:
    """One move per tensor, in order of first occurrence."""
    added: dict[str, Move] = {}
    for move in moves:
        before = added.get(move.tensor, Move(move.tensor))
        added[move.tensor] = Move(
            move.tensor, _add(before.read, move.read), _add(before.written, move.written)
        )
    return tuple(added.values())


def total(moves: Iterable[Move]) -> tuple[int, int] | None:
    """Bytes read and written in all; None if any is unknown."""
    whole = Move("")
    for move in moves:
        whole = Move("", _add(whole.read, move.read), _add(whole.written, move.written))
    return None if whole.read is None or whole.written is None else (whole.read, whole.written)


def _add(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def count_bytes(tensor: Tensor) -> int | None:
    """Bytes of a tensor's elements, each once; None if a size is known at run time only."""
    sizes = _list_stored(tensor)
    return None if sizes is None else math.prod(sizes) * tensor.dtype.bytes


def _list_stored(tensor: Tensor) -> list[int] | None:
    """Number of distinct indices in memory along each axis: a stride of 0 repeats one."""
    sizes = [e for e in tensor.extents if isinstance(e, int)]
    if len(sizes) != len(tensor.extents):
        return None
    if isinstance(tensor, Parameter) and tensor.strides is not None:
        return [n if stride else min(n, 1) for n, stride in zip(sizes, tensor.strides, strict=True)]
    return sizes


# What is read ------------------------------------------------------------------------------


def _count_read(tensor: Tensor, reads: Sequence[tuple[IndexFacts, Load]]) -> int | None:
    """Bytes of the distinct elements that loads read; None if a size is known at run time only."""
    whole, stored = count_bytes(tensor), _list_stored(tensor)
    if not whole or stored is None:
        return whole
    sizes = [e for e in tensor.extents if isinstance(e, int)]
    if any(_reads_all(facts, load, sizes) for facts, load in reads):
        return whole
    # If one load is data-dependent, the whole tensor counts.
    if not all(facts.known[value] for facts, load in reads for value in load.indices):
        return whole
    parts: list[_Part] = []
    for facts, load in reads:
        part = _find_part(facts, load, sizes)
        if part is None:
            return whole
        ends = zip(part, stored, strict=True)
        parts.append(tuple(p if len(p) == n else np.array([p.any()]) for p, n in ends))
    return whole if len(parts) > _MOST_PARTS else _count_union(parts) * tensor.dtype.bytes


def _reads_all(facts: IndexFacts, load: Load, sizes: Sequence[int]) -> bool:
    """Whether every axis longer than 1 has its own loop index over its whole extent. A quick test
    without evaluation, which may miss loads that read everything."""
    stage, values = facts.stage, facts.stage.body.instructions
    read = [(values[v], size) for v, size in zip(load.indices, sizes, strict=True) if size != 1]
    whole = all(isinstance(i, Index) and stage.extent(i) == size for i, size in read)
    return stage.body.guard is None and whole and len({i for i, _ in read}) == len(read)


def _find_part(facts: IndexFacts, load: Load, sizes: Sequence[int]) -> _Part | None:
    """Part of a tensor of these extents that a load reads; None if it is not a product of axes."""
    used = [i for value in load.indices for i in facts.dependencies[value]]
    if len(set(used)) != len(used) or max(sizes, default=0) > _MOST_PLACES:
        return None
    part: list[Array] = []
    for value, size in zip(load.indices, sizes, strict=True):
        reached = _find_reached(facts, value, size)
        if reached is None:
            return None
        part.append(reached)
    return tuple(part)


def _find_reached(facts: IndexFacts, value: int, size: int) -> Array | None:
    """Mask of the indices reached along one axis, under the guard's conditions on the same loop
    indices."""
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
    if places.size and (places.min() < 0 or places.max() >= size):
        places = places[(places >= 0) & (places < size)]
    reached[places] = True
    return reached


def _count_union(parts: Sequence[_Part]) -> int:
    """Number of elements in the union of parts. Indices of an axis that belong to the same parts
    form a class, and so do combinations of them."""
    found = Counter({(1 << len(parts)) - 1: 1})
    for axes in zip(*parts, strict=True):
        classes = sum(places.astype(np.int64) << bit for bit, places in enumerate(axes))
        kinds, counts = np.unique(classes, return_counts=True)
        combined: Counter[int] = Counter()
        for (having, times), (kind, count) in itertools.product(
            found.items(), zip(kinds.tolist(), counts.tolist(), strict=True)
        ):
            combined[having & kind] += times * count
        found = combined
    return sum(times for having, times in found.items() if having)
