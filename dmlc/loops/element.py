"""Scalar work of a kernel: the bodies of its stages merged into one list of values.

A load whose index is affine along each dimension becomes a `Read` of a `View`, which is a tensor
with one stride per dimension of the iteration space. Any other becomes a `Gather` at computed
indices; indices along dimensions are `Place`s. Equal values and equal reductions of different
stages are merged. The order of iteration is not decided here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from dmlc import ir
from dmlc.index.intervals import Interval
from dmlc.ir.index import part_conditions
from dmlc.ir.nodes import list_folded
from dmlc.ir.rules import fold_constants
from dmlc.loops.access import Positions, find_end, join_digits, read_positions
from dmlc.loops.accumulate import Reduction
from dmlc.loops.space import Piece, Space
from dmlc.scalars import ROUNDINGS, DataType
from dmlc.sizes import (
    Measure,
    Size,
    measure,
    multiply,
    pack_strides,
    parse_size,
)
from dmlc.source import InternalError, UnsupportedError


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Offset of a tensor's element for a point: `offset + sum(i * stride)`."""

    tensor: str
    dtype: DataType
    strides: tuple[Measure, ...]
    offset: int = 0
    local: bool = False
    """Whether an earlier pass left it in registers or private arrays. A stride then only tells
    whether the value varies along a dimension, except in a row."""


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """Element of a view, in the tensor's compute type."""

    view: View
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Index of a point along a dimension, of type INDEX; or its number among the points of a
    reduction, as an unsigned integer."""

    view: View
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Gather:
    """Element of a tensor at computed indices, in the tensor's compute type: `view` has the strides
    of the affine part, and each of `terms` adds a value times a stride."""

    view: View
    dtype: DataType
    terms: tuple[tuple[int, Measure], ...]
    guarded: bool
    """Whether the element may be out of bounds where a reduction's guard is false."""


Value: TypeAlias = (
    ir.Constant | ir.Symbol | ir.Step | Read | Place | Gather | ir.Apply | ir.Select | ir.Cast
)


@dataclasses.dataclass(frozen=True, slots=True)
class Elements:
    """Computation of a kernel at each point of a space. Values come before their users, and views
    have the strides along the dimensions of the space."""

    space: Space
    values: tuple[Value, ...]
    results: tuple[tuple[View, int], ...]
    """Value of each stored view, in the order of the stages."""
    reductions: tuple[Reduction, ...] = ()
    reach: Interval = (0, 0)
    """Interval of all index values."""
    _views: list[tuple[View, ...]] = dataclasses.field(
        default_factory=list[tuple[View, ...]], init=False, compare=False, repr=False
    )
    """Cache of `views`."""

    @property
    def has_positions(self) -> bool:
        """Whether some value is an index, or depends on one other than by affine loads."""
        return any(
            isinstance(v, Gather) or (isinstance(v, Place | ir.Cast) and v.dtype is DataType.INDEX)
            for v in self.values
        )

    @property
    def has_guarded_reads(self) -> bool:
        """Whether some loads may be executed only where a reduction's guard is true."""
        return any(isinstance(v, Gather) and v.guarded for v in self.values)

    def views(self) -> tuple[View, ...]:
        """All views, reads first, in order of first use."""
        if not self._views:
            reads = {v.view: None for v in self.values if isinstance(v, Read | Place | Gather)}
            self._views.append((*reads, *(view for view, _ in self.results)))
        return self._views[0]

    @property
    def is_open(self) -> bool:
        """Whether a size or a stride is known at run time only."""
        steps = (step for view in self.views() for step in view.strides)
        return not all(isinstance(each, int) for each in (*self.space.extents, *steps))

    def over(
        self, space: Space, place: Callable[[tuple[Measure, ...]], Iterable[Measure]]
    ) -> Elements:
        """The same work over another space: `place` gives a view's strides along its dimensions."""
        made = {
            view: dataclasses.replace(view, strides=tuple(place(view.strides)))
            for view in dict.fromkeys(self.views())
        }
        values = tuple(
            dataclasses.replace(v, view=made[v.view]) if isinstance(v, Read | Place | Gather) else v
            for v in self.values
        )
        results = tuple((made[view], number) for view, number in self.results)
        return dataclasses.replace(self, space=space, values=values, results=results)

    def extend(self, extents: Iterable[Measure], parallel: Iterable[int]) -> Elements:
        """The same work with further axes, along which no view varies. `parallel` are the parallel
        ones of these."""
        old, more = self.space, tuple(extents)
        space = Space((*old.extents, *more), (*old.parallel, *parallel), old.pieces)
        return self.over(space, lambda steps: (*steps, *(0 for _ in more)))

    def with_parallel(self, parallel: Sequence[int]) -> Elements:
        """The same work with other parallel axes."""
        return dataclasses.replace(
            self, space=dataclasses.replace(self.space, parallel=tuple(parallel))
        )

    def drop_ones(self) -> Elements:
        """Work without the parallel axes of size 1."""
        extents, parallel = self.space.extents, self.space.parallel
        return self.select([a for a, n in enumerate(extents) if n != 1 or a not in parallel])

    def select(self, axes: Sequence[int]) -> Elements:
        """Work over some axes of its space, in their order."""
        return self.over(self.space.select(axes), lambda steps: (steps[axis] for axis in axes))

    def buffers(self) -> tuple[View, ...]:
        """Views in buffers."""
        places = {v.view for v in self.values if isinstance(v, Place)}
        return tuple(v for v in self.views() if not v.local and v not in places)

    def roots(self) -> tuple[int, ...]:
        """Values that are stored or reduced."""
        folded = [n for f in self.reductions for n in (*f.values, f.guard, f.place)]
        return (*(number for _, number in self.results), *(n for n in folded if n is not None))


def operands(value: Value) -> tuple[int, ...]:
    """Operands of a value, in evaluation order."""
    if isinstance(value, Gather):
        return tuple(number for number, _ in value.terms)
    return () if isinstance(value, Read | Place) else ir.operands(value)


def find_moving(elements: Elements, axis: int) -> tuple[bool, ...]:
    """Whether each value varies along an axis."""
    moving: list[bool] = []
    for value in elements.values:
        own = isinstance(value, Read | Place | Gather) and value.view.strides[axis] != 0
        moving.append(own or any(moving[operand] for operand in operands(value)))
    return tuple(moving)


def list_needed(elements: Elements, *roots: int, given: int | None = None) -> frozenset[int]:
    """Values that some depend on, themselves included; without those that only a `given` one
    depends on."""
    needed = set(roots)
    for number in range(max(roots, default=-1), -1, -1):
        if number in needed and number != given:
            needed.update(operands(elements.values[number]))
    return frozenset(needed)


def list_conditions(elements: Elements) -> tuple[int, ...]:
    """Conditions that the reductions' guard joins by `and`: first index-only ones, which may
    protect the loads of others; then those that give the start or end of a segment, outside of
    which no iteration is needed. All reductions have the same guard."""
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
    """Whether a value depends on elements of tensors."""
    return any(isinstance(elements.values[n], Read | Gather) for n in list_needed(elements, number))


def list_stored(elements: Elements) -> frozenset[int]:
    """Values that the results depend on, themselves included."""
    return list_needed(elements, *(root for _, root in elements.results))


def list_joins(elements: Elements) -> frozenset[int]:
    """Values that only join conditions of the reductions' guard."""
    joins, _ = part_conditions(elements.values, *(f.guard for f in elements.reductions))
    others = {o for n, v in enumerate(elements.values) if n not in joins for o in operands(v)}
    others.update(number for _, number in elements.results)
    others.update(n for f in elements.reductions for n in f.values)
    return frozenset(n for n in joins if n not in others)


def prune(elements: Elements, *roots: int) -> Elements:
    """The same without unused values; or the values that some `roots` take, stored nowhere."""
    numbers: dict[int, int] = {}
    values: list[Value] = []
    if roots:
        elements = dataclasses.replace(elements, results=(), reductions=())
    for number in sorted(list_needed(elements, *(roots or elements.roots()))):
        numbers[number] = len(values)
        values.append(renumber(elements.values[number], numbers))
    reductions = tuple(each.renumbered(numbers) for each in elements.reductions)
    results = tuple((view, numbers[number]) for view, number in elements.results)
    return dataclasses.replace(
        elements, values=tuple(values), results=results, reductions=reductions
    )


def renumber(value: Value, numbers: Mapping[int, int]) -> Value:
    """A value with its operands renumbered."""
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
    """Merged scalar work of element-wise stages over one domain; those in `local` are used by the
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
    """Strides of a tensor of the function, in elements."""
    return tuple(map(measure, function.strides(name)))


class Collector:
    """Builder of `Elements`: copies bodies into one list of values, without duplicates.

    `domain` are the sizes of the points' dimensions. Reductions in `local` are available, each
    varying along the first `parallel` dimensions. Of the tensor `row`, only a slice along its last
    axis is available, and its index is that along this axis. Stages in `placed` are stored as parts
    of another tensor. `positions` are facts about stages' indices, where they are known already.
    The guards of reductions only end the `pieces` of dimensions.
    """

    def __init__(
        self,
        function: ir.Function,
        domain: tuple[ir.Extent, ...],
        local: Mapping[str, DataType] | None = None,
        parallel: int = 0,
        row: str | None = None,
        placed: Mapping[str, View] = MappingProxyType({}),
        positions: Mapping[str, Positions] = MappingProxyType({}),
        pieces: tuple[tuple[int, Piece], ...] = (),
    ) -> None:
        self._function = function
        self._pieces = pieces
        self._positions = positions
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
        self._reductions: dict[Reduction, list[tuple[str, DataType]]] = {}
        """Reductions, with the stages that each is the value of."""
        self._reach: Interval = (0, 0)
        self._indices: tuple[str, ...] = ()
        self._has_spare = False
        """Whether a copied value may be unused: recombined digits, or a product that is summed by
        fused multiply-add."""

    def elements(self) -> Elements:
        sizes = tuple(map(measure, self._domain))
        pieces = dict(self._pieces)
        made = Elements(
            Space(sizes, tuple(range(len(sizes))), pieces, indices=self._indices),
            tuple(self._values),
            tuple(self._results),
            tuple(dataclasses.replace(r, stages=tuple(s)) for r, s in self._reductions.items()),
            self._reach,
        )
        return prune(made) if self._has_spare else made

    def _strides(self, name: str) -> tuple[Measure, ...]:
        if name not in self._known_strides:
            self._known_strides[name] = tensor_strides(self._function, name)
        return self._known_strides[name]

    def add_stage(self, name: str, axes: Mapping[ir.Index, int], *, leaves: bool = True) -> None:
        """Adds an element-wise stage. `axes` gives the dimension of each of its indices; others
        have size 1. It is stored if it `leaves` the kernel."""
        stage = _find_stage(self._function, name)
        self._name_indices(axes)
        result = self._copy(stage, axes)[stage.body.result]
        view = self._view(stage, axes)
        self._stored[stage.name] = (view, result)
        if leaves:
            self._results.append((view, result))

    def store(self, name: str) -> None:
        """Stores an element-wise stage that was added as one that does not leave the kernel."""
        self._results.append(self._stored[name])

    def add_reduction(self, name: str, axes: Mapping[ir.Index, int]) -> None:
        """Adds a reduction."""
        stage = _find_stage(self._function, name)
        reduction = stage.reduction
        if reduction is None:
            raise InternalError(f"{name} reductions nothing")
        self._name_indices(axes)
        numbers = self._copy(stage, axes)
        folded = list_folded(stage.body.instructions, stage.body.result, reduction.combiner)
        self._has_spare |= stage.body.result not in folded
        values = tuple(numbers[n] for n in folded)
        tested = None if self._pieces else stage.body.guard
        guard = None if tested is None else numbers[tested]
        place = self._place(reduction, axes) if reduction.is_positional else None
        made = Reduction(
            reduction.combiner,
            values,
            guard,
            None if place is None else self._add(place),
            stage.body.dtype,
            None if place is None else place.dtype,
        )
        self._reductions.setdefault(made, []).append((stage.name, stage.dtype))

    def add_copy(self, name: str, axes: Mapping[ir.Index, int]) -> None:
        """Stores a reduction whose value is available."""
        stage = _find_stage(self._function, name)
        self._name_indices(axes)
        self._results.append((self._view(stage, axes), self.add_near(name, stage.dtype)))

    def _name_indices(self, axes: Mapping[ir.Index, int]) -> None:
        """Name the dimensions after the indices of the first stage that runs along all of them."""
        if not self._indices and len(axes) == len(self._domain):
            self._indices = tuple(index.name for index in sorted(axes, key=axes.__getitem__))

    def add_near(self, name: str, dtype: DataType) -> int:
        """Value in a register or a private array."""
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
        # The largest number is reserved for "no point".
        points = multiply(extents)
        small = not isinstance(points, int) or points < 2**32
        dtype = DataType.UINT32 if small else DataType.UINT64
        return Place(View("", dtype, tuple(strides)), dtype)

    def _copy(self, stage: ir.Stage, axes: Mapping[ir.Index, int]) -> dict[int, int]:
        """Values of a body's instructions, without indices that only affine loads need."""
        positions = self._positions.get(stage.name)
        if positions is None:
            end = find_end(stage) if self._pieces else None
            positions = read_positions(stage, self._function, end)
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
                    continue  # It is an argument, which is checked to be a valid index.
                self._reach = (min(self._reach[0], low), max(self._reach[1], high))
        return numbers

    def _fold(self, value: Value) -> Value:
        """Constant folding of known indices, as along an axis of size 1, and of arithmetic on
        run-time sizes."""
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
                # Without a guard, the verifier has proved it in bounds at every point.
                guarded |= stage.body.guard is not None and not positions.is_inside(load, number)
                continue
            # For an unknown stride, the affine form starts at 0: see `Positions`.
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
                # A value in registers has not been rounded yet.
                return self._add(ir.Apply(ROUNDINGS[dtype], (number,), dtype.compute))
            return number
        if terms:
            return self._add(Gather(view, load.dtype, tuple(terms.items()), guarded))
        return self._add(Read(view, load.dtype))


def _combine_sizes(name: str, given: Sequence[Value]) -> Size | None:
    """Sum or product of sizes, of which some are run-time sizes; None for other operations."""
    sizes = [
        parse_size(v.name) if isinstance(v, ir.Symbol) else int(v.value)
        for v in given
        if isinstance(v, ir.Symbol | ir.Constant)
    ]
    if len(sizes) < len(given) or name not in _SIZES:
        return None
    made = _SIZES[name](sizes[0], sizes[1])
    # Arguments are unsigned.
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
