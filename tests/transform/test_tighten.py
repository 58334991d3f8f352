"""Reductions walk no more places than their guards let through, and come out the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.pipeline import rewrite
from dmlc.reference import evaluate
from dmlc.transform.simplify import simplify
from dmlc.transform.tighten import tighten_bounds
from tests import positions
from tests.positions import FUNCTIONS, find_differences, make_inputs
from tests.products import Windows


def narrowed(name: str) -> ir.Function:
    return simplify(tighten_bounds(simplify(positions.read(name))))


def reductions(function: ir.Function) -> list[tuple[tuple[int, ir.Extent], ...]]:
    return [s.reduction.axes for s in function.stages if s.reduction is not None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_stay(name: str) -> None:
    function = positions.read(name)
    inputs = make_inputs(function)
    made = rewrite(function)
    assert find_differences(evaluate(made, inputs), evaluate(function, inputs)) == []
    assert ir.parse(str(made)) == made
    assert ir.from_json(ir.to_json(made)) == made
    assert rewrite(positions.read(name)) == made


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("linear_grad", [((0, 4), (1, 4))]),
        ("nearest_grad", [((0, 2), (1, 3))]),
        ("irregular", [((0, 5),)]),
        ("strided_window", [((0, 5),)]),
        ("average_pool", [((0, 3), (1, 2))]),
        ("max_pool_place", [((0, 3), (1, 3)), ((0, 3), (1, 3))]),
        ("one_place", []),
        ("count", []),
        ("mean_of_valid", [((0, 3),)]),
        ("arg_window", [((0, 3), (1, 3))]),
        ("arg_window_empty", [((0, 2), (1, 4))]),
        ("arg_window_masked", [((0, 2), (1, 3)), ((0, 2), (1, 3))]),
        ("chosen_window", [((0, 3),)]),
        ("summed_weights", [((1, 4),)]),
    ],
)
def test_extents(name: str, axes: list[tuple[tuple[int, int], ...]]) -> None:
    assert reductions(narrowed(name)) == axes


def test_weights_that_do_not_vary_are_one_row() -> None:
    (table,) = narrowed("linear_grad").tables
    assert (table.extents, table.values) == ((4,), (0.25, 0.75, 0.75, 0.25))


def test_the_first_place_is_a_formula() -> None:
    text = str(narrowed("linear_grad"))
    assert "add(sub(mul(i2, 2), 1), r0)" in text
    assert "abs" not in text


def test_conditions_that_always_hold_go() -> None:
    text = str(narrowed("average_pool"))
    assert "lt(v0, 9)" in text
    assert text.count("lt(") == 1


def test_one_place_is_no_loop() -> None:
    assert "%Y: f32[i0 < 3, i1 < 10] = add(%X[i0, add(mul(i1, 2), 1)], 0.0)" in str(
        narrowed("one_place")
    )


def test_other_places_come_from_a_table() -> None:
    function = narrowed("irregular")
    assert [t.name for t in function.tables] == ["Y_places", "Y_counts"]
    assert function.tables[1].values == (5, 4, 0, 5, 0, 0)


@pytest.mark.parametrize("channels", [3, 32])
def test_windows_side_by_side_are_a_product(channels: int) -> None:
    """Of a convolution that is transposed, with strides as long as its window, few channels or
    many."""
    function = Windows(2, 32, 5, 6, channels, 2, 2).make("transposed")
    made = simplify(tighten_bounds(simplify(function)))
    (axes,) = reductions(made)
    assert [size for _, size in axes] == [32]
    text = str(made)
    assert "div(i2, 2), div(i3, 2)]" in text
    assert "mod(i2, 2), mod(i3, 2)]" in text
    assert "where" not in text
    assert made.tables == ()
    random = np.random.default_rng(0)
    inputs = {p.name: random.standard_normal(p.extents, np.float32) for p in function.parameters}
    np.testing.assert_array_equal(evaluate(made, inputs)["dst"], evaluate(function, inputs)["dst"])


def test_fractions_become_whole_numbers() -> None:
    text = str(narrowed("linear"))
    assert "floor" not in text
    assert "min(max(" in text


def test_counts_are_evaluated_whole() -> None:
    function = narrowed("mean_of_valid")
    (table,) = function.tables
    assert table.values == (2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.0)
    assert [s.name for s in function.stages if s.reduction is not None] == ["sum"]


@pytest.mark.parametrize(("size", "holds"), [(44098, True), (44097, False)])
def test_a_guard_over_many_points_is_decided_by_intervals(size: int, holds: bool) -> None:
    """More than can be evaluated one by one: 22,000 windows of 256 elements, the last of which ends
    where the tensor does, or one beyond."""
    function = ir.parse(f"""
        func @f(%x: f32[{size}], %w: f32[256]) -> (%y) {{
          %y: f32[i0 < 21922] = sum[r0 < 256] {{
            v0 = add(mul(i0, 2), r0)
            where lt(v0, {size})
            mul(%x[min(v0, {size - 1})], %w[r0])
          }}
        }}""")
    assert ("where" not in str(tighten_bounds(function))) == holds


def test_a_guard_that_nothing_passes_stays() -> None:
    function = ir.parse(
        "func @f(%x: f32[4]) -> (%y) { %y: f32[] = sum[r0 < 4 where lt(r0, 0)] %x[r0] }"
    )
    assert reductions(tighten_bounds(function)) == [((0, 4),)]
    assert evaluate(tighten_bounds(function), {"x": np.ones(4, np.float32)})["y"] == 0


def test_a_nan_outside_the_window_does_not_leak() -> None:
    function = positions.read("linear_grad")
    inputs = {"dY": np.ones((2, 3, 8, 6), np.float32)}
    inputs["dY"][:, :, 7, 5] = np.nan
    got = evaluate(rewrite(function), inputs)["dX"]
    assert np.isnan(got[:, :, 3, 2]).all()
    assert not np.isnan(got[:, :, :2]).any()


_TYPES = {
    "sum": "f32", "max": "f32", "min": "f32", "product": "f32", "any": "boolean", "all": "boolean",
    "argmax": "s32", "argmin": "u32",
}  # fmt: skip
"""What the reductions give."""

windows = st.tuples(
    st.integers(1, 3),  # step of the output
    st.integers(1, 3),  # step of the input
    st.integers(-4, 4),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 14),
    st.integers(1, 4),
)


@settings(max_examples=80, deadline=None)
@given(windows, st.sampled_from(sorted(_TYPES)))
def test_random_windows(window: tuple[int, ...], combiner: str) -> None:
    step, spread, shift, width, outputs, places, every = window
    start = f"sub(add(mul(i0, {step}), {abs(shift)}), {abs(shift) - shift})"
    text = f"""func @f(%x: f32[{places}]) -> (%y) {{
      %y: {_TYPES[combiner]}[i0 < {outputs}] = {combiner}[r0 < {places} where and(
        and(ge(mul(r0, {spread}), {start}), lt(mul(r0, {spread}), add({start}, {width}))),
        eq(mod(r0, {every}), 0))] {"gt(%x[r0], 0.0)" if combiner in ("any", "all") else "%x[r0]"}
    }}"""
    function = ir.parse(text)
    made = rewrite(function)
    x = (np.arange(places) % 3 - 1).astype(np.float32)
    for values in (x, np.where(x == 1, np.float32(np.nan), x), np.full_like(x, -np.inf)):
        found = evaluate(made, {"x": values}), evaluate(function, {"x": values})
        assert find_differences(*found) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 17), st.integers(1, 17), st.sampled_from([0.0, 0.25, 0.5]))
def test_random_resampling(inputs_size: int, outputs: int, shift: float) -> None:
    """The gradient of linear resampling between any two sizes."""
    ratio = np.float32(inputs_size / outputs)
    weight = (
        f"max(sub(1.0, abs(sub(sub(mul(add(cast(r0, f32), {shift}), {ratio!s}), {shift}), "
        "cast(i0, f32)))), 0.0)"
    )
    weight = re.sub(r"(?<=[ (])(\d+)e", r"\1.0e", weight)
    text = f"""func @f(%dY: f32[{outputs}]) -> (%dX) {{
      %dX: f32[i0 < {inputs_size}] =
        sum[r0 < {outputs} where ne({weight}, 0.0)] mul({weight}, %dY[r0])
    }}"""
    function = ir.parse(text)
    values = {"dY": (np.arange(outputs) % 5 - 2).astype(np.float32)}
    got, wanted = evaluate(rewrite(function), values), evaluate(function, values)
    np.testing.assert_allclose(got["dX"], wanted["dX"], rtol=1e-6, atol=1e-6)


@settings(max_examples=80, deadline=None)
@given(windows, windows, st.sampled_from(["argmax", "argmin"]), st.integers(0, 3))
def test_random_places(
    rows: tuple[int, ...], columns: tuple[int, ...], combiner: str, special: int
) -> None:
    """Numbers of places are those of the whole image: the first of equals, 0 where a window is
    empty, and a NaN before any number."""
    guards: list[str] = []
    for axis, (step, spread, shift, width, _, _, every) in enumerate((rows, columns)):
        start = f"sub(add(mul(i{axis}, {step}), {abs(shift)}), {abs(shift) - shift})"
        place = f"mul(r{axis}, {spread})"
        guards.append(f"and(ge({place}, {start}), lt({place}, add({start}, {width})))")
        guards.append(f"eq(mod(r{axis}, {every}), 0)")
    sizes = rows[5], columns[5]
    text = f"""func @f(%x: f32[{sizes[0]}, {sizes[1]}]) -> (%y, %z) {{
      %y: s32[i0 < {rows[4]}, i1 < {columns[4]}] = {combiner}[r0 < {sizes[0]}, r1 < {sizes[1]}
        where and(and({guards[0]}, {guards[1]}), and({guards[2]}, {guards[3]}))] %x[r0, r1]
      %z: f32[i0 < {rows[4]}, i1 < {columns[4]}] = {{
        v0 = cast(%y[i0, i1], index)
        %x[div(v0, {sizes[1]}), mod(v0, {sizes[1]})]
      }}
    }}"""
    function = ir.parse(text)
    values = (np.arange(sizes[0] * sizes[1]) * 7 % 5 - 2).astype(np.float32).reshape(sizes)
    values[values == 1] = [1, np.nan, np.inf, -np.inf][special]
    made = rewrite(function)
    got, wanted = evaluate(made, {"x": values}), evaluate(function, {"x": values})
    assert find_differences(got, wanted) == []


def test_a_place_is_computed_from_the_number_of_the_one_walked() -> None:
    text = str(narrowed("arg_window"))
    assert "%Place_number: s32[i0 < 2, i1 < 11, i2 < 20] = argmax[r0 < 3, r1 < 3]" in text
    # Others read there: places before the edge are held inside.
    assert "max(add(sub(mul(i2, 2), 1), mod(v0, 3)), 0)" in text


WINDOW = "and(ge(sub(r0, mul(i0, 2)), {low}), lt(sub(r0, mul(i0, 2)), {high}))"


@pytest.mark.parametrize(
    ("combiner", "low", "high", "guarded"),
    [
        ("max", -1, 2, False),
        ("argmin", -1, 2, False),
        ("sum", -1, 2, True),
        # The last windows have no place.
        ("max", 3, 5, True),
        ("argmax", 3, 5, True),
    ],
)
def test_places_are_walked_again_rather_than_guarded(
    combiner: str, low: int, high: int, guarded: bool
) -> None:
    guard = WINDOW.format(low=low, high=high)
    dtype = "u32" if combiner.startswith("arg") else "f32"
    function = ir.parse(f"""func @f(%x: f32[20]) -> (%y) {{
      %y: {dtype}[i0 < 10] = {combiner}[r0 < 20 where {guard}] %x[r0]
    }}""")
    made = simplify(tighten_bounds(simplify(function)))
    (walked,) = (stage for stage in made.stages if stage.reduction is not None)
    assert (walked.body.guard is not None) == guarded
    for x in (np.arange(20) % 3, np.where(np.arange(20) % 3, np.nan, 1.0), np.full(20, -np.inf)):
        inputs = {"x": x.astype(np.float32)}
        assert find_differences(evaluate(made, inputs), evaluate(function, inputs)) == []


def test_windows_without_places_give_0() -> None:
    text = str(narrowed("arg_window_empty"))
    assert text.count("select(") == 1
    assert "%Place_found" not in text
    masked = narrowed("arg_window_masked")
    assert [s.name for s in masked.stages] == ["Place_number", "Place_found", "Place"]


def test_a_choice_of_the_identity_is_a_guard() -> None:
    for combiner, identity, axes in (
        ("sum", "0.0", [((0, 3),)]),
        ("product", "1.0", [((0, 3),)]),
        ("max", "-inf", [((0, 3),)]),
        ("max", "0.0", [((0, 50),)]),
        ("argmax", "-inf", [((0, 50),)]),
    ):
        function = ir.parse(f"""func @f(%x: f32[50]) -> (%y) {{
          %y: {_TYPES[combiner]}[i0 < 24] = {combiner}[r0 < 50] {{
            v0 = sub(r0, mul(i0, 2))
            select(or(lt(v0, 0), ge(v0, 3)), {identity}, %x[r0])
          }}
        }}""")
        assert reductions(tighten_bounds(function)) == axes, combiner
        values = {"x": (np.arange(50) % 7 - 3).astype(np.float32)}
        got, wanted = evaluate(tighten_bounds(function), values), evaluate(function, values)
        assert find_differences(got, wanted) == []


def test_weights_that_are_sums_are_looked_up() -> None:
    (table,) = narrowed("summed_weights").tables
    # As many as there are taps, at each place.
    assert table.extents == (40, 4)


def test_a_bound_that_is_a_reduction_shortens_loops() -> None:
    function = ir.parse("""func @f(%x: f32[60]) -> (%y) {
      %last: s32[i0 < 60] = max[r0 < 60 where le(mul(r0, 3), i0)] cast(r0, s32)
      %y: f32[i0 < 60] = sum[r0 < 60] {
        v0 = cast(%last[i0], index)
        where and(le(r0, v0), gt(r0, sub(v0, 4)))
        %x[r0]
      }
    }""")
    made = rewrite(function)
    assert reductions(made) == [((0, 4),)]
    assert made.tables == ()
    values = {"x": (np.arange(60) % 7 - 3).astype(np.float32)}
    assert find_differences(evaluate(made, values), evaluate(function, values)) == []


def test_a_large_table_of_weights_is_looked_up_where_it_is_not_zero() -> None:
    """300 by 300 weights are too many for a table; those that count are few."""
    function = ir.parse("""func @f(%x: f32[2, 300]) -> (%y) {
      %weight: f32[i0 < 300, i1 < 300] =
        sum[r0 < 3 where eq(add(i0, r0), add(i1, 1))] cast(add(mod(add(i0, r0), 7), 1), f32)
      %y: f32[i0 < 2, i1 < 300] = sum[r1 < 300 where ne(%weight[i1, r1], 0.0)]
        mul(%x[i0, r1], %weight[i1, r1])
    }""")
    made = rewrite(function)
    assert reductions(made) == [((1, 3),)]
    values = {"x": (np.arange(600).reshape(2, 300) % 7 - 3).astype(np.float32)}
    assert find_differences(evaluate(made, values), evaluate(function, values)) == []


def test_zeros_of_both_signs_are_two_values() -> None:
    function = ir.parse("""func @f(%X: f32[9]) -> (%Y, %Z) {
      %w: f32[i0 < 9] = sum[r0 < 1 where lt(i0, 0)] 1.0
      %Y: f32[i0 < 9, i1 < 9] = select(lt(i0, 5), %w[i0], -0.0)
      %Z: f32[i0 < 9, i1 < 9] = mul(select(lt(i0, 5), %w[i0], -0.0), %X[i1])
    }""")
    x = {"X": np.full(9, 2, np.float32)}
    made = evaluate(rewrite(function), x)
    for name, values in evaluate(function, x).items():
        assert np.array_equal(np.signbit(made[name]), np.signbit(values)), name


@pytest.mark.parametrize("where", ["eq(r0, 1)", "eq(r0, i0)", "le(r0, 2)"])
def test_a_sum_of_negative_zeros_is_zero(where: str) -> None:
    function = ir.parse(
        f"func @f(%X: f32[3]) -> (%Y) {{ %Y: f32[i0 < 3] = sum[r0 < 3 where {where}] %X[r0] }}"
    )
    x = {"X": np.full(3, -0.0, np.float32)}
    for form in (function, rewrite(function)):
        assert not np.signbit(evaluate(form, x)["Y"]).any()
