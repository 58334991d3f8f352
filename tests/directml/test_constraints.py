"""Which calls dmlc takes, and DirectML: each line of the list made from 81,666 calls of its Linux
library, asked of `CreateOperator` at feature level 6.2, and of `Operator.resolve` here.

What dmlc takes on purpose and DirectML refuses has a section in
`docs/reference/directml-constraints.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

import dmlc
from dmlc import DmlcError, TensorDesc

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "directml-constraints.md"
LEVEL = "DML_FEATURE_LEVEL_6_2"

Attributes = Mapping[str, object]
Described = Mapping[str, TensorDesc]


def describe(**tensors: str) -> dict[str, TensorDesc]:
    """Tensors by their type and sizes, and strides where they have some: `FLOAT32 1 2 3; 6 3 1`."""
    found: dict[str, TensorDesc] = {}
    for name, text in tensors.items():
        sizes, _, strides = text.partition(";")
        dtype, *numbers = sizes.split()
        steps = [int(step) for step in strides.split()] or None
        found[name] = TensorDesc(dtype, [int(number) for number in numbers], steps)
    return found


@dataclasses.dataclass(frozen=True)
class Call:
    operator: str
    tensors: Described
    attributes: Attributes = dataclasses.field(default_factory=dict[str, object])
    level: str = LEVEL

    def but(self, attributes: Attributes | None = None, **tensors: str) -> Call:
        """The call with some of its tensors and attributes replaced."""
        return dataclasses.replace(
            self,
            tensors={**self.tensors, **describe(**tensors)},
            attributes={**self.attributes, **(attributes or {})},
        )

    def without(self, *tensors: str) -> Call:
        kept = {name: desc for name, desc in self.tensors.items() if name not in tensors}
        return dataclasses.replace(self, tensors=kept)

    def resolve(self) -> None:
        operator = dmlc.operator(f"directml.{self.operator}")
        operator.resolve(self.tensors, self.attributes, level=self.level)

    def __str__(self) -> str:
        return self.operator


@dataclasses.dataclass(frozen=True)
class Refused:
    """A call that DirectML refuses, and one beside it that it takes."""

    taken: Call
    refused: Call
    says: str

    def __str__(self) -> str:
        return f"{self.refused}: {self.says}"


ONES: dict[str, object] = {
    "Strides": [1, 1], "WindowSize": [1, 2], "StartPadding": [0, 0], "EndPadding": [0, 0],
}  # fmt: skip
TWOS = {**ONES, "Strides": [1, 2]}
DILATED = {**TWOS, "Dilations": [1, 1]}
FILTERED = {name: value for name, value in DILATED.items() if name != "WindowSize"}
SCALES = {"SpatialScaleX": 1.0, "SpatialScaleY": 1.0}


# What DirectML takes ----------------------------------------------------------------------------

IMAGE = describe(InputTensor="FLOAT32 1 1 1 3", OutputTensor="FLOAT32 1 1 1 1")
AVERAGE = Call("AVERAGE_POOLING", IMAGE, {**TWOS, "IncludePadding": False})
AVERAGE_1 = Call("AVERAGE_POOLING1", IMAGE, {**DILATED, "IncludePadding": False})
LP = Call("LP_POOLING", IMAGE, {**TWOS, "P": 2})
LP_1 = Call("LP_POOLING1", IMAGE, {**DILATED, "P": 2})
LARGEST = Call("MAX_POOLING", IMAGE, TWOS)
LARGEST_1 = Call("MAX_POOLING1", IMAGE, TWOS)
LARGEST_2 = Call("MAX_POOLING2", IMAGE, DILATED)
QUANTIZED_AVERAGE = Call(
    "QUANTIZED_LINEAR_AVERAGE_POOLING",
    describe(
        InputTensor="INT8 1 1 1 3", InputScaleTensor="FLOAT32 1 1 1 1",
        InputZeroPointTensor="INT8 1 1 1 1", OutputScaleTensor="FLOAT32 1 1 1 1",
        OutputZeroPointTensor="INT8 1 1 1 1", OutputTensor="INT8 1 1 1 1",
    ),
    {**DILATED, "IncludePadding": False},
)  # fmt: skip
CONVOLUTION = Call(
    "CONVOLUTION",
    describe(
        InputTensor="FLOAT32 1 1 1 3",
        FilterTensor="FLOAT32 2 1 1 2",
        OutputTensor="FLOAT32 1 2 1 1",
    ),
    {**FILTERED, "OutputPadding": [0, 0]},
)
CONVOLUTION_INTEGER = Call(
    "CONVOLUTION_INTEGER",
    describe(
        InputTensor="UINT8 1 1 1 3", InputZeroPointTensor="UINT8 1 1 1 1",
        FilterTensor="INT8 2 1 1 2", FilterZeroPointTensor="INT8 1 2 1 1",
        OutputTensor="INT32 1 2 1 1",
    ),
    FILTERED,
)  # fmt: skip
QUANTIZED_CONVOLUTION = Call(
    "QUANTIZED_LINEAR_CONVOLUTION",
    describe(
        InputTensor="UINT8 1 1 1 3", InputScaleTensor="FLOAT32 1 1 1 1",
        InputZeroPointTensor="UINT8 1 1 1 1", FilterTensor="INT8 2 1 1 2",
        FilterScaleTensor="FLOAT32 1 2 1 1", FilterZeroPointTensor="INT8 1 2 1 1",
        OutputScaleTensor="FLOAT32 1 1 1 1", OutputZeroPointTensor="INT8 1 1 1 1",
        OutputTensor="INT8 1 2 1 1",
    ),
    FILTERED,
)  # fmt: skip
AVERAGE_GRAD = Call(
    "AVERAGE_POOLING_GRAD",
    describe(InputGradientTensor="FLOAT32 1 1 1 1", OutputGradientTensor="FLOAT32 1 1 1 3"),
    {**TWOS, "IncludePadding": False},
)
LARGEST_GRAD = Call(
    "MAX_POOLING_GRAD",
    describe(
        InputTensor="FLOAT32 1 1 1 3", InputGradientTensor="FLOAT32 1 1 1 1",
        OutputGradientTensor="FLOAT32 1 1 1 3",
    ),
    DILATED,
)  # fmt: skip
WINDOWS = [
    AVERAGE, AVERAGE_1, LP, LP_1, LARGEST, LARGEST_1, LARGEST_2, QUANTIZED_AVERAGE, CONVOLUTION,
    CONVOLUTION_INTEGER, QUANTIZED_CONVOLUTION,
]  # fmt: skip
"""Whose windows may be more, or fewer, than fit."""

TO_FLOAT = Call(
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT",
    describe(
        ATensor="INT8 2 3", AScaleTensor="FLOAT32 2 1", AZeroPointTensor="INT8 2 1",
        BTensor="INT8 3 4", BScaleTensor="FLOAT32 1 4", BZeroPointTensor="INT8 1 4",
        OutputTensor="FLOAT32 2 4",
    ),
)  # fmt: skip
INTEGERS = Call(
    "MATRIX_MULTIPLY_INTEGER",
    describe(ATensor="INT8 2 3", BTensor="UINT8 3 4", OutputTensor="INT32 2 4"),
)
QUANTIZED = Call(
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY",
    describe(
        ATensor="INT8 2 3", AScaleTensor="FLOAT32 1 1 2 1", AZeroPointTensor="INT8 1 1 2 1",
        BTensor="UINT8 3 4", BScaleTensor="FLOAT32 1 1 1 4", BZeroPointTensor="UINT8 1 1 1 4",
        OutputScaleTensor="FLOAT32 1 1 2 1", OutputZeroPointTensor="UINT8 1 1 2 1",
        OutputTensor="UINT8 2 4",
    ),
)  # fmt: skip
SCATTER = Call(
    "SCATTER_ND",
    describe(InputTensor="FLOAT32 1 5", IndicesTensor="INT32 3 1", UpdatesTensor="FLOAT32 1 3"),
    {"InputDimensionCount": 1, "IndicesDimensionCount": 2},
)
ONE_HOT = Call(
    "ONE_HOT",
    describe(
        IndicesTensor="INT32 1 3 1", ValuesTensor="FLOAT32 1 1 2", OutputTensor="FLOAT32 1 3 4"
    ),
    {"Axis": 2},
)
UNPOOLING = Call(
    "MAX_UNPOOLING",
    describe(
        InputTensor="FLOAT32 1 1 1 2", IndicesTensor="UINT32 1 1 1 2",
        OutputTensor="FLOAT32 1 1 1 3",
    ),
)  # fmt: skip
SLICE = Call(
    "SLICE_GRAD",
    describe(InputGradientTensor="FLOAT32 2", OutputGradientTensor="FLOAT32 6"),
    {"InputWindowOffsets": [1], "InputWindowSizes": [3], "InputWindowStrides": [2]},
)
ATTENTION = Call(
    "MULTIHEAD_ATTENTION",
    describe(
        QueryTensor="FLOAT32 1 1 2", KeyTensor="FLOAT32 1 2 2", ValueTensor="FLOAT32 1 2 2",
        OutputTensor="FLOAT32 1 1 2",
    ),
    {"Scale": 1.0, "HeadCount": 1},
)  # fmt: skip
MASKED = ATTENTION.but({"MaskType": "KEY_SEQUENCE_LENGTH"}, MaskTensor="INT32 1 1")
PAST = ATTENTION.but(PastKeyTensor="FLOAT32 1 1 1 2", PastValueTensor="FLOAT32 1 1 1 2")

SCALED = [
    Call(f"ELEMENT_WISE_{name}", describe(InputTensor="INT32 4", OutputTensor="INT32 4"), more)
    for name, more in (
        ("IDENTITY", {}), ("ABS", {}), ("CLIP", {"Min": -1.0, "Max": 1.0}),
        ("CLIP1", {"Min": -1.0, "Max": 1.0}),
    )
]  # fmt: skip
RAISED = Call(
    "ELEMENT_WISE_POW",
    describe(InputTensor="INT32 4", ExponentTensor="INT32 4", OutputTensor="INT32 4"),
)
REVERSED = Call(
    "REVERSE_SUBSEQUENCES",
    describe(InputTensor="INT64 2 3", SequenceLengthsTensor="UINT32 2 1", OutputTensor="INT64 2 3"),
    {"Axis": 1},
)
DOUBLED = describe(InputTensor="INT8 1 1 2 2", OutputTensor="INT8 1 1 4 4")
GRID: dict[str, object] = {"InterpolationMode": "LINEAR", "Scales": [1.0, 1.0, 2.0, 2.0]}
OFFSETS: dict[str, object] = {
    "InputPixelOffsets": [0.5] * 4, "OutputPixelOffsets": [-0.5] * 4,
}  # fmt: skip
RESAMPLED = [
    Call("RESAMPLE", DOUBLED, GRID),
    Call("RESAMPLE1", DOUBLED, {**GRID, **OFFSETS}),
    Call("RESAMPLE2", DOUBLED, {**GRID, **OFFSETS, "RoundingDirection": "INCREASING"}),
]
ADAM = Call(
    "ADAM_OPTIMIZER",
    {
        **{
            name: TensorDesc("FLOAT32", (2, 3))
            for name in (
                "InputParametersTensor", "InputFirstMomentTensor", "InputSecondMomentTensor",
                "GradientTensor", "OutputParametersTensor", "OutputFirstMomentTensor",
                "OutputSecondMomentTensor",
            )
        },
        **describe(TrainingStepTensor="UINT32 1 1"),
    },
    {"LearningRate": 0.1, "Beta1": 0.9, "Beta2": 0.9, "Epsilon": 1e-3},
)  # fmt: skip


def make_recurrent(operator: str, rows: int, *activations: str) -> Call:
    """A layer of one unit, without an output."""
    tensors = describe(
        InputTensor="FLOAT32 1 3 2 1",
        WeightTensor=f"FLOAT32 1 1 {rows} 1",
        RecurrenceTensor=f"FLOAT32 1 1 {rows} 1",
    )
    return Call(operator, tensors, {"ActivationDescs": [f"ACTIVATION_{n}" for n in activations]})


RNN = make_recurrent("RNN", 1, "TANH")
GRU = make_recurrent("GRU", 3, "SIGMOID", "TANH")
LSTM = make_recurrent("LSTM", 4, "SIGMOID", "TANH", "TANH")

TAKEN: list[Call] = [
    *(call.but(OutputTensor=f"{call.tensors['OutputTensor'].data_type.name} 1 {channels} 1 {width}")
      for call in WINDOWS for width in (2, 3)
      for channels in [(call.tensors["OutputTensor"].sizes or ())[1]]),
    *(call.but(OutputTensor=f"{call.tensors['OutputTensor'].data_type.name} 1 {channels} 4 1")
      for call in WINDOWS for channels in [(call.tensors["OutputTensor"].sizes or ())[1]]),
    AVERAGE.but({"WindowSize": [1, 9]}),
    AVERAGE_GRAD.but(InputGradientTensor="FLOAT32 1 1 1 2"),
    AVERAGE_GRAD.but(InputGradientTensor="FLOAT32 1 1 2 1"),
    TO_FLOAT.but(BTensor="UINT16 3 4", BZeroPointTensor="UINT16 1 4"),
    TO_FLOAT.but(AScaleTensor="FLOAT16 2 1"),
    TO_FLOAT.but(AScaleTensor="FLOAT16 2 1", BScaleTensor="FLOAT16 1 4"),
    INTEGERS.but(ATensor="INT8 1 2 3"),
    INTEGERS.but(BTensor="UINT8 1 1 3 4", OutputTensor="INT32 1 2 4"),
    QUANTIZED.but(ATensor="INT8 1 2 3"),
    QUANTIZED.but(OutputTensor="UINT8 1 1 2 4"),
    SCATTER.but(IndicesTensor="INT32 1 3 1"),
    SCATTER.but(UpdatesTensor="FLOAT32 3"),
    SCATTER.but(UpdatesTensor="FLOAT32 1 1 3"),
    ONE_HOT.but(IndicesTensor="INT32 3 1"),
    ONE_HOT.but(IndicesTensor="INT32 1 1 3 1"),
    ONE_HOT.but(ValuesTensor="FLOAT32 2"),
    UNPOOLING.but(OutputTensor="FLOAT32 2 1 1 3"),
    UNPOOLING.but(OutputTensor="FLOAT32 1 2 1 3"),
    SLICE.but(InputGradientTensor="FLOAT32 3"),
    ATTENTION.but({"MaskType": "BOOLEAN"}),
    ATTENTION.but(BiasTensor="FLOAT16 6"),
    *(call.but({"ScaleBias": [0.5, 0.0]}) for call in (*SCALED, RAISED)),
    *(REVERSED.but(InputTensor=f"{dtype} 2 3", OutputTensor=f"{dtype} 2 3")
      for dtype in ("INT64", "UINT64")),
    REVERSED.but(SequenceLengthsTensor="UINT64 2 1"),
    *(Call("ACTIVATION_RELU_GRAD",
           describe(InputTensor=f"{dtype} 3", InputGradientTensor=f"{dtype} 3",
                    OutputGradientTensor=f"{dtype} 3"))
      for dtype in ("INT32", "INT16", "INT8")),
    *RESAMPLED,
    *(call.but({"InterpolationMode": "NEAREST_NEIGHBOR"}, InputTensor="UINT8 1 1 2 2",
               OutputTensor="UINT8 1 1 4 4") for call in RESAMPLED),
    ADAM,
    ADAM.but({"Beta1": 1.0, "Beta2": -2.0}),
    AVERAGE.but({"IncludePadding": 2}),
    Call("ACTIVATION_CELU", describe(InputTensor="FLOAT32 3"), {"Alpha": 0.0}),
    LP.but({"P": 0}),
    LP_1.but({"P": 0}),
    LSTM.but({"UseClipThreshold": True, "ClipThreshold": -1.0},
             OutputSingleTensor="FLOAT32 1 1 2 1"),
]  # fmt: skip


@pytest.mark.parametrize("call", TAKEN, ids=str)
def test_taken(call: Call) -> None:
    call.resolve()


# What DirectML refuses --------------------------------------------------------------------------


def refuse_scales(operator: str, tensors: Described, attributes: Attributes) -> list[Refused]:
    """Calls of an operator on regions, with scales that are no scales."""
    taken = Call(operator, tensors, {**attributes, **SCALES})
    says = "SpatialScaleX and SpatialScaleY must not be negative, nor infinite"
    return [
        Refused(taken.but({name: 0.0}), taken.but({name: scale}), says)
        for name in SCALES
        for scale in (-1.0, float("inf"))
    ]


REGIONS = describe(ROITensor="FLOAT32 3 4", BatchIndicesTensor="UINT32 3")
POOLED = describe(InputTensor="FLOAT32 1 1 4 4", OutputTensor="FLOAT32 3 1 2 2") | REGIONS
SAMPLED: dict[str, object] = {
    "ReductionFunction": "AVERAGE", "InterpolationMode": "LINEAR", "OutOfBoundsInputValue": 0.0,
    "MinimumSamplesPerOutput": 1, "MaximumSamplesPerOutput": 2,
}  # fmt: skip
MOVED = {**SAMPLED, "InputPixelOffset": 0.5, "OutputPixelOffset": -0.5,
         "AlignRegionsToCorners": False}  # fmt: skip
GRADIENT = {
    **REGIONS,
    **describe(InputGradientTensor="FLOAT32 3 1 2 2", OutputGradientTensor="FLOAT32 1 1 4 4"),
}

DIMENSIONS = "must have the same DimensionCount"
SIZES = "must have the same Sizes"
ALONG = "along the second of"
SOFT = Call("ACTIVATION_SOFTPLUS", describe(InputTensor="FLOAT32 3"), {"Steepness": 1.0})
PADDED = describe(InputTensor="FLOAT32 1 3", OutputTensor="FLOAT32 1 5")
ENDS: dict[str, object] = {
    "PaddingMode": "REFLECTION", "StartPadding": [0, 1], "EndPadding": [0, 1],
}  # fmt: skip
REFUSED: list[Refused] = [
    *(Refused(SOFT, SOFT.but({"Steepness": steepness}), "Steepness")
      for steepness in (0.5, float("nan"))),
    *(Refused(call, call.but({"ScaleBias": [2.0, 0.0]}), "ScaleBias")
      for name in ("IDENTITY", "ABS") for dtype in ("INT64", "UINT64")
      if (name, dtype) != ("ABS", "UINT64")
      for call in [Call(f"ELEMENT_WISE_{name}", describe(InputTensor=f"{dtype} 3"))]),
    *(Refused(call, call.but({"PaddingMode": "WRAP"}), "WRAP")
      for call in (Call("PADDING", PADDED, ENDS),
                   Call("PADDING1", PADDED, {**ENDS, "PaddingValueDataType": "FLOAT32"}))),
    *refuse_scales("ROI_ALIGN", POOLED, SAMPLED),
    *refuse_scales("ROI_ALIGN1", POOLED, MOVED),
    *refuse_scales("ROI_ALIGN_GRAD", GRADIENT,
                   {n: v for n, v in MOVED.items() if n != "OutOfBoundsInputValue"}),
    Refused(QUANTIZED_AVERAGE,
            QUANTIZED_AVERAGE.but(OutputTensor="UINT8 1 1 1 1",
                                  OutputZeroPointTensor="UINT8 1 1 1 1"), "the same DataType"),
    Refused(QUANTIZED_AVERAGE.but(InputScaleTensor="FLOAT32 1", InputZeroPointTensor="INT8 1"),
            QUANTIZED_AVERAGE.but(InputScaleTensor="FLOAT32 1"), DIMENSIONS),
    Refused(QUANTIZED_AVERAGE.but(OutputScaleTensor="FLOAT32 1", OutputZeroPointTensor="INT8 1"),
            QUANTIZED_AVERAGE.but(OutputScaleTensor="FLOAT32 1"), DIMENSIONS),
    Refused(QUANTIZED_CONVOLUTION.but(InputScaleTensor="FLOAT32 1", InputZeroPointTensor="UINT8 1"),
            QUANTIZED_CONVOLUTION.but(InputScaleTensor="FLOAT32 1"), DIMENSIONS),
    Refused(QUANTIZED_CONVOLUTION.but(OutputScaleTensor="FLOAT32 1",
                                      OutputZeroPointTensor="INT8 1"),
            QUANTIZED_CONVOLUTION.but(OutputZeroPointTensor="INT8 1"), DIMENSIONS),
    Refused(QUANTIZED_CONVOLUTION.but(FilterScaleTensor="FLOAT32 1 2 1"),
            QUANTIZED_CONVOLUTION.but(FilterScaleTensor="FLOAT32 2"), ALONG),
    Refused(QUANTIZED_CONVOLUTION.but(FilterScaleTensor="FLOAT32 1"),
            QUANTIZED_CONVOLUTION.but(FilterScaleTensor="FLOAT32 1 1 2 1"), ALONG),
    Refused(CONVOLUTION_INTEGER,
            CONVOLUTION_INTEGER.but(FilterZeroPointTensor="INT8 2", InputZeroPointTensor="UINT8 1"),
            ALONG),
    *(Refused(call, call.but(AZeroPointTensor="INT8 1 1 1 1"), SIZES)
      for call in (TO_FLOAT.but(AScaleTensor="FLOAT32 1 1 2 1", AZeroPointTensor="INT8 1 1 2 1",
                                BScaleTensor="FLOAT32 1 1 1 4",
                                BZeroPointTensor="INT8 1 1 1 4"), QUANTIZED)),
    Refused(TO_FLOAT, TO_FLOAT.but(BZeroPointTensor="INT8 1 1"), SIZES),
    Refused(QUANTIZED, QUANTIZED.but(BZeroPointTensor="UINT8 4"), SIZES),
    Refused(QUANTIZED, QUANTIZED.but(OutputZeroPointTensor="UINT8 1 1 1 1"), SIZES),
    Refused(QUANTIZED, QUANTIZED.but(AScaleTensor="FLOAT32 2").without("AZeroPointTensor"),
            "a size must be 1"),
    Refused(TO_FLOAT.but(AScaleTensor="FLOAT32 1", BScaleTensor="FLOAT32 1")
            .without("AZeroPointTensor", "BZeroPointTensor"),
            TO_FLOAT.but(AScaleTensor="FLOAT32 2", BScaleTensor="FLOAT32 1")
            .without("AZeroPointTensor", "BZeroPointTensor"), "a size must be 1"),
    *(Refused(ATTENTION, ATTENTION.but(**{name: f"FLOAT32 1 {sizes}"}), "takes 3 dimensions")
      for name, sizes in (("QueryTensor", "1 1 2"), ("KeyTensor", "1 2 2"),
                          ("ValueTensor", "1 2 2"), ("OutputTensor", "1 1 2"))),
    Refused(MASKED, MASKED.but(MaskTensor="INT32 1"), "the mask of KEY_SEQUENCE_LENGTH"),
    *(Refused(PAST, PAST.but(**{name: "FLOAT32 1 1 1 1 2"}), "takes 4 dimensions")
      for name in ("PastKeyTensor", "PastValueTensor")),
    Refused(SCATTER.but(IndicesTensor="INT32 3 1; 1 1"),
            SCATTER.but(IndicesTensor="INT32 3 1; 0 0"), "must not all be 0"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_refused(case: Refused) -> None:
    case.taken.resolve()
    with pytest.raises(DmlcError, match=case.says):
        case.refused.resolve()


# What is kept on purpose ------------------------------------------------------------------------

KEPT: dict[str, list[Call]] = {
    "Sizes of 0": [
        Call("ELEMENT_WISE_ADD", describe(ATensor="FLOAT32 0 3", BTensor="FLOAT32 0 3")),
        Call("JOIN", describe(**{"InputTensors[0]": "FLOAT32 0 3"}), {"Axis": 0}),
        AVERAGE.but(InputTensor="FLOAT32 0 1 1 3", OutputTensor="FLOAT32 0 1 1 1"),
        INTEGERS.but(ATensor="INT8 2 0", BTensor="UINT8 0 4"),
        SCATTER.but(IndicesTensor="INT32 0 1", UpdatesTensor="FLOAT32 1 0"),
    ],
    "FLOAT64": [
        Call("CAST", describe(InputTensor="FLOAT64 3", OutputTensor="FLOAT32 3")),
        Call("SLICE_GRAD", describe(InputGradientTensor="FLOAT64 2",
                                    OutputGradientTensor="FLOAT64 6"), SLICE.attributes),
    ],
    "Recurrent operators without outputs": [
        RNN,
        GRU,
        LSTM,
    ],
    "Windows of MAX_POOLING_GRAD": [
        LARGEST_GRAD.but(InputGradientTensor="FLOAT32 1 1 1 2"),
        LARGEST_GRAD.but(InputGradientTensor="FLOAT32 1 1 4 1"),
    ],
}  # fmt: skip


REFUSED: dict[str, list[Call]] = {
    "Bits of floats": [
        *(Call(f"ELEMENT_WISE_BIT_{name}",
               describe(ATensor=f"{dtype} 3", BTensor=f"{dtype} 3", OutputTensor=f"{dtype} 3"))
          for name in ("AND", "OR", "XOR") for dtype in ("FLOAT32", "FLOAT16")),
        *(Call("ELEMENT_WISE_BIT_NOT",
               describe(InputTensor=f"{dtype} 3", OutputTensor=f"{dtype} 3"))
          for dtype in ("FLOAT32", "FLOAT16")),
        *(Call("ELEMENT_WISE_BIT_COUNT",
               describe(InputTensor=f"{dtype} 3", OutputTensor="UINT32 3"))
          for dtype in ("FLOAT32", "FLOAT16")),
    ],
}  # fmt: skip


@pytest.mark.parametrize("title", KEPT)
def test_kept_on_purpose(title: str) -> None:
    """The page has a section with the reason, and what DirectML refuses is taken."""
    assert f"## {title}\n" in PAGE.read_text(encoding="utf-8")
    for call in KEPT[title]:
        call.resolve()


@pytest.mark.parametrize("title", REFUSED)
def test_refused_on_purpose(title: str) -> None:
    """The page has a section with the reason, and what DirectML takes is refused."""
    assert f"## {title}\n" in PAGE.read_text(encoding="utf-8")
    for call in REFUSED[title]:
        with pytest.raises(DmlcError, match="cannot be FLOAT"):
            call.resolve()


def test_every_section_is_kept() -> None:
    """No section of the page is of something that has changed."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    titles = [line[3:] for line in lines if line.startswith("## ")]
    assert titles == [*KEPT, *REFUSED]
