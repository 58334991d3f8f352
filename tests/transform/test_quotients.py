"""Which quotients are correctly rounded: those that decide positions, and no others."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.pipeline import compile, make_kernels
from dmlc.transform.quotients import round_quotients


def count(*stages: str, inputs: str = "%x: f32[n], %w: f32[n]") -> list[int]:
    """How many quotients of each stage are correctly rounded."""
    text = f"func @F({inputs}) -> (%y) {{\n" + "\n".join(stages) + "\n}"
    made = round_quotients(ir.parse(text))
    return [str(stage.body).count("div_nearest") for stage in made.stages]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # Of positions alone, whatever it is for.
        ("mul(%x[i0], div(cast(i0, f32), 3.0))", 1),
        ("mul(%x[i0], div(1.0, cast(size(n), f32)))", 1),
        # A power of two divides exactly.
        ("mul(%x[i0], div(cast(i0, f32), 4.0))", 0),
        # Of elements, which decide nothing.
        ("div(%x[i0], 3.0)", 0),
        ("floor(div(%x[i0], 3.0))", 0),
        ("div(%x[i0], cast(i0, f32))", 0),
        # Whole numbers are divided exactly.
        ("mul(%x[i0], cast(div(i0, 3), f32))", 0),
        # What elements are read at.
        ("%x[max(min(cast(floor(div(%w[i0], 3.0)), index), sub(size(n), 1)), 0)]", 1),
        # A close call of a comparison goes either way.
        ("%x[select(lt(div(%w[i0], 3.0), 1.0), i0, 0)]", 0),
    ],
)
def test_quotients_of_one_stage(value: str, expected: int) -> None:
    assert count(f"  %y: f32[i0 < n] = {value}") == [expected]


def test_positions_are_followed_through_stages() -> None:
    place = "  %p: s32[i0 < n] = cast(floor(div(%w[i0], 3.0)), s32)"
    read = "  %y: f32[i0 < n] = %x[max(min(cast(%p[i0], index), sub(size(n), 1)), 0)]"
    assert count(place, read) == [1, 0]
    # What is computed of it, and is no position, is divided as devices do it.
    assert count(place, "  %y: f32[i0 < n] = div(cast(%p[i0], f32), %x[i0])") == [0, 0]


def test_a_guard_says_which_points_take_part() -> None:
    counts = "  %c: s32[i0 < n] = cast(ceil(div(%w[i0], 3.0)), s32)"
    total = "  %y: f32[i0 < n] = sum[r0 < 4 where lt(cast(r0, s32), %c[i0])] %x[i0]"
    assert count(counts, total) == [1, 0]


def test_the_place_of_the_largest_quotient_is_a_close_call() -> None:
    best = "  %b: s32[i0 < n] = argmax[r0 < 4] div(%w[i0], add(cast(r0, f32), %x[i0]))"
    read = "  %y: f32[i0 < n] = %x[max(min(cast(%b[i0], index), sub(size(n), 1)), 0)]"
    assert count(best, read) == [0, 0]


def test_a_function_without_any_stays_the_same_object() -> None:
    function = ir.parse("func @F(%x: f32[n]) -> (%y) {\n  %y: f32[i0 < n] = div(%x[i0], 3.0)\n}")
    assert round_quotients(function) is function


@pytest.mark.parametrize("target", ["opencl", "hlsl", "wgsl"])
def test_every_language_has_it(target: str) -> None:
    function = ir.parse(
        "func @F(%x: f32[n]) -> (%y) {\n  %y: f32[i0 < n] = mul(%x[i0], div(cast(i0, f32), 3.0))\n}"
    )
    _, (kernel,) = make_kernels(function, target)
    assert "div_nearest" in str(kernel.body)
    assert "div_nearest" in compile(function, target).kernels[0].source
