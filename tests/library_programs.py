"""The first example of every operator of the library, compiled: what tests walk through that look
at generated code. Each is compiled when it is first asked for, once per process."""

from __future__ import annotations

import functools
import re

from dmlc import library
from dmlc.binding import Operator
from dmlc.kernel import nodes as k
from dmlc.pipeline import compile_kernels
from dmlc.program import KernelSource
from dmlc.runtime.hlsl import CompiledKernel, compile_kernel
from dmlc.runtime.spirv import list_instructions
from dmlc.source import UnsupportedError
from dmlc.testing.examples import read_cases
from tests.runtime import dxil


@functools.cache
def find_compiled(
    name: str, target: str
) -> tuple[tuple[KernelSource, ...], tuple[k.Kernel, ...]] | None:
    """The sources of an operator and its kernels; None where the target cannot express it."""
    operator = Operator(library.find(name).operators[name])
    call = next(read_cases(operator, operator.definition.examples[0])).call
    try:
        program, _, kernels = compile_kernels(call.function, target)
    except UnsupportedError:
        return None  # HLSL has few operations of FLOAT64, and WGSL few types.
    return program.kernels, kernels


@functools.cache
def find_shaders(name: str) -> tuple[CompiledKernel, ...]:
    """The SPIR-V and the DXIL of each kernel of an operator's HLSL; none where HLSL cannot express
    it."""
    found = find_compiled(name, "hlsl")
    return () if found is None else tuple(map(compile_kernel, found[0]))


_SIGNED = {135: "OpSDiv", 138: "OpSRem", 139: "OpSMod"}
"""By their numbers."""


def list_signed(shader: CompiledKernel) -> set[str]:
    """The signed divisions in the SPIR-V and the DXIL of a shader. DXC makes a remainder in DXIL of
    a quotient that is multiplied again."""
    found = {_SIGNED[code] for code, _ in list_instructions(shader.spirv) if code in _SIGNED}
    return found | set(re.findall(r"= (s(?:rem|div)) ", dxil.disassemble(shader.dxil)))
