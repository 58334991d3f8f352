"""Finds the elements of a row that vectors of a resampling's outputs are made of.

Adjacent outputs of a resampling reduce elements of a row that are not adjacent: the first terms of
eight of them are at 0, 2, 3, 5, 6, 8, 9 and 11, say. The next eight read elements at equal
distances from these, lane by lane, so that one pattern serves the whole row: a vector is made by
loads and constant shuffles. A lane whose point fails the guard takes a zero, and so does an index
out of bounds, as the row may be padded with zeros; no guard is left then.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np

from dmlc.ir import Function, Load, Stage
from dmlc.ir.index import find_longest
from dmlc.kernel.names import PERMUTED
from dmlc.loops.terms import Terms
from dmlc.loops.unroll import find_terms
from dmlc.scalars import Array
from dmlc.transform.factor import list_factors

LANES = 8
"""Outputs per vector."""

HALF = LANES // 2
"""Lanes within which processors shuffle at low cost, and so the number of elements loaded
together."""

_MOST_LOADS = 4
"""Largest number of loads that either half of a vector is made of."""

Pattern = tuple[int | None, ...]
"""Element of the row for each lane of the first vector; None for a zero. The row is padded with
zeros."""


@dataclasses.dataclass(frozen=True, slots=True)
class Patterns:
    """Patterns of vectors that read the same elements."""

    step: int
    """Distance in elements between equal lanes of consecutive vectors."""
    named: Mapping[str, Pattern]

    @property
    def starts(self) -> tuple[int, int]:
        """First loaded element of either half of the first vector: the smallest in its patterns;
        equal for both if one load contains all."""
        halves = ([p[:HALF] for p in self.named.values()], [p[HALF:] for p in self.named.values()])
        low, high = ([p for part in half for p in part if p is not None] for half in halves)
        both = low + high
        if max(both) - min(both) < HALF:
            return min(both), min(both)
        return min(low, default=0), min(high, default=0)

    @property
    def loads(self) -> int:
        """Number of loads, of `HALF` elements each, that either half is made of."""
        starts = self.starts
        return 1 + max(
            (place - starts[lane // HALF]) // HALF
            for pattern in self.named.values()
            for lane, place in enumerate(pattern)
            if place is not None
        )

    @property
    def is_worth_it(self) -> bool:
        """Whether it takes few enough loads."""
        return self.loads <= _MOST_LOADS

    @property
    def reach(self) -> tuple[int, int]:
        """First loaded element for the first vector, and the end of the last one."""
        starts = self.starts
        return min(starts), max(starts) + HALF * self.loads


@dataclasses.dataclass(frozen=True, slots=True)
class Permutation:
    """Outputs `first` to below `last` of a row whose reduction is made of such vectors. `first` is
    a multiple of `LANES`, and so is `last` unless it is the end of the row."""

    first: int
    last: int
    stage: Stage
    """The unrolled stage for these outputs. Its loads of tensors named in `patterns` give each
    output its element of the row."""
    patterns: Patterns

    @property
    def reach(self) -> tuple[int, int]:
        """First loaded element, and the end of the last one, of the vectors from that of output 0
        to that of `last`. They may be out of bounds."""
        start, end = self.patterns.reach
        return start, end + self.patterns.step * ((self.last - 1) // LANES)


def find_permutation(function: Function, stage: Stage, row: str) -> Permutation | None:
    """Vectorization of a reduction along the last axis of `row`; None if it is not uniform over
    most of the row, or its values do not have 32 bits."""
    axis = len(stage.extents) - 1
    terms = find_terms(function, stage, axis)
    if terms is None or stage.body.dtype.bytes != 4 or len(terms.holds) < 2 * LANES:
        return None
    body, made = stage.body.instructions, function.stage(row)
    loads = [n for n, i in enumerate(body) if isinstance(i, Load) and i.tensor == row]
    size = None if made is None else made.extents[-1]
    if not loads or not isinstance(size, int):
        return None
    zeros = _takes_zeros(terms, loads)
    patterns: dict[Pattern, str] = {}
    at_hand: dict[tuple[int, tuple[int, ...]], str] = {}
    steps: set[int] = set()
    good = np.ones(-(-len(terms.holds) // LANES), np.bool_)
    for number, point in itertools.product(loads, terms.points):
        places = _find_indices(terms, number)
        if places is None:
            return None
        taken, holds = places[(..., *point)], terms.holds[(..., *point)]
        seen = _find_pattern(taken, holds)
        if seen is None:
            return None
        pattern, step = seen
        steps.add(step)
        good &= _list_good(pattern, step, taken, holds, size if zeros else None)
        at_hand[number, point] = patterns.setdefault(pattern, f"{row}{PERMUTED}{len(patterns)}")
    stretch = find_longest(good)
    if len(steps) != 1 or 2 * (stretch[1] - stretch[0]) <= len(good):
        return None
    first_value = terms.find_first(signed_zeros=True)
    written, _ = terms.write(range(len(terms.holds)), first_value, at_hand)
    first, last = (LANES * n for n in stretch)
    named = {name: pattern for pattern, name in patterns.items()}
    found = Patterns(steps.pop(), named)
    last = min(last, len(terms.holds))
    return Permutation(first, last, written, found) if found.is_worth_it else None


def _takes_zeros(terms: Terms, loads: list[int]) -> bool:
    """Whether a sum does not change if a term has 0 for the element of the row: the element is a
    factor of the term, and the other factors are finite."""
    reduction = terms.stage.reduction
    if reduction is None or reduction.combiner != "sum" or len(loads) != 1:
        return False
    factors = list_factors(terms.stage.body)
    others = [f for f in factors if f != loads[0]]
    if len(others) != len(factors) - 1:
        return False
    found = terms.facts.evaluate(others, terms.over)
    return found is not None and all(bool(np.isfinite(values).all()) for values in found)


def _find_indices(terms: Terms, load: int) -> Array | None:
    """Index of a load along the row, for every output and point; None if it depends on more."""
    instruction = terms.stage.body.instructions[load]
    if not isinstance(instruction, Load):
        return None
    found = terms.steady.get(instruction.indices[-1])
    return None if found is None else np.broadcast_to(found, terms.holds.shape)


def _find_pattern(places: Array, holds: Array) -> tuple[Pattern, int] | None:
    """Pattern of the middle vector, as that of the first, and the step. `places` are the loaded
    indices, and `holds` tells which are used."""
    middle = len(places) // LANES // 2 * LANES
    before = middle - LANES
    lanes = np.arange(LANES)
    both = holds[middle + lanes] & holds[before + lanes]
    steps = np.unique((places[middle + lanes] - places[before + lanes])[both])
    if len(steps) != 1 or steps[0] < 0:
        return None
    step = int(steps[0])
    return tuple(
        int(places[middle + lane]) - step * (middle // LANES) if holds[middle + lane] else None
        for lane in range(LANES)
    ), step


def _list_good(pattern: Pattern, step: int, places: Array, holds: Array, size: int | None) -> Array:
    """Whether the pattern is correct for each vector. Lanes without an element must get a zero or,
    if the row of `size` elements is padded, an index out of bounds."""
    vectors, lanes = divmod(np.arange(len(places)), LANES)
    starts = np.array([0 if start is None else start for start in pattern])
    empty = np.array([start is None for start in pattern])[lanes]
    found = starts[lanes] + step * vectors
    right = holds & ~empty & (found == places)
    if size is not None:
        right |= ~holds & (empty | (found < 0) | (found >= size))
    good = np.ones(-(-len(places) // LANES), np.bool_)
    np.logical_and.at(good, vectors, right)
    return good
