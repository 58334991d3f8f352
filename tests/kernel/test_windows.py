"""Small windows on GPUs: work items on neighbouring outputs, which read in common."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import run_kernels
from dmlc.pipeline import make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import DataType
from tests.kernel.lowering import run
from tests.kernel.statements import list_parts, walk
from tests.windows import make_windows

FORWARD = """
    func @window(%X: {dtype}[3, {rows}, {size}]) -> (%Y) {{
      %Y: {dtype}[i0 < 3, i1 < {lines}, i2 < {outputs}] =
        {combiner}[r0 < 3, r1 < {window} where and(
          and(ge({row}, 0), lt({row}, {rows})), and(ge({place}, 0), lt({place}, {size})))]
        %X[i0, {row}, {place}]
    }}"""
"""Windows of three rows, and so many columns."""

BACKWARD = """
    func @spread(%D: f32[2, 7, 14]) -> (%G, %H) {
      %G: f32[i0 < 2, i1 < 14, i2 < 28] = sum[r0 < 2, r1 < 2 where and(
          le(add(div(i1, 2), r0), min(div(add(i1, 1), 2), 6)),
          le(add(div(i2, 2), r1), min(div(add(i2, 1), 2), 13)))]
        %D[i0, add(div(i1, 2), r0), add(div(i2, 2), r1)]
      %H: f32[i0 < 2, i1 < 14, i2 < 28] = mul(%G[i0, i1, i2], add(%D[0, 0, div(i2, 2)], 0.5))
    }"""
"""The gradient of windows of three by steps of two, and what derives from it."""


def count_loads(kernel: k.Kernel, buffer: str) -> int:
    parts = list_parts(kernel.body)
    return sum(isinstance(p, k.Load) and p.buffer == buffer for p in parts)


def write(row: str = "sub(add(i1, r0), 1)", **given: object) -> ir.Function:
    given = {"lines": given["rows"], **given}
    place = f"sub(add(mul(i2, {given['step']}), mul(r1, {given['gap']})), {given['pad']})"
    return ir.parse(FORWARD.format(row=row, place=place, **given))


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 3),
    st.sampled_from(["sum", "max", "min", "product"]), st.sampled_from(["f32", "f16", "s32"]),
    st.integers(1, 5), st.sampled_from([5, 6]), st.sampled_from(["opencl", "hlsl"]),
)  # fmt: skip
def test_windows_are_right_at_every_edge(
    window: int,
    step: int,
    gap: int,
    pad: int,
    combiner: str,
    dtype: str,
    turns: int,
    rows: int,
    target: str,
) -> None:
    outputs = 4 * turns
    size = max(1, (outputs - 1) * step + (window - 1) * gap + 1 - 2 * pad)
    function = write(dtype=dtype, rows=rows, size=size, outputs=outputs, combiner=combiner,
                     window=window, step=step, gap=gap, pad=pad)  # fmt: skip
    lowered, kernels = make_kernels(function, target, "gpu")
    run(lowered, kernels)


@pytest.mark.parametrize("target", ["opencl", "hlsl"])
def test_what_derives_from_a_window_comes_with_it(target: str) -> None:
    function = ir.parse(BACKWARD)
    lowered, kernels = make_kernels(function, target, "gpu")
    (kernel,) = kernels
    assert kernel.walk == "each computes 8 neighbouring outputs"
    assert kernel.launch.count == 2 * 14 * 28 / 8
    run(lowered, kernels)


def test_neighbours_read_in_common_once() -> None:
    function = write(dtype="f32", rows=8, size=64, outputs=64, combiner="sum", window=3, step=1,
                     gap=1, pad=1)  # fmt: skip
    _, (kernel,) = make_kernels(function, "hlsl")
    # Two rows of four outputs need six columns of four rows; one by one they would read 72.
    assert count_loads(kernel, "X") == 24
    stores = [s for s in walk(kernel.body) if isinstance(s, k.Store)]
    assert [store.value.type.lanes for store in stores] == [4, 4]


def test_rows_at_unequal_steps_stay_a_loop() -> None:
    row = "add(div(mul(i1, 2), 3), r0)"
    function = write(row=row, dtype="f32", rows=8, size=64, outputs=64, combiner="sum", window=3,
                     step=1, gap=1, pad=1)  # fmt: skip
    lowered, (kernel,) = make_kernels(function, "hlsl")
    assert kernel.walk == "each computes 4 neighbouring outputs"
    assert any(isinstance(s, k.For) for s in walk(kernel.body))
    # Four outputs need six columns of a row; one by one they would read twelve.
    assert count_loads(kernel, "X") == 6
    run(lowered, (kernel,))


@pytest.mark.parametrize(
    ("rows", "window", "words"),
    [
        (8, 9, "8 neighbouring outputs"),
        (8, 11, "4 neighbouring outputs"),
        (7, 9, "4 neighbouring outputs"),
        (8, 23, "1 output"),
    ],
)
def test_the_more_points_the_fewer_rows(rows: int, window: int, words: str) -> None:
    function = write(dtype="f32", rows=rows, size=64, outputs=32, combiner="sum", window=window,
                     step=1, gap=1, pad=1)  # fmt: skip
    lowered, (kernel,) = make_kernels(function, "hlsl")
    assert kernel.walk == f"each computes {words}"
    is_loop = any(isinstance(s, k.For) for s in walk(kernel.body))
    assert is_loop is (words == "1 output")
    run(lowered, (kernel,))


def test_points_that_always_take_part_have_no_condition() -> None:
    function = write(row="add(mul(i1, 2), r0)", dtype="f32", rows=9, lines=4, size=64, outputs=32,
                     combiner="sum", window=2, step=2, gap=1, pad=0)  # fmt: skip
    _, (kernel,) = make_kernels(function, "hlsl")
    assert kernel.walk == "each computes 8 neighbouring outputs"
    assert not any(isinstance(p, k.Select) for p in list_parts(kernel.body))


@pytest.mark.parametrize("outputs", [30, 31])
def test_rows_that_neighbours_do_not_fill_go_one_by_one(outputs: int) -> None:
    function = write(dtype="f32", rows=8, size=outputs, outputs=outputs, combiner="sum", window=3,
                     step=1, gap=1, pad=1)  # fmt: skip
    lowered, kernels = make_kernels(function, "hlsl")
    assert kernels[0].walk == "each computes 1 output"
    run(lowered, kernels)


def test_outputs_whose_windows_are_empty_are_0() -> None:
    function = ir.parse("""func @some(%X: f32[3, 4, 8]) -> (%Y) {
      %Y: f32[i0 < 3, i1 < 4, i2 < 8] = sum[r0 < 2, r1 < 2 where and(
          lt(i0, 2), and(lt(add(i1, r0), 4), lt(add(i2, r1), 8)))]
        %X[i0, add(i1, r0), add(i2, r1)]
    }""")
    for target in ("opencl", "hlsl"):
        lowered, (kernel,) = make_kernels(function, target, "gpu")
        assert kernel.walk == "each computes 8 neighbouring outputs"
        run(lowered, (kernel,))


PLACES = """
    func @place(%X: {dtype}[2, 9, {size}]) -> (%P, %V, %W) {{
      %P: s32[i0 < 2, i1 < {lines}, i2 < {outputs}] = {combiner}[r0 < 3, r1 < 2]
        %X[i0, add(mul(i1, 2), r0), min(add(mul(i2, {step}), r1), {last})]
      %V: s32[i0 < 2, i1 < {lines}, i2 < {outputs}] =
        add(mul(%P[i0, i1, i2], 2:s32), cast(mul(i2, max(sub(i1, 1), 0)), s32))
      %W: f32[i0 < 2, i1 < {lines}, i2 < {outputs}] =
        mul(cast(mod(%P[i0, i1, i2], 2:s32), f32), cast(%X[0, i1, 0], f32))
    }}"""


@pytest.mark.grid(3)
@pytest.mark.parametrize("combiner", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["f32", "s32", "f16"])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("lines", [3, 4])
def test_places_in_windows(combiner: str, dtype: str, step: int, lines: int) -> None:
    text = PLACES.format(dtype=dtype, combiner=combiner, outputs=8, step=step, size=7 * step + 1,
                         last=7 * step, lines=lines)  # fmt: skip
    for target in ("opencl", "hlsl"):
        lowered, kernels = make_kernels(ir.parse(text), target, "gpu")
        count = {3: 4, 4: 8}[lines]
        assert kernels[0].walk == f"each computes {count} neighbouring outputs"
        assert not any(isinstance(s, k.For) for s in walk(kernels[0].body))
        run(lowered, kernels)


def test_what_follows_from_a_place_is_chosen_with_it() -> None:
    function = ir.parse("""func @offset(%X: f32[2, 9, 17]) -> (%V) {
      %P: s32[i0 < 2, i1 < 4, i2 < 8] = argmax[r0 < 3, r1 < 3]
        %X[i0, add(mul(i1, 2), r0), add(mul(i2, 2), r1)]
      %V: s32[i0 < 2, i1 < 4, i2 < 8] = cast(add(
          mul(add(mul(i1, 2), div(cast(%P[i0, i1, i2], index), 3)), 17),
          add(mul(i2, 2), mod(cast(%P[i0, i1, i2], index), 3))), s32)
    }""")
    lowered, (kernel,) = make_kernels(function, "hlsl")
    run(lowered, (kernel,))
    # Of quotients, those that tell where the work item is are left.
    names = [p.operation.name for p in list_parts(kernel.body) if isinstance(p, k.Operate)]
    assert names.count("div") + names.count("mod") <= 4


def test_columns_that_windows_share_are_added_up_once() -> None:
    function = make_windows(16, 16, 4, (2, 1), 1)
    lowered, (kernel,) = make_kernels(function, "hlsl")
    assert kernel.walk == "each computes 8 neighbouring outputs"
    assert count_loads(kernel, "x") == 6 * 10
    names = [
        p.operation.name
        for p in list_parts(kernel.body)
        if isinstance(p, k.Operate) and p.type.dtype is DataType.FLOAT32
    ]
    # Ten columns of four rows for each row of outputs, and four columns for each output: point by
    # point each would take sixteen products, and as many of weights.
    assert names.count("mul") <= 2 * 10 * 4 + 8 * 4
    assert names.count("add") <= 2 * 10 * 3 + 8 * 4
    run(lowered, (kernel,))


def test_a_value_and_its_place_are_found_together() -> None:
    function = ir.parse("""func @both(%X: f32[2, 9, 16]) -> (%M, %P) {
      %M: f32[i0 < 2, i1 < 4, i2 < 8] = max[r0 < 3, r1 < 2]
        %X[i0, add(mul(i1, 2), r0), add(mul(i2, 2), r1)]
      %P: s32[i0 < 2, i1 < 4, i2 < 8] = argmax[r0 < 3, r1 < 2]
        %X[i0, add(mul(i1, 2), r0), add(mul(i2, 2), r1)]
    }""")
    for target in ("opencl", "hlsl"):
        lowered, kernels = make_kernels(function, target, "gpu")
        assert [kernel.walk for kernel in kernels] == ["each computes 8 neighbouring outputs"]
        run(lowered, kernels)


@pytest.mark.parametrize("combiner", ["argmax", "argmin"])
def test_the_first_of_equal_points_is_taken_and_nan_before_numbers(combiner: str) -> None:
    text = PLACES.format(dtype="f32", combiner=combiner, outputs=8, step=2, size=15, last=14,
                         lines=4)  # fmt: skip
    lowered, kernels = make_kernels(ir.parse(text), "hlsl")
    random = np.random.default_rng(3)
    choice = np.array([np.nan, np.inf, -np.inf, 1.0, 1.0, -0.0, 0.0], np.float32)
    for _ in range(20):
        inputs = {"X": random.choice(choice, (2, 9, 15))}
        got, wanted = run_kernels(lowered, kernels, inputs), evaluate(lowered, inputs)
        for name, values in wanted.items():
            np.testing.assert_array_equal(got[name], values)


def test_windows_on_a_cpu_stay_as_they_are() -> None:
    function = ir.parse(BACKWARD)
    _, kernels = make_kernels(function, "opencl", "cpu")
    assert all("neighbouring" not in kernel.walk for kernel in kernels)


@pytest.mark.parametrize("strides", ["", "{0, 3, 1}", "{3, 3, 0}"])
def test_a_condition_along_another_axis_keeps_its_reads(strides: str) -> None:
    """One of two rows is not there: where no row is left to reduce, nothing else keeps
    neighbours from reading them."""
    function = ir.parse(f"""
    func @rows(%X: f32[2, 1, 3]{strides}) -> (%Y) {{
      %Y: f32[i0 < 2, i1 < 2, i2 < 4] = sum[r0 < 2, r1 < 2] {{
        v0 = add(i1, mul(r0, 2))
        v1 = add(mul(i2, 2), r1)
        where and(lt(v0, 1), lt(v1, 3))
        %X[i0, v0, v1]
      }}
    }}""")
    for target in ("opencl", "hlsl"):
        lowered, kernels = make_kernels(function, target, "gpu")
        run(lowered, kernels)
