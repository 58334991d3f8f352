"""Blocked scans: prefix reductions in a number of steps linear in the row length.

A prefix sum is written by its definition, `Y[i] = sum[k : n where k <= i](X[k])`, which visits all
points for each element. It is replaced by stages: within blocks of few points, each element reduces
the points of its block up to its own; the blocks' totals are scanned likewise, in blocks again; and
the total before its block is added to each element. `docs/explanation/scans.md` has the formulas
that are scans. Where kernels scan `whole` rows (`lowering.scans`), as those of GPUs do, one stage
stays a scan by definition, and others read its elements.

Sizes alone determine the blocks, and a block is reduced sequentially: results are bit-identical in
every run and on every device. Windows, with two moving ends, are not scans.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from dmlc.index.affine import Affine, solve
from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Extent,
    Function,
    Index,
    Load,
    Reduction,
    Select,
    Stage,
    reads_own_place,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, part_conditions
from dmlc.ir.naming import take_name
from dmlc.scalars import COMBINERS, DataType
from dmlc.sizes import find_symbols
from dmlc.transform.cost import Budget
from dmlc.transform.keys import guard_choices
from dmlc.transform.loops import find_before
from dmlc.transform.simplify import replace_soundly

_BLOCK = 16
"""Points of a block, of which an element reduces half on average."""
_UPPER_BLOCK = 64
"""Points of a block at higher levels: there are few, so that fewer kernels are worth more steps."""
LEAST_STEPS = 1 << 16
"""Smallest number of steps of a scan, or of a count, that is worth replacing."""
_GAIN = 4
"""Smallest ratio of steps without blocks to steps with them."""


def scan_in_blocks(function: Function, *, whole: bool = False, always: bool = False) -> Function:
    """Function with each long scan in blocks (short ones too with `always`); the same object if it
    has none. With `whole`, kernels scan whole rows."""
    names = dict.fromkeys(function.tensors())

    def make(stage: Stage) -> list[Stage]:
        scan = None if find_symbols(stage.sizes) else find_scan(stage)
        left = scan is None or not (always or scan.is_worth_it) or (whole and scan.has_rows)
        return [] if scan is None or left else _write(scan, names, whole)

    return replace_soundly(function, make)


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """A scanned value, which depends on the point alone, under conditions on the point. `steps` are
    operations, with values of the element, that turn the scan's result into the element's share."""

    value: int
    conditions: tuple[int, ...] = ()
    steps: tuple[tuple[str, int], ...] = ()

    def then(self, name: str, value: int = 0) -> Term:
        return dataclasses.replace(self, steps=(*self.steps, (name, value)))


@dataclasses.dataclass(frozen=True, slots=True)
class Scan:
    """A reduction of the points up to, or from, an index that depends on the element."""

    stage: Stage
    """The reduction, with all conditions in its guard."""
    point: Index
    count: int
    """Number of points that any element reduces."""
    last: Affine[Index]
    """The last index (the first with `goes_back`), as an affine form of domain indices."""
    goes_back: bool
    """Whether the points from that index on are reduced."""
    outer: tuple[Index, ...]
    """Domain indices that the points depend on: there is one scan for each of their values."""
    terms: tuple[Term, ...]
    conditions: tuple[int, ...]
    """Further conditions on the points."""
    element_conditions: tuple[int, ...]
    """Conditions on the element alone."""
    stored: str | None = None
    """Stage that stores a scan of rows in another type."""

    def __str__(self) -> str:
        reach = (("before", "up to"), ("after", "from"))[self.goes_back][self.is_inclusive]
        return f"%{self.stage.name} scans rows along i{self.axis}: the points {reach} each element"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.stage.name,) if self.stored is None else (self.stage.name, self.stored)

    @property
    def axis(self) -> int:
        """Domain axis along which the last index moves, if that is one axis, as in whole rows."""
        return self.last.factors[0][0].axis

    @property
    def is_inclusive(self) -> bool:
        """Whether an element's own value is included, in a scan of whole rows."""
        return self.last.constant == 0

    def place(self, builder: BodyBuilder) -> Body:
        """Body of the scanned value of whole rows, for a stage of the same domain."""
        body = self.stage.body
        numbers = builder.copy(body, places={self.point: builder.add(Index(self.axis))})
        return builder.make(numbers[body.result])

    def part_extents(self) -> tuple[tuple[Extent, ...], tuple[Extent, ...], tuple[Extent, ...]]:
        """Extents of the axes before that of the rows, of that axis, and after it."""
        extents, axis = self.stage.extents, self.axis
        return extents[:axis], extents[axis : axis + 1], extents[axis + 1 :]

    @property
    def has_rows(self) -> bool:
        """Whether it is a plain inclusive or exclusive scan of whole rows."""
        stage, read = self.stage, Term(self.stage.body.result)
        is_plain = self.terms == (read,) and not (self.conditions or self.element_conditions)
        match self.last.factors:
            case ((index, 1),) if self.last.constant in (0, 1 if self.goes_back else -1):
                same = stage.extent(index) == stage.extent(self.point)
            case _:
                return False
        rest = len(stage.indices) - 2
        return is_plain and same and len(self.outer) == rest and stage.dtype is stage.body.dtype

    @property
    def is_worth_it(self) -> bool:
        """Whether the reduction is long, and much shorter in blocks."""
        elements = _count(self.stage, (i for i in self.stage.indices if not i.reduced))
        scans = _count(self.stage, self.outer)
        dense = elements * _count(self.stage, [self.point])
        short = elements + len(self.terms) * scans * self.count * _BLOCK
        return dense >= max(LEAST_STEPS, _GAIN * short)


def find_scan(stage: Stage) -> Scan | None:
    """Scan of a stage; None if it is none. Axes of open size count as long."""
    if stage.reduction is None or stage.is_positional:
        return None
    if 0 in stage.sizes or stage.body.guard is None:
        return None
    stage = guard_choices(stage)
    if not stage.body.loads():
        return None
    facts = IndexFacts(stage)
    lasts = ((condition, find_last(facts, condition)) for condition in facts.conditions)
    scans = (_find_points(facts, condition, *last) for condition, last in lasts if last is not None)
    return next((scan for scan in scans if scan is not None), None)


def _count(stage: Stage, indices: Iterable[Index]) -> int:
    """Number of points that indices range over."""
    return math.prod(stage.size(index, LEAST_STEPS) for index in indices)


def find_last(facts: IndexFacts, condition: int) -> tuple[Index, Affine[Index], bool] | None:
    """Reduced index that a condition compares with an affine form of domain indices, the last index
    for which it is true (the first for a lower bound), and whether it is the first."""
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
"""Distance from the compared value to the last or first index for which a comparison is true."""


def _find_points(
    facts: IndexFacts, condition: int, point: Index, last: Affine[Index], goes_back: bool
) -> Scan | None:
    """Scan of the points up to, or from, an index; None if they depend on the element in other
    ways."""
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
    reach = _count(stage, [point])
    # If the largest last index is before the end of the axis, no element reduces further points.
    count = reach if goes_back else max(1, min(reach, _find_ends(stage, last)[1] + 1))
    outer = tuple(i for i in stage.indices if not i.reduced and (i in read or i not in own))
    return Scan(stage, point, count, last, goes_back, outer, tuple(terms), tuple(points), elements)


def _find_ends(stage: Stage, form: Affine[Index]) -> tuple[int, int]:
    """Smallest and largest value of an affine form."""
    return form.interval(lambda index: (0, _count(stage, [index]) - 1))


# Terms --------------------------------------------------------------------------------------


def _split(facts: IndexFacts, value: int, free: Sequence[Index]) -> list[Term]:
    """Value as a sum of terms whose scanned values depend on none of the `free` indices; empty if
    it is no such sum."""
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
    """Stages of a scan; the last one replaces the original."""
    stage, body = scan.stage, scan.stage.body
    dtype, combiner = body.dtype, stage.combiner or ""
    made: list[Stage] = []
    readers: list[_Read] = []
    sizes = tuple(stage.size(index) for index in scan.outer)
    row = _ScanAxis(stage.name, combiner, dtype, scan.goes_back, sizes, _find_axis(scan), names)
    for term in scan.terms:
        source = _write_points(scan, term, take_name(f"{stage.name}_points", names))
        stages, read = _scan_rows(row, source) if whole else _scan_blocks(row, source)
        made += [source, *stages]
        readers.append(read)
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
    for term, read in zip(scan.terms, readers, strict=True):
        found = read(builder, outer, place)
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
    """Position of the points' axis among the `outer` ones: that of the first index that it
    replaces."""
    own = [index.axis for index, _ in scan.last.factors if index not in scan.outer]
    return sum(index.axis < min(own) for index in scan.outer)


def _write_points(scan: Scan, term: Term, name: str) -> Stage:
    """Stage of the scanned values, point by point, with the remaining axes reduced."""
    stage, axis, combiner = scan.stage, _find_axis(scan), scan.stage.combiner or ""
    builder, body = BodyBuilder(), stage.body
    # Values that depend on the element are copied with the body, and then dropped as unused.
    places = dict.fromkeys((i for i in stage.indices if not i.reduced), builder.constant(0))
    places |= {index: builder.add(Index(n + (n >= axis))) for n, index in enumerate(scan.outer)}
    numbers = builder.copy(body, places={**places, scan.point: builder.add(Index(axis))})
    value = numbers[term.value]
    conditions = [numbers[c] for c in (*scan.conditions, *term.conditions)]
    others = tuple(a for a in stage.axes if a[0] != scan.point.axis)
    extents: list[Extent] = [stage.size(index) for index in scan.outer]
    extents.insert(axis, scan.count)
    if others:
        made = builder.make(value, builder.join(conditions))
        return Stage(name, body.dtype, tuple(extents), made, Reduction(combiner, others))
    nothing = builder.nothing(combiner, body.dtype)
    for condition in conditions:
        value = builder.select(condition, value, nothing)
    return Stage(name, body.dtype, tuple(extents), builder.make(value))


@dataclasses.dataclass(frozen=True, slots=True)
class _ScanAxis:
    """Common parameters of all levels of a scan."""

    name: str
    combiner: str
    dtype: DataType
    goes_back: bool
    outer: tuple[int, ...]
    """Sizes of the axes other than that of the points."""
    axis: int
    """Position of the points' axis among them."""
    names: dict[str, None]

    def insert(self, outer: Sequence[int], *own: int) -> tuple[int, ...]:
        """Sizes or indices `outer`, with those along the row's axes inserted."""
        return (*outer[: self.axis], *own, *outer[self.axis :])

    def stage(
        self, what: str, own: Sequence[int], body: Body, reduction: Reduction | None = None
    ) -> Stage:
        name = take_name(f"{self.name}_{what}", self.names)
        return Stage(name, self.dtype, self.insert(self.outer, *own), body, reduction)

    def write_outer(self, builder: BodyBuilder, own: int) -> list[int]:
        """Indices along the outer axes, of a stage with `own` axes for the row."""
        axes = range(len(self.outer))
        return [builder.add(Index(n if n < self.axis else n + own)) for n in axes]


_Read: TypeAlias = Callable[[BodyBuilder, Sequence[int], int], int]
"""Writes the scan's value up to, or from, an index, at indices along the outer axes."""


def _scan_rows(row: _ScanAxis, source: Stage) -> tuple[list[Stage], _Read]:
    """Scan of whole rows of a stage's points, as one stage, and its reader."""
    count = source.size(Index(row.axis))
    builder = BodyBuilder()
    outer, point = row.write_outer(builder, 1), builder.add(Index(0, reduced=True))
    value = builder.load(source, *row.insert(outer, point))
    reaches = builder.apply("ge" if row.goes_back else "le", point, builder.add(Index(row.axis)))
    reduction = Reduction(row.combiner, ((0, count),))
    scan = row.stage("scan", (count,), builder.make(value, reaches), reduction)
    return [scan], lambda builder, outer, place: builder.load(scan, *row.insert(outer, place))


def _scan_blocks(
    row: _ScanAxis, source: Stage, last: int | None = None
) -> tuple[list[Stage], _Read]:
    """Scan of a stage's points within blocks, the scan of the blocks' totals, and the reader of
    both; with `last`, of that element of each of its blocks."""
    count = source.size(Index(row.axis))
    size = min(count, _BLOCK if last is None else _UPPER_BLOCK)
    number = -(-count // size)
    # In a backward scan, the last block is full, and the first one has padding.
    filled = number * size - count if row.goes_back else 0
    builder = BodyBuilder()
    outer = row.write_outer(builder, 2)
    block, own = builder.add(Index(row.axis)), builder.add(Index(row.axis + 1))
    point = builder.add(Index(0, reduced=True))
    place = builder.apply("add", builder.apply("mul", block, builder.constant(size)), point)
    # No actual element reduces the points beyond the ends.
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

        def read_only(builder: BodyBuilder, outer: Sequence[int], place: int) -> int:
            place = builder.apply("add", place, builder.constant(filled))
            return builder.load(blocks, *row.insert(outer, builder.constant(0), place))

        return [blocks], read_only
    stages, read_total = _scan_blocks(row, blocks, 0 if row.goes_back else size - 1)
    builder = BodyBuilder()
    outer, block = row.write_outer(builder, 1), builder.add(Index(row.axis))
    nearest, has_more = find_before(builder, block, number, row.goes_back)
    nothing = builder.nothing(row.combiner, row.dtype)
    total = builder.select(has_more, read_total(builder, outer, nearest), nothing)
    before = row.stage("before", (number,), builder.make(total))

    def read(builder: BodyBuilder, outer: Sequence[int], place: int) -> int:
        place = builder.apply("add", place, builder.constant(filled))
        block, own = (builder.apply(n, place, builder.constant(size)) for n in ("div", "mod"))
        found = builder.load(blocks, *row.insert(outer, block, own))
        carried = builder.load(before, *row.insert(outer, block))
        return builder.apply(COMBINERS[row.combiner].operation.name, carried, found)

    return [blocks, *stages, before], read


# Whole rows ---------------------------------------------------------------------------------


def find_rows(function: Function, stage: Stage, budget: Budget) -> Scan | None:
    """Scan of whole rows, contiguous in memory, that a stage is; None if it is none, or computes
    more. Where work items walk rows, those of known size are scanned in blocks instead."""
    result, is_open = function.result(stage.name), bool(find_symbols(stage.sizes))
    plain = len(stage.axes) == 1 and stage.body.dtype is not DataType.BOOL
    if not plain or (budget.walks and not is_open) or (result is not None and result.strides):
        return None
    scan = find_scan(stage)
    if scan is None or scan.stage is not stage or not (scan.has_rows and scan.is_worth_it):
        return None
    stored = None if result is not None else _find_stored(function, stage)
    kept = stored is not None and stored.dtype not in budget.paired_types
    return dataclasses.replace(scan, stored=stored.name) if stored and kept else scan


def _find_stored(function: Function, stage: Stage) -> Stage | None:
    """The only reader of a stage, if it only converts it to a narrower type."""
    readers = function.readers().get(stage.name, ())
    reader = function.stage(readers[0]) if len(readers) == 1 else None
    if reader is None or reader.reduction is not None or not reader.dtype.is_storage_only:
        return None
    load, result = reader.body.instructions[reader.body.result], function.result(reader.name)
    same = isinstance(load, Load) and load.tensor == stage.name and reads_own_place(reader, load)
    is_packed = result is None or result.strides is None
    return reader if same and is_packed and reader.extents == stage.extents else None
