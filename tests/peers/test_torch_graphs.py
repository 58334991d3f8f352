"""The example graphs against PyTorch: its automatic differentiation of the forward pass, and its
optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dmlc.scalars import Array
from tests.examples.graphs import NAMES, Case, make_case

DEVICES = ("opencl", "vulkan", "reference")


def gradients(value: torch.Tensor, by: list[torch.Tensor], back: torch.Tensor) -> Any:
    return torch.autograd.grad(value, by, back)


def batch_norm(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, scale.flatten(), bias.flatten(), True, eps=1e-5)


def with_statistics(case: Case, bias: torch.Tensor) -> tuple[Case, dict[str, torch.Tensor]]:
    """The case with the mean and the variance that its x has, and leaves to differentiate by."""
    x = case.inputs["x"]
    axes = (0, 2, 3)
    statistics = {"mean": x.mean(axes, keepdims=True), "variance": x.var(axes, keepdims=True)}
    inputs = {**case.inputs, **statistics}
    leaves = {"x": x, "scale": case.inputs["scale"]}
    made = {n: torch.from_numpy(a).requires_grad_() for n, a in leaves.items()}
    return Case(case.graph, case.dims, inputs), {**made, "bias": bias.requires_grad_()}


def residual_block_backward(case: Case) -> tuple[Case, dict[str, torch.Tensor]]:
    zero = torch.zeros_like(torch.from_numpy(case.inputs["mean"]))
    case, leaves = with_statistics(case, zero)
    skip = torch.from_numpy(np.random.default_rng(9).standard_normal(case.inputs["x"].shape))
    y = torch.relu(batch_norm(leaves["x"], leaves["scale"], leaves["bias"]) + skip.float())
    case = Case(case.graph, case.dims, {**case.inputs, "y": y.detach().numpy()})
    back = torch.from_numpy(case.inputs["dy_main"] + case.inputs["dy_skip"])
    found = gradients(y, [leaves[n] for n in ("x", "scale", "bias")], back)
    return case, dict(zip(("dx", "dscale", "dbias"), found, strict=True))


def relu_batch_norm_backward(case: Case) -> tuple[Case, dict[str, torch.Tensor]]:
    case, leaves = with_statistics(case, torch.from_numpy(case.inputs["bias"].copy()))
    y = torch.relu(batch_norm(leaves["x"], leaves["scale"], leaves["bias"]))
    back = torch.from_numpy(case.inputs["dy"])
    found = gradients(y, [leaves[n] for n in ("x", "scale", "bias")], back)
    return case, dict(zip(("dx", "dscale", "dbias"), found, strict=True))


def unet_decoder_backward(case: Case) -> tuple[Case, dict[str, torch.Tensor]]:
    random = np.random.default_rng(5)
    d = case.dims
    x = torch.from_numpy(random.standard_normal((d["N"], d["C"], d["H"], d["W"])))
    skip = torch.from_numpy(random.standard_normal((d["N"], d["S"], 2 * d["H"], 2 * d["W"])))
    leaves = [x.float().requires_grad_(), skip.float().requires_grad_()]
    up = F.interpolate(leaves[0], scale_factor=2, mode="bilinear", align_corners=False)
    y = torch.relu(torch.cat([up, leaves[1]], 1))
    case = Case(case.graph, case.dims, {**case.inputs, "y": y.detach().numpy()})
    found = gradients(y, leaves, torch.from_numpy(case.inputs["dy"]))
    return case, dict(zip(("dx", "dskip"), found, strict=True))


def gelu_mlp_backward(case: Case) -> tuple[Case, dict[str, torch.Tensor]]:
    leaves = [torch.from_numpy(case.inputs[n]).requires_grad_() for n in ("h", "bias")]
    found = gradients(F.gelu(leaves[0] + leaves[1]), leaves, torch.from_numpy(case.inputs["da"]))
    return case, dict(zip(("dh", "dbias"), found, strict=True))


def softmax_cross_entropy_backward(case: Case) -> tuple[Case, dict[str, torch.Tensor]]:
    logits = torch.from_numpy(case.inputs["logits"]).requires_grad_()
    loss = cross_entropy(case, logits)
    loss.backward()
    assert logits.grad is not None
    return case, {"loss": loss.detach().reshape(1, 1), "dlogits": logits.grad}


def sgd_momentum(case: Case) -> tuple[Case, dict[str, torch.Tensor]]:
    weights, rate = as_parameter(case, "weights"), float(case.inputs["rate"].item())
    optimizer = torch.optim.SGD([weights], lr=rate, momentum=0.9, weight_decay=1e-4)
    optimizer.state[weights]["momentum_buffer"] = torch.from_numpy(case.inputs["velocity"].copy())
    optimizer.step()
    buffer = optimizer.state[weights]["momentum_buffer"]
    return case, {"new_velocity": buffer, "new_weights": weights.detach()}


def adam_clipped(case: Case) -> tuple[Case, dict[str, torch.Tensor]]:
    weights, step = as_parameter(case, "weights"), int(case.inputs["step"].item())
    torch.nn.utils.clip_grad_norm_([weights], 1.0)
    # DirectML adds Epsilon before the second moment is corrected for its bias, PyTorch after.
    epsilon = 1e-8 / (1 - 0.999**step) ** 0.5
    optimizer = torch.optim.Adam([weights], lr=1e-3, betas=(0.9, 0.999), eps=epsilon)
    state = optimizer.state[weights]
    state["step"] = torch.tensor(float(step - 1))
    state["exp_avg"] = torch.from_numpy(case.inputs["first"].copy())
    state["exp_avg_sq"] = torch.from_numpy(case.inputs["second"].copy())
    optimizer.step()
    moments = {"new_first": state["exp_avg"], "new_second": state["exp_avg_sq"]}
    return case, {"new_weights": weights.detach(), **moments}


def as_parameter(case: Case, name: str) -> torch.nn.Parameter:
    """An input as what an optimizer updates, with the case's gradient."""
    made = torch.nn.Parameter(torch.from_numpy(case.inputs[name].copy()))
    made.grad = torch.from_numpy(case.inputs["gradient"].copy())
    return made


def gelu_mlp_training_step(case: Case) -> tuple[Case, dict[str, torch.Tensor]]:
    leaves = as_parameters(case)
    hidden = F.gelu(torch.from_numpy(case.inputs["x"]) @ leaves["w1"] + leaves["b1"])
    loss = cross_entropy(case, hidden @ leaves["w2"] + leaves["b2"])
    loss.backward()
    step, rate = int(case.inputs["step"].item()), float(case.inputs["rate"].item())
    optimizer = torch.optim.Adam(leaves.values(), lr=rate)
    for name, leaf in leaves.items():
        state = optimizer.state[leaf]
        state["step"] = torch.tensor(float(step - 1))
        state["exp_avg"] = torch.from_numpy(case.inputs[f"m_{name}"].copy())
        state["exp_avg_sq"] = torch.from_numpy(case.inputs[f"v_{name}"].copy())
    optimizer.step()
    found = {"loss": loss.detach().reshape(1, 1)}
    for name, leaf in leaves.items():
        found[f"new_{name}"] = leaf.detach()
        found[f"new_m_{name}"] = optimizer.state[leaf]["exp_avg"]
        found[f"new_v_{name}"] = optimizer.state[leaf]["exp_avg_sq"]
    return case, found


def conv_net_training_step(case: Case) -> tuple[Case, dict[str, torch.Tensor]]:
    leaves = as_parameters(case)
    images = torch.from_numpy(case.inputs["images"])
    features = torch.relu(F.conv2d(images, leaves["w1"], leaves["b1"], padding=1))
    rows = F.max_pool2d(features, 2).flatten(1)
    loss = cross_entropy(case, rows @ leaves["w2"] + leaves["b2"])
    loss.backward()
    torch.optim.SGD(leaves.values(), lr=0.1).step()
    updated = {f"new_{name}": leaf.detach() for name, leaf in leaves.items()}
    return case, {"loss": loss.detach().reshape(1, 1), **updated}


def as_parameters(case: Case) -> dict[str, torch.nn.Parameter]:
    """The weights and biases of two layers, as what an optimizer updates."""
    arrays = {name: case.inputs[name].copy() for name in ("w1", "b1", "w2", "b2")}
    return {name: torch.nn.Parameter(torch.from_numpy(a)) for name, a in arrays.items()}


def cross_entropy(case: Case, logits: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, torch.from_numpy(case.inputs["labels"]).flatten().long())


ORACLES: Mapping[str, Callable[[Case], tuple[Case, dict[str, torch.Tensor]]]] = {
    f.__name__: f
    for f in (
        adam_clipped,
        conv_net_training_step,
        gelu_mlp_backward,
        gelu_mlp_training_step,
        relu_batch_norm_backward,
        residual_block_backward,
        sgd_momentum,
        softmax_cross_entropy_backward,
        unet_decoder_backward,
    )
}


@pytest.mark.parametrize("name", NAMES)
def test_example_graphs(name: str) -> None:
    case, expected = ORACLES[name](make_case(name, seed=4))
    for device in DEVICES:
        found = case.run(device)
        assert set(found) == set(expected)
        for output, tensor in expected.items():
            theirs: Array = tensor.numpy()
            largest = float(np.abs(theirs).max())
            np.testing.assert_allclose(
                found[output], theirs, rtol=2e-5, atol=2e-6 * largest, err_msg=f"{device}: {output}"
            )
