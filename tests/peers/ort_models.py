"""Models for ONNX Runtime with one operator of a plug-in, and what they must give.

`python -m tests.peers.ort_models LIBRARY [OPERATOR...]` runs them; without a library it prints the
arguments of `dmlc export` that make one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import dmlc
from dmlc.binding import Operator
from dmlc.ir import Function
from dmlc.scalars import Array

EXPORTS = (
    "directml.ACTIVATION_RELU_GRAD", "silu.dml:SILU_GRAD", "hard_swish_grad.dml",
    "directml.ACTIVATION_SOFTMAX --tensor InputTensor=FLOAT32[N,C]",
    "directml.ACTIVATION_LEAKY_RELU --open Alpha --domain my.ops",
    "directml.RESAMPLE --tensor InputTensor=FLOAT32[1,2,50,30] "
    "--tensor OutputTensor=FLOAT32[1,2,75,15] --attr InterpolationMode=LINEAR "
    "--attr Scales=[1,1,1.5,0.5]",
)  # fmt: skip
"""What the plug-in has, as arguments of `dmlc export`: shapes of every kind, several kernels,
constants. `EXAMPLES` lie in the folder where it runs."""
DOMAINS = {"ACTIVATION_LEAKY_RELU": "my.ops"}
"""Those of operators that are in no usual one."""
EXAMPLES = ("silu.dml", "hard_swish_grad.dml")
X = np.random.default_rng(0).normal(size=(3, 70_001)).astype(np.float32)
IMAGE = X.reshape(-1)[:3000].reshape(1, 2, 50, 30)
QUARTER = np.array(0.25, np.float32)
G = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def hard_swish_grad(x: Array, g: Array) -> Array:
    inside = (x > -3) & (x < 3)
    return g * np.where(inside, x / 3 + 0.5, x >= 3)


def silu_grad(x: Array, g: Array) -> Array:
    gate = 1 / (1 + np.exp(-x))
    return g * gate * (1 + x * (1 - gate))


def list_functions() -> list[tuple[Function, Operator]]:
    """Functions of `EXPORTS` of every kind, with their operators."""
    plain = dmlc.TensorDesc("FLOAT32")
    sizes = {"InputTensor": (1, 2, 50, 30), "OutputTensor": (1, 2, 75, 15)}
    bound: list[tuple[str, Mapping[str, dmlc.TensorDesc], Mapping[str, object]]] = [
        ("RELU_GRAD", dict.fromkeys(("InputTensor", "InputGradientTensor"), plain), {}),
        ("SOFTMAX", {"InputTensor": dmlc.TensorDesc("FLOAT32", ("N", "C"))}, {}),
        ("LEAKY_RELU", {"InputTensor": plain}, {"Alpha": dmlc.OPEN}),
    ]
    made = [(dmlc.operator(f"directml.ACTIVATION_{name}"), t, given) for name, t, given in bound]
    tensors = {name: dmlc.TensorDesc("FLOAT32", each) for name, each in sizes.items()}
    given = {"InterpolationMode": "LINEAR", "Scales": [1, 1, 1.5, 0.5]}
    made.append((dmlc.operator("directml.RESAMPLE"), tensors, given))
    return [(operator.bind(tensors, given), operator) for operator, tensors, given in made]


def resample(x: Array) -> Array:
    """Each axis by itself: `np.interp` between the centres of the elements."""
    for axis, (size, scale) in enumerate(((75, 1.5), (15, 0.5)), start=2):
        places = (np.arange(size) + 0.5) / scale - 0.5
        x = np.apply_along_axis(
            lambda line, p=places: np.interp(p, np.arange(line.size), line), axis, x
        )
    return x


CASES: Sequence[tuple[str, Mapping[str, Array], Array]] = [
    ("ACTIVATION_RELU_GRAD", {"x": X, "g": G}, np.where(X > 0, G, 0)),
    ("ACTIVATION_RELU_GRAD", {"x": X[:0], "g": G[:0]}, X[:0]),
    ("HARD_SWISH_GRAD", {"x": X[:, :5], "g": G[:, :5]}, hard_swish_grad(X, G)[:, :5]),
    ("SILU_GRAD", {"x": X[0], "g": G[0]}, silu_grad(X, G)[0]),
    ("ACTIVATION_SOFTMAX", {"x": X}, softmax(X)),
    ("ACTIVATION_LEAKY_RELU", {"x": X, "a": QUARTER}, np.where(X > 0, X, X / 4)),
    ("RESAMPLE", {"x": IMAGE}, resample(IMAGE)),
]
"""Operators with inputs and what they must give."""


def open_session(
    library: Path,
    operator: str,
    inputs: Sequence[str],
    element: int = TensorProto.FLOAT,
    **attributes: object,
) -> onnxruntime.InferenceSession:
    """A session of a model with one node."""
    domain = DOMAINS.get(operator, "dmlc")
    node = helper.make_node(operator, inputs, ["y"], domain=domain, **attributes)
    given = [helper.make_tensor_value_info(name, element, None) for name in inputs]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    graph = helper.make_graph([node], "one", given, [result])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def check(library: Path, operator: str, inputs: Mapping[str, Array], wanted: Array) -> None:
    """Runs a model three times, and holds what it gives to what it must: the second run has the
    buffers of the first, and the third has others."""
    session = open_session(library, operator, list(inputs))
    given = {name: array.copy() for name, array in inputs.items()}
    for _ in range(2):
        (found,) = session.run(None, given)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    if operator not in ("ACTIVATION_SOFTMAX", "RESAMPLE"):
        parts = {name: array[..., :4].copy() if array.ndim else array
                 for name, array in given.items()}  # fmt: skip
        (found,) = session.run(None, parts)
        np.testing.assert_allclose(found, wanted[..., :4], rtol=1e-5, atol=1e-5)


def main(library: str, *operators: str) -> None:
    """Runs the models of some operators, or of all, in this process."""
    for operator, inputs, wanted in CASES:
        if not operators or operator in operators:
            check(Path(library), operator, inputs, wanted)
            print(operator, "is right", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        print(*EXPORTS, sep="\n")
