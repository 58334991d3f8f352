"""Folds of few points, written out where the same points pass again and again."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.ir.verify import verify
from dmlc.loops.unroll import unroll
from dmlc.reference import evaluate
from dmlc.transform.factor import factor_separable
from dmlc.transform.simplify import simplify
from dmlc.transform.tighten import tighten_bounds
from tests.windows import make_windows


def make_sums(columns: int, window: int, step: tuple[int, int], pad: int = 0) -> ir.Function:
    """Narrowed sums along rows: the second stage."""
    return simplify(
        tighten_bounds(
            simplify(factor_separable(make_windows(2, columns, window, step, pad), 1000))
        )
    )


def test_inner_windows_are_all_alike() -> None:
    function = make_sums(20, 4, (2, 1), 1)
    stretch = unroll(function, function.stages[1], 2)
    assert stretch is not None
    assert (stretch.first, stretch.last, len(stretch.stages)) == (1, 19, 1)
    (stage,) = stretch.stages
    assert stage.reduction is None
    assert sum(load.tensor == "y_rows" for load in stage.body.loads()) == 4
    # The weights repeat: they are numbers.
    assert {load.tensor for load in stage.body.loads()} == {"y_rows"}


def test_every_second_window_is_longer() -> None:
    text = """
        func @pairs(%x: f32[30]) -> (%y) {
          %y: f32[i0 < 20] = sum[r0 < 30] {
            where eq(div(mul(r0, 2), 3), i0)
            %x[r0]
          }
        }"""
    function = simplify(tighten_bounds(simplify(ir.parse(text))))
    stretch = unroll(function, function.stages[0], 0)
    assert stretch is not None
    terms = [len(stage.body.loads()) for stage in stretch.stages]
    assert (stretch.first, stretch.last, terms) == (0, 20, [2, 1])
    assert unroll(function, function.stages[0], 0, longest_period=1) is None


def test_zeros_of_both_signs_are_two_values() -> None:
    signs = "-0.0, " * 10 + ", ".join(["0.0"] * 10)
    function = ir.parse(f"""
        func @f(%x: f32[20]) -> (%y) {{
          table %w: f32[20] = {{{signs}}}
          %y: f32[i0 < 20] = max[r0 < 1] mul(%w[i0], %x[i0])
        }}""")
    stretch = unroll(function, function.stages[0], 0)
    assert stretch is not None
    stages = tuple(dataclasses.replace(s, name="y") for s in stretch.stages)
    made = dataclasses.replace(function, stages=stages)
    x = {"x": np.full(20, 3, np.float32)}
    found, wanted = (evaluate(f, x)["y"] for f in (made, function))
    assert np.array_equal(np.signbit(found), np.signbit(wanted[stretch.first : stretch.last]))


def test_the_period_is_the_one_in_which_positions_are_even() -> None:
    # Every window has three columns; but only every second starts three columns further on.
    function = make_sums(40, 3, (3, 2), 0)
    stretch = unroll(function, function.stages[1], 2)
    assert stretch is not None
    assert len(stretch.stages) == 2
    for stage in stretch.stages:
        forms = {type(i) for i in stage.body.instructions}
        assert ir.Select not in forms
        assert not any(
            isinstance(i, ir.Apply) and i.operation.name in ("div", "mod", "floor")
            for i in stage.body.instructions
        )


@pytest.mark.parametrize(
    "text",
    [
        """func @long(%x: f32[9, 40]) -> (%y) { %y: f32[i0 < 9] = sum[r1 < 40] %x[i0, r1] }""",
        """func @place(%x: f32[9, 4]) -> (%y) { %y: s32[i0 < 9] = argmax[r1 < 4] %x[i0, r1] }""",
        """func @loaded(%x: f32[9, 4]) -> (%y) {
             %y: f32[i0 < 9] = sum[r1 < 4] {
               where gt(%x[i0, r1], 0.0)
               %x[i0, r1]
             }
           }""",
        """func @none(%x: f32[0, 4]) -> (%y) { %y: f32[i0 < 0] = sum[r1 < 4] %x[i0, r1] }""",
    ],
)
def test_what_is_not_written_out(text: str) -> None:
    function = ir.parse(text)
    assert unroll(function, function.stages[0], 0) is None


@settings(deadline=None)
@given(
    columns=st.integers(1, 24),
    window=st.integers(1, 5),
    step=st.sampled_from([(1, 1), (2, 1), (3, 2), (4, 3), (1, 2)]),
    pad=st.integers(0, 2),
)
def test_terms_come_to_what_the_fold_does(
    columns: int, window: int, step: tuple[int, int], pad: int
) -> None:
    function = make_sums(columns, window, step, pad)
    if len(function.stages) != 2:
        return
    stretch = unroll(function, function.stages[1], 2)
    if stretch is None:
        return
    (parameter,) = function.parameters
    sizes = tuple(e for e in parameter.extents if isinstance(e, int))
    inputs = {"x": np.random.default_rng(3).integers(-5, 6, sizes).astype(np.float32)}
    expected = evaluate(function, inputs)["y"]
    for phase, stage in enumerate(stretch.stages):
        places = range(stretch.first + phase, stretch.last, len(stretch.stages))
        assert stage.extents[-1] == len(places)
        made = dataclasses.replace(function, stages=(function.stages[0], stage))
        verify(made)
        np.testing.assert_array_equal(evaluate(made, inputs)["y"], expected[..., places])
