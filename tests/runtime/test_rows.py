"""Kernels that keep a row of a reduction at hand, run on random windows of whole numbers, of which
every order of summing gives the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl
from dmlc.scalars import Array
from tests.windows import make_windows


def make_inputs(function: ir.Function) -> dict[str, Array]:
    made: dict[str, Array] = {}
    for number, parameter in enumerate(function.parameters):
        sizes = tuple(e for e in parameter.extents if isinstance(e, int))
        values = np.random.default_rng(number).integers(-3, 4, sizes)
        made[parameter.name] = values.astype(parameter.dtype.dtype)
    return made


def check(function: ir.Function) -> None:
    inputs = make_inputs(function)
    found = opencl.load(compile(function, "opencl", "cpu"))(inputs)
    expected = evaluate(function, inputs)
    np.testing.assert_array_equal(found["y"], expected["y"])


def test_negative_zeros_add_up_to_a_positive_one() -> None:
    function = make_windows(9, 40, 3, (3, 2), 1)
    (parameter,) = function.parameters
    sizes = [e for e in parameter.extents if isinstance(e, int)]
    inputs = {"x": np.full(sizes, -0.0, np.float32)}
    found = opencl.load(compile(function, "opencl", "cpu"))(inputs)["y"]
    assert not np.signbit(found).any()
    assert not np.signbit(evaluate(function, inputs)["y"]).any()


@settings(deadline=None, max_examples=20)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 40),
    window=st.integers(1, 4),
    step=st.sampled_from([(1, 1), (2, 1), (3, 1), (3, 2), (5, 3), (1, 2), (2, 3)]),
    pad=st.integers(0, 2),
    dtype=st.sampled_from(["f32", "f16", "bf16", "f64", "s32"]),
    masked=st.booleans(),
)
@example(rows=9, columns=40, window=3, step=(3, 2), pad=1, dtype="f16", masked=True)
@example(rows=9, columns=37, window=4, step=(2, 1), pad=1, dtype="f32", masked=False)
@example(rows=9, columns=40, window=2, step=(5, 3), pad=0, dtype="f32", masked=True)
def test_rows_give_what_the_dense_sum_does(
    rows: int,
    columns: int,
    window: int,
    step: tuple[int, int],
    pad: int,
    dtype: str,
    masked: bool,
) -> None:
    check(
        make_windows(
            rows, columns, window, step, pad, dtype, masked=masked and dtype not in ("s32", "f64")
        )
    )


@pytest.mark.parametrize("places", [1, 2, 5])
def test_what_lies_outside_a_window_does_not_show(places: int) -> None:
    function = make_windows(places, places, 4, (4, 1))
    values = np.ones((3, 4 * places, 4 * places), np.float32)
    values[0, 0, 0] = np.nan
    values[1, -1, 0] = np.inf
    found = opencl.load(compile(function, "opencl", "cpu"))({"x": values})["y"]
    assert np.argwhere(~np.isfinite(found)).tolist() == [[0, 0, 0], [1, places - 1, 0]]
