"""ONNX's activations, positions of extremes, and attention as operators of DirectML: what
`onnx_nodes` runs nodes with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.library.run import Array, run

Node = Mapping[str, Any]

_POINTWISE: dict[str, tuple[str, dict[str, tuple[str, float]]]] = {
    "Celu": ("CELU", {"Alpha": ("alpha", 1)}),
    "Elu": ("ELU", {"Alpha": ("alpha", 1)}),
    "HardSigmoid": ("HARD_SIGMOID", {"Alpha": ("alpha", 0.2), "Beta": ("beta", 0.5)}),
    "HardSwish": ("HARD_SWISH", {}),
    "LeakyRelu": ("LEAKY_RELU", {"Alpha": ("alpha", 0.01)}),
    "Relu": ("RELU", {}),
    "Selu": ("SCALED_ELU", {"Alpha": ("alpha", 1.6732632), "Gamma": ("gamma", 1.050701)}),
    "Shrink": ("SHRINK", {"Bias": ("bias", 0), "Threshold": ("lambd", 0.5)}),
    "Sigmoid": ("SIGMOID", {}),
    "Softplus": ("SOFTPLUS", {}),
    "Softsign": ("SOFTSIGN", {}),
    "Swish": ("SWISH", {"SigmoidInputScale": ("alpha", 1)}),
    "Tanh": ("TANH", {}),
    "ThresholdedRelu": ("THRESHOLDED_RELU", {"Alpha": ("alpha", 1)}),
}
"""The operator and, for each of its attributes, ONNX's name and default."""


def _pointwise(node: Node, inputs: list[Any], device: str) -> list[Array]:
    name, parameters = _POINTWISE[node["op_type"]]
    settings = {own: node.get(theirs, default) for own, (theirs, default) in parameters.items()}
    return [_run(f"ACTIVATION_{name}", {"InputTensor": inputs[0]}, settings, device)]


def _run(name: str, given: Mapping[str, Array | None], settings: Any, device: str) -> Array:
    return run(f"directml.{name}", given, settings, device=device)["OutputTensor"]


def _parameterized(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, slope = inputs[:2]
    given = {"InputTensor": x, "SlopeTensor": np.broadcast_to(slope, x.shape)}
    return [_run("ACTIVATION_PARAMETERIZED_RELU", given, {}, device)]


def _gelu(node: Node, inputs: list[Any], device: str) -> list[Array]:
    if node.get("approximate", "none") == "tanh":
        given, settings = {"src": inputs[0]}, {"mode": "gelu_tanh"}
        return [run("onednn.GELU", given, settings, device=device)["dst"]]
    return [_run("ACTIVATION_GELU", {"InputTensor": inputs[0]}, {}, device)]


def _hardmax(node: Node, inputs: list[Any], device: str) -> list[Array]:
    settings = {"Axes": [node.get("axis", -1) % inputs[0].ndim]}
    return [_run("ACTIVATION_HARDMAX1", {"InputTensor": inputs[0]}, settings, device)]


def _position(node: Node, inputs: list[Any], device: str) -> list[Array]:
    axis = node.get("axis", 0) % inputs[0].ndim
    last = node.get("select_last_index", 0)
    settings = {"Axes": [axis], "AxisDirection": "DECREASING" if last else "INCREASING"}
    found = _run(node["op_type"].upper(), {"InputTensor": inputs[0]}, settings, device)
    return [found if node.get("keepdims", 1) else found.squeeze(axis)]


def _reverse_sequence(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, lengths = inputs[:2]
    shape = [1] * x.ndim
    shape[node.get("batch_axis", 1)] = -1
    sizes = [1 if k == node.get("time_axis", 0) else n for k, n in enumerate(x.shape)]
    each = np.broadcast_to(lengths.astype(np.uint32).reshape(shape), sizes)
    given = {"InputTensor": x, "SequenceLengthsTensor": each}
    return [_run("REVERSE_SUBSEQUENCES", given, {"Axis": node.get("time_axis", 0)}, device)]


def _mean_variance(node: Node, inputs: list[Any], device: str) -> list[Array]:
    settings = {"Axes": list(node.get("axes", [0, 2, 3])), "UseMean": True, "UseVariance": True,
                "Epsilon": 1e-9}  # fmt: skip
    return [_run("MEAN_VARIANCE_NORMALIZATION2", {"InputTensor": inputs[0]}, settings, device)]


def _attention(node: Node, inputs: list[Any], device: str) -> list[Array]:
    q, k, v, mask, past_keys, past_values = inputs[:6]
    assert q.ndim == 3, "DirectML's tensors have heads and elements in one dimension"
    for name in ("is_causal", "softcap"):
        assert not node.get(name), f"DirectML has no {name}"
    heads, shared = node["q_num_heads"], node["kv_num_heads"]
    past = 0 if past_keys is None else past_keys.shape[2]
    scores = (q.shape[0], heads, q.shape[1], past + k.shape[1])
    given = {
        "QueryTensor": q, "KeyTensor": k, "ValueTensor": v, "PastKeyTensor": past_keys,
        "PastValueTensor": past_values,
        "RelativePositionBiasTensor": None if mask is None else np.broadcast_to(mask, scores),
    }  # fmt: skip
    settings = {"Scale": node.get("scale", (q.shape[2] / heads) ** -0.5), "QueryHeadCount": heads,
                "KeyValueHeadCount": shared}  # fmt: skip
    names = ("OutputTensor", "OutputPresentKeyTensor", "OutputPresentValueTensor")
    outputs = {
        name: (q.shape[0], shared, scores[3], x.shape[2] // shared)
        for name, x in zip(names[1 : len(node["outputs"])], (k, v), strict=False)
    }
    found = run("directml.MULTIHEAD_ATTENTION1", given, settings, outputs, device)
    return [found[name] for name in names[: len(node["outputs"])]]


HANDLERS: dict[str, Callable[[Node, list[Any], str], list[Array]]] = {
    **dict.fromkeys(_POINTWISE, _pointwise), "PRelu": _parameterized, "Gelu": _gelu,
    "Hardmax": _hardmax, "ArgMax": _position, "ArgMin": _position,
    "ReverseSequence": _reverse_sequence, "MeanVarianceNormalization": _mean_variance,
    "Attention": _attention,
}  # fmt: skip
