"""Against PyTorch, which `make test-peers` installs and the other tests do not need."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch

import dmlc

Array = npt.NDArray[Any]
TYPES = (
    (np.float32, torch.float32),
    (np.float16, torch.float16),
    (ml_dtypes.bfloat16, torch.bfloat16),
)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, 1e-7, -1e-7, 6e-5, -6e-5, 1.0, -1.0]


def to_torch(array: Array, dtype: torch.dtype) -> torch.Tensor:
    """The same values; every 16-bit float is a float32."""
    return torch.from_numpy(array.astype(np.float32)).to(dtype)


def from_torch(tensor: torch.Tensor) -> Array:
    return tensor.to(torch.float32).numpy()


def make(shape: tuple[int, ...], dtype: npt.DTypeLike, seed: int) -> Array:
    made = np.random.default_rng(seed).standard_normal(shape)
    made.reshape(-1)[: len(SPECIAL)] = SPECIAL
    return made.astype(dtype)


def relu_grad(x: Array, dy: Array) -> Array:
    name = "onednn.ReLUBackward" if x.dtype == ml_dtypes.bfloat16 else None
    if name is None:
        inputs = {"InputTensor": x, "InputGradientTensor": dy}
        return dmlc.run("directml.ACTIVATION_RELU_GRAD", inputs)["OutputGradientTensor"]
    function = dmlc.operator(name).bind({}, {"use_dst": False})
    first, second = (p.name for p in function.parameters)
    inputs = {first: x, second: dy}
    (only,) = dmlc.run(name, inputs, attributes={"use_dst": False}).values()
    return only


@pytest.mark.parametrize(("dtype", "torch_dtype"), TYPES)
@pytest.mark.parametrize("shape", [(17,), (3, 5, 7), (2, 1, 3, 1, 2, 1, 2, 2), (100_003,)])
def test_relu_grad(shape: tuple[int, ...], dtype: npt.DTypeLike, torch_dtype: torch.dtype) -> None:
    x, dy = make(shape, dtype, 0), make(shape, dtype, 1)
    theirs = torch.ops.aten.threshold_backward(
        to_torch(dy, torch_dtype), to_torch(x, torch_dtype), 0
    )
    ours = relu_grad(x, dy).astype(np.float32)
    np.testing.assert_array_equal(ours, from_torch(theirs))


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4)])
def test_relu_grad_of_transposed_arrays(shape: tuple[int, ...]) -> None:
    x, dy = make(shape, np.float32, 0).T, make(shape, np.float32, 1).T
    theirs = torch.ops.aten.threshold_backward(torch.from_numpy(dy), torch.from_numpy(x), 0)
    np.testing.assert_array_equal(relu_grad(x, dy), theirs.numpy())


@pytest.mark.parametrize(("dtype", "torch_dtype"), TYPES)
def test_a_nan_takes_no_gradient_here_and_takes_it_in_pytorch(
    dtype: npt.DTypeLike, torch_dtype: torch.dtype
) -> None:
    """The one known difference: `X > 0` is false for NaN, and PyTorch tests `X <= 0`."""
    x = np.full(3, np.nan).astype(dtype)
    dy = np.array([5, -6, np.inf]).astype(dtype)
    theirs = torch.ops.aten.threshold_backward(
        to_torch(dy, torch_dtype), to_torch(x, torch_dtype), 0
    )
    assert from_torch(theirs).tolist() == [5, -6, np.inf]
    assert relu_grad(x, dy).astype(np.float32).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("dtype", "torch_dtype"), TYPES[:2])
def test_relu(dtype: npt.DTypeLike, torch_dtype: torch.dtype) -> None:
    x = make((5, 7), dtype, 0)
    found = dmlc.run("directml.ACTIVATION_RELU", {"InputTensor": x})
    (ours,) = found.values()
    theirs = from_torch(torch.relu(to_torch(x, torch_dtype)))
    np.testing.assert_array_equal(ours.astype(np.float32), theirs)
