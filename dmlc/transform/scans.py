"""Makes prefix sums short: reductions that each element of a result has over the points before it.

A prefix sum is written as what it is, `Y[i] = sum[k : n where k <= i](X[k])`, and goes through all
points for each element. Here it becomes stages: within blocks of few points each element reduces
those of its block up to its own; the last of each block are reduced likewise, in blocks again; and
what stands before its block is put to each element. That takes some 16 steps for a point in place
of all there are, in a few kernels, in each of which all places are computed at once.

It is so for every combiner that gives a value, and wherever the condition compares the reduced
index with a sum of indices of the result on which nothing else depends: up to the element or
short of it, from it on (`k >= i`, as gradients of prefix sums are), at a stride. Of a sum, terms
that are products of what depends on the point and what does not are scanned without the latter.

Where kernels scan `whole` rows (`lowering.scans`), as those of GPUs do, one stage stays as it is
written, and has all points of each row; others read of it what they need.

Sizes alone say how points are grouped, and in a block they are reduced one after the other: the
bits are the same in every run and on every device. Windows, whose two ends move, are none of this.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dmlc.index.affine import Affine, solve
from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Extent,
    Function,
    Index,
    Reduction,
    Select,
    Stage,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, part_conditions
from dmlc.ir.naming import take_name
from dmlc.ir.verify import are_sound
from dmlc.scalars import COMBINERS, DataType
from dmlc.sizes import find_symbols
from dmlc.transform.keys import guard_choices
from dmlc.transform.loops import find_before

_BLOCK = 16
"""The points of a block: an element reduces half of them on average."""
_UPPER_BLOCK = 64
"""The blocks of a block: there are few, so that fewer kernels are worth more steps."""
_LEAST_STEPS = 1 << 16
"""Steps of a scan that is worth the launches."""
_GAIN = 4
"""How many times the steps there are to be without blocks."""


def scan_in_blocks(function: Function, *, whole: bool = False, always: bool = False) -> Function:
    """The function with each long scan in stages, or `always` each, however short it is; the
    function itself where it has none. Where kernels scan `whole` rows, one of the stages does."""
    names = dict.fromkeys(function.tensors())
    stages: list[Stage] = []
    for stage in function.stages:
        scan = find_scan(stage)
        if scan is None or not (always or scan.is_worth_it) or (whole and scan.has_rows):
            stages.append(stage)
            continue
        made = _write(scan, names, whole)
        # What the condition may protect is read at every point.
        stages += made if are_sound(function, stages, made) else [stage]
    return function.with_stages(stages)


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """What is scanned: a value that the point alone says, where some conditions hold of it. The
    total takes some steps to what the element has of it, each with a value of the element's."""

    value: int
    conditions: tuple[int, ...] = ()
    steps: tuple[tuple[str, int], ...] = ()

    def then(self, name: str, value: int = 0) -> Term:
        return dataclasses.replace(self, steps=(*self.steps, (name, value)))


@dataclasses.dataclass(frozen=True, slots=True)
class Scan:
    """A reduction of the points up to a place, or from it on, which the element says."""

    stage: Stage
    """With all that leaves points out in its guard."""
    point: Index
    count: int
    """The points that any element reduces: those beyond are never reached."""
    last: Affine[Index]
    """The place, as a sum of indices of the domain."""
    goes_back: bool
    """Whether the points from it on are reduced."""
    outer: tuple[Index, ...]
    """The indices of the domain that the points depend on: each place of theirs has a scan."""
    terms: tuple[Term, ...]
    conditions: tuple[int, ...]
    """What else the guard says of the points."""
    element_conditions: tuple[int, ...]
    """What it says of the element alone."""

    @property
    def has_rows(self) -> bool:
        """Whether each element of a row reduces those up to its own, or short of it, and that is
        all."""
        stage, read = self.stage, Term(self.stage.body.result)
        is_plain = self.terms == (read,) and not (self.conditions or self.element_conditions)
        match self.last.factors:
            case ((index, 1),) if self.last.constant in (0, 1 if self.goes_back else -1):
                same = _measure(stage, index) == _measure(stage, self.point)
            case _:
                return False
        rest = len(stage.indices) - 2
        return is_plain and same and len(self.outer) == rest and stage.dtype is stage.body.dtype

    @property
    def is_worth_it(self) -> bool:
        """Whether the reduction is long, and much shorter in blocks."""
        elements = math.prod(_measure(self.stage, i) for i in self.stage.indices if not i.reduced)
        scans = math.prod(_measure(self.stage, index) for index in self.outer)
        dense = elements * _measure(self.stage, self.point)
        short = elements + len(self.terms) * scans * self.count * _BLOCK
        return dense >= max(_LEAST_STEPS, _GAIN * short)


def find_scan(stage: Stage) -> Scan | None:
    """How a stage is a scan; None where it is none of known sizes."""
    if stage.reduction is None or stage.is_positional:
        return None
    if not all(_measure(stage, index) for index in stage.indices) or stage.body.guard is None:
        return None
    stage = guard_choices(stage)
    if not stage.body.loads():
        return None
    facts = IndexFacts(stage)
    lasts = ((condition, _find_last(facts, condition)) for condition in facts.conditions)
    scans = (_find_points(facts, condition, *last) for condition, last in lasts if last is not None)
    return next((scan for scan in scans if scan is not None), None)


def settle_extents(stage: Stage) -> Stage:
    """The same stage with numbers for the sizes that are left open, as large as may be."""
    if not find_symbols(stage.sizes):
        return stage

    def settle(extent: Extent) -> Extent:
        return extent if isinstance(extent, int) else _LEAST_STEPS

    reduction = stage.reduction
    if reduction is not None:
        axes = tuple((number, settle(extent)) for number, extent in reduction.axes)
        reduction = dataclasses.replace(reduction, axes=axes)
    extents = tuple(map(settle, stage.extents))
    return dataclasses.replace(stage, extents=extents, reduction=reduction)


def _measure(stage: Stage, index: Index) -> int:
    """The size of an axis; 0 where that is known at run time only."""
    extent = stage.extent(index)
    return extent if isinstance(extent, int) else 0


def _find_last(facts: IndexFacts, condition: int) -> tuple[Index, Affine[Index], bool] | None:
    """The reduced index that a condition compares with a sum of indices of the domain, the last
    place, or else the first, at which it holds, and whether it is the first."""
    match facts.stage.body.instructions[condition]:
        case Apply(operation=operation, operands=(left, right)) if operation.name in _ENDS:
            low, high = facts.forms[left], facts.forms[right]
        case _:
            return None
    if low is None or high is None:
        return None
    found = solve(operation.name, low, high, lambda index: index.reduced)
    if found is None or not found[2].factors:
        return None
    index, name, place = found
    return index, place.plus(Affine(_ENDS[name])), name in ("gt", "ge")


_ENDS: Mapping[str, int] = {"lt": -1, "le": 0, "ge": 0, "gt": 1}
"""Of comparisons with a place, how far from it the first or the last place is at which they
hold."""


def _find_points(
    facts: IndexFacts, condition: int, point: Index, last: Affine[Index], goes_back: bool
) -> Scan | None:
    """The scan of what lies up to a place, or from it on; None where that depends on where the
    element is in more ways."""
    stage, own = facts.stage, [index for index, _ in last.factors]
    others = [c for c in facts.conditions if c != condition]
    points = [c for c in others if any(index.reduced for index in facts.dependencies[c])]
    elements = tuple(c for c in others if c not in points)
    read = facts.depends_on(points)
    free = [index for index in own if index not in read]
    terms = _split(facts, stage.body.result, free)
    if not terms:
        return None
    read = facts.depends_on([*points, *(v for t in terms for v in (t.value, *t.conditions))])
    reach = stage.extent(point)
    if not isinstance(reach, int):
        return None
    # Where the last place is before the axis ends, no element goes further; nor, backwards, does
    # any start before the first.
    count = reach if goes_back else max(1, min(reach, _find_ends(stage, last)[1] + 1))
    outer = tuple(i for i in stage.indices if not i.reduced and (i in read or i not in own))
    return Scan(stage, point, count, last, goes_back, outer, tuple(terms), tuple(points), elements)


def _find_ends(stage: Stage, form: Affine[Index]) -> tuple[int, int]:
    """The smallest and the largest that a sum of indices comes to."""
    return form.interval(lambda index: (0, _measure(stage, index) - 1))


# Terms --------------------------------------------------------------------------------------


def _split(facts: IndexFacts, value: int, free: Sequence[Index]) -> list[Term]:
    """A value as a sum of terms of which what is scanned depends on none of the `free` indices, and
    so at least on one less than before; none where it is no such sum."""
    body = facts.stage.body
    if not free:
        return []
    if not set(free) & set(facts.dependencies[value]):
        return [Term(value)]
    if facts.stage.combiner != "sum":
        return []

    def is_of_element(value: int) -> bool:
        return not any(index.reduced for index in facts.dependencies[value])

    match body.instructions[value]:
        case Apply(operation=operation, operands=(left, right)):
            name, is_float = operation.name, body.dtype.is_float
            if name in ("add", "sub"):
                one, two = _split(facts, left, free), _split(facts, right, free)
                two = [term.then("neg") for term in two] if name == "sub" else two
                return [*one, *two] if one and two else []
            if name == "mul" or (name == "div" and is_float):
                if is_of_element(right):
                    return [term.then(name, right) for term in _split(facts, left, free)]
                if name == "mul" and is_of_element(left):
                    return [term.then(name, left) for term in _split(facts, right, free)]
        case Apply(operation=operation, operands=(given,)) if operation.name == "neg":
            return [term.then("neg") for term in _split(facts, given, free)]
        case Select(condition=condition, then=then, otherwise=otherwise):
            nothing = Constant(body.dtype, COMBINERS["sum"].identity(body.dtype))
            if body.instructions[otherwise] != nothing:
                return []
            _, conditions = part_conditions(body.instructions, condition)
            own = [c for c in conditions if is_of_element(c)]
            others = tuple(c for c in conditions if c not in own)
            if set(free) & set(facts.depends_on(others)):
                return []
            terms = _split(facts, then, free)
            terms = [dataclasses.replace(t, conditions=(*t.conditions, *others)) for t in terms]
            for each in own:
                terms = [term.then("select", each) for term in terms]
            return terms
        case _:
            pass
    return []


# Stages -------------------------------------------------------------------------------------


def _write(scan: Scan, names: dict[str, None], whole: bool) -> list[Stage]:
    """The stages of a scan, of which the last is the one that it was."""
    stage, body = scan.stage, scan.stage.body
    dtype, combiner = body.dtype, stage.combiner or ""
    made: list[Stage] = []
    levels: list[_Level | _Rows] = []
    sizes = tuple(_measure(stage, index) for index in scan.outer)
    row = _Row(stage.name, combiner, dtype, scan.goes_back, sizes, _find_axis(scan), names)
    for term in scan.terms:
        source = _write_points(scan, term, take_name(f"{stage.name}_points", names))
        levels.append(_scan_rows(row, source) if whole else _make_levels(row, source))
        made += [source, *levels[-1].stages]
    builder = BodyBuilder()
    numbers = builder.copy(body)
    nothing = builder.nothing(combiner, dtype)
    outer = [builder.add(index) for index in scan.outer]
    low, high = _find_ends(stage, scan.last)
    place = scan.last.ordered().write(builder.add, builder.constant, builder.apply)
    conditions = [numbers[c] for c in scan.element_conditions]
    end = builder.constant(scan.count - 1)
    if low < 0:
        conditions += [] if scan.goes_back else [builder.apply("ge", place, builder.constant(0))]
        place = builder.apply("max", place, builder.constant(0))
    if high >= scan.count:
        conditions += [builder.apply("le", place, end)] if scan.goes_back else []
        place = builder.apply("min", place, end)
    totals: list[int] = []
    for term, level in zip(scan.terms, levels, strict=True):
        found = level.read(builder, outer, place)
        for name, value in term.steps:
            match name:
                case "neg":
                    found = builder.apply(name, found)
                case "select":
                    found = builder.select(numbers[value], found, nothing)
                case _:
                    found = builder.apply(name, found, numbers[value])
        totals.append(found)
    result = builder.fold("add", totals)
    for condition in conditions:
        result = builder.select(condition, result, nothing)
    return [*made, dataclasses.replace(stage, body=builder.make(result), reduction=None)]


def _find_axis(scan: Scan) -> int:
    """The axis of the points, among those of `outer`: where the first is of those they replace."""
    own = [index.axis for index, _ in scan.last.factors if index not in scan.outer]
    return sum(index.axis < min(own) for index in scan.outer)


def _write_points(scan: Scan, term: Term, name: str) -> Stage:
    """What is scanned, point by point, with what else there is to reduce."""
    stage, axis, combiner = scan.stage, _find_axis(scan), scan.stage.combiner or ""
    builder, body = BodyBuilder(), stage.body
    # What only the element says is part of the body still, and is dropped.
    places = dict.fromkeys((i for i in stage.indices if not i.reduced), builder.constant(0))
    places |= {index: builder.add(Index(n + (n >= axis))) for n, index in enumerate(scan.outer)}
    numbers = builder.copy(body, places={**places, scan.point: builder.add(Index(axis))})
    value = numbers[term.value]
    conditions = [numbers[c] for c in (*scan.conditions, *term.conditions)]
    others = tuple(a for a in stage.axes if a[0] != scan.point.axis)
    extents: list[Extent] = [_measure(stage, index) for index in scan.outer]
    extents.insert(axis, scan.count)
    if others:
        made = builder.make(value, builder.join(conditions))
        return Stage(name, body.dtype, tuple(extents), made, Reduction(combiner, others))
    nothing = builder.nothing(combiner, body.dtype)
    for condition in conditions:
        value = builder.select(condition, value, nothing)
    return Stage(name, body.dtype, tuple(extents), builder.make(value))


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """What all levels of a scan have in common."""

    name: str
    combiner: str
    dtype: DataType
    goes_back: bool
    outer: tuple[int, ...]
    """The sizes of the axes besides that of the points."""
    axis: int
    """Where that stands among them."""
    names: dict[str, None]

    def insert(self, outer: Sequence[int], *own: int) -> tuple[int, ...]:
        """The sizes of a stage, or the places in it, with those along its own axes."""
        return (*outer[: self.axis], *own, *outer[self.axis :])

    def stage(
        self, what: str, own: Sequence[int], body: Body, reduction: Reduction | None = None
    ) -> Stage:
        name = take_name(f"{self.name}_{what}", self.names)
        return Stage(name, self.dtype, self.insert(self.outer, *own), body, reduction)

    def write_outer(self, builder: BodyBuilder, own: int) -> list[int]:
        """The places along the other axes, of a stage that has so many axes of its own."""
        axes = range(len(self.outer))
        return [builder.add(Index(n if n < self.axis else n + own)) for n in axes]


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    """What all points come to up to each, as one stage."""

    row: _Row
    stages: tuple[Stage]

    def read(self, builder: BodyBuilder, outer: Sequence[int], place: int) -> int:
        """What an element at a place reduces."""
        return builder.load(self.stages[0], *self.row.insert(outer, place))


def _scan_rows(row: _Row, source: Stage) -> _Rows:
    count = source.extents[row.axis]
    count = count if isinstance(count, int) else 0
    builder = BodyBuilder()
    outer, point = row.write_outer(builder, 1), builder.add(Index(0, reduced=True))
    value = builder.load(source, *row.insert(outer, point))
    reaches = builder.apply("ge" if row.goes_back else "le", point, builder.add(Index(row.axis)))
    reduction = Reduction(row.combiner, ((0, count),))
    return _Rows(row, (row.stage("scan", (count,), builder.make(value, reaches), reduction),))


@dataclasses.dataclass(frozen=True, slots=True)
class _Level:
    """The blocks of some points, and what is before each of them."""

    row: _Row
    stages: tuple[Stage, ...]
    """All that compute it."""
    blocks: Stage
    """What each element reduces of its block: by block, and by element of each."""
    size: int
    """The elements of a block."""
    filled: int
    """The elements of the first block that are no points: gone through backwards, the last block
    is the one that is whole."""
    before: Stage | None
    """By block, what the blocks before it come to; None where there is one."""

    def read(self, builder: BodyBuilder, outer: Sequence[int], place: int) -> int:
        """What an element at a place reduces."""
        row = self.row
        place = builder.apply("add", place, builder.constant(self.filled))
        size = builder.constant(self.size)
        if self.before is None:
            return builder.load(self.blocks, *row.insert(outer, builder.constant(0), place))
        block, own = builder.apply("div", place, size), builder.apply("mod", place, size)
        found = builder.load(self.blocks, *row.insert(outer, block, own))
        before = builder.load(self.before, *row.insert(outer, block))
        return builder.apply(COMBINERS[row.combiner].operation.name, before, found)


def _make_levels(row: _Row, source: Stage, last: int | None = None) -> _Level:
    """The levels of a scan of what a stage has: of all its points, or of each block of it the
    element that is the `last`."""
    count = source.extents[row.axis]
    count = count if isinstance(count, int) else 0
    size = min(count, _BLOCK if last is None else _UPPER_BLOCK)
    number = -(-count // size)
    filled = number * size - count if row.goes_back else 0
    builder = BodyBuilder()
    outer = row.write_outer(builder, 2)
    block, own = builder.add(Index(row.axis)), builder.add(Index(row.axis + 1))
    point = builder.add(Index(0, reduced=True))
    place = builder.apply("add", builder.apply("mul", block, builder.constant(size)), point)
    # What is beyond the ends, the elements that there are do not reduce.
    if filled:
        place = builder.apply("sub", place, builder.constant(filled))
        place = builder.apply("max", place, builder.constant(0))
    elif count % size:
        place = builder.apply("min", place, builder.constant(count - 1))
    places = (place,) if last is None else (place, builder.constant(last))
    value = builder.load(source, *row.insert(outer, *places))
    reaches = builder.apply("ge" if row.goes_back else "le", point, own)
    reduction = Reduction(row.combiner, ((0, size),))
    blocks = row.stage("block", (number, size), builder.make(value, reaches), reduction)
    if number == 1:
        return _Level(row, (blocks,), blocks, size, filled, None)
    upper = _make_levels(row, blocks, 0 if row.goes_back else size - 1)
    builder = BodyBuilder()
    outer, block = row.write_outer(builder, 1), builder.add(Index(row.axis))
    nearest, has_more = find_before(builder, block, number, row.goes_back)
    nothing = builder.nothing(row.combiner, row.dtype)
    total = builder.select(has_more, upper.read(builder, outer, nearest), nothing)
    before = row.stage("before", (number,), builder.make(total))
    return _Level(row, (blocks, *upper.stages, before), blocks, size, filled, before)
