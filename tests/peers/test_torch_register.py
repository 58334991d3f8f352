"""`dmlc.torch.register`: operators of dmlc as PyTorch's, held to its own checks and results."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import dmlc
from dmlc.torch import functions, registered, registration
from dmlc.torch.call import load
from dmlc.torch.subjects import OperatorSubject

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

    @functools.cached_property
    def op(self) -> Any:
        return register(self.operator, outputs=self.outputs)

    def make(self, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        return [randn(*shape).to(dtype) for shape in self.shapes]

    def arrange(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        return (list(tensors),) if self.array else tuple(tensors)

    def run(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.bound(*tensors)

    @functools.cached_property
    def bound(self) -> Callable[..., torch.Tensor]:
        """A call of the operator and nothing else, which PyTorch can trace."""
        op, settings, array = self.op, dict(self.settings), self.array

        def run(*tensors: torch.Tensor) -> torch.Tensor:
            found = op(list(tensors), **settings) if array else op(*tensors, **settings)
            return found if isinstance(found, torch.Tensor) else found[0]

        return run


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


@pytest.fixture(autouse=True)
def forget_graphs() -> None:
    """What PyTorch has compiled is kept by the code, which all cases share."""
    torch._dynamo.reset()


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
    "directml.SLICE1": ((randn(4, 5),), {
        "InputWindowOffsets": [1, 0], "InputWindowSizes": [3, 5], "InputWindowStrides": [2, -2],
    }),
    "directml.SPACE_TO_DEPTH1": ((randn(1, 1, 4, 2),), {
        "BlockSize": 2, "Order": "DEPTH_COLUMN_ROW",
    }),
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


def test_an_array_of_outputs() -> None:
    op = register("directml.SPLIT", entries={"OutputTensors": 2})
    x = randn(2, 5).double().requires_grad_()
    sizes = {"OutputTensors_0_sizes": [2, 2], "OutputTensors_1_sizes": [2, 3]}
    found = op(x, Axis=1, **sizes)
    assert [t.tolist() for t in found] == [x[:, :2].tolist(), x[:, 2:].tolist()]
    assert torch.autograd.gradcheck(lambda x: op(x, Axis=1, **sizes), x)
    with pytest.raises(dmlc.UnsupportedError, match="is an array of outputs, and an operator"):
        register("directml.SPLIT", name="split")


# Compiling --------------------------------------------------------------------------------------


@every
def test_compile(case: Case) -> None:
    """With the graphs of PyTorch's compiler, forward and backward, run as they are."""
    tensors = [t.requires_grad_() for t in case.make()]
    run = case.bound
    compiled = torch.compile(lambda *t: run(*t) * 2, fullgraph=True, backend="aot_eager")
    found = compiled(*tensors)
    close(found, case.peer(*tensors) * 2)
    arriving = randn(*found.shape)
    ours = torch.autograd.grad(found, tensors, arriving)
    theirs = torch.autograd.grad(case.run(*tensors) * 2, tensors, arriving)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-5, atol=1e-5)


# Inductor itself uses what PyTorch warns of.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_compile_by_inductor() -> None:
    relu = CASES["relu"].op
    compiled = torch.compile(lambda x: relu(x * 2) + 1, fullgraph=True)
    x = randn(5, 7).requires_grad_()
    torch.testing.assert_close(compiled(x), torch.relu(x * 2) + 1)
    (grad,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(grad, 2.0 * (x > 0))


DYNAMIC = ("relu", "softmax", "gelu", "layer norm", "rms norm", "max pooling", "swiglu")


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_sizes_are_traced_once(name: str) -> None:
    case = CASES[name]
    graphs: list[torch.fx.GraphModule] = []

    def count(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(case.bound, fullgraph=True, dynamic=True, backend=count)
    first, *rest = case.make()
    for size in (3, 5, 8):
        x = randn(size, *first.shape[1:])
        close(compiled(x, *rest), case.peer(x, *rest))
    assert len(graphs) == 1


def test_sizes_that_are_computed_from_sizes() -> None:
    resample = CASES["resample2"].op

    def twice(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        return resample(x, **RESAMPLE, OutputTensor_sizes=[n, c, 2 * h, 2 * w])

    compiled = torch.compile(twice, fullgraph=True, dynamic=True, backend="aot_eager")
    for height in (3, 4, 6):
        x = randn(1, 2, height, 5)
        close(compiled(x), functional.interpolate(x, scale_factor=2, mode="bilinear"))


# Batches, strides and types ---------------------------------------------------------------------


@every
def test_vmap(case: Case) -> None:
    if case.array:
        tensors = [randn(3, *shape) for shape in case.shapes]
        found = torch.vmap(case.run)(*tensors)
        close(found, torch.stack([case.peer(*t) for t in zip(*tensors, strict=True)]))
        return
    dims = case.batched or (0,) * len(case.shapes)
    tensors = [
        randn(*shape) if dim is None else randn(*shape, 3).movedim(-1, 1)
        for shape, dim in zip(case.shapes, dims, strict=True)
    ]
    dims = tuple(None if dim is None else 1 for dim in dims)
    found = torch.vmap(case.run, in_dims=dims)(*tensors)
    each = [
        case.peer(*(t if dim is None else t[:, k] for t, dim in zip(tensors, dims, strict=True)))
        for k in range(3)
    ]
    close(found, torch.stack(each))


def test_functional_gradients() -> None:
    relu, norm = CASES["relu"], CASES["layer norm"]
    x = randn(3, 4)
    torch.testing.assert_close(torch.func.grad(lambda x: relu.run(x).sum())(x), 1.0 * (x > 0))
    batched = torch.vmap(torch.func.grad(lambda x: relu.run(x).sum()))(x)
    torch.testing.assert_close(batched, 1.0 * (x > 0))
    tensors = norm.make()
    torch.testing.assert_close(
        torch.func.jacrev(norm.run)(*tensors), torch.func.jacrev(norm.peer)(*tensors),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_a_batch_of_elements_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    relu = CASES["relu"]
    kernels: list[tuple[int, ...]] = []
    made = registration.register_subject(
        OperatorSubject(dmlc.operator("directml.ACTIVATION_RELU")), "directml_ACTIVATION_RELU"
    )
    kernel = made.kernel

    def watch(x: torch.Tensor) -> Any:
        kernels.append(tuple(x.shape))
        return kernel(x)

    assert made.op is relu.op
    with torch.library._scoped_library("dmlc", "IMPL") as library, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        library.impl("directml_ACTIVATION_RELU", watch, "CPU", allow_override=True)
        with torch.inference_mode():
            torch.vmap(relu.run)(randn(6, 2, 3))
    assert kernels == [(12, 3)]


FORMATS = ("relu", "relu_grad", "resample2", "max pooling", "batch norm", "gelu")


@pytest.mark.parametrize("name", FORMATS)
def test_channels_last(name: str) -> None:
    case = CASES[name]
    shapes = case.shapes if len(case.shapes[0]) == 4 else ((2, 3, 4, 5),) * len(case.shapes)
    packed = [randn(*shape) for shape in shapes]
    last = [t.to(memory_format=torch.channels_last).requires_grad_() for t in packed]
    found = case.run(*last)
    close(found, case.peer(*packed))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert not found.is_contiguous()
    arriving = randn(*found.shape).to(memory_format=torch.channels_last)
    grads = torch.autograd.grad(found, last, arriving)
    expected = torch.autograd.grad(case.peer(*last), last, arriving)
    for grad, of in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, of, rtol=2e-5, atol=2e-5)
    assert grads[0].is_contiguous(memory_format=torch.channels_last)
    torch.library.opcheck(case.op, tuple(last), dict(case.settings))


def test_other_strides() -> None:
    relu, softmax = CASES["relu"], CASES["softmax"]
    x = randn(4, 6)
    for view in (x.t(), x[:, ::2], x[1:, 1:], x[:1].expand(4, 6), x[0, 0], x[:0], x.unsqueeze(0)):
        close(relu.run(view), torch.relu(view))
    assert relu.run(x.t()).stride() == x.t().stride()
    negated = torch.complex(x, x).conj().imag
    assert negated.is_neg()
    close(relu.run(negated), torch.relu(-x))
    assert relu.run(x[0, 0]).shape == ()
    close(softmax.run(x.t()), torch.softmax(x.t(), 1))
    close(softmax.run(x[:1].expand(4, 6)), torch.softmax(x[:1].expand(4, 6), 1))


@pytest.mark.parametrize(
    ("name", "dtype"), [(n, t) for n, case in CASES.items() for t in case.types],
    ids=lambda value: str(value).removeprefix("torch."),
)  # fmt: skip
def test_floats_of_16_bits(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    tensors = [t.requires_grad_() for t in case.make(dtype)]
    wide = [t.detach().float().requires_grad_() for t in tensors]
    found, expected = case.run(*tensors), case.peer(*wide)
    assert found.dtype is dtype
    close(found, expected.to(dtype), rounds=2e-3)
    arriving = randn(*found.shape).to(dtype)
    ours = torch.autograd.grad(found, tensors, arriving)
    theirs = torch.autograd.grad(expected, wide, arriving.float(), materialize_grads=True)
    for our, their in zip(ours, theirs, strict=True):
        assert our.dtype is dtype
        # What a gradient reads of results is rounded to the type.
        close(our, their.to(dtype), rounds=2e-2)


@pytest.mark.parametrize("name", ["softmax", "layer norm", "max pooling", "batch norm"])
def test_sizes_that_change_are_compiled_a_few_times(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    compiled: list[dmlc.ir.Function] = []

    def watch(function: dmlc.ir.Function) -> Any:
        compiled.append(function)
        return load(function)

    monkeypatch.setattr(functions, "FIXED", 2)
    monkeypatch.setattr(registered, "load", watch)
    first, *rest = case.make()
    for size in (11, 12, 13, 14, 9, 40):
        x = randn(size, *first.shape[1:])
        close(case.run(x, *rest), case.peer(x, *rest), rounds=1e-5)
    assert len(compiled) == 6
    assert len({str(function) for function in compiled}) <= 3


# Subjects ---------------------------------------------------------------------------------------


def test_a_graph() -> None:
    graph = dmlc.parse("""
        graph scaled[N, K](x: FLOAT32[N, K], w: FLOAT32[K]) {
            output y = exp(x * unsqueeze(w, axes: [0]))
            output total = sum(x, axes: [0, 1])
        }
    """).graphs["scaled"]
    op = register(graph)
    for rows in (2, 5):
        x, w = randn(rows, 3).requires_grad_(), randn(3).requires_grad_()
        y, total = op(x, w=w)
        torch.testing.assert_close(y, torch.exp(x * w))
        torch.testing.assert_close(total.reshape(()), x.sum())
        ours = torch.autograd.grad(y.sum(), (x, w))
        for our, their in zip(ours, torch.autograd.grad(torch.exp(x * w).sum(), (x, w)),
                              strict=True):  # fmt: skip
            torch.testing.assert_close(our, their)
    torch.library.opcheck(op, (x, w))
    torch.testing.assert_close(op(randn(3, 2).t(), w)[0], torch.exp(randn(3, 2).t() * w))
    with pytest.raises(dmlc.DmlcError, match=r"'w' of scaled is FLOAT32\[K\], and FLOAT32\[4\]"):
        op(randn(2, 3), randn(4))


def test_a_function() -> None:
    operator = dmlc.operator("onednn.SoftMax")
    op = register(operator.bind({"src": (3, 5)}, {"axis": 1}), name="softmax_of_rows")
    x = randn(3, 5).requires_grad_()
    torch.testing.assert_close(op(x), torch.softmax(x, 1))
    torch.library.opcheck(op, (x,))
    with pytest.raises(dmlc.DmlcError, match=r"is FLOAT32\[3, 5\], and FLOAT32\[5, 3\] is given"):
        op(randn(5, 3))
    last = randn(5, 3).t()
    torch.testing.assert_close(op(last), torch.softmax(last, 1))


def test_a_gradient_of_ones_own() -> None:
    operators = dmlc.parse("""
        operator CUBE {
            tensors { | Tensor | Kind | Types |
                      | x | Input | f32 |
                      | y | Output | f32 | }
            constraints { x and y must have the same DimensionCount and Sizes. }
            compute { y = x * x * x }
        }
        operator CUBE_GRAD {
            forward CUBE
            tensors { | Tensor | Kind | Types |
                      | x | Input | f32 |
                      | diff_y | Input | f32 |
                      | diff_x | Output | f32 | }
            constraints { x, diff_y, and diff_x must have the same DimensionCount and Sizes. }
            compute { diff_x = 30 * x * x * diff_y }
        }
    """).operators
    x = randn(4).requires_grad_()
    own = register(operators["CUBE"], name="own_cube", gradient=operators["CUBE_GRAD"])
    derived = register(operators["CUBE"], name="cube")
    torch.testing.assert_close(torch.autograd.grad(own(x).sum(), x)[0], 30 * x * x)
    torch.testing.assert_close(torch.autograd.grad(derived(x).sum(), x)[0], 3 * x * x)


# Registering ------------------------------------------------------------------------------------


def test_schemas() -> None:
    assert str(CASES["relu"].op._schema) == (
        "dmlc::directml_ACTIVATION_RELU(Tensor InputTensor) -> Tensor"
    )
    assert str(CASES["max pooling with places"].op._schema) == (
        "dmlc::directml_MAX_POOLING2_OutputIndicesTensor(Tensor InputTensor, *, "
        "int? DimensionCount=None, int[] Strides, int[] WindowSize, int[] StartPadding, "
        "int[] EndPadding, int[] Dilations, SymInt[]? OutputTensor_sizes=None, "
        "SymInt[]? OutputIndicesTensor_sizes=None, ScalarType? OutputIndicesTensor_dtype=None) "
        "-> (Tensor OutputTensor, Tensor OutputIndicesTensor)"
    )
    assert str(CASES["layer norm"].op._schema) == (
        "dmlc::onednn_LayerNorm(Tensor src, Tensor? gamma=None, Tensor? beta=None, *, "
        "bool? keep_stats=None, int? begin_norm_axis=None, bool? use_affine=None, "
        "float? epsilon=None) -> Tensor"
    )


def test_registering_again() -> None:
    relu = register("directml.ACTIVATION_RELU")
    assert register(dmlc.operator("directml.ACTIVATION_RELU")) is relu
    assert torch.ops.dmlc.directml_ACTIVATION_RELU.default is relu
    with pytest.raises(dmlc.DmlcError, match="directml_ACTIVATION_RELU is another operator alre"):
        register("onednn.ReLU", name="directml_ACTIVATION_RELU")


def test_what_cannot_be_registered() -> None:
    with pytest.raises(dmlc.UnsupportedError, match="is given no tensor, and an operator of PyTo"):
        register("directml.DIAGONAL_MATRIX")
    with pytest.raises(dmlc.DmlcError, match="'a b' is no name for an operator of PyTorch"):
        register("onednn.ReLU", name="a b")
    with pytest.raises(dmlc.DmlcError, match=r"unknown optional output of .* 'means'"):
        register("onednn.LayerNorm", outputs=["means"])
    with pytest.raises(dmlc.ArgumentError, match="operator must be an operator, its name, a graph"):
        register(3)
    with pytest.raises(dmlc.DmlcError, match="only operators have optional outputs"):
        register(dmlc.operator("onednn.ReLU").bind({"src": (3,)}), outputs=["y"])


def test_mistakes_of_calls() -> None:
    with pytest.raises(dmlc.DmlcError, match="'src' cannot be INT32: it is FLOAT32"):
        CASES["softmax"].op(torch.arange(3, dtype=torch.int32))
    with pytest.raises(dmlc.DmlcError, match="unknown member of DML_INTERPOLATION_MODE 'CUBIC'"):
        CASES["resample2"].op(randn(1, 1, 2, 2), **RESAMPLE | {"InterpolationMode": "CUBIC"},
                              OutputTensor_sizes=[1, 1, 4, 4])  # fmt: skip
    with pytest.raises(RuntimeError, match="missing value for argument 'Strides'"):
        CASES["max pooling"].op(randn(1, 1, 2, 2))
