"""Slices of points whose ends are elements of a tensor, as the model of times knows them."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.ir.slices import find_slices
from dmlc.report import count_operations

SLICES = """func @sums(%x: f32[5000], %start: s32[101]) -> (%y) {{
  %y: f32[i0 < 100] = sum[r0 < 5000 where and({first}, {last})] %x[r0]
}}"""
START, END = "cast(%start[i0], index)", "cast(%start[add(i0, 1)], index)"


@pytest.mark.parametrize("first", [f"ge(r0, {START})", f"le({START}, r0)"])
@pytest.mark.parametrize("last", [f"lt(r0, {END})", f"gt({END}, r0)"])
def test_either_side_of_a_comparison_may_be_the_end(first: str, last: str) -> None:
    function = ir.parse(SLICES.format(first=first, last=last))
    (stage,) = function.stages
    slices = find_slices(function, stage)
    assert slices is not None
    assert (slices.starts, slices.count, slices.points) == ("start", 100, 5000)
    assert count_operations(function, stage) == 5000


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (f"gt(r0, {START})", f"lt(r0, {END})"),
        (f"ge(r0, {START})", f"le(r0, {END})"),
        (f"ge(r0, {START})", f"lt(r0, {START})"),
        (f"ge(r0, {START})", f"ge(r0, {END})"),
    ],
)
def test_other_ends_are_no_slices(first: str, last: str) -> None:
    function = ir.parse(SLICES.format(first=first, last=last))
    assert find_slices(function, function.stages[0]) is None
