"""Writes a reduction of few points out, along the places where it is the same again and again.

A window cut off by an edge reduces fewer points than one inside, and where a ratio is 3 to 2, every
second window is a point longer. Which points the guard lets through is known at compile time; over
a long stretch in which that repeats, the reduction is as many terms, one after the other in the
order of the points, without a guard or a loop. Entries of tables that repeat too are constants
there, and positions go up by equal steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from dmlc.ir import Function, Index, Stage
from dmlc.ir.index import IndexFacts, find_longest
from dmlc.loops.terms import MOST_TERMS, Terms, list_terms
from dmlc.scalars import Array, DataType

_LONGEST_PERIOD = 4
"""Places after which the same points are reduced again, at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """Places `first .. last` along an axis of a stage. `stages` compute what the reduction comes
    to there without folding: number k of n at the places `first + k + n * turn`, all up to `last`.
    There the axis is that of the turns."""

    first: int
    last: int
    stages: tuple[Stage, ...]


def find_terms(function: Function, stage: Stage, axis: int) -> Terms | None:
    """The points of a reduction along an axis; None where they are too many to write out,
    or which they are depends on more than the place along it."""
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
    """A long stretch of a reduction along an axis that can be written out, its points repeating
    after no more than so many places; None where none is worth it.

    Of stretches about as long it is the one with the fewest tables and uneven positions, and of
    these the one that repeats first. Without `signed_zeros` a sum of negative zeros may stay one,
    where the reduction, which starts from 0, gives a positive one: one addition fewer.
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
    """For each number of places after which the rows of `holds` may repeat, the longest stretch in
    which they do: from where, to where, after how many."""
    for period in range(1, min(longest_period, len(holds) - 1) + 1):
        first, last = find_longest((holds[period:] == holds[:-period]).all(axis=1))
        yield first, first + (last - first) // period * period + period, period
