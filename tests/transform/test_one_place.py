"""Reductions of which one place takes part: it is read, and nothing else changes, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.pipeline import compile, rewrite
from dmlc.reference import evaluate
from dmlc.runtime import opencl
from dmlc.scalars import Array
from dmlc.transform.one_place import read_one_place
from dmlc.transform.simplify import simplify

NAN, INF = float("nan"), float("inf")
PLACES: dict[str, tuple[float, ...]] = {
    "s64": (0, 3, -1, 4, 2**40, -(2**40), 1, 2),
    "s32": (0, 3, -1, 4, 2**31 - 1, -(2**31), 1, 2),
    "u8": (0, 3, 255, 4, 128, 5, 1, 2),
    "u64": (0, 3, 2**64 - 1, 4, 2**63, 5, 1, 2),
    "f32": (0, 3, -0.0, NAN, 1.5, INF, 1, 2),
}
"""Places along an axis of 4, and others."""

CHOICE = """func @choice(%T: {t}[8], %X: f32[8, 4]) -> (%Z) {{
  %Z: f32[i0 < 8] = sum[r0 < 4] select(eq(%T[i0], cast(r0, {t})), %X[i0, r0], 0.0)
}}"""
GUARD = """func @guard(%T: {t}[8], %X: f32[8, 4]) -> (%Z) {{
  %Z: f32[i0 < 8] = {c}[r0 < 4 where and(ne(r0, 2), eq(cast(r0, {t}), %T[i0]))] %X[i0, r0]
}}"""
STORED = """func @stored(%T: {t}[8], %X: f32[8, 4]) -> (%Z, %onehot) {{
  %onehot: f32[i0 < 8, i1 < 4] = select(eq(%T[i0], cast(i1, {t})), %X[i0, i1], 0.0)
  %Z: f32[i0 < 8] = sum[r0 < 4] mul(%onehot[i0, r0], -1.0)
}}"""
SEVERAL = """func @several(%T: {t}[8], %X: f32[8, 4]) -> (%Z) {{
  %Z: f32[i0 < 4] = sum[r0 < 8, r1 < 4] select(eq(%T[r0], cast(r1, {t})),
    mul(%X[r0, r1], cast(i0, f32)), 0.0)
}}"""
SHIFTED = """func @shifted(%T: {t}[8], %X: f32[8, 4]) -> (%Z) {{
  %Z: f32[i0 < 8] = sum[r0 < 4 where eq(cast(%T[i0], s64), cast(add(r0, 2), s64))] %X[i0, r0]
}}"""
POSITIONS = """func @positions(%T: {t}[8], %X: f32[8, 4]) -> (%Z) {{
  %Z: f32[i0 < 2, i1 < 3] = sum[r0 < 4 where eq(r0, add(mul(i0, 2), i1))] %X[i1, r0]
}}"""


def make_values() -> Array:
    """What no other place may show, and a zero of each sign."""
    values = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    values[0, 0], values[1, 3], values[2] = -0.0, NAN, NAN
    values[7] = [INF, -INF, -0.0, NAN]
    return values


def run(text: str, t: str) -> tuple[ir.Function, Array, Array]:
    """The function with one place read, and the bits of its result before and after."""
    function = ir.parse(text)
    inputs = {"T": np.array(PLACES[t], ir.DataType(t).dtype), "X": make_values()}
    made = read_one_place(simplify(function))
    ir.verify(made, "read_one_place", function)
    before, after = (evaluate(f, inputs)["Z"].view(np.uint32) for f in (function, made))
    return made, before, after


@pytest.mark.parametrize("t", PLACES)
@pytest.mark.parametrize("form", [CHOICE, GUARD, SEVERAL, SHIFTED], ids=lambda f: f[6:12])
def test_results_are_the_same_bit_by_bit(form: str, t: str) -> None:
    made, before, after = run(form.format(t=t, c="sum"), t)
    np.testing.assert_array_equal(after, before)
    reductions = [s.reduction.axes for s in made.stages if s.reduction is not None]
    assert reductions == ([((0, 8),)] if form is SEVERAL else [])


@pytest.mark.parametrize("combiner", ["sum", "product", "min", "max"])
def test_every_combiner(combiner: str) -> None:
    made, before, after = run(GUARD.format(t="s64", c=combiner), "s64")
    np.testing.assert_array_equal(after, before)
    assert made.stages[0].reduction is None


def test_a_zero_below_zero_is_summed() -> None:
    _, before, after = run(CHOICE.format(t="s32", c="sum"), "s32")
    assert before[0] == after[0] == 0


def test_places_made_of_several_indices() -> None:
    made, before, after = run(POSITIONS.format(t="s32"), "s32")
    np.testing.assert_array_equal(after, before)
    assert made.stages[0].reduction is None


def test_a_one_hot_that_is_stored_and_scaled() -> None:
    function = ir.parse(STORED.format(t="s64"))
    made = rewrite(function)
    assert all(stage.reduction is None for stage in made.stages)
    values = np.nan_to_num(make_values(), posinf=2, neginf=3)
    inputs = {"T": np.array(PLACES["s64"], np.int64), "X": values}
    found = opencl.load(compile(function, "opencl"))(inputs)
    for name, expected in evaluate(function, inputs).items():
        np.testing.assert_array_equal(found[name], expected)


def test_the_gradient_of_softmax_at_a_class_sums_nothing() -> None:
    # What PyTorch's cross entropy comes to: a sum over all classes of what one of them has.
    function = ir.parse("""func @f(%T: s64[64], %G: f32[], %P: f32[64, 500]) -> (%Z) {
      %dy: f32[i0 < 64, i1 < 500] = mul(select(eq(cast(%T[i0], index), i1), -1.0, 0.0), %G[])
      %sum: f32[i0 < 64, i1 < 1] = sum[r0 < 500] %dy[i0, r0]
      %Z: f32[i0 < 64, i1 < 500] = sub(%dy[i0, i1], mul(exp(%P[i0, i1]), %sum[i0, 0]))
    }""")
    assert all(stage.reduction is None for stage in rewrite(function).stages)
    assert len(compile(function, "opencl").kernels) == 1


@pytest.mark.parametrize(
    "body",
    [
        "argmax[r0 < 4 where eq(cast(r0, s64), %T[i0])] %X[i0, r0]",
        "sum[r0 < 4 where eq(cast(mul(r0, 2), s64), %T[i0])] %X[i0, r0]",
        "sum[r0 < 4 where eq(cast(r0, s64), %T[r0])] %X[i0, r0]",
        "sum[r0 < 4 where le(cast(r0, s64), %T[i0])] %X[i0, r0]",
        "sum[r0 < 4] select(eq(cast(r0, s64), %T[i0]), %X[i0, r0], 1.0)",
        "sum[r0 < 4] select(eq(cast(r0, s64), %T[i0]), 0.0, %X[i0, r0])",
        "max[r0 < 4] select(eq(cast(r0, s64), %T[i0]), %X[i0, r0], 0.0)",
        "sum[r0 < 4] mul(%X[i0, r0], cast(eq(cast(r0, s64), %T[i0]), f32))",
    ],
)
def test_what_takes_more_than_one_place_is_left(body: str) -> None:
    z = "s32" if body.startswith("arg") else "f32"
    text = f"func @f(%T: s64[8], %X: f32[8, 4]) -> (%Z) {{ %Z: {z}[i0 < 8] = {body} }}"
    function = simplify(ir.parse(text))
    assert read_one_place(function) is function
