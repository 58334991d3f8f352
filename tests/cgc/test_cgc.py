"""CGC graphs: what is written is read back, to the letter, and computes the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import dmlc
from dmlc import cgc, cli, ir
from dmlc.cgc.operators import FACTS
from dmlc.reference import evaluate
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError, UnsupportedError
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import find_within

ROOT = Path(__file__).resolve().parents[2]
MLP = ROOT / "examples" / "cgc" / "mlp.dml"
SIZES = {"N": 4, "D": 8, "F": 16, "K": 2}


def draw(shape: tuple[int, ...], dtype: DataType, seed: int = 0) -> Array:
    made = np.random.default_rng(seed).standard_normal(shape) * 2
    return made.astype(dtype.dtype)


def parse_model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> {body}')


# Graphs of the language, and operators --------------------------------------------------------

CONVOLUTION = {
    "Mode": "CROSS_CORRELATION",
    "Direction": "FORWARD",
    "DimensionCount": 2,
    "Strides": [2, 1],
    "Dilations": [1, 2],
    "StartPadding": [1, 0],
    "EndPadding": [1, 3],
    "OutputPadding": [0, 0],
}


def _convolve(dtype: str, groups: int) -> ir.Function:
    sizes = {"InputTensor": (1, 4, 9, 9), "FilterTensor": (6, 4 // groups, 3, 3)}
    sizes["BiasTensor"] = (1, 6, 1, 1)
    return dmlc.operator("directml.CONVOLUTION").bind(
        {name: dmlc.TensorDesc(dtype, given) for name, given in sizes.items()},
        {**CONVOLUTION, "GroupCount": groups},
    )


def _channels_last() -> ir.Function:
    return dmlc.operator("onednn.Convolution").bind(
        {
            "src": dmlc.TensorDesc("FLOAT32", (2, 9, 8, 3)),
            "weights": dmlc.TensorDesc("FLOAT32", (3, 1, 3, 5)),
        },
        {"strides": [1, 2], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1]},
    )


FUNCTIONS: Mapping[str, Callable[[], ir.Function]] = {
    "a layer": lambda: dmlc.load(MLP).graphs["mlp_forward"].bind(dims=SIZES),
    "a convolution": lambda: _convolve("FLOAT32", 1),
    "a convolution in groups": lambda: _convolve("FLOAT16", 2),
    "a convolution with channels last": lambda: _channels_last(),
    "a product": lambda: dmlc.operator("onednn.MatMul").bind(
        {
            "src": dmlc.TensorDesc("FLOAT32", (2, 3, 4)),
            "weights": dmlc.TensorDesc("FLOAT32", (2, 4, 5)),
        }
    ),
    "a sum in 16 bits": lambda: ir.parse(
        """func @f(%x: f16[1, 32], %b: f16[32]) -> (%y) {
          %y: f16[i0 < 1, i1 < 32] = add(%x[i0, i1], %b[i1])
        }"""
    ),
    "several operations in 16 bits": lambda: ir.parse(
        """func @f(%x: bf16[4, 3]) -> (%y) {
          %y: bf16[i0 < 4, i1 < 3] = mul(exp(neg(abs(%x[i0, i1]))), sigmoid(%x[i0, i1]))
        }"""
    ),
    "elements": lambda: ir.parse(
        """func @f(%x: f32[4, 3], %y: f32[3]) -> (%z, %w) {
          %z: f32[i0 < 4, i1 < 3] = {
            v0 = min(sin(%x[i0, i1]), max(cos(%y[i1]), 0.25))
            sub(div(ceil(v0), 3.0), add(sign(v0), log(abs(%x[i0, i1]))))
          }
          %w: f32[i0 < 4, i1 < 3] = cast(not(and(le(%x[i0, i1], %y[i1]), or(
            ge(%x[i0, i1], 0.5), gt(%y[i1], 1.0)))), f32)
        }"""
    ),
    "integers": lambda: ir.parse(
        """func @f(%x: s32[4], %y: s32[4]) -> (%z) {
          %z: s32[i0 < 4] = max(mul(%x[i0], %y[i0]), sub(%x[i0], cast(3, s32)))
        }"""
    ),
    "slices": lambda: ir.parse(
        """func @f(%x: f16[6, 5]) -> (%y) {
          %y: f16[i0 < 2, i1 < 3] = %x[add(mul(i1, 2), 1), add(i0, 3)]
        }"""
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_read_back(name: str) -> None:
    function = FUNCTIONS[name]()
    text = cgc.export(function)
    model = cgc.read_model(text)
    assert cgc.write_model(model) == text
    imported = dmlc.onnx.load(model)
    assert cgc.export(imported.function).count("cgc_op.") >= 1
    given = {
        p.name: draw(tuple(map(int, p.extents)), p.dtype, at)
        for at, p in enumerate(function.parameters)
    }
    found = imported.run(given)
    expected, allowed = evaluate(function, given), bound_errors(function, given)
    for own, array in expected.items():
        assert find_within(found[own], array, allowed[own]).all(), (found[own], array)


def test_a_file_is_as_it_is_written() -> None:
    text = (ROOT / "tests" / "data" / "cgc" / "mlp.mlir").read_text("utf-8")
    assert cgc.export(FUNCTIONS["a layer"]()) == text


def test_a_graph_is_read_back_as_itself() -> None:
    """The function, names aside that are made on the way, and its text again."""
    function = ir.parse(
        """func @f(%x: f16[4, 32], %b: f16[32]) -> (%y) {
          %sum: f16[i0 < 4, i1 < 32] = add(%x[i0, i1], %b[i1])
          %y: f16[i0 < 32, i1 < 4] = %sum[i1, i0]
        }"""
    )
    text = cgc.export(function)
    again = dmlc.onnx.load(cgc.read_model(text)).function
    assert str(again) == str(function)
    assert cgc.export(again) == text


def test_operations_are_in_the_type_of_their_tensors() -> None:
    """One operation between roundings is written in 16 bits; several in a row are in FLOAT32."""
    layer = cgc.export(FUNCTIONS["a layer"]())
    assert "float32" not in layer
    assert "cgc_op.cast" not in layer
    several = cgc.export(FUNCTIONS["several operations in 16 bits"]())
    assert several.count("cgc_op.cast") == 2
    grouped = cgc.export(FUNCTIONS["a convolution in groups"]())
    assert "group_count = #cgc.integer<2 : !cgc.int64>" in grouped
    assert "float32" not in grouped
    assert "cgc_op.add" not in grouped


def test_the_text_of_a_sum() -> None:
    """The text that public examples have, to the letter but for blanks."""
    assert cgc.export(FUNCTIONS["a sum in 16 bits"]()) == SUM


# Models of ONNX -------------------------------------------------------------------------------

MODELS = {
    "quantized": (
        "q (float[2, 3, 4] x, float[4] s, uint8[4] z) => (float[2, 3, 4] y) {"
        " q = QuantizeLinear <axis = 2> (x, s, z) y = DequantizeLinear <axis = 2> (q, s, z) }"
    ),
    "quantized by one scale": (
        "q (float[2, 3] x) => (float[2, 3] y) { s = Constant <value_float = 0.5> ()"
        " q = QuantizeLinear <output_dtype = 3> (x, s) y = DequantizeLinear (q, s) }"
    ),
    "normalized": "n (float[2, 8] x) => (float[2, 8] y) { y = LpNormalization <p = 2> (x) }",
    "rotated": (
        "r (float[2, 3, 8] x, float[5, 2] c, float[5, 2] s, int64[2, 3] p) => (float[2, 3, 8] y) {"
        " y = RotaryEmbedding <num_heads = 2, interleaved = 1> (x, c, s, p) }"
    ),
    "attention": (
        "a (float[2, 3, 16] q, float[2, 3, 8] k, float[2, 3, 8] v) => (float[2, 3, 16] y) {"
        " y = Attention <is_causal = 1, q_num_heads = 4, kv_num_heads = 2, scale = 0.25>"
        " (q, k, v) }"
    ),
    "a product that is transposed and scaled": (
        "g (float[2, 3] a, float[4, 3] b, float[4] c) => (float[2, 4] y) {"
        " y = Gemm <transB = 1, alpha = 2.0, beta = 0.5> (a, b, c) }"
    ),
    "a net": (
        "n (float[1, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] b) => (float[4, 16] y) {"
        " c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w, b) s = Sigmoid (c)"
        " shape = Constant <value_ints = [4, -1]> () y = Reshape (s, shape) }"
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_read_back(name: str) -> None:
    model = parse_model(MODELS[name])
    text = cgc.write_model(model)
    again = cgc.read_model(text)
    assert cgc.write_model(again) == text
    whole = dmlc.onnx.load(model)
    given = {
        p.name: np.arange(6).reshape(2, 3) % 5
        if p.dtype is DataType.INT64
        else np.abs(draw(tuple(map(int, p.extents)), p.dtype, at)) + 1
        for at, p in enumerate(whole.function.parameters)
    }
    found = dmlc.onnx.load(again).run(given)
    for own, array in whole.run(given).items():
        np.testing.assert_array_equal(found[own], array)


def test_norms_have_an_epsilon() -> None:
    """As it is published: the square root of the sum of squares and it."""
    text = cgc.write_model(parse_model(MODELS["normalized"]))
    assert "0.000000000e+00" in text
    x = draw((2, 8), DataType.FLOAT32)
    found = dmlc.onnx.load(cgc.read_model(text.replace("0.000000000e+00", "3.0"))).run({"x": x})
    expected = x / np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True) + 3)
    np.testing.assert_allclose(found["y"], expected, 1e-5)


def test_weights_are_contents() -> None:
    """A constant of many elements is read back bit by bit; one without contents is an input."""
    model = parse_model("m (float[2, 4] x) => (float[2, 3] y) { y = MatMul (x, w) }")
    weight = draw((4, 3), DataType.FLOAT32)
    weight[0] = [np.nan, np.inf, -0.0]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    text = cgc.write_model(model)
    found = onnx.numpy_helper.to_array(cgc.read_model(text).graph.initializer[0])
    assert found.tobytes() == weight.tobytes()
    bare = cgc.read_model(text[: text.index("{-#")])
    assert [each.name for each in bare.graph.input] == ["x", "w"]


# Refusals -------------------------------------------------------------------------------------


def test_what_is_not_written_is_named_at_once() -> None:
    model = parse_model(
        "m (float[2, 4] x) => (float[2, 4] y) {"
        " a = Softmax (x) b = Softmax (a) c = Tanh (b) y = Gemm <alpha = 2.0> (c, c) }".replace(
            " y = Gemm <alpha = 2.0> (c, c)", " y = Identity (c)"
        )
    )
    with pytest.raises(UnsupportedError) as raised:
        cgc.write_model(model)
    shown = str(raised.value)
    assert "3 nodes of m cannot be written for CGC" in shown
    assert "2 x Softmax (a, b): public texts of CGC name no operation that computes it" in shown
    assert "1 x Tanh (c)" in shown


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("m (float[N, 4] x) => (float[N, 4] y) { y = Abs (x) }", "the sizes of 'x' are open"),
        ("m (float x) => (float y) { y = Abs (x) }", "'x' has no dimensions"),
        (
            "m (float[8] x, int64[1] i) => (float[k] y) { y = Slice (x, i, i) }",
            "the sizes of 'y' are open",
        ),
        (
            'm (float[1, 1, 4] x, float[1, 1, 3] w) => (float[1, 1, 4] y) {'
            ' y = Conv <auto_pad = "SAME_UPPER"> (x, w) }',
            "its padding is automatic",
        ),
        (
            "m (float[1, 2, 4] q, float[1, 2, 4] k, float[1, 2, 4] v) => (float[1, 2, 4] y) {"
            " y = Attention <q_num_heads = 1, kv_num_heads = 1> (q, k, v) }",
            "only causal attention",
        ),
        ("m (string[2] x) => (string[2] y) { y = Identity (x) }", "has elements of the type"),
    ],
)  # fmt: skip
def test_what_is_not_written(body: str, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        cgc.write_model(parse_model(body))


def test_old_models_are_refused() -> None:
    model = parse_model("m (float[2] x) => (float[2] y) { y = Abs (x) }")
    model.opset_import[0].version = 9
    with pytest.raises(UnsupportedError, match="version 9 of ONNX's operators"):
        cgc.write_model(model)


SUM = """cgc.module {
  func.func @f(%x: !cgc.tensor<1x32x!cgc.float16>, %b: !cgc.tensor<32x!cgc.float16>) \
-> !cgc.tensor<1x32x!cgc.float16> {
    %y = cgc_op.add(%x, %b) : (!cgc.tensor<1x32x!cgc.float16>, !cgc.tensor<32x!cgc.float16>) \
-> !cgc.tensor<1x32x!cgc.float16>
    cgc.return %y : !cgc.tensor<1x32x!cgc.float16>
  }
}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cgc_op.add", "cgc_op.softmax", r"not read: softmax \(1 time\)"),
        ("cgc_op.add", "arith.addf", "no operation of the dialect cgc_op"),
        ("1x32x!cgc.float16", "?x32x!cgc.float16", "no tensor whose sizes are all known"),
        ("!cgc.float16", "!cgc.float8e4m3", "elements of the type '!cgc.float8e4m3'"),
        ("cgc_op.add(%x, %b)", "cgc_op.add(%x, %c)", "unknown value 'c'"),
        ("cgc_op.add(%x, %b)", "cgc_op.add(%x, %x)", "are not those of its operands"),
        ("(%x, %b) :", "(%x, %b) { axis = #cgc.integer<1 : !cgc.int64> } :",
         "the attribute 'axis' of 'add' is not read"),
        ("    %y =", "    %x =", "two values '%x'"),
        ("    cgc.return", "    return", "expected a statement, or 'cgc.return'"),
        ("-> !cgc.tensor<1x32x!cgc.float16>\n", "-> !cgc.tensor<2x32x!cgc.float16>\n",
         "by the operands of 'add'"),
        ("cgc.module", "builtin.module", "expected 'cgc.module'"),
    ],
)  # fmt: skip
def test_what_is_not_read(old: str, new: str, said: str) -> None:
    assert old in SUM
    with pytest.raises(DmlcError, match=said) as raised:
        cgc.read_model(SUM.replace(old, new), "graph.mlir")
    assert "graph.mlir:" in str(raised.value)


def test_attention_with_a_cache_is_refused() -> None:
    text = cgc.write_model(parse_model(MODELS["attention"]))
    with pytest.raises(UnsupportedError, match="is read without cache"):
        cgc.read_model(text.replace("<[2, 2]>", "<[1, 2]>"))


def test_contents_have_the_bytes_of_their_type() -> None:
    text = cgc.export(FUNCTIONS["a layer"]())
    with pytest.raises(DmlcError, match=r"has 4 bytes, and .* has 2"):
        cgc.read_model(text.replace('"0x080000000000"', '"0x0800000000000000"'))


# Training, commands and documents -------------------------------------------------------------


def test_the_forward_pass_is_exported_and_the_backward_pass_compiled() -> None:
    """The forward pass as CGC text, and dmlc's gradients of the same formula: by differences."""
    graphs = dmlc.load(MLP).graphs
    forward = dmlc.onnx.load(cgc.read_model(cgc.export(graphs["mlp_forward"], dims=SIZES)))
    backward = graphs["mlp_backward"].bind(dims=SIZES)
    given = {
        p.name: draw(tuple(map(int, p.extents)), p.dtype, at)
        for at, p in enumerate(backward.parameters)
    }
    found = dmlc.run(backward, given)
    y = forward.run({name: given[name] for name in forward.inputs})["y"]
    expected = dmlc.run(graphs["mlp_forward"], {n: given[n] for n in forward.inputs}, dims=SIZES)
    np.testing.assert_array_equal(y, expected["y"])
    # The result is linear in its last weights: their gradient is what a step along it adds.
    step = 0.25
    moved = {**given, "b2": (given["b2"] + step).astype(np.float16)}
    after = forward.run({name: moved[name] for name in forward.inputs})["y"]
    added = ((after.astype(np.float64) - y) * given["dy"]).sum() / step
    assert abs(added - found["db2"].astype(np.float64).sum()) < 0.2


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path)
    sizes = [word for name, size in SIZES.items() for word in ("--dim", f"{name}={size}")]
    assert cli.run(["export", f"{MLP}:mlp_forward", *sizes, "--to", "cgc", "-o", out]) == 0
    path = f"{out}/mlp_forward.mlir"
    assert capsys.readouterr().out.split() == [path]
    assert cli.run(["import-cgc", path, "-o", out]) == 0
    assert capsys.readouterr().out.split() == [f"{out}/mlp_forward.ir"]
    assert cli.run(["compile", f"{out}/mlp_forward.ir", "--target", "hlsl", "-o", out]) == 0
    onnx.save(parse_model(MODELS["rotated"]), tmp_path / "m.onnx")
    assert cli.run(["export", f"{out}/m.onnx", "--to", "cgc", "-o", out]) == 0
    assert "cgc_op.rotary_embedding" in (tmp_path / "m.mlir").read_text("utf-8")
    capsys.readouterr()
    assert cli.run(["export", f"{out}/m.onnx", "--to", "mlir", "-o", out]) == 1
    assert "exported by --to cgc alone" in capsys.readouterr().err
    assert cli.run(["export", f"{out}/m.onnx", "--to", "cgc", "--dim", "N=1", "-o", out]) == 2
    assert "--dim says nothing of cgc" in capsys.readouterr().err
    (tmp_path / "b.mlir").write_bytes(b"ML\xefR\x0d")
    assert cli.run(["import-cgc", f"{out}/b.mlir"]) == 1
    assert "CGC's bytecode is not read" in capsys.readouterr().err
    assert cli.run(["import-cgc", "--operators"]) == 0
    assert capsys.readouterr().out.replace("\n", " ").strip() == ", ".join(cgc.list_operators())


def test_the_page_has_every_fact_and_its_source() -> None:
    page = (ROOT / "docs" / "how-to" / "cgc.md").read_text("utf-8")
    for fact, source in FACTS:
        assert f"| {fact} | {source} |" in page
