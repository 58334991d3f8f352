"""Times of a group and of the same nodes in eager mode, measured on the machine that runs them.

One kernel for many nodes moves less memory than PyTorch's one kernel per node, but PyTorch's are
hand-written for the processor, with its widest vectors. A group that does not pay is left to eager.

A group is timed in the conditions of a step: in the thread that runs steps, after a product of
PyTorch's. After each operator, PyTorch's threads wait for the next one without sleeping, for some
milliseconds, on the cores that OpenCL's threads need. Another thread would have other threads of
PyTorch's, and with more threads than cores all would sleep at once: a group would seem faster there
than it is, and eager slower."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch.fx import Graph, GraphModule

from dmlc.torch.call import Call, make_ones
from dmlc.torch.copying import Copier
from dmlc.torch.groups import Group
from dmlc.torch.internals import untraced

WORTH = 0.95
"""A group is computed here if it takes at most this share of eager's time. A smaller gain is within
the noise, and lost to what a step has and a measurement has not, such as other groups' memory."""

_ROUNDS = 9
_LEAST_ROUNDS = 3
_ENOUGH = 0.3
"""Seconds after which a group is not run again."""

_SIDE = 192
"""Rows and columns of the product before a group, which takes a tenth of a millisecond on all
threads."""


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """Median times of a group, in seconds: with kernels of dmlc, and with calls of PyTorch's
    operators."""

    own: float
    eager: float

    def __str__(self) -> str:
        return f"{self.own * 1e6:,.0f} us, in eager mode {self.eager * 1e6:,.0f} us"

    @property
    def loses(self) -> bool:
        """Whether the group is slower than eager."""
        return self.own > WORTH * self.eager


_KEPT = 1024
_timings: dict[object, Timing | None] = {}


def time_group(group: Group, call: Call) -> Timing | None:
    """Times of a group, on ones; those of an equal group are reused. None if eager refuses ones,
    such as an index of 1 into a single row."""
    key = (group.function, tuple(node.target for node in group.members))
    if key not in _timings:
        if len(_timings) >= _KEPT:
            _timings.clear()
        with untraced():
            _timings[key] = _time_group(group, call)
    return _timings[key]


def _time_group(group: Group, call: Call) -> Timing | None:
    inputs = make_ones(call)
    eager = make_eager(group)
    try:
        eager(*inputs)
    except (IndexError, RuntimeError):
        return None
    own, other = measure([lambda: call(*inputs), lambda: eager(*inputs)])
    return Timing(own, other)


def make_eager(group: Group) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Function that computes a group's outputs from its inputs by calls of PyTorch's operators."""
    graph = Graph()
    copier = Copier(graph, {node: graph.placeholder(node.name) for node in group.inputs})
    for node in group.members:
        copier.copy(node)
    graph.output(tuple(copier.made[node] for node in group.outputs))
    return GraphModule({}, graph).forward


def measure(runs: Sequence[Callable[[], object]], enough: float = _ENOUGH) -> list[float]:
    """Median time of each function, in seconds. They run alternately, so that load on the machine
    affects all of them, and none is run again after `enough` seconds."""
    side = torch.ones(_SIDE, _SIDE)
    made = torch.empty_like(side)
    found: list[list[float]] = [[] for _ in runs]
    start = time.perf_counter()
    for number in range(_ROUNDS):
        if number >= _LEAST_ROUNDS and time.perf_counter() - start > enough:
            break
        for run, times in zip(runs, found, strict=True):
            torch.mm(side, side, out=made)
            before = time.perf_counter()
            run()
            times.append(time.perf_counter() - before)
    return [statistics.median(times) for times in found]
