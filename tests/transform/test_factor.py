"""Factors leave sums: which do, what is left, and that the results stay what they were."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlc
from dmlc import ir
from dmlc.ir import Function
from dmlc.pipeline import rewrite
from dmlc.reference import evaluate
from dmlc.scalars import OPERATIONS, DataType
from dmlc.transform.factor import take_out_factors
from dmlc.transform.simplify import simplify
from tests.strategies import functions, make_inputs, same_bits

X, C, D = "%x[r0, i1]", "%c[0, i1]", "%d[i0, i1]"


def parse(body: str, dtype: str = "f32", result: str = "f32", before: str = "") -> Function:
    return ir.parse(
        f"func @f(%x: {dtype}[4, 3], %c: {dtype}[1, 3], %d: {dtype}[1, 3]) -> (%Y) {{\n{before}\n"
        f"%Y: {result}[i0 < 1, i1 < 3] = sum[r0 < 4] {body}\n}}"
    )


def check(function: Function, inner: str, outer: str, before: str = "") -> None:
    """The sum becomes these two stages, after those that were there."""
    made = simplify(take_out_factors(function))
    ir.verify(made, "take_out_factors")
    expected = simplify(ir.parse(
        "func @f(%x: f32[4, 3], %c: f32[1, 3], %d: f32[1, 3]) -> (%Y) {\n"
        f"{before}\n%Y_sum: f32[i0 < 1, i1 < 3] = sum[r0 < 4] {inner}\n"
        f"%Y: f32[i0 < 1, i1 < 3] = {outer}\n}}"
    ))  # fmt: skip
    assert str(made) == str(expected)


Y = "%Y_sum[i0, i1]"

CASES = [
    (f"mul({X}, {C})", X, f"mul({Y}, {C})"),
    (f"mul({C}, {X})", X, f"mul({Y}, {C})"),
    (f"mul(2.0, {X})", X, f"mul({Y}, 2.0)"),
    (f"div({X}, {C})", X, f"div({Y}, {C})"),
    (f"neg({X})", X, f"neg({Y})"),
    (f"mul(neg({X}), exp({C}))", X, f"mul(neg({Y}), exp({C}))"),
    (f"mul(mul({X}, {X}), {D})", f"mul({X}, {X})", f"mul({Y}, {D})"),
    (f"mul(mul({X}, {D}), div({X}, {C}))", f"mul({X}, {X})", f"div(mul({Y}, {D}), {C})"),
    (f"div(mul({C}, {X}), exp({X}))", f"div({X}, exp({X}))", f"mul({Y}, {C})"),
    (f"select(lt({C}, {D}), {X}, 0.0)", X, f"select(lt({C}, {D}), {Y}, 0.0)"),
    (f"mul(select(lt({C}, 1.0), 0.0, {X}), {D})", X, f"mul(select(lt({C}, 1.0), 0.0, {Y}), {D})"),
]


@pytest.mark.parametrize(("body", "inner", "outer"), CASES)
def test_constant_factors_leave_the_sum(body: str, inner: str, outer: str) -> None:
    function = parse(body)
    check(function, inner, outer)
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal(s).astype(np.float32)
              for n, s in (("x", (4, 3)), ("c", (1, 3)), ("d", (1, 3)))}  # fmt: skip
    found = evaluate(take_out_factors(function), inputs)["Y"]
    np.testing.assert_allclose(found, evaluate(function, inputs)["Y"], rtol=1e-6)


KEPT = [
    X,
    C,
    f"add({X}, {C})",
    f"mul({X}, {X})",
    f"div({C}, {X})",
    f"exp(mul({X}, {C}))",
    f"mul({C}, {D})",
    f"select(lt({X}, {C}), {X}, 0.0)",
    f"select(lt({C}, {D}), {X}, 1.0)",
]


@pytest.mark.parametrize("body", KEPT)
def test_what_has_no_constant_factor_stays(body: str) -> None:
    function = parse(body)
    assert take_out_factors(function) is function


@pytest.mark.parametrize("body", [f"div({X}, cast(i1, f32))", f"mul({X}, log(cast(i1, f32)))"])
def test_a_factor_of_positions_stays_where_it_changes_what_is_nan(body: str) -> None:
    # By column 0 each term is divided by 0, or multiplied by an infinity: 0 / 0 + 1 / 0 is NaN.
    function = parse(body)
    assert take_out_factors(function) is function


@pytest.mark.parametrize("combiner", ["product", "max", "min"])
def test_other_reductions_stay(combiner: str) -> None:
    text = str(parse(f"mul({X}, {C})")).replace("sum[", f"{combiner}[")
    function = ir.parse(text)
    assert take_out_factors(function) is function


def test_a_sum_over_nothing_stays() -> None:
    function = ir.parse(
        "func @f(%x: f32[0, 3], %c: f32[1, 3]) -> (%Y) {\n"
        f"%Y: f32[i0 < 1, i1 < 3] = sum[r0 < 0] mul({X}, {C})\n}}"
    )
    assert take_out_factors(function) is function


def test_the_guard_stays_with_the_sum() -> None:
    body = f"mul({X}, {C})"
    text = str(parse(body)).replace("r0 < 4]", "r0 < 4 where and(gt(r0, 0), ge(i1, i1))]")
    function = ir.parse(text)
    made = take_out_factors(function)
    ir.verify(made)
    assert [s.body.guard is not None for s in made.stages] == [True, False]


@pytest.mark.parametrize("guard", [f"gt({X}, 0.0)", "lt(r0, i1)", "and(gt(r0, 1), lt(r0, 2))"])
def test_factors_stay_where_the_guard_may_let_nothing_through(guard: str) -> None:
    text = str(parse(f"mul({X}, {C})")).replace("r0 < 4]", f"r0 < 4 where {guard}]")
    function = ir.parse(text)
    assert take_out_factors(function) is function
    whole = ir.parse(text.replace("f32", "s32").replace("0.0", "0:s32"))
    assert take_out_factors(whole) is not whole
    inputs = {p.name: np.full(p.extents, -1, np.float32) for p in function.parameters}
    inputs["c"][...] = np.nan
    found = dmlc.run(function, inputs)["Y"]
    np.testing.assert_array_equal(found, evaluate(function, inputs)["Y"])


def test_integer_quotients_stay_and_products_leave() -> None:
    quotient = parse(f"div({X}, {C})", "s32", "s32")
    assert take_out_factors(quotient) is quotient
    product = parse(f"mul({X}, {C})", "s32", "s32")
    rng = np.random.default_rng(1)
    inputs = {n: rng.integers(-(2**31), 2**31, s).astype(np.int32)
              for n, s in (("x", (4, 3)), ("c", (1, 3)), ("d", (1, 3)))}  # fmt: skip
    found = evaluate(take_out_factors(product), inputs)["Y"]
    np.testing.assert_array_equal(found, evaluate(product, inputs)["Y"])


def test_sixteen_bits_are_rounded_after_the_factors() -> None:
    function = parse(f"mul({X}, {C})", "f16", "f16")
    made = take_out_factors(function)
    assert [(s.name, s.dtype.short) for s in made.stages] == [("Y_sum", "f32"), ("Y", "f16")]


HAT = f"%hat: f32[i0 < 4, i1 < 3] = mul(%x[i0, i1], {C})"


def test_a_factor_inside_a_stage_that_is_read_leaves_too() -> None:
    function = parse(f"mul({X}, %hat[r0, i1])", before=HAT)
    check(function, f"mul({X}, {X})", f"mul({Y}, {C})")


def test_a_stage_that_gives_no_factor_is_still_read() -> None:
    square = f"%hat: f32[i0 < 4, i1 < 3] = mul(%x[i0, i1], add(%x[i0, i1], {C}))"
    function = parse(f"mul({X}, %hat[r0, i1])", before=square)
    assert take_out_factors(function) is function
    function = parse(f"mul(%hat[r0, i1], {D})", before=square)
    check(function, "%hat[r0, i1]", f"mul({Y}, {D})", square)


def test_sums_that_differ_in_factors_become_one() -> None:
    function = ir.parse(
        "func @f(%x: f32[4, 3], %c: f32[1, 3]) -> (%A, %B) {\n"
        f"%A: f32[i0 < 1, i1 < 3] = sum[r0 < 4] mul({X}, {C})\n"
        f"%B: f32[i0 < 1, i1 < 3] = sum[r0 < 4] div({X}, exp({C}))\n}}"
    )
    made = rewrite(function)
    assert [(s.name, s.reduction is not None) for s in made.stages] == [
        ("A_sum", True), ("A", False), ("B", False),
    ]  # fmt: skip


def test_long_and_shared_chains_take_no_long() -> None:
    x = ir.Load("x", (0, 1), DataType.FLOAT32)
    made: list[ir.Instruction] = [ir.Index(0, reduced=True), ir.Index(1), x]
    made.append(ir.Constant(DataType.FLOAT32, 0.5))
    value = 2
    for _ in range(5_000):
        made.append(ir.Apply(OPERATIONS["mul"], (value, 3), DataType.FLOAT32))
        value = len(made) - 1
    for _ in range(200):
        made.append(ir.Apply(OPERATIONS["mul"], (value, value), DataType.FLOAT32))
        value = len(made) - 1
    function = parse(X)
    (stage,) = function.stages
    long = dataclasses.replace(stage, body=ir.Body.make(made, value))
    function = dataclasses.replace(function, stages=(long,))
    start = time.process_time()
    split = take_out_factors(function)
    assert time.process_time() - start < 5
    ir.verify(split)
    inputs = {n: np.ones(s, np.float32) for n, s in (("x", (4, 3)), ("c", (1, 3)), ("d", (1, 3)))}
    assert evaluate(split, inputs)["Y"].tolist() == [[0.0] * 3]


@settings(max_examples=150, deadline=None)
@given(functions(), st.integers(0, 99))
def test_functions_stay_well_formed_and_integers_stay_exact(function: Function, seed: int) -> None:
    made = take_out_factors(function)
    ir.verify(made, "take_out_factors")
    inputs = make_inputs(function, seed)
    expected, found = evaluate(function, inputs), evaluate(made, inputs)
    whole = not any(t.dtype.is_float for t in function.tensors().values())
    for name, values in expected.items():
        assert (found[name].dtype, found[name].shape) == (values.dtype, values.shape)
        assert not whole or same_bits(values, found[name]), name
