"""ONNX: its models, and functions of the tensor IR.

The names below are imported when they are first used, and ONNX's own package with them, which is
an extra: `pip install 'dmlc[onnx]'`. Modules here import that package at their top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlc.lazy import import_lazily
from dmlc.source import Note, UnavailableError

if TYPE_CHECKING:
    from dmlc.onnx.exporting import export, export_files
    from dmlc.onnx.importing.models import ImportedModel, load
    from dmlc.onnx.importing.nodes import UnknownValueError
    from dmlc.onnx.importing.rules import list_operators

__all__ = ["ImportedModel", "UnknownValueError", "export", "export_files", "list_operators", "load"]


def _explain(_: str, package: str) -> UnavailableError | None:
    if package != "onnx":
        return None
    message = "ONNX models are read and written by the Python package 'onnx', not found here"
    return UnavailableError(message, notes=[Note("install it with: pip install 'dmlc[onnx]'")])


__getattr__, __dir__ = import_lazily(
    globals(),
    {
        "dmlc.onnx.importing.models": ("ImportedModel", "load"),
        "dmlc.onnx.importing.nodes": ("UnknownValueError",),
        "dmlc.onnx.exporting": ("export", "export_files"),
        "dmlc.onnx.importing.rules": ("list_operators",),
    },
    _explain,
)
