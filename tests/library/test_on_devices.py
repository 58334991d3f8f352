"""Every element-wise operator of the library on every device: all types, ranks, layouts and
settings, every two of them together, against the reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import dmlc
from dmlc import library
from dmlc.binding import Operator
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError, UnsupportedError
from dmlc.testing.verify import verify
from tests.cover import cover

DEVICES = ("opencl", "vulkan")
LAYOUTS = ("packed", "transposed", "sliced", "repeated")

SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 6e-8, -6e-8, 1.0, -1.0, 65504.0)

WITHOUT_BYTES = "cannot hold tensor"
"""What Vulkan, whose buffers have no elements of 8 bits, refuses tensors of such types with."""


def find_elementwise() -> Iterator[str]:
    for name in library.names():
        try:
            Operator(library.find(name).operators[name]).bind({})
        except DmlcError:
            continue
        yield name


ELEMENTWISE = tuple(find_elementwise())


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
        if device == "vulkan" and dtype.bytes == 1:
            with pytest.raises(UnsupportedError, match=WITHOUT_BYTES):
                dmlc.run(operator, arrays, attributes, device=device)
            continue
        results = dmlc.run(operator, arrays, attributes, device=device)
        for output, verdict in verify(operator, arrays, attributes, results).items():
            assert verdict.holds, (dtype, rank, setting, layout, output, str(verdict))
            assert verdict.comparison.different == 0, (dtype, rank, setting, layout, output)


def test_the_seeds_are_among_them() -> None:
    assert {"directml.ACTIVATION_RELU", "directml.ACTIVATION_RELU_GRAD"} <= set(ELEMENTWISE)
    assert {"onednn.ReLU", "onednn.ReLUBackward"} <= set(ELEMENTWISE)
