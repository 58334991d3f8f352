"""Operators of com.microsoft, held to what they come to in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlc
from dmlc.onnx.importing import contributed
from dmlc.source import UnsupportedError

RANDOM = np.random.default_rng(5)
erf: Any = np.vectorize(math.erf)


def draw(*sizes: int) -> Any:
    return RANDOM.standard_normal(sizes).astype(np.float32)


def draw_bytes(*sizes: int, dtype: type = np.uint8) -> Any:
    return RANDOM.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, sizes).astype(dtype)


def make(
    op_type: str,
    inputs: Mapping[str, Any],
    outputs: int,
    attributes: Mapping[str, Any],
    open_: bool,
) -> onnx.ModelProto:
    """A model of one operator; names that begin with `_` are of inputs left out."""
    names = ["" if name.startswith("_") else name for name in inputs]
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"{name}_n", *array.shape[1:]] if open_ and name == "x" else array.shape,
        )
        for name, array in inputs.items() if not name.startswith("_")
    ]  # fmt: skip
    made = [f"y{number}" for number in range(outputs)]
    # Outputs between the first and the last are not asked for.
    node = helper.make_node(op_type, names, ["y0", *[""] * (outputs - 2), *made[1:][-1:]],
                            domain="com.microsoft", **attributes)  # fmt: skip
    results = [helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None)
               for n in node.output if n]  # fmt: skip
    graph = helper.make_graph([node], "g", given, results)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + erf(x / np.sqrt(2)))


def normalize(x: Any, epsilon: float = 1e-5) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


def attend(q: Any, k: Any, v: Any, heads: int, keep: Any = True, added: Any = 0.0) -> Any:
    """Attention of three tensors by batch, place, and head and element."""

    def part(t: Any) -> Any:
        return t.reshape(*t.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    scores = part(q) @ part(k).swapaxes(2, 3) / np.sqrt(q.shape[-1] / heads) + added
    scores = np.where(keep, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found = (weights / weights.sum(-1, keepdims=True)) @ part(v)
    return found.transpose(0, 2, 1, 3).reshape(*q.shape[:2], -1)


def unpack(packed: Any, depth: int) -> Any:
    """Numbers of 4 bits by column and place."""
    both = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
    return both[:, :depth].astype(np.float32)


X, Y, ROW = draw(2, 3, 4), draw(2, 3, 4), draw(4)
CAUSAL = np.tril(np.ones((3, 3), bool))
VALID = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
A8, B8 = draw_bytes(2, 5), draw_bytes(2, 5)
SCALES = [np.float32(s) for s in (0.02, 0.05, 0.11)]
ZEROS = [np.uint8(z) for z in (3, 120, 7)]


def quantize(x: Any, scale: Any, zero: Any) -> Any:
    return np.clip(np.round(x / scale) + np.float32(zero), 0, 255)


def real(x: Any, which: int) -> Any:
    return (x.astype(np.float32) - np.float32(ZEROS[which])) * SCALES[which]


PACKED = draw_bytes(6, 3, 8)
STEPS = draw(6, 3)
LEFT = draw(2, 40)
WEIGHTS8 = draw_bytes(4, 5, dtype=np.int8)

Case = tuple[str, dict[str, Any], dict[str, Any], Callable[[], list[Any]], float]

CASES: dict[str, Case] = {
    "gelu": ("Gelu", {"x": X}, {}, lambda: [gelu(X)], 1e-5),
    "fast gelu with a bias": ("FastGelu", {"x": X, "b": ROW}, {}, lambda: [gelu(X + ROW)], 2e-3),
    "bias gelu": ("BiasGelu", {"x": X, "b": ROW}, {}, lambda: [gelu(X + ROW)], 1e-5),
    "quick gelu": ("QuickGelu", {"x": X}, {}, lambda: [X / (1 + np.exp(-1.702 * X))], 1e-5),
    "skip layer normalization": (
        "SkipLayerNormalization", {"x": X, "s": Y, "g": ROW, "b": ROW + 1, "c": ROW - 1},
        {"epsilon": 1e-5},
        lambda: [normalize(X + Y + ROW - 1) * ROW + ROW + 1, X + Y + ROW - 1], 1e-5),
    "skip root mean square": (
        "SkipSimplifiedLayerNormalization", {"x": X, "s": Y, "g": ROW}, {"epsilon": 1e-5},
        lambda: [(X + Y) / np.sqrt(((X + Y) ** 2).mean(-1, keepdims=True) + 1e-5) * ROW], 1e-5),
    "fused product": (
        "FusedMatMul", {"x": X, "b": Y}, {"alpha": 0.5, "transB": 1},
        lambda: [X @ Y.swapaxes(1, 2) * 0.5], 1e-5),
    "fused gemm": (
        "FusedGemm", {"x": X[0], "b": Y[0], "c": ROW[:3]}, {"transB": 1, "activation": "LeakyRelu",
         "activation_alpha": 0.25},
        lambda: [(lambda s: np.where(s < 0, s * 0.25, s))(X[0] @ Y[0].T + ROW[:3])], 1e-5),
    "fused convolution": (
        "FusedConv", {"x": X, "w": Y[:, :, :1].copy(), "b": ROW[:2].copy(), "z": X[:, :2].copy()},
        {"activation": "Clip", "activation_params": [-0.5, 0.75]},
        lambda: [np.clip(np.einsum("nct,mc->nmt", X, Y[:, :, 0]) + ROW[:2, None] + X[:, :2],
                         -0.5, 0.75)], 1e-5),
    "multi-head attention": (
        "MultiHeadAttention",
        {"x": X, "k": Y, "v": X + Y, "b": np.concatenate([ROW, ROW + 1, ROW + 2]), "m": VALID},
        {"num_heads": 2},
        lambda: [attend(X + ROW, Y + ROW + 1, X + Y + ROW + 2, 2, VALID[:, None, None, :] > 0)],
        1e-5),
    "multi-head attention with a mask": (
        "MultiHeadAttention",
        {"x": X, "k": Y, "v": X + Y, "_b": X, "_m": X, "a": np.ones((1, 1, 3, 3), np.float32)},
        {"num_heads": 2, "unidirectional": 1},
        lambda: [attend(X, Y, X + Y, 2, CAUSAL, 1.0)], 1e-5),
    "dynamic product": (
        "DynamicQuantizeMatMul",
        {"x": X, "w": WEIGHTS8, "s": np.float32(0.03), "_z": X,
         "b": np.arange(5, dtype=np.float32)},
        {}, lambda: [X @ (WEIGHTS8 * np.float32(0.03)) + np.arange(5)], 0.5),
    "quantized sum": (
        "QLinearAdd", {"x": A8, "s": SCALES[0], "z": ZEROS[0], "b": B8, "t": SCALES[1],
                       "u": ZEROS[1], "c": SCALES[2], "d": ZEROS[2]}, {},
        lambda: [quantize(real(A8, 0) + real(B8, 1), SCALES[2], ZEROS[2])], 0),
    "quantized product": (
        "QLinearMul", {"x": A8, "s": SCALES[0], "z": ZEROS[0], "b": B8, "t": SCALES[1],
                       "u": ZEROS[1], "c": SCALES[2], "d": ZEROS[2]}, {},
        lambda: [quantize(real(A8, 0) * real(B8, 1), SCALES[2], ZEROS[2])], 0),
    "quantized leak": (
        "QLinearLeakyRelu", {"x": A8, "s": SCALES[1], "z": ZEROS[1], "c": SCALES[2], "d": ZEROS[2]},
        {"alpha": 0.5}, lambda: [quantize((lambda r: np.where(r < 0, r / 2, r))(real(A8, 1)),
                                          SCALES[2], ZEROS[2])], 0),
}  # fmt: skip

QKV = draw(4, 12)
CASES["attention"] = (
    "Attention", {"x": X, "w": QKV, "b": np.tile(ROW, 3), "m": VALID},
    {"num_heads": 2, "unidirectional": 1},
    lambda: [attend(*np.split(X @ QKV + np.tile(ROW, 3), 3, -1), 2,
                    CAUSAL & (VALID[:, None, None, :] > 0))], 1e-5,
)  # fmt: skip
CASES["weights of 4 bits"] = (
    "MatMulNBits", {"x": LEFT, "w": PACKED, "s": STEPS.ravel()},
    {"K": 40, "N": 6, "bits": 4, "block_size": 16},
    lambda: [LEFT @ ((unpack(PACKED.reshape(6, -1), 40) - 8) * STEPS.repeat(16, 1)[:, :40]).T],
    1e-4,
)  # fmt: skip
ZERO4 = draw_bytes(6, 2)
CASES["weights of 4 bits with zeros and a bias"] = (
    "MatMulNBits",
    {"x": LEFT, "w": PACKED, "s": STEPS, "z": ZERO4, "_g": X, "b": np.arange(6, dtype=np.float32)},
    {"K": 40, "N": 6, "bits": 4, "block_size": 16},
    lambda: [LEFT @ ((unpack(PACKED.reshape(6, -1), 40)
                      - unpack(ZERO4, 3).repeat(16, 1)[:, :40]) * STEPS.repeat(16, 1)[:, :40]).T
             + np.arange(6)],
    1e-4,
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str) -> None:
    """The first axis of the first input is left open."""
    op_type, inputs, attributes, expect, off = CASES[name]
    wanted = expect()
    outputs = 1 if len(wanted) == 1 else 4
    open_ = op_type not in ("FusedConv", "MultiHeadAttention", "QLinearAdd", "QLinearMul")
    model = make(op_type, inputs, outputs, attributes, open_)
    found = dmlc.onnx.load(model)
    given = {name: array for name, array in inputs.items() if not name.startswith("_")}
    results = found.run(given, device="reference")
    for result, array in zip(results.values(), wanted, strict=True):
        assert result.shape == array.shape
        np.testing.assert_allclose(result, array, off, max(off, 1e-6))


def test_weights_stay_packed() -> None:
    op_type, inputs, attributes, _, _ = CASES["weights of 4 bits"]
    function = dmlc.onnx.load(make(op_type, inputs, 1, attributes, True)).function
    assert [stage.name for stage in function.stages] == ["y0"]
    assert dmlc.compile(function, "hlsl").scratch == ()


def test_a_quantized_lstm_is_one_of_its_numbers() -> None:
    rows, back = draw_bytes(1, 3, 16, dtype=np.int8), draw_bytes(1, 4, 16, dtype=np.int8)
    scales = [np.full((1,), s, np.float32) for s in (0.01, 0.02)]
    zeros = [np.full((1,), z, np.int8) for z in (3, -4)]
    x = draw(5, 2, 3)
    inputs = {"x": x, "w": rows, "r": back, "_b": x, "_l": x, "_h": x, "_c": x, "_p": x,
              "ws": scales[0], "wz": zeros[0], "rs": scales[1], "rz": zeros[1]}  # fmt: skip
    model = make("DynamicQuantizeLSTM", inputs, 1, {"hidden_size": 4}, False)
    given = {name: array for name, array in inputs.items() if not name.startswith("_")}
    found = dmlc.onnx.load(model).run(given, device="reference")["y0"]
    weights = [((q.astype(np.float32) - np.float32(z[0])) * s[0]).swapaxes(1, 2)
               for q, s, z in zip((rows, back), scales, zeros, strict=True)]  # fmt: skip
    plain = make("LSTM", {"x": x, "w": weights[0], "r": weights[1]}, 1, {"hidden_size": 4}, False)
    plain.graph.node[0].domain = ""
    wanted = dmlc.onnx.load(plain).run(
        {"x": x, "w": weights[0], "r": weights[1]}, device="reference"
    )
    np.testing.assert_allclose(found, wanted["y0"], 1e-5, 1e-6)


def test_what_is_not_supported() -> None:
    model = make("NGramRepeatBlock", {"x": X}, 1, {}, False)
    with pytest.raises(UnsupportedError, match="no operator of this version"):
        dmlc.onnx.load(model)
    model = make("FusedGemm", {"x": X[0], "b": Y[0]}, 1, {"transB": 1, "activation": "Erf"}, False)
    with pytest.raises(UnsupportedError, match="the activation Erf"):
        dmlc.onnx.load(model)
    model = make("MatMulNBits", {"x": LEFT, "w": PACKED, "s": STEPS}, 1,
                 {"K": 40, "N": 6, "bits": 2, "block_size": 16}, False)  # fmt: skip
    with pytest.raises(UnsupportedError, match="weights of 2 bits"):
        dmlc.onnx.load(model)
    assert "QLinearAdd" in contributed.list_functions()
