"""One benchmark, whoever does it: what is computed of which arrays, and how PyTorch does it."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy.typing as npt

import dmlc

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Contender:
    name: str
    run: Callable[[], object]
    """One pass. What it returns, or `out`, is the result."""
    result: Callable[[], Array]


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """The same in PyTorch. Each gives the result, or a tuple that it is the first of."""

    eager: Callable[[], Any]
    formula: Callable[..., Any] | None = None
    """What `torch.compile` takes; None where there is no formula to compile."""
    arguments: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A function, and the arrays that it is timed on."""

    function: dmlc.ir.Function
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    result: str
    """The output that is looked at."""
    accepts: Callable[[Array], bool]
    """Whether it is right."""
    moved: int
    """The bytes of the large tensors that it reads and writes."""
    torch: Callable[[Any, Callable[[Array], Any]], Peer] | None = None
    """Given the module, and what makes a tensor on a device of an array; None where PyTorch has
    nothing like it."""


def take_first(given: Any) -> Any:
    """The result of a peer."""
    return cast("tuple[Any, ...]", given)[0] if isinstance(given, tuple) else given


def contenders(task: Task, threads: int) -> Iterator[Contender]:
    """dmlc on the default device, and PyTorch on the CPU where it is installed."""
    out = task.outputs[task.result]
    executable = dmlc.load_program(dmlc.compile(task.function))
    call = executable.bind(task.inputs, task.outputs)
    yield Contender("dmlc bound call", call, lambda: out)
    yield Contender(
        "dmlc executable, out=", lambda: executable(task.inputs, task.outputs), lambda: out
    )
    if task.torch is None or not importlib.util.find_spec("torch"):
        return
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    peer = task.torch(torch, torch.from_numpy)
    yield Contender("PyTorch eager", peer.eager, lambda: take_first(peer.eager()).numpy())
    if peer.formula is not None:
        compiled = torch.compile(peer.formula)

        def fused() -> Any:
            return compiled(*peer.arguments)

        yield Contender("torch.compile", fused, lambda: take_first(fused()).numpy())
