"""The activations of DirectML and attention beside PyTorch's, values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dmlc
from dmlc.reference import evaluate
from tests.library.run import Array, normal, run

X = np.concatenate(
    [np.linspace(-7, 7, 57), [-1e4, -88.5, -1e-6, 1e-6, 1e4, np.nan]]
).astype(np.float32)  # fmt: skip

Tensor = torch.Tensor
TABLE: dict[str, tuple[dict[str, float], Callable[[Tensor], Tensor]]] = {
    "CELU": ({"Alpha": 1.5}, lambda x: F.celu(x, 1.5)),
    "ELU": ({"Alpha": 0.75}, lambda x: F.elu(x, 0.75)),
    "GELU": ({}, F.gelu),
    "HARD_SIGMOID": ({"Alpha": 0.16666667}, F.hardsigmoid),
    "HARD_SWISH": ({"Alpha": 0.16666667}, F.hardswish),
    "IDENTITY": ({}, torch.nn.Identity()),
    "LEAKY_RELU": ({}, F.leaky_relu),
    "LINEAR": ({"Alpha": 2, "Beta": 3}, lambda x: 2 * x + 3),
    "LOG_SOFTMAX": ({}, lambda x: F.log_softmax(x, -1)),
    "PARAMETRIC_SOFTPLUS": ({"Alpha": 3, "Beta": 2}, lambda x: 6 * F.softplus(x, 2)),
    "SCALED_ELU": ({}, F.selu),
    "SCALED_TANH": ({"Alpha": 2, "Beta": 0.25}, lambda x: 2 * torch.tanh(0.25 * x)),
    "SHRINK": ({"Bias": 0.5, "Threshold": 0.5}, F.softshrink),
    "SIGMOID": ({}, torch.sigmoid),
    "SOFTMAX": ({}, lambda x: F.softmax(x, -1)),
    "SOFTPLUS": ({"Steepness": 2}, lambda x: F.softplus(x, 2)),
    "SOFTSIGN": ({}, F.softsign),
    "SWISH": ({}, F.silu),
    "TANH": ({}, torch.tanh),
    "THRESHOLDED_RELU": ({"Alpha": 0.5}, lambda x: F.threshold(x, 0.5, 0)),
}
"""The parameters of each activation, and what PyTorch calls it."""


NAN_GIVES_0 = ("SHRINK",)
"""Those that give 0 for all that is not beyond a threshold; PyTorch has NaN."""


def rows(name: str) -> Array:
    return X[:-1] if name.endswith("SOFTMAX") else X


@pytest.mark.parametrize("name", TABLE)
def test_values(name: str) -> None:
    parameters, peer = TABLE[name]
    x = rows(name)
    expected = peer(torch.from_numpy(x.astype(np.float64))).numpy()
    found = run(f"directml.ACTIVATION_{name}", {"InputTensor": x}, parameters, device="opencl")
    if name in NAN_GIVES_0:
        expected = np.where(np.isnan(x), 0, expected)
    np.testing.assert_allclose(found["OutputTensor"], expected, rtol=4e-6, atol=2e-6)


SMOOTH = [name for name in TABLE if name not in ("IDENTITY", "LINEAR")]


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients(name: str) -> None:
    """At the edges of pieces, which no point of the table is, either slope would do."""
    parameters, peer = TABLE[name]
    x = rows(name)[:57]
    x = x + np.float32(0.01)
    given = ", ".join(f"{n}: {float(value)}" for n, value in parameters.items())
    graph = f"""graph g[N](x: FLOAT32[N], dy: FLOAT32[N]) {{
        y = directml.ACTIVATION_{name}(InputTensor: x{", " if given else ""}{given})
        output dx = gradient of y with respect to x from dy
    }}"""
    dy = normal(len(x), seed=3)
    function = dmlc.parse(graph).graphs["g"].bind(dims={"N": len(x)})
    found = evaluate(function, {"x": x, "dy": dy})["dx"]
    at = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    peer(at).backward(torch.from_numpy(dy.astype(np.float64)))
    assert at.grad is not None
    np.testing.assert_allclose(found, at.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_attention(masked: bool) -> None:
    heads, length, keys, size = 2, 5, 7, 4
    q, k, v = (normal(2, heads, n, size, seed=n) for n in (length, keys, keys + 1))
    v = v[:, :, 1:]
    mask = np.random.default_rng(4).integers(0, 2, (2, heads, length, keys)).astype(np.int32)
    mask[..., 0] = 1
    given: dict[str, Any] = {
        f"{name}Tensor": x.transpose(0, 2, 1, 3).reshape(2, -1, heads * size)
        for name, x in (("Query", q), ("Key", k), ("Value", v))
    }
    settings: dict[str, object] = {"Scale": 0.5, "HeadCount": heads, "MaskFilterValue": -np.inf}
    if masked:
        given["MaskTensor"] = mask
        settings["MaskType"] = "BOOLEAN"
    found = run("directml.MULTIHEAD_ATTENTION", given, settings, device="opencl")["OutputTensor"]
    wide = (torch.from_numpy(x.astype(np.float64)) for x in (q, k, v))
    chosen = torch.from_numpy(mask != 0) if masked else None
    expected = F.scaled_dot_product_attention(*wide, attn_mask=chosen, scale=0.5).numpy()
    shaped = expected.transpose(0, 2, 1, 3).reshape(2, length, heads * size)
    np.testing.assert_allclose(found, shaped, rtol=1e-5, atol=1e-6)
