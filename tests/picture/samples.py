"""Functions to draw."""

from __future__ import annotations

from pathlib import Path

import dmlc
from dmlc import ir
from dmlc.pipeline import explain
from dmlc.report import Report

GRAPHS = Path(__file__).resolve().parent.parent.parent / "examples" / "graphs"

SMALL = """func @smooth(%X: f32[64, 32], %bias: f32[32]) -> (%Y) {
  %m: f32[i0 < 64] = max[r1 < 32] %X[i0, r1]
  %e: f32[i0 < 64, i1 < 32] = exp(sub(%X[i0, i1], %m[i0]))
  %s: f32[i0 < 64] = sum[r1 < 32] %e[i0, r1]
  %Y: f32[i0 < 64, i1 < 32] = add(div(%e[i0, i1], %s[i0]), %bias[i1])
}"""

SHIFTED = """func @shifted(%X: f32[64, 32]) -> (%Z) {
  %t: f32[i0 < 64, i1 < 32] = exp(%X[i0, i1])
  %s: f32[i0 < 1] = sum[r0 < 64, r1 < 32] %t[r0, r1]
  %Y: f32[i0 < 64, i1 < 32] = mul(%t[i0, i1], %s[0])
  %Z: f32[i0 < 64] = sum[r1 < 3 where lt(add(i0, r1), 64)] %Y[add(i0, r1), 0]
}"""

INDEX_ONLY = """func @diagonal() -> (%Y) {
  %Y: f32[i0 < 3, i1 < 3] = select(eq(i0, i1), 1.0, 0.0)
}"""

OPEN = "func @negate(%X: f32[n]) -> (%Y) { %Y: f32[i0 < n] = neg(%X[i0]) }"


def load_graph(name: str) -> dmlc.Graph:
    return dmlc.load(GRAPHS / f"{name}.dml").graphs[name]


def explain_residual() -> Report:
    dims = {"N": 32, "C": 64, "H": 56, "W": 56}
    return explain(load_graph("residual_block_backward").bind(dims=dims))


def make_chain(count: int, outputs: int = 1) -> ir.Function:
    """Element-wise stages, each of which reads the one before it and an input."""
    lines = [
        f"%s{n}: f32[i0 < 8] = add(%{f's{n - 1}' if n else 'x'}[i0], %y[i0])" for n in range(count)
    ]
    results = ", ".join(f"%s{count - 1 - n}" for n in range(outputs))
    return ir.parse(
        f"func @chain(%x: f32[8], %y: f32[8]) -> ({results}) {{\n" + "\n".join(lines) + "\n}"
    )
