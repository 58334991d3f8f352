"""Weights that are summed before they meet what they weigh."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dmlc import ir
from dmlc.reference import evaluate
from dmlc.transform.weigh import sum_weights

CLAMPED = """func @clamped(%X: f32[6], %W: f32[5]) -> (%Y) {
  %Y: f32[i0 < 4] = sum[r0 < 6, r1 < 3] {
    v0 = mul(cast(add(r0, r1), f32), 0.5)
    where eq(min(max(sub(add(r0, r1), 2), 0), 3), i0)
    mul(%X[r0], v0)
  }
}"""

PLANE = """func @plane(%X: f32[5, 6], %W: f32[5]) -> (%Y) {
  %Y: f32[i0 < 3, i1 < 2] = sum[r0 < 5, r1 < 6, r2 < 2, r3 < 3] {
    v0 = cast(add(r2, r0), f32)
    v1 = cast(sub(r3, 1), f32)
    where and(and(eq(div(add(r0, r2), 2), i0), eq(mod(add(r1, r3), 2), i1)), gt(%X[r0, r1], 0.1))
    mul(mul(v0, mul(%X[r0, r1], v1)), v0)
  }
}"""

TOGETHER = """func @together(%X: f32[4], %W: f32[5]) -> (%Y) {
  %Y: f32[i0 < 4] = sum[r0 < 4, r1 < 3, r2 < 3] {
    where and(lt(add(r1, r2), i0), le(r1, r0))
    mul(%X[r0], cast(add(r2, 1), f32))
  }
}"""

COUNTED = """func @counted(%X: f32[4], %W: f32[5]) -> (%Y) {
  %Y: f32[i0 < 4] = sum[r0 < 4, r1 < 3] {
    where le(r1, i0)
    %X[r0]
  }
}"""

ALL = """func @all(%X: f32[4], %W: f32[5]) -> (%Y) {
  %Y: f32[i0 < 4] = sum[r0 < 3] {
    where le(r0, i0)
    mul(%X[i0], cast(r0, f32))
  }
}"""


def separate(text: str) -> tuple[ir.Function, ir.Function]:
    """A function, and the same with the weights of its stage summed first."""
    function = ir.parse(text)
    numbers = itertools.count()
    (stage,) = function.stages
    made = function.with_stages(sum_weights(stage, lambda: f"w{next(numbers)}"))
    ir.verify(made)
    return function, made


@pytest.mark.parametrize(
    ("text", "domains", "axes"),
    [
        (CLAMPED, [(4, 6)], ((0, 6),)),
        (PLANE, [(3, 5), (2, 6)], ((0, 5), (1, 6))),
        (TOGETHER, [(4, 4)], ((0, 4),)),
        (COUNTED, [(4,)], ((0, 4),)),
        (ALL, [(4,)], ()),
    ],
)
def test_weights_come_first(
    text: str, domains: list[tuple[int, ...]], axes: tuple[tuple[int, int], ...]
) -> None:
    function, made = separate(text)
    *weights, total = made.stages
    assert [stage.extents for stage in weights] == domains
    assert not any(stage.body.loads() for stage in weights)
    assert total.reduction == ir.Reduction("sum", axes)
    random = np.random.default_rng(0)
    sizes = {p.name: tuple(e for e in p.extents if isinstance(e, int)) for p in made.parameters}
    inputs = {name: random.standard_normal(s).astype(np.float32) for name, s in sizes.items()}
    expected, found = evaluate(function, inputs)["Y"], evaluate(made, inputs)["Y"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_what_no_weight_is_for_stays_out() -> None:
    _, made = separate(CLAMPED)
    x = np.array([np.nan, 1, 1, 1, 1, 1], np.float32)
    found = evaluate(made, {"X": x, "W": np.zeros(5, np.float32)})["Y"]
    assert np.isnan(found).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    "stage",
    [
        # Every axis is one along which a tensor is read.
        "%Y: f32[i0 < 4] = sum[r0 < 5] mul(%W[r0], cast(add(i0, r0), f32))",
        "%Y: f32[i0 < 4] = sum[r0 < 4, r1 < 5] mul(%X[r0], add(%W[r1], cast(r1, f32)))",
        # A condition on what is read.
        "%Y: f32[i0 < 4] = sum[r0 < 4] { where gt(%X[i0], cast(r0, f32)) 1.0 }",
        # The largest of products is no product of the largest.
        "%Y: f32[i0 < 4] = max[r0 < 4, r1 < 3] mul(%X[r0], cast(r1, f32))",
        # Too many weights to be known at compile time.
        "%Y: f32[i0 < 3000] = sum[r0 < 4, r1 < 3000] mul(%X[r0], cast(add(i0, r1), f32))",
        # Integers.
        "%Y: s32[i0 < 4] = sum[r0 < 4, r1 < 3] cast(r1, s32)",
    ],
)
def test_others_stay(stage: str) -> None:
    function, made = separate(f"func @one(%X: f32[4], %W: f32[5]) -> (%Y) {{ {stage} }}")
    assert made == function
