"""The report of fusion: bytes before and after, the kernels, and that JSON holds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import dmlc
from dmlc import ir
from dmlc.picture import draw
from dmlc.pipeline import compile, explain
from dmlc.transform.traffic import Move

SOFTMAX = """func @f(%X: f32[64, 32]) -> (%Y) {
  %m: f32[i0 < 64] = max[r1 < 32] %X[i0, r1]
  %e: f32[i0 < 64, i1 < 32] = exp(sub(%X[i0, i1], %m[i0]))
  %s: f32[i0 < 64] = sum[r1 < 32] %e[i0, r1]
  %Y: f32[i0 < 64, i1 < 32] = div(%e[i0, i1], %s[i0])
}"""
APART = """func @f(%X: f32[4194304]) -> (%S, %Y) {
  %S: f32[i0 < 1] = sum[r0 < 4194304] %X[r0]
  %t: f32[i0 < 4194304] = mul(%X[i0], %S[0])
  %Y: f32[i0 < 4194304] = add(%t[sub(4194303, i0)], 1.0)
}"""


def test_a_report_says_what_each_kernel_computes_and_moves() -> None:
    report = explain(ir.parse(SOFTMAX))
    whole, rows = 64 * 32 * 4, 64 * 4
    assert [w.stages for w in report.before] == [("m",), ("e",), ("s",), ("Y",)]
    assert report.before[1].moves == (Move("X", whole), Move("m", rows), Move("e", 0, whole))
    (work,) = report.after
    # A work item reads back the exponentials of its row.
    assert work.stages == ("m", "e", "s", "Y")
    assert work.inlined == ()
    assert work.near == ("m", "s")
    assert work.moves == (Move("X", 2 * whole), Move("e", whole, whole), Move("Y", 0, whole))
    assert work.kernels == tuple(k.name for k in compile(ir.parse(SOFTMAX)).kernels) == ("f",)
    assert work.reason.startswith("%m is a reduction (max)")
    assert report.traffic() == (
        (4 * whole + 2 * rows, 2 * whole + 2 * rows),
        (3 * whole, 2 * whole),
    )
    assert [scratch.tensor for scratch in report.scratch] == ["e"]
    assert report.peak_scratch == whole
    (group,) = explain(ir.parse(SOFTMAX), "hlsl").after
    assert group.inlined == ("e",)


def test_groups_of_several_kernels_name_them_all() -> None:
    function = ir.parse(APART)
    report = explain(function, "hlsl")
    program = compile(function, "hlsl")
    assert [k.name for k in program.kernels] == [n for w in report.after for n in w.kernels]
    assert len(report.after[0].kernels) > 1
    assert report.after[0].reason.endswith("values depend on the positions of points")


def bind_residual_block() -> ir.Function:
    path = Path(__file__).parent.parent / "examples/graphs/residual_block_backward.dml"
    return (
        dmlc.load(path)
        .graphs["residual_block_backward"]
        .bind(dims={"N": 32, "C": 64, "H": 56, "W": 56})
    )


def bind_batch_norm() -> ir.Function:
    operator = dmlc.operator("directml.BATCH_NORMALIZATION_TRAINING_GRAD")
    whole, channels = dmlc.TensorDesc("FLOAT32", (8, 16, 56, 56)), (1, 16, 1, 1)
    return operator.bind(
        {
            "InputTensor": whole,
            "InputGradientTensor": whole,
            **{
                name: dmlc.TensorDesc("FLOAT32", channels)
                for name in ("MeanTensor", "VarianceTensor", "ScaleTensor")
            },
        },
        {"Epsilon": 1e-5},
    )


def parse_apart() -> ir.Function:
    return ir.parse(APART)


@pytest.mark.parametrize("make", [bind_residual_block, bind_batch_norm, parse_apart])
@pytest.mark.parametrize(("target", "profile"), [("opencl", "cpu"), ("hlsl", "gpu")])
def test_the_manifest_says_what_the_report_does(
    make: Callable[[], ir.Function], target: str, profile: str
) -> None:
    function = make()
    report = explain(function, target, profile)
    manifest = json.loads(json.dumps(compile(function, target, profile).manifest()))
    described = {kernel["name"]: kernel for kernel in manifest["kernels"]}
    assert list(described) == [name for work in report.after for name in work.kernels]
    for work in report.after:
        own = [described[name] for name in work.kernels]
        assert {stage for kernel in own for stage in kernel["stages"]} == set(work.stages)
        assert {"; ".join(kernel["reasons"]) for kernel in own} == {work.reason}
        sums = tuple(sum(k[key] for k in own) for key in ("bytes_read", "bytes_written"))
        assert sums == work.traffic()
        figures = [each.to_json() for each in work.figures]
        assert figures == [k["figures"] for k in own if k["figures"] is not None]
        assert len(figures) == (len(own) if profile == "gpu" else 0)
    before, after = report.traffic()
    assert manifest["fusion"] == {
        "before": {"kernels": len(report.before), **spell(before)},
        "after": {"kernels": len(described), **spell(after)},
        "peak_scratch": report.peak_scratch,
    }


def spell(traffic: tuple[int, int] | None) -> dict[str, int]:
    assert traffic is not None
    return dict(zip(("bytes_read", "bytes_written"), traffic, strict=True))


def test_bytes_of_kernels_are_those_of_their_passes() -> None:
    report = explain(ir.parse(APART), "hlsl")
    first, second, *_ = compile(ir.parse(APART), "hlsl").kernels
    whole = 4194304 * 4
    (parts,) = [s for s in report.scratch if s.tensor == "S_parts"]
    assert first.origin.stages == second.origin.stages == ("S",)
    assert first.origin.traffic == (whole, parts.bytes)
    assert second.origin.traffic == (parts.bytes, 4)
    assert Move("S_parts", parts.bytes, parts.bytes) in report.after[0].moves


@pytest.mark.parametrize("make", [bind_residual_block, bind_batch_norm])
def test_kernels_of_whole_groups_move_what_was_planned(make: Callable[[], ir.Function]) -> None:
    report = explain(make())
    for group, work in zip(report.fusion.groups, report.after, strict=True):
        assert len(work.kernels) == 1
        assert set(work.moves) == set(report.fusion.list_moves(group))


SUM = """
func @sums(%X: f32[64, 3000]) -> (%S) {
  %S: f32[i0 < 64] = sum[r1 < 3000] mul(%X[i0, r1], %X[i0, 0])
}"""


def test_figures_of_a_kernel_for_a_gpu() -> None:
    (kernel,) = compile(ir.parse(SUM), "hlsl").manifest()["kernels"]
    figures = kernel["figures"]
    assert figures["threads"] == figures["groups"] * kernel["group_size"][0]
    # Every element once, and that of the row's start as often at most.
    assert 3000 <= figures["reads_per_output"] <= 6000
    assert figures["total_steps"] >= 64 * figures["reads_per_output"]
    assert figures["steps"] >= figures["total_steps"] / figures["threads"]
    text = draw(explain(ir.parse(SUM), "hlsl"), "text", ("after",))
    assert f"work      {figures['threads']:,} threads in {figures['groups']:,} groups of" in text
    assert f"at most {figures['steps']} steps each;" in text
    assert "reads an output" in text
    assert "reads an output" not in draw(explain(ir.parse(SUM), "opencl"), "text")


def test_figures_of_unknown_sizes_are_null() -> None:
    function = ir.parse("func @f(%X: f32[n]) -> (%Y) { %Y: f32[i0 < n] = neg(%X[i0]) }")
    (kernel,) = compile(function, "hlsl").manifest()["kernels"]
    assert kernel["figures"] is None
    assert explain(function, "hlsl").to_json()["after"][0]["figures"] == []


def test_json_holds_the_report_and_unknown_sizes_are_null() -> None:
    function = ir.parse("func @f(%X: f32[n]) -> (%Y) { %Y: f32[i0 < n] = neg(%X[i0]) }")
    content = json.loads(json.dumps(explain(function).to_json()))
    (work,) = content["after"]
    assert work["bytes_read"] is None
    assert work["moves"][0] == {"tensor": "X", "read": None, "written": 0}
    assert content["peak_scratch"] == 0


def test_the_manifest_has_null_for_unknown_bytes() -> None:
    function = ir.parse("func @f(%X: f32[n]) -> (%Y) { %Y: f32[i0 < n] = neg(%X[i0]) }")
    manifest = compile(function).manifest()
    unknown = {"bytes_read": None, "bytes_written": None}
    assert manifest["fusion"] == {
        "before": {"kernels": 1, **unknown},
        "after": {"kernels": 1, **unknown},
        "peak_scratch": 0,
    }
    (kernel,) = manifest["kernels"]
    assert {**kernel, **unknown} == kernel
    assert kernel["reasons"] == ["%Y leaves the function"]
