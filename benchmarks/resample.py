"""Gradients of resampling and pooling, done by everyone who is here.

Each reads the gradient of a large image once and writes that of a small one, or the other way
round; the limit is a program that does just that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlc
from benchmarks import task
from benchmarks.batch_norm import align
from benchmarks.task import Array, Contender, Peer, Task

PLANES = (8, 64)


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A gradient: its operator, the sizes of the gradients it reads and writes, and what the
    project holds itself to."""

    operator: str
    attributes: dict[str, object]
    read: int
    written: int
    torch: Callable[[Any, Any], Any]
    """The same in PyTorch, of the module and the gradient."""
    most_limits: float | None
    most_torch: float


def _resample(mode: str, read: int, written: int) -> Kind:
    scale = read / written
    linear = mode == "LINEAR"
    attributes: dict[str, object] = {
        "InterpolationMode": mode,
        "RoundingDirection": "DECREASING",
        "Scales": [1, 1, scale, scale],
        # The centres of pixels meet where it is linear; else corners, rounded down.
        "InputPixelOffsets": [-0.5 if linear else 0] * 4,
        "OutputPixelOffsets": [0.5 if linear else 0] * 4,
    }
    sizes = [*PLANES, written, written]

    def bilinear(torch: Any, dy: Any) -> Any:
        return torch.ops.aten.upsample_bilinear2d_backward(dy, [read, read], sizes, False)

    def nearest(torch: Any, dy: Any) -> Any:
        return torch.ops.aten.upsample_nearest2d_backward(dy, [read, read], sizes)

    return Kind(
        "directml.RESAMPLE_GRAD1",
        attributes,
        read,
        written,
        bilinear if linear else nearest,
        3.0 if linear else 1.6,
        0.25 if linear else 0.5,
    )


def _average_pool(read: int, written: int) -> Kind:
    stride = written // read
    attributes: dict[str, object] = {
        "Strides": [stride] * 2,
        "WindowSize": [stride] * 2,
        "StartPadding": [0, 0],
        "EndPadding": [0, 0],
        "IncludePadding": False,
    }

    def pool(torch: Any, dy: Any) -> Any:
        forward = torch.empty((*PLANES, written, written), dtype=dy.dtype, device=dy.device)
        window = [stride] * 2
        return torch.ops.aten.avg_pool2d_backward(
            dy, forward, window, window, [0, 0], False, False, None
        )

    return Kind("directml.AVERAGE_POOLING_GRAD", attributes, read, written, pool, None, 1.0)


CASES = {
    "bilinear 112->56": _resample("LINEAR", 112, 56),
    "bilinear 84->56": _resample("LINEAR", 84, 56),
    "nearest 112->56": _resample("NEAREST_NEIGHBOR", 112, 56),
    "nearest 84->56": _resample("NEAREST_NEIGHBOR", 84, 56),
    "average pool 56->112": _average_pool(56, 112),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """The arrays of one type and kind."""

    kind: Kind
    dy: Array
    out: Array
    expected: Array

    @staticmethod
    def make(dtype: npt.DTypeLike, kind: Kind) -> Case:
        random = np.random.default_rng(1)
        sizes = (*PLANES, kind.read, kind.read)
        dy = align(random.standard_normal(sizes, np.float32).astype(dtype))
        out = align(np.zeros((*PLANES, kind.written, kind.written), dtype))
        found = dmlc.run(
            kind.operator,
            {"InputGradientTensor": dy[:1, :1]},
            kind.attributes,
            {"OutputGradientTensor": out[:1, :1].shape},
            "reference",
        )
        return Case(kind, dy, out, found["OutputGradientTensor"].astype(np.float64))

    @property
    def reads(self) -> tuple[Array, ...]:
        return (self.dy,)

    def accepts(self, result: Array) -> bool:
        """Whether the first plane of a result is right, and no other is left as it was."""
        near = 4e-3 if self.out.dtype == np.float16 else 1e-5
        apart = np.abs(result[:1, :1].astype(np.float64) - self.expected)
        largest = np.abs(self.expected).max()
        changed = all(len(np.unique(plane)) > 1 for plane in result.reshape(-1, *result.shape[2:]))
        return bool(apart.max() <= near * largest) and changed


def make_task(case: Case) -> Task:
    """The benchmark of a type and kind."""
    kind = case.kind
    inputs = {"InputGradientTensor": case.dy}
    outputs = {"OutputGradientTensor": case.out}
    data_type = str(case.dy.dtype).upper()
    described = {
        name: dmlc.TensorDesc(data_type, array.shape) for name, array in (inputs | outputs).items()
    }

    def torch(torch: Any, put: Callable[[Array], Any]) -> Peer:
        dy = put(case.dy)
        return Peer(lambda: kind.torch(torch, dy))

    return Task(
        dmlc.operator(kind.operator).bind(described, kind.attributes),
        inputs,
        outputs,
        "OutputGradientTensor",
        case.accepts,
        case.dy.nbytes + case.out.nbytes,
        torch,
    )


def contenders(case: Case, threads: int) -> Iterator[Contender]:
    """Everyone who is installed and can do this type."""
    yield from task.contenders(make_task(case), threads)
