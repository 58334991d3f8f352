"""ONNX models as nodes whose values have types, from which CGC is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import onnx
from onnx import helper, inliner, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from dmlc.cgc.text import TensorType
from dmlc.scalars import Array, data_type_of
from dmlc.source import DmlcError, UnsupportedError, list_names

OLDEST = 13
"""The version of ONNX's operators from which on bounds and axes are inputs."""

_FOLDED = ("Cast", "Expand", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that move and convert elements: those of constants are constants."""


@dataclasses.dataclass(slots=True)
class Model:
    """Nodes of a model in order, with its functions inlined; constants are not nodes."""

    name: str
    nodes: list[onnx.NodeProto]
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    types: dict[str, TensorType]
    """Those of all values."""
    constants: dict[str, Array]

    def add_constant(self, wanted: str, array: Array) -> str:
        """Name of a new constant, similar to the name wanted."""
        name = wanted
        while name in self.types and not self._is_same(name, array):
            name = f"{name}_"
        self.constants[name] = array
        self.types[name] = _type_of_array(name, array)
        return name

    def count_uses(self) -> dict[str, int]:
        """Number of reads of each value; outputs of the model count as one more."""
        found = dict.fromkeys(self.outputs, 1)
        for node in self.nodes:
            for name in node.input:
                found[name] = found.get(name, 0) + 1
        return found

    def _is_same(self, name: str, array: Array) -> bool:
        known = self.constants.get(name)
        return (
            known is not None and known.dtype == array.dtype and known.tobytes() == array.tobytes()
        )


def read_attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Values of a node's attributes."""
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def open_model(model: onnx.ModelProto) -> Model:
    """Model with its functions inlined. Raises `UnsupportedError` for open sizes."""
    version = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if version < OLDEST:
        raise UnsupportedError(
            f"the model has version {version} of ONNX's operators, and CGC graphs are written from "
            f"{OLDEST} on",
            notes=["onnx.version_converter.convert_version converts it"],
        )
    try:
        whole = inliner.inline_local_functions(model)
        typed = shape_inference.infer_shapes(whole, strict_mode=True, data_prop=True)
    except Exception as error:  # What ONNX raises depends on how it was built.
        if type(error).__module__.split(".")[0] not in ("onnx", "google"):
            raise
        raise DmlcError(f"this is no model that ONNX knows the types of: {error}") from None
    graph = typed.graph
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        value = _read_constant(node) if node.op_type == "Constant" else None
        if node.op_type in _FOLDED and all(name in constants for name in node.input):
            given = {name: constants[name] for name in node.input}
            value = cast("Any", ReferenceEvaluator(node)).run(None, given)[0]
        if value is None:
            nodes.append(node)
        else:
            constants[node.output[0]] = np.asarray(value)
    types = {name: _type_of_array(name, array) for name, array in constants.items()}
    declared = [*graph.input, *graph.value_info, *graph.output]
    for value in declared:
        types.setdefault(value.name, _type_of(value))
    given = [value.name for value in graph.input if value.name not in constants]
    return Model(
        graph.name or "main",
        nodes,
        {name: types[name] for name in given},
        {value.name: types[value.name] for value in graph.output},
        types,
        constants,
    )


def _read_constant(node: onnx.NodeProto) -> Array | None:
    """Value of a `Constant`; None if it is no tensor of numbers."""
    for name, value in read_attributes(node).items():
        if isinstance(value, onnx.TensorProto):
            return numpy_helper.to_array(value)
        if name in ("value_int", "value_ints"):
            return np.array(value, np.int64)
        if name in ("value_float", "value_floats"):
            return np.array(value, np.float32)
    return None


def _type_of(value: onnx.ValueInfoProto) -> TensorType:
    kind = value.type.tensor_type
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    known = [size for size in sizes if size is not None]
    if not kind.HasField("shape") or len(known) != len(sizes):
        raise UnsupportedError(
            f"the sizes of '{value.name}' are open, and CGC graphs have all sizes known",
            notes=["give sizes to the inputs of the model, and to symbols (--dim NAME=SIZE)"],
        )
    try:
        dtype = data_type_of(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    except KeyError:
        dtype = None
    if dtype is None:
        shown = onnx.TensorProto.DataType.Name(kind.elem_type)
        raise UnsupportedError(f"'{value.name}' has elements of the type {shown}")
    return TensorType(dtype, tuple(known))


def _type_of_array(name: str, array: Array) -> TensorType:
    dtype = data_type_of(array.dtype)
    if dtype is None:
        raise UnsupportedError(f"the constant '{name}' has elements of the type {array.dtype}")
    return TensorType(dtype, array.shape)


def describe_nodes(nodes: list[onnx.NodeProto]) -> str:
    """Nodes counted by operator, with their outputs: `2 x Where (y, z)`."""
    names = [node.output[0] for node in nodes]
    return f"{len(nodes)} x {nodes[0].op_type} ({list_names(names, 4)})"
