"""Reductions along rows and down columns, taken along rows first where others go along these."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.pipeline import compile, find_fusion, make_kernels
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.testing.bounds import bound_errors
from dmlc.transform.stepwise import reduce_stepwise
from tests.kernel.lowering import interpret
from tests.reductions import make_inputs

LOSS = """\
func @loss(%x: f32[256, 384], %label: s32[256, 1]) -> (%dx, %loss) {
  %most: f32[i0 < 256, i1 < 1] = max[r1 < 384] %x[i0, r1]
  %odds: f32[i0 < 256, i1 < 384] = exp(sub(%x[i0, i1], %most[i0, 0]))
  %total: f32[i0 < 256, i1 < 1] = sum[r1 < 384] %odds[i0, r1]
  %target: f32[i0 < 256, i1 < 384] = select(eq(%label[i0, 0], cast(i1, s32)), 1.0, 0.0)
  %log: f32[i0 < 256, i1 < 384] = sub(sub(%x[i0, i1], %most[i0, 0]), log(%total[i0, 0]))
  %part: f32[i0 < 256, i1 < 384] = mul(%target[i0, i1], %log[i0, i1])
  %dx: f32[i0 < 256, i1 < 384] = sub(div(%odds[i0, i1], %total[i0, 0]), %target[i0, i1])
  %loss: f32[i0 < 1, i1 < 1] = sum[r0 < 256, r1 < 384] %part[r0, r1]
}"""

INSTANCES = """\
func @instances(%x: f32[30, 7, 12, 16], %dy: f32[30, 7, 12, 16]) -> (%dx, %dscale, %dbias) {
  %sum: f32[i0 < 30, i1 < 7] = sum[r2 < 12, r3 < 16] %dy[i0, i1, r2, r3]
  %turn: f32[i0 < 30, i1 < 7] = sum[r2 < 12, r3 < 16] mul(%dy[i0, i1, r2, r3], %x[i0, i1, r2, r3])
  %dx: f32[i0 < 30, i1 < 7, i2 < 12, i3 < 16] = {
    v0 = add(div(%sum[i0, i1], 192.0), mul(%x[i0, i1, i2, i3], div(%turn[i0, i1], 192.0)))
    sub(%dy[i0, i1, i2, i3], v0)
  }
  %dscale: f32[i0 < 7] = sum[r0 < 30, r2 < 12, r3 < 16] mul(%dy[r0, i0, r2, r3], %x[r0, i0, r2, r3])
  %dbias: f32[i0 < 7] = sum[r0 < 30, r2 < 12, r3 < 16] %dy[r0, i0, r2, r3]
}"""


def check(function: ir.Function, target: str) -> None:
    """Kernels for a GPU give the reference's results."""
    inputs = make_inputs(function)
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, values in interpret(function, inputs, target, "gpu").items():
        assert (abs(values.astype("f8") - wanted[name].astype("f8")) <= allowed[name]).all(), name


@pytest.mark.parametrize("text", [LOSS, INSTANCES], ids=["loss", "instances"])
@pytest.mark.parametrize("target", ["opencl", "hlsl", "wgsl"])
def test_rows_are_gone_through_once_more_for_nothing(target: str, text: str) -> None:
    function = ir.parse(text)
    ir.verify(reduce_stepwise(function), "reduce_stepwise", function)
    _, kernels = make_kernels(function, target, "gpu")
    assert len(kernels) == 2
    tensors = {"x", "dy", "label"}
    assert tensors.isdisjoint(buffer.name for buffer in kernels[1].buffers)
    check(function, target)


def test_what_a_row_comes_to_is_added_up_in_the_pass_that_applies_its_sums() -> None:
    function = ir.parse(LOSS)
    first, second = find_fusion(function, "hlsl").groups
    passes = [[member.stage for member in each.members] for each in first.passes]
    assert passes == [["most"], ["total"], ["loss_rows", "dx"]]
    assert second.stages == ("loss",)


def test_equal_sums_of_rows_are_one() -> None:
    function = reduce_stepwise(ir.parse(INSTANCES))
    names = [stage.name for stage in function.stages]
    assert names == ["sum", "turn", "dx", "dscale_rows", "dscale", "dbias_rows", "dbias"]
    _, kernels = make_kernels(ir.parse(INSTANCES), "hlsl")
    # What is read for two sums of a row serves the four.
    assert sorted(b.name for b in kernels[0].buffers) == [
        "dbias_rows", "dscale_rows", "dx", "dy", "x"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("256", "100"),
        ("384", "100"),
        (
            "sum[r0 < 256, r1 < 384] %part[r0, r1]",
            "sum[r0 < 256, r1 < 384] %part[r0, sub(383, r1)]",
        ),
        ("%loss: f32[i0 < 1, i1 < 1] = sum[", "%loss: s32[i0 < 1, i1 < 1] = argmax["),
    ],
    ids=["few rows", "short rows", "other places", "positions"],
)
def test_others_are_left(was: str, now: str) -> None:
    function = ir.parse(LOSS.replace(was, now))
    assert reduce_stepwise(function) is function


def test_rows_that_wait_for_all_of_it_are_left() -> None:
    function = ir.parse("""\
func @scaled(%x: f32[256, 384]) -> (%y) {
  %most: f32[i0 < 1] = max[r0 < 256, r1 < 384] abs(%x[r0, r1])
  %scaled: f32[i0 < 256, i1 < 384] = div(%x[i0, i1], %most[0])
  %y: f32[i0 < 256] = sum[r1 < 384] %scaled[i0, r1]
}""")
    assert reduce_stepwise(function) is function


def test_a_cpu_takes_them_in_one_step() -> None:
    fusion = find_fusion(ir.parse(LOSS), "opencl", "cpu")
    assert all("rows" not in name for group in fusion.groups for name in group.stages)


@pytest.mark.parametrize("text", [LOSS, INSTANCES], ids=["loss", "instances"])
@pytest.mark.parametrize(("target", "runtime"), [("opencl", opencl), ("hlsl", vulkan)])
def test_devices_agree(target: str, runtime: object, text: str) -> None:
    function = ir.parse(text)
    inputs = make_inputs(function)
    run = (opencl if runtime is opencl else vulkan).load(compile(function, target, "gpu"))
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    found, again = run(inputs), run(inputs)
    for name, values in found.items():
        assert (abs(values.astype("f8") - wanted[name].astype("f8")) <= allowed[name]).all(), name
        assert values.tobytes() == again[name].tobytes()
