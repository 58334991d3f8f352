"""The first example of every operator of the library, compiled: what tests walk through that look
at generated code. Each is compiled when it is first asked for, once per process."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from dmlc import library
from dmlc.binding import Operator
from dmlc.kernel import nodes as k
from dmlc.pipeline import compile_kernels
from dmlc.program import Program
from dmlc.runtime import dxc
from dmlc.runtime.hlsl import CompiledKernel, compile_kernel
from dmlc.runtime.spirv import list_instructions
from dmlc.source import UnsupportedError
from dmlc.testing.examples import read_cases


@functools.cache
def find_compiled(name: str, target: str) -> tuple[Program, tuple[k.Kernel, ...]] | None:
    """An operator's program and its kernels; None where the target cannot express it."""
    operator = Operator(library.find(name).operators[name])
    call = next(read_cases(operator, operator.definition.examples[0])).call
    try:
        program, _, kernels = compile_kernels(call.function, target)
    except UnsupportedError:
        return None  # HLSL has few operations of FLOAT64, and WGSL few types.
    return program, kernels


def list_compiled(target: str) -> Iterator[tuple[str, Program, tuple[k.Kernel, ...]]]:
    """All operators that the target can express: by name, the program and its kernels."""
    for name in library.names():
        found = find_compiled(name, target)
        if found is not None:
            yield name, *found


@functools.cache
def find_shaders(name: str) -> tuple[CompiledKernel, ...]:
    """The SPIR-V and the DXIL of each kernel of an operator's HLSL; none where HLSL cannot express
    it."""
    found = find_compiled(name, "hlsl")
    return () if found is None else tuple(map(compile_kernel, found[0].kernels))


def list_shaders() -> Iterator[tuple[str, CompiledKernel]]:
    """The SPIR-V and the DXIL of all kernels, each with the name of its operator."""
    for name in library.names():
        for shader in find_shaders(name):
            yield name, shader


_SIGNED = {135: "OpSDiv", 138: "OpSRem", 139: "OpSMod"}
"""By their numbers."""


def list_signed(shader: CompiledKernel) -> set[str]:
    """The signed divisions in the SPIR-V and the DXIL of a shader. DXC makes a remainder in DXIL of
    a quotient that is multiplied again."""
    found = {_SIGNED[code] for code, _ in list_instructions(shader.spirv) if code in _SIGNED}
    return found | set(re.findall(r"= (s(?:rem|div)) ", dxc.disassemble(shader.dxil)))
