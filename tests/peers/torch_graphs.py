"""Graphs of PyTorch that several tests compile with the backend, beside eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.torch_models import make
from dmlc.torch.backend import Backend, compile_graph
from dmlc.torch.decompositions import list_decompositions
from dmlc.torch.reports import GraphReport

ATEN = torch.ops.aten
NAN, INF = float("nan"), float("inf")
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-30, -1e30, 88.0]


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


def make_model(name: str, dtype: torch.dtype) -> tuple[nn.Module, list[torch.Tensor]]:
    model, inputs = make(name, large=False)
    given = [x.to(dtype).requires_grad_() if x.is_floating_point() else x for x in inputs]
    return model.to(dtype), given


def compare(function: Callable[..., Any], *inputs: torch.Tensor, dynamic: bool = False) -> Backend:
    backend = Backend(measure=False)
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    torch.manual_seed(1)
    expected = function(*(x.clone() for x in inputs))
    torch.manual_seed(1)
    found = compiled(*(x.clone() for x in inputs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    return backend


class Calls(TorchDispatchMode):
    """Lists the operators of PyTorch that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.name())
        return func(*args, **(kwargs or {}))
