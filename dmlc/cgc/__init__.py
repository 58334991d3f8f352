"""CGC: graphs for Windows' Compute Graph Compiler, and from it, as `.mlir` of its dialect `cgc_op`.

A graph of CGC is one of ONNX in other words. So `export` writes models of `dmlc.onnx`, and `load`
reads a text as such a model, which is imported. ONNX's own package is an extra:
`pip install 'dmlc[onnx]'`. The names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlc.lazy import import_lazily
from dmlc.source import Note, UnavailableError

if TYPE_CHECKING:
    from dmlc.cgc.exporting import export, export_files, export_model
    from dmlc.cgc.operators import list_operators
    from dmlc.cgc.reading import load, read_model
    from dmlc.cgc.writing import write_model

__all__ = [
    "export",
    "export_files",
    "export_model",
    "list_operators",
    "load",
    "read_model",
    "write_model",
]


def _explain(_: str, package: str) -> UnavailableError | None:
    if package != "onnx":
        return None
    message = "CGC graphs are read and written by the Python package 'onnx', not found here"
    return UnavailableError(message, notes=[Note("install it with: pip install 'dmlc[onnx]'")])


__getattr__, __dir__ = import_lazily(
    globals(),
    {
        "dmlc.cgc.exporting": ("export", "export_files", "export_model"),
        "dmlc.cgc.operators": ("list_operators",),
        "dmlc.cgc.reading": ("load", "read_model"),
        "dmlc.cgc.writing": ("write_model",),
    },
    _explain,
)
