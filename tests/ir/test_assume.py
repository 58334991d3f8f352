"""Intervals of values where a guard lets points through."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.index.intervals import Interval
from dmlc.ir.assume import assume_guard
from dmlc.ir.index import evaluate_positions

LOW, HIGH = -(2**31), 2**31 - 1


def make(value: str, guard: str) -> tuple[ir.Stage, int]:
    """A stage that folds a position where a guard holds, and the number of that position. What the
    two share is `v0`, which `value` begins with where it has a line of its own."""
    *lets, result = value.split("; ")
    lines = [*lets, f"where {guard}", f"cast({result}, s32)"]
    body = "\n".join(f"    {line}" for line in lines)
    text = (
        "func @f(%J: s32[9], %P: f32[9], %K: u64[9], %B: u8[9]) -> (%Z) {\n"
        f"  %Z: s32[i0 < 9] = sum[r0 < 7] {{\n{body}\n  }}\n}}"
    )
    stage = ir.parse(text).stages[0]
    cast = stage.body.instructions[stage.body.result]
    assert isinstance(cast, ir.Cast)
    return stage, cast.operand


POSITIONS: list[tuple[str, str, Interval | None]] = [
    ("sub(i0, r0)", "gt(i0, r0)", (1, 8)),
    ("sub(i0, r0)", "lt(r0, i0)", (1, 8)),
    ("sub(i0, r0)", "le(i0, r0)", (-6, 0)),
    ("sub(i0, r0)", "eq(i0, r0)", (0, 0)),
    ("sub(i0, r0)", "not(gt(r0, i0))", (0, 8)),
    ("sub(i0, 3)", "ge(i0, 3)", (0, 5)),
    ("sub(i0, 3)", "and(ge(i0, 3), lt(i0, 5))", (0, 1)),
    ("sub(i0, 3)", "not(or(lt(i0, 3), gt(i0, 4)))", (0, 1)),
    ("sub(i0, 3)", "or(lt(i0, 3), gt(i0, 4))", (-3, 5)),
    ("sub(i0, 3)", "not(and(lt(i0, 3), gt(r0, 4)))", (-3, 5)),
    ("sub(i0, 1)", "ne(i0, 0)", (0, 7)),
    ("sub(i0, 1)", "not(eq(i0, 0))", (0, 7)),
    ("sub(i0, 1)", "ne(i0, 4)", (-1, 7)),
    ("add(i0, 0)", "and(gt(i0, 5), lt(i0, 5))", None),
    ("add(i0, 0)", "lt(i0, r0)", (0, 5)),
    ("add(i0, 0)", "and(lt(i0, r0), lt(r0, 3))", (0, 1)),
]


@pytest.mark.parametrize(("value", "guard", "wanted"), POSITIONS)
def test_positions(value: str, guard: str, wanted: Interval | None) -> None:
    stage, position = make(value, guard)
    found = assume_guard(stage)
    assert (None if found is None else found[position]) == wanted
    # Nothing that passes lies outside.
    condition = stage.body.guard
    assert condition is not None
    over = (ir.Index(0), ir.Index(0, reduced=True))
    both = evaluate_positions(stage, [position, condition], over)
    reached, holds = np.broadcast_arrays(*both)
    low, high = wanted or (0, -1)
    assert all(low <= passing <= high for passing in reached[holds].tolist())


SIGNED, SMALL = "v0 = %J[i0]; cast(v0, index)", "v0 = %B[i0]; cast(v0, index)"
LARGE = "v0 = %K[i0]; cast(v0, index)"
REAL, FLOOR = "v0 = %P[i0]; cast(floor(v0), index)", "v0 = floor(%P[i0]); cast(v0, index)"


@pytest.mark.parametrize(
    ("value", "guard", "wanted"),
    [
        (SIGNED, "ge(v0, 0:s32)", (0, HIGH)),
        (SIGNED, "and(ge(v0, 0:s32), lt(v0, 9:s32))", (0, 8)),
        (SIGNED, "and(le(0:s32, v0), gt(9:s32, v0))", (0, 8)),
        (SIGNED, "not(or(lt(v0, 0:s32), ge(v0, 9:s32)))", (0, 8)),
        (SIGNED, "eq(v0, 4:s32)", (4, 4)),
        (SIGNED, "lt(cast(v0, s64), 9:s64)", (LOW, 8)),
        (SIGNED, "gt(cast(v0, u32), 9:u32)", (LOW, HIGH)),
        (SMALL, "ne(v0, 0:u8)", (1, 255)),
        (SMALL, "ne(v0, 255:u8)", (0, 254)),
        (LARGE, "ne(v0, 0:u64)", (1, 2**63 - 1)),
        (LARGE, "gt(v0, 9:u64)", (10, 2**63 - 1)),
        (REAL, "and(ge(v0, 0.0), lt(v0, 4.0))", (0, 3)),
        (REAL, "and(ge(v0, -0.5), le(v0, 4.0))", (-1, 4)),
        (FLOOR, "and(gt(v0, -1.0), lt(v0, 4.0))", (0, 3)),
        # What is NaN passes too, and becomes 0.
        (REAL, "and(ge(v0, 2.0), lt(v0, 4.0))", (2, 3)),
        (REAL, "not(or(lt(v0, 2.0), ge(v0, 4.0)))", (0, 3)),
        (REAL, "ne(v0, 2.0)", (-float("inf"), float("inf"))),
    ],
)
def test_elements_of_tensors(value: str, guard: str, wanted: Interval) -> None:
    stage, position = make(value, guard)
    found = assume_guard(stage)
    assert found is not None
    assert found[position] == wanted
