"""Recognizes contractions in index notation: a sum of products of two factors, such as a matrix
product or a convolution and its gradients, whatever operator wrote it.

Dimensions of the outputs on which one factor depends are rows or columns; those on which both
depend are a batch. Both may depend on the summed points. A factor is any scalar expression, so that
work before a product is computed where an operand is loaded. Conditions of a guard belong to the
factor whose points they exclude: it is 0 there. Schedules choose the tiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc import ir
from dmlc.loops.element import (
    Elements,
    Gather,
    Place,
    Read,
    Value,
    View,
    list_conditions,
    list_needed,
    prune,
)
from dmlc.loops.phases import Phase, with_elements
from dmlc.loops.space import Space
from dmlc.loops.thin import find_sparse, thin_points
from dmlc.scalars import DataType
from dmlc.sizes import Measure, Taken, estimate
from dmlc.sizes import multiply as multiply_sizes

_NUMBERS = (DataType.FLOAT32, DataType.INT32, DataType.UINT32)
"""Types of sums: those that tiles in shared memory hold unconverted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Factor:
    """One of the two factors of a contraction."""

    value: int
    conditions: tuple[int, ...]
    """Conditions of the guard that exclude points of it."""
    axes: tuple[int, ...]
    """Parallel axes on which it alone depends, outermost first."""


@dataclasses.dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products of two factors."""

    phase: Phase
    left: Factor
    """Factor whose axes are the rows."""
    right: Factor
    """Factor whose axes are the columns; outputs are contiguous along these, if along any."""
    batch: tuple[int, ...]
    """Parallel axes on which both factors depend, or neither."""
    was_open: bool = False
    """Whether numbers stand for open sizes."""

    @property
    def dtype(self) -> DataType:
        """Type of the factors, and of the sum."""
        return self.phase.elements.reductions[0].dtype

    @property
    def inner(self) -> tuple[int, ...]:
        """Axes of the summed points."""
        return self.phase.space.inner

    @property
    def points(self) -> tuple[int, ...]:
        """Axes of the summed points, those that are chunks of longer ones first."""
        pieces = self.phase.space.pieces
        return tuple(sorted(self.inner, key=lambda axis: axis not in pieces))

    @property
    def extents(self) -> tuple[Measure, Measure, Measure, Measure]:
        """Number of rows, columns, batches and summed products, run-time sizes included."""
        rows, columns, batches, depth = (
            multiply_sizes(self.phase.space.extents[axis] for axis in axes)
            for axes in (self.left.axes, self.right.axes, self.batch, self.inner)
        )
        return rows, columns, batches, depth

    @property
    def rows(self) -> int:
        return estimate(self.extents[0])

    @property
    def columns(self) -> int:
        return estimate(self.extents[1])

    @property
    def batches(self) -> int:
        return estimate(self.extents[2])

    @property
    def depth(self) -> int:
        """Number of summed products."""
        return estimate(self.extents[3])

    def settle(self, taken: Taken) -> Contraction:
        """The same with numbers for open sizes."""
        was_open = self.was_open or self.phase.is_open
        return dataclasses.replace(self, phase=self.phase.settle(taken), was_open=was_open)

    @property
    def has_holes(self) -> bool:
        """Whether one factor is 0 where the other is not. A product of 0 with an infinity or NaN is
        NaN, although the point is excluded."""
        is_apart = set(self.left.conditions) != set(self.right.conditions)
        return self.dtype.is_float and is_apart


def find_contraction(phases: Sequence[Phase], *, single: bool = False) -> Contraction | None:
    """Contraction of the first phase, if the second, if any, only derives values from its outputs
    point by point; else None. With `single`, one factor may have no axis of its own."""
    if len(phases) != 2 or not phases[1].is_parallel or phases[1].accumulators:
        return None
    phase, after = phases
    elements, space = phase.elements, phase.space
    if len(phase.accumulators) != 1 or elements.results or not space.inner:
        return None
    (reduction,) = elements.reductions
    values = reduction.values
    if len(values) != 2 or reduction.dtype not in _NUMBERS or 0 in space.extents:
        return None
    if not all(is_plain(elements, value, reduction.dtype) for value in values):
        return None
    moves = {axis: phase.find_moving(axis) for axis in space.parallel}
    own = [
        tuple(a for a in space.parallel if moves[a][one] and not moves[a][other])
        for one, other in (values, values[::-1])
    ]
    if not (any(own) if single else all(own)):
        return None
    conditions: list[list[int]] = [[], []]
    for condition in list_conditions(elements) if reduction.guard is not None else ():
        sides = [any(moves[a][condition] for a in axes) for axes in own]
        if all(sides):
            return None
        for side in (0, 1):
            # Conditions that do not vary over rows and columns exclude points of both factors.
            if sides[side] or not any(sides):
                conditions[side].append(condition)
    factors = [Factor(*each) for each in zip(values, map(tuple, conditions), own, strict=True)]
    if _find_contiguous(after, space) in own[0]:
        factors.reverse()
    left, right = factors
    batch = tuple(a for a in space.parallel if a not in (*left.axes, *right.axes))
    return Contraction(phase, left, right, batch)


def is_plain(elements: Elements, root: int, dtype: DataType) -> bool:
    """Whether a value has the type `dtype` and can be computed anywhere: from buffers, constants
    and indices, by operations without faults. A tile that overruns a factor computes it at clamped
    indices."""
    if elements.values[root].dtype is not dtype:
        return False
    for number in list_needed(elements, root):
        value = elements.values[number]
        if isinstance(value, Read | Gather) and value.view.local:
            return False
        is_integer = value.dtype.is_integer and value.dtype is not DataType.INDEX
        if isinstance(value, ir.Apply) and is_integer and value.operation.name in ("div", "mod"):
            return False
    return True


def _find_contiguous(after: Phase, space: Space) -> int | None:
    """Parallel axis along which results are contiguous."""
    for view, _ in after.elements.results:
        for axis, own in zip(space.parallel, after.space.parallel, strict=True):
            if view.strides[own] == 1 and after.space.extents[own] != 1:
                return axis
    return None


# Axes of groups ------------------------------------------------------------------------------


def part_axes(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """Phases without the points that a guard excludes periodically; and with parallel axes split
    where indices along them are divided, such as the groups of a convolution, which are a batch.
    Unchanged if neither applies."""
    sparse = find_sparse(phases[0])
    if sparse is not None:
        return part_axes((thin_points(phases[0], sparse), *phases[1:]))
    found = find_divided(phases[0])
    if found is None:
        return tuple(phases)
    axis, length = found
    if length >= phases[0].space.sizes[axis]:
        return part_axes((settle_quotients(phases[0], axis, length), *phases[1:]))
    place = phases[0].space.parallel.index(axis)
    return part_axes([part_parallel(phase, place, length) for phase in phases])


def find_divided(first: Phase) -> tuple[int, int] | None:
    """A parallel axis along which indices are divided evenly, and the divisor."""
    if not first.accumulators or len(first.space.sizes) < len(first.space.extents):
        return None
    for axis in first.space.parallel:
        size = first.space.sizes[axis]
        for number in list_divided(first, axis):
            if number >= size or size % number == 0:
                return axis, number
    return None


def list_divided(phase: Phase, axis: int) -> list[int]:
    """Divisors of indices along an axis."""
    found = (_read_divisor(phase, value, axis) for value in phase.elements.values)
    return [number for number in found if number is not None]


def _read_divisor(phase: Phase, value: Value, axis: int) -> int | None:
    """Divisor of the index along an axis, if a value is its quotient or remainder."""
    if not isinstance(value, ir.Apply) or value.operation.name not in ("div", "mod"):
        return None
    place, number = (phase.elements.values[o] for o in value.operands)
    if not isinstance(place, Place) or place.dtype is not DataType.INDEX:
        return None
    steps = place.view.strides
    alone = all(step == int(a == axis) for a, step in enumerate(steps))
    return int(number.value) if isinstance(number, ir.Constant) and alone else None


def settle_quotients(phase: Phase, axis: int, length: int) -> Phase:
    """Phase with quotients along an axis simplified whose divisor is at least its length."""

    def change(value: Value) -> Value:
        if _read_divisor(phase, value, axis) != length or not isinstance(value, ir.Apply):
            return value
        if value.operation.name == "div":
            return ir.Constant(DataType.INDEX, 0)
        return phase.elements.values[value.operands[0]]

    values = tuple(change(value) for value in phase.elements.values)
    return with_elements(phase, prune(dataclasses.replace(phase.elements, values=values)))


def part_parallel(phase: Phase, place: int, length: int) -> Phase:
    """Phase with a parallel axis split in two, the inner one of `length` points."""
    space = phase.space
    axis = space.parallel[place]
    sizes = list(space.sizes)
    sizes[axis : axis + 1] = [sizes[axis] // length, length]
    moved = [a + (a > axis) for a in space.parallel]
    parallel = (*moved[:place], axis, axis + 1, *moved[place + 1 :])
    pieces = {
        a + (a > axis): dataclasses.replace(p, number=p.number + (p.number > place))
        for a, p in space.pieces.items()
    }
    parted = phase.elements.over(
        Space(tuple(sizes), tuple(parallel), pieces),
        lambda s: (*s[:axis], s[axis] * length, s[axis], *s[axis + 1 :]),
    )

    def stand(own: int) -> Place:
        steps = tuple(int(a == own) for a in range(len(sizes)))
        return Place(View(f"axis#{own}", DataType.INDEX, steps), DataType.INDEX)

    def change(value: Value, parted: Value) -> Value:
        if _read_divisor(phase, value, axis) != length or not isinstance(value, ir.Apply):
            return parted
        return stand(axis + (value.operation.name == "mod"))

    pairs = zip(phase.elements.values, parted.values, strict=True)
    values = tuple(change(old, new) for old, new in pairs)
    return with_elements(phase, prune(dataclasses.replace(parted, values=values)))


def lies_along(phase: Phase, first: int, second: int) -> bool:
    """Whether a phase's operands are contiguous along the first of two axes rather than along the
    second."""
    values = phase.elements.values
    reads = [v for v in phase.elements.buffers() if not v.local]

    def count(axis: int) -> int:
        moving = phase.find_moving(axis)
        beside = [v for v in reads if v.strides[axis] == 1]
        gathers = [v for n, v in enumerate(values) if isinstance(v, Gather) and moving[n]]
        beside += [v.view for v in gathers if any(s == 1 and moving[n] for n, s in v.terms)]
        return max((phase.count_steps(view) or 0 for view in beside), default=-1)

    return count(first) > count(second)


# The phases of tiles -------------------------------------------------------------------------


def guard_factor(found: Contraction, factor: Factor, name: str) -> tuple[Phase, tuple[int, ...]]:
    """Phase that computes a factor, over all axes, for a buffer of that name, and the conditions
    under which it may be computed."""
    phase = found.phase
    view = View(name, found.dtype, (0,) * len(phase.space.extents), local=True)
    roots = (*factor.conditions, factor.value)
    whole = dataclasses.replace(
        phase.elements, results=tuple((view, root) for root in roots), reductions=()
    )
    pruned = prune(whole)
    *conditions, root = (number for _, number in pruned.results)
    made = dataclasses.replace(pruned, results=((view, root),))
    return with_elements(phase, made), tuple(conditions)


def multiply(found: Contraction, sizes: tuple[int, ...], *factors: View) -> Phase:
    """Phase that sums the products of the elements of two views along the last axis."""
    (reduction,) = found.phase.elements.reductions
    reduction = dataclasses.replace(reduction, values=(0, 1), guard=None)
    reads = tuple(Read(view, found.dtype) for view in factors)
    space = Space(sizes, tuple(range(len(sizes) - 1)))
    return Phase(Elements(space, reads, (), (reduction,)))
