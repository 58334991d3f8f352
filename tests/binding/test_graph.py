"""Binding graphs: sizes, names of stages, data types, outputs, and what mistakes get."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.binding import Graph, TensorDesc
from dmlc.oracle import find_expected
from dmlc.scalars import DataType
from dmlc.source import DmlcError

OPERATORS = """
operator SQUARE {
    tensors { | Tensor | Kind   | Types            |
              | a      | Input  | FLOAT32, FLOAT16 |
              | b      | Output | FLOAT32, FLOAT16 | }
    constraints {
        a and b must have the same DataType, DimensionCount, and Sizes.
        require a.Sizes[0] < 100, "a must have fewer than 100 rows"
    }
    compute {
        twice = a + a
        b     = twice * a / 2
    }
}
operator STATISTICS {
    attributes { | Attribute | Type | Default |
                 | Axis      | UINT | 1       | }
    tensors { | Tensor | Kind            |
              | X      | Input           |
              | Least  | Output          |
              | Most   | Optional output | }
    compute {
        Least = min(X, axes: [Axis])
        Most  = max(X, axes: [Axis])
    }
}
function half(x) = x / 2
"""


def graph(
    body: str, inputs: str = "x: FLOAT32[N, C], y: FLOAT32[N, C]", symbols: str = "N, C"
) -> Graph:
    text = f"{OPERATORS}graph g[{symbols}]({inputs}) {{\n{body}\n}}\n"
    return dmlc.parse(text, "g.dml").graphs["g"]


def bind(body: str, inputs: str = "x: FLOAT32[N, C], y: FLOAT32[N, C]", **dims: int) -> ir.Function:
    return graph(body, inputs).bind(dims=dims or {"N": 2, "C": 3})


def stages(function: ir.Function) -> dict[str, str]:
    """The data type of each stage, by name."""
    return {s.name: s.dtype.short for s in function.stages}


def evaluate(function: ir.Function) -> Mapping[str, Any]:
    random = np.random.default_rng(0)
    inputs = {
        p.name: random.standard_normal([e for e in p.extents if isinstance(e, int)]).astype(
            p.dtype.dtype
        )
        for p in function.parameters
    }
    return {**inputs, **find_expected(function, inputs)}


# What graphs become ----------------------------------------------------------------------------


def test_calls_are_inlined_under_the_names_of_statements() -> None:
    function = bind("s = SQUARE(a: x)\noutput z = s + SQUARE(a: x * y)")
    assert function.name == "g"
    assert stages(function) == {
        "s_twice": "f32", "s": "f32", "z_SQUARE_a": "f32", "z_SQUARE_twice": "f32",
        "z_SQUARE": "f32", "z": "f32",
    }  # fmt: skip
    found = evaluate(function)
    x, y = found["x"], found["y"]
    np.testing.assert_allclose(found["z"], x * x + (x * y) ** 2, rtol=1e-6)


def test_stages_point_at_the_line_of_the_graph() -> None:
    function = bind("output z = SQUARE(a: x) + y")
    spans = [s.span for s in function.stages]
    assert [s.text for s in spans if s is not None] == [
        "SQUARE(a: x)", "SQUARE(a: x)", "output z = SQUARE(a: x) + y",
    ]  # fmt: skip


def test_outputs_of_calls_take_the_names_of_the_graph() -> None:
    function = bind("s = STATISTICS(X: x)\noutput low = s.Least\noutput high = s.Most + y")
    assert stages(function) == {"low": "f32", "s_Most": "f32", "high": "f32"}
    found = evaluate(function)
    np.testing.assert_array_equal(found["low"], found["x"].min(1, keepdims=True))
    np.testing.assert_array_equal(found["high"], found["x"].max(1, keepdims=True) + found["y"])


def test_what_no_output_needs_is_left_out() -> None:
    function = bind("s = STATISTICS(X: x)\nt = SQUARE(a: y)\noutput z = s.Most\nu = t * 2")
    assert stages(function) == {"z": "f32"}
    assert [p.name for p in function.parameters] == ["x", "y"]


def test_one_tensor_may_be_several_outputs() -> None:
    function = bind("a = x * y\noutput p = a\noutput q = a\noutput r = x\noutput s = p + 1")
    assert [r.name for r in function.results] == ["p", "q", "r", "s"]
    found = evaluate(function)
    for name in ("p", "q"):
        np.testing.assert_array_equal(found[name], found["x"] * found["y"])
    np.testing.assert_array_equal(found["r"], found["x"])


def test_names_of_stages_are_never_those_of_statements() -> None:
    function = bind("s = SQUARE(a: x)\ns_twice = s + y\noutput z = s_twice * s")
    assert stages(function) == {"s_twice_2": "f32", "s": "f32", "s_twice": "f32", "z": "f32"}


def test_expressions_broadcast_and_reduce_and_call_functions() -> None:
    function = bind(
        "m = mean(x, axes: [1])\noutput z = half(x - m) * N\noutput s = sum(y, like: m)"
    )
    found = evaluate(function)
    x = found["x"]
    np.testing.assert_allclose(found["z"], (x - x.mean(1, keepdims=True)) / 2 * 2, rtol=1e-5)
    assert found["s"].shape == (2, 1)


def test_numbers_without_a_tensor_take_the_type_they_meet() -> None:
    body = "scale = 2 * N\nmask = x > 0 ? 1 : 0\noutput z = mask * scale * y\noutput m = mask"
    assert stages(bind(body)) == {"z": "f32", "m": "s32"}


HALVES = "x: FLOAT16[N, C], y: FLOAT32[N, C], b: BFLOAT16[N, C], k: INT32[N, C]"


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("x * 2 + x", "f16"),
        ("y > 0 ? x : 0", "f16"),
        ("x + y", "f32"),
        ("x * b", "f32"),
        ("b + 1", "bf16"),
        ("cast(y, FLOAT16)", "f16"),
        ("cast(x, FLOAT32)", "f32"),
        ("cast(x, FLOAT16)", "f16"),
        ("cast(y, FLOAT16) + x", "f16"),
        ("cast(k, BFLOAT16)", "bf16"),
        ("cast(k, FLOAT32) * x", "f32"),
        ("sum(x, axes: [0])", "f16"),
        ("k + 1", "s32"),
        ("x > y", "boolean"),
        ("SQUARE(a: x)", "f16"),
    ],
)
def test_data_types_of_values(expression: str, dtype: str) -> None:
    function = bind(f"output z = {expression}", HALVES)
    assert stages(function)["z"] == dtype


def test_a_value_of_16_bits_is_rounded_as_one() -> None:
    function = bind("t = x * x\noutput z = t - x", "x: FLOAT16[N]", N=50, C=1)
    found = evaluate(function)
    x = found["x"]
    product = (x.astype(np.float32) * x.astype(np.float32)).astype(np.float16)
    expected = (product.astype(np.float32) - x.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(found["z"], expected)


def test_arrays_of_tensors() -> None:
    body = """
    j = directml.JOIN(InputTensors: [x, x * y, y], Axis: 1)
    s = directml.SPLIT(InputTensor: j, Axis: 1, OutputTensors: [FLOAT32[N, 2 * C], FLOAT32[N, C]])
    output p = s.OutputTensors[0] * 2
    output q = s.OutputTensors[1]"""
    found = evaluate(bind(body))
    x, y = found["x"], found["y"]
    np.testing.assert_array_equal(found["p"], np.concatenate([x, x * y], 1) * 2)
    np.testing.assert_array_equal(found["q"], y)


def test_calls_that_look_alike_are_bound_once_and_have_stages_of_their_own() -> None:
    function = bind("a = SQUARE(a: x)\nb = SQUARE(a: y)\noutput z = a + b")
    assert list(stages(function)) == ["a_twice", "a", "b_twice", "b", "z"]


def test_the_time_to_bind_grows_with_the_number_of_calls() -> None:
    def chain(count: int) -> Graph:
        lines = ["a0 = x"]
        lines += [f"a{k + 1} = SQUARE(a: a{k}) * y" for k in range(count)]
        return graph("\n".join(lines) + f"\noutput z = a{count}")

    def measure(made: Graph) -> float:
        start = time.process_time()
        made.bind(dims={"N": 2, "C": 3})
        return time.process_time() - start

    small, large = chain(40), chain(320)
    shorter = min(measure(small) for _ in range(3))
    assert min(measure(large) for _ in range(3)) < 8 * 2.5 * shorter


# Sizes ------------------------------------------------------------------------------------------

SIZED = "x: FLOAT32[2 * N, C + 1], y: FLOAT32[2 * N, 1]"


def test_symbols_are_worked_out_from_inputs() -> None:
    function = graph("output z = x + y * N", SIZED).bind({"x": (6, 5)})
    assert [p.extents for p in function.parameters] == [(6, 5), (6, 1)]
    strided = TensorDesc("FLOAT32", (6, 5), (1, 6))
    function = graph("output z = x + y + C", SIZED).bind({"x": strided, "z": strided})
    assert function.parameters[0].strides == (1, 6)
    assert function.results[0].strides == (1, 6)


def test_symbols_that_no_input_has_are_stated() -> None:
    made = graph("output z = x + N * C", "x: FLOAT32[N]")
    with pytest.raises(DmlcError, match="the size of symbol 'C' is not known"):
        made.bind({"x": (4,)})
    assert made.bind({"x": (4,)}, {"C": 2}).stages[0].extents == (4,)


@pytest.mark.parametrize(
    ("tensors", "dims", "message"),
    [
        ({"x": (2, 3), "y": (2, 4)}, {}, "symbol 'C' has two sizes: 3 in 'x' and 4 in 'y'"),
        ({"x": (2, 3)}, {"N": 5}, "symbol 'N' is stated to be 5, but 'x' has 2 there"),
        ({"x": (2, 3, 1)}, {},
         "input 'x' has 2 dimensions, but the sizes given, [2, 3, 1], are 3"),
        ({"z": (2, 3)}, {"N": 2, "C": 2},
         "output 'z' has sizes [2, 2], but [2, 3] are asked for"),
        ({"z": TensorDesc("FLOAT16", (2, 2))}, {"N": 2, "C": 2},
         "output 'z' is FLOAT32, but FLOAT16 is asked for"),
        ({"q": (2, 3)}, {"N": 2, "C": 2}, "unknown tensor of graph 'g' 'q'"),
        ({"x": TensorDesc("FLOAT64", (2, 2))}, {},
         "input 'x' is FLOAT32, but FLOAT64 is given"),
        ({}, {"N": 2, "C": 2, "K": 1}, "unknown symbol of graph 'g' 'K'"),
        ({}, {"N": 2, "C": -2},
         "the size of symbol 'C' must be a whole number of 0 to 2147483647, but is -2"),
        ({}, {"N": 2, "C": "4"}, "dims['C'] must be a whole number, not '4'"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit(tensors: Any, dims: Any, message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        graph("output z = x + y").bind(tensors, dims)
    assert raised.value.diagnostics[0].message == message


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"x": (5, 3), "y": (4, 1)},
         "input 'x' has size 5 along axis 0, but the graph says '2 * N', which is 4 where N is 2"),
        ({"x": (4, 3), "y": (4, 2)}, "input 'y' has size 2 along axis 1, but the graph says 1"),
        ({"x": (4, 0)}, "the size of symbol 'C' is not known"),
    ],
)  # fmt: skip
def test_expressions_of_symbols_that_do_not_fit(tensors: Any, message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        graph("output z = x + y", SIZED).bind(tensors)
    assert raised.value.diagnostics[0].message == message


def test_a_size_that_is_none() -> None:
    with pytest.raises(DmlcError, match=r"'N / 2' is 1\.5, and a size is a whole number"):
        graph("output z = x", "x: FLOAT32[N / 2]", "N").bind(dims={"N": 3})


# Mistakes ---------------------------------------------------------------------------------------


def expect(
    marked: str, message: str, *notes: str, inputs: str = "x: FLOAT32[N, C], y: FLOAT32[C, N]"
) -> None:
    """The graph has one mistake, at its `@`, with this message and these notes."""
    before, _, after = marked.partition("@")
    head = f"{OPERATORS}graph g[N, C]({inputs}) {{\n"
    with pytest.raises(DmlcError) as raised:
        graph(before + after, inputs).bind(dims={"N": 2, "C": 3})
    (found,) = raised.value.diagnostics
    assert found.message == message
    assert tuple(n.message for n in found.notes) == notes
    assert found.span is not None
    whole = head + before
    assert (found.span.line, found.span.column) == (
        whole.count("\n") + 1, len(whole) - whole.rfind("\n"),
    )  # fmt: skip


def test_tensors_that_do_not_combine() -> None:
    expect(
        "output z = @x + y",
        "'x' has sizes [2, 3] and 'y' has sizes [3, 2]: tensors combine element by element if they "
        "have the same rank, and each size is the same or 1",
    )
    expect(
        "output z = @x + k",
        "FLOAT32 and INT32 values do not mix: convert one, as in cast(x, FLOAT32)",
        inputs="x: FLOAT32[N, C], k: INT32[N, C]",
    )


def test_a_broken_constraint_is_shown_at_the_call() -> None:
    expect(
        "output z = x\n"
        "output r = @directml.ACTIVATION_RELU_GRAD(InputTensor: x, InputGradientTensor: y)",
        'directml.ACTIVATION_RELU_GRAD: broken constraint: "InputGradientTensor, InputTensor, and '
        'OutputGradientTensor must have the same DataType, DimensionCount, and Sizes."',
        "in directml.ACTIVATION_RELU_GRAD",
        "InputGradientTensor has Sizes [3, 2]; InputTensor has Sizes [2, 3]",
    )
    expect(
        "output z = @SQUARE(a: x)",
        "SQUARE: broken constraint: a must have fewer than 100 rows",
        "in SQUARE",
        'it reads: "require a.Sizes[0] < 100, "a must have fewer than 100 rows""',
        "a.Sizes is [100, 3]",
        inputs="x: FLOAT32[50 * N, C]",
    )


def test_an_argument_that_an_operator_refuses_is_shown_where_it_stands() -> None:
    expect(
        "output z = SQUARE(a: @x)", "SQUARE: 'a' cannot be FLOAT64: it is FLOAT32 or FLOAT16",
        "declared here", inputs="x: FLOAT64[N, C]",
    )  # fmt: skip
    expect(
        "s = STATISTICS(X: x, Axis: @-1)\noutput z = s.Least",
        "STATISTICS: attribute 'Axis' must be a whole number of 0 or more, but is -1",
        "declared here",
    )


def test_sizes_that_do_not_follow_are_to_be_stated() -> None:
    expect(
        "output z = @directml.RESAMPLE_GRAD1(InputGradientTensor: x, InterpolationMode: LINEAR,\n"
        "    RoundingDirection: DECREASING, Scales: [1, 2], InputPixelOffsets: [-0.5, -0.5],\n"
        "    OutputPixelOffsets: [0.5, 0.5])",
        "directml.RESAMPLE_GRAD1: the sizes of 'OutputGradientTensor' do not follow from this "
        "call: state them, as in 'OutputGradientTensor: FLOAT32[...]'",
        "in directml.RESAMPLE_GRAD1",
    )


def test_an_entry_that_is_not_there() -> None:
    expect(
        "s = directml.SPLIT(InputTensor: x, Axis: 0, OutputTensors: [FLOAT32[1, C], FLOAT32[1, C]])"
        "\n"
        "output z = @s.OutputTensors[2]",
        "'s.OutputTensors' has 2 tensors: pick one by its number, 0 to 1",
    )


def test_a_mistake_is_said_once_however_often_its_value_is_read() -> None:
    body = "s = SQUARE(a: k)\nu = STATISTICS(X: s)\noutput z = s * u.Least\noutput w = x + y"
    with pytest.raises(DmlcError) as raised:
        bind(body, "x: FLOAT32[N, C], y: FLOAT32[C, N], k: INT32[N, C]")
    first, second = (d.message for d in raised.value.diagnostics)
    assert first.startswith("SQUARE: 'a' cannot be INT32")
    assert second.startswith("'x' has sizes [2, 3]")


def test_graphs_say_what_they_have() -> None:
    made = graph("output z = x\noutput w = y")
    assert (made.name, made.symbols) == ("g", ("N", "C"))
    assert (made.inputs, made.outputs) == (("x", "y"), ("z", "w"))
    assert DataType.FLOAT32 is made.bind(dims={"N": 1, "C": 1}).parameters[0].dtype
