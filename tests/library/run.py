"""Runs built-in operators on arrays, for the tests that compare what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlc

Array = npt.NDArray[Any]

DEVICES = ("reference", "opencl", "vulkan")
"""Where operators with reductions run."""

ELEMENTWISE = (
    "directml.ACTIVATION_RELU",
    "directml.ACTIVATION_RELU_GRAD",
    "onednn.ReLU",
    "onednn.ReLUBackward",
)
"""The element-wise seeds."""

_ALIKE = "directml.ELEMENT_WISE_"
_FEW = ("ADD", "BIT_COUNT", "CLIP1", "IF", "POW")


def list_unlike() -> list[str]:
    """The operators of the library, of the many element-wise ones a few: what becomes of one
    formula in kernels becomes of all. `dmlc test` runs the examples of each on each device."""
    few = [_ALIKE + name for name in _FEW]
    return [n for n in dmlc.operators() if not n.startswith(_ALIKE) or n in few]


def run(
    name: str,
    inputs: Mapping[str, Array | None],
    attributes: Mapping[str, object] | None = None,
    outputs: Mapping[str, Array | Sequence[int]] | None = None,
    device: str = "reference",
) -> dict[str, Array]:
    """What a built-in operator gives for these arrays."""
    return dmlc.run(name, inputs, attributes, outputs, device)


def normal(*sizes: int, seed: int = 0, dtype: npt.DTypeLike = np.float32) -> Array:
    """Normally distributed values, the same each time."""
    return np.random.default_rng(seed).standard_normal(sizes).astype(dtype)


def wide(array: Array) -> Array:
    """The values as stored, in float64."""
    return array.astype(np.float64)


def check(found: Array, expected: Array) -> None:
    """Holds a result to float64 values: within a few roundings of its type, where those are
    measured against the largest value, as sums of values of both signs need."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
        return
    rounding = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
    relative = rounding[found.dtype.name]
    finite = np.abs(expected[np.isfinite(expected)])
    largest = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(wide(found), expected, rtol=relative, atol=relative * largest + 6e-8)
