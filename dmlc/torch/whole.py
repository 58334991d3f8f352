"""PyTorch's operators on whole tensors as stages: views, reductions, gathers and windows.

Rules are as in `elementwise`. A view costs nothing in a group: its readers read the viewed tensor,
at other indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from dmlc.building import tensors as tensor_operations
from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.library import apply_operator
from dmlc.building.tensors import normalize_axes, read_broadcast
from dmlc.runtime.arrays import packed
from dmlc.scalars import COMBINERS, DataType
from dmlc.source import UnsupportedError
from dmlc.torch.elementwise import Rule, Site

# Views ----------------------------------------------------------------------------------------


def _reshape(site: Site, one: Tensor, *_: object, **__: object) -> Tensor:
    return tensor_operations.reshape(site.builder, site.name, one, site.extents)


def _permute(site: Site, one: Tensor, order: Sequence[int]) -> Tensor:
    turned = [axis % one.rank for axis in order]
    return tensor_operations.transpose(site.builder, site.name, one, turned)


def _expand(site: Site, one: Tensor, *_: object, **__: object) -> Tensor:
    return tensor_operations.expand(site.builder, site.name, one, site.extents)


def _same(site: Site, one: Tensor, *_: object, **__: object) -> Tensor:
    return one


def _slice(
    site: Site,
    one: Tensor,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    axis %= one.rank
    starts, steps = [0] * one.rank, [1] * one.rank
    starts[axis], _, _ = slice(start, end).indices(_size(one, axis))
    steps[axis] = step
    return tensor_operations.slice_axes(site.builder, site.name, one, starts, steps, site.extents)


def _select(site: Site, one: Tensor, axis: int, index: int) -> Tensor:
    axis %= one.rank
    place = index % _size(one, axis)

    def element(at: Point) -> Scalar:
        own = list(at.indices)
        return at.read(one, *own[:axis], place, *own[axis:])

    return site.builder.compute(site.name, site.extents, element, one.dtype)


def _size(tensor: Tensor, axis: int) -> int:
    return _fixed(tensor.extents)[axis]


def _fixed(extents: Sequence[int | str]) -> tuple[int, ...]:
    return tuple(e for e in extents if isinstance(e, int))


def _as_strided(
    site: Site,
    one: Tensor,
    sizes: Sequence[int],
    strides: Sequence[int],
    offset: int | None = None,
) -> Tensor:
    """View by strides, as indices into the tensor, whose memory has no gaps."""
    (source,) = site.sources
    own = source.stride()
    order = sorted(range(one.rank), key=lambda axis: (-own[axis], axis))
    whole = [_size(one, axis) for axis in order]
    tight = packed(tuple(whole))
    if any(n > 1 and own[a] != t for a, n, t in zip(order, whole, tight, strict=True)):
        raise UnsupportedError("only memory without gaps is read by strides")
    first = 0 if offset is None else offset - int(source.storage_offset())
    last = first + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    if first < 0 or last >= source.numel():
        raise UnsupportedError("memory beyond the tensor is not read by strides")
    if order == sorted(order) and first == 0 and last == source.numel() - 1:
        steps = zip(sizes, strides, packed(tuple(sizes)), strict=True)
        if all(step == t for n, step, t in steps if n > 1):
            return _reshape(site, one)

    def element(at: Point) -> Scalar:
        position = at.constant(first, DataType.INDEX)
        for index, step in zip(at.indices, strides, strict=True):
            position = position + index * step
        found = tensor_operations.unflatten(at, position, whole)
        places = dict(zip(order, found, strict=True))
        return at.read(one, *(places[axis] for axis in range(one.rank)))

    return site.builder.compute(site.name, site.extents, element, one.dtype)


# Moving elements ------------------------------------------------------------------------------


def _join(site: Site, parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    # Empty tensors of one axis join with anything.
    full = [_read_as(site, part) for part in parts if 0 not in part.extents]
    if not full:
        raise UnsupportedError("there is nothing to join")
    return tensor_operations.concatenate(site.builder, site.name, full, axis)


def _read_as(site: Site, one: Tensor) -> Tensor:
    """Tensor converted to the type of the result."""
    if one.dtype is site.dtype:
        return one
    held = site.dtype.compute
    return site.builder.compute(
        site.name, one.extents, lambda at: at.read(one, *at.indices).cast(held), site.dtype
    )


def _pad(site: Site, one: Tensor, widths: Sequence[int], value: float = 0) -> Tensor:
    before, after = [0] * one.rank, [0] * one.rank
    for k in range(len(widths) // 2):
        axis = one.rank - 1 - k
        before[axis], after[axis] = widths[2 * k], widths[2 * k + 1]
    if min(*before, *after, 0) < 0:
        raise UnsupportedError("widths below 0 are not mapped")
    return tensor_operations.pad(site.builder, site.name, one, before, after, value)


def _flip(site: Site, one: Tensor, axes: Sequence[int]) -> Tensor:
    turned = normalize_axes(axes, one.rank)
    sizes = _fixed(one.extents)
    starts = [sizes[k] - 1 if k in turned else 0 for k in range(one.rank)]
    steps = [-1 if k in turned else 1 for k in range(one.rank)]
    return tensor_operations.slice_axes(site.builder, site.name, one, starts, steps, site.extents)


def _gather(site: Site, one: Tensor, axis: int, index: Tensor, sparse: bool = False) -> Tensor:
    if one.rank == 0:
        raise UnsupportedError("a tensor without axes is not gathered from")
    return tensor_operations.gather_elements(site.builder, site.name, one, index, axis)


class _Positions:
    """Index tensors for some axes of a tensor. As in PyTorch, their common axes replace the indexed
    ones, or come first if those are not adjacent."""

    def __init__(self, one: Tensor, given: Sequence[Tensor | None]) -> None:
        self._one = one
        self._given = {k: index for k, index in enumerate(given) if index is not None}
        if any(index.dtype in (DataType.BOOL, DataType.UINT8) for index in self._given.values()):
            raise UnsupportedError("only indices that are integers are mapped")
        shapes = [_fixed(index.extents) for index in self._given.values()]
        self.extents: tuple[int, ...] = np.broadcast_shapes(*shapes)
        """The sizes that all of them broadcast to."""
        axes = list(self._given)
        adjoining = axes == list(range(axes[0], axes[-1] + 1))
        self.start = axes[0] if adjoining else 0
        """Where the common axes are among those of what is read."""
        self.others = [k for k in range(one.rank) if k not in self._given]
        """The axes that no index is for."""

    def find(self, at: Point, common: Sequence[Scalar]) -> dict[int, Scalar]:
        """Index along each indexed axis; a negative one counts from the end."""
        found: dict[int, Scalar] = {}
        for axis, index in self._given.items():
            place = read_broadcast(at, index, common).cast(DataType.INDEX)
            found[axis] = (place < 0).select(place + _size(self._one, axis), place)
        return found

    def join(self, others: Sequence[Scalar], common: Sequence[Scalar]) -> list[Scalar]:
        """Index into the tensor that is read or written."""
        return [*others[: self.start], *common, *others[self.start :]]


def _index(site: Site, one: Tensor, given: Sequence[Tensor | None]) -> Tensor:
    indices = _Positions(one, given)
    start, count = indices.start, len(indices.extents)

    def element(at: Point) -> Scalar:
        common = at.indices[start : start + count]
        places = indices.find(at, common)
        for axis, place in places.items():
            places[axis] = tensor_operations.clamp(place, at.size(_size(one, axis)))
        others = (*at.indices[:start], *at.indices[start + count :])
        places.update(zip(indices.others, others, strict=True))
        return at.read(one, *(places[axis] for axis in range(one.rank)))

    return site.builder.compute(site.name, site.extents, element, one.dtype)


def _scatter(
    site: Site,
    one: Tensor,
    given: Sequence[Tensor | None],
    values: Tensor,
    accumulates: bool = False,
) -> Tensor:
    """Values added at the indices given."""
    if not accumulates:
        raise UnsupportedError("only writes that add up are mapped: of others the last one counts")
    indices = _Positions(one, given)
    held = site.dtype.compute

    def names(at: Point) -> Scalar:
        found: Scalar | None = None
        for axis, place in indices.find(at, at.reduced).items():
            same = place.equals(at.indices[axis])
            found = same if found is None else found & same
        if found is None:
            raise UnsupportedError("no index is given")
        return found

    def value(at: Point) -> Scalar:
        others = [at.indices[axis] for axis in indices.others]
        return read_broadcast(at, values, indices.join(others, at.reduced)).cast(held)

    total = site.builder.reduce(
        site.name, "sum", one.extents, indices.extents, value, held, guard=names
    )
    return site.compute(
        lambda at: at.read(one, *at.indices).cast(held) + at.read(total, *at.indices)
    )


def _slice_scatter(
    site: Site,
    one: Tensor,
    source: Tensor,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    axis %= one.rank
    first, _, _ = slice(start, end).indices(_size(one, axis))
    count = _size(source, axis)

    def element(at: Point) -> Scalar:
        own = list(at.indices)
        place = own[axis] - first
        inside = (place >= 0) & (place < (count - 1) * step + 1)
        if step > 1:
            inside = inside & (place % step).equals(0)
        moved = tensor_operations.clamp(place if step == 1 else place / step, at.size(count))
        other = at.read(source, *own[:axis], moved, *own[axis + 1 :]).cast(site.dtype.compute)
        return inside.select(other, at.read(one, *own))

    return site.builder.compute(site.name, site.extents, element, one.dtype)


# Reductions -----------------------------------------------------------------------------------

Axes = Sequence[int] | int | None


def _list_axes(axes: Axes, rank: int) -> tuple[int, ...]:
    if isinstance(axes, int):
        axes = [axes]
    if not axes:
        return tuple(range(rank))
    return normalize_axes(axes, rank) if rank else ()


def _reduce(
    site: Site,
    combiner: str,
    one: Tensor,
    axes: Axes,
    keep: bool,
    formula: Callable[[Scalar], Scalar],
    dtype: DataType,
) -> Tensor:
    order = _list_axes(axes, one.rank)
    if not order:
        return site.builder.compute(
            site.name, one.extents, lambda at: formula(at.read(one, *at.indices)), dtype
        )
    return tensor_operations.reduce_axes(
        site.builder, site.name, combiner, one, order, keep, formula, dtype
    )


def _reducing(combiner: str) -> Rule:
    """Rule for a reduction in the result's type."""

    def rule(
        site: Site, one: Tensor, axes: Axes = None, keep: bool = False, *, dtype: object = None
    ) -> Tensor:
        held = site.dtype.compute
        return _reduce(site, combiner, one, axes, keep, lambda x: x.cast(held), site.dtype)

    return rule


def _extreme(combiner: str) -> Rule:
    """Rule for the most extreme element along an axis, and its first index."""

    def rule(site: Site, one: Tensor, axis: int, keep: bool = False) -> tuple[Tensor, Tensor]:
        if one.rank == 0:
            raise UnsupportedError("a tensor without axes has no places along one")
        truth = one.dtype is DataType.BOOL
        own = COMBINERS[combiner].counterpart if truth else combiner
        found = _reduce(site, own, one, axis, keep, lambda x: x, one.dtype)
        return found, _place(COMBINERS[combiner].position, site, one, axis, keep)

    return rule


def _place(
    combiner: str, site: Site, one: Tensor, axis: int | None = None, keep: bool = False
) -> Tensor:
    def number(x: Scalar) -> Scalar:
        return x.cast(DataType.INT32) if x.dtype is DataType.BOOL else x

    return _reduce(site, combiner, one, axis, keep, number, DataType.INT64)


def _placing(combiner: str) -> Rule:
    """Rule for the first index of the most extreme element, along an axis or in the whole
    tensor."""

    def rule(site: Site, one: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
        if one.rank == 0:
            raise UnsupportedError("a tensor without axes has no places along one")
        return _place(combiner, site, one, axis, keep)

    return rule


def _running(operator: str, exclusive: str) -> Rule:
    """Rule for a cumulative reduction along an axis."""

    def rule(site: Site, one: Tensor, axis: int, *, dtype: object = None) -> Tensor:
        found = _read_as(site, one)
        if one.rank == 0:
            return found
        settings = {"Axis": axis % one.rank, "AxisDirection": "INCREASING", exclusive: False}
        tensors = {"InputTensor": found}
        return apply_operator(site.builder, site.name, operator, tensors, settings)

    return rule


def _count(one: Tensor, axes: Axes) -> int:
    sizes = _fixed(one.extents)
    return math.prod(sizes[axis] for axis in _list_axes(axes, one.rank))


def _mean(
    site: Site, one: Tensor, axes: Axes = None, keep: bool = False, *, dtype: object = None
) -> Tensor:
    held, count = site.dtype.compute, _count(one, axes)
    total = _reduce(site, "sum", one, axes, keep, lambda x: x.cast(held), held)
    return site.compute(lambda at: at.read(total, *at.indices) / count)


def _logical(combiner: str) -> Rule:
    def rule(site: Site, one: Tensor, axes: Axes = None, keep: bool = False) -> Tensor:
        held = DataType.BOOL
        return _reduce(site, combiner, one, axes, keep, lambda x: x.cast(held), held)

    return rule


aten = torch.ops.aten

VIEWS: Mapping[Any, Rule] = MappingProxyType({
    aten.view.default: _reshape,
    aten.reshape.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten.unsqueeze.default: _reshape,
    aten.squeeze.default: _reshape,
    aten.squeeze.dim: _reshape,
    aten.squeeze.dims: _reshape,
    aten.permute.default: _permute,
    aten.expand.default: _expand,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.as_strided.default: _as_strided,
    aten.alias.default: _same,
    aten.lift_fresh_copy.default: _same,
})  # fmt: skip
"""The rule of each operator that only says where elements are: it goes with those who read it."""

WHOLE: Mapping[Any, Rule] = MappingProxyType({
    aten.cat.default: _join,
    aten.constant_pad_nd.default: _pad,
    aten.flip.default: _flip,
    aten.gather.default: _gather,
    aten.index.Tensor: _index,
    aten._unsafe_index.Tensor: _index,
    aten.index_put.default: _scatter,
    aten._unsafe_index_put.default: _scatter,
    aten.slice_scatter.default: _slice_scatter,
    aten.sum.default: _reducing("sum"),
    aten.sum.dim_IntList: _reducing("sum"),
    aten.prod.default: _reducing("product"),
    aten.prod.dim_int: _reducing("product"),
    aten.cumsum.default: _running("directml.CUMULATIVE_SUMMATION", "HasExclusiveSum"),
    aten.cumprod.default: _running("directml.CUMULATIVE_PRODUCT", "HasExclusiveProduct"),
    aten.amax.default: _reducing("max"),
    aten.amin.default: _reducing("min"),
    aten.max.default: _reducing("max"),
    aten.min.default: _reducing("min"),
    aten.max.dim: _extreme("max"),
    aten.min.dim: _extreme("min"),
    aten.argmax.default: _placing("argmax"),
    aten.argmin.default: _placing("argmin"),
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.any.default: _logical("any"),
    aten.any.dim: _logical("any"),
    aten.any.dims: _logical("any"),
    aten.all.default: _logical("all"),
    aten.all.dim: _logical("all"),
})  # fmt: skip
"""The rule of each operator that reduces, gathers or joins."""
