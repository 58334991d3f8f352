"""Fifty steps of training, every one a run of one graph, beside PyTorch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dmlc
from dmlc.scalars import Array
from tests.examples.graphs import load
from tests.library.run import DEVICES

STEPS = 50
TOLERANCE = 2e-6
"""Of a loss: PyTorch's in FLOAT32 and in FLOAT64 differ by a fifth of that."""

RATE = 3e-3
SIZES = {"N": 96, "D": 2, "F": 24, "K": 3}


def make_spirals() -> tuple[Array, Array]:
    """Points on three arms of a spiral, and the number of the arm of each."""
    random = np.random.default_rng(7)
    arm = np.arange(SIZES["N"]) % SIZES["K"]
    along = np.sort(random.uniform(0.2, 1, SIZES["N"]))
    angle = 4 * along + 2 * np.pi / SIZES["K"] * arm + 0.1 * random.standard_normal(SIZES["N"])
    points = np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1)
    return points.astype(np.float32), arm[:, None].astype(np.int32)


def make_weights() -> dict[str, Array]:
    random = np.random.default_rng(8)
    d, f, k = SIZES["D"], SIZES["F"], SIZES["K"]
    sizes = {"w1": (d, f), "b1": (1, f), "w2": (f, k), "b2": (1, k)}
    return {n: random.standard_normal(s).astype(np.float32) for n, s in sizes.items()}


def train(device: str) -> list[float]:
    """The loss at every step, with all that a step gives fed back into the next."""
    x, labels = make_spirals()
    state = make_weights()
    state |= {f"{m}_{n}": np.zeros_like(a) for n, a in state.items() for m in "mv"}
    losses: list[float] = []
    for step in range(1, STEPS + 1):
        rate, number = np.full((1, 1), RATE, np.float32), np.full((1, 1), step, np.uint32)
        given = {"x": x, "labels": labels, "rate": rate, "step": number, **state}
        found = dmlc.run(load("gelu_mlp_training_step"), given, device=device)
        losses.append(found["loss"].item())
        state = {name: found[f"new_{name}"] for name in state}
    return losses


def train_in_torch(dtype: torch.dtype) -> list[float]:
    x, labels = (torch.from_numpy(a) for a in make_spirals())
    made = {n: torch.nn.Parameter(torch.from_numpy(a).to(dtype)) for n, a in make_weights().items()}
    optimizer = torch.optim.Adam(made.values(), lr=RATE)
    losses: list[float] = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        hidden = F.gelu(x.to(dtype) @ made["w1"] + made["b1"])
        loss = F.cross_entropy(hidden @ made["w2"] + made["b2"], labels.flatten().long())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("device", DEVICES)
def test_the_loss_is_pytorchs_at_every_step(device: str) -> None:
    losses = train(device)
    assert losses[-1] < 0.5 * losses[0]
    np.testing.assert_allclose(losses, train_in_torch(torch.float32), rtol=TOLERANCE)
    np.testing.assert_allclose(losses, train_in_torch(torch.float64), rtol=TOLERANCE)
