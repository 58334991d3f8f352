"""What a call costs at 1,000 elements, where it is all that there is: ReLU, called in every way.

The work itself takes a tenth of a microsecond. PyTorch's own `relu` is what the others are held
against: its dispatcher, its memory and a kernel in C++.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np

import dmlc
from benchmarks.measure import measure, repeats_for, sample
from benchmarks.task import Array, Contender

OPERATOR = "directml.ACTIVATION_RELU"
COUNT = 1000
BASELINE = "torch.relu"


def time_calls(rounds: int) -> dict[str, float]:
    """Median seconds of every contender, once it has been seen to give the right result."""
    x = np.random.default_rng(1).standard_normal(COUNT, np.float32)
    samplers: dict[str, functools.partial[float]] = {}
    for contender in contenders(x):
        if not np.array_equal(contender.result(), np.maximum(x, 0)):
            raise SystemExit(f"{contender.name} gives a wrong result")
        # Short samples: a machine that does something else spoils fewer of them.
        repeats = max(1, repeats_for(contender.run) // 10)
        samplers[contender.name] = functools.partial(sample, contender.run, repeats)
    return measure(samplers, rounds)


def contenders(x: Array) -> Iterator[Contender]:
    """Everyone who is installed."""
    if importlib.util.find_spec("torch"):
        yield from _torch(x)
    function = dmlc.operator(OPERATOR).bind({"InputTensor": dmlc.TensorDesc("FLOAT32", x.shape)})
    executable = dmlc.load_program(dmlc.compile(function))
    out = np.empty_like(x)
    inputs, outputs = {"InputTensor": x}, {"OutputTensor": out}
    call = executable.bind(inputs, outputs)
    yield Contender("dmlc bound call", call, lambda: call()["OutputTensor"])
    for name, run in (
        ("dmlc executable, out=", functools.partial(executable, inputs, outputs)),
        ("dmlc executable, new", functools.partial(executable, inputs)),
        ("dmlc.run, new", functools.partial(dmlc.run, OPERATOR, inputs)),
    ):
        yield Contender(name, run, lambda run=run: run()["OutputTensor"])


def _torch(x: Array) -> Iterator[Contender]:
    torch: Any = importlib.import_module("torch")
    given = torch.from_numpy(x)
    registered = dmlc.torch.register(OPERATOR)
    custom = torch.library.custom_op("benchmarks::relu", mutates_args=())(_run_on_arrays(torch))
    calls = {
        BASELINE: torch.relu,
        "dmlc.torch.register": registered,
        "custom_op around dmlc.run": custom,
        # Left to itself, the backend leaves one operator over so few elements to eager.
        "torch.compile, backend dmlc": torch.compile(torch.relu, backend=dmlc.torch.Backend(0)),
    }
    for name, call in calls.items():
        run = functools.partial(call, given)
        yield Contender(name, run, lambda run=run: run().numpy())
    leaf = torch.from_numpy(x).requires_grad_()
    for name in (BASELINE, "dmlc.torch.register"):
        run = functools.partial(_train, torch, calls[name], leaf, given)
        yield Contender(f"{name}, and backward", run, lambda: np.maximum(x, 0))


def _run_on_arrays(torch: Any) -> Any:
    """What wraps `dmlc.run` for `custom_op`, which reads the types of its parameters."""

    def relu(x: Any) -> Any:
        return torch.from_numpy(dmlc.run(OPERATOR, {"InputTensor": x.numpy()})["OutputTensor"])

    relu.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    return relu


def _train(torch: Any, call: Any, leaf: Any, arriving: Any) -> None:
    """A call and the gradient of its input."""
    torch.autograd.grad(call(leaf), leaf, arriving)
