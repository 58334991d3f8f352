"""Pooling and its gradients, each as one stage.

A gradient is written as the sum over all results of the forward operator, under the condition that
the result's window covers the element: the compiler turns that into short loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.windows import Windows, pool
from dmlc.scalars import DataType
from dmlc.source import UnsupportedError
from dmlc.torch.elementwise import Rule, Site


def _pair(given: Sequence[int], default: Sequence[int]) -> tuple[int, int]:
    """Setting for rows and columns, which may be given as one number for both."""
    listed = list(given) or list(default)
    return listed[0], listed[-1]


def _windows(
    window: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Windows:
    width = _pair(window, window)
    return Windows(width, _pair(stride, width), _pair(dilation, [1]), _pair(padding, [0]))


def _sizes(tensor: Tensor) -> tuple[int, int]:
    rows, columns = tensor.extents[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise UnsupportedError("sizes must be known")
    return rows, columns


def _pool_max(
    site: Site,
    one: Tensor,
    window: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Largest element of each window, and its linear index in the plane."""
    windows = _windows(window, stride, padding, dilation)
    columns, counts = _sizes(one)[1], site.extents[-2:]
    found, first = (
        pool(site.builder, site.name, combiner, one, windows, counts, dtype)
        for combiner, dtype in (("max", one.dtype), ("argmax", DataType.INT64))
    )

    def number(at: Point) -> Scalar:
        own = at.read(first, *at.indices).cast(DataType.INDEX)
        inner = (own / windows.kernel[1], own % windows.kernel[1])
        row, column = windows.places(at, at.indices[-2:], inner)
        return (row * columns + column).cast(DataType.INT64)

    return found, site.builder.compute(site.name, site.extents, number, DataType.INT64)


def _pool_average(
    site: Site,
    one: Tensor,
    window: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> Tensor:
    windows, held = _windows(window, stride, padding, [1]), one.dtype.compute
    total = pool(site.builder, site.name, "sum", one, windows, site.extents[-2:], held)
    return _divide(site, total, windows, _sizes(one), counts_padding, divisor, site.dtype)


def _divide(
    site: Site,
    one: Tensor,
    windows: Windows,
    size: Sequence[int],
    counts_padding: bool,
    divisor: int | None,
    dtype: DataType,
) -> Tensor:
    """Tensor with one element per window, each divided by the number of elements that its window
    averages in a plane of this size."""
    outer = one.rank - 2

    def count(at: Point, k: int) -> Scalar:
        around = at.measure(windows.before[k])
        start = at.indices[outer + k] * windows.strides[k] - around
        end = (start + windows.kernel[k]).apply("min", around + size[k])
        if not counts_padding:
            start, end = start.apply("max", 0), end.apply("min", size[k])
        return end - start

    def element(at: Point) -> Scalar:
        found = at.read(one, *at.indices)
        return found / (divisor or (count(at, 0) * count(at, 1)).cast(found.dtype))

    return site.builder.compute(site.name, one.extents, element, dtype)


def _spread(
    site: Site,
    windows: Windows,
    gradient: Tensor,
    select: Callable[[Point, Scalar], Scalar] = lambda _, found: found,
) -> Tensor:
    """Sum, at each element, of what `select` admits of the gradients of the windows that cover
    it."""
    outer = gradient.rank - 2

    def covers(at: Point) -> Scalar:
        """Whether a window covers an element."""
        found = at.constant(True, DataType.BOOL)
        for k, first in enumerate(
            windows.places(at, at.reduced, [at.constant(0, DataType.INDEX)] * 2)
        ):
            place, gap = at.indices[outer + k] - first, windows.dilations[k]
            found = found & (place >= 0) & (place < (windows.kernel[k] - 1) * gap + 1)
            if gap > 1:
                found = found & (place % gap).equals(0)
        return found

    def part(at: Point) -> Scalar:
        return select(at, at.read(gradient, *at.indices[:outer], *at.reduced))

    return site.builder.reduce(
        site.name, "sum", site.extents, _sizes(gradient), part, site.dtype, covers
    )


def _spread_max(
    site: Site,
    gradient: Tensor,
    one: Tensor,
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    positions: Tensor,
) -> Tensor:
    """Gradient of each window, at the element whose index `positions` has."""
    columns, outer = _sizes(one)[1], one.rank - 2

    def select(at: Point, found: Scalar) -> Scalar:
        own = at.indices[outer] * columns + at.indices[outer + 1]
        named = at.read(positions, *at.indices[:outer], *at.reduced).cast(DataType.INDEX)
        return named.equals(own).select(found, 0)

    return _spread(site, _windows(window, stride, padding, dilation), gradient, select)


def _spread_average(
    site: Site,
    gradient: Tensor,
    one: Tensor,
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    counts_padding: bool,
    divisor: int | None,
) -> Tensor:
    """Sum, at each element, of its share of the gradient of every window that covers it."""
    windows, held = _windows(window, stride, padding, [1]), gradient.dtype.compute
    parts = _divide(site, gradient, windows, _sizes(one), counts_padding, divisor, held)
    return _spread(site, windows, parts)


aten = torch.ops.aten

WINDOWS: Mapping[Any, Rule] = MappingProxyType({
    aten.max_pool2d_with_indices.default: _pool_max,
    aten.avg_pool2d.default: _pool_average,
    aten.max_pool2d_with_indices_backward.default: _spread_max,
    aten.avg_pool2d_backward.default: _spread_average,
})  # fmt: skip
"""The rule of each pooling, and of each gradient of one."""
