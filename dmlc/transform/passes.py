"""Which stages one kernel can compute in passes over the same outer points.

A group with reductions *keeps* some dimensions: each work item, or group of them, owns some points
of these and walks *inner* dimensions there, pass after pass. A reduction's domain is what it keeps,
and its axes are inner; an element-wise stage that reads it at its own point runs over both, after
it. So a sum, the values derived from it and the pass that applies them are one kernel, which needs
no memory for the sum. A pass that folds may store element-wise stages over its own points on the
way, be they what it folds or something else (`store_on_way`).

`fuse` decides which stages to try; how a pass is walked is the kernels' business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.ir import Index, Load, Stage
from dmlc.transform.store_on_way import Streams

MOST_REDUCTIONS = 8
"""Reductions in one group: each takes registers, and memory shared in a work group."""


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A stage in a pass. Its axes longer than 1, and the dimension of the pass each is: first the
    group's kept dimensions, then the pass's inner ones."""

    stage: str
    axes: tuple[tuple[Index, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """Stages over the same points: reductions, or element-wise stages none of which reads another.
    Where it `reduces`, element-wise stages may be among the reductions; these, and others of them,
    read one at the very point at hand alone. `inner` are sizes; empty for element-wise work over
    the kept dimensions alone."""

    members: tuple[Member, ...]
    inner: tuple[int, ...]
    reduces: bool


class Draft:
    """A group with reductions in the making."""

    def __init__(self, first: Stage, streams: Streams | None = None) -> None:
        self.kept = _long(first.domain)
        self._streams = streams
        self.stages: list[Stage] = []
        self._axes: dict[str, dict[Index, int]] = {}
        self._homes: dict[str, int] = {}
        self._passes: list[tuple[tuple[int, ...], bool, list[str]]] = []
        self._reads: list[set[str]] = []
        self._orders: list[tuple[int, ...] | None] = []
        """The dimensions of each pass from the outermost in, where all that it reads suits that."""
        self._whole: list[set[str]] = []
        """What each pass reads, or stores on its way, one element at every point."""
        self._storing: set[int] = set()
        """The passes that fold and store on their way."""
        axes = self._map_reduction(first)
        if axes is None:
            raise ValueError(f"{first.name} is no reduction of fixed sizes")
        self._take(first, axes, 0)

    @classmethod
    def start_on_way(
        cls, fold: Stage, stages: Sequence[Stage], streams: Streams
    ) -> tuple[Draft, str | None] | None:
        """A group that stores some element-wise stages while it folds a reduction of them, and why
        it had better not, if so; None where the reduction has other points, or reads these in
        another order than they lie in memory."""
        draft = cls(fold, streams)
        if not all(draft._join_on_way(stage, is_new=True) for stage in stages):
            return None
        if not draft._reads_at_hand(fold, draft._axes[fold.name], 0):
            return None
        draft.stages = [*stages, fold]
        order = draft._orders[0] or ()
        refusals = [streams.refuse(stage, order, len(draft.kept)) for stage in stages]
        return draft, next(filter(None, refusals), None)

    def passes(self) -> tuple[Pass, ...]:
        return tuple(
            Pass(tuple(Member(n, tuple(self._axes[n].items())) for n in names), inner, reduces)
            for inner, reduces, names in self._passes
        )

    def list_on_way(self) -> list[str]:
        """The element-wise stages in passes that fold."""
        return [
            s.name
            for s in self.stages
            if s.reduction is None and self._passes[self._homes[s.name]][1]
        ]

    def join(self, stage: Stage) -> bool:
        """Adds a stage, if the group can compute it beside or after what it has.

        The caller has seen to it that whatever else the stage reads is stored by then.
        """
        if any(isinstance(extent, str) or extent == 0 for extent in stage.domain):
            return False
        if stage.reduction is not None:
            return self._join_reduction(stage, stage.reduction.combiner)
        return self._join_applied(stage) or self._join_beside(stage) or self._join_on_way(stage)

    def _join_reduction(self, stage: Stage, combiner: str) -> bool:
        axes = self._map_reduction(stage)
        full = sum(s.reduction is not None for s in self.stages) >= MOST_REDUCTIONS
        if axes is None or full or _long(stage.domain) != self.kept:
            return False
        own = self._own_loads(stage)
        inner = self._inner(stage, axes)
        reads = {load.tensor for load in stage.body.loads()}
        for number, (sizes, reduces, _) in enumerate(self._passes):
            beside = reduces and sizes == inner and self._reads_at_hand(stage, axes, number)
            if beside and number in self._storing:
                beside = self._find_order(stage, axes) == self._orders[number]
            if beside and (own or reads & self._reads[number]):
                self._take(stage, axes, number)
                return True
        if not own or not self._reads_at_hand(stage, axes, len(self._passes)):
            return False
        self._take(stage, axes, len(self._passes))
        return True

    def _join_applied(self, stage: Stage) -> bool:
        """Takes an element-wise stage that reads reductions of the group."""
        own = self._own_loads(stage)
        maps = [self._map_load(stage, load) for load in own]
        if not maps or maps[0] is None or any(m != maps[0] for m in maps):
            return False
        axes = dict(maps[0])
        for axis, extent in enumerate(stage.domain):
            index = Index(axis)
            if extent != 1 and index not in axes:
                axes[index] = len(axes)
        earliest, inner = self._earliest(own), self._inner(stage, axes)
        for number, (sizes, reduces, _) in enumerate(self._passes):
            if not reduces and sizes == inner and number >= earliest:
                self._take(stage, axes, number)
                return True
        if not self._join_on_way(stage):
            self._take(stage, axes, len(self._passes))
        return True

    def _join_beside(self, stage: Stage) -> bool:
        """Takes an element-wise stage that reads nothing of the group, beside one over the very
        same domain."""
        if self._own_loads(stage):
            return False
        for other in self.stages:
            number = self._homes[other.name]
            applies = other.reduction is None and not self._passes[number][1]
            if applies and other.domain == stage.domain:
                if not self._passes[number][0]:
                    continue  # A pass over the kept points is short: nothing is won.
                self._take(stage, dict(self._axes[other.name]), number)
                return True
        return False

    def _join_on_way(self, stage: Stage, is_new: bool = False) -> bool:
        """Takes an element-wise stage that a pass which folds stores on its way: it has the points
        of the pass, and reads some of what that reads. In a group that `is_new`, the fold reads
        it, or one beside it."""
        streams = self._streams
        course = streams and stage.reduction is None and streams.find_course(stage.name)
        if not streams or not course:
            return False
        sizes = [stage.extent(index) for index in course.indices]
        for number, (inner, reduces, _) in enumerate(self._passes):
            order = self._orders[number] if reduces and inner else None
            if order is None or [(*self.kept, *inner)[d] for d in order] != sizes:
                continue
            axes = dict(zip(course.indices, order, strict=True))
            if not self._reads_at_hand(stage, axes, number):
                continue
            shares = is_new or course.whole & self._whole[number]
            if shares and (is_new or streams.refuse(stage, order, len(self.kept)) is None):
                self._take(stage, axes, number)
                return True
        return False

    def _find_order(self, stage: Stage, axes: dict[Index, int]) -> tuple[int, ...] | None:
        """The dimensions of a pass as a stage would go through them, from the outermost in."""
        course = self._streams and self._streams.find_course(stage.name)
        return tuple(axes[index] for index in course.indices) if course else None

    def _reads_at_hand(self, stage: Stage, axes: dict[Index, int], number: int) -> bool:
        """Whether what a stage in a pass reads of the group is at hand there: reductions of passes
        before, and what the pass itself stores on its way, at the point itself."""
        for load in self._own_loads(stage):
            source = next(s for s in self.stages if s.name == load.tensor)
            if source.reduction is not None:
                at_hand = self._map_load(stage, load, reduced=axes) is not None
                if not at_hand or self._homes[source.name] >= number:
                    return False
                continue
            own = self._axes[source.name]
            places = [stage.body.instructions[i] for i in load.indices]
            found = [axes.get(p) if isinstance(p, Index) else None for p in places]
            wanted = [own.get(Index(axis)) for axis in range(len(places))]
            if self._homes[source.name] != number or found != wanted:
                return False
        return True

    def _own_loads(self, stage: Stage) -> list[Load]:
        return [load for load in stage.body.loads() if load.tensor in self._homes]

    def _earliest(self, own: list[Load]) -> int:
        return 1 + max((self._homes[load.tensor] for load in own), default=-1)

    def _take(self, stage: Stage, axes: dict[Index, int], number: int) -> None:
        if number == len(self._passes):
            self._passes.append((self._inner(stage, axes), stage.reduction is not None, []))
            self._reads.append(set())
            self._orders.append(self._find_order(stage, axes))
            self._whole.append(set())
        self._passes[number][2].append(stage.name)
        self._reads[number] |= {load.tensor for load in stage.body.loads()}
        self._note_course(stage, axes, number)
        self.stages.append(stage)
        self._axes[stage.name] = axes
        self._homes[stage.name] = number

    def _note_course(self, stage: Stage, axes: dict[Index, int], number: int) -> None:
        """Keeps what is known of how a pass goes through its points."""
        course = self._streams and self._streams.find_course(stage.name)
        if not course or self._find_order(stage, axes) != self._orders[number]:
            self._orders[number] = None
            return
        self._whole[number] |= course.whole
        if self._passes[number][1] and stage.reduction is None:
            self._storing.add(number)
            self._whole[number].add(stage.name)

    def _inner(self, stage: Stage, axes: dict[Index, int]) -> tuple[int, ...]:
        sizes = {dimension: stage.extent(index) for index, dimension in axes.items()}
        return tuple(
            size
            for dimension, size in sorted(sizes.items())
            if dimension >= len(self.kept) and isinstance(size, int)
        )

    def _map_reduction(self, stage: Stage) -> dict[Index, int] | None:
        """The dimensions of a reduction's axes: what it keeps in order, then what it folds."""
        if stage.reduction is None:
            return None
        axes: dict[Index, int] = {}
        for axis, extent in enumerate(stage.domain):
            if extent != 1:
                axes[Index(axis)] = len(axes)
        for label, extent in stage.reduction.axes:
            if isinstance(extent, str):
                return None
            if extent != 1:
                axes[Index(label, reduced=True)] = len(axes)
        return axes

    def _map_load(
        self, stage: Stage, load: Load, reduced: dict[Index, int] | None = None
    ) -> dict[Index, int] | None:
        """Which kept dimension each axis of a reader is, where it reads a reduction of the group
        at its own point; None where it reads anything else, or elsewhere."""
        source = next(s for s in self.stages if s.name == load.tensor)
        if source.reduction is None or source.dtype.is_storage_only:
            return None
        found: dict[Index, int] = {}
        for axis, number in enumerate(load.indices):
            dimension = self._axes[source.name].get(Index(axis))
            if dimension is None:
                continue  # An axis of size 1: there is one place to read.
            index = stage.body.instructions[number]
            if not isinstance(index, Index) or index.reduced or index in found:
                return None
            if stage.extent(index) != self.kept[dimension]:
                return None
            if reduced is not None and reduced.get(index) != dimension:
                return None
            found[index] = dimension
        return dict(sorted(found.items(), key=lambda item: item[1]))


def _long(domain: tuple[int | str, ...]) -> tuple[int, ...]:
    """The sizes of the axes longer than 1."""
    return tuple(extent for extent in domain if isinstance(extent, int) and extent != 1)
