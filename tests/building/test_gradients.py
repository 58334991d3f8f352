"""`dmlc.gradient` and `GraphBuilder.gradient`: what they print, and what that means."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import dmlc
from dmlc.building import Value
from dmlc.source import DmlcError

RELU_GRADIENT = """\
operator ACTIVATION_RELU_GRADIENT {
    "The gradient of directml.ACTIVATION_RELU with respect to InputTensor."
    tensors {
        | Tensor      | Kind   | Supported dimension counts | Supported data types                 |
        | ----------- | ------ | -------------------------- | ------------------------------------ |
        | InputTensor | Input  | 1 to 8                     | FLOAT32, FLOAT16, INT32, INT16, INT8 |
        | dY          | Input  | 1 to 8                     | FLOAT32, FLOAT16                     |
        | dX          | Output | 1 to 8                     | FLOAT32, FLOAT16                     |
    }
    gradient of directml.ACTIVATION_RELU {
        dY = gradient of OutputTensor
        dX = gradient of InputTensor
    }
}
"""


def of_operator(name: str, *wrt: str, **names: str) -> dmlc.Operator:
    found = dmlc.gradient(name, wrt, names)
    assert isinstance(found, dmlc.Operator)
    return found


def of_graph(text: str, *wrt: str, **names: str) -> dmlc.Graph:
    (graph,) = dmlc.parse(text).graphs.values()
    found = dmlc.gradient(graph, wrt, names)
    assert isinstance(found, dmlc.Graph)
    return found


# Operators ------------------------------------------------------------------------------------


def test_an_operator_prints_as_the_language() -> None:
    names = {"OutputTensor": "dY", "InputTensor": "dX"}
    found = of_operator("directml.ACTIVATION_RELU", "InputTensor", **names)
    assert str(found) == RELU_GRADIENT
    assert repr(found) == "<operator ACTIVATION_RELU_GRADIENT: InputTensor, dY -> dX>"
    (read,) = dmlc.parse(str(found)).operators.values()
    assert read.bind() == found.bind()


def test_gradients_have_names_of_their_own_unless_others_are_given() -> None:
    found = of_operator("onednn.MatMul", "src", "weights", weights="dw")
    assert list(found.tensors) == ["src", "weights", "bias", "d_dst", "d_src", "dw"]
    assert list(found.attributes) == list(dmlc.operator("onednn.MatMul").attributes)
    # What may be given may have a gradient, and then it has to be given.
    bias = of_operator("onednn.MatMul", "bias")
    assert (bias.tensors["bias"].kind, bias.tensors["d_bias"].kind) == ("Input", "Output")


def test_of_several_outputs_any_may_have_a_gradient() -> None:
    name = "directml.BATCH_NORMALIZATION_TRAINING"
    found = of_operator(name, "InputTensor")
    kinds = {n: row.kind for n, row in found.tensors.items() if n.startswith("d_")}
    assert kinds == {
        "d_OutputTensor": "Optional input",
        "d_OutputMeanTensor": "Optional input",
        "d_OutputVarianceTensor": "Optional input",
        "d_InputTensor": "Output",
    }
    x = np.float32([[1, 2, 4], [3, 5, 9]]).reshape(2, 3, 1, 1)
    one = np.ones((1, 3, 1, 1), np.float32)
    inputs = {"InputTensor": x, "ScaleTensor": one, "BiasTensor": one, "d_OutputMeanTensor": one}
    given = dmlc.run(found, inputs, {"Epsilon": 0.1}, device="reference")
    assert np.array_equal(given["d_InputTensor"], np.full_like(x, 0.5))


def test_the_text_brings_the_enums_it_needs() -> None:
    found = of_operator("directml.PADDING", "InputTensor")
    assert str(found).startswith("enum DML_PADDING_MODE { CONSTANT = 0, ")
    assert list(dmlc.parse(str(found)).operators) == ["PADDING_GRADIENT"]


def test_a_gradient_has_a_gradient() -> None:
    first = of_operator("onednn.ReduceL2", "src")
    second = dmlc.gradient(first, ["src", "d_dst"], names={"d_src": "v"})
    assert isinstance(second, dmlc.Operator)
    assert list(second.tensors) == ["src", "d_dst", "v", "d_src", "d_d_dst"]
    x, v = np.float32([[3, 4]]), np.float32([[1, 0]])
    inputs = {"src": x, "d_dst": np.float32([1]), "v": v}
    found = dmlc.run(second, inputs, {"axes": [1]}, device="reference")
    # The Hessian of a norm: what is across the vector, over its length.
    assert np.allclose(found["d_src"], [[0.128, -0.096]])
    assert np.allclose(found["d_d_dst"], [0.6])


def test_an_operator_of_a_text_needs_no_file() -> None:
    module = dmlc.parse(
        "module m\nfunction f(x) = x * x\noperator OP { attributes { | Attribute | Type | Default |"
        "\n| k | FLOAT | f(3) |\n| n | UINT | Y.DimensionCount |\n}\ntensors { | Tensor | Kind |\n"
        "| X | Input |\n| Y | Output |\n}\nconstraints { X and Y must have the same Sizes. }\n"
        "compute { Y = f(X) * k } }"
    )
    found = dmlc.gradient(module.operators["m.OP"], ["X"])
    # The default of n asks for an output, and is left to the operator itself.
    assert isinstance(found, dmlc.Operator)
    assert list(found.attributes) == ["k"]
    x = np.float32([1, 2])
    given = dmlc.run(found, {"X": x, "d_Y": np.ones_like(x)}, device="reference")
    assert np.array_equal(given["d_X"], 18 * x)


OPERATOR_MISTAKES = [
    ((["src"], {}), "unknown input of directml.ACTIVATION_RELU 'src'"),
    (([], {}), "wrt names no input: say which to differentiate by"),
    ((["InputTensor"], {"X": "dX"}),
     "unknown tensor with a gradient in 'directml.ACTIVATION_RELU' 'X'"),
    ((["InputTensor"], {"InputTensor": "InputTensor"}),
     "the name 'InputTensor' is taken in 'directml.ACTIVATION_RELU'"),
    ((["InputTensor"], {"InputTensor": "a b"}), "'a b' is no name: letters, digits and "
     "underscores, and no digit first"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), OPERATOR_MISTAKES)
def test_mistakes_of_operators(given: tuple[list[str], dict[str, str]], message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        dmlc.gradient("directml.ACTIVATION_RELU", *given)
    assert raised.value.diagnostics[0].message == message


def test_what_holds_no_floats_has_no_gradient() -> None:
    with pytest.raises(DmlcError, match=r"'IndicesTensor' of directml\.GATHER has no gradient"):
        dmlc.gradient("directml.GATHER", ["IndicesTensor"])
    with pytest.raises(dmlc.ArgumentError, match="subject must be an operator, its name, or a"):
        dmlc.gradient(cast("Any", 3), ["x"])
    with pytest.raises(dmlc.UnknownNameError, match=r"unknown operator 'directml\.RELU'"):
        dmlc.gradient("directml.RELU", ["x"])


# Graphs ---------------------------------------------------------------------------------------

GRAPH = """graph g[N](x: FLOAT32[N, 4], w: FLOAT16[1, 4]) {
    h = x * w
    output y    = exp(h)
    output loss = sum(y * y, axes: [0, 1])
}"""


def test_a_graph_prints_as_the_language() -> None:
    found = of_graph(GRAPH, "x", "h", loss="dl")
    assert str(found) == (
        "graph g_gradient[N](x: FLOAT32[N, 4], w: FLOAT16[1, 4], d_y: FLOAT32[N, 4], "
        "dl: FLOAT32[1, 1]) {\n"
        "    h    = x * w\n"
        "    y    = exp(h)\n"
        "    loss = sum(y * y, axes: [0, 1])\n"
        "    output d_x, d_h = gradient of y, loss with respect to x, h from d_y, dl\n"
        "}\n"
    )
    (read,) = dmlc.parse(str(found)).graphs.values()
    assert read.bind() == found.bind()
    x, w = np.float32([[1, 2, 3, 4]]) / 4, np.float16([[1, 2, 0, 1]])
    inputs = {"x": x, "w": w, "d_y": np.ones_like(x), "dl": np.float32([[3]])}
    y = np.exp(x * w)
    given = dmlc.run(found, inputs, device="reference")
    assert np.allclose(given["d_h"], y + 6 * y * y, rtol=1e-5)
    assert np.allclose(given["d_x"], (y + 6 * y * y) * w, rtol=1e-5)


def test_sizes_that_are_rounded_quotients_print_as_the_language() -> None:
    pooled = "directml.AVERAGE_POOLING(InputTensor: x, WindowSize: [3, 2], Strides: [2, 2], "
    padded = "StartPadding: [0, 0], EndPadding: [0, 0], IncludePadding: false)"
    found = of_graph(f"graph g[N](x: FLOAT32[1, 1, N, 8]) {{ output y = {pooled}{padded} }}", "x")
    assert "d_y: FLOAT32[1, 1, floor((N + 1) / 2) - 1, 4]" in str(found)
    (read,) = dmlc.parse(str(found)).graphs.values()
    assert read.bind() == found.bind()


GRAPH_MISTAKES = [
    (["z"], "unknown tensor of graph 'g' 'z'"),
    (["y"], "'y' is an output of graph 'g': its gradient is given"),
]


@pytest.mark.parametrize(("wrt", "message"), GRAPH_MISTAKES)
def test_mistakes_of_graphs(wrt: list[str], message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        of_graph(GRAPH, *wrt)
    assert raised.value.diagnostics[0].message == message


def test_a_graph_whose_sizes_cannot_be_left_open_says_so() -> None:
    text = "graph g[N](x: FLOAT32[2 * N]) { output y = x * 2 }"
    with pytest.raises(DmlcError) as raised:
        of_graph(text, "x")
    (found,) = raised.value.diagnostics
    assert found.message == "the size of symbol 'N' is not known"
    assert found.notes[-1].message.endswith(
        "as in 'output dx = gradient of loss with respect to x'"
    )


# The builder ----------------------------------------------------------------------------------


def test_the_builder_writes_gradients() -> None:
    graph = dmlc.GraphBuilder("step")
    x = graph.input("x", "FLOAT32", ["N", 4])
    w = graph.input("w", "FLOAT16", [1, 4])
    h = graph.exp(x * w)
    loss = graph.name("loss", graph.sum(h * h, axes=[0, 1]))
    dx, dw = _both(graph.gradient(loss, [x, w]))
    assert (dx.shape, dx.data_type) == (("N", 4), dmlc.DataType.FLOAT32)
    assert (dw.shape, dw.data_type) == ((1, 4), dmlc.DataType.FLOAT16)
    graph.output("dx", dx)
    graph.output("updated", w - 0.1 * dw)
    single = graph.gradient(h, x * 1, given=2 * x)
    assert isinstance(single, Value)
    graph.output("dh", single)
    graph.output("again", _both(graph.gradient([h, loss], [h], given=[x, loss]))[0])
    assert str(graph) == (
        "graph step[N](x: FLOAT32[N, 4], w: FLOAT16[1, 4]) {\n"
        "    by_2     = exp(x * w)\n"
        "    loss     = sum(by_2 * by_2, axes: [0, 1])\n"
        "    d_x, d_w = gradient of loss with respect to x, w\n"
        "    output updated = w - 0.1 * d_w\n"
        "    by    = x * 1\n"
        "    given = 2 * x\n"
        "    output dh    = gradient of by_2 with respect to by from given\n"
        "    output again = gradient of by_2, loss with respect to by_2 from x, loss\n"
        "    output dx    = d_x\n"
        "}\n"
    )
    assert graph.build().bind().symbols() == ("N",)


def _both(found: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    assert isinstance(found, tuple)
    return found


def test_gradients_that_are_all_outputs_or_have_names_keep_them() -> None:
    graph = dmlc.GraphBuilder("g")
    x, y = graph.input("x", "FLOAT32", [2, 2]), graph.input("y", "FLOAT32", [2, 2])
    loss = graph.sum(x * y, axes=[0, 1])
    one, two = _both(graph.gradient(loss, [x, y]))
    graph.output("dx", one)
    graph.output("dy", two)
    three, four = _both(graph.gradient(loss, [x, y]))
    graph.name("first", three)
    graph.output("last", three + four)
    text = str(graph)
    assert "output dx, dy = gradient of value1 with respect to x, y" in text
    assert "first, d_y = gradient of value1 with respect to x, y" in text
    assert set(graph.build().outputs) == {"dx", "dy", "last"}


def test_mistakes_of_the_builder() -> None:
    graph = dmlc.GraphBuilder("g")
    (n,) = graph.symbols("N")
    x = graph.input("x", "FLOAT32", [n])
    other = dmlc.GraphBuilder("other").input("y", "FLOAT32", [2])
    for call, message in (
        (lambda: graph.gradient(n, x), "'of' takes tensors of the graph"),
        (lambda: graph.gradient(x, []), "'wrt' takes tensors of the graph"),
        (lambda: graph.gradient(x, x, given=[x, x]), "'of' has 1 values and 'given' 2"),
        (lambda: graph.gradient(x, other), "this value belongs to another graph"),
    ):
        with pytest.raises(DmlcError) as raised:
            call()
        assert raised.value.diagnostics[0].message == message
