"""Reductions of pieces of a tensor around centres of their own, and those over the pieces.

`recentre` decides which reductions are taken in pieces, and of which lengths.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Extent,
    Index,
    Load,
    Reduction,
    Stage,
    Table,
    Tensor,
    operands,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import reach_back
from dmlc.ir.inside import find_open_reads
from dmlc.ir.naming import take_name
from dmlc.ir.ranges import table_ranges
from dmlc.sizes import Taken, as_extent, divide_up, estimate, measure, multiply

MOST_TERMS = 8
"""Largest number of sums that one is expanded to, and of sums of a piece."""


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Indices at which a reduction loads a tensor, by axis, with the body that computes them, in
    which equal values are one."""

    stage: Stage
    body: Body
    axes: tuple[int, ...]
    """Indices of the tensor's axes, as values of the body."""
    inner: frozenset[int]
    """Axes along which it reduces each row of the tensor whole."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """Pieces of a tensor's elements."""

    outer: tuple[int, ...]
    """Axes that number the pieces, in memory order, with the split one."""
    inner: tuple[int, ...]
    """Axes along which a piece has all elements."""
    split: int | None = None
    """Axis that is cut into chunks."""
    length: int = 1
    """Elements of a chunk; the last one of an axis may have fewer."""

    def count(self, extents: Sequence[Extent]) -> int:
        """Points of a piece."""
        return self.length * count_points([extents[axis] for axis in self.inner])

    def ends_early(self, extents: Sequence[Extent]) -> bool:
        """Whether a chunk may have fewer elements."""
        size = 0 if self.split is None else extents[self.split]
        return not isinstance(size, int) or size % self.length > 0


_Term = tuple["int | None", "int | None"]
"""A product of a factor that is the same for all points of a piece, and one that needs no earlier
reduction; each a value, or None for 1."""


def count_points(extents: Iterable[Extent], taken: Taken = ()) -> int:
    """Number of points, with assumed values for open sizes."""
    return math.prod(estimate(measure(extent), taken) for extent in extents)


def find_places(stage: Stage, whole: Tensor) -> Places | None:
    """Places at which a reduction reads a tensor; None if it reads several elements at a point."""
    builder = BodyBuilder()
    numbers = builder.copy(stage.body)
    body = Body(tuple(builder.instructions), numbers[stage.body.result])
    loads = {load for load in body.instructions if isinstance(load, Load)}
    own = [load for load in loads if load.tensor == whole.name]
    # Every element is read once.
    if len(own) != 1 or multiply(stage.sizes) != multiply(whole.extents):
        return None
    (load,) = own
    inner: set[int] = set()
    for axis, number in enumerate(load.indices):
        index = body.instructions[number]
        if not isinstance(index, Index) or not index.reduced or load.indices.count(number) > 1:
            continue
        if stage.extent(index) == whole.extents[axis]:
            inner.add(axis)
    used = {load.indices[axis] for axis in range(len(load.indices)) if axis not in inner}
    needed = reach_back(body.instructions, used)
    return Places(
        stage, body, load.indices,
        frozenset(axis for axis in inner if load.indices[axis] not in needed),
    )  # fmt: skip


class Pieces:
    """Stages of the pieces of a tensor, made as reductions need them."""

    def __init__(
        self,
        extents: Sequence[Extent],
        cut: Cut,
        late: set[str],
        names: dict[str, None],
        *,
        means: bool,
    ) -> None:
        self.extents, self.cut, self.late, self.means = extents, cut, late, means
        self._names = names
        self.stages: dict[tuple[str, Body], Stage] = {}
        """Reductions of pieces, by combiner and body."""

    def part(self, places: Places, tensors: Mapping[str, Tensor]) -> list[Stage] | None:
        """Reduction over the pieces, after the reductions of these that it is the first to need;
        None if it cannot be taken in pieces."""
        before = dict(self.stages)
        made = _Parting(self, places).make()
        new = [stage for key, stage in self.stages.items() if key not in before]
        reach = table_ranges([t for t in tensors.values() if isinstance(t, Table)])
        known = {**tensors, **{stage.name: stage for stage in self.stages.values()}}
        is_inside = not any(find_open_reads(stage, known, reach)[0] for stage in new)
        if made is None or len(self.stages) > MOST_TERMS or not is_inside:
            self.stages = before
            return None
        return [*new, made]

    def reduce(self, combiner: str, body: Body, stage: Stage) -> Stage:
        """Reduction of each piece, made for a stage if there is none with this body."""
        key = combiner, body
        if key not in self.stages:
            name = take_name(f"{stage.name}_pieces", self._names)
            axes = [(axis, self.extents[axis]) for axis in self.cut.inner]
            if self.cut.split is not None:
                axes = sorted([*axes, (self.cut.split, self.cut.length)])
            self.stages[key] = Stage(
                name, body.dtype, self.domain, body, Reduction(combiner, tuple(axes)), stage.span
            )
        return self.stages[key]

    @property
    def domain(self) -> tuple[Extent, ...]:
        """Numbers of pieces along each axis that numbers them."""
        cut = self.cut
        sizes = {axis: self.extents[axis] for axis in cut.outer}
        if cut.split is not None:
            sizes[cut.split] = as_extent(divide_up(measure(sizes[cut.split]), cut.length))
        return tuple(sizes.values())


class _NoPiecesError(Exception):
    """A reduction cannot be taken in pieces."""


class _Parting:
    """Rewriting of one reduction as one over pieces."""

    def __init__(self, pieces: Pieces, places: Places) -> None:
        self._pieces, self._places, self._stage = pieces, places, places.stage
        self._builder = BodyBuilder()
        numbers = self._builder.copy(places.body)
        self._root = numbers[places.body.result]
        cut, axes = pieces.cut, [numbers[place] for place in places.axes]
        whole = [*cut.inner, *([] if cut.split is None else [cut.split])]
        self._inner = {axes[axis] for axis in whole}
        self._labels = {self._index(axes[axis]).axis for axis in whole}
        free = 1 + max(label for label, _ in self._stage.axes)
        self._chunk = Index(free, reduced=True)
        self._outer = {axis: axes[axis] for axis in cut.outer}
        """Values of the indices that number the pieces, by axis."""
        if cut.split is not None:
            self._outer[cut.split] = self._builder.reduced(free)
        self._axes = axes
        self._facts: list[tuple[bool, bool]] = []

    def _index(self, number: int) -> Index:
        index = self._builder.instructions[number]
        if not isinstance(index, Index):
            raise _NoPiecesError
        return index

    def make(self) -> Stage | None:
        """The reduction over pieces; None if it is not possible."""
        stage, builder, cut = self._stage, self._builder, self._pieces.cut
        axes = [(label, extent) for label, extent in stage.axes if label not in self._labels]
        if cut.split is not None:
            chunks = self._pieces.domain[cut.outer.index(cut.split)]
            axes.append((self._chunk.axis, chunks))
        combiner = stage.combiner or ""
        try:
            value = self._take(combiner)
        except _NoPiecesError:
            return None
        if not axes:
            value = builder.total(combiner, value)
        reduction = Reduction(combiner, tuple(axes)) if axes else None
        return dataclasses.replace(stage, body=builder.make(value), reduction=reduction)

    def _take(self, combiner: str) -> int:
        """Value of a piece, from those of its reductions."""
        if combiner == "max":
            if self._find_facts(self._root)[1]:
                raise _NoPiecesError
            return self._reduce("max", self._root)
        terms = self._merge(self._expand(self._root))
        if len(terms) > MOST_TERMS:
            raise _NoPiecesError
        return self._builder.fold(
            "add", [self._times(factor, self._sum(kept)) for factor, kept in terms]
        )

    def _sum(self, kept: int | None) -> int:
        """Sum of a value over a piece; the number of its points for None."""
        if kept is not None:
            return self._reduce("sum", kept)
        builder, cut, extents = self._builder, self._pieces.cut, self._pieces.extents
        dtype, count = self._stage.body.dtype, cut.count(extents)
        if cut.split is None or not cut.ends_early(extents):
            return builder.constant(float(count), dtype)
        first = builder.wrap(self._outer[cut.split]) * cut.length
        left = builder.wrap(builder.size(extents[cut.split])) - first
        length = left.apply("min", cut.length).cast(dtype)
        return builder.unwrap(length * (count // cut.length))

    def _reduce(self, combiner: str, kept: int) -> int:
        """Reduction of a value over a piece, as a value of this body."""
        stage = self._pieces.reduce(combiner, self._move(kept), self._stage)
        return self._builder.load(stage, *self._outer.values())

    def _move(self, root: int) -> Body:
        """Body of a reduction of each piece."""
        cut, made, builder = self._pieces.cut, self._builder.instructions, BodyBuilder()
        moved = {place: builder.index(n) for n, place in enumerate(self._outer.values())}
        moved |= {self._axes[axis]: builder.reduced(axis) for axis in cut.inner}
        guard = None
        if cut.split is not None:
            first = builder.wrap(moved[self._outer[cut.split]]) * cut.length
            inside = builder.unwrap(first + builder.wrap(builder.reduced(cut.split)))
            moved[self._axes[cut.split]] = inside
            if cut.ends_early(self._pieces.extents):
                guard = builder.apply("lt", inside, builder.size(self._pieces.extents[cut.split]))
        needed = reach_back(made, [root], moved)
        if any(isinstance(made[number], Index) for number in needed):
            raise _NoPiecesError
        numbers = builder.copy(Body(tuple(made), root), moved, needed={*needed, *moved})
        return builder.make(numbers[root], guard)

    # Terms -----------------------------------------------------------------------------------

    def _find_facts(self, number: int) -> tuple[bool, bool]:
        """Whether a value varies over the points of a piece, and whether it needs one of the
        reductions."""
        made = self._builder.instructions
        for each in range(len(self._facts), len(made)):
            instruction = made[each]
            own = [self._facts[operand] for operand in operands(instruction)]
            late = isinstance(instruction, Load) and instruction.tensor in self._pieces.late
            varies = each in self._inner or any(v for v, _ in own)
            self._facts.append((varies, late or any(needs for _, needs in own)))
        return self._facts[number]

    def _times(self, one: int | None, other: int | None) -> int:
        """Product of two values, where None stands for 1."""
        if one is None or other is None:
            given = other if one is None else one
            dtype = self._stage.body.dtype
            return self._builder.constant(1.0, dtype) if given is None else given
        return self._builder.apply("mul", one, other)

    def _expand(self, number: int) -> list[_Term]:
        """Terms whose sum is a value. Raises `_NoPiecesError` if there are none."""
        varies, late = self._find_facts(number)
        if not varies:
            return [(number, None)]
        builder, instruction = self._builder, self._builder.instructions[number]
        name = instruction.operation.name if isinstance(instruction, Apply) else ""
        given = operands(instruction)
        made: list[_Term] | None = None
        if name == "neg":
            made = [(self._negate(factor), kept) for factor, kept in self._expand(given[0])]
        elif name == "mul":
            made = self._expand_product(*given)
        elif name == "div" and not self._find_facts(given[1])[0]:
            made = [
                (builder.apply("div", self._times(factor, None), given[1]), kept)
                for factor, kept in self._expand(given[0])
            ]
        elif name in ("add", "sub") and late:
            made = self._expand_sum(name, *given)
        elif name == "exp" and late:
            made = [self._expand_power(given[0])]
        if made is None and not late:
            return [(None, number)]
        if made is None or len(made) > MOST_TERMS:
            raise _NoPiecesError
        return made

    def _negate(self, factor: int | None) -> int:
        return self._builder.apply("neg", self._times(factor, None))

    def _expand_product(self, left: int, right: int) -> list[_Term]:
        made: list[_Term] = []
        for factor, kept in self._expand(left):
            for other, its in self._expand(right):
                whole = None if factor is None and other is None else self._times(factor, other)
                both = None if kept is None and its is None else self._times(kept, its)
                made.append((whole, both))
        return self._merge(made)

    def _expand_sum(self, name: str, left: int, right: int) -> list[_Term]:
        """Sum or difference: of values of which one needs no reduction, and the other does not
        vary, around the centre of the first."""
        builder, sides = self._builder, (left, right)
        facts = [self._find_facts(side) for side in sides]
        for own, other in ((0, 1), (1, 0)):
            if facts[own] == (True, False) and not facts[other][0]:
                centre = self._find_centre(sides[own])
                near = builder.apply("sub", sides[own], centre)
                given = (centre, sides[other]) if own == 0 else (sides[other], centre)
                sign = self._negate(None) if name == "sub" and own == 1 else None
                return [(sign, near), (builder.apply(name, *given), None)]
        first, second = self._expand(left), self._expand(right)
        if name == "sub":
            second = [(self._negate(factor), kept) for factor, kept in second]
        return self._merge([*first, *second])

    def _merge(self, terms: Sequence[_Term]) -> list[_Term]:
        """Terms with unlike varying factors."""
        found: dict[int | None, int | None] = {}
        for factor, kept in terms:
            if kept not in found:
                found[kept] = factor
                continue
            both = self._times(found[kept], None), self._times(factor, None)
            found[kept] = self._builder.apply("add", *both)
        return [(factor, kept) for kept, factor in found.items()]

    def _find_centre(self, number: int) -> int:
        """Mean of a value over a piece, or its largest one if reductions need no means."""
        if not self._pieces.means:
            return self._find_largest(number)[0]
        builder, count = self._builder, self._sum(None)
        return builder.apply("div", self._reduce("sum", number), count)

    def _expand_power(self, number: int) -> _Term:
        """Exponential of a difference: that around the largest value of the piece, scaled."""
        builder, made = self._builder, self._builder.instructions[number]
        if not isinstance(made, Apply) or made.operation.name != "sub":
            raise _NoPiecesError
        left, right = made.operands
        if self._find_facts(left) != (True, False) or self._find_facts(right)[0]:
            raise _NoPiecesError
        finite, largest = self._find_largest(left)
        near = builder.apply("exp", builder.apply("sub", left, finite))
        return builder.apply("exp", builder.apply("sub", largest, right)), near

    def _find_largest(self, number: int) -> tuple[int, int]:
        """Largest value over a piece: with 0 in place of negative infinity, whose difference with
        itself is NaN; and as it is."""
        builder, dtype = self._builder, self._stage.body.dtype
        largest = self._reduce("max", number)
        none = builder.add(Constant(dtype, -math.inf))
        zero = builder.constant(0.0, dtype)
        return builder.select(builder.apply("eq", largest, none), zero, largest), largest
