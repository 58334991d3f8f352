"""`dmlc.torch.register`: operators of dmlc as PyTorch's, held to its own checks and results."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import dmlc

EXAMPLES = Path(__file__).parents[2] / "examples"
register = dmlc.torch.register


def example(file: str, name: str) -> dmlc.Operator:
    operators = dmlc.load(EXAMPLES / f"{file}.dml").operators
    return next(o for n, o in operators.items() if n.rpartition(".")[2] == name)


def randn(*shape: int) -> torch.Tensor:
    """The same numbers in every run, and different ones for different sizes."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + 31))


@dataclasses.dataclass(frozen=True)
class Case:
    operator: str | dmlc.Operator
    shapes: tuple[tuple[int, ...], ...]
    peer: Callable[..., torch.Tensor]
    """The first result, in PyTorch."""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    types: tuple[torch.dtype, ...] = (torch.float16,)
    """The types beside float32."""
    outputs: tuple[str, ...] = ()
    batched: tuple[int | None, ...] | None = None
    """The dimensions of `vmap`; None for 0 of each."""
    array: bool = False
    """Whether its tensors are one array."""
    linear: bool = False
    """Whether it is linear, so that a difference of float32 numbers is a gradient."""

    @property
    def op(self) -> Any:
        return register(self.operator, outputs=self.outputs)

    def make(self, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        return [randn(*shape).to(dtype) for shape in self.shapes]

    def arrange(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        return (list(tensors),) if self.array else tuple(tensors)

    def run(self, *tensors: torch.Tensor) -> torch.Tensor:
        found = self.op(*self.arrange(tensors), **self.settings)
        return found if isinstance(found, torch.Tensor) else found[0]


def batch_norm(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    mean = x.mean((0, 2, 3), keepdim=True)
    variance = (x - mean).square().mean((0, 2, 3), keepdim=True)
    return scale * (x - mean) / torch.sqrt(variance + 1e-3) + bias


def rms_norm(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, gamma.shape, gamma.to(x.dtype), 1e-6)


RESAMPLE = {
    "InterpolationMode": "LINEAR", "RoundingDirection": "DECREASING", "Scales": [1, 1, 2, 2],
    "InputPixelOffsets": [0.5] * 4, "OutputPixelOffsets": [-0.5] * 4,
}  # fmt: skip
POOL = {
    "Strides": [2, 2], "WindowSize": [2, 2], "StartPadding": [0, 0], "EndPadding": [0, 0],
    "Dilations": [1, 1],
}  # fmt: skip
BOTH = (torch.float16, torch.bfloat16)

CASES = {
    "relu": Case("directml.ACTIVATION_RELU", ((3, 5),), torch.relu),
    "relu_grad": Case(
        "directml.ACTIVATION_RELU_GRAD", ((3, 5), (3, 5)),
        lambda x, dy: torch.ops.aten.threshold_backward(dy, x, 0),
    ),
    "onednn relu": Case("onednn.ReLU", ((2, 3, 4),), torch.relu, types=BOTH),
    "onednn relu backward": Case(
        "onednn.ReLUBackward", ((7,), (7,)),
        lambda x, dy: torch.ops.aten.threshold_backward(dy, x, 0), {"use_dst": False}, BOTH,
    ),
    "resample": Case(
        "directml.RESAMPLE1", ((1, 2, 3, 4),),
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        {n: v for n, v in RESAMPLE.items() if n != "RoundingDirection"}
        | {"OutputTensor_sizes": [1, 2, 6, 8]}, linear=True,
    ),
    "resample2": Case(
        "directml.RESAMPLE2", ((1, 2, 3, 4),),
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        RESAMPLE | {"OutputTensor_sizes": [1, 2, 6, 8]}, linear=True,
    ),
    "batch norm": Case(
        "directml.BATCH_NORMALIZATION_TRAINING", ((4, 3, 2, 2), (1, 3, 1, 1), (1, 3, 1, 1)),
        batch_norm, {"Epsilon": 1e-3},
    ),
    "max pooling": Case(
        "directml.MAX_POOLING2", ((1, 2, 4, 6),), lambda x: functional.max_pool2d(x, 2), POOL,
    ),
    "max pooling with places": Case(
        "directml.MAX_POOLING2", ((1, 2, 4, 6),), lambda x: functional.max_pool2d(x, 2), POOL,
        outputs=("OutputIndicesTensor",),
    ),
    "softmax": Case(
        "onednn.SoftMax", ((3, 5),), lambda x: torch.softmax(x, 1), {"axis": 1}, BOTH
    ),
    "layer norm": Case(
        "onednn.LayerNorm", ((6, 8), (8,), (8,)),
        lambda x, w, b: functional.layer_norm(x, (8,), w, b), types=(), batched=(0, None, None),
    ),
    "gemm": Case(
        "directml.GEMM", ((1, 1, 3, 4), (1, 1, 4, 2)), torch.matmul, {"Alpha": 1.0, "Beta": 0.0},
    ),
    "join": Case(
        "directml.JOIN", ((2, 3), (2, 4)), lambda x, y: torch.cat((x, y), 1), {"Axis": 1},
        array=True,
    ),
    "gelu": Case(
        example("gelu", "GELU"), ((3, 5),), functional.gelu, types=BOTH[1:],
    ),
    "rms norm": Case(
        example("rms_norm", "RMS_NORM"), ((4, 6), (6,)), rms_norm, types=(), batched=(0, None),
    ),
    "swiglu": Case(
        example("swiglu", "SWIGLU"), ((4, 12),),
        lambda x: functional.silu(x[:, :6]) * x[:, 6:], types=BOTH,
    ),
}  # fmt: skip


every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def close(found: torch.Tensor, expected: torch.Tensor, *, rounds: float = 0) -> None:
    """Within what the type of the results can tell apart; `rounds` is an error beside that."""
    error = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[found.dtype]
    torch.testing.assert_close(found, expected, rtol=error + rounds, atol=error + rounds)


@every
def test_results_are_those_of_pytorch(case: Case) -> None:
    tensors = case.make()
    close(case.run(*tensors), case.peer(*tensors))
    # By name, too.
    names = (a.name for a in case.op._schema.arguments)
    named = dict(zip(names, case.arrange(tensors), strict=False))
    found = case.op(**named, **case.settings)
    close(found if isinstance(found, torch.Tensor) else found[0], case.peer(*tensors))


@every
def test_opcheck(case: Case) -> None:
    tensors = [t.requires_grad_() for t in case.make()]
    torch.library.opcheck(case.op, case.arrange(tensors), dict(case.settings))


# Gradients --------------------------------------------------------------------------------------


@every
def test_gradients_are_those_of_pytorch(case: Case) -> None:
    tensors = [t.requires_grad_() for t in case.make()]
    found, expected = case.run(*tensors), case.peer(*tensors)
    arriving = randn(*found.shape)
    ours = torch.autograd.grad(found, tensors, arriving, allow_unused=True)
    theirs = torch.autograd.grad(expected, tensors, arriving, allow_unused=True)
    for our, their, tensor in zip(ours, theirs, tensors, strict=True):
        # PyTorch leaves out what is 0 everywhere.
        their = torch.zeros_like(tensor) if their is None else their
        assert our is not None
        torch.testing.assert_close(our, their, rtol=2e-5, atol=2e-5)


DOUBLES = {
    "directml.JOIN": (([randn(2, 3), randn(2, 4)],), {"Axis": 1}),
    "directml.GATHER": (
        (randn(4, 3), torch.tensor([[0, 2, 2]])), {"Axis": 0, "IndexDimensions": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBLES)
def test_gradcheck(name: str) -> None:
    """In FLOAT64, which few operators of the library have."""
    given, settings = DOUBLES[name]
    op = register(name)
    floats = [t.double().requires_grad_() for t in spread(given) if t.is_floating_point()]

    def call(*floats: torch.Tensor) -> torch.Tensor:
        rest = list(floats)
        args = [
            [rest.pop(0) for _ in each] if isinstance(each, list)
            else rest.pop(0) if each.is_floating_point() else each
            for each in given
        ]  # fmt: skip
        return op(*args, **settings)

    assert torch.autograd.gradcheck(call, floats)
    assert torch.autograd.gradgradcheck(call, floats)


def spread(given: Sequence[Any]) -> list[torch.Tensor]:
    return [t for each in given for t in (each if isinstance(each, list) else [each])]


@pytest.mark.parametrize("name", ["resample", "resample2", "join", "gemm", "batch norm", "softmax"])
def test_gradcheck_in_float32(name: str) -> None:
    """A step of 1e-2 leaves about four digits of a difference of FLOAT32 numbers: its rounding is
    1e-7 / 1e-2, and what the third derivative of a smooth function adds is below 1e-3 here."""
    case = CASES[name]
    tensors = [t.requires_grad_() for t in case.make()]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Input #.* requires gradient and is not a double")
        assert torch.autograd.gradcheck(case.run, tensors, eps=1e-2, atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("name", ["layer norm", "softmax", "gelu", "rms norm", "batch norm"])
def test_second_derivatives(name: str) -> None:
    case = CASES[name]
    tensors = [t.requires_grad_() for t in case.make()]

    def twice(call: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
        found = call(*tensors)
        first = torch.autograd.grad(found, tensors, randn(*found.shape), create_graph=True)
        total = sum((g * randn(*g.shape)).sum() for g in first)
        return torch.autograd.grad(total, tensors, materialize_grads=True)

    for our, their in zip(twice(case.run), twice(case.peer), strict=True):
        torch.testing.assert_close(our, their, rtol=1e-4, atol=1e-4)


def test_gradients_of_several_outputs() -> None:
    """The mean of a normalization is differentiated too, which the operator that is written by hand
    for its gradient is not given: the derived one serves."""
    norm = CASES["batch norm"]
    x, scale, bias = (t.requires_grad_() for t in norm.make())
    found, mean, variance = norm.op(x, scale, bias, Epsilon=1e-3)
    weights = randn(*found.shape)
    ours = torch.autograd.grad((found * weights).sum() + mean.sum() + variance.sum(), (x, scale))
    means = x.mean((0, 2, 3), keepdim=True)
    variances = (x - means).square().mean((0, 2, 3), keepdim=True)
    expected = (batch_norm(x, scale, bias) * weights).sum() + means.sum() + variances.sum()
    theirs = torch.autograd.grad(expected, (x, scale))
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-4, atol=1e-5)


def test_gradients_of_what_the_partner_does_not_have() -> None:
    """A fused activation is no attribute of the gradient operator of the library."""
    norm = CASES["batch norm"]
    tensors = [t.requires_grad_() for t in norm.make()]
    settings = {"Epsilon": 1e-3, "FusedActivation": "ACTIVATION_TANH"}
    found = norm.op(*tensors, **settings)[0]
    arriving = randn(*found.shape)
    ours = torch.autograd.grad(found, tensors, arriving)
    theirs = torch.autograd.grad(torch.tanh(batch_norm(*tensors)), tensors, arriving)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-4, atol=1e-5)
