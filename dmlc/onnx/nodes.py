"""Builder of the nodes of a model's function: names, constants and intermediate values.

A node that exists already, with the same inputs and attributes, is reused."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlc.ir.naming import take_name
from dmlc.scalars import Array

Attribute: TypeAlias = int | str | tuple[int, ...]

LONG = 64
"""Elements of a constant that counts, from which on a `Range` makes it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """Tensor of the model: its name, ONNX's number of its element type, and its sizes."""

    name: str
    element: int
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return helper.tensor_dtype_to_np_dtype(self.element)


class Nodes:
    """Nodes so far, in order. `scope` is the current stage."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.scope = ""
        self._taken = dict.fromkeys(taken)
        self._nodes: list[onnx.NodeProto] = []
        self._makers: dict[str, onnx.NodeProto] = {}
        self._made: dict[tuple[object, ...], Value] = {}
        self._final: dict[str, str] = {}
        self._arrays: dict[str, Array] = {}
        self._reshaped: dict[str, Value] = {}
        self._transposed: dict[str, tuple[Value, tuple[int, ...]]] = {}

    def add(
        self,
        operator: str,
        inputs: Sequence[Value],
        element: int,
        shape: Sequence[int],
        **attributes: Attribute,
    ) -> Value:
        """Output of a new node, of this type and these sizes."""
        key = (operator, tuple(v.name for v in inputs), tuple(sorted(attributes.items())))
        if key not in self._made:
            name = self._name(f"{self.scope}_{_snake(operator)}")
            self._append(operator, [v.name for v in inputs], name, **attributes)
            self._made[key] = Value(name, element, tuple(shape))
        return self._made[key]

    def constant(self, array: Array, wanted: str | None = None) -> Value:
        """Constant for an array of a type that ONNX has."""
        array = np.asarray(array)
        key = ("Constant", array.dtype.str, array.shape, array.tobytes())
        if key not in self._made:
            if wanted is None:
                wanted = _name_scalar(array) if array.ndim == 0 else f"{self.scope}_constant"
            name = self._name(wanted)
            self._made[key] = self._make_constant(name, array)
            self._arrays[name] = array
        return self._made[key]

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Value reshaped to other sizes."""
        value = self._reshaped.get(value.name, value)
        if tuple(shape) == value.shape:
            return value
        made = self.add("Reshape", [value, self.sizes(shape)], value.element, shape)
        self._reshaped[made.name] = value
        return made

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """Value broadcast to other sizes."""
        if math.prod(shape) == math.prod(value.shape):
            return self.reshape(value, shape)
        return self.add("Expand", [value, self.sizes(shape)], value.element, shape)

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """Value with its axes in another order."""
        if list(order) == sorted(order):
            return value
        shape = [value.shape[axis] for axis in order]
        moved = [axis for axis in order if value.shape[axis] != 1]
        if moved == sorted(moved):
            # Axes of one place alone move: the elements stay.
            return self.reshape(value, shape)
        made = self.add("Transpose", [value], value.element, shape, perm=tuple(order))
        self._transposed[made.name] = value, tuple(order)
        return made

    def find_transposed(self, value: Value) -> tuple[Value, tuple[int, ...]]:
        """Value of which this one is a transpose, with the axis there for each of its axes."""
        return self._transposed.get(value.name, (value, tuple(range(len(value.shape)))))

    def known(self, value: Value) -> Array | None:
        """Elements of a constant; None for other values."""
        return self._arrays.get(value.name)

    def _make_constant(self, name: str, array: Array) -> Value:
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        value = Value(name, element, array.shape)
        line = array.reshape(-1)
        if array.dtype == np.int64 and line.size >= LONG and _counts(line):
            step = int(line[1] - line[0])
            ends = (int(line[0]), int(line[0]) + step * line.size, step)
            given = [self.constant(np.array(end, np.int64)).name for end in ends]
            counted = name if array.ndim == 1 else self._name(f"{name}_line")
            self._append("Range", given, counted)
            if array.ndim != 1:
                self._append("Reshape", [counted, self.sizes(array.shape).name], name)
            return value
        tensor = numpy_helper.from_array(array)
        self._append("Constant", [], name, value=tensor)
        return value

    def sizes(self, numbers: Sequence[int]) -> Value:
        """Constant of sizes, indices or axes."""
        wanted = "_".join(["ints", *(str(n).replace("-", "m") for n in numbers)])
        return self.constant(np.array(numbers, np.int64), wanted[:40])

    def finish(self, value: Value, name: str, doc: str) -> Value:
        """Gives a value the reserved name of its stage; `doc` is the text of its node."""
        node = self._makers.get(value.name)
        if node is None or value.name in self._final:
            given, value = value.name, dataclasses.replace(value, name=name)
            node = self._append("Identity", [given], name)
        else:
            self._final[value.name] = name
        node.doc_string = doc
        return value

    def close(self, results: Iterable[str]) -> list[onnx.NodeProto]:
        """Nodes of which the results are made, each result with its final name."""
        needed, kept = set(results), list[onnx.NodeProto]()
        for node in reversed(self._nodes):
            for names in (node.input, node.output):
                for at, name in enumerate(names):
                    names[at] = self._final.get(name, name)
            if node.output[0] in needed:
                needed.update(node.input)
                kept.append(node)
        return kept[::-1]

    def _append(
        self,
        operator: str,
        inputs: Sequence[str],
        name: str,
        **attributes: Attribute | onnx.TensorProto,
    ) -> onnx.NodeProto:
        node = helper.make_node(operator, inputs, [name])
        node.attribute.extend([helper.make_attribute(*each) for each in attributes.items()])
        self._nodes.append(node)
        self._makers[name] = node
        return node

    def _name(self, wanted: str) -> str:
        return take_name(wanted, self._taken)


def _counts(line: Array) -> bool:
    """Whether integers are an arithmetic sequence with a step other than 0."""
    steps = np.diff(line)
    return bool(steps[0] and (steps == steps[0]).all())


def _snake(operator: str) -> str:
    """Operator's name for use in names: `reduce_sum` for `ReduceSum`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", operator).lower()


def _name_scalar(array: Array) -> str:
    text = str(array.item()).removesuffix(".0")
    return "c_" + text.replace("-", "minus_").replace(".", "_").replace("+", "")
