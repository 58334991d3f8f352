"""dmlc: a compiler for GPU operators, from their reference pages to kernels that run.

The names below are the whole public face; each is imported when it is first used, so that
`import dmlc` costs nothing and `dmlc --help` never loads NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmlc import cgc, compiler, ir, mlir, onnx
    from dmlc import torch as torch
    from dmlc.api import Results, load_program, run
    from dmlc.binding import Graph, Module, Operator, TensorDesc
    from dmlc.binding.attributes import OPEN
    from dmlc.building import GraphBuilder, gradient
    from dmlc.catalog import load, operator, operators, parse
    from dmlc.inspection import Inspection, inspect
    from dmlc.manifest import read_manifest
    from dmlc.pipeline import compile
    from dmlc.program import Program
    from dmlc.scalars import DataType
    from dmlc.source import (
        ArgumentError,
        Diagnostic,
        DmlcError,
        InternalError,
        Span,
        UnavailableError,
        UnknownNameError,
        UnsupportedError,
    )

__version__ = "0.1.0"

__all__ = [
    "OPEN",
    "ArgumentError",
    "DataType",
    "Diagnostic",
    "DmlcError",
    "Graph",
    "GraphBuilder",
    "Inspection",
    "InternalError",
    "Module",
    "Operator",
    "Program",
    "Results",
    "Span",
    "TensorDesc",
    "UnavailableError",
    "UnknownNameError",
    "UnsupportedError",
    "__version__",
    "cgc",
    "compile",
    "compiler",
    "gradient",
    "inspect",
    "ir",
    "load",
    "load_program",
    "mlir",
    "onnx",
    "operator",
    "operators",
    "parse",
    "read_manifest",
    "run",
]

_PACKAGES = ("cgc", "compiler", "ir", "mlir", "onnx", "torch")
"""The packages and modules among them."""

_PLACES = {
    "ArgumentError": "dmlc.source",
    "DataType": "dmlc.scalars",
    "Diagnostic": "dmlc.source",
    "DmlcError": "dmlc.source",
    "Graph": "dmlc.binding",
    "GraphBuilder": "dmlc.building",
    "Inspection": "dmlc.inspection",
    "InternalError": "dmlc.source",
    "Module": "dmlc.binding",
    "OPEN": "dmlc.binding.attributes",
    "Operator": "dmlc.binding",
    "Program": "dmlc.program",
    "Results": "dmlc.api",
    "Span": "dmlc.source",
    "TensorDesc": "dmlc.binding",
    "UnavailableError": "dmlc.source",
    "UnknownNameError": "dmlc.source",
    "UnsupportedError": "dmlc.source",
    "compile": "dmlc.pipeline",
    "gradient": "dmlc.building",
    "inspect": "dmlc.inspection",
    "load": "dmlc.catalog",
    "load_program": "dmlc.api",
    "operator": "dmlc.catalog",
    "operators": "dmlc.catalog",
    "parse": "dmlc.catalog",
    "read_manifest": "dmlc.manifest",
    "run": "dmlc.api",
}


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return importlib.import_module(f"dmlc.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'dmlc' has no attribute '{name}'")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
