"""The training gradient of batch normalization, done by everyone who is here."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlc
from benchmarks import task
from benchmarks.task import Array, Contender, Peer, Task

OPERATOR = "directml.BATCH_NORMALIZATION_TRAINING_GRAD"
EPSILON = 1e-5

SHAPES = {
    "(32, 64, 56, 56)": (32, 64, 56, 56),
    "(8, 256, 14, 14)": (8, 256, 14, 14),
    "(128, 1024)": (128, 1024),
}
"""Axis 1 has the channels."""

_NEAR = {"float32": 2e-4, "float16": 5e-3}
"""How far a result may be from the formula in float64, as a part of its largest element."""


_ALIGNMENT = 64


def align(values: Array) -> Array:
    """A copy that starts on a cache line, as every contender's own memory does."""
    memory = np.empty(values.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    made = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """The arrays of one type and shape; `x`, `dy` and `out` are the large ones."""

    x: Array
    dy: Array
    out: Array
    mean: Array
    variance: Array
    scale: Array
    expected: Array

    @staticmethod
    def make(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Case:
        random = np.random.default_rng(1)
        x, dy = (align(random.standard_normal(shape, np.float32).astype(dtype)) for _ in range(2))
        axes = tuple(a for a in range(len(shape)) if a != 1)
        wide, gradient = x.astype(np.float64), dy.astype(np.float64)
        mean = wide.mean(axes, keepdims=True).astype(dtype)
        variance = wide.var(axes, keepdims=True).astype(dtype)
        scale: Array = random.uniform(0.5, 2, mean.shape).astype(dtype)
        centered: Array = wide - mean
        spread: Array = variance.astype(np.float64) + EPSILON
        inner: Array = (gradient * centered).mean(axes, keepdims=True)
        inner = gradient - gradient.mean(axes, keepdims=True) - centered * inner / spread
        expected: Array = scale / np.sqrt(spread) * inner
        return Case(x, dy, align(np.zeros_like(x)), mean, variance, scale, expected)

    @property
    def reads(self) -> tuple[Array, ...]:
        return self.x, self.dy

    def accepts(self, result: Array) -> bool:
        """Whether a gradient of the input is right."""
        apart = np.abs(result.astype(np.float64).reshape(self.expected.shape) - self.expected)
        return bool(apart.max() <= _NEAR[self.x.dtype.name] * np.abs(self.expected).max())


def make_task(case: Case) -> Task:
    """The benchmark of a type and shape."""
    inputs = {
        "InputTensor": case.x,
        "InputGradientTensor": case.dy,
        "MeanTensor": case.mean,
        "VarianceTensor": case.variance,
        "ScaleTensor": case.scale,
    }
    described = {n: dmlc.TensorDesc(str(a.dtype).upper(), a.shape) for n, a in inputs.items()}
    outputs = {
        "OutputGradientTensor": case.out,
        "OutputScaleGradientTensor": np.empty_like(case.mean),
        "OutputBiasGradientTensor": np.empty_like(case.mean),
    }

    def torch(torch: Any, put: Callable[[Array], Any]) -> Peer:
        x, dy = put(case.x), put(case.dy)
        # The statistics as a forward pass saves them: float32 for float16 tensors too.
        mean, scale = (put(a.ravel()).float() for a in (case.mean, case.scale))
        deviation = 1 / torch.sqrt(put(case.variance.ravel()).float() + EPSILON)
        backward = torch.ops.aten.native_batch_norm_backward

        def eager() -> Any:
            return backward(
                dy, x, scale, None, None, mean, deviation, True, EPSILON, [True, True, True]
            )

        return Peer(eager, differentiate, (dy, x, mean, deviation, scale))

    return Task(
        dmlc.operator(OPERATOR).bind(described, {"Epsilon": EPSILON}),
        inputs,
        outputs,
        "OutputGradientTensor",
        case.accepts,
        case.x.nbytes + case.dy.nbytes + case.out.nbytes,
        torch,
    )


def contenders(case: Case, threads: int) -> Iterator[Contender]:
    """Everyone who is installed and can do this type."""
    yield from task.contenders(make_task(case), threads)
    if importlib.util.find_spec("jax") and case.x.dtype == np.float32:
        yield _jax(case)


def differentiate(dy: Any, x: Any, mean: Any, deviation: Any, scale: Any) -> Any:
    """The formula in PyTorch: the gradients of the input, the scale and the bias."""
    axes = [a for a in range(x.dim()) if a != 1]
    sizes = [-1 if a == 1 else 1 for a in range(x.dim())]
    gradient, centered = dy.float(), x.float() - mean.view(sizes)
    first = gradient.sum(axes)
    second = (gradient * centered).sum(axes) * deviation
    part = x.numel() / x.shape[1]
    inner = gradient - (first / part).view(sizes)
    inner = inner - centered * (second * deviation / part).view(sizes)
    return (inner * (scale * deviation).view(sizes)).to(dy.dtype), second, first


def _jax(case: Case) -> Contender:
    jax: Any = importlib.import_module("jax")
    given = [jax.numpy.asarray(a) for a in (case.dy, case.x, case.mean, case.variance, case.scale)]
    axes = tuple(a for a in range(case.x.ndim) if a != 1)

    @jax.jit
    def formula(dy: Any, x: Any, mean: Any, variance: Any, scale: Any) -> Any:
        centered, spread = x - mean, variance + EPSILON
        inner = (dy * centered).mean(axes, keepdims=True) / spread
        dx = scale / jax.numpy.sqrt(spread)
        dx = dx * (dy - dy.mean(axes, keepdims=True) - centered * inner)
        return dx, (dy * centered).sum(axes), dy.sum(axes)

    def run() -> Any:
        return jax.block_until_ready(formula(*given))

    return Contender("JAX", run, lambda: np.asarray(run()[0]))
