"""Import and export of graphs for Windows' Compute Graph Compiler (CGC), as `.mlir` files of its
dialect `cgc_op`.

A CGC graph is an ONNX graph in other words. So `export` writes models of `dmlc.onnx`, and `load`
reads a text as such a model, which is imported. ONNX's own package is an extra: `pip install
'dmlc[onnx]'`. Names are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlc.lazy import Extra, import_lazily

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

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "exporting": ("export", "export_files", "export_model"),
        "operators": ("list_operators",),
        "reading": ("load", "read_model"),
        "writing": ("write_model",),
    },
    Extra("onnx", {"onnx": "onnx"}),
)
