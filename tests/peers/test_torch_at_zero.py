"""Gradients at zeros, where a formula of numbers gives NaN: beside PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

import dmlc
from dmlc.scalars import Array

ROWS = np.array([[0, 0, 0], [0, 2, 0], [3, -4, 12]], np.float32)
SEED = np.array([[2.0], [-1.0], [0.5]], np.float32)
POWER = """operator POWER {
    tensors {
        | Tensor | Kind   | Types |
        | x      | Input  | f32   |
        | e      | Input  | f32   |
        | y      | Output | f32   |
    }
    compute { y = pow(x, e) }
}"""
NORM = """operator NORM {
    tensors {
        | Tensor | Kind   | Dimensions | Types |
        | x      | Input  | { N, C }   | f32   |
        | y      | Output | { N, 1 }   | f32   |
    }
    compute { y = pow(sum(pow(abs(x), ORDER), axes: [1]), 1 / ORDER) }
}"""


def run_gradient(
    operator: dmlc.Operator, given: Mapping[str, Array], *wrt: str
) -> Mapping[str, Array]:
    return dmlc.run(dmlc.gradient(operator, wrt), given, device="reference")


@pytest.mark.parametrize("order", [1, 1.5, 2, 3])
def test_norms(order: float) -> None:
    rows = torch.tensor(ROWS, requires_grad=True)
    torch.linalg.vector_norm(rows, order, dim=1, keepdim=True).backward(torch.tensor(SEED))
    (operator,) = dmlc.parse(NORM.replace("ORDER", str(order))).operators.values()
    found = run_gradient(operator, {"x": ROWS, "d_y": SEED}, "x")
    assert rows.grad is not None
    np.testing.assert_allclose(found["d_x"], rows.grad.numpy(), 1e-5)


def test_a_reduction_of_the_library() -> None:
    rows = torch.tensor(ROWS, requires_grad=True)
    torch.linalg.vector_norm(rows, dim=1, keepdim=True).backward(torch.tensor(SEED))
    gradient = dmlc.gradient("onednn.ReduceL2", ["src"])
    attributes: dict[str, object] = {"axes": [1], "keep_dims": True}
    found = dmlc.run(gradient, {"src": ROWS, "d_dst": SEED}, attributes, device="opencl")
    assert rows.grad is not None
    np.testing.assert_allclose(found["d_src"], rows.grad.numpy(), 1e-6)


def test_powers() -> None:
    bases = np.array([0, 0, 0, 0, 2, 0.5], np.float32)
    exponents = np.array([0, 2, 1, 0.5, 0, -1], np.float32)
    x, e = (torch.tensor(a, requires_grad=True) for a in (bases, exponents))
    torch.pow(x, e).sum().backward()
    (operator,) = dmlc.parse(POWER).operators.values()
    given = {"x": bases, "e": exponents, "d_y": np.ones(6, np.float32)}
    found = run_gradient(operator, given, "x", "e")
    assert x.grad is not None
    assert e.grad is not None
    np.testing.assert_allclose(found["d_x"], x.grad.numpy(), 1e-6)
    np.testing.assert_allclose(found["d_e"], e.grad.numpy(), 1e-6)
