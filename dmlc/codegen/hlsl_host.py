"""HLSL on the host side: registers, constant buffer, and manifest entries."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dmlc.codegen.dialect import BufferView, ScalarView, SourceParts
from dmlc.program import BufferBinding, KernelSource, Language, ScalarBinding, constant_buffer_bytes
from dmlc.shader_model import dxil_arguments, list_needs, spirv_arguments, uses_matrices


def _describe_buffer(buffer: BufferBinding) -> dict[str, Any]:
    return {
        "register": buffer.register,
        "element_bytes": buffer.dtype.bytes,
        "structure_bytes": buffer.structure_bytes,
    }


def _describe_scalar(scalar: ScalarBinding) -> dict[str, Any]:
    return {"offset": scalar.offset}


def _find_arguments(source: str, entry_point: str, shader_model: str) -> list[str]:
    """Arguments of DXC for DXIL; empty for a source for Vulkan only."""
    find = spirv_arguments if uses_matrices(source) else dxil_arguments
    return find(source, entry_point, shader_model)


def _describe_kernel(kernel: KernelSource) -> dict[str, Any]:
    arguments = _find_arguments(kernel.source, kernel.entry_point, kernel.shader_model)
    made: dict[str, Any] = {
        "compile": {"compiler": "dxc", "arguments": arguments},
        "float_controls": list(kernel.float_controls),
        "vulkan_bindings": dataclasses.asdict(kernel.shifts),
    }
    if kernel.scalars:
        made["constant_buffer"] = {
            "register": "b0",
            "bytes": constant_buffer_bytes(kernel.scalars),
            "view_alignment": 256,
        }
    return made


HLSL = Language(
    target="hlsl",
    title="HLSL",
    suffix=".hlsl",
    list_needs=list_needs,
    describe_buffer=_describe_buffer,
    describe_scalar=_describe_scalar,
    describe_kernel=_describe_kernel,
    notes={
        "signing": "DXC signs DXIL on Windows alone, by its dxil.dll; dmlc signs what it writes"
    },
)


def list_details(parts: SourceParts, shader_model: str) -> Mapping[str, object]:
    """Root signature, and compiler arguments of the file."""
    has_one = parts.root_signature and not uses_matrices(parts.code)
    signature = _root_signature(parts.buffers, parts.scalars) if has_one else None
    arguments = _find_arguments(parts.code, parts.entry_point, shader_model)
    return {
        "root_signature": signature,
        "arguments": " ".join(arguments),
        "has_waves": "MatrixScope::Wave" in parts.code,
    }


def _root_signature(buffers: Sequence[BufferView], scalars: Sequence[ScalarView]) -> str:
    """Root signature of root descriptors only: two DWORDs each, and no descriptor heap for the host
    to fill."""
    parts = ["CBV(b0)"] if scalars else []
    parts += [f"SRV(t{b.slot})" for b in buffers if not b.written]
    parts += [f"UAV(u{b.slot})" for b in buffers if b.written]
    return ", ".join(parts)
