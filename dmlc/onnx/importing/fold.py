"""What a node gives whose inputs are all known while a model is imported.

ONNX's own reference computes it. Sizes that are left open are objects, and a few operators on
these are computed as NumPy does it: those that shapes are made with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dmlc.onnx.importing import products, recurrent, resampling, windows
from dmlc.onnx.importing.names import number_type
from dmlc.onnx.importing.schema import count_bytes
from dmlc.scalars import Array
from dmlc.sizes import Measure, Size, divide_down, is_multiple
from dmlc.source import DmlcError, UnsupportedError

_IMPURE = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike", "Dropout", "Shape", "Size", "Identity", "ConstantOfShape", "Expand",
    "Range", "TfIdfVectorizer",
)  # fmt: skip
"""The operators that are not folded: they draw random numbers, or a rule takes less memory; or
what they do takes no end."""

_CHOOSING = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
"""The operators whose results have as many elements as values say, and no more than their inputs
along each axis."""

_MOST_STEPS = 1 << 24
"""A node that takes more steps to compute is not folded."""
_SLOW = {
    *windows.RULES, *resampling.RULES, *recurrent.RULES, "DFT", "STFT", "NonMaxSuppression",
}  # fmt: skip
"""The operators that look at much of their inputs for each element."""


def measure_results(
    op_type: str, inputs: Sequence[Array | None], types: Sequence[onnx.TypeProto]
) -> int | None:
    """How many bytes the outputs of a node of known inputs take at most, None where that cannot be
    said before they are computed."""
    given = [array for array in inputs if array is not None]
    if any(array.dtype == np.dtype(object) for array in given):
        # Sizes: a sum of products is larger than a number.
        return 256 * sum(array.size for array in given)
    sizes = [count_bytes(kind) for kind in types]
    if op_type in _CHOOSING:
        rank = max((array.ndim for array in given), default=1)
        sizes = [8 * max(rank, 3) * sum(array.size for array in given)] * len(types)
    found = [size for size in sizes if size is not None]
    return sum(found) if len(found) == len(sizes) else None


def is_quick(
    op_type: str, inputs: Sequence[Array | None], attributes: Mapping[str, object], size: int
) -> bool:
    """Whether ONNX's reference computes a node of known inputs in an instant, as it does most;
    `size` is how many bytes that gives. What is left of other nodes is computed by kernels."""
    counts = [array.size for array in inputs if array is not None]
    if op_type == "Einsum":
        return math.prod(max(count, 1) for count in counts) <= _MOST_STEPS
    if op_type in products.RULES and inputs[0] is not None and inputs[0].ndim:
        return size * max(inputs[0].shape) <= 64 * _MOST_STEPS
    if op_type not in _SLOW:
        return True
    # Such as the samples of a region along two axes.
    numbers: list[object] = []
    for value in attributes.values():
        numbers += cast("list[object]", value) if isinstance(value, list) else [value]
    most = max((abs(n) for n in numbers if isinstance(n, int)), default=1)
    return size * sum(counts) * max(most, 1) ** 2 <= _MOST_STEPS


def can_fold(
    op_type: str, inputs: Sequence[Array | None], attributes: Mapping[str, object]
) -> bool:
    """Whether a node of these inputs is folded. Sizes that are left open become numbers in the
    function where they are computed with as such."""
    if any(array is not None and array.dtype == np.dtype(object) for array in inputs):
        to = attributes.get("to", onnx.TensorProto.INT64)
        return op_type in _SIZES and to in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
    return op_type not in _IMPURE


def fold(
    proto: onnx.NodeProto,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, object],
    protos: Sequence[onnx.AttributeProto],
    version: int,
    domain: str,
) -> list[Array]:
    """The outputs of a node of known inputs. Raises `DmlcError` where there are none."""
    if any(array is not None and array.dtype == object for array in inputs):
        return [_fold_sizes(proto.op_type, inputs, attributes)]
    names = [f"i{number}" if array is not None else "" for number, array in enumerate(inputs)]
    outputs = [f"o{number}" if name else "" for number, name in enumerate(proto.output)]
    node = helper.make_node(proto.op_type, names, outputs, domain=domain)
    node.attribute.extend(protos)
    types = [
        helper.make_tensor_value_info(name, number_type(array), None)
        for name, array in zip(names, inputs, strict=True)
        if array is not None
    ]
    results = [
        helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None)
        for name in outputs
        if name
    ]
    graph = helper.make_graph([node], "folded", types, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, version)])
    given = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    try:
        evaluator: Any = ReferenceEvaluator(model)
        with np.errstate(all="ignore"):
            found: Any = evaluator.run(None, given)
    except Exception as error:  # The reference raises whatever NumPy does.
        raise DmlcError(f"its inputs are known, and computing it fails: {error}") from None
    computed = iter([_as_array(result) for result in found])
    return [next(computed) if name else np.empty(0) for name in outputs]


def _as_array(result: Any) -> Array:
    """What the reference computed, as an array. Objects are texts: sizes are not computed by it."""
    if not isinstance(result, np.ndarray | np.generic):
        raise DmlcError("its inputs are known, and what it gives is no tensor")
    found = np.asarray(cast("Any", result))
    return found.astype(np.str_) if found.dtype == np.dtype(object) else found


def _fold_sizes(
    op_type: str, inputs: Sequence[Array | None], attributes: Mapping[str, object]
) -> Array:
    """The same of sizes that are left open."""
    try:
        found = _SIZES[op_type]([a for a in inputs if a is not None], attributes)
    except (IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        # As NumPy says it of arrays of sizes.
        raise DmlcError(f"its inputs are sizes, and computing it fails: {error}") from None
    if all(not isinstance(value, Size) for value in found.ravel()):
        return found.astype(np.int64)
    return found


def _divide(inputs: list[Array], _: Mapping[str, object]) -> Array:
    one, other = np.broadcast_arrays(*inputs)
    made: Any = np.empty(one.shape, object)
    for place in np.ndindex(one.shape):
        size, by = cast("tuple[Measure, Measure]", (one[place], other[place]))
        if isinstance(by, Size):
            if size != by:
                raise UnsupportedError("it divides by a size that is left open")
            made[place] = 1
            continue
        if isinstance(size, Size) and not is_multiple(size, int(by)) and by < 1:
            raise UnsupportedError("it divides a size that is left open by a negative number")
        made[place] = divide_down(size, int(by))
    return made


def _slice(inputs: list[Array], _: Mapping[str, object]) -> Array:
    data, starts, ends = inputs[:3]
    step = int(inputs[4][0]) if len(inputs) > 4 else 1
    return data[slice(int(starts[0]), int(ends[0]), step)]


def _axes(inputs: list[Array], attributes: Mapping[str, object]) -> tuple[int, ...] | None:
    """The axes of a Squeeze or Unsqueeze: an input, or an attribute."""
    if len(inputs) > 1:
        return tuple(int(axis) for axis in inputs[1])
    found = cast("Sequence[int] | None", attributes.get("axes"))
    return None if found is None else tuple(found)


def _gather(inputs: list[Array], _: Mapping[str, object]) -> Array:
    found: Any = np.empty(inputs[1].shape, object)
    for place in np.ndindex(inputs[1].shape):
        found[place] = inputs[0][int(inputs[1][place])]
    return found


def _multiply_all(inputs: list[Array], _: Mapping[str, object]) -> Array:
    product: Any = 1
    for value in inputs[0]:
        product = value * product
    made: Any = np.empty((1,), object)
    made[0] = product
    return made


def _as_objects(made: object) -> Array:
    """What arithmetic of objects gave, as an array: NumPy hands out the object of a single one."""
    if isinstance(made, np.ndarray):
        return cast("Array", made)
    held: Any = np.empty((), object)
    held[()] = made
    return held


_SIZES: Mapping[str, Callable[[list[Array], Mapping[str, object]], Array]] = {
    "Add": lambda i, _: _as_objects(i[0] + i[1]),
    "Cast": lambda i, _: i[0],
    "Concat": lambda i, _: np.concatenate(i),
    "Div": _divide,
    "Gather": _gather,
    "Mul": lambda i, _: _as_objects(i[0] * i[1]),
    "ReduceProd": _multiply_all,
    "Reshape": lambda i, _: i[0].reshape([int(size) for size in i[1]]),
    "Slice": _slice,
    "Squeeze": lambda i, a: _as_objects(i[0].squeeze(_axes(i, a))),
    "Sub": lambda i, _: _as_objects(i[0] - i[1]),
    "Unsqueeze": lambda i, a: np.expand_dims(i[0], _axes(i, a) or (0,)),
}
"""Operators on sizes that are left open."""
