"""Checks of a node against ONNX's own schema, and the types of its outputs. Each node is checked
once, before anything else reads it."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import checker, helper, shape_inference

from dmlc.building.tensors import show_extents
from dmlc.onnx.importing.names import describe_type, read_attribute
from dmlc.onnx.importing.nodes import Value, extents_of, is_sizes
from dmlc.source import DmlcError, UnsupportedError, join_words, list_names

_INT32 = onnx.TensorProto.INT32
_KNOWN = 4096
"""The most elements of a constant that the sizes of results may follow from."""
_NEWEST = 2**31 - 1
"""No version is as new, and no tensor has as many axes."""

_EQUATION = re.compile(r"[A-Za-z., ]*(->[A-Za-z. ]*)?")

_OF_SCALARS = ("Range",)
"""The operators of scalars that models give tensors of one element, as ONNX's own functions do."""

_REFUSALS = (
    checker.ValidationError, shape_inference.InferenceError, IndexError, MemoryError, RuntimeError,
    ValueError,
)  # fmt: skip
"""What ONNX raises where it refuses a node: some of it as C++ does."""


@functools.lru_cache(1024)
def find_schema(op_type: str, version: int, domain: str) -> Any:
    """ONNX's schema of an operator. Raises `UnsupportedError` if there is none."""
    version = max(min(version, _NEWEST), 0)
    try:
        found: Any = onnx.defs.get_schema(op_type, version, domain)
        if found.deprecated:
            # It means what it meant before.
            found = onnx.defs.get_schema(op_type, found.since_version - 1, domain)
    except onnx.defs.SchemaError:
        raise UnsupportedError("it is no operator of this version of ONNX") from None
    return found


@functools.lru_cache(1024)
def find_defaults(schema: Any) -> Mapping[str, object]:
    """Values of the attributes that a node may leave out, by name, as far as ONNX gives them."""
    given = [own.default_value for own in schema.attributes.values()]
    return {own.name: read_attribute(own) for own in given if own.name}


def check_form(
    schema: Any, node: onnx.NodeProto, attributes: Sequence[onnx.AttributeProto]
) -> None:
    """Raises `DmlcError` for a wrong number of inputs or outputs, or for unknown attributes."""
    for what, names, least, most in (
        ("input", node.input, schema.min_input, schema.max_input),
        ("output", node.output, schema.min_output, schema.max_output),
    ):
        if not least <= len(names) <= most:
            takes = f"{least}" if least == most else f"{least} to {most}"
            raise DmlcError(f"it has {len(names)} {what}s, and {schema.name} has {takes}")
    known: Mapping[str, Any] = schema.attributes
    given: dict[str, None] = {}
    for attribute in attributes:
        name = attribute.name
        if name in given:
            raise DmlcError(f"it has the attribute '{name}' twice")
        given[name] = None
        if name not in known:
            notes = [f"{schema.name} has {list_names(sorted(known))}"] if known else []
            raise DmlcError(f"it has the attribute '{name}', which {schema.name} has not",
                            notes=notes)  # fmt: skip
        wanted = onnx.AttributeProto.AttributeType.Name(int(known[name].type.value))
        if attribute.type != known[name].type.value:
            raise DmlcError(f"its attribute '{name}' is no {wanted}")
        if name.endswith(("axis", "axes")):
            # ONNX itself looks at 32 bits of such a number.
            wrong = [axis for axis in (attribute.i, *attribute.ints) if abs(axis) >= _NEWEST]
            if wrong:
                raise DmlcError(f"its attribute '{name}' is {wrong[0]}, and there is no such axis")
    missing = [name for name, own in known.items() if own.required and name not in given]
    if missing:
        raise DmlcError(f"it has no attribute '{missing[0]}', which {schema.name} needs")


def infer(
    schema: Any,
    op_type: str,
    inputs: Sequence[Value | None],
    outputs: int,
    attributes: Sequence[onnx.AttributeProto],
    opsets: Mapping[str, int],
) -> list[onnx.TypeProto]:
    """Types of a node's outputs, as far as ONNX infers them. Raises `DmlcError` if the operator
    does not accept the types and ranks of the inputs, or the values of attributes."""
    if op_type in _OF_SCALARS:
        inputs = [v.reshape(()) if isinstance(v, np.ndarray) and v.size == 1 else v for v in inputs]
    _check_counts(inputs, outputs, attributes)
    names = [f"i{number}" if value is not None else "" for number, value in enumerate(inputs)]
    given = {n: v for n, v in zip(names, inputs, strict=True) if v is not None}
    results = [f"o{number}" for number in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=schema.domain)
    node.attribute.extend(attributes)
    types = {name: describe_type(value) for name, value in given.items()}
    for number in list_narrow(schema, inputs):
        types[names[number]].tensor_type.elem_type = _INT32
    held = {
        name: onnx.numpy_helper.from_array(value, name)
        for name, value in given.items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size <= _KNOWN
    }
    try:
        found = shape_inference.infer_node_outputs(
            schema, node, types, held,
            opset_imports=[
                helper.make_opsetid(d, max(min(v, _NEWEST), 0)) for d, v in opsets.items()
            ],
        )  # fmt: skip
    except _REFUSALS as error:
        text = str(error).replace("[ShapeInferenceError]", "").replace("[TypeInferenceError]", "")
        first = next((line.strip() for line in text.splitlines() if line.strip()), "it is refused")
        shapes = [show_extents(extents_of(value)) for value in given.values()]
        of = f", of inputs of the sizes {join_words(shapes, 'and')}" if shapes else ""
        raise DmlcError(f"ONNX does not take it{of}: {first.rstrip('.')}") from None
    return [found.get(name, onnx.TypeProto()) for name in results]


def list_narrow(schema: Any, inputs: Sequence[Value | None]) -> frozenset[int]:
    """Inputs that are open sizes and must be INT32, because the operator takes one type for them
    and an input of INT32. All other sizes are INT64."""
    kinds = list_kinds(schema, len(inputs))
    sizes = [number for number, value in enumerate(inputs) if is_sizes(value)]
    narrow = {
        kinds[number] for number, value in enumerate(inputs)
        if sizes and number not in sizes and describe_type(value).tensor_type.elem_type == _INT32
    }  # fmt: skip
    return frozenset(number for number in sizes if kinds[number] in narrow)


def list_kinds(schema: Any, count: int) -> list[str]:
    """Types of the inputs, by their names in the schema."""
    formal = [kind.type_str for kind in schema.inputs]
    return [formal[min(number, len(formal) - 1)] for number in range(count)]


def _check_counts(
    inputs: Sequence[Value | None], outputs: int, attributes: Sequence[onnx.AttributeProto]
) -> None:
    """Refuses attributes that ONNX does not check itself: with wrong numbers it accesses memory out
    of bounds, which ends the process."""
    ranks = [len(extents_of(value)) for value in inputs if value is not None]
    for attribute in attributes:
        if attribute.name == "num_outputs" and attribute.i != outputs:
            raise DmlcError(f"it has {outputs} outputs, and its num_outputs is {attribute.i}")
        if attribute.name == "batch_dims" and not 0 <= attribute.i <= min(ranks, default=0):
            raise DmlcError(f"its inputs have {min(ranks, default=0)} axes or more, and its "
                            f"batch_dims is {attribute.i}")  # fmt: skip
        if attribute.name == "equation":
            text = attribute.s.decode("utf-8", "replace")
            terms, _, result = text.partition("->")
            known = terms.count(",") + 1 == len(inputs) and set(result) <= {*terms, " ", "."}
            if not (known and _EQUATION.fullmatch(text)):
                raise DmlcError(f"'{text[:80]}' is no equation of {len(inputs)} tensors")


def has_function(schema: Any) -> bool:
    """Whether ONNX defines an operator by others."""
    return bool(schema.has_function or schema.has_context_dependent_function)


def count_bytes(kind: onnx.TypeProto) -> int | None:
    """Bytes of a tensor of a type; None if unknown."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    held = kind.tensor_type
    if not held.elem_type or not all(dim.HasField("dim_value") for dim in held.shape.dim):
        return None
    size = helper.tensor_dtype_to_np_dtype(held.elem_type).itemsize
    return max(size, 1) * math.prod(dim.dim_value for dim in held.shape.dim)
