"""PyTorch's convolutions and their gradients as stages.

A convolution relates two tensors of a batch: a finer one, with an element per tap of a filter, and
a coarser one, with an element per filter. The forward operator computes the coarser from the finer;
its gradient, like a transposed convolution, the finer from the coarser; and the gradient of the
filters takes both. So there are three sums, whichever of them is the gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.windows import Windows, are_inside, convolve, convolve_transposed
from dmlc.source import UnsupportedError
from dmlc.torch.elementwise import Rule, Site


@dataclasses.dataclass(frozen=True, slots=True)
class _Filters:
    """Layout of filters: windows over the finer tensor, one per index of the coarser one. A filter
    belongs to one channel of the coarser tensor, and covers the channels of its group in the finer
    one."""

    windows: Windows
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
            tuple(given) if len(given) == axes else (*given[:1],) * axes
            for given in (stride, dilation, padding)
        ]
        return _Filters(Windows(tuple(_sizes(weight)[2:]), *each), groups)

    def convolve(self, site: Site, finer: Tensor, weight: Tensor) -> Tensor:
        """Coarser tensor: sums over the channels of a group and the taps of a filter."""
        return convolve(site.builder, site.name, finer, weight, self.windows, site.extents[2:],
                        self.groups, site.dtype)  # fmt: skip

    def spread(self, site: Site, coarser: Tensor, weight: Tensor) -> Tensor:
        """Finer tensor: sums over the filters of a group and the taps of each."""
        return convolve_transposed(site.builder, site.name, coarser, weight, self.windows,
                                   site.extents[2:], self.groups, site.dtype)  # fmt: skip

    def gather(self, site: Site, finer: Tensor, coarser: Tensor) -> Tensor:
        """Gradient of the filters: sums over the batch and the indices of the coarser tensor."""
        of_group, seen = site.extents[0] // self.groups, site.extents[1]
        batch, _, *outer = _sizes(coarser)

        def places(at: Point) -> list[Scalar]:
            return self.windows.places(at, at.reduced[1:], at.indices[2:])

        def element(at: Point) -> Scalar:
            number, channel = at.indices[:2]
            if self.groups > 1:
                channel = channel + number / of_group * seen
            read = at.read(finer, at.reduced[0], channel, *places(at))
            return read * at.read(coarser, at.reduced[0], number, *at.reduced[1:])

        return site.builder.reduce(
            site.name, "sum", site.extents, (batch, *outer), element, site.dtype,
            lambda at: are_inside(at, places(at), finer.extents[2:]),
        )  # fmt: skip


def _sizes(tensor: Tensor) -> list[int]:
    return [extent for extent in tensor.extents if isinstance(extent, int)]


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
    """Gradients of the tensor, the filters and the bias, as far as they are wanted."""
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
