"""Rewrites a block of neighbouring outputs as separate stages, one for each neighbour.

Along an axis of the block, a work item has every n-th output; indices and tables at these are known
at compile time. An index increases by equal steps from iteration to iteration. A point that takes
part in some iterations only is selected by a condition, and loaded at an index where it takes part.

Sums are made column by column: weights that depend on the column alone multiply the column's sum.
Adjacent windows have columns in common, and then equal values.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dmlc import ir
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.floor import FloorForm
from dmlc.ir.index import IndexFacts
from dmlc.ir.nodes import list_folded
from dmlc.loops.terms import (
    MOST_TERMS,
    Line,
    Terms,
    is_fused,
    list_terms,
    write_point,
    write_product,
    write_values,
)
from dmlc.scalars import COMBINERS, Array
from dmlc.transform.factor import list_factors

_MOST_TERMS = 256
"""Largest number of unrolled points of all outputs of a work item, if all points are unrolled."""
_MOST_PLACES = 128
"""The same for argmin and argmax: each point takes a condition and a value."""


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Neighbours of a work item: `counts` along some axes of a domain, which are multiples of
    these."""

    domain: tuple[ir.Extent, ...]
    counts: Mapping[int, int]

    @property
    def turns(self) -> tuple[ir.Extent, ...]:
        """Domain of the work items."""
        return tuple(
            size // self.counts[axis] if isinstance(size, int) and axis in self.counts else size
            for axis, size in enumerate(self.domain)
        )

    def list_places(self) -> Iterator[dict[int, range]]:
        """Indices of each neighbour along each axis, by iteration."""
        sizes = {axis: self.domain[axis] for axis in self.counts}
        for corner in itertools.product(*(range(count) for count in self.counts.values())):
            yield {
                axis: range(first, size, self.counts[axis])
                for first, (axis, size) in zip(corner, sizes.items(), strict=True)
                if isinstance(size, int)
            }


def name_neighbour(stage: str, number: int) -> str:
    """Name of a stage's copy for one neighbour."""
    return f"{stage}#{number}"


def write_at(
    stage: ir.Stage,
    tables: Mapping[str, Array],
    builder: BodyBuilder,
    places: Mapping[int, range],
    known: Mapping[int, int],
) -> int:
    """Value of a stage at the indices of one neighbour, by iteration."""
    facts, lines = IndexFacts(stage, tables), dict[int, tuple[Line | None, int]]()
    for axis, own in places.items():
        turn, rows = builder.add(ir.Index(axis)), np.asarray(own)
        terms = list_terms(facts, (ir.Index(axis),), ())
        if terms is not None:
            found = terms.fit(rows, (), np.ones(len(rows), np.bool_))
            lines.update({number: (line, turn) for number, line in found.items()})
    result = stage.body.result
    return write_values(builder, stage.body, lines, known=known, wanted=[result])[result]


def write_reductions(
    stage: ir.Stage, tables: Mapping[str, Array], block: Block, *, whole: bool
) -> tuple[ir.Stage, ...] | None:
    """Reductions for each neighbour over the axes along which windows do not slide; with `whole`,
    all of their points are unrolled. None if windows do not slide, if they are too large, if their
    points depend on more than the index along one axis, or if an index has unequal steps."""
    facts = IndexFacts(stage, tables)
    reduction = stage.reduction
    if reduction is None or (stage.is_positional and facts.conditions):
        return None
    axes = {ir.Index(label, reduced=True): extent for label, extent in reduction.axes}
    positions = {i for load in stage.body.loads() for i in load.indices}
    together = [set(facts.dependencies[number]) for number in (*facts.conditions, *positions)]
    along = [ir.Index(axis) for axis in block.counts]
    if not any({along[-1], i} <= {*facts.dependencies[p]} for p in positions for i in axes):
        # No window slides: the outputs differ by conditions alone, and read the same elements.
        return None
    windows = [[i for i in axes if any({axis, i} <= own for own in together)] for axis in along]
    inner = tuple(axes) if whole else tuple(windows[-1])
    extents = [axes[index] for index in inner]
    points = math.prod(e for e in extents if isinstance(e, int))
    most = MOST_TERMS
    if len(along) > 1:
        every = _MOST_PLACES if stage.is_positional else _MOST_TERMS
        most = every // math.prod(block.counts.values())
    if not all(windows) or any(not isinstance(e, int) for e in extents) or points > most:
        return None
    terms: dict[int, Terms] = {}
    conditions = [c for c in facts.conditions if {*along, *inner} & {*facts.dependencies[c]}]
    for axis in along:
        over = (axis, *inner)
        own = [c for c in conditions if facts.is_over(c, over)]
        conditions = [c for c in conditions if c not in own]
        found = list_terms(facts, over, own)
        if found is None:
            return None
        terms[axis.axis] = found
    moving = {p for p in positions if set(along) & set(facts.dependencies[p])}
    if conditions or not moving <= {n for each in terms.values() for n in each.steady}:
        return None
    rest = tuple((label, extent) for label, extent in reduction.axes
                 if ir.Index(label, reduced=True) not in inner)  # fmt: skip
    made: list[ir.Stage] = []
    for number, places in enumerate(block.list_places()):
        writer = _Writer(terms, places)
        if stage.is_positional:
            body = writer.write_place()
        else:
            body = writer.write(windows[-1], is_whole=not rest)
        if body is None:
            return None
        changed = dataclasses.replace(
            stage,
            name=name_neighbour(stage.name, number),
            extents=block.turns,
            body=body,
            reduction=ir.Reduction(reduction.combiner, rest) if rest else None,
        )
        made.append(changed)
    return tuple(made)


class _Writer:
    """Writer of one neighbour's reduction, whose `places` are known along some axes; `terms` has
    the points along each."""

    def __init__(self, terms: Mapping[int, Terms], places: Mapping[int, range]) -> None:
        *_, last = terms.values()
        self._facts = last.facts
        self._positions = {i for load in self._facts.stage.body.loads() for i in load.indices}
        self._inner = last.over[1:]
        self._sizes = last.holds.shape[1:]
        self._terms = terms
        self._places = {axis: np.asarray(own) for axis, own in places.items()}
        self._builder = BodyBuilder()
        self._turns = {axis: self._builder.add(ir.Index(axis)) for axis in terms}
        self._written: dict[tuple[FloorForm, int], int] = {}

    def write(self, columns: Sequence[ir.Index], *, is_whole: bool) -> ir.Body | None:
        """Body with points unrolled as terms, those of one of the `columns` first. If no reduction
        remains (`is_whole`), sums start like reductions."""
        stage, builder = self._facts.stage, self._builder
        body, reduction = stage.body, stage.reduction
        if reduction is None:
            return None
        combiner, dtype = reduction.combiner, body.dtype
        (*_, last), nothing = self._terms, COMBINERS[combiner].neutral(dtype)
        factors, weights = self._split_factors(columns)
        identity = builder.add(ir.Constant(dtype, reduction.record.identity(dtype)))
        total = identity if is_whole else None
        for column in self._list_points(columns):
            points: list[tuple[list[int], list[int | None]]] = []
            values: list[int] = []
            end: int | None = None
            for point in self._list_points(self._inner, column):
                if not all(self._passes(axis, point).any() for axis in self._terms):
                    continue
                found = self._write_point(point, (*factors, *weights))
                if found is None:
                    return None
                values, conditions = found
                end = conditions.pop(last)
                points.append(([values[f] for f in factors], [*conditions.values()]))
            if len(points) == 1 and not weights:
                ((own, others),) = points
                total = self._enter(total, own, (*others, end))
            elif points:
                inside: int | None = None
                for own, others in points:
                    inside = self._enter(inside, own, others)
                if inside is not None:
                    total = self._enter(total, (inside, *(values[w] for w in weights)), (end,))
        total = builder.add(ir.Constant(dtype, nothing)) if total is None else total
        moving = {ir.Index(axis) for axis in self._terms} | {*self._inner}
        own = [c for c in self._facts.conditions if not moving & {*self._facts.dependencies[c]}]
        copied = builder.copy(body) if own else []
        guard = builder.join(copied[c] for c in own)
        if is_whole and guard is not None:
            return builder.make(builder.add(ir.Select(guard, total, identity, dtype)))
        return builder.make(total, guard)

    def write_place(self) -> ir.Body | None:
        """Body of an argmin or argmax, where a NaN is more extreme than any number. From the last
        point backwards, a point wins if it is no worse than the best, or a NaN, so that the best
        need not be tested for NaN."""
        stage, builder = self._facts.stage, self._builder
        reduction, body, dtype = stage.reduction, stage.body, stage.dtype.compute
        if reduction is None:
            return None
        is_no_worse = reduction.record.matches
        best: int | None = None
        place = builder.constant(0, dtype)
        for number, point in reversed(list(enumerate(self._list_points(self._inner)))):
            found = self._write_point(point, (body.result,))
            if found is None:
                return None
            (values, _), own = found, builder.constant(number, dtype)
            term = values[body.result]
            if best is None:
                best, place = term, own
                continue
            better = builder.apply(is_no_worse, term, best)
            if body.dtype.is_float:
                better = builder.apply("or", better, builder.apply("isnan", term))
            place = builder.add(ir.Select(better, own, place, dtype))
            best = builder.add(ir.Select(better, term, best, body.dtype))
        return builder.make(place)

    def _list_points(
        self, indices: Sequence[ir.Index], fixed: Mapping[ir.Index, int] = MappingProxyType({})
    ) -> Iterator[dict[ir.Index, int]]:
        """Points along some indices, in order; some indices are `fixed`."""
        sizes = dict(zip(self._inner, self._sizes, strict=True))
        every = ((fixed[i],) if i in fixed else range(sizes[i]) for i in indices)
        for point in itertools.product(*every):
            yield dict(zip(indices, point, strict=True))

    def _passes(self, axis: int, point: Mapping[ir.Index, int]) -> Array:
        """Iterations in which a point takes part, by the index along an axis."""
        return self._terms[axis].holds[(self._places[axis], *point.values())]

    def _split_factors(self, columns: Sequence[ir.Index]) -> tuple[list[int], list[int]]:
        """Factors of the summed value: those that vary within a column, and those that do not. For
        other reductions, or columns of one point, all count as the former."""
        facts = self._facts
        reduction, body = facts.stage.reduction, facts.stage.body
        combiner = "" if reduction is None else reduction.combiner
        folded = [*list_folded(body.instructions, body.result, combiner)]
        if combiner != "sum" or len(columns) == len(self._inner):
            return folded, []
        over = {ir.Index(list(self._terms)[-1]), *columns}
        factors = list_factors(body)
        weights = [f for f in factors if facts.dependencies[f] and facts.is_over(f, over)]
        inner = [f for f in factors if f not in weights]
        return (inner, weights) if inner and weights else (folded, [])

    def _enter(
        self, total: int | None, factors: Sequence[int], conditions: Iterable[int | None]
    ) -> int:
        """Total combined with a point, which is a product of factors, under conditions."""
        reduction, dtype = self._facts.stage.reduction, self._facts.stage.body.dtype
        combiner = "" if reduction is None else reduction.combiner
        if total is not None and is_fused(combiner, factors, dtype):
            made = write_point(self._builder, combiner, total, factors, dtype)
            return self._choose(conditions, made, total)
        none = self._builder.add(ir.Constant(dtype, COMBINERS[combiner].neutral(dtype)))
        term = self._choose(conditions, write_product(self._builder, factors), none)
        return (
            term if total is None else write_point(self._builder, combiner, total, (term,), dtype)
        )

    def _choose(self, conditions: Iterable[int | None], made: int, none: int) -> int:
        """`made` if the conditions hold; otherwise `none`."""
        for condition in conditions:
            if condition is not None:
                made = self._builder.select(condition, made, none)
        return made

    def _write_point(
        self, point: Mapping[ir.Index, int], wanted: Sequence[int]
    ) -> tuple[list[int], dict[int, int | None]] | None:
        """The `wanted` values of the body at a point; and for each axis the condition that it takes
        part, if it does not always. None if an index has unequal steps."""
        body, lines = self._facts.stage.body, dict[int, tuple[Line | None, int]]()
        conditions: dict[int, int | None] = {}
        for axis, terms in self._terms.items():
            passes = self._passes(axis, point)
            turn, conditions[axis] = self._limit(axis, passes)
            if turn is None:
                return None
            found = terms.fit(self._places[axis], tuple(point.values()), passes)
            if any(line is None and number in self._positions for number, line in found.items()):
                return None
            lines.update({number: (line, turn) for number, line in found.items()})
        values = write_values(
            self._builder, body, lines, point, written=self._written, wanted=wanted
        )
        return values, conditions

    def _limit(self, axis: int, passes: Array) -> tuple[int | None, int | None]:
        """Iteration number, clamped to those in which a point takes part, and the condition that it
        does (None if always). The number is None if these are no single interval."""
        builder, own = self._builder, self._turns[axis]
        (taken,) = np.nonzero(passes)
        first, last = int(taken[0]), int(taken[-1])
        if taken.size != last - first + 1:
            return None, None
        turn, conditions = own, list[int]()
        if first > 0:
            bound = builder.constant(first)
            conditions.append(builder.apply("ge", own, bound))
            turn = builder.apply("max", turn, bound)
        if last < passes.size - 1:
            bound = builder.constant(last)
            conditions.append(builder.apply("le", own, bound))
            turn = builder.apply("min", turn, bound)
        return turn, builder.join(conditions)
