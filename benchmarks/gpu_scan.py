"""A wide scan of what GPUs are asked to do: functions of many kinds, at sizes of models that people
train, each with PyTorch's way to do it where there is one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dmlc

F32, F16 = "FLOAT32", "FLOAT16"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """An operator with the tensors and attributes of a call."""

    operator: str
    tensors: Mapping[str, dmlc.TensorDesc]
    attributes: Mapping[str, object] = dataclasses.field(default_factory=dict[str, object])
    peer: Callable[[Any, Mapping[str, Any]], Any] | None = None
    """Given PyTorch and the inputs as its tensors, the result, or a tuple that it is the first of;
    None where PyTorch has nothing like it."""
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    """By the names of inputs: what their whole numbers are below, where that is not 9."""

    def bind(self) -> dmlc.ir.Function:
        """The function of the call."""
        return dmlc.operator(self.operator).bind(self.tensors, attributes=self.attributes)


def _describe(**tensors: tuple[str, tuple[int, ...]]) -> dict[str, dmlc.TensorDesc]:
    return {name: dmlc.TensorDesc(dtype, sizes) for name, (dtype, sizes) in tensors.items()}


_ONES: dict[str, object] = {
    name: [1, 1] for name in ("Strides", "Dilations", "StartPadding", "EndPadding")
}
_WINDOW = _ONES | {"OutputPadding": [0, 0]}
_POINT = _WINDOW | {"StartPadding": [0, 0], "EndPadding": [0, 0]}
_INCREASING = {"AxisDirection": "INCREASING", "HasExclusiveSum": False}
_BACKWARD = {
    "strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1],
    "data_format": "NCX", "weights_format": "OIX",
}  # fmt: skip


def _convolve(**given: Any) -> Callable[[Any, Mapping[str, Any]], Any]:
    return lambda torch, x: torch.nn.functional.conv2d(x["InputTensor"], x["FilterTensor"], **given)


def _attend(torch: Any, x: Mapping[str, Any]) -> Any:
    names = ("QueryTensor", "KeyTensor", "ValueTensor")
    heads = (x[name].view(4, 1024, 16, 64).transpose(1, 2) for name in names)
    return torch.nn.functional.scaled_dot_product_attention(*heads, scale=0.125)


def _convolve_weights_back(torch: Any, x: Mapping[str, Any]) -> Any:
    weights = torch.empty(128, 128, 3, 3, device=x["src"].device)
    found = torch.ops.aten.convolution_backward(
        x["diff_dst"], x["src"], weights, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
        [False, True, False],
    )  # fmt: skip
    return found[1]


def _list_rows(kind: str, d: str) -> Iterator[tuple[str, Row]]:
    """The rows of a data type, which have its short name in their own."""
    for n in (512, 2048, 4096):
        square = (d, (1, 1, n, n))
        yield f"GEMM {kind} {n}", Row(
            "directml.GEMM", _describe(ATensor=square, BTensor=square),
            peer=lambda torch, x: x["ATensor"][0, 0] @ x["BTensor"][0, 0],
        )  # fmt: skip
    for title, left, right in (
        ("64x(512,64)x(64,512)", (64, 512, 64), (64, 64, 512)),
        ("(8,4096)x(4096,4096)", (8, 4096), (4096, 4096)),
    ):
        yield f"MatMul {kind} {title}", Row(
            "onednn.MatMul", _describe(src=(d, left), weights=(d, right)),
            peer=lambda torch, x: x["src"] @ x["weights"],
        )  # fmt: skip
    whole, deep = (32, 128, 28, 28), (32, 144, 56, 56)
    yield f"CONV {kind} 3x3 (32,128,28,28)", Row(
        "directml.CONVOLUTION",
        _describe(InputTensor=(d, whole), FilterTensor=(d, (128, 128, 3, 3))), _WINDOW,
        _convolve(padding=1),
    )  # fmt: skip
    yield f"CONV {kind} 1x1 (32,256,56,56)->64", Row(
        "directml.CONVOLUTION",
        _describe(InputTensor=(d, (32, 256, 56, 56)), FilterTensor=(d, (64, 256, 1, 1))), _POINT,
        _convolve(),
    )  # fmt: skip
    yield f"CONV {kind} depthwise 3x3 (32,144,56,56)", Row(
        "directml.CONVOLUTION",
        _describe(InputTensor=(d, deep), FilterTensor=(d, (144, 1, 3, 3))),
        _WINDOW | {"GroupCount": 144}, _convolve(padding=1, groups=144),
    )  # fmt: skip
    words = (d, (4, 1024, 1024))
    yield f"attention {kind} (4,1024,16x64)", Row(
        "directml.MULTIHEAD_ATTENTION",
        _describe(QueryTensor=words, KeyTensor=words, ValueTensor=words),
        {"Scale": 0.125, "HeadCount": 16}, _attend,
    )  # fmt: skip
    for title, sizes, axis in (
        ("(8192,4096)", (8192, 4096), 1),
        ("axis 0 (4096,4096)", (4096, 4096), 0),
    ):
        yield f"softmax {kind} {title}", Row(
            "onednn.SoftMax", _describe(src=(d, sizes)), {"axis": axis},
            lambda torch, x, axis=axis: torch.softmax(x["src"], axis),
        )  # fmt: skip
    yield (
        f"layer norm {kind} (8192,1024)",
        Row(
            "onednn.LayerNorm",
            _describe(src=(d, (8192, 1024)), gamma=(F32, (1024,)), beta=(F32, (1024,))),
            {"keep_stats": False},
            lambda torch, x: torch.nn.functional.layer_norm(
                x["src"], (1024,), x["gamma"].to(x["src"].dtype), x["beta"].to(x["src"].dtype)
            ),
        ),
    )
    yield f"RMS norm {kind} (8192,4096)", Row(
        "onednn.RMSNorm", _describe(src=(d, (8192, 4096)), gamma=(F32, (4096,))),
        peer=lambda torch, x: torch.nn.functional.rms_norm(
            x["src"], (4096,), x["gamma"].to(x["src"].dtype)
        ),
    )  # fmt: skip
    for axis in (1, 0):
        yield f"REDUCE sum {kind} axis {axis} (8192,8192)", Row(
            "directml.REDUCE", _describe(InputTensor=(d, (8192, 8192))),
            {"Function": "SUM", "Axes": [axis]},
            lambda torch, x, axis=axis: x["InputTensor"].sum(axis),
        )  # fmt: skip
    yield f"CUMSUM {kind} rows (4096,4096)", _sum_along(1, d, 4096, 4096)
    many = (d, (1 << 24,))
    yield f"GELU grad {kind} 16M", Row("onednn.GELUBackward", _describe(src=many, diff_dst=many))


def _sum_along(axis: int, d: str, *sizes: int) -> Row:
    return Row(
        "directml.CUMULATIVE_SUMMATION", _describe(InputTensor=(d, sizes)),
        {"Axis": axis, **_INCREASING}, lambda torch, x: x["InputTensor"].cumsum(axis),
    )  # fmt: skip


def _sort(count: int, *sizes: int) -> Row:
    """The first elements along the last axis, in order; of so many, or of all of them rising."""
    found = (*sizes[:-1], count)
    rising = count == sizes[-1]
    return Row(
        "directml.TOP_K1",
        _describe(InputTensor=(F32, sizes), OutputValueTensor=(F32, found),
                  OutputIndexTensor=("UINT32", found)),
        {"Axis": len(sizes) - 1, "K": count,
         "AxisDirection": "INCREASING" if rising else "DECREASING"},
        lambda torch, x: x["InputTensor"].sort() if rising else x["InputTensor"].topk(count),
    )  # fmt: skip


def _list_others() -> Iterator[tuple[str, Row]]:
    """The rows of one data type alone."""
    yield (
        "ARGMAX axis 1 (8192,8192)",
        Row(
            "directml.ARGMAX",
            _describe(InputTensor=(F32, (8192, 8192)), OutputTensor=("UINT32", (8192, 1))),
            {"Axes": [1], "AxisDirection": "INCREASING"},
            lambda torch, x: x["InputTensor"].argmax(1),
        ),
    )
    yield "CUMSUM 16M", _sum_along(0, F32, 1 << 24)
    yield "CUMSUM columns (4096,4096)", _sum_along(0, F32, 4096, 4096)
    yield "TOP_K1 16 of (1024,8192)", _sort(16, 1024, 8192)
    yield "sort 1M (TOP_K1 all)", _sort(1 << 20, 1 << 20)
    yield "EMBEDDING_GRAD 64K of 32000x512", Row(
        "training.EMBEDDING_GRAD",
        _describe(IndexTensor=("INT32", (65536,)), InputGradientTensor=(F32, (65536, 512)),
                  OutputGradientTensor=(F32, (32000, 512))),
        peer=lambda torch, x: torch.ops.aten.embedding_dense_backward(
            x["InputGradientTensor"], x["IndexTensor"].long(), 32000, -1, False
        ),
        limits={"IndexTensor": 32000},
    )  # fmt: skip
    whole, channels, ones = (F32, (32, 64, 56, 56)), (F32, (64,)), (F32, (1, 64, 1, 1))
    yield "GROUP_NORM_GRAD (32,64,56,56)/8", Row(
        "training.GROUP_NORMALIZATION_GRAD",
        _describe(InputTensor=whole, ScaleTensor=channels, BiasTensor=channels,
                  InputGradientTensor=whole, OutputGradientTensor=whole,
                  OutputScaleGradientTensor=channels, OutputBiasGradientTensor=channels),
        {"GroupCount": 8},
    )  # fmt: skip
    yield "BatchNormForwardTraining (32,64,56,56)", Row(
        "directml.BATCH_NORMALIZATION_TRAINING",
        _describe(InputTensor=whole, ScaleTensor=ones, BiasTensor=ones, OutputMeanTensor=ones,
                  OutputVarianceTensor=ones),
        {"Epsilon": 1e-5},
        lambda torch, x: torch.nn.functional.batch_norm(
            x["InputTensor"], None, None, x["ScaleTensor"].view(-1), x["BiasTensor"].view(-1), True
        ),
    )  # fmt: skip
    image, weights = (F32, (32, 128, 28, 28)), (F32, (128, 128, 3, 3))
    yield "conv bwd weights 3x3 (32,128,28,28)", Row(
        "onednn.ConvolutionBackwardWeights",
        _describe(src=image, diff_dst=image, diff_weights=weights), _BACKWARD,
        _convolve_weights_back,
    )  # fmt: skip
    yield "conv bwd data 3x3 (32,128,28,28)", Row(
        "onednn.ConvolutionBackwardData",
        _describe(diff_dst=image, weights=weights, diff_src=image), _BACKWARD,
    )  # fmt: skip


ROWS: Mapping[str, Row] = dict([*_list_rows("f32", F32), *_list_rows("f16", F16), *_list_others()])
"""The rows by their names."""
