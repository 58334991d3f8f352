"""Sums over several axes, taken one axis at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.ir.index import list_arrays
from dmlc.ir.verify import verify
from dmlc.reference import evaluate
from dmlc.transform.factor import factor_separable
from tests.windows import make_windows


def test_rows_come_first_where_windows_are_large() -> None:
    made = factor_separable(make_windows(6, 7, 4, (1, 1)), 100)
    verify(made)
    rows, total = made.stages
    assert (rows.name, rows.extents, total.name) == ("y_rows", (3, 6, 10), "y")
    assert rows.reduction == ir.Reduction("sum", ((1, 9),))
    assert total.reduction == ir.Reduction("sum", ((2, 10),))
    assert {load.tensor for load in total.body.loads()} == {"y_rows"}


def test_windows_of_one_row_stay_as_they_are() -> None:
    function = make_windows(6, 7, 1, (2, 1))
    assert factor_separable(function, 100) is function


def test_a_row_longer_than_allowed_stays() -> None:
    function = make_windows(6, 7, 4, (1, 1))
    assert factor_separable(function, 9) is function
    assert factor_separable(function, 10) is not function


@pytest.mark.parametrize(
    "text",
    [
        # No weights along the last axis: nothing to take apart.
        """func @plain(%x: f32[3, 4, 5]) -> (%y) {
             %y: f32[i0 < 3] = sum[r1 < 4, r2 < 5] %x[i0, r1, r2]
           }""",
        # The greatest of products is no product of greatest ones.
        """func @greatest(%x: f32[9, 9]) -> (%y) {
             %y: f32[i0 < 9, i1 < 9] = max[r0 < 9, r1 < 9] {
               where and(lt(sub(r0, i0), 4), lt(sub(r1, i1), 4))
               %x[r0, r1]
             }
           }""",
        # One condition on both axes.
        """func @triangle(%x: f32[9, 9]) -> (%y) {
             %y: f32[i0 < 9, i1 < 9] = sum[r0 < 9, r1 < 9] {
               where lt(add(r0, r1), add(i0, i1))
               %x[r0, r1]
             }
           }""",
        # What is read depends on the place as well.
        """func @correlation(%x: f32[9, 9], %w: f32[9]) -> (%y) {
             %y: f32[i0 < 9, i1 < 9] = sum[r0 < 9, r1 < 9] {
               where and(lt(sub(r0, i0), 4), lt(sub(r1, i1), 4))
               mul(%x[r0, r1], %w[i1])
             }
           }""",
    ],
)
def test_what_does_not_separate_stays(text: str) -> None:
    function = ir.parse(text)
    assert factor_separable(function, 100) is function


@settings(deadline=None)
@given(
    rows=st.integers(1, 6),
    columns=st.integers(1, 6),
    window=st.integers(1, 5),
    step=st.integers(1, 3),
    dtype=st.sampled_from(["f32", "f64", "s32"]),
)
def test_both_forms_give_the_same_whole_numbers(
    rows: int, columns: int, window: int, step: int, dtype: str
) -> None:
    function = make_windows(rows, columns, window, (step, 1), 0, dtype)
    made = factor_separable(function, 1000)
    verify(made)
    (parameter,) = function.parameters
    sizes = tuple(e for e in parameter.extents if isinstance(e, int))
    values = np.random.default_rng(7).integers(-9, 9, sizes).astype(parameter.dtype.dtype)
    expected = evaluate(function, {"x": values})["y"]
    np.testing.assert_array_equal(evaluate(made, {"x": values})["y"], expected)


def test_a_value_outside_the_window_does_not_show() -> None:
    function = make_windows(2, 2, 4, (4, 1))
    values = np.ones((3, 8, 8), np.float32)
    values[0, 0, 0] = np.nan
    for form in (function, factor_separable(function, 100)):
        missing = np.isnan(evaluate(form, {"x": values})["y"])
        assert missing.sum() == 1
        assert missing[0, 0, 0]


def test_names_already_taken_are_left_alone() -> None:
    text = str(make_windows(6, 7, 4, (1, 1))).replace("%x", "%y_rows")
    made = factor_separable(ir.parse(text), 100)
    assert made.stages[0].name == "y_rows_2"


def test_a_row_that_only_the_other_sum_keeps_inside_is_not_read_outside() -> None:
    """The third place of a row is one that the outer sum leaves out, and that `x` lacks."""
    function = ir.parse(
        """func @band(%x: f32[50, 2]) -> (%y) {
             %y: f32[i0 < 4] = sum[r0 < 3, r1 < 50 where le(r0, mod(i0, 2))] {
               %x[r1, r0]
             }
           }"""
    )
    verify(function)
    made = factor_separable(function, 100)
    verify(made, "separate", function)
    assert [stage.name for stage in made.stages] == ["y_rows", "y"]
    x = np.arange(100, dtype=np.float32).reshape(50, 2)
    expected = evaluate(function, {"x": x})["y"]
    np.testing.assert_array_equal(evaluate(made, {"x": x})["y"], expected)
    np.testing.assert_array_equal(expected, [x[:, 0].sum(), x.sum()] * 2)


def test_a_sum_stays_whose_weights_only_the_inner_one_keeps_inside() -> None:
    function = ir.parse(
        """func @weighted(%x: f32[9, 9]) -> (%y) {
             table %w: f32[2, 4] = {1, 2, 3, 4, 5, 6, 7, 8}
             %y: f32[i0 < 4] = sum[r0 < 9, r1 < 50] {
               where and(lt(r1, 9), and(le(r0, i0), lt(r0, 2)))
               mul(%x[r1, r0], %w[r0, i0])
             }
           }"""
    )
    verify(function)
    assert factor_separable(function, 100, list_arrays(function.tables)) is function
