"""WGSL on the host side: bindings, uniform buffer, and manifest entries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dmlc.codegen.dialect import SourceParts
from dmlc.program import BufferBinding, KernelSource, Language, ScalarBinding, constant_buffer_bytes

_F16 = re.compile(r"^enable f16;", re.MULTILINE)


def _list_needs(source: str) -> list[str]:
    return ["16-bit types"] if _F16.search(source) else []


def _describe_buffer(buffer: BufferBinding) -> dict[str, Any]:
    return {"group": 0, "binding": buffer.slot}


def _describe_scalar(scalar: ScalarBinding) -> dict[str, Any]:
    return {"offset": scalar.offset}


def _describe_kernel(kernel: KernelSource) -> dict[str, Any]:
    if not kernel.scalars:
        return {}
    size = constant_buffer_bytes(kernel.scalars)
    return {"uniform_buffer": {"group": 0, "binding": len(kernel.buffers), "bytes": size}}


WGSL_LANGUAGE = Language(
    target="wgsl",
    title="WGSL",
    suffix=".wgsl",
    list_needs=_list_needs,
    describe_buffer=_describe_buffer,
    describe_scalar=_describe_scalar,
    describe_kernel=_describe_kernel,
)


def list_details(parts: SourceParts) -> Mapping[str, object]:
    """Declarations at the top of a file."""
    return {
        "uses_f16": any("f16" in buffer.type for buffer in parts.buffers),
        "uses_matrices": re.search(r"\bsubgroup_matrix_\w+<", parts.code) is not None,
        "uses_zero_bits": re.search(r"\bzero_bits\b", parts.code) is not None,
    }
