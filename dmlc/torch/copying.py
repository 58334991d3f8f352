"""Copies nodes from one graph of PyTorch to another, as calls of PyTorch's own operators."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from dmlc.torch.groups import is_creation, tensors_of


class Copier:
    """Copier into a new graph. `made` maps nodes to their copies or replacements."""

    def __init__(self, graph: Graph, made: dict[Node, Any]) -> None:
        self.graph, self.made = graph, made

    def copy(self, node: Node) -> Any:
        """Copy of a node, after copies of the views and constants that it reads."""
        if node not in self.made:
            found = {source: self._copy_source(node, source) for source in node.all_input_nodes}
            self.made[node] = self.graph.node_copy(node, found.__getitem__)
        return self.made[node]

    def _copy_source(self, node: Node, source: Node) -> Any:
        if source in self.made:
            return self.made[source]
        tensors = tensors_of(source)
        if not is_creation(node) or not tensors:
            return self.copy(source)
        # A constant like a tensor reads none of its elements, which may be computed only later.
        (like,) = tensors
        call = torch.ops.aten.empty_strided.default
        settings: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        return self.graph.call_function(call, (list(like.shape), list(like.stride())), settings)
