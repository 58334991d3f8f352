"""Scalar operations and casts of the IR on whole tensors, as nodes of ONNX.

Values are *held* in types that every runtime of ONNX computes in: small integers in INT32, and
UINT32, UINT64 and indices in INT64. A value held in more bits than its own type has is brought back
into that type's range after each operation that may leave it; UINT64 is held by its bits. ONNX
leaves more open than the IR: zeros of both signs, NaN, and integers outside a type's range. Several
nodes then express one operation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from onnx import TensorProto

from dmlc.ir import Constant
from dmlc.onnx.nodes import Nodes, Value
from dmlc.scalars import (
    COMBINERS,
    OPERATIONS,
    Array,
    DataType,
    Kind,
    Operation,
)
from dmlc.scalars.defined import OpenDomain
from dmlc.source import UnsupportedError

ELEMENTS: Mapping[DataType, int] = MappingProxyType(
    {
        DataType.FLOAT64: TensorProto.DOUBLE,
        DataType.FLOAT32: TensorProto.FLOAT,
        DataType.FLOAT16: TensorProto.FLOAT16,
        DataType.BFLOAT16: TensorProto.BFLOAT16,
        DataType.INT8: TensorProto.INT8,
        DataType.INT16: TensorProto.INT16,
        DataType.INT32: TensorProto.INT32,
        DataType.INT64: TensorProto.INT64,
        DataType.UINT8: TensorProto.UINT8,
        DataType.UINT16: TensorProto.UINT16,
        DataType.UINT32: TensorProto.UINT32,
        DataType.UINT64: TensorProto.UINT64,
        DataType.BOOL: TensorProto.BOOL,
        DataType.INDEX: TensorProto.INT64,
    }
)
"""The element types of tensors."""
_TYPES = {element: dtype for dtype, element in ELEMENTS.items() if dtype is not DataType.INDEX}

_HELD: Mapping[DataType, DataType] = MappingProxyType(
    {
        DataType.INT8: DataType.INT32,
        DataType.INT16: DataType.INT32,
        DataType.UINT8: DataType.INT32,
        DataType.UINT16: DataType.INT32,
        DataType.UINT32: DataType.INT64,
        DataType.UINT64: DataType.INT64,
        DataType.INDEX: DataType.INT64,
    }
)

_LEAVES = ("add", "sub", "mul", "neg", "abs", "bit_not")
"""Operations whose result may lie outside a type of integers."""

_LOWEST = -(1 << 63)


def find_held(dtype: DataType) -> DataType:
    """Type in which values of a compute type are held."""
    return _HELD.get(dtype, dtype)


def hold(array: Array, dtype: DataType) -> Array:
    """Array of a compute type, converted to the type that holds it."""
    return np.asarray(array).astype(find_held(dtype).dtype)


class Arithmetic:
    """Adds the nodes of operations. Operands broadcast against one another."""

    pads_with_zeros = False
    """Whether a convolution may multiply weights by the zeros beside its data, as `Conv` does.
    Infinite weights give NaN there, where the IR reads nothing."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    # Nodes ------------------------------------------------------------------------------------

    def add(self, operator: str, *given: Value, element: int | None = None) -> Value:
        """Output of a node, with the broadcast sizes of its inputs and the element type of the
        first."""
        shape = np.broadcast_shapes(*(value.shape for value in given))
        return self.nodes.add(operator, given, element or given[0].element, shape)

    def test(self, operator: str, *given: Value) -> Value:
        """Output of a node that gives booleans, with the broadcast sizes of its inputs."""
        return self.add(operator, *given, element=TensorProto.BOOL)

    def where(self, condition: Value, then: Value, otherwise: Value) -> Value:
        if then.element == TensorProto.BOOL:
            chosen = self.test("And", condition, then)
            return self.test("Or", chosen, self.test("And", self.test("Not", condition), otherwise))
        return self.add("Where", condition, then, otherwise, element=then.element)

    def as_element(self, value: Value, element: int) -> Value:
        """Value cast by ONNX's own cast; the value itself if it has the type."""
        if value.element == element:
            return value
        return self.nodes.add("Cast", [value], element, value.shape, to=element)

    def like(self, value: Value, number: float) -> Value:
        """Number in the type of a value."""
        return self.nodes.constant(np.array(number, value.dtype))

    def literal(self, constant: Constant) -> Value:
        with np.errstate(all="ignore"):
            array = np.array(constant.value, constant.dtype.dtype)
        return self.nodes.constant(hold(array, constant.dtype))

    def wrap(self, value: Value, dtype: DataType) -> Value:
        """Held value brought into its type's range, as integers wrap."""
        if find_held(dtype) is dtype or dtype in (DataType.UINT64, DataType.INDEX):
            return value
        return self.as_element(self.as_element(value, ELEMENTS[dtype]), value.element)

    # Tensors ----------------------------------------------------------------------------------

    def load(self, stored: Value, dtype: DataType) -> Value:
        """Tensor of a data type, as values held."""
        return self.as_element(stored, ELEMENTS[find_held(dtype.compute)])

    def store(self, held: Value, dtype: DataType) -> Value:
        """Held value, as a tensor of a data type."""
        return self.as_element(held, ELEMENTS[dtype])

    # Operations -------------------------------------------------------------------------------

    def apply(self, operation: Operation, given: Sequence[Value], dtype: DataType) -> Value:
        """Operation on values of one compute type."""
        made = _Scalars(self, dtype).define(OPERATIONS[operation.name], *given)
        if made is None:
            raise UnsupportedError(f"ONNX has no operator that computes '{operation.name}'")
        return made

    def apply_plain(self, name: str, given: Sequence[Value], dtype: DataType) -> Value | None:
        """Operation as ONNX's nodes define it, without the cases that they leave open; None if
        there is no such node."""
        x, operation = given[0], OPERATIONS[name]
        match name:
            case "lt" | "le" | "gt" | "ge":
                given = [self.ordered(value, dtype) for value in given]
            case "ne":
                return self.test("Not", self.test("Equal", *given))
            case "mod" if dtype.is_float:
                shape = np.broadcast_shapes(*(value.shape for value in given))
                return self.nodes.add("Mod", given, x.element, shape, fmod=1)
            case "mod":
                quotient = self.apply_plain("div", given, dtype)
                return quotient and self.add("Sub", x, self.add("Mul", quotient, given[1]))
            case "div" if dtype is DataType.UINT64:
                return self.divide_unsigned(*given)
            case "min" | "max" if not dtype.is_float:
                return self.extreme(name, dtype, *given)
            case "shift_left":
                return self.wrap(self.shift("LEFT", *given), dtype)
            case "shift_right":
                return self.shift_right(dtype, *given)
            case _ if operation.rounds_to is not None:
                rounded = self.as_element(x, ELEMENTS[operation.rounds_to])
                return self.as_element(rounded, x.element)
            case _:
                pass
        if operation.onnx is None:
            return None
        made = (self.test if operation.gives_bool else self.add)(operation.onnx, *given)
        return self.wrap(made, dtype) if name in _LEAVES else made

    def ordered(self, value: Value, dtype: DataType) -> Value:
        """Value that compares as its type does: UINT64 is shifted by half its range. Applied twice,
        it is the identity."""
        if dtype is not DataType.UINT64:
            return value
        return self.add("BitwiseXor", value, self.like(value, _LOWEST))

    # Integers ---------------------------------------------------------------------------------

    def divide_unsigned(self, x: Value, y: Value) -> Value:
        """Quotient of UINT64 held in INT64: twice the quotient of half of x, plus one if the
        remainder contains y once more. Undefined for y = 0."""
        zero, one = self.like(x, 0), self.like(x, 1)
        large = self.test("Less", y, zero)
        divisor = self.where(self.test("Greater", y, zero), y, one)
        half = self.add("Div", self.shift("RIGHT", x, one), divisor)
        quotient = self.add("Mul", half, self.like(x, 2))
        rest = self.add("Sub", x, self.add("Mul", quotient, divisor))
        reaches = self.test(
            "GreaterOrEqual",
            self.ordered(rest, DataType.UINT64),
            self.ordered(divisor, DataType.UINT64),
        )
        quotient = self.add("Add", quotient, self.as_element(reaches, x.element))
        fits = self.test(
            "GreaterOrEqual", self.ordered(x, DataType.UINT64), self.ordered(y, DataType.UINT64)
        )
        return self.where(large, self.as_element(fits, x.element), quotient)

    def shift(self, direction: str, x: Value, y: Value) -> Value:
        """Logical shift of bits, which fills with zeros; right for values held in more bits as
        well."""
        wide = [self.as_element(v, TensorProto.UINT64) for v in (x, y)]
        shape = np.broadcast_shapes(x.shape, y.shape)
        moved = self.nodes.add("BitShift", wide, TensorProto.UINT64, shape, direction=direction)
        return self.as_element(moved, x.element)

    def shift_right(self, dtype: DataType, x: Value, y: Value) -> Value:
        if dtype.kind is Kind.UNSIGNED:
            return self.shift("RIGHT", x, y)
        # Ones come in at a negative number: zeros at the complement, which is not negative.
        negative = self.test("Less", x, self.like(x, 0))
        moved = self.shift("RIGHT", self.where(negative, self.add("BitwiseNot", x), x), y)
        return self.where(negative, self.add("BitwiseNot", moved), moved)

    def extreme(self, operator: str, dtype: DataType, x: Value, y: Value) -> Value:
        if dtype is not DataType.UINT64:
            return self.add(operator.title(), x, y)
        beyond = "Less" if operator == "min" else "Greater"
        ends = self.ordered(y, dtype), self.ordered(x, dtype)
        return self.where(self.test(beyond, *ends), y, x)

    # Casts ------------------------------------------------------------------------------------

    def cast(self, value: Value, source: DataType, to: DataType) -> Value:
        """Held value of one compute type converted to another: see `scalars.convert`."""
        if source is to:
            return value
        element = ELEMENTS[find_held(to)]
        if to is DataType.BOOL:
            return self.test("Not", self.test("Equal", value, self.like(value, 0)))
        if source.is_float and not to.is_float:
            return _Scalars(self, to).saturate(value, to)
        if source is DataType.UINT64 and to.is_float:
            return self.as_element(self.as_element(value, TensorProto.UINT64), element)
        if source is DataType.UINT64 and to is DataType.INDEX:
            beyond = self.test("Less", value, self.like(value, 0))
            return self.where(beyond, self.like(value, -1 - _LOWEST), value)
        return self.wrap(self.as_element(value, element), to)

    # Reductions -------------------------------------------------------------------------------

    def identity(self, combiner: str, dtype: DataType) -> Value:
        """Identity of a reduction: its result if no point takes part."""
        return self.literal(Constant(dtype, COMBINERS[combiner].identity(dtype)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Scalars(OpenDomain[Value]):
    """Values of an ONNX graph that are held for a compute type, and others as what they are."""

    arithmetic: Arithmetic
    dtype: DataType

    def type_of(self, value: Value) -> DataType:
        is_own = value.element == ELEMENTS[find_held(self.dtype)]
        return self.dtype if is_own else _TYPES[value.element]

    def number(self, held: Value) -> int | float | None:
        known = self.arithmetic.nodes.known(held)
        return None if known is None or known.size != 1 else known.item()

    def truncate(self, held: Value, dtype: DataType) -> Value:
        element = ELEMENTS[find_held(dtype)]
        first = TensorProto.UINT64 if dtype is DataType.UINT64 else element
        return self.arithmetic.as_element(self.arithmetic.as_element(held, first), element)

    def plain(self, name: str, *given: Value) -> Value | None:
        return self.arithmetic.apply_plain(name, given, self.type_of(given[0]))

    def apply(self, name: str, *given: Value) -> Value:
        return self.arithmetic.apply(OPERATIONS[name], given, self.type_of(given[0]))

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        return self.arithmetic.where(condition, then, otherwise)

    def cast(self, value: Value, dtype: DataType) -> Value:
        return self.arithmetic.cast(value, self.type_of(value), dtype)

    def literal(self, value: int | float, dtype: DataType) -> Value:
        return self.arithmetic.literal(Constant(dtype, value))
