"""Strides that are made of symbols: the layout of a tensor whose sizes are known at run time."""

from __future__ import annotations

import numpy as np
import pytest

import dmlc
from dmlc import compiler, ir
from dmlc.source import DmlcError, UnsupportedError

CHANNELS_LAST = """func @scale(%x: f32[N, C, H]{C * H, 1, C}, %w: f32[C]) -> (%y{C * H, 1, C}) {
  %y: f32[i0 < N, i1 < C, i2 < H] = mul(%x[i0, i1, i2], %w[i1])
}"""


def parse(tensor: str, result: str = "%y", checks: str = "") -> ir.Function:
    head = f"func @f(%x: {tensor}) -> ({result}){checks}"
    return ir.parse(f"{head} {{\n  %y: f32[i0 < N, i1 < C] = %x[i0, i1]\n}}")


def test_text_and_json_have_them() -> None:
    function = ir.parse(CHANNELS_LAST)
    ir.verify(function)
    assert str(function) == CHANNELS_LAST
    assert function.parameters[0].strides == ("C * H", 1, "C")
    assert ir.from_json(ir.to_json(function)) == function
    assert ir.parse("func @f(%x: f32[2]{  2 * 1 }) -> (%y) { %y: f32[i0 < 2] = %x[i0] }") == (
        ir.parse("func @f(%x: f32[2]{2}) -> (%y) { %y: f32[i0 < 2] = %x[i0] }")
    )


def test_those_of_any_tensor() -> None:
    function = ir.parse(CHANNELS_LAST)
    assert function.strides("x") == function.strides("y") == ("C * H", 1, "C")
    assert function.strides("w") == (1,)
    assert parse("f32[N, C]").strides("y") == ("C", 1)
    with pytest.raises(dmlc.UnknownNameError, match="unknown tensor 'z'"):
        function.strides("z")


def test_numbers_take_their_place() -> None:
    settled = ir.specialize(ir.parse(CHANNELS_LAST), {"N": 2, "C": 3, "H": 5})
    ir.verify(settled)
    assert settled.parameters[0].strides == settled.results[0].strides == (15, 1, 3)
    x = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    w = np.array([1, -1, 2], np.float32)
    for function in (settled, ir.parse(CHANNELS_LAST)):
        found = compiler.evaluate(function, {"x": x, "w": w})["y"]
        assert np.array_equal(found, x * w[:, None])
    assert np.array_equal(dmlc.run(settled, {"x": x, "w": w})["y"], x * w[:, None])


@pytest.mark.parametrize(
    ("tensor", "result", "message"),
    [
        ("f32[N, C]{C}", "%y", "at %x: it has strides for 1 axes, not 2"),
        ("f32[N, C]{K, 1}", "%y", "at %x: no axis of a parameter has the size 'K' by itself"),
        ("f32[N, C]", "%y{K, 1}", "at result %y: 'K' is no parameter's size"),
        ("f32[N, C]", "%y{N, 1}", "at result %y: its elements overlap in memory"),
        ("f32[N, C]", "%y{1, C}", "at result %y: its elements overlap in memory"),
        ("f32[N, C]", "%y{C - 1, 1}", "at result %y: its elements overlap in memory"),
        ("f32[N, C]", "%y{0, 1}", "at result %y: its elements overlap in memory"),
    ],
)
def test_refuses(tensor: str, result: str, message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        parse(tensor, result)
    assert message in str(raised.value)


@pytest.mark.parametrize("strides", ["C, 1", "1, N", "2 * C, 2", "C + 3, 1", "C * N, N"])
def test_takes_layouts_that_never_overlap(strides: str) -> None:
    function = parse("f32[N, C]", f"%y{{{strides}}}")
    assert ", ".join(map(str, function.results[0].strides or ())) == strides


def test_only_spelled_as_sizes_are() -> None:
    parameter = ir.Parameter("x", ir.DataType.FLOAT32, ("N", "C"), ("1*C", 1))
    body = ir.BodyBuilder()
    stage = ir.Stage("y", ir.DataType.FLOAT32, ("N", "C"), body.make(body.read(parameter)))
    fault = ir.find_fault(ir.Function("f", (parameter,), (stage,), (ir.Result("y"),)))
    assert fault is not None
    assert fault.why == "of a stride, '1*C' is written 'C'"


def test_one_layout_may_be_shared() -> None:
    def share(tensor: str, result: str) -> ir.Function:
        return parse(tensor, result, " in place (%y over %x)")

    assert share("f32[N, C]{1, N}", "%y{1, N}").in_place == (("y", "x"),)
    assert share("f32[N, C]{C, 1}", "%y").in_place == (("y", "x"),)
    for tensor, result in (("f32[N, C]{1, N}", "%y"), ("f32[N, C]", "%y{1, N}")):
        with pytest.raises(DmlcError, match="they differ in type, extents or strides"):
            share(tensor, result)


def test_passes_keep_them() -> None:
    function = ir.parse(CHANNELS_LAST)
    fusion = compiler.fuse(compiler.rewrite(function))
    assert fusion.function.results == function.results
    assert fusion.function.parameters == function.parameters


@pytest.mark.parametrize(
    "text",
    [CHANNELS_LAST, "func @f(%x: f32[n]{2}) -> (%y) {\n  %y: f32[i0 < n] = neg(%x[i0])\n}"],
)
def test_kernels_refuse_them(text: str) -> None:
    function = ir.parse(text)
    assert function.run_symbol() is None
    with pytest.raises(UnsupportedError) as raised:
        dmlc.compile(function)
    first = raised.value.diagnostics[0]
    shown = "C * H, 1, C" if function.name == "scale" else "2"
    assert first.message == (
        f"tensor 'x' has the strides {{{shown}}} and a size that is left open: kernels take such "
        "tensors packed"
    )
    (note,) = first.notes
    assert note.message == "give its sizes, as ir.specialize does, or leave its strides out"
