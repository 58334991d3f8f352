"""Recognizes stages that are convolutions, for `Conv`.

A convolution is a sum of products of two tensors. One of them, the weights, is loaded at plain
indices. Along each spatial axis, the index of the other is a sum of an index of the domain and an
index of the reduction, each times a number. The order of the axes is free, such as `NCHW` and
`NHWC`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from dmlc.index.affine import Affine
from dmlc.ir import Apply, Index, Load, Stage
from dmlc.ir.index import IndexFacts
from dmlc.onnx.nodes import Nodes, Value
from dmlc.scalars import DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Convolution:
    """Convolution: its tensors with their axes in the order of `Conv`, the indices of the domain in
    that order, and the node's attributes."""

    data: str
    weights: str
    data_order: tuple[int, ...]
    weights_order: tuple[int, ...]
    result_order: tuple[Index, ...]
    groups: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    def add(
        self, nodes: Nodes, tensors: Mapping[str, Value], extents: Mapping[Index, int]
    ) -> Value:
        """Adds the nodes. The result has the axes of the stage's domain."""
        data = nodes.transpose(tensors[self.data], self.data_order)
        weights = nodes.transpose(tensors[self.weights], self.weights_order)
        made = nodes.add(
            "Conv",
            [data, weights],
            data.element,
            [extents[index] for index in self.result_order],
            dilations=self.dilations,
            group=self.groups,
            pads=self.pads,
            strides=self.strides,
        )
        domain = [index for index in extents if not index.reduced]
        return nodes.transpose(made, [self.result_order.index(index) for index in domain])


def find_convolution(
    stage: Stage, facts: IndexFacts, extents: Mapping[Index, int], tensors: Mapping[str, Value]
) -> Convolution | None:
    """Convolution of a stage; None if it is none, or not of FLOAT32."""
    body, reduction = stage.body, stage.reduction
    product = body.instructions[body.result]
    if reduction is None or reduction.combiner != "sum" or not isinstance(product, Apply):
        return None
    if product.operation.name != "mul" or body.dtype is not DataType.FLOAT32:
        return None
    if 0 in extents.values():
        return None
    loads = [body.instructions[value] for value in product.operands]
    for data, weights in (loads, loads[::-1]):
        if isinstance(data, Load) and isinstance(weights, Load):
            search = _Search(stage, facts, extents, tensors[data.tensor].shape, data)
            found = search.find(weights)
            if found is not None and not search.reads_all(weights, tensors[weights.tensor].shape):
                continue
            if found is not None:
                return found
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class _Search:
    """Search in a stage's product, given the factor that is the data."""

    stage: Stage
    facts: IndexFacts
    extents: Mapping[Index, int]
    sizes: tuple[int, ...]
    data: Load

    def find(self, weights: Load) -> Convolution | None:
        """Convolution with these weights."""
        taps = [self._find_index(value) for value in weights.indices]
        named = [index for index in taps if index is not None]
        outer = [index for index in named if not index.reduced]
        reduced = {index for index in self.extents if index.reduced}
        if len(taps) != len(self.sizes) or len(taps) < 3 or len(outer) != 1:
            return None
        if len(set(named)) != len(named) or {i for i in named if i.reduced} != reduced:
            return None
        roles = self._assign(outer[0])
        if roles is None:
            return None
        batch, channel, *windows = roles
        # A window of one place, and a single channel, may be read without their index.
        used = {index for value in self.data.indices for index in self.facts.dependencies[value]}
        spare: list[int] = []
        for axis, index in enumerate(taps):
            if index is None and self.facts.forms[weights.indices[axis]] != Affine(0):
                return None
            if index is None or (index.reduced and index not in used):
                spare.append(axis)
        if any(count > 1 for count in (self._count(taps[axis]) for axis in spare)):
            return None
        order = [taps.index(outer[0])]
        for axis in (channel, *windows):
            tap = self._tap(axis)
            if tap is None and not spare:
                return None
            order.append(spare.pop(0) if tap is None else taps.index(tap))
        if spare:
            return None
        groups = self._count_groups(channel, outer[0])
        measured = [self._measure(axis) for axis in windows]
        result = [self._outer(batch), outer[0], *map(self._outer, windows)]
        domain = {index for index in self.extents if not index.reduced}
        known = [found for found in measured if found is not None]
        if groups is None or len(known) != len(windows) or set(result) != domain:
            return None
        if len(result) != len(domain) or not self._holds_guard(windows):
            return None
        return Convolution(
            self.data.tensor,
            weights.tensor,
            (batch, channel, *windows),
            tuple(order),
            tuple(index for index in result if index is not None),
            groups,
            strides=tuple(stride for stride, *_ in known),
            dilations=tuple(dilation for _, dilation, *_ in known),
            pads=tuple(numbers[at] for at in (2, 3) for numbers in known),
        )

    def reads_all(self, weights: Load, sizes: tuple[int, ...]) -> bool:
        """Whether every weight is used, as `Conv` uses them all."""
        taps = [self._find_index(value) for value in weights.indices]
        return tuple(map(self._count, taps)) == sizes

    def _assign(self, outer: Index) -> list[int] | None:
        """Axes of the data: batch, channels, and then the spatial ones; None if they are not
        unique."""
        batch: int | None = None
        channel: int | None = None
        windows: list[int] = []
        for axis, value in enumerate(self.data.indices):
            own = [index for index in self.facts.dependencies[value] if not index.reduced]
            alone = self._find_index(value)
            if own in ([], [outer]) and channel is None:
                channel = axis
            elif batch is None and alone and self.extents[alone] == self.sizes[axis]:
                batch = axis
            else:
                windows.append(axis)
        return None if batch is None or channel is None else [batch, channel, *windows]

    def _count(self, index: Index | None) -> int:
        """Extent of an index; 1 for None."""
        return 1 if index is None else self.extents[index]

    def _tap(self, axis: int) -> Index | None:
        """Index of the reduction on which the data's index along an axis depends."""
        over = self.facts.dependencies[self.data.indices[axis]]
        return next((index for index in over if index.reduced), None)

    def _outer(self, axis: int) -> Index | None:
        """Index of the domain on which the data's index along an axis depends."""
        over = self.facts.dependencies[self.data.indices[axis]]
        return next((index for index in over if not index.reduced), None)

    def _find_index(self, value: int) -> Index | None:
        """Index that a value is, without arithmetic; else None."""
        form = self.facts.forms[value]
        if form is None or len(form.factors) != 1:
            return None
        ((index, factor),) = form.factors
        return index if form == Affine(0, ((index, factor),)) and factor == 1 else None

    def _count_groups(self, axis: int, outer: Index) -> int | None:
        """Number of groups of channels; None if channels are not grouped."""
        value, tap, count = self.data.indices[axis], self._tap(axis), self.extents[outer]
        held = 1 if tap is None else self.extents[tap]
        groups = self.sizes[axis] // held
        over = [outer, *([tap] if tap is not None else [])]
        found = self.facts.evaluate([value], over) if self.facts.known[value] else None
        if found is None or groups * held != self.sizes[axis] or count % groups:
            return None
        first = np.arange(count) // (count // groups) * held
        wanted = first if tap is None else first[:, None] + np.arange(held)
        return groups if (found[0] == wanted).all() else None

    def _measure(self, axis: int) -> tuple[int, int, int, int] | None:
        """Stride, dilation and the padding at both ends along an axis; None if its index is not
        that of a window."""
        form = self.facts.forms[self.data.indices[axis]]
        outer, tap, size = self._outer(axis), self._tap(axis), self.sizes[axis]
        if form is None or outer is None or len(form.factors) != (1 if tap is None else 2):
            return None
        factors = dict(form.factors)
        stride, dilation = factors[outer], 1 if tap is None else factors[tap]
        reach = dilation * (0 if tap is None else self.extents[tap] - 1)
        if form.constant > 0 or min(stride, dilation) < 1:
            return None
        count, before = self.extents[outer], -form.constant
        behind = max(0, stride * (count - 1) + reach - before - (size - 1))
        given = (size + before + behind - reach - 1) // stride + 1
        return (stride, dilation, before, behind) if given == count else None

    def _holds_guard(self, windows: list[int]) -> bool:
        """Whether the guard admits exactly the points inside the data."""
        guard = self.stage.body.guard
        positions = [self.data.indices[axis] for axis in windows]
        asked = positions if guard is None else [*positions, guard]
        if not all(self.facts.known[value] for value in asked):
            return False
        found = self.facts.evaluate(asked)
        if found is None:
            return False
        inside = np.array(True)
        for places, axis in zip(found, windows, strict=False):
            inside = inside & (places >= 0) & (places < self.sizes[axis])
        return bool(inside.all()) if guard is None else bool((inside == found[-1]).all())
