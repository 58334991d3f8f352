"""Prefix sums in blocks: the same as going through all points, for every combiner, either way, and
the same bits in every run and on every device."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.api import load_program
from dmlc.pipeline import compile, describe_schedules, rewrite
from dmlc.reference import evaluate
from dmlc.scalars import Array, DataType
from dmlc.testing.bounds import bound_errors
from dmlc.transform.rising import bisect_counts
from dmlc.transform.scans import find_scan, scan_in_blocks
from dmlc.transform.simplify import simplify
from tests.kernel.lowering import interpret

DEVICES = [("opencl", "cpu", "opencl"), ("opencl", "gpu", "opencl"), ("hlsl", "gpu", "vulkan")]
TYPES = {"f32": np.float32, "s32": np.int32, "f64": np.float64, "b1": np.bool_}
LINE = """func @line(%X: f32[{n}]) -> (%Y) {{
  %Y: f32[i0 < {n}] = sum[r0 < {n} where le(r0, i0)] %X[r0]
}}"""
CONDITIONS = (
    "le(r0, i1)", "lt(r0, i1)", "ge(r0, i1)", "gt(i1, r0)", "le(i1, add(r0, 2))",
    "lt(add(i1, r0), {n})", "gt(mul(i1, 3), r0)", "and(le(r0, i1), ne(r0, 3))",
    "and(ge(r0, i1), lt(i1, 5))",
)  # fmt: skip


def scanned(function: ir.Function, *, at_all: bool = True) -> ir.Function:
    made = scan_in_blocks(simplify(function), always=True)
    ir.verify(made)
    assert (len(made.stages) > len(function.stages)) is at_all
    return simplify(made)


def draw(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    random = np.random.default_rng(seed)
    if dtype == "s32":
        return random.integers(-(2**31), 2**31, shape).astype(np.int32)
    return random.uniform(0.8, 1.25, shape).astype(TYPES[dtype])


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(CONDITIONS),
    st.sampled_from(["sum", "product", "min", "max"]),
    st.sampled_from(["f32", "s32", "f64"]),
    st.sampled_from([1, 2, 15, 16, 17, 64, 257, 1025]),
    st.integers(0, 99),
)
def test_blocks_come_to_what_all_points_do(
    condition: str, combiner: str, dtype: str, n: int, seed: int
) -> None:
    function = ir.parse(f"""func @f(%X: {dtype}[2, {n}, 3]) -> (%Y) {{
      %Y: {dtype}[i0 < 2, i1 < {n}, i2 < 3] = {combiner}[r0 < {n} where {condition.format(n=n)}]
        %X[i0, r0, i2]
    }}""")
    x = draw((2, n, 3), dtype, seed)
    (expected,) = evaluate(function, {"X": x}).values()
    (found,) = evaluate(scanned(function), {"X": x}).values()
    if dtype == "s32":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("combiner", "ufunc"), [("any", np.logical_or), ("all", np.logical_and)])
def test_conditions_are_scanned(combiner: str, ufunc: np.ufunc) -> None:
    function = ir.parse(f"""func @f(%X: f32[500]) -> (%Y) {{
      %Y: bool[i0 < 500] = {combiner}[r0 < 500 where le(r0, i0)] gt(%X[r0], 0.0)
    }}""")
    x = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    x[:40] = -1 if combiner == "any" else 1
    (found,) = evaluate(scanned(function), {"X": x}).values()
    np.testing.assert_array_equal(found, ufunc.accumulate(x > 0))


@pytest.mark.parametrize(
    "body",
    [
        "sum[r0 < 400 where and(le(r0, i0), gt(r0, sub(i0, 9)))] %X[r0]",
        "sum[r0 < 400 where le(r0, i0)] mul(%X[r0], %X[sub(i0, r0)])",
        "sum[r0 < 400 where le(r0, i0)] exp(mul(%X[r0], %X[i0]))",
        "argmax[r0 < 400 where le(r0, i0)] %X[r0]",
        "product[r0 < 400 where le(r0, i0)] mul(%X[r0], %X[i0])",
    ],
)
def test_what_moves_with_the_element_is_no_scan(body: str) -> None:
    dtype = "s32" if "arg" in body else "f32"
    function = ir.parse(f"func @f(%X: f32[400]) -> (%Y) {{ %Y: {dtype}[i0 < 400] = {body} }}")
    assert find_scan(function.stages[0]) is None


def test_terms_of_a_sum_are_scanned_without_what_the_element_says() -> None:
    function = ir.parse("""func @f(%X: f32[300, 2], %W: f32[300]) -> (%Y) {
      %Y: f32[i0 < 300, i1 < 2] = sum[r0 < 300 where le(i0, r0)] {
        v0 = %X[i0, i1]
        v1 = %X[r0, i1]
        sub(select(and(gt(v1, 0.0), gt(v0, 0.0)), div(v1, v0), 0.0), mul(neg(%W[i0]), v1))
      }
    }""")
    inputs = {
        "X": np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32),
        "W": np.arange(300, dtype=np.float32),
    }
    (expected,) = evaluate(function, inputs).values()
    (found,) = evaluate(scanned(function), inputs).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


def test_short_scans_and_sizes_known_later_stay_as_they_are() -> None:
    short = ir.parse(LINE.format(n=100))
    assert scan_in_blocks(short) is short
    later = ir.parse(LINE.format(n="N"))
    assert scan_in_blocks(later, always=True) is later


def test_what_the_condition_protects_is_not_read_elsewhere() -> None:
    function = ir.parse("""func @f(%X: f32[300]) -> (%Y) {
      %Y: f32[i0 < 300] = sum[r0 < 400 where and(le(r0, i0), le(i0, 299))] %X[r0]
    }""")
    ir.verify(function)
    (found,) = evaluate(scanned(function), {"X": np.ones(300, np.float32)}).values()
    np.testing.assert_array_equal(found, np.arange(1, 301))


def test_an_element_meets_none_of_what_comes_after_it() -> None:
    function = ir.parse(LINE.format(n=1000))
    x = np.ones(1000, np.float32)
    x[517] = np.nan
    (found,) = load_program(compile(function))({"X": x}).values()
    np.testing.assert_array_equal(found[:517], np.arange(1, 518))
    assert np.isnan(found[517:]).all()


def test_bits_are_the_same_in_every_run_and_on_every_device_of_a_kind() -> None:
    x = np.random.default_rng(0).standard_normal(100_003).astype(np.float32)
    function = ir.parse(LINE.format(n=x.size))
    exact = np.cumsum(x, dtype=np.float64)
    seen: set[tuple[str, bytes]] = set()
    for target, profile, device in DEVICES:
        program = compile(function, target, profile)
        assert not program.warnings
        loaded = load_program(program, device)
        for _ in range(4):
            (found,) = loaded({"X": x}).values()
            assert np.abs(found - exact).max() < 1e-3
            seen.add((profile, found.tobytes()))
    assert sorted(profile for profile, _ in seen) == ["cpu", "gpu"]


def test_few_stages_do_for_a_million() -> None:
    assert len(rewrite(ir.parse(LINE.format(n=1 << 20))).stages) <= 8


COUNTED = """func @counted(%X: f32[2, {n}]) -> (%place) {{
  %seen: u32[i0 < {n}, i1 < 2] = sum[r0 < {n} where and(le(r0, i0), gt(%X[i1, r0], 0.0))] 1:u32
  %place: u32[i0 < 2, i1 < {n}] = sum[r0 < {n} where {condition}] 1:u32
}}"""


@pytest.mark.parametrize(
    ("condition", "side"),
    [("le(%seen[r0, i0], cast(i1, u32))", "right"), ("gt(cast(i1, u32), %seen[r0, i0])", "left")],
)
@pytest.mark.parametrize("n", [1, 2, 700])
def test_counts_of_what_rises_are_found_by_bisection(n: int, condition: str, side: str) -> None:
    function = simplify(ir.parse(COUNTED.format(n=n, condition=condition)))
    made = bisect_counts(function, always=True)
    ir.verify(made)
    assert made.stages[-1].reduction is None
    x = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    (found,) = evaluate(simplify(scan_in_blocks(made, always=True)), {"X": x}).values()
    seen = np.cumsum(x > 0, axis=1)
    assert side in ("left", "right")
    expected = [np.searchsorted(row, np.arange(n), "right" if side == "right" else "left")
                for row in seen]  # fmt: skip
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("le(%seen[r0, i0], cast(i1, u32))", "ge(%seen[r0, i0], cast(i1, u32))"),
        ("le(%seen[r0, i0], cast(i1, u32))", "le(%seen[i1, i0], cast(r0, u32))"),
        ("le(r0, i0)", "ge(r0, i0)"),
        ("1:u32\n  %place", "cast(r0, u32)\n  %place"),
    ],
)
def test_what_need_not_rise_is_counted_point_by_point(old: str, new: str) -> None:
    text = COUNTED.format(n=700, condition="le(%seen[r0, i0], cast(i1, u32))")
    assert old in text
    function = simplify(ir.parse(text.replace(old, new)))
    assert bisect_counts(function, always=True) is function


ROWS = """func @rows(%X: {t}[{sizes}]) -> (%Y) {{
  %Y: {t}[{domain}] = {combiner}[r0 < {n} where {op}(r0, i{axis})] {body}
}}"""


@pytest.mark.parametrize(
    ("sizes", "axis", "combiner", "op", "t"),
    [
        ((4100,), 0, "sum", "lt", "f32"),
        ((17000,), 0, "sum", "le", "f32"),
        ((3, 1000), 1, "sum", "lt", "s32"),
        ((40, 700), 1, "max", "ge", "f32"),
        ((700, 40), 0, "sum", "le", "s32"),
        ((2, 900, 5), 1, "min", "gt", "f32"),
        ((4099,), 0, "sum", "ge", "s32"),
    ],
)
def test_groups_scan_rows(
    sizes: tuple[int, ...], axis: int, combiner: str, op: str, t: str
) -> None:
    """A kernel each for rows, and two for few long ones, which begin with what is before."""
    n, axes = sizes[axis], range(len(sizes))
    places = ", ".join("r0" if a == axis else f"i{a}" for a in axes)
    function = simplify(ir.parse(ROWS.format(
        t=t, n=n, op=op, axis=axis, combiner=combiner, body=f"neg(%X[{places}])" if n == 4099 else
        f"%X[{places}]", sizes=", ".join(map(str, sizes)),
        domain=", ".join(f"i{a} < {size}" for a, size in enumerate(sizes)),
    )))  # fmt: skip
    x = (np.random.default_rng(3).standard_normal(sizes) * 100).astype(TYPES[t])
    if t == "f32":
        x.flat[x.size // 2 :: 1711] = np.nan
    for target in ("hlsl", "wgsl"):
        kernels = describe_schedules(function, target, "gpu").count("kernel ")
        computed, few = n == 4099, sizes in ((17000,), (700, 40), (4099,))
        assert kernels == 1 + few + computed
        (found,) = interpret(function, {"X": x}, target, "gpu").values()
        (expected,) = evaluate(function, {"X": x}).values()
        (allowed,) = bound_errors(function, {"X": x}).values()
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        with np.errstate(invalid="ignore"):
            assert (same | (np.abs(found - expected) <= allowed)).all()


def test_what_else_is_done_to_a_scan_has_kernels_of_its_own() -> None:
    """Places at a stride are read of whole rows; halves are scanned in 32 bits."""
    function = simplify(ir.parse(LINE.format(n=4000).replace("le(r0, i0)", "gt(mul(i0, 3), r0)")))
    assert describe_schedules(function, "hlsl", "gpu").count("scan its elements") == 1
    x = np.ones(4000, np.float32)
    (found,) = interpret(function, {"X": x}, "hlsl", "gpu").values()
    np.testing.assert_array_equal(found, np.minimum(3 * np.arange(4000), 4000))


@pytest.mark.parametrize("n", [1000, 9000])
def test_a_scan_is_written_as_a_person_would(n: int) -> None:
    """Steps of work items are a loop, a tile by itself is none, and nothing adds nothing."""
    text = ROWS.format(
        t="f32", sizes=f"200, {n}", domain=f"i0 < 200, i1 < {n}", combiner="sum", n=n, op="le",
        axis=1, body="%X[i0, r0]",
    )  # fmt: skip
    (kernel,) = compile(simplify(ir.parse(text)), "hlsl").kernels
    source = kernel.source.partition("void main")[2]
    assert not re.search(r"\b0 \+|\+ 0\b(?!\.)|\* 1\b|/ 1\b|!= 1;", source)
    assert ("for (uint tile" in source) is (n > 4096)
    assert source.count("[unroll]") == source.count("for (uint") - (n > 4096)
    assert source.count("sums[") <= 6


@pytest.mark.parametrize(("t", "n"), [("f16", 1000), ("bf16", 1000), ("f16", 4104)])
def test_halves_are_stored_by_the_scan_itself(t: str, n: int) -> None:
    """They are added up in 32 bits, and each result is rounded once. Long rows are moved 16 bytes
    at a time."""
    function = simplify(
        ir.parse(f"""func @line(%X: {t}[{n}]) -> (%Y) {{
      %sum: f32[i0 < {n}] = sum[r0 < {n} where le(r0, i0)] %X[r0]
      %Y: {t}[i0 < {n}] = %sum[i0]
    }}""")
    )
    (kernel,) = compile(function, "hlsl").kernels
    assert ("StructuredBuffer<uint4> X" in kernel.source) is (n == 4104)
    x = np.random.default_rng(0).standard_normal(n).astype(DataType(t).dtype)
    for target in ("opencl", "hlsl"):
        assert describe_schedules(function, target, "gpu").count("kernel ") == 1
        (found,) = interpret(function, {"X": x}, target, "gpu").values()
        (expected,) = evaluate(function, {"X": x}).values()
        (allowed,) = bound_errors(function, {"X": x}).values()
        assert (np.abs(found.astype(np.float64) - expected.astype(np.float64)) <= allowed).all()
    # Where two of them share a word, a work item would store half of one.
    assert len(compile(function, "hlsl", shader_model="6.0").kernels) == 2
