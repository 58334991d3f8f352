"""The formats of `dmlc export`: those of proofs, and those of functions alone.

A proof is a function with inputs and what they must give, for tools that run shaders. A format of a
function alone needs no inputs: its module has `export_files(function, subject)`, and is imported
when it is used. `subject` is the operator or the graph that the function was bound from, for what
is said of it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from types import MappingProxyType

from dmlc.binding import Graph, Operator
from dmlc.interop.export import FORMATS, Export
from dmlc.ir import Function


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionFormat:
    """A format of a function alone."""

    summary: str
    place: str
    """Where the commands of an export are run."""
    package: str
    takes_open: bool = False
    """Whether sizes may be open: then an operator without bindings is what `dmlc compile` takes it
    for, and not its first example."""

    def write(self, function: Function, subject: Operator | Graph) -> Export:
        """The files of a function. Raises `DmlcError` where the format cannot express it, or what
        it takes is not installed."""
        found: Export = importlib.import_module(self.package).export_files(function, subject)
        return found


FUNCTION_FORMATS: Mapping[str, FunctionFormat] = MappingProxyType(
    {
        "mlir": FunctionFormat(
            "a file of MLIR, with one linalg.generic on tensors for each stage",
            "where IREE is installed (pip install 'dmlc[mlir]'), in that folder",
            "dmlc.mlir",
        ),
        "onnx": FunctionFormat(
            "an ONNX model, with the operator as a function of its own",
            "in that folder",
            "dmlc.onnx",
        ),
        "ort-plugin": FunctionFormat(
            "a library of custom operators for ONNX Runtime, as C++ with CMake",
            "in that folder, with a C++ compiler and OpenCL",
            "dmlc.interop.ort_plugin",
            takes_open=True,
        ),
        "cgc": FunctionFormat(
            "a graph for Windows' Compute Graph Compiler, in its dialect cgc_op of MLIR",
            "in that folder",
            "dmlc.cgc",
        ),
    }
)
"""The formats of functions alone, by name."""


def list_formats() -> list[str]:
    """The names of all formats."""
    return [*FORMATS, *FUNCTION_FORMATS]


def describe_formats() -> str:
    """A sentence on each, for `--help`."""
    every = {**FORMATS, **FUNCTION_FORMATS}
    return "; ".join(f"{name}: {known.summary}" for name, known in every.items()) + "."
