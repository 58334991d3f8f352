"""Kernels with reductions that depend on positions: a work item folds its outputs one by one.

On a GPU a work item has one output, on a CPU a run of them; the loops over the folded points are
inside, in the order of the axes. A condition of the guard is tested as soon as what it depends on
is known, before the reads that it protects. Nothing is shared between work items, and each stores
its own elements alone. On a CPU neighbouring outputs go together where `lanes` finds that they can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.accumulate import begin, contribute, finish, merge
from dmlc.kernel.build import Builder, Shape
from dmlc.kernel.element import list_conditions, list_joins
from dmlc.kernel.emit import (
    Emitter,
    Names,
    Near,
    Position,
    add,
    find_guarded,
    index,
    local_name,
    multiply,
    operate,
)
from dmlc.kernel.guards import enter, open_scope
from dmlc.kernel.lanes import Lanes, find_lanes
from dmlc.kernel.phases import Gathered, Phase
from dmlc.kernel.picked import spread_loads, start_again
from dmlc.kernel.schedule import Limits, Profile
from dmlc.scalars import OPERATIONS
from dmlc.transform.pick import LANES

Known = dict[int, k.Expression]
"""The index along each axis that is known."""


def lower_points(
    function: ir.Function,
    phases: Sequence[Phase],
    names: Names,
    profile: Profile,
    limits: Limits,
    buffers: tuple[k.Buffer, ...],
) -> Shape:
    """The kernel of a fold and of what derives from it output by output."""
    builders = [Builder(p.elements, p.space.walk, profile, limits, buffers, names) for p in phases]
    near: dict[str, Near] = {}
    return _lower_runs(function, phases, builders, near)


def _lower_runs(
    function: ir.Function,
    phases: Sequence[Phase],
    builders: Sequence[Builder],
    near: dict[str, Near],
) -> Shape:
    """A work item per run of outputs: loops over the inner axes of the outputs."""
    b, kept = builders[0], phases[0].space.kept_sizes
    share = _share(phases, b.profile)
    split = len(kept)
    while split > 0 and math.prod(kept[split - 1 :]) <= share:
        split -= 1
    inner, blocks = math.prod(kept[split:]), math.prod(kept[:split])
    run = min(max(1, share // inner), blocks)
    stretches = _list_stretches(function, phases, builders, near)
    writers = [writer for *_, writer in stretches]

    def open_all(level: int, known: Known) -> list[k.Statement]:
        return [statement for writer in writers for statement in writer.open(level, known)]

    body = open_all(0, {})

    def loop(place: int, known: Known) -> list[k.Statement]:
        if place == len(kept):
            return writers[0].write(known)
        if place == len(kept) - 1:
            return [each for s in stretches for each in walk_row(*s, place, known)]
        variable = k.Local(b.names.take(f"i{place}"), k.INDEX)
        at: k.Expression = variable if kept[place] > 1 else index(0)
        further = {**known, place: at}
        made = open_all(place + 1, further) + loop(place + 1, further)
        if kept[place] == 1:
            return made
        return [k.For(variable, index(0), index(kept[place]), 1, tuple(made))]

    def walk_row(
        first: int, last: int, writer: _Output, place: int, known: Known
    ) -> list[k.Statement]:
        variable = k.Local(b.names.take(f"i{place}"), k.INDEX)
        at: k.Expression = variable if kept[place] > 1 else index(0)
        made: list[k.Statement] = []
        step = writer.lanes
        if (last - first) % step:
            variable, made = start_again(b, variable, last)
        further: Known = {**known, place: at}
        made += writer.open(place + 1, further) + writer.write(further)
        if kept[place] == 1:
            return made
        return [k.For(variable, index(first), index(last), step, tuple(made))]

    def make(block: k.Expression) -> list[k.Statement]:
        known: Known = {}
        made = b.decompose(block, list(enumerate(kept[:split])), known)
        for level in range(1, split + 1):
            made += open_all(level, known)
        if not kept:
            made += open_all(1, known)
        return made + loop(split, known)

    body += b.share_blocks(blocks, run, make)
    outputs = run * inner
    words = f"each computes {outputs:,} output{'' if outputs == 1 else 's'}"
    return Shape(k.Launch(blocks, run, 1), words, body)


def find_together(function: ir.Function, phases: Sequence[Phase], profile: Profile) -> Lanes | None:
    """Which outputs of a work item go together along the innermost of their axes; None where few
    do, or where work items have no more than a part of the axis."""
    kept = phases[0].space.kept_sizes
    if not kept or kept[-1] > _share(phases, profile):
        return None
    work = [(p.elements, p.space.walk, p.space.kept[-1]) for p in phases]
    return find_lanes(function, work)


def _list_stretches(
    function: ir.Function,
    phases: Sequence[Phase],
    builders: Sequence[Builder],
    near: dict[str, Near],
) -> list[tuple[int, int, _Output]]:
    """The stretches of the outputs' innermost axis, and who writes each: in vectors where outputs
    can go together, one by one elsewhere."""
    kept = phases[0].space.kept_sizes
    depth = max(1, len(kept))
    size = kept[-1] if kept else 1
    found = find_together(function, phases, builders[0].profile)
    if found is None:
        return [(0, size, _Output(phases, builders, near, depth))]
    bounds = [(0, found.first, None), (found.first, found.last, found), (found.last, size, None)]
    return [
        (first, last, _Output(phases, builders, near, depth, lanes))
        for first, last, lanes in bounds
        if first < last
    ]


def _share(phases: Sequence[Phase], profile: Profile) -> int:
    """The outputs that a work item computes: enough to be worth it, few enough that all work
    items have some."""
    work = max(1, *(p.space.inner_count for p in phases))
    outputs = math.prod(phases[0].space.kept_sizes)
    return max(1, min(profile.per_item // work, -(-outputs // profile.groups)))


class _Output:
    """Writes what is done for one output, whose position is known after `depth` scopes."""

    def __init__(
        self,
        phases: Sequence[Phase],
        builders: Sequence[Builder],
        near: dict[str, Near],
        depth: int,
        together: Lanes | None = None,
    ) -> None:
        self._phases = phases
        self._builders = builders
        self._near = near
        self._depth = depth
        self._together = together
        self.lanes = 1 if together is None else LANES
        """The outputs that are written at once."""
        self._emitter = self._make_emitter(0, depth)

    def open(self, level: int, known: Known) -> list[k.Statement]:
        """The values of the fold that belong to a scope of the kept axes."""
        lanes = self.lanes if level == self._depth else 1
        return open_scope(self._emitter, level, self._position(0, known, {}), lanes)

    def write(self, known: Known) -> list[k.Statement]:
        """Everything after that."""
        body = self._fold(0, self._emitter, known, self._depth)
        for number in range(1, len(self._phases)):
            emitter = self._make_emitter(number, 1)
            position = self._position(number, known, {})
            body += open_scope(emitter, 0, position) + open_scope(emitter, 1, position, self.lanes)
            if self._phases[number].gathered:
                body += self._fold(number, emitter, known, 1)
            else:
                body += self._store(number, emitter, known, {})
        return body

    def _store(
        self, number: int, emitter: Emitter, known: Known, inner: Known
    ) -> list[k.Statement]:
        """The loops over the inner axes of a phase that folds nothing, but for those whose places
        are known, and what it stores."""
        space = self._phases[number].space
        position = self._position(number, known, inner)
        if len(inner) == len(space.inner):
            return list(emitter.stores(position, self.lanes, {}))
        axis = space.inner[len(inner)]
        variable = k.Local(self._builders[number].names.take(f"i{axis}"), k.INDEX)
        further = {**inner, axis: variable}
        position = self._position(number, known, further)
        made = open_scope(emitter, 1 + len(further), position, self.lanes)
        made += self._store(number, emitter, known, further)
        return [k.For(variable, index(0), index(space.sizes[axis]), 1, tuple(made))]

    def _make_emitter(self, number: int, depth: int) -> Emitter:
        """`depth` scopes know the kept axes, one after the other; then each inner axis has one."""
        phase, builder = self._phases[number], self._builders[number]
        space = phase.space
        levels = {axis: min(1 + place, depth) for place, axis in enumerate(space.kept)}
        levels |= {axis: depth + 1 + place for place, axis in enumerate(space.inner)}
        scope = builder.depth(levels.__getitem__)
        names = builder.names
        together = self._together
        patterns = {} if together is None else together.patterns[number]
        slants = {} if together is None else together.slants[number]
        fixed = frozenset[int]() if together is None else together.fixed[number]
        return Emitter(
            phase.elements,
            names,
            scope,
            self._near,
            lambda view: bool(space.kept) and bool(space.walk.strides[view][space.kept[-1]]),
            find_guarded(phase.elements, names, scope, depth + 1),
            list_joins(phase.elements),
            spread_loads(patterns, builder.let),
            slants,
            fixed,
        )

    def _position(self, number: int, known: Known, inner: Known) -> Position:
        kept = self._phases[number].space.kept
        at = self._builders[number].at({kept[n]: i for n, i in known.items()} | inner)
        return lambda view: index(0) if view.near else at(view)

    def _fold(self, number: int, emitter: Emitter, known: Known, depth: int) -> list[k.Statement]:
        """The loops over the points of one output, and what they fold, at hand afterwards."""
        phase, b = self._phases[number], self._builders[number]
        elements, space = phase.elements, phase.space
        together = self._together
        certain = frozenset[int]() if together is None else together.certain[number]
        masks = frozenset[int]() if together is None else together.masks[number] - certain
        conditions = [c for c in list_conditions(elements) if c not in certain | masks]
        states = [
            tuple(
                k.Local(
                    b.names.take(f"{local_name(g.name)}{slot.suffix}"),
                    k.Type(slot.dtype, self.lanes),
                )
                for slot in g.slots
            )
            for g in phase.gathered
        ]
        body: list[k.Statement] = [
            k.Variable(local, value)
            for gathered, state in zip(phase.gathered, states, strict=True)
            for local, value in zip(
                state, begin(gathered.fold, gathered.slots, self.lanes), strict=True
            )
        ]

        def loop(place: int, inner: Known) -> list[k.Statement]:
            if place == len(space.inner):
                made: list[k.Statement] = []
                for gathered, state in zip(phase.gathered, states, strict=True):
                    made += gather(b, emitter, gathered, state, self.lanes, sorted(masks))
                return made
            axis, level = space.inner[place], depth + 1 + place
            variable = k.Local(b.names.take(f"k{place}" if place else "k"), k.INDEX)
            at: k.Expression = variable if space.sizes[axis] != 1 else index(0)
            further = {**inner, axis: at}
            position = self._position(number, known, further)
            here = [c for c in conditions if emitter.level(c) == level]
            made = enter(elements, emitter, level, position, here,
                         lambda: loop(place + 1, further), self.lanes)  # fmt: skip
            if space.sizes[axis] == 1:
                return made
            return [k.For(variable, index(0), index(space.sizes[axis]), 1, tuple(made))]

        above = [c for c in conditions if emitter.level(c) <= depth]
        position = self._position(number, known, {})
        body += enter(elements, emitter, depth, position, above, lambda: loop(0, {}), self.lanes)
        for gathered, state in zip(phase.gathered, states, strict=True):
            self._keep(b, gathered, state, body)
        return body

    def _keep(
        self,
        b: Builder,
        gathered: Gathered,
        state: tuple[k.Local, ...],
        body: list[k.Statement],
    ) -> None:
        """Has the reductions at hand that a state is."""
        for stage, dtype in gathered.stages:
            value = finish(gathered.fold, state, dtype.compute, in_order=True)
            if not isinstance(value, k.Local):
                let = b.let(local_name(stage), value)
                body.append(let)
                value = let.local
            self._near[stage] = _always(value)


def _always(value: k.Expression) -> Near:
    return lambda position, lanes: value


def gather(
    b: Builder,
    emitter: Emitter,
    gathered: Gathered,
    state: tuple[k.Local, ...],
    lanes: int = 1,
    masks: Sequence[int] = (),
) -> list[k.Statement]:
    """A point, or as many as there are lanes, enters a state, after those before it. That its guard
    holds has been tested, but for `masks`, which leave lanes out."""
    fold = gathered.fold
    place = None if fold.place is None else emitter.value(fold.place, lanes)
    guard: k.Expression | None = None
    for mask in masks:
        holds = emitter.value(mask, lanes)
        if guard is not None:
            holds = k.Operate(OPERATIONS["and"], (guard, holds), holds.type)
        guard = holds
    point = contribute(gathered.slots, emitter.value(fold.value, lanes), guard, place)
    statements, merged = merge(fold, state, point, b.names.take, in_order=True)
    return statements + [k.Assign(s, m) for s, m in zip(state, merged, strict=True)]
