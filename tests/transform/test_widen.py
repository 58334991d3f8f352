"""Booleans between stages as numbers, for languages whose buffers hold none; and positions in 32
bits, for those without more."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel.interpret import run_kernels
from dmlc.pipeline import compile, make_kernels
from dmlc.reference import evaluate
from dmlc.transform.storage import narrow_positions, widen_booleans

TEXT = """func @f(%X: f32[6, 5]) -> (%Y) {{
  %some: boolean[i0 < 6] = {0} gt(%X[i0, r1], 0.5)
  %Y: f32[i0 < 6, i1 < 5] = select(%some[i0], %X[i0, i1], 0.0)
}}"""


@pytest.mark.parametrize("combiner", ["any", "all"])
@pytest.mark.parametrize("where", ["", " where lt(%X[i0, r1], 2.0)", " where isnan(%X[i0, r1])"])
def test_the_same_values(combiner: str, where: str) -> None:
    function = ir.parse(TEXT.format(f"{combiner}[r1 < 5{where}]"))
    widened = widen_booleans(function)
    ir.verify(widened, "widen_booleans")
    assert [s.dtype.short for s in widened.stages] == ["u32", "f32"]
    x = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    x[0] = 1
    assert np.array_equal(evaluate(widened, {"X": x})["Y"], evaluate(function, {"X": x})["Y"])


def test_results_and_functions_without_booleans_stay() -> None:
    result = ir.parse("func @f(%X: f32[5]) -> (%Y) { %Y: boolean[] = any[r0 < 5] gt(%X[r0], 0.5) }")
    assert widen_booleans(result) is result


def test_element_wise_booleans() -> None:
    function = ir.parse("""func @f(%X: f32[5]) -> (%Y) {
      %p: boolean[i0 < 5] = gt(%X[i0], 0.5)
      %Y: f32[i0 < 5] = select(%p[i0], %X[sub(4, i0)], 0.0)
    }""")
    widened = widen_booleans(function)
    ir.verify(widened, "widen_booleans")
    assert [s.dtype.short for s in widened.stages] == ["u32", "f32"]
    x = np.float32([0, 1, 2, 0.25, 4])
    assert np.array_equal(evaluate(widened, {"X": x})["Y"], evaluate(function, {"X": x})["Y"])


@pytest.mark.parametrize("target", ["opencl", "hlsl", "wgsl"])
def test_what_fusion_stores_has_a_type_that_buffers_hold(target: str) -> None:
    steps = "v0 = %X[i0]\n" + "\n".join(
        f"v{n + 1} = max(mul(v{n}, 0.5), %W[i0])" for n in range(40)
    )
    function = ir.parse(f"""func @f(%X: f32[5], %W: f32[5]) -> (%Y) {{
      %p: boolean[i0 < 5] = {{
        {steps}
        gt(v40, 0.5)
      }}
      %Y: f32[i0 < 5] = select(and(%p[i0], %p[sub(4, i0)]), %X[i0], 0.0)
    }}""")
    fused, kernels = make_kernels(function, target, "gpu")
    assert len(kernels) == 2
    held = find_dialect(target).storage
    assert all(isinstance(held[b.dtype], str) for kernel in kernels for b in kernel.buffers)
    assert len(compile(function, target, "gpu").kernels) == 2
    x, w = np.float32([0, 1, 2, 0.25, 4]), np.float32([1, 0, 2, 0.25, 3])
    got = run_kernels(fused, kernels, {"X": x, "W": w})["Y"]
    assert np.array_equal(got, evaluate(function, {"X": x, "W": w})["Y"])


# Positions --------------------------------------------------------------------------------------

PLACES = """func @f(%x: f32[4, 9], %u: f32[3, 9]) -> (%y, %z) {
  table %i: s64[3] = {1, -4, 2}
  table %j: u64[2] = {3, 0}
  %first: s64[i0 < 4] = argmax[r0 < 9] %x[i0, r0]
  %y: f32[i0 < 4, i1 < 9] = cast(eq(cast(%first[i0], index), i1), f32)
  %z: f32[i0 < 4, i1 < 9] = sum[r0 < 3] {
    v0 = cast(%i[r0], index)
    where eq(select(lt(v0, 0), add(v0, 4), v0), i0)
    mul(%u[r0, i1], %x[cast(%j[mod(r0, 2)], index), i1])
  }
}"""


def test_positions_are_held_in_32_bits() -> None:
    """Hardmax, and a scatter with constant indices, as ONNX has them."""
    function = ir.parse(PLACES)
    narrowed = narrow_positions(function)
    ir.verify(narrowed, "narrow_positions", function)
    assert [t.dtype.short for t in narrowed.tables] == ["s32", "s32"]
    assert [s.dtype.short for s in narrowed.stages] == ["s32", "f32", "f32"]
    source = np.random.default_rng(0)
    given = {"x": source.standard_normal((4, 9)), "u": source.standard_normal((3, 9))}
    inputs = {name: array.astype(np.float32) for name, array in given.items()}
    inputs["x"][2] = np.nan
    wanted = evaluate(function, inputs)
    fused, kernels = make_kernels(function, "wgsl")
    for found in (evaluate(narrowed, inputs), run_kernels(fused, kernels, inputs)):
        assert all(np.array_equal(found[name], array) for name, array in wanted.items())
    assert compile(function, "wgsl").tensors


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{1, -4, 2}", "{1, 2147483648, 2}"),
        ("cast(%i[r0], index)", "cast(add(%i[r0], 1:s64), index)"),
        ("-> (%y, %z)", "-> (%y, %z, %first)"),
        ("r0 < 9] %x[i0, r0]", "r0 < 2147483649] %x[i0, mod(r0, 9)]"),
        ("mul(%u[r0, i1]", "mul(cast(%j[0], f32)"),
    ],
)
def test_what_is_more_than_a_position_stays(before: str, after: str) -> None:
    assert before in PLACES
    narrowed = narrow_positions(ir.parse(PLACES.replace(before, after)))
    kinds = [t.dtype.short for t in (*narrowed.tables, *narrowed.stages) if not t.dtype.is_float]
    assert len([kind for kind in kinds if kind == "s32"]) == 2
    assert narrow_positions(narrowed) is narrowed
