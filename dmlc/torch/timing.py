"""How long a group takes, and how long eager takes for the same nodes: measured where it runs.

One kernel for many nodes moves less memory than PyTorch's one for each, but PyTorch's are written
by hand for the processor, with its widest vectors. A group that is slower is left to eager.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.fx import Graph, GraphModule

from dmlc.torch.call import Call, make_ones
from dmlc.torch.copying import Copier
from dmlc.torch.groups import Group

SLACK = 1.05
"""A group is left to eager if it takes this many times as long: less is within the noise."""

_ROUNDS = 9
_LEAST_ROUNDS = 3
_ENOUGH = 0.3
"""Seconds after which a group is not run again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """The shortest times of a group, in seconds: as kernels of dmlc, and as calls of PyTorch's."""

    own: float
    eager: float

    def __str__(self) -> str:
        return f"{self.own * 1e6:,.0f} us, in eager mode {self.eager * 1e6:,.0f} us"

    @property
    def loses(self) -> bool:
        """Whether eager is faster."""
        return self.own > SLACK * self.eager


_KEPT = 1024
_timings: dict[object, Timing | None] = {}


def time_group(group: Group, call: Call) -> Timing | None:
    """The times of a group, on ones; those of an equal group are taken again. None where eager
    refuses ones, as an index of one into a single row."""
    key = (group.function, tuple(node.target for node in group.members))
    if key not in _timings:
        if len(_timings) >= _KEPT:
            _timings.clear()
        # PyTorch traces in this thread, where tensors have no elements then.
        with ThreadPoolExecutor(1) as other:
            _timings[key] = other.submit(_time_group, group, call).result()
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
    """What computes a group's outputs from its inputs by calls of PyTorch's operators."""
    graph = Graph()
    copier = Copier(graph, {node: graph.placeholder(node.name) for node in group.inputs})
    for node in group.members:
        copier.copy(node)
    graph.output(tuple(copier.made[node] for node in group.outputs))
    return GraphModule({}, graph).forward


def measure(runs: Sequence[Callable[[], object]]) -> list[float]:
    """The shortest time of each, in seconds. They take turns, so that a load on the machine meets
    all of them."""
    shortest = [float("inf")] * len(runs)
    start = time.perf_counter()
    for number in range(_ROUNDS):
        if number >= _LEAST_ROUNDS and time.perf_counter() - start > _ENOUGH:
            break
        for k, run in enumerate(runs):
            before = time.perf_counter()
            run()
            shortest[k] = min(shortest[k], time.perf_counter() - before)
    return shortest
