"""PyTorch's scaled dot-product attention of the CPU and its gradient as stages: products of the
last two axes, and a softmax along the keys.

Queries have the sizes (batch, heads, L, E), keys and values (batch, heads, S, E). Source: the
formulas are those of "FlashAttention-2" (Dao, 2023), without its tiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from dmlc.building.functions import FunctionBuilder, Point, Scalar, Tensor
from dmlc.building.tensors import matrix_multiply, read_broadcast, transpose
from dmlc.scalars import DataType
from dmlc.source import UnsupportedError
from dmlc.torch.elementwise import Rule, Site


def _check(query: Tensor, key: Tensor, value: Tensor, dropout: float, mask: Tensor | None) -> None:
    if dropout:
        raise UnsupportedError("attention with dropout is not mapped")
    if mask is not None and not mask.dtype.is_float:
        raise UnsupportedError("only masks of floats, which are added, are mapped")
    if not query.extents[:2] == key.extents[:2] == value.extents[:2]:
        raise UnsupportedError("queries, keys and values need the same batch and heads")


def _scale(query: Tensor, given: float | None) -> float:
    width = query.extents[-1]
    if not isinstance(width, int):
        raise UnsupportedError("sizes must be known")
    return 1 / math.sqrt(width) if given is None else given


def _turn(builder: FunctionBuilder, tensor: Tensor) -> Tensor:
    return transpose(builder, tensor.name, tensor, [0, 1, 3, 2])


def _multiply(builder: FunctionBuilder, name: str, one: Tensor, other: Tensor) -> Tensor:
    """A product in the type that 16-bit floats are computed in."""
    held = one.dtype.compute

    def widen(tensor: Tensor) -> Tensor:
        return builder.compute(
            tensor.name, tensor.extents, lambda at: at.read(tensor, *at.indices).cast(held), held
        )

    left, right = (t if t.dtype is held else widen(t) for t in (one, other))
    return matrix_multiply(builder, name, left, right)


def _score(
    site: Site, query: Tensor, key: Tensor, causal: bool, mask: Tensor | None, scale: float | None
) -> Tensor:
    """How much each query has to do with each key, before the softmax."""
    builder, held, factor = site.builder, query.dtype.compute, _scale(query, scale)
    products = _multiply(builder, site.name, query, _turn(builder, key))

    def element(at: Point) -> Scalar:
        found = at.read(products, *at.indices) * factor
        if mask is not None:
            found = found + read_broadcast(at, mask, at.indices).cast(held)
        if causal:
            seen = at.indices[3] <= at.indices[2]
            found = seen.select(found, at.constant(-math.inf, held))
        return found

    return builder.compute(site.name, products.extents, element, held)


def _attend(
    site: Site,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """What each query gets, and the logarithm of its sum, which is 0 like that where a mask hides
    every key."""
    _check(query, key, value, dropout, attn_mask)
    builder, held = site.builder, query.dtype.compute
    scores = _score(site, query, key, causal, attn_mask, scale)
    rows, keys = scores.extents[:3], scores.extents[3:]
    largest = builder.reduce(
        site.name, "max", rows, keys, lambda at: at.read(scores, *at.indices, *at.reduced)
    )

    def finite(at: Point) -> Scalar:
        found = at.read(largest, *at.indices)
        return found.equals(-math.inf).select(0.0, found)

    base = builder.compute(site.name, rows, finite, held)
    shares = builder.compute(
        site.name, scores.extents,
        lambda at: (at.read(scores, *at.indices) - at.read(base, *at.indices[:3])).apply("exp"),
        held,
    )  # fmt: skip
    total = builder.reduce(
        site.name, "sum", rows, keys, lambda at: at.read(shares, *at.indices, *at.reduced)
    )
    mixed = _multiply(builder, site.name, shares, value)

    def share(at: Point) -> Scalar:
        whole = at.read(total, *at.indices[:3])
        return at.read(mixed, *at.indices) / whole.equals(0.0).select(1.0, whole)

    def logarithm(at: Point) -> Scalar:
        whole = at.read(total, *at.indices)
        found = at.read(base, *at.indices) + whole.apply("log")
        return whole.equals(0.0).select(0.0, found)

    return site.compute(share), builder.compute(site.name, rows, logarithm, held)


def _attend_backward(
    site: Site,
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logarithms: Tensor,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values: shares are computed again, of the logarithms."""
    _check(query, key, value, dropout, attn_mask)
    builder, held, factor = site.builder, query.dtype.compute, _scale(query, scale)
    scores = _score(site, query, key, causal, attn_mask, scale)
    shares = builder.compute(
        site.name, scores.extents,
        lambda at: (
            at.read(scores, *at.indices) - at.read(logarithms, *at.indices[:3]).cast(held)
        ).apply("exp"),
        held,
    )  # fmt: skip
    of_shares = _multiply(builder, site.name, gradient, _turn(builder, value))
    kept = builder.reduce(
        site.name, "sum", scores.extents[:3], gradient.extents[3:],
        lambda at: (
            at.read(gradient, *at.indices, *at.reduced).cast(held)
            * at.read(out, *at.indices, *at.reduced).cast(held)
        ),
        held,
    )  # fmt: skip

    def of_score(at: Point) -> Scalar:
        apart = at.read(of_shares, *at.indices) - at.read(kept, *at.indices[:3])
        return at.read(shares, *at.indices) * apart * factor

    of_scores = builder.compute(site.name, scores.extents, of_score, held)
    of_query = _multiply(builder, site.name, of_scores, key)
    of_key = _multiply(builder, site.name, _turn(builder, of_scores), query)
    of_value = _multiply(builder, site.name, _turn(builder, shares), gradient)
    dtype = site.dtype
    return (
        _store(builder, of_query, dtype),
        _store(builder, of_key, dtype),
        _store(builder, of_value, dtype),
    )


def _store(builder: FunctionBuilder, tensor: Tensor, dtype: DataType) -> Tensor:
    if tensor.dtype is dtype:
        return tensor
    return builder.compute(
        tensor.name, tensor.extents, lambda at: at.read(tensor, *at.indices), dtype
    )


aten: Any = torch.ops.aten

ATTENTION: Mapping[Any, Rule] = MappingProxyType({
    aten._scaled_dot_product_flash_attention_for_cpu.default: _attend,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attend_backward,
})  # fmt: skip
"""The rule of attention, and of its gradient."""
