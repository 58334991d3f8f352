"""How near results are, and how near they must be."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from dmlc import ir
from dmlc.testing.compare import Comparison, Tolerance, compare, find_tolerance

Array = npt.NDArray[Any]
EXACT = Tolerance(0.0, 0.0)
inf, nan = np.inf, np.nan


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def test_equal_arrays() -> None:
    found = compare(f32(1, nan, inf, -0.0), f32(1, nan, inf, 0.0), EXACT)
    assert found == Comparison(4, 0, 0.0, 0.0, 0, None, True)
    assert str(found) == "exact (4 elements)"


def test_differences_are_measured() -> None:
    found = compare(f32(1, 2.5, 4), f32(1, 2, 5), Tolerance(0.2, 0.0))
    assert (found.different, found.largest, found.largest_relative) == (2, 1.0, 0.25)
    assert found.worst == (1,)
    assert not found.within
    assert str(found) == "2 of 3 elements differ, by 1 at most (0.25 relative)"
    assert compare(f32(1, 2.5, 4), f32(1, 2, 5), Tolerance(0.25, 0.0)).within
    assert compare(f32(1, 2.5, 4), f32(1, 2, 5), Tolerance(0.0, 1.0)).within


@pytest.mark.parametrize(
    ("actual", "expected"), [(nan, 1), (1, nan), (inf, 1), (inf, -inf), (nan, inf), (3e38, inf)]
)
def test_nan_and_infinity_agree_in_place_whatever_the_tolerance(
    actual: float, expected: float
) -> None:
    found = compare(f32(0, actual), f32(0, expected), Tolerance(1e9, 1e39))
    assert not found.within
    assert found.misplaced == 1
    assert found.worst == (1,)
    assert "NaN or infinity out of place at 1" in str(found)


def test_the_worst_place_has_an_index_per_axis() -> None:
    expected = np.zeros((2, 3, 4), np.float32)
    actual = expected.copy()
    actual[1, 2, 3], actual[0, 0, 1] = 2, 1
    assert compare(actual, expected, EXACT).worst == (1, 2, 3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.bool_])
def test_whole_numbers(dtype: npt.DTypeLike) -> None:
    assert compare(np.array([0, 1], dtype), np.array([0, 1], dtype), EXACT).within
    found = compare(np.array([0, 1], dtype), np.array([1, 1], dtype), EXACT)
    assert (found.different, found.within, found.largest) == (1, False, 1.0)


def test_large_whole_numbers_differ_though_float64_does_not_tell() -> None:
    one, other = np.array([2**63], np.uint64), np.array([2**63 + 1], np.uint64)
    found = compare(one, other, EXACT)
    assert found.different == 1
    assert not found.within


def test_halves_and_brains() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        assert compare(f32(1, nan).astype(dtype), f32(1, nan).astype(dtype), EXACT).within


def test_arrays_must_be_of_one_shape_and_type() -> None:
    with pytest.raises(ValueError, match=r"float32\(2,\) and float32\(3,\)"):
        compare(f32(1, 2), f32(1, 2, 3), EXACT)
    with pytest.raises(ValueError, match="float16"):
        compare(f32(1), f32(1).astype(np.float16), EXACT)


@pytest.mark.parametrize(
    ("type_", "body", "relative", "absolute"),
    [
        ("f32", "select(gt(%x[i0], 0.0), max(%x[i0], abs(%x[i0])), 0.0)", 0.0, 0.0),
        ("f16", "neg(floor(%x[i0]))", 0.0, 0.0),
        ("s32", "mul(%x[i0], %x[i0])", 0.0, 0.0),
        ("f32", "mul(%x[i0], %x[i0])", 4 * 2**-23, 2.0**-126),
        ("f64", "add(%x[i0], %x[i0])", 4 * 2**-52, 2.0**-1022),
        ("f32", "add(mul(%x[i0], %x[i0]), 1.0)", 8 * 2**-23, 2.0**-126),
        ("f32", "exp(%x[i0])", 1e-5, 1e-6),
        ("f16", "add(%x[i0], 1.0)", 4 * 2**-23 + 2**-10, 2.0**-24),
        ("bf16", "sqrt(%x[i0])", 4 * 2**-23 + 2**-7, 2.0**-126),
    ],
)
def test_tolerances(type_: str, body: str, relative: float, absolute: float) -> None:
    text = f"func @f(%x: {type_}[n]) -> (%y) {{\n  %y: {type_}[i0 < n] = {body}\n}}"
    assert find_tolerance(ir.parse(text), "y") == Tolerance(relative, absolute)


def test_a_tolerance_says_what_it_is() -> None:
    assert str(EXACT) == "exactly equal"
    assert str(Tolerance(1e-5, 1e-6)) == "within 1e-05 relative, or 1e-06"


def test_a_tolerance_is_of_a_result() -> None:
    function = ir.parse("func @f(%x: f32[n]) -> (%y) {\n  %y: f32[i0 < n] = %x[i0]\n}")
    with pytest.raises(KeyError, match="z"):
        find_tolerance(function, "z")
