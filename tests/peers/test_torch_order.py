"""Running totals, the K largest and the places of what is not zero against PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import dmlc
from tests.library.run import normal, run

GRADIENT = """graph grad[N, M](x: FLOAT32[N, M], dy: FLOAT32[N, M]) {
    y = directml.CUMULATIVE_NAME(
        InputTensor: x, Axis: 1, AxisDirection: INCREASING, HasExclusiveWHAT: false)
    output dx = gradient of y with respect to x from dy
}"""


@pytest.mark.parametrize(
    ("name", "what", "theirs"),
    [("SUMMATION", "Sum", torch.cumsum), ("PRODUCT", "Product", torch.cumprod)],
)
def test_running_totals_and_their_gradients(
    name: str, what: str, theirs: Callable[..., torch.Tensor]
) -> None:
    x, dy = np.abs(normal(3, 400)) + 0.2, normal(3, 400, seed=1)
    x = np.clip(x, 0.9, 1.1).astype(np.float32)
    x[1, [30, 200]] = 0
    text = GRADIENT.replace("NAME", name).replace("WHAT", what)
    found = dmlc.run(dmlc.parse(text).graphs["grad"], {"x": x, "dy": dy}, device="opencl")["dx"]
    given = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    theirs(given, 1).backward(torch.tensor(dy, dtype=torch.float64))
    assert given.grad is not None
    np.testing.assert_allclose(found, given.grad.numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("largest", [True, False])
def test_the_k_largest(largest: bool) -> None:
    x = normal(4, 300, 3)
    direction = "DECREASING" if largest else "INCREASING"
    settings = {"Axis": 1, "K": 11, "AxisDirection": direction}
    found = run("directml.TOP_K1", {"InputTensor": x}, settings, device="opencl")
    values, places = torch.topk(torch.from_numpy(x), 11, 1, largest=largest)
    np.testing.assert_array_equal(found["OutputValueTensor"], values.numpy())
    np.testing.assert_array_equal(found["OutputIndexTensor"], places.numpy())


def test_places_of_what_is_not_zero() -> None:
    x = np.maximum(normal(20, 30), 0)
    sizes = {"OutputCoordinatesTensor": (x.size, 2), "OutputCountTensor": (1,)}
    found = run("directml.NONZERO_COORDINATES", {"InputTensor": x}, None, sizes, "opencl")
    places = torch.nonzero(torch.from_numpy(x)).numpy()
    assert found["OutputCountTensor"].item() == len(places)
    np.testing.assert_array_equal(found["OutputCoordinatesTensor"][: len(places)], places)
