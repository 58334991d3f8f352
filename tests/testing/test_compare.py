"""How near results are, and how near they must be."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from dmlc.source import DmlcError
from dmlc.testing.compare import Tolerance, Verdict, find_within

Array = npt.NDArray[Any]
EXACT = 0.0
inf, nan = np.inf, np.nan


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def test_equal_arrays() -> None:
    found = Verdict.of(f32(1, nan, inf, -0.0), f32(1, nan, inf, 0.0), EXACT)
    assert found == Verdict(4, largest_ulp=0.0)
    assert found.holds
    assert str(found) == "exact (4 elements)"


def test_a_nan_that_signals_is_a_nan() -> None:
    """As memory may hold one that nothing was stored in."""
    signals = np.array([0x7FA00000, 0], np.uint32).view(np.float32)
    found = Verdict.of(signals, np.array([np.nan, 0], np.float32), 0.0)
    assert found.holds


def test_differences_are_measured() -> None:
    found = Verdict.of(f32(1, 2.5, 4), f32(1, 2, 5), np.array([0, 0.4, 1]))
    assert (found.different, found.largest, found.largest_relative) == (2, 1.0, 0.25)
    assert found.worst == (1,)
    assert not found.holds
    assert (found.found, found.wanted, found.most) == (2.5, 2, 0.4)
    said = "2 of 3 elements differ, by 1 at most (0.25 relative, 2097152 ulp)"
    assert str(found) == (
        f"{said}; at [1] it is 2.5 where 2 is expected: it may be off by 0.4 at most"
    )
    assert str(Verdict.of(f32(1, 2.5, 4), f32(1, 2, 5), 1.0)) == said
    assert Verdict.of(f32(1, 2.5, 4), f32(1, 2, 5), np.array([0, 0.5, 1])).holds
    assert Verdict.of(f32(1, 2.5, 4), f32(1, 2, 5), 1.0).holds


@pytest.mark.parametrize(
    ("actual", "expected"), [(nan, 1), (1, nan), (inf, 1), (inf, -inf), (nan, inf), (3e38, inf)]
)
def test_nan_and_infinity_agree_in_place_whatever_the_finite_tolerance(
    actual: float, expected: float
) -> None:
    found = Verdict.of(f32(0, actual), f32(0, expected), 1e39)
    assert not found.holds
    assert found.misplaced == 1
    assert found.worst == (1,)
    assert "NaN or infinity out of place at 1" in str(found)
    # Where nothing can be said, nothing is wrong.
    assert Verdict.of(f32(0, actual), f32(0, expected), np.array([0, inf])).holds
    assert not Verdict.of(f32(0, actual), f32(0, expected), np.array([inf, 0])).holds


def test_the_worst_place_has_an_index_per_axis() -> None:
    expected = np.zeros((2, 3, 4), np.float32)
    actual = expected.copy()
    actual[1, 2, 3], actual[0, 0, 1] = 2, 1
    assert Verdict.of(actual, expected, EXACT).worst == (1, 2, 3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.bool_])
def test_whole_numbers(dtype: npt.DTypeLike) -> None:
    assert Verdict.of(np.array([0, 1], dtype), np.array([0, 1], dtype), EXACT).holds
    found = Verdict.of(np.array([0, 1], dtype), np.array([1, 1], dtype), EXACT)
    assert (found.different, found.holds, found.largest) == (1, False, 1.0)
    assert str(found).startswith("1 of 2 elements differ, by 1 at most; at [0] ")


def test_large_whole_numbers_differ_though_float64_does_not_tell() -> None:
    one, other = np.array([2**63], np.uint64), np.array([2**63 + 1], np.uint64)
    found = Verdict.of(one, other, EXACT)
    assert found.different == 1
    assert not found.holds


def test_whole_numbers_may_be_as_far_off_as_the_floats_they_are_made_of() -> None:
    one, other = np.array([3, 200], np.uint8), np.array([4, 202], np.uint8)
    assert Verdict.of(one, other, np.array([1.0, 2.0])).holds
    assert find_within(one, other, np.array([1.0, 2.0])).all()
    near = Verdict.of(one, other, np.array([1.0, 1.0]))
    assert (near.holds, near.worst) == (False, (1,))
    assert find_within(one, other, np.array([0.5, np.inf])).tolist() == [False, True]


def test_halves_and_brains() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        assert Verdict.of(f32(1, nan).astype(dtype), f32(1, nan).astype(dtype), EXACT).holds


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_steps_between_values(dtype: npt.DTypeLike) -> None:
    one, zero = np.array([1], dtype), np.array([0], dtype)
    following = one.copy()
    words = following.view(f"i{one.dtype.itemsize}")
    words += 3
    assert Verdict.of(following, one, EXACT).largest_ulp == 3
    assert Verdict.of(one, following, EXACT).largest_ulp == 3
    tiny = zero.copy()
    words = tiny.view(f"i{one.dtype.itemsize}")
    words += 1
    assert Verdict.of(tiny, -zero, EXACT).largest_ulp == 1
    assert Verdict.of(tiny, -tiny, EXACT).largest_ulp == 2


def test_arrays_must_be_of_one_shape_and_type() -> None:
    with pytest.raises(DmlcError, match=r"float32\[2\] and float32\[3\]"):
        Verdict.of(f32(1, 2), f32(1, 2, 3), EXACT)
    with pytest.raises(DmlcError, match="float16"):
        Verdict.of(f32(1), f32(1).astype(np.float16), EXACT)


def test_a_tolerance_is_relative_to_what_is_expected_or_absolute() -> None:
    expected = f32(2, -4, 0)
    assert Tolerance(0.25, 0.5).allow(expected).tolist() == [1.0, 1.5, 0.5]
    assert Verdict.of(f32(3, -5.5, 0.5), expected, Tolerance(0.25, 0.5).allow(expected)).holds
    assert not Verdict.of(f32(3, -5.75, 0.5), expected, Tolerance(0.25, 0.5).allow(expected)).holds
