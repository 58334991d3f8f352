"""ONNX's element-wise operators as the library has them, for ONNX's own node tests.

Most are a row of a table: the operator, its inputs, and how its attributes are spelt there. ONNX
broadcasts in the operator, DirectML by strides of zero; of its truth values DirectML has bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, numpy_helper

from tests.library.run import Array, run

Node = Mapping[str, Any]
"""The attributes of a node, with its operator as `op_type` and the names of its `outputs`."""
Handler = Callable[[Node, list[Any], str], list[Array]]


class Unmapped(Exception):
    """An ONNX operator, or a setting of one, that no operator of the library has."""


_ONE = ("InputTensor",)
_TWO = ("ATensor", "BTensor")


def _nothing(node: Node) -> dict[str, object]:
    return {}


def _infinities(node: Node) -> dict[str, object]:
    signs = (node.get("detect_negative", 1), node.get("detect_positive", 1))
    modes = {(1, 1): "EITHER", (0, 1): "POSITIVE", (1, 0): "NEGATIVE"}
    return {"InfinityMode": modes[signs]}


_TABLE: dict[str, tuple[str, tuple[str, ...], Callable[[Node], dict[str, object]]]] = {
    **{
        name: (f"ELEMENT_WISE_{ours}", _ONE, _nothing)
        for name, ours in {
            "Identity": "IDENTITY", "Abs": "ABS", "Neg": "NEGATE", "Sign": "SIGN",
            "Reciprocal": "RECIP", "Sqrt": "SQRT", "Exp": "EXP", "Log": "LOG", "Erf": "ERF",
            "Floor": "FLOOR", "Ceil": "CEIL", "Sin": "SIN", "Cos": "COS", "Tan": "TAN",
            "Asin": "ASIN", "Acos": "ACOS", "Atan": "ATAN", "Sinh": "SINH", "Cosh": "COSH",
            "Asinh": "ASINH", "Acosh": "ACOSH", "Atanh": "ATANH", "IsNaN": "IS_NAN",
            "Not": "LOGICAL_NOT", "BitwiseNot": "BIT_NOT",
        }.items()
    },
    **{
        name: (f"ELEMENT_WISE_{ours}", _TWO, _nothing)
        for name, ours in {
            "Add": "ADD", "Sub": "SUBTRACT", "Mul": "MULTIPLY", "Div": "DIVIDE",
            "Equal": "LOGICAL_EQUALS", "Greater": "LOGICAL_GREATER_THAN",
            "Less": "LOGICAL_LESS_THAN", "GreaterOrEqual": "LOGICAL_GREATER_THAN_OR_EQUAL",
            "LessOrEqual": "LOGICAL_LESS_THAN_OR_EQUAL", "And": "LOGICAL_AND", "Or": "LOGICAL_OR",
            "Xor": "LOGICAL_XOR", "BitwiseAnd": "BIT_AND", "BitwiseOr": "BIT_OR",
            "BitwiseXor": "BIT_XOR",
        }.items()
    },
    "Pow": ("ELEMENT_WISE_POW", ("InputTensor", "ExponentTensor"), _nothing),
    "Where": ("ELEMENT_WISE_IF", ("ConditionTensor", *_TWO), _nothing),
    "IsInf": ("ELEMENT_WISE_IS_INFINITY", _ONE, _infinities),
    "Round": ("ELEMENT_WISE_ROUND", _ONE, lambda n: {"RoundingMode": "HALVES_TO_NEAREST_EVEN"}),
}  # fmt: skip
"""The DirectML operator of each, the names of its inputs, and its attributes."""


def _apply(node: Node, inputs: list[Any], device: str) -> list[Array]:
    name, names, attributes = _TABLE[node["op_type"]]
    return [_call(name, dict(zip(names, inputs, strict=False)), attributes(node), device)]


def _call(
    name: str, inputs: Mapping[str, Any], attributes: Mapping[str, object], device: str
) -> Array:
    """The one result of an element-wise operator of DirectML, broadcast as ONNX has it."""
    arrays = np.broadcast_arrays(*inputs.values())
    shape = arrays[0].shape
    given = {
        n: a.reshape(1) if a.ndim == 0 else a
        for n, a in zip(inputs, map(as_bytes, arrays), strict=True)
    }
    return run(f"directml.{name}", given, attributes, device=device)["OutputTensor"].reshape(shape)


def as_bytes(array: Array) -> Array:
    """Truth values as DirectML has them."""
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def _fold(name: str) -> Handler:
    """An operator of any number of tensors, two by two."""

    def handler(node: Node, inputs: list[Any], device: str) -> list[Array]:
        first, *others = [a for a in inputs if a is not None]
        for other in others:
            first = _call(name, dict(zip(_TWO, (first, other), strict=True)), {}, device)
        return [first]

    return handler


def _mean(node: Node, inputs: list[Any], device: str) -> list[Array]:
    arrays = np.broadcast_arrays(*(a for a in inputs if a is not None))
    settings = {"Function": "AVERAGE", "Axes": [0]}
    found = run("directml.REDUCE", {"InputTensor": np.stack(arrays)}, settings, device=device)
    return [found["OutputTensor"][0]]


def _shift(node: Node, inputs: list[Any], device: str) -> list[Array]:
    name = f"ELEMENT_WISE_BIT_SHIFT_{node['direction']}"
    return [_call(name, dict(zip(_TWO, inputs, strict=False)), {}, device)]


def _modulus(node: Node, inputs: list[Any], device: str) -> list[Array]:
    name = f"ELEMENT_WISE_MODULUS_{'TRUNCATE' if node.get('fmod', 0) else 'FLOOR'}"
    return [_call(name, dict(zip(_TWO, inputs, strict=False)), {}, device)]


def _clip(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, low, high = inputs[:3]
    known = np.iinfo if x.dtype.kind in "iu" else np.finfo
    settings = {
        "MinMaxDataType": type_name(x.dtype),
        "Min": known(x.dtype).min if low is None else low.item(),
        "Max": known(x.dtype).max if high is None else high.item(),
    }
    return [_call("ELEMENT_WISE_CLIP1", {"InputTensor": x}, settings, device)]


def _mish(node: Node, inputs: list[Any], device: str) -> list[Array]:
    return [run("onednn.Mish", {"src": inputs[0]}, {}, device=device)["dst"]]


def read(value: Any) -> Array:
    """An array; of types that NumPy has not, ONNX's own form."""
    whole = value.item() if isinstance(value, np.ndarray) and value.dtype == object else value
    return numpy_helper.to_array(whole) if isinstance(whole, TensorProto) else np.asarray(value)


_TYPES: dict[int, Any] = {
    TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16, TensorProto.INT8: np.int8,
    TensorProto.INT16: np.int16, TensorProto.INT32: np.int32, TensorProto.INT64: np.int64,
    TensorProto.UINT8: np.uint8, TensorProto.UINT16: np.uint16, TensorProto.UINT32: np.uint32,
    TensorProto.UINT64: np.uint64,
}  # fmt: skip
"""What the library has of ONNX's data types."""


def type_name(dtype: Any) -> str:
    """What the library calls a data type of NumPy."""
    return np.dtype(dtype).name.upper()


def _cast(node: Node, inputs: list[Any], device: str) -> list[Array]:
    wanted = _TYPES.get(node["to"])
    if wanted is None:
        raise Unmapped(f"a cast to {TensorProto.DataType.Name(node['to'])}")
    given = as_bytes(read(inputs[0]))
    if given.dtype not in [np.dtype(t) for t in _TYPES.values()]:
        raise Unmapped(f"a cast from {given.dtype}")
    found = run("directml.CAST", {"InputTensor": given}, {},
                {"OutputTensor": np.empty(given.shape, wanted)}, device)  # fmt: skip
    return [found["OutputTensor"]]


def _constant_of_shape(node: Node, inputs: list[Any], device: str) -> list[Array]:
    value = numpy_helper.to_array(node["value"]) if "value" in node else np.zeros(1, np.float32)
    settings = {"ValueDataType": type_name(value.dtype), "Value": value.item()}
    shape = tuple(inputs[0].tolist())
    found = run("directml.FILL_VALUE_CONSTANT", {}, settings,
                {"OutputTensor": np.empty(shape or (1,), value.dtype)}, device)  # fmt: skip
    return [found["OutputTensor"].reshape(shape)]


def _range(node: Node, inputs: list[Any], device: str) -> list[Array]:
    start, limit, delta = (a.item() for a in inputs[:3])
    dtype = inputs[0].dtype
    count = max(0, int(np.ceil((limit - start) / delta)))
    settings = {"ValueDataType": type_name(dtype), "ValueStart": start, "ValueDelta": delta}
    found = run("directml.FILL_VALUE_SEQUENCE", {}, settings,
                {"OutputTensor": np.empty(count, dtype)}, device)  # fmt: skip
    return [found["OutputTensor"]]


def _quantize(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, scale, zero = inputs[:3]
    wanted = node.get("output_dtype", 0) or TensorProto.UINT8
    if zero is None and wanted not in _TYPES:
        raise Unmapped("quantized values of four bits or eight-bit floats")
    dtype = _TYPES[wanted] if zero is None else zero.dtype
    _expect_type(dtype)
    given = {"InputTensor": x, "ScaleTensor": _spread(scale, x, node)}
    if zero is not None:
        given["ZeroPointTensor"] = _spread(zero, x, node)
    found = run("directml.ELEMENT_WISE_QUANTIZE_LINEAR", given, {},
                {"OutputTensor": np.empty(x.shape, dtype)}, device)  # fmt: skip
    return [found["OutputTensor"]]


def _dequantize(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, scale, zero = inputs[:3]
    x = read(x)
    _expect_type(x.dtype)
    given = {"InputTensor": x, "ScaleTensor": _spread(scale, x, node)}
    if zero is not None:
        given["ZeroPointTensor"] = _spread(zero, x, node)
    found = run("directml.ELEMENT_WISE_DEQUANTIZE_LINEAR", given, {},
                {"OutputTensor": np.empty(x.shape, scale.dtype)}, device)  # fmt: skip
    return [found["OutputTensor"]]


def _expect_type(dtype: Any) -> None:
    if np.dtype(dtype) not in [np.dtype(t) for t in _TYPES.values()]:
        raise Unmapped(f"quantized values of type {np.dtype(dtype)}")


def _spread(a: Array, x: Array, node: Node) -> Array:
    """A scale or zero point, one for each element: those of blocks, of an axis, or one for all."""
    axis, block = node.get("axis", 1) % max(1, x.ndim), node.get("block_size", 0)
    if block:
        return np.repeat(a, block, axis)[tuple(slice(0, n) for n in x.shape)]
    if a.ndim == 1 and a.size > 1:
        a = a.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    return np.broadcast_to(a, x.shape)


def _dynamic_quantize(node: Node, inputs: list[Any], device: str) -> list[Array]:
    found = run("directml.DYNAMIC_QUANTIZE_LINEAR", {"InputTensor": inputs[0]}, {},
                {"OutputTensor": np.empty(inputs[0].shape, np.uint8)}, device)  # fmt: skip
    scale, zero = found["OutputScaleTensor"], found["OutputZeroPointTensor"]
    return [found["OutputTensor"], scale.reshape(()), zero.reshape(())]


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_TABLE, _apply),
    "Max": _fold("ELEMENT_WISE_MAX"), "Min": _fold("ELEMENT_WISE_MIN"), "Mean": _mean,
    "BitShift": _shift, "Mod": _modulus, "Clip": _clip, "Mish": _mish, "Cast": _cast,
    "ConstantOfShape": _constant_of_shape, "Range": _range, "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize, "DynamicQuantizeLinear": _dynamic_quantize,
}  # fmt: skip
"""What computes each of ONNX's operators."""
