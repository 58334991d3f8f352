"""Two folds in one kernel on a CPU: one makes a row, and the other folds along it.

The reader of a reduction may walk along its last axis alone, as a resampling does that takes
columns first and rows next. Then no more than one row of it is wanted at a time. A work item
makes that row in an array of its own, in vectors where memory lies so; folds along it output by
output; and stores the outputs, with what derives from them point by point, in vectors again.
Where the second fold takes the same few points of most outputs, these are written out (`unroll`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.accumulate import finish, start
from dmlc.kernel.build import Builder, Shape
from dmlc.kernel.element import (
    Collector,
    Elements,
    Gather,
    Place,
    Read,
    View,
    list_conditions,
    list_joins,
    operands,
)
from dmlc.kernel.emit import (
    Emitter,
    Names,
    Near,
    Position,
    index,
    local_name,
    operate,
    split_words,
)
from dmlc.kernel.phases import Gathered, Phase, make_gathered
from dmlc.kernel.points import Known, enter, gather
from dmlc.kernel.schedule import Limits, Profile
from dmlc.kernel.space import arrange_rows
from dmlc.scalars import OPERATIONS
from dmlc.source import InternalError
from dmlc.transform.fuse import Group
from dmlc.transform.unroll import unroll

_FOUR = 4
"""The lanes of shorter vectors, for what long ones leave over."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """The phases of such a kernel: `row` folds what `total` folds along, and `stored` has what
    leaves. Each runs over the outer axes and then, first of its inner axes, along a row."""

    row: Phase
    total: Phase
    stored: Phase
    stretch: tuple[int, int] = (0, 0)
    """From which output of a row on, and up to which, `total` is written out."""
    written: tuple[Phase, ...] = ()
    """What it is there, in turn; each has one value."""
    row_stretch: tuple[int, int] = (0, 0)
    """The same of `row`, but along the innermost of the outer axes."""
    written_row: Phase | None = None

    @property
    def phases(self) -> tuple[Phase, ...]:
        last = () if self.written_row is None else (self.written_row,)
        return self.row, self.total, self.stored, *self.written, *last

    def measure_effort(self) -> float:
        """The bytes that terms come to, by those of the outputs; what is computed in vectors
        counts a quarter."""
        terms = self.row.space.inner_count / _FOUR + self.total.space.inner_count
        outputs = self.stored.space.inner_count
        read = sum(p.space.inner_count for p in (self.row, self.stored))
        return max(1.0, (terms + outputs) * _FOUR / max(1, read))


def collect_rows(function: ir.Function, group: Group) -> Rows:
    """The phases of a group that keeps a row of a reduction at hand."""
    row, total = (function.stage(name) for name in group.stages[:2])
    if row is None or total is None or row.name != group.row or row.reduction is None:
        raise InternalError(f"no group that keeps a row: {', '.join(group.stages)}")
    lead = tuple(a for a in range(len(row.domain) - 1) if row.domain[a] != 1)
    made = [
        _collect_fold(function, row, lead, None),
        _collect_fold(function, total, lead, row.name),
        _collect_stored(function, group.stages[1:], lead),
    ]
    last = len(row.domain) - 1
    written = unroll(function, total, last)
    if written is not None:
        made += [(_collect_written(function, s, lead, row.name), ()) for s in written.stages]
    # Whether a row is inside is seen row by row, so that it has to be one stretch.
    inside = unroll(function, row, lead[-1], 1) if lead and lead[-1] == last - 1 else None
    if inside is not None:
        made.append((_collect_written(function, inside.stages[0], lead, None), ()))
    spaces = arrange_rows([elements for elements, _ in made], len(lead))
    phases = [
        Phase(elements, space, gathered)
        for (elements, gathered), space in zip(made, spaces, strict=True)
    ]
    found = Rows(phases[0], phases[1], phases[2])
    if inside is not None:
        bounds = (inside.first, inside.last)
        found = dataclasses.replace(found, row_stretch=bounds, written_row=phases.pop())
    if written is not None:
        bounds = (written.first, written.last)
        found = dataclasses.replace(found, stretch=bounds, written=tuple(phases[3:]))
    return found


def _collect_fold(
    function: ir.Function, stage: ir.Stage, lead: tuple[int, ...], row: str | None
) -> tuple[Elements, tuple[Gathered, ...]]:
    """A fold as scalar work over the outer axes, the last one and what it folds."""
    axes = {ir.Index(axis): place for place, axis in enumerate(lead)}
    axes[ir.Index(len(stage.domain) - 1)] = len(lead)
    domain = [*(stage.domain[axis] for axis in lead), stage.domain[-1]]
    for label, extent in stage.reduction.axes if stage.reduction is not None else ():
        if extent != 1:
            axes[ir.Index(label, reduced=True)] = len(domain)
            domain.append(extent)
    collector = Collector(function, tuple(domain), row=row)
    collector.add_fold(stage.name, axes)
    elements = collector.elements()
    return elements, make_gathered(elements, [(stage.name, stage.dtype, 0)])


def _collect_stored(
    function: ir.Function, stages: Sequence[str], lead: tuple[int, ...]
) -> tuple[Elements, tuple[Gathered, ...]]:
    """The second fold as it leaves, where it does, and what derives from it."""
    total = function.stage(stages[0])
    if total is None:
        raise InternalError(f"a kernel names a stage that is not there: {stages[0]}")
    domain = (*(total.domain[axis] for axis in lead), total.domain[-1])
    axes = {ir.Index(axis): place for place, axis in enumerate(lead)}
    axes[ir.Index(len(total.domain) - 1)] = len(lead)
    collector = Collector(function, domain, {total.name: total.dtype}, len(domain))
    others = [s for s in function.stages if s.name not in stages]
    read = {load.tensor for s in others for load in s.body.loads()}
    if total.name in read or any(r.name == total.name for r in function.results):
        collector.add_copy(total.name, axes)
    for name in stages[1:]:
        collector.add_stage(name, axes)
    return collector.elements(), ()


def _collect_written(
    function: ir.Function, stage: ir.Stage, lead: tuple[int, ...], row: str | None
) -> Elements:
    """A fold that is written out, as scalar work over the outer axes and the last one."""
    stages = tuple(stage if s.name == stage.name else s for s in function.stages)
    domain = (*(stage.domain[axis] for axis in lead), stage.domain[-1])
    axes = {ir.Index(axis): place for place, axis in enumerate(lead)}
    axes[ir.Index(len(stage.domain) - 1)] = len(lead)
    collector = Collector(dataclasses.replace(function, stages=stages), domain, row=row)
    collector.add_stage(stage.name, axes)
    elements = collector.elements()
    # It goes into the array of what is folded, not into memory.
    results = tuple((dataclasses.replace(v, near=True), n) for v, n in elements.results)
    return dataclasses.replace(elements, results=results)


# Statements --------------------------------------------------------------------------------


def lower_rows(
    rows: Rows, names: Names, profile: Profile, limits: Limits, buffers: tuple[k.Buffer, ...]
) -> tuple[Shape, tuple[k.Array, ...]]:
    """The kernel of such phases, and the arrays it needs."""
    outer = rows.row.space.kept_sizes
    blocks = math.prod(outer)
    work = sum(p.space.inner_count for p in rows.phases)
    run = max(1, min(profile.per_item // max(1, work), -(-blocks // profile.groups)))
    writer = _Writer(rows, names, profile, limits, buffers)

    def make(block: k.Expression) -> list[k.Statement]:
        known: Known = {}
        made = writer.builder.decompose(block, list(enumerate(outer)), known)
        return made + writer.write(known)

    body = writer.builder.share_blocks(blocks, run, make)
    width = rows.stored.space.sizes[-1]
    outputs = f"{width:,} output{'' if width == 1 else 's'}"
    what = f"a row of {outputs}" if run == 1 else f"{run:,} rows of {outputs}"
    return Shape(k.Launch(blocks, run, 1), f"each computes {what}", body), writer.arrays


class _Writer:
    """Writes what is done for one row of outputs."""

    def __init__(
        self,
        rows: Rows,
        names: Names,
        profile: Profile,
        limits: Limits,
        buffers: tuple[k.Buffer, ...],
    ) -> None:
        self._rows = rows
        self._names = names
        self._lanes = profile.lanes
        self._near: dict[str, Near] = {}
        self._builders = [
            Builder(p.elements, p.space.walk, profile, limits, buffers, names) for p in rows.phases
        ]
        self.arrays = tuple(
            self._make_array(p, p.space.sizes[len(p.space.kept)]) for p in (rows.row, rows.total)
        )

    @property
    def builder(self) -> Builder:
        return self._builders[0]

    def write(self, known: Known) -> list[k.Statement]:
        """A row, from the positions along the outer axes."""
        body = self._make_row(known)
        begin, end = self._rows.stretch
        size = self._rows.stored.space.sizes[-1]
        if begin:
            body.append(self._fold(1, known, (0, begin), 1))
        if begin < end:
            body.append(self._write_out(known, (begin, end)))
        if end < size:
            body.append(self._fold(1, known, (end, size), 1))
        body += self._store(known, size)
        return body

    def _make_row(self, known: Known) -> list[k.Statement]:
        """The row that is folded along."""
        size = self._rows.row.space.sizes[len(self._rows.row.space.kept)]
        loops = self._share(self._rows.row, size)
        folded = [self._fold(0, known, (first, last), lanes) for lanes, first, last in loops]
        phase = self._rows.written_row
        if phase is None:
            return folded
        written = self._write_row(phase, known, size)
        outer, (begin, end) = len(phase.space.kept) - 1, self._rows.row_stretch
        if end - begin == phase.space.sizes[outer]:
            return written
        at = known[outer]
        inside = operate("lt", at, index(end))
        if begin:
            after = operate("ge", at, index(begin))
            inside = k.Operate(OPERATIONS["and"], (after, inside), k.BOOL)
        let = self.builder.let("inside", inside)
        otherwise = k.Operate(OPERATIONS["not"], (let.local,), k.BOOL)
        return [let, k.If(let.local, tuple(written)), k.If(otherwise, tuple(folded))]

    def _write_row(self, phase: Phase, known: Known, size: int) -> list[k.Statement]:
        """The row, where the same points are folded as in other rows."""
        number = len(self._rows.phases) - 1
        emitter, outside = self._emitter(number), self._position(number, known, {})
        body = emitter.lets(0, outside) + emitter.lets(1, outside)
        for lanes, first, last in self._share(phase, size):
            place = k.Local(self._names.take("x"), k.INDEX)
            position = self._position(number, known, {len(phase.space.kept): place})
            inside = emitter.lets(2, position, lanes)
            ((_, value),) = phase.elements.results
            inside.append(k.Put(self.arrays[0].name, place, emitter.value(value, lanes)))
            body.append(k.For(place, index(first), index(last), lanes, tuple(inside)))
        return body

    def _make_array(self, phase: Phase, size: int) -> k.Array:
        """The array that holds a fold along a row."""
        (gathered,) = phase.gathered
        (stage, dtype) = gathered.stages[0]
        name = self._names.take(f"{split_words(stage)}_row")
        array = k.Array(name, dtype.compute, size)
        self._near[stage] = lambda place, lanes: k.Element(
            array.name, place, k.Type(array.dtype, lanes)
        )
        return array

    def _share(self, phase: Phase, size: int) -> Iterator[tuple[int, int, int]]:
        """Lanes and bounds of the loops along a row: vectors, and what they leave over."""
        start_at = 0
        for lanes in (self._lanes, _FOUR, 1) if _runs_in_vectors(phase) else (1,):
            stop = start_at + (size - start_at) // lanes * lanes
            if stop > start_at:
                yield lanes, start_at, stop
                start_at = stop

    def _emitter(self, number: int) -> Emitter:
        """Scopes: the outer axes, then each inner axis in turn."""
        phase = self._rows.phases[number]
        space, along = phase.space, len(phase.space.kept)
        levels = dict.fromkeys(space.kept, 1)
        levels |= {axis: 2 + place for place, axis in enumerate(space.inner)}
        return Emitter(
            phase.elements,
            self._names,
            self._builders[number].depth(levels.__getitem__),
            self._near,
            lambda view: bool(space.walk.strides[view][along]),
            guarded=2,
            apart=list_joins(phase.elements),
        )

    def _position(self, number: int, known: Known, inner: Known) -> Position:
        return self._builders[number].at({**known, **inner})

    def _fold(
        self,
        number: int,
        known: Known,
        bounds: tuple[int, int],
        lanes: int,
    ) -> k.Statement:
        """A stretch of a row: each of its places folds its own points, into the array."""
        phase, names = self._rows.phases[number], self._names
        emitter, space, along = self._emitter(number), phase.space, len(phase.space.kept)
        (gathered,) = phase.gathered
        (slot,) = gathered.slots
        place = k.Local(names.take("x"), k.INDEX)
        state = k.Local(names.take(local_name(gathered.name)), k.Type(slot.dtype, lanes))
        conditions = list_conditions(phase.elements)

        def loop(axis: int, inner: Known) -> list[k.Statement]:
            if axis == len(space.sizes):
                return gather(self._builders[number], emitter, gathered, (state,), lanes)
            variable = k.Local(names.take("k"), k.INDEX)
            further = {**inner, axis: variable}
            body = self._open(number, emitter, known, further, conditions, lanes,
                              lambda: loop(axis + 1, further))  # fmt: skip
            size = space.sizes[axis]
            return [k.For(variable, index(0), index(size), 1, tuple(body))]

        outside = emitter.lets(0, self._position(number, known, {}), rest=True)
        outside += emitter.lets(1, self._position(number, known, {}), rest=True)
        body = [
            *outside,
            k.Variable(state, start(slot, lanes)),
            *self._open(number, emitter, known, {along: place}, conditions, lanes,
                        lambda: loop(along + 1, {along: place})),
            k.Put(self.arrays[number].name, place, finish(gathered.fold, (state,), slot.dtype)),
        ]  # fmt: skip
        return k.For(place, index(bounds[0]), index(bounds[1]), lanes, tuple(body))

    def _write_out(self, known: Known, bounds: tuple[int, int]) -> k.Statement:
        """The stretch of a row in which the same points are folded again and again."""
        period = len(self._rows.written)
        variable = k.Local(self._names.take("x"), k.INDEX)
        body: list[k.Statement] = []
        for turn, phase in enumerate(self._rows.written):
            number, place = 3 + turn, variable
            if turn:
                let = self.builder.let("x", operate("add", variable, index(turn)))
                body.append(let)
                place = let.local
            emitter, along = self._emitter(number), len(phase.space.kept)
            position = self._position(number, known, {along: place})
            for level in range(3):
                body += emitter.lets(level, position, rest=True)
            ((_, value),) = phase.elements.results
            body.append(k.Put(self.arrays[1].name, place, emitter.value(value)))
        return k.For(variable, index(bounds[0]), index(bounds[1]), period, tuple(body))

    def _open(
        self,
        number: int,
        emitter: Emitter,
        known: Known,
        inner: Known,
        conditions: Sequence[int],
        lanes: int,
        inside: Callable[[], list[k.Statement]],
    ) -> list[k.Statement]:
        """The values of the scope that the last of `inner` opens, and what is inside."""
        level = 1 + len(inner)
        here = [c for c in conditions if max(2, emitter.level(c)) == level]
        elements = self._rows.phases[number].elements
        position = self._position(number, known, inner)
        return enter(elements, emitter, level, position, here, inside, lanes)

    def _store(self, known: Known, size: int) -> list[k.Statement]:
        """What leaves."""
        phase, along = self._rows.stored, len(self._rows.stored.space.kept)
        emitter, outside = self._emitter(2), self._position(2, known, {})
        body = emitter.lets(0, outside) + emitter.lets(1, outside)
        for lanes, first, last in self._share(phase, size):
            place = k.Local(self._names.take("x"), k.INDEX)
            at = self._position(2, known, {along: place})

            def position(view: View, place: k.Local = place, at: Position = at) -> k.Expression:
                return place if view.near else at(view)

            inside = emitter.lets(2, position, lanes) + emitter.stores(position, lanes, {})
            body.append(k.For(place, index(first), index(last), lanes, tuple(inside)))
        return body


def _runs_in_vectors(phase: Phase) -> bool:
    """Whether points side by side along a row can be computed at once."""
    elements, along = phase.elements, len(phase.space.kept)
    moving: set[int] = set()
    for number, value in enumerate(elements.values):
        step = 0
        if isinstance(value, Read | Place | Gather):
            step = phase.space.walk.strides[value.view][along]
            if step not in (0, 1) or (step and isinstance(value, Place)):
                return False
        if step or any(o in moving for o in operands(value)):
            moving.add(number)
    if any(condition in moving for condition in list_conditions(elements)):
        return False
    return all(phase.space.walk.strides[view][along] == 1 for view, _ in elements.results)
