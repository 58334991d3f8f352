"""Models of ONNX as functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import dmlc
from dmlc import cli
from dmlc.interop.proof import find_function
from dmlc.pipeline import find_fusion
from dmlc.source import DmlcError, UnsupportedError

RESIDUAL_BLOCK = Path(__file__).parent.parent / "data" / "onnx" / "residual_block_backward.onnx"
X = np.array([[1, -2, 3, 0.5], [4, 0.25, -1, 2], [-3, 1, 7, -0.5]], np.float32)


def parse(text: str) -> onnx.ModelProto:
    """A model whose text leaves out what is the same in all."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]>\n{text}')


def old(version: int, node: onnx.NodeProto, sizes: list[int]) -> onnx.ModelProto:
    """A model of one node of an older version of ONNX."""
    graph = helper.make_graph(
        [node],
        "old",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])


@pytest.mark.parametrize("device", ["reference", "opencl"])
def test_the_backward_pass_of_a_residual_block_is_one_kernel(device: str) -> None:
    model = dmlc.onnx.load(RESIDUAL_BLOCK)
    assert [len(dmlc.compile(model.function, target=t).kernels) for t in ("opencl", "hlsl")] == [
        1, 1,
    ]  # fmt: skip
    assert len(find_fusion(model.function, "opencl").groups) == 1
    generator = np.random.default_rng(0)
    given = {p.name: generator.standard_normal(p.extents).astype(np.float32)
             for p in model.function.parameters}  # fmt: skip
    assert list(given) == ["x", "skip", "scale", "bias", "dy"]
    x, skip, scale, bias, dy = (a.astype(np.float64) for a in given.values())
    sigmoid = 1 / (1 + np.exp(-x))
    dskip = np.where(x * sigmoid * scale + bias + skip > 0, dy, 0)
    dx = dskip * scale * sigmoid * (1 + x * (1 - sigmoid))
    found = model.run(given, device=device)
    np.testing.assert_allclose(found["dx"], dx, 1e-5, 1e-6)
    np.testing.assert_allclose(found["dskip"], dskip, 1e-5, 1e-6)


OPEN = parse("""
agraph (float[batch, tokens, 12] x, float[12] w) => (float[batch, tokens, 3, 4] y, float s)
{
    shape = Shape (x)
    front = Slice (shape, zero, two)
    heads = Constant <value_ints = [3, -1]> ()
    zero = Constant <value_ints = [0]> ()
    two = Constant <value_ints = [2]> ()
    target = Concat <axis = 0> (front, heads)
    scaled = Mul (x, w)
    y = Reshape (scaled, target)
    count = Size (x)
    number = Cast <to = 1> (count)
    axes = Constant <value_ints = [0, 1, 2]> ()
    total = ReduceSum <keepdims = 0> (scaled, axes)
    s = Div (total, number)
}""")


def sort_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Constants stand first."""
    nodes = sorted(model.graph.node, key=lambda node: node.op_type != "Constant")
    ordered = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(ordered)
    return model


def test_sizes_stay_open() -> None:
    model = dmlc.onnx.load(sort_nodes(OPEN))
    assert model.function.symbols() == ("batch", "tokens")
    for batch, tokens in ((2, 5), (1, 7)):
        x = np.arange(batch * tokens * 12, dtype=np.float32).reshape(batch, tokens, 12) / 8
        w = np.linspace(-1, 2, 12, dtype=np.float32)
        found = model.run({"x": x, "w": w})
        np.testing.assert_allclose(found["y"], (x * w).reshape(batch, tokens, 3, 4), 1e-6)
        np.testing.assert_allclose(found["s"], (x * w).mean(), 1e-4)


def test_open_sizes_can_be_fixed() -> None:
    model = dmlc.onnx.load(sort_nodes(OPEN), dims={"batch": 2})
    assert model.function.symbols() == ("tokens",)
    described = {"x": dmlc.TensorDesc("FLOAT32", (2, 5, 12))}
    model = dmlc.onnx.load(sort_nodes(OPEN), tensors=described)
    assert model.function.symbols() == ()


RESHAPED = """
agraph (float[3, 4] x, int64[2] shape) => (float[rows, columns] y) { y = Reshape (x, shape) }"""


def test_what_shapes_a_function_has_to_be_known() -> None:
    with pytest.raises(dmlc.onnx.UnknownValueError, match="1 node of agraph") as raised:
        dmlc.onnx.load(parse(RESHAPED))
    assert raised.value.names == ("shape",)
    assert "constants={'shape': array}" in str(raised.value)
    model = dmlc.onnx.load(parse(RESHAPED), constants={"shape": np.array([2, -1])})
    assert model.inputs == {"x": "x"}
    np.testing.assert_array_equal(model.run({"x": X})["y"], X.reshape(2, 6))


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"form": np.array([2, 6])}, "no input 'form'"),
        ({"shape": np.array([2.0, 6.0])}, "holds float64, and the model has INT64 there"),
        ({"shape": np.array([2, 3, 2])}, r"has the sizes \[3\], and the model has \[2\]"),
        (
            {"shape": np.array([5, -1])},
            "Dimension could not be inferred",
        ),
    ],
)
def test_constants_are_checked(constants: dict[str, Any], message: str) -> None:
    with pytest.raises(DmlcError, match=message):
        dmlc.onnx.load(parse(RESHAPED), constants=constants)


def test_all_that_is_not_supported_is_refused_at_once() -> None:
    model = parse("""
    agraph (float[4] x) => (float[4] y) {
        a = RandomNormalLike (x)
        b = RandomNormalLike (a)
        c = Add (a, b)
        d = NonZero (x)
        y = Bernoulli (c)
    }""")
    with pytest.raises(UnsupportedError) as raised:
        dmlc.onnx.load(model)
    assert str(raised.value).splitlines() == [
        "error: 4 nodes of agraph cannot be imported [E0901]",
        "  note: 2 x RandomNormalLike (a, b): it draws random numbers",
        "  note: 1 x NonZero (d): the size of its result depends on values",
        "  note: 1 x Bernoulli (y): it draws random numbers",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agraph (float8e4m3fn[4] x) => (float8e4m3fn[4] y) { y = Identity (x) }",
         "'x' holds FLOAT8E4M3FN, which no tensor can hold"),
        ("agraph (string[4] x) => (string[4] y) { y = Identity (x) }", "'x' holds STRING"),
        ("agraph (seq(float[4]) x) => (float y) { y = SequenceLength (x) }", "type is sequence"),
        ("agraph (float[2, 3] x) => (float[2, 3] y) { y = Add (x, z) }", "nothing computes"),
        ("agraph (float[2, 3] x, float[2] w) => (float[2, 3] y) { y = Add (x, w) }",
         r"sizes \[2, 3\] and \[2\]: Incompatible dimensions"),
        ("agraph (float[2, 3] x) => (float[2, 3] y) { y = other.Thing (x) }", "no function Thing"),
        ("agraph (float[2, 3] x) => (float[2, 3] y) { y = Thing (x) }", "no operator of this ver"),
        ("agraph (float[2, 3] x, bool c) => (float[2, 3] y) { y = If (c) <"
         "then_branch = a () => (float[2, 3] p) { p = Abs (x) },"
         "else_branch = b () => (float[2, 3] q) { q = Neg (x) }> }", "the condition of an If must"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(DmlcError, match=message):
        dmlc.onnx.load(parse(text))


def test_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(DmlcError, match=r"cannot read '.*none.onnx'"):
        dmlc.onnx.load(tmp_path / "none.onnx")
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"\xff\xffnothing")
    with pytest.raises(DmlcError, match=r"bad.onnx' is no ONNX model"):
        dmlc.onnx.load(path)


FUNCTIONS = """
<ir_version: 10, opset_import: ["": 20, "own": 1]>
agraph (float[3, 4] x) => (float[3, 4] y) {
    half = own.scale <by = 0.5> (x)
    y = own.scale (half)
}
<opset_import: ["": 20], domain: "own">
scale <by: float = 3.0> (v) => (w) {
    factor = Constant <value_float: float = @by> ()
    w = Mul (v, factor)
}"""


def test_functions_of_a_model_are_taken_apart() -> None:
    model = dmlc.onnx.load(onnx.parser.parse_model(FUNCTIONS))
    assert "half_factor" in model.function.tensors()
    assert len(dmlc.compile(model.function, target="opencl").kernels) == 1
    np.testing.assert_array_equal(model.run({"x": X})["y"], X * 1.5)


def test_a_function_alone() -> None:
    (function,) = onnx.parser.parse_model(FUNCTIONS).functions
    with pytest.raises(DmlcError, match=r"the function scale of ONNX has no types: describe v, as"):
        dmlc.onnx.load(function)
    model = dmlc.onnx.load(function, tensors={"v": dmlc.TensorDesc("FLOAT32", ("N",))})
    np.testing.assert_array_equal(model.run({"v": X[0]})["w"], X[0] * 3)


def test_loops_are_laid_out() -> None:
    model = parse("""
    agraph (float[3, 4] x) => (float[3, 4] y, float[3, 3, 4] kept) {
        steps = Constant <value = int64 {3}> ()
        going = Constant <value = bool {1}> ()
        y, kept = Loop (steps, going, x) <body = step (int64 i, bool c, float[3, 4] v)
            => (bool d, float[3, 4] w, float[3, 4] s) {
                d = Identity (c)
                f = Cast <to = 1> (i)
                w = Add (v, f)
                s = Neg (w)
        }>
    }""")
    found = dmlc.onnx.load(model).run({"x": X})
    np.testing.assert_array_equal(found["y"], X + 3)
    np.testing.assert_array_equal(found["kept"], -np.stack([X, X + 1, X + 3]))


def test_a_loop_until_a_condition() -> None:
    """As a `while` of TensorFlow is written: no number of steps, and a counter that is carried."""
    found = dmlc.onnx.load(
        parse("""
    agraph (float[3, 4] x) => (float[3, 4] y, float[3, 3, 4] kept) {
        going = Constant <value = bool {1}> () zero = Constant <value_int = 0> ()
        n, y, kept = Loop (, going, zero, x) <body = step (int64 i, bool c, int64 k, float[3, 4] v)
            => (bool d, int64 m, float[3, 4] w, float[3, 4] s) {
                one = Constant <value_int = 1> () three = Constant <value_int = 3> ()
                m = Add (k, one)
                d = Less (m, three)
                w = Add (v, v)
                s = Neg (v)
        }>
    }""")
    ).run({"x": X})
    np.testing.assert_array_equal(found["y"], X * 8)
    np.testing.assert_array_equal(found["kept"], -np.stack([X, X * 2, X * 4]))


def test_known_inputs_that_the_reference_does_not_take() -> None:
    """ONNX's own reference wants the depth of OneHot as a scalar. The node is built instead."""
    found = dmlc.onnx.load(
        parse("""
    agraph (float[3, 4] x) => (float[3, 4] y) {
        places = Constant <value_ints = [2, 0, 3]> () depth = Constant <value_ints = [4]> ()
        values = Constant <value_floats = [0.0, 1.0]> ()
        hot = OneHot (places, depth, values)
        y = Mul (x, hot)
    }""")
    ).run({"x": X})
    np.testing.assert_array_equal(found["y"], X * np.eye(4, dtype=np.float32)[[2, 0, 3]])


def test_large_constants_are_parameters() -> None:
    weight = np.random.default_rng(1).standard_normal((4, 300)).astype(np.float32)
    small = np.array([0.5, 1, 2, 4], np.float16)
    model = parse("agraph (float[3, 4] x) => (float[3, 300] y) { y = MatMul (h, w/0) "
                  "t = Cast <to = 1> (s) h = Mul (x, t) }".replace("w/0", "w"))  # fmt: skip
    del model.graph.node[:]
    model.graph.node.extend([
        helper.make_node("Cast", ["s"], ["t"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "t"], ["h"]),
        helper.make_node("MatMul", ["h", "w/0"], ["y"]),
    ])  # fmt: skip
    model.graph.initializer.extend(
        [numpy_helper.from_array(weight, "w/0"), numpy_helper.from_array(small, "s")]
    )
    imported = dmlc.onnx.load(model)
    assert [p.name for p in imported.function.parameters] == ["x", *imported.weights]
    assert list(imported.weights) == ["w_0"]
    np.testing.assert_allclose(
        imported.run({"x": X})["y"], (X * small.astype(np.float32)) @ weight, 1e-5, 1e-5
    )


OLD: dict[str, tuple[onnx.ModelProto, Any]] = {
    "Squeeze": (old(11, helper.make_node("Squeeze", ["x"], ["y"], axes=[0]), [1, 3]), (3,)),
    "Unsqueeze": (old(11, helper.make_node("Unsqueeze", ["x"], ["y"], axes=[0]), [3]), (1, 3)),
    "Slice": (
        old(9, helper.make_node("Slice", ["x"], ["y"], starts=[1], ends=[9], axes=[1]), [2, 5]),
        lambda x: x[:, 1:],
    ),
    "Pad": (
        old(2, helper.make_node("Pad", ["x"], ["y"], pads=[0, 1, 0, 2], value=2.0), [2, 3]),
        lambda x: np.pad(x, ((0, 0), (1, 2)), constant_values=2),
    ),
    "Clip": (
        old(6, helper.make_node("Clip", ["x"], ["y"], min=-0.5, max=0.5), [2, 3]),
        lambda x: x.clip(-0.5, 0.5),
    ),
    "ReduceSum": (
        old(11, helper.make_node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0), [2, 3]),
        lambda x: x.sum(1),
    ),
    "Softmax": (
        old(11, helper.make_node("Softmax", ["x"], ["y"], axis=1), [2, 3, 2]),
        lambda x: np.exp(x) / np.exp(x).sum((1, 2), keepdims=True),
    ),
    "TopK": (
        old(1, helper.make_node("TopK", ["x"], ["y", ""], k=2, axis=1), [2, 5]),
        lambda x: -np.sort(-x, 1)[:, :2],
    ),
    "Upsample": (
        old(7, helper.make_node("Upsample", ["x"], ["y"], scales=[1.0, 1, 2, 3]), [1, 1, 2, 2]),
        lambda x: x.repeat(2, 2).repeat(3, 3),
    ),
    "Dropout": (old(7, helper.make_node("Dropout", ["x"], ["y"], ratio=0.3), [2, 3]), (2, 3)),
}


@pytest.mark.parametrize("name", OLD)
def test_older_versions(name: str) -> None:
    model, expect = OLD[name]
    sizes = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(2).standard_normal(sizes).astype(np.float32)
    found = dmlc.onnx.load(model).run({"x": x}, device="reference")["y"]
    wanted = x.reshape(expect) if isinstance(expect, tuple) else expect(x)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, 1e-5)


@pytest.mark.parametrize("name", ["ACTIVATION_RELU_GRAD", "GEMM", "MAX_POOLING_GRAD"])
def test_what_is_exported_can_be_imported(name: str) -> None:
    operator = dmlc.operator(f"directml.{name}")
    model = dmlc.onnx.export(find_function(operator))
    imported = dmlc.onnx.load(model)
    assert [o.name for o in model.graph.output] == list(imported.outputs)
    generator = np.random.default_rng(3)
    given = {
        p.name: generator.standard_normal(p.extents).astype(p.dtype.dtype)
        for p in imported.function.parameters
    }
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, given)
    found = imported.run(given, device="reference")
    for name_, array in zip(imported.outputs, wanted, strict=True):
        np.testing.assert_allclose(found[name_], array, 1e-4, 1e-5)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(parse(RESHAPED), tmp_path / "m.onnx")
    np.save(tmp_path / "shape.npy", np.array([2, 6]))
    np.save(tmp_path / "x.npy", X)
    model, out = str(tmp_path / "m.onnx"), str(tmp_path / "out")
    assert cli.run(["import-onnx", model]) == 1
    assert "must be known when the model is imported" in capsys.readouterr().err
    fixed = f"shape={tmp_path / 'shape.npy'}"
    assert cli.run(["import-onnx", model, "--constant", fixed, "-o", out]) == 0
    said = capsys.readouterr()
    path = f"{out}/m.ir"
    assert said.out.split() == [path]
    assert f"dmlc run {path} --input x=x.npy" in said.err
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--verify", "-o", out]
    assert cli.run(["run", path, *given]) == 0
    assert "PASS" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(f"{out}/y.npy"), X.reshape(2, 6))
    for command in (["ir"], ["graph"], ["compile", "--target", "hlsl"]):
        assert cli.run([command[0], path, *command[1:]]) == 0
    capsys.readouterr()
    assert cli.run(["show", path]) == 1
    assert "takes an operator or a graph" in capsys.readouterr().err
    assert cli.run(["compile", path, "--dim", "N=2"]) == 2
    assert "whose types and sizes are its own" in capsys.readouterr().err


def test_weights_come_with_the_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands as they are documented: the weights are found where they were written."""
    weight = np.random.default_rng(1).standard_normal((4, 300)).astype(np.float32)
    model = parse("agraph (float[N, 4] x) => (float[N, 300] y) { y = MatMul (x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    out = tmp_path / "out"
    assert cli.run(["import-onnx", str(tmp_path / "m.onnx"), "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out.split() == [f"{out}/m.ir", f"{out}/m.weights/w.npy"]
    assert said.err.strip().endswith(f"dmlc run {out}/m.ir --input x=x.npy")
    given = ["--input", f"x={tmp_path / 'x.npy'}", "-o", str(out)]
    assert cli.run(["run", f"{out}/m.ir", *given, "--verify"]) == 0
    np.testing.assert_allclose(np.load(out / "y.npy"), X @ weight, 1e-5, 1e-5)
    # What is given stands before what is found.
    np.save(tmp_path / "w.npy", weight * 0)
    other = ["--input", f"w={tmp_path / 'w.npy'}", "--device", "reference"]
    assert cli.run(["run", f"{out}/m.ir", *given, *other]) == 0
    assert not np.load(out / "y.npy").any()


def test_the_command_lists_operators(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["import-onnx", "--operators"]) == 0
    shown = capsys.readouterr().out.replace("\n  ", " ")
    for kind, names in dmlc.onnx.list_operators().items():
        assert f"{kind}: {', '.join(names)}\n" in shown


def test_what_a_caller_says_is_held_to_the_model() -> None:
    described = {"x": dmlc.TensorDesc("FLOAT32", (2, 3), strides=(1, 2))}
    with pytest.raises(dmlc.UnsupportedError, match=r"tensors\['x'\] has strides"):
        dmlc.onnx.load(sort_nodes(OPEN), tensors=described)
    with pytest.raises(dmlc.DmlcError, match="unknown symbol 'batches'") as raised:
        dmlc.onnx.load(sort_nodes(OPEN), dims={"batches": 2})
    assert "batch" in str(raised.value)


def test_names_of_the_package_are_what_they_say() -> None:
    text = "import dmlc; dmlc.onnx.ImportedModel; assert callable(dmlc.onnx.load)"
    subprocess.run([sys.executable, "-c", text], check=True)
