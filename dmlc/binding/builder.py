"""Computations as a graph of shared nodes: their types, shapes and scalar operations.

A node is a scalar operation applied to every element of a shape, or at the place that index
variables name. Equal nodes are one node, so sharing in the source, and in functions inlined twice,
is kept. A node may still be *weak*: made of numbers alone (`X > 0 ? 1 : 0`), it takes the type of
what it meets. What is computed from index variables is *soft*: whole numbers are computed as INDEX
and fractions as FLOAT32, in the order written, and the outcome is converted to the type of what it
meets.

`Builder` knows types and shapes, not the operator language; `folding` has reductions of whole
tensors, `indexing` has index notation.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dmlc import ir
from dmlc.binding.nodes import (
    Element,
    Form,
    Node,
    Pack,
    Shape,
    Value,
    ValueType,
    Variable,
    Weak,
)
from dmlc.binding.tensors import show_sizes
from dmlc.binding.values import Constant, describe, round_float, show, spell
from dmlc.scalars import OPERATIONS, DataType, Operands, Operation
from dmlc.source import DmlcError, Span

_MOST_NODES = 200_000
_BOOL = DataType.BOOL
_ROUNDINGS = ("floor", "ceil", "round", "trunc")


class Builder(abc.ABC):
    """The nodes of one function, each after what it reads."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[object, int] = {}
        self.variables: list[Variable] = []
        self._quotients: dict[int, tuple[Element, Element]] = {}
        """The whole numbers that a fraction divides, by its node."""
        self._held: dict[int, str] = {}
        """The tensor that holds a fold's values, once a stage computes it."""
        self.placed: set[str] = set()
        """The tensors whose elements depend on positions alone."""

    def _add(self, node: Node) -> Element:
        # repr tells -0.0 from 0.0 and keeps NaN equal to itself; the type tells 1 from true.
        payload = (type(node.payload), repr(node.payload))
        key = (node.form, payload, node.operands, node.dtype, node.shape, node.axes, node.soft)
        found = self._numbers.get(key)
        if found is None:
            found = len(self.nodes)
            if found >= _MOST_NODES:
                raise DmlcError(
                    f"the operator grows beyond {_MOST_NODES} operations once its functions "
                    "are inlined: split it"
                )
            self.nodes.append(self._complete(node))
            self._numbers[key] = found
        return Element(found)

    def node(self, value: Element) -> Node:
        return self.nodes[value.node]

    def _complete(self, node: Node) -> Node:
        """The node with what follows from its operands: the variables it depends on, and whether
        it depends on nothing else."""
        given = [self.nodes[o] for o in node.operands]
        free: dict[int, None] = {int(node.payload): None} if node.form is Form.INDEX else {}
        for operand in given:
            free.update(dict.fromkeys(operand.free))
        if node.form is Form.REDUCE:
            free = {v: None for v in free if v not in node.axes}
        elements = node.form in (Form.LOAD, Form.READ, Form.FOLD)
        known = node.form is Form.READ and node.payload in self.placed
        placed = (known or not elements) and all(o.placed for o in given)
        order = tuple(sorted(free, key=self._variable_order))
        return dataclasses.replace(node, free=order, placed=placed)

    def _variable_order(self, variable: int) -> tuple[int, int]:
        return self.variables[variable].level, variable

    def dtype(self, value: Element) -> ValueType:
        return self.nodes[value.node].dtype

    def shape(self, value: Element) -> Shape:
        return self.nodes[value.node].shape

    def load(self, tensor: str, dtype: DataType, shape: tuple[ir.Extent, ...]) -> Element:
        """The elements of a tensor, in the type they are computed in."""
        return self._add(Node(Form.LOAD, tensor, (), dtype.compute, shape))

    def loaded(self, value: Element) -> str | None:
        """The tensor that a value is the bare elements of, if it is."""
        node = self.nodes[value.node]
        return str(node.payload) if node.form is Form.LOAD else self._held.get(value.node)

    # Types --------------------------------------------------------------------------------

    def adapt(self, value: Value, to: DataType, span: Span) -> Element:
        """The value in a compute type: a weak one takes it on, any other must have it."""
        if not isinstance(value, Element):
            return self._constant(value, to, span)
        found = self.dtype(value)
        if found is to:
            return value
        if isinstance(found, DataType):
            if not self.nodes[value.node].soft:
                raise _mismatch([found, to], span)
            return self._adapt_soft(value, to, span)
        return self._adapt_weak(value, to, span)

    def _adapt_soft(self, value: Element, to: DataType, span: Span) -> Element:
        """What is computed from positions, converted to the type it meets."""
        if to is DataType.BOOL:
            raise DmlcError("a boolean is expected, but this is a number", span)
        if self.dtype(value) is DataType.FLOAT32 and not to.is_float:
            raise DmlcError(
                f"a fraction meets {type_name(to)} values: make it a whole number, as in "
                "cast(floor(x), INT32)",
                span,
            )
        return self._cast(value, to, soft=to in (DataType.INDEX, DataType.FLOAT32))

    def takes_type(self, value: Value) -> bool:
        """Whether a value takes the type of what it meets."""
        if not isinstance(value, Element):
            return True
        return isinstance(self.dtype(value), Weak) or self.nodes[value.node].soft

    def _constant(self, value: Constant | Pack, to: DataType, span: Span) -> Element:
        if isinstance(value, tuple | Pack):
            raise _is_array(value, span)
        if to is DataType.BOOL or not isinstance(value, int | float) or isinstance(value, bool):
            if to is DataType.BOOL and isinstance(value, bool):
                return self._literal(value, to)
            raise DmlcError(
                f"{show(value)} is {describe(value)}, where a {to.name} is expected", span
            )
        if to.is_float:
            made: int | float = round_float(float(value), to)
        elif isinstance(value, float):
            raise DmlcError(
                f"{show(value)} meets {to.name} values: write cast(..., FLOAT32) around the "
                "integers, or cast the number",
                span,
            )
        else:
            limits = np.iinfo(to.dtype)
            if not limits.min <= value <= limits.max:
                what = "a position" if to is DataType.INDEX else to.name
                raise DmlcError(f"{value} does not fit {what}", span)
            made = value
        return self._literal(made, to)

    def _adapt_weak(self, value: Element, to: DataType, span: Span) -> Element:
        if to is DataType.BOOL:
            raise DmlcError("a boolean is expected, but this is a number", span)
        if self.dtype(value) is Weak.FLOAT and not to.is_float:
            raise DmlcError(
                f"a fraction meets {to.name} values: write cast(..., FLOAT32) around the integers",
                span,
            )
        made: dict[int, Element] = {}
        for number in self._reachable(value.node, weak=True):
            node = self.nodes[number]
            if isinstance(node.dtype, DataType):
                made[number] = Element(number)
            elif node.form is Form.CONSTANT:
                constant = self.nodes[self._constant(node.payload, to, span).node]
                made[number] = self._add(dataclasses.replace(constant, shape=node.shape))
            elif node.payload in ir.POSITIONAL_COMBINERS:
                made[number] = self.make_position(node, to, span)
            elif node.form is Form.APPLY and _identity_on(OPERATIONS[str(node.payload)], to):
                made[number] = made[node.operands[0]]
            else:
                operands = tuple(made[o].node for o in node.operands)
                made[number] = self._add(dataclasses.replace(node, operands=operands, dtype=to))
        return made[value.node]

    def _reachable(self, root: int, weak: bool = False, held: bool = False) -> list[int]:
        """What a node reads, and the node, in order. `weak` stops below what has a type, `held`
        below what a tensor holds."""
        found: set[int] = set()
        pending = [root]
        while pending:
            number = pending.pop()
            if number not in found:
                found.add(number)
                node = self.nodes[number]
                typed = weak and isinstance(node.dtype, DataType)
                if not typed and not (held and number in self._held):
                    pending.extend(node.operands)
        return sorted(found)

    def weak(self, value: Value, span: Span) -> Element:
        """A compile-time number as a weak node."""
        if isinstance(value, Element):
            return value
        if isinstance(value, bool):
            return self._constant(value, DataType.BOOL, span)
        if isinstance(value, int | float):
            kind = Weak.INTEGER if isinstance(value, int) else Weak.FLOAT
            return self._literal(value, kind)
        return self._constant(value, DataType.FLOAT32, span)

    def _unify(self, given: Sequence[Value], spans: Sequence[Span], span: Span) -> ValueType:
        """The one type operands share: their strong type, or a weak one if none has any."""
        strong: dict[DataType, None] = {}
        soft: dict[ValueType, None] = {}
        for value, place in zip(given, spans, strict=True):
            found = self.dtype(value) if isinstance(value, Element) else _weak_type(value, place)
            if not isinstance(found, DataType) or (self.takes_type(value) and found is not _BOOL):
                soft[found] = None
            else:
                strong[found] = None
        if len(strong) > 1:
            raise _mismatch(list(strong), span)
        if strong:
            return next(iter(strong))
        if DataType.FLOAT32 in soft or (DataType.INDEX in soft and Weak.FLOAT in soft):
            return DataType.FLOAT32
        return next((t for t in (DataType.INDEX, Weak.FLOAT) if t in soft), Weak.INTEGER)

    # Operations ---------------------------------------------------------------------------

    def apply(
        self, operation: Operation, given: Sequence[Value], spans: Sequence[Span], span: Span
    ) -> Element:
        """A scalar operation element by element. Sizes of 1 broadcast."""
        shape = self._broadcast(given, spans, span)
        dtype = self._unify(given, spans, span)
        if isinstance(dtype, Weak):
            return self._apply_weak(operation, given, dtype, shape, span)
        whole: list[Element] = []
        if dtype is DataType.INDEX:
            divides = operation.name == "div"
            if divides:
                whole = [self.adapt(v, dtype, s) for v, s in zip(given, spans, strict=True)]
            if divides or (operation.operands is Operands.FLOAT and not operation.gives_bool):
                dtype = dtype if _identity_on(operation, dtype) else DataType.FLOAT32
        elif operation.name in _ROUNDINGS and isinstance(given[0], Element):
            exact = self._round_quotient(operation.name, given[0])
            if exact is not None:
                return exact
        if not operation.operands.accept(dtype):
            if operation.name in ("isnan", "isinf") and dtype is not DataType.BOOL:
                return self._fill(False, shape)
            if not _identity_on(operation, dtype):
                raise _refused(operation, dtype, spans[0], span)
        operands = [self.adapt(v, dtype, s) for v, s in zip(given, spans, strict=True)]
        if _identity_on(operation, dtype):
            return operands[0]
        made = self._make_apply(
            operation, operands, operation.result_type(dtype), shape, self._stays_soft(given)
        )
        if whole:
            self._quotients[made.node] = (whole[0], whole[1])
        return made

    def _stays_soft(self, given: Sequence[Value]) -> bool:
        """Whether what is computed from these takes the type of what it meets."""
        return all(self.takes_type(v) for v in given)

    @abc.abstractmethod
    def _round_quotient(self, name: str, value: Element) -> Element | None:
        """`floor(a / b)` of whole numbers as a division of whole numbers, which is exact; None
        for what is no such fraction. `indexing` has it."""

    def _apply_weak(
        self, operation: Operation, given: Sequence[Value], weak: Weak, shape: Shape, span: Span
    ) -> Element:
        integral = weak is Weak.INTEGER
        if operation.operands is Operands.BOOL:
            raise DmlcError(f"{spell(operation)} takes booleans, but this is a number", span)
        if operation.operands is Operands.INTEGER and not integral:
            raise DmlcError(f"{spell(operation)} takes integers, but this is a fraction", span)
        if operation.gives_bool or operation.operands is Operands.INTEGER:
            # Nothing outside can give these operands a type any more.
            to = DataType.INT32 if integral else DataType.FLOAT32
            operands = [self.adapt(v, to, span) for v in given]
            if integral and operation.name in ("isnan", "isinf"):
                return self._fill(False, shape)
            return self._make_apply(operation, operands, operation.result_type(to), shape)
        operands = [self.weak(v, span) for v in given]
        exact = operation.operands is Operands.NUMBER and operation.name != "div"
        if integral and _identity_on(operation, DataType.INT32):
            return operands[0]
        return self._make_apply(
            operation, operands, Weak.INTEGER if integral and exact else Weak.FLOAT, shape
        )

    def _make_apply(
        self,
        operation: Operation,
        operands: Sequence[Element],
        dtype: ValueType,
        shape: Shape,
        soft: bool = False,
    ) -> Element:
        numbers = tuple(o.node for o in operands)
        soft = soft and dtype in (DataType.INDEX, DataType.FLOAT32)
        return self._add(Node(Form.APPLY, operation.name, numbers, dtype, shape, soft=soft))

    def _fill(self, value: bool, shape: Shape) -> Element:
        return self._literal(value, DataType.BOOL, shape)

    def select(
        self, given: tuple[Value, Value, Value], spans: tuple[Span, Span, Span], span: Span
    ) -> Element:
        """`given[0] ? given[1] : given[2]`, element by element."""
        condition = given[0]
        found = self.dtype(condition) if isinstance(condition, Element) else None
        if found is not DataType.BOOL:
            raise DmlcError(
                "the condition of '?:' must be a boolean, but "
                f"{span_text(spans[0])} is {type_name(found)}",
                spans[0],
            )
        shape = self._broadcast(given, spans, span)
        dtype = self._unify(given[1:], spans[1:], span)
        if isinstance(dtype, DataType):
            branches = [self.adapt(v, dtype, s) for v, s in zip(given[1:], spans[1:], strict=True)]
        else:
            branches = [self.weak(v, span) for v in given[1:]]
        numbers = (self.weak(condition, span).node, branches[0].node, branches[1].node)
        soft = dtype in (DataType.INDEX, DataType.FLOAT32) and self._stays_soft(given[1:])
        return self._add(Node(Form.SELECT, "select", numbers, dtype, shape, soft=soft))

    def cast(self, value: Element, to: DataType, span: Span) -> Element:
        """What `cast(x, TYPE)` gives: a value of the compute type of a type, which for a 16-bit
        float is rounded to what that type holds."""
        found = self.dtype(value)
        if isinstance(found, Weak):
            weak_to = DataType.INT64 if found is Weak.INTEGER else DataType.FLOAT32
            value = self._adapt_weak(value, to.compute if to.is_float else weak_to, span)
            found = self.dtype(value)
        if found is to and not self.nodes[value.node].soft:
            return value
        return self.name_type(value, to)

    def name_type(self, value: Element, to: DataType) -> Element:
        """The same also where nothing is computed, for those who ask for the types of casts."""
        return self._cast(value, to)

    def _cast(self, value: Element, to: DataType, soft: bool = False) -> Element:
        shape, operands = self.shape(value), (value.node,)
        return self._add(Node(Form.CAST, to.name, operands, to.compute, shape, soft=soft))

    def _literal(self, value: bool | int | float, dtype: ValueType, shape: Shape = None) -> Element:
        """A constant."""
        return self._add(Node(Form.CONSTANT, value, (), dtype, shape))

    def drop_rounding(self, value: Element, stored: DataType) -> Element:
        """A value that is stored in a type, without a cast to that type: to store it rounds it."""
        node = self.nodes[value.node]
        if node.form is not Form.CAST or node.payload != stored.name:
            return value
        operand, compute = Element(node.operands[0]), stored.compute
        return operand if self.dtype(operand) is compute else self._convert(operand, compute)

    def _convert(self, value: Element, to: DataType) -> Element:
        """A conversion that no one has written."""
        return self._add(Node(Form.CAST, "", (value.node,), to, self.shape(value)))

    # Shapes -------------------------------------------------------------------------------

    def _broadcast(self, given: Sequence[Value], spans: Sequence[Span], span: Span) -> Shape:
        shape: Shape = None
        first = span
        for value, place in zip(given, spans, strict=True):
            found = self.shape(value) if isinstance(value, Element) else None
            if found is None:
                continue
            if shape is None:
                shape, first = found, place
                continue
            joined = join_shapes(shape, found)
            if joined is None:
                raise DmlcError(
                    f"{span_text(first)} has sizes {show_sizes(shape)} and {span_text(place)} has "
                    f"sizes {show_sizes(found)}: tensors combine element by element if they have "
                    "the same rank, and each size is the same or 1",
                    span,
                )
            shape = joined
        return shape

    # Positions of folds ---------------------------------------------------------------------

    def make_position(self, node: Node, to: DataType, span: Span) -> Element:
        """The position a fold gives, in a type; in a float by way of an integer that holds it."""
        points = self.points(node)
        kind = to
        if not to.is_integer:  # A float, or a position.
            kind = DataType.INT32 if points <= 2**31 else DataType.INT64
        largest = int(np.iinfo(kind.dtype).max)
        if points - 1 > largest:
            raise DmlcError(
                f"'{node.payload}' gives a position among {points} values, which {kind.name} "
                "cannot hold",
                span,
            )
        found = self._add(dataclasses.replace(node, dtype=kind))
        if to is DataType.INDEX:
            return self._cast(found, to, soft=True)
        return found if kind is to else self._convert(found, to)

    def points(self, node: Node) -> int:
        """The number of values that a fold folds into one."""
        if node.form is Form.REDUCE:
            return math.prod(self.variables[v].extent for v in node.axes)
        shape = self.nodes[node.operands[0]].shape or ()
        return math.prod(e for a in node.axes if isinstance(e := shape[a], int))


def join_shapes(
    left: tuple[ir.Extent, ...], right: tuple[ir.Extent, ...]
) -> tuple[ir.Extent, ...] | None:
    """The shape two shapes broadcast to, or None if they do not."""
    if len(left) != len(right):
        return None
    joined: list[ir.Extent] = []
    for a, b in zip(left, right, strict=True):
        if a != b and 1 not in (a, b):
            return None
        joined.append(b if a == 1 else a)
    return tuple(joined)


def span_text(span: Span) -> str:
    """The source of an expression, quoted, on one line and cut to a readable length."""
    text = " ".join(span.text.split())
    return f"'{text}'" if len(text) <= 60 else f"'{text[:57]}...'"


def _identity_on(operation: Operation, dtype: DataType) -> bool:
    whole = dtype.is_integer or dtype is DataType.INDEX
    return whole and operation.name in _ROUNDINGS


def _is_array(value: tuple[Constant, ...] | Pack, span: Span) -> DmlcError:
    count = len(value.items if isinstance(value, Pack) else value)
    return DmlcError(
        f"{span_text(span)} is an array of {count} values and cannot meet a tensor element by "
        "element: index it, as in 'Sizes[0]'",
        span,
    )


def _weak_type(value: Constant | Pack, span: Span) -> ValueType:
    match value:
        case bool():
            return DataType.BOOL
        case int():
            return Weak.INTEGER
        case float():
            return Weak.FLOAT
        case tuple() | Pack():
            raise _is_array(value, span)
        case _:
            raise DmlcError(
                f"{span_text(span)} is {describe(value)}, where a number is expected", span
            )


def type_name(dtype: ValueType | None) -> str:
    if isinstance(dtype, DataType) and dtype is not DataType.INDEX:
        return dtype.name
    return "a number"


def _mismatch(found: list[DataType], span: Span) -> DmlcError:
    first, second = found[0], found[1]
    if DataType.BOOL in (first, second):
        other = second if first is DataType.BOOL else first
        cure = f"compare the {other.name} value with a number, or write cast(x, {other.name})"
        return DmlcError(f"BOOL and {other.name} values do not mix: {cure}", span)
    target = max((first, second), key=lambda t: (t.is_float, t.bytes))
    return DmlcError(
        f"{first.name} and {second.name} values do not mix: convert one, as in "
        f"cast(x, {target.name})",
        span,
    )


def _refused(operation: Operation, dtype: DataType, operand: Span, span: Span) -> DmlcError:
    cure = ""
    if operation.operands is Operands.FLOAT:
        cure = f": write cast({operand.text.strip()}, FLOAT32)" if len(operand.text) < 40 else ""
    elif operation.operands is Operands.BOOL:
        cure = ": compare with a number first, as in 'x != 0'"
    elif operation.operands is Operands.INTEGER:
        cure = ": write cast(..., INT32)" if dtype.is_float else ""
    elif dtype is DataType.BOOL:
        cure = f": write cast({operand.text.strip()}, FLOAT32)" if len(operand.text) < 40 else ""
    return DmlcError(
        f"{spell(operation)} takes {operation.operands.value}, but {span_text(operand)} is "
        f"{dtype.name}{cure}",
        span,
    )
