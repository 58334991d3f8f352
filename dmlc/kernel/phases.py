"""The phases of a kernel with reductions: what each folds, stores and has at hand.

A phase is a pass of the group as scalar work (`Elements`) over a `Space`. One that folds may store
as well, each of its points once. Right after a pass that folds comes a phase over the kept points
alone, which stores the reductions that need memory and whatever else derives from them point by
point.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence

from dmlc import ir
from dmlc.kernel.accumulate import Slot, is_positional, list_slots
from dmlc.kernel.element import Collector, Elements, Fold, Gather, Place, Read, View, find_moving
from dmlc.kernel.space import Space, arrange, keep_all
from dmlc.scalars import OPERATIONS, DataType
from dmlc.transform.passes import Member, Pass


@dataclasses.dataclass(frozen=True, slots=True)
class Gathered:
    """A fold of a phase, and the reductions it is the value of: each with its type."""

    fold: Fold
    slots: tuple[Slot, ...]
    stages: tuple[tuple[str, DataType], ...]

    @property
    def name(self) -> str:
        """What it is called after."""
        return self.stages[0][0]

    def slot_name(self, number: int) -> str:
        """What a part of its state is called where it is at hand: no tensor has such a name."""
        return f"{self.name}{self.slots[number].suffix}#state"


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    elements: Elements
    space: Space
    gathered: tuple[Gathered, ...] = ()
    is_hoisted: bool = False
    """Whether its values are those of another phase that stand still along inner axes."""

    @property
    def has_positions(self) -> bool:
        """Whether its values depend on where a point is."""
        return self.elements.has_positions

    @property
    def has_computed_reads(self) -> bool:
        """Whether some reads go where values say, not evenly from point to point."""
        return any(isinstance(value, Gather) for value in self.elements.values)

    @property
    def tests_guard(self) -> bool:
        """Whether a guard of its folds is tested before the values of a point are computed, which
        may be reads that it protects. Other guards choose what a point adds."""
        return self.has_positions and any(f.guard is not None for f in self.elements.folds)

    def find_moving(self, axis: int) -> tuple[bool, ...]:
        """For each value whether it changes along an axis."""
        return find_moving(self.elements, self.space.strides, axis)

    def lies_together(self, axis: int) -> bool:
        """Whether what is read and stored for neighbours along an axis lies side by side, or is the
        same, wherever they are: then they can be computed in vectors."""
        elements, strides = self.elements, self.space.strides
        if elements.has_guarded_reads:
            return False
        if any(strides[view][axis] not in (0, 1) for view in elements.views() if not view.near):
            return False
        if not self.has_computed_reads:
            return True
        moving = self.find_moving(axis)
        gathers = (value for value in elements.values if isinstance(value, Gather))
        return not any(moving[number] for gather in gathers for number, _ in gather.terms)

    @property
    def is_kept(self) -> bool:
        """Whether it runs over the kept points alone."""
        return not self.space.inner


def collect_phases(
    function: ir.Function,
    kept: tuple[int, ...],
    passes: Sequence[Pass],
    stored: Container[str],
    as_written: bool = False,
) -> tuple[Phase, ...]:
    """The phases of some passes. Of what these fold, and compute on the way, that in `stored` has
    memory. Their points lie in memory's order, or `as_written`."""
    tensors = function.tensors()
    near: dict[str, DataType] = {}
    made: list[tuple[Elements, tuple[Gathered, ...]]] = []
    pending: Collector | None = None
    for each in passes:
        if each.inner == () and not each.reduces:
            pending = pending or Collector(function, kept, near, len(kept))
            for member in each.members:
                pending.add_stage(member.stage, dict(member.axes))
            continue
        if pending is not None:
            made.append((pending.elements(), ()))
            pending = None
        collector = Collector(function, (*kept, *each.inner), near, len(kept))
        if not each.reduces:
            for member in each.members:
                collector.add_stage(member.stage, dict(member.axes))
            made.append((collector.elements(), ()))
            continue
        on_way, members = part_members(function, each)
        for member in on_way:
            axes = dict(member.axes)
            collector.add_stage(member.stage, axes, leaves=member.stage in stored)
        numbers = [collector.add_fold(m.stage, dict(m.axes)) for m in members]
        elements = collector.elements()
        folds = [
            (m.stage, tensors[m.stage].dtype, number)
            for m, number in zip(members, numbers, strict=True)
        ]
        made.append((elements, make_gathered(elements, folds)))
        near = near | {m.stage: tensors[m.stage].dtype for m in members}
        stores = [m for m in members if m.stage in stored]
        if stores:
            pending = Collector(function, kept, near, len(kept))
            for member in stores:
                axes = {i: d for i, d in member.axes if d < len(kept) and not i.reduced}
                pending.add_copy(member.stage, axes)
    if pending is not None:
        made.append((pending.elements(), ()))
    spaces = arrange([elements for elements, _ in made], len(kept), as_written)
    return tuple(
        Phase(elements, space, gathered)
        for (elements, gathered), space in zip(made, spaces, strict=True)
    )


def part_members(function: ir.Function, folds: Pass) -> tuple[list[Member], list[Member]]:
    """What a pass that folds computes on the way, and its reductions."""
    stages = {m: function.stage(m.stage) for m in folds.members}
    reductions = [m for m, s in stages.items() if s is not None and s.reduction is not None]
    return [m for m in folds.members if m not in reductions], reductions


def make_gathered(
    elements: Elements, stages: Sequence[tuple[str, DataType, int]]
) -> tuple[Gathered, ...]:
    """The folds of some scalar work; `stages` are reductions, each with its type and the number of
    its fold."""
    return tuple(
        Gathered(
            fold,
            list_slots(fold, _place_type(elements, fold)),
            tuple((name, dtype) for name, dtype, found in stages if found == number),
        )
        for number, fold in enumerate(elements.folds)
    )


def _place_type(elements: Elements, fold: Fold) -> DataType | None:
    if fold.place is None:
        return None
    place = elements.values[fold.place]
    if isinstance(place, Place | Read):
        return place.dtype
    return None


def store_parts(phase: Phase, folded: Space) -> tuple[Phase, ...]:
    """The phases of a first kernel, which stores a state for each piece of the points: `folded` is
    the phase's space with an inner axis cut into pieces."""
    sizes = folded.kept_sizes
    near = tuple(1 for _ in sizes)
    values: list[Read] = []
    results: list[tuple[View, int]] = []
    for gathered, views in zip(phase.gathered, _list_parts(phase, sizes), strict=True):
        for number, (slot, view) in enumerate(zip(gathered.slots, views, strict=True)):
            results.append((view, len(values)))
            at_hand = View(gathered.slot_name(number), slot.dtype, near, near=True)
            values.append(Read(at_hand, slot.dtype))
    store = Elements(sizes, tuple(values), tuple(results))
    return Phase(phase.elements, folded, phase.gathered), Phase(store, keep_all(store))


def fold_parts(phase: Phase, folded: Space) -> Phase:
    """The phase of a second kernel, which folds the states that the first has stored."""
    sizes = folded.kept_sizes
    values: list[ir.Constant | Read | ir.Apply] = []
    gathered: list[Gathered] = []
    for each, views in zip(phase.gathered, _list_parts(phase, sizes), strict=True):
        numbers: list[int] = []
        for view in views:
            numbers.append(len(values))
            values.append(Read(view, view.dtype))
        if each.fold.dtype is DataType.BOOL:
            values.append(ir.Constant(DataType.INT32, 0))
            compared = (numbers[0], len(values) - 1)
            numbers[0] = len(values)
            values.append(ir.Apply(OPERATIONS["ne"], compared, DataType.BOOL))
        place = numbers[1] if is_positional(each.fold) else None
        fold = dataclasses.replace(each.fold, value=numbers[0], guard=None, place=place)
        gathered.append(Gathered(fold, each.slots, each.stages))
    elements = Elements(sizes, tuple(values), (), tuple(g.fold for g in gathered))
    space = dataclasses.replace(keep_all(elements), kept=tuple(range(1, len(sizes))))
    return Phase(elements, space, tuple(gathered))


def _list_parts(phase: Phase, sizes: tuple[int, ...]) -> list[tuple[View, ...]]:
    """The buffers between two kernels: for each fold, those of its state's parts. They are packed
    over the number of the piece and the kept dimensions."""
    strides = ir.packed_strides(sizes)
    return [
        tuple(View(f"{g.name}_parts{s.suffix}", s.dtype, strides) for s in g.slots)
        for g in phase.gathered
    ]
