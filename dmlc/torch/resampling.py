"""Resampling and its gradients, each as one stage.

Along each axis, an element of the result depends on one or two elements of the input, with a weight
that is a formula of both indices. A stage is the sum over all indices of the input, and a gradient
the sum over all indices of the result, under the condition that the weight is not 0: the compiler
turns that into short loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.scalars import DataType
from dmlc.source import UnsupportedError
from dmlc.torch.elementwise import Rule, Site

Weight = Callable[[Scalar, Scalar], Scalar]
"""The part that a place of the input, which is the first, has in one of the result."""

Axis = Callable[[int, int, float | None, bool], Weight]
"""The weight along an axis of so many places of the input and of the result, for the scale that
PyTorch was given, if any, and whether the first and the last places of both are on each other."""


def _step(given: int, made: int, scale: float | None) -> float:
    """Distance in the input between neighbours of the result."""
    return 1 / scale if scale is not None and scale > 0 else given / made


def _linear(given: int, made: int, scale: float | None, aligned: bool) -> Weight:
    """Weight of linear interpolation: of two neighbours by their distance from the sampled
    coordinate."""
    step = _step(given, made, scale)
    ends = (given - 1) / (made - 1) if made > 1 else 0.0

    def weight(here: Scalar, there: Scalar) -> Scalar:
        place = there * ends if aligned else (there + 0.5) * step - 0.5
        place = place.apply("max", 0).apply("min", given - 1)
        return (1 - (place - here).apply("abs")).apply("max", 0)

    return weight


def _nearest(offset: float) -> Axis:
    """Weight that selects the one index to which a coordinate is truncated."""

    def axis(given: int, made: int, scale: float | None, _: bool) -> Weight:
        step = _step(given, made, scale)

        def weight(here: Scalar, there: Scalar) -> Scalar:
            place = ((there + offset) * step).apply("floor").apply("min", given - 1)
            return place.equals(here).cast(here.dtype)

        return weight

    return axis


def _rule(axis: Axis, exact: bool, backward: bool) -> Rule:
    """Rule of resampling, or of its gradient. With `exact`, coordinates are FLOAT32 whatever the
    type of the elements."""

    def rule(site: Site, one: Tensor, *settings: Any) -> Tensor:
        held = site.dtype.compute
        if not held.is_float:
            raise UnsupportedError("integers are not resampled")
        read = tuple(e for e in one.extents[2:] if isinstance(e, int))
        own = site.extents[2:]
        flags = [s for s in settings if isinstance(s, bool)]
        scales = [*(s for s in settings if s is None or isinstance(s, float)), *[None] * len(own)]
        sizes = zip(own, read, strict=True) if backward else zip(read, own, strict=True)
        weights = [
            axis(given, made, scale, any(flags))
            for (given, made), scale in zip(sizes, scales, strict=False)
        ]
        counted = DataType.FLOAT32 if exact else held

        def list_weights(at: Point) -> list[Scalar]:
            made = [index.cast(counted) for index in at.indices[2:]]
            other = [index.cast(counted) for index in at.reduced]
            pairs = zip(made, other, strict=True) if backward else zip(other, made, strict=True)
            return [weight(*pair) for weight, pair in zip(weights, pairs, strict=True)]

        def part(at: Point) -> Scalar:
            found = at.read(one, *at.indices[:2], *at.reduced).cast(held)
            for each in () if exact else list_weights(at):
                found = found * each
            return found

        def takes(at: Point) -> Scalar:
            found, *others = (each > 0 for each in list_weights(at))
            for each in others:
                found = found & each
            return found

        total = site.builder.reduce(site.name, "sum", site.extents, read, part, held, takes)
        return site.compute(lambda at: at.read(total, *at.indices))

    return rule


aten = torch.ops.aten

_KINDS: Mapping[str, tuple[Axis, bool]] = MappingProxyType({
    "upsample_nearest{}d": (_nearest(0.0), True),
    "_upsample_nearest_exact{}d": (_nearest(0.5), True),
    "upsample_{}": (_linear, False),
})  # fmt: skip
_LINEAR = ("linear1d", "bilinear2d", "trilinear3d")


def _make_rules() -> Mapping[Any, Rule]:
    found: dict[Any, Rule] = {}
    for pattern, (axis, exact) in _KINDS.items():
        for rank in (1, 2, 3):
            name = pattern.format(rank if exact else _LINEAR[rank - 1])
            for backward in (False, True):
                operator = getattr(aten, name + "_backward" * backward).default
                found[operator] = _rule(axis, exact, backward)
    return MappingProxyType(found)


RESAMPLING = _make_rules()
"""The rule of each resampling, and of each gradient of one."""
