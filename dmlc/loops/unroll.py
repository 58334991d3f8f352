"""Unrolls a reduction of few points, over the indices along an axis where it is periodic.

A window cut off by an edge has fewer points than one inside, and with a ratio of 3 to 2, every
second window has one point more. The points that pass the guard are known at compile time; over a
long stretch where they are periodic, the reduction becomes as many terms, in the order of the
points, without a guard or a loop. Periodic entries of tables become constants, and indices increase
by equal steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from dmlc.ir import Function, Index, Stage
from dmlc.ir.index import IndexFacts, find_longest
from dmlc.loops.terms import MOST_TERMS, Terms, list_terms
from dmlc.scalars import Array, DataType

_LONGEST_PERIOD = 4
"""Largest period in indices."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """Indices `first` to below `last` along an axis of a stage. `stages` compute the reduction
    there without a loop: number k of n at the indices `first + k + n * turn`, below `last`. Their
    index along the axis is `turn`."""

    first: int
    last: int
    stages: tuple[Stage, ...]


def find_terms(function: Function, stage: Stage, axis: int) -> Terms | None:
    """Points of a reduction along an axis; None if they are too many to unroll, or depend on more
    than the index along the axis."""
    reduction, body = stage.reduction, stage.body
    if reduction is None or reduction.is_positional:
        return None
    if body.dtype is DataType.BOOL:
        return None
    over = (Index(axis), *(Index(label, reduced=True) for label, _ in reduction.axes))
    size, *inner = (stage.extent(index) for index in over)
    if any(not isinstance(n, int) or n == 0 for n in (size, *inner)):
        return None
    if math.prod(n for n in inner if isinstance(n, int)) > MOST_TERMS:
        return None
    facts = IndexFacts(stage, function.arrays())
    return list_terms(facts, over, facts.conditions)


def unroll(
    function: Function,
    stage: Stage,
    axis: int,
    longest_period: int = _LONGEST_PERIOD,
    *,
    signed_zeros: bool = True,
) -> Stretch | None:
    """A long stretch of a reduction along an axis that can be unrolled with a period of at most
    `longest_period`; None if none is worth it.

    Of stretches of about equal length, it is the one with the fewest tables and indices of unequal
    steps, then the one with the shortest period. Without `signed_zeros`, a sum of negative zeros
    may stay -0, where the reduction, which starts from 0, gives 0: this saves one addition.
    """
    terms = find_terms(function, stage, axis)
    if terms is None:
        return None
    size, first_value = len(terms.holds), terms.find_first(signed_zeros=signed_zeros)
    found = [
        (first, last, period)
        for first, last, period in _find_stretches(terms.holds.reshape(size, -1), longest_period)
        if last - first >= max(2 * period, size // 2)
    ]
    if not found:
        return None
    longest = max(last - first for first, last, _ in found)
    written: list[tuple[int, Stretch]] = []
    for first, last, period in found:
        if last - first <= longest - period:
            continue
        made = [
            terms.write(range(first + phase, last, period), first_value) for phase in range(period)
        ]
        uneven = sum(number for _, number in made)
        written.append((uneven, Stretch(first, last, tuple(stage for stage, _ in made))))
    return min(written, key=lambda each: (each[0], len(each[1].stages)))[1]


def _find_stretches(holds: Array, longest_period: int) -> Iterator[tuple[int, int, int]]:
    """For each period up to `longest_period`, the longest stretch in which the rows of `holds`
    repeat: start, stop and period."""
    for period in range(1, min(longest_period, len(holds) - 1) + 1):
        first, last = find_longest((holds[period:] == holds[:-period]).all(axis=1))
        yield first, first + (last - first) // period * period + period, period
