"""Binding derived gradients: sizes and types, what they need, what they compute, in operators and
in graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.binding import Operator, TensorDesc
from dmlc.language.check import check_text
from dmlc.language.check_gradient import MOST_ORDERS
from dmlc.scalars import OPERATIONS, Array, DataType, Operation
from dmlc.source import DmlcError

OPERATORS = """
operator SCALE {
    attributes { | Attribute | Type | Default |
                 | k         | FLOAT | 2      | }
    tensors { | Tensor | Kind   | Types    |
              | x      | Input  | f32, f16 |
              | w      | Input  | f32, f16 |
              | y      | Output | f32, f16 | }
    constraints {
        x and y must have the same DataType, DimensionCount, and Sizes.
        w and x must have the same DataType.
        w must be broadcastable to x.
    }
    compute { y = exp(x * w) * k }
}
operator SCALE_GRAD {
    attributes { | Attribute | Type | Default |
                 | factor    | FLOAT | 2      | }
    tensors { | Tensor | Kind            |
              | x      | Input           |
              | w      | Input           |
              | dy     | Input           |
              | dx     | Output          |
              | dw     | Optional output | }
    gradient of SCALE { factor = k }
}
operator SCALE_GRAD_GRAD {
    attributes { | Attribute | Type | Default |
                 | factor    | FLOAT | 2      | }
    tensors { | Tensor | Kind   |
              | x      | Input  |
              | w      | Input  |
              | dy     | Input  |
              | ddx    | Input  |
              | dx     | Output |
              | ddy    | Output | }
    gradient of SCALE_GRAD { ddx = gradient of dx  ddy = gradient of dy  dx = gradient of x }
}
operator TOTAL {
    tensors { | Tensor | Kind   |
              | x      | Input  |
              | y      | Output | }
    compute { y = sum(x * x, axes: [0]) }
}
operator TOTAL_GRAD {
    tensors { | Tensor | Kind   |
              | x      | Input  |
              | dy     | Input  |
              | dx     | Output | }
    gradient of TOTAL with respect to x
}
"""


def gradient(section: str, *rows: str, compute: str = "y = exp(x * w) * k") -> Operator:
    """The gradient of SCALE, with another formula perhaps, by a table of such rows."""
    table = "".join(f"| {row} |\n" for row in rows)
    text = OPERATORS.replace("y = exp(x * w) * k", compute) + (
        "operator G {\nattributes { | Attribute | Type | Default |\n| k | FLOAT | 2 | }\n"
        f"tensors {{ | Tensor | Kind |\n{table} }}\n{section} }}"
    )
    return Operator(check_text(text, "g.dml").operators["G"])


def find(name: str) -> Operator:
    return Operator(check_text(OPERATORS, "g.dml").operators[name])


def f32(*sizes: int | str) -> TensorDesc:
    return TensorDesc("FLOAT32", sizes)


def refuse(call: Callable[[], object]) -> list[str]:
    """The mistakes that are reported, with their notes."""
    with pytest.raises(DmlcError) as caught:
        call()
    return [m for d in caught.value.diagnostics for m in (d.message, *(n.message for n in d.notes))]


def random(*sizes: int) -> Array:
    return np.random.default_rng(sum(sizes)).normal(size=sizes).astype(np.float32)


def differences(function: Callable[[Array], float], at: Array, step: float = 1e-5) -> Array:
    """The gradient of a function in float64, by central differences."""
    found = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        sides: list[float] = []
        for sign in (1, -1):
            moved = at.astype(np.float64)
            moved[place] += sign * step
            sides.append(function(moved))
        found[place] = (sides[0] - sides[1]) / (2 * step)
    return found


# Operators ------------------------------------------------------------------------------------

X, W, DY = random(3, 4), random(1, 4), random(3, 4)


def weighed(x: Array, w: Array) -> float:
    return float(np.sum(DY * np.exp(x.astype(np.float64) * w) * 2))


@pytest.mark.parametrize("device", ["reference", "opencl"])
def test_gradients_are_those_of_differences(device: str) -> None:
    inputs = {"x": X, "w": W, "dy": DY}
    found = dmlc.run(find("SCALE_GRAD"), inputs, outputs={"dw": (1, 4)}, device=device)
    assert np.allclose(found["dx"], differences(lambda x: weighed(x, W), X), rtol=1e-5)
    assert np.allclose(found["dw"], differences(lambda w: weighed(X, w), W), rtol=1e-5)


def test_attributes_reach_the_forward_operator() -> None:
    inputs = {"x": X, "w": W, "dy": DY}
    one = dmlc.run(find("SCALE_GRAD"), inputs, {"factor": 1}, device="reference")
    two = dmlc.run(find("SCALE_GRAD"), inputs, device="reference")
    assert np.array_equal(2 * one["dx"], two["dx"])


def test_a_gradient_of_a_gradient_is_that_of_differences() -> None:
    given = random(3, 4) * 2
    inputs = {"x": X, "w": W, "dy": DY, "ddx": given}
    found = dmlc.run(find("SCALE_GRAD_GRAD"), inputs, device="reference")

    def first(x: Array) -> float:
        return float(np.sum(given * DY * 2 * np.exp(x.astype(np.float64) * W) * W))

    assert np.allclose(found["dx"], differences(first, X), rtol=1e-5)
    assert np.allclose(found["ddy"], given * 2 * np.exp(X * W) * W, rtol=1e-5)


def test_rows_come_in_table_order_with_their_strides() -> None:
    strided = TensorDesc("FLOAT32", (3, 4), (1, 3))
    function = find("SCALE_GRAD").bind(
        {"x": strided, "w": f32(1, 4), "dy": f32(3, 4), "dw": f32(1, 4), "dx": strided}
    )
    assert [p.name for p in function.parameters] == ["x", "w", "dy"]
    assert function.parameters[0].strides == (1, 3)
    assert function.results == (ir.Result("dx", (1, 3)), ir.Result("dw"))


def test_types_and_sizes_follow_from_the_forward_operator() -> None:
    half = TensorDesc("FLOAT16", (3, 4))
    function = find("SCALE_GRAD").bind({"x": half, "w": (1, 4), "dy": (3, 4)})
    assert [p.dtype for p in function.parameters] == [DataType.FLOAT16] * 3
    (dx,) = function.results
    made = function.stage(dx.name)
    assert made is not None
    assert (made.dtype, made.extents) == (DataType.FLOAT16, (3, 4))


def test_an_optional_gradient_is_derived_where_it_is_wanted() -> None:
    given = {"x": f32(3, 4), "w": f32(1, 4), "dy": f32(3, 4)}
    assert [r.name for r in find("SCALE_GRAD").bind(given).results] == ["dx"]
    both = find("SCALE_GRAD").bind({**given, "dw": f32(1, 4)})
    assert [r.name for r in both.results] == ["dx", "dw"]


def test_sizes_may_be_left_open() -> None:
    function = find("SCALE_GRAD").bind({"x": f32("N", 4), "w": f32(1, 4), "dy": f32("N", 4)})
    assert function.symbols() == ("N",)
    assert find("SCALE_GRAD").bind().symbols() == ("n",)


def test_a_result_at_hand_stands_for_inputs() -> None:
    """The gradient of exp needs what exp gave, and not what it was given."""
    found = gradient("gradient of SCALE { }", "w | Input", "y | Input", "dy | Input", "dx | Output")
    given = {"w": f32(1, 4), "y": f32(3, 4), "dy": f32(3, 4)}
    assert "exp" not in str(found.bind(given))


def test_an_input_that_the_formula_does_not_read_may_be_there() -> None:
    rows = ("x | Input", "w | Input", "d_x_2 | Input", "dy | Input", "dx | Output")
    found = gradient("gradient of SCALE { }", *rows, compute="y = x * w")
    sizes = {"x": f32(3, 4), "w": f32(1, 4), "dy": f32(3, 4), "d_x_2": f32(7)}
    function = found.bind(sizes)
    assert [p.name for p in function.parameters] == ["x", "w", "d_x_2", "dy"]
    (stage,) = function.stages
    assert {load.tensor for load in stage.body.loads()} == {"w", "dy"}


def test_stages_are_not_named_as_other_rows() -> None:
    rows = ("x | Input", "w | Input", "dy | Input", "d_w | Optional input", "y_sum | Input",
            "dx | Output")  # fmt: skip
    compute = "s = sum(x * w, like: w)\ny = x * s"
    found = gradient("gradient of SCALE { }", *rows, compute=compute)
    function = found.bind({"x": f32(3, 4), "w": f32(1, 4), "dy": f32(3, 4), "y_sum": f32(1)})
    assert not {s.name for s in function.stages} & {"x", "w", "dy", "d_w", "y_sum"}


def test_arrays_of_tensors_have_arrays_of_gradients() -> None:
    joined = dmlc.gradient("directml.JOIN", wrt=["InputTensors"])
    assert isinstance(joined, Operator)
    x, y, d = random(2, 3), random(4, 3), random(6, 3)
    inputs = {"InputTensors[0]": x, "InputTensors[1]": y, "d_OutputTensor": d}
    found = dmlc.run(joined, inputs, {"Axis": 0}, device="reference")
    assert np.array_equal(found["d_InputTensors[0]"], d[:2])
    assert np.array_equal(found["d_InputTensors[1]"], d[2:])


# What is missing ------------------------------------------------------------------------------

SIZES = {"x": f32(3, 4), "w": f32(1, 4), "y": f32(3, 4), "dy": f32(3, 4)}


def missing(*rows: str, compute: str = "y = exp(x * w) * k") -> list[str]:
    found = gradient("gradient of SCALE { }", *rows, compute=compute)
    names = [row.partition(" ")[0] for row in rows]
    return refuse(lambda: found.bind({n: SIZES[n] for n in names if n in SIZES}))


def test_what_the_formula_needs_is_named_and_what_would_do_instead() -> None:
    assert missing("w | Input", "dy | Input", "dx | Output") == [
        "the gradient of SCALE needs 'x', and no input holds it",
        "declared here",
        "add an input 'x', or say which it is: 'X = x'",
        "'y', which SCALE gives, would do instead",
    ]


def test_what_no_result_stands_for_is_named_alone() -> None:
    rows = ("w | Input", "dy | Input", "dx | Output")
    assert missing(*rows, compute="y = x * x * w") == [
        "the gradient of SCALE needs 'x', and no input holds it",
        "declared here",
        "add an input 'x', or say which it is: 'X = x'",
    ]


def test_sizes_that_nothing_says_are_asked_for() -> None:
    assert missing("x | Input", "dy | Input", "dx | Output") == [
        "SCALE: the sizes of 'w' follow from no tensor that is given",
        "it is derived for known sizes: have an input 'w' in the table too",
        "declared here",
    ]


def test_the_sizes_of_a_gradient_may_have_to_be_given() -> None:
    text = OPERATORS.replace("| x      | Input  |\n              | dy ", "| dy ")
    total = text.replace("x * x, axes", "x, axes")
    found = Operator(check_text(total, "g.dml").operators["TOTAL_GRAD"])
    assert refuse(lambda: found.bind({"dy": f32(1, 4)})) == [
        "the sizes of output 'dx' cannot be inferred: give its description",
        "declared here",
    ]
    function = found.bind({"dy": f32(1, 4), "dx": f32(3, 4)})
    assert function.stages[0].extents == (3, 4)


def test_no_gradient_at_all_is_refused() -> None:
    found = gradient(
        "gradient of SCALE { }",
        "x | Input", "w | Input", "dy | Optional input", "dx | Optional output",
    )  # fmt: skip
    assert refuse(lambda: found.bind({"x": f32(3, 4), "w": f32(1, 4)})) == [
        "no gradient is given: describe 'dy'",
        "no gradient is wanted: describe 'dx'",
    ]


def test_the_forward_operator_holds_to_its_constraints() -> None:
    given = {"x": f32(3, 4), "w": f32(2, 4), "dy": f32(3, 4)}
    with pytest.raises(DmlcError) as raised:
        find("SCALE_GRAD").bind(given)
    (found,) = raised.value.diagnostics
    assert found.message == 'SCALE: broken constraint: "w must be broadcastable to x."'
    assert found.span is not None
    assert found.span.text == "gradient of SCALE { factor = k }"


def test_a_tensor_and_its_gradient_are_alike() -> None:
    given = {"x": f32(3, 4), "w": f32(1, 4), "dy": f32(3, 4)}
    wide = {**given, "dx": f32(3, 5)}
    assert refuse(lambda: find("SCALE_GRAD").bind(wide)) == [
        "SCALE: 'x' and 'dx' are a tensor and its gradient, and must have the same Sizes",
        "x has [3, 4] and dx [3, 5]",
        "declared here",
    ]
    half = {**given, "dx": TensorDesc("FLOAT16", (3, 4))}
    assert refuse(lambda: find("SCALE_GRAD").bind(half))[0] == (
        "SCALE: 'x' and 'dx' are a tensor and its gradient, and must have the same DataType"
    )


def test_a_mistake_of_the_forward_formula_stands_at_the_gradient() -> None:
    given = {"x": f32(3, 4), "dy": f32(1, 5)}
    assert refuse(lambda: find("TOTAL_GRAD").bind(given))[:2] == [
        "TOTAL: 'y' has sizes [1, 5], but the value assigned to it has sizes [1, 4]: they must "
        "be the same, or 1 in the value",
        "in TOTAL",
    ]


def test_an_operator_that_was_not_found_is_unknown() -> None:
    text = OPERATORS.replace("gradient of TOTAL with", "gradient of other.TOTAL with")
    found = Operator(check_text(text, "g.dml").operators["TOTAL_GRAD"])
    assert refuse(lambda: found.bind({"x": f32(3, 4), "dy": f32(1, 4), "dx": f32(3, 4)})) == [
        "unknown operator 'other.TOTAL'"
    ]


# Warnings -------------------------------------------------------------------------------------

NONE_MESSAGE = "'dx' is 0 everywhere: no operation whose derivative is not 0 leads from 'x'"


def test_a_gradient_that_is_0_everywhere_is_a_warning() -> None:
    rows = ("x | Input", "w | Input", "dy | Input", "dx | Output")
    found = gradient("gradient of SCALE { }", *rows, compute="y = floor(x) * w")
    given = {n: SIZES[n] for n in ("x", "w", "dy")}
    function = found.bind(given)
    (warning,) = function.warnings
    assert warning.warning
    assert warning.message == NONE_MESSAGE
    assert dmlc.compile(function).warnings == (warning,)
    assert dmlc.compile(function, target="hlsl").warnings == (warning,)
    assert not find("SCALE_GRAD").bind(given).warnings
    with pytest.warns(UserWarning, match=f"^G: {NONE_MESSAGE}$") as said:
        zeros = dmlc.run(found, {"x": X, "w": W, "dy": DY}, device="reference")
    assert said[0].filename == __file__
    assert not zeros["dx"].any()


def test_warnings_reach_graphs() -> None:
    rows = ("x | Input", "w | Input", "dy | Input", "dx | Output")
    one = gradient("gradient of SCALE { }", *rows, compute="y = floor(x) * w")
    text = one.definition.syntax.span.source.text + (
        "graph g[N](x: FLOAT32[N, 4], w: FLOAT32[1, 4]) {\n"
        "output a = G(x: x, w: w, dy: x)\n"
        "output dx = gradient of sum(round(x) * w, axes: [0, 1]) with respect to x }"
    )
    graph = dmlc.Graph(check_text(text, "g.dml").graphs["g"])
    assert [w.message for w in graph.bind(dims={"N": 3}).warnings] == [NONE_MESSAGE] * 2
    assert [w.message for w in graph.bind().warnings] == [NONE_MESSAGE] * 2


# Graphs ---------------------------------------------------------------------------------------


def run_graph(body: str, device: str = "reference", **inputs: Array) -> Mapping[str, Array]:
    declared = ", ".join(
        f"{name}: FLOAT32[{', '.join('N' if e == 3 else str(e) for e in value.shape)}]"
        for name, value in inputs.items()
    )
    text = f"{OPERATORS}\ngraph g[N]({declared}) {{ {body} }}"
    return dmlc.run(dmlc.parse(text, "g.dml").graphs["g"], inputs, device=device)


@pytest.mark.parametrize("device", ["reference", "opencl"])
def test_the_gradient_of_one_value(device: str) -> None:
    body = """
        h = x * w
        y = max(h, 0) * exp(-h)
        output loss = sum(y * y, axes: [0, 1])
        output dx, dw = gradient of loss with respect to x, w
        output again = gradient(loss, wrt: x) * 2
    """

    def loss(x: Array, w: Array) -> float:
        h = x.astype(np.float64) * w
        return float(np.sum((np.maximum(h, 0) * np.exp(-h)) ** 2))

    found = run_graph(body, device, x=X, w=W)
    assert np.allclose(found["dx"], differences(lambda x: loss(x, W), X), atol=1e-5)
    assert np.allclose(found["dw"], differences(lambda w: loss(X, w), W), atol=1e-5)
    assert np.allclose(found["again"], 2 * found["dx"], rtol=1e-6)


def test_the_gradient_of_a_tensor_from_its_own() -> None:
    body = """
        y = exp(x * w)
        output dx = gradient of y with respect to x from dy
        output both = gradient of y, x * 3 with respect to x from dy, dy
    """
    found = run_graph(body, x=X, w=W, dy=DY)
    assert np.allclose(found["dx"], DY * np.exp(X * W) * W, rtol=1e-5)
    assert np.allclose(found["both"], DY * np.exp(X * W) * W + 3 * DY, rtol=1e-5)


def test_gradients_with_respect_to_values_on_the_way() -> None:
    """An input counts all ways that lead from it, through the value that is asked for too."""
    body = """
        h = x * w
        s = sum(h * h + x, axes: [0, 1])
        output dh, dx = gradient of s with respect to h, x
        t = TOTAL(x: h)
        output dt, du = gradient of sum(t * t, axes: [0, 1]) with respect to t, h
    """
    found = run_graph(body, x=X, w=W)
    assert np.allclose(found["dh"], 2 * X * W, rtol=1e-5)
    assert np.allclose(found["dx"], 2 * X * W * W + 1, rtol=1e-5)
    total = np.sum((X * W) ** 2, axis=0, keepdims=True)
    assert np.allclose(found["dt"], 2 * total, rtol=1e-5)
    assert np.allclose(found["du"], 2 * total * 2 * X * W, rtol=1e-5)


def test_second_derivatives_in_a_graph() -> None:
    body = """
        y = sum(exp(x * w), axes: [0, 1])
        dx = gradient of y with respect to x
        output ddx = gradient of sum(dx * v, axes: [0, 1]) with respect to x
    """
    found = run_graph(body, x=X, w=W, v=DY)
    assert np.allclose(found["ddx"], DY * np.exp(X * W) * W * W, rtol=1e-5)


def test_a_name_may_be_asked_for_twice_and_be_the_thing_itself() -> None:
    body = """
        k = x
        output a, b = gradient of sum(x * x, axes: [0, 1]) with respect to x, k
        output c = gradient of x with respect to x from dy
        output d = gradient of dy * w with respect to w from x
    """
    found = run_graph(body, x=X, w=W, dy=DY)
    assert np.array_equal(found["a"], 2 * X)
    assert np.array_equal(found["b"], 2 * X)
    assert np.array_equal(found["c"], DY)
    assert np.allclose(found["d"], np.sum(DY * X, axis=0, keepdims=True), rtol=1e-5)


def test_orders_are_bounded() -> None:
    """Those of operators count."""
    body = "y = exp(x * w)\nd0 = SCALE_GRAD_GRAD(x: x, w: w, dy: y, ddx: y)\nd2 = d0.dx\n"
    for order in range(2, MOST_ORDERS):
        body += f"d{order + 1} = gradient of sum(d{order}, axes: [0, 1]) with respect to x\n"
    last = f"gradient(sum(d{MOST_ORDERS}, axes: [0, 1]), wrt: x)"
    assert bind_graph(f"{body} output d = d{MOST_ORDERS} * 1")
    with pytest.raises(DmlcError) as raised:
        bind_graph(f"{body} output d = {last}")
    (found,) = raised.value.diagnostics
    assert found.message == f"gradients of gradients go {MOST_ORDERS} deep at most"
    assert found.span is not None
    assert found.span.text == last


def bind_graph(body: str) -> ir.Function:
    inputs = "x: FLOAT32[N, 4], w: FLOAT32[1, 4], i: INT32[N, 4], h: FLOAT16[N, 4]"
    text = f"{OPERATORS}\ngraph g[N]({inputs}) {{ {body} }}"
    return dmlc.Graph(check_text(text, "g.dml").graphs["g"]).bind(dims={"N": 3})


def test_stages_of_the_graph_are_shared_with_its_gradients() -> None:
    function = bind_graph(
        "m = sum(x, like: w)\nc = x - m / 3\noutput y = sum(c * c, like: w)\n"
        "output dx = gradient of sum(c * y, axes: [0, 1]) with respect to x"
    )
    sums = [s.name for s in function.stages if s.reduction is not None]
    assert sums.count("m") == 1
    assert not [name for name in sums if name.startswith(("m_", "y_"))]
    assert [s.name for s in function.stages if s.name.startswith("x")] == []


def test_the_result_of_a_call_with_a_reduction_is_at_hand() -> None:
    """The gradient of a softmax is simplest in what it gives."""
    text = """graph g[N](x: FLOAT32[N, 4], dy: FLOAT32[N, 4]) {
        output p = onednn.SoftMax(src: x, axis: 1)
        output d = gradient of p with respect to x from dy
    }"""
    graph = dmlc.parse(text).graphs["g"]
    function = graph.bind()
    made = function.stage("d")
    assert made is not None
    assert "exp" not in str(made.body)
    assert {load.tensor for load in made.body.loads()} == {"dy", "p", "d_sum"}
    found = dmlc.run(graph, {"x": X, "dy": DY}, device="reference")
    p = np.exp(X) / np.sum(np.exp(X), axis=1, keepdims=True)
    exact = p * (DY - np.sum(DY * p, axis=1, keepdims=True))
    assert np.allclose(found["d"], exact, atol=1e-6)


def test_what_a_choice_leaves_out_stays_out_of_values_with_names() -> None:
    body = """
        length = sum(abs(x), like: w)
        unit   = x / length
        y      = length > 0 ? unit : 0
        output dx = gradient of sum(y * v, axes: [0, 1]) with respect to x
    """
    zero = X.copy()
    zero[:, 1] = 0
    found = run_graph(body, x=zero, w=W, v=DY)
    assert np.isfinite(found["dx"]).all()
    assert not found["dx"][:, 1].any()


def test_a_gradient_has_the_type_of_its_tensor() -> None:
    function = bind_graph(
        "output dh, dx = gradient of sum(h * x, axes: [0, 1]) with respect to h, x"
    )
    types = {r.name: stage.dtype for r in function.results if (stage := function.stage(r.name))}
    assert types == {"dh": DataType.FLOAT16, "dx": DataType.FLOAT32}


REFUSED = [
    ("output a = gradient of x with respect to x",
     "'x' has sizes [3, 4], and a gradient is of one value"),
    ("output a = gradient(x, wrt: w)", "'x' has sizes [3, 4], and a gradient is of one value"),
    ("output a = gradient of x with respect to w from w",
     "'w' has sizes [1, 4], but what it is the gradient of has sizes [3, 4]"),
    ("output a = gradient of x with respect to w from h",
     "'h' is FLOAT16, but what it is the gradient of is FLOAT32"),
    ("output a = gradient of sum(x, axes: [0, 1]) with respect to i", "'i' is INT32, and has no "
     "gradient"),
    ("output a = gradient of i with respect to x from i", "'i' is INT32, and has no gradient"),
    ("output a = gradient(sum(x, axes: [0, 1]), wrt: x * 2)",
     "'x * 2' is computed here: give it a name, and read that below"),
    ("output a = gradient of x, x with respect to w from x, x", "'x' is named twice"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_what_has_no_gradient(body: str, message: str) -> None:
    assert refuse(lambda: bind_graph(body))[0] == message


def test_what_reads_a_gradient_that_failed_says_nothing_more() -> None:
    body = "a, b = gradient of x with respect to x, w\noutput c = a + b\noutput d = b * 2"
    assert len(refuse(lambda: bind_graph(body))) == 2


def test_the_forward_operator_sees_the_strides_of_its_tensors() -> None:
    rows = ("x | Input", "w | Input", "dy | Input", "dx | Output")
    found = gradient("gradient of SCALE { }", *rows, compute="y = x * w * x.Strides[0]")
    strided = TensorDesc("FLOAT32", (3, 4), (8, 1))
    given = {"x": strided, "w": f32(1, 4), "dy": f32(3, 4), "dx": TensorDesc("f32", (3, 4), (6, 1))}
    assert "8.0" in str(found.bind(given))
    assert "6.0" not in str(found.bind(given))


FUNCTIONS = [
    o for o in OPERATIONS.values()
    if o.symbol is None and not o.internal and not o.gives_bool and o.arity < 3
    and not o.name.startswith(("bit_", "shift_"))
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_every_function_has_its_derivative_in_float32(function: Operation) -> None:
    start = 1.2 if function.name == "acosh" else 0.2
    x = np.linspace(start, start + 0.6, 12, dtype=np.float32).reshape(3, 4)
    second = ", 1.5" if function.arity == 2 else ""
    flat = function.name in ("sign", "floor", "ceil", "round", "trunc")
    said = pytest.warns(UserWarning, match="'dx' is 0 everywhere") if flat else nullcontext()
    with said:
        found = run_graph(
            f"y = {function.name}(x{second})\noutput dx = gradient of y with respect to x from dy",
            x=x,
            dy=DY,
        )

    def weighed(x: Array) -> float:
        given = (x,) if function.arity == 1 else (x, np.full_like(x, 1.5))
        return float(np.sum(DY * function.evaluate(*given)))

    assert np.allclose(found["dx"], differences(weighed, x), rtol=1e-4, atol=1e-5)
