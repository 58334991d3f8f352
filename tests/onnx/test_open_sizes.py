"""Models of ONNX whose sizes are left open: imported once, and run at several sizes."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import dmlc
from dmlc import cli
from dmlc.onnx.importing.nodes import OpenSizeError
from dmlc.source import DmlcError, UnsupportedError

Sizes = Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, and the sizes of its symbols that it is run at."""

    text: str
    sizes: Sequence[Sizes]
    checks: tuple[str, ...] = ()
    """What it takes to hold of its sizes."""
    version: int = 20


def parse(text: str, version: int = 20) -> onnx.ModelProto:
    head = f'<ir_version: 10, opset_import: ["": {version}, "com.microsoft": 1]>'
    return onnx.parser.parse_model(f"{head}\n{text}")


def draw(model: onnx.ModelProto, sizes: Sizes) -> dict[str, Any]:
    """Inputs of a model where symbols have these sizes."""
    generator = np.random.default_rng(0)
    given: dict[str, Any] = {}
    for declared in model.graph.input:
        dims = declared.type.tensor_type.shape.dim
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in dims]
        given[declared.name] = generator.standard_normal(shape).astype(np.float32)
    return given


def check(case: Case, device: str) -> None:
    """Imports a model once, and compares what it gives at each of the sizes with ONNX."""
    model = parse(case.text, case.version)
    found = dmlc.onnx.load(model)
    assert found.function.checks == case.checks
    for sizes in case.sizes:
        given = draw(model, sizes)
        with np.errstate(all="ignore"):
            expected: Any = ReferenceEvaluator(model).run(None, given)
        results = found.run(given, device=device)
        for declared, wanted in zip(model.graph.output, expected, strict=True):
            assert results[declared.name].shape == wanted.shape
            np.testing.assert_allclose(results[declared.name], wanted, 1e-4, 1e-5)


IMAGES = [{"N": 1, "H": 9, "W": 12}, {"N": 2, "H": 16, "W": 7}]
LINES = [{"N": 3, "T": 6}, {"N": 1, "T": 11}]

CASES = {
    "slice from both ends": Case("""
        g (float[N, T] x) => (float[a, b] y) {
            s = Constant <value_ints = [1]> () e = Constant <value_ints = [-1]> ()
            axis = Constant <value_ints = [1]> ()
            y = Slice (x, s, e, axis) }""", LINES, ("T >= 2", "T >= 3")),
    "slice in steps": Case("""
        g (float[N, T] x) => (float[a, b] y) {
            s = Constant <value_ints = [0, 1]> ()
            e = Constant <value_ints = [9223372036854775807, 2147483647]> ()
            axes = Constant <value_ints = [0, 1]> () steps = Constant <value_ints = [1, 3]> ()
            y = Slice (x, s, e, axes, steps) }""", LINES,
        ("2147418112 >= N", "2147418112 >= T", "T >= 2", "3 * ((T + 1) / 3) >= 2")),
    "slice backwards": Case("""
        g (float[N, T] x) => (float[a, b] y) {
            s = Constant <value_ints = [-1]> ()
            e = Constant <value_ints = [-9223372036854775807]> ()
            axis = Constant <value_ints = [1]> () steps = Constant <value_ints = [-2]> ()
            y = Slice (x, s, e, axis, steps) }""", LINES, ("2147418112 >= T",)),
    "slice up to a size": Case("""
        g (float[N, T] x, float[N, 20] z) => (float[a, b] y) {
            s = Constant <value_ints = [0]> () axis = Constant <value_ints = [1]> ()
            e = Shape <start = 1> (x)
            part = Slice (z, s, e, axis)
            y = Add (x, part) }""", LINES, ("20 >= T",)),
    "sizes as integers of 32 bits": Case("""
        g (float[N, T] x) => (int32[a] y, int32[b] z, float[N, T] w) {
            s = Shape (x) n = Cast <to = 6> (s)
            c = Constant <value_ints = [7]> () d = Cast <to = 6> (c)
            y = Concat <axis = 0> (n, d)
            z = Mul (n, n)
            zero = Constant <value_int = 0> () rows = Gather <axis = 0> (n, zero)
            whole = Cast <to = 6> (x) sum = Add (whole, rows) w = Cast <to = 1> (sum) }""", LINES),
    "split": Case("""
        g (float[N, T] x) => (float[a, b] y, float[a, c] z) {
            y, z = Split <axis = 1, num_outputs = 2> (x) }""", LINES,
        ("T >= ((T + 1) / 2) + 1",)),
    "global average": Case("""
        g (float[N, 2, H, W] x) => (float[a, b, c, d] y) { y = GlobalAveragePool (x) }""", IMAGES),
    "convolution, padded alike": Case("""
        g (float[N, 2, H, W] x, float[4, 2, 3, 3] w) => (float[a, b, c, d] y) {
            y = Conv <strides = [2, 3], auto_pad = "SAME_UPPER"> (x, w) }""", IMAGES),
    "pool, padded alike": Case("""
        g (float[N, 2, H, W] x) => (float[a, b, c, d] y) {
            y = AveragePool <kernel_shape = [3, 2], strides = [2, 2], auto_pad = "SAME_LOWER"> (x)
        }""", IMAGES),
    "pad and pool": Case("""
        g (float[N, 2, H, W] x) => (float[a, b, c, d] y) {
            pads = Constant <value_ints = [0, 0, 1, 0, 0, 0, 2, 1]> ()
            padded = Pad <mode = "edge"> (x, pads)
            small = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (padded)
            y = MaxPool <kernel_shape = [2, 2]> (small) }""", IMAGES, ("W >= 3",)),
    "interpolate": Case("""
        g (float[N, 2, H, W] x) => (float[a, b, c, d] y) {
            s = Constant <value_floats = [1.0, 1.0, 2.0, 0.5]> ()
            y = Resize <mode = "linear"> (x, , s) }""", IMAGES,
        ("2147418105 >= 4 * H", "2147418107 >= 4 * (W / 2)", "W >= 2")),
    "nearest": Case("""
        g (float[N, 2, H, W] x) => (float[a, b, c, d] y) {
            s = Constant <value_floats = [1.0, 1.0, 1.5, 0.75]> ()
            y = Resize <nearest_mode = "ceil"> (x, , s) }""", IMAGES,
        ("2147418101 >= 4 * (H / 2) + 4 * H", "2147418099 >= 8 * (3 * W / 4)", "3 * W >= 4")),
    "cubic": Case("""
        g (float[N, 1, H, W] x) => (float[a, b, c, d] y) {
            s = Constant <value_floats = [1.0, 1.0, 2.0, 1.0]> ()
            y = Resize <mode = "cubic"> (x, , s) }""", IMAGES, ("2147418105 >= 4 * H",)),
    "resize to sizes": Case("""
        g (float[N, 1, H, W] x, float[P, Q] z) => (float[a, b, c, d] y) {
            s = Shape (z)
            y = Resize <mode = "linear", axes = [2, 3],
                        coordinate_transformation_mode = "align_corners"> (x, , , s) }""",
        [{**IMAGES[0], "P": 4, "Q": 5}, {**IMAGES[1], "P": 20, "Q": 14}],
        ("P >= 2", "2147418114 >= H * P + P", "2147418114 >= 2 * P", "Q >= 2",
         "2147418114 >= Q * W + Q", "2147418114 >= 2 * Q")),
    "sizes that meet": Case("""
        g (float[N, T] x, float[M, T] z, float[S, 4] w) => (float[a, b] y) {
            sum = Add (x, z)
            y = MatMul (sum, w) }""",
        [{"N": 2, "M": 2, "T": 5, "S": 5}, {"N": 3, "M": 3, "T": 2, "S": 2}]),
    "a bridge over a pool": Case("""
        g (float[N, 1, T] x) => (float[a, b, c] y) {
            s = Constant <value_floats = [1.0, 1.0, 2.0]> ()
            small = MaxPool <kernel_shape = [2], strides = [2]> (x)
            large = Resize (small, , s)
            y = Concat <axis = 1> (large, x) }""", [{"N": 1, "T": 8}, {"N": 2, "T": 6}],
        ("2147418105 >= 4 * (T / 2)", "2 * (T / 2) == T", "T >= 2", "2 * (T / 2) >= 1")),
    "reshape by sizes": Case("""
        g (float[N, T, 6] x) => (float[a, b, c, d] y) {
            zero = Constant <value_int = 0> () minus = Constant <value_ints = [-1]> ()
            shape = Shape (x) count = Gather (shape, zero)
            axes = Constant <value_ints = [0]> () own = Unsqueeze (count, axes)
            heads = Constant <value_ints = [2]> ()
            target = Concat <axis = 0> (own, minus, heads, heads)
            y = Reshape (x, target) }""", [{"N": 2, "T": 4}, {"N": 5, "T": 2}],
        ("2 * T == 4 * (T / 2)", "4 * (T / 2) * N == 2 * N * T")),
    "a range": Case("""
        g (float[N, T] x) => (float[a, b] y) {
            zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
            shape = Shape (x) count = Gather (shape, one)
            places = Range (zero, count, one)
            numbers = Cast <to = 1> (places)
            y = Add (x, numbers) }""", LINES),
    "sizes as numbers": Case("""
        g (float[N, T] x) => (float[a] y) {
            shape = Shape (x)
            numbers = Cast <to = 1> (shape)
            y = Sqrt (numbers) }""", LINES),
    "tile by sizes": Case("""
        g (float[N, T] x) => (float[a, b] y) {
            one = Constant <value_ints = [1]> () count = Shape <end = 1> (x)
            times = Concat <axis = 0> (one, count)
            y = Tile (x, times) }""", LINES),
    "sizes in another order": Case("""
        g (float[N, T] x) => (float[a, b] y) {
            shape = Shape (x) column = Constant <value_ints = [2, 1]> ()
            rows = Reshape (shape, column) row = Transpose (rows)
            back = Constant <value = int64[1, 2] {1, 0}> ()
            turned = GatherElements <axis = 1> (row, back)
            zero = Constant <value_ints = [0]> () sizes = Squeeze (turned, zero)
            zeros = ConstantOfShape (sizes) wide = Transpose (x) y = Add (wide, zeros) }""", LINES),
    "conditions of sizes": Case("""
        g (float[N, T] x) => (float[a, b] y) {
            zero = Constant <value_int = 0> () shape = Shape (x) count = Gather (shape, zero)
            full = Greater (count, zero)
            y = If (full) <then_branch = one () => (float[N, T] p) { p = Relu (x) },
                           else_branch = other () => (float[N, T] q) { q = Neg (x) }> }""", LINES),
    "expand by a choice of sizes": Case("""
        g (float[1, T] x, float[N, T] z) => (float[a, b] y) {
            shape = Shape (z) minus = Constant <value_int = -1> ()
            ones = Constant <value_ints = [1, 1]> ()
            given = Equal (shape, minus)
            target = Where (given, ones, shape)
            y = Expand (x, target) }""", LINES),
}  # fmt: skip


STEPS = [{"T": 5, "B": 1}, {"T": 20, "B": 3}]

RECURRENT = {
    "LSTM": Case("""
        g (float[T, B, 3] x, float[1, 16, 3] w, float[1, 16, 4] r, float[1, 32] b)
        => (float[a, b1, c, d] y, float[e, f, g1] h, float[i, j, k] m) {
            y, h, m = LSTM <hidden_size = 4> (x, w, r, b) }""", STEPS),
    "GRU": Case("""
        g (float[T, B, 3] x, float[1, 12, 3] w, float[1, 12, 4] r)
        => (float[a, b1, c, d] y, float[e, f, g1] h) {
            y, h = GRU <hidden_size = 4> (x, w, r) }""", STEPS),
    "RNN over a pool": Case("""
        g (float[B, 3, T] x, float[1, 4, 3] w, float[1, 4, 4] r)
        => (float[a, b1, c, d] y) {
            small = MaxPool <kernel_shape = [2], strides = [2]> (x)
            turned = Transpose <perm = [2, 0, 1]> (small)
            y, h = RNN <hidden_size = 4> (turned, w, r) }""", STEPS, ("T >= 2",)),
}  # fmt: skip


@pytest.mark.parametrize("name", RECURRENT)
def test_sequences_of_open_length(name: str) -> None:
    check(RECURRENT[name], "opencl")


def test_long_sequences_are_loops() -> None:
    """What is longer than can be laid out is a loop whatever else is open; both directions and
    lengths of their own give what steps do that are laid out."""
    text = """
        g (float[STEPS, 2, 3] x, float[2, 16, 3] w, float[2, 16, 4] r, int32[2] lengths)
        => (float[a, b, c, d] y, float[e, f, g1] h) {
            y, h = LSTM <hidden_size = 4, direction = "bidirectional"> (x, w, r, , lengths) }"""
    generator = np.random.default_rng(0)
    given = {
        "x": generator.standard_normal((300, 2, 3)).astype(np.float32),
        "w": generator.standard_normal((2, 16, 3)).astype(np.float32),
        "r": generator.standard_normal((2, 16, 4)).astype(np.float32),
        "lengths": np.array([4, 2], np.int32),
    }
    long = dmlc.onnx.load(parse(text.replace("STEPS", "300")))
    assert len(long.function.loops) == 2
    short = dmlc.onnx.load(parse(text.replace("STEPS", "4")))
    assert not short.function.loops
    found = long.run(given, device="reference")
    wanted = short.run({**given, "x": given["x"][:4]}, device="reference")
    np.testing.assert_allclose(found["y"][:4], wanted["y"], 1e-6, 1e-6)
    assert not found["y"][4:].any()
    np.testing.assert_allclose(found["h"], wanted["h"], 1e-6, 1e-6)


def test_recurrent_operators_are_compiled_for_all_lengths() -> None:
    found = dmlc.onnx.load(parse(RECURRENT["GRU"].text)).function
    program = dmlc.compile(found, "hlsl")
    assert [repeat.steps for repeat in program.repeats] == ["T"]
    assert program.manifest()["repeats"][0]["steps"] == "T"
    alone = RECURRENT["LSTM"].text.replace("T, B, 3", "T, 1, 3")
    program = dmlc.compile(dmlc.onnx.load(parse(alone)).function, "hlsl")
    assert not program.repeats
    assert any("all T steps" in kernel.source for kernel in program.kernels)
    given = draw(parse(RECURRENT["GRU"].text), STEPS[0])
    given["r"] = given["r"][:, :, :3]
    with pytest.raises(DmlcError, match="axis 2 of r has 4 elements"):
        dmlc.run(found, given)


REFUSED = {
    "if": ("""
        g (float[N, T] x) => (float[a, b] y) {
            zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
            shape = Shape (x) count = Gather (shape, zero)
            single = Equal (count, one)
            y = If (single) <then_branch = one () => (float[N, T] p) { p = Relu (x) },
                             else_branch = other () => (float[N, T] q) { q = Neg (x) }> }""",
        "the condition of an If must be known when the model is imported, and depends on N",
        ("N",)),
    "transform": ("""
        g (float[N, T, 1] x) => (float[a, b, c] y) { y = DFT <axis = 1> (x) }""",
        "the size of its axis is T, which is left open", ("T",)),
    "windows with gaps": ("""
        g (float[N, 1, T] x) => (float[a, b, c] y) {
            y = MaxPool <kernel_shape = [2], strides = [3], auto_pad = "SAME_UPPER"> (x) }""",
        "the padding of strides of 3 over windows of 2 depends on a size left open", ("T",)),
    "resize": ("""
        g (float[N, 1, T] x) => (float[a, b, c] y) {
            s = Constant <value_floats = [1.0, 1.0, 2.0]> ()
            y = Resize <mode = "linear", antialias = 1> (x, , s) }""",
        r"antialias and exclude_outside of an axis of T that becomes 2 \* T", ("T",)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_number_names_the_size(name: str, tmp_path: Path) -> None:
    """And proposes the command, which then works."""
    text, message, symbols = REFUSED[name]
    model = parse(text, 17 if name == "transform" else 20)
    with pytest.raises(OpenSizeError, match=message) as refused:
        dmlc.onnx.load(model)
    assert refused.value.symbols == symbols
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    with pytest.raises(OpenSizeError) as refused:
        dmlc.onnx.load(path)
    last = refused.value.diagnostics[0].notes[-1].message
    assert last.endswith(f"dmlc import-onnx {path} --dim {symbols[0]}=1")
    assert cli.run([*shlex.split(last)[-4:]]) == 0


def test_an_if_names_the_input_that_decides(tmp_path: Path) -> None:
    model = parse("""
        g (float[N] x, bool full) => (float[a] y) {
            y = If (full) <then_branch = one () => (float[N] p) { p = Relu (x) },
                           else_branch = other () => (float[N] q) { q = Neg (x) }> }""")
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    with pytest.raises(dmlc.onnx.UnknownValueError, match="is made of the input full") as refused:
        dmlc.onnx.load(path)
    assert "--constant full=full.npy" in refused.value.diagnostics[0].notes[-1].message
    found = dmlc.onnx.load(path, constants={"full": np.array(True)})
    x = np.array([1, -2], np.float32)
    assert found.run({"x": x}, device="reference")["y"].tolist() == [1, 0]


def test_an_if_that_data_decides_is_refused() -> None:
    """To fix the data would not be of use: no constant is proposed."""
    model = parse("""
        g (float[2, 3] x) => (float[2, 3] y) {
            most = ReduceMax <keepdims = 0> (x) zero = Constant <value_float = 0.0> ()
            full = Greater (most, zero)
            y = If (full) <then_branch = one () => (float[2, 3] p) { p = Relu (x) },
                           else_branch = other () => (float[2, 3] q) { q = Neg (x) }> }""")
    with pytest.raises(UnsupportedError, match="follows from the data of the input x") as refused:
        dmlc.onnx.load(model)
    assert "--constant" not in str(refused.value)


def test_sizes_are_checked() -> None:
    found = dmlc.onnx.load(parse(CASES["a bridge over a pool"].text))
    with pytest.raises(DmlcError, match="was made for sizes where"):
        found.run({"x": np.zeros((1, 1, 7), np.float32)}, device="reference")
    model = parse(CASES["sizes that meet"].text)
    given, met = draw(model, {"N": 2, "M": 3, "T": 3, "S": 3}), dmlc.onnx.load(model)
    with pytest.raises(DmlcError, match="the size 'M' is 2"):
        met.run(given, device="reference")


def test_sizes_without_names_are_sizes_of_their_own() -> None:
    """Exporters write -1 and `?` for them."""
    model = parse("g (float[A, B] x) => (float[a, b] y) { y = Relu (x) }")
    first, second = model.graph.input[0].type.tensor_type.shape.dim
    first.dim_value, second.dim_param = -1, "?"
    assert dmlc.onnx.load(model).function.parameters[0].extents == ("x_0", "x_1")


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_open(name: str) -> None:
    check(CASES[name], "opencl")
