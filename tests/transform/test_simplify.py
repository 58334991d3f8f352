"""Simplification: what each rule does, what none may do, and that results stay bit for bit."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.ir import Function
from dmlc.ir.rules import RULES
from dmlc.reference import evaluate
from dmlc.transform.simplify import simplify
from tests.ir.test_text import chain
from tests.strategies import functions, make_inputs, same_bits


@settings(max_examples=200, deadline=None)
@given(functions(), st.integers(0, 99))
def test_results_stay_bit_for_bit(function: Function, seed: int) -> None:
    inputs = make_inputs(function, seed)
    simplified = simplify(function)
    ir.verify(simplified, "simplify")
    expected, found = evaluate(function, inputs), evaluate(simplified, inputs)
    assert list(expected) == list(found)
    for name, values in expected.items():
        assert same_bits(values, found[name]), name
    assert count(simplified) <= count(function)


def count(function: Function) -> int:
    """Instructions in all stages."""
    return sum(len(s.body.instructions) for s in function.stages)


def value_of(expression: str, dtype: str = "f32") -> str:
    """The expression of %Y after simplification, given tensors of every kind."""
    function = ir.parse(
        "func @f(%x: f32[4], %y: f32[4], %d: f64[4], %k: s32[4], %u: u8[4], %b: boolean[4]) -> "
        f"(%Y) {{ %Y: {dtype}[i0 < 4] = {expression} }}"
    )
    simplified = simplify(function)
    ir.verify(simplified)
    return "\n".join(line.strip() for line in str(simplified).splitlines()[1:-1]).removeprefix(
        f"%Y: {dtype}[i0 < 4] = "
    )


X, Y, D, K, U, B = "%x[i0]", "%y[i0]", "%d[i0]", "%k[i0]", "%u[i0]", "%b[i0]"

FLOAT_RULES = [
    (f"mul({X}, 1.0)", X),
    (f"mul(1.0, {X})", X),
    (f"div({X}, 1.0)", X),
    (f"sub({X}, 0.0)", X),
    (f"add({X}, -0.0)", X),
    (f"add(-0.0, {X})", X),
    (f"neg(neg({X}))", X),
    (f"abs(abs({X}))", f"abs({X})"),
    (f"floor(floor({X}))", f"floor({X})"),
    (f"cast({X}, f32)", X),
    (f"select(true, {X}, {Y})", X),
    (f"select(false, {X}, {Y})", Y),
    (f"select(not({B}), {X}, {Y})", f"select({B}, {Y}, {X})"),
    (f"select(not(not({B})), {X}, {Y})", f"select({B}, {X}, {Y})"),
    (f"select({B}, add({X}, -0.0), {X})", X),
    (f"select(and({B}, true), {X}, {Y})", f"select({B}, {X}, {Y})"),
    (f"select(and(false, {B}), {X}, {Y})", Y),
    (f"select(or({B}, true), {X}, {Y})", X),
    (f"select(select({B}, true, false), {X}, {Y})", f"select({B}, {X}, {Y})"),
    ("add(1.0, 2.0)", "3.0"),
    ("div(1.0, 4.0)", "0.25"),
    ("div(0.0, 0.0)", "nan"),
    ("div(-1.0, 0.0)", "-inf"),
    ("mul(0.0, -1.0)", "-0.0"),
    ("min(nan, 1.0)", "nan"),
    ("sqrt(4.0)", "2.0"),
    ("cast(0.1:f64, f32)", "0.1"),
    ("cast(3:s32, f32)", "3.0"),
    (f"select(lt(1.0, nan), {X}, {Y})", Y),
    (f"min({X}, {X})", X),
    (f"add({X}, nan)", "nan"),
    (f"max(nan, {X})", "nan"),
    (f"floor(mul({X}, nan))", "nan"),
    (f"tanh(sub(nan, {X}))", "nan"),
    (f"atan2({X}, nan)", "nan"),
    ("log(-1.0)", "nan"),
    ("pow(-8.0, 0.5)", "nan"),
    (f"select(isnan(add({X}, nan)), {X}, {Y})", X),
]
KEPT = [
    f"mul({X}, 0.0)",
    f"add({X}, 0.0)",
    f"sub({X}, -0.0)",
    f"sub(0.0, {X})",
    f"div(1.0, {X})",
    f"mul({X}, -1.0)",
    "div(1.0, 3.0)",
    "mul(1e+30, 1e+30)",
    "mul(1e-30, 1e-30)",
    "add(0.1, 0.2)",
    "exp(0.0)",
    "rsqrt(4.0)",
    f"min({X}, inf)",
    f"pow({X}, nan)",
    f"pow(nan, {X})",
    f"select({B}, {X}, nan)",
    f"select(lt({X}, nan), 1.0, {Y})",
    f"cast(cast({X}, f64), f32)",
    f"neg(abs({X}))",
    f"select({B}, {X}, {Y})",
]


@pytest.mark.parametrize(("expression", "expected"), FLOAT_RULES)
def test_rules_for_floats(expression: str, expected: str) -> None:
    assert value_of(expression) == expected


@pytest.mark.parametrize("expression", KEPT)
def test_what_would_change_a_result_is_kept(expression: str) -> None:
    assert value_of(expression) == expression


def test_a_float_less_itself_is_kept() -> None:
    assert value_of(f"sub({X}, {X})") == "{\nv0 = %x[i0]\nsub(v0, v0)\n}"
    assert value_of(f"eq({X}, {X})", "boolean") == "{\nv0 = %x[i0]\neq(v0, v0)\n}"


@pytest.mark.parametrize(
    ("expression", "expected", "dtype"),
    [
        (f"mul({K}, 0:s32)", "0:s32", "s32"),
        (f"add(0:s32, {K})", K, "s32"),
        (f"sub({K}, 0:s32)", K, "s32"),
        (f"sub({K}, {K})", "0:s32", "s32"),
        (f"div({K}, 1:s32)", K, "s32"),
        (f"mod({K}, 1:s32)", "0:s32", "s32"),
        (f"bit_and({K}, -1:s32)", K, "s32"),
        (f"bit_and({U}, 255:u8)", U, "u8"),
        (f"bit_and({U}, 0:u8)", "0:u8", "u8"),
        (f"bit_or({U}, 255:u8)", "255:u8", "u8"),
        (f"bit_or({K}, 0:s32)", K, "s32"),
        (f"bit_xor({K}, {K})", "0:s32", "s32"),
        (f"bit_not(bit_not({K}))", K, "s32"),
        (f"shift_left({K}, 0:s32)", K, "s32"),
        (f"shift_right({K}, 8:s32)", f"shift_right({K}, 8:s32)", "s32"),
        ("add(2147483647:s32, 1:s32)", "-2147483648:s32", "s32"),
        ("div(5:s32, 0:s32)", "0:s32", "s32"),
        ("div(-2147483648:s32, -1:s32)", "-2147483648:s32", "s32"),
        ("cast(nan, s32)", "0:s32", "s32"),
        ("cast(1e+20, s32)", "2147483647:s32", "s32"),
        ("cast(300:s32, u8)", "44:u8", "u8"),
        ("div(1.0:f64, 3.0:f64)", "0.3333333333333333:f64", "f64"),
        ("exp(0.0:f64)", "exp(0.0:f64)", "f64"),
        (f"not(not({B}))", B, "boolean"),
        (f"and({B}, {B})", B, "boolean"),
        (f"eq({B}, true)", f"eq({B}, true)", "boolean"),
        (f"le({K}, {K})", "true", "boolean"),
        (f"gt({U}, {U})", "false", "boolean"),
    ],
)
def test_rules_for_other_types(expression: str, expected: str, dtype: str) -> None:
    assert value_of(expression, dtype) == expected


def test_every_rule_says_what_it_does_to_special_values() -> None:
    for rule in RULES:
        text = rule.__doc__ or ""
        assert "NaN" in text, rule.__name__
        assert "infinit" in text, rule.__name__
        assert "-0" in text or "zero" in text, rule.__name__


def test_equal_values_become_one() -> None:
    text = f"add(exp(mul({X}, {Y})), exp(mul({X}, {Y})))"
    assert value_of(text) == "{\nv0 = exp(mul(%x[i0], %y[i0]))\nadd(v0, v0)\n}"


def simplified(text: str) -> str:
    function = simplify(ir.parse(text))
    ir.verify(function)
    return str(function)


def test_stages_that_copy_or_are_dead_disappear() -> None:
    assert (
        simplified("""func @f(%X: f16[2, 3], %Z: f32[2]) -> (%Y) {
      %copy: f16[i0 < 2, i1 < 3] = %X[i0, i1]
      %wide: f32[i0 < 2, i1 < 3] = %copy[i0, i1]
      %dead: f32[i0 < 2] = exp(%Z[i0])
      %Y: f32[i0 < 2, i1 < 3] = neg(%wide[i0, i1])
    }""")
        == """\
func @f(%X: f16[2, 3], %Z: f32[2]) -> (%Y) {
  %Y: f32[i0 < 2, i1 < 3] = neg(%X[i0, i1])
}"""
    )


def test_a_copy_that_moves_rounds_or_repeats_stays() -> None:
    text = """func @f(%X: f32[2, 2], %S: f32[2, 1]) -> (%Y) {
  %moved: f32[i0 < 2, i1 < 2] = %X[i1, i0]
  %rounded: f16[i0 < 2, i1 < 2] = %X[i0, i1]
  %repeated: f32[i0 < 2, i1 < 2] = %S[i0, 0]
  %Y: f32[i0 < 2, i1 < 2] = add(add(%moved[i0, i1], %rounded[i0, i1]), %repeated[i0, i1])
}"""
    assert simplified(text) == text


def test_a_result_that_copies_stays() -> None:
    text = "func @f(%X: f32[n]) -> (%Y) {\n  %Y: f32[i0 < n] = %X[i0]\n}"
    assert simplified(text) == text


def test_identical_stages_become_one() -> None:
    assert (
        simplified("""func @f(%X: f32[4]) -> (%Y) {
      %a: f32[] = sum[r0 < 4] %X[r0]
      %b: f32[] = sum[r0 < 4] mul(1.0, %X[r0])
      %Y: f32[i0 < 4] = add(%a[], %b[])
    }""")
        == """\
func @f(%X: f32[4]) -> (%Y) {
  %a: f32[] = sum[r0 < 4] %X[r0]
  %Y: f32[i0 < 4] = {
    v0 = %a[]
    add(v0, v0)
  }
}"""
    )


def test_a_stage_identical_to_a_later_result_becomes_it() -> None:
    assert (
        simplified("""func @f(%X: f32[4]) -> (%Y, %S, %T) {
      %a: f32[] = sum[r0 < 4] %X[r0]
      %Y: f32[i0 < 4] = mul(%X[i0], %a[])
      %S: f32[] = sum[r0 < 4] %X[r0]
      %T: f32[] = sum[r0 < 4] %X[r0]
    }""")
        == """\
func @f(%X: f32[4]) -> (%Y, %S, %T) {
  %S: f32[] = sum[r0 < 4] %X[r0]
  %Y: f32[i0 < 4] = mul(%X[i0], %S[])
  %T: f32[] = sum[r0 < 4] %X[r0]
}"""
    )


def test_a_guard_that_always_holds_goes() -> None:
    assert (
        simplified("""func @f(%X: f32[4]) -> (%Y) {
      %Y: f32[] = sum[r0 < 4 where or(true, lt(r0, 2))] %X[r0]
    }""")
        == """\
func @f(%X: f32[4]) -> (%Y) {
  %Y: f32[] = sum[r0 < 4] %X[r0]
}"""
    )


def test_in_place_pairs_that_no_longer_hold_go() -> None:
    text = """func @f(%X: f32[3, 3]) -> (%Y, %Z) in place (%Y over %X, %Z over %X) {
  %t: f32[i0 < 3, i1 < 3] = %X[i0, i1]
  %Y: f32[i0 < 3, i1 < 3] = neg(%t[i1, i0])
  %Z: f32[i0 < 3, i1 < 3] = exp(%t[i0, i1])
}"""
    assert "in place" not in simplified(text)
    assert "in place" in simplified(text.replace("[i1, i0]", "[i0, i1]"))


def test_time_is_linear_in_size() -> None:
    start = time.perf_counter()
    assert simplify(chain(20_000)) == chain(20_000)
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize(
    ("combiner", "dtype", "value"),
    [
        ("sum", "f16", "0.0"), ("product", "s32", "1:s32"), ("max", "f32", "-inf"),
        ("min", "u8", "255:u8"), ("argmax", "s64", "0:s64"),
    ],
)  # fmt: skip
def test_a_reduction_over_nothing_is_a_constant(combiner: str, dtype: str, value: str) -> None:
    held = "f32" if combiner == "argmax" else dtype
    function = ir.parse(
        f"func @f(%X: {held}[3, 0]) -> (%Y) {{ "
        f"%Y: {dtype}[i0 < 3] = {combiner}[r1 < 0] %X[i0, r1] }}"
    )
    made = simplify(function)
    ir.verify(made)
    assert str(made).splitlines()[1].strip() == f"%Y: {dtype}[i0 < 3] = {value}"


def test_a_reduction_with_no_place_to_store_it_folds_nothing() -> None:
    function = ir.parse(
        "func @f(%X: f32[3, 0]) -> (%Y) { %Y: f32[i0 < 0] = sum[r0 < 3] %X[r0, i0] }"
    )
    assert simplify(function).stages[0].reduction is None


@pytest.mark.parametrize(
    ("reduction", "left"),
    [
        ("min[r0 < 3] %k[i0]", "%k[i0]"),
        ("max[] %k[i0]", "%k[i0]"),
        ("sum[r0 < 1] %k[r0]", "%k[0]"),
        ("sum[r0 < 2] %k[i0]", None),
        ("product[r0 < 1, r1 < 1] %k[add(r0, r1)]", "%k[0]"),
        ("min[r0 < 3] %k[r0]", None),
        ("argmax[r0 < 3] %y[i0]", "0:s32"),
        ("argmax[r0 < 3] %y[r0]", None),
        ("max[r0 < 3 where lt(r0, i0)] %k[i0]", None),
        ("max[r0 < 3 where lt(i0, i0)] %k[r0]", "-2147483648:s32"),
        ("argmin[r0 < 3 where lt(i0, i0)] %k[r0]", "0:s32"),
    ],
)
def test_what_folds_nothing_together_is_no_reduction(reduction: str, left: str | None) -> None:
    function = ir.parse(
        "func @f(%k: s32[4], %y: f32[4]) -> (%Y) {\n"
        f"  %Y: s32[i0 < 4] = {reduction}\n}}"
    )  # fmt: skip
    (stage,) = simplify(function).stages
    assert (stage.reduction is None) == (left is not None)
    if left is not None:
        assert f"%Y: s32[i0 < 4] = {left}\n" in str(simplify(function))


def test_a_sum_of_one_float_has_no_negative_zero() -> None:
    function = ir.parse(
        "func @f(%x: f32[4]) -> (%Y) {\n  %Y: f32[i0 < 4] = sum[r0 < 1] %x[add(i0, r0)]\n}"
    )
    inputs = {"x": np.array([-0.0, 1.0, np.nan, -np.inf], np.float32)}
    found = evaluate(simplify(function), inputs)["Y"]
    assert same_bits(found, evaluate(function, inputs)["Y"])
    assert not np.signbit(found[0])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("%x[div(i0, 4)]", "%x[0]"),
        ("%x[mod(i0, 4)]", "%x[i0]"),
        ("%x[div(i0, 9)]", "%x[0]"),
        ("%x[div(i0, 3)]", "%x[div(i0, 3)]"),
        ("%x[mod(i0, 3)]", "%x[mod(i0, 3)]"),
    ],
)
def test_a_position_that_never_comes_to_its_divisor_is_not_divided(
    expression: str, expected: str
) -> None:
    function = ir.parse(f"func @f(%x: f32[4]) -> (%y) {{ %y: f32[i0 < 4] = {expression} }}")
    assert f"= {expected}" in str(simplify(function))
