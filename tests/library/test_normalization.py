"""Batch, layer and mean-variance normalization, against plain NumPy in float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

import dmlc
from dmlc.binding import TensorDesc
from dmlc.pipeline import rewrite
from tests.cover import cover
from tests.library.run import DEVICES, Array, check, normal, run, wide

EPSILON = 1e-3
EPS = float(np.float32(EPSILON))
FLOATS = [np.float32, np.float16]


def subsets(most_rank: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Sizes of every rank, with sizes of statistics that are 1 in some of the dimensions: every
    subset of up to five dimensions, and of more those that reduce the first few or the last few."""
    sizes = (3, 2, 4, 2, 3, 2, 2, 3)
    for rank in range(1, most_rank + 1):
        shape = sizes[:rank]
        for kept in itertools.product((True, False), repeat=rank):
            runs = sum(a != b for a, b in itertools.pairwise(kept))
            if rank <= 4 or runs <= 1:
                yield shape, tuple(n if k else 1 for n, k in zip(shape, kept, strict=True))


Sizes: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Those of a tensor and those of its statistics."""
SUBSETS: list[Sizes] = list(subsets(8))


def folded(shape: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a for a, n in enumerate(like) if n == 1 and shape[a] != 1)


def mean(values: Array, axes: tuple[int, ...]) -> Array:
    return values.mean(axis=axes, keepdims=True) if axes else values


def total(values: Array, axes: tuple[int, ...]) -> Array:
    return values.sum(axis=axes, keepdims=True) if axes else values


def training_grad(x: Array, dy: Array, mu: Array, var: Array, scale: Array, axes: Any) -> Any:
    """The three gradients, by the page's formula."""
    centered, inv_std = x - mu, 1 / np.sqrt(var + EPS)
    projected = mean(dy * centered, axes)
    dx = scale * inv_std * (dy - mean(dy, axes) - centered * projected / (var + EPS))
    return dx, total(dy * centered * inv_std, axes), total(dy, axes)


GRADIENTS = ("OutputGradientTensor", "OutputScaleGradientTensor", "OutputBiasGradientTensor")


def grad_inputs(shape: tuple[int, ...], like: tuple[int, ...], dtype: Any) -> dict[str, Array]:
    return {
        "InputTensor": normal(*shape, seed=0, dtype=dtype),
        "InputGradientTensor": normal(*shape, seed=1, dtype=dtype),
        "MeanTensor": normal(*like, seed=2, dtype=dtype),
        "VarianceTensor": np.abs(normal(*like, seed=3, dtype=dtype)) + np.asarray(0.5, dtype),
        "ScaleTensor": normal(*like, seed=4, dtype=dtype),
    }


@pytest.mark.grid(3)
@pytest.mark.parametrize(("sizes", "dtype", "device"), cover(2, SUBSETS, FLOATS, DEVICES), ids=str)
def test_batch_norm_training_grad(sizes: Sizes, dtype: Any, device: str) -> None:
    shape, like = sizes
    inputs = grad_inputs(shape, like, dtype)
    name = "directml.BATCH_NORMALIZATION_TRAINING_GRAD"
    found = run(name, inputs, {"Epsilon": EPSILON}, device=device)
    x, dy, mu, var, scale = map(wide, inputs.values())
    expected: list[Array] = list(training_grad(x, dy, mu, var, scale, folded(shape, like)))
    for output, values in zip(GRADIENTS, expected, strict=True):
        check(found[output], values)


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("sizes", "dtype", "device"), cover(2, SUBSETS[::3], FLOATS, DEVICES), ids=str
)
def test_batch_norm_grad(sizes: Sizes, dtype: Any, device: str) -> None:
    shape, like = sizes
    inputs = grad_inputs(shape, like, dtype)
    found = run("directml.BATCH_NORMALIZATION_GRAD", inputs, {"Epsilon": EPSILON}, device=device)
    x, dy, mu, var, scale = map(wide, inputs.values())
    inv_std, axes = 1 / np.sqrt(var + EPS), folded(shape, like)
    check(found[GRADIENTS[0]], dy * scale * inv_std)
    check(found[GRADIENTS[1]], total(dy * (x - mu) * inv_std, axes))
    check(found[GRADIENTS[2]], total(dy, axes))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_strided_inputs(dtype: Any, device: str) -> None:
    whole = grad_inputs((5, 4, 6), (5, 1, 1), dtype)
    turned = {n: a.transpose(2, 1, 0)[::2] if a.size > 5 else a.T for n, a in whole.items()}
    name = "directml.BATCH_NORMALIZATION_TRAINING_GRAD"
    found = run(name, turned, {"Epsilon": EPSILON}, device=device)
    packed = run(name, {n: a.copy() for n, a in turned.items()}, {"Epsilon": EPSILON})
    for output in GRADIENTS:
        check(found[output], wide(packed[output]))


def activate(name: str, x: Array) -> Array:
    match name:
        case "ACTIVATION_RELU":
            return np.maximum(x, 0)
        case "ACTIVATION_SIGMOID":
            return 1 / (1 + np.exp(-x))
        case "ACTIVATION_SOFTSIGN":
            return x / (1 + np.abs(x))
        case "ACTIVATION_TANH":
            return np.tanh(x)
        case _:
            return x


ACTIVATIONS = ("NONE", "ACTIVATION_IDENTITY", "ACTIVATION_RELU", "ACTIVATION_SIGMOID",
               "ACTIVATION_SOFTSIGN", "ACTIVATION_TANH")  # fmt: skip
LIKES = [(3, 1, 1), (1, 4, 1), (3, 4, 5), (1, 1, 1), (1, 4, 5)]


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("like", "activation", "dtype", "device"),
    cover(3, LIKES, ACTIVATIONS, FLOATS, DEVICES),
    ids=str,
)
def test_batch_norm(like: tuple[int, ...], activation: str, dtype: Any, device: str) -> None:
    x, mu, scale, bias = (normal(*s, seed=k, dtype=dtype)
                          for k, s in enumerate(((3, 4, 5), like, like, like)))  # fmt: skip
    var = np.abs(normal(*like, seed=9, dtype=dtype)) + np.asarray(0.5, dtype)
    inputs = {"InputTensor": x, "MeanTensor": mu, "VarianceTensor": var, "ScaleTensor": scale,
              "BiasTensor": bias}  # fmt: skip
    attributes = {"Epsilon": EPSILON, "FusedActivation": activation}
    found = run("directml.BATCH_NORMALIZATION", inputs, attributes, device=device)
    normalized = wide(scale) * (wide(x) - wide(mu)) / np.sqrt(wide(var) + EPS) + wide(bias)
    check(found["OutputTensor"], activate(activation, normalized))


@pytest.mark.parametrize(
    ("like", "added", "dtype", "device"), cover(3, LIKES, (False, True), FLOATS, DEVICES), ids=str
)
def test_batch_norm_training(like: tuple[int, ...], added: bool, dtype: Any, device: str) -> None:
    x, add = normal(3, 4, 5, dtype=dtype), normal(3, 4, 5, seed=5, dtype=dtype)
    scale, bias = normal(*like, seed=1, dtype=dtype), normal(*like, seed=2, dtype=dtype)
    inputs = {"InputTensor": x, "ScaleTensor": scale, "BiasTensor": bias,
              "FusedAddTensor": add if added else None}  # fmt: skip
    attributes = {"Epsilon": EPSILON, "FusedActivation": "ACTIVATION_RELU"}
    found = run("directml.BATCH_NORMALIZATION_TRAINING", inputs, attributes, device=device)
    axes = folded(x.shape, like)
    mu = mean(wide(x), axes)
    var = mean((wide(x) - mu) ** 2, axes)
    normalized = wide(scale) * (wide(x) - mu) / np.sqrt(var + EPS) + wide(bias)
    check(found["OutputTensor"], np.maximum(normalized + (wide(add) if added else 0), 0))
    check(found["OutputMeanTensor"], mu)
    check(found["OutputVarianceTensor"], var)


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("given", "variance", "axes", "dtype", "device"),
    cover(
        3,
        ("", "S", "B", "SB"),
        (True, False),
        ((1,), (0, 2), (2, 3), (1, 2, 3), ()),
        FLOATS,
        DEVICES,
    ),
    ids=str,
)
def test_mean_variance_normalization(
    given: str, variance: bool, axes: tuple[int, ...], dtype: Any, device: str
) -> None:
    x = normal(2, 3, 4, 5, dtype=dtype)
    scale, bias = normal(1, 3, 1, 1, seed=1, dtype=dtype), normal(1, 3, 1, 5, seed=2, dtype=dtype)
    inputs = {"InputTensor": x, "ScaleTensor": scale if "S" in given else None,
              "BiasTensor": bias if "B" in given else None}  # fmt: skip
    attributes = {"Axes": axes, "NormalizeVariance": variance, "Epsilon": EPSILON,
                  "FusedActivation": "ACTIVATION_TANH"}  # fmt: skip
    found = run("directml.MEAN_VARIANCE_NORMALIZATION1", inputs, attributes, device=device)
    centered = wide(x) - mean(wide(x), axes)
    expected = centered / np.sqrt(mean(centered**2, axes) + EPS) if variance else centered
    expected = expected * (wide(scale) if "S" in given else 1)
    check(found["OutputTensor"], np.tanh(expected + (wide(bias) if "B" in given else 0)))


# oneDNN ----------------------------------------------------------------------------------------

MIXED = [(np.float32, np.float32), (np.float16, np.float32), (ml_dtypes.bfloat16, np.float32),
         (ml_dtypes.bfloat16, ml_dtypes.bfloat16)]  # fmt: skip
CHANNELS = [("NCX", (4, 3)), ("NXC", (4, 3)), ("NCX", (2, 3, 4, 5)), ("NXC", (2, 4, 5, 3)),
            ("NXC", (2, 2, 2, 2, 3))]  # fmt: skip
WANTED: list[tuple[str, ...]] = [(), ("diff_gamma", "diff_beta"), ("diff_beta",)]
"""Which gradients of the statistics are asked for."""


ROWS = [(-1, (4, 6)), (-1, (2, 3, 6)), (1, (3, 2, 6)), (-2, (2, 2, 3, 6))]
"""The axis where normalization begins, and a shape."""


def channel(layout: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes that are not the channels', and the sizes of statistics that broadcast."""
    axis = 1 if layout == "NCX" else len(shape) - 1
    rest = tuple(a for a in range(len(shape)) if a != axis)
    return rest, tuple(shape[a] if a == axis else 1 for a in range(len(shape)))


@pytest.mark.parametrize(
    ("channels", "types", "device"), cover(2, CHANNELS, MIXED, DEVICES), ids=str
)
def test_onednn_batch_norm(
    channels: tuple[str, tuple[int, ...]], types: tuple[Any, Any], device: str
) -> None:
    (layout, shape), (dtype, small) = channels, types
    rest, like = channel(layout, shape)
    x = normal(*shape, dtype=dtype)
    gamma, beta, mu = (normal(3, seed=k, dtype=small) for k in (1, 2, 3))
    var = np.abs(normal(3, seed=4, dtype=small)) + np.asarray(0.5, small)
    attributes: dict[str, object] = {"epsilon": EPSILON, "data_format": layout}
    inputs = {"src": x, "gamma": gamma, "beta": beta, "mean": mu, "variance": var}
    found = run("onednn.BatchNormInference", inputs, attributes, device=device)["dst"]
    assert found.dtype == dtype
    g, b, m, v = (wide(a).reshape(like) for a in (gamma, beta, mu, var))
    check(found, g * (wide(x) - m) / np.sqrt(v + EPS) + b)

    attributes["momentum"] = 0.75
    trained = run("onednn.BatchNormForwardTraining", inputs, attributes, device=device)
    batch = wide(x).mean(rest, keepdims=True)
    spread = ((wide(x) - batch) ** 2).mean(rest, keepdims=True)
    check(trained["dst"], g * (wide(x) - batch) / np.sqrt(spread + EPS) + b)
    for name, old, new in (("mean", m, batch), ("variance", v, spread)):
        assert trained[f"batch_{name}"].dtype == small
        check(trained[f"batch_{name}"], new.reshape(3))
        check(trained[f"running_{name}"], (0.75 * old + 0.25 * new).reshape(3))
    del inputs["gamma"], inputs["beta"]
    plain = run("onednn.BatchNormForwardTraining", inputs, attributes, device=device)["dst"]
    check(plain, (wide(x) - batch) / np.sqrt(spread + EPS))


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("channels", "scaled", "wanted", "types", "device"),
    cover(3, CHANNELS, (True, False), WANTED, MIXED, DEVICES),
    ids=str,
)
def test_onednn_batch_norm_backward(
    channels: tuple[str, tuple[int, ...]],
    scaled: bool,
    wanted: tuple[str, ...],
    types: tuple[Any, Any],
    device: str,
) -> None:
    (layout, shape), (dtype, small) = channels, types
    rest, like = channel(layout, shape)
    x, dy = normal(*shape, dtype=dtype), normal(*shape, seed=1, dtype=dtype)
    mu, gamma = normal(3, seed=2, dtype=small), normal(3, seed=3, dtype=small)
    var = np.abs(normal(3, seed=4, dtype=small)) + np.asarray(0.5, small)
    inputs = {"src": x, "diff_dst": dy, "mean": mu, "variance": var,
              "gamma": gamma if scaled else None}  # fmt: skip
    found = run("onednn.BatchNormTrainingBackward", inputs,
                {"epsilon": EPSILON, "data_format": layout},
                dict.fromkeys(wanted, (3,)), device)  # fmt: skip
    assert set(found) == {"diff_src", *wanted}
    m, v, g = (wide(a).reshape(like) for a in (mu, var, gamma))
    scale = g if scaled else np.ones(like)
    dx, dgamma, dbeta = training_grad(wide(x), wide(dy), m, v, scale, rest)
    assert found["diff_src"].dtype == dtype
    check(found["diff_src"], dx)
    for name, values in (("diff_gamma", dgamma), ("diff_beta", dbeta)):
        if name in wanted:
            assert found[name].dtype == small
            check(found[name], values.reshape(3))


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("affine", "rows", "types", "device"), cover(3, (True, False), ROWS, MIXED, DEVICES), ids=str
)
def test_layer_norm(
    affine: bool, rows: tuple[int, tuple[int, ...]], types: tuple[Any, Any], device: str
) -> None:
    (begin, shape), (dtype, small) = rows, types
    first = begin % len(shape)
    axes, lead = tuple(range(first, len(shape))), tuple(range(len(shape) - 1))
    x, dy = normal(*shape, dtype=dtype), normal(*shape, seed=1, dtype=dtype)
    gamma, beta = normal(6, seed=2, dtype=small), normal(6, seed=3, dtype=small)
    attributes = {"begin_norm_axis": begin, "use_affine": affine, "epsilon": EPSILON}
    forward = {"src": x, "gamma": gamma if affine else None, "beta": beta if affine else None}
    stats = {"mean": shape[:first], "variance": shape[:first]}
    found = run("onednn.LayerNorm", forward, attributes, stats, device)
    mu = wide(x).mean(axes, keepdims=True)
    var = ((wide(x) - mu) ** 2).mean(axes, keepdims=True)
    normalized = (wide(x) - mu) / np.sqrt(var + EPS)
    g, b = (wide(gamma), wide(beta)) if affine else (np.ones(6), np.zeros(6))
    check(found["dst"], g * normalized + b)
    check(found["mean"], mu.reshape(shape[:first]))
    check(found["variance"], var.reshape(shape[:first]))
    assert not affine or found["mean"].dtype == small

    kept = {"mean": mu.reshape(shape[:first]).astype(small),
            "variance": var.reshape(shape[:first]).astype(small)}  # fmt: skip
    inputs = {"src": x, "diff_dst": dy, **kept, "gamma": gamma if affine else None}
    asked = {"diff_gamma": (6,), "diff_beta": (6,)} if affine else {}
    back = run("onednn.LayerNormBackward", inputs, attributes, asked, device)
    mu, var = (wide(kept[n]).reshape(mu.shape) for n in ("mean", "variance"))
    inv_std = 1 / np.sqrt(var + EPS)
    normalized = (wide(x) - mu) * inv_std
    flow = wide(dy) * g
    projected = normalized * mean(flow * normalized, axes)
    check(back["diff_src"], inv_std * (flow - mean(flow, axes) - projected))
    if affine:
        check(back["diff_gamma"], (wide(dy) * normalized).sum(lead))
        check(back["diff_beta"], wide(dy).sum(lead))


REFUSED: list[tuple[str, dict[str, Any], dict[str, object], str]] = [
    ("LayerNorm", {"src": (2, 3)}, {}, "gamma and beta must be given where use_affine is true"),
    ("LayerNorm", {"src": (2, 3), "gamma": (2,), "beta": (2,)}, {},
     "there must be one gamma per place along the last axis"),
    ("LayerNorm", {"src": (2, 3)}, {"use_affine": False, "begin_norm_axis": 2},
     "begin_norm_axis must be an axis of src"),
    ("BatchNormInference", {"src": (2, 3, 4), **dict.fromkeys(
        ("gamma", "beta", "mean", "variance"), (3,))}, {"epsilon": 0},
     "there must be one mean per channel"),
    ("BatchNormForwardTraining", {"src": (2, 3), "mean": (3,), "variance": (3,), "gamma": (3,)},
     {"epsilon": 0}, "gamma and beta must be given both, or neither"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0]}: {case[3]}")
def test_what_is_refused(case: tuple[str, dict[str, Any], dict[str, object], str]) -> None:
    name, shapes, attributes, message = case
    tensors = {n: TensorDesc("FLOAT32", s) for n, s in shapes.items()}
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.operator(f"onednn.{name}").bind(tensors, attributes)


@pytest.mark.parametrize("dtype", ["FLOAT32", "FLOAT16"])
def test_the_training_gradient_has_two_sums_over_its_big_tensors(dtype: str) -> None:
    """Three means and sums in the formula; factors that leave the sums make them two, each of
    which reads the gradient and one the input, before the pass that reads both again."""
    big, small = (32, 64, 56, 56), (1, 64, 1, 1)
    names = ("InputTensor", "InputGradientTensor", "MeanTensor", "VarianceTensor", "ScaleTensor")
    given = {n: TensorDesc(dtype, big if n.startswith("Input") else small) for n in names}
    function = dmlc.operator("directml.BATCH_NORMALIZATION_TRAINING_GRAD").bind(
        given, {"Epsilon": 1e-5}
    )
    rewritten = rewrite(function)
    assert sum(s.reduction is not None for s in rewritten.stages) == 2


AS_WRITTEN = """
operator GRAD {
    attributes {
        | Attribute | Type  |
        | Epsilon   | FLOAT |
    }
    tensors {
        | Tensor | Kind | Supported dimension counts | Supported data types |
        | X      | Input  | 1 to 8 | FLOAT32, FLOAT16 |
        | dY     | Input  | 1 to 8 | FLOAT32, FLOAT16 |
        | M      | Input  | 1 to 8 | FLOAT32, FLOAT16 |
        | V      | Input  | 1 to 8 | FLOAT32, FLOAT16 |
        | S      | Input  | 1 to 8 | FLOAT32, FLOAT16 |
        | dX     | Output | 1 to 8 | FLOAT32, FLOAT16 |
        | dS     | Output | 1 to 8 | FLOAT32, FLOAT16 |
        | dB     | Output | 1 to 8 | FLOAT32, FLOAT16 |
    }
    constraints {
        X, dY, M, V, S, dX, dS, and dB must have the same DataType and DimensionCount.
        X, dY, and dX must have the same Sizes.
        M, V, S, dS, and dB must have the same Sizes.
        M must be broadcastable to X.
    }
    compute {
        centered = X - M
        inv_std  = 1 / sqrt(V + Epsilon)
        dB = sum(dY, like: M)
        dS = sum(dY * centered * inv_std, like: M)
        dX = S * inv_std
            * (dY - mean(dY, like: M) - centered * mean(dY * centered, like: M) / (V + Epsilon))
    }
}
"""
"""The gradient as the page has it: divided once per element."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("shape", "like"),
    [((4, 8, 5, 6), (1, 8, 1, 1)), ((50, 300), (1, 300)), ((6, 7), (1, 1)), ((5,), (5,))],
    ids=str,
)
def test_a_gradient_as_its_page_has_it(
    shape: tuple[int, ...], like: tuple[int, ...], dtype: Any, device: str
) -> None:
    (operator,) = dmlc.parse(AS_WRITTEN).operators.values()
    arrays = list(grad_inputs(shape, like, dtype).values())
    inputs = dict(zip(("X", "dY", "M", "V", "S"), arrays, strict=True))
    found = dmlc.run(operator, inputs, {"Epsilon": EPSILON}, device=device)
    expected: list[Array] = list(training_grad(*map(wide, arrays), folded(shape, like)))
    for output, values in zip(("dX", "dS", "dB"), expected, strict=True):
        check(found[output], values)
