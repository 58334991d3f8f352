"""Whole-tensor computations as a graph of shared nodes.

A node is a scalar operation applied to every element of a shape. Equal nodes are one node, so
sharing in the source, and in functions inlined twice, is kept. A node may still be *weak*: made
of numbers alone (`X > 0 ? 1 : 0`), it takes the type of what it meets.

`Builder` knows types and shapes, not the operator language.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dmlc import ir
from dmlc.binding.nodes import Element, Form, Node, Shape, Value, ValueType, Weak, make_body
from dmlc.binding.tensors import show_sizes
from dmlc.binding.values import Constant, describe, round_float, show, spell
from dmlc.scalars import OPERATIONS, DataType, Operands, Operation
from dmlc.source import DmlcError, InternalError, Span

_MOST_NODES = 200_000


class Builder:
    """The nodes of one function, each after what it reads."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[object, int] = {}
        self._held: dict[int, str] = {}
        """The tensor that holds a fold's values, once a stage computes it."""

    def _add(self, node: Node) -> Element:
        # repr tells -0.0 from 0.0 and keeps NaN equal to itself; the type tells 1 from true.
        payload = (type(node.payload), repr(node.payload))
        key = (node.form, payload, node.operands, node.dtype, node.shape, node.axes)
        found = self._numbers.get(key)
        if found is None:
            found = len(self.nodes)
            if found >= _MOST_NODES:
                raise DmlcError(
                    f"the operator grows beyond {_MOST_NODES} operations once its functions "
                    "are inlined: split it"
                )
            self.nodes.append(node)
            self._numbers[key] = found
        return Element(found)

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
            raise _mismatch([found, to], span)
        return self._adapt_weak(value, to, span)

    def _constant(self, value: Constant, to: DataType, span: Span) -> Element:
        if isinstance(value, tuple):
            raise DmlcError(
                "an array cannot meet a tensor element by element: "
                f"{span_text(span)} has {len(value)} values; index it, as in 'Sizes[0]'",
                span,
            )
        if to is DataType.BOOL or not isinstance(value, int | float) or isinstance(value, bool):
            if to is DataType.BOOL and isinstance(value, bool):
                return self._add(Node(Form.CONSTANT, value, (), to, None))
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
                raise DmlcError(f"{value} does not fit {to.name}", span)
            made = value
        return self._add(Node(Form.CONSTANT, made, (), to, None))

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
            elif node.form is Form.FOLD and node.payload in ir.POSITIONAL_COMBINERS:
                made[number] = self._position(node, to, span)
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
            return self._add(Node(Form.CONSTANT, value, (), kind, None))
        return self._constant(value, DataType.FLOAT32, span)

    def _unify(self, given: Sequence[Value], spans: Sequence[Span], span: Span) -> ValueType:
        """The one type operands share: their strong type, or a weak one if none has any."""
        strong: dict[DataType, None] = {}
        weak = Weak.INTEGER
        for value, place in zip(given, spans, strict=True):
            found = self.dtype(value) if isinstance(value, Element) else _weak_type(value, place)
            if isinstance(found, DataType):
                strong[found] = None
            elif found is Weak.FLOAT:
                weak = Weak.FLOAT
        if len(strong) > 1:
            raise _mismatch(list(strong), span)
        return next(iter(strong), weak)

    # Operations ---------------------------------------------------------------------------

    def apply(
        self, operation: Operation, given: Sequence[Value], spans: Sequence[Span], span: Span
    ) -> Element:
        """A scalar operation element by element. Sizes of 1 broadcast."""
        shape = self._broadcast(given, spans, span)
        dtype = self._unify(given, spans, span)
        if isinstance(dtype, Weak):
            return self._apply_weak(operation, given, dtype, shape, span)
        if not operation.operands.accept(dtype):
            if dtype.is_integer and operation.name in ("isnan", "isinf"):
                return self._fill(False, shape)
            if not _identity_on(operation, dtype):
                raise _refused(operation, dtype, spans[0], span)
        operands = [self.adapt(v, dtype, s) for v, s in zip(given, spans, strict=True)]
        if _identity_on(operation, dtype):
            return operands[0]
        return self._make_apply(operation, operands, operation.result_type(dtype), shape)

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
        self, operation: Operation, operands: Sequence[Element], dtype: ValueType, shape: Shape
    ) -> Element:
        numbers = tuple(o.node for o in operands)
        return self._add(Node(Form.APPLY, operation.name, numbers, dtype, shape))

    def _fill(self, value: bool, shape: Shape) -> Element:
        return self._add(Node(Form.CONSTANT, value, (), DataType.BOOL, shape))

    def select(
        self, given: tuple[Value, Value, Value], spans: tuple[Span, Span, Span], span: Span
    ) -> Element:
        """`given[0] ? given[1] : given[2]`, element by element."""
        condition = given[0]
        found = self.dtype(condition) if isinstance(condition, Element) else None
        if found is not DataType.BOOL:
            raise DmlcError(
                "the condition of '?:' must be a boolean, but "
                f"{span_text(spans[0])} is {_type_name(found)}",
                spans[0],
            )
        shape = self._broadcast(given, spans, span)
        dtype = self._unify(given[1:], spans[1:], span)
        if isinstance(dtype, DataType):
            branches = [self.adapt(v, dtype, s) for v, s in zip(given[1:], spans[1:], strict=True)]
        else:
            branches = [self.weak(v, span) for v in given[1:]]
        numbers = (self.weak(condition, span).node, branches[0].node, branches[1].node)
        return self._add(Node(Form.SELECT, "select", numbers, dtype, shape))

    def cast(self, value: Element, to: DataType, span: Span) -> Element:
        """A conversion to a type's compute type; rounding to 16 bits happens where it is stored."""
        found = self.dtype(value)
        if isinstance(found, Weak):
            weak_to = DataType.INT64 if found is Weak.INTEGER else DataType.FLOAT32
            value = self._adapt_weak(value, to.compute if to.is_float else weak_to, span)
            found = self.dtype(value)
        if found is to.compute:
            return value
        return self._add(Node(Form.CAST, to.name, (value.node,), to.compute, self.shape(value)))

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

    # Folds --------------------------------------------------------------------------------

    def fold(self, combiner: str, value: Element, axes: Sequence[int], span: Span) -> Element:
        """A reduction over some axes of a value that has a shape; they stay, with size 1.

        `combiner` is one of the language's: `mean` divides the sum by the number of values in
        their own type; `argmin` and `argmax` give a weak integer, which takes the type of what it
        meets. An axis of one element folds to that element.
        """
        shape = self.shape(value)
        if shape is None:
            raise InternalError("a fold of a value without a shape")
        self._check_folded(combiner, value, span)
        folded = tuple(a for a in axes if shape[a] != 1)
        positional = combiner in ir.POSITIONAL_COMBINERS
        if not folded:
            zero = Node(Form.CONSTANT, 0, (), Weak.INTEGER, shape)
            return self._add(zero) if positional else value
        if combiner == "mean":
            total = self.fold("sum", value, folded, span)
            count = math.prod(e for a in folded if isinstance(e := shape[a], int))
            return self.apply(OPERATIONS["div"], [total, float(count)], [span, span], span)
        rest = tuple(1 if a in folded else e for a, e in enumerate(shape))
        dtype: ValueType = self.dtype(value)
        if positional:
            if isinstance(dtype, Weak):
                settled = DataType.INT32 if dtype is Weak.INTEGER else DataType.FLOAT32
                value = self.adapt(value, settled, span)
            dtype = Weak.INTEGER
        return self._add(Node(Form.FOLD, combiner, (value.node,), dtype, rest, folded))

    def _check_folded(self, combiner: str, value: Element, span: Span) -> None:
        found = self.dtype(value)
        if combiner in ("any", "all"):
            if found is not DataType.BOOL:
                raise DmlcError(
                    f"'{combiner}' folds booleans, but this is {_type_name(found)}: compare it "
                    "first, as in 'x != 0'",
                    span,
                )
        elif found is DataType.BOOL:
            raise DmlcError(
                f"'{combiner}' folds numbers, but this is BOOL: write cast(..., INT32)", span
            )
        elif combiner == "mean" and isinstance(found, DataType) and not found.is_float:
            raise DmlcError(
                f"'mean' folds floating-point numbers, but this is {found.name}: write "
                "cast(..., FLOAT32)",
                span,
            )

    def _position(self, node: Node, to: DataType, span: Span) -> Element:
        """The position a fold gives, in a type; in a float by way of an integer that holds it."""
        points = self.points(node)
        kind = to
        if not to.is_integer:
            kind = DataType.INT32 if points <= 2**31 else DataType.INT64
        largest = int(np.iinfo(kind.dtype).max)
        if points - 1 > largest:
            raise DmlcError(
                f"'{node.payload}' gives a position among {points} values, which {kind.name} "
                "cannot hold",
                span,
            )
        found = self._add(dataclasses.replace(node, dtype=kind))
        return found if kind is to else self.cast(found, to, span)

    def points(self, node: Node) -> int:
        """The number of values that a fold folds into one."""
        shape = self.nodes[node.operands[0]].shape or ()
        return math.prod(e for a in node.axes if isinstance(e := shape[a], int))

    def find_fold(self, value: Element) -> Node | None:
        """The fold that a value is, where no tensor holds it yet."""
        node = self.nodes[value.node]
        return node if node.form is Form.FOLD and value.node not in self._held else None

    def list_folds(self, value: Element) -> list[Element]:
        """The folds that a value needs and no tensor holds yet, each after those it needs; the
        value itself is the last where it is one."""
        found = self._reachable(value.node, held=True)
        return [Element(n) for n in found if self.find_fold(Element(n)) is not None]

    def hold(self, value: Element, tensor: str) -> None:
        """Notes that a tensor of the value's own type and shape holds it from here on."""
        self._held[value.node] = tensor

    def body(self, root: Element, domain: tuple[ir.Extent, ...]) -> ir.Body:
        """The computation of one element of `domain`; every shape in it broadcasts to that."""
        view = tuple(ir.Index(axis) for axis in range(len(domain)))
        return make_body(self.nodes, self._held, root.node, domain, view)

    def fold_body(self, fold: Node) -> ir.Body:
        """The computation of what a fold folds, at a point of its domain and its axes."""
        domain = fold.shape or ()
        view = tuple(ir.Index(a, reduced=a in fold.axes) for a in range(len(domain)))
        return make_body(self.nodes, self._held, fold.operands[0], domain, view)

    def reduction(self, fold: Node) -> ir.Reduction:
        """A fold as the IR has it: the axes keep their numbers as labels."""
        shape = self.nodes[fold.operands[0]].shape or ()
        return ir.Reduction(str(fold.payload), tuple((a, shape[a]) for a in fold.axes))

    # Axes ---------------------------------------------------------------------------------

    def move(self, value: Element, axes: Sequence[int], rank: int) -> Element:
        """The value with other axes: each of its own becomes the one of `rank` axes that `axes`
        says, or is dropped where that is -1, being of size 1. Further axes have size 1."""
        shape = self.shape(value)
        if shape is None:
            raise InternalError("a move of a value without a shape")
        made: list[ir.Extent] = [1] * rank
        for extent, axis in zip(shape, axes, strict=True):
            if axis >= 0:
                made[axis] = extent
        return self._add(
            Node(Form.MOVE, "move", (value.node,), self.dtype(value), tuple(made), tuple(axes))
        )


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
    return dtype.is_integer and operation.name in ("floor", "ceil", "round", "trunc")


def _weak_type(value: Constant, span: Span) -> ValueType:
    match value:
        case bool():
            return DataType.BOOL
        case int():
            return Weak.INTEGER
        case float():
            return Weak.FLOAT
        case tuple():
            raise DmlcError(
                f"{span_text(span)} is an array of {len(value)} values and cannot meet a tensor "
                "element by element: index it, as in 'Sizes[0]'",
                span,
            )
        case _:
            raise DmlcError(
                f"{span_text(span)} is {describe(value)}, where a number is expected", span
            )


def _type_name(dtype: ValueType | None) -> str:
    if isinstance(dtype, DataType):
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
