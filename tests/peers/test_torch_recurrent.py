"""DirectML's recurrent layers, and their derived gradients, against PyTorch's in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dmlc
from dmlc import compiler, ir
from dmlc.scalars import Array
from dmlc.testing.gradients import widen_floats

STEPS = {"LSTM": 128, "GRU": 24, "RNN": 24}
BATCH, FEATURES, UNITS = 2, 3, 4
GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Where DirectML has the gates that PyTorch has in turn."""
ACTIVATIONS = {
    "LSTM": ["ACTIVATION_SIGMOID", "ACTIVATION_TANH", "ACTIVATION_TANH"],
    "GRU": ["ACTIVATION_SIGMOID", "ACTIVATION_TANH"],
    "RNN": ["ACTIVATION_TANH"],
}
GRAPH = """graph layer[T, N, I, H, G](
    x: FLOAT32[1, T, N, I], w: FLOAT32[1, 1, G, I], r: FLOAT32[1, 1, G, H],
    b: FLOAT32[1, 1, 1, 2 * G], h: FLOAT32[1, 1, N, H], dy: FLOAT32[T, 1, N, H]
) {
    layer = directml.NAME(InputTensor: x, WeightTensor: w, RecurrenceTensor: r, BiasTensor: b,
        HiddenInitTensor: h, MORE ActivationDescs: DESCS)
    y = layer.OutputSequenceTensor
    output sequence = y + 0
    output dx, dw, dr, db, dh = gradient of y with respect to x, w, r, b, h from dy
}"""


def make(kind: str, more: str = "") -> ir.Function:
    text = GRAPH.replace("NAME", kind).replace("MORE", more)
    text = text.replace("DESCS", str(ACTIVATIONS[kind]).replace("'", '"'))
    dims = {"T": STEPS[kind], "N": BATCH, "I": FEATURES, "H": UNITS, "G": len(GATES[kind]) * UNITS}
    return dmlc.parse(text).graphs["layer"].bind(dims=dims)


def draw(kind: str) -> dict[str, Array]:
    random = np.random.default_rng(5)
    gates = len(GATES[kind]) * UNITS
    sizes = {
        "x": (1, STEPS[kind], BATCH, FEATURES), "w": (1, 1, gates, FEATURES),
        "r": (1, 1, gates, UNITS), "b": (1, 1, 1, 2 * gates), "h": (1, 1, BATCH, UNITS),
        "dy": (STEPS[kind], 1, BATCH, UNITS),
    }  # fmt: skip
    return {name: random.standard_normal(size) / 2 for name, size in sizes.items()}


def ask_torch(kind: str, given: dict[str, Array]) -> dict[str, Array]:
    held = {n: torch.tensor(a, requires_grad=n != "dy") for n, a in given.items()}
    rows = torch.tensor(
        [q * UNITS + u for q in GATES[kind] for u in range(UNITS)], dtype=torch.int64
    )
    one, two = held["b"][0, 0, 0].chunk(2)
    weights = {
        "weight_ih_l0": held["w"][0, 0][rows], "weight_hh_l0": held["r"][0, 0][rows],
        "bias_ih_l0": one[rows], "bias_hh_l0": two[rows],
    }  # fmt: skip
    layer: Any = getattr(torch.nn, kind)(FEATURES, UNITS).double()
    state = held["h"][0]
    start = (state, torch.zeros_like(state)) if kind == "LSTM" else state
    found, _ = torch.func.functional_call(layer, weights, (held["x"][0], start))
    (found[:, None] * held["dy"]).sum().backward()
    gradients = {f"d{n}": held[n].grad.numpy() for n in ("x", "w", "r", "b", "h")}
    return {"sequence": found[:, None].detach().numpy(), **gradients}


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_layer_and_its_gradient_over_many_steps(kind: str) -> None:
    given = draw(kind)
    # PyTorch scales the recurrent product of a GRU's candidate, with its bias.
    function = make(kind, "LinearBeforeReset: true," if kind == "GRU" else "")
    found, expected = compiler.evaluate(widen_floats(function), given), ask_torch(kind, given)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-10, err_msg=name)


def test_devices_agree() -> None:
    given, function = draw("LSTM"), make("LSTM")
    expected = ask_torch("LSTM", given)
    found = dmlc.run(function, {n: a.astype(np.float32) for n, a in given.items()}, device="opencl")
    for name, values in expected.items():
        scale = max(1.0, float(np.abs(values).max()))
        np.testing.assert_allclose(found[name] / scale, values / scale, atol=1e-5, err_msg=name)
