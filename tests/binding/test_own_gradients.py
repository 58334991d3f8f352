"""`stop_gradient`, and functions with gradients of their own: what they compute, what is derived
from them, and what is refused."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from contextlib import nullcontext

import numpy as np
import pytest

import dmlc
from dmlc import compiler, ir
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.reference import evaluate
from dmlc.scalars import GRADIENT_MARKS, Array
from dmlc.scalars.operation import Unsupported
from dmlc.source import DmlcError, Source
from dmlc.testing import assert_gradient
from dmlc.transform import derivatives
from dmlc.transform.differentiate import differentiate
from dmlc.transform.simplify import drop_marks

SURROGATES = """
function straight(x) = round(x)
    gradient of straight with respect to x = 1
function spike(x) = x > 0 ? 1 : 0
    gradient of spike with respect to x = 1 / ((1 + abs(x)) * (1 + abs(x)))
function bounded(x) = x * x * x
    gradient of bounded with respect to x = clamp(3 * x * x, -1, 1)
function softplus(x) = max(x, 0) + log1p(exp(-abs(x)))
    gradient of softplus with respect to x = sigmoid(x)
function logistic(x) = 1 / (1 + exp(-x))
    gradient of logistic with respect to x = logistic(x) * (1 - logistic(x))
function scaled(x, w) = round(x) * w * w
    gradient of scaled with respect to x = 10 * w
"""
X = np.array([-100, -1.4, 0, 0.6, 100], np.float32)
DY = np.array([1, 2, 4, 8, 16], np.float32)


def run(formula: str, given: Mapping[str, Array], functions: str = SURROGATES) -> Array:
    """The gradient of a formula of x, and of w where that is given, by x, of a graph; a warning is
    an error."""
    inputs = ", ".join(f"{name}: FLOAT32[N]" for name in ("x", "w", "dy") if name in given)
    text = (
        f"{functions}\ngraph g[N]({inputs}) {{ y = {formula}\n"
        "output dx = gradient of y with respect to x from dy }"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return dmlc.run(dmlc.parse(text).graphs["g"], dict(given), device="reference")["dx"]


# What is derived ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "slope"),
    [
        ("stop_gradient(x)", np.zeros(5)),
        ("x * stop_gradient(x)", X),
        ("x + stop_gradient(round(x) - x)", np.ones(5)),
        ("straight(x)", np.ones(5)),
        ("straight(2 * x)", np.full(5, 2)),
        ("spike(x)", 1 / (1 + np.abs(X)) ** 2),
        ("bounded(x)", np.clip(3 * X * X, -1, 1)),
        ("softplus(x)", 1 / (1 + np.exp(-X.astype(np.float64)))),
        ("straight(spike(x) * 3)", 3 / (1 + np.abs(X)) ** 2),
    ],
)
def test_slopes(formula: str, slope: Array) -> None:
    assert np.allclose(run(formula, {"x": X, "dy": DY}), DY * slope, rtol=1e-6, atol=1e-30)


def test_a_parameter_without_a_gradient_moves_as_in_the_body() -> None:
    given = {"x": np.array([1.4, 2.6], np.float32), "w": np.array([3, 5], np.float32)}
    given["dy"] = np.ones(2, np.float32)
    assert run("scaled(x, w)", given).tolist() == [30, 50]
    swapped = {**given, "x": given["w"], "w": given["x"]}
    # By w: round(1.4) * 2 * w, and round(2.6) * 2 * w.
    assert run("scaled(w, x)", swapped).tolist() == [6, 30]


def test_numbers_alone_have_no_gradient() -> None:
    assert run("x * straight(2.4) * spike(1)", {"x": X, "dy": DY}).tolist() == (2 * DY).tolist()


def test_in_index_notation_and_sums() -> None:
    text = f"""{SURROGATES}
        operator BLUR {{
            tensors {{ | Tensor | Kind | Dimensions | Types |
                      | x | Input | {{ N }} | f32 |
                      | y | Output | {{ N }} | f32 | }}
            compute {{
                half(v) = floor(v / 2)
                    gradient of half with respect to v = 0.5
                y[n] = sum[k : 3](straight(x[n + k - 1] else 0) + half(x[n]))
            }}
        }}
        operator BLUR_GRAD {{
            tensors {{ | Tensor | Kind | Dimensions | Types |
                      | dy | Input | {{ N }} | f32 |
                      | dx | Output | {{ N }} | f32 | }}
            gradient of BLUR with respect to x
        }}"""
    found = dmlc.run(
        dmlc.parse(text).operators["BLUR_GRAD"],
        {"dy": np.array([1, 10, 100], np.float32)},
        device="reference",
    )
    assert found["dx"].tolist() == [11 + 1.5, 111 + 15, 110 + 150]


def test_a_second_derivative_is_that_of_the_formula() -> None:
    text = f"""{SURROGATES}
        graph g[N](x: FLOAT32[N]) {{
            loss = sum(softplus(x), axes: [0])
            dx   = gradient of loss with respect to x
            output second = gradient of sum(dx, axes: [0]) with respect to x
        }}
        graph h[N](x: FLOAT32[N]) {{
            dx = gradient of sum(logistic(x), axes: [0]) with respect to x
            output second = gradient of sum(dx, axes: [0]) with respect to x
        }}"""
    graphs = dmlc.parse(text).graphs
    s = 1 / (1 + np.exp(-X.astype(np.float64)))
    found = {n: dmlc.run(g, {"x": X}, device="reference")["second"] for n, g in graphs.items()}
    assert np.allclose(found["g"], s * (1 - s), atol=1e-7)
    assert np.allclose(found["h"], s * (1 - s) * (1 - 2 * s), atol=1e-7)


def test_results_at_hand_are_read() -> None:
    text = """
        operator SOFTMAX {
            tensors { | Tensor | Kind | Ranks | Types |
                      | x | Input  | 2 | f32 |
                      | y | Output | 2 | f32 | }
            constraints { x and y must have the same Sizes. }
            compute {
                e = exp(x - stop_gradient(max(x, axes: [1])))
                y = stop_gradient(1 / 2) * e / sum(e, axes: [1]) + e / sum(e, axes: [1]) / 2
            }
        }
        operator SOFTMAX_GRAD {
            tensors { | Tensor | Kind | Ranks | Types |
                      | x  | Input  | 2 | f32 |
                      | y  | Input  | 2 | f32 |
                      | dy | Input  | 2 | f32 |
                      | dx | Output | 2 | f32 | }
            constraints { x, y, dy and dx must have the same Sizes. }
            gradient of SOFTMAX with respect to x
        }"""
    x = np.array([[1, 3, 0], [0, 0, 2]], np.float32)
    dy = np.array([[1, 0, 2], [4, 1, 0]], np.float32)
    module = dmlc.parse(text).operators
    y = dmlc.run(module["SOFTMAX"], {"x": x}, device="reference")["y"]
    found = dmlc.run(module["SOFTMAX_GRAD"], {"x": x, "y": y, "dy": dy}, device="reference")
    assert np.allclose(found["dx"], y * (dy - (y * dy).sum(1, keepdims=True)), atol=1e-6)


def test_a_root_of_a_square_of_ones_own_has_a_kink_at_0() -> None:
    own = "function sq(x) = x * x\ngradient of sq with respect to x = 2 * x"
    assert run("sqrt(sq(x))", {"x": X, "dy": DY}, own)[2] == 0


def test_half_floats_keep_their_type() -> None:
    text = f"""{SURROGATES}
        graph g(x: FLOAT16[3], dy: FLOAT16[3]) {{
            y = spike(x)
            output dx = gradient of y with respect to x from dy
            output s  = spike(x) * x
        }}"""
    given = {"x": np.array([-1, 0, 3], np.float16), "dy": np.ones(3, np.float16)}
    found = dmlc.run(dmlc.parse(text).graphs["g"], given, device="reference")
    assert found["dx"].dtype == found["s"].dtype == np.float16
    assert found["dx"].tolist() == [0.25, 1, 0.0625]
    assert found["s"].tolist() == [0, 0, 3]


def test_a_bound_function_is_differentiated_by_its_own_gradients() -> None:
    function = bind("straight(x) + x * stop_gradient(x)")
    made = differentiate(function, ["x"], {"y": "dy"}, {"x": "dx"}).function
    found = evaluate(drop_marks(made), {"x": X, "dy": DY})
    assert found["dx"].tolist() == (DY * (1 + X)).tolist()


def test_only_what_is_stopped_is_0_without_a_warning() -> None:
    stopped = bind("stop_gradient(floor(x))")
    flat = bind("floor(stop_gradient(1 - x)) + floor(x)")
    for function, vanishing in ((stopped, ()), (flat, ()), (bind("floor(x)"), ("x",))):
        made = differentiate(function, ["x"], {"y": "dy"}, {"x": "dx"})
        assert made.vanishing == vanishing


# Values ---------------------------------------------------------------------------------------

OPERATOR = """
operator OWN {{
    tensors {{ | Tensor | Kind | Types |
              | x | Input  | f32 |
              | y | Output | f32 | }}
    constraints {{ x and y must have the same Sizes and DimensionCount. }}
    compute {{ y = {formula} }}
}}
"""


def bind(formula: str, functions: str = SURROGATES) -> ir.Function:
    text = functions + OPERATOR.format(formula=formula)
    return dmlc.parse(text).operators["OWN"].bind({"x": dmlc.TensorDesc("f32", (5,))})


def drop_gradients(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if "gradient of" not in line)


FORMULA = "spike(x) + straight(x) * softplus(2 * x) + logistic(x) * stop_gradient(x)"


def test_values_and_kernels_are_those_of_the_body() -> None:
    own = bind(FORMULA)
    plain = bind(FORMULA.replace("stop_gradient", ""), drop_gradients(SURROGATES))
    assert {"stop_gradient", "with_gradient"} <= marks_of(own)
    assert not marks_of(plain)
    assert drop_marks(plain) is plain
    assert compiler.simplify(own) == compiler.simplify(plain)
    values = [evaluate(f, {"x": X})["y"].tolist() for f in (own, plain)]
    assert values[0] == values[1]
    for target in ("hlsl", "opencl", "wgsl"):
        one, two = (dmlc.compile(f, target, "gpu").kernels[0].source for f in (own, plain))
        assert one == two
    assert dmlc.mlir.export(own) == dmlc.mlir.export(plain)
    assert dmlc.onnx.export(own).SerializeToString() == dmlc.onnx.export(plain).SerializeToString()


def marks_of(function: ir.Function) -> set[str]:
    values = (i for stage in function.stages for i in stage.body.instructions)
    return {v.operation.name for v in values if isinstance(v, ir.Apply)} & set(GRADIENT_MARKS)


def test_a_stage_that_only_a_gradient_reads_is_dropped() -> None:
    text = """
        function flat(x, w) = 2
            gradient of flat with respect to x = w
        graph g(x: FLOAT32[3], w: FLOAT32[3]) {
            total = sum(w * w, axes: [0])
            output y = flat(x, total) + x
        }"""
    function = dmlc.parse(text).graphs["g"].bind()
    assert len(function.stages) == 2
    assert len(drop_marks(function).stages) == 1
    assert {p.name for p in drop_marks(function).parameters} == {"x", "w"}


def test_marks_have_a_text_and_a_json_form() -> None:
    function = bind(FORMULA)
    assert ir.parse(str(function)) == function
    assert ir.from_json(ir.to_json(function)) == function
    assert set(GRADIENT_MARKS) < set(IR_OPERATIONS)
    assert not set(GRADIENT_MARKS) & set(ir.OPERATIONS)


# The language ---------------------------------------------------------------------------------


def format_text(text: str) -> str:
    return format_file(parse(Source("t.dml", text)))


def test_the_formatter_keeps_gradients_below_their_function() -> None:
    text = (
        "// Rounds.\n"
        "function straight(x) = round(x)  // to even\n"
        "    gradient of straight with respect to x = 1  // as if it were x\n"
        "\n"
        "function scaled(x, w) = (x * w)\n"
        "    // by x\n"
        "    gradient of scaled with respect to x = w\n"
        "    gradient of scaled with respect to w = x\n"
    )
    assert format_text(text) == text.replace("= (x * w)", "= x * w")
    squeezed = text.replace("    gradient", "gradient").replace("    // by", "// by")
    assert format_text(squeezed) == format_text(text)


def test_an_operator_shows_the_gradients_of_what_it_calls() -> None:
    text = """
        function base(x) = x
            gradient of base with respect to x = inner(x)
        function inner(x) = x + 1
        operator A {
            attributes { | Attribute | Type | Default |
                         | k         | FLOAT | base(2) | }
            tensors { | Tensor | Kind | Types |
                      | x | Input  | f32 |
                      | y | Output | f32 | }
            compute { y = x * k }
        }"""
    (found,) = dmlc.parse(text).operators.values()
    assert "    gradient of base with respect to x = inner(x)\n" in str(found)
    assert dmlc.parse(str(found)).operators["A"] is not None


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        (
            "function f(x) = x\ngradient of f with respect to y = 1",
            "unknown parameter of 'f' 'y'",
        ),
        (
            "function f(x) = x\ngradient of f with respect to x = 1\n"
            "gradient of f with respect to x = 2",
            "the gradient of 'f' with respect to 'x' is given twice",
        ),
        (
            "function e(x) = x\nfunction f(x) = x\ngradient of e with respect to x = 1",
            "this is the gradient of 'e', but it stands behind 'f'",
        ),
        (
            "function f(x) = sum(x, axes: [0])\ngradient of f with respect to x = 1",
            "'f' has a gradient of its own, so it computes one number of its parameters: "
            "'sum(x, axes: [0])' is more than a formula of single numbers",
        ),
        (
            "function e(x) = max(x, axes: [0])\nfunction f(x) = e(x)\n"
            "gradient of f with respect to x = 1",
            "'e' is more than a formula of single numbers",
        ),
        (
            "function f(x) = x > 0\ngradient of f with respect to x = 1",
            "'f' gives a boolean, and only numbers have gradients",
        ),
        (
            "function f(x) = x\ngradient of f with respect to x = x > 0",
            "a gradient is a number, and this is a boolean",
        ),
    ],
)
def test_what_is_refused(functions: str, message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        dmlc.parse(f"{functions}\n{OPERATOR.format(formula='f(x)')}")
    assert raised.value.diagnostics[0].code == "E0707"
    assert message in raised.value.diagnostics[0].message


def test_a_formula_reads_no_other_tensor() -> None:
    text = OPERATOR.format(formula="f(x)").replace(
        "y = f(x)", "f(a) = a\ngradient of f with respect to a = x\ny = f(x)"
    )
    with pytest.raises(DmlcError, match="'x' is none of its parameters") as raised:
        dmlc.parse(text)
    assert raised.value.diagnostics[0].code == "E0707"


def test_what_gives_integers_has_no_gradient() -> None:
    functions = "function f(x) = cast(x, INT32)\ngradient of f with respect to x = 1"
    with pytest.raises(DmlcError, match="'f' gives INT32, and only floating-point") as raised:
        bind("cast(f(x), FLOAT32)", functions)
    assert raised.value.diagnostics[0].code == "E0707"


def test_the_derivative_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    row = dataclasses.replace(IR_OPERATIONS["erf"], derivative=Unsupported("it is unknown"))
    monkeypatch.setattr(derivatives, "IR_OPERATIONS", {**IR_OPERATIONS, "erf": row})
    said = "'erf' has no derivative, and a gradient goes through it: it is unknown"
    with pytest.raises(DmlcError, match=said) as raised:
        run("x + erf(x)", {"x": X, "dy": DY})
    (found,) = raised.value.diagnostics
    assert found.code == "E0703"
    assert found.span is not None
    own = "function f(x) = erf(x)\ngradient of f with respect to x = exp(-x * x)"
    assert run("f(x)", {"x": X, "dy": DY}, own)[2] == 4
    assert not run("erf(stop_gradient(x))", {"x": X, "dy": DY}).any()
    assert run("erf(stop_gradient(x)) * x", {"x": X, "dy": DY})[4] == 16


NEURON = """
function spike(v) = v > 1 ? 1 : 0
    gradient of spike with respect to v = 1 / (1 + abs(v - 1))
operator NEURON {
    tensors { | Tensor | Kind   | Dimensions | Types |
              | x      | Input  | { T }      | f32   |
              | v      | Output | { T }      | f32   |
              | s      | Output | { T }      | f32   | }
    compute {
        down(t) = stop_gradient(fired[t - 1] else 0)
        level[t : x.Sizes[0]] = 0.5 * (level[t - 1] else 0) - down(t) + x[t]
        fired[t : x.Sizes[0]] = spike(level[t])
        v[t] = level[t]
        s[t] = fired[t]
    }
}
operator NEURON_GRAD {
    tensors { | Tensor | Kind   | Dimensions | Types |
              | x      | Input  | { T }      | f32   |
              | ds     | Input  | { T }      | f32   |
              | dx     | Output | { T }      | f32   | }
    gradient of NEURON { ds = gradient of s  dx = gradient of x }
}
"""


def test_a_recurrence_of_spikes() -> None:
    module = dmlc.parse(NEURON).operators
    x = np.array([2, 0.5, 3], np.float32)
    ds = np.array([1, 2, 4], np.float32)
    v, s, total = np.zeros(3), np.zeros(3), np.zeros(3)
    for t in range(3):
        v[t] = x[t] + (0.5 * v[t - 1] - s[t - 1] if t else 0)
        s[t] = v[t] > 1
    for t in reversed(range(3)):
        after = 0.5 * total[t + 1] if t < 2 else 0
        total[t] = ds[t] / (1 + abs(v[t] - 1)) + after
    for device in ("reference", "opencl"):
        found = dmlc.run(module["NEURON"], {"x": x}, device=device)
        assert found["v"].tolist() == v.tolist()
        assert found["s"].tolist() == s.tolist()
        slopes = dmlc.run(module["NEURON_GRAD"], {"x": x, "ds": ds}, device=device)
        assert np.allclose(slopes["dx"], total)


@pytest.mark.parametrize(("written", "holds"), [("1 + x * x", True), ("2 + x * x", False)])
def test_a_gradient_by_hand_is_held_to_those_of_functions(written: str, holds: bool) -> None:
    text = f"""
        function spike(x) = x > 0 ? 1 : 0
            gradient of spike with respect to x = 1 / (1 + x * x)
        {OPERATOR.format(formula="spike(x)")}
        operator OWN_GRAD {{
            forward OWN
            tensors {{ | Tensor | Kind   | Types |
                      | x      | Input  | f32   |
                      | dy     | Input  | f32   |
                      | dx     | Output | f32   | }}
            constraints {{ x, dy and dx must have the same Sizes and DimensionCount. }}
            compute {{ dx = dy / ({written}) }}
        }}"""
    found = dmlc.parse(text).operators["OWN_GRAD"]
    given = {"x": np.array([-1.5, 0.5, 2], np.float32), "dy": np.ones(3, np.float32)}
    with nullcontext() if holds else pytest.raises(AssertionError, match="is not the gradient"):
        assert_gradient(found, given)
