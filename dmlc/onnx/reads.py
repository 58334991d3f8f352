"""Loads of stages as slices, transposes and gathers of whole tensors.

A load gives one element of a tensor for every point of a stage. Its result has an axis for each
index of the stage, of size 1 if it does not depend on that index; leading axes of size 1 may be
missing, since values broadcast. Indices in an arithmetic sequence along one index are a slice;
others are gathered. Axes whose indices depend on the same index of the stage are merged and read as
one."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from dmlc.ir.index import MOST_POINTS
from dmlc.onnx.arithmetic import Arithmetic
from dmlc.onnx.nodes import Value
from dmlc.onnx.places import EvenSteps, find_steps, find_view, settle, split_sum
from dmlc.scalars import Array

MOST_KNOWN = 1 << 16
"""Elements of a constant that depends on positions alone, beyond which nodes compute it."""

Position: TypeAlias = Array | Value
"""Positions, with an axis for each index of the stage: known now, or computed by nodes."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """Axes of a tensor that are read together: their sizes, the indices along each, and the indices
    of the stage that these depend on."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    positions: tuple[Position, ...]
    indices: tuple[int, ...]

    def steps(self) -> EvenSteps | None:
        """Arithmetic sequence along the group's one axis, if its indices are known to be one."""
        position = self.positions[0]
        return find_steps(position) if isinstance(position, np.ndarray) else None


class Reader:
    """Adds the nodes of loads."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self.nodes = arithmetic.nodes

    def read(self, tensor: Value, positions: Sequence[Position], rank: int, clamp: bool) -> Value:
        """Elements of a tensor at given indices, for a stage of this rank. With `clamp`, indices
        may be out of bounds at points whose value is unused."""
        if 0 in tensor.shape:
            # No point is looked at.
            return self.nodes.constant(np.zeros((1,) * rank, tensor.dtype))
        sizes = tensor.shape
        found = [
            settle(p, size, clamp) if isinstance(p, np.ndarray) else self._bound(p, size, clamp)
            for p, size in zip(positions, sizes, strict=True)
        ]
        tensor, groups = self._merge(tensor, _group(found, sizes))
        tensor = self._slice(tensor, groups)
        labels: list[int | None] = []
        for group in groups:
            tensor, made = self._gather(tensor, group, len(labels))
            labels += made
        return self._arrange(tensor, labels, rank)

    def _bound(self, position: Value, size: int, clamp: bool) -> Value:
        """Computed indices, clamped to the axis."""
        if not clamp:
            return position
        like, add = self.arithmetic.like, self.arithmetic.add
        low = add("Max", position, like(position, 0))
        return add("Min", low, like(position, size - 1))

    def _slice(self, tensor: Value, groups: Sequence[_Group]) -> Value:
        """Slice of the tensor, with an axis for each group of arithmetic sequences, in their
        order."""
        sizes = tensor.shape
        parts = {axis: s for axis, g in enumerate(groups) if (s := g.steps()) is not None}
        parts = {axis: s for axis, s in parts.items() if s != EvenSteps(0, 1, sizes[axis])}
        if not parts:
            return tensor
        # What lies before the first place is spelled as far before the last.
        ends = [s.end if s.end >= 0 else s.end - sizes[axis] for axis, s in parts.items()]
        starts, steps = [s.start for s in parts.values()], [s.step for s in parts.values()]
        given = [self.nodes.sizes(numbers) for numbers in (starts, ends, list(parts), steps)]
        if set(steps) == {1}:
            del given[3]
        shape = [parts[axis].count if axis in parts else size for axis, size in enumerate(sizes)]
        return self.nodes.add("Slice", [tensor, *given], tensor.element, shape)

    def _merge(self, tensor: Value, groups: list[_Group]) -> tuple[Value, list[_Group]]:
        """Tensor with the axes of each group merged, in the order of the groups."""
        order = [axis for group in groups for axis in group.axes]
        tensor = self.nodes.transpose(tensor, order)
        if all(len(group.axes) == 1 for group in groups):
            return tensor, groups
        merged = [self._merge_group(g) if len(g.axes) > 1 else g for g in groups]
        at, shape = 0, list[int]()
        for group in groups:
            shape.append(math.prod(tensor.shape[at : at + len(group.axes)]))
            at += len(group.axes)
        return self.nodes.reshape(tensor, shape), merged

    def _merge_group(self, group: _Group) -> _Group:
        """Group with one axis, whose index is the linear index over all its axes."""
        total: Position = np.zeros((), np.int64)
        for size, position in zip(group.sizes, group.positions, strict=True):
            total = self._sum(self._times(total, size), position)
        count = math.prod(group.sizes)
        return _Group(group.axes[:1], (count,), (total,), group.indices)

    def _times(self, position: Position, size: int) -> Position:
        if isinstance(position, np.ndarray):
            return np.asarray(position * size)
        return self.arithmetic.add("Mul", position, self.arithmetic.like(position, size))

    def _sum(self, one: Position, other: Position) -> Position:
        few = math.prod(np.broadcast_shapes(one.shape, other.shape)) <= MOST_POINTS
        if few and isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
            return np.asarray(one + other)
        if isinstance(one, np.ndarray) and not one.any():
            return other
        return self.arithmetic.add("Add", self._as_value(one), self._as_value(other))

    def _as_value(self, position: Position) -> Value:
        """Indices as a value; many as a sum of smaller constants, if possible."""
        if isinstance(position, Value):
            return position
        terms = split_sum(position) if position.size > MOST_KNOWN else None
        made = [self._make_constant(term) for term in terms or [position]]
        return functools.reduce(lambda one, other: self.arithmetic.add("Add", one, other), made)

    def _make_constant(self, position: Array) -> Value:
        return self.nodes.constant(position.astype(np.int64), f"{self.nodes.scope}_positions")

    def _gather(self, tensor: Value, group: _Group, axis: int) -> tuple[Value, list[int | None]]:
        """Gather along a group's axis, unless it is a slice. The axis is replaced by one for each
        index of the stage on which its indices depend."""
        (position,), (size,) = group.positions, group.sizes
        if group.steps() is not None:
            return tensor, list(group.indices) or [None]
        labels: list[int | None] = list(group.indices)
        shape = [int(position.shape[index]) for index in group.indices]
        before, after = tensor.shape[:axis], tensor.shape[axis + 1 :]
        whole = (*before, *shape, *after)
        view = find_view(position, size) if isinstance(position, np.ndarray) else None
        if view is not None:
            cut = self.nodes.reshape(tensor, (*before, *view.counts, *after))
            moved = [axis + at for at in view.order]
            last = range(axis + len(moved), len(cut.shape))
            moved = self.nodes.transpose(cut, [*range(axis), *moved, *last])
            return self.nodes.reshape(moved, whole), labels
        if isinstance(position, np.ndarray) and position.size <= MOST_KNOWN:
            position = position.reshape(shape)
        places = self.nodes.reshape(self._as_value(position), shape)
        made = self.nodes.add("Gather", [tensor, places], tensor.element, whole, axis=axis)
        return made, labels

    def _arrange(self, tensor: Value, labels: Sequence[int | None], rank: int) -> Value:
        """Value with its axes in the order of the stage's indices, of size 1 for those it lacks."""
        order = sorted(range(len(labels)), key=lambda at: _place(labels[at]))
        tensor = self.nodes.transpose(tensor, order)
        shape = [1] * rank
        for at in order:
            index = labels[at]
            if index is not None:
                shape[index] = tensor.shape[order.index(at)]
        # Values broadcast: they need no axes of 1 in front.
        while len(shape) > len(tensor.shape) and shape[0] == 1:
            del shape[0]
        return self.nodes.reshape(tensor, shape)


def _place(label: int | None) -> int:
    return -1 if label is None else label


def _depends(position: Position) -> list[int]:
    return [index for index, size in enumerate(position.shape) if size > 1]


def _group(positions: Sequence[Position], sizes: Sequence[int]) -> list[_Group]:
    """Axes of the tensor, grouped by the indices of the stage on which their indices depend."""
    groups: list[tuple[list[int], list[int]]] = []
    for axis, position in enumerate(positions):
        axes, indices = [axis], _depends(position)
        for other in [g for g in groups if set(g[1]) & set(indices)]:
            groups.remove(other)
            axes, indices = [*other[0], *axes], [*other[1], *indices]
        groups.append((axes, indices))
    return [
        _Group(
            tuple(sorted(axes)),
            tuple(sizes[axis] for axis in sorted(axes)),
            tuple(positions[axis] for axis in sorted(axes)),
            tuple(sorted(set(indices))),
        )
        for axes, indices in sorted(groups, key=lambda group: min(group[0]))
    ]
