"""Vectorizes adjacent outputs whose computation depends on their indices.

Indices are computed for the first lane of a vector. The other lanes must read at distances from it
that are equal in all vectors, and all other values that depend on an output's index, such as a
guard or a count, must be the same in all lanes. That is so inside an image, and not at its edges. A
reduction visits its points for all lanes together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from dmlc import ir
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, evaluate_positions, find_longest
from dmlc.ir.repeat import Cycle, join_repeats
from dmlc.loops.element import (
    Elements,
    Gather,
    Place,
    Read,
    Value,
    list_conditions,
    list_joins,
    list_needed,
    operands,
)
from dmlc.loops.permute import LANES, Pattern, Patterns
from dmlc.loops.phases import Phase
from dmlc.loops.space import Space
from dmlc.scalars import Array, DataType, find_same
from dmlc.sizes import known

_UNKNOWN = ""
"""Name of a tensor with unknown elements."""

_MOST_POINTS = 1 << 18
"""Largest number of points at which a value is evaluated."""

LaneOffsets: TypeAlias = tuple[int, ...]
"""Distance of each lane's index from that of the first lane."""


@dataclasses.dataclass(frozen=True, slots=True)
class Joint:
    """Vectorization of one phase, by the numbers of its values."""

    patterns: Mapping[int, Pattern]
    """For each read, the distance of each lane's element from that of the first lane."""
    slants: Mapping[int, LaneOffsets]
    """For each index value used by others, the distance of each lane from the first."""
    certain: frozenset[int]
    """Conditions that hold for all of the outputs."""
    fixed: frozenset[int]
    """Values other than indices that indices depend on: they are the same in all lanes."""
    masks: frozenset[int]
    """Conditions that differ from lane to lane."""


@dataclasses.dataclass(frozen=True, slots=True)
class Vectorization:
    """Outputs `first` to below `last` along an axis that are vectorized. If their number is no
    multiple of the vector length, the last vector overlaps the one before."""

    first: int
    last: int
    joints: tuple[Joint, ...]
    """Vectorization of each phase."""


_MOST_PLACES = 1 << 24
"""Longest axis whose indices are evaluated one by one, as that takes time and memory. Longer axes
must be periodic."""


def vectorize_reads(
    function: ir.Function, work: Sequence[tuple[Phase, int]], *, aligned: bool = False
) -> Vectorization | None:
    """Vectorized range of several phases over the same outputs, each given with the axis of these;
    None if it is less than half of them. With `aligned`, vectors start at multiples of their
    length, and do not overlap."""
    first, *others = work
    key = (id(function), aligned, *(number for phase, axis in work for number in (id(phase), axis)))
    if key not in first[0].vectorized:
        found = _vectorize_reads(function, work, aligned=aligned)
        # What the key names is kept, so that it stays the only one of that identity.
        first[0].vectorized[key] = found, function, others
    return first[0].vectorized[key][0]


def _vectorize_reads(
    function: ir.Function, work: Sequence[tuple[Phase, int]], *, aligned: bool
) -> Vectorization | None:
    size = min(_size(phase.space, axis) for phase, axis in work)
    if size <= LANES:
        return None
    tables = function.arrays()
    analyses = [_Analysis(*each, tables) for each in work]
    cut = _find_periodic(
        [analysis.list_repeats(analysis.axis) for analysis in analyses], size, LANES
    )
    if not all(analysis.find(cut) for analysis in analyses):
        return None
    again = not aligned and not function.in_place and not _overwrites_operand(work)
    best: Vectorization | None = None
    for start in range(1 if aligned else min(LANES, size - LANES + 1)):
        found = _find_range(analyses, start, size, cut, again)
        if found is None:
            continue
        if best is None or found.last - found.first > best.last - best.first:
            best = found
    return best if best is not None and 2 * (best.last - best.first) > size else None


def _overwrites_operand(work: Sequence[tuple[Phase, int]]) -> bool:
    """Whether a result may overwrite an operand, so that it may not be computed twice."""
    for phase, _ in work:
        elements = phase.elements
        results = {(view.strides, view.offset) for view, _ in elements.results}
        reads = [v.view for v in elements.values if isinstance(v, Read) and not v.view.local]
        if any((view.strides, view.offset) in results for view in reads):
            return True
    return False


@dataclasses.dataclass(frozen=True, slots=True)
class _Skipped:
    """Periodic indices along an axis that are not evaluated: `length` of them, after the first
    `start`."""

    start: int
    length: int

    def list_places(self, size: int, more: int = 0) -> Array:
        """Evaluated indices, with `more` further ones."""
        first = min(self.start + more, size)
        last = max(self.start + self.length, first)
        before, behind = np.arange(first), np.arange(last, size)
        return np.concatenate([before, behind]).astype(np.int64, copy=False)

    def find_place(self, number: int) -> int:
        """Index of an evaluated index's number."""
        return number + self.length if number >= self.start else number


def _find_periodic(
    repeats: Sequence[Sequence[Cycle] | None], size: int, lanes: int = 1
) -> _Skipped:
    """Part of an axis that need not be evaluated, as all values are periodic; empty if one is
    not."""
    found = [repeat for each in repeats for repeat in each or ()]
    first, last, period = join_repeats(found, size, lanes)
    start = first + 2 * period
    length = (last - 2 * period - lanes - start) // period * period
    return _Skipped(start, length) if length > 0 and None not in repeats else _Skipped(size, 0)


def _make_stage(elements: Elements, space: Space) -> tuple[ir.Stage, tuple[int, ...]]:
    """Values of a kernel as those of a stage over its iteration space, and their numbers there. A
    tensor is read as one row of elements."""
    builder, numbers = BodyBuilder(), list[int]()
    for value in elements.values:
        if not isinstance(value, Read | Place | Gather):
            given = tuple(numbers[o] for o in operands(value))
            numbers.append(builder.add(ir.with_operands(value, given)))
            continue
        place = builder.constant(value.view.offset)
        for axis, step in enumerate(known(value.view.strides)):
            if step:
                moved = builder.apply("mul", builder.add(ir.Index(axis)), builder.constant(step))
                place = builder.apply("add", place, moved)
        if isinstance(value, Gather):
            terms = tuple(numbers[term] for term, _ in value.terms)
            place = builder.add(ir.Load(_UNKNOWN, (place, *terms), value.dtype))
        elif isinstance(value, Read) or value.dtype is not DataType.INDEX:
            tensor = value.view.tensor if isinstance(value, Read) else _UNKNOWN
            place = builder.add(ir.Load(tensor, (place,), value.dtype))
        numbers.append(place)
    domain = tuple(size if isinstance(size, int) else 1 for size in space.extents)
    body = ir.Body(tuple(builder.instructions), 0)
    return ir.Stage("", DataType.BOOL, domain, body), tuple(numbers)


def _find_range(
    analyses: Sequence[_Analysis], start: int, size: int, cut: _Skipped, again: bool
) -> Vectorization | None:
    """Range of outputs to vectorize if the first vector starts `start` elements after an aligned
    one."""
    size -= cut.length
    middle = start + (size - LANES - start) // LANES // 2 * LANES
    good = np.ones(size - LANES + 1, np.bool_)
    chosen = [analysis.choose(middle, good) for analysis in analyses]
    first, last = (start + LANES * n for n in find_longest(good[start::LANES]))
    if first == last or None in chosen:
        return None
    more = np.flatnonzero(good[last - LANES : last])
    last += int(more[-1]) if again else 0
    first, last = cut.find_place(first), cut.find_place(last - LANES) + LANES
    joints = (
        Joint(*each, analysis.list_certain(first, last), analysis.fixed, analysis.masks)
        for analysis, each in zip(analyses, chosen, strict=True)
        if each is not None
    )
    return Vectorization(first, last, tuple(joints))


def _size(space: Space, axis: int) -> int:
    size = space.extents[axis]
    return size if isinstance(size, int) else 0


@dataclasses.dataclass(slots=True)
class _ReadOffsets:
    """Distances between the lanes of a read."""

    dtype: DataType
    lanes: Array
    """Distance of each lane from the first, for a vector that starts at each output."""
    starts: Array
    """Largest index that the first lane reads along the axis, at any point."""
    end: int
    """End of the elements that are read at all."""


class _Analysis:
    """Analysis of one phase: of the vectors that start at each of its outputs along an axis."""

    def __init__(self, phase: Phase, axis: int, tables: Mapping[str, Array]) -> None:
        self._elements = elements = phase.elements
        self._tables = {name: table.ravel() for name, table in tables.items()}
        self._space = phase.space
        self.axis = axis
        self._stage, self._numbers = _make_stage(elements, phase.space)
        self._facts = IndexFacts(self._stage, self._tables)
        self._moves = [ir.Index(axis) in self._facts.dependencies[n] for n in self._numbers]
        """Whether each value depends on the axis."""
        self.fixed = self._find_fixed()
        self.masks: frozenset[int] = frozenset()
        """Conditions that differ from lane to lane."""
        self._read_offsets: dict[int, _ReadOffsets] = {}
        self._index_offsets: dict[int, Array] = {}
        """Distances of each lane from the first, for a vector that starts at each output, of the
        index values that others use."""

    def list_repeats(self, axis: int) -> list[Cycle] | None:
        """Periodicities of all relevant values along an axis; None if one is unknown."""
        found: list[Cycle] = []
        conditions = list_conditions(self._elements)
        for number, value in enumerate(self._elements.values):
            whole = isinstance(value, Read) and value.dtype.is_integer
            matters = whole or number in conditions or number in self.fixed
            if self._is_known(number) and (matters or value.dtype is DataType.INDEX):
                repeat = self._facts.repeat(self._numbers[number], ir.Index(axis))
                if repeat is None:
                    return None
                found.append(repeat)
        return found

    def _is_known(self, number: int) -> bool:
        """Whether a value is index-only, along axes of known sizes."""
        if not self._facts.known[self._numbers[number]]:
            return False
        over = self._facts.dependencies[self._numbers[number]]
        return all(isinstance(self._space.extents[index.axis], int) for index in over)

    def _evaluate(self, cut: _Skipped) -> bool:
        """Evaluates index-only values at all points where they may differ; returns whether these
        are few enough."""
        self._skipped, self._places = cut, dict[ir.Index, Array]()
        for axis, size in enumerate(self._stage.extents):
            if isinstance(size, int):
                own = cut if axis == self.axis else _find_periodic([self.list_repeats(axis)], size)
                if size - own.length > _MOST_PLACES:
                    return False
                more = LANES - 1 if axis == self.axis and cut.length else 0
                self._places[ir.Index(axis)] = own.list_places(size, more)
        self._good = np.ones(_size(self._space, self.axis) - cut.length - LANES + 1, np.bool_)
        """Whether a vector that starts at each output satisfies all requirements so far."""
        facts = IndexFacts(self._stage, self._tables, self._places)
        wanted = [
            number
            for number in range(len(self._numbers))
            if self._is_known(number)
            and facts.count_points(facts.dependencies[self._numbers[number]]) <= _MOST_POINTS
        ]
        found = evaluate_positions(
            self._stage,
            [self._numbers[n] for n in wanted],
            self._stage.indices,
            self._tables,
            self._places,
        )
        self._known: list[Array | None] = [None] * len(self._numbers)
        """Index-only values, with an axis for each dimension, of size 1 where they do not vary."""
        for number, values in zip(wanted, found, strict=True):
            self._known[number] = values
        return True

    def _find_fixed(self) -> frozenset[int]:
        """Values other than indices that indices depend on and that vary along the axis."""
        values = self._elements.values
        found: set[int] = set()
        for number in range(len(values) - 1, -1, -1):
            position = values[number].dtype is DataType.INDEX and self._is_known(number)
            if position or number in found:
                parts = (o for o in operands(values[number]) if self._moves[o])
                found.update(o for o in parts if values[o].dtype is not DataType.INDEX)
        return frozenset(found)

    def _reads_along(self, number: int) -> bool:
        """Whether lanes load elements of their own for a value, even if these are all the same
        element."""
        values = self._elements.values
        read = (values[n] for n in list_needed(self._elements, number))
        return any(v.view.strides[self.axis] for v in read if isinstance(v, Read | Gather))

    def find(self, cut: _Skipped) -> bool:
        """Analyses the phase, without the indices in `cut`; returns whether any outputs may be
        vectorized."""
        if not self._evaluate(cut):
            return False
        elements, axis = self._elements, self.axis
        if any(f.dtype is DataType.BOOL for f in elements.reductions):
            return False
        if len({reduction.guard for reduction in elements.reductions}) > 1:
            return False
        joins, conditions = list_joins(elements), list_conditions(elements)
        if any(view.strides[axis] != 1 for view, _ in elements.results):
            return False
        if any(
            self._known[c] is None if self._moves[c] else self._reads_along(c) for c in conditions
        ):
            return False
        moving = [c for c in conditions if self._moves[c]]
        self.masks = frozenset(c for c in moving if not self._is_uniform(c))
        common = [c for c in moving if c not in self.masks]
        if self._shares_lanes(common) or self.masks & self.fixed:
            return False
        valid, tested = self._join(moving), self._join(common)
        gathers = (v for v in elements.values if isinstance(v, Gather))
        accumulators = frozenset(term for gather in gathers for term, _ in gather.terms)
        for number, value in enumerate(elements.values):
            if not self._moves[number] or number in joins:
                continue
            known = self._known[number]
            if known is not None and isinstance(value, Read) and value.dtype.is_integer:
                # A count or index from a table must be the same for all lanes.
                self._demand_uniform(known)
                none = np.zeros((len(self._good), LANES), np.int64)
                self._read_offsets[number] = _ReadOffsets(value.dtype, none, none[:, 0], 1)
            elif isinstance(value, Read | Gather):
                if not value.view.local and not self._record_read(number, value, valid, tested):
                    return False
            elif known is None:
                if isinstance(value, Place) or number in accumulators:
                    return False  # The number of a point, or an unknown index.
                self._record_index_offsets(value)
            elif value.dtype is not DataType.INDEX:
                if number in common or number in self.fixed:
                    self._demand_uniform(known)
                else:
                    self._record_index_offsets(value)
        return bool(self._good.any())

    def _record_index_offsets(self, value: Value) -> None:
        """Records the lane distances of indices that a value uses, and excludes the vectors in
        which they differ from point to point."""
        for number in operands(value):
            known = self._known[number]
            position = self._elements.values[number].dtype is DataType.INDEX
            if known is None or not position or not self._moves[number]:
                continue
            self._index_offsets[number] = self._measure_lanes(known)

    def _is_uniform(self, condition: int) -> bool:
        """Whether a condition is the same in all lanes, away from the edges."""
        known = self._known[condition]
        if known is None:
            return True
        lanes = self._list_lanes(known)
        inside = lanes[:, lanes.shape[1] // 2 :][:, :LANES]
        return bool((inside == inside[..., :1]).all())

    def _shares_lanes(self, tested: Sequence[int]) -> bool:
        """Whether conditions that are tested once for all lanes share values with others that are
        computed lane by lane. (Indices may have both forms, and table entries have one.)"""
        elements, values = self._elements, self._elements.values
        roots = [*self.masks, *(n for f in elements.reductions for n in f.values)]
        roots += [number for _, number in elements.results]
        others = frozenset[int]().union(*(list_needed(elements, root) for root in roots))
        parts = frozenset[int]().union(*(list_needed(elements, c) for c in tested))
        return any(
            self._moves[n]
            and values[n].dtype is not DataType.INDEX
            and not isinstance(values[n], Read)
            for n in (others & parts) - {*tested}
        )

    def _demand_uniform(self, known: Array) -> None:
        """Excludes the vectors in which a value differs between lanes."""
        lanes = self._list_lanes(known)
        self._good &= find_same(lanes, lanes[..., :1]).all(axis=-1).all(axis=0)

    def choose(
        self, middle: int, good: Array
    ) -> tuple[dict[int, Pattern], dict[int, LaneOffsets]] | None:
        """Pattern of each read in the vector that starts at `middle`, and lane distances of its
        indices. Other vectors that differ are cleared in `good`. None if a read takes too many
        loads."""
        good &= self._good
        slants: dict[int, LaneOffsets] = {}
        for number, apart in self._index_offsets.items():
            lanes = apart[middle]
            good &= (apart == lanes).all(axis=-1)
            if lanes.any():
                slants[number] = tuple(int(n) for n in lanes)
        patterns: dict[int, Pattern] = {}
        for number, apart in self._read_offsets.items():
            lanes = apart.lanes[middle]
            pattern: Pattern = tuple(int(n) for n in lanes)
            good &= (apart.lanes == lanes).all(axis=-1)
            patterns[number] = pattern
            if pattern == tuple(range(LANES)) or not any(pattern):
                if self.masks:
                    good &= apart.starts + pattern[-1] < apart.end
                continue
            loads = Patterns(0, {"": pattern})
            if not loads.is_worth_it or apart.dtype.bytes != 4:
                return None
            # Elements between two that are read are in bounds too.
            good &= apart.starts + loads.reach[1] <= apart.end
        return patterns, slants

    def list_certain(self, first: int, last: int) -> frozenset[int]:
        """Conditions that hold for outputs `first` to below `last` at all points."""
        found: list[int] = []
        for condition in list_conditions(self._elements):
            known = self._known[condition]
            if known is not None and self._moves[condition]:
                places = self._places[ir.Index(self.axis)]
                within = (places >= first) & (places < last)
                holds = np.moveaxis(known, self.axis, -1)[..., within]
                found += [condition] if bool(holds.all()) else []
        return frozenset(found)

    def _join(self, conditions: Sequence[int]) -> Array:
        """Conjunction of all conditions, index by index."""
        holds = np.ones((1,) * len(self._space.extents), np.bool_)
        for condition in conditions:
            known = self._known[condition]
            if known is not None:
                holds = holds & known
        return holds

    def _record_read(self, number: int, value: Read | Gather, valid: Array, tested: Array) -> bool:
        """Records the lane distances of a read; returns whether they are equal at all points. Reads
        at `valid` points are in bounds; all lanes read where the conditions `tested` hold, even at
        invalid points."""
        shape = [-1 if axis == self.axis else 1 for axis in range(len(self._space.extents))]
        step = value.view.strides[self.axis]
        places = step * self._places[ir.Index(self.axis)].reshape(shape)
        for term, stride in value.terms if isinstance(value, Gather) else ():
            if self._moves[term]:
                known = self._known[term]
                if known is None:
                    return False
                places = places + stride * known
        if math.prod(np.broadcast_shapes(places.shape, valid.shape)) > _MOST_POINTS:
            return False
        apart = self._measure_lanes(places)
        reached, taken, read = np.broadcast_arrays(places, valid, tested)
        if not taken.any():
            return False
        lowest = int(reached.min())
        end = int(reached[taken].max()) + 1
        reads = self._list_lanes(read).any(axis=-1)
        starts = np.where(reads, self._list_lanes(reached)[..., 0], lowest)
        if self.masks:
            before = self._list_lanes(reached).min(axis=-1) < int(reached[taken].min())
            self._good &= ~(reads & before).any(axis=0)
        self._read_offsets[number] = _ReadOffsets(value.dtype, apart, starts.max(axis=0), end)
        return True

    def _measure_lanes(self, known: Array) -> Array:
        """Lane distances of a number. Vectors in which they differ from point to point are
        excluded."""
        lanes = self._list_lanes(known)
        apart = lanes - lanes[..., :1]
        self._good &= (apart == apart[0]).all(axis=-1).all(axis=0)
        return apart[0]

    def _list_lanes(self, known: Array) -> Array:
        """Values of all lanes, for a vector that starts at each output."""
        moved = np.moveaxis(known, self.axis, -1)
        every = np.lib.stride_tricks.sliding_window_view(moved, LANES, axis=-1)
        if self._skipped.length:
            # These vectors would start before the part cut out, and end after it.
            torn = slice(self._skipped.start, self._skipped.start + LANES - 1)
            every = np.delete(every, torn, axis=-2)
        return every.reshape(-1, *every.shape[-2:])
