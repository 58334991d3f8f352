"""CGC: graphs for Windows' Compute Graph Compiler, and from it, as `.mlir` of its dialect `cgc_op`.

A graph of CGC is one of ONNX in other words. So `export` writes models of `dmlc.onnx`, and `load`
reads a text as such a model, which is imported. ONNX's own package is an extra:
`pip install 'dmlc[onnx]'`. The names below are imported when they are first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

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

_PLACES: Mapping[str, str] = {
    "export": "dmlc.cgc.exporting",
    "export_files": "dmlc.cgc.exporting",
    "export_model": "dmlc.cgc.exporting",
    "list_operators": "dmlc.cgc.operators",
    "load": "dmlc.cgc.reading",
    "read_model": "dmlc.cgc.reading",
    "write_model": "dmlc.cgc.writing",
}
"""The modules that define them."""

_INSTALL = Note("install it with: pip install 'dmlc[onnx]'")


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        module = importlib.import_module(_PLACES[name])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "onnx":
            raise
        message = "CGC graphs are read and written by the Python package 'onnx', not found here"
        raise UnavailableError(message, notes=[_INSTALL]) from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
