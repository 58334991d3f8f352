"""Constant folding of nodes during import.

ONNX's own reference evaluates them. Open sizes are objects in arrays: operators that move elements
move their numbers, and a few operators compute with them."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dmlc.onnx.importing import products, recurrent, resampling, windows
from dmlc.onnx.importing.names import number_type
from dmlc.onnx.importing.nodes import is_sizes
from dmlc.onnx.importing.schema import count_bytes, find_schema, list_kinds
from dmlc.scalars import Array
from dmlc.sizes import Measure, Size, divide_down, divide_exactly, find_least
from dmlc.source import DmlcError

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
    """Upper bound in bytes of the outputs of a node with known inputs; None if unknown before
    evaluation."""
    given = [array for array in inputs if array is not None]
    if any(map(is_sizes, given)):
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
    """Whether ONNX's reference evaluates a node with known inputs quickly, as it does most; `size`
    is the number of bytes of the result. Kernels compute the other nodes."""
    counts = [array.size for array in inputs if array is not None]
    if op_type == "GatherElements":
        # NumPy counts step by step to what a place out of range wraps to.
        data, places = inputs
        if data is None or places is None or is_sizes(places):
            return True
        most = max(data.shape, default=1)
        return bool(((places >= -most) & (places < most)).all())
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
    """Whether a node with these inputs can be folded. Only a few operators compute with open sizes
    during import; others get them as numbers in the function."""
    if any(map(is_sizes, inputs)):
        to = attributes.get("to", onnx.TensorProto.INT64)
        return op_type in {*_SIZES, *_MOVING} and to in (
            onnx.TensorProto.INT32,
            onnx.TensorProto.INT64,
        )
    return op_type not in _IMPURE


def fold(
    proto: onnx.NodeProto,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, object],
    protos: Sequence[onnx.AttributeProto],
    version: int,
    domain: str,
) -> list[Array] | None:
    """Outputs of a node with known inputs; None if they depend on the values of open sizes. Raises
    `DmlcError` if evaluation fails."""
    if not any(map(is_sizes, inputs)):
        return _evaluate(proto, inputs, protos, version, domain)
    try:
        if proto.op_type in _SIZES:
            return [_as_integers(_fold_sizes(proto.op_type, inputs, attributes))]
        return _move_sizes(proto, inputs, protos, version, domain)
    except _UndecidedError:
        return None


def _evaluate(
    proto: onnx.NodeProto,
    inputs: Sequence[Array | None],
    protos: Sequence[onnx.AttributeProto],
    version: int,
    domain: str,
) -> list[Array]:
    """Outputs of a node of numbers, by ONNX's reference."""
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
    """Result of the reference as an array. Objects are strings here, since the reference does not
    compute open sizes."""
    if not isinstance(result, np.ndarray | np.generic):
        raise DmlcError("its inputs are known, and what it gives is no tensor")
    found = np.asarray(cast("Any", result))
    return found.astype(np.str_) if found.dtype == np.dtype(object) else found


class _UndecidedError(Exception):
    """Result that depends on the values of open sizes."""


def _fold_sizes(
    op_type: str, inputs: Sequence[Array | None], attributes: Mapping[str, object]
) -> Array:
    """Result of a node that computes with open sizes."""
    try:
        return _SIZES[op_type](_Call(inputs, attributes))
    except (IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        # As NumPy says it of arrays of sizes.
        raise DmlcError(f"its inputs are sizes, and computing it fails: {error}") from None


def _move_sizes(
    proto: onnx.NodeProto,
    inputs: Sequence[Array | None],
    protos: Sequence[onnx.AttributeProto],
    version: int,
    domain: str,
) -> list[Array]:
    """Result of a node that moves open sizes: ONNX's reference moves their numbers in a list. The
    moved inputs are those with the type of the first output."""
    known = find_schema(proto.op_type, version, domain)
    moved = known.outputs[0].type_str
    sizes: list[object] = []
    numbered: list[Array | None] = []
    for array, kind in zip(inputs, list_kinds(known, len(inputs)), strict=True):
        if array is not None and kind == moved:
            numbers = np.arange(len(sizes), len(sizes) + array.size)
            sizes += array.ravel().tolist()
            array = numbers.reshape(array.shape)
        elif is_sizes(array):
            raise _UndecidedError
        numbered.append(array)
    held = _as_objects(sizes)
    return [
        _as_integers(held[places.ravel()].reshape(places.shape))
        for places in _evaluate(proto, numbered, protos, version, domain)
    ]


def _as_integers(array: Array) -> Array:
    """Array of sizes, as INT64 if none of them is open."""
    if array.dtype == object and all(not isinstance(value, Size) for value in array.ravel()):
        return array.astype(np.int64)
    return array


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """Node that computes with open sizes: its inputs, and its attributes."""

    inputs: Sequence[Array | None]
    attributes: Mapping[str, object]

    def array(self, number: int) -> Array:
        """Input, of numbers or of sizes."""
        found = self.inputs[number]
        if found is None:
            raise DmlcError(f"it has no input {number}")
        return found

    def numbers(self, number: int, name: str = "") -> list[int] | None:
        """Integers of an input, or else of an attribute."""
        if number < len(self.inputs) and self.inputs[number] is not None:
            found = self.array(number).ravel().tolist()
            if any(isinstance(value, Size) for value in found):
                raise _UndecidedError
            return [int(value) for value in found]
        given = cast("Sequence[int] | None", self.attributes.get(name))
        return None if given is None else [int(value) for value in given]


def _map(function: Callable[..., object], dtype: type[Any] = object) -> Callable[[_Call], Array]:
    """Function of sizes, applied element by element with broadcasting."""

    def fold_all(call: _Call) -> Array:
        arrays = np.broadcast_arrays(*(call.array(k) for k in range(len(call.inputs))))
        # Numbers of NumPy know no sizes: lists have those of Python.
        rows = zip(*(array.ravel().tolist() for array in arrays), strict=True)
        made: Any = np.empty(arrays[0].size, dtype)
        for number, row in enumerate(rows):
            made[number] = functools.reduce(function, row) if len(row) > 1 else function(*row)
        return made.reshape(arrays[0].shape)

    return fold_all


def _is_at_most(one: Measure, other: Measure) -> bool:
    """Whether a size is never above another. Raises `_UndecidedError` if that depends on values of
    sizes."""
    if find_least(other - one) >= 0:
        return True
    if find_least(one - other) > 0:
        return False
    raise _UndecidedError


def _is_above(one: Measure, other: Measure) -> bool:
    return not _is_at_most(one, other)


def _is_at_least(one: Measure, other: Measure) -> bool:
    return _is_at_most(other, one)


def _is_below(one: Measure, other: Measure) -> bool:
    return not _is_at_most(other, one)


def _is_equal(one: Measure, other: Measure) -> bool:
    if one == other:
        return True
    if find_least(one - other) > 0 or find_least(other - one) > 0:
        return False
    raise _UndecidedError


def _smaller(one: Measure, other: Measure) -> Measure:
    return one if _is_at_most(one, other) else other


def _larger(one: Measure, other: Measure) -> Measure:
    return other if _is_at_most(one, other) else one


def _divide(size: Measure, by: Measure) -> Measure:
    """Quotient, truncated as in ONNX."""
    exact = divide_exactly(size, by)
    if exact is not None:
        return exact
    if isinstance(by, Size) or by == 0:
        raise _UndecidedError
    size, by = (size, by) if by > 0 else (size * -1, -by)
    if find_least(size) >= 0:
        return divide_down(size, by)
    if find_least(size * -1) >= 0:
        return divide_down(size * -1, by) * -1
    raise _UndecidedError


def _remainder(size: Measure, by: Measure) -> Measure:
    if isinstance(by, int) and by > 0:
        return size - divide_down(size, by) * by
    raise _UndecidedError


def _negate(size: Measure) -> Measure:
    return size * -1


def _absolute(size: Measure) -> Measure:
    return size if _is_at_most(0, size) else size * -1


def _reduction(combine: Callable[[Any, Any], Any]) -> Callable[[_Call], Array]:
    """Reduction of sizes along one axis, or all."""

    def fold_all(call: _Call) -> Array:
        data, axes = call.array(0), call.numbers(1, "axes")
        if data.ndim != 1 or axes not in (None, [], [0], [-1]) or not data.size:
            raise _UndecidedError
        made = _as_objects([functools.reduce(combine, data.tolist())])
        return made if call.attributes["keepdims"] else made.reshape(())

    return fold_all


def _as_objects(values: Sequence[object]) -> Array:
    held: Any = np.empty(len(values), object)
    held[:] = values
    return held


_SIZES: Mapping[str, Callable[[_Call], Array]] = {
    "Abs": _map(_absolute),
    "Add": _map(operator.add),
    "Cast": lambda call: call.array(0),
    "Div": _map(_divide),
    "Equal": _map(_is_equal, np.bool_),
    "Greater": _map(_is_above, np.bool_),
    "GreaterOrEqual": _map(_is_at_least, np.bool_),
    "Less": _map(_is_below, np.bool_),
    "LessOrEqual": _map(_is_at_most, np.bool_),
    "Max": _map(_larger),
    "Min": _map(_smaller),
    "Mod": _map(_remainder),
    "Mul": _map(operator.mul),
    "Neg": _map(_negate),
    "ReduceMax": _reduction(_larger),
    "ReduceMin": _reduction(_smaller),
    "ReduceProd": _reduction(operator.mul),
    "ReduceSum": _reduction(operator.add),
    "Sub": _map(operator.sub),
}
"""The operators that compute with sizes that are left open."""
_MOVING = (
    "Concat", "Flatten", "Gather", "GatherElements", "GatherND", "Reshape", "Slice", "Split",
    "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
"""Those that move them."""
