"""OpenCL C on the host side: arguments by number, and manifest entries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dmlc.codegen.dialect import SourceParts
from dmlc.program import BufferBinding, KernelSource, Language, ScalarBinding
from dmlc.scalars import DataType

_DOUBLE = re.compile(r"\bdouble\d*\b")
_COMMENT = re.compile(r"//[^\n]*")


def _list_needs(source: str) -> list[str]:
    """Required device features: FLOAT64 only, since OpenCL C always has 64-bit integers and 16-bit
    types."""
    return ["FLOAT64"] if _DOUBLE.search(_COMMENT.sub("", source)) else []


def _describe_buffer(buffer: BufferBinding) -> dict[str, Any]:
    return {"argument": buffer.slot, "structure_bytes": buffer.structure_bytes}


def _describe_scalar(scalar: ScalarBinding) -> dict[str, Any]:
    return {"argument": scalar.slot}


def _describe_kernel(kernel: KernelSource) -> dict[str, Any]:
    return {}


OPENCL_C = Language(
    target="opencl",
    title="OpenCL",
    suffix=".cl",
    list_needs=_list_needs,
    describe_buffer=_describe_buffer,
    describe_scalar=_describe_scalar,
    describe_kernel=_describe_kernel,
)


def list_details(parts: SourceParts) -> Mapping[str, object]:
    """Pragmas at the top of a file."""
    return {
        "uses_double": DataType.FLOAT64 in parts.dtypes,
        "uses_streaming": any(name.startswith("stream") for name in parts.helpers),
    }
