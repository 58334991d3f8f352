"""Graphs of several operators, done by everyone who is here: what fusion is for.

The end of a residual block, backward, and a chain of element-wise operators. Nobody has to store
what lies between the operators; the limit is a program that reads the graph's large inputs and
writes its large output once.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlc
from benchmarks import task
from benchmarks.batch_norm import EPSILON, align, differentiate
from benchmarks.task import Array, Contender, Peer, Task

_EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples" / "graphs"

_CHAIN = """
graph chain[n](x: {type}[n], y: {type}[n]) {{
    total     = x + y
    scaled    = 0.5 * total
    rectified = directml.ACTIVATION_RELU(InputTensor: scaled)
    masked    = directml.ACTIVATION_RELU_GRAD(InputTensor: x, InputGradientTensor: rectified)
    moved     = masked - y
    output z  = moved * x
}}
"""

_SIZES = (32, 64, 56, 56)
_LENGTH = 8 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A graph and its arrays; `out` is its large output."""

    function: dmlc.ir.Function
    inputs: Mapping[str, Array]
    small: Mapping[str, Array]
    """Outputs that are small."""
    name: str
    out: Array
    expected: Array
    torch: Callable[[Any, Callable[[Array], Any]], Peer]
    """As a task has it."""

    @property
    def reads(self) -> tuple[Array, ...]:
        return tuple(a for a in self.inputs.values() if a.size == self.out.size)

    def accepts(self, result: Array) -> bool:
        """Whether the large output is right."""
        near = 5e-3 if self.out.dtype == np.float16 else 2e-4
        apart = np.abs(result.reshape(self.expected.shape).astype(np.float64) - self.expected)
        return bool(apart.max() <= near * np.abs(self.expected).max())


def make_task(case: Case) -> Task:
    """The benchmark of a graph."""
    return Task(
        case.function,
        case.inputs,
        {case.name: case.out, **case.small},
        case.name,
        case.accepts,
        case.out.nbytes + sum(array.nbytes for array in case.reads),
        case.torch,
    )


def contenders(case: Case, threads: int) -> Iterator[Contender]:
    """Everyone who is installed."""
    yield from task.contenders(make_task(case), threads)


def _make(dtype: npt.DTypeLike, sizes: tuple[int, ...], names: tuple[str, ...]) -> dict[str, Array]:
    random = np.random.default_rng(1)
    return {name: align(random.standard_normal(sizes, np.float32).astype(dtype)) for name in names}


def _describe(arrays: Mapping[str, Array]) -> dict[str, dmlc.TensorDesc]:
    return {n: dmlc.TensorDesc(str(a.dtype).upper(), a.shape) for n, a in arrays.items()}


def make_residual_block(dtype: npt.DTypeLike) -> Case:
    """Two gradients summed, masked by a ReLU and taken back through a batch normalization."""
    inputs = _make(dtype, _SIZES, ("x", "y", "dy_main", "dy_skip"))
    x = inputs["x"].astype(np.float64)
    axes = (0, 2, 3)
    inputs["mean"] = x.mean(axes, keepdims=True).astype(dtype)
    inputs["variance"] = x.var(axes, keepdims=True).astype(dtype)
    inputs["scale"] = np.random.default_rng(2).uniform(0.5, 2, (1, 64, 1, 1)).astype(dtype)
    declared = (_EXAMPLES / "residual_block_backward.dml").read_text(encoding="utf-8")
    module = dmlc.parse(declared.replace("FLOAT32", str(np.dtype(dtype)).upper()))
    (graph,) = module.graphs.values()
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    dy = np.where(wide["y"] > 0, wide["dy_main"] + wide["dy_skip"], 0)
    centered, spread = x - wide["mean"], wide["variance"] + EPSILON
    inner = dy - dy.mean(axes, keepdims=True)
    inner = inner - centered * (dy * centered).mean(axes, keepdims=True) / spread
    expected: Array = wide["scale"] / np.sqrt(spread) * inner
    small = {name: np.empty_like(inputs["mean"]) for name in ("dscale", "dbias")}
    out = align(np.zeros(_SIZES, dtype))

    def torch(torch: Any, put: Callable[[Array], Any]) -> Peer:
        x, y, main, skip = (put(inputs[n]) for n in ("x", "y", "dy_main", "dy_skip"))
        mean, scale = (put(inputs[n].ravel()).float() for n in ("mean", "scale"))
        variance = put(inputs["variance"].ravel()).float()
        deviation = 1 / torch.sqrt(variance + EPSILON)
        aten = torch.ops.aten

        def eager() -> Any:
            masked = aten.threshold_backward(main + skip, y, 0)
            return aten.native_batch_norm_backward(
                masked, x, scale, None, None, mean, deviation, True, EPSILON, [True, True, True]
            )

        def formula(main: Any, skip: Any, y: Any, x: Any, *rest: Any) -> Any:
            masked = torch.where(y > 0, main + skip, 0.0).to(x.dtype)
            return differentiate(masked, x, *rest)

        return Peer(eager, formula, (main, skip, y, x, mean, deviation, scale))

    function = graph.bind(_describe(inputs))
    return Case(function, inputs, small, "dx", out, expected, torch)


def make_chain(dtype: npt.DTypeLike) -> Case:
    """Six element-wise operators, one after the other."""
    inputs = _make(dtype, (_LENGTH,), ("x", "y"))
    (graph,) = dmlc.parse(_CHAIN.format(type=str(np.dtype(dtype)).upper())).graphs.values()
    x, y = (inputs[n].astype(np.float64) for n in ("x", "y"))
    expected: Array = (np.where(x > 0, np.maximum(0.5 * (x + y), 0), 0) - y) * x
    out = align(np.zeros(_LENGTH, dtype))

    def torch(torch: Any, put: Callable[[Array], Any]) -> Peer:
        x, y = (put(inputs[n]) for n in ("x", "y"))

        def formula(x: Any, y: Any) -> Any:
            rectified = torch.relu(0.5 * (x + y))
            masked = torch.ops.aten.threshold_backward(rectified, x, 0)
            return (masked - y) * x

        return Peer(lambda: formula(x, y), formula, (x, y))

    function = graph.bind(_describe(inputs))
    return Case(function, inputs, {}, "z", out, expected, torch)


CASES: Mapping[str, tuple[Callable[[npt.DTypeLike], Case], float, float | None]] = {
    "residual block": (make_residual_block, 2.2, 0.4),
    "six operators": (make_chain, 1.1, None),
}
"""How each is made, the most of the limit that it may take, and the most of the best of PyTorch."""
