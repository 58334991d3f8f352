"""The text form of the tensor IR: what it looks like, what it reads back to, what it refuses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings

from dmlc import ir
from dmlc.ir import Apply, Body, Constant, Function, Index, Load, Parameter, Result, Stage
from dmlc.scalars import OPERATIONS, TENSOR_TYPES
from dmlc.scalars import DataType as T
from dmlc.source import DmlcError
from tests.strategies import functions

RELU_GRAD = """\
func @relu_grad(%X: f32[2, 3], %dY: f32[2, 3]) -> (%dX) {
  %dX: f32[i0 < 2, i1 < 3] = select(gt(%X[i0, i1], 0.0), %dY[i0, i1], 0.0)
}"""
BIAS_GRAD = """\
func @bias_grad(%dY: f32[32, 64, 56, 56]) -> (%db) {
  %db: f32[i0 < 1, i1 < 64, i2 < 1, i3 < 1] = sum[r0 < 32, r2 < 56, r3 < 56] %dY[r0, i1, r2, r3]
}"""
SHARED = """\
func @gelu(%X: f16[n]) -> (%Y) in place (%Y over %X) {
  %Y: f16[i0 < n] = {
    v0 = %X[i0]
    mul(mul(v0, 0.5), add(erf(mul(v0, 0.70710677)), 1.0))
  }
}"""
GUARDED = """\
func @window(%X: f32[9]{2}, %P: s32[9]) -> (%S{1}, %A) {
  %S: f32[i0 < 3] = sum[r0 < 4 where lt(add(mul(i0, 3), r0), 9)] %X[min(add(mul(i0, 3), r0), 8)]
  %A: s64[i0 < 3] = argmax[r5 < 9] {
    v0 = %P[r5]
    where ne(v0, -1:s32)
    add(v0, 2:s32)
  }
}"""
LITERALS = """\
func @literals(%X: f64[2]) -> (%A, %B, %C, %D) {
  %A: f32[i0 < 2] = select(lt(%X[i0], -0.0:f64), -inf, select(isnan(%X[i0]), nan, 1e-45))
  %B: u64[] = add(18446744073709551615:u64, cast(-9223372036854775808:s64, u64))
  %C: boolean[i0 < 2] = and(true, gt(%X[i0], 1e+300:f64))
  %D: f64[i0 < 2] = cast(i0, f64)
}"""
ODD_NAMES = """\
func @inf(%inf: f32[nan], %in: f32[nan]) -> (%where) {
  %where: f32[i0 < nan] = add(%inf[i0], %in[i0])
}"""


@pytest.mark.parametrize(
    "text", [RELU_GRAD, BIAS_GRAD, SHARED, GUARDED, LITERALS, ODD_NAMES, "func @f() -> () {\n}"]
)
def test_reads_and_prints_back_the_same(text: str) -> None:
    function = ir.parse(text)
    assert str(function) == text
    assert ir.print_function(function) == text
    ir.verify(function)


def test_layout_and_comments_are_free() -> None:
    loose = RELU_GRAD.replace(" ", "\n ").replace("{", "{ // a gradient\n", 1)
    assert ir.parse(loose) == ir.parse(RELU_GRAD)


def test_spans_cover_what_was_read() -> None:
    function = ir.parse(RELU_GRAD, "relu.ir")
    stage, parameter = function.stages[0], function.parameters[1]
    assert stage.span is not None
    assert parameter.span is not None
    assert function.span is not None
    assert (stage.span.line, stage.span.column) == (2, 3)
    assert stage.span.text.endswith("0.0)")
    assert parameter.span.text == "%dY: f32[2, 3]"
    assert function.span.text == RELU_GRAD


@settings(max_examples=200, deadline=None)
@given(functions())
def test_parse_undoes_print(function: Function) -> None:
    text = str(function)
    parsed = ir.parse(text)
    assert parsed == function
    assert str(parsed) == text


def chain(count: int) -> Function:
    """`count` operations, each used once."""
    body: list[ir.Instruction] = [Index(0), Load("X", (0,), T.FLOAT32)]
    body += [Apply(OPERATIONS["sin"], (n + 1,), T.FLOAT32) for n in range(count)]
    stage = Stage("Y", T.FLOAT32, (4,), Body.make(body, count + 1))
    return Function("f", (Parameter("X", T.FLOAT32, (4,)),), (stage,), (Result("Y"),))


def test_deep_nesting_is_cut_into_named_lines() -> None:
    function = chain(3000)
    text = str(function)
    assert ir.parse(text) == function
    assert max(len(line) for line in text.splitlines()) < 120
    assert "    v0 = sin(sin(" in text


def test_sharing_stays_linear() -> None:
    body: list[ir.Instruction] = [Index(0), Load("X", (0,), T.FLOAT32)]
    body += [Apply(OPERATIONS["add"], (n + 1, n + 1), T.FLOAT32) for n in range(200)]
    stage = Stage("Y", T.FLOAT32, (4,), Body.make(body, 201))
    function = Function("f", (Parameter("X", T.FLOAT32, (4,)),), (stage,), (Result("Y"),))
    assert len(str(function)) < 200 * 40
    assert ir.parse(str(function)) == function


@pytest.mark.parametrize("dtype", [t for t in TENSOR_TYPES if t.is_integer])
def test_integer_literals_of_every_type(dtype: T) -> None:
    for value in (0, 1, 127):
        stage = Stage("Y", dtype, (2,), Body.make([Constant(dtype, value)], 0))
        function = Function("f", (), (stage,), (Result("Y"),))
        assert f"{value}:{dtype.short}" in str(function)
        assert ir.parse(str(function)) == function


@pytest.mark.parametrize("value", [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, math.nan])
def test_float64_literals_read_back_equal(value: float) -> None:
    stage = Stage("Y", T.FLOAT64, (), Body.make([Constant(T.FLOAT64, value)], 0))
    function = Function("f", (), (stage,), (Result("Y"),))
    assert ir.parse(str(function)) == function


def test_any_depth_of_nesting_is_read() -> None:
    text = stage_of("neg(" * 5000 + "%X[i0]" + ")" * 5000)
    assert len(ir.parse(text).stages[0].body.instructions) == 5002


def test_values_may_be_called_like_operations() -> None:
    function = ir.parse(stage_of("{ add = neg(%X[i0]) add(add, add) }"))
    assert "    v0 = neg(%X[i0])\n    add(v0, v0)\n" in str(function)


def refuse(text: str) -> tuple[int, int, str]:
    with pytest.raises(DmlcError) as raised:
        ir.parse(text)
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.span is not None
    return diagnostic.span.line, diagnostic.span.column, diagnostic.message


def stage_of(expression: str) -> str:
    return f"func @f(%X: f32[4], %K: s32[4]) -> (%Y) {{\n  %Y: f32[i0 < 4] = {expression}\n}}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", (1, 1, "expected 'func', found the end of the text")),
        ("func f", (1, 6, "expected '@', found 'f'")),
        ("func @f(%X f32[2])", (1, 12, "expected ':', found 'f32'")),
        ("func @f(%X: f31[2])", (1, 13, "unknown data type 'f31'")),
        ("func @f(%X: f32[2.5])", (1, 17, "expected a size or a symbol, found '2.5'")),
        ("func @f(%X: f32[2]{=})", (1, 20, "expected a stride, found '='")),
        ("func @f(%X: f32[2]{x})", (1, 23, "expected '->', found the end of the text")),
        ("func @f(%X: f32[2], %X: f32[2])", (1, 22, "tensor '%X' is defined twice")),
        ("func @f() -> (%Y) in lieu", (1, 22, "expected 'place', found 'lieu'")),
        ("func @f() -> () {\n} }", (2, 3, "expected the end of the text, found '}'")),
        ("func @f() -> () { \u0663 }", (1, 19, "unexpected character '\u0663'")),
        ("func @f() -> () { ? }", (1, 19, "unexpected character '?'")),
        (
            "func @f() -> (%Y) {\n  %Y: f32[i1 < 4] = 1.0\n}",
            (2, 11, "expected 'i0', the next axis, found 'i1'"),
        ),
    ],
)
def test_refuses_broken_functions(text: str, place: tuple[int, int, str]) -> None:
    assert refuse(text) == place


@pytest.mark.parametrize(
    ("expression", "column", "message"),
    [
        ("%Z[i0]", 22, "unknown tensor 'Z'"),
        ("ad(1.0, 2.0)", 21, "unknown operation 'ad'"),
        ("add(1.0)", 21, "'add' takes 2 operands, found 1"),
        ("sin(1.0, 2.0)", 21, "'sin' takes 1 operand, found 2"),
        ("select(true, 1.0)", 21, "'select' takes 3 operands, found 2"),
        ("v9", 21, "unknown value 'v9'"),
        ("add(1.0, ]", 30, "expected a value, found ']'"),
        ("total[r0 < 4] 1.0", 21, "unknown reduction 'total'"),
        ("sum[i0 < 4] 1.0", 25, "expected a reduction axis, such as 'r0', found 'i0'"),
        ("cast(1.0, f3)", 31, "unknown data type 'f3'"),
        ("1.5:s32", 21, "'1.5' is no INT32"),
        ("1:boolean", 21, "'1' is no BOOL"),
        ("1e60", 21, "'1e60' is no FLOAT32"),
        (f"{'9' * 30}:u64", 21, f"'{'9' * 24}...' is no UINT64"),
        ("{ i0 = 1.0 i0 }", 23, "the name 'i0' is taken"),
        ("{ a = 1.0 a = 2.0 a }", 31, "the name 'a' is taken"),
        ("add(1.0, )", 30, "expected a value, found ')'"),
        ("cast()", 21, "'cast' takes 1 operand, found 0"),
        ("cast(1.0)", 29, "expected ',', found ')'"),
        ("%[0]", 22, "expected a tensor's name, found '['"),
        ("{ nan = 1.0 nan }", 23, "the name 'nan' is taken"),
    ],
)
def test_refuses_broken_values(expression: str, column: int, message: str) -> None:
    assert refuse(stage_of(expression)) == (2, column, message)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("%X[add(i0, 1)]", "%X is left: axis 0 has size 4, read at 1 to 4"),
        ("%X[i0, i0]", "%X is read at 2 positions, and its axes are 1"),
        ("add(1.0, %K[i0])", "the operands of add differ in type: FLOAT32, INT32"),
        ("and(1.0, 1.0)", "and takes booleans, not FLOAT32"),
        ("300:u8", "300 is no UINT8"),
        ("%K[i0]", "the body gives INT32 for a FLOAT32 tensor"),
        ("r0", "there is no axis r0"),
    ],
)
def test_refuses_what_breaks_a_rule_of_the_ir(expression: str, message: str) -> None:
    line, column, found = refuse(stage_of(expression))
    assert (line, column) == (2, 3)
    assert found.startswith("this breaks a rule of the IR at %Y")
    assert found.endswith(": " + message)


def test_a_constant_is_its_bits() -> None:
    assert Constant(T.FLOAT32, 0.0) != Constant(T.FLOAT32, -0.0)
    assert Constant(T.FLOAT32, math.nan) == Constant(T.FLOAT32, -math.nan)
    assert Constant(T.INT32, 1) != Constant(T.INT64, 1)
    assert len({Constant(T.FLOAT32, math.nan), Constant(T.FLOAT32, math.nan)}) == 1
    assert Constant(T.INT32, 1) != 1


def test_a_function_finds_its_parts() -> None:
    function = ir.parse(SHARED)
    assert function.symbols() == ("n",)
    assert list(function.tensors()) == ["X", "Y"]
    assert function.parameter("X") is function.parameters[0]
    assert function.parameter("Y") is None
    assert function.stage("Y") is function.stages[0]
    assert function.stage("X") is None
