"""Writes a reduction of few points out, along the places where it is the same again and again.

A window cut off by an edge reduces fewer points than one inside, and where a ratio is 3 to 2, every
second window is a point longer. Which points the guard lets through is known at compile time; over
a long stretch in which that repeats, the reduction is as many terms, one after the other in the
order of the points, without a guard or a loop. Entries of tables that repeat too are constants
there, and positions go up by equal steps."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Apply,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Stage,
    value_type,
)
from dmlc.ir.builder import Builder
from dmlc.ir.index import IndexFacts, find_longest, list_arrays
from dmlc.scalars import COMBINERS, Array, DataType, combiner_identity, find_same

_MOST_TERMS = 16
"""Points written out, at most."""

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


@dataclasses.dataclass(frozen=True, slots=True)
class Terms:
    """The points of a reduction, as they are known at each place along an axis."""

    facts: IndexFacts
    over: tuple[Index, ...]
    """The axis, and those of the reduction."""
    holds: Array
    """Whether a point is reduced: an axis for each of `over`."""
    steady: Mapping[int, Array]
    """What each position is, and each load of a table gives, at every place and point; those that
    depend on other axes are left out."""

    @property
    def stage(self) -> Stage:
        return self.facts.stage

    @property
    def points(self) -> list[tuple[int, ...]]:
        """Those that are reduced anywhere."""
        every = itertools.product(*(range(n) for n in self.holds.shape[1:]))
        return [point for point in every if self.holds[(..., *point)].any()]

    def find_first(self, *, signed_zeros: bool) -> bool | int | float:
        """What the reduction starts from; without `signed_zeros` a sum may start from a negative
        one, which no addition shows."""
        reduction, dtype = self.stage.reduction, self.stage.body.dtype
        combiner = "sum" if reduction is None else reduction.combiner
        if combiner == "sum" and dtype.is_float and not signed_zeros:
            return -0.0
        return combiner_identity(combiner, dtype)

    def write(
        self,
        places: range,
        first: bool | int | float,
        at_hand: Mapping[tuple[int, tuple[int, ...]], str] = MappingProxyType({}),
    ) -> tuple[Stage, int]:
        """The stage without its reduction, right at some places, where the same points pass; and
        the number of tables and positions that do not go up by equal steps from place to place.
        The number of the place is the position along the axis.

        A load that is `at_hand`, by its number and the point, has for each place an element of the
        tensor named there; then a point needs to pass at one of the places only, and only where it
        does are the others right.
        """
        stage, reduction, body = self.stage, self.stage.reduction, self.stage.body
        if reduction is None:
            return stage, 0
        builder = Builder()
        total = builder.add(Constant(body.dtype, first))
        turn = builder.add(self.over[0])
        rows = np.asarray(places)
        positions = {i for load in body.loads() for i in load.indices}
        uneven = 0
        for point in self.points:
            passes = self.holds[(rows, *point)]
            if not passes.any():
                continue
            fixed = dict(zip(self.over[1:], point, strict=True))
            known: dict[int, int] = {}
            for number, instruction in enumerate(body.instructions):
                if isinstance(instruction, Index) and instruction in fixed:
                    known[number] = builder.constant(fixed[instruction])
                elif isinstance(instruction, Load) and (number, point) in at_hand:
                    found = Load(at_hand[number, point], (turn,), instruction.dtype)
                    known[number] = builder.add(found)
                elif number in self.steady:
                    values = self.steady[number][(rows, *point)]
                    line = _write_line(builder, instruction, values, turn, passes)
                    if line is not None:
                        known[number] = line
                    else:
                        uneven += number in positions or isinstance(instruction, Load)
            term = builder.copy(body, known)[body.result]
            total = builder.add(Apply(COMBINERS[reduction.combiner], (total, term), body.dtype))
        made = builder.make(total)
        axis = self.over[0].axis
        domain = (*stage.domain[:axis], len(places), *stage.domain[axis + 1 :])
        made_of = dataclasses.replace(
            stage, dtype=body.dtype, domain=domain, body=made, reduction=None
        )
        return made_of, uneven


def list_terms(function: Function, stage: Stage, axis: int) -> Terms | None:
    """The points of a reduction along an axis; None where they are too many to write out,
    or which they are depends on more than the place along it."""
    reduction, body = stage.reduction, stage.body
    if reduction is None or reduction.combiner in POSITIONAL_COMBINERS:
        return None
    if body.dtype is DataType.BOOL:
        return None
    over = (Index(axis), *(Index(label, reduced=True) for label, _ in reduction.axes))
    size, *inner = (stage.extent(index) for index in over)
    if any(not isinstance(n, int) or n == 0 for n in (size, *inner)):
        return None
    if math.prod(n for n in inner if isinstance(n, int)) > _MOST_TERMS:
        return None
    facts = IndexFacts(stage, list_arrays(function.tables))
    holds = facts.find_passing(facts.conditions, over)
    return None if holds is None else Terms(facts, over, holds, _list_steady(facts, over))


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
    terms = list_terms(function, stage, axis)
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


def _write_line(
    builder: Builder, instruction: Instruction, values: Array, turn: int, passes: Array
) -> int | None:
    """A value that is the same in every turn that passes, or a position that goes up by equal
    steps."""
    dtype = value_type(instruction)
    right = values[passes]
    if find_same(right, right[:1]).all():
        return builder.add(Constant(dtype, right[0].item()))
    steps = np.diff(values)
    if dtype is not DataType.INDEX or np.ptp(steps) != 0:
        return None
    gone = builder.apply("mul", turn, builder.constant(steps[0].item()))
    return builder.apply("add", gone, builder.constant(values[0].item()))


def _list_steady(facts: IndexFacts, over: tuple[Index, ...]) -> dict[int, Array]:
    """What each position is, and each load of a table gives, along the axis and at each point;
    those that depend on other axes are left out."""
    wanted = [
        number
        for number, instruction in enumerate(facts.stage.body.instructions)
        if facts.is_over(number, over)
        and over[0] in facts.dependencies[number]
        and (isinstance(instruction, Load) or value_type(instruction) is DataType.INDEX)
    ]
    shape = tuple(e for e in map(facts.stage.extent, over) if isinstance(e, int))
    found = facts.evaluate(wanted, over) or ()
    return {n: np.broadcast_to(v, shape) for n, v in zip(wanted, found, strict=True)}
