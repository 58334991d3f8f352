"""`torch.compile(model, backend="dmlc")` beside eager: operators, models, and what stays."""

from __future__ import annotations

import copy
import threading
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import dmlc
from benchmarks import torch_networks as networks
from benchmarks.torch_models import MODELS, make, train
from dmlc.torch import timing
from dmlc.torch.backend import Backend, GraphReport, Specializer, compile_graph
from dmlc.torch.decompositions import list_decompositions
from docs import build

ATEN = torch.ops.aten
NAN, INF = float("nan"), float("inf")
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-30, -1e30, 88.0]


@pytest.fixture(autouse=True)
def forget() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


# Operators ------------------------------------------------------------------------------------


def run_group(
    function: Callable[..., Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor]
) -> tuple[Sequence[torch.Tensor], GraphReport]:
    """What the backend gives for a function, traced as `torch.compile` would, and its report."""
    traced = make_fx(function, tracing_mode="fake", decomposition_table=list_decompositions())
    compiled, report = compile_graph("tested", traced(*inputs), least=0)
    return compiled([x.clone() for x in inputs]), report


def trace(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> GraphModule:
    """A function's graph, as `torch.compile` would trace it."""
    table = list_decompositions()
    return make_fx(lambda *given: [function(*given)], table, "fake")(*inputs)


def check_group(
    operators: Sequence[Callable[..., torch.Tensor]],
    *inputs: torch.Tensor,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> GraphReport:
    """All operators in one graph: taken, and as with eager."""
    found, report = run_group(lambda *given: [f(*given) for f in operators], inputs)
    assert report.eager == ()
    for function, one in zip(operators, found, strict=True):
        expected = function(*inputs)
        assert one.stride() == expected.stride()

        def explain(text: str, function: Any = function) -> str:
            return f"operator {operators.index(function)}: {text}"

        torch.testing.assert_close(one, expected, rtol=rtol, atol=atol, equal_nan=True, msg=explain)
    return report


def special() -> torch.Tensor:
    return torch.cat([torch.tensor(SPECIAL), torch.randn(48)])


EXACT: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.abs, torch.neg, torch.relu, torch.ceil, torch.floor, torch.round, torch.trunc,
    torch.sign, torch.isnan, torch.isinf, torch.reciprocal, torch.logical_not, torch.square,
    lambda x: x + 1, lambda x: 2 - x, lambda x: x * 3, lambda x: x / 4, lambda x: 1 / x,
    lambda x: torch.add(x, x, alpha=2), lambda x: torch.clamp(x, -1, 1), lambda x: x.clamp_min(0.5),
    lambda x: x.clamp_max(0.5), lambda x: x**2, lambda x: x**3, lambda x: x**-1,
    lambda x: functional.leaky_relu(x, 0.2), lambda x: functional.relu6(x),
    lambda x: functional.hardtanh(x), lambda x: functional.threshold(x, 0.1, 7.0),
    lambda x: torch.where(x > 0, x, 0.0), lambda x: x > 0, lambda x: x <= 0.5, lambda x: x == 0,
    lambda x: x != x, lambda x: (x > 0).to(torch.float64), lambda x: x.to(torch.bool),
    lambda x: x.double(), lambda x: x.masked_fill(x > 1, -INF), lambda x: torch.zeros_like(x),
    lambda x: torch.full_like(x, 2.5), lambda x: x.clone(), lambda x: (x > 0) & (x < 1),
    lambda x: (x > 0) | (x < 1), lambda x: (x > 0) ^ (x < 1), lambda x: ~(x > 0),
    lambda x: torch.arange(64) + x.shape[0],
]  # fmt: skip
NEAR: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.sqrt, torch.exp, torch.exp2, torch.expm1, torch.log, torch.log1p, torch.log2,
    torch.rsqrt, torch.tanh, torch.sigmoid, torch.erf, torch.atan,
    torch.asinh, torch.sinh, torch.cosh, torch.acos,
    torch.asin, torch.acosh, torch.atanh, lambda x: x**2.5, lambda x: x**-0.5, lambda x: 2.0**x,
    functional.silu, functional.softplus, functional.elu, functional.mish,
    lambda x: functional.gelu(x[3:].clamp(-9, 9), approximate="tanh"),
    lambda x: functional.gelu(x[3:].clamp(-9, 9)),
    functional.hardswish, functional.hardsigmoid,
    functional.logsigmoid,
]  # fmt: skip


def test_element_by_element() -> None:
    check_group(EXACT, special())


def test_element_by_element_near() -> None:
    check_group(NEAR, special(), rtol=2e-5, atol=1e-6)


def test_trigonometry() -> None:
    check_group([torch.sin, torch.cos, torch.tan], torch.randn(64) * 10, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types(dtype: torch.dtype) -> None:
    """16-bit floats round after every operator, as with eager."""
    operators = [
        lambda x: x + 1, lambda x: x * 0.3, lambda x: x - x * 0.1, lambda x: x > 0.1, torch.relu,
        lambda x: torch.maximum(x, x * 0.7), lambda x: x.float(), lambda x: x.amax(),
    ]  # fmt: skip
    check_group(operators, special().to(dtype))


def test_integers() -> None:
    x = torch.tensor([-7, -1, 0, 1, 5, 2**40])
    operators: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: x + 1, lambda x: x * x, lambda x: x / 2, lambda x: x.float() * 0.5,
        lambda x: x > 0, lambda x: x & 6, lambda x: x | 6, lambda x: x ^ 6, lambda x: ~x,
        torch.abs, torch.neg, torch.sign, lambda x: x.sum(), lambda x: x.to(torch.int32),
        lambda x: x.clamp(-1, 3), lambda x: x == 1, lambda x: x * 0.5, lambda x: x.amax(),
    ]  # fmt: skip
    check_group(operators, x)


def test_two_operands() -> None:
    """Every pair of special values, broadcast."""
    x, y = torch.tensor(SPECIAL), torch.tensor(SPECIAL).unsqueeze(1)
    check_group([
        torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.eq,
        torch.ne, torch.lt, torch.le, torch.gt, torch.ge, torch.logical_and, torch.logical_xor,
        lambda x, y: torch.where(x > y, x, y), lambda x, y: torch.div(x, 3, rounding_mode="trunc"),
    ], x, y)  # fmt: skip
    a, b = torch.rand(40) + 0.1, torch.randn(40)
    check_group([torch.pow, torch.atan2], a, b, rtol=1e-5, atol=1e-6)


def test_views_and_moves() -> None:
    index = torch.tensor([[[2, 0, 1, 1, 3]]])
    check_group(
        [
            lambda x, i: x.permute(2, 0, 1) + 1, lambda x, i: x.reshape(6, 10) * 2,
            lambda x, i: x.transpose(0, 1).reshape(-1) * 2, lambda x, i: x[:, 1:3, ::2] + 1,
            lambda x, i: x[1] + x[:, 2].unsqueeze(1)[0], lambda x, i: x.unsqueeze(0) * 3,
            lambda x, i: x[:, :1].expand(3, 4, 5) + 0, lambda x, i: x.split([1, 3], 1)[1] * 2,
            lambda x, i: x.unbind(2)[3] * 2, lambda x, i: torch.cat([x, x * 2, x[:1]], 0),
            lambda x, i: functional.pad(x, (1, 2, 0, 1), value=5.0), lambda x, i: x.flip(0, 2),
            lambda x, i: torch.gather(x, 2, i.expand(3, 4, 5)), lambda x, i: torch.stack([x, x]),
            lambda x, i: torch.index_select(x, 1, i[0, 0]),
            lambda x, i: x[..., None].squeeze(-1) + 1,
            lambda x, i: torch.slice_scatter(x, x[:, 1:3] * 2, 1, 0, 2),
            lambda x, i: torch.select_scatter(x, x[0] * 2, 0, 2),
            lambda x, i: torch.slice_scatter(x, x[:, :, :2] * 2, 2, 1, 5, 2),
            lambda x, i: torch.unsafe_split(x, 3, 1)[1] * 2,
            lambda x, i: torch.unsafe_split_with_sizes(x, [1, 3], 1)[1] * 2,
            lambda x, i: x.tril() + x.triu(1),
            lambda x, i: functional.embedding(i, x[0]),
            lambda x, i: torch.scatter(x, 1, i[:, :, :5].expand(3, 1, 5), -1.0),
            lambda x, i: x.permute(2, 0, 1).contiguous(),
        ],
        torch.randn(3, 4, 5), index,
    )  # fmt: skip


def test_indices() -> None:
    """Positions out of tensors, which may count from the end; and what is added up at them."""
    x, rows = torch.randn(3, 4, 5), torch.tensor([2, 0, -1, 2])
    columns = torch.tensor([[1], [-2], [3]])
    check_group(
        [
            lambda x, i, j: x[:, i], lambda x, i, j: x[i[:1], :, i[:3]],
            lambda x, i, j: ATEN._unsafe_index(x, [None, i, j]),
            lambda x, i, j: x[i[:3] - 1],
        ],
        x, rows, columns,
    )  # fmt: skip
    check_group(
        [
            lambda x, i, j: ATEN._unsafe_index_put(
                x, [None, i, j], x[:, :3, :4], True
            ),
            lambda x, i, j: torch.index_put(x, (i[:3],), x, accumulate=True),
            lambda x, i, j: ATEN.embedding_dense_backward(x, (i + 1).expand(3, 4), 6, 3, False),
        ],
        x, rows, columns, rtol=1e-6, atol=1e-6,
    )  # fmt: skip
    _, report = run_group(lambda x, i: [torch.index_put(x, (i,), x[i])], [x, rows[:3]])
    assert dict(report.eager)["aten.index_put.default"].startswith("only writes that add up")


def test_memory_by_strides() -> None:
    check_group(
        [
            lambda x: torch.as_strided(x + 1, (6, 10), (10, 1)),
            lambda x: torch.as_strided(x + 1, (3, 2, 2), (5, 7, 1), 11),
            lambda x: torch.as_strided((x + 1).transpose(0, 2).contiguous(), (4, 4), (3, 4)),
            lambda x: torch.as_strided(torch.exp(x.transpose(0, 2)) * 0, (60,), (1,)),
        ],
        torch.randn(3, 4, 5),
    )  # fmt: skip
    _, report = run_group(
        lambda x: [torch.as_strided(x, (3, 2), (20, 2)) + 1], [torch.randn(3, 20)[:, 3:]]
    )
    assert (
        dict(report.eager)["aten.as_strided.default"]
        == "only memory without gaps is read by strides"
    )


def test_running_sums_and_products() -> None:
    x = torch.rand(3, 40, 5) + 0.5
    check_group(
        [
            lambda x: x.cumsum(1), lambda x: x.cumprod(-1), lambda x: x.cumprod(1),
            lambda x: (x > 1).cumsum(0), lambda x: x[0, 0, 0].cumsum(0),
        ],
        x, rtol=1e-5, atol=1e-5,
    )  # fmt: skip


def test_small_products() -> None:
    x, y = torch.randn(6, 8), torch.randn(8, 5)
    check_group(
        [
            torch.mm, lambda x, y: torch.addmm(y[0], x, y), lambda x, y: x @ y[:, 0],
            lambda x, y: torch.addmm(x[:, :5], x, y, beta=0.5, alpha=2),
            lambda x, y: torch.bmm(x.view(2, 3, 8), y.expand(2, 8, 5)),
            lambda x, y: torch.baddbmm(y[:3], x.view(2, 3, 8), y.expand(2, 8, 5)),
        ],
        x, y, rtol=1e-5, atol=1e-5,
    )  # fmt: skip
    _, report = run_group(lambda x: [torch.mm(x, x) + 1], [torch.randn(40, 40)])
    why = "PyTorch's own is faster: 64,000 multiply-adds, of more than 32,768"
    assert report.eager == (("aten.mm.default", why),)


def test_small_convolutions() -> None:
    x, w, b = torch.randn(2, 4, 7, 6), torch.randn(6, 2, 3, 2), torch.randn(6)
    check_group(
        [
            lambda x, w, b: functional.conv2d(x, w, b, groups=2),
            lambda x, w, b: functional.conv2d(x, w, None, (2, 1), (1, 2), (2, 1), groups=2),
            lambda x, w, b: functional.conv2d(x[:, :2], w, b, padding=1),
            lambda x, w, b: functional.conv1d(x[:, :2, 0], w[..., 0], b, 2),
        ],
        x, w, b, rtol=1e-5, atol=1e-5,
    )  # fmt: skip


CONVOLUTIONS = [
    ((2, 4, 7, 6), (6, 2, 3, 2), (1, 1), (0, 0), (1, 1), False, (0, 0), 2),
    ((2, 4, 7, 6), (6, 4, 3, 2), (2, 3), (1, 2), (2, 1), False, (0, 0), 1),
    ((2, 3, 9), (6, 1, 3), (2,), (1,), (1,), False, (0,), 3),
    ((2, 4, 5, 3), (4, 3, 3, 2), (2, 1), (1, 0), (1, 2), True, (1, 0), 2),
    ((1, 2, 3, 4, 3), (3, 2, 2, 1, 3), (1, 1, 1), (0, 0, 1), (1, 1, 1), False, (0, 0, 0), 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_gradients_of_convolutions(case: Any) -> None:
    """Forward and all three gradients, or some of them."""
    sizes, filters, *settings = case
    x, w = torch.randn(sizes), torch.randn(filters)
    y = ATEN.convolution(x, w, None, *settings)
    bias = torch.randn(y.shape[1])

    def backward(number: int, wanted: list[bool]) -> Callable[..., torch.Tensor]:
        return lambda d, x, w, b: ATEN.convolution_backward(
            d, x, w, [len(bias)], *settings, wanted
        )[number]

    check_group(
        [
            lambda d, x, w, b: ATEN.convolution(x, w, b, *settings),
            *(backward(k, [True, True, True]) for k in range(3)),
            backward(1, [False, True, False]),
        ],
        torch.randn_like(y), x, w, bias, rtol=1e-5, atol=1e-5,
    )  # fmt: skip


ATTENTION = [
    (torch.float32, False, False),
    (torch.bfloat16, True, False),
    (torch.float32, True, True),
]


@pytest.mark.parametrize(("dtype", "causal", "masked"), ATTENTION, ids=str)
def test_attention(dtype: torch.dtype, causal: bool, masked: bool) -> None:
    """Forward, with the logarithms of the sums, and all three gradients. A mask may hide all keys
    of a query."""
    q, k, v = (torch.randn(2, 2, n, 4).to(dtype) for n in (5, 7, 7))
    mask = torch.randn(5, 7).to(dtype)
    mask[3], mask[1, 2:] = -INF, -INF
    forward = ATEN._scaled_dot_product_flash_attention_for_cpu
    backward = ATEN._scaled_dot_product_flash_attention_for_cpu_backward

    def settings(mask: torch.Tensor) -> dict[str, Any]:
        return {"scale": 0.4, "attn_mask": mask if masked else None}

    out, logarithms = forward(q, k, v, 0.0, causal, **settings(mask))

    def forward_of(number: int) -> Callable[..., torch.Tensor]:
        return lambda q, k, v, m, *_: forward(q, k, v, 0.0, causal, **settings(m))[number]

    def backward_of(number: int) -> Callable[..., torch.Tensor]:
        return lambda q, k, v, m, o, s, d: backward(d, q, k, v, o, s, 0.0, causal, **settings(m))[
            number
        ]

    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
    check_group(
        [*map(forward_of, range(2)), *map(backward_of, range(3))],
        q, k, v, mask, out, logarithms, torch.randn_like(out), rtol=tolerance, atol=tolerance,
    )  # fmt: skip


def test_reductions() -> None:
    x = torch.randn(4, 6, 50)
    x[0, 0, 3], x[0, 1, 4], x[1, 0, 5], x[1, 1, :2] = NAN, INF, -INF, torch.tensor([INF, -INF])
    near: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: x.sum(), lambda x: x.sum(1), lambda x: x.sum((0, 2), keepdim=True),
        lambda x: x.mean(-1), lambda x: x.mean(), lambda x: x.var((0, 2), correction=0),
        lambda x: x.var(2), lambda x: x.std(0),
        lambda x: x[2:].prod(), lambda x: x.softmax(1), lambda x: x.log_softmax(2),
        lambda x: x.logsumexp(2), lambda x: x.sum(1, dtype=torch.float64).float(),
    ]  # fmt: skip
    check_group(near, x, rtol=1e-5, atol=1e-5)
    exact: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: x.amax(1), lambda x: x.amin((0, 2)), lambda x: x.max(), lambda x: x.min(),
        lambda x: (x > 0).any(2), lambda x: (x > -1).all(0), lambda x: (x > 0).sum(),
        lambda x: (x == x).all(), lambda x: x.max(1)[0], lambda x: x.max(1)[1],
        lambda x: (x > 0).max(1)[0], lambda x: (x > 0).max(1)[1],
        lambda x: x.min(2, keepdim=True)[1], lambda x: x.argmax(0), lambda x: x[1].argmin(),
    ]  # fmt: skip
    check_group(exact, x)


def test_operators_that_a_group_takes_apart() -> None:
    """Equal operators share a definition; not those that read one tensor twice."""
    x = torch.randn(6, 16)
    report = check_group(
        [
            functional.mse_loss, lambda x, y: functional.mse_loss(x + 1, x + 1) + x.sum(),
            lambda x, y: functional.mse_loss(y, y), lambda x, y: functional.mse_loss(y, x),
            lambda x, y: functional.layer_norm(x, (16,), y[0], y[1]),
            lambda x, y: functional.group_norm(x, 4, y[0], y[1]),
            lambda x, y: functional.smooth_l1_loss(x, y), lambda x, y: functional.glu(x, 1),
            lambda x, y: functional.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
        ],
        x, torch.randn(6, 16), rtol=1e-5, atol=1e-5,
    )  # fmt: skip
    assert "aten.mse_loss.default" in report.groups[0].operators


POOLS = [
    (2, 2, 0, 1, False),
    (3, 2, 1, 1, False),
    (3, 1, 1, 2, False),
    ((3, 2), (2, 1), (1, 0), 1, True),
]


@pytest.mark.parametrize(("window", "stride", "padding", "dilation", "ceil"), POOLS, ids=str)
def test_max_pooling(window: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> None:
    """The first of the largest; and the gradient, whole: to the place that the forward pass named,
    ties and NaN included."""
    x = torch.randint(-2, 3, (2, 3, 11, 9)).float()
    x[0, 0, 4, 4] = NAN
    settings = (window, stride, padding, dilation, ceil)
    y, positions = ATEN.max_pool2d_with_indices(x, *map(as_pair, settings[:4]), ceil)
    check_group(
        [
            lambda d, x, i: ATEN.max_pool2d_with_indices(x, *map(as_pair, settings[:4]), ceil)[0],
            lambda d, x, i: ATEN.max_pool2d_with_indices(x, *map(as_pair, settings[:4]), ceil)[1],
            lambda d, x, i: ATEN.max_pool2d_with_indices_backward(
                d, x, *map(as_pair, settings[:4]), ceil, i
            ),
        ],
        torch.randn_like(y), x, positions, rtol=1e-6, atol=1e-6,
    )  # fmt: skip


def as_pair(value: Any) -> list[int]:
    return list(value) if isinstance(value, tuple) else [value, value]


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("divisor", [None, 3])
@pytest.mark.parametrize(("window", "stride", "padding", "_", "ceil"), POOLS[1:], ids=str)
def test_average_pooling(
    window: Any, stride: Any, padding: Any, _: Any, ceil: bool, counts: bool, divisor: int | None
) -> None:
    x = torch.randn(2, 3, 11, 9)
    settings = (*map(as_pair, (window, stride, padding)), ceil, counts, divisor)
    y = ATEN.avg_pool2d(x, *settings)
    check_group(
        [
            lambda d, x: ATEN.avg_pool2d(x, *settings),
            lambda d, x: ATEN.avg_pool2d_backward(d, x, *settings),
        ],
        torch.randn_like(y), x, rtol=1e-5, atol=1e-6,
    )  # fmt: skip


def make_larger(x: torch.Tensor) -> torch.Tensor:
    larger = functional.interpolate(x * 2, scale_factor=2, mode="bilinear")
    near = functional.interpolate(larger, size=(7, 15), mode="nearest")
    return functional.interpolate(near, size=(5, 4), mode="bilinear", align_corners=True)


def test_interpolation() -> None:
    """Each is one operator in both graphs, of a group that is not left to eager mode."""
    x, backend = torch.randn(2, 3, 3, 7, requires_grad=True), Backend(measure=False)
    kernels = dict(ATEN.upsample_bilinear2d.default.py_kernels)
    y, expected = torch.compile(make_larger, backend=backend)(x), make_larger(x)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    d = torch.randn_like(y)
    (one,), (two,) = (torch.autograd.grad(each, x, d) for each in (y, expected))
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
    assert [report.eager for report in backend.reports] == [(), ()]
    assert [len(g.operators) for r in backend.reports for g in r.groups] == [4, 4]
    # What PyTorch traces an operator as is changed for this backend alone.
    assert kernels == ATEN.upsample_bilinear2d.default.py_kernels


RESAMPLED: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]] = [
    ("upsample_bilinear2d", (3, 7), (6, 14), (False, 2.0, 2.0)),
    ("upsample_bilinear2d", (3, 7), (5, 1), (True,)),
    ("upsample_linear1d", (11,), (5,), (False,)),
    ("upsample_trilinear3d", (2, 3, 4), (3, 2, 9), (False,)),
    ("upsample_nearest1d", (7,), (9,), (1.3,)),
    ("upsample_nearest2d", (7, 6), (21, 5), ()),
    ("upsample_nearest3d", (2, 3, 4), (4, 2, 9), ()),
    ("_upsample_nearest_exact2d", (6, 5), (4, 15), ()),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_resampling(dtype: torch.dtype) -> None:
    """Each operator and its gradient, in one graph."""
    calls: list[Callable[..., torch.Tensor]] = []
    inputs: list[torch.Tensor] = []
    for name, small, large, settings in RESAMPLED:
        forward, backward = (getattr(ATEN, name + end) for end in ("", "_backward"))
        first, number = torch.randn(2, 3, *small).to(dtype), len(inputs)
        inputs += [first, torch.randn(2, 3, *large).to(dtype)]
        calls.append(lambda *x, f=forward, n=number, s=large, o=settings: f(x[n], s, *o))
        shape = first.shape
        calls.append(
            lambda *x, f=backward, n=number, i=shape, o=settings: f(
                x[n + 1], x[n + 1].shape[2:], i, *o
            )
        )
    within = 0.02 if dtype is torch.bfloat16 else 1e-5
    check_group(calls, *inputs, rtol=within, atol=within)


@pytest.mark.parametrize("offset", [0, 0.5])
def test_nearest_places_are_those_of_eager(offset: float) -> None:
    """Where a place is close to a whole number, its rounding decides."""
    called = ATEN._upsample_nearest_exact1d if offset else ATEN.upsample_nearest1d
    sizes = [(a, b) for a in (3, 5, 7, 10) for b in (7, 9, 15, 21, 49)]
    tensors = [torch.arange(float(a)).reshape(1, 1, a) for a, _ in sizes]
    found, report = run_group(
        lambda *given: [called(x, [b]) for x, (_, b) in zip(given, sizes, strict=True)], tensors
    )
    assert report.eager == ()
    for one, x, (_, b) in zip(found, tensors, sizes, strict=True):
        assert torch.equal(one, called(x, [b]))


def test_other_interpolation_stays_in_eager_mode() -> None:
    """As one operator in each graph: PyTorch's own definitions read by indices."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x.exp(), scale_factor=2, mode="bicubic")

    x, backend = torch.randn(2, 3, 32, 32, requires_grad=True), Backend(measure=False)
    torch.compile(function, backend=backend)(x).sum().backward()
    forward, backward = (report.eager for report in backend.reports)
    assert forward == (("aten.upsample_bicubic2d.default", "it is not mapped"),)
    assert backward == (("aten.upsample_bicubic2d_backward.default", "it is not mapped"),)


def test_interpolation_of_open_sizes() -> None:
    compiled = torch.compile(make_larger, backend=Backend(measure=False), dynamic=True)
    for size in (8, 9):
        x = torch.randn(2, 3, size, size)
        torch.testing.assert_close(compiled(x), make_larger(x), rtol=1e-5, atol=1e-5)


# Models ---------------------------------------------------------------------------------------


GROUPS = {
    "residual block": 2,
    "GELU and layer norm": 2,
    "RMS norm and SiLU": 2,
    "cross entropy": 2,
    "ResNet block": 5,
    "transformer block": 11,
}
"""In how many groups the two graphs of a model are at most."""


def make_model(name: str, dtype: torch.dtype) -> tuple[nn.Module, list[torch.Tensor]]:
    model, inputs = make(name, large=False)
    given = [x.to(dtype).requires_grad_() if x.is_floating_point() else x for x in inputs]
    return model.to(dtype), given


# Where the next layer cuts at zero, a rounding of 16 bits decides which elements have a gradient.
CASES = [(name, torch.float32) for name in MODELS] + [
    (name, torch.bfloat16) for name in MODELS if name not in ("residual block", "ResNet block")
]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_models(name: str, dtype: torch.dtype) -> None:
    """Within 1e-5 of eager, in one graph, with the work that is mapped in few groups."""
    model, inputs = make_model(name, dtype)
    other, backend = copy.deepcopy(model), Backend(measure=False)
    expected = {k: v.clone() for k, v in train(model, model, inputs).items()}
    compiled = torch.compile(other, backend=backend, fullgraph=True)
    found = train(compiled, other, inputs)
    assert found.keys() == expected.keys()
    tolerance = 1e-5 if dtype is torch.float32 else 3e-2
    for key, value in expected.items():
        largest = float(value.float().abs().max())
        torch.testing.assert_close(
            found[key],
            value,
            rtol=tolerance,
            atol=tolerance * max(largest, 0.1),
            msg=lambda t, k=key: f"{k}: {t}",
        )
    assert sum(len(report.groups) for report in backend.reports) <= GROUPS[name]


def test_optimizer_steps() -> None:
    """Five steps of training, compiled once, end where eager's do."""
    model, inputs = make_model("ResNet block", torch.float32)
    other, backend = copy.deepcopy(model), Backend(measure=False)
    for module, run in ((model, model), (other, torch.compile(other, backend=backend))):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            run(*inputs).square().mean().backward()
            optimizer.step()
    assert len(backend.reports) == 2
    for one, two in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)


# What surrounds groups ------------------------------------------------------------------------


def compare(function: Callable[..., Any], *inputs: torch.Tensor, dynamic: bool = False) -> Backend:
    backend = Backend(measure=False)
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    torch.manual_seed(1)
    expected = function(*(x.clone() for x in inputs))
    torch.manual_seed(1)
    found = compiled(*(x.clone() for x in inputs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    return backend


def test_layouts() -> None:
    """Inputs of any strides; results have those that eager gives."""
    x = torch.randn(2, 32, 8, 8).to(memory_format=torch.channels_last)
    backend = Backend(measure=False)
    y = torch.compile(lambda x: functional.relu(x) * 2, backend=backend)(x)
    assert y.stride() == x.stride()
    torch.testing.assert_close(y, functional.relu(x) * 2)
    compare(lambda x: x.sigmoid() + 1, torch.randn(80, 70).t())
    compare(lambda x: x.sigmoid() + 1, torch.randn(80, 70)[::2, 3:])
    compare(lambda x: x.sigmoid() + 1, torch.randn(1, 70).expand(30, 70))


def test_strides_that_were_not_foretold() -> None:
    traced = make_fx(lambda x: [torch.exp(x) + 1], tracing_mode="fake")(torch.randn(40, 30))
    compiled, _ = compile_graph("tested", traced)
    x = torch.randn(30, 40).t()
    torch.testing.assert_close(compiled([x])[0], torch.exp(x) + 1)


def test_views_are_returned_as_views() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(x) * 2
        return x.t(), y.view(-1), y, y[0], x

    compare(function, torch.randn(60, 50))
    x = torch.randn(60, 50)
    found = torch.compile(function, backend=Backend(measure=False))(x)
    assert found[0].data_ptr() == x.data_ptr()
    assert found[4] is x


def test_writes_reach_the_caller() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.mul_(2).add_(x)
        y[3:5] = 7
        return y.relu()

    given = [(torch.randn(40, 40), torch.randn(40, 40))]
    x, y = given[0]
    own, other = y.clone(), y.clone()
    expected = function(x, own)
    found = torch.compile(function, backend=Backend(measure=False))(x, other)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(other, own)


def test_random_numbers_are_those_of_eager() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = functional.dropout(x.relu() + 1, 0.3)
        return functional.dropout(y.tanh() * 2, 0.5) + y

    backend = compare(function, torch.randn(64, 64))
    (report,) = backend.reports
    why = "PyTorch draws random numbers, so that they are those of eager"
    assert report.eager == (("aten.bernoulli.p", why),) * 2


class Calls(TorchDispatchMode):
    """Lists the operators of PyTorch that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.name())
        return func(*args, **(kwargs or {}))


def test_what_is_drawn_waits_for_no_group() -> None:
    """The mask of a dropout is like a tensor that a later group computes: eager does not compute
    that tensor as well, for its sizes alone."""

    def function(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        y = (x.exp() @ w).tanh()
        return [functional.dropout(y, 0.3), torch.full_like(y, 2) @ w]

    x, w = torch.randn(64, 64), torch.randn(64, 64)
    traced = make_fx(function, tracing_mode="fake", decomposition_table=list_decompositions())
    compiled, report = compile_graph("tested", traced(x, w))
    assert "aten.mm.default" in dict(report.eager)
    torch.manual_seed(1)
    expected = function(x, w)
    torch.manual_seed(1)
    with Calls() as calls:
        found = compiled([x, w])
    torch.testing.assert_close(list(found), expected, rtol=1e-5, atol=1e-5)
    assert not calls.names & {"aten::exp", "aten::tanh"}


def test_open_sizes() -> None:
    """Compiled by PyTorch once, and by dmlc for each set of sizes."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (functional.silu(x) @ w).softmax(-1) * x.shape[0]

    backend = Backend(measure=False)
    compiled = torch.compile(function, backend=backend, dynamic=True, fullgraph=True)
    for rows in (40, 33, 40):
        x, w = torch.randn(rows, 30, requires_grad=True), torch.randn(30, 50, requires_grad=True)
        y, expected = compiled(x, w), function(x, w)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
        d = torch.randn_like(y)
        ours = torch.autograd.grad(y, (x, w), d)
        for one, two in zip(ours, torch.autograd.grad(expected, (x, w), d), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
    assert len(backend.reports) == 4


def test_numbers_that_change_every_time() -> None:
    """From some set of numbers on, a graph is left to eager rather than compiled anew."""
    traced = make_fx(lambda x, n: [torch.exp(x) * n], tracing_mode="symbolic")(torch.randn(40), 3)
    backend = Backend(measure=False)
    run = Specializer("tested", traced, backend.reports, most=2)
    x = torch.randn(40)
    for n in (3, 4, 5, 3):
        torch.testing.assert_close(run([x, n])[0], torch.exp(x) * n)
    assert len(backend.reports) == 2


def test_what_is_not_mapped_stays() -> None:
    """Sorting, complex numbers, empty tensors and a lone operator over few elements."""

    def function(x: torch.Tensor) -> Any:
        ordered = torch.sort(x.exp() + 1, dim=1)[0]
        return (
            torch.view_as_real(torch.complex(ordered, ordered) * 2),
            ordered.sum() + 1,
            x[:0].exp(),
            torch.cumsum(ordered * 2 + 1, 0),
        )

    reports = compare(function, torch.randn(40, 40)).reports
    (report,) = reports
    eager = dict(report.eager)
    assert eager["aten.sort.default"] == "it is not mapped"
    assert eager["aten.exp.default"] == "a tensor has no elements"
    assert "complex64" in eager["aten.mul.Tensor"]
    assert "forward: 2 groups" in str(report)
    assert "aten.sort.default: it is not mapped" in str(report)


def test_the_report() -> None:
    model, inputs = make_model("ResNet block", torch.float32)
    first, second = dmlc.torch.report(model, *inputs, measure=False)
    assert (first.name, second.name) == ("forward", "backward")
    assert [name for name, _ in first.eager].count("aten.convolution.default") == 2
    for group in first.groups:
        assert group.kernels == 1
        assert any("batch_norm" in name for name in group.operators)
        assert not any("getitem" in name for name in group.operators)
        assert group.read > 0 < group.written
    assert ("aten.add.Tensor", "these are few operators over few elements") in first.eager


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What a group and eager take, by a clock of the test's own."""
    given = [1e-3, 1e-3]
    monkeypatch.setattr(timing, "measure", lambda runs: given)
    monkeypatch.setattr(timing, "_timings", {})
    return given


def test_eager_computes_what_it_is_faster_at(timings: list[float]) -> None:
    """With its own kernel for each operator, those that a group would take apart included."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x.exp().softmax(1))

    x, backend = torch.randn(64, 64), Backend()
    timings[0] = 1.2e-3
    run = torch.compile(function, backend=backend)
    torch.testing.assert_close(run(x), function(x))
    (report,) = backend.reports
    assert report.groups == ()
    assert "eager is faster: forward_0: 3 operators in" in str(report)
    assert "1,200 us, in eager mode 1,000 us" in str(report)
    with Calls() as calls:
        report_run = compile_graph("tested", trace(function, x), measure=True)[0]([x])
    torch.testing.assert_close(report_run[0], function(x))
    assert calls.names >= {"aten::exp", "aten::_softmax", "aten::gelu"}


@pytest.mark.parametrize(("own", "stays"), [(0.94e-3, True), (0.96e-3, False)])
def test_groups_stay_that_are_faster_than_eager(
    timings: list[float], own: float, stays: bool
) -> None:
    timings[0] = own
    _, report = compile_graph(
        "tested", trace(lambda x: x.exp() + 1, torch.randn(64, 64)), measure=True
    )
    (group,) = report.groups if stays else report.slower
    assert f"{own * 1e6:,.0f} us, in eager mode 1,000 us" in str(group)
    assert len(report.groups) == stays


def test_eager_has_its_own_kernels_for_batch_norm_and_relu(timings: list[float]) -> None:
    """They are what a group is held against, and what is called where it does not pay."""
    model = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU())
    x, backend = torch.randn(4, 8, 12, 12, requires_grad=True), Backend()
    timings[0] = 2e-3
    run = torch.compile(model, backend=backend)
    run(x).sum().backward()
    assert {name for each in backend.reports for g in each.slower for name in g.operators} >= {
        "aten._native_batch_norm_legit_functional.default", "aten.relu.default",
        "aten.threshold_backward.default", "aten.native_batch_norm_backward.default",
    }  # fmt: skip


def test_ratios_of_networks_are_a_table() -> None:
    rows = {"one": {"eager": 2.0, "inductor": 1.0, "dmlc": 2.1}}
    assert networks.show_ratios(rows).splitlines() == [
        "| forward and backward | inductor | dmlc |",
        "| -------------------- | -------- | ---- |",
        "| one                  | 0.50     | 1.05 |",
    ]


def test_groups_are_timed_in_the_thread_that_runs_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of PyTorch's belong to one that calls them. Where it traces, or rounds what operators
    compute, a group computes all the same."""
    seen: list[tuple[threading.Thread, float, torch.dtype]] = []

    def measure(runs: Sequence[Callable[[], Any]]) -> list[float]:
        for run in runs:
            (found,) = run()
            seen.append((threading.current_thread(), float(found.sum()), found.dtype))
        return [1e-3, 2e-3]

    monkeypatch.setattr(timing, "measure", measure)
    monkeypatch.setattr(timing, "_timings", {})
    graph = trace(lambda x: torch.relu(x) + 1, torch.randn(64, 64))
    with FakeTensorMode(), torch.autocast("cpu"):
        compile_graph("tested", graph, measure=True)
    assert seen == [(threading.main_thread(), 8192.0, torch.float32)] * 2


def test_times_of_a_group_are_measured() -> None:
    _, report = compile_graph(
        "tested", trace(lambda x: x.exp() + 1, torch.randn(64, 64)), measure=True
    )
    (group,) = report.groups + report.slower
    assert group.timing is not None
    assert 0 < group.timing.own < 10
    assert 0 < group.timing.eager < 10


def test_eager_may_refuse_ones() -> None:
    """A table of one row has no row 1: the group is not timed, and stays."""
    x, rows = torch.randn(1, 2048), torch.zeros(3, dtype=torch.int64)
    compiled, report = compile_graph(
        "tested", trace(lambda x, i: x[i] * 2 + 1, x, rows), measure=True
    )
    (group,) = report.groups
    assert group.timing is None
    torch.testing.assert_close(compiled([x, rows])[0], x[rows] * 2 + 1)


def test_gradient_of_layer_norm_is_two_kernels() -> None:
    model, inputs = make_model("GELU and layer norm", torch.float32)
    _, backward = dmlc.torch.report(model, *inputs, measure=False)
    assert max(group.kernels for group in backward.groups) == 2


def test_another_device() -> None:
    """Groups computed beside the CPU's tensors, with what is large as well: each that stays would
    cost copies."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (functional.silu(x) @ w).softmax(-1)

    x, w = torch.randn(40, 30, requires_grad=True), torch.randn(30, 50, requires_grad=True)
    backend = Backend(device="vulkan")
    y = torch.compile(function, backend=backend)(x, w)
    torch.testing.assert_close(y, function(x, w), rtol=1e-5, atol=1e-5)
    assert [report.eager for report in backend.reports] == [()]
    options = {"device": "vulkan"}
    y = torch.compile(lambda x: x.relu() + 1, backend="dmlc", options=options)(x)
    torch.testing.assert_close(y, x.relu() + 1)


def test_modes_and_options_that_are_none() -> None:
    x = torch.randn(64, 64)
    for given, message in (
        ({"mode": "gpus"}, "unknown mode of the backend dmlc 'gpus'"),
        ({"options": {"devise": "opencl"}}, "unknown option of the backend dmlc 'devise'"),
    ):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=message):
            torch.compile(lambda x: x.relu() + 1, backend="dmlc", **given)(x)


def test_pytorch_finds_the_backend() -> None:
    """By its name, once `dmlc.torch.backend` is imported; and by the entry point if installed."""
    project = tomllib.loads((build.ROOT / "pyproject.toml").read_text())
    points = project["project"]["entry-points"]["torch_dynamo_backends"]
    assert points == {"dmlc": "dmlc.torch.backend:compile_module"}
    x = torch.randn(64, 64)
    torch.testing.assert_close(
        torch.compile(lambda x: x.relu() + 1, backend="dmlc")(x), x.relu() + 1
    )


# Networks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["encoder-decoder", "language model", "radiance field"])
def test_networks(name: str) -> None:
    """Result, gradients and running statistics of whole networks, with the random numbers of eager;
    only products, attention and random numbers are left to eager."""
    model, inputs = networks.make(name, large=False)
    other, backend = copy.deepcopy(model), Backend(measure=False)
    expected = {k: v.clone() for k, v in networks.step(model, model, inputs).items()}
    compiled = torch.compile(other, backend=backend, fullgraph=True)
    found = networks.step(compiled, other, inputs)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        largest = float(value.abs().max())
        torch.testing.assert_close(
            found[key],
            value,
            rtol=1e-4,
            atol=1e-4 * max(largest, 0.1),
            msg=lambda t, k=key: f"{k}: {t}",
        )
    reasons = {why for report in backend.reports for _, why in report.eager}
    wanted = ("PyTorch's own", "PyTorch draws", "these are few")
    assert [why for why in reasons if not why.startswith(wanted)] == []
