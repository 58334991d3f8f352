"""Programs of every kind that host code is written for."""

from __future__ import annotations

from collections.abc import Mapping

import dmlc
from dmlc import TensorDesc, ir
from dmlc.pipeline import Steps, compile_by
from dmlc.program import Program
from tests.examples import graphs

X, Y = ("InputTensor", "OutputTensor")
SEEDS = (
    ("directml.ACTIVATION_RELU", "InputTensor"),
    ("directml.ACTIVATION_RELU_GRAD", "InputTensor InputGradientTensor"),
    ("onednn.ReLU", "src"),
    ("onednn.ReLUBackward", "src diff_dst"),
)
CHAIN = """
operator CHAIN {
    tensors {
        | Tensor | Kind   | Dimensions | Ranks | Types   |
        | X      | Input  | { N, N }   | 2     | FLOAT32 |
        | Y      | Output | { N, N }   | 2     | FLOAT32 |
    }
    compute {
        a[i : N, k : N] = sum[j : N] (X[i, j] * X[k, j])
        b[i : N, k : N] = sum[j : N] (a[i, j] * X[k, j])
        c[i : N, k : N] = sum[j : N] (b[i, j] * X[k, j])
        Y[i, k]         = sum[j : N] (c[i, j] * X[k, j])
    }
}
"""
LOOP = """
operator TWO_STATES {
    tensors {
        | Tensor | Kind   | Dimensions | Ranks | Types   |
        | X      | Input  | { T, C }   | 2     | FLOAT32 |
        | Y      | Output | { T, C }   | 2     | FLOAT32 |
    }
    compute {
        a[t : T, c : C] = sum[k : C] ((b[t + 1, k] else X[0, k]) * X[t, c])
        b[t : T, c : C] = (a[t + 1, c] else 1) + sum[k : C] (a[t, k])
        Y[t, c]         = b[t, c] + sum[k : C] (a[t, k] * X[t, k])
    }
}
"""
NAMES = """
operator class {
    tensors {
        | Tensor  | Kind   | Dimensions | Ranks | Types   |
        | min     | Input  | { N }      | 1     | FLOAT32 |
        | OUT     | Input  | { N }      | 1     | FLOAT32 |
        | sizes   | Input  | { N }      | 1     | FLOAT32 |
        | class_  | Input  | { N }      | 1     | FLOAT32 |
        | record  | Output | { N }      | 1     | FLOAT32 |
        | D3D12_X | Output | { 1 }      | 1     | FLOAT32 |
    }
    compute {
        record[i] = min[i] + OUT[i] * sizes[i] - class_[i]
        D3D12_X[k] = sum[i : N] (min[i])
    }
}
"""


def tensor(kind: str, *sizes: int | str) -> TensorDesc:
    return TensorDesc(kind, sizes)


def bind(
    name: str, attributes: Mapping[str, object], target: str = "hlsl", **tensors: TensorDesc
) -> Program:
    function = dmlc.operator(name).bind(tensors, attributes)
    return dmlc.compile(function, target=target, root_signature=False)


def read_text(text: str, **tensors: TensorDesc) -> ir.Function:
    """The function of the one operator in a text."""
    (operator,) = dmlc.parse(text).operators.values()
    return operator.bind(tensors)


def bind_text(text: str, **tensors: TensorDesc) -> Program:
    """The program of a text. The steps of its loops are launches."""
    function = read_text(text, **tensors)
    return compile_by(Steps(joins=False), function, "hlsl", root_signature=False)


def bind_graph(name: str) -> Program:
    function = graphs.load(name).bind(dims=graphs.SIZES[name])
    return dmlc.compile(function, target="hlsl", root_signature=False)


def make_programs() -> list[Program]:
    """Programs with open sizes, scratch in shared buffers, loops, constants, and types of any
    width."""
    made = [bind(name, {}, **{x: TensorDesc("FLOAT32") for x in given.split()})
            for name, given in SEEDS]  # fmt: skip
    image = tensor("FLOAT32", 2, 3, 400, 500)
    line = tensor("FLOAT32", 1, 3, 1, 1)
    made += [
        bind("directml.REDUCE", {"Function": "SUM", "Axes": [0]},
             **{X: tensor("FLOAT32", "R", "C")}),
        bind("directml.CUMULATIVE_SUMMATION",
             {"Axis": 0, "AxisDirection": "INCREASING", "HasExclusiveSum": False},
             **{X: tensor("FLOAT32", "N")}),
        bind("directml.GEMM", {}, ATensor=tensor("FLOAT32", "N", 8),
             BTensor=tensor("FLOAT32", 8, 5)),
        bind("onednn.LayerNorm", {"keep_stats": False}, src=tensor("FLOAT32", "N", 8),
             gamma=tensor("FLOAT32", 8), beta=tensor("FLOAT32", 8)),
        bind("onednn.SoftMax", {"axis": 1}, src=tensor("FLOAT32", 3, "N")),
        bind(
            "directml.MAX_POOLING",
            {"Strides": [2, 2], "WindowSize": [3, 3], "StartPadding": [0, 0], "EndPadding": [0, 0]},
            **{X: tensor("FLOAT16", "N", "C", "H", "W")},
        ),
        bind("onednn.MatMul", {}, src=tensor("FLOAT32", "B", 4, 8),
             weights=tensor("FLOAT32", "B", 8, 4)),
        bind("directml.BATCH_NORMALIZATION_TRAINING_GRAD", {"Epsilon": 1e-5}, InputTensor=image,
             InputGradientTensor=image, MeanTensor=line, VarianceTensor=line, ScaleTensor=line),
        bind_text(CHAIN, X=tensor("FLOAT32", 40, 40)),
        bind("directml.MATRIX_MULTIPLY_INTEGER", {}, ATensor=tensor("INT8", 1, 1, 20, 30),
             BTensor=tensor("INT8", 1, 1, 30, 17)),
        bind("directml.RESAMPLE", {"InterpolationMode": "LINEAR", "Scales": [1, 1, 1.3, 0.7]},
             **{X: tensor("FLOAT32", 1, 2, 50, 30), Y: tensor("FLOAT32", 1, 2, 65, 21)}),
        bind("directml.ELEMENT_WISE_ADD", {}, ATensor=tensor("INT64", 5),
             BTensor=tensor("INT64", 5)),
        bind_text(LOOP, X=tensor("FLOAT32", "T", 5)),
        bind_text(NAMES, min=tensor("FLOAT32", "sizes"), OUT=tensor("FLOAT32", "sizes"),
                  sizes=tensor("FLOAT32", "sizes"), class_=tensor("FLOAT32", "sizes")),
        bind_graph("conv_net_training_step"),
    ]  # fmt: skip
    return made
