"""Rewrites nodes to 16 bits, and merges convolutions with their bias, as CGC has operations for
both.

dmlc's models compute FLOAT16 and BFLOAT16 in FLOAT: they cast what they read, and their results.
One operation between such casts equals the operation in 16 bits, if it rounds once. So it is
written in 16 bits; several operations in a row stay in FLOAT."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from dmlc.cgc.model import Model
from dmlc.cgc.operators import operators_by_onnx
from dmlc.cgc.text import TensorType
from dmlc.scalars import DataType

_MOVES = ("Reshape", "Slice", "Transpose")
"""Operators that move elements of their first input."""
_PRODUCTS = ("Conv", "Gemm", "MatMul")


def fuse_biases(model: Model) -> None:
    """Merges a convolution and the sum with its bias into one node, if nothing else reads the
    convolution."""
    uses = model.count_uses()
    makers = {node.output[0]: node for node in model.nodes}
    for node in list(model.nodes):
        if node.op_type != "Add":
            continue
        for value, other in (tuple(node.input), tuple(node.input)[::-1]):
            conv = makers.get(value)
            if conv is None or conv.op_type != "Conv" or uses[value] > 1 or len(conv.input) > 2:
                continue
            kind = model.types[value]
            bias = _find_line(model, makers, other, kind)
            if bias is None:
                continue
            made = onnx.NodeProto()
            made.CopyFrom(conv)
            made.input.append(bias)
            made.output[0] = node.output[0]
            model.nodes[model.nodes.index(node)] = made
            model.nodes.remove(conv)
            makers[node.output[0]] = made
            break


def _find_line(
    model: Model, makers: dict[str, onnx.NodeProto], name: str, kind: TensorType
) -> str | None:
    """Vector with a number for each channel, of which a value is a reshaped copy; None if it is
    none."""
    sizes, channels = model.types[name].sizes, kind.sizes[1]
    whole = (1,) * (len(kind.sizes) - len(sizes)) + sizes
    if whole != (1, channels, *(1,) * (len(kind.sizes) - 2)):
        return None
    reshape = makers.get(name)
    moved = reshape is not None and reshape.op_type == "Reshape"
    if reshape is not None and moved and model.types[reshape.input[0]].sizes == (channels,):
        return reshape.input[0]
    line = f"{name}_line"
    shape = model.add_constant(f"{line}_sizes", np.array([channels], np.int64))
    model.types[line] = TensorType(model.types[name].dtype, (channels,))
    made = helper.make_node("Reshape", [name, shape], [line])
    at = 0 if reshape is None else model.nodes.index(reshape) + 1
    model.nodes.insert(at, made)
    return line


def narrow(model: Model) -> None:
    """Rewrites operations between casts to 16 bits, and removes casts that become unnecessary."""
    while _drop_cast(model) or _move_casts(model) or _narrow_one(model):
        pass
    uses = model.count_uses()
    for node in reversed(list(model.nodes)):
        if not any(uses.get(name, 0) for name in node.output):
            model.nodes.remove(node)
            for name in node.input:
                uses[name] -= 1


def _find_wide(model: Model, makers: dict[str, onnx.NodeProto], name: str) -> str | None:
    """16-bit value that is cast to the FLOAT32 value `name`; None if it is no such cast."""
    node = makers.get(name)
    if node is None or node.op_type != "Cast" or model.types[name].dtype is not DataType.FLOAT32:
        return None
    source = node.input[0]
    return source if model.types[source].dtype.is_storage_only else None


def _drop_cast(model: Model) -> bool:
    """Drops a cast to FLOAT32 and back, which changes nothing. Returns whether there was one."""
    makers = {node.output[0]: node for node in model.nodes}
    for node in model.nodes:
        result = node.output[0]
        if node.op_type != "Cast" or not model.types[result].dtype.is_storage_only:
            continue
        source = _find_wide(model, makers, node.input[0])
        if source is None or model.types[source].dtype is not model.types[result].dtype:
            continue
        if result in model.outputs and (source in model.outputs or source not in makers):
            continue
        # Who asks for the model's output by its name keeps it.
        old, new = (source, result) if result in model.outputs else (result, source)
        model.nodes.remove(node)
        for other in model.nodes:
            for names in (other.input, other.output):
                for at, name in enumerate(names):
                    names[at] = new if name == old else name
        return True
    return False


def _move_casts(model: Model) -> bool:
    """Moves casts to FLOAT32 after nodes that move elements, and casts to 16 bits before them.
    Returns whether there were any."""
    makers = {node.output[0]: node for node in model.nodes}
    uses = model.count_uses()
    for at, node in enumerate(model.nodes):
        if node.op_type in _MOVES:
            source = _find_wide(model, makers, node.input[0])
            if source is not None:
                _swap(model, at, node, source)
                return True
        elif node.op_type == "Cast" and model.types[node.output[0]].dtype.is_storage_only:
            moved = makers.get(node.input[0])
            if moved is not None and moved.op_type in _MOVES and uses[node.input[0]] == 1:
                before = onnx.NodeProto()
                before.CopyFrom(moved)
                before.output[0] = node.output[0]
                cast = onnx.NodeProto()
                cast.CopyFrom(node)
                cast.input[0] = moved.input[0]
                cast.output[0] = f"{node.output[0]}_narrow"
                before.input[0] = cast.output[0]
                kind = model.types[moved.input[0]]
                model.types[cast.output[0]] = TensorType(
                    model.types[node.output[0]].dtype, kind.sizes
                )
                model.nodes[at : at + 1] = [cast, before]
                model.nodes.remove(moved)
                return True
    return False


def _swap(model: Model, at: int, node: onnx.NodeProto, source: str) -> None:
    """Exchanges a cast with the node after it, which moves elements."""
    dtype = model.types[source].dtype
    moved = onnx.NodeProto()
    moved.CopyFrom(node)
    moved.input[0] = source
    moved.output[0] = f"{node.output[0]}_narrow"
    model.types[moved.output[0]] = TensorType(dtype, model.types[node.output[0]].sizes)
    cast = helper.make_node("Cast", [moved.output[0]], [node.output[0]], to=onnx.TensorProto.FLOAT)
    model.nodes[at : at + 1] = [moved, cast]


def _narrow_one(model: Model) -> bool:
    """Rewrites one node between casts to 16 bits. Returns whether there was one."""
    makers = {node.output[0]: node for node in model.nodes}
    uses = model.count_uses()
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for node in model.nodes:
        operator = operators_by_onnx().get(node.op_type)
        if operator is None or not (operator.elementwise or node.op_type in _PRODUCTS):
            continue
        result = node.output[0]
        sources = [_find_wide(model, makers, name) for name in node.input]
        kinds = {model.types[source].dtype for source in sources if source is not None}
        if len(kinds) != 1:
            continue
        (dtype,) = kinds
        given = [
            source if source is not None else _narrow_constant(model, name, dtype)
            for source, name in zip(sources, node.input, strict=True)
        ]
        cast = _find_cast(model, readers.get(result, []), uses.get(result, 0), dtype)
        gives_bool = model.types[result].dtype is DataType.BOOL
        if None in given or (cast is None and not gives_bool):
            continue
        for at, name in enumerate(given):
            node.input[at] = name or ""
        if cast is not None:
            model.nodes.remove(cast)
            node.output[0] = cast.output[0]
        return True
    return False


def _find_cast(
    model: Model, readers: Sequence[onnx.NodeProto], uses: int, dtype: DataType
) -> onnx.NodeProto | None:
    """Cast to 16 bits that is the only reader of a value; None if it has other readers."""
    if uses != 1 or len(readers) != 1 or readers[0].op_type != "Cast":
        return None
    return readers[0] if model.types[readers[0].output[0]].dtype is dtype else None


def _narrow_constant(model: Model, name: str, dtype: DataType) -> str | None:
    """Constant in 16 bits, if these represent its numbers exactly; else None."""
    array = model.constants.get(name)
    if array is None or model.types[name].dtype is not DataType.FLOAT32:
        return None
    with np.errstate(over="ignore"):
        held = array.astype(dtype.dtype)
    if not np.array_equal(held.astype(array.dtype), array, equal_nan=True):
        return None
    return model.add_constant(f"{name}_{dtype.short}", held)
