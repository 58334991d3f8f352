"""Graphs built in Python: what they print as, that it reads back, what they compute, mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlc
from dmlc.building import GraphBuilder, Value
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.oracle import find_expected
from dmlc.scalars import DataType
from dmlc.source import DmlcError, Source


def read_back(builder: GraphBuilder) -> None:
    """Holds the text to reading back as the same graph, formatted as it is."""
    text = str(builder)
    file = parse(Source("built", text))
    assert file.declarations == builder.declarations()
    assert format_file(file) == text


def residual() -> GraphBuilder:
    g = GraphBuilder("residual_block_backward")
    x, y, dy_main, dy_skip = (
        g.input(n, "FLOAT32", ["N", "C", "H", "W"]) for n in ("x", "y", "dy_main", "dy_skip")
    )
    mean, variance, scale = (
        g.input(n, "FLOAT32", [1, "C", 1, 1]) for n in ("mean", "variance", "scale")
    )
    dy = g.name("dy", dy_main + dy_skip)
    masked = g.directml.ACTIVATION_RELU_GRAD(InputTensor=y, InputGradientTensor=dy, name="masked")
    bn: Any = g.directml.BATCH_NORMALIZATION_TRAINING_GRAD(
        InputTensor=x, InputGradientTensor=masked, MeanTensor=mean, VarianceTensor=variance,
        ScaleTensor=scale, Epsilon=1e-5, name="bn",
    )  # fmt: skip
    g.output("dx", bn.OutputGradientTensor)
    g.output("dscale", bn.OutputScaleGradientTensor)
    g.output("dbias", bn.OutputBiasGradientTensor)
    return g


def test_the_residual_block_is_that_of_the_examples() -> None:
    g = residual()
    read_back(g)
    example = Path(__file__).parents[2] / "examples/graphs/residual_block_backward.dml"
    theirs = dmlc.load(example).graphs["residual_block_backward"]
    dims = {"N": 2, "C": 3, "H": 4, "W": 5}
    assert g.build().bind(dims=dims) == theirs.bind(dims=dims)
    assert str(g).split("{")[1].strip() + "\n" == (
        example.read_text("utf-8").partition("graph ")[2].split("{")[1].strip() + "\n"
    ).replace("1e-5", "1e-05")


def test_values_know_their_types_and_sizes() -> None:
    g = GraphBuilder("g")
    N, C = g.symbols("N, C")
    x = g.input("x", "f16", [N, 2 * C])
    row = g.input("row", DataType.FLOAT32, [1, 2 * C])
    k = g.input("k", "INT32", ["N", 7])
    assert repr(x) == "<value FLOAT16[N, 2 * C]>"
    assert repr(x * 2) == "<value FLOAT16[N, 2 * C]>"
    assert repr(x + row) == "<value FLOAT32[N, 2 * C]>"
    assert repr(x > 0) == "<value BOOL[N, 2 * C]>"
    assert repr(x + k) == "<value ?[?]>"
    assert repr(g.sum(x, axes=[-1])) == "<value FLOAT16[N, 1]>"
    assert repr(g.mean(x, like=row)) == "<value FLOAT16[1, 2 * C]>"
    assert repr(g.argmax(x, axes=[0])) == "<value INT32[1, 2 * C]>"
    assert repr(g.cast(k, "FLOAT32")) == "<value FLOAT32[N, 7]>"
    assert repr(N * 2) == "<value ?[]>"
    p: Any = g.directml.SPLIT(InputTensor=x, Axis=1, OutputTensors=[("FLOAT16", [N, C])] * 2)
    assert [repr(v) for v in p.OutputTensors] == ["<value FLOAT16[N, C]>"] * 2
    assert repr(g.directml.ACTIVATION_RELU(InputTensor=x)) == "<value FLOAT16[N, 2 * C]>"
    columns = g.input("columns", "FLOAT32", [2 * C, 5])
    assert repr(g.onednn.MatMul(src=row, weights=columns)) == "<value FLOAT32[1, 5]>"
    assert repr(g.onednn.MatMul(src=x, weights=columns)) == "<value FLOAT16[N, 5]>"
    assert repr(g.onednn.MatMul(src=x, weights=x + k)) == "<value ?[?]>"


def test_sizes_follow_from_attributes() -> None:
    g = GraphBuilder("g")
    image = g.input("image", "FLOAT32", ["N", 3, 32, 32])
    pooled: Any = g.directml.MAX_POOLING(
        InputTensor=image, Strides=[2, 2], WindowSize=[3, 3], StartPadding=[0, 0],
        EndPadding=[0, 0],
    )  # fmt: skip
    assert repr(pooled) == "<value FLOAT32[N, 3, 15, 15]>"
    g.output("y", pooled)
    (result,) = g.build().bind().results
    assert g.build().bind().tensors()[result.name].extents == pooled.shape


def test_what_is_read_once_stands_where_it_is_read() -> None:
    g = GraphBuilder("g")
    x = g.input("x", "FLOAT32", ["N"])
    once = g.exp(-x) * np.float32(2)
    twice = abs(x) ** 2
    g.output("a", once + twice)
    g.output("b", g.where((x > 0) & ~(x == 3), twice, 1 / x))
    assert str(g) == (
        "graph g[N](x: FLOAT32[N]) {\n"
        "    value1 = pow(abs(x), 2)\n"
        "    output a = exp(-x) * 2.0 + value1\n"
        "    output b = x > 0 && !(x == 3) ? value1 : 1 / x\n"
        "}\n"
    )
    read_back(g)


OPERATORS: list[tuple[str, Any]] = [
    ("x + 2", lambda x: x + 2), ("2 + x", lambda x: 2 + x), ("x - 2", lambda x: x - 2),
    ("2 - x", lambda x: 2 - x), ("x * 2", lambda x: x * 2), ("2 * x", lambda x: 2 * x),
    ("x / 2", lambda x: x / 2), ("2 / x", lambda x: 2 / x), ("x % 2", lambda x: x % 2),
    ("2 % x", lambda x: 2 % x), ("pow(x, 2)", lambda x: x**2), ("pow(2, x)", lambda x: 2**x),
    ("x < 2", lambda x: x < 2), ("x <= 2", lambda x: x <= 2), ("x > 2", lambda x: x > 2),
    ("x >= 2", lambda x: x >= 2), ("x == 2", lambda x: x == 2), ("x != 2", lambda x: x != 2),
    ("x > 2 && x < 3", lambda x: (x > 2) & (x < 3)), ("true && x < 3", lambda x: True & (x < 3)),
    ("x > 2 || x < 1", lambda x: (x > 2) | (x < 1)), ("false || x < 3", lambda x: False | (x < 3)),
    ("-x", lambda x: -x), ("!(x > 2)", lambda x: ~(x > 2)), ("abs(x)", abs),
    ("x * -1.5", lambda x: x * np.float64(-1.5)), ("x + inf", lambda x: x + np.inf),
    ("x * 4 / 3", lambda x: x * np.int64(4) / 3), ("x - -7", lambda x: x - -7),
]  # fmt: skip


@pytest.mark.parametrize(("text", "make"), OPERATORS, ids=lambda v: v if isinstance(v, str) else "")
def test_operators(text: str, make: Any) -> None:
    g = GraphBuilder("g")
    g.output("y", make(g.input("x", "FLOAT32", ["N"])))
    assert f"    output y = {text}\n" in str(g)
    read_back(g)
    g.build()


def test_sizes_follow_from_tables() -> None:
    g = GraphBuilder("g")
    (N,) = g.symbols("N")
    x = g.input("x", "FLOAT32", [N, 2, 3, 3])
    step = g.input("step", "UINT32", [1, 1, 1, 1])
    adam: Any = g.directml.ADAM_OPTIMIZER(
        InputParametersTensor=x, InputFirstMomentTensor=x, InputSecondMomentTensor=x,
        GradientTensor=x, TrainingStepTensor=step, LearningRate=0.1, Beta1=0.9, Beta2=0.9,
        Epsilon=0,
    )  # fmt: skip
    assert adam.OutputParametersTensor.shape == ("N", 2, 3, 3)
    assert "OutputFirstMomentTensor" in dir(adam)
    assert "ADAM_OPTIMIZER" in dir(g.directml)
    g.output("p", g.max(adam.OutputParametersTensor * N, like=g.sum(x, axes=[0])))
    one: Any = g.directml.ACTIVATION_SOFTMAX1(InputTensor=x, Axes=[1])
    g.output("q", g.sum(one, like=one * 1))
    read_back(g)
    function = g.build().bind({"x": (4, 2, 3, 3)})
    assert [r.name for r in function.results] == ["p", "q"]


def test_sizes_by_the_names_of_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "own.dml"
    path.write_text(
        "operator PAIRS { tensors { | Tensor | Kind | Dimensions | Types |\n"
        "| a | Input | { N, K } | f32 |\n| b | Input | { M, K } | f32 |\n"
        "| c | Output | { N, M, 1 } | f32 |\n| d | Output | { P, M } | f32 |\n"
        "| e | Output | { Q } | f32 | }\n"
        "compute { c[n, m, o] = sum[k : a.Sizes[1]](a[n, k] * b[m, k])\n"
        "d[p : 2, m : b.Sizes[0]] = b[m, 0]\ne = sum(squeeze(b, axes: []), axes: [0]) } }"
    )
    g = GraphBuilder("g")
    a, b = g.input("a", "FLOAT32", ["N", 3]), g.input("b", "FLOAT32", ["M", 3])
    found: Any = g.call(dmlc.load(path).operators["PAIRS"], a=a, b=b)
    assert [found.c.shape, found.d.shape, found.e.shape] == [("N", "M", 1), None, None]
    assert found.c.data_type is DataType.FLOAT32


def test_long_expressions_are_parted() -> None:
    g = GraphBuilder("g")
    value = x = g.input("x", "FLOAT32", ["N"])
    for _ in range(14):
        value = value * 2 - x
    g.output("y", value)
    read_back(g)
    assert max(len(line) for line in str(g).splitlines()) < 100
    found = find_expected(g.build().bind({"x": (3,)}), {"x": np.ones(3, np.float32)})
    np.testing.assert_array_equal(found["y"], np.ones(3))


def test_names_of_calls_are_fresh() -> None:
    g = GraphBuilder("g")
    x = g.input("activation_relu", "FLOAT32", ["N"])
    first = g.directml.ACTIVATION_RELU(InputTensor=x)
    second = g.directml.ACTIVATION_RELU(InputTensor=first)
    g.output("value1", g.directml.ACTIVATION_RELU(InputTensor=second))
    unread = g.exp(x)
    assert isinstance(unread, Value)
    names = [line.split(" = ")[0].strip() for line in str(g).splitlines()[1:-1]]
    assert names == ["activation_relu_2", "activation_relu_3", "output value1", "value2"]
    read_back(g)
    assert [d.message for d in g.module().diagnostics] == ["the value 'value2' is never read"]


def test_operators_of_files_are_imported(tmp_path: Path) -> None:
    path = tmp_path / "own.dml"
    path.write_text(
        "operator TWICE { tensors { | Tensor | Kind |\n| a | Input |\n| b | Output | }\n"
        "compute { b = a + a } }"
    )
    own = dmlc.load(path).operators["TWICE"]
    g = GraphBuilder("g")
    x = g.input("x", "FLOAT32", [2])
    g.output("y", g.call(own, a=x))
    assert f'import "{path}"' in str(g)
    read_back(g)
    assert dmlc.run(g.build(), {"x": np.ones(2, np.float32)})["y"].tolist() == [2, 2]
    loose = dmlc.parse(path.read_text()).operators["TWICE"]
    with pytest.raises(DmlcError, match="stands in no file"):
        g.call(loose, a=x)


def test_attributes_and_stated_outputs() -> None:
    g = GraphBuilder("g")
    (N,) = g.symbols("N")
    x = g.input("x", "FLOAT32", [N, 4])
    g.output("up", g.directml.RESAMPLE_GRAD1(
        InputGradientTensor=x, InterpolationMode="LINEAR", RoundingDirection=1,
        Scales=np.float32([1, 2]).tolist(), InputPixelOffsets=[-0.5, -0.5],
        OutputPixelOffsets=(0.5, 0.5), OutputGradientTensor=("FLOAT32", [N, 2])))  # fmt: skip
    g.output("pooled", g.onednn.ReLU(src=x, dst=dmlc.TensorDesc("FLOAT32", (3, 4))))
    joined = g.directml.JOIN(InputTensors=[x, x], Axis=1, name="joined")
    g.output("j", joined)
    g.output("halved", g.training.GROUP_NORMALIZATION(InputTensor=x, GroupCount=2))
    read_back(g)
    for part in ("InterpolationMode: LINEAR", "RoundingDirection: DECREASING",
                 "OutputPixelOffsets: [0.5, 0.5]", "OutputGradientTensor: FLOAT32[N, 2]",
                 "dst: FLOAT32[3, 4]", "InputTensors: [x, x]"):  # fmt: skip
        assert part in str(g)
    function = g.build().bind({"x": (3, 4)})
    assert {r.name for r in function.results} == {"up", "pooled", "j", "halved"}


@pytest.mark.parametrize("given", ["DML_INTERPOLATION_MODE_LINEAR", "LINEAR", 1, np.int64(1)])
def test_members_of_enums(given: object) -> None:
    g = GraphBuilder("g")
    x = g.input("x", "FLOAT32", [1, 1, 2, 2])
    g.output("y", g.directml.RESAMPLE(InputTensor=x, InterpolationMode=given, Scales=[1, 1, 2, 2]))
    read_back(g)
    assert "InterpolationMode: LINEAR" in str(g)


@pytest.mark.parametrize("given", ["x", "LINEAR }", "LINEAR\n", "", 7, True, None])
def test_what_is_no_member_of_an_enum(given: object) -> None:
    """Text is a member's name and no part of the graph's text."""
    g = GraphBuilder("g")
    x = g.input("x", "FLOAT32", [1, 1, 2, 2])
    with pytest.raises(DmlcError, match="DML_INTERPOLATION_MODE"):
        g.directml.RESAMPLE(InputTensor=x, InterpolationMode=given, Scales=[1, 1, 2, 2])


# Mistakes ---------------------------------------------------------------------------------------


def test_mistakes_of_the_builder() -> None:
    g, other = GraphBuilder("g"), GraphBuilder("h")
    x = g.input("x", "FLOAT32", ["N", 3])
    z = other.input("z", "FLOAT32", ["N", 3])
    cases: list[tuple[Any, str]] = [
        (lambda: x + z, "this value belongs to another graph"),
        (lambda: x + np.ones(3), "a value of a graph or a number is expected, not a ndarray"),
        (lambda: bool(x > 0), "are not known while it is built"),
        (lambda: g.input("x", "FLOAT32", [1]), "the name 'x' is taken in this graph"),
        (lambda: g.input("3x", "FLOAT32", [1]), "'3x' is no name"),
        (lambda: g.input("inf", "FLOAT32", [1]), "'inf' is no name"),
        (lambda: g.input("q", "FLOAT33", [1]), "unknown data type 'FLOAT33'"),
        (lambda: g.input("q", "FLOAT32", [x]), "a size is a number or an expression of symbols"),
        (lambda: x + g.input("w", "FLOAT32", [2, 2]), r"tensors of sizes \[N, 3\] and \[2, 2\]"),
        (lambda: g.name("n", g.symbols("N")[0]), "a number takes no name"),
        (lambda: g.exp(x, x), "'exp' takes 1 argument, but is given 2"),
        (lambda: g.exq(x), "unknown function 'exq'"),
        (lambda: g.sum(x), "'sum' takes either axes= or like="),
        (lambda: g.reduce("summ", x, axes=[0]), "unknown reduction 'summ'"),
        (lambda: g.directml.RELU(InputTensor=x), "unknown operator 'directml.RELU'"),
        (lambda: g.directml.ACTIVATION_RELU(Input=x), "did you mean 'InputTensor'"),
        (lambda: g.directml.ACTIVATION_RELU(InputTensor=x, OutputTensor=x),
         "'OutputTensor' is an output: state its type and sizes"),
        (lambda: g.directml.ACTIVATION_LOG_SOFTMAX1(InputTensor=x, Axes=[x]),
         "'Axes' is an attribute and takes no tensor"),
        (lambda: g.directml.SPLIT(InputTensor=x, Axis=0, OutputTensors=3),
         "'OutputTensors' takes a list of types with sizes"),
        (lambda: g.directml.SPLIT(InputTensor=x, Axis=0, OutputTensors=[]).Outputs,
         "unknown output of directml.SPLIT 'Outputs'"),
    ]  # fmt: skip
    for make, message in cases:
        with pytest.raises(DmlcError, match=message):
            make()


def test_what_only_checking_finds_is_shown_in_the_text() -> None:
    g = GraphBuilder("bad")
    x = g.input("x", "FLOAT32", ["N"])
    g.output("o", g.directml.ACTIVATION_RELU_GRAD(InputTensor=x))
    with pytest.raises(DmlcError) as raised:
        g.build()
    (found,) = raised.value.diagnostics
    assert found.message == (
        "this call of directml.ACTIVATION_RELU_GRAD does not give InputGradientTensor"
    )
    assert found.span is not None
    assert (found.span.source.name, found.span.line, found.span.column) == ("<graph bad>", 2, 16)


# At random --------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    kinds = ["add", "sub", "mul", "div", "where", "exp", "neg", "max", "relu", "sum", "name", "num"]
    step = st.tuples(st.sampled_from(kinds), *[st.integers(0, 50)] * 3)
    return draw(st.lists(step, min_size=1, max_size=25))


@settings(max_examples=30, deadline=None)
@given(programs())
def test_random_graphs_read_back_and_compute_what_numpy_does(
    program: list[tuple[str, int, int, int]],
) -> None:
    g = GraphBuilder("g")
    values: list[Any] = [g.input("x", "FLOAT32", ["N", "C"]), g.input("r", "FLOAT32", [1, "C"])]
    random = np.random.default_rng(0)
    arrays: list[Any] = [random.standard_normal(s, np.float32) for s in ((3, 4), (1, 4))]
    inputs = {"x": arrays[0], "r": arrays[1]}
    for count, (kind, i, j, k) in enumerate(program):
        a, b, c = (values[n % len(values)] for n in (i, j, k))
        p, q, r = (arrays[n % len(arrays)] for n in (i, j, k))
        match kind:
            case "add" | "sub" | "mul":
                made, array = (
                    {
                        "add": lambda u, v: u + v,
                        "sub": lambda u, v: u - v,
                        "mul": lambda u, v: u * v,
                    }[kind](a, b),
                    {"add": np.add, "sub": np.subtract, "mul": np.multiply}[kind](p, q),
                )
            case "div":
                made, array = a / (abs(b) + 1), p / (np.abs(q) + 1)
            case "where":
                made, array = g.where(a > b, c, -1.5), np.where(p > q, r, np.float32(-1.5))
            case "exp":
                made, array = g.exp(g.min(a, 0)), np.exp(np.minimum(p, 0))
            case "neg":
                made, array = -a, -p
            case "max":
                made, array = g.max(a, b), np.maximum(p, q)
            case "relu":
                made = g.directml.ACTIVATION_RELU(InputTensor=a)
                array = np.maximum(p, 0)
            case "sum":
                made, array = g.sum(a, like=values[1]), p.sum(0, keepdims=True)
            case "name":
                made, array = g.name(f"named{count}", a * 1), p
            case _:
                made, array = a * (k - 25) + 2.5, p * np.float32(k - 25) + np.float32(2.5)
        if np.abs(array).max() > 1e6:
            continue
        values.append(made)
        arrays.append(array)
    g.output("out", values[-1])
    g.output("also", values[len(values) // 2])
    read_back(g)
    found = find_expected(g.build().bind({"x": (3, 4)}), inputs)
    for name, expected in (("out", arrays[-1]), ("also", arrays[len(values) // 2])):
        np.testing.assert_allclose(found[name], expected, rtol=1e-3, atol=1e-3)


def test_whole_numbers_of_every_type_are_written() -> None:
    g = GraphBuilder("whole")
    x = g.input("x", "INT64", ["N"])
    g.output("y", x + (-(2**63)))
    assert "x + -9223372036854775808" in str(g)
    with pytest.raises(DmlcError, match="the largest is 18446744073709551615, of UINT64"):
        _ = x + 2**64


def test_a_cast_rounds_as_in_a_file() -> None:
    g = GraphBuilder("rounded")
    x = g.input("x", "FLOAT32", ["N"])
    g.output("y", g.cast(x, "FLOAT16") + g.cast(x, "FLOAT32") * 0)
    found = dmlc.run(g.build(), {"x": np.float32([1.0001, 2049])}, device="reference")["y"]
    np.testing.assert_array_equal(found, np.float32([1, 2048]))
