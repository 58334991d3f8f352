"""`dmlc.torch.Call`: a compiled function on PyTorch's tensors, beside PyTorch."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import dmlc
from dmlc.runtime import opencl
from dmlc.runtime.opencl.device import Memory
from dmlc.torch import call as calls
from dmlc.torch.call import Call
from dmlc.torch.tensors import describe

RELU = dmlc.operator("directml.ACTIVATION_RELU")


def make(x: torch.Tensor, like: bool = False) -> Call:
    tensors = {"InputTensor": describe(x)} | ({"OutputTensor": describe(x)} if like else {})
    return Call.of(RELU.bind(tensors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (0, 3)])
def test_results_are_new_tensors(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape).to(dtype)
    call = make(x)
    for _ in range(2):
        x = torch.randn(shape).to(dtype)
        (y,) = call(x)
        assert y.data_ptr() != x.data_ptr() or y.numel() == 0
        torch.testing.assert_close(y, torch.relu(x), rtol=0, atol=0)


def test_strides_are_those_of_the_program() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    packed, like = make(x), make(x, like=True)
    assert packed(x)[0].is_contiguous()
    assert like(x)[0].stride() == x.stride()
    torch.testing.assert_close(packed(x)[0], torch.relu(x), rtol=0, atol=0)
    torch.testing.assert_close(like(x)[0], torch.relu(x), rtol=0, atol=0)


def test_bfloat16() -> None:
    x = torch.randn(100).to(torch.bfloat16)
    function = dmlc.operator("onednn.ReLU").bind({"src": describe(x)})
    torch.testing.assert_close(Call.of(function)(x)[0], torch.relu(x), rtol=0, atol=0)


def test_sizes_of_a_program_that_has_them_open() -> None:
    call_of = RELU.bind({"InputTensor": dmlc.TensorDesc("FLOAT32", ("N", 7))})
    for count in (1, 4, 9):
        x = torch.randn(count, 7)
        torch.testing.assert_close(Call.of(call_of, {"N": count})(x)[0], torch.relu(x))


def test_a_count_of_elements() -> None:
    function = RELU.bind({"InputTensor": dmlc.TensorDesc("FLOAT32")})
    x = torch.randn(3, 5)
    layout = (x.dtype, tuple(x.shape), x.stride())
    call = Call(calls.load(function), {"n": 15}, [layout])
    torch.testing.assert_close(call(x)[0], torch.relu(x))


def test_into_given_tensors() -> None:
    x, y = torch.randn(50), torch.zeros(50)
    make(x).fill([x], [y])
    torch.testing.assert_close(y, torch.relu(x), rtol=0, atol=0)


def test_a_device_with_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    device = dataclasses.replace(opencl.find_device(), memory=Memory.COPIED)
    monkeypatch.setattr(calls, "find_device", lambda *_: device)
    calls.load.cache_clear()
    try:
        x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        torch.testing.assert_close(make(x, like=True)(x)[0], torch.relu(x), rtol=0, atol=0)
        test_bfloat16()
    finally:
        calls.load.cache_clear()


def test_what_no_tensor_holds_is_refused() -> None:
    with pytest.raises(dmlc.UnsupportedError, match=r"a tensor holds torch\.complex64, which no"):
        describe(torch.zeros(3, dtype=torch.complex64))
