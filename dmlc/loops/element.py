"""One kernel's scalar work: the bodies of its stages merged into one list of values.

A load at a position that moves evenly along each dimension becomes a `Read` of a `View`, that is a
tensor with one stride per dimension of the points walked. Any other becomes a `Gather`, whose
positions are values themselves: so are the positions along dimensions, as `Place`s. Equal values
of different stages become one, and so do equal reductions. How the points are walked is not decided
here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from dmlc import ir
from dmlc.index.intervals import Interval
from dmlc.ir.index import part_conditions
from dmlc.ir.nodes import list_folded
from dmlc.ir.rules import fold_constants
from dmlc.loops.access import Positions, join_digits, read_positions
from dmlc.scalars import COMBINERS, ROUNDINGS, Combiner, DataType
from dmlc.sizes import Measure, Size, measure, multiply, pack_strides, parse_size
from dmlc.source import InternalError, UnsupportedError


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Where a tensor's element for a point of the domain lies: `offset + sum(i * stride)`."""

    tensor: str
    dtype: DataType
    strides: tuple[Measure, ...]
    offset: int = 0
    local: bool = False
    """Whether it is in registers or private arrays, and not in memory: an earlier pass made it.
    Then a stride says no more than whether the value changes along a dimension, except in a row."""


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """The element of a view, in the tensor's compute type."""

    view: View
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a point is: its position along a dimension, as an INDEX; or its number among those
    that a reduction has, as an unsigned integer."""

    view: View
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Gather:
    """The element of a tensor at computed positions, in the tensor's compute type: `view` holds
    the axes along which it moves evenly, and each of `terms` adds a value times a stride."""

    view: View
    dtype: DataType
    terms: tuple[tuple[int, Measure], ...]
    guarded: bool
    """Whether the element may lie outside the tensor where a reduction's guard does not hold."""


Value: TypeAlias = (
    ir.Constant | ir.Symbol | ir.Step | Read | Place | Gather | ir.Apply | ir.Select | ir.Cast
)


@dataclasses.dataclass(frozen=True, slots=True)
class Reduction:
    """A value reduced over the inner dimensions, or the product of two of `values`, which enters a
    sum. Where `guard` does not hold, a point takes no part. `place` is a value too: the point's
    number, where the combiner gives a position."""

    combiner: str
    values: tuple[int, ...]
    guard: int | None
    place: int | None
    dtype: DataType
    """Of the value."""

    @property
    def record(self) -> Combiner:
        """All that is known of the combiner."""
        return COMBINERS[self.combiner]

    def renumbered(self, numbers: Mapping[int, int]) -> Reduction:
        """The same of values that have other numbers."""
        guard, place = (None if n is None else numbers[n] for n in (self.guard, self.place))
        values = tuple(numbers[n] for n in self.values)
        return dataclasses.replace(self, values=values, guard=guard, place=place)


@dataclasses.dataclass(frozen=True, slots=True)
class Elements:
    """What a kernel computes at each point of its domain. Values stand before their readers."""

    domain: tuple[ir.Extent, ...]
    values: tuple[Value, ...]
    results: tuple[tuple[View, int], ...]
    """Which value each stored view takes, in the order of the stages."""
    reductions: tuple[Reduction, ...] = ()
    reach: Interval = (0, 0)
    """How far the values go that are positions."""

    @property
    def has_positions(self) -> bool:
        """Whether something depends on where a point is, other than what it reads evenly; or is a
        position itself."""
        return any(
            isinstance(v, Gather) or (isinstance(v, Place | ir.Cast) and v.dtype is DataType.INDEX)
            for v in self.values
        )

    @property
    def has_guarded_reads(self) -> bool:
        """Whether some reads may be made only where a reduction's guard holds."""
        return any(isinstance(v, Gather) and v.guarded for v in self.values)

    def views(self) -> tuple[View, ...]:
        """Every view, reads first, in order of first use."""
        reads = {v.view: None for v in self.values if isinstance(v, Read | Place | Gather)}
        return (*reads, *(view for view, _ in self.results))

    def buffers(self) -> tuple[View, ...]:
        """Those of them that lie in buffers."""
        places = {v.view for v in self.values if isinstance(v, Place)}
        return tuple(v for v in self.views() if not v.local and v not in places)

    def roots(self) -> tuple[int, ...]:
        """The values that leave: stored or reduced."""
        folded = [n for f in self.reductions for n in (*f.values, f.guard, f.place)]
        return (*(number for _, number in self.results), *(n for n in folded if n is not None))


def operands(value: Value) -> tuple[int, ...]:
    """The values a value reads, in evaluation order."""
    if isinstance(value, Gather):
        return tuple(number for number, _ in value.terms)
    return () if isinstance(value, Read | Place) else ir.operands(value)


def find_moving(
    elements: Elements, strides: Mapping[View, tuple[Measure, ...]], axis: int
) -> tuple[bool, ...]:
    """For each value whether it changes along an axis, by the strides of the views."""
    moving: list[bool] = []
    for value in elements.values:
        own = isinstance(value, Read | Place | Gather) and strides[value.view][axis] != 0
        moving.append(own or any(moving[operand] for operand in operands(value)))
    return tuple(moving)


def list_needed(elements: Elements, *roots: int, given: int | None = None) -> frozenset[int]:
    """The values that some are computed from, and these; but for what one that is `given` is
    computed from."""
    needed = set(roots)
    for number in range(max(roots, default=-1), -1, -1):
        if number in needed and number != given:
            needed.update(operands(elements.values[number]))
    return frozenset(needed)


def list_conditions(elements: Elements) -> tuple[int, ...]:
    """What the guard of the reductions joins by `and`: first what depends on positions alone, and
    so may protect the reads of the others; then what says where a stretch of points begins or ends,
    which need not be gone through outside. The reductions have the same guard."""
    guards = dict.fromkeys(f.guard for f in elements.reductions)
    if len(guards) > 1:
        raise InternalError("folds under different guards share their loops")
    _, found = part_conditions(elements.values, *guards)

    def rank(number: int) -> int:
        if not reads_elements(elements, number):
            return 0
        compared = operands(elements.values[number])
        return 1 if any(isinstance(elements.values[o], Place) for o in compared) else 2

    return tuple(sorted(found, key=rank))


def reads_elements(elements: Elements, number: int) -> bool:
    """Whether a value comes from elements of tensors."""
    return any(isinstance(elements.values[n], Read | Gather) for n in list_needed(elements, number))


def list_stored(elements: Elements) -> frozenset[int]:
    """The values that the results are computed from, and these."""
    return list_needed(elements, *(root for _, root in elements.results))


def list_joins(elements: Elements) -> frozenset[int]:
    """The values that do nothing but join the conditions of the reductions' guard."""
    joins, _ = part_conditions(elements.values, *(f.guard for f in elements.reductions))
    others = {o for n, v in enumerate(elements.values) if n not in joins for o in operands(v)}
    others.update(number for _, number in elements.results)
    others.update(n for f in elements.reductions for n in f.values)
    return frozenset(n for n in joins if n not in others)


def prune(elements: Elements) -> Elements:
    """The same without the values that nothing needs."""
    numbers: dict[int, int] = {}
    values: list[Value] = []
    for number in sorted(list_needed(elements, *elements.roots())):
        numbers[number] = len(values)
        values.append(renumber(elements.values[number], numbers))
    reductions = tuple(each.renumbered(numbers) for each in elements.reductions)
    results = tuple((view, numbers[number]) for view, number in elements.results)
    return Elements(elements.domain, tuple(values), results, reductions, elements.reach)


def renumber(value: Value, numbers: Mapping[int, int]) -> Value:
    """The same of values that have other numbers."""
    if isinstance(value, Gather):
        terms = tuple((numbers[number], step) for number, step in value.terms)
        return dataclasses.replace(value, terms=terms)
    if isinstance(value, Read | Place):
        return value
    made = ir.with_operands(value, tuple(numbers[o] for o in ir.operands(value)))
    if isinstance(made, ir.Index | ir.Load):
        raise InternalError(f"not a scalar operation: {made}")
    return made


def collect_elements(
    function: ir.Function, stages: tuple[str, ...], local: Container[str] = ()
) -> Elements:
    """The merged scalar work of element-wise stages over one domain; those `local` are for the
    others alone, and not stored.

    Raises `UnsupportedError` for a reduction.
    """
    first = _find_stage(function, stages[0])
    collector = Collector(function, first.extents)
    axes = {ir.Index(axis): axis for axis in range(len(first.extents))}
    for name in stages:
        stage = _find_stage(function, name)
        if stage.extents != first.extents:
            raise InternalError(f"stages of one kernel differ in domain: {first.name}, {name}")
        if stage.reduction is not None:
            raise _refuse_sizes(stage)
        collector.add_stage(name, axes, leaves=name not in local)
    return collector.elements()


def _find_stage(function: ir.Function, name: str) -> ir.Stage:
    stage = function.stage(name)
    if stage is None:
        raise InternalError(f"a kernel names a stage that is not there: {name}")
    return stage


def tensor_strides(function: ir.Function, name: str) -> tuple[Measure, ...]:
    """The strides a tensor of the function is stored with, in elements."""
    return tuple(map(measure, function.strides(name)))


class Collector:
    """Copies bodies into one list of values, equal values once.

    `domain` are the sizes of the points' dimensions. Reductions named in `local` are at hand, each
    changing along the first `parallel` dimensions. Of the tensor `row` only what lies along its
    last axis is at hand, so that its positions are those along that axis. Stages that are `placed`
    are stored as parts of another tensor."""

    def __init__(
        self,
        function: ir.Function,
        domain: tuple[ir.Extent, ...],
        local: Mapping[str, DataType] | None = None,
        parallel: int = 0,
        row: str | None = None,
        placed: Mapping[str, View] = MappingProxyType({}),
    ) -> None:
        self._function = function
        self._row = row
        self._placed = placed
        self._domain = domain
        self._tensors = function.tensors()
        self._known_strides: dict[str, tuple[Measure, ...]] = {}
        self._near = local or {}
        self._near_strides = tuple(int(axis < parallel) for axis in range(len(domain)))
        self._numbers: dict[Value, int] = {}
        self._stored: dict[str, tuple[View, int]] = {}
        self._values: list[Value] = []
        self._results: list[tuple[View, int]] = []
        self._reductions: dict[Reduction, int] = {}
        self._reach: Interval = (0, 0)
        self._has_spare = False
        """Whether something was copied that nothing may need: digits that have been put together,
        or a product that enters a sum unrounded."""

    def elements(self) -> Elements:
        made = Elements(
            self._domain,
            tuple(self._values),
            tuple(self._results),
            tuple(self._reductions),
            self._reach,
        )
        return prune(made) if self._has_spare else made

    def _strides(self, name: str) -> tuple[Measure, ...]:
        if name not in self._known_strides:
            self._known_strides[name] = tensor_strides(self._function, name)
        return self._known_strides[name]

    def add_stage(self, name: str, axes: Mapping[ir.Index, int], *, leaves: bool = True) -> None:
        """An element-wise stage. `axes` gives the dimension each of its indices runs along; others
        have one place only. What does not leave the kernel is not stored."""
        stage = _find_stage(self._function, name)
        result = self._copy(stage, axes)[stage.body.result]
        view = self._view(stage, axes)
        self._stored[stage.name] = (view, result)
        if leaves:
            self._results.append((view, result))

    def add_reduction(self, name: str, axes: Mapping[ir.Index, int]) -> int:
        """Adds a reduction; gives its number."""
        stage = _find_stage(self._function, name)
        reduction = stage.reduction
        if reduction is None:
            raise InternalError(f"{name} reductions nothing")
        numbers = self._copy(stage, axes)
        folded = list_folded(stage.body.instructions, stage.body.result, reduction.combiner)
        self._has_spare |= stage.body.result not in folded
        values = tuple(numbers[n] for n in folded)
        guard = None if stage.body.guard is None else numbers[stage.body.guard]
        place = None
        if reduction.is_positional:
            place = self._add(self._place(reduction, axes))
        reduction = Reduction(reduction.combiner, values, guard, place, stage.body.dtype)
        return self._reductions.setdefault(reduction, len(self._reductions))

    def add_copy(self, name: str, axes: Mapping[ir.Index, int]) -> None:
        """Stores a reduction whose value is known."""
        stage = _find_stage(self._function, name)
        self._results.append((self._view(stage, axes), self.add_near(name, stage.dtype)))

    def add_near(self, name: str, dtype: DataType) -> int:
        """A value in a register or a private array."""
        view = View(name, dtype, self._near_strides, local=True)
        return self._add(Read(view, dtype.compute))

    def _view(self, stage: ir.Stage, axes: Mapping[ir.Index, int]) -> View:
        strides: list[Measure] = [0] * len(self._domain)
        own = self._placed.get(stage.name)
        steps = self._strides(stage.name) if own is None else own.strides
        for axis, step in enumerate(steps):
            if ir.Index(axis) in axes:
                strides[axes[ir.Index(axis)]] = step
        if own is not None:
            return dataclasses.replace(own, strides=tuple(strides))
        return View(stage.name, stage.dtype, tuple(strides))

    def _place(self, reduction: ir.Reduction, axes: Mapping[ir.Index, int]) -> Place:
        extents = tuple(extent for _, extent in reduction.axes)
        strides: list[Measure] = [0] * len(self._domain)
        for (label, _), step in zip(reduction.axes, pack_strides(extents), strict=True):
            index = ir.Index(label, reduced=True)
            if index in axes:
                strides[axes[index]] = step
        # The largest number is kept for "no point".
        points = multiply(extents)
        small = not isinstance(points, int) or points < 2**32
        dtype = DataType.UINT32 if small else DataType.UINT64
        return Place(View("", dtype, tuple(strides)), dtype)

    def _copy(self, stage: ir.Stage, axes: Mapping[ir.Index, int]) -> dict[int, int]:
        """The values of a body's instructions, but for positions that only even reads need."""
        positions = read_positions(stage, self._function)
        numbers: dict[int, int] = {}
        for number, instruction in enumerate(stage.body.instructions):
            if number not in positions.needed:
                continue
            match instruction:
                case ir.Load():
                    numbers[number] = self._add_load(stage, instruction, axes, positions, numbers)
                    continue
                case ir.Index():
                    numbers[number] = self._add(self._index(instruction, axes))
                case _:
                    mapped = tuple(numbers[o] for o in ir.operands(instruction))
                    new = ir.with_operands(instruction, mapped)
                    if isinstance(new, ir.Index | ir.Load):
                        raise InternalError(f"{stage.name}: not a scalar operation: {new}")
                    numbers[number] = self._add(self._fold(new))
            if ir.value_type(instruction) is DataType.INDEX:
                low, high = positions.ranges[number]
                if isinstance(self._values[numbers[number]], ir.Symbol):
                    continue  # It is an argument, which is held to what positions may be.
                self._reach = (min(self._reach[0], low), max(self._reach[1], high))
        return numbers

    def _fold(self, value: Value) -> Value:
        """An operation on positions that are known, as along an axis of one element, is one; and
        one on sizes that are not is such a size."""
        if not isinstance(value, ir.Apply) or value.dtype is not DataType.INDEX:
            return value
        given = [self._values[o] for o in value.operands]
        size = _combine_sizes(value.operation.name, given)
        if size is not None:
            return ir.Symbol(str(size))
        known = [g for g in given if isinstance(g, ir.Constant)]
        if len(known) != len(given):
            return value
        folded = fold_constants(
            ir.Apply(value.operation, (*range(len(known)),), value.dtype), known
        )
        return folded if isinstance(folded, ir.Constant) else value

    def _index(self, index: ir.Index, axes: Mapping[ir.Index, int]) -> Value:
        if index not in axes or self._domain[axes[index]] == 1:
            return ir.Constant(DataType.INDEX, 0)
        strides = tuple(int(axis == axes[index]) for axis in range(len(self._domain)))
        return Place(View("", DataType.INDEX, strides), DataType.INDEX)

    def _add(self, value: Value) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._values)
            self._values.append(value)
        return number

    def _add_load(
        self,
        stage: ir.Stage,
        load: ir.Load,
        axes: Mapping[ir.Index, int],
        positions: Positions,
        numbers: Mapping[int, int],
    ) -> int:
        if load.tensor in self._near:
            return self.add_near(load.tensor, self._near[load.tensor])
        strides: list[Measure] = [0] * len(self._domain)
        offset = 0
        terms: dict[int, Measure] = {}
        uneven: list[tuple[int, Measure]] = []
        guarded = False
        placed = self._placed.get(load.tensor)
        steps = self._strides(load.tensor) if placed is None else placed.strides
        if load.tensor == self._row:
            steps = (0,) * (len(steps) - 1) + (1,)
        for step, number, form in zip(steps, load.indices, positions.list_forms(load), strict=True):
            if form is None:
                known = self._values[numbers[number]]
                fixed = isinstance(known, ir.Constant) and positions.is_inside(load, number)
                if fixed and isinstance(known, ir.Constant) and isinstance(step, int):
                    offset += int(known.value) * step
                    continue
                uneven.append((number, step))
                # Without a guard the verifier has seen to it at every point.
                guarded |= stage.body.guard is not None and not positions.is_inside(load, number)
                continue
            # Where the stride is not known the position begins at 0: see `Positions`.
            offset += form.constant * step if isinstance(step, int) else 0
            for index, factor in form.factors:
                if index in axes:
                    strides[axes[index]] += factor * step
        joined = join_digits(stage.body, uneven)
        self._has_spare |= len(joined) < len(uneven)
        for number, step in joined:
            terms[numbers[number]] = terms.get(numbers[number], 0) + step
        dtype = self._tensors[load.tensor].dtype
        view = View(load.tensor, dtype, tuple(strides), offset, local=load.tensor == self._row)
        if load.tensor in self._stored:
            own, number = self._stored[load.tensor]
            sizes = zip(self._domain, view.strides, own.strides, strict=True)
            if terms or offset or any(n != 1 and a != b for n, a, b in sizes):
                raise InternalError(
                    f"{stage.name} reads {load.tensor}, which the same kernel stores, elsewhere "
                    "than at its own element"
                )
            if dtype.is_storage_only:
                # What is in registers has not been rounded yet.
                return self._add(ir.Apply(ROUNDINGS[dtype], (number,), dtype.compute))
            return number
        if terms:
            return self._add(Gather(view, load.dtype, tuple(terms.items()), guarded))
        return self._add(Read(view, load.dtype))


def _combine_sizes(name: str, given: Sequence[Value]) -> Size | None:
    """A sum or a product of sizes, some of which are known at run time only; None for all else."""
    sizes = [
        parse_size(v.name) if isinstance(v, ir.Symbol) else int(v.value)
        for v in given
        if isinstance(v, ir.Symbol | ir.Constant)
    ]
    if len(sizes) < len(given) or name not in _SIZES:
        return None
    made = _SIZES[name](sizes[0], sizes[1])
    # An argument has no sign.
    return made if isinstance(made, Size) and made.bounds()[0] >= 0 else None


_SIZES: Mapping[str, Callable[[Measure, Measure], Measure]] = {
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
    "mul": lambda left, right: left * right,
}


def _refuse_sizes(stage: ir.Stage) -> UnsupportedError:
    return UnsupportedError(
        f"'{stage.name}' is a reduction in a function whose sizes are known at run time only; "
        "give the tensors' sizes",
        stage.span,
    )
