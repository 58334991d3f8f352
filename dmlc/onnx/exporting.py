"""Export of operators, graphs and functions of the tensor IR as ONNX models.

A model has one function, in the domain `dmlc`, and a graph that calls it. The function contains the
stages of the tensor IR in order, each under its own name and with its formula. ONNX has no strides:
a model describes the elements alone."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper

import dmlc
from dmlc.binding import Graph, Operator
from dmlc.binding.operator import Description
from dmlc.catalog import find_function
from dmlc.files import name_file
from dmlc.interop.export import Export
from dmlc.ir import Function, Parameter, Stage, Tensor
from dmlc.kernel.formula import describe_stage
from dmlc.onnx.arithmetic import ELEMENTS, Arithmetic, hold
from dmlc.onnx.nodes import Nodes, Value
from dmlc.onnx.stages import StageLowering
from dmlc.scalars import Array
from dmlc.source import UnsupportedError
from dmlc.transform.simplify import simplify
from dmlc.transform.tighten import tighten_bounds
from dmlc.transform.unroll import unroll_loops

DOMAIN = "dmlc"
"""Where the functions of models are."""
OPSET = 18
"""The version of ONNX's operators that models use."""
_IR_VERSION = 8


def export(
    subject: Function | Operator | Graph | str,
    tensors: Mapping[str, Description] | None = None,
    attributes: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """Model of a function, or of an operator (or its name) with these tensors and attributes, or of
    a graph with these tensors and symbols, as `bind` of both takes them. Raises `UnsupportedError`
    for a function with open sizes, and the errors of binding."""
    function = find_function(subject, tensors, attributes, dims, "subject")
    return make_model(function, subject if isinstance(subject, str) else subject.name)


def export_files(function: Function, subject: Operator | Graph) -> Export:
    """Files of `dmlc export --to onnx`."""
    model = make_model(function, subject.name)
    return Export({name_file(function.name, ".onnx"): model.SerializeToString(deterministic=True)})


def make_model(
    function: Function, title: str, arithmetic: type[Arithmetic] = Arithmetic
) -> onnx.ModelProto:
    """Model of a function, with nodes made by `arithmetic`."""
    symbols = function.symbols()
    if symbols:
        raise UnsupportedError(
            f"'{function.name}' has the open size '{symbols[0]}', and ONNX models are exported "
            "with all sizes known",
            notes=["give the sizes of its tensors, such as --tensor NAME=FLOAT32[2,3]"],
        )
    body = _make_function(function, title, arithmetic)
    inputs = [_describe(p) for p in function.parameters]
    results = [function.stage(result.name) for result in function.results]
    outputs = [_describe(stage) for stage in results if stage is not None]
    call = helper.make_node(body.name, body.input, body.output, domain=DOMAIN)
    graph = helper.make_graph([call], function.name, inputs, outputs, doc_string=title)
    return helper.make_model(
        graph,
        functions=[body],
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)],
        producer_name="dmlc",
        producer_version=dmlc.__version__,
        ir_version=_IR_VERSION,
    )


def _describe(tensor: Parameter | Stage) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, ELEMENTS[tensor.dtype], tensor.extents)


def _make_function(function: Function, title: str, kind: type[Arithmetic]) -> onnx.FunctionProto:
    """Function of a model: its stages in order."""
    lowered = tighten_bounds(simplify(unroll_loops(function, "ONNX")))
    nodes = Nodes(lowered.tensors())
    arithmetic = kind(nodes)
    held: dict[str, Value] = {}
    tables: dict[str, Array] = {table.name: table.array() for table in lowered.tables}
    formulas: list[str] = []
    for parameter in lowered.parameters:
        nodes.scope = parameter.name
        value = Value(parameter.name, ELEMENTS[parameter.dtype], _sizes(parameter))
        held[parameter.name] = arithmetic.load(value, parameter.dtype)
    for table in lowered.tables:
        nodes.scope = table.name
        held[table.name] = nodes.constant(hold(table.array(), table.dtype), table.name)
    results = {result.name for result in function.results}
    for stage in lowered.stages:
        nodes.scope = stage.name
        formula = describe_stage(lowered, stage.name)
        formulas.append(formula)
        value = StageLowering(arithmetic, stage, held, tables).lower()
        if stage.name in results or stage.dtype.is_storage_only:
            stored = arithmetic.store(value, stage.dtype)
            stored = nodes.finish(stored, stage.name, formula)
            value = stored if stage.dtype.is_storage_only else value
        else:
            value = nodes.finish(value, stage.name, formula)
        held[stage.name] = arithmetic.load(value, stage.dtype)
    return helper.make_function(
        DOMAIN,
        _name_function(function.name),
        [p.name for p in function.parameters],
        [r.name for r in function.results],
        nodes.close(results),
        [helper.make_opsetid("", OPSET)],
        doc_string="\n".join([title, *formulas]),
    )


def _name_function(name: str) -> str:
    """Name of the function in a model. ONNX's own evaluator would take a function with the name of
    one of ONNX's operators for that operator, whatever its domain."""
    return f"dmlc_{name}" if onnx.defs.has(name) else name


def _sizes(tensor: Tensor) -> tuple[int, ...]:
    return tuple(size for size in tensor.extents if isinstance(size, int))
