"""ONNX's operators along axes and by index as the library has them, for ONNX's own node tests:
order, scans, indices, recurrence, quantized products, normalization and losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.library.onnx_elements import Handler, Node, Unmapped, as_bytes, type_name
from tests.library.run import Array, run

# Order and scans ----------------------------------------------------------------------------


def _scan(name: str, exclusive: str) -> Handler:
    def handler(node: Node, inputs: list[Any], device: str) -> list[Array]:
        x, axis = inputs[:2]
        settings = {
            "Axis": int(axis) % x.ndim,
            "AxisDirection": "DECREASING" if node.get("reverse", 0) else "INCREASING",
            exclusive: bool(node.get("exclusive", 0)),
        }
        given = {"InputTensor": x}
        return [run(f"directml.{name}", given, settings, device=device)["OutputTensor"]]

    return handler


def _top_k(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, k = inputs[:2]
    axis, count = node.get("axis", -1) % x.ndim, int(k[0])
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    direction = "DECREASING" if node.get("largest", 1) else "INCREASING"
    settings = {"Axis": axis, "K": count, "AxisDirection": direction}
    outputs = {"OutputValueTensor": shape, "OutputIndexTensor": np.empty(shape, np.uint64)}
    found = run("directml.TOP_K1", {"InputTensor": x}, settings, outputs, device)
    return [found["OutputValueTensor"], found["OutputIndexTensor"].view(np.int64)]


def _nonzero(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x = as_bytes(inputs[0])
    outputs = {"OutputCountTensor": (1,), "OutputCoordinatesTensor": (x.size, x.ndim)}
    found = run("directml.NONZERO_COORDINATES", {"InputTensor": x}, {}, outputs, device)
    count = int(found["OutputCountTensor"].reshape(-1)[0])
    places = found["OutputCoordinatesTensor"]
    places = places.reshape(places.shape[-2:])
    return [places[:count].T.astype(np.int64)]


# Indices ------------------------------------------------------------------------------------


def _diagonal(node: Node, inputs: list[Any], device: str) -> list[Array]:
    from_type = {1: np.float32, 11: np.float64, 6: np.int32, 7: np.int64}
    dtype = np.dtype(from_type[node["dtype"]]) if "dtype" in node else inputs[0].dtype
    settings = {"ValueDataType": type_name(dtype), "Value": 1, "Offset": node.get("k", 0)}
    del settings["ValueDataType"]
    found = run("directml.DIAGONAL_MATRIX", {}, settings,
                {"OutputTensor": np.empty(inputs[0].shape, dtype)}, device)  # fmt: skip
    return [found["OutputTensor"]]


# Quantized products -------------------------------------------------------------------------


def _matmul_integer(node: Node, inputs: list[Any], device: str) -> list[Array]:
    a, b, zero_a, zero_b = inputs[:4]
    given = {"ATensor": a, "BTensor": b, "AZeroPointTensor": _rows(zero_a, a),
             "BZeroPointTensor": _columns(zero_b, b)}  # fmt: skip
    return [run("directml.MATRIX_MULTIPLY_INTEGER", given, {}, device=device)["OutputTensor"]]


def _quantized_matmul(node: Node, inputs: list[Any], device: str) -> list[Array]:
    a, scale_a, zero_a, b, scale_b, zero_b, scale, zero = inputs[:8]
    if a.dtype.name not in ("int8", "uint8"):
        raise Unmapped(f"quantized values of type {a.dtype}")
    rank = max(a.ndim, b.ndim)
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    given = {
        "ATensor": a, "AScaleTensor": _rows(scale_a, a), "AZeroPointTensor": _rows(zero_a, a),
        "BTensor": b, "BScaleTensor": _columns(scale_b, b),
        "BZeroPointTensor": _columns(zero_b, b),
        "OutputScaleTensor": scale.reshape([1] * rank),
        "OutputZeroPointTensor": zero.reshape([1] * rank),
    }  # fmt: skip
    found = run("directml.QUANTIZED_LINEAR_MATRIX_MULTIPLY", given, {},
                {"OutputTensor": np.empty(shape, zero.dtype)}, device)  # fmt: skip
    return [found["OutputTensor"]]


def _rows(a: Array | None, x: Array) -> Array | None:
    if a is None or a.ndim == x.ndim:
        return a
    return a.reshape([1] * (x.ndim - 2) + [a.size, 1])


def _columns(a: Array | None, x: Array) -> Array | None:
    if a is None or a.ndim == x.ndim:
        return a
    return a.reshape([1] * (x.ndim - 1) + [a.size])


def _windows(node: Node, count: int) -> dict[str, object]:
    pads = list(node.get("pads", [0] * (2 * count)))
    return {"Strides": list(node.get("strides", [1] * count)),
            "Dilations": list(node.get("dilations", [1] * count)),
            "StartPadding": pads[:count], "EndPadding": pads[count:],
            "GroupCount": node.get("group", 1)}  # fmt: skip


def _all(a: Array | None, x: Array) -> Array | None:
    return None if a is None else a.reshape([1] * x.ndim)


def _channels(a: Array | None, x: Array) -> Array | None:
    return None if a is None else a.reshape(1, a.size, *[1] * (x.ndim - 2))


def _convolution_integer(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, w, zero_x, zero_w = inputs[:4]
    given = {"InputTensor": x, "FilterTensor": w, "InputZeroPointTensor": _all(zero_x, x),
             "FilterZeroPointTensor": _channels(zero_w, x)}  # fmt: skip
    settings = _windows(node, x.ndim - 2)
    return [run("directml.CONVOLUTION_INTEGER", given, settings, device=device)["OutputTensor"]]


def _quantized_convolution(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, scale_x, zero_x, w, scale_w, zero_w, scale, zero = inputs[:8]
    given = {
        "InputTensor": x, "InputScaleTensor": _all(scale_x, x),
        "InputZeroPointTensor": _all(zero_x, x),
        "FilterTensor": w, "FilterScaleTensor": _channels(scale_w, x),
        "FilterZeroPointTensor": _channels(zero_w, x),
        "OutputScaleTensor": _all(scale, x), "OutputZeroPointTensor": _all(zero, x),
    }  # fmt: skip
    settings = _windows(node, x.ndim - 2)
    found = run("directml.QUANTIZED_LINEAR_CONVOLUTION", given, settings, device=device)
    return [found["OutputTensor"]]


# Normalization, dropout and losses ----------------------------------------------------------


def _lp_normalization(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x = inputs[0]
    axis = node.get("axis", -1) % x.ndim + 4 - x.ndim
    given = {"InputTensor": x.reshape([1] * (4 - x.ndim) + list(x.shape))}
    settings = {"Axis": axis, "P": node.get("p", 2), "Epsilon": 1e-30}
    found = run("directml.LP_NORMALIZATION", given, settings, device=device)
    return [found["OutputTensor"].reshape(x.shape)]


def _layer_normalization(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, gamma, beta = inputs[:3]
    axis = node.get("axis", -1) % x.ndim
    flat = x.reshape(math.prod(x.shape[:axis]), -1)
    given = {"src": flat, "gamma": gamma.reshape(-1), "beta": beta.reshape(-1)}
    epsilon = node.get("epsilon", 1e-5)
    asked = dict.fromkeys(("mean", "variance"), flat.shape[:1])
    found = run("onednn.LayerNorm", given, {"epsilon": epsilon}, asked, device)
    shape = (*x.shape[:axis], *[1] * (x.ndim - axis))
    # oneDNN gives the variance where ONNX gives what is multiplied by.
    factor = 1 / np.sqrt(found["variance"] + np.float32(epsilon))
    results = (found["dst"].reshape(x.shape), found["mean"].reshape(shape), factor.reshape(shape))
    return list(results[: len(node["outputs"])])


def _rms_normalization(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, gamma = inputs[:2]
    axis = node.get("axis", -1) % x.ndim
    flat = x.reshape(*x.shape[:axis], -1)
    given = {"src": flat if flat.ndim > 1 else flat[None], "gamma": gamma.reshape(-1)}
    settings = {"epsilon": node.get("epsilon", 1e-5)}
    found = run("onednn.RMSNorm", given, settings, device=device)
    return [found["dst"].reshape(x.shape)]


def _group_normalization(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, gamma, beta = inputs[:3]
    given = {"src": x, "gamma": gamma, "beta": beta}
    settings = {"groups": node["num_groups"], "epsilon": node.get("epsilon", 1e-5),
                "data_format": "NCX", "keep_stats": False}  # fmt: skip
    return [run("onednn.GroupNorm", given, settings, device=device)["dst"]]


def _cross_entropy(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, labels, weights = inputs[:3]
    reduction = node.get("reduction", "mean").upper()
    given = {"InputTensor": x, "LabelTensor": labels, "WeightTensor": weights}
    settings = {"Reduction": reduction, "IgnoreIndex": node.get("ignore_index", -100)}
    loss = run("training.CROSS_ENTROPY", given, settings, device=device)["OutputTensor"]
    results = [loss if reduction == "NONE" else loss.reshape(())]
    if len(node["outputs"]) > 1:
        odds = {"InputTensor": x}
        found = run("directml.ACTIVATION_LOG_SOFTMAX1", odds, {"Axes": [1]}, device=device)
        results.append(found["OutputTensor"])
    return results


def _dropout(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, ratio, training = inputs[:3]
    probability = 0.5 if ratio is None else float(ratio)
    if training is None or not training:
        probability = 0.0
    if probability:
        raise Unmapped("random numbers of another generator")
    given = {"InputTensor": x, "StateTensor": np.zeros((1, 1, 1, 6), np.uint32)}
    settings = {"Probability": probability}
    found = run("training.DROPOUT", given, settings, device=device)["OutputTensor"]
    return [found, np.ones(x.shape, np.bool_)][: len(node["outputs"])]


HANDLERS: dict[str, Handler] = {
    "CumSum": _scan("CUMULATIVE_SUMMATION", "HasExclusiveSum"),
    "CumProd": _scan("CUMULATIVE_PRODUCT", "HasExclusiveProduct"),
    "TopK": _top_k, "NonZero": _nonzero, "EyeLike": _diagonal,
    "MatMulInteger": _matmul_integer, "QLinearMatMul": _quantized_matmul,
    "ConvInteger": _convolution_integer, "QLinearConv": _quantized_convolution,
    "LpNormalization": _lp_normalization,
    "LayerNormalization": _layer_normalization, "RMSNormalization": _rms_normalization,
    "GroupNormalization": _group_normalization, "SoftmaxCrossEntropyLoss": _cross_entropy,
    "Dropout": _dropout,
}  # fmt: skip
"""What computes each of ONNX's operators."""
