"""Points of a reduction at the indices along an axis, for unrolling.

The points that pass the guard are known at compile time, and so are indices and tables there.
Unrolled, an index increases by equal steps along the axis, and a value that does not vary is a
constant. Callers decide for which indices the result must be correct.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from dmlc.ir import Apply, Body, Constant, Index, Load, Stage, operands, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.floor import FloorForm, fit_clamped
from dmlc.ir.index import IndexFacts
from dmlc.ir.nodes import list_folded
from dmlc.scalars import COMBINERS, Array, DataType, find_same

MOST_TERMS = 16
"""Largest number of unrolled points."""

Line: TypeAlias = Constant | FloorForm
"""Value along the axis: constant, or an index that increases by equal steps, perhaps clamped."""


@dataclasses.dataclass(frozen=True, slots=True)
class Terms:
    """Points of a reduction, as known at each index along an axis."""

    facts: IndexFacts
    over: tuple[Index, ...]
    """The axis, followed by the indices of the points."""
    holds: Array
    """Whether a point is reduced, with an axis for each of `over`."""
    steady: Mapping[int, Array]
    """Indices and loads of tables at every index and point; without those that depend on other
    axes."""
    _fitted: dict[tuple[bytes, bytes], Line | None] = dataclasses.field(
        default_factory=dict[tuple[bytes, bytes], "Line | None"], init=False, compare=False
    )
    """Cache of `fit` for indices."""

    @property
    def stage(self) -> Stage:
        return self.facts.stage

    @property
    def points(self) -> list[tuple[int, ...]]:
        """Points that are reduced at some index."""
        every = itertools.product(*(range(n) for n in self.holds.shape[1:]))
        return [point for point in every if self.holds[(..., *point)].any()]

    def find_first(self, *, signed_zeros: bool) -> bool | int | float:
        """Initial value of the reduction; without `signed_zeros`, it may be -0 for sums, which no
        addition shows."""
        record = COMBINERS[self.stage.combiner or "sum"]
        return (record.identity if signed_zeros else record.neutral)(self.stage.body.dtype)

    def fit(self, places: Array, point: Sequence[int], passes: Array) -> dict[int, Line | None]:
        """Formulas of the steady values at a point, over the indices where it `passes`; None for a
        value with unequal steps."""
        (turns,) = np.nonzero(passes)
        body = self.stage.body.instructions
        at, key = (places[turns], *point), turns.tobytes()
        return {
            number: self._fit_line(value_type(body[number]), turns, values[at], key)
            for number, values in self.steady.items()
        }

    def _fit_line(self, dtype: DataType, turns: Array, values: Array, key: bytes) -> Line | None:
        """Constant value, or index with equal steps. Cached, as most are shared by several points,
        or by neighbours along another axis."""
        if dtype is not DataType.INDEX:
            return _fit_line(dtype, turns, values)
        known = values.tobytes(), key
        if known not in self._fitted:
            self._fitted[known] = _fit_line(dtype, turns, values)
        return self._fitted[known]

    def write(
        self,
        places: range,
        first: bool | int | float,
        at_hand: Mapping[tuple[int, tuple[int, ...]], str] = MappingProxyType({}),
    ) -> tuple[Stage, int]:
        """Stage without its reduction, correct at the indices `places`, where the same points pass;
        and the number of tables and of indices with unequal steps. The number of an index in
        `places` is the stage's index along the axis.

        A load in `at_hand`, given by its number and point, is replaced by a load of the tensor
        named there, with one element per index; such a point need pass at one index only, and other
        indices are then not correct.
        """
        stage, reduction, body = self.stage, self.stage.reduction, self.stage.body
        if reduction is None:
            return stage, 0
        builder = BodyBuilder()
        total = builder.add(Constant(body.dtype, first))
        turn = builder.add(self.over[0])
        rows = np.asarray(places)
        positions = {i for load in body.loads() for i in load.indices}
        folded = list_folded(body.instructions, body.result, reduction.combiner)
        uneven = 0
        for point in self.points:
            passes = self.holds[(rows, *point)]
            if not passes.any():
                continue
            fixed = dict(zip(self.over[1:], point, strict=True))
            known: dict[int, int | Load] = {}
            for number, instruction in enumerate(body.instructions):
                if isinstance(instruction, Load) and (number, point) in at_hand:
                    known[number] = Load(at_hand[number, point], (turn,), instruction.dtype)
            lines = {
                number: (line, turn)
                for number, line in self.fit(rows, point, passes).items()
                if number not in known
            }
            for number, (line, _) in lines.items():
                may_step = number in positions or isinstance(body.instructions[number], Load)
                uneven += line is None and may_step
            numbers = write_values(builder, body, lines, fixed, known, wanted=folded)
            values = [numbers[n] for n in folded]
            total = write_point(builder, reduction.combiner, total, values, body.dtype)
        axis = self.over[0].axis
        extents = (*stage.extents[:axis], len(places), *stage.extents[axis + 1 :])
        made = dataclasses.replace(
            stage, dtype=body.dtype, extents=extents, body=builder.make(total), reduction=None
        )
        return made, uneven


def list_terms(
    facts: IndexFacts, over: tuple[Index, ...], conditions: Sequence[int]
) -> Terms | None:
    """Points that pass some conditions along an axis, the first of `over`; None if they depend on
    further indices."""
    holds = facts.find_passing(conditions, over)
    if holds is None:
        return None
    wanted = [
        number
        for number, instruction in enumerate(facts.stage.body.instructions)
        if facts.is_over(number, over)
        and over[0] in facts.dependencies[number]
        and (isinstance(instruction, Load) or value_type(instruction) is DataType.INDEX)
    ]
    found = facts.evaluate(wanted, over) or ()
    steady = {n: np.broadcast_to(v, holds.shape) for n, v in zip(wanted, found, strict=True)}
    return Terms(facts, over, holds, steady)


def write_values(
    builder: BodyBuilder,
    body: Body,
    lines: Mapping[int, tuple[Line | None, int]],
    fixed: Mapping[Index, int] = MappingProxyType({}),
    known: Mapping[int, int | Load] = MappingProxyType({}),
    written: dict[tuple[FloorForm, int], int] | None = None,
    *,
    wanted: Sequence[int],
) -> list[int]:
    """Copies the `wanted` values of a body, and those that they are computed from, with indices
    `fixed`, values given by `lines` with the number of the iteration, and `known` values. `written`
    caches the values of lines across several bodies."""
    written = {} if written is None else written
    replaced: dict[int, int] = {}
    needed: set[int] = set()
    pending = list(wanted)
    while pending:
        number = pending.pop()
        if number not in needed:
            needed.add(number)
            is_given = number in known or lines.get(number, (None, 0))[0] is not None
            pending += () if is_given else operands(body.instructions[number])
    for number in sorted(needed):
        instruction = body.instructions[number]
        line, turn = lines.get(number, (None, 0))
        own = known.get(number)
        if own is not None:
            replaced[number] = own if isinstance(own, int) else builder.add(own)
        elif isinstance(instruction, Index) and instruction in fixed:
            replaced[number] = builder.constant(fixed[instruction])
        elif isinstance(line, FloorForm):
            if (line, turn) not in written:
                written[line, turn] = line.write(builder, turn)
            replaced[number] = written[line, turn]
        elif line is not None:
            replaced[number] = builder.add(line)
    return builder.copy(body, replaced, needed=needed)


def write_point(
    builder: BodyBuilder, combiner: str, total: int, values: Sequence[int], dtype: DataType
) -> int:
    """Combines a point with a total, as `accumulate.combine` does: by fused multiply-add for
    products of FLOAT32."""
    if is_fused(combiner, values, dtype):
        return builder.apply("fma", write_product(builder, values[:-1]), values[-1], total)
    operation = COMBINERS[combiner].operation
    return builder.add(Apply(operation, (total, write_product(builder, values)), dtype))


def is_fused(combiner: str, values: Sequence[int], dtype: DataType) -> bool:
    """Whether a product is combined with a total by fused multiply-add."""
    return combiner == "sum" and len(values) > 1 and dtype is DataType.FLOAT32


def write_product(builder: BodyBuilder, values: Iterable[int]) -> int:
    return functools.reduce(lambda one, other: builder.apply("mul", one, other), values)


def _fit_line(dtype: DataType, turns: Array, values: Array) -> Line | None:
    if find_same(values, values[:1]).all():
        return Constant(dtype, values[0].item())
    if dtype is not DataType.INDEX:
        return None
    form = fit_clamped(turns, values)
    return form if form is not None and form.divisor == 1 else None
