"""The text and JSON forms of the kernel IR: frozen for a packed, a nested, a tiled and a flat
kernel, and read back to equal kernels for all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.json import kernel_from_json, kernel_to_json
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.print import print_kernel
from dmlc.kernel.verify import verify_kernel
from dmlc.pipeline import describe_kernels, make_kernels
from dmlc.scalars import DataType
from dmlc.source import DmlcError, UnsupportedError
from tests.goldens import CASES, read_case
from tests.kernel.strategies import kernels

GOLDEN = Path(__file__).parents[1] / "golden"
TARGETS = [("opencl", "cpu", None), ("opencl", "gpu", None), ("hlsl", None, "6.2"),
           ("hlsl", None, "6.0")]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "profile"),
    [
        ("relu_grad_f32", "cpu"),
        ("relu_grad_f32", "gpu"),
        ("batch_norm_apply", "cpu"),
        ("add_transposed", "cpu"),
        ("bytes", "cpu"),
        ("doubles", "gpu"),
    ],
)
def test_kernel_text(case: str, profile: str, check_golden: Callable[[Path, str], None]) -> None:
    text = describe_kernels(read_case(case), "opencl", profile)
    check_golden(GOLDEN / f"{case}.{profile}.kernel", f"{text}\n")


def test_conversions_and_fixed_conditions_print() -> None:
    text = """func @f(%x: s32[8], %s: f32[1]) -> (%y) {
      %y: f32[i0 < 8] = add(cast(%x[i0], f32), %s[0])
    }"""
    printed = describe_kernels(ir.parse(text), "opencl", "cpu")
    assert "cast(x_value, f32x16)" in printed
    assert "broadcast(s_value, f32x16)" in printed


def read_back(kernel: k.Kernel) -> None:
    text = print_kernel(kernel)
    assert parse_kernel(text) == kernel
    assert print_kernel(parse_kernel(text)) == text
    assert kernel_from_json(kernel_to_json(kernel)) == kernel


@pytest.mark.grid(3)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("target", "profile", "model"), TARGETS)
def test_golden_kernels_are_read_back(
    case: str, target: str, profile: str | None, model: str | None
) -> None:
    try:
        _, made = make_kernels(read_case(case), target, profile, shader_model=model)
    except UnsupportedError:
        assert target == "hlsl"
        return
    for kernel in made:
        read_back(kernel)


@settings(max_examples=150, deadline=None)
@given(kernels())
def test_any_kernel_is_read_back(kernel: k.Kernel) -> None:
    verify_kernel(kernel, "test")
    read_back(kernel)


EVERYTHING = """\
kernel all.of {
  summary "y[i0] = \\"x\\""
  walk "each computes one element"
  apart "it takes several kernels"
  effort 1.5
  stages (y)
  pass (y, h)
  launch ceil(n / 8) groups of 8 in rows of 4, index s64
  buffer x: f32 read, 32 bytes
  buffer h: f16 write
  buffer part: s32[64] read_write
  scalar n: index = n
  scalar m: f32 = 3
  array own: f32[8]
  shared array tile: f64[8]
  let %group: index = group
  var sum: f32x4 = 0.0:f32x4
  for i in 0 .. n step 4 unroll {
    let wide: f32x4 = x[add(i, %group)]:f32x4
    set sum = add(sum, select(gt(wide, broadcast(m, f32x4)), wide, -inf:f32x4))
    store_local own[i] = sum
  }
  for j in 0 .. 4 backwards {
    store_local tile[lane] = cast(own[j], f64)
    barrier
  }
  for width in 0 .. 4 rolled {
    if and(lt(lane, width), true) {
      prefetch x[-1]
    }
  }
  let pair: f32x2 = extract(sum, [0, 3])
  let both: f32x4 = shuffle(join(own[0]:f32x2, own[2]:f32x2), sum, [0, 5, 2, 7])
  let places: indexx4 = indexx4(0, 1, -2, 3)
  var word: u32 = 4294967295:u32
  insert_half word[0] = own[lead(x, 64)] as h
  store_word h[lane] = word
  store part[lane] = cast(tile[0], s32) streaming where ge(n, 7)
}"""


def test_every_statement_and_expression() -> None:
    kernel = parse_kernel(EVERYTHING)
    assert print_kernel(kernel) == EVERYTHING
    read_back(kernel)
    assert kernel.summary == ('y[i0] = "x"',)
    assert kernel.launch == k.Launch("n", 8, 8, 4)
    assert kernel.body[0] == k.Let(k.Local("group", k.INDEX), k.Position(k.Geometry.GROUP))


def test_layout_and_comments_are_free() -> None:
    loose = (
        EVERYTHING.replace(": f32 = ", ":f32=\n")
        .replace("{\n", "{ // inside\n")
        .replace("0 ..", "0..")
    )
    assert parse_kernel(loose) == parse_kernel(EVERYTHING)


def test_names_that_are_numbered_yet() -> None:
    local = k.Local("a#1", k.Type(DataType.FLOAT32))
    body = (k.Let(local, k.Literal(local.type, 1.0)),)
    read_back(k.Kernel("f", (), (), k.Launch(1, 1, 1), body))


HEAD = "kernel f {\n  launch ceil(8 / 8) groups of 8, index u32\n  buffer x: f32 read\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("let a: f32 = x[i]", "unknown local 'i'"),
        ("let a: f32 = y[0]", "unknown buffer or array 'y'"),
        ("let a: f32 = x[]", "'x' is read at one position, and 0 are given"),
        ("let a: f32 = x[0, 1]", "'x' is read at one position, and 2 are given"),
        ("let a: f31 = 0.0", "unknown data type 'f31'"),
        ("let a: f32 = ad(1.0, 2.0)", "unknown operation 'ad'"),
        ("let a: f32 = add(1.0)", "'add' takes 2 operands, found 1"),
        ("let a: f32 = cast(1.0)", "expected ',', found ')'"),
        ("let a: f32 = shuffle(x[0])", "'shuffle' takes 2 operands, found 1"),
        ("let a: f32 = 1e60", "'1e60' is no FLOAT32"),
        ("set a = 0.0", "unknown local 'a'"),
        ("store_local x[0] = 0.0", "unknown array 'x'"),
        ("stroe x[0] = 0.0", "unknown statement 'stroe' [E0201]\n"),
        ("if true { let a: f32 = 1.0 } set a = 2.0", "unknown local 'a'"),
        ("for i in 0 .. 4 step n { }", "expected a step, found 'n'"),
        ("for i in 0 4 { }", "expected '..', found '4'"),
        ("buffer x: f32 read", "the name 'x' is taken"),
        ("array a: f32", "expected '[', found '}'"),
        ("buffer b: f32 red", "expected 'read', 'write' or 'read_write', found 'red'"),
        ("barrier } }", "expected the end of the text, found '}'"),
    ],
)
def test_refuses_broken_text(line: str, message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        parse_kernel(f"{HEAD}  {line}\n}}")
    (diagnostic,) = raised.value.diagnostics
    assert message in str(raised.value)
    assert diagnostic.span is not None
    assert diagnostic.span.line in (4, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 'kernel', found the end of the text"),
        ("kernel f { lunch }", "expected 'launch', found 'lunch'"),
        ('kernel f { walk "\\q" }', "this is no text as JSON has them"),
        ("kernel f { walk wide }", "expected a quoted text, found 'wide'"),
        ("kernel f { launch ceil(1 / 1) groups of 1, index u16 }", "'u64' or 's64', found 'u16'"),
    ],
)
def test_refuses_broken_heads(text: str, message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        parse_kernel(text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("launch", "count"), None, "the kernel, its launch: expected an integer or the name of"),
        (("body", 0, "op"), "lte", "the kernel, statement 0: unknown statement 'lte' [E0201]\n"),
        (("body", 0, "local", "type"), "f31",
         "the kernel, statement 0 (let), its local (local): expected a type such as 'f32'"),
        (("body", 2, "body", 0, "value", "index", "op"), "ad",
         "statement 2 (for), statement 0 (let), its value (load), its index: unknown operation"),
        (("body", 2, "body", 0, "value", "index", "operands"), [],
         "its index (add): expected 2 operands, found []"),
        (("body", 1, "value", "value"), "x", "its value (literal): expected a FLOAT32 for 'value'"),
        (("buffers", 0, "access"), "red", "buffer 'x': expected one of 'read', 'write', "),
        (("scalars", 0), [1], "expected pairs of a scalar and what it is for 'scalars', found [1]"),
        (("effort",), True, "the kernel: expected a float for 'effort', found True"),
    ],
)  # fmt: skip
def test_refuses_broken_json(path: tuple[str | int, ...], value: object, message: str) -> None:
    content = json.loads(kernel_to_json(parse_kernel(EVERYTHING)))
    inside = content
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    with pytest.raises(DmlcError) as raised:
        kernel_from_json(json.dumps(content))
    assert message in str(raised.value)
