"""Which programs a host may run on one stretch of their tensors after another."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.codegen.render import is_elementwise
from dmlc.pipeline import compile


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("func @f(%X: f32[n]) -> (%Y) {\n  %Y: f32[i0 < n] = add(%X[i0], 1.0)\n}", True),
        (
            "func @f(%X: f32[n], %Z: s32[n]) -> (%Y) {\n  %T: f32[i0 < n] = exp(%X[i0])\n"
            "  %Y: f16[i0 < n] = mul(%T[i0], cast(%Z[i0], f32))\n}",
            True,
        ),
        ("func @f(%X: f32[8]) -> (%Y) {\n  %Y: f32[i0 < 8] = add(%X[i0], 1.0)\n}", False),
        ("func @f(%X: f32[]) -> (%Y) {\n  %Y: f32[] = add(%X[], 1.0)\n}", False),
        ("func @f(%X: f32[n]) -> (%Y) {\n  %Y: f32[i0 < n] = cast(i0, f32)\n}", False),
        (
            "func @f(%X: f32[n]) -> (%Y) {\n  %Y: f32[i0 < n] = add(%X[i0], cast(i0, f32))\n}",
            False,
        ),
        (
            "func @f(%X: f32[n], %Z: f32[4]) -> (%Y) {\n  %Y: f32[i0 < n] = add(%X[i0], %Z[1])\n}",
            False,
        ),
        ("func @f(%X: f32[n]) -> (%Y) {\n  %Y: s64[i0 < n] = cast(i0, s64)\n}", False),
        ("func @f(%X: f32[n]) -> (%Y) {\n  %Y: f32[] = sum[r0 < n] %X[r0]\n}", False),
        ("func @f() -> () {\n}", False),
    ],
)
def test_elementwise(text: str, expected: bool) -> None:
    assert is_elementwise(ir.parse(text)) == expected


def test_the_manifest_says_so() -> None:
    text = "func @f(%X: f32[{0}]) -> (%Y) {{\n  %Y: f32[i0 < {0}] = add(%X[i0], 1.0)\n}}"
    for extent, expected in (("n", True), ("8", False)):
        program = compile(ir.parse(text.format(extent)), "hlsl")
        assert program.elementwise == expected
        assert program.manifest()["elementwise"] == expected
