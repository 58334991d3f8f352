"""Sums over points that elements choose: by an inverse index they come out the same, bit for bit,
with nothing scattered, and only where that is shorter."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlc
from dmlc import ir
from dmlc.api import load_program
from dmlc.ir.builder import BodyBuilder
from dmlc.pipeline import compile, find_fusion, rewrite
from dmlc.reference import evaluate
from dmlc.runtime.interface import AnyExecutable
from dmlc.scalars import Array, DataType
from dmlc.testing.outcome import Status
from dmlc.transform.inverse_index import find_choice, index_inverses
from dmlc.transform.simplify import simplify
from dmlc.transform.sort import find_starts, rank_rows
from tests.example_runs import run_examples
from tests.kernel.lowering import interpret

ROWS = """func @rows(%I: {t}[{n}], %dY: f32[{n}, {c}]) -> (%dX) {{
  %dX: f32[i0 < {e}, i1 < {c}] = sum[r0 < {n}] select(eq(%I[r0], cast(i0, {t})), %dY[r0, i1], 0.0)
}}"""
CLAMPED = """func @clamped(%I: s64[3, {n}], %dY: f32[3, {n}, 4]) -> (%dX) {{
  %dX: f32[i0 < 3, i1 < {e}, i2 < 4] = sum[r0 < {n}] {{
    v0 = %I[i0, r0]
    v1 = select(lt(v0, 0:s64), add(v0, {e}:s64), v0)
    where eq(min(max(v1, 0:s64), {last}:s64), cast(i1, s64))
    %dY[i0, r0, i2]
  }}
}}"""
GRID = """func @grid(%Places: f32[2, {n}], %Rows: f32[2, {n}], %dY: f32[2, 3, {n}]) -> (%dX) {{
  %dX: f32[i0 < 2, i1 < 3, i2 < {e}, i3 < 7] = sum[r0 < {n}] {{
    where and(eq(cast(i3, f32), add(floor(%Places[i0, r0]), 1.0)),
              eq(floor(%Rows[i0, r0]), cast(sub(i2, 1), f32)))
    %dY[i0, i1, r0]
  }}
}}"""
POINTS = """func @points(%I: u64[{n}, 6], %dY: f32[{n}, 5, 6]) -> (%dX) {{
  %dX: f32[i0 < {e}] = max[r0 < {n}, r1 < 5, r2 < 6 where and(
      eq(add(i0, 3), add(cast(%I[r0, r2], index), mul(r0, 2))), ne(r1, 3))] %dY[r0, r1, r2]
}}"""
MASKED = """func @masked(%I: s32[{n}], %dY: s32[{n}, 3]) -> (%dX) {{
  %dX: s32[i0 < {e}, i1 < 3] = sum[r0 < {n}] {{
    v0 = cast(%I[r0], index)
    where eq(min(max(v0, 0), {last}), i0)
    select(le(v0, {last}), select(ge(v0, 0), %dY[r0, i1], 0:s32), 0:s32)
  }}
}}"""
FORMS = {"rows": ROWS, "clamped": CLAMPED, "grid": GRID, "points": POINTS, "masked": MASKED}
DEVICES = [("opencl", "cpu", "opencl"), ("opencl", "gpu", "opencl"), ("hlsl", "gpu", "vulkan")]
STRIP = 256
"""Points of one element that are added up in a row."""
ATOMICS = ("atomic", "interlocked")


def read(form: str, n: int, e: int, c: int = 4, t: str = "s32") -> ir.Function:
    return ir.parse(FORMS[form].format(n=n, e=e, c=c, t=t, last=e - 1))


def make_inputs(function: ir.Function, most: int, seed: int = 0) -> dict[str, Array]:
    """Whole numbers of which many are equal and some outside, and what is no number."""
    random = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for parameter in function.parameters:
        shape = tuple(e for e in parameter.extents if isinstance(e, int))
        dtype = parameter.dtype.dtype
        if parameter.name == "dY":
            made = random.integers(-9, 10, shape)
        elif parameter.dtype.is_float:
            made = random.uniform(-2, most + 1, shape)
            special = [np.nan, np.inf, -np.inf, -0.0, 1e30]
            made.flat[:: max(1, made.size // 5)] = np.resize(
                special, made.flat[:: max(1, made.size // 5)].shape
            )
        else:
            limits = np.iinfo(dtype)
            made = random.integers(max(-3, limits.min), min(most + 4, limits.max), shape)
            made = np.where(random.random(shape) < 0.3, most // 2, made).astype(dtype)
            made.flat[:1] = limits.max
            made.flat[1:2] = limits.min
        found[parameter.name] = made.astype(dtype)
    return found


def indexed(function: ir.Function) -> ir.Function:
    made = simplify(index_inverses(simplify(function), always=True))
    ir.verify(made)
    assert len(made.stages) > len(function.stages)
    return made


@functools.lru_cache(maxsize=4)
def load(text: str, target: str, profile: str, device: str) -> AnyExecutable:
    return load_program(compile(ir.parse(text), target, profile), device)


# Sorting -------------------------------------------------------------------------------------


def sort(rows: int, count: int, most: int) -> ir.Function:
    names = dict.fromkeys(["K", "keys"])
    builder = BodyBuilder()
    places = (builder.add(ir.Index(0)), builder.add(ir.Index(1)))
    copy = builder.make(builder.add(ir.Load("K", places, DataType.INT32)))
    keys = ir.Stage("keys", DataType.INT32, (rows, count), copy)
    made = rank_rows(keys, "sorted", names, descends=False)
    starts = find_starts(made.numbers, most, "starts")
    results = tuple(ir.Result(s.name) for s in (made.places, made.numbers, starts))
    given = (ir.Parameter("K", DataType.INT32, (rows, count)),)
    function = ir.Function(
        "sort", given, (keys, made.ranks, made.places, made.numbers, starts), results
    )
    ir.verify(function)
    return function


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(1, 200),
    st.integers(0, 99),
)
def test_rows_are_sorted_and_equal_numbers_keep_their_order(
    rows: int, count: int, most: int, seed: int
) -> None:
    function = sort(rows, count, most)
    keys = np.random.default_rng(seed).integers(0, most, (rows, count)).astype(np.int32)
    places, numbers, starts = evaluate(function, {"K": keys}).values()
    order = np.argsort(keys, axis=1, kind="stable")
    assert np.array_equal(places, order)
    assert np.array_equal(numbers, np.take_along_axis(keys, order, axis=1))
    every = np.arange(most + 1)
    assert np.array_equal(starts, [np.searchsorted(row, every) for row in numbers])


# Results -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(FORMS)),
    st.one_of(st.integers(1, 30), st.sampled_from([200, 515, 700])),
    st.integers(1, 40),
    st.sampled_from(["s32", "u32", "s64", "u64", "u16", "s8", "f32", "f64", "f16"]),
    st.integers(0, 99),
)
def test_values_are_those_of_the_dense_sum(
    form: str, n: int, e: int, dtype: str, seed: int
) -> None:
    function = read(form, n, e, t=dtype if dtype != "f16" else "f32")
    inputs = make_inputs(function, e, seed)
    got, wanted = evaluate(indexed(function), inputs), evaluate(function, inputs)
    assert np.array_equal(got["dX"], wanted["dX"])


@pytest.mark.grid(6)
@pytest.mark.parametrize(("target", "profile", "device"), DEVICES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [1, 2, 30, 515])
def test_devices(form: str, n: int, target: str, profile: str, device: str) -> None:
    function = read(form, n, 12, c=37)
    made, inputs = indexed(function), make_inputs(function, 12)
    wanted = evaluate(function, inputs)["dX"]
    program = compile(made, target, profile)
    assert np.array_equal(load_program(program, device)(inputs)["dX"], wanted)
    assert np.array_equal(interpret(made, inputs, target, profile)["dX"], wanted)
    text = "".join(kernel.source for kernel in program.kernels).lower()
    assert not any(word in text for word in ATOMICS)


def test_sums_by_the_same_keys_share_an_index() -> None:
    function = ir.parse(
        "func @f(%I: s32[300], %A: f32[300, 7], %B: f32[300]) -> (%X, %Y) {\n"
        "  %X: f32[i0 < 20, i1 < 7] = sum[r0 < 300 where eq(%I[r0], cast(i0, s32))] %A[r0, i1]\n"
        "  %Y: f32[i0 < 20] = max[r0 < 300 where eq(cast(i0, s32), %I[r0])] %B[r0]\n}"
    )
    names = [stage.name for stage in indexed(function).stages]
    assert names == ["X_keys", "X_rank", "X_order", "X_sorted", "X_start", "X", "Y"]


def test_what_else_leaves_out_a_point_is_asked_once() -> None:
    """No element has points whose data lie outside, so that none has many of them."""
    function = read("masked", 100, 20)
    choice = find_choice(function.stages[0], {})
    assert choice is not None
    assert len(choice.conditions) == 2
    keys, *_, total = indexed(function).stages
    assert "I" in {load.tensor for load in keys.body.loads()}
    assert {load.tensor for load in total.body.loads()} == {"dX_order", "dX_start", "dY"}


def test_points_are_numbered_as_they_are_reduced() -> None:
    function = ir.parse(
        "func @f(%I: s32[5, 7], %X: f32[5, 7]) -> (%Y) {\n"
        "  %Y: f32[i0 < 3] = sum[r2 < 7, r1 < 5 where eq(%I[r1, r2], cast(i0, s32))] %X[r1, r2]\n}"
    )
    choice = find_choice(function.stages[0], {})
    assert choice is not None
    assert choice.points == (ir.Index(2, reduced=True), ir.Index(1, reduced=True))
    inputs = {"I": np.resize([0, 2, 1, 5], (5, 7)).astype(np.int32)}
    inputs["X"] = np.arange(35).reshape(5, 7).astype(np.float32)
    (got,), (wanted,) = (evaluate(f, inputs).values() for f in (indexed(function), function))
    assert np.array_equal(got, wanted)


def test_no_points_and_no_elements() -> None:
    for n, e in ((0, 5), (5, 0)):
        function = read("rows", n, e)
        assert index_inverses(function, always=True) is function
        (got,) = evaluate(rewrite(function), make_inputs(function, e)).values()
        assert got.shape == (e, 4)
        assert not got.any()


LONG = ROWS.format(t="s32", n=3000, e=5000, c=40)


@pytest.mark.parametrize(("target", "profile", "device"), [*DEVICES, ("wgsl", "gpu", "wgpu")])
def test_floats_are_added_in_the_order_of_points(target: str, profile: str, device: str) -> None:
    random = np.random.default_rng(1)
    index = random.integers(0, 5000, 3000)
    index[::7] = 17  # That are 429 points.
    index[5], index[6] = -1, 5000
    gradient = random.standard_normal((3000, 40)) * 10.0 ** random.integers(-3, 4, (3000, 1))
    inputs = {"I": index.astype(np.int32), "dY": gradient.astype(np.float32)}
    wanted = np.zeros((5000, 40), np.float32)
    for element in range(5000):
        points = np.flatnonzero(index == element)
        for first in range(0, points.size, STRIP):
            strip = np.zeros(40, np.float32)
            for row in inputs["dY"][points[first : first + STRIP]]:
                strip = strip + row
            wanted[element] += strip
    executable = load(LONG, target, profile, device)
    assert len(executable.program.kernels) > 3
    first = executable(inputs)["dX"]
    assert first.tobytes() == wanted.tobytes()
    for _ in range(9):
        assert executable(inputs)["dX"].tobytes() == first.tobytes()


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_bits_are_those_of_the_dense_kernel(profile: str) -> None:
    function = read("rows", 800, 330, c=16)
    random = np.random.default_rng(2)
    inputs = make_inputs(function, 330)
    inputs["dY"] = random.standard_normal((800, 16)).astype(np.float32)
    dense = compile(function, "opencl", profile)
    assert len(dense.kernels) == 1
    short = compile(indexed(function), "opencl", profile)
    results = [load_program(program)(inputs)["dX"].tobytes() for program in (dense, short)]
    assert results[0] == results[1]


def test_the_page_shows_what_is_short() -> None:
    page = Path(__file__).parents[2] / "docs/explanation/inverse-index.md"
    rows, sequences = re.findall(r"```dml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    (operator,) = dmlc.parse(rows, "page.dml").operators.values()
    given = {"I": dmlc.TensorDesc("INT32", (8192,)), "dY": dmlc.TensorDesc("FLOAT32", (8192, 64))}
    function = operator.bind({**given, "dX": (50000, 64)})
    assert "dX_start" in str(rewrite(function))
    (operator,) = dmlc.parse(sequences, "page.dml").operators.values()
    (run,) = run_examples(operator)
    assert run.status is Status.PASSED, run.message


# Where it pays -------------------------------------------------------------------------------


def test_long_sums_alone_are_indexed() -> None:
    short, long = read("rows", 900, 300), read("rows", 8192, 50000, c=512)
    assert len(rewrite(short).stages) == 1
    assert len(rewrite(long).stages) == 6
    few = read("rows", 100000, 10, c=8)
    assert len(rewrite(few).stages) == 1


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_keys_are_put_in_order(profile: str) -> None:
    """In one group of kernels, which gives numbers and places."""
    fusion = find_fusion(read("rows", 8192, 50000, c=512), "opencl", profile)
    assert [group.stages for group in fusion.groups] == [
        ("dX_keys",), ("dX_rank", "dX_order", "dX_sorted"), ("dX_start",), ("dX",),
    ]  # fmt: skip


def test_the_index_is_built_once_for_each_place_that_keys_depend_on() -> None:
    choice = find_choice(read("clamped", 100, 50).stages[0], {})
    assert choice is not None
    assert choice.batch == (ir.Index(0),)
    assert choice.points == (ir.Index(0, reduced=True),)
    assert choice.elements == 50
    made = indexed(read("clamped", 100, 50))
    assert {s.extents for s in made.stages} == {(3, 100), (3, 51), (3, 50, 4)}


@pytest.mark.parametrize(
    "condition",
    [
        # A range of places, and none.
        "lt(%I[r0], cast(i0, s32))",
        "ne(%I[r0], cast(i0, s32))",
        # What is compared with the place depends on it.
        "eq(add(%I[r0], cast(i0, s32)), cast(mul(i0, 2), s32))",
        # Places that two points of the domain share.
        "eq(%I[r0], cast(div(i0, 2), s32))",
        "eq(%I[r0], cast(mul(i0, 2), s32))",
        # Nothing of it is read.
        "eq(r0, i0)",
        # Elements that are known when it is compiled.
        "eq(%T[r0], cast(i0, s32))",
        # The same for all points.
        "eq(%I[3], cast(i0, s32))",
        "eq(%I[r0], cast(r0, s32))",
    ],
)
def test_other_conditions_stay(condition: str) -> None:
    function = ir.parse(
        "func @f(%I: s32[9], %X: f32[9]) -> (%Y) {\n"
        "  table %T: s32[9] = {0, 4, 1, 2, 3, 0, 0, 1, 5}\n"
        f"  %Y: f32[i0 < 5] = sum[r0 < 9 where {condition}] %X[r0]\n}}"
    )
    assert index_inverses(function, always=True) is function


def test_positions_and_open_sizes_stay() -> None:
    for text in (
        "%I: s32[9], %X: f32[9]) -> (%Y) { %Y: s32[i0 < 5] = argmax[r0 < 9 where C] %X[r0] }",
        "%I: s32[n], %X: f32[n]) -> (%Y) { %Y: f32[i0 < 5] = sum[r0 < n where C] %X[r0] }",
    ):
        function = ir.parse(f"func @f({text.replace('C', 'eq(%I[r0], cast(i0, s32))')}")
        assert index_inverses(function, always=True) is function


def test_reads_that_a_condition_protects_stay() -> None:
    function = ir.parse(
        "func @f(%I: s32[9], %X: f32[9]) -> (%Y) {\n"
        "  %Y: f32[i0 < 5] = sum[r0 < 9 where and(lt(r0, 8), eq(%I[r0], cast(i0, s32)))] "
        "%X[add(r0, 1)]\n}"
    )
    assert index_inverses(function, always=True) is function


def test_a_choice_of_zero_is_a_condition() -> None:
    stage = read("rows", 9, 5).stages[0]
    choice = find_choice(stage, {})
    assert choice is not None
    assert choice.stage.body.guard is not None
    # What else is chosen changes the sum.
    ones = str(read("rows", 9, 5)).replace("0.0)", "1.0)")
    assert find_choice(ir.parse(ones).stages[0], {}) is None


def test_keys_that_numbers_do_not_hold_together() -> None:
    text = (
        "func @f(%I: s32[9], %J: s32[9], %X: f32[9]) -> (%Y) {\n"
        "  %Y: f32[i0 < {0}, i1 < {0}] = sum[r0 < 9 where and("
        "eq(%I[r0], cast(i0, s32)), eq(cast(i1, s32), %J[r0]))] %X[r0]\n}"
    )
    for size, count in ((46340, 2), (46341, 1)):
        choice = find_choice(ir.parse(text.replace("{0}", str(size))).stages[0], {})
        assert choice is not None
        assert len(choice.keys) == count
        assert choice.suits


def test_elements_beyond_those_that_are_evaluated() -> None:
    stage = read("rows", 9, 1 << 24, t="s32").stages[0]
    choice = find_choice(stage, {})
    assert choice is not None
    assert choice.elements == 1 << 24
    # A FLOAT32 does not tell so many apart.
    assert find_choice(read("rows", 9, (1 << 24) + 2, t="f32").stages[0], {}) is None
    assert find_choice(read("rows", 9, 300, t="u8").stages[0], {}) is None
    huge = dataclasses.replace(choice, keys=(*choice.keys, *choice.keys))
    assert not huge.suits
