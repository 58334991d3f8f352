"""Vectors of picked lanes, where the compiler is not Clang."""

from __future__ import annotations

import dataclasses

import pytest

from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.reference import evaluate
from tests.goldens import find_wrong, make_inputs, read_case
from tests.opencl_launch import run_program


def forget_clang(program: Program) -> Program:
    kernels = tuple(
        dataclasses.replace(kernel, source=f"#undef __clang__\n{kernel.source}")
        for kernel in program.kernels
    )
    return dataclasses.replace(program, kernels=kernels)


@pytest.mark.parametrize("case", ["resample_grad_thirds", "upsample_grad_of_mean"])
def test_the_standard_builtin_gives_the_same(case: str) -> None:
    function = read_case(case)
    program = forget_clang(compile(function, "opencl", "cpu"))
    assert all("shuffle2" in kernel.source for kernel in program.kernels)
    inputs = make_inputs(function, 1)
    got = run_program(program, inputs, misaligned=0, plain=True)
    assert find_wrong(case, got, evaluate(function, inputs)) == []
