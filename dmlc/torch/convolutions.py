"""PyTorch's convolutions and their gradients as stages.

A convolution ties two tensors of a batch, of which one has an element per place of a filter, here
the finer one, and the other one per filter, the coarser one. It gives the coarser of the finer; its
gradient, as a transposed convolution, the finer of the coarser; and both together give the gradient
of the filters. So there are three sums, whichever of them is called the gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.tensors import clamp
from dmlc.scalars import DataType
from dmlc.source import UnsupportedError
from dmlc.torch.elementwise import Rule, Site


@dataclasses.dataclass(frozen=True, slots=True)
class _Filters:
    """How filters lie: over the finer tensor at `step` places per place of the coarser one, from
    `offset` places before its first, with elements `gap` places apart. A filter is of one channel
    of the coarser tensor, and sees those of its group in the finer one."""

    step: Sequence[int]
    offset: Sequence[int]
    gap: Sequence[int]
    groups: int

    @staticmethod
    def of(
        weight: Tensor,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> _Filters:
        axes = weight.rank - 2
        each = [
            list(given) if len(given) == axes else list(given[:1]) * axes
            for given in (stride, padding, dilation)
        ]
        return _Filters(each[0], each[1], each[2], groups)

    def convolve(self, site: Site, finer: Tensor, weight: Tensor) -> Tensor:
        """The coarser tensor: sums over the channels of a group and the places of a filter."""
        filters, own = _sizes(weight), _sizes(finer)[2:]
        of_group = filters[0] // self.groups

        def element(at: Point) -> Scalar:
            channel = self._channel(at.reduced[0], at.indices[1], of_group, filters[1])
            places = self._finer(at, at.indices[2:], at.reduced[1:])
            read = at.read(finer, at.indices[0], channel, *_clamp(at, places, own, self._pads))
            return read * at.read(weight, at.indices[1], *at.reduced)

        def inside(at: Point) -> Scalar:
            return self._inside(at, self._finer(at, at.indices[2:], at.reduced[1:]), own)

        guard = inside if self._pads else None
        return site.builder.reduce(
            site.name, "sum", site.extents, filters[1:], element, site.dtype, guard
        )

    def spread(self, site: Site, coarser: Tensor, weight: Tensor) -> Tensor:
        """The finer tensor: sums over the filters of a group and the places of each."""
        filters, own = _sizes(weight), _sizes(coarser)[2:]
        of_group = filters[0] // self.groups

        def from_start(at: Point, k: int) -> Scalar:
            """How far the filter's first place is from that of the filter of place 0."""
            return at.indices[2 + k] + self.offset[k] - at.reduced[1 + k] * self.gap[k]

        def element(at: Point) -> Scalar:
            channel, of_channel = at.indices[1], at.indices[1]
            if self.groups > 1:
                channel, of_channel = channel / filters[1], channel % filters[1]
                channel = at.reduced[0] + channel * of_group
            else:
                channel = at.reduced[0]
            places = [from_start(at, k) / step for k, step in enumerate(self.step)]
            read = at.read(coarser, at.indices[0], channel, *_clamp(at, places, own, True))
            return read * at.read(weight, channel, of_channel, *at.reduced[1:])

        def meets(at: Point) -> Scalar:
            found = at.constant(True, DataType.BOOL)
            for k, (step, size) in enumerate(zip(self.step, own, strict=True)):
                start = from_start(at, k)
                found = found & (start >= 0) & (start < (size - 1) * step + 1)
                if step > 1:
                    found = found & (start % step).equals(0)
            return found

        axes = (of_group, *filters[2:])
        return site.builder.reduce(site.name, "sum", site.extents, axes, element, site.dtype, meets)

    def gather(self, site: Site, finer: Tensor, coarser: Tensor) -> Tensor:
        """The gradient of the filters: sums over the batch and the places of the coarser tensor."""
        of_group, own = site.extents[0] // self.groups, _sizes(finer)[2:]
        batch, _, *outer = _sizes(coarser)

        def element(at: Point) -> Scalar:
            channel = self._channel(at.indices[1], at.indices[0], of_group, site.extents[1])
            places = self._finer(at, at.reduced[1:], at.indices[2:])
            read = at.read(finer, at.reduced[0], channel, *_clamp(at, places, own, self._pads))
            return read * at.read(coarser, at.reduced[0], at.indices[0], *at.reduced[1:])

        def inside(at: Point) -> Scalar:
            return self._inside(at, self._finer(at, at.reduced[1:], at.indices[2:]), own)

        guard = inside if self._pads else None
        return site.builder.reduce(
            site.name, "sum", site.extents, (batch, *outer), element, site.dtype, guard
        )

    @property
    def _pads(self) -> bool:
        return any(self.offset)

    def _channel(self, own: Scalar, of: Scalar, of_group: int, seen: int) -> Scalar:
        """The channel of the finer tensor that filter number `of` knows as its own."""
        return own if self.groups == 1 else own + of / of_group * seen

    def _finer(self, at: Point, places: Sequence[Scalar], inner: Sequence[Scalar]) -> list[Scalar]:
        """Where the finer tensor is read: by the place of a filter and the place inside."""
        return [
            places[k] * step + inner[k] * gap - offset
            for k, (step, gap, offset) in enumerate(
                zip(self.step, self.gap, self.offset, strict=True)
            )
        ]

    def _inside(self, at: Point, places: Sequence[Scalar], sizes: Sequence[int]) -> Scalar:
        found = at.constant(True, DataType.BOOL)
        for place, size, offset in zip(places, sizes, self.offset, strict=True):
            if offset:
                found = found & (place >= 0) & (place < size)
        return found


def _sizes(tensor: Tensor) -> list[int]:
    return [extent for extent in tensor.extents if isinstance(extent, int)]


def _clamp(
    at: Point, places: Sequence[Scalar], sizes: Sequence[int], needed: bool
) -> Sequence[Scalar]:
    if not needed:
        return places
    return [clamp(place, at.size(n)) for place, n in zip(places, sizes, strict=True)]


def _check(site: Site, one: Tensor, weight: Tensor) -> None:
    if not site.dtype.is_float or one.rank != weight.rank:
        raise UnsupportedError("only convolutions of floats with a batch are mapped")


def _convolve(
    site: Site,
    one: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    _check(site, one, weight)
    filters = _Filters.of(weight, stride, padding, dilation, groups)
    run = filters.spread if transposed else filters.convolve
    made = run(site, one, weight)
    if bias is None:
        return made
    held = site.dtype.compute
    return site.compute(
        lambda at: at.read(made, *at.indices).cast(held) + at.read(bias, at.indices[1]).cast(held)
    )


def _convolve_backward(
    site: Site,
    gradient: Tensor,
    one: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """The gradients of the tensor, of the filters and of the bias, those that are wanted."""
    _check(site, one, weight)
    filters = _Filters.of(weight, stride, padding, dilation, groups)
    found: list[Tensor | None] = [None] * 3
    if wanted[0]:
        of_one = dataclasses.replace(site, extents=tuple(_sizes(one)))
        run = filters.convolve if transposed else filters.spread
        found[0] = run(of_one, gradient, weight)
    if wanted[1]:
        of_weight = dataclasses.replace(site, extents=tuple(_sizes(weight)))
        finer, coarser = (gradient, one) if transposed else (one, gradient)
        found[1] = filters.gather(of_weight, finer, coarser)
    if wanted[2]:
        batch, channels, *outer = _sizes(gradient)
        found[2] = site.builder.reduce(
            site.name, "sum", [channels], [batch, *outer],
            lambda at: at.read(gradient, at.reduced[0], at.indices[0], *at.reduced[1:]),
            site.dtype,
        )  # fmt: skip
    return tuple(found)


aten: Any = torch.ops.aten

CONVOLUTIONS: Mapping[Any, Rule] = MappingProxyType({
    aten.convolution.default: _convolve,
    aten.convolution_backward.default: _convolve_backward,
})  # fmt: skip
"""The rule of convolutions, and of their gradient."""
