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
    Domain,
    Kind,
    Operation,
)
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

_LEAVES = ("add", "sub", "mul", "neg", "abs", "div", "bit_not", "shift_left")
"""Operations on integers whose result may lie outside the type."""

_ORDERED = ("lt", "le", "gt", "ge")

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
        name = operation.name
        if operation.rounds_to is not None:
            rounded = self.as_element(given[0], ELEMENTS[operation.rounds_to])
            return self.as_element(rounded, given[0].element)
        if name in _ORDERED:
            return self.apply_same(name, [self.ordered(v, dtype) for v in given])
        if name == "ne":
            return self.test("Not", self.test("Equal", *given))
        if dtype.is_float:
            return self.apply_float(name, given)
        made = self.apply_whole(name, dtype, given)
        return self.wrap(made, dtype) if name in _LEAVES else made

    def apply_same(self, name: str, given: Sequence[Value]) -> Value:
        """Operation that is one node of ONNX."""
        operation = OPERATIONS[name]
        if operation.onnx is None:
            raise UnsupportedError(f"ONNX has no operator that computes '{name}'")
        add = self.test if operation.gives_bool else self.add
        return add(operation.onnx, *given)

    def apply_float(self, name: str, given: Sequence[Value]) -> Value:
        """Operation on floats, except comparisons."""
        x = given[0]
        match name:
            case "min" | "max":
                return self.extreme(name, *given)
            case "sign":
                return self.sign(x)
            case "mod":
                shape = np.broadcast_shapes(*(value.shape for value in given))
                return self.nodes.add("Mod", given, x.element, shape, fmod=1)
            case _:
                formula = OPERATIONS[name].formula
                if OPERATIONS[name].onnx is not None or formula is None:
                    return self.apply_same(name, given)
                return _Floats(self).compute(formula, *given)

    def apply_whole(self, name: str, dtype: DataType, given: Sequence[Value]) -> Value:
        """Operation on integers, indices and booleans, in the range of the type that holds them."""
        x = given[0]
        match name:
            case "div":
                return self.divide(dtype, *given)
            case "mod":
                return self.remainder(dtype, *given)
            case "min" | "max":
                return self.extreme_whole(name, dtype, *given)
            case "sign":
                return self.sign_whole(dtype, x)
            case "abs" if dtype.kind is Kind.UNSIGNED:
                return x
            case "shift_left":
                return self.shift("LEFT", x, self.distance(dtype, given[1]))
            case "shift_right":
                return self.shift_right(dtype, *given)
            case _:
                return self.apply_same(name, given)

    def ordered(self, value: Value, dtype: DataType) -> Value:
        """Value that compares as its type does: UINT64 is shifted by half its range. Applied twice,
        it is the identity."""
        if dtype is not DataType.UINT64:
            return value
        return self.add("BitwiseXor", value, self.like(value, _LOWEST))

    def number(self, value: Value) -> int | float | None:
        """Number of a constant with one element; None for other values."""
        known = self.nodes.known(value)
        return None if known is None or known.size != 1 else known.item()

    def is_never_nan(self, value: Value) -> bool:
        """Whether a float is proved not to be NaN."""
        known = self.nodes.known(value)
        return known is not None and not bool(np.isnan(known).any())

    def extreme(self, operator: str, x: Value, y: Value) -> Value:
        """Larger or smaller of two floats: NaN if either is, and the first on a tie."""
        beyond, within = ("Greater", "LessOrEqual") if operator == "max" else (
            "Less", "GreaterOrEqual"
        )  # fmt: skip
        if self.is_never_nan(x):
            return self.where(self.test(within, y, x), x, y)
        chosen = self.test(beyond, y, x)
        if not self.is_never_nan(y):
            chosen = self.test("Or", chosen, self.test("IsNaN", y))
        return self.where(chosen, y, x)

    def sign(self, x: Value) -> Value:
        has_sign = self.test("Greater", self.add("Abs", x), self.like(x, 0))
        return self.where(has_sign, self.add("Sign", x), x)

    # Integers ---------------------------------------------------------------------------------

    def divide(self, dtype: DataType, x: Value, y: Value) -> Value:
        """Quotient, truncated; 0 if the divisor is 0."""
        zero, one = self.like(x, 0), self.like(x, 1)
        number = self.number(y)
        if number == 0:
            return self.add("Mul", x, zero)
        if dtype is DataType.UINT64:
            quotient = self.divide_unsigned(x, y)
        elif number is not None and number != -1:
            return self.add("Div", x, y)
        else:
            # The smallest integer by -1 is beyond the type: a fault on some machines.
            back = self.test("Equal", y, self.like(x, -1))
            odd = self.test("Or", back, self.test("Equal", y, zero))
            quotient = self.add("Div", x, self.where(odd, one, y))
            quotient = self.where(back, self.add("Neg", x), quotient)
        if number is not None:
            return quotient
        return self.where(self.test("Equal", y, zero), zero, quotient)

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

    def remainder(self, dtype: DataType, x: Value, y: Value) -> Value:
        """Remainder, with the sign of x; 0 if the divisor is 0."""
        rest = self.add("Sub", x, self.add("Mul", self.divide(dtype, x, y), y))
        number = self.number(y)
        if number:
            return rest
        zero = self.like(x, 0)
        return self.where(self.test("Equal", y, zero), zero, rest)

    def shift(self, direction: str, x: Value, y: Value) -> Value:
        """Logical shift of bits, which fills with zeros; right for values held in more bits as
        well."""
        wide = [self.as_element(v, TensorProto.UINT64) for v in (x, y)]
        shape = np.broadcast_shapes(x.shape, y.shape)
        moved = self.nodes.add("BitShift", wide, TensorProto.UINT64, shape, direction=direction)
        return self.as_element(moved, x.element)

    def shift_right(self, dtype: DataType, x: Value, y: Value) -> Value:
        distance = self.distance(dtype, y)
        if dtype.kind is Kind.UNSIGNED:
            return self.shift("RIGHT", x, distance)
        # Ones come in at a negative number: zeros at the complement, which is not negative.
        negative = self.test("Less", x, self.like(x, 0))
        moved = self.shift("RIGHT", self.where(negative, self.add("BitwiseNot", x), x), distance)
        return self.where(negative, self.add("BitwiseNot", moved), moved)

    def distance(self, dtype: DataType, y: Value) -> Value:
        """Distance of a shift, modulo the width."""
        return self.add("BitwiseAnd", y, self.like(y, dtype.bytes * 8 - 1))

    def extreme_whole(self, operator: str, dtype: DataType, x: Value, y: Value) -> Value:
        if dtype is not DataType.UINT64:
            return self.add(operator.title(), x, y)
        beyond = "Less" if operator == "min" else "Greater"
        ends = self.ordered(y, dtype), self.ordered(x, dtype)
        return self.where(self.test(beyond, *ends), y, x)

    def sign_whole(self, dtype: DataType, x: Value) -> Value:
        if dtype.kind is not Kind.UNSIGNED:
            return self.add("Sign", x)
        some = self.test("Not", self.test("Equal", x, self.like(x, 0)))
        return self.as_element(some, x.element)

    # Casts ------------------------------------------------------------------------------------

    def cast(self, value: Value, source: DataType, to: DataType) -> Value:
        """Held value of one compute type converted to another: see `scalars.convert`."""
        if source is to:
            return value
        element = ELEMENTS[find_held(to)]
        if to is DataType.BOOL:
            return self.test("Not", self.test("Equal", value, self.like(value, 0)))
        if source.is_float and not to.is_float:
            return self.saturate(value, to)
        if source is DataType.UINT64 and to.is_float:
            return self.as_element(self.as_element(value, TensorProto.UINT64), element)
        if source is DataType.UINT64 and to is DataType.INDEX:
            beyond = self.test("Less", value, self.like(value, 0))
            return self.where(beyond, self.like(value, -1 - _LOWEST), value)
        return self.wrap(self.as_element(value, element), to)

    def saturate(self, x: Value, to: DataType) -> Value:
        """Float as an integer: truncated and clamped to the type's range; 0 for NaN."""
        limits = np.iinfo(to.dtype)
        element = TensorProto.UINT64 if to is DataType.UINT64 else ELEMENTS[find_held(to)]
        least, most = self.like(x, float(limits.min)), self.like(x, float(limits.max))
        inside = self.test("And", self.test("Greater", x, least), self.test("Less", x, most))
        whole = self.as_element(self.where(inside, x, self.like(x, 0)), element)
        whole = self.as_element(whole, ELEMENTS[find_held(to)])
        ends = [
            self.nodes.constant(hold(np.array(end, to.dtype), to))
            for end in (limits.min, limits.max)
        ]
        above = self.where(self.test("GreaterOrEqual", x, most), ends[1], whole)
        return self.where(self.test("LessOrEqual", x, least), ends[0], above)

    # Reductions -------------------------------------------------------------------------------

    def identity(self, combiner: str, dtype: DataType) -> Value:
        """Identity of a reduction: its result if no point takes part."""
        return self.literal(Constant(dtype, COMBINERS[combiner].identity(dtype)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Floats(Domain[Value]):
    """Evaluation domain of scalar formulas: FLOAT32 values of an ONNX graph, and their
    comparisons."""

    arithmetic: Arithmetic

    def type_of(self, value: Value) -> DataType:
        return _TYPES[value.element]

    def apply(self, name: str, *given: Value) -> Value:
        return self.arithmetic.apply(OPERATIONS[name], given, self.type_of(given[0]))

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        return self.arithmetic.where(condition, then, otherwise)

    def cast(self, value: Value, dtype: DataType) -> Value:
        return self.arithmetic.cast(value, self.type_of(value), dtype)

    def literal(self, value: int | float, dtype: DataType) -> Value:
        return self.arithmetic.literal(Constant(dtype, value))
