"""Kernels of others judged: which case tells what is wrong with each, and what is said of it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc.binding import Operator, TensorDesc
from dmlc.runtime.dxc import compile_spirv
from dmlc.scalars import Array
from dmlc.source import ArgumentError, DmlcError, UnsupportedError
from dmlc.testing import Judgement, Kernel, Options, judge, roofline
from dmlc.testing.case import Call
from dmlc.testing.expressions import OutsideError
from dmlc.testing.judging import replay
from dmlc.testing.outcome import Cause, Status
from dmlc.testing.replay import read_failure

JUDGED = Path(__file__).parents[1] / "data" / "judged"
RELU = "directml.ACTIVATION_RELU"


def find_rows() -> Operator:
    return dmlc.load(JUDGED / "rows.dml").operators["judged.ROW_SUM"]


def judge_file(name: str, cases: int = 6, failures: Path | None = None) -> Judgement:
    operator = {"row_sum": find_rows(), "gemm.cl": "directml.GEMM"}.get(name[:7], RELU)
    return judge(JUDGED / name, operator, cases=cases, roofline=False, failures=failures)


@pytest.mark.parametrize("name", ["relu.hlsl", "relu.cl", "relu.wgsl", "gemm.cl"])
def test_right(name: str) -> None:
    found = judge_file(name)
    assert found.passed, str(found)
    assert {outcome.status for outcome in found.outcomes} == {Status.PASSED}
    assert str(found).splitlines()[-1].startswith("PASS")


@pytest.mark.parametrize(
    ("name", "cause", "title", "message", "likely"),
    [
        ("relu_no_bounds.hlsl", Cause.MEMORY, "whole numbers",
         "main stores into OutputTensor at element 1 (behind its last element",
         "no check of bounds: 64 work items run for 1 elements of OutputTensor"),
        ("relu_nan.hlsl", Cause.RESULT, "negative values, zeros, infinities and NaN",
         "at [0] it is 0 where nan is expected",
         "NaN is lost: OutputTensor is 0 where NaN is expected, and only there"),
        ("row_sum_half.hlsl", Cause.RESULT, "random data", "elements differ",
         "it rounds more than the operator does, for with -1, 0 and 1 it passes: a sum that is "
         "kept in FLOAT16 does so"),
        ("row_sum_strides.cl", Cause.MEMORY, "random data", "by the bytes outside the elements",
         "the strides of X are ignored or misread: packed, the same case passes"),
        ("row_sum_race.cl", Cause.RACE, "random data", "in a run with the work items in reverse",
         "work items depend on each other's order: a barrier is missing, or several store one "
         "element"),
    ],
)  # fmt: skip
def test_wrong(name: str, cause: Cause, title: str, message: str, likely: str) -> None:
    found = judge_file(name)
    failed = [o for o in found.failures if o.cause is cause and "likely: " in o.message]
    assert failed, str(found)
    first = failed[0]
    assert first.title == title
    assert message in first.message
    assert first.message.splitlines()[-1] == f"likely: {likely}"
    assert str(found).splitlines()[-1].startswith("FAIL")


def test_race_in_wgsl() -> None:
    """Between the work items of a group longer than what a device runs at once."""
    assert not judge_file("row_sum_race.wgsl").passed


def test_spirv(tmp_path: Path) -> None:
    """Other binding numbers than those of dmlc's own modules, and another descriptor set."""
    source = (JUDGED / "relu.hlsl").read_text()
    for old, new in (("t0", "t4, space0"), ("u0", "u3, space0")):
        source = source.replace(f"register({old})", f"register({new})")
    path = tmp_path / "relu.spv"
    path.write_bytes(compile_spirv(source).code)
    found = judge(path, RELU, cases=3, roofline=False)
    assert found.passed, str(found)
    assert "races: by running again alone" in str(found)
    with pytest.raises(UnsupportedError, match=r"is SPIR-V, which opencl does not run"):
        judge(path, RELU, device="opencl")
    path.write_bytes(b"nothing")
    with pytest.raises(DmlcError, match="7 bytes are no SPIR-V module"):
        judge(path, RELU)


def test_two_dimensions(tmp_path: Path) -> None:
    """Groups and their items along two axes, strides of everything, and a condition."""
    path = tmp_path / "relu2.cl"
    path.write_text("""
// dmlc: --groups "ceil(InputTensor.sizes[1] / 8), ceil(InputTensor.sizes[0] / 4)"
// dmlc: --where "InputTensor.rank == 2"
__kernel __attribute__((reqd_work_group_size(8, 4, 1)))
void relu(__global const float *input, __global float *output, uint input_size0,
          uint input_size1, uint input_stride0, uint input_stride1, uint output_stride0,
          uint output_stride1)
{
    uint j = get_global_id(0), i = get_global_id(1);
    if (i >= input_size0 || j >= input_size1)
        return;
    float x = input[i * input_stride0 + j * input_stride1];
    output[i * output_stride0 + j * output_stride1] = x < 0.0f ? 0.0f : x;
}
""")
    found = judge(path, RELU, cases=12, roofline=False)
    assert found.passed, str(found)
    assert any("{" in outcome.call for outcome in found.outcomes)
    assert "it takes calls where InputTensor.rank == 2" in found.outside


def test_attributes(tmp_path: Path) -> None:
    """Arguments with the names of attributes; one that is left out is found."""
    text = """
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void leaky(__global const float *src, __global float *dst, float alpha, ulong src_size)
{
    size_t i = get_global_id(0);
    if (i < src_size)
        dst[i] = src[i] < 0.0f ? SLOPE * src[i] : src[i];
}
"""
    path = tmp_path / "leaky.cl"
    path.write_text(text.replace("SLOPE", "alpha"))
    assert judge(path, "onednn.LeakyReLU", cases=6, roofline=False).passed
    path.write_text(text.replace("SLOPE", "0.01f"))
    assert not judge(path, "onednn.LeakyReLU", cases=6, roofline=False).passed


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("uint n", {}, "what the argument n is given is not said"),
        ("uint n", {"bindings": "n=InputTensr.size"}, "unknown name in --bindings 'InputTensr'"),
        ("uint n", {"bindings": "m=InputTensor.size"}, "unknown argument in --bindings 'm'"),
        ("uint n", {"bindings": "n"}, "is no list of NAME=FORMULA"),
        ("uint n", {"bindings": "n=InputTensor.bytes"}, "is no part of a formula"),
        ("uint n", {"bindings": "n=InputTensor"}, "n is given InputTensor, which is no number"),
        ("uint n", {"bindings": "n=InputTensor.size / 3"}, "which is not whole"),
        ("uint n", {"bindings": "n=1", "groups": "InputTensor.size / 3"}, "whole numbers"),
        ("uint n", {"bindings": "n=1", "groups": "1 +"}, "is no formula"),
        ("uint n", {"bindings": "n=1", "where": "InputTensor.rank == 9"}, "takes no call"),
        ("uint n", {"bindings": "n=1", "group_size": "no"}, "is not one to three whole numbers"),
        ("uint n", {"bindings": "n=1", "group_size": ""}, "does not say how many work items"),
        ("uint n", {"entry": "other"}, "has no kernel 'other'"),
        ("half n", {}, "is of type 'half', which cannot be bound"),
        ("__local float *n", {}, "takes local memory as its argument 'n'"),
        ("__global const int *n", {}, "which tensor the buffer n is, is not said"),
        ("__global const int *n", {"bindings": "n=InputTensor"}, "are both InputTensor"),
        ("__global const float3x *n", {}, "cannot be bound"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, text: str, options: dict[str, str], message: str) -> None:
    """What is wrong with a kernel's description is said before anything runs."""
    path = tmp_path / "k.cl"
    path.write_text(f"__kernel void k(__global const float *input, __global float *output, {text})"
                    "{ output[0] = input[0]; }")  # fmt: skip
    given = {"group_size": "8", **options}
    with pytest.raises(DmlcError, match=message.replace("(", r"\(")):
        judge(path, RELU, cases=3, roofline=False, **given)  # type: ignore[arg-type]


def test_refused_files(tmp_path: Path) -> None:
    (tmp_path / "k.glsl").write_text("")
    with pytest.raises(DmlcError, match="its language is not known by its name"):
        judge(tmp_path / "k.glsl", RELU)
    path = tmp_path / "k.hlsl"
    path.write_text("[numthreads(1, 1, 1)] void main() { nothing; }")
    with pytest.raises(DmlcError, match=r"DXC refuses the HLSL of .*k.hlsl") as caught:
        judge(path, RELU)
    assert "nothing" in str(caught.value)
    path.write_text("// dmlc: --speed 9\n[numthreads(1, 1, 1)] void main() { }")
    with pytest.raises(DmlcError, match="unknown option in '// dmlc:' '--speed'"):
        judge(path, RELU)
    path.write_text("Buffer<float> x; RWBuffer<float> y;\n"
                    "[numthreads(1, 1, 1)] void main() { y[0] = x[0]; }")  # fmt: skip
    with pytest.raises(DmlcError, match="is a typed buffer, which needs a view of its own"):
        judge(path, RELU)
    with pytest.raises(ArgumentError, match="candidate must be a kernel's file, or a function"):
        judge(3, RELU)  # type: ignore[arg-type]


def test_bindings_without_blanks(tmp_path: Path) -> None:
    """Numbers of bindings are written anew: longer ones move no other."""
    text = (JUDGED / "relu.wgsl").read_text(encoding="utf-8")
    path = tmp_path / "relu.wgsl"
    path.write_text(re.sub(r"(@group\(\d\))\s*(@binding\(\d\))\s*var", r"\1\2var", text), "utf-8")
    assert path.read_text("utf-8") != text
    assert judge(path, RELU, cases=1, roofline=False).passed


def test_adapt() -> None:
    """A kernel without strides is given packed tensors, and no others types than it declares."""
    operator = dmlc.operator(RELU)
    kernel = Kernel(JUDGED / "relu.cl", operator)
    desc = TensorDesc("FLOAT32", (2, 3), (1, 2))
    packed = kernel.adapt(Call(operator, {"InputTensor": desc, "OutputTensor": desc}, {}))
    assert [d.strides for d in packed.tensors.values()] == [None, None]
    other = TensorDesc("FLOAT16", (2, 3))
    with pytest.raises(OutsideError, match="InputTensor is not FLOAT32"):
        kernel.adapt(Call(operator, {"InputTensor": other, "OutputTensor": other}, {}))


def relu(x: Array) -> Array:
    return np.where(x < 0, np.zeros_like(x), x)


def relu_by_maximum(x: Array) -> Array:
    return np.fmax(x, np.zeros_like(x))


def relu_in_place(x: Array) -> Array:
    x[x < 0] = 0
    return x


def test_functions() -> None:
    assert judge(relu, RELU, cases=6, roofline=False).passed
    lost = judge(relu_by_maximum, RELU, cases=6, roofline=False)
    assert "likely: NaN is lost" in str(lost)
    changed = judge(relu_in_place, RELU, cases=3, roofline=False)
    assert "it changes its input InputTensor" in str(changed)
    narrow = judge(lambda x: x.astype(np.float64), RELU, cases=3, roofline=False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
    assert "OutputTensor is float64" in str(narrow)
    with pytest.raises(DmlcError, match="a Python function has no device"):
        judge(relu, RELU, device="opencl")


def test_function_with_attributes() -> None:
    def leaky(src: Array, alpha: float) -> dict[str, Array]:
        return {"dst": np.where(src < 0, np.multiply(src, src.dtype.type(alpha)), src)}

    where = "src.rank < 4"
    assert judge(leaky, "onednn.LeakyReLU", cases=6, where=where, roofline=False).passed


def test_function_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import numpy as np\ndef relu(x):\n    return np.where(x < 0, 0 * x, x)\n")
    found = judge(path, RELU, cases=6, roofline=False, failures=tmp_path / "failures")
    assert found.name == "mine.py:relu (Python)"
    assert not found.passed  # 0 times infinity is NaN
    kept = read_failure(next(o.folder for o in found.failures if o.folder is not None))
    assert replay(kept).status is Status.FAILED
    path.write_text("import numpy as np\ndef relu(x):\n    return np.where(x < 0, x - x, x)\n")
    path.write_text(path.read_text().replace("x - x", "np.zeros_like(x)"))
    assert replay(kept).status is Status.PASSED
    with pytest.raises(DmlcError, match="defines no function 'other'"):
        judge(path, RELU, entry="other")


def test_replay(tmp_path: Path) -> None:
    """A failure is kept with the kernel that has it."""
    found = judge_file("relu_nan.hlsl", failures=tmp_path)
    folder = next(o.folder for o in found.failures if o.folder is not None)
    kept = read_failure(folder)
    assert kept.candidate["path"].endswith("relu_nan.hlsl")
    assert replay(kept).cause is Cause.RESULT
    mended = {**kept.candidate, "path": str(JUDGED / "relu.hlsl")}
    assert replay(dataclasses.replace(kept, candidate=mended)).status is Status.PASSED


def test_roofline(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes is timed beside a copy, on a call that is large enough."""
    monkeypatch.setattr(roofline, "BYTES", 1 << 16)
    found = judge(JUDGED / "relu.cl", RELU, cases=3)
    assert found.roofline is not None
    assert found.roofline.bytes >= 1 << 16
    assert found.roofline.percent > 0
    assert "% of the memory roofline" in str(found)
    assert found.to_json()["roofline"]["percent"] > 0
    untimed = judge(relu, RELU, cases=3)
    assert untimed.roofline is not None


def test_options_over_notes() -> None:
    """What is said on the command line is before what a file says."""
    kernel = Kernel(JUDGED / "relu.cl", dmlc.operator(RELU), Options(group_size="32"))
    assert "  groups of 32 x 1 x 1: ceil(OutputTensor.size / threads)" in kernel.describe()
