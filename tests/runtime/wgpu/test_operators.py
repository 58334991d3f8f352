"""Operators of the library by WebGPU against the reference: element-wise ones, and gradients
with reductions, windows and tables. What WGSL cannot hold is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dmlc
from dmlc.scalars import Array, DataType
from dmlc.source import UnsupportedError
from dmlc.testing.outcome import Status
from dmlc.testing.verify import verify
from tests.example_runs import run_examples
from tests.library.run import ELEMENTWISE, normal
from tests.library.test_on_devices import arrange

F32, F16, BF16 = np.float32, np.float16, DataType.BFLOAT16.dtype


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    operator = dmlc.operator(name)
    tensors = operator.definition.levels[-1].tensors
    inputs = [t for t in tensors if not t.output]
    switches = [a.name for a in operator.definition.attributes if a.base == "BOOL"]
    settings = list(itertools.product((True, False), repeat=len(switches)))
    layouts = ((1, "packed"), (4, "transposed"), (8, "sliced"))
    for dtype, (rank, layout) in itertools.product(inputs[0].dtypes, layouts):
        for setting in settings:
            attributes = dict(zip(switches, setting, strict=True))
            arrays = {t.name: arrange(k, rank, layout, dtype) for k, t in enumerate(inputs)}
            if dtype is DataType.FLOAT64:
                with pytest.raises(UnsupportedError, match=f"of type {dtype.name}: WGSL has no"):
                    dmlc.run(operator, arrays, attributes, device="wgpu")
                continue
            results = dmlc.run(operator, arrays, attributes, device="wgpu")
            for output, verdict in verify(operator, arrays, attributes, results).items():
                assert verdict.different == 0, (dtype, rank, setting, output)


def check(
    name: str,
    inputs: dict[str, Array],
    attributes: dict[str, object],
    outputs: dict[str, tuple[int, ...]] | None = None,
) -> None:
    results = dmlc.run(name, inputs, attributes, outputs, device="wgpu")
    verdicts = verify(dmlc.operator(name), inputs, attributes, results)
    assert verdicts
    for output, verdict in verdicts.items():
        assert verdict.holds, (output, str(verdict))


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("sizes", [(2, 3, 5, 7), (8, 16, 28, 28), (1, 1, 1, 1)])
def test_batch_normalization_training_grad(sizes: tuple[int, ...], dtype: type) -> None:
    statistics = (1, sizes[1], 1, 1)
    inputs = {
        "InputTensor": normal(*sizes, seed=1, dtype=dtype),
        "InputGradientTensor": normal(*sizes, seed=2, dtype=dtype),
        "MeanTensor": normal(*statistics, seed=3, dtype=dtype),
        "VarianceTensor": np.abs(normal(*statistics, seed=4)).astype(dtype) + dtype(0.5),
        "ScaleTensor": normal(*statistics, seed=5, dtype=dtype),
    }
    check("directml.BATCH_NORMALIZATION_TRAINING_GRAD", inputs, {"Epsilon": 1e-3})


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("scale", [2.0, 3.0, 0.5, 1.7])
def test_bilinear_resample_grad(scale: float, dtype: type) -> None:
    size = 12
    sizes = (1, 2, int(size * scale), int(size * scale))
    attributes: dict[str, object] = {
        "InterpolationMode": "LINEAR",
        "RoundingDirection": "DECREASING",
        "Scales": [1.0, 1.0, scale, scale],
        "InputPixelOffsets": [0.0, 0.0, -0.5, -0.5],
        "OutputPixelOffsets": [0.0, 0.0, 0.5, 0.5],
    }
    outputs = {"OutputGradientTensor": (1, 2, size, size)}
    given = {"InputGradientTensor": normal(*sizes, dtype=dtype)}
    check("directml.RESAMPLE_GRAD1", given, attributes, outputs)


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("sizes", [(3, 5), (16, 1000), (2, 40000), (300, 1)])
def test_softmax_and_its_gradient(sizes: tuple[int, int], dtype: type) -> None:
    x = (10 * normal(*sizes)).astype(dtype)
    check("directml.ACTIVATION_SOFTMAX1", {"InputTensor": x}, {"Axes": [1]})
    y = np.exp(x.astype(F32) - x.max(axis=1, keepdims=True).astype(F32))
    y = (y / y.sum(axis=1, keepdims=True)).astype(dtype)
    if dtype is F32:
        given = {"dst": y, "diff_dst": normal(*sizes, seed=9, dtype=dtype)}
        check("onednn.SoftMaxBackward", given, {"axis": 1})


def test_integers_are_reduced_and_moved() -> None:
    x = np.random.default_rng(3).integers(-(2**31), 2**31, (7, 300), np.int32, endpoint=False)
    for function in ("SUM", "MAX", "ARGMAX"):
        check("directml.REDUCE", {"InputTensor": x}, {"Function": function, "Axes": [1]})
    check(
        "directml.SPACE_TO_DEPTH1",
        {"InputTensor": x.reshape(1, 1, 30, 70)},
        {"BlockSize": 5, "Order": "DEPTH_COLUMN_ROW"},
    )


def test_pairs_at_signed_positions() -> None:
    """Positions that may be negative are i32, and WGSL shifts by u32 alone."""
    arrays = {f"src[{k}]": np.arange(3 + k, dtype=np.float32).astype(BF16) for k in range(2)}
    check("onednn.Concat", arrays, {"axis": 0})


def test_a_refusal_names_what_serves() -> None:
    text = "func @f(%x: f64[n]) -> (%y) { %y: f64[i0 < n] = %x[i0] }"
    with pytest.raises(UnsupportedError) as caught:
        dmlc.compile(dmlc.ir.parse(text), "wgsl")
    assert "of type FLOAT64: WGSL has no 64-bit floats" in str(caught.value)
    assert "target 'wgsl' cannot" in str(caught.value)
    assert "what can express it all: " in str(caught.value)
    assert "opencl" in str(caught.value)


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", sorted(dmlc.operators()))
def test_an_example_of_every_operator(name: str) -> None:
    """In the first types that WGSL holds, where there are such."""
    refused: list[str] = []
    for outcome in run_examples(dmlc.operator(name), "wgpu"):
        if outcome.status is not Status.UNSUPPORTED:
            assert outcome.status is Status.PASSED, outcome.message
            return
        refused.append(outcome.message)
    assert refused
    assert all("WGSL has no 64-bit floats" in message for message in refused)
