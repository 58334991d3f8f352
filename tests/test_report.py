"""The report of fusion: bytes before and after, the kernels, and that JSON holds it."""

from __future__ import annotations

import json

from dmlc import ir
from dmlc.pipeline import compile, explain
from dmlc.transform.traffic import Move

SOFTMAX = """func @f(%X: f32[64, 32]) -> (%Y) {
  %m: f32[i0 < 64] = max[r1 < 32] %X[i0, r1]
  %e: f32[i0 < 64, i1 < 32] = exp(sub(%X[i0, i1], %m[i0]))
  %s: f32[i0 < 64] = sum[r1 < 32] %e[i0, r1]
  %Y: f32[i0 < 64, i1 < 32] = div(%e[i0, i1], %s[i0])
}"""


def test_a_report_says_what_each_kernel_computes_and_moves() -> None:
    report = explain(ir.parse(SOFTMAX))
    whole, rows = 64 * 32 * 4, 64 * 4
    assert [w.stages for w in report.before] == [("m",), ("e",), ("s",), ("Y",)]
    assert report.before[1].moves == (Move("X", whole), Move("m", rows), Move("e", 0, whole))
    (work,) = report.after
    assert work.stages == ("m", "s", "Y")
    assert work.inlined == ("e",)
    assert work.near == ("m", "s")
    assert work.moves == (Move("X", 3 * whole), Move("Y", 0, whole))
    assert work.kernels == tuple(k.name for k in compile(ir.parse(SOFTMAX)).kernels) == ("f",)
    assert work.reason.startswith("%m is a reduction (max)")
    assert report.traffic() == (
        (4 * whole + 2 * rows, 2 * whole + 2 * rows),
        (3 * whole, whole),
    )
    assert report.scratch == ()
    assert report.peak_scratch == 0


def test_groups_of_several_kernels_name_them_all() -> None:
    function = ir.parse("""func @f(%X: f32[4194304]) -> (%S, %Y) {
      %S: f32[i0 < 1] = sum[r0 < 4194304] %X[r0]
      %t: f32[i0 < 4194304] = mul(%X[i0], %S[0])
      %Y: f32[i0 < 4194304] = add(%t[sub(4194303, i0)], 1.0)
    }""")
    report = explain(function, "hlsl")
    program = compile(function, "hlsl")
    assert [k.name for k in program.kernels] == [n for w in report.after for n in w.kernels]
    assert len(report.after[0].kernels) > 1


def test_json_holds_the_report_and_unknown_sizes_are_null() -> None:
    function = ir.parse("func @f(%X: f32[n]) -> (%Y) { %Y: f32[i0 < n] = neg(%X[i0]) }")
    content = json.loads(json.dumps(explain(function).to_json()))
    (work,) = content["after"]
    assert work["bytes_read"] is None
    assert work["moves"][0] == {"tensor": "X", "read": None, "written": 0}
    assert content["peak_scratch"] == 0
