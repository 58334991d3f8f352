"""Every rule of the verifier, broken once."""

from __future__ import annotations

import dataclasses
import math

import pytest

from dmlc import ir
from dmlc.index.intervals import UNKNOWN
from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Function,
    Index,
    Instruction,
    Load,
    Parameter,
    Reduction,
    Result,
    Select,
    Stage,
    Symbol,
    verify,
)
from dmlc.ir.ranges import Ranges
from dmlc.ir.verify import find_fault, overlaps
from dmlc.scalars import OPERATIONS, Operands, Operation
from dmlc.scalars import DataType as T
from dmlc.source import DmlcError, InternalError

X = Parameter("X", T.FLOAT32, (4,))
K = Parameter("K", T.INT32, (4,))
ZERO = Constant(T.FLOAT32, 0.0)
OWN: tuple[Instruction, ...] = (Index(0), Load("X", (0,), T.FLOAT32))


def broken(function: Function) -> str:
    with pytest.raises(InternalError) as raised:
        verify(function, "the pass")
    message = str(raised.value)
    assert message.startswith("broken IR after the pass: @")
    return message


def stage(
    *body: Instruction,
    dtype: T = T.FLOAT32,
    domain: tuple[Extent, ...] = (4,),
    reduction: Reduction | None = None,
    guard: int | None = None,
    name: str = "Y",
) -> Stage:
    """A stage whose last instruction is the result, its body not made canonical."""
    return Stage(name, dtype, domain, Body(body, len(body) - 1, guard), reduction)


def function(*stages: Stage, parameters: tuple[Parameter, ...] = (X, K)) -> Function:
    return Function("f", parameters, stages, tuple(Result(s.name) for s in stages[-1:]))


def test_a_good_function_passes() -> None:
    verify(function(stage(*OWN)))


def test_the_message_names_pass_node_and_place() -> None:
    text = "func @f(%X: f32[4]) -> (%Y) {\n  %Y: f32[i0 < 4] = %X[i0]\n}"
    good = ir.parse(text, "f.ir")
    (made,) = good.stages
    bad = dataclasses.replace(good, stages=(dataclasses.replace(made, extents=(5,)),))
    assert broken(bad) == (
        "broken IR after the pass: @f, %Y, value 1: %X is left: axis 0 has size 4, read at 0 to 4 "
        "(f.ir:2:3)"
    )
    with pytest.raises(InternalError, match=r"^broken IR: @f, %Y"):
        verify(bad)


@pytest.mark.parametrize(
    ("parameter", "why"),
    [
        (Parameter("a b", T.FLOAT32, ()), "this is no name"),
        (Parameter("X", T.FLOAT32, ()), "it is defined twice"),
        (Parameter("I", T.INDEX, ()), "a tensor holds no INDEX"),
        (Parameter("P", T.FLOAT32, (-1,)), "an axis has size -1"),
        (Parameter("P", T.FLOAT32, ("a b",)), "'a b' is no size"),
        (Parameter("P", T.FLOAT32, (2**40, 2**40)), "it has more than 2**63 elements"),
        (Parameter("P", T.FLOAT32, (2, 3), (1,)), "it has strides for 1 axes, not 2"),
        (Parameter("P", T.FLOAT32, ("n",), ("m",)), "has the size 'm' by itself"),
        (Parameter("P", T.FLOAT32, ("n",), ("n*1",)), "of a stride, 'n*1' is written 'n'"),
        (Parameter("P", T.FLOAT32, (2,), (-1,)), "a stride is negative or beyond 63 bits"),
    ],
)
def test_parameters(parameter: Parameter, why: str) -> None:
    assert why in broken(function(stage(*OWN), parameters=(X, parameter)))


def test_function_names_and_symbols() -> None:
    good = function(stage(*OWN))
    assert "'../f' is no name" in broken(dataclasses.replace(good, name="../f"))
    assert "'n' is no parameter's size" in broken(function(stage(ZERO, domain=("n",))))
    assert "'n' is no parameter's size" in broken(function(stage(Symbol("n"), Cast(0, T.FLOAT32))))


def test_what_symbols_are_taken_to_be() -> None:
    sized = dataclasses.replace(
        function(stage(*OWN), parameters=(X, Parameter("P", T.FLOAT32, ("n",)))), checks=("n != 1",)
    )
    verify(sized)
    for check, why in (("m != 1", "'m != 1' is of no size it has"), ("n", "'n' is no condition")):
        assert why in broken(dataclasses.replace(sized, checks=(check,)))


SUM = Reduction("sum", ((0, 4),))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (stage(ZERO, name="X"), "it is defined twice"),
        (stage(ZERO, domain=(-3,)), "an axis has size -3"),
        (stage(ZERO, reduction=Reduction("sum", ((0, -3),))), "an axis has size -3"),
        (stage(ZERO, reduction=Reduction("sum", ((0, 2), (0, 2)))), "share a label"),
        (stage(ZERO, reduction=Reduction("sum", ((10_000, 2),))), "a label lies outside"),
        (stage(ZERO, reduction=Reduction("mean", ())), "no reduction is called 'mean'"),
        (stage(ZERO, reduction=Reduction("any", ())), "any does not take FLOAT32"),
        (stage(ZERO, reduction=Reduction("argmin", ())), "argmin gives integers, from numbers"),
        (
            stage(ZERO, dtype=T.INT8, reduction=Reduction("argmax", ((0, 200),))),
            "INT8 cannot hold the last of 200 positions",
        ),
        (stage(ZERO, reduction=SUM, guard=0), "its guard is no BOOL"),
        (stage(ZERO, dtype=T.FLOAT64), "the body gives FLOAT32 for a FLOAT64 tensor"),
        (Stage("Y", T.FLOAT32, (4,), Body((ZERO,), 1)), "its result or its guard is no value"),
        (Stage("Y", T.FLOAT32, (4,), Body((ZERO, ZERO), 1)), "not in canonical form"),
        (Stage("Y", T.FLOAT32, (4,), Body((ZERO, Index(0)), 0)), "not in canonical form"),
    ],
)
def test_stages(made: Stage, why: str) -> None:
    assert why in broken(function(made))


def test_a_guard_needs_a_reduction() -> None:
    body = Body((Constant(T.BOOL, True), ZERO), 1, guard=0)
    verify(function(Stage("Y", T.FLOAT32, (4,), body, SUM)))
    assert "a guard needs a reduction" in broken(function(Stage("Y", T.FLOAT32, (4,), body)))


def apply(name: str, *operands: int, dtype: T = T.FLOAT32) -> Apply:
    return Apply(OPERATIONS[name], operands, dtype)


STRAY = Operation("add", 2, Operands.NUMBER, OPERATIONS["add"].evaluate)
I64 = Constant(T.INT64, 1)
TRUE = Constant(T.BOOL, True)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ((apply("neg", 0),), "an operand is not defined before it"),
        ((apply("neg", 1), ZERO), "an operand is not defined before it"),
        ((ZERO, Apply(STRAY, (0, 0), T.FLOAT32)), "add is not in the table of operations"),
        ((ZERO, apply("add", 0)), "add takes 2 operands, not 1"),
        ((ZERO, I64, apply("add", 0, 1)), "the operands of add differ in type"),
        ((TRUE, apply("add", 0, 0, dtype=T.BOOL)), "add takes numbers, not BOOL"),
        ((I64, apply("sin", 0, dtype=T.INT64)), "sin takes floating-point numbers, not INT64"),
        ((ZERO, apply("bit_not", 0)), "bit_not takes integers, not FLOAT32"),
        ((ZERO, apply("lt", 0, 0)), "lt does not give FLOAT32"),
        ((ZERO, Select(0, 0, 0, T.FLOAT32)), "the condition of a select is no BOOL"),
        ((TRUE, ZERO, I64, Select(0, 1, 2, T.FLOAT32)), "branches of a select differ in type"),
        ((TRUE, ZERO, Select(0, 1, 1, T.INT64)), "branches of a select differ in type"),
        ((ZERO, Cast(0, T.FLOAT16)), "a value has the storage type FLOAT16"),
        ((Constant(T.BFLOAT16, 0.0),), "a value has the storage type BFLOAT16"),
        ((Index(1),), "there is no axis i1"),
        ((Index(0, True),), "there is no axis r0"),
        ((Constant(T.BOOL, 1),), "1 is no BOOL"),
        ((Constant(T.INT32, True),), "True is no INT32"),
        ((Constant(T.INT32, 1.0),), "1.0 is no INT32"),
        ((Constant(T.INT8, 128),), "128 is no INT8"),
        ((Constant(T.UINT8, -1),), "-1 is no UINT8"),
        ((Constant(T.FLOAT32, 1),), "1 is no FLOAT32"),
        ((Constant(T.FLOAT32, 0.1),), "0.1 is no FLOAT32"),
        ((Constant(T.FLOAT32, 1e300),), "1e+300 is no FLOAT32"),
        ((Index(0), Load("Q", (0,), T.FLOAT32)), "%Q is not defined before it"),
        ((Index(0), Load("Y", (0,), T.FLOAT32)), "%Y is not defined before it"),
        ((Index(0), Load("X", (0, 0), T.FLOAT32)), "%X is read at 2 positions, and its axes are 1"),
        ((Index(0), Load("X", (0,), T.FLOAT64)), "a load of %X gives FLOAT32"),
        ((I64, Load("X", (0,), T.FLOAT32)), "a position is no INDEX"),
    ],
)
def test_instructions(body: tuple[Instruction, ...], why: str) -> None:
    assert why in broken(function(stage(*body)))


def test_special_constants_pass() -> None:
    for value in (math.nan, math.inf, -math.inf, -0.0, 2.0**-149):
        verify(function(stage(Constant(T.FLOAT32, value))))
    verify(function(stage(Constant(T.FLOAT64, 0.1), dtype=T.FLOAT64)))


def read_at(position: str, domain: str = "i0 < 4") -> str:
    return f"func @f(%X: f32[4], %K: s32[4]) -> (%Y) {{ %Y: f32[{domain}] = %X[{position}] }}"


@pytest.mark.parametrize(
    "position",
    [
        "3",
        "i0",
        "sub(3, i0)",
        "neg(sub(i0, 3))",
        "div(mul(i0, 5), 4)",
        "mod(add(mul(i0, 7), 1), 4)",
        "abs(sub(i0, 2))",
        "min(max(cast(%K[i0], index), 0), 3)",
        "select(gt(i0, 2), 0, add(i0, 0))",
        "max(min(add(i0, 1), 3), -5)",
        "div(i0, i0)",
        "mod(i0, 0)",
        "bit_and(i0, 3)",
        "cast(mul(cast(i0, f32), 0.75), index)",
    ],
)
def test_positions_that_stay_inside(position: str) -> None:
    verify(ir.parse(read_at(position)))


@pytest.mark.parametrize(
    ("position", "reach"),
    [
        ("4", "4 to 4"),
        ("-1", "-1 to -1"),
        ("add(i0, 1)", "1 to 4"),
        ("sub(i0, 1)", "-1 to 2"),
        ("mul(i0, 2)", "0 to 6"),
        ("neg(i0)", "-3 to 0"),
        ("div(sub(i0, 9), 2)", "-4 to -3"),
        ("mod(sub(i0, 9), 3)", "-2 to 0"),
        ("abs(sub(i0, 4))", "1 to 4"),
        ("div(i0, sub(i0, 3))", "-2 to 0"),
        ("bit_or(i0, 4)", "4 to 7"),
        ("cast(%K[i0], index)", "-2147483648 to 2147483647"),
        ("mul(i0, 9223372036854775807)", "-2 to 9223372036854775807"),
        ("select(gt(i0, 2), 7, i0)", "0 to 7"),
    ],
)
def test_positions_that_may_leave(position: str, reach: str) -> None:
    with pytest.raises(DmlcError) as raised:
        ir.parse(read_at(position))
    assert f"%X is left: axis 0 has size 4, read at {reach}" in str(raised.value)


def test_nothing_is_read_over_an_empty_domain() -> None:
    verify(ir.parse(read_at("9", "i0 < 0")))


def test_values_that_are_no_positions_have_no_range() -> None:
    ranges = Ranges(stage(ZERO))
    assert ranges.add(ZERO) == UNKNOWN


def test_run_time_axes_are_read_by_their_own_index() -> None:
    symbolic = Parameter("X", T.FLOAT32, ("n",))
    verify(function(stage(*OWN, domain=("n",)), parameters=(symbolic,)))
    verify(function(stage(Constant(T.INDEX, 0), OWN[1]), parameters=(symbolic,)))
    for body, domain in ((OWN, (4,)), ((Constant(T.INDEX, 1), OWN[1]), ("n",))):
        message = broken(function(stage(*body, domain=domain), parameters=(symbolic,)))
        assert "%X may be left: axis 0 has the run-time size 'n'" in message


def test_results() -> None:
    good = function(stage(*OWN))
    for results, why in (
        ((Result("Q"),), "result %Q: no stage defines it"),
        ((Result("X"),), "result %X: no stage defines it"),
        ((Result("Y"), Result("Y")), "it is given twice"),
        ((Result("Y", (1, 1)),), "it has strides for 2 axes, not 1"),
        ((Result("Y", (-1,)),), "a stride is negative"),
        ((Result("Y", (0,)),), "its elements overlap in memory"),
    ):
        assert why in broken(dataclasses.replace(good, results=results))
    verify(dataclasses.replace(good, results=(Result("Y", (7,)),)))


@pytest.mark.parametrize(
    ("sizes", "strides", "expected"),
    [
        ((2, 3), (3, 1), False),
        ((2, 3), (1, 2), False),
        ((2, 3), (2, 1), True),
        ((2, 3), (0, 1), True),
        ((1, 3), (0, 1), False),
        ((0, 3), (0, 0), False),
        ((), (), False),
    ],
)
def test_overlaps(sizes: tuple[int, ...], strides: tuple[int, ...], expected: bool) -> None:
    assert overlaps(sizes, strides) is expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("func @f(%X: f32[4]) -> (%Y) { %Y: f32[i0 < 4] = %X[i0] }", None),
        ("func @f(%X: f32[4]{2}) -> (%Y{2}) { %Y: f32[i0 < 4] = %X[i0] }", None),
        ("func @f(%X: f32[1, 4]{9, 1}) -> (%Y) { %Y: f32[i0 < 1, i1 < 4] = %X[0, i1] }", None),
        ("func @f(%X: f32[n]) -> (%Y) { %Y: f32[i0 < n] = neg(%X[i0]) }", None),
        ("func @f(%X: f32[4]) -> (%Y) { %Y: f16[i0 < 4] = %X[i0] }", "they differ in type"),
        ("func @f(%X: f32[4]{2}) -> (%Y) { %Y: f32[i0 < 4] = %X[i0] }", "they differ in type"),
        (
            "func @f(%X: f32[4]) -> (%Y) { %Y: f32[i0 < 4] = %X[sub(3, i0)] }",
            "%Y reads it at other",
        ),
        ("func @f(%X: f32[4]) -> (%Y) { %Y: f32[i0 < 4] = sum[r0 < 4] %X[r0] }", "%Y reads it at"),
        (
            "func @f(%X: f32[4]) -> (%Y) { %t: f32[i0 < 2] = %X[add(i0, 1)] "
            "%Y: f32[i0 < 4] = %X[i0] }",
            "%t reads it at other places",
        ),
    ],
)
def test_in_place(text: str, why: str | None) -> None:
    made = dataclasses.replace(ir.parse(text), in_place=(("Y", "X"),))
    if why is None:
        verify(made)
    else:
        assert why in broken(made)


def test_in_place_pairs_a_result_with_a_parameter() -> None:
    good = function(stage(*OWN))
    for pair in (("X", "Y"), ("Y", "Y"), ("Q", "X")):
        message = broken(dataclasses.replace(good, in_place=(pair,)))
        assert "they are not a result and a parameter" in message


def test_what_was_verified_before_is_not_looked_into_again() -> None:
    function = ir.parse("""
        func @two(%x: f32[3]) -> (%z) {
          %y: f32[i0 < 3] = mul(%x[i0], 2.0)
          %z: f32[i0 < 3] = add(%y[i0], 1.0)
        }""")
    first, second = function.stages
    shorter = dataclasses.replace(first, extents=(2,))
    broken = dataclasses.replace(function, stages=(shorter, second))
    # The second stage is the same object, but what it reads is not alike.
    fault = find_fault(broken, function)
    assert fault == find_fault(broken)
    assert fault is not None
    assert fault.node.startswith("%z")
    wrong = dataclasses.replace(second, body=dataclasses.replace(second.body, result=99))
    assert find_fault(dataclasses.replace(function, stages=(first, wrong)), function) is not None
    assert find_fault(function, function) is None


def test_whole_numbers_of_what_was_verified_before_are_known() -> None:
    function = ir.parse("""
        func @two(%u: u64[1], %x: f32[4]) -> (%z) {
          %k: u64[i0 < 2] = min(cast(i0, u64), %u[0])
          %z: f32[i0 < 3] = %x[cast(%k[1], index)]
        }""")
    first, second = function.stages
    again = dataclasses.replace(second, extents=(2,))
    assert find_fault(dataclasses.replace(function, stages=(first, again)), function) is None
