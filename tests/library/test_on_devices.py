"""Element-wise operators on every device: all types, ranks, layouts and settings, every two of them
together, against the reference. A few stand for all: of the others calls are drawn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dmlc
from dmlc.scalars import Array, DataType
from dmlc.testing.verify import verify
from tests.cover import cover
from tests.library.run import ELEMENTWISE

DEVICES = ("opencl", "vulkan")
LAYOUTS = ("packed", "transposed", "sliced", "repeated")

SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 6e-8, -6e-8, 1.0, -1.0, 65504.0)


def make(seed: int, shape: tuple[int, ...], dtype: DataType) -> Array:
    random = np.random.default_rng(seed)
    if dtype.is_integer:
        limits = np.iinfo(dtype.dtype)
        return random.integers(limits.min, limits.max, shape, dtype.dtype.type, endpoint=True)
    values = random.standard_normal(shape, np.float32)
    values.reshape(-1)[: len(SPECIAL)] = np.roll(SPECIAL, seed)[: values.size]
    return values.astype(dtype.dtype)


def arrange(seed: int, rank: int, layout: str, dtype: DataType) -> Array:
    """An array of so many dimensions, in one of the layouts a caller's may have."""
    shape = ((61,), (9, 13), (4, 5, 7), (3, 4, 5, 6), (2, 3, 2, 5, 3), (2, 1, 3, 2, 3, 4),
             (2, 2, 1, 3, 2, 2, 3), (2, 3, 1, 2, 2, 3, 2, 2))[rank - 1]  # fmt: skip
    match layout:
        case "packed":
            return make(seed, shape, dtype)
        case "transposed":
            return make(seed, shape[::-1], dtype).T
        case "sliced":
            return make(seed, tuple(2 * n for n in shape), dtype)[(slice(None, None, 2),) * rank]
        case _:
            return np.broadcast_to(make(seed, (1, *shape[1:]), dtype), shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_operator(name: str, device: str) -> None:
    operator = dmlc.operator(name)
    tensors = operator.definition.levels[-1].tensors
    inputs = [t for t in tensors if not t.output]
    switches = [a.name for a in operator.definition.attributes if a.base == "BOOL"]
    settings = list(itertools.product((True, False), repeat=len(switches)))
    cases = cover(2, inputs[0].dtypes, range(1, 9), settings, LAYOUTS)
    for dtype, rank, setting, layout in cases:
        attributes = dict(zip(switches, setting, strict=True))
        arrays = {t.name: arrange(k, rank, layout, dtype) for k, t in enumerate(inputs)}
        results = dmlc.run(operator, arrays, attributes, device=device)
        for output, verdict in verify(operator, arrays, attributes, results).items():
            assert verdict.holds, (dtype, rank, setting, layout, output, str(verdict))
            assert verdict.different == 0, (dtype, rank, setting, layout, output)
