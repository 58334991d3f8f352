"""Two folds in one kernel on a CPU, as phases: one makes a row, and the other folds along it.

The reader of a reduction may walk along its last axis alone, as a resampling does that takes
columns first and rows next. Then no more than one row of it is wanted at a time. A work item
makes that row in an array of its own, in vectors where memory lies so; folds along it output by
output; and stores the outputs, with what derives from them point by point, in vectors again.
Where either fold takes the same few points of most outputs, these are written out (`unroll`), or
the outputs are computed in vectors made of what a row has at hand (`pick`). How the loops are
written is `lower`'s business, and in which order `schedule`'s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc import ir
from dmlc.kernel.collapse import Walk
from dmlc.kernel.element import (
    Collector,
    Elements,
    Gather,
    Place,
    Read,
    Value,
    View,
)
from dmlc.kernel.phases import Gathered, Phase, make_gathered
from dmlc.kernel.pick import LANES, Picks, pick
from dmlc.kernel.space import Space, arrange_rows
from dmlc.kernel.unroll import Stretch, unroll
from dmlc.scalars import DataType
from dmlc.source import InternalError
from dmlc.transform.fuse import Group

_VECTOR_GAIN = 4
"""How many times quicker a term is that is computed in vectors, about."""


@dataclasses.dataclass(frozen=True, slots=True)
class Copied:
    """Every so many elements of a table, side by side in an array: compilers make vectors of what
    reads them."""

    name: str
    """What it is called where it is at hand: no tensor has such a name."""
    view: View
    """The elements, along the last dimension."""
    dtype: DataType
    count: int

    @property
    def phase(self) -> Phase:
        """The reads that copy it."""
        elements = Elements((self.count,), (Read(self.view, self.dtype),), ())
        walk = Walk((self.count,), {self.view: self.view.strides[-1:]}, packed=False)
        return Phase(elements, Space(walk, ()))


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
    """What it is there, in turn; each has one value. The position along a row is the turn."""
    copied: tuple[Copied, ...] = ()
    """The parts of tables that these read."""
    picks: Picks | None = None
    """How vectors of outputs are made of the row: then there is one of `written`, and the position
    along a row is the output."""
    row_stretch: tuple[int, int] = (0, 0)
    """The same of `row`, but along the innermost of the outer axes."""
    written_rows: tuple[Phase, ...] = ()
    is_row_uniform: bool = False
    """Whether every row is like that, and folds the same points."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self.row, self.total, self.stored, *self.written, *self.written_rows

    @property
    def repeats_in_rows(self) -> bool:
        """Whether all outputs of a row are written out."""
        begin, end = self.stretch
        return end - begin == self.stored.space.sizes[-1]

    @property
    def repeats_over_rows(self) -> bool:
        """Whether every row is one of those that are written out."""
        begin, end = self.row_stretch
        last = len(self.row.space.kept) - 1
        return self.is_row_uniform or (last >= 0 and end - begin == self.row.space.sizes[last])

    @property
    def used(self) -> tuple[Phase, ...]:
        """Those of the phases whose tensors a kernel reads."""
        unused = [self.row] if self.repeats_over_rows else []
        copies: list[Phase] = []
        if self.repeats_in_rows:
            unused.append(self.total)
            copies = [copied.phase for copied in self.copied]
        return (*(p for p in self.phases if not any(p is u for u in unused)), *copies)

    def measure_effort(self) -> float:
        """The bytes that terms come to, by those of the outputs; what is computed in vectors
        counts for less."""
        along = self.total.space.inner_count / (1 if self.picks is None else _VECTOR_GAIN)
        terms = self.row.space.inner_count / _VECTOR_GAIN + along
        outputs = self.stored.space.inner_count
        read = sum(p.space.inner_count for p in (self.row, self.stored))
        return max(1.0, (terms + outputs) * _VECTOR_GAIN / max(1, read))


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
    copied: dict[View, Copied] = {}
    picks = pick(function, total, row.name)
    written = None
    if picks is not None:
        ragged = picks.last % LANES != 0
        elements = _collect_picked(function, picks, lead)
        elements = _copy_tables(elements, function, copied, every=ragged)
        if _goes_in_vectors(elements, ragged=ragged):
            made.append((elements, ()))
            written = Stretch(picks.first, picks.last, (picks.stage,))
        else:
            picks, copied = None, {}
    if picks is None:
        written = unroll(function, total, last)
        for stage in () if written is None else written.stages:
            elements = _collect_written(function, stage, lead, row.name)
            made.append((_copy_tables(elements, function, copied), ()))
    inside = None
    if lead and lead[-1] == last - 1:
        signed = not _hides_zeros(total, row.name)
        inside = unroll(function, row, lead[-1], signed_zeros=signed)
    if inside is not None:
        made += [(_collect_written(function, s, lead, None), ()) for s in inside.stages]
    uniform = inside is not None and _covers(inside, row.domain[lead[-1]])
    apart = inside is not None and not uniform
    spaces = arrange_rows([elements for elements, _ in made], len(lead), apart)
    phases = [
        Phase(elements, space, gathered)
        for (elements, gathered), space in zip(made, spaces, strict=True)
    ]
    found = Rows(phases[0], phases[1], phases[2])
    end = len(phases) - (0 if inside is None else len(inside.stages))
    if written is not None:
        bounds = (written.first, written.last)
        found = dataclasses.replace(
            found,
            stretch=bounds,
            written=tuple(phases[3:end]),
            copied=tuple(copied.values()),
            picks=picks,
        )
    if inside is not None:
        bounds = (inside.first, inside.last)
        rows = tuple(phases[end:])
        found = dataclasses.replace(
            found, row_stretch=bounds, written_rows=rows, is_row_uniform=uniform
        )
    return found


def _hides_zeros(total: ir.Stage, row: str) -> bool:
    """Whether it does not show if an element of the row is a positive or a negative zero: a sum
    starts from a positive one, and stays so whichever is added, times a factor or not."""
    body, reduction = total.body, total.reduction
    if reduction is None or reduction.combiner != "sum" or not total.body.dtype.is_float:
        return False
    pending, found = [body.result], 0
    while pending:
        value = body.instructions[pending.pop()]
        if isinstance(value, ir.Apply) and value.operation.name == "mul":
            pending += value.operands
        elif isinstance(value, ir.Load) and value.tensor == row:
            found += 1
    return found == sum(load.tensor == row for load in body.loads()) == 1


def _covers(stretch: Stretch, size: int | str) -> bool:
    """Whether the same points are folded everywhere along an axis."""
    return len(stretch.stages) == 1 and (stretch.first, stretch.last) == (0, size)


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
    return _keep_near(collector.elements())


def _collect_picked(function: ir.Function, picks: Picks, lead: tuple[int, ...]) -> Elements:
    """A fold whose terms are picked from the row, as scalar work over the outer axes and the last
    one."""
    stage = picks.stage
    size = stage.domain[-1:]
    dtypes = {
        load.tensor: load.dtype
        for load in stage.body.loads()
        if load.tensor in picks.patterns.named
    }
    parameters = [ir.Parameter(name, dtype, size) for name, dtype in dtypes.items()]
    stages = tuple(stage if s.name == stage.name else s for s in function.stages)
    changed = dataclasses.replace(
        function, parameters=(*function.parameters, *parameters), stages=stages
    )
    domain = (*(stage.domain[axis] for axis in lead), *size)
    axes = {ir.Index(axis): place for place, axis in enumerate((*lead, len(stage.domain) - 1))}
    collector = Collector(changed, domain, dtypes, len(domain))
    collector.add_stage(stage.name, axes)
    return _keep_near(collector.elements())


def _keep_near(elements: Elements) -> Elements:
    """The same scalar work, whose results are at hand and not in memory."""
    results = tuple((dataclasses.replace(v, near=True), n) for v, n in elements.results)
    return dataclasses.replace(elements, results=results)


def _goes_in_vectors(elements: Elements, *, ragged: bool) -> bool:
    """Whether places side by side along the last dimension can be computed at once; where they are
    `ragged`, some are beyond its end, and no buffer is read there."""
    for value in elements.values:
        if isinstance(value, Gather):
            return False
        step = value.view.strides[-1] if isinstance(value, Read | Place) else 0
        near = isinstance(value, Read) and value.view.near
        if step not in (0, 1) or (step and not near and (ragged or isinstance(value, Place))):
            return False
    return True


def _copy_tables(
    elements: Elements, function: ir.Function, copied: dict[View, Copied], *, every: bool = False
) -> Elements:
    """The same scalar work with tables read from copies, where it takes one element for each
    place along the last dimension, and these do not lie side by side; or with `every` such table.
    `copied` has those made."""
    tables = {table.name for table in function.tables}
    count, least = elements.domain[-1], 1 if every else 2
    values: list[Value] = []
    for value in elements.values:
        if isinstance(value, Read) and value.view.tensor in tables and isinstance(count, int):
            view = value.view
            if view.strides[-1] >= least and not any(view.strides[:-1]):
                name = f"{view.tensor}#{view.offset}+{view.strides[-1]}"
                copied.setdefault(view, Copied(name, view, value.dtype, count))
                unit = (*view.strides[:-1], 1)
                value = Read(View(name, view.dtype, unit, near=True), value.dtype)
        values.append(value)
    return dataclasses.replace(elements, values=tuple(values))
