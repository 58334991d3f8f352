"""Booleans between stages as numbers, for languages whose buffers hold none."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
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


def test_element_wise_booleans_stay() -> None:
    text = """func @f(%X: f32[5]) -> (%Y) {
      %p: boolean[i0 < 5] = gt(%X[i0], 0.5)
      %Y: f32[i0 < 5] = select(%p[i0], 1.0, 0.0)
    }"""
    function = ir.parse(text)
    assert widen_booleans(function) is function
