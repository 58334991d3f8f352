"""Import and export of ONNX models.

Names are imported when first used, together with ONNX's own package, which is an extra: `pip
install 'dmlc[onnx]'`. Modules here import that package at their top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlc.lazy import Extra, import_lazily

if TYPE_CHECKING:
    from dmlc.onnx.exporting import export, export_files
    from dmlc.onnx.importing.models import ImportedModel, load
    from dmlc.onnx.importing.nodes import UnknownValueError
    from dmlc.onnx.importing.rules import list_operators

__all__ = ["ImportedModel", "UnknownValueError", "export", "export_files", "list_operators", "load"]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "exporting": ("export", "export_files"),
        "importing.models": ("ImportedModel", "load"),
        "importing.nodes": ("UnknownValueError",),
        "importing.rules": ("list_operators",),
    },
    Extra("onnx", {"onnx": "onnx"}),
)
