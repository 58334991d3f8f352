"""Graphs of composite nodes, whose operators are defined by others."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from dmlc.source import UnsupportedError
from dmlc.torch.decompositions import COMPOSITES, list_decompositions

_KEPT = 1024
_graphs: dict[object, Graph] = {}


def is_composite(node: Node) -> bool:
    """Whether the group that computes a node decomposes its operator."""
    return node.op == "call_function" and node.target in COMPOSITES


def take_apart(node: Node) -> Graph:
    """Graph of a composite node, with a placeholder for each tensor that it reads, in order. Nodes
    with the same operator, arguments and layouts share one graph. Raises `UnsupportedError` for a
    definition that cannot be traced."""
    places = {source: k for k, source in enumerate(node.all_input_nodes)}

    def describe(source: Node) -> Any:
        value = source.meta.get("val")
        if isinstance(value, torch.Tensor):
            return (places[source], tuple(value.shape), value.stride(), value.dtype)
        return value

    key = repr((node.target, map_arg((node.args, node.kwargs), describe)))
    if key not in _graphs:
        if len(_graphs) >= _KEPT:
            _graphs.clear()
        _graphs[key] = _trace(node)
    return _graphs[key]


def _trace(node: Node) -> Graph:
    sources = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    definition = COMPOSITES[node.target]

    def run(*tensors: torch.Tensor) -> Any:
        given = dict(zip(sources, tensors, strict=True))
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: given.get(n, n.meta.get("val")))
        found = definition(*args, **kwargs)
        return tuple(cast("tuple[Any, ...]", found)) if isinstance(found, tuple) else found

    table = {**COMPOSITES, **list_decompositions()}
    values = [source.meta["val"] for source in sources]
    with FakeTensorMode():
        given = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype) for v in values]
        traced = make_fx(run, table)(*given)
    if any(inner.op == "get_attr" for inner in traced.graph.nodes):
        raise UnsupportedError("its definition has a constant tensor")
    return traced.graph
