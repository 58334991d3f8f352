"""ONNX: its models, and functions of the tensor IR.

The names below are imported when they are first used, and ONNX's own package with them, which is
an extra: `pip install 'dmlc[onnx]'`. Modules here import that package at their top.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dmlc.source import Note, UnavailableError

if TYPE_CHECKING:
    from dmlc.onnx.exporting import export, export_files
    from dmlc.onnx.importing.models import ImportedModel, load
    from dmlc.onnx.importing.nodes import UnknownValueError
    from dmlc.onnx.importing.rules import list_operators

__all__ = ["ImportedModel", "UnknownValueError", "export", "export_files", "list_operators", "load"]

_PLACES: Mapping[str, str] = {
    "ImportedModel": "dmlc.onnx.importing.models",
    "UnknownValueError": "dmlc.onnx.importing.nodes",
    "export": "dmlc.onnx.exporting",
    "export_files": "dmlc.onnx.exporting",
    "list_operators": "dmlc.onnx.importing.rules",
    "load": "dmlc.onnx.importing.models",
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
        message = "ONNX models are read and written by the Python package 'onnx', not found here"
        raise UnavailableError(message, notes=[_INSTALL]) from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
