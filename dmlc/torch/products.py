"""Work of PyTorch's matrix products, convolutions and attention, and matrix products as stages.

PyTorch's kernels for them are made for each processor, and are faster than compiled ones if there
is enough work. For less work, a call takes longer than the work itself: a small product is computed
in the group of its readers, and does not divide the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Node

from dmlc.building import tensors as tensor_operations
from dmlc.building.functions import Tensor
from dmlc.source import UnsupportedError
from dmlc.torch.elementwise import Rule, Site

MOST_WORK = 1 << 15
"""Multiply-adds of a product that a group computes: one core does them in the 10 us or so that a
call of PyTorch's takes."""

aten = torch.ops.aten

# Work -----------------------------------------------------------------------------------------


def count_work(node: Node) -> int | None:
    """Multiply-adds of a product; None for any other node."""
    count = _WORK.get(node.target)
    return None if count is None else count(node)


def _shape(argument: Any) -> tuple[int, ...]:
    value: Any = argument.meta["val"]
    found: torch.Tensor = value if isinstance(value, torch.Tensor) else value[0]
    return tuple(found.shape)


def _of_product(first: int) -> Callable[[Node], int]:
    """Work of a product whose left side is the argument of this number."""

    def count(node: Node) -> int:
        return math.prod(_shape(node)) * _shape(node.args[first])[-1]

    return count


def _of_convolution(node: Node) -> int:
    """Work of a convolution: each element of the larger side is multiplied by an element of the
    filter for each channel of the other side."""
    given, weight, made = _shape(node.args[0]), _shape(node.args[1]), _shape(node)
    larger = given if node.args[6] else made
    return math.prod(larger) * math.prod(weight[1:])


def _of_convolution_backward(node: Node) -> int:
    gradient, given, weight = map(_shape, node.args[:3])
    mask: Any = node.args[10]
    larger = given if node.args[7] else gradient
    return math.prod(larger) * math.prod(weight[1:]) * max(sum(mask[:2]), 1)


def _of_attention(first: int, products: int) -> Callable[[Node], int]:
    def count(node: Node) -> int:
        return products * math.prod(_shape(node.args[first])) * _shape(node.args[first + 1])[-2]

    return count


_WORK: Mapping[Any, Callable[[Node], int]] = MappingProxyType({
    aten.mm.default: _of_product(0),
    aten.bmm.default: _of_product(0),
    aten.addmm.default: _of_product(1),
    aten.baddbmm.default: _of_product(1),
    aten.mv.default: _of_product(0),
    aten.convolution.default: _of_convolution,
    aten.convolution_backward.default: _of_convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu.default: _of_attention(0, 2),
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _of_attention(1, 5),
})  # fmt: skip

# Rules ----------------------------------------------------------------------------------------


def _multiply(site: Site, one: Tensor, other: Tensor) -> Tensor:
    if not site.dtype.is_float:
        raise UnsupportedError("products of integers are not mapped")
    return tensor_operations.matrix_multiply(site.builder, site.name, one, other)


PRODUCTS: Mapping[Any, Rule] = MappingProxyType({
    aten.mm.default: _multiply,
    aten.bmm.default: _multiply,
    aten.mv.default: _multiply,
})  # fmt: skip
"""The rule of each matrix product that adds nothing to it."""
