"""The backend of `torch.compile`: inputs and results of groups, what stays, and its options."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import dmlc
from dmlc.torch.backend import Backend, Specializer, compile_graph
from dmlc.torch.decompositions import list_decompositions
from docs import build
from tests.peers.torch_graphs import Calls, compare, make_model

pytestmark = pytest.mark.usefixtures("forget")


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
