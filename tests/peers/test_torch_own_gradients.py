"""Functions with gradients of their own keep them in PyTorch's autograd."""

from __future__ import annotations

import pytest
import torch

import dmlc
from dmlc import torch as bridge

TEXT = """
function spike(x) = x > 0 ? 1 : 0
    gradient of spike with respect to x = 1 / ((1 + abs(x)) * (1 + abs(x)))
operator SPIKE {
    tensors { | Tensor | Kind   | Types |
              | x      | Input  | f32   |
              | y      | Output | f32   | }
    constraints { x and y must have the same DimensionCount and Sizes. }
    compute { y = spike(x) + stop_gradient(x) }
}
graph spikes[N](x: FLOAT32[N]) { output y = spike(x) + stop_gradient(x) }
"""
MODULE = dmlc.parse(TEXT)
SUBJECTS = {
    "operator": MODULE.operators["SPIKE"],
    "graph": MODULE.graphs["spikes"],
    "function": MODULE.operators["SPIKE"].bind({"x": (3,)}),
}


@pytest.mark.parametrize("kind", SUBJECTS)
def test_autograd_takes_the_gradient_given(kind: str) -> None:
    spike = bridge.register(SUBJECTS[kind], name=f"own_gradient_{kind}")
    x = torch.tensor([-1.0, 0.0, 3.0], requires_grad=True)
    y = spike(x)
    assert torch.equal(y, torch.tensor([-1.0, 0, 4]))
    twice = kind != "graph"  # What a graph is registered as is differentiated once.
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=twice)
    assert torch.equal(slope, torch.tensor([0.25, 1, 0.0625]))
    if twice:
        (second,) = torch.autograd.grad(slope.sum(), x)
        assert torch.equal(second, torch.tensor([0.25, 0, -0.03125]))
