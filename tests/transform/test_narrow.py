"""Reductions walk no more places than their guards let through, and come out the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.pipeline import rewrite
from dmlc.reference import evaluate
from dmlc.transform.narrow import narrow
from dmlc.transform.simplify import simplify
from tests import positions
from tests.positions import FUNCTIONS, find_differences, make_inputs


def narrowed(name: str) -> ir.Function:
    return simplify(narrow(simplify(positions.read(name))))


def reductions(function: ir.Function) -> list[tuple[tuple[int, ir.Extent], ...]]:
    return [s.reduction.axes for s in function.stages if s.reduction is not None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_stay(name: str) -> None:
    function = positions.read(name)
    inputs = make_inputs(function)
    made = rewrite(function)
    assert find_differences(evaluate(made, inputs), evaluate(function, inputs)) == []
    assert ir.parse(str(made)) == made
    assert ir.from_json(ir.to_json(made)) == made
    assert rewrite(positions.read(name)) == made


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("linear_grad", [((0, 4), (1, 4))]),
        ("nearest_grad", [((0, 2), (1, 3))]),
        ("irregular", [((0, 5),)]),
        ("strided_window", [((0, 5),)]),
        ("average_pool", [((0, 3), (1, 2))]),
        ("max_pool_place", [((0, 3), (1, 3)), ((0, 3), (1, 3))]),
        ("one_place", []),
        ("count", []),
        ("mean_of_valid", [((0, 3),)]),
    ],
)
def test_extents(name: str, axes: list[tuple[tuple[int, int], ...]]) -> None:
    assert reductions(narrowed(name)) == axes


def test_weights_that_do_not_vary_are_one_row() -> None:
    (table,) = narrowed("linear_grad").tables
    assert (table.extents, table.values) == ((4,), (0.25, 0.75, 0.75, 0.25))


def test_the_first_place_is_a_formula() -> None:
    text = str(narrowed("linear_grad"))
    assert "add(sub(mul(i2, 2), 1), r0)" in text
    assert "abs" not in text


def test_conditions_that_always_hold_go() -> None:
    text = str(narrowed("average_pool"))
    assert "lt(v0, 9)" in text
    assert text.count("lt(") == 1


def test_one_place_is_no_loop() -> None:
    assert "%Y: f32[i0 < 3, i1 < 10] = %X[i0, add(mul(i1, 2), 1)]" in str(narrowed("one_place"))


def test_other_places_come_from_a_table() -> None:
    function = narrowed("irregular")
    assert [t.name for t in function.tables] == ["Y_places", "Y_counts"]
    assert function.tables[1].values == (5, 4, 0, 5, 0, 0)


def test_fractions_become_whole_numbers() -> None:
    text = str(narrowed("linear"))
    assert "floor" not in text
    assert "min(max(" in text


def test_counts_are_evaluated_whole() -> None:
    function = narrowed("mean_of_valid")
    (table,) = function.tables
    assert table.values == (2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.0)
    assert [s.name for s in function.stages if s.reduction is not None] == ["sum"]


def test_a_guard_that_nothing_passes_stays() -> None:
    function = ir.parse(
        "func @f(%x: f32[4]) -> (%y) { %y: f32[] = sum[r0 < 4 where lt(r0, 0)] %x[r0] }"
    )
    assert reductions(narrow(function)) == [((0, 4),)]
    assert evaluate(narrow(function), {"x": np.ones(4, np.float32)})["y"] == 0


def test_a_nan_outside_the_window_does_not_leak() -> None:
    function = positions.read("linear_grad")
    inputs = {"dY": np.ones((2, 3, 8, 6), np.float32)}
    inputs["dY"][:, :, 7, 5] = np.nan
    got = evaluate(rewrite(function), inputs)["dX"]
    assert np.isnan(got[:, :, 3, 2]).all()
    assert not np.isnan(got[:, :, :2]).any()


windows = st.tuples(
    st.integers(1, 3),  # step of the output
    st.integers(1, 3),  # step of the input
    st.integers(-4, 4),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 14),
    st.integers(1, 4),
)


@settings(max_examples=80, deadline=None)
@given(windows, st.sampled_from(["sum", "max", "min", "product"]))
def test_random_windows(window: tuple[int, ...], combiner: str) -> None:
    step, spread, shift, width, outputs, places, every = window
    start = f"sub(add(mul(i0, {step}), {abs(shift)}), {abs(shift) - shift})"
    text = f"""func @f(%x: f32[{places}]) -> (%y) {{
      %y: f32[i0 < {outputs}] = {combiner}[r0 < {places} where and(
        and(ge(mul(r0, {spread}), {start}), lt(mul(r0, {spread}), add({start}, {width}))),
        eq(mod(r0, {every}), 0))] %x[r0]
    }}"""
    function = ir.parse(text)
    made = rewrite(function)
    inputs = {"x": (np.arange(places) % 3 - 1).astype(np.float32)}
    assert find_differences(evaluate(made, inputs), evaluate(function, inputs)) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 17), st.integers(1, 17), st.sampled_from([0.0, 0.25, 0.5]))
def test_random_resampling(inputs_size: int, outputs: int, shift: float) -> None:
    """The gradient of linear resampling between any two sizes."""
    ratio = np.float32(inputs_size / outputs)
    weight = (
        f"max(sub(1.0, abs(sub(sub(mul(add(cast(r0, f32), {shift}), {ratio!s}), {shift}), "
        "cast(i0, f32)))), 0.0)"
    )
    weight = re.sub(r"(?<=[ (])(\d+)e", r"\1.0e", weight)
    text = f"""func @f(%dY: f32[{outputs}]) -> (%dX) {{
      %dX: f32[i0 < {inputs_size}] =
        sum[r0 < {outputs} where ne({weight}, 0.0)] mul({weight}, %dY[r0])
    }}"""
    function = ir.parse(text)
    values = {"dY": (np.arange(outputs) % 5 - 2).astype(np.float32)}
    got, wanted = evaluate(rewrite(function), values), evaluate(function, values)
    np.testing.assert_allclose(got["dX"], wanted["dX"], rtol=1e-6, atol=1e-6)
