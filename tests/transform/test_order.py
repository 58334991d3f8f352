"""Rows whose elements count what comes before them are sorted: the same places and values, ties,
NaN and zeros of both signs among them, and only where the order is one that rows are sorted by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import TensorDesc, ir, operator
from dmlc.api import load_program
from dmlc.kernel.interpret import run_kernels
from dmlc.pipeline import compile, make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.transform.order import sort_by_ranks
from dmlc.transform.ranks import find_ranking
from dmlc.transform.simplify import simplify

ORDERED = """func @ordered(%X: {t}[3, {n}, 2]) -> (%places, %values) {{
  %rank: s32[i0 < 3, i1 < {n}, i2 < 2] = sum[r0 < {n}] {{
    v0 = %X[i0, r0, i2]
    v1 = %X[i0, i1, i2]
    where {before}
    1:s32
  }}
  %places: s32[i0 < 2, i1 < {k}, i2 < 3] = sum[r0 < {n}
    where eq(%rank[i2, r0, i0], cast(add(i1, {first}), s32))] cast(r0, s32)
  %values: {t}[i0 < 3, i1 < {k}, i2 < 2] = max[r0 < {n}
    where eq(cast(i1, s32), %rank[i0, r0, i2])] %X[i0, r0, i2]
}}"""
BEFORE = {
    "s32": "or({less}(v0, v1), and(eq(v0, v1), lt(r0, i1)))",
    "f32": "or(or({less}(v0, v1), and(eq(v0, v1), lt(r0, i1))), "
           "and(ne(v1, v1), or(eq(v0, v0), gt(i1, r0))))",
}  # fmt: skip
TYPES: dict[str, Any] = {"f32": np.float32, "s32": np.int32}


def read(t: str, n: int, k: int, *, less: str = "lt", first: int = 0) -> ir.Function:
    before = BEFORE[t].format(less=less)
    return simplify(ir.parse(ORDERED.format(t=t, n=n, k=k, before=before, first=first)))


def draw(shape: tuple[int, ...], t: str, seed: int) -> Array:
    random = np.random.default_rng(seed)
    if t == "s32":
        limits = np.iinfo(np.int32)
        x = random.integers(-40, 40, shape).astype(np.int32)
        x.flat[::7] = limits.max
        x.flat[::11] = limits.min
        return x
    x = random.integers(-40, 40, shape).astype(np.float32)
    x.flat[::7] = np.nan
    x.flat[::11] = np.inf
    x.flat[::13] = -0.0
    return x


def find_order(x: Array, less: str) -> Array:
    keys = x.astype(np.float64) if less == "lt" else -x.astype(np.float64)
    return np.argsort(keys, axis=1, kind="stable")


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["f32", "s32"]),
    st.sampled_from(["lt", "gt"]),
    st.sampled_from([129, 200, 300, 513, 700]),
    st.sampled_from([1, 5, 66, 4000]),
    st.integers(0, 99),
)
def test_what_is_read_by_rank_is_what_stands_there_in_order(
    t: str, less: str, n: int, most: int, seed: int
) -> None:
    k = min(n, most)
    first = min(3, n - k)
    function = read(t, n, k, less=less, first=first)
    made = simplify(sort_by_ranks(function))
    ir.verify(made)
    assert not any(stage.name == "rank" for stage in made.stages)
    x = draw((3, n, 2), t, seed)
    order = find_order(x, less)
    places, values = evaluate(made, {"X": x}).values()
    np.testing.assert_array_equal(places, order[:, first : first + k].transpose(2, 1, 0))
    np.testing.assert_array_equal(values, np.take_along_axis(x, order[:, :k], axis=1))


def test_devices_agree_on_long_rows() -> None:
    function = read("f32", 2600, 9, less="gt")
    x = draw((3, 2600, 2), "f32", 0)
    order = find_order(x, "gt")[:, :9]
    for target, profile, device in (("opencl", "cpu", "opencl"), ("hlsl", "gpu", "vulkan")):
        program = compile(function, target, profile)
        assert not program.warnings
        places, values = load_program(program, device)({"X": x}).values()
        np.testing.assert_array_equal(places, order.transpose(2, 1, 0))
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis=1))


@pytest.mark.parametrize(
    "before",
    [
        "lt(v0, v1)",
        "or(lt(v0, v1), and(eq(v0, v1), lt(r0, i1)))",
        "or(le(v0, v1), and(ne(v1, v1), or(eq(v0, v0), lt(r0, i1))))",
        "or(or(lt(v0, v1), and(eq(v0, v1), gt(r0, i1))), "
        "and(ne(v1, v1), or(eq(v0, v0), lt(r0, i1))))",
        "or(lt(v0, v1), and(eq(v0, v1), lt(add(r0, 1), i1)))",
        "or(lt(v0, 0.0), and(eq(v0, v1), lt(r0, i1)))",
    ],
    ids=["ties", "NaN", "itself", "backwards", "short", "sign"],
)
def test_other_orders_are_none(before: str) -> None:
    function = ir.parse(ORDERED.format(t="f32", n=600, k=5, before=before, first=0))
    assert find_ranking(function.stages[0]) is None
    assert sort_by_ranks(function) is function


def test_short_rows_and_ranks_that_are_read_otherwise_stay() -> None:
    short = read("s32", 128, 5)
    assert sort_by_ranks(short) is short
    function = read("s32", 3000, 5)
    results = (*function.results, ir.Result("rank"))
    made = sort_by_ranks(ir.Function(function.name, function.parameters, function.stages, results))
    assert made.stage("rank") == function.stage("rank")
    assert len(made.stages) > len(function.stages)


@pytest.mark.parametrize("dtype", ["UINT32", "UINT64"])
@pytest.mark.parametrize(("target", "profile", "count"), [
    ("hlsl", "gpu", 3), ("hlsl", "gpu", 600), ("opencl", "cpu", 600),
])  # fmt: skip
def test_original_indices_have_the_type_of_the_result(
    target: str, profile: str, count: int, dtype: str
) -> None:
    """One kernel sorts a row, and stores them as they are wanted."""
    rows = {"InputTensor": ("FLOAT32", 600), "OutputValueTensor": ("FLOAT32", count),
            "OutputIndexTensor": (dtype, count)}  # fmt: skip
    tensors = {name: TensorDesc(t, (40, n)) for name, (t, n) in rows.items()}
    given = {"Axis": 1, "K": count, "AxisDirection": "INCREASING"}
    function = operator("directml.TOP_K1").bind(tensors, given)
    fused, kernels = make_kernels(function, target, profile)
    assert len(kernels) == 1
    x = np.random.default_rng(count).integers(0, 90, (40, 600)).astype(np.float32)
    found = run_kernels(fused, kernels, {"InputTensor": x})
    for name, values in evaluate(function, {"InputTensor": x}).items():
        np.testing.assert_array_equal(found[name], values)
