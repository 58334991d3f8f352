"""Export of operators, graphs and functions of the tensor IR as CGC graphs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import onnx

from dmlc.binding import Graph, Operator
from dmlc.binding.operator import Description
from dmlc.catalog import find_function
from dmlc.cgc.writing import write_model
from dmlc.files import name_file
from dmlc.interop.export import Export
from dmlc.ir import Function
from dmlc.onnx.arithmetic import Arithmetic
from dmlc.onnx.exporting import make_model
from dmlc.onnx.importing.models import read_file
from dmlc.onnx.nodes import Value
from dmlc.parameters import expect_path
from dmlc.scalars import DataType, Operation


class PlainArithmetic(Arithmetic):
    """Operations of CGC, which leaves zeros and NaN to each backend where the IR specifies more
    than ONNX."""

    pads_with_zeros = True

    def apply(self, operation: Operation, given: Sequence[Value], dtype: DataType) -> Value:
        match operation.name:
            case "gt":
                return self.test("Less", *given[::-1])
            case "le":
                return self.test("Or", self.test("Less", *given), self.test("Equal", *given))
            case "ge":
                return self.test("Or", self.test("Less", *given[::-1]), self.test("Equal", *given))
            case "min" | "max" | "sign" | "sigmoid" if dtype.is_float:
                return self.add(operation.name.title(), *given)
            case _:
                return super().apply(operation, given, dtype)


def export(
    subject: Function | Operator | Graph | onnx.ModelProto | str,
    tensors: Mapping[str, Description] | None = None,
    attributes: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
) -> str:
    """CGC text of a function, of an operator (or its name) with these tensors and attributes, of a
    graph with these tensors and symbols, as `bind` of both takes them, or of an ONNX model. Raises
    `UnsupportedError`, with the names of all nodes for which public texts of CGC have no operation,
    and for open sizes; and the errors of binding."""
    if isinstance(subject, onnx.ModelProto):
        return write_model(subject)
    return _write(find_function(subject, tensors, attributes, dims, "subject"))


def export_files(function: Function, subject: Operator | Graph) -> Export:
    """File of `dmlc export --to cgc`."""
    return Export({name_file(function.name, ".mlir"): _write(function).encode()})


def export_model(path: str | os.PathLike[str]) -> Export:
    """File for an ONNX model in a file, node by node."""
    shown = expect_path("path", path)
    text = write_model(read_file(shown))
    return Export({name_file(shown.stem, ".mlir"): text.encode()})


def _write(function: Function) -> str:
    model = make_model(function, function.name, PlainArithmetic)
    # The nodes of its one function keep their names where they take the place of its call.
    (body,) = model.functions
    del model.graph.node[:]
    model.graph.node.extend(body.node)
    return write_model(model)
