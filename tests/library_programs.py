"""The first example of every operator of the library, compiled: what tests walk through that look
at generated code. Each is compiled when it is first asked for, once per process."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from dmlc import library
from dmlc.binding import Operator
from dmlc.kernel import nodes as k
from dmlc.pipeline import compile_kernels
from dmlc.program import Program
from dmlc.runtime.hlsl import CompiledKernel, compile_kernel
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
