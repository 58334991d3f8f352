"""Pooling and interpolation in groups of the backend, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from dmlc.torch.backend import Backend
from tests.peers.torch_graphs import ATEN, NAN, check_group, run_group

pytestmark = pytest.mark.usefixtures("forget")


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
