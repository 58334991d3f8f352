"""Element-wise work that reads what does not lie side by side, in vectors all the same.

Each element may be read at twice its place, or at half of it: then reads are at computed positions
or go up by more than one. Where they go up alike from vector to vector along the innermost axis,
each becomes a pattern of what a few loads have (`pick`), and whatever else the points are computed
from is left as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from dmlc import ir
from dmlc.ir.positions import evaluate_instruction
from dmlc.kernel.collapse import Walk
from dmlc.kernel.element import Elements, Gather, Place, Read, View, operands, prune
from dmlc.scalars import Array, DataType, convert
from dmlc.transform.pick import (
    LANES,
    PICKED,
    Pattern,
    Patterns,
    find_longest,
    find_pattern,
    list_good,
)

_LONGEST = 1 << 20
"""Places along an axis that are looked at, at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """What some reads of one tensor pick from, the same elements at every point."""

    tensor: str
    dtype: DataType
    """Of what is read, as it is computed with."""
    patterns: Patterns
    """By names that are no tensor's."""


@dataclasses.dataclass(frozen=True, slots=True)
class PickedReads:
    """The work at the places `first .. last` along an axis, a whole number of vectors. Its reads
    of what `sources` name are at hand; where their views lie is where the sources begin."""

    elements: Elements
    walk: Walk
    sources: tuple[Source, ...]
    first: int
    last: int


def pick_reads(elements: Elements, walk: Walk, axis: int) -> PickedReads | None:
    """How reads along an axis are picked; None where none has to be, or not all can be."""
    size = walk.sizes[axis]
    if not isinstance(size, int) or not 2 * LANES <= size <= _LONGEST:
        return None
    along = _follow(elements, walk, axis, size)
    found: dict[_Key, list[tuple[int, View, Array]]] = {}
    for number, value in enumerate(elements.values):
        if not isinstance(value, Read | Gather) or value.view.near:
            continue
        read = _read_along(value, walk, axis, along, size)
        if read is not None:
            found.setdefault(read[0], []).append((number, value.view, read[1]))
    if not found:
        return None
    sources: list[Source] = []
    values, strides = list(elements.values), dict(walk.strides)
    good = np.ones(size // LANES, np.bool_)
    for key, reads in found.items():
        dtype = key.view.dtype.compute
        made = _make_patterns(
            f"{key.view.tensor}{PICKED}{len(sources)}", [places for *_, places in reads], good
        )
        if made is None or dtype.bytes != 4:
            return None
        patterns, names = made
        sources.append(Source(key.view.tensor, dtype, patterns))
        for (number, read_view, _), name in zip(reads, names, strict=True):
            view = dataclasses.replace(key.view, tensor=name, near=True)
            steps = walk.strides[read_view]
            strides[view] = (*steps[:axis], 1, *steps[axis + 1 :])
            picked = Gather(view, dtype, key.terms, guarded=False)
            values[number] = picked if key.terms else Read(view, dtype)
    stretch = find_longest(good)
    work = prune(dataclasses.replace(elements, values=tuple(values)))
    moved = dataclasses.replace(walk, strides={view: strides[view] for view in work.views()})
    if stretch is None or not _goes_in_vectors(work, moved, axis):
        return None
    return PickedReads(work, moved, tuple(sources), *(LANES * n for n in stretch))


@dataclasses.dataclass(frozen=True, slots=True)
class _Key:
    """What reads have in common that pick from the same elements: but for the offset."""

    view: View
    terms: tuple[tuple[int, int], ...]


def _follow(elements: Elements, walk: Walk, axis: int, size: int) -> list[Array | bool]:
    """What is known of each value along the axis: what it is at each place, where it depends on
    nothing else; otherwise whether it stands still."""
    places = np.arange(size, dtype=np.int64)
    found: list[Array | bool] = []
    for value in elements.values:
        given = [found[o] for o in operands(value)]
        known = [g for g in given if not isinstance(g, bool)]
        still = all(g is True or (not isinstance(g, bool) and g.ndim == 0) for g in given)
        if isinstance(value, Read | Gather | Place):
            *before, step = walk.strides[value.view][: axis + 1]
            others = (*before, *walk.strides[value.view][axis + 1 :])
            is_index = isinstance(value, Place) and value.dtype is DataType.INDEX
            if is_index and step and not any(others):
                found.append(value.view.offset + step * places)
            else:
                found.append(still and not step)
        elif len(known) < len(given):
            found.append(still)
        elif isinstance(value, ir.Cast):
            operand = elements.values[value.operand]
            same = operand.dtype is value.dtype
            found.append(known[0] if same else np.asarray(convert(known[0], value.dtype)))
        else:
            with np.errstate(all="ignore"):
                found.append(evaluate_instruction(value, known, {}, _NOTHING))
    return found


_NOTHING = ir.Body((), 0)


def _read_along(
    value: Read | Gather, walk: Walk, axis: int, along: Sequence[Array | bool], size: int
) -> tuple[_Key, Array] | None:
    """What a read picks from, and where along it the elements are; None where it takes one
    element, or neighbours, or nobody knows."""
    step = walk.strides[value.view][axis]
    places = value.view.offset + step * np.arange(size, dtype=np.int64)
    terms: list[tuple[int, int]] = []
    for number, stride in value.terms if isinstance(value, Gather) else ():
        known = along[number]
        if isinstance(known, bool):
            if not known:
                return None
            terms.append((number, stride))
        else:
            places = places + stride * known
    moves = bool(np.ptp(places)) if isinstance(value, Gather) else step > 1
    if not moves or (isinstance(value, Gather) and bool((np.diff(places) == 1).all())):
        return None
    return _Key(dataclasses.replace(value.view, offset=0), tuple(terms)), places


def _make_patterns(
    name: str, reads: Sequence[Array], good: Array
) -> tuple[Patterns, list[str]] | None:
    """The patterns of reads that pick from the same elements, and the name of each. What is not
    `good` in some vectors is noted there."""
    count = len(good) * LANES
    holds = np.ones(count, np.bool_)
    named: dict[Pattern, str] = {}
    names: list[str] = []
    steps: set[int] = set()
    for places in reads:
        seen = find_pattern(places[:count], holds)
        if seen is None:
            return None
        pattern, step = seen
        steps.add(step)
        names.append(named.setdefault(pattern, f"{name}.{len(named)}"))
        good &= list_good(pattern, step, places[:count], holds, None)
    if len(steps) != 1:
        return None
    patterns = Patterns(steps.pop(), {name: pattern for pattern, name in named.items()})
    # What lies between two elements of a tensor is in it too.
    low = min(int(places.min()) for places in reads)
    high = max(int(places.max()) for places in reads)
    start, end = patterns.reach
    moved = patterns.step * np.arange(len(good))
    good &= (start + moved >= low) & (end + moved <= high + 1)
    return (patterns, names) if patterns.is_worth_it else None


def _goes_in_vectors(elements: Elements, walk: Walk, axis: int) -> bool:
    """Whether neighbours along an axis are computed at once."""
    for value in elements.values:
        if isinstance(value, Gather) and not value.view.near:
            return False
        if isinstance(value, Place) and walk.strides[value.view][axis]:
            return False
    return all(strides[axis] <= 1 for strides in walk.strides.values())
