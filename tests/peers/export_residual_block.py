"""Writes the backward pass of a residual block as PyTorch exports it to ONNX.

`python -m tests.peers.export_residual_block FILE`, with the package onnxscript at hand, makes what
`tests/data/onnx/residual_block_backward.onnx` holds. Of what the exporter writes, only notes on
where in PyTorch a node comes from are left out.
"""

from __future__ import annotations

import sys
from typing import Any

import onnx
import torch
from torch.fx.experimental.proxy_tensor import make_fx

NAMES = ("x", "skip", "scale", "bias", "dy")
SIZES = ((2, 8, 6, 6), (2, 8, 6, 6), (8, 1, 1), (8, 1, 1), (2, 8, 6, 6))


def block(x: Any, skip: Any, scale: Any, bias: Any) -> Any:
    """The end of a residual block: what a branch gives, scaled, and what goes past it."""
    return torch.relu(torch.nn.functional.silu(x) * scale + bias + skip)


def backward(x: Any, skip: Any, scale: Any, bias: Any, dy: Any) -> Any:
    """The gradients of both tensors that come in."""
    with torch.enable_grad():
        given = x.detach().requires_grad_(), skip.detach().requires_grad_()
        return torch.autograd.grad(block(*given, scale, bias), given, dy)


class Backward(torch.nn.Module):
    """A traced graph as a module, which is what is exported."""

    def __init__(self, graph: Any) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, x: Any, skip: Any, scale: Any, bias: Any, dy: Any) -> Any:
        return self.graph(x, skip, scale, bias, dy)


def export(path: str) -> None:
    given = tuple(torch.randn(sizes) for sizes in SIZES)
    table: Any = torch._decomp.core_aten_decompositions()
    graph: Any = make_fx(backward, decomposition_table=table)(*given)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    program: Any = torch.onnx.export(
        Backward(graph).eval(), given, dynamo=True, input_names=NAMES, output_names=("dx", "dskip")
    )
    model: onnx.ModelProto = program.model_proto
    for part in (model, model.graph, *model.graph.node, *model.graph.value_info,
                 *model.graph.input, *model.graph.output, *model.graph.initializer):  # fmt: skip
        del part.metadata_props[:]
    onnx.save(model, path)


if __name__ == "__main__":
    export(sys.argv[1])
