"""Phases of a kernel with reductions: what each reduces, stores and keeps in registers.

A phase is a pass of the group as scalar work (`Elements`) over an iteration space (`Space`). A
reducing phase may also store each of its points. After it comes a phase over the parallel points
alone, which stores the reductions that need memory, and values derived from them point by point.

Reductions over the parallel dimensions have a phase of their own, which uses the results of others;
a last phase stores their partial results.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Sequence
from typing import Any

from dmlc import ir
from dmlc.ir.index import read_comparison
from dmlc.kernel.target import Limits
from dmlc.loops.access import find_end
from dmlc.loops.accumulate import Reduction
from dmlc.loops.arrange import arrange
from dmlc.loops.dims import SHORT_VECTOR
from dmlc.loops.element import (
    Collector,
    Elements,
    Gather,
    Place,
    Read,
    View,
    find_moving,
    list_conditions,
    reads_elements,
)
from dmlc.loops.space import Piece, Space
from dmlc.scalars import OPERATIONS, DataType
from dmlc.sizes import Measure, Taken, estimate, is_multiple, known, measure, pack_strides
from dmlc.transform.passes import Member, Pass

VECTOR = 4
"""Lanes of the vectors in languages with a fixed vector length."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scatter:
    """Target of a phase's points: each is combined with an element relative to `view`. Of the
    phase's two local results, the first is the element's index, negative if the point belongs to
    none; the second is the point's value."""

    view: View
    combiner: str


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    elements: Elements
    is_across: bool = False
    """Whether it reduces over parallel dimensions, and keeps the inner ones."""
    scatter: Scatter | None = None
    _moving: dict[int, tuple[bool, ...]] = dataclasses.field(
        default_factory=dict[int, tuple[bool, ...]], init=False, compare=False, repr=False
    )
    """Cache of `find_moving`."""
    vectorized: dict[tuple[int, ...], tuple[Any, ...]] = dataclasses.field(
        default_factory=dict[tuple[int, ...], tuple[Any, ...]],
        init=False,
        compare=False,
        repr=False,
    )
    """Cache of `vectorize.vectorize_reads`, for work that begins with it: rules ask before the
    primitive does."""

    @property
    def space(self) -> Space:
        """The dimensions of its points."""
        return self.elements.space

    @property
    def is_open(self) -> bool:
        """Whether a size or a stride is known at run time only."""
        return self.elements.is_open

    @property
    def accumulators(self) -> tuple[Reduction, ...]:
        """Its reductions."""
        return self.elements.reductions

    def settle(self, taken: Taken) -> Phase:
        """Phase with numbers for open sizes (see `Space.settle`), as an assumption for choosing
        schedules."""
        if not self.is_open:
            return self
        return dataclasses.replace(
            self,
            elements=self.elements.over(
                self.space.settle(taken), lambda steps: (estimate(step, taken) for step in steps)
            ),
        )

    @property
    def has_positions(self) -> bool:
        """Whether its values depend on indices."""
        return self.elements.has_positions

    @property
    def reduces(self) -> bool:
        """Whether its points are combined with accumulators or elements."""
        return bool(self.accumulators) or self.scatter is not None

    @property
    def counts_up(self) -> bool:
        """Whether the points of an output, in the order of the axes, have increasing numbers for
        positional reductions. Partial results may not."""
        for place in (f.place for f in self.elements.reductions if f.place is not None):
            value, beyond = self.elements.values[place], measure(0)
            if not isinstance(value, Place):
                return False
            for axis in reversed(self.space.inner):
                step, size = value.view.strides[axis], self.space.extents[axis]
                # A step must exceed the largest number that inner axes reach.
                ahead = step - beyond
                if size != 1 and not (isinstance(ahead, int) and ahead > 0):
                    return False
                beyond = beyond + step * (size - 1)
        return True

    @property
    def has_computed_reads(self) -> bool:
        """Whether some loads are at computed indices."""
        return any(isinstance(value, Gather) for value in self.elements.values)

    @property
    def tests_guard(self) -> bool:
        """Whether the guard of its reductions is tested before the values of a point are computed,
        as it may protect loads. Other guards select the combined value."""
        guarded = any(f.guard is not None for f in self.elements.reductions)
        return self.has_positions and guarded and not self.has_several_guards

    @property
    def has_several_guards(self) -> bool:
        """Whether its reductions have different guards, so that all points are visited."""
        several = len({f.guard for f in self.elements.reductions}) > 1
        return several and not self.elements.has_guarded_reads

    @property
    def points(self) -> int:
        """Average number of points that an output reduces. Segments with ends from tensors are
        assumed to be disjoint."""
        count = self.space.inner_count
        for axis, ends in find_segments(self).items():
            moving = (self.find_moving(each) for each in self.space.parallel)
            sizes = zip(self.space.parallel_sizes, moving, strict=True)
            segments = math.prod(n for n, moves in sizes if any(moves[end] for end in ends))
            size = self.space.sizes[axis]
            count = count // max(1, size) * -(-size // max(1, segments))
        return count

    def count_steps(self, view: View) -> int | None:
        """Number of elements that a view visits, ignoring dimensions along which it is constant;
        None if known at run time only."""
        sizes = [n for n, step in zip(self.space.extents, view.strides, strict=True) if step]
        numbers = [size for size in sizes if isinstance(size, int)]
        return math.prod(numbers) if len(numbers) == len(sizes) else None

    def find_moving(self, axis: int) -> tuple[bool, ...]:
        """Whether each value varies along an axis."""
        if axis not in self._moving:
            self._moving[axis] = find_moving(self.elements, axis)
        return self._moving[axis]

    def choose_lanes(self, axis: int, long: int, lanes: int) -> int:
        """Vector length for `long` points along an axis, at most `lanes`."""
        if not self.lies_together(axis):
            return 1
        return next((width for width in (lanes, SHORT_VECTOR) if width <= long), 1)

    def lies_together(self, axis: int) -> bool:
        """Whether all operands and results are contiguous along an axis, or constant, so that
        vectors along it are possible."""
        elements = self.elements
        if elements.has_guarded_reads:
            return False
        if any(view.strides[axis] not in (0, 1) for view in elements.views() if not view.local):
            return False
        if not self.has_computed_reads:
            return True
        moving = self.find_moving(axis)
        gathers = (value for value in elements.values if isinstance(value, Gather))
        return not any(moving[number] for gather in gathers for number, _ in gather.terms)

    def begins_evenly(self, limits: Limits, axis: int | None = None) -> bool:
        """Whether vectors of `VECTOR` neighbours along an axis, or the last one, are aligned in all
        operands and results, and contiguous or constant."""
        sizes = self.space.extents
        along, inner = max(0, len(sizes) - 1) if axis is None else axis, self.space.inner
        if limits.vector_lanes == 1 or (axis is None and inner and inner[-1] != along):
            return False
        if not self.lies_together(along):
            return False
        # With one run of elements per group, the remainder is scalar.
        alone = axis is None and not inner and len(sizes) == 1
        piece = self.space.pieces.get(along)
        lengths = sizes[along : along + 1] if piece is None else (piece.length, piece.size)
        if not alone and not all(is_multiple(each, VECTOR) for each in lengths):
            return False
        steps: dict[View, list[Measure]] = {
            view: [view.offset, *view.strides[:along], *view.strides[along + 1 :]]
            for view in self.elements.buffers()
        }
        for value in self.elements.values:
            if isinstance(value, Gather):
                steps[value.view] += [step for _, step in value.terms]
        for view, own in steps.items():
            if view.dtype.bytes > 4 or view.dtype in limits.word_types:
                return False
            if view.strides[along] and not all(is_multiple(step, VECTOR) for step in own):
                return False
        return any(view.strides[along] for view in steps)

    @property
    def is_parallel(self) -> bool:
        """Whether it runs over the parallel points alone."""
        return not self.space.inner


def with_elements(phase: Phase, elements: Elements) -> Phase:
    """Phase with other work."""
    return Phase(elements, phase.is_across and bool(elements.reductions))


def find_segments(phase: Phase) -> dict[int, list[int]]:
    """Inner axes along which an output reduces a segment with ends loaded from tensors, each with
    the values of the ends."""
    elements, space = phase.elements, phase.space
    guards = {reduction.guard for reduction in elements.reductions}
    if len(guards) != 1 or None in guards:
        return {}
    moving = {axis: phase.find_moving(axis) for axis in space.inner}
    starts: dict[int, list[int]] = {}
    stops: dict[int, list[int]] = {}
    for condition in list_conditions(elements):
        for name, place, end in read_comparison(elements.values, condition):
            axes = [axis for axis in space.inner if moving[axis][place]]
            stays = not any(moving[axis][end] for axis in space.inner)
            is_place = isinstance(elements.values[place], Place) and len(axes) == 1
            is_read = stays and reads_elements(elements, end)
            if is_place and is_read and name not in ("eq", "ne"):
                ends = starts if name in ("ge", "gt") else stops
                ends.setdefault(axes[0], []).append(end)
    return {axis: [*starts[axis], *stops[axis]] for axis in starts if axis in stops}


def collect_phases(
    function: ir.Function,
    parallel: tuple[ir.Extent, ...],
    passes: Sequence[Pass],
    stored: Container[str],
    *,
    as_written: bool = False,
) -> tuple[Phase, ...]:
    """Phases of some passes. Stages of these in `stored` have memory. Points are in memory order,
    or in that of the formulas (`as_written`)."""
    tensors = function.tensors()
    local: dict[str, DataType] = {}
    made: list[Elements] = []
    pending: Collector | None = None
    parts: Elements | None = None

    for each in passes:
        if each.inner == () and not each.reduces:
            pending = pending or Collector(function, parallel, local, len(parallel))
            for member in each.members:
                pending.add_stage(member.stage, dict(member.axes))
            continue
        if pending is not None:
            made.append(pending.elements())
            pending = None
        domain = (*parallel, *each.inner)
        pieces = _find_pieces(function, each)
        collector = Collector(function, domain, local, len(parallel), pieces=pieces)
        elementwise, members = part_members(function, each)
        for member in elementwise:
            axes = dict(member.axes)
            collector.add_stage(member.stage, axes, leaves=member.stage in stored)
        for member in members if each.reduces else each.across:
            collector.add_reduction(member.stage, dict(member.axes))
        made.append(collector.elements())
        if not each.reduces:
            parts = parts or _store_across(made[-1], each.across)
            continue
        local = local | {m.stage: tensors[m.stage].dtype for m in members}
        stores = [m for m in members if m.stage in stored]
        if stores:
            pending = Collector(function, parallel, local, len(parallel))
            for member in stores:
                axes = {i: d for i, d in member.axes if d < len(parallel) and not i.reduced}
                pending.add_copy(member.stage, axes)
    if pending is not None:
        made.append(pending.elements())
    if parts is not None:
        made.append(parts)
    arranged = list(arrange(made, len(parallel), as_written))
    if parts is not None and not as_written:
        # It does not vary along reduced dimensions, so that these become innermost.
        space = arranged[-1].space
        arranged[-1] = arranged[-1].select((*space.parallel, *space.inner))
    across = {m.stage for each in passes for m in each.across}
    return tuple(
        Phase(elements, any(each.name in across for each in elements.reductions))
        for elements in arranged
    )


def _find_pieces(function: ir.Function, each: Pass) -> tuple[tuple[int, Piece], ...]:
    """Dimension of a pass that is cut into pieces, as the guards of all its stages say."""
    found: set[tuple[int, Piece]] = set()
    for member in (*each.members, *each.across):
        stage, axes = function.stage(member.stage), dict(member.axes)
        end = None if stage is None or stage.reduction is None else find_end(stage)
        if end is None or end.piece not in axes or end.point not in axes:
            return ()
        found.add((axes[end.point], Piece(axes[end.piece], end.length, end.size)))
    return tuple(found) if len(found) == 1 else ()


def _store_across(elements: Elements, members: Sequence[Member]) -> Elements | None:
    """Work that stores the states of reductions over parallel dimensions, packed over the
    dimensions that they keep; None without such."""
    if not elements.reductions:
        return None
    kept = [dimension for index, dimension in members[0].axes if not index.reduced]
    space = elements.space
    sizes = known(space.extents[dimension] for dimension in kept)
    steps = dict(zip(kept, ir.packed_strides(sizes), strict=True))
    strides = tuple(steps.get(axis, 0) for axis in range(len(space.extents)))
    local = tuple(int(step > 0) for step in strides)
    values, results = _store_states(elements.reductions, strides, local)
    return Elements(dataclasses.replace(space, pieces={}, indices=()), values, results)


def part_members(function: ir.Function, reducing: Pass) -> tuple[list[Member], list[Member]]:
    """Element-wise stages of a reducing pass, and its reductions."""
    stages = {m: function.stage(m.stage) for m in reducing.members}
    reductions = [m for m, s in stages.items() if s is not None and s.reduction is not None]
    return [m for m in reducing.members if m not in reductions], reductions


def store_partials(divided: Phase) -> tuple[Phase, ...]:
    """Phases of a first kernel, which stores a partial result for each chunk of the points:
    `divided` is the phase with an inner axis cut into chunks."""
    space, sizes = divided.space, divided.space.outputs
    values, results = _store_states(divided.accumulators, pack_strides(sizes), (1,) * len(sizes))
    return divided, Phase(Elements(space.select(space.parallel), values, results))


def _store_states(
    accumulators: Sequence[Reduction], strides: tuple[Measure, ...], local: tuple[int, ...]
) -> tuple[tuple[Read, ...], tuple[tuple[View, int], ...]]:
    """Values of the components of some states, and the views that they are stored to; `local` has
    the strides that tell along which dimensions they vary."""
    values: list[Read] = []
    results: list[tuple[View, int]] = []
    for accumulator, views in zip(accumulators, _list_parts(accumulators, strides), strict=True):
        for number, (slot, view) in enumerate(zip(accumulator.slots, views, strict=True)):
            results.append((view, len(values)))
            at_hand = View(accumulator.slot_name(number), slot.dtype, local, local=True)
            values.append(Read(at_hand, slot.dtype))
    return tuple(values), tuple(results)


def combine_partials(phase: Phase, sizes: tuple[Measure, ...]) -> Phase:
    """Phase of a second kernel, which combines the partial results of the first: packed over their
    number and the kept dimensions, of these sizes."""
    values: list[ir.Constant | Read | ir.Apply] = []
    reductions: list[Reduction] = []
    parts = _list_parts(phase.accumulators, pack_strides(sizes))
    for each, views in zip(phase.accumulators, parts, strict=True):
        numbers: list[int] = []
        for view in views:
            numbers.append(len(values))
            values.append(Read(view, view.dtype))
        if each.dtype is DataType.BOOL:
            values.append(ir.Constant(DataType.INT32, 0))
            compared = (numbers[0], len(values) - 1)
            numbers[0] = len(values)
            values.append(ir.Apply(OPERATIONS["ne"], compared, DataType.BOOL))
        place = numbers[1] if each.record.positional else None
        made = dataclasses.replace(each, values=(numbers[0],), guard=None, place=place)
        reductions.append(made)
    whole = phase.space
    names = ("r0", *(whole.indices[axis] for axis in whole.parallel)) if whole.indices else ()
    space = Space(sizes, tuple(range(1, len(sizes))), indices=names)
    return Phase(Elements(space, tuple(values), (), tuple(reductions)))


def _list_parts(
    accumulators: Sequence[Reduction], strides: tuple[Measure, ...]
) -> list[tuple[View, ...]]:
    """Buffers between two kernels: for each reduction, those of its state's components."""
    return [
        tuple(View(f"{g.name}_parts{s.suffix}", s.dtype, strides) for s in g.slots)
        for g in accumulators
    ]
