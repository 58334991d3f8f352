"""Loops over a stretch of points whose ends are read from tensors: they go from the first to the
last, and work items are given as much as they then have to do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import find_body
from dmlc.pipeline import compile, make_kernels
from dmlc.reference import evaluate
from dmlc.runtime import opencl
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors
from tests import positions
from tests.kernel.lowering import interpret

SEGMENTS = """func @segments(%Starts: {t}[{rows}], %X: f32[{points}, {columns}]) -> (%Y) {{
  %Y: f32[i0 < {last}, i1 < {columns}] = sum[r0 < {points} where and(
      {conditions})] %X[r0, i1]
}}"""
PROFILES = [("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", "gpu"), ("wgsl", "gpu")]
HALF_OPEN = "ge(r0, cast(%Starts[i0], index)), lt(r0, cast(%Starts[add(i0, 1)], index))"


def read(
    rows: int, points: int, columns: int, conditions: str = HALF_OPEN, t: str = "s32"
) -> ir.Function:
    sizes = {"rows": rows + 1, "last": rows, "points": points, "columns": columns, "t": t}
    return ir.parse(SEGMENTS.format(conditions=conditions, **sizes))


def list_loops(statements: tuple[k.Statement, ...]) -> list[k.For]:
    found: list[k.For] = []
    for statement in statements:
        found += [statement] if isinstance(statement, k.For) else []
        found += list_loops(find_body(statement))
    return found


def has_conditions(statements: tuple[k.Statement, ...]) -> bool:
    return any(isinstance(s, k.If) or has_conditions(find_body(s)) for s in statements)


def reduce_loops(function: ir.Function, target: str, profile: str) -> list[k.For]:
    """The innermost loops, which reduce."""
    _, kernels = make_kernels(function, target, profile)
    every = [loop for kernel in kernels for loop in list_loops(kernel.body)]
    return [loop for loop in every if not list_loops(loop.body)]


@pytest.mark.parametrize(("target", "profile"), PROFILES)
@pytest.mark.parametrize("name", ["segments", "segments_unsigned"])
def test_points_outside_are_not_gone_through(name: str, target: str, profile: str) -> None:
    for loop in reduce_loops(positions.read(name), target, profile):
        assert not isinstance(loop.stop, k.Literal)
        assert not has_conditions(loop.body)


@pytest.mark.parametrize(("target", "profile"), PROFILES)
def test_other_conditions_stay(target: str, profile: str) -> None:
    function = read(40, 100, 32, f"{HALF_OPEN}), ne(mod(r0, 3), 1)".replace("ge(", "and(ge(", 1))
    for loop in reduce_loops(function, target, profile):
        assert not isinstance(loop.stop, k.Literal)
        assert has_conditions(loop.body)


@pytest.mark.parametrize(("target", "profile"), PROFILES)
def test_ends_come_before_what_is_read_point_by_point(target: str, profile: str) -> None:
    function = read(40, 100, 32, f"and(gt(%X[r0, 0], 0.5), and({HALF_OPEN})), le(r0, 90)")
    for loop in reduce_loops(function, target, profile):
        assert not isinstance(loop.start, k.Literal)
        assert not isinstance(loop.stop, k.Literal)
        assert has_conditions(loop.body)


ENDS: Mapping[str, list[int]] = {
    "in order": [0, 2, 2, 3, 9, 60],
    "beyond": [-70000, -1, 61, 2**31 - 1, -(2**31), 2**31 - 1],
    "backwards": [60, 50, 40, 3, 0, -5],
}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize(
    "conditions",
    [
        HALF_OPEN,
        "gt(r0, cast(%Starts[i0], index)), le(r0, cast(%Starts[add(i0, 1)], index))",
        "lt(cast(%Starts[i0], index), r0), ge(cast(%Starts[add(i0, 1)], index), r0)",
        "le(cast(%Starts[i0], index), r0), gt(cast(%Starts[add(i0, 1)], index), r0)",
        "ge(r0, cast(%Starts[i0], index)), "
        "le(r0, add(cast(%Starts[i0], index), cast(%Starts[5], index)))",
        "ge(add(r0, 1), cast(%Starts[i0], index)), lt(mul(r0, 2), cast(%Starts[i0], index))",
    ],
)
def test_ends_of_every_kind(conditions: str, profile: str, ends: str) -> None:
    function = read(5, 60, 21, conditions)
    inputs: dict[str, Array] = {
        "Starts": np.array(ENDS[ends], np.int32),
        "X": np.random.default_rng(0).integers(-9, 10, (60, 21)).astype(np.float32),
    }
    wanted = evaluate(function, inputs)
    got = opencl.load(compile(function, "opencl", profile))(inputs)
    assert positions.find_differences(got, wanted) == []
    got = interpret(function, inputs, "opencl", profile)
    assert positions.find_differences(got, wanted) == []


def test_vectors_run_across_outputs_that_share_their_points() -> None:
    loops = reduce_loops(read(5000, 9000, 64), "opencl", "cpu")
    assert [loop.body[-1] for loop in loops] != []
    for loop in loops:
        total = loop.body[-1]
        assert isinstance(total, k.Assign)
        assert total.local.type.lanes == 16
    # Outputs side by side whose segments differ go one by one.
    function = ir.parse(
        "func @ragged(%Starts: s32[5001], %X: f32[9000]) -> (%Y) {\n"
        "  %Y: f32[i0 < 5000] = sum[r0 < 9000 where and(ge(r0, cast(%Starts[i0], index)), "
        "lt(r0, cast(%Starts[add(i0, 1)], index)))] %X[r0]\n}"
    )
    for loop in reduce_loops(function, "opencl", "cpu"):
        total = loop.body[-1]
        assert isinstance(total, k.Assign)
        assert total.local.type.lanes == 1


def test_work_items_have_as_many_outputs_as_their_points_allow() -> None:
    """Segments of 9,000 points in all are short where there are 5,000 of them."""
    _, (many,) = make_kernels(read(5000, 9000, 64), "opencl", "cpu")
    _, (few,) = make_kernels(read(10, 900000, 64), "opencl", "cpu")
    assert (many.launch.count, many.launch.per_group) == (5000, 256)
    assert few.launch.count == 40
    # One end alone says little of how many points there are.
    _, (half,) = make_kernels(read(5000, 9000, 64, HALF_OPEN[:32] + ", ge(r0, 0)"), "opencl", "cpu")
    assert half.launch.count == 5000 * 64


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_long_sums_stay_within_their_bounds(profile: str) -> None:
    """One work item adds up all points; added up in a row they would be far off."""
    function = read(2, 200_000, 16)
    inputs: dict[str, Array] = {
        "Starts": np.array([1, 199_999, 200_000], np.int32),
        "X": np.full((200_000, 16), 0.1, np.float32),
    }
    inputs["X"][3, 2] = np.float32(1e-3)
    wanted, bound = evaluate(function, inputs)["Y"], bound_errors(function, inputs)["Y"]
    got = opencl.load(compile(function, "opencl", profile))(inputs)["Y"]
    assert (np.abs(got.astype(np.float64) - wanted) <= bound).all()


@pytest.mark.parametrize(("target", "profile"), PROFILES)
def test_sums_of_floats_alone_are_added_up_in_strips(target: str, profile: str) -> None:
    function = read(3000, 257, 16)
    assert any(loop.step == 256 for loop in _all_loops(function, target, profile))
    for other in (read(3000, 256, 16), _with_combiner(function, "max")):
        assert not any(loop.step == 256 for loop in _all_loops(other, target, profile))


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_stretches_within_stretches(profile: str) -> None:
    function = ir.parse(
        "func @blocks(%S: s32[21], %T: s32[21], %X: f32[300, 400]) -> (%Y) {\n"
        "  %Y: f32[i0 < 20] = sum[r0 < 300, r1 < 400 where and(and("
        "ge(r0, cast(%S[i0], index)), lt(r0, cast(%S[add(i0, 1)], index))), and("
        "ge(r1, cast(%T[i0], index)), lt(r1, cast(%T[add(i0, 1)], index))))] %X[r0, r1]\n}"
    )
    random = np.random.default_rng(0)
    inputs: dict[str, Array] = {
        "S": np.sort(random.integers(0, 301, 21)).astype(np.int32),
        "T": np.sort(random.integers(0, 401, 21)).astype(np.int32),
        "X": random.integers(-9, 10, (300, 400)).astype(np.float32),
    }
    inputs["S"][:2], inputs["T"][:2] = (0, 299), (0, 399)
    wanted = evaluate(function, inputs)
    if profile == "cpu":
        for loop in _all_loops(function, "opencl", profile):
            assert not has_conditions(loop.body)
    got = opencl.load(compile(function, "opencl", profile))(inputs)
    assert positions.find_differences(got, wanted) == []
    got = interpret(function, inputs, "opencl", profile)
    assert positions.find_differences(got, wanted) == []


def _all_loops(function: ir.Function, target: str, profile: str) -> list[k.For]:
    _, (kernel,) = make_kernels(function, target, profile)
    return [loop for loop in list_loops(kernel.body) if not isinstance(loop.stop, k.Literal)]


def _with_combiner(function: ir.Function, combiner: str) -> ir.Function:
    return ir.parse(str(function).replace("sum[", f"{combiner}["))
