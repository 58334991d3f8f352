"""The gradient of batch normalization while training, done by dmlc and PyTorch.

Both read the input and its gradient and write a gradient of the same size, and one for the scale
and one for the bias. Statistics are per channel, axis 1. NumPy in float64 says what is right.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlc
from benchmarks.contenders import Contender
from dmlc import ir

Array = npt.NDArray[Any]

SHAPES: dict[str, tuple[int, ...]] = {
    "32x64x56x56": (32, 64, 56, 56),
    "8x256x14x14": (8, 256, 14, 14),
    "128x1024": (128, 1024),
}

EPSILON = 1e-3
_TOLERANCE = {"float32": 1e-4, "float16": 2e-2}
_ALIGNMENT = 64


class Case:
    """The arrays of one type and shape, and the gradients they lead to."""

    def __init__(self, dtype: npt.DTypeLike, shape: Sequence[int]) -> None:
        random = np.random.default_rng(1)
        self.shape = tuple(shape)
        self.channels = shape[1]
        self.dtype = np.dtype(dtype)
        self.x, self.dy = (self._array(random.standard_normal(shape)) for _ in range(2))
        self.scale = self._array(random.standard_normal(self.channels))
        self.out = self._array(np.zeros(shape))
        over = tuple(axis for axis in range(len(shape)) if axis != 1)
        x = self.x.astype(np.float64)
        self.mean = self._array(x.mean(axis=over))
        self.variance = self._array(x.var(axis=over))
        self.expected = self._compute(x, over)

    def _array(self, values: Array) -> Array:
        """A copy that starts on a cache line, as every contender's own would."""
        memory = np.empty(values.size * self.dtype.itemsize + _ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        made = memory[start : start + values.size * self.dtype.itemsize].view(self.dtype)
        made = made.reshape(values.shape)
        made[...] = values
        return made

    def column(self, values: Array) -> Array:
        """Statistics in the rank of the input."""
        sizes = [1] * len(self.shape)
        sizes[1] = self.channels
        return values.reshape(sizes)

    def _compute(self, x: Array, over: tuple[int, ...]) -> Array:
        dy = self.dy.astype(np.float64)
        mean, variance, scale = (
            self.column(a.astype(np.float64)) for a in (self.mean, self.variance, self.scale)
        )
        centered, inverse = x - mean, 1 / np.sqrt(variance + EPSILON)
        first = dy.mean(axis=over, keepdims=True)
        second = (dy * centered).mean(axis=over, keepdims=True)
        return scale * inverse * (dy - first - centered * second / (variance + EPSILON))

    def is_right(self, result: Array) -> bool:
        difference = np.abs(result.astype(np.float64) - self.expected)
        return bool(difference.max() <= _TOLERANCE[self.dtype.name] * np.abs(self.expected).max())


def make_function(case: Case) -> ir.Function:
    """The operator for one case, as tensor IR."""
    rank, sizes = range(len(case.shape)), case.shape
    dtype = {"float32": "f32", "float16": "f16"}[case.dtype.name]
    whole = ", ".join(map(str, sizes))
    part = ", ".join(str(n) if axis == 1 else "1" for axis, n in enumerate(sizes))
    domain = ", ".join(f"i{axis} < {n}" for axis, n in enumerate(sizes))
    kept = ", ".join(f"i{axis} < {n if axis == 1 else 1}" for axis, n in enumerate(sizes))
    over = ", ".join(f"r{axis} < {n}" for axis, n in enumerate(sizes) if axis != 1)
    own = ", ".join(f"i{axis}" for axis in rank)
    k = ", ".join("i1" if axis == 1 else "0" for axis in rank)
    r = ", ".join("i1" if axis == 1 else f"r{axis}" for axis in rank)
    count = float(math.prod(sizes) // case.channels)
    epsilon = float(np.float32(EPSILON))
    statistics = ", ".join(f"%{n}: {dtype}[{part}]" for n in ("mean", "variance", "scale"))
    return ir.parse(f"""\
func @batch_norm_training_grad(%x: {dtype}[{whole}], %dy: {dtype}[{whole}], {statistics}) \
-> (%dx, %dscale, %dbias) {{
  %dy_sum: f32[{kept}] = sum[{over}] %dy[{r}]
  %dy_centered_sum: f32[{kept}] = sum[{over}] mul(%dy[{r}], sub(%x[{r}], %mean[{k}]))
  %inv_std: f32[{kept}] = div(1.0, sqrt(add(%variance[{k}], {epsilon!r})))
  %dbias: {dtype}[{kept}] = %dy_sum[{k}]
  %dscale: {dtype}[{kept}] = mul(%dy_centered_sum[{k}], %inv_std[{k}])
  %dx: {dtype}[{domain}] = {{
    v0 = div(%dy_sum[{k}], {count})
    v1 = div(%dy_centered_sum[{k}], {count})
    v2 = div(mul(sub(%x[{own}], %mean[{k}]), v1), add(%variance[{k}], {epsilon!r}))
    mul(mul(%scale[{k}], %inv_std[{k}]), sub(sub(%dy[{own}], v0), v2))
  }}
}}""")


def contenders(case: Case, threads: int) -> Iterator[Contender]:
    """Everyone who is installed and can do this type."""
    executable = dmlc.load_program(dmlc.compile(make_function(case)))
    statistics = {"mean": case.mean, "variance": case.variance, "scale": case.scale}
    inputs = {"x": case.x, "dy": case.dy}
    inputs |= {name: case.column(values) for name, values in statistics.items()}
    call = executable.bind(inputs, {"dx": case.out})
    yield Contender("dmlc bound call", call, lambda: case.out)
    yield Contender(
        "dmlc executable, new", lambda: executable(inputs), lambda: executable(inputs)["dx"]
    )
    if importlib.util.find_spec("torch"):
        yield from _torch(case, threads)


def _torch(case: Case, threads: int) -> Iterator[Contender]:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    x, dy = (torch.from_numpy(a) for a in (case.x, case.dy))
    scale, mean, variance = (
        torch.from_numpy(a).float() for a in (case.scale, case.mean, case.variance)
    )
    inverse = 1 / torch.sqrt(variance + EPSILON)

    def backward(dy: Any, x: Any) -> Any:
        return torch.ops.aten.native_batch_norm_backward(
            dy, x, scale, None, None, mean, inverse, True, EPSILON, [True, True, True]
        )

    yield Contender(
        "PyTorch eager", lambda: backward(dy, x), lambda: np.asarray(backward(dy, x)[0])
    )
    compiled: Callable[..., Any] = torch.compile(backward)
    try:
        compiled(dy, x)
    except Exception as problem:  # whatever its compiler meets: it is then no contender
        print(f"torch.compile: {type(problem).__name__}: {problem}"[:200], file=sys.stderr)
        return
    yield Contender(
        "torch.compile", lambda: compiled(dy, x), lambda: np.asarray(compiled(dy, x)[0])
    )
