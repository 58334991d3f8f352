"""Operators of PyTorch in groups of the backend, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.peers.torch_graphs import ATEN, INF, NAN, SPECIAL, check_group, run_group, special

pytestmark = pytest.mark.usefixtures("forget")


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
