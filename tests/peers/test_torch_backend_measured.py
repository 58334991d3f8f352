"""Groups, and steps as a whole, that the backend holds against eager."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional

from dmlc.torch import steps, timing
from dmlc.torch.backend import Backend, compile_graph
from tests.peers.torch_graphs import Calls, trace

pytestmark = pytest.mark.usefixtures("forget")


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


# Steps ----------------------------------------------------------------------------------------


Steps = list[Callable[[], object]]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, timings: list[float]) -> list[Steps]:
    """The steps that are held against eager: dmlc is faster at each group, eager at each step."""
    found: list[Steps] = []

    def measure(runs: Steps, enough: float) -> list[float]:
        found.append(runs)
        return [2.1e-3, 2e-3]

    timings[0] = 5e-4
    monkeypatch.setattr(steps, "measure", measure)
    return found


def make_small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(0.5), nn.LayerNorm(64))


@pytest.mark.parametrize("own", [1.9e-3, 2.1e-3])
def test_steps_are_held_against_eager(
    measured: list[Steps], monkeypatch: pytest.MonkeyPatch, own: float
) -> None:
    """Once the gradient is compiled, on copies: no step notices, by its random numbers or by its
    running statistics. If eager is faster, what it computes is equal to the last bit."""

    def measure(runs: Steps, enough: float) -> list[float]:
        measured.append(runs)
        return [own, 2e-3]

    monkeypatch.setattr(steps, "measure", measure)
    model, other, backend = make_small(), make_small(), Backend()
    compiled, x = torch.compile(other, backend=backend), torch.randn(32, 64)
    for number in range(3):
        found: list[list[torch.Tensor]] = []
        for module, run in ((model, model), (other, compiled)):
            torch.manual_seed(number)
            module.zero_grad()
            y = run(x)
            y.square().sum().backward()
            found.append([y, *(p.grad for p in module.parameters())])
        for expected, got in zip(*found, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        for expected, got in zip(model.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
        assert len(measured) == min(number, 1)
    own_is_faster = own < 2e-3
    assert all(map(torch.equal, *found)) != own_is_faster
    for report in backend.reports:
        assert bool(report.groups) == own_is_faster
        assert bool(report.slower) != own_is_faster
        assert f"a step takes {own * 1e6:,.0f} us, in eager mode 2,000 us" in str(report)


def test_a_call_without_a_gradient_is_held_against_eager_at_once(measured: list[Steps]) -> None:
    x, backend = torch.randn(64, 64), Backend()
    run = torch.compile(lambda x: x.exp() + 1, backend=backend)
    assert torch.equal(run(x), x.exp() + 1)
    assert len(measured) == 1
    assert "forward: 0 groups; a step takes 2,100 us" in str(backend.reports[0])


def test_a_graph_of_which_no_group_stays_is_not_measured(
    measured: list[Steps], timings: list[float]
) -> None:
    timings[0] = 2e-3
    x, backend = torch.randn(64, 64), Backend()
    assert torch.equal(torch.compile(lambda x: x.exp() + 1, backend=backend)(x), x.exp() + 1)
    assert measured == []
    assert [len(report.slower) for report in backend.reports] == [1]


def test_steps_that_are_not_measured(measured: list[Steps]) -> None:
    """A second run of an operator of others might do more than compute, copies of tensors that
    share memory would not share it, and open sizes have many times."""
    counted = torch.zeros((), dtype=torch.int64)

    @torch.library.custom_op("tested::count", mutates_args=())
    def count(x: torch.Tensor) -> torch.Tensor:
        counted.add_(1)
        return x.clone()

    count.register_fake(torch.empty_like)
    x = torch.randn(64, 64)
    for function, inputs, dynamic in (
        (lambda x: count(x.exp() + 1) + 1, [x], False),
        (lambda x, y: x.exp() + y.exp(), [x[:32], x[32:]], False),
        (lambda x: x.exp() + 1, [x], True),
    ):
        torch._dynamo.reset()
        backend = Backend()
        run = torch.compile(function, backend=backend, dynamic=dynamic)
        for _ in range(2):
            torch.testing.assert_close(run(*inputs), function(*inputs))
        assert [report.step for report in backend.reports] == [None]
        assert all(report.groups for report in backend.reports)
    assert measured == []
    assert counted == 4
