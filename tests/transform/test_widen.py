"""Booleans between stages as numbers, for languages whose buffers hold none."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel.interpret import run_kernels
from dmlc.pipeline import compile, make_kernels
from dmlc.reference import evaluate
from dmlc.transform.storage import widen_booleans

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
