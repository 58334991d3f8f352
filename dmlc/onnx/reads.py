"""How stages read tensors: slices, transposes and gathers of whole tensors.

A read gives, for every point of a stage, one element of a tensor. Its result has an axis for each
index of the stage, of size 1 where the read does not depend on that index; such axes in front may
be missing, since values broadcast. Positions along an axis
of the tensor that a stage's index walks evenly are a slice; others are gathered. Axes of the tensor
whose positions depend on the same index are read together, as one axis.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from dmlc.onnx.arithmetic import Arithmetic
from dmlc.onnx.nodes import Value
from dmlc.scalars import Array

Position: TypeAlias = Array | Value
"""Positions, with an axis for each index of the stage: known now, or computed by nodes."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """Axes of a tensor that are read together: their sizes, the positions along each, and the
    indices of the stage that these depend on."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    positions: tuple[Position, ...]
    indices: tuple[int, ...]


class Reader:
    """Adds the nodes of reads."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self.nodes = arithmetic.nodes

    def read(self, tensor: Value, positions: Sequence[Position], rank: int, clamp: bool) -> Value:
        """The elements of a tensor at positions, for a stage with so many indices. With `clamp`,
        positions may lie outside where no one looks at what is read."""
        if 0 in tensor.shape:
            # No point is looked at.
            return self.nodes.constant(np.zeros((1,) * rank, tensor.dtype))
        sizes = tensor.shape
        found = [
            _settle(p, size, clamp) if isinstance(p, np.ndarray) else self._bound(p, size, clamp)
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
        """Positions that nodes compute, within the axis."""
        if not clamp:
            return position
        like, add = self.arithmetic.like, self.arithmetic.add
        low = add("Max", position, like(position, 0))
        return add("Min", low, like(position, size - 1))

    def _slice(self, tensor: Value, groups: Sequence[_Group]) -> Value:
        """The part of the tensor, with an axis for each group, that even steps walk, in their
        order."""
        found = [_find_steps(group) for group in groups]
        parts = {axis: part for axis, part in enumerate(found) if part is not None}
        sizes = tensor.shape
        parts = {axis: p for axis, p in parts.items() if p != (0, 1, sizes[axis])}
        if not parts:
            return tensor
        axes = sorted(parts)
        starts = [parts[axis][0] for axis in axes]
        steps = [parts[axis][1] for axis in axes]
        # What lies before the first place is spelled as far before the last.
        ends = [
            end if (end := parts[axis][0] + parts[axis][1] * parts[axis][2]) >= 0
            else end - sizes[axis]
            for axis in axes
        ]  # fmt: skip
        given = [self.nodes.sizes(numbers) for numbers in (starts, ends, axes, steps)]
        if steps == [1] * len(steps):
            del given[3]
        shape = [parts[axis][2] if axis in parts else size for axis, size in enumerate(sizes)]
        return self.nodes.add("Slice", [tensor, *given], tensor.element, shape)

    def _merge(self, tensor: Value, groups: list[_Group]) -> tuple[Value, list[_Group]]:
        """The tensor with the axes of each group as one, in the order of the groups."""
        order = [axis for group in groups for axis in group.axes]
        tensor = self.nodes.transpose(tensor, order)
        merged = [self._merge_group(g) if len(g.axes) > 1 else g for g in groups]
        if merged == groups:
            return tensor, groups
        at, shape = 0, list[int]()
        for group in groups:
            shape.append(math.prod(tensor.shape[at : at + len(group.axes)]))
            at += len(group.axes)
        return self.nodes.reshape(tensor, shape), merged

    def _merge_group(self, group: _Group) -> _Group:
        """A group whose one position is the number of an element in all its axes, the last one
        fastest."""
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
        if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
            return np.asarray(one + other)
        if isinstance(one, np.ndarray) and not one.any():
            return other
        return self.arithmetic.add("Add", self._as_value(one), self._as_value(other))

    def _as_value(self, position: Position) -> Value:
        if isinstance(position, Value):
            return position
        return self.nodes.constant(position.astype(np.int64), f"{self.nodes.scope}_positions")

    def _gather(self, tensor: Value, group: _Group, axis: int) -> tuple[Value, list[int | None]]:
        """Reads a group's one axis, the tensor's axis `axis` by now, where it is no slice: what
        comes in its place is an axis for each index it depends on."""
        (position,), (size,) = group.positions, group.sizes
        if _find_steps(group) is not None:
            return tensor, list(group.indices) or [None]
        shape = [_size(position, index) for index in group.indices]
        whole = (*tensor.shape[:axis], *shape, *tensor.shape[axis + 1 :])
        if isinstance(position, np.ndarray):
            line = position.reshape(-1)
            if line.size == size and np.array_equal(line, np.arange(size)):
                return self.nodes.reshape(tensor, whole), list(group.indices)
            places = self.nodes.constant(
                position.reshape(shape).astype(np.int64), f"{self.nodes.scope}_positions"
            )
        else:
            places = self.nodes.reshape(position, shape)
        made = self.nodes.add("Gather", [tensor, places], tensor.element, whole, axis=axis)
        return made, list(group.indices)

    def _arrange(self, tensor: Value, labels: Sequence[int | None], rank: int) -> Value:
        """The tensor's axes in the order of the stage's indices, with 1 for those it lacks."""
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


def _settle(position: Array, size: int, clamp: bool) -> Array:
    """Known positions, within the axis, with one place along each index that they do not depend
    on."""
    if clamp:
        position = np.asarray(np.clip(position, 0, size - 1))
    for axis in range(position.ndim):
        first = position.take([0], axis)
        if (position == first).all():
            position = first
    return position


def _size(position: Position, index: int) -> int:
    return int(position.shape[index])


def _depends(position: Position) -> list[int]:
    return [index for index, size in enumerate(position.shape) if size > 1]


def _group(positions: Sequence[Position], sizes: Sequence[int]) -> list[_Group]:
    """The axes of a tensor, those together whose positions depend on the same indices."""
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


def _find_steps(group: _Group) -> tuple[int, int, int] | None:
    """Of one axis that one index or none walks evenly: the first place, the step and the number of
    places."""
    position = group.positions[0]
    if len(group.indices) > 1 or not isinstance(position, np.ndarray):
        return None
    line = position.reshape(-1)
    if line.size == 1:
        return int(line[0]), 1, 1
    steps = np.diff(line)
    even = steps[0] != 0 and bool((steps == steps[0]).all())
    return (int(line[0]), int(steps[0]), line.size) if even else None
