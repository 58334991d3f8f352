"""What depends on positions alone is evaluated in its own type, and bounds what is read."""

import numpy as np
import pytest

from dmlc import ir
from dmlc.index.intervals import EMPTY, UNKNOWN
from dmlc.ir.index import (
    IndexFacts,
    count_points,
    evaluate_positions,
    find_dependencies,
    find_index_only,
    find_reach,
    list_conjuncts,
    order_indices,
)
from dmlc.source import DmlcError, InternalError


def last_stage(text: str) -> ir.Stage:
    return ir.parse(text).stages[-1]


WINDOW = """func @f(%X: f32[5], %K: s32[5]) -> (%Y) {
  %Y: f32[i0 < 4] = sum[r0 < 3 where and(ge(sub(add(i0, r0), 1), 0), lt(sub(add(i0, r0), 1), 5))] \
mul(%X[sub(add(i0, r0), 1)], cast(i0, f32))
}"""


def test_what_is_index_only() -> None:
    body = last_stage(WINDOW).body
    loads = [isinstance(i, ir.Load) for i in body.instructions]
    found = find_index_only(body)
    assert not any(f and load for f, load in zip(found, loads, strict=True))
    assert not found[body.result]
    assert body.guard is not None
    assert found[body.guard]
    assert find_dependencies(body)[body.guard] == (ir.Index(0), ir.Index(0, reduced=True))


def test_indices_are_ordered() -> None:
    given = [ir.Index(2), ir.Index(1, reduced=True), ir.Index(0), ir.Index(2)]
    assert order_indices(given) == (ir.Index(0), ir.Index(2), ir.Index(1, reduced=True))


def test_conjuncts_are_taken_apart() -> None:
    stage = last_stage(WINDOW)
    conjuncts = list_conjuncts(stage.body)
    names = [
        i.operation.name for c in conjuncts if isinstance(i := stage.body.instructions[c], ir.Apply)
    ]
    assert names == ["ge", "lt"]
    assert list_conjuncts(ir.Body(stage.body.instructions, stage.body.result)) == ()


def test_values_have_an_axis_per_index() -> None:
    stage = last_stage(WINDOW)
    (load,) = stage.body.loads()
    (places,) = evaluate_positions(stage, load.indices)
    assert places.dtype == np.int64
    assert places.tolist() == [[i + r - 1 for r in range(3)] for i in range(4)]
    over = (ir.Index(0, reduced=True), ir.Index(0))
    (turned,) = evaluate_positions(stage, load.indices, over)
    assert turned.tolist() == places.T.tolist()
    constant = next(v for v, i in enumerate(stage.body.instructions) if isinstance(i, ir.Constant))
    (alone,) = evaluate_positions(stage, [constant], over)
    assert alone.shape == (1, 1)


def test_fractions_round_after_each_operation() -> None:
    stage = last_stage(
        "func @f() -> (%Y) {\n"
        "  %Y: f32[i0 < 50] = div(exp(mul(cast(i0, f32), 0.10000000149011612)), 3.0)\n}"
    )
    (found,) = evaluate_positions(stage, [stage.body.result])
    scaled = np.arange(50).astype(np.float32) * np.float32(0.1)
    powers = np.exp(scaled.astype(np.float64)).astype(np.float32)
    assert found.dtype == np.float32
    assert np.array_equal(found, powers / np.float32(3))


def test_choices_and_conversions() -> None:
    stage = last_stage(
        "func @f() -> (%Y) {\n"
        "  %Y: s32[i0 < 4] = "
        "select(gt(i0, 1), cast(mul(cast(i0, f32), 1.5), s32), cast(-1, s32))\n}"
    )
    (found,) = evaluate_positions(stage, [stage.body.result])
    assert found.tolist() == [-1, -1, 3, 4]


def test_what_depends_on_elements_cannot_be_evaluated() -> None:
    stage = last_stage(WINDOW)
    with pytest.raises(InternalError) as raised:
        evaluate_positions(stage, [stage.body.result])
    assert "an element of %X is no index-only value" in str(raised.value)


def test_run_time_extents_cannot_be_evaluated() -> None:
    stage = last_stage("func @f(%X: f32[n]) -> (%Y) {\n  %Y: f32[i0 < n] = %X[i0]\n}")
    assert count_points(stage, [ir.Index(0)]) == np.inf
    assert find_reach(stage, 0, 4) == UNKNOWN
    with pytest.raises(InternalError) as raised:
        evaluate_positions(stage, [0])
    assert "%Y: i0 has no extent known here" in str(raised.value)


def test_a_guard_bounds_what_is_read() -> None:
    stage = last_stage(WINDOW)
    (load,) = stage.body.loads()
    assert find_reach(stage, load.indices[0], 5) == (0, 4)
    unguarded = WINDOW.replace(" where and", " where or")
    with pytest.raises(DmlcError) as raised:
        ir.parse(unguarded)
    assert "%X is left: axis 0 has size 5, read at -1 to 4" in str(raised.value)


def test_conditions_reach_through_other_indices() -> None:
    stage = last_stage(
        "func @f(%X: f32[4]) -> (%Y) {\n"
        "  %Y: f32[i0 < 4] = sum[r0 < 9, r1 < 9 where and(le(add(r0, r1), 3), ge(r1, i0))] "
        "%X[r0]\n}"
    )
    (load,) = stage.body.loads()
    assert find_reach(stage, load.indices[0], 4) == (0, 3)
    assert find_reach(stage, load.indices[0], 2) == (0, 3)


def test_where_no_point_passes_nothing_is_read() -> None:
    stage = last_stage(
        "func @f(%X: f32[4]) -> (%Y) {\n  %Y: f32[i0 < 4] = sum[r0 < 9 where gt(r0, 10)] %X[r0]\n}"
    )
    (load,) = stage.body.loads()
    assert find_reach(stage, load.indices[0], 4) == EMPTY


def test_without_points_nothing_is_read_however_long_other_axes_are() -> None:
    stage = last_stage(
        "func @f(%X: f32[4, 9]) -> (%Y) {\n"
        "  %Y: f32[i0 < 4, i1 < 0] = sum[r0 < 1099511627776 where lt(add(r0, i1), 9)] "
        "%X[i0, add(r0, i1)]\n}"
    )
    (load,) = stage.body.loads()
    assert find_reach(stage, load.indices[1], 9) == EMPTY
    facts = IndexFacts(stage)
    assert facts.evaluate([load.indices[1]]) is None


def test_positions_from_elements_are_clamped() -> None:
    text = "func @f(%X: f32[4], %K: {0}[4]) -> (%Y) {{\n  %Y: f32[i0 < 4] = %X[{1}]\n}}"
    ir.parse(text.format("boolean", "cast(%K[i0], index)"))
    ir.parse(text.format("s64", "min(max(cast(%K[i0], index), 0), 3)"))
    for dtype, reach in (
        ("u8", "0 to 255"),
        ("u64", "0 to 9223372036854775807"),
        ("f32", "-inf to inf"),
    ):
        with pytest.raises(DmlcError) as raised:
            ir.parse(text.format(dtype, "cast(%K[i0], index)"))
        assert f"%X is left: axis 0 has size 4, read at {reach}" in str(raised.value)


def test_conditions_on_other_indices_may_let_no_point_through() -> None:
    text = """func @f(%X: f32[5]) -> (%Y) {
      %Y: f32[i0 < 9] = max[r0 < 9 where and(lt(i0, 3), gt(i0, 5))] %X[r0]
    }"""
    stage = last_stage(text)
    (load,) = stage.body.loads()
    assert find_reach(stage, load.indices[0], 5) == EMPTY
    some = last_stage(text.replace("gt(i0, 5)", "gt(i0, 1)").replace("X: f32[5]", "X: f32[9]"))
    assert find_reach(some, load.indices[0], 5) == (0, 8)
