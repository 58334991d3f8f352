"""Small windows of neighbouring outputs, side by side: what they read together is read once.

Where outputs reduce windows that slide along the last axis, one work item takes a few neighbours.
Which points of a window take part is known at compile time at every place along that axis, so that
the points along it are written out, as terms of sums; positions go up by equal steps from one work
item to the next. Points that take part in most windows alone, such as those at an edge, are chosen
by a condition, and read where others are that take part. What the windows reduce along other axes
stays a reduction.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Container, Mapping, Sequence

import numpy as np

from dmlc import ir
from dmlc.ir.builder import Builder
from dmlc.ir.floor import FloorForm
from dmlc.ir.index import IndexFacts, list_arrays
from dmlc.kernel.element import Collector, Elements, View, tensor_strides
from dmlc.kernel.phases import Phase, make_accumulators
from dmlc.kernel.space import arrange
from dmlc.scalars import COMBINERS, Array, DataType, combiner_identity, find_same
from dmlc.sizes import known
from dmlc.transform.fuse import Group

NEIGHBOURS = 4
"""Outputs of a work item: a vector, where they are stored."""
_MOST_TERMS = 16
"""Points of a window along the axis and what hangs together with it, at most."""


def write_windows(
    function: ir.Function, group: Group, stored: Container[str]
) -> tuple[Phase, ...] | None:
    """The phases of a group that reduces small windows, each work item on neighbouring outputs;
    None where its reductions are no such windows, or positions go up by unequal steps. Of the
    stages those `stored` have memory."""
    windows = _Windows.find(function, group)
    return None if windows is None else windows.write(stored)


@dataclasses.dataclass(frozen=True, slots=True)
class _Windows:
    """The stages of a group over one domain: reductions, and what derives from them."""

    function: ir.Function
    reductions: tuple[ir.Stage, ...]
    derived: tuple[ir.Stage, ...]

    @classmethod
    def find(cls, function: ir.Function, group: Group) -> _Windows | None:
        if not group.passes or any(each.reduces or each.inner for each in group.passes[1:]):
            return None
        stages = [
            [s for m in each.members if (s := function.stage(m.stage)) is not None]
            for each in group.passes
        ]
        reductions, derived = stages[0], [s for own in stages[1:] for s in own]
        domain = reductions[0].domain
        if any(s.domain != domain for s in (*reductions, *derived)) or not domain:
            return None
        if not isinstance(domain[-1], int) or domain[-1] % NEIGHBOURS:
            return None
        if any(not _is_plain(s) for s in reductions):
            return None
        return cls(function, tuple(reductions), tuple(derived))

    def write(self, stored: Container[str]) -> tuple[Phase, ...] | None:
        """The phases."""
        domain = self.reductions[0].domain
        turns = domain[-1]
        if not isinstance(turns, int):
            return None
        domain = (*domain[:-1], turns // NEIGHBOURS)
        # The first of equal extremes is the one whose number is lowest among all points.
        whole = any(_is_positional(stage) for stage in self.reductions)
        made: list[tuple[ir.Stage, ...]] = []
        for stage in self.reductions:
            each = _write(self.function, stage, domain, whole=whole)
            if each is None:
                return None
            made.append(each)
        if len({first.reduction and first.reduction.axes for first, *_ in made}) > 1:
            return None
        written = {each.name: each for each in itertools.chain(*made)}
        made += [self._copy(stage, domain, written) for stage in self.derived]
        reductions, derived = made[: len(self.reductions)], made[len(self.reductions) :]
        function = self.function.with_stages((*self.function.stages, *itertools.chain(*made)))
        return self._collect(function, domain, reductions, derived, stored)

    def _copy(
        self, stage: ir.Stage, domain: tuple[ir.Extent, ...], written: Mapping[str, ir.Stage]
    ) -> tuple[ir.Stage, ...]:
        """What derives from the reductions that are `written`, for each of the neighbours. A place
        is computed in it once more: then how far it goes is known, and in the kernel it is one."""
        own = {s.name for s in (*self.reductions, *self.derived)}
        axis = ir.Index(len(domain) - 1)
        made: list[ir.Stage] = []
        for number in range(NEIGHBOURS):
            builder = Builder()
            turn = builder.add(axis)
            place = builder.apply("mul", turn, builder.constant(NEIGHBOURS))
            place = builder.apply("add", place, builder.constant(number))
            known: dict[int, int] = {}
            for n, value in enumerate(stage.body.instructions):
                if value == axis:
                    known[n] = place
                elif isinstance(value, ir.Load) and value.tensor in own:
                    name = _name(value.tensor, number)
                    source = written.get(name)
                    if source is not None and source.reduction is None and _is_place(source.dtype):
                        known[n] = builder.copy(source.body)[source.body.result]
                        continue
                    places = tuple(builder.add(ir.Index(a)) for a in range(len(domain)))
                    known[n] = builder.add(ir.Load(name, places, value.dtype))
            result = builder.copy(stage.body, known)[stage.body.result]
            body = builder.make(result)
            name = _name(stage.name, number)
            made.append(dataclasses.replace(stage, name=name, domain=domain, body=body))
        return tuple(made)

    def _collect(
        self,
        function: ir.Function,
        domain: tuple[ir.Extent, ...],
        reductions: Sequence[Sequence[ir.Stage]],
        derived: Sequence[Sequence[ir.Stage]],
        stored: Container[str],
    ) -> tuple[Phase, ...]:
        """The stages as phases."""
        kept = {ir.Index(axis): axis for axis in range(len(domain))}
        placed = {
            _name(stage.name, number): self._place(stage, number)
            for stage in (*self.reductions, *self.derived)
            for number in range(NEIGHBOURS)
        }
        first = reductions[0][0].reduction
        inner = () if first is None else tuple(extent for _, extent in first.axes)
        work: list[Elements] = []
        numbers: list[tuple[str, DataType, int]] = []
        near: dict[str, DataType] = {}
        if inner:
            collector = Collector(function, (*domain, *inner), {}, len(domain), placed=placed)
            for stage in itertools.chain(*reductions):
                axes = dict(kept)
                for place, (label, _) in enumerate(stage.reduction.axes if stage.reduction else ()):
                    axes[ir.Index(label, reduced=True)] = len(domain) + place
                numbers.append((stage.name, stage.dtype, collector.add_reduction(stage.name, axes)))
            work.append(collector.elements())
            near = {name: dtype for name, dtype, _ in numbers}
        collector = Collector(function, domain, near, len(domain), placed=placed)
        for before, stages in zip(self.reductions, reductions, strict=True):
            for stage in stages:
                if not inner:
                    collector.add_stage(stage.name, kept, leaves=before.name in stored)
                elif before.name in stored:
                    collector.add_copy(stage.name, kept)
        for before, stages in zip(self.derived, derived, strict=True):
            for stage in stages:
                collector.add_stage(stage.name, kept, leaves=before.name in stored)
        work.append(collector.elements())
        spaces = arrange(work, len(domain), as_written=True)
        if not inner:
            return (Phase(work[0], spaces[0]),)
        accumulators = make_accumulators(work[0], numbers)
        return Phase(work[0], spaces[0], accumulators), Phase(work[1], spaces[1])

    def _place(self, stage: ir.Stage, number: int) -> View:
        """Where an output of a number is stored."""
        *outer, last = known(tensor_strides(self.function, stage.name))
        strides = (*outer, NEIGHBOURS * last)
        return View(stage.name, stage.dtype, strides, number * last)


def _name(stage: str, number: int) -> str:
    """What a stage is called where it computes one of the neighbours."""
    return f"{stage}#{number}"


def _is_place(dtype: DataType) -> bool:
    return dtype.is_integer and not dtype.is_storage_only


def _is_plain(stage: ir.Stage) -> bool:
    """Whether a stage reduces values that terms can be written of."""
    return stage.reduction is not None and stage.body.dtype is not DataType.BOOL


def _is_positional(stage: ir.Stage) -> bool:
    return stage.reduction is not None and stage.reduction.combiner in ir.POSITIONAL_COMBINERS


def _write(
    function: ir.Function, stage: ir.Stage, domain: tuple[ir.Extent, ...], *, whole: bool
) -> tuple[ir.Stage, ...] | None:
    """A reduction for each of the neighbours, over the windows' other axes alone; with `whole`,
    all of their points are written out."""
    facts = IndexFacts(stage, list_arrays(function.tables))
    axis, reduction = ir.Index(len(domain) - 1), stage.reduction
    if reduction is None:
        return None
    axes = {ir.Index(label, reduced=True): extent for label, extent in reduction.axes}
    positions = {i for load in stage.body.loads() for i in load.indices}
    together = [set(facts.dependencies[number]) for number in (*facts.conditions, *positions)]
    inner = tuple(i for i in axes if any({axis, i} <= indices for indices in together))
    if whole and inner:
        inner = tuple(axes)
    extents = [axes[index] for index in inner]
    terms = math.prod(e for e in extents if isinstance(e, int))
    if not inner or any(not isinstance(e, int) for e in extents) or terms > _MOST_TERMS:
        return None
    over = (axis, *inner)
    own = [c for c in facts.conditions if set(facts.dependencies[c]) & set(over)]
    holds = facts.find_passing(own, over)
    steady = _list_steady(facts, over)
    if holds is None or steady is None or (_is_positional(stage) and facts.conditions):
        return None
    rest = tuple((label, extent) for label, extent in reduction.axes
                 if ir.Index(label, reduced=True) not in inner)  # fmt: skip
    made: list[ir.Stage] = []
    for number in range(NEIGHBOURS):
        writer = _Writer(facts, over, holds, steady, range(number, len(holds), NEIGHBOURS))
        if _is_positional(stage):
            body = writer.write_place()
        else:
            body = writer.write([c for c in facts.conditions if c not in own], is_whole=not rest)
        if body is None:
            return None
        changed = dataclasses.replace(
            stage,
            name=_name(stage.name, number),
            domain=domain,
            body=body,
            reduction=ir.Reduction(reduction.combiner, rest) if rest else None,
        )
        made.append(changed)
    return tuple(made)


def _list_steady(facts: IndexFacts, over: tuple[ir.Index, ...]) -> dict[int, Array] | None:
    """What each position and each load of a table gives along the axis and at each point; None
    where a position depends on other axes as well."""
    body, wanted = facts.stage.body, list[int]()
    positions = {i for load in body.loads() for i in load.indices}
    for number, instruction in enumerate(body.instructions):
        if over[0] not in facts.dependencies[number]:
            continue
        if facts.is_over(number, over):
            if isinstance(instruction, ir.Load) or ir.value_type(instruction) is DataType.INDEX:
                wanted.append(number)
        elif number in positions:
            return None
    shape = tuple(e for e in map(facts.stage.extent, over) if isinstance(e, int))
    found = facts.evaluate(wanted, over)
    if found is None:
        return None
    return {n: np.broadcast_to(v, shape) for n, v in zip(wanted, found, strict=True)}


class _Writer:
    """Writes what one of the neighbours reduces, `places` of the axis being its own."""

    def __init__(
        self,
        facts: IndexFacts,
        over: tuple[ir.Index, ...],
        holds: Array,
        steady: Mapping[int, Array],
        places: range,
    ) -> None:
        self._facts = facts
        self._over = over
        self._steady = steady
        self._rows = np.asarray(places)
        self._holds = holds[self._rows]
        self._builder = Builder()
        self._turn = self._builder.add(over[0])

    def write(self, conditions: Sequence[int], *, is_whole: bool) -> ir.Body | None:
        """The body: the points along the axis as terms, under the other conditions. Where nothing
        is left to reduce (`is_whole`), sums begin as reductions do."""
        stage, builder = self._facts.stage, self._builder
        body, reduction = stage.body, stage.reduction
        if reduction is None:
            return None
        combiner, dtype = reduction.combiner, body.dtype
        total: int | None = None
        if is_whole:
            total = builder.add(ir.Constant(dtype, combiner_identity(combiner, dtype)))
        every = itertools.product(*(range(n) for n in self._holds.shape[1:]))
        for point in every:
            passes = self._holds[(..., *point)]
            if not passes.any():
                continue
            term = self._write_term(point, passes, combiner)
            if term is None:
                return None
            if total is None:
                total = term
            else:
                total = builder.add(ir.Apply(COMBINERS[combiner], (total, term), dtype))
        if total is None:
            total = builder.add(ir.Constant(dtype, combiner_identity(combiner, dtype)))
        copied = builder.copy(body) if conditions else []
        return builder.make(total, builder.join(copied[c] for c in conditions))

    def write_place(self) -> ir.Body | None:
        """The body where the first of the smallest or largest points is looked for: a NaN is more
        extreme than any number."""
        stage, builder = self._facts.stage, self._builder
        reduction, dtype = stage.reduction, stage.body.dtype
        if reduction is None:
            return None
        is_more = "lt" if reduction.combiner == "argmin" else "gt"
        best: int | None = None
        place = builder.constant(0, stage.dtype.compute)
        every = itertools.product(*(range(n) for n in self._holds.shape[1:]))
        for number, point in enumerate(every):
            term = self._write_term(point, self._holds[(..., *point)], reduction.combiner)
            if term is None:
                return None
            if best is None:
                best = term
                continue
            better = builder.apply(is_more, term, best)
            if dtype.is_float:
                known = builder.apply("not", builder.apply("isnan", best))
                unknown = builder.apply("and", builder.apply("isnan", term), known)
                better = builder.apply("or", better, unknown)
            own = builder.constant(number, stage.dtype.compute)
            place = builder.add(ir.Select(better, own, place, stage.dtype.compute))
            best = builder.add(ir.Select(better, term, best, dtype))
        return builder.make(place)

    def _write_term(self, point: tuple[int, ...], passes: Array, combiner: str) -> int | None:
        """A point: what is combined where it does not take part changes nothing."""
        body, builder = self._facts.stage.body, self._builder
        turn, condition = self._limit(passes)
        if turn is None:
            return None
        fixed = dict(zip(self._over[1:], point, strict=True))
        positions = {i for load in body.loads() for i in load.indices}
        known: dict[int, int] = {}
        for number, instruction in enumerate(body.instructions):
            if isinstance(instruction, ir.Index) and instruction in fixed:
                known[number] = builder.constant(fixed[instruction])
            elif number in self._steady:
                values = self._steady[number][(self._rows, *point)]
                line = self._write_line(instruction, values, turn, passes)
                if line is not None:
                    known[number] = line
                elif number in positions:
                    return None
        term = builder.copy(body, known)[body.result]
        if condition is None:
            return term
        nothing = combiner_identity(combiner, body.dtype)
        if combiner == "sum" and body.dtype.is_float:
            nothing = -0.0
        none = builder.add(ir.Constant(body.dtype, nothing))
        return builder.add(ir.Select(condition, term, none, body.dtype))

    def _limit(self, passes: Array) -> tuple[int | None, int | None]:
        """The number of the turn, held where a point takes part, and whether it does: None where
        it always does. No number where that is no single run of turns."""
        builder = self._builder
        (taken,) = np.nonzero(passes)
        first, last = int(taken[0]), int(taken[-1])
        if taken.size != last - first + 1:
            return None, None
        turn, conditions = self._turn, list[int]()
        if first > 0:
            bound = builder.constant(first)
            conditions.append(builder.apply("ge", self._turn, bound))
            turn = builder.apply("max", turn, bound)
        if last < passes.size - 1:
            bound = builder.constant(last)
            conditions.append(builder.apply("le", self._turn, bound))
            turn = builder.apply("min", turn, bound)
        return turn, builder.join(conditions)

    def _write_line(
        self, instruction: ir.Instruction, values: Array, turn: int, passes: Array
    ) -> int | None:
        """A value that is the same wherever the point takes part, or a position that goes up by
        equal steps there, but for a clamp at its ends."""
        builder, dtype = self._builder, ir.value_type(instruction)
        right = values[passes]
        if find_same(right, right[:1]).all():
            return builder.add(ir.Constant(dtype, right[0].item()))
        if dtype is not DataType.INDEX:
            return None
        (turns,) = np.nonzero(passes)
        steps = np.diff(right)
        step, at = int(np.median(steps)), len(steps) // 2
        line = FloorForm(step, int(right[at]) - step * int(turns[at]), 1)
        form = line.clamp(turns, right)
        return None if form is None else form.write(builder, turn)
