"""Models and networks compiled by the backend, beside eager."""

from __future__ import annotations

import copy

import pytest
import torch

import dmlc
from benchmarks import torch_networks as networks
from benchmarks.torch_models import MODELS, train
from dmlc.torch.backend import Backend
from tests.peers.torch_graphs import make_model

pytestmark = pytest.mark.usefixtures("forget")


GROUPS = {
    "residual block": 2,
    "GELU and layer norm": 2,
    "RMS norm and SiLU": 2,
    "cross entropy": 2,
    "ResNet block": 5,
    "transformer block": 11,
}
"""In how many groups the two graphs of a model are at most."""


# Where the next layer cuts at zero, a rounding of 16 bits decides which elements have a gradient.
CASES = [(name, torch.float32) for name in MODELS] + [
    (name, torch.bfloat16) for name in MODELS if name not in ("residual block", "ResNet block")
]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_models(name: str, dtype: torch.dtype) -> None:
    """Within 1e-5 of eager, in one graph, with the work that is mapped in few groups."""
    model, inputs = make_model(name, dtype)
    other, backend = copy.deepcopy(model), Backend(measure=False)
    expected = {k: v.clone() for k, v in train(model, model, inputs).items()}
    compiled = torch.compile(other, backend=backend, fullgraph=True)
    found = train(compiled, other, inputs)
    assert found.keys() == expected.keys()
    tolerance = 1e-5 if dtype is torch.float32 else 3e-2
    for key, value in expected.items():
        largest = float(value.float().abs().max())
        torch.testing.assert_close(
            found[key],
            value,
            rtol=tolerance,
            atol=tolerance * max(largest, 0.1),
            msg=lambda t, k=key: f"{k}: {t}",
        )
    assert sum(len(report.groups) for report in backend.reports) <= GROUPS[name]


def test_optimizer_steps() -> None:
    """Five steps of training, compiled once, end where eager's do."""
    model, inputs = make_model("ResNet block", torch.float32)
    other, backend = copy.deepcopy(model), Backend(measure=False)
    for module, run in ((model, model), (other, torch.compile(other, backend=backend))):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            run(*inputs).square().mean().backward()
            optimizer.step()
    assert len(backend.reports) == 2
    for one, two in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)


def test_gradient_of_layer_norm_is_two_kernels() -> None:
    model, inputs = make_model("GELU and layer norm", torch.float32)
    _, backward = dmlc.torch.report(model, *inputs, measure=False)
    assert max(group.kernels for group in backward.groups) == 2


def test_ratios_of_networks_are_a_table() -> None:
    rows = {"one": {"eager": 2.0, "inductor": 1.0, "dmlc": 2.1}}
    assert networks.show_ratios(rows).splitlines() == [
        "| forward and backward | inductor | dmlc |",
        "| -------------------- | -------- | ---- |",
        "| one                  | 0.50     | 1.05 |",
    ]


@pytest.mark.parametrize("name", ["encoder-decoder", "language model", "radiance field"])
def test_networks(name: str) -> None:
    """Result, gradients and running statistics of whole networks, with the random numbers of eager;
    only products, attention and random numbers are left to eager."""
    model, inputs = networks.make(name, large=False)
    other, backend = copy.deepcopy(model), Backend(measure=False)
    expected = {k: v.clone() for k, v in networks.step(model, model, inputs).items()}
    compiled = torch.compile(other, backend=backend, fullgraph=True)
    found = networks.step(compiled, other, inputs)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        largest = float(value.abs().max())
        torch.testing.assert_close(
            found[key],
            value,
            rtol=1e-4,
            atol=1e-4 * max(largest, 0.1),
            msg=lambda t, k=key: f"{k}: {t}",
        )
    reasons = {why for report in backend.reports for _, why in report.eager}
    wanted = ("PyTorch's own", "PyTorch draws", "these are few")
    assert [why for why in reasons if not why.startswith(wanted)] == []
