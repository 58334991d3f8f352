"""Normalizations, reductions and softmaxes against PyTorch in float64.

PyTorch is given the inputs as they are stored, widened; what it gives is rounded to the type of
our result by the comparison's tolerance.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tests.library.run import DEVICES, Array, check, normal, run

FLOATS = [np.float32, np.float16]
ONEDNN = [np.float32, np.float16, ml_dtypes.bfloat16]
EPSILON = 1e-3
EPS = float(np.float32(EPSILON))


def tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float64))


def positive(*sizes: int, seed: int, dtype: Any) -> Array:
    return (np.abs(normal(*sizes, seed=seed)) + 0.5).astype(dtype)


BATCHES = [(4, 3), (2, 3, 5), (2, 3, 4, 5), (1, 3, 2, 3, 4)]


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", BATCHES, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_gradients(
    training: bool, shape: tuple[int, ...], dtype: Any, device: str
) -> None:
    like = (1, shape[1], *[1] * (len(shape) - 2))
    x, dy = normal(*shape, dtype=dtype), normal(*shape, seed=1, dtype=dtype)
    scale = normal(*like, seed=2, dtype=dtype)
    mu, var = normal(*like, seed=3, dtype=dtype), positive(*like, seed=4, dtype=dtype)
    inv_std = (tensor(var) + EPS).rsqrt().reshape(-1)
    theirs = torch.ops.aten.native_batch_norm_backward(
        tensor(dy), tensor(x), tensor(scale).reshape(-1), tensor(mu).reshape(-1),
        tensor(var).reshape(-1), tensor(mu).reshape(-1), inv_std, training, EPS,
        [True, True, True],
    )  # fmt: skip
    name = "TRAINING_GRAD" if training else "GRAD"
    inputs = {"InputTensor": x, "InputGradientTensor": dy, "MeanTensor": mu,
              "VarianceTensor": var, "ScaleTensor": scale}  # fmt: skip
    found = run(f"directml.BATCH_NORMALIZATION_{name}", inputs, {"Epsilon": EPSILON},
                device=device)  # fmt: skip
    check(found["OutputGradientTensor"], theirs[0].numpy())
    check(found["OutputScaleGradientTensor"], theirs[1].numpy().reshape(like))
    check(found["OutputBiasGradientTensor"], theirs[2].numpy().reshape(like))


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", BATCHES, ids=str)
def test_batch_norm(shape: tuple[int, ...], dtype: Any, device: str) -> None:
    like = (1, shape[1], *[1] * (len(shape) - 2))
    x = normal(*shape, dtype=dtype)
    scale, bias = normal(*like, seed=2, dtype=dtype), normal(*like, seed=3, dtype=dtype)
    flat = [tensor(a).reshape(-1) for a in (scale, bias)]
    theirs = torch.nn.functional.batch_norm(tensor(x), None, None, *flat, True, 0.1, EPS)
    inputs = {"InputTensor": x, "ScaleTensor": scale, "BiasTensor": bias}
    attributes = {"Epsilon": EPSILON, "FusedActivation": "ACTIVATION_RELU"}
    found = run("directml.BATCH_NORMALIZATION_TRAINING", inputs, attributes, device=device)
    check(found["OutputTensor"], theirs.relu().numpy())
    axes = tuple(a for a in range(len(shape)) if a != 1)
    var, mu = torch.var_mean(tensor(x), axes, correction=0, keepdim=True)
    check(found["OutputMeanTensor"], mu.numpy())
    check(found["OutputVarianceTensor"], var.numpy())
    mu, var = normal(*like, seed=4, dtype=dtype), positive(*like, seed=5, dtype=dtype)
    theirs = torch.nn.functional.batch_norm(
        tensor(x), tensor(mu).reshape(-1), tensor(var).reshape(-1), *flat, False, 0.1, EPS
    )
    given = {**inputs, "MeanTensor": mu, "VarianceTensor": var}
    found = run("directml.BATCH_NORMALIZATION", given, attributes, device=device)
    check(found["OutputTensor"], theirs.relu().numpy())


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ONEDNN, ids=str)
@pytest.mark.parametrize("shape", BATCHES, ids=str)
@pytest.mark.parametrize("layout", ["NCX", "NXC"])
def test_onednn_batch_norm(layout: str, shape: tuple[int, ...], dtype: Any, device: str) -> None:
    x, dy = normal(*shape, dtype=dtype), normal(*shape, seed=1, dtype=dtype)
    gamma, beta, mu = (normal(3, seed=k) for k in (2, 3, 4))
    var = positive(3, seed=5, dtype=np.float32)
    attributes = {"epsilon": EPSILON, "data_format": layout}

    def lay(array: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if layout == "NXC" else array

    theirs = torch.nn.functional.batch_norm(
        tensor(x), tensor(mu), tensor(var), tensor(gamma), tensor(beta), False, 0.0, EPS
    )
    inputs = {"src": lay(x), "gamma": gamma, "beta": beta, "mean": mu, "variance": var}
    found = run("onednn.BatchNormInference", inputs, attributes, device=device)
    check(found["dst"], lay(theirs.numpy()))

    theirs = torch.nn.functional.batch_norm(
        tensor(x), None, None, tensor(gamma), tensor(beta), True, 0.0, EPS
    )
    found = run("onednn.BatchNormForwardTraining", inputs, {**attributes, "momentum": 0.9},
                device=device)  # fmt: skip
    check(found["dst"], lay(theirs.numpy()))
    axes = tuple(a for a in range(len(shape)) if a != 1)
    batch_var, batch_mean = torch.var_mean(tensor(x), axes, correction=0)
    check(found["batch_mean"], batch_mean.numpy())
    check(found["batch_variance"], batch_var.numpy())

    backward = torch.ops.aten.native_batch_norm_backward(
        tensor(dy), tensor(x), tensor(gamma), tensor(mu), tensor(var), tensor(mu),
        (tensor(var) + EPS).rsqrt(), True, EPS, [True, True, True],
    )  # fmt: skip
    inputs = {"src": lay(x), "diff_dst": lay(dy), "mean": mu, "variance": var, "gamma": gamma}
    found = run("onednn.BatchNormTrainingBackward", inputs, attributes,
                {"diff_gamma": (3,), "diff_beta": (3,)}, device)  # fmt: skip
    check(found["diff_src"], lay(backward[0].numpy()))
    check(found["diff_gamma"], backward[1].numpy())
    check(found["diff_beta"], backward[2].numpy())
    found = run("onednn.BiasAddBackward", {"diff_dst": lay(dy)}, {"data_format": layout},
                device=device)  # fmt: skip
    check(found["diff_bias"], tensor(dy).sum(axes).numpy())


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ONEDNN, ids=str)
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (2, 2, 3, 6)], ids=str)
def test_layer_norm(shape: tuple[int, ...], dtype: Any, device: str) -> None:
    x, dy = normal(*shape, dtype=dtype), normal(*shape, seed=1, dtype=dtype)
    gamma, beta = normal(6, seed=2), normal(6, seed=3)
    attributes = {"epsilon": EPSILON}
    theirs, mu, inv_std = torch.native_layer_norm(tensor(x), [6], tensor(gamma), tensor(beta), EPS)
    stats = {"mean": shape[:-1], "variance": shape[:-1]}
    inputs = {"src": x, "gamma": gamma, "beta": beta}
    found = run("onednn.LayerNorm", inputs, attributes, stats, device)
    check(found["dst"], theirs.numpy())
    check(found["mean"], mu.numpy()[..., 0])
    check(found["variance"], (inv_std**-2 - EPS).numpy()[..., 0])

    # What the gradient is given is rounded to float32, and PyTorch is given just that.
    mean32 = mu.numpy()[..., 0].astype(np.float32)
    var32 = (inv_std**-2 - EPS).numpy()[..., 0].astype(np.float32)
    backward = torch.ops.aten.native_layer_norm_backward(
        tensor(dy), tensor(x), [6], tensor(mean32)[..., None],
        (tensor(var32) + EPS).rsqrt()[..., None], tensor(gamma), tensor(beta), [True, True, True],
    )  # fmt: skip
    inputs = {"src": x, "diff_dst": dy, "mean": mean32, "variance": var32, "gamma": gamma}
    found = run("onednn.LayerNormBackward", inputs, attributes,
                {"diff_gamma": (6,), "diff_beta": (6,)}, device)  # fmt: skip
    check(found["diff_src"], backward[0].numpy())
    check(found["diff_gamma"], backward[1].numpy())
    check(found["diff_beta"], backward[2].numpy())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_mean_variance_normalization(dtype: Any, device: str) -> None:
    x = normal(2, 3, 4, 5, dtype=dtype)
    attributes = {"NormalizeVariance": True, "Epsilon": EPSILON}
    cases = ((2, 3), torch.nn.functional.instance_norm(tensor(x), eps=EPS)), (
        (1, 2, 3), torch.nn.functional.group_norm(tensor(x), 1, eps=EPS)
    )  # fmt: skip
    for axes, theirs in cases:
        found = run("directml.MEAN_VARIANCE_NORMALIZATION1", {"InputTensor": x},
                    {"Axes": axes, **attributes}, device=device)  # fmt: skip
        check(found["OutputTensor"], theirs.numpy())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("order", [1, 2])
def test_lp_normalization(order: int, dtype: Any, device: str) -> None:
    """PyTorch limits the norm, and DirectML adds to its square: without, they are the same."""
    x = normal(2, 3, 4, 5, dtype=dtype)
    for axis in range(4):
        theirs = torch.nn.functional.normalize(tensor(x), order, axis, 0.0)
        found = run("directml.LP_NORMALIZATION", {"InputTensor": x},
                    {"Axis": axis, "P": order, "Epsilon": 0}, device=device)  # fmt: skip
        check(found["OutputTensor"], theirs.numpy())


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3.0]


def reduce_with_torch(function: str, x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    match function:
        case "AVERAGE":
            return x.mean(axes, keepdim=True)
        case "L1":
            return torch.linalg.vector_norm(x, 1, axes, keepdim=True)
        case "L2":
            return torch.linalg.vector_norm(x, 2, axes, keepdim=True)
        case "LOG_SUM":
            return x.sum(axes, keepdim=True).log()
        case "LOG_SUM_EXP":
            return x.logsumexp(axes, keepdim=True)
        case "MAX":
            return x.amax(axes, keepdim=True)
        case "MIN":
            return x.amin(axes, keepdim=True)
        case "MULTIPLY":
            for axis in axes:
                x = x.prod(axis, keepdim=True)
            return x
        case "SUM":
            return x.sum(axes, keepdim=True)
        case _:
            return (x * x).sum(axes, keepdim=True)


FUNCTIONS = ("AVERAGE", "L1", "L2", "LOG_SUM", "LOG_SUM_EXP", "MAX", "MIN", "MULTIPLY", "SUM",
             "SUM_SQUARE")  # fmt: skip
ONEDNN_NAMES = {"AVERAGE": "Mean", "L1": "L1", "L2": "L2", "MAX": "Max", "MIN": "Min",
                "MULTIPLY": "Prod", "SUM": "Sum"}  # fmt: skip


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ONEDNN, ids=str)
@pytest.mark.parametrize("axes", [[0], [2], [0, 2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_reductions(function: str, special: bool, axes: list[int], dtype: Any, device: str) -> None:
    x = normal(3, 4, 6, dtype=dtype)
    if special:
        x[0, 0], x[1, 1, ::2] = SPECIAL, np.inf
    theirs = reduce_with_torch(function, tensor(x), axes).numpy()
    if dtype in FLOATS:
        found = run("directml.REDUCE", {"InputTensor": x}, {"Function": function, "Axes": axes},
                    device=device)  # fmt: skip
        check(found["OutputTensor"], theirs)
    if function in ONEDNN_NAMES:
        found = run(f"onednn.Reduce{ONEDNN_NAMES[function]}", {"src": x},
                    {"axes": axes, "keep_dims": True}, device=device)  # fmt: skip
        check(found["dst"], theirs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("function", ["ARGMAX", "ARGMIN"])
def test_positions(function: str, device: str) -> None:
    x = np.random.default_rng(0).integers(-3, 3, (5, 6)).astype(np.float32)
    x[0] = SPECIAL
    choose = torch.argmax if function == "ARGMAX" else torch.argmin
    # Of equal values PyTorch gives any; they are told apart here by their position.
    for axis in (0, 1):
        order = np.arange(x.shape[axis]).reshape((-1, 1) if axis == 0 else (1, -1))
        apart = x + (-1 if function == "ARGMAX" else 1) * order * 1e-3
        found = run("directml.REDUCE", {"InputTensor": x}, {"Function": function, "Axes": [axis]},
                    device=device)  # fmt: skip
        theirs = choose(tensor(apart), axis, keepdim=True).numpy()
        np.testing.assert_array_equal(found["OutputTensor"], theirs)


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ONEDNN, ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmaxes(axis: int, dtype: Any, device: str) -> None:
    x, dy = normal(3, 5, 4, dtype=dtype), normal(3, 5, 4, seed=1, dtype=dtype)
    x[0, 0] = np.asarray([80, -80, 0, 80], dtype)
    for name, forward, backward in (
        ("SoftMax", torch.softmax, torch.ops.aten._softmax_backward_data),
        ("LogSoftmax", torch.log_softmax, torch.ops.aten._log_softmax_backward_data),
    ):
        attributes = {"axis": axis}
        theirs = forward(tensor(x), axis)
        found = run(f"onednn.{name}", {"src": x}, attributes, device=device)["dst"]
        check(found, theirs.numpy())
        stored = theirs.numpy().astype(dtype)
        gradient = backward(tensor(dy), tensor(stored), axis, torch.float64)
        found = run(f"onednn.{name}Backward", {"diff_dst": dy, "dst": stored}, attributes,
                    device=device)["diff_src"]  # fmt: skip
        check(found, gradient.numpy())
        if dtype in FLOATS:
            found = run(f"directml.ACTIVATION_{'LOG_' if name != 'SoftMax' else ''}SOFTMAX1",
                        {"InputTensor": x}, {"Axes": [axis % 3]}, device=device)  # fmt: skip
            check(found["OutputTensor"], theirs.numpy())
