"""Tensors of PyTorch as arrays: in and out over the same memory, and what is refused."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dmlc
from dmlc.runtime.foreign import as_array

NAME = "directml.ACTIVATION_RELU_GRAD"
X, DY, DX = "InputTensor", "InputGradientTensor", "OutputGradientTensor"
DEVICES = ("opencl", "vulkan", "wgpu", "reference")
TARGETS = {"opencl": "opencl", "vulkan": "hlsl", "wgpu": "wgsl"}


def make(*shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(dtype) for _ in range(2)]


def wanted(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, dy, 0).to(dy.dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "change",
    [
        lambda t: t,
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t.permute(3, 0, 2, 1),
        lambda t: t[:, ::2, 1:],
        lambda t: t[:1].expand(4, -1, -1, -1),
        lambda t: t[:0],
        lambda t: t[0, 0, 0, 0],
        lambda t: torch.nn.Parameter(t, requires_grad=False),
    ],
    ids=["packed", "channels_last", "permuted", "gaps", "expanded", "none", "single", "parameter"],
)
def test_layouts(device: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x, dy = (change(t) for t in make(2, 4, 3, 5))
    found = dmlc.run(NAME, [x, dy], device=device)
    assert isinstance(found[DX], torch.Tensor)
    assert torch.equal(found[DX], wanted(x, dy))
    if device == "opencl":
        assert found.report.copies == ()
    out = torch.zeros_like(wanted(x, dy))
    assert dmlc.run(NAME, [x, dy], outputs={DX: out}, device=device)[DX] is out
    assert torch.equal(out, wanted(x, dy))


def test_memory_is_shared() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.uint16, torch.int64, torch.bool):
        x, _ = make(4, 6, dtype=dtype)
        for what in ("input", "output"):
            found = as_array("X", x, what)
            assert found.ctypes.data == x.data_ptr()
            assert found.dtype.name == str(dtype).removeprefix("torch.")
            found[1, 2] = 1
            assert x[1, 2] == 1
            x[1, 2] = 0
            assert not found[1, 2]


@pytest.mark.parametrize("device", ["opencl", "vulkan", "reference"])
def test_bfloat16(device: str) -> None:
    x, dy = make(4, 6, dtype=torch.bfloat16)
    found = dmlc.run("onednn.ReLUBackward", [x, dy], device=device)["diff_src"]
    assert found.dtype is torch.bfloat16
    assert torch.equal(found, wanted(x, dy))
    out = torch.zeros(6, 4, dtype=torch.bfloat16).T
    dmlc.run("onednn.ReLUBackward", [x, dy], outputs={"diff_src": out}, device=device)
    assert torch.equal(out, wanted(x, dy))


def test_every_type_goes_in_and_out() -> None:
    for held in dmlc.DataType:
        if held is dmlc.DataType.INDEX:
            continue
        dtype = getattr(torch, held.dtype.name)
        body = f"%B: {held.short}[i0 < 3, i1 < 2] = %A[i1, i0]"
        text = f"func @turned(%A: {held.short}[2, 3]) -> (%B) {{\n  {body}\n}}"
        given = torch.tensor([[0, 1, 2], [3, 1, 0]]).to(dtype)
        found = dmlc.run(dmlc.ir.parse(text), [given])["B"]
        assert found.dtype is dtype
        assert torch.equal(found, given.T)


@pytest.mark.parametrize("device", ["opencl", "vulkan", "wgpu"])
def test_bound_calls(device: str) -> None:
    executable = dmlc.load_program(dmlc.compile(NAME, TARGETS[device]), device)
    x, dy = make(3000)
    call = executable.bind([x, dy])
    first = call()[DX]
    assert torch.equal(first, wanted(x, dy))
    x.neg_()
    assert call()[DX] is first
    assert torch.equal(first, wanted(x, dy))
    assert call.report.copies == ()
    expected = wanted(x, dy)
    call = executable.bind({X: x, DY: dy}, {DX: dy})
    del x
    gc.collect()
    assert call()[DX] is dy
    assert torch.equal(dy, expected)


def test_results_work_on_with_autograd_and_in_place() -> None:
    x, dy = make(4, 6)
    found = dmlc.run(NAME, [x, dy.numpy()])[DX]
    assert not found.requires_grad
    found.mul_(2).requires_grad_()
    (found * found).sum().backward()
    assert torch.equal(found.grad, 4 * wanted(x, dy))


def made_lazily(kind: str) -> torch.Tensor:
    made = torch.ones(4, dtype=torch.complex64).conj()
    return made if kind == "conj" else made.imag


REFUSED: list[tuple[Any, str]] = [
    (torch.ones(4, requires_grad=True), r"torch.Tensor whose memory .* shared: .* tensor.detach"),
    (torch.nn.Parameter(torch.ones(4)), r"Parameter whose memory cannot .* tensor.detach"),
    (made_lazily("neg"), r"its values are negated when read: resolve_neg\(\)"),
    (torch.ones(4).to_sparse(), "cannot be shared: .* layout other than torch.strided"),
    (torch.ones(4, device="meta"), "cannot be shared: Cannot pack tensors on meta"),
]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *REFUSED,
        (made_lazily("conj"), "cannot be shared: .* conjugate bit"),
        (torch.ones(4, dtype=torch.complex64), "holds complex64, which no tensor can hold"),
        (torch.ones(4).to(torch.float8_e5m2), "holds float8, which no tensor can hold"),
        (torch.float32, f"the input {X} is a dtype, and an array is expected"),
        (torch.Tensor, f"the input {X} is the type Tensor, and an array is expected"),
    ],
)
def test_inputs_that_cannot_be_taken(given: Any, message: str) -> None:
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.run(NAME, {X: given, DY: torch.ones(4)})
    executable = dmlc.load_program(dmlc.compile(NAME))
    with pytest.raises(dmlc.DmlcError):
        executable({X: given, DY: torch.ones(4)})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *REFUSED,
        (torch.ones(1).expand(4), "overlap"),
        (torch.ones(4, dtype=torch.float64), "cannot be FLOAT64"),
    ],
)
def test_outputs_that_cannot_be_written(given: Any, message: str) -> None:
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.run(NAME, [torch.ones(4), torch.ones(4)], outputs={DX: given})


def test_sizes_of_pytorch_are_sizes() -> None:
    x, dy = make(4, 6)
    found = dmlc.run(NAME, [x, dy], outputs={DX: x.shape})[DX]
    assert torch.equal(found, wanted(x, dy))
    with pytest.raises(TypeError, match="inputs must be"):
        dmlc.run(NAME, x)


def test_vectorized_and_traced_tensors_are_refused() -> None:
    x, dy = make(4, 6)
    with pytest.raises(dmlc.DmlcError, match="memory cannot be shared"):
        torch.func.vmap(lambda row: dmlc.run(NAME, [row, row])[DX])(x)
    with pytest.raises(dmlc.DmlcError, match="memory cannot be shared"):
        torch.func.grad(lambda t: dmlc.run(NAME, [t, dy])[DX].sum())(x)


def test_numpy_is_given_back_beside_nothing_else() -> None:
    x, dy = make(4, 6)
    assert type(dmlc.run(NAME, [x.numpy(), dy.numpy()])[DX]) is np.ndarray
    assert isinstance(dmlc.run(NAME, [x.numpy(), dy])[DX], torch.Tensor)
