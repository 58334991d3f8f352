"""How far positions that are made of fractions reach: no value is left out, and clamps, roundings
and conversions are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.index.intervals import UNKNOWN, Interval
from dmlc.ir.ranges import Ranges
from dmlc.reference import evaluate

SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 9.5, 1e-45, 3e38, -3e38, 2**31, -(2**31), 2.0**63, 1e30,
     np.inf, -np.inf, np.nan], np.float32,
)  # fmt: skip


def function_of(formula: str, count: int, dtype: str = "s64") -> ir.Function:
    return ir.parse(
        f"func @f(%X: f32[{count}], %Y: f32[{count}]) -> (%Z) {{\n"
        f"  %Z: {dtype}[i0 < {count}] = {formula}\n}}"
    )


def reach(formula: str, count: int = 100) -> Interval:
    """The interval of a position."""
    (stage,) = function_of(f"cast({formula}, s64)", count).stages
    ranges = Ranges(stage)
    found = [ranges.add(instruction) for instruction in stage.body.instructions]
    (position,) = ir.operands(stage.body.instructions[stage.body.result])
    return found[position]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("cast(floor(min(max(%X[i0], 0.0), 9.0)), index)", (0, 9)),
        ("cast(min(max(%X[i0], 0.0), 9.75), index)", (0, 9)),
        ("cast(ceil(min(max(%X[i0], -2.5), 9.5)), index)", (-2, 10)),
        ("cast(round(min(max(%X[i0], -2.5), 9.5)), index)", (-2, 10)),
        ("cast(trunc(min(max(%X[i0], -2.5), 9.5)), index)", (-2, 9)),
        # NaN gives 0, which a clamp of the fraction does not leave out.
        ("cast(min(max(%X[i0], 3.0), 9.0), index)", (0, 9)),
        ("cast(floor(mul(cast(i0, f32), 0.37)), index)", (0, 36)),
        ("cast(floor(div(add(cast(i0, f32), 0.5), 2.5)), index)", (0, 39)),
        ("cast(sub(mul(cast(i0, f32), 0.5), 0.25), index)", (0, 49)),
        ("cast(mul(sigmoid(%X[i0]), 8.5), index)", (0, 8)),
        ("cast(select(gt(%X[i0], 0.0), 4.0, -3.0), index)", (-3, 4)),
        ("cast(%X[i0], index)", UNKNOWN),
        ("cast(max(%X[i0], 0.0), index)", (0, math.inf)),
        ("cast(div(1.0, min(max(%X[i0], -1.0), 1.0)), index)", UNKNOWN),
        ("cast(cast(%X[i0], s32), index)", (-(2**31), 2**31 - 1)),
        ("cast(min(max(%X[i0], -1e30), 1e30), index)", (-(2**63), 2**63 - 1)),
    ],
)
def test_fractions_become_bounded_positions(formula: str, expected: Interval) -> None:
    formula = formula.replace("1e30", repr(float(np.float32(1e30))))
    formula = formula.replace("0.37", repr(float(np.float32(0.37))))
    assert reach(formula) == expected


def combine(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    unary = "neg", "abs", "floor", "ceil", "round", "trunc", "sqrt", "tanh", "sigmoid", "sin", "exp"
    return st.one_of(
        st.tuples(st.sampled_from(unary), parts).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(
            st.sampled_from(("add", "sub", "mul", "div", "min", "max", "mod")), parts, parts
        ).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        st.tuples(parts, parts, parts).map(lambda t: f"select(gt({t[0]}, 0.5), {t[1]}, {t[2]})"),
        st.tuples(parts, st.sampled_from((0.0, -2.5)), st.sampled_from((0.5, 9.0))).map(
            lambda t: f"min(max({t[0]}, {t[1]}), {t[2]})"
        ),
    )


LEAVES = st.sampled_from(
    ("%X[i0]", "%Y[i0]", "cast(i0, f32)", "cast(cast(i0, s32), f32)", "0.0", "1.0", "-2.5", "0.25")
)


@settings(deadline=None, max_examples=400)
@given(st.recursive(LEAVES, combine, max_leaves=6), st.sampled_from(("index", "s32", "u8")))
def test_no_value_is_left_out(fraction: str, dtype: str) -> None:
    formula = f"cast(cast({fraction}, {dtype}), s64)"
    grid = np.meshgrid(SPECIAL, SPECIAL)
    x, y = (values.ravel() for values in grid)
    function = function_of(formula, len(x))
    found = evaluate(function, {"X": x, "Y": y})["Z"]
    low, high = reach(f"cast(cast({fraction}, {dtype}), index)", len(x))
    assert low <= int(found.min())
    assert int(found.max()) <= high
