"""Every golden kernel: its source byte for byte, and what it computes.

A case is an IR function in `tests/golden/<case>.ir`. Beside it lie the sources it compiles to:
`.cl` (CPU profile), `.gpu.cl` and `.hlsl`, or what the compiler says where HLSL has no way to
express it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.source import UnsupportedError
from tests import positions, reductions
from tests.agreement import disagreements
from tests.opencl_launch import run_program
from tests.samples import sample

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(path.stem for path in GOLDEN.glob("*.ir"))
INEXACT = {"batch_norm_apply": 4.0, "gelu": 4.0, "two_results": 4.0, "scale_by_one": 4.0}
"""Cases whose rounding may differ from the reference's by that many units in the last place."""

FOLDED = {
    "argmax_of_rows": 200,
    "batch_norm_training_grad": 6272,
    "batch_norm_training_grad_columns": 50,
    "batch_norm_training_grad_f16": 196,
    "batch_norm_training_grad_f16_planes": 6400,
    "softmax_rows": 200,
    "sum_of_everything": 150_000,
}
"""Cases with reductions, and how many points each folds: they are given moderate values, and
differ as sums of so many do."""

PLACED = {
    "average_pool", "flip_rows", "gather", "max_pool_place", "pad", "resample_grad_linear",
    "resample_grad_nearest", "resample_grad_thirds", "resample_linear", "slice", "space_to_depth",
    "upsample_grad_of_mean",
}  # fmt: skip
"""Cases that compute with positions: they are given whole numbers, and come out exactly."""


def read_case(case: str) -> ir.Function:
    return ir.parse((GOLDEN / f"{case}.ir").read_text(encoding="utf-8"), f"{case}.ir")


def join_sources(program: Program) -> str:
    return "\n".join(kernel.source for kernel in program.kernels)


def make_inputs(function: ir.Function, count: int) -> dict[str, Array]:
    if function.name in PLACED:
        return positions.make_inputs(function)
    if any(stage.reduction is not None for stage in function.stages):
        return reductions.make_inputs(function)
    inputs: dict[str, Array] = {}
    for p in function.parameters:
        shape = tuple(e if isinstance(e, int) else count for e in p.extents)
        if p.strides is not None:  # one element where a stride of 0 repeats it
            own = tuple(e if s else 1 for e, s in zip(shape, p.strides, strict=True))
            inputs[p.name] = np.broadcast_to(sample(p.dtype, own, p.name), shape)
        else:
            inputs[p.name] = sample(p.dtype, shape, p.name)
    return inputs


def find_wrong(case: str, got: dict[str, Array], wanted: dict[str, Array]) -> list[str]:
    """What a device computed wrongly in a case."""
    if case in PLACED:
        return positions.find_differences(got, wanted)
    if case in FOLDED:
        return reductions.find_disagreements(got, wanted, FOLDED[case], size=4.0)
    ulps = INEXACT.get(case, 0.0)
    return [
        f"{name}: {wrong[:5]}"
        for name, values in wanted.items()
        if (wrong := disagreements(got[name], values, ulps, transcendental=ulps > 0)).size
    ]


@pytest.mark.parametrize("case", CASES)
def test_ir_prints_as_written(case: str) -> None:
    function = read_case(case)
    ir.verify(function)
    assert f"{function}\n" == (GOLDEN / f"{case}.ir").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("profile", "suffix"), [("cpu", ".cl"), ("gpu", ".gpu.cl")])
def test_opencl(
    case: str, profile: str, suffix: str, check_golden: Callable[[Path, str], None]
) -> None:
    function = read_case(case)
    program = compile(function, "opencl", profile)
    check_golden(GOLDEN / f"{case}{suffix}", join_sources(program))
    for count in (1, 16, 1000, 33001) if function.symbols() else (1,):
        inputs = make_inputs(function, count)
        wanted = evaluate(function, inputs)
        for misaligned in (0, 1):
            got = run_program(program, inputs, misaligned=misaligned, plain=True)
            assert find_wrong(case, got, wanted) == []


@pytest.mark.parametrize("case", CASES)
def test_hlsl(case: str, check_golden: Callable[[Path, str], None]) -> None:
    function = read_case(case)
    try:
        text = join_sources(compile(function, "hlsl"))
    except UnsupportedError as error:
        text = f"{error}\n"
    check_golden(GOLDEN / f"{case}.hlsl", text)


@pytest.mark.parametrize("case", ["relu_grad_f16", "relu_grad_bf16"])
def test_hlsl_without_16_bit_types(case: str, check_golden: Callable[[Path, str], None]) -> None:
    program = compile(read_case(case), "hlsl", shader_model="6.0")
    check_golden(GOLDEN / f"{case}.6_0.hlsl", join_sources(program))


@pytest.mark.parametrize("target", ["opencl", "hlsl"])
def test_the_same_bytes_twice(target: str) -> None:
    function = read_case("two_results")
    assert compile(function, target) == compile(read_case("two_results"), target)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("over", ["InputTensor", "InputGradientTensor"])
@pytest.mark.parametrize("case", ["relu_grad_f32", "relu_grad_f16", "relu_grad_bf16"])
def test_in_place(case: str, over: str, profile: str) -> None:
    function = read_case(case)
    program = compile(function, "opencl", profile)
    assert over in program.outputs[0].in_place
    inputs = make_inputs(function, 70001)
    wanted = evaluate(function, inputs)["OutputGradientTensor"]
    got = run_program(program, inputs, in_place={"OutputGradientTensor": over})
    assert disagreements(got["OutputGradientTensor"], wanted, 0.0).size == 0
