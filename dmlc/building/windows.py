"""Sliding windows over the axes of space of tensors (batch, channels, space...): convolutions,
their transposes and poolings as stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dmlc.building.functions import FunctionBuilder, Point, Scalar, Tensor
from dmlc.ir import Extent
from dmlc.scalars import DataType
from dmlc.sizes import Measure
from dmlc.source import DmlcError


@dataclasses.dataclass(frozen=True, slots=True)
class Windows:
    """Windows over axes. Along each axis, window `i` starts `before` elements before the element
    `i * strides`, and its elements are `dilations` apart."""

    kernel: tuple[int, ...]
    """Elements of a window along each axis."""
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Measure, ...]

    def places(self, at: Point, windows: Sequence[Scalar], steps: Sequence[Scalar]) -> list[Scalar]:
        """Index along each axis of the element `steps` of a window; it may be out of bounds."""
        rows = zip(windows, self.strides, steps, self.dilations, self.before, strict=True)
        return [index * stride + step * dilation - at.measure(start)
                for index, stride, step, dilation, start in rows]  # fmt: skip

    def sources(
        self, at: Point, places: Sequence[Scalar], steps: Sequence[Scalar], counts: Sequence[Extent]
    ) -> tuple[list[Scalar], Scalar]:
        """Windows whose element `steps` is at `places`, of `counts` along each axis, and whether
        there are such."""
        found: list[Scalar] = []
        exists = at.constant(True, DataType.BOOL)
        for axis, count in enumerate(counts):
            stride = self.strides[axis]
            moved = places[axis] + at.measure(self.before[axis])
            moved = moved - steps[axis] * self.dilations[axis]
            window = moved
            if stride > 1:
                exists = exists & (moved % stride).equals(0)
                window = moved / stride
            exists = exists & (moved >= 0) & (window < at.size(count))
            found.append(window)
        return found, exists


def are_inside(at: Point, places: Sequence[Scalar], sizes: Sequence[Extent]) -> Scalar:
    """Whether indices are in bounds of axes of these sizes."""
    found = at.constant(True, DataType.BOOL)
    for number, (place, size) in enumerate(zip(places, sizes, strict=True)):
        holds = (place >= 0) & (place < at.size(size))
        found = holds if number == 0 else found & holds
    return found


def pool(
    builder: FunctionBuilder,
    name: str,
    combiner: str,
    x: Tensor,
    windows: Windows,
    counts: Sequence[Extent],
    dtype: DataType | None = None,
    formula: Callable[[Scalar], Scalar] | None = None,
) -> Tensor:
    """Reduction of each window's elements, each after `formula`; `counts` are the windows along
    each of the last axes. Elements out of bounds do not take part."""
    outer = x.rank - len(counts)

    def places(at: Point) -> list[Scalar]:
        return windows.places(at, at.indices[outer:], at.reduced)

    def element(at: Point) -> Scalar:
        value = at.read(x, *at.indices[:outer], *places(at))
        return value if formula is None else formula(value)

    extents = (*x.extents[:outer], *counts)
    return builder.reduce(name, combiner, extents, windows.kernel, element, dtype,
                          lambda at: are_inside(at, places(at), x.extents[outer:]))  # fmt: skip


def convolve(
    builder: FunctionBuilder,
    name: str,
    x: Tensor,
    weight: Tensor,
    windows: Windows,
    counts: Sequence[Extent],
    groups: int = 1,
    dtype: DataType | None = None,
) -> Tensor:
    """Convolution by filters (filters, channels of a group, *kernel). 16-bit floats are accumulated
    in FLOAT32."""
    space, (filters, inner) = x.extents[2:], _fixed(weight)

    def places(at: Point) -> list[Scalar]:
        return windows.places(at, at.indices[2:], at.reduced[1:])

    def element(at: Point) -> Scalar:
        n, m = at.indices[:2]
        channel = at.reduced[0]
        if groups > 1:
            channel = m / (filters // groups) * inner + channel
        return at.read(x, n, channel, *places(at)) * at.read(weight, m, *at.reduced)

    return builder.reduce(
        name, "sum", (x.extents[0], filters, *counts), (inner, *windows.kernel), element, dtype,
        lambda at: are_inside(at, places(at), space),
    )  # fmt: skip


def convolve_transposed(
    builder: FunctionBuilder,
    name: str,
    x: Tensor,
    weight: Tensor,
    windows: Windows,
    space: Sequence[Extent],
    groups: int = 1,
    dtype: DataType | None = None,
) -> Tensor:
    """Transpose of a convolution that has a window for each index of `x`, over axes of the sizes
    `space`, by filters (channels of `x`, channels of a group, *kernel)."""
    inner, each = _fixed(weight)

    def sources(at: Point) -> tuple[list[Scalar], Scalar]:
        return windows.sources(at, at.indices[2:], at.reduced[1:], x.extents[2:])

    def element(at: Point) -> Scalar:
        n, own = at.indices[:2]
        channel = at.reduced[0]
        if groups > 1:
            channel, own = own / each * (inner // groups) + channel, own % each
        value = at.read(x, n, channel, *sources(at)[0])
        return value * at.read(weight, channel, own, *at.reduced[1:])

    extents = (x.extents[0], each * groups, *space)
    axes = (inner // groups, *windows.kernel)
    return builder.reduce(name, "sum", extents, axes, element, dtype, lambda at: sources(at)[1])


def _fixed(weight: Tensor) -> tuple[int, int]:
    """Channels of filters. Raises `DmlcError` for an open size."""
    first, second = weight.extents[:2]
    if not isinstance(first, int) or not isinstance(second, int):
        raise DmlcError(f"the channels of {weight.name} are left open")
    return first, second
