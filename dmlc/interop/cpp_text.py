"""Text of a C++ header: comments and code in lines of bounded length, and values as literals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmlc.codegen.names import make_comment, wrap_comment
from dmlc.program import TensorSpec
from dmlc.runtime.arrays import constant_array
from dmlc.scalars import DataType

_WIDTH = 100
"""The longest line of a header, where its formulas can be broken."""


def wrap_text(text: str) -> tuple[str, ...]:
    """Text as lines of a comment, without the slashes."""
    return tuple(wrap_comment(make_comment(text), _WIDTH - 6))


def break_line(line: str) -> list[str]:
    """Line of code as lines of bounded length, broken at spaces outside string literals and
    comments, inside as few brackets as possible."""
    code = line.lstrip(" ")
    indent = line[: len(line) - len(code)]
    if len(line) <= _WIDTH or '"' in code or "//" in code:
        return [line]
    first, *others = wrap_comment(code, _WIDTH - len(indent))
    return [indent + first, *(f"{indent}{other}" for other in others)]


def spell_array(tensor: TensorSpec) -> tuple[str, list[str]]:
    """Type and elements of a constant's array. Floats without a C++ literal, and all 16-bit floats,
    are given by their bits."""
    array = constant_array(tensor).ravel()
    dtype = tensor.dtype
    if dtype in (DataType.FLOAT32, DataType.FLOAT64) and np.isfinite(array).all():
        suffix = "f" if dtype is DataType.FLOAT32 else ""
        return "float" if suffix else "double", [_spell_float(v) + suffix for v in array]
    if dtype.is_float or dtype.bytes == 8:
        words = array.view(f"u{dtype.bytes}")
        return f"std::uint{8 * dtype.bytes}_t", [f"0x{int(w):0{2 * dtype.bytes}x}" for w in words]
    kind = "uint" if array.dtype.kind in "bu" else "int"
    return f"std::{kind}{8 * dtype.bytes}_t", [str(int(v)) for v in array]


def _spell_float(value: object) -> str:
    text = str(value)
    return text if "." in text or "e" in text else f"{text}.0"


def fill_lines(words: Sequence[str], width: int = _WIDTH - 4) -> list[str]:
    """Comma-separated words in lines no longer than `width`."""
    lines: list[str] = []
    line = ""
    for word in words:
        if line and len(line) + len(word) + 2 > width:
            lines.append(line.rstrip())
            line = ""
        line += f"{word}, "
    return [*lines, line.rstrip()]
