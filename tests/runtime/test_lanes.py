"""Folds of small windows on a CPU, whose neighbours go together, run on random windows of whole
numbers, of which every order of summing gives the same."""

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
from tests.kernel.test_vectorize import make_pool


def make_inputs(function: ir.Function) -> dict[str, Array]:
    made: dict[str, Array] = {}
    for number, parameter in enumerate(function.parameters):
        sizes = tuple(e for e in parameter.extents if isinstance(e, int))
        values = np.random.default_rng(number).integers(0, 6, sizes)
        made[parameter.name] = values.astype(parameter.dtype.dtype)
    return made


@settings(deadline=None, max_examples=30)
@given(
    outputs=st.integers(16, 45),
    window=st.integers(1, 4),
    stride=st.integers(1, 4),
    pad=st.integers(0, 2),
    combiner=st.sampled_from(["max", "sum", "min"]),
    dtype=st.sampled_from(["f32", "f16", "bf16", "s32", "f64", "s8"]),
    kind=st.sampled_from(["plain", "added", "counted"]),
)
@example(outputs=40, window=3, stride=2, pad=1, combiner="max", dtype="f16", kind="added")
@example(outputs=40, window=2, stride=2, pad=0, combiner="sum", dtype="f32", kind="plain")
@example(outputs=40, window=3, stride=1, pad=1, combiner="sum", dtype="f32", kind="counted")
def test_neighbours_fold_what_each_would(
    outputs: int, window: int, stride: int, pad: int, combiner: str, dtype: str, kind: str
) -> None:
    size = max(1, (outputs - 1) * stride + window - 2 * pad)
    after, more = "", ""
    if kind == "added" and dtype in ("f32", "s32", "f64"):
        after = """
  %y: {{dtype}}[i0 < 4, i1 < {n}, i2 < {n}] = add(%s[i0, i1, i2], %z[i0, i1, i2])"""
        more = ", %z: {dtype}[4, {n}, {n}]"
    elif kind == "counted" and dtype == "f32":
        # How many columns of the window are in the image, which is the same but at the edges.
        after = """
  %y: {{dtype}}[i0 < 4, i1 < {n}, i2 < {n}] = {{
    v0 = sub(mul(i2, {stride}), {pad})
    v1 = sub(min(add(v0, {window}), {size}), max(v0, 0))
    mul(%s[i0, i1, i2], cast(v1, f32))
  }}"""
    places = {"stride": stride, "pad": pad, "window": window, "size": size, "n": outputs}
    text = after.replace("{{dtype}}", dtype).replace("{{", "{").replace("}}", "}")
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", str(value))
    more = more.replace("{dtype}", dtype).replace("{n}", str(outputs))
    function = make_pool(size, window, stride, pad, combiner, dtype, text, more)
    inputs = make_inputs(function)
    found = opencl.load(compile(function, "opencl", "cpu"))(inputs)["y"]
    np.testing.assert_array_equal(found, evaluate(function, inputs)["y"])


def test_a_result_may_lie_in_what_it_is_computed_from() -> None:
    after = """
  %y: f32[i0 < 4, i1 < 40, i2 < 40] = add(%s[i0, i1, i2], %z[i0, i1, i2])"""
    function = make_pool(
        40, 3, 1, 1, "sum", "f32", after, ", %z: f32[4, 40, 40]", " in place (%y over %z)"
    )
    inputs = make_inputs(function)
    expected = evaluate(function, inputs)["y"]
    program = opencl.load(compile(function, "opencl", "cpu"))
    program(inputs, {"y": inputs["z"]})
    np.testing.assert_array_equal(inputs["z"], expected)


UNKNOWN_PLACES = {
    "a comparison": "select(eq(cast(%t[i0], index), i1), -1.0, 0.0)",
    "one that an element joins": "select(and(ge(i1, cast(%t[i0], index)), lt(%x[i0, i1], 3.0)), "
    "%x[i0, i1], 0.5)",
    "a comparison as a number": "add(%x[i0, i1], cast(eq(cast(%t[i0], index), i1), f32))",
    "the remainder of a position": "select(lt(cast(%t[i0], index), mod(i1, 8)), %x[i0, i1], 1.0)",
    "a position as a float": "mul(cast(%t[i0], f32), cast(i1, f32))",
    "a position as a whole number": "cast(add(cast(i1, s32), %t[i0]), f32)",
    "a choice of positions": "cast(select(gt(%x[i0, i1], 3.0), i1, 0), f32)",
    "the smaller position": "%x[i0, min(i1, max(min(cast(%t[i0], index), 99), 0))]",
}


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("folded", [False, True], ids=["stored", "folded"])
@pytest.mark.parametrize("formula", UNKNOWN_PLACES.values(), ids=UNKNOWN_PLACES.keys())
def test_what_a_position_meets_at_run_time_is_computed_for_each_lane(
    formula: str, folded: bool, dtype: str
) -> None:
    over = "sum[r0 < 64] " if folded else ""
    if folded:
        formula = formula.replace("i0", "r0")
    domain = "i0 < 1, i1 < 100" if folded else "i0 < 64, i1 < 100"
    function = ir.parse(
        f"func @f(%t: s32[64], %x: f32[64, 100]) -> (%y) {{\n"
        f"  %y: {dtype}[{domain}] = {over}{formula}\n}}"
    )
    inputs = {**make_inputs(function), "t": np.arange(64, dtype=np.int32) * 37 % 101}
    found = opencl.load(compile(function, "opencl", "cpu"))(inputs)["y"]
    np.testing.assert_array_equal(found, evaluate(function, inputs)["y"])


def test_positions_of_too_many_points_to_look_at_are_computed_for_each_lane() -> None:
    function = ir.parse(
        "func @f(%x: f32[520, 520]) -> (%y) {\n"
        "  %y: f32[i0 < 520, i1 < 520] = select(le(i1, i0), %x[i0, i1], 0.0)\n}"
    )
    inputs = make_inputs(function)
    found = opencl.load(compile(function, "opencl", "cpu"))(inputs)["y"]
    np.testing.assert_array_equal(found, evaluate(function, inputs)["y"])
