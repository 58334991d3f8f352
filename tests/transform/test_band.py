"""The band of a guard has every place that passes, and is narrow where windows are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlc
from dmlc import ir
from dmlc.index.intervals import Interval
from dmlc.ir import Index
from dmlc.ir.index import IndexFacts
from dmlc.ir.ranges import Ranges
from dmlc.pipeline import compile, rewrite
from dmlc.scalars import Array
from dmlc.transform.band import find_band
from dmlc.transform.simplify import simplify
from dmlc.transform.tighten import tighten_bounds
from tests.opencl_launch import run_program

ROW, PLACE = Index(0), Index(0, reduced=True)


def parse(rows: int, places: int, guard: str, combiner: str = "sum") -> ir.Function:
    dtype = "u32" if combiner.startswith("arg") else "f32"
    return ir.parse(f"""func @f(%x: f32[{places}]) -> (%y) {{
      %y: {dtype}[i0 < {rows}] = {combiner}[r0 < {places} where {guard}] %x[r0]
    }}""")


def find_bounds(function: ir.Function, most: int) -> tuple[Array, Array] | None:
    """The band of a function's guard, and whether the guard holds at each place."""
    (stage,) = function.stages
    facts = IndexFacts(stage)
    holds = facts.find_passing(facts.conditions, (ROW, PLACE))
    assert holds is not None
    band = find_band(stage, facts.conditions, ROW, PLACE, holds.shape[1], most)
    return None if band is None else (np.broadcast_to(band, (len(holds), band.shape[1])), holds)


def check_band(function: ir.Function, most: int) -> int | None:
    """Sees to it that a band leaves out no place that passes, and has no other than places. Gives
    the places it has, at all positions."""
    found = find_bounds(function, most)
    if found is None:
        return None
    band, holds = found
    assert band.min() >= 0
    assert band.max() < holds.shape[1]
    assert (np.diff(band, axis=1) == 1).all()
    inside = np.take_along_axis(holds, band, axis=1)
    assert inside.sum() == holds.sum()
    return band.size


FRACTION = "sub(mul(add(cast(r0, f32), 0.5), 0.5), add(cast(i0, f32), 0.5))"
"""How far the centre of a small pixel is from that of a large one."""

GUARDS = {
    "window": "and(ge(r0, sub(i0, 2)), le(r0, add(i0, 2)))",
    "swapped": "and(le(sub(i0, 2), r0), ge(add(i0, 2), r0))",
    "distance": "le(abs(sub(i0, r0)), 2)",
    "strided": "and(ge(sub(r0, mul(i0, 2)), 0), lt(sub(r0, mul(i0, 2)), 3))",
    "gathered": "and(ge(sub(i0, mul(r0, 2)), 0), lt(sub(i0, mul(r0, 2)), 3))",
    "backwards": "and(ge(add(r0, i0), 500), lt(add(r0, i0), 503))",
    "dilated": "and(le(abs(sub(i0, r0)), 4), eq(mod(add(sub(i0, r0), 400), 2), 0))",
    "divided": "eq(div(r0, 3), i0)",
    "negated": "not(or(lt(r0, sub(i0, 2)), gt(r0, add(i0, 2))))",
    "linear": f"lt(abs({FRACTION}), 1.0)",
    "weight": f"ne(max(sub(1.0, abs({FRACTION})), 0.0), 0.0)",
}


@pytest.mark.parametrize("name", GUARDS)
def test_a_window_is_a_narrow_band(name: str) -> None:
    function = parse(400, 500, GUARDS[name])
    assert check_band(function, 400 * 500) == 400 * 500
    assert (check_band(function, 400 * 32) or 0) > 0


def test_that_there_is_no_band_is_found_out_in_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    find_truth = Ranges.truth

    def count(ranges: Ranges, value: int) -> Interval:
        looked.append(value)
        return find_truth(ranges, value)

    monkeypatch.setattr(Ranges, "truth", count)
    (stage,) = parse(20_000, 20_000, "ge(mod(mul(r0, 7919), 20000), i0)").stages
    conditions = IndexFacts(stage).conditions
    assert find_band(stage, conditions, ROW, PLACE, 20_000, 1 << 20) is None
    assert 0 < len(looked) < 500


@pytest.mark.parametrize("guard", ["le(r0, i0)", "eq(mod(add(r0, i0), 7), 0)", "gt(r0, 2)"])
def test_a_wide_guard_has_no_band(guard: str) -> None:
    assert check_band(parse(400, 500, guard), 400 * 32) is None


LARGE = 20_000


@pytest.mark.parametrize("combiner", ["sum", "max", "argmax", "argmin"])
@pytest.mark.parametrize(
    ("name", "count"),
    [("window", 5), ("distance", 5), ("strided", 3), ("gathered", 2), ("linear", 4), ("weight", 4)],
)
def test_long_axes_are_walked_in_windows(name: str, count: int, combiner: str) -> None:
    made = simplify(tighten_bounds(simplify(parse(LARGE, LARGE, GUARDS[name], combiner))))
    axes = {s.reduction.axes for s in made.stages if s.reduction is not None}
    assert axes == {((0, count),)}


def test_resampling_a_wide_image_walks_windows() -> None:
    tensors = {"InputGradientTensor": (1, 1, 4, 4096), "OutputGradientTensor": (1, 1, 2, 2048)}
    function = dmlc.operator("directml.RESAMPLE_GRAD1").bind(
        {name: dmlc.TensorDesc("FLOAT32", sizes) for name, sizes in tensors.items()},
        {
            "InterpolationMode": "LINEAR",
            "RoundingDirection": "DECREASING",
            "Scales": [1, 1, 2, 2],
            "InputPixelOffsets": [-0.5] * 4,
            "OutputPixelOffsets": [0.5] * 4,
        },
    )
    axes = [s.reduction.axes for s in rewrite(function).stages if s.reduction is not None]
    assert max(extent for each in axes for _, extent in each if isinstance(extent, int)) == 4


numbers = st.integers(-6, 6)
limits = st.integers(-40, 40)
values = st.tuples(numbers, numbers, limits, st.integers(1, 5), st.sampled_from(["div", "mod", ""]))
"""`(a * i + b * r + c) / d`, or the like."""


def write_value(value: tuple[int, int, int, int, str], real: bool) -> str:
    row, place, more, by, name = value
    text = f"add(add(mul(i0, {row}), mul(r0, {place})), {more})"
    text = f"{name}({text}, {by})" if name else text
    return f"mul(cast({text}, f32), 0.3)" if real else text


conditions = st.tuples(
    values,
    st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]),
    limits,
    st.booleans(),
    st.sampled_from(["{}", "not({})", "or({}, gt(r0, i0))"]),
    st.sampled_from(["{}", "abs({})", "max({}, -3)", "min({}, 5)"]),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(conditions, min_size=1, max_size=3),
    st.integers(1, 60), st.integers(1, 60), st.integers(1, 40),
)  # fmt: skip
def test_no_place_that_passes_is_left_out(
    given: list[tuple[tuple[int, int, int, int, str], str, int, bool, str, str]],
    rows: int,
    places: int,
    width: int,
) -> None:
    texts: list[str] = []
    for value, name, limit, real, around, shape in given:
        shape = shape.replace("-3", "-3.0").replace("5", "5.0") if real else shape
        compared = f"{name}({shape.format(write_value(value, real))}, {limit}{'.0' * real})"
        texts.append(around.format(compared))
    guard = texts[0]
    for text in texts[1:]:
        guard = f"and({guard}, {text})"
    check_band(parse(rows, places, guard), rows * width)


@pytest.mark.parametrize("special", [0.0, np.nan, -np.inf])
@pytest.mark.parametrize("combiner", ["argmax", "argmin", "max", "min"])
def test_places_of_a_long_axis(combiner: str, special: float) -> None:
    """Few different values, so that most windows have several that are as large; the first windows
    lie before the axis, and have no place."""
    function = parse(LARGE, LARGE, "and(ge(r0, sub(i0, 9)), le(r0, sub(i0, 5)))", combiner)
    random = np.random.default_rng(1)
    x = random.integers(0, 3, LARGE).astype(np.float32)
    x[random.random(LARGE) < 0.2] = special
    choose = getattr(np, combiner)
    firsts = np.maximum(np.arange(LARGE) - 9, 0)
    none = {"max": -np.inf, "min": np.inf}.get(combiner, 0)
    expected = [
        choose(x[first : n - 4]) + (first if combiner.startswith("arg") else 0) if n > 4 else none
        for n, first in enumerate(firsts)
    ]
    found = run_program(compile(function, "opencl", "cpu"), {"x": x})["y"]
    np.testing.assert_array_equal(found, np.array(expected, found.dtype))
