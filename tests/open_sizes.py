"""Operators bound with sizes left open, arrays of random sizes for them, and C's own reading of the
formulas that a manifest has."""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from collections.abc import Callable, Mapping

import numpy as np

import dmlc
from dmlc import ir
from dmlc.kernel.nodes import Kernel
from dmlc.pipeline import compile_kernels
from dmlc.program import Program
from dmlc.scalars import Array

Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Subject:
    """An operator with some of its sizes open; `sizes` is how large each symbol may be."""

    operator: str
    tensors: Mapping[str, tuple[int | str, ...]]
    attributes: Mapping[str, object]
    sizes: Mapping[str, int]
    data_type: str = "FLOAT32"
    least: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    """How small each symbol may be; 1 where nothing is said."""
    multiple: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    """What a symbol is a multiple of."""

    def bind(self, sizes: Mapping[str, int] | None = None) -> ir.Function:
        """The function of open sizes, or of these ones."""
        given = {
            name: dmlc.TensorDesc(self.data_type, self._settle(shape, sizes))
            for name, shape in self.tensors.items()
        }
        return dmlc.operator(self.operator).bind(given, self.attributes)

    def _settle(
        self, shape: tuple[int | str, ...], sizes: Mapping[str, int] | None
    ) -> tuple[int | str, ...]:
        return shape if sizes is None else tuple(evaluate_formula(e, sizes) for e in shape)

    def draw(self, chance: random.Random) -> dict[str, int]:
        """Sizes that it takes: often small ones, and the least."""
        return {
            s: self._draw(s, int(most * chance.random() ** 2)) for s, most in self.sizes.items()
        }

    def _draw(self, symbol: str, size: int) -> int:
        step = self.multiple.get(symbol, 1)
        return max(self.least.get(symbol, 1), -(-size // step) * step, step)

    def smallest(self) -> dict[str, int]:
        """The least sizes that it takes."""
        return {s: self._draw(s, 0) for s in self.sizes}

    def make(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Arrays of these sizes for the inputs; none of their elements is near 0."""
        numbers = np.random.default_rng(seed)
        dtype = self.bind(sizes).parameters[0].dtype.dtype
        found: dict[str, Array] = {}
        for parameter in self.bind(sizes).parameters:
            shape = tuple(e for e in parameter.extents if isinstance(e, int))
            values = numbers.uniform(0.25, 2.0, shape)
            if "Variance" not in parameter.name:
                values *= numbers.choice([-1.0, 1.0], shape)
            found[parameter.name] = values.astype(dtype)
        return found


STATISTICS = (1, "C", 1, 1)
SUBJECTS: Mapping[str, Subject] = {
    "relu_grad": Subject(
        "directml.ACTIVATION_RELU_GRAD",
        {"InputTensor": ("N", 64), "InputGradientTensor": ("N", 64)},
        {},
        {"N": 1500},
    ),
    "relu_backward": Subject(
        "onednn.ReLUBackward", {"src": ("N", "C"), "diff_dst": ("N", "C")}, {}, {"N": 90, "C": 90}
    ),
    "bn_training_grad": Subject(
        "directml.BATCH_NORMALIZATION_TRAINING_GRAD",
        {
            **dict.fromkeys(("InputTensor", "InputGradientTensor"), ("N", "C", "H", "W")),
            **dict.fromkeys(("MeanTensor", "VarianceTensor", "ScaleTensor"), STATISTICS),
        },
        {"Epsilon": 1e-5},
        {"N": 6, "C": 12, "H": 30, "W": 30},
    ),
    "softmax": Subject(
        "directml.ACTIVATION_SOFTMAX1",
        {"InputTensor": ("R", "C")},
        {"Axes": [1]},
        {"R": 90, "C": 600},
    ),
    "gemm": Subject(
        "directml.GEMM",
        {"ATensor": ("M", "K"), "BTensor": ("K", "N"), "CTensor": ("M", "N")},
        {"Alpha": 0.5, "FusedActivation": "ACTIVATION_RELU"},
        {"M": 70, "N": 70, "K": 90},
    ),
    "gemm_transposed": Subject(
        "directml.GEMM",
        {"ATensor": (2, "K", "M"), "BTensor": (2, "N", "K")},
        {"TransA": "TRANSPOSE", "TransB": "TRANSPOSE"},
        {"M": 40, "N": 40, "K": 50},
    ),
    "batched_matmul": Subject(
        "onednn.MatMul",
        {"src": ("M", 8), "weights": (8, "N"), "bias": ("N",)},
        {},
        {"M": 60, "N": 60},
    ),
    "layer_norm": Subject(
        "onednn.LayerNorm",
        {"src": ("T", "C"), "gamma": ("C",), "beta": ("C",)},
        {},
        {"T": 40, "C": 300},
    ),
    "bn_inference": Subject(
        "directml.BATCH_NORMALIZATION",
        {
            "InputTensor": ("N", "C", "H", "W"),
            **dict.fromkeys(
                ("MeanTensor", "VarianceTensor", "ScaleTensor", "BiasTensor"), STATISTICS
            ),
        },
        {"Spatial": True, "Epsilon": 1e-5},
        {"N": 6, "C": 12, "H": 20, "W": 20},
    ),
    "column_sums": Subject(
        "directml.REDUCE",
        {"InputTensor": ("R", "C")},
        {"Function": "SUM", "Axes": [0]},
        {"R": 400, "C": 90},
    ),
    "whole_sum": Subject(
        "directml.REDUCE",
        {"InputTensor": ("R", "C")},
        {"Function": "SUM", "Axes": [0, 1]},
        {"R": 200, "C": 200},
    ),
    "arg_max": Subject(
        "directml.REDUCE",
        {"InputTensor": ("R", "C", 3)},
        {"Function": "ARGMAX", "Axes": [1]},
        {"R": 30, "C": 200},
    ),
    "arg_max_of_all": Subject(
        "directml.REDUCE",
        {"InputTensor": ("R", "C")},
        {"Function": "ARGMAX", "Axes": [0, 1]},
        {"R": 90, "C": 90},
    ),
    "few_channels": Subject(
        "directml.BATCH_NORMALIZATION_TRAINING_GRAD",
        {
            **dict.fromkeys(("InputTensor", "InputGradientTensor"), ("N", 7, "H", "W")),
            **dict.fromkeys(("MeanTensor", "VarianceTensor", "ScaleTensor"), (1, 7, 1, 1)),
        },
        {"Epsilon": 1e-5},
        {"N": 9, "H": 20, "W": 20},
    ),
    "max_pooling": Subject(
        "directml.MAX_POOLING",
        {"InputTensor": ("N", "C", "H", "W")},
        {
            "DimensionCount": 2, "Strides": [1, 1], "WindowSize": [3, 3],
            "StartPadding": [1, 1], "EndPadding": [1, 1],
        },
        {"N": 3, "C": 5, "H": 15, "W": 15},
    ),
    "convolution": Subject(
        "directml.CONVOLUTION",
        {"InputTensor": ("N", "C", "H", "W"), "FilterTensor": ("K", "C", 3, 3)},
        {
            "Mode": "CROSS_CORRELATION", "Direction": "FORWARD", "DimensionCount": 2,
            "Strides": [1, 1], "Dilations": [1, 1], "StartPadding": [1, 1],
            "EndPadding": [1, 1], "OutputPadding": [0, 0], "GroupCount": 1,
        },
        {"N": 3, "C": 5, "H": 12, "W": 12, "K": 5},
    ),
    "depth_to_space": Subject(
        "directml.DEPTH_TO_SPACE1",
        {"InputTensor": ("N", 8, 3, 4)},
        {"BlockSize": 2, "Order": "DEPTH_COLUMN_ROW"},
        {"N": 9},
    ),
    "padding": Subject(
        "directml.PADDING",
        {"InputTensor": ("N", "C")},
        {
            "PaddingMode": "CONSTANT", "PaddingValue": 7, "StartPadding": [1, 2],
            "EndPadding": [1, 0],
        },
        {"N": 300, "C": 90},
    ),
    "padding_mirrored": Subject(
        "directml.PADDING",
        {"InputTensor": ("N", "C", 3)},
        {"PaddingMode": "REFLECTION", "StartPadding": [1, 2, 0], "EndPadding": [4, 0, 1]},
        {"N": 90, "C": 60},
    ),
    "padding_of_edges": Subject(
        "directml.PADDING",
        {"InputTensor": ("N", "C")},
        {"PaddingMode": "EDGE", "StartPadding": [1, 2], "EndPadding": [1, 0]},
        {"N": 90, "C": 90},
    ),
    "join": Subject(
        "directml.JOIN",
        {"InputTensors[0]": ("N", "A"), "InputTensors[1]": ("N", "B"), "InputTensors[2]": ("N", 3)},
        {"Axis": 1, "InputCount": 3},
        {"N": 60, "A": 60, "B": 90},
    ),
    "concat": Subject(
        "onednn.Concat",
        {"src[0]": ("A", "C", 5), "src[1]": ("B", "C", 5)},
        {"axis": 0},
        {"A": 20, "B": 20, "C": 30},
    ),
    "slice": Subject(
        "directml.SLICE",
        {"InputTensor": ("N", "C")},
        {"Offsets": [0, 2], "Sizes": [3, 4], "Strides": [1, 2]},
        {"N": 90, "C": 90},
        least={"N": 3, "C": 9},
    ),
    "average_pooling": Subject(
        "directml.AVERAGE_POOLING",
        {"InputTensor": ("N", "C", "H", "W")},
        {
            "DimensionCount": 2, "Strides": [2, 1], "WindowSize": [3, 2],
            "StartPadding": [1, 0], "EndPadding": [0, 1], "IncludePadding": False,
        },
        {"N": 3, "C": 5, "H": 25, "W": 25},
        least={"H": 2},
    ),
    "max_pooling_of_halves": Subject(
        "directml.MAX_POOLING",
        {"InputTensor": ("N", "C", "H", "W")},
        {
            "DimensionCount": 2, "Strides": [2, 2], "WindowSize": [2, 2],
            "StartPadding": [0, 0], "EndPadding": [0, 0],
        },
        {"N": 3, "C": 5, "H": 25, "W": 25},
        least={"H": 2, "W": 2},
    ),
    "convolution_of_strides": Subject(
        "directml.CONVOLUTION",
        {
            "InputTensor": ("N", "C", "H", "W"), "FilterTensor": ("K", "C", 3, 3),
            "BiasTensor": (1, "K", 1, 1),
        },
        {
            "Mode": "CROSS_CORRELATION", "Direction": "FORWARD", "DimensionCount": 2,
            "Strides": [2, 1], "Dilations": [1, 2], "StartPadding": [1, 0],
            "EndPadding": [1, 0], "OutputPadding": [0, 0], "GroupCount": 1,
        },
        {"N": 3, "C": 5, "H": 15, "W": 15, "K": 5},
        least={"W": 5},
    ),
    "depth_to_space_of_any": Subject(
        "directml.DEPTH_TO_SPACE1",
        {"InputTensor": ("N", "C", "H", "W")},
        {"BlockSize": 2, "Order": "DEPTH_COLUMN_ROW"},
        {"N": 4, "C": 24, "H": 15, "W": 15},
        multiple={"C": 4},
    ),
    "space_to_depth": Subject(
        "directml.SPACE_TO_DEPTH1",
        {"InputTensor": ("N", "C", "H", "W")},
        {"BlockSize": 2, "Order": "DEPTH_COLUMN_ROW"},
        {"N": 4, "C": 6, "H": 24, "W": 24},
        multiple={"H": 2, "W": 2},
    ),
    "tile": Subject(
        "directml.TILE", {"InputTensor": ("N", "C")}, {"Repeats": [2, 3]}, {"N": 40, "C": 60}
    ),
    "scan": Subject(
        "directml.CUMULATIVE_SUMMATION",
        {"InputTensor": ("N",)},
        {"Axis": 0, "AxisDirection": "INCREASING", "HasExclusiveSum": False},
        {"N": 1500},
    ),
    "scan_of_columns": Subject(
        "directml.CUMULATIVE_SUMMATION",
        {"InputTensor": ("B", "N", "C")},
        {"Axis": 1, "AxisDirection": "DECREASING", "HasExclusiveSum": True},
        {"B": 3, "N": 300, "C": 40},
    ),
    "scan_of_halves": Subject(
        "directml.CUMULATIVE_SUMMATION",
        {"InputTensor": ("R", 300)},
        {"Axis": 1, "AxisDirection": "INCREASING", "HasExclusiveSum": False},
        {"R": 300},
        "FLOAT16",
    ),
    "halves": Subject(
        "directml.ACTIVATION_SOFTMAX1",
        {"InputTensor": ("R", "C")},
        {"Axes": [1]},
        {"R": 30, "C": 200},
        "FLOAT16",
    ),
}  # fmt: skip


# Formulas ------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(<=|>=|==|!=|[-+*/()?:<>]))")


class _Formula:
    """A formula in C over unsigned integers of 64 bits, read as C does."""

    def __init__(self, text: str, sizes: Mapping[str, int]) -> None:
        self._tokens: list[str] = []
        self._sizes = sizes
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            assert match is not None, text[at:]
            self._tokens.append(match.group().strip())
            at = match.end()

    def _next(self) -> str:
        return self._tokens.pop(0) if self._tokens else ""

    def _accept(self, *tokens: str) -> str:
        return self._next() if self._tokens and self._tokens[0] in tokens else ""

    def evaluate(self) -> int:
        found = self._choice()
        assert not self._tokens, self._tokens
        return found

    def _choice(self) -> int:
        condition = self._comparison()
        if not self._accept("?"):
            return condition
        then = self._choice()
        assert self._accept(":")
        otherwise = self._choice()
        return then if condition else otherwise

    def _comparison(self) -> int:
        left = self._sum()
        relations: Mapping[str, Callable[[int, int], bool]] = {
            "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b, "<": lambda a, b: a < b,
            ">": lambda a, b: a > b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
        }  # fmt: skip
        relation = self._accept(*relations)
        return int(relations[relation](left, self._sum())) if relation else left

    def _sum(self) -> int:
        total = self._product()
        while sign := self._accept("+", "-"):
            term = self._product()
            total = (total + term if sign == "+" else total - term) % 2**64
        return total

    def _product(self) -> int:
        total = self._primary()
        while sign := self._accept("*", "/"):
            factor = self._primary()
            total = total * factor % 2**64 if sign == "*" else total // factor
        return total

    def _primary(self) -> int:
        if self._accept("("):
            found = self._choice()
            assert self._accept(")")
            return found
        token = self._next()
        return int(token) if token.isdecimal() else self._sizes[token]


def evaluate_formula(text: str | int, sizes: Mapping[str, int]) -> int:
    """What a formula of a manifest comes to, as a host in C would have it."""
    return _Formula(str(text), sizes).evaluate()


@functools.cache
def _compile_open(
    name: str, target: str, profile: str
) -> tuple[Program, ir.Function, tuple[Kernel, ...]]:
    """What a subject with its sizes open is compiled to, once for all tests that look at it."""
    return compile_kernels(SUBJECTS[name].bind(), target, profile)


def compile_open(name: str, target: str, profile: str | None = None) -> Program:
    """The program of a subject with its sizes open."""
    usual = "cpu" if target == "opencl" else "gpu"
    return _compile_open(name, target, profile or usual)[0]


def make_open_kernels(
    name: str, target: str, profile: str
) -> tuple[ir.Function, tuple[Kernel, ...]]:
    """The function of a subject after fusion, and its kernels."""
    _, function, kernels = _compile_open(name, target, profile)
    return function, kernels
