"""ReLU gradient, done by everyone who is here: dmlc, NumPy, PyTorch and numexpr.

Each contender is a function without arguments over arrays fixed beforehand, and the array it
leaves its result in, so that results can be compared before anything is timed.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlc
from benchmarks.naive import make_naive
from benchmarks.task import Array, Contender, Peer, Task
from dmlc.runtime import vulkan
from dmlc.scalars import data_type_of

OPERATOR = "directml.ACTIVATION_RELU_GRAD"


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """The arrays of one type and size."""

    x: Array
    dy: Array
    out: Array
    expected: Array

    @staticmethod
    def make(dtype: npt.DTypeLike, count: int) -> Case:
        random = np.random.default_rng(1)
        x, dy = (random.standard_normal(count, np.float32).astype(dtype) for _ in range(2))
        return Case(x, dy, np.zeros_like(x), np.where(x > 0, dy, x.dtype.type(0)))

    @property
    def reads(self) -> tuple[Array, ...]:
        return self.x, self.dy

    def accepts(self, result: Array) -> bool:
        """Whether a result is right."""
        return np.array_equal(result, self.expected)


def make_task(case: Case) -> Task:
    """The benchmark of a type and size."""
    inputs = {"InputTensor": case.x, "InputGradientTensor": case.dy}
    data_type = data_type_of(case.x.dtype)
    assert data_type is not None

    def torch(torch: Any, put: Callable[[Array], Any]) -> Peer:
        x, dy = put(case.x), put(case.dy)

        def formula(dy: Any, x: Any) -> Any:
            return torch.where(x > 0, dy, 0)

        backward = torch.ops.aten.threshold_backward
        return Peer(lambda: backward(dy, x, 0), formula, (dy, x))

    return Task(
        dmlc.operator(OPERATOR).bind({n: dmlc.TensorDesc(data_type) for n in inputs}),
        inputs,
        {"OutputGradientTensor": case.out},
        "OutputGradientTensor",
        case.accepts,
        case.x.nbytes + case.dy.nbytes + case.out.nbytes,
        torch,
    )


def contenders(case: Case, threads: int) -> Iterator[Contender]:
    """Everyone who is installed and can do this type."""
    yield from _dmlc(case)
    zero = case.x.dtype.type(0)

    def numpy_where() -> Array:
        return np.where(case.x > zero, case.dy, zero)

    yield Contender("NumPy where", numpy_where, numpy_where)
    if importlib.util.find_spec("torch"):
        yield from _torch(case, threads)
    if importlib.util.find_spec("numexpr") and case.x.dtype == np.float32:
        yield from _numexpr(case, threads)


def _dmlc(case: Case) -> Iterator[Contender]:
    data_type = data_type_of(case.x.dtype)
    assert data_type is not None
    described = {n: dmlc.TensorDesc(data_type) for n in ("InputTensor", "InputGradientTensor")}
    function = dmlc.operator(OPERATOR).bind(described)
    executable = dmlc.load_program(dmlc.compile(function))
    inputs = {"InputTensor": case.x, "InputGradientTensor": case.dy}
    outputs = {"OutputGradientTensor": case.out}
    call = executable.bind(inputs, outputs)
    yield Contender("dmlc bound call", call, lambda: case.out)
    yield Contender("dmlc executable, out=", lambda: executable(inputs, outputs), lambda: case.out)
    yield Contender(
        "dmlc executable, new",
        lambda: executable(inputs),
        lambda: executable(inputs)["OutputGradientTensor"],
    )
    yield Contender(
        "dmlc.run, new",
        lambda: dmlc.run(OPERATOR, inputs),
        lambda: dmlc.run(OPERATOR, inputs)["OutputGradientTensor"],
    )


def vulkan_contenders(case: Case) -> Iterator[Contender]:
    """The HLSL on a Vulkan device, and the plainest HLSL there is; nobody without a device."""
    try:
        vulkan.find_device()
    except dmlc.UnavailableError:
        return
    data_type = data_type_of(case.x.dtype)
    assert data_type is not None
    described = {n: dmlc.TensorDesc(data_type) for n in ("InputTensor", "InputGradientTensor")}
    generated = dmlc.compile(dmlc.operator(OPERATOR).bind(described), "hlsl")
    inputs = {"InputTensor": case.x, "InputGradientTensor": case.dy}
    outputs = {"OutputGradientTensor": case.out}
    for name, program in (
        ("dmlc on Vulkan, bound call", generated),
        ("naive HLSL on Vulkan", make_naive(data_type)),
    ):
        call = vulkan.load(program).bind(inputs, outputs)
        yield Contender(name, call, lambda: case.out)


def _torch(case: Case, threads: int) -> Iterator[Contender]:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    x, dy, out = (torch.from_numpy(a) for a in (case.x, case.dy, case.out))
    backward = torch.ops.aten.threshold_backward
    into = backward.grad_input
    yield Contender("PyTorch eager, out=", lambda: into(dy, x, 0, grad_input=out), lambda: case.out)
    yield Contender(
        "PyTorch eager, new", lambda: backward(dy, x, 0), lambda: backward(dy, x, 0).numpy()
    )


def _numexpr(case: Case, threads: int) -> Iterator[Contender]:
    numexpr: Any = importlib.import_module("numexpr")
    numexpr.set_num_threads(threads)
    names = {"x": case.x, "dy": case.dy, "zero": case.x.dtype.type(0)}

    def evaluate() -> object:
        return numexpr.evaluate("where(x > zero, dy, zero)", names, out=case.out)

    yield Contender("numexpr, out=", evaluate, lambda: case.out)
