"""The 16-bit floats: every bit pattern there and back, and every kind of rounding."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.scalars import Array, DataType
from tests.agreement import disagreements
from tests.opencl_launch import run_program

STORED = [DataType.FLOAT16, DataType.BFLOAT16]


def copy(source: DataType, target: DataType) -> ir.Function:
    return ir.parse(
        f"func @copy(%x: {source.short}[n]) -> (%y) {{ %y: {target.short}[i0 < n] = %x[i0] }}"
    )


def every_pattern(dtype: DataType) -> Array:
    return np.arange(65536, dtype=np.uint16).view(dtype.dtype)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", STORED)
def test_every_pattern_comes_back(dtype: DataType, profile: str) -> None:
    values = every_pattern(dtype)
    got = run_program(compile(copy(dtype, dtype), "opencl", profile), {"x": values})["y"]
    assert disagreements(got, values, 0.0).size == 0


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", STORED)
def test_widening_is_exact(dtype: DataType, profile: str) -> None:
    values = every_pattern(dtype)
    function = copy(dtype, DataType.FLOAT32)
    got = run_program(compile(function, "opencl", profile), {"x": values})["y"]
    with np.errstate(invalid="ignore"):
        wanted = values.astype(np.float32)
    assert disagreements(got, wanted, 0.0).size == 0


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", STORED)
def test_narrowing_rounds_to_nearest_even(dtype: DataType, profile: str) -> None:
    exact = every_pattern(dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        middle = (exact[:-1].astype(np.float64) + exact[1:]) / 2
        ties = middle.astype(np.float32)
        around = [np.nextafter(ties, np.float32(to)) for to in (-np.inf, np.inf)]
    bits = np.random.default_rng(7).integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    values = np.concatenate([exact, ties, *around, bits])
    function = copy(DataType.FLOAT32, dtype)
    got = run_program(compile(function, "opencl", profile), {"x": values})["y"]
    with np.errstate(all="ignore"):
        wanted = values.astype(dtype.dtype)
    wrong = disagreements(got, wanted, 0.0)
    assert wrong.size == 0, [(values[k], got[k], wanted[k]) for k in wrong[:5]]


@pytest.mark.parametrize("dtype", [DataType.FLOAT32, DataType.FLOAT64, *STORED])
def test_streaming_stores(dtype: DataType) -> None:
    """Above the size from which stores pass the caches by; aligned and not."""
    with np.errstate(invalid="ignore"):
        values = np.resize(every_pattern(DataType.FLOAT16), 13_000_003).astype(dtype.dtype)
    program = compile(copy(dtype, dtype), "opencl", "cpu")
    assert "__builtin_nontemporal_store" in program.kernels[0].source
    for misaligned in (0, 1):
        got = run_program(program, {"x": values}, misaligned=misaligned)["y"]
        assert disagreements(got, values, 0.0).size == 0
