"""Every golden HLSL kernel on a Vulkan device."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import vulkan
from dmlc.runtime.hlsl import compile_kernel
from tests.goldens import CASES, GOLDEN, find_wrong, make_inputs, read_case
from tests.runtime import dxil


def runs_here(case: str) -> bool:
    """Whether its golden HLSL has kernels, and is not why there are none."""
    path = GOLDEN / f"{case}.hlsl"
    return path.exists() and "numthreads" in path.read_text(encoding="utf-8")


COMPILED = [case for case in CASES if runs_here(case)]


def test_most_cases_run_here() -> None:
    assert 2 * len(COMPILED) > len(CASES)


@pytest.mark.parametrize("case", COMPILED)
def test_golden_kernel(case: str, tmp_path: Path) -> None:
    function: ir.Function = read_case(case)
    program = compile(function, "hlsl")
    for kernel in program.kernels:
        made = compile_kernel(kernel)
        assert made.warnings == ()
        assert " fast " not in dxil.disassemble(made.dxil)
        path = tmp_path / "kernel.spv"
        path.write_bytes(made.spirv)
        subprocess.run(["spirv-val", "--target-env", "vulkan1.1", path], check=True)
    executable = vulkan.load(program)
    for count in (1, 16, 1000, 33001) if function.symbols() else (1,):
        inputs = make_inputs(function, count)
        wanted = evaluate(function, inputs)
        assert find_wrong(case, executable(inputs), wanted) == []
