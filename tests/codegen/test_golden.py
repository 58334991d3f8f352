"""Every golden kernel: its source byte for byte, and what it computes.

A case is an IR function in `tests/golden/<case>.ir`. Beside it lie the sources it compiles to:
`.cl` (CPU profile), `.gpu.cl`, `.hlsl` and `.wgsl`, or what the compiler says where a language has
no way to express it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.source import UnsupportedError
from tests.agreement import disagreements
from tests.goldens import CASES, GOLDEN, find_wrong, make_inputs, read_case
from tests.opencl_launch import run_program


def join_sources(program: Program) -> str:
    return "\n".join(kernel.source for kernel in program.kernels)


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


@pytest.mark.parametrize("target", ["hlsl", "wgsl"])
@pytest.mark.parametrize("case", CASES)
def test_source(case: str, target: str, check_golden: Callable[[Path, str], None]) -> None:
    function = read_case(case)
    try:
        text = join_sources(compile(function, target))
    except UnsupportedError as error:
        text = f"{error}\n"
    check_golden(GOLDEN / f"{case}.{target}", text)


@pytest.mark.parametrize("case", ["relu_grad_f16", "relu_grad_bf16"])
def test_hlsl_without_16_bit_types(case: str, check_golden: Callable[[Path, str], None]) -> None:
    program = compile(read_case(case), "hlsl", shader_model="6.0")
    check_golden(GOLDEN / f"{case}.6_0.hlsl", join_sources(program))


@pytest.mark.parametrize("target", ["opencl", "hlsl", "wgsl"])
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
