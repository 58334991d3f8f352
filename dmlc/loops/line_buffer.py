"""The primitive of line buffers, which keep one row of a reduction that another one reduces.

If a reduction is read along its last axis only, as in a resampling that takes columns first and
rows next, one row of it is needed at a time. A work item computes that row into a private array,
vectorized where memory is contiguous; reduces it output by output; and stores the outputs, with
their derived values, in vectors again. If most outputs of either reduction have the same few
points, these are unrolled (`unroll`), or the outputs are computed in vectors permuted out of the
line buffer (`permute`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dmlc import ir
from dmlc.kernel.names import local_name
from dmlc.loops.arrange import arrange_rows
from dmlc.loops.element import (
    Collector,
    Elements,
    Gather,
    Place,
    Read,
    Value,
    View,
    find_moving,
    list_conditions,
)
from dmlc.loops.legality import WIDTHS
from dmlc.loops.naive import find_kept, keep_along, name_parallel
from dmlc.loops.nodes import (
    Buffer,
    Dim,
    Fill,
    Into,
    Kind,
    Loop,
    Nest,
    Node,
    Permute,
    Point,
    Reduce,
    Turns,
    in_vectors,
    name_apart,
    number_steps,
)
from dmlc.loops.permute import LANES, find_permutation
from dmlc.loops.phases import Phase
from dmlc.loops.script import Argument, On, demand, primitive
from dmlc.loops.space import Space
from dmlc.loops.unroll import Stretch, unroll
from dmlc.scalars import DataType
from dmlc.sizes import known
from dmlc.source import InternalError

_VECTOR_GAIN = 4
"""Approximate speedup of a vectorized term."""
_MOST = 1 << 20
"""Largest number of elements of a line buffer."""
_NOWHERE = Stretch(0, 0, ())


@primitive(Argument.NUMBER, Argument.NUMBER, Argument.NUMBER, takes_loop=False)
def line_buffer(on: On, rows: int, at_once: int, lanes: int) -> Nest:
    """Computes the rows of a reduction that another one reduces along their last axis, in vectors
    of `lanes`, and keeps them in a private array, which the other one reads in vectors that are
    permuted, or unrolled where windows repeat. A work group of one work item has `rows` of them,
    and keeps so many (`at_once`) at a time. It is the only call of a script, and replaces all loops
    of the naive nest. No sum changes its order.

    `for row: for x: r[x] = sum(k: f(row, x, k)); for x: s = sum(k: g(r, x, k)); h(row, x, s) -> for
    rows of a group: for x in vectors: r[x] = sum(k: f(row, x, k)); for x in vectors: s[x] = g(r, x,
    0) + g(r, x, 1) + ..`, and then `for x in vectors: h(row, x, s[x])`
    """
    demand(on.limits.vector_lanes == 0, "the target has no such vectors")
    demand(lanes in WIDTHS[1:], "rows are computed in vectors of 8 or 16 lanes")
    demand(has_lines(on.nest.phases), "there is no reduction of which another one reduces rows")
    made = LineBuffer(on.function, on.nest.phases, lanes)
    demand(0 < rows <= made.count, f"a work group has 1 to {made.count:,} rows")
    demand(at_once > 0 and rows % at_once == made.count % at_once == 0,
            "all rows, and those of a group, come to so many at a time")  # fmt: skip
    demand(at_once == 1 or made.is_permuted, "rows that are not permuted are kept one at a time")
    size = made.pitch * at_once
    demand(size <= _MOST, f"an array has {size:,} elements, of {_MOST:,} at most")
    return made.build(rows, at_once)


def collect_lines(function: ir.Function, stages: Sequence[str]) -> tuple[Phase, ...]:
    """Phases of a reduction, the first of some stages, of another one that reduces its rows, the
    second, and of what stores the latter and its derived stages. Each iterates over the outer axes
    and then along a row, its last parallel axis."""
    work, lead = _collect_work(function, stages)
    return tuple(
        Phase(each.with_parallel(range(len(each.space.parallel) + 1)))
        for each in arrange_rows(work, len(lead), apart=False)
    )


def _collect_work(
    function: ir.Function, stages: Sequence[str]
) -> tuple[list[Elements], Sequence[int]]:
    """Work of these phases over the outer axes, which are returned too, and further ones."""
    row, total = (function.stage(name) for name in stages[:2])
    if row is None or total is None:
        raise InternalError(f"no group that keeps a row: {', '.join(stages)}")
    lead = _list_outer(row)
    return [
        _collect_fold(function, row, lead, None),
        _collect_fold(function, total, lead, row.name),
        _collect_stored(function, stages[1:], lead),
    ], lead


def has_lines(phases: Sequence[Phase]) -> bool:
    """Whether they are a reduction, another one of its rows, and what is derived from that."""
    reduces = [len(phase.accumulators) for phase in phases]
    return reduces == [1, 1, 0] and find_kept(phases) == {0}


def measure_effort(phases: Sequence[Phase], *, is_permuted: bool) -> float:
    """Bytes of the terms of such phases by bytes of the outputs; vectorized terms count less."""
    row, total, stored = (math.prod(p.space.sizes[p.space.parallel[-1] :]) for p in phases)
    along = total / (_VECTOR_GAIN if is_permuted else 1)
    terms = row / _VECTOR_GAIN + along
    return max(1.0, (terms + stored) * _VECTOR_GAIN / max(1, row + stored))


class LineBuffer:
    """Builder of the nest: the first phase is the reduction kept in the line buffer, the second
    reduces it, and the third is stored."""

    def __init__(self, function: ir.Function, phases: Sequence[Phase], lanes: int) -> None:
        row, total = (function.stage(p.accumulators[0].name) for p in phases[:2])
        if row is None or total is None:
            raise InternalError("a line buffer is of stages that the function has not")
        self._function, self._lanes = function, lanes
        names = [row.name, total.name, *(v.tensor for v, _ in phases[2].elements.results)]
        whole, self._lead = _collect_work(function, [*dict.fromkeys(names)])
        self._copies: dict[View, Phase] = {}
        """Phases that copy parts of tables, by the views read."""
        self._find_written(row, total)
        work = [*whole, *self._along, *self._over]
        first = self._over_stretch
        self._is_uniform = len(first.stages) == 1 and (
            (first.first, first.last) == (0, row.extents[self._lead[-1]])
        )
        """Whether all rows reduce the same points."""
        apart = bool(first.stages) and not self._is_uniform
        made = list(map(Phase, arrange_rows(work, len(self._lead), apart)))
        self._row, self._total, self._stored, *written = made
        self.work = sum(phase.space.inner_count for phase in made)
        """Points of all phases for a row."""
        self._written = written[: len(self._along)]
        self._written_rows = written[len(self._along) :]
        self._kept = name_parallel(self._row)
        self.count = math.prod(self._row.space.parallel_sizes)
        """Number of rows."""
        self.size = self._stored.space.sizes[-1]
        """Outputs of a row."""
        self._long = self._row.space.sizes[len(self._kept)]
        self._front, self.pitch = 0, self._long
        if self._picks is not None:
            self._front = _round_up(max(0, -self._picks.reach[0]))
            self.pitch = _round_up(self._front + max(self._picks.reach[1], self._long))
        self._phases: list[Phase] = []
        self._dims: list[tuple[Dim, ...]] = []
        self._buffers: list[Buffer] = []

    @property
    def is_permuted(self) -> bool:
        """Whether outputs are computed in vectors permuted out of the line buffer."""
        return self._picks is not None

    # What is computed ------------------------------------------------------------------------

    def _find_written(self, row: ir.Stage, total: ir.Stage) -> None:
        """Finds the outputs of a row, and the rows, whose reductions are unrolled."""
        self._picks = find_permutation(self._function, total, row.name)
        self._stretch, self._along = _NOWHERE, list[Elements]()
        """Range of a row in which unrolled stages replace `total`, periodically. Their index along
        the row is the output if vectors are permuted, and else the iteration."""
        if self._picks is not None:
            permutation, ragged = self._picks, self._picks.last % LANES != 0
            named = permutation.patterns.named
            loads = permutation.stage.body.loads()
            local = {load.tensor: load.dtype for load in loads if load.tensor in named}
            elements = self._copy_tables(
                self._collect_written(permutation.stage, local), every=ragged
            )
            last = len(elements.space.extents) - 1
            if _goes_in_vectors(elements, last, ragged=ragged):
                self._stretch = Stretch(permutation.first, permutation.last, (permutation.stage,))
                self._along = [elements]
            else:
                self._picks, self._copies = None, {}
        if self._picks is None:
            last = len(row.extents) - 1
            self._stretch = unroll(self._function, total, last) or _NOWHERE
            along = [self._collect_written(s, row=row.name) for s in self._stretch.stages]
            self._along = [self._copy_tables(elements) for elements in along]
        over: Stretch | None = None
        if self._lead and self._lead[-1] == len(row.extents) - 2:
            signed = not _hides_zeros(total, row.name)
            over = unroll(self._function, row, self._lead[-1], signed_zeros=signed)
        self._over_stretch = over or _NOWHERE
        """The same for rows, along the innermost of the outer axes."""
        self._over = [self._collect_written(stage) for stage in self._over_stretch.stages]

    def _collect_written(
        self,
        stage: ir.Stage,
        local: Mapping[str, DataType] | None = None,
        row: str | None = None,
    ) -> Elements:
        """An unrolled reduction as scalar work over the outer axes and the last one. Tensors in
        `local` have one element per output in the line buffer. Its result is also in a register."""
        function, local = self._function, local or {}
        stages = tuple(stage if s.name == stage.name else s for s in function.stages)
        added = (ir.Parameter(name, dtype, stage.extents[-1:]) for name, dtype in local.items())
        parameters = (*function.parameters, *added)
        changed = dataclasses.replace(function, stages=stages, parameters=parameters)
        domain, axes = _name_axes(stage, self._lead)
        collector = Collector(changed, tuple(domain), local, len(domain), row)
        collector.add_stage(stage.name, axes)
        made = collector.elements()
        results = tuple((dataclasses.replace(v, local=True), n) for v, n in made.results)
        return dataclasses.replace(made, results=results)

    def _copy_tables(self, elements: Elements, *, every: bool = False) -> Elements:
        """Scalar work with loads of tables replaced by loads of contiguous copies, for tables with
        one element per index along the last dimension that are not contiguous; or with `every`, for
        all such tables. Compilers vectorize loads of the copies."""
        tables = {table.name for table in self._function.tables}
        count, least = elements.space.extents[-1], 1 if every else 2
        values: list[Value] = []
        for value in elements.values:
            if isinstance(value, Read) and value.view.tensor in tables and isinstance(count, int):
                view, dtype = value.view, value.dtype
                *outer, along = known(view.strides)
                if along >= least and not any(outer):
                    # No tensor has this name.
                    name = f"{view.tensor}#{view.offset}+{along}"
                    copied = View(name, view.dtype, (*outer, 1), local=True)
                    self._copies.setdefault(view, _copy(copied, view, dtype, count))
                    value = Read(copied, dtype)
            values.append(value)
        return dataclasses.replace(elements, values=tuple(values))

    # The nest --------------------------------------------------------------------------------

    def build(self, rows: int, at_once: int) -> Nest:
        """The nest, with `rows` of a group, and so many `at_once`."""
        row, parallel, size = self._row, self._kept, self.size
        lead = Dim("block.1", self.count, tuple((dim, 1) for dim in parallel))
        row_x, x = Dim("x", self._long), Dim("x.1", size)
        at_hand = self._buffer(
            row, row_x, self.pitch * at_once, linear=True, rows=lead, pitch=self.pitch,
            front=self._front,
        )  # fmt: skip
        make, reduce = self._make_row(at_hand), self._reduce_row(at_hand, x)
        before = [node for copied in self._copies.values() for node in self._fill(copied)]
        if self.is_permuted:
            front, end = self._front, self._front + self._long
            fills = (Fill(at_hand, 0, front), Fill(at_hand, end, self.pitch))
            before = [*(f for f in fills if f.first < f.last), *before]
        if at_once == 1:
            parts, body = [(dim, 1) for dim in parallel], (*make, *reduce)
        else:
            parts = [(lead, at_once)]
            loops = (Loop(lead, Kind.LOOP, 1, each, "row", at_once) for each in (make, reduce))
            body = tuple(loops)
        block, run = number_steps("block", parts), rows // at_once
        begin = "begin" if 1 < run < self.count // at_once else "block"
        if run > 1:
            body = (Loop(block, Kind.LOOP, 1, body, "block"),)
        groups = Loop(block, Kind.GROUP, run, body, begin)
        return Nest(
            tuple(self._phases),
            tuple(self._dims),
            name_apart((*before, groups)),
            buffers=tuple(self._buffers),
        )

    def _buffer(self, phase: Phase, dim: Dim, size: int, **how: Any) -> Buffer:
        """Buffer of a reduction, with one element for each index along a row."""
        made = keep_along(phase, dim, size, **how)
        self._buffers.append(made)
        return made

    def _add(self, phase: Phase, *dims: Dim) -> int:
        self._phases.append(phase)
        self._dims.append(dims)
        return len(self._phases) - 1

    def _name(self, name: str, size: int, place: int = 0) -> Dim:
        """A dimension of the next phase alone."""
        return Dim(f"{name}.{len(self._phases)}.{place}", size)

    def _loop(self, phase: Phase, dim: Dim, body: tuple[Node, ...]) -> Node:
        """A loop along a row, vectorized if possible."""
        elements, space = phase.elements, phase.space
        if _goes_in_vectors(elements, len(space.parallel)):
            return in_vectors(dim, self._lanes, body)
        return Loop(dim, Kind.LOOP, 1, body, "x")

    def _reduce(self, phase: Phase, x: Dim, buffer: Buffer) -> tuple[Node, ...]:
        """Reduction of one point of a row."""
        sizes = phase.space.sizes[len(self._kept) + 1 :] or (1,)
        inner = [self._name("k", size, place) for place, size in enumerate(sizes)]
        axes = len(phase.space.sizes) - len(self._kept) - 1
        number = self._add(phase, *self._kept, x, *inner[:axes])
        node: Node = Point(number)
        # Loads protected by a guard need a loop of their own, even of a single point.
        for dim in reversed(inner):
            node = Loop(dim, Kind.LOOP, 1, (node,), "k")
        return (Reduce(number, (node,), serial=True, into=Into(buffer, x)),)

    def _make_row(self, at_hand: Buffer) -> tuple[Node, ...]:
        """Nodes that compute the line buffer."""
        begin, end, x = self._over_stretch.first, self._over_stretch.last, at_hand.dim
        turn = self._name("turn", max(1, end - begin))
        lead = self._kept if self._is_uniform else (*self._kept[:-1], turn)
        cases: list[tuple[Node, ...]] = []
        for phase in self._written_rows:
            point = Point(self._add(phase, *lead, x), (Into(at_hand, x),))
            cases.append((self._loop(phase, x, (point,)),))
        if self._is_uniform:
            return cases[0]
        others: tuple[Node, ...] = ()
        if not cases or end - begin < self._row.space.sizes[len(self._kept) - 1]:
            others = (self._loop(self._row, x, self._reduce(self._row, x, at_hand)),)
        return (Turns(self._kept[-1], begin, end, turn, tuple(cases), others),) if cases else others

    def _reduce_row(self, at_hand: Buffer, x: Dim) -> tuple[Node, ...]:
        """Nodes that reduce the line buffer, and store the outputs."""
        begin, end, permutation = self._stretch.first, self._stretch.last, self._picks
        size, parallel, stored = self._stored.space.sizes[-1], self._kept, self._stored
        whole = permutation is not None and size % LANES == 0 and end - begin == size
        is_stored = whole and _goes_in_vectors(stored.elements, len(stored.space.parallel))
        into = at_hand
        if not is_stored:
            into = self._buffer(self._total, x, size if permutation is None else _round_up(size))
        made: list[Node] = []
        if permutation is not None:
            # Outputs are stored as vectors at once if all are made by permutation.
            number = self._add(self._written[0], *parallel, x)
            inner: tuple[Node, ...] = (Point(number, (Into(into, x),)),)
            if is_stored:
                made_of = Point(number, name=self._total.accumulators[0].name)
                inner = (made_of, Point(self._add(stored, *parallel, x)))
            permuted = (Permute(permutation.patterns, at_hand, x, inner),)
            part = (begin, begin + _round_up(end - begin))
            made.append(Loop(x, Kind.VECTOR, LANES, permuted, "i", part=part))
        elif begin < end:
            period = len(self._written)
            turn = self._name("turn", (end - begin) // period)
            points = tuple(
                Point(self._add(phase, *parallel, turn), (Into(into, turn, period, begin + place),))
                for place, phase in enumerate(self._written)
            )
            made.append(Loop(turn, Kind.LOOP, 1, points, "turn"))
        rest = [part for part in ((0, begin), (end, size)) if part[0] < part[1]]
        if rest:
            body = self._reduce(self._total, x, into)
            loops = [Loop(x, Kind.LOOP, 1, body, "x", part=part) for part in rest]
            made = [*loops[:1], *made, *loops[1:]] if begin else [*made, *loops]
        if not is_stored:
            made.append(self._loop(stored, x, (Point(self._add(stored, *parallel, x)),)))
        return tuple(made)

    def _fill(self, copied: Phase) -> list[Node]:
        """Fills a buffer with a part of a table."""
        ((view, _),), (count,) = copied.elements.results, copied.space.sizes
        (read,) = copied.elements.buffers()
        dim, size = self._name("turn", count), count if self._picks is None else _round_up(count)
        buffer = Buffer(view.tensor, view.dtype, size, dim, local_name(read.tensor), linear=True)
        self._buffers.append(buffer)
        point = Point(self._add(copied, dim), (Into(buffer, dim),))
        nodes: list[Node] = [Loop(dim, Kind.LOOP, 1, (point,), "turn")]
        return nodes if size == count else [*nodes, Fill(buffer, count, size)]


def _list_outer(stage: ir.Stage) -> tuple[int, ...]:
    """Outer axes of a stage."""
    return tuple(a for a in range(len(stage.extents) - 1) if stage.extents[a] != 1)


def _name_axes(stage: ir.Stage, lead: Sequence[int]) -> tuple[list[ir.Extent], dict[ir.Index, int]]:
    """Outer axes of a stage, and its last one, with the dimension of each index."""
    own = (*lead, len(stage.extents) - 1)
    return [stage.extents[a] for a in own], {ir.Index(a): n for n, a in enumerate(own)}


def _collect_fold(
    function: ir.Function, stage: ir.Stage, lead: Sequence[int], row: str | None
) -> Elements:
    """A reduction as scalar work over the outer axes, the last one and the reduced ones."""
    domain, axes = _name_axes(stage, lead)
    for label, extent in stage.reduction.axes if stage.reduction is not None else ():
        if extent != 1:
            axes[ir.Index(label, reduced=True)] = len(domain)
            domain.append(extent)
    collector = Collector(function, tuple(domain), row=row)
    collector.add_reduction(stage.name, axes)
    return collector.elements()


def _collect_stored(function: ir.Function, stages: Sequence[str], lead: Sequence[int]) -> Elements:
    """Scalar work that stores the second reduction, if it is stored, and its derived stages."""
    total = function.stage(stages[0])
    if total is None:
        raise InternalError(f"a kernel names a stage that is not there: {stages[0]}")
    domain, axes = _name_axes(total, lead)
    collector = Collector(function, tuple(domain), {total.name: total.dtype}, len(domain))
    others = [s for s in function.stages if s.name not in stages]
    read = {load.tensor for s in others for load in s.body.loads()}
    if total.name in read or any(r.name == total.name for r in function.results):
        collector.add_copy(total.name, axes)
    for name in stages[1:]:
        collector.add_stage(name, axes)
    return collector.elements()


def _copy(view: View, read: View, dtype: DataType, count: int) -> Phase:
    """Phase that copies every n-th element of a table to a contiguous array."""
    local = View(view.tensor, dtype, (1,), local=True)
    read = dataclasses.replace(read, strides=read.strides[-1:])
    return Phase(Elements(Space((count,), ()), (Read(read, dtype),), ((local, 0),)))


def _hides_zeros(total: ir.Stage, row: str) -> bool:
    """Whether the sign of a zero in the row does not affect the result: a sum starts from +0, and
    stays +0 whichever zero is added, times a factor or not, unless a product underflows."""
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


def _round_up(count: int) -> int:
    """Size rounded up to a multiple of a vector."""
    return -(-count // LANES) * LANES


def _goes_in_vectors(elements: Elements, axis: int, *, ragged: bool = False) -> bool:
    """Whether adjacent indices along an axis can be computed at once; if `ragged`, some are out of
    bounds, and no buffer may be loaded there."""
    moving = find_moving(elements, axis)
    for value in elements.values:
        if not isinstance(value, Read | Place | Gather):
            continue
        step = value.view.strides[axis]
        terms = value.terms if isinstance(value, Gather) else ()
        if step not in (0, 1) or any(moving[term] for term, _ in terms):
            return False
        if step and (isinstance(value, Place) or (ragged and not value.view.local)):
            return False
    if any(moving[condition] for condition in list_conditions(elements)):
        return False
    return all(view.strides[axis] == 1 for view, _ in elements.results)
