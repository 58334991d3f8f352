"""Local rules that people bring."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.reference import evaluate
from dmlc.source import ArgumentError, DmlcError

GATE = """func @gate(%x: f32[n], %w: f32[n]) -> (%y) {
  %y: f32[i0 < n] = mul(sigmoid(sigmoid(%x[i0])), %w[i0])
}"""


def expand_sigmoid(body: ir.BodyBuilder, value: ir.Instruction) -> int | None:
    """For a language that has no sigmoid."""
    if not isinstance(value, ir.Apply) or value.operation.name != "sigmoid":
        return None
    (x,) = value.operands
    one = body.constant(1, value.dtype)
    return body.apply("div", one, body.apply("add", one, body.apply("exp", body.apply("neg", x))))


def swap_products(body: ir.BodyBuilder, value: ir.Instruction) -> int | None:
    if isinstance(value, ir.Apply) and value.operation.name == "mul":
        return body.apply("mul", *reversed(value.operands))
    return None


def test_a_rule_is_used_on_every_value() -> None:
    function = ir.parse(GATE)
    made = ir.apply_rules(function, expand_sigmoid)
    ir.verify(made)
    assert "sigmoid" not in str(made)
    x = np.linspace(-4, 4, 9, dtype=np.float32)
    given = {"x": x, "w": x}
    assert np.array_equal(evaluate(made, given)["y"], evaluate(function, given)["y"])
    # Where none applies, it is the very function, with all that is known of it.
    assert ir.apply_rules(made, expand_sigmoid) is made
    assert ir.apply_rules(made) is made


def test_what_a_rule_makes_is_looked_at_too() -> None:
    def grow(body: ir.BodyBuilder, value: ir.Instruction) -> int | None:
        """abs to max of both signs, then max to a select."""
        match value:
            case ir.Apply(operation=ir.Operation(name="abs"), operands=(x,)):
                return body.apply("max", x, body.apply("neg", x))
            case ir.Apply(operation=ir.Operation(name="max"), operands=(x, y)):
                return body.select(body.apply("gt", y, x), y, x)
            case _:
                return None

    function = ir.parse("func @f(%x: f32[4]) -> (%y) {\n  %y: f32[i0 < 4] = abs(%x[i0])\n}")
    made = ir.apply_rules(function, grow)
    assert "select(gt(" in str(made)
    assert "max" not in str(made)


def test_rules_that_never_end_are_refused() -> None:
    with pytest.raises(DmlcError) as raised:
        ir.apply_rules(ir.parse(GATE), swap_products)
    assert str(raised.value) == (
        "error: the rules never come to an end at %y: each of 100 rounds changed it"
    )


def test_a_rule_keeps_the_type() -> None:
    def compare(body: ir.BodyBuilder, value: ir.Instruction) -> int | None:
        return body.constant(True, ir.DataType.BOOL) if isinstance(value, ir.Load) else None

    with pytest.raises(DmlcError, match="a rule gives BOOL for a value of type FLOAT32"):
        ir.apply_rules(ir.parse(GATE), compare)
    with pytest.raises(ArgumentError, match="a rule must be a function of a builder and an instr"):
        ir.apply_rules(ir.parse(GATE), "sigmoid")
    with pytest.raises(ArgumentError, match=r"function must be an ir\.Function, not 'f'"):
        ir.apply_rules("f", compare)
