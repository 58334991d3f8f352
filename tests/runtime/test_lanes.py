"""Folds of small windows on a CPU, whose neighbours go together, run on random windows of whole
numbers, of which every order of summing gives the same."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl
from dmlc.scalars import Array
from tests.kernel.test_lanes import make_pool


def make_inputs(function: ir.Function) -> dict[str, Array]:
    made: dict[str, Array] = {}
    for number, parameter in enumerate(function.parameters):
        sizes = tuple(e for e in parameter.extents if isinstance(e, int))
        values = np.random.default_rng(number).integers(0, 6, sizes)
        made[parameter.name] = values.astype(parameter.dtype.dtype)
    return made


@settings(deadline=None, max_examples=60)
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
