"""Bodies made value by value, and what the builder refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.ir import (
    Apply,
    Body,
    BodyBuilder,
    Cast,
    Function,
    Instruction,
    Parameter,
    Reduction,
    Result,
    Stage,
    Table,
)
from dmlc.ir import builder as builder_module
from dmlc.scalars import OPERATIONS, Operation
from dmlc.scalars import DataType as T
from dmlc.source import ArgumentError, DmlcError, UnknownNameError

X = Parameter("x", T.FLOAT16, ("N", 3))
WEIGHTS = Table("weights", T.FLOAT32, (3,), (0.5, 0.25, -1.0))
VALUES = {
    "position": lambda b: b.index(0),
    "number": lambda b: b.constant(1.5, T.FLOAT32),
    "whole": lambda b: b.constant(2, T.INT8),
    "truth": lambda b: b.constant(True, T.BOOL),
}  # fmt: skip


def test_a_function_is_built_and_run() -> None:
    body = BodyBuilder()
    weighted = body.apply("mul", body.load(X, body.index(0), body.reduced(0)),
                          body.load(WEIGHTS, body.reduced(0)))  # fmt: skip
    total = Stage("total", T.FLOAT32, ("N",), body.make(weighted), Reduction("sum", ((0, 3),)))
    body = BodyBuilder()
    value = body.read(total)
    last = body.apply("eq", body.index(0), body.apply("sub", body.symbol("N"), body.constant(1)))
    count = body.cast(body.symbol("N"), T.FLOAT32)
    chosen = body.select(last, count, body.apply("max", value, body.constant(0, T.FLOAT32)))
    y = Stage("y", T.BFLOAT16, ("N",), body.make(chosen))
    built = Function("weigh", (X,), (total, y), (Result("y"),), tables=(WEIGHTS,))
    ir.verify(built)
    assert ir.parse(str(built)) == built
    x = np.array([[4, 0, 1], [0, 0, 2], [1, 1, 1]], np.float16)
    found = dmlc.run(built, {"x": x}, device="reference")["y"]
    assert found.astype(np.float32).tolist() == [1.0, 0.0, 3.0]


def test_equal_values_are_one_and_rules_apply() -> None:
    body = BodyBuilder()
    own = body.index(0)
    assert body.index(0) == own
    assert body.apply("add", own, body.constant(0)) == own
    assert body.size(4) == body.constant(4) == body.symbol("8 / 2")
    assert body.size("N + 1") == body.symbol("1 + N")
    assert body.type_of(body.apply("lt", own, body.size("N"))) is T.BOOL


def test_literals_are_of_their_type() -> None:
    body = BodyBuilder()
    assert body.instructions[body.constant(0.1, T.FLOAT32)] == ir.Constant(
        T.FLOAT32, float(np.float32(0.1))
    )
    assert body.instructions[body.constant(1, T.FLOAT64)] == ir.Constant(T.FLOAT64, 1.0)
    zero = body.constant(-0.0, T.FLOAT32)
    assert zero != body.constant(0, T.FLOAT32)
    assert body.constant(math.nan, T.FLOAT32) == body.constant(-math.nan, T.FLOAT32)
    assert body.constant(math.inf, T.FLOAT32) != body.constant(-math.inf, T.FLOAT32)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda o: o.name)
def test_it_takes_what_the_verifier_takes(operation: Operation) -> None:
    taken: list[T] = []
    for dtype in (t for t in T if not t.is_storage_only):
        gives = operation.result_type(dtype)
        tensor = Parameter("x", T.INT64 if dtype is T.INDEX else dtype, (4,))
        body = BodyBuilder()
        value = body.index(0) if dtype is T.INDEX else body.read(tensor)
        given = (value,) * operation.arity
        applied = len(body.instructions)
        values = (*body.instructions, Apply(operation, given, gives), Cast(applied, T.INT64))
        stage = Stage("y", T.INT64, (4,), Body.make(values, len(values) - 1))
        fault = ir.find_fault(Function("f", (tensor,), (stage,), (Result("y"),)))
        if fault is None:
            taken.append(dtype)
            assert body.type_of(body.apply(operation.name, *given)) is gives
            continue
        with pytest.raises(DmlcError) as raised:
            body.apply(operation.name, *given)
        assert str(raised.value) == f"error: {fault.why}"
    assert taken


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda b, v: b.apply("squrt", v["number"]), UnknownNameError,
         "unknown operation 'squrt' [E0201]\n  note: did you mean 'sqrt'?"),
        (lambda b, v: b.apply("add", v["number"]), DmlcError, "add takes 2 operands, not 1"),
        (lambda b, v: b.apply("neg"), DmlcError, "neg takes 1 operand, not 0"),
        (lambda b, v: b.apply("add", v["number"], v["whole"]), DmlcError,
         "the operands of add differ in type: FLOAT32, INT8"),
        (lambda b, v: b.apply("exp", v["whole"]), DmlcError,
         "exp takes floating-point numbers, not INT8"),
        (lambda b, v: b.apply("neg", -1), ArgumentError,
         "a value must be the number of a value of this body, not -1"),
        (lambda b, v: b.apply("neg", 99), ArgumentError,
         "a value must be the number of a value of this body, not 99"),
        (lambda b, v: b.apply("neg", 1.5), ArgumentError,
         "a value must be the number of a value of this body, not 1.5"),
        (lambda b, v: b.select(v["number"], v["number"], v["number"]), DmlcError,
         "the condition of a select is no BOOL, but FLOAT32"),
        (lambda b, v: b.select(v["truth"], v["number"], v["whole"]), DmlcError,
         "the branches of a select differ in type: FLOAT32, INT8"),
        (lambda b, v: b.cast(v["number"], T.FLOAT16), DmlcError,
         "a value has the storage type FLOAT16; those read from it are FLOAT32"),
        (lambda b, v: b.cast(v["number"], "f32"), ArgumentError,
         "dtype must be an ir.DataType, not 'f32'"),
        (lambda b, v: b.load(X, v["position"]), DmlcError,
         "%x is read at 1 position, and its axes are 2"),
        (lambda b, v: b.load(X, v["position"], v["whole"]), DmlcError,
         "a position is no INDEX, but INT8"),
        (lambda b, v: b.load("x", v["position"]), ArgumentError,
         "tensor must be an ir.Parameter, ir.Table or ir.Stage, not 'x'"),
        (lambda b, v: b.index(-1), ArgumentError,
         "axis must be a whole number, 0 or more, not -1"),
        (lambda b, v: b.reduced("r0"), ArgumentError,
         "label must be a whole number, 0 or more, not 'r0'"),
        (lambda b, v: b.symbol(3), ArgumentError,
         "name must be a symbol, or a size made of some, not 3"),
        (lambda b, v: b.symbol("N +"), DmlcError, "'N +' is no size: expected sums, products and "),
        (lambda b, v: b.constant(1.5), DmlcError, "1.5 is no INDEX"),
        (lambda b, v: b.constant(128, T.INT8), DmlcError, "128 is no INT8"),
        (lambda b, v: b.constant(-1, T.UINT64), DmlcError, "-1 is no UINT64"),
        (lambda b, v: b.constant(True, T.INT32), DmlcError, "True is no INT32"),
        (lambda b, v: b.constant(1, T.BOOL), DmlcError, "1 is no BOOL"),
        (lambda b, v: b.constant(1e39, T.FLOAT32), DmlcError, "1e+39 is no FLOAT32"),
        (lambda b, v: b.constant(10**400, T.FLOAT64), DmlcError, "00... is no FLOAT64"),
        (lambda b, v: b.constant(1.0, T.BFLOAT16), DmlcError,
         "a value has the storage type BFLOAT16; those read from it are FLOAT32"),
        (lambda b, v: b.constant("1", T.INT32), ArgumentError,
         "value must be a number or a boolean, not '1'"),
    ],
)  # fmt: skip
def test_misuse_is_refused(
    ask: Callable[[BodyBuilder, dict[str, int]], int], error: type[DmlcError], message: str
) -> None:
    body = BodyBuilder()
    values = {name: make(body) for name, make in VALUES.items()}
    before = list(body.instructions)
    with pytest.raises(error) as raised:
        ask(body, values)
    assert type(raised.value) is error
    assert message in str(raised.value)
    assert body.instructions == before, "nothing was added"


def test_rules_look_once_at_an_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, rules = list[object](), builder_module._apply_rules

    def look(instruction: Instruction, values: Sequence[Instruction]) -> object:
        looked.append(instruction)
        return rules(instruction, values)

    monkeypatch.setattr(builder_module, "_apply_rules", look)
    builder = BodyBuilder()
    place, nothing = builder.index(0), builder.constant(0)
    first = builder.apply("add", place, nothing)
    assert first == place
    before = len(looked)
    assert builder.apply("add", place, nothing) == place
    assert len(looked) == before
