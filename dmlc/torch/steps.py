"""Timing of a traced graph with its gradient against eager, on the inputs of a call.

Each group that stays is faster than eager. The graph around them may still be slower: Python calls
the operators left to eager one by one, and their results are new tensors where eager accumulates in
place. So the whole step is timed too, once its gradient is compiled, and eager computes a graph
that it is faster at."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule
from torch.utils._pytree import tree_leaves

from dmlc.torch.reports import GraphReport
from dmlc.torch.timing import Timing, measure

Run = Callable[..., Any]

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)

_REPEATABLE = ("aten", "prims")
"""The namespaces of operators that compute their results and do nothing else."""

_ENOUGH = 1.5
"""Seconds after which a step is not run again."""


def needs_gradient(value: object) -> bool:
    """Whether a value is a tensor that requires a gradient."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def run_step(run: Run, inputs: Sequence[Any], sources: Sequence[torch.Tensor]) -> None:
    """Calls a function, and computes the gradient of its results with respect to `sources`, without
    accumulating it."""
    wanted = [y for y in tree_leaves(run(*inputs)) if needs_gradient(y)]
    if sources and wanted:
        ones = [torch.ones_like(y) for y in wanted]
        torch.autograd.grad(wanted, sources, ones, allow_unused=True)


def is_repeatable(graph: Graph) -> bool:
    """Whether running a graph again affects nothing but its results, its inputs, and the state of
    the random number generator."""
    named = (getattr(node.target, "namespace", None) for node in graph.nodes)
    return all(name in _REPEATABLE for name in named if name is not None)


class Step:
    """Traced module, and its compiled form, which calls run.

    Once the graphs that a call needs are compiled, gradients included, one further call first times
    both on copies of its inputs: if eager is faster, or if no group stayed, the module runs from
    then on. Graphs with symbolic sizes, graphs that call operators of other libraries, and those
    whose inputs share memory are not timed."""

    def __init__(self, module: GraphModule, reports: list[GraphReport], measured: bool) -> None:
        self._module = module
        self._reports = reports
        """The reports of all modules, which a measurement is noted in."""
        self._own: list[GraphReport] = []
        self._pending = measured and not (*module.parameters(), *module.buffers())
        self.compiled: Run = module

    def add(self, graph: Graph, report: GraphReport) -> None:
        """Adds a graph, with sizes that are numbers, to which the module was compiled."""
        self._own.append(report)
        self._reports.append(report)
        self._pending = self._pending and is_repeatable(graph)

    def __call__(self, *inputs: Any) -> Any:
        if self._pending and len(self._own) == 1 + _wants_gradient(inputs):
            self._pending = False
            self._decide(inputs)
        return self.compiled(*inputs)

    def _decide(self, inputs: Sequence[Any]) -> None:
        if not any(report.groups for report in self._own):
            self.compiled = self._module.forward
            return
        timing = _time_step([self.compiled, self._module.forward], inputs)
        if timing is None:
            return
        own = {id(report) for report in self._own}
        for number, report in enumerate(self._reports):
            if id(report) in own:
                self._reports[number] = report.hold_against_eager(timing)
        if timing.own > timing.eager:
            self.compiled = self._module.forward


def _wants_gradient(inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(map(needs_gradient, inputs))


def _time_step(runs: Sequence[Run], inputs: Sequence[Any]) -> Timing | None:
    """Seconds of a step with dmlc and in eager mode. None if copies cannot replace the inputs: they
    share memory, are not all CPU tensors, or eager refuses to write to a copy."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if any(type(x) not in _PLAIN or x.layout is not torch.strided for x in tensors):
        return None
    if any(x.device.type != "cpu" for x in tensors) or _share_memory(tensors):
        return None
    given = [_copy(x) if isinstance(x, torch.Tensor) else x for x in inputs]
    sources = [x for x in given if needs_gradient(x)] if torch.is_grad_enabled() else []
    with cast("Any", torch.random).fork_rng(devices=()):
        steps = [functools.partial(run_step, run, given, sources) for run in runs]
        with contextlib.suppress(RuntimeError):
            for step in steps:
                step()
            return Timing(*measure(steps, _ENOUGH))
    return None


def _share_memory(tensors: Sequence[torch.Tensor]) -> bool:
    places = [x.untyped_storage().data_ptr() for x in tensors if x.numel()]
    return len(set(places)) < len(places)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Tensor of the same layout over a copy of its memory."""
    memory = tensor.untyped_storage().clone()
    made = torch.empty(0, dtype=tensor.dtype)
    made.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
    return made.requires_grad_(tensor.requires_grad)
