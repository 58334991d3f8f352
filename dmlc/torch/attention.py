"""Scaled dot-product attention of the CPU and its gradient, defined by other operators of PyTorch:
products of the last two axes, and a softmax along the keys.

Queries have the sizes (batch, heads, L, E), keys and values (batch, heads, S, E). 16-bit floats are
computed in FLOAT32. Source: the formulas are those of "FlashAttention-2" (Dao, 2023), without its
tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from dmlc.source import UnsupportedError

Tensor = torch.Tensor


def _widen(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _multiply(one: Tensor, other: Tensor) -> Tensor:
    """Matrix product as a sum, for any number of axes before the last two."""
    return (one.unsqueeze(-1) * other.unsqueeze(-3)).sum(-2)


def _score(
    query: Tensor, key: Tensor, dropout: float, causal: bool, mask: Tensor | None, scale: float
) -> Tensor:
    """Scores of queries and keys, before the softmax."""
    if dropout:
        raise UnsupportedError("attention with dropout is not mapped")
    if mask is not None and not mask.is_floating_point():
        raise UnsupportedError("only masks of floats, which are added, are mapped")
    if query.shape[:2] != key.shape[:2]:
        raise UnsupportedError("queries, keys and values need the same batch and heads")
    found = _multiply(_widen(query), _widen(key).mT) * scale
    if mask is not None:
        found = found + _widen(mask)
    if causal:
        seen = torch.arange(key.shape[2]) <= torch.arange(query.shape[2]).unsqueeze(1)
        found = found.where(seen, -math.inf)
    return found


def _scale(query: Tensor, given: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if given is None else given


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Result of attention for each query, and the logarithm of its sum of exponentials; both are 0
    if a mask hides every key."""
    scores = _score(query, key, dropout, causal, attn_mask, _scale(query, scale))
    largest = scores.amax(-1, keepdim=True)
    base = torch.where(largest == -math.inf, 0.0, largest)
    shares = (scores - base).exp()
    total = shares.sum(-1, keepdim=True)
    hidden = total == 0
    made = _multiply(shares, _widen(value)) / torch.where(hidden, 1.0, total)
    logarithms = torch.where(hidden, 0.0, base + total.log())
    return made.to(query.dtype), logarithms.squeeze(-1)


def _attend_backward(
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
) -> tuple[Tensor, ...]:
    """Gradients of queries, keys and values. The weights are recomputed from the logarithms."""
    factor, given = _scale(query, scale), _widen(gradient)
    scores = _score(query, key, dropout, causal, attn_mask, factor)
    shares = (scores - logarithms.unsqueeze(-1)).exp()
    kept = (given * _widen(out)).sum(-1, keepdim=True)
    of_scores = shares * (_multiply(given, _widen(value).mT) - kept) * factor
    of_query = _multiply(of_scores, _widen(key))
    of_key, of_value = _multiply(of_scores.mT, _widen(query)), _multiply(shares.mT, given)
    return tuple(each.to(query.dtype) for each in (of_query, of_key, of_value))


aten: Any = torch.ops.aten

ATTENTION: Mapping[Any, Callable[..., Any]] = MappingProxyType({
    aten._scaled_dot_product_flash_attention_for_cpu.default: _attend,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attend_backward,
})  # fmt: skip
"""The definitions of attention and of its gradient."""
