"""Groups of stages that one kernel computes in passes over the same outer points.

A group with reductions has *parallel* dimensions: each work item, or work group, owns some points
of these and loops over *inner* dimensions there, pass after pass. A reduction's domain is parallel,
and its axes are inner; an element-wise stage that reads it at its own index runs over both, in a
later pass. A sum, the values derived from it and the pass that applies them thus are one kernel,
and the sum needs no memory.

A pass that reduces may also store element-wise stages over its points, whether it reduces them or
not: a bias gradient sums a tensor that is also a result; a norm may be wanted beside the gradient.
One pass over memory then does both. It must visit the points in one order that suits every tensor,
for vectors and whole cache lines, and each point once: every tensor that it reads must have that
memory order, or be broadcast.

`grouping` decides which stages to try; schedules decide how a pass is executed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dmlc.ir import Apply, Body, Extent, Function, Index, Load, Stage
from dmlc.ir.places import find_along
from dmlc.scalars import ROUNDINGS
from dmlc.sizes import estimate, find_least, measure
from dmlc.transform.cost import Budget, count_operations, is_product
from dmlc.transform.simplify import has_positions
from dmlc.transform.traffic import count_bytes

MOST_REDUCTIONS = 8
"""Largest number of reductions in one group: each takes registers, and shared memory."""

_SHORT_VECTOR = 4
"""Lanes of the vectors that process the remainder of long ones."""


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A stage in a pass. Each of its axes longer than 1 has a dimension of the pass: the group's
    parallel dimensions come first, then the pass's inner ones."""

    stage: str
    axes: tuple[tuple[Index, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """Stages over the same points: reductions, or element-wise stages, none of which reads another
    at other points. If it `reduces`, there may be element-wise stages among the reductions. `inner`
    are the sizes of the inner dimensions; empty for element-wise stages over the parallel
    dimensions alone."""

    members: tuple[Member, ...]
    inner: tuple[Extent, ...]
    reduces: bool
    across: tuple[Member, ...] = ()
    """Reductions over parallel dimensions, whose domain is the inner ones (see `crossing`)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Crossed:
    """Reductions over the parallel dimensions of a group, as a group of their own."""

    parallel: tuple[Extent, ...]
    """Sizes of their domain."""
    passes: tuple[Pass, ...]
    """The reductions, and passes of element-wise stages of their results."""


Axes: TypeAlias = dict[Index, int]
"""Dimension of a pass for each axis of a stage."""


@dataclasses.dataclass(slots=True)
class OpenPass:
    """A pass under construction. `axes` has its stages, each with its axes' dimensions."""

    inner: tuple[Extent, ...]
    reduces: bool
    order: tuple[int, ...] | None
    """Memory order of the pass: dimensions from outermost to innermost; None if its tensors have no
    common order."""
    axes: dict[str, Axes] = dataclasses.field(default_factory=dict[str, Axes])
    reads: set[str] = dataclasses.field(default_factory=set[str])
    whole: set[str] = dataclasses.field(default_factory=set[str])
    """Tensors of which it reads, or stores besides its reductions, one element at every point."""
    stores: bool = False
    """Whether it reduces, and also stores element-wise stages."""
    across: dict[str, Axes] = dataclasses.field(default_factory=dict[str, Axes])
    """Reductions over parallel dimensions, with their axes' dimensions."""

    def close(self) -> Pass:
        members, across = (
            tuple(Member(name, tuple(axes.items())) for name, axes in found.items())
            for found in (self.axes, self.across)
        )
        return Pass(members, self.inner, self.reduces, across)


class Draft:
    """A group with reductions, under construction."""

    def __init__(self, first: Stage, streams: MemoryOrders | None = None) -> None:
        self.parallel = _list_long(first)
        self.stages: dict[str, Stage] = {}
        self.homes: dict[str, int] = {}
        """The number of each stage's pass."""
        self.crossed: Crossed | None = None
        self.opened: list[OpenPass] = []
        self._streams = streams
        self._reads_back = streams is not None and streams.reads_back
        axes = _map_reduction(first)
        if axes is None:
            raise ValueError(f"{first.name} is no reduction of fixed sizes")
        self._take(first, axes, 0)

    @classmethod
    def start_on_way(
        cls, total: Stage, stages: Sequence[Stage], streams: MemoryOrders
    ) -> tuple[Draft, str | None] | None:
        """Group that stores element-wise stages while it reduces them, and the reason not to use
        it, if there is one. None if the reduction has other points, or reads the stages in another
        order than they are in memory."""
        draft = cls(total, streams)
        if not all(draft._join_on_way(stage, is_new=True) for stage in stages):
            return None
        if not draft.reads_at_hand(total, draft.opened[0].axes[total.name], 0):
            return None
        draft.stages = {s.name: s for s in (*stages, total)}
        order = draft.opened[0].order or ()
        refusals = [streams.refuse(stage, order, len(draft.parallel)) for stage in stages]
        return draft, next(filter(None, refusals), None)

    def take(self, stage: Stage, number: int) -> None:
        """Adds a reduction to a pass, which may be new."""
        axes = _map_reduction(stage)
        if axes is not None:
            self._take(stage, axes, number)

    def passes(self) -> tuple[Pass, ...]:
        """Its passes, in the order they run."""
        return tuple(made.close() for made in self.opened)

    def list_whole(self) -> set[str]:
        """Tensors of which it reads, or computes, one element at every point of a pass."""
        whole = set[str]().union(*(made.whole for made in self.opened))
        for made in self.opened:
            if made.inner:
                whole.update(name for name in made.axes if self.stages[name].reduction is None)
        return whole

    def list_elementwise(self) -> list[str]:
        """Element-wise stages in passes that reduce."""
        reducing = {name for made in self.opened if made.reduces for name in made.axes}
        stages = self.stages.items()
        return [name for name, stage in stages if stage.reduction is None and name in reducing]

    def join(self, stage: Stage) -> bool:
        """Adds a stage, if the group can compute it in one of its passes or a new one.

        The caller ensures that all other tensors that the stage reads are stored by then.
        """
        if 0 in stage.extents:
            return False
        if stage.reduction is not None:
            return self._join_reduction(stage)
        return self._join_applied(stage) or self._join_beside(stage) or self._join_on_way(stage)

    def _join_reduction(self, stage: Stage) -> bool:
        axes = _map_reduction(stage)
        full = sum(s.reduction is not None for s in self.stages.values()) >= MOST_REDUCTIONS
        if axes is None or full or _list_long(stage) != self.parallel:
            return False
        own, inner = self._own_loads(stage), self._inner(stage, axes)
        reads = {load.tensor for load in stage.body.loads()}
        for number, made in enumerate(self.opened):
            if made.inner == inner and self._reduces_on_way(stage, axes, number):
                made.reduces = made.stores = True
                made.whole.update(made.axes)
                return self._take(stage, axes, number)
            beside = made.reduces and made.inner == inner
            if beside and self.reads_at_hand(stage, axes, number):
                orders = {self._find_order(stage, axes), made.order}
                # Row and column passes over a square have equal sizes.
                suits = len(orders) == 1 or (None in orders and not made.stores)
                wins = own or reads & made.reads or self._is_little(stage)
                if suits and wins and self._shares(stage, made):
                    return self._take(stage, axes, number)
        new = len(self.opened)
        return bool(own) and self.reads_at_hand(stage, axes, new) and self._take(stage, axes, new)

    def _reduces_on_way(self, stage: Stage, axes: Axes, number: int) -> bool:
        """Whether a pass of element-wise stages, which stores them, can also reduce one of them."""
        made, streams = self.opened[number], self._streams
        stored = [self.stages[name] for name in made.axes]
        if made.reduces or made.order is None or streams is None or not self._reads_back:
            return False
        if not any(load.tensor in made.axes for load in self._own_loads(stage)):
            return False
        if self._find_order(stage, axes) != made.order or not self._shares(stage, made):
            return False
        parallel = len(self.parallel)
        return self.reads_at_hand(stage, axes, number) and not any(
            streams.refuse(each, made.order, parallel) for each in stored
        )

    def _shares(self, stage: Stage, made: OpenPass) -> bool:
        """Whether a reduction may share a pass with others. Matrix products have tiled kernels of
        their own, unless all reductions are small."""
        stages = [stage, *(self.stages[name] for name in made.axes)]
        totals = [each for each in stages if each.reduction is not None]
        return not any(map(is_product, totals)) or all(map(self._is_little, totals))

    def _is_little(self, stage: Stage) -> bool:
        """Whether reading one element per point of a reduction takes less time than a kernel
        launch. That underestimates a product's arithmetic, and overestimates its memory traffic,
        which caches serve."""
        size = math.prod(estimate(e) for e in stage.sizes if e) * stage.body.dtype.bytes
        return self._streams is not None and size <= self._streams.launch_bytes

    def _join_applied(self, stage: Stage) -> bool:
        """Adds an element-wise stage that reads reductions of the group."""
        own = self._own_loads(stage)
        totals = [load for load in own if self.stages[load.tensor].reduction is not None]
        maps = [self._map_load(stage, load) for load in totals]
        if not maps or maps[0] is None or any(m != maps[0] for m in maps):
            return False
        axes = dict(maps[0])
        for index in stage.indices:
            if stage.extent(index) != 1 and index not in axes:
                axes[index] = len(axes)
        inner, new = self._inner(stage, axes), len(self.opened)
        for number, made in enumerate(self.opened):
            applies = not made.reduces and made.inner == inner
            if applies and self.reads_at_hand(stage, axes, number):
                return self._take(stage, axes, number)
        if self._join_on_way(stage):
            return True
        return self.reads_at_hand(stage, axes, new) and self._take(stage, axes, new)

    def _join_beside(self, stage: Stage) -> bool:
        """Adds an element-wise stage that reads no reduction of the group, to a pass with one over
        the same domain. A pass over the parallel points alone is short, and gains nothing."""
        if self._own_loads(stage) and not self._reads_back:
            return False
        for name, other in self.stages.items():
            home = self.homes[name]
            made, axes = self.opened[home], self.opened[home].axes[name]
            applies = other.reduction is None and not made.reduces and made.inner
            alike = applies and other.extents == stage.extents
            if alike and self.reads_at_hand(stage, axes, home):
                return self._take(stage, dict(axes), home)
        return False

    def _join_on_way(self, stage: Stage, is_new: bool = False) -> bool:
        """Adds an element-wise stage to a reducing pass, which also stores it: it has the pass's
        points, and shares an operand with it. In a group that `is_new`, a reduction reads it, or a
        stage beside it."""
        streams, memory = self._streams, self._find_memory_order(stage)
        if streams is None or memory is None or stage.reduction is not None:
            return False
        sizes = [stage.extent(index) for index in memory.indices]
        for number, made in enumerate(self.opened):
            order = made.order if made.reduces and made.inner else None
            if order is None or [(*self.parallel, *made.inner)[d] for d in order] != sizes:
                continue
            axes = dict(zip(memory.indices, order, strict=True))
            if not self.reads_at_hand(stage, axes, number):
                continue
            shares = is_new or memory.whole & made.whole
            if shares and (is_new or streams.refuse(stage, order, len(self.parallel)) is None):
                return self._take(stage, axes, number)
        return False

    def _find_memory_order(self, stage: Stage) -> MemoryOrder | None:
        return None if self._streams is None else self._streams.find_memory_order(stage)

    def _find_order(self, stage: Stage, axes: Axes) -> tuple[int, ...] | None:
        """Memory order of a stage, as dimensions of a pass from outermost to innermost; None if it
        has none."""
        memory = self._find_memory_order(stage)
        return None if memory is None else tuple(axes[index] for index in memory.indices)

    def reads_at_hand(self, stage: Stage, axes: Axes, number: int) -> bool:
        """Whether the stages of the group that a stage reads are available in a pass: reductions of
        earlier passes, and element-wise stages of the pass itself at the same point; those of
        earlier passes too where a work item reads back what it stored."""
        for load in self._own_loads(stage):
            source, home = self.stages[load.tensor], self.homes[load.tensor]
            if source.reduction is not None:
                found = self._map_load(stage, load)
                if home >= number or found is None:
                    return False
                if any(axes.get(index) != dimension for index, dimension in found.items()):
                    return False
                continue
            # Stages of a crossed group come after all passes.
            beside = home == number < len(self.opened)
            is_there = beside or (home < number and self._reads_back)
            if not is_there or not self._reads_same_point(stage, axes, load):
                return False
        return True

    def _reads_same_point(self, stage: Stage, axes: Axes, load: Load) -> bool:
        """Whether a stage of these axes reads an element-wise stage of the group at its own
        point."""
        own = self.opened[self.homes[load.tensor]].axes[load.tensor]
        places = [stage.body.instructions[i] for i in load.indices]
        found = [axes.get(p) if isinstance(p, Index) else None for p in places]
        return found == [own.get(Index(axis)) for axis in range(len(places))]

    def _own_loads(self, stage: Stage) -> list[Load]:
        return [load for load in stage.body.loads() if load.tensor in self.homes]

    def _take(self, stage: Stage, axes: Axes, number: int) -> bool:
        order = self._find_order(stage, axes)
        if number == len(self.opened):
            reduces = stage.reduction is not None
            self.opened.append(OpenPass(self._inner(stage, axes), reduces, order))
        made, memory = self.opened[number], self._find_memory_order(stage)
        made.axes[stage.name] = axes
        made.reads.update(load.tensor for load in stage.body.loads())
        if memory is None or order != made.order:
            made.order = None
        else:
            made.whole |= memory.whole
            if made.reduces and stage.reduction is None:
                made.stores = True
                made.whole.add(stage.name)
        self.stages[stage.name] = stage
        self.homes[stage.name] = number
        return True

    def take_across(
        self,
        number: int,
        inner: tuple[Extent, ...],
        axes: Mapping[str, Axes],
        columns: Draft,
        crossed: Crossed,
    ) -> None:
        """Adds the stages of a group of column reductions: its reductions and stored element-wise
        stages to a pass over `inner`, which may be new, and the rest after all passes."""
        if number == len(self.opened):
            self.opened.append(OpenPass(inner, False, None))
        for name, own in axes.items():
            self._take(columns.stages[name], own, number)
        self.crossed = crossed
        made, last = self.opened[number], len(self.opened)
        for name, stage in columns.stages.items():
            if name in axes and stage.reduction is not None:
                made.across[name] = made.axes.pop(name)
            elif name not in axes:
                self.stages[name], self.homes[name] = stage, last

    def _inner(self, stage: Stage, axes: Axes) -> tuple[Extent, ...]:
        found = {dimension: stage.extent(index) for index, dimension in axes.items()}
        inner = (found[dimension] for dimension in sorted(found) if dimension >= len(self.parallel))
        return tuple(size for size in inner if size is not None)

    def _map_load(self, stage: Stage, load: Load) -> Axes | None:
        """Parallel dimension of each index by which a stage reads a reduction of the group at its
        own point; None for other loads."""
        source = self.stages[load.tensor]
        if source.reduction is None or source.dtype.is_storage_only:
            return None
        axes = self.opened[self.homes[source.name]].axes[source.name]
        found = map_load(stage.body, load, axes)
        if found is None or any(stage.extent(i) != self.parallel[d] for i, d in found.items()):
            return None
        return dict(sorted(found.items(), key=lambda item: item[1]))


def map_load(body: Body, load: Load, axes: Mapping[Index, int]) -> Axes | None:
    """Dimension of each index by which a load reads a tensor with these axes; None if it reads at
    other points."""
    found: Axes = {}
    for axis, number in enumerate(load.indices):
        dimension = axes.get(Index(axis))
        if dimension is None:
            continue  # An axis of size 1 has one index.
        index = body.instructions[number]
        if not isinstance(index, Index) or index in found:
            return None
        found[index] = dimension
    return found


def _list_long(stage: Stage) -> tuple[Extent, ...]:
    """Extents of a stage's domain other than 1."""
    return tuple(extent for extent in stage.extents if extent != 1)


def _map_reduction(stage: Stage) -> Axes | None:
    """Dimensions of a reduction's axes: its domain in order, then the reduced ones. None for an
    element-wise stage."""
    long = [index for index, size in zip(stage.indices, stage.sizes, strict=True) if size != 1]
    return None if stage.reduction is None else {index: n for n, index in enumerate(long)}


def list_read_back(function: Function, passes: Sequence[Pass]) -> set[str]:
    """Element-wise stages that other passes than their own read: these are stored, whether others
    read them or not."""
    homes = {m.stage: n for n, made in enumerate(passes) for m in (*made.members, *made.across)}
    found: set[str] = set()
    for name, home in homes.items():
        stage = function.stage(name)
        for load in () if stage is None else stage.body.loads():
            source = function.stage(load.tensor)
            if source is not None and source.reduction is None:
                found |= {load.tensor} if homes.get(load.tensor, home) != home else set()
    return found


# Reductions with several outputs ------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryOrder:
    """Memory order of a stage's loop nest that suits all tensors it accesses."""

    indices: tuple[Index, ...]
    """Indices of more than one value, outermost first."""
    whole: frozenset[str]
    """Tensors of which it reads one element at each point, along all of these."""


class MemoryOrders:
    """Memory orders of a function's tensors, and of the loop nests of its stages."""

    def __init__(self, function: Function, budget: Budget) -> None:
        self._tensors = function.tensors()
        self._budget = budget
        # On a CPU a launch costs next to nothing, and few kernels are that small.
        self.launch_bytes = budget.launch_bytes if budget.held else 0
        self.reads_back = budget.walks
        """Whether work items have whole rows to themselves, so that a pass may read what an earlier
        one stored."""
        self._memory_orders: dict[str, MemoryOrder | None] = {}
        strides = {p.name: p.strides for p in function.parameters}
        strides |= {r.name: r.strides for r in function.results}
        self._uneven = {n for n, own in strides.items() if own and not self._is_even(n, own)}

    def _is_even(self, name: str, strides: tuple[Extent, ...]) -> bool:
        """Whether a tensor's axes are in memory in their order, with the last contiguous."""
        sizes = zip(self._tensors[name].extents, strides, strict=True)
        long = [measure(stride) for extent, stride in sizes if extent != 1 and stride]
        falls = (find_least(a - b) > 0 for a, b in itertools.pairwise(long))
        return long[-1:] in ([], [1]) and all(falls)

    def find_memory_order(self, stage: Stage) -> MemoryOrder | None:
        """Memory order of a stage; None if its tensors have no common order, or it computes with
        indices."""
        if stage.name not in self._memory_orders:
            self._memory_orders[stage.name] = self._make_memory_order(stage)
        return self._memory_orders[stage.name]

    def _make_memory_order(self, stage: Stage) -> MemoryOrder | None:
        if stage.body.guard is not None:
            return None
        if has_positions(stage) and not self._budget.has_positions:
            return None
        reads = [(load.tensor, self._locate(stage, load)) for load in stage.body.loads()]
        located = [(tensor, found) for tensor, found in reads if found is not None]
        if len(located) != len(reads):
            return None
        long = tuple(index for index in stage.indices if stage.extent(index) != 1)
        if stage.reduction is None:
            indices = None if stage.name in self._uneven else long
        elif stage.is_positional:
            indices = None
        else:
            # The memory order of a tensor that has all of the indices.
            orders = (own for _, own in located if len(own) == len(long) and set(own) == set(long))
            indices = next(orders, None)
        if indices is None:
            return None
        rank = {index: place for place, index in enumerate(indices)}
        for _, found in located:
            if any(rank[a] >= rank[b] for a, b in itertools.pairwise(found)):
                return None
        return MemoryOrder(
            indices, frozenset(tensor for tensor, found in located if found == indices)
        )

    def _locate(self, stage: Stage, load: Load) -> tuple[Index, ...] | None:
        """Index along each axis longer than 1 of a loaded tensor, if each ranges over the whole
        axis; else None."""
        found = find_along(stage, load, self._tensors[load.tensor].extents)
        if found is None or load.tensor in self._uneven:
            return None
        return tuple(index for index in found if index is not None)

    def refuse(self, stage: Stage, order: Sequence[int], parallel: int) -> str | None:
        """Reason to store a stage by a kernel of its own; None if storing it in the reduction's
        loops takes no longer, as its operands are then read once less.

        The first `parallel` dimensions are those of the group. Vectors run along the innermost
        dimensions, as far as these are all parallel or all reduced; short runs leave vectors partly
        empty.
        """
        root = stage.body.instructions[stage.body.result]
        for dtype in self._budget.paired_types:
            # A value that has just been rounded to a 16-bit type may be stored in it.
            rounded = isinstance(root, Apply) and root.operation is ROUNDINGS.get(dtype)
            if stage.dtype is dtype or rounded:
                return (
                    f"another kernel stores %{stage.name}, for {dtype.name} is stored two elements "
                    "at a time"
                )
        *_, last = order
        sizes = [estimate(e) for e in stage.extents if e != 1]
        run = 1
        for size, dimension in zip(reversed(sizes), reversed(order), strict=True):
            if (dimension < parallel) != (last < parallel):
                break
            run *= size
        points = math.prod(sizes)
        work = points * count_operations(stage.body) * self._budget.bytes_per_operation
        # Long vectors, short vectors and single elements for one run of points.
        lanes = self._budget.lanes
        vectors, rest = divmod(run, lanes)
        short, rest = divmod(rest, _SHORT_VECTOR) if lanes > _SHORT_VECTOR else (0, rest)
        steps = (vectors + short + rest) / (run / lanes)
        names = dict.fromkeys(load.tensor for load in stage.body.loads())
        read = sum(count_bytes(self._tensors[name]) or 0 for name in names)
        own = points * stage.dtype.bytes
        apart = max(read, work) + min(read, own) + self._budget.launch_bytes
        if max(read, work * steps) <= apart:
            return None
        return (
            f"another kernel computes %{stage.name}, as a fold would compute it in runs of {run:,} "
            f"element{'s' if run > 1 else ''} only"
        )
