"""Type conversions of values.

A *weak* value is made of numbers alone (`X > 0 ? 1 : 0`), and takes the type of the other operand.
A *soft* value is computed from index variables: whole numbers as INDEX and fractions as FLOAT32, in
the order written; the result is converted to the type of the other operand.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from dmlc import ir
from dmlc.binding.nodes import Node, Nodes, Op, Value, ValueType, Weak, reachable, takes_type
from dmlc.binding.values import TO_WHOLE, OpenSize, Scalar, describe, round_float, show, span_text
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.scalars import OPERATIONS, DataType, Operation, is_positional
from dmlc.sizes import LARGEST
from dmlc.source import DmlcError, Span

_BOOL, _INDEX = DataType.BOOL, DataType.INDEX


class Conversions:
    """Converter of values to data types; `unify` finds the common type of operands."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def adapt(self, value: Value, to: DataType, span: Span) -> Node:
        """Value in a compute type: a weak or soft one is converted, any other must have that type
        already."""
        if not isinstance(value, Node):
            return self._constant(value, to, span)
        found = value.dtype
        if found is to:
            return value
        if isinstance(found, DataType) and not value.soft:
            raise _mismatch([found, to], span)
        if to is _BOOL:
            raise DmlcError("a boolean is expected, but this is a number", span, code="E0301")
        if found in (DataType.FLOAT32, Weak.FLOAT) and not to.is_float:
            cure = "write cast(..., FLOAT32) around the integers"
            if found is DataType.FLOAT32:
                cure = "make it a whole number, as in cast(floor(x), INT32)"
            raise DmlcError(f"a fraction meets {type_name(to)} values: {cure}", span, code="E0302")
        if isinstance(found, DataType):
            return self.convert(value, to, to.name, soft=to in (_INDEX, DataType.FLOAT32))
        return self._adapt_weak(value, to, span)

    def _constant(self, value: Scalar | tuple[Value, ...], to: DataType, span: Span) -> Node:
        if isinstance(value, tuple):
            raise refuse_array(value, span)
        if isinstance(value, OpenSize):
            return self.adapt(self._open(value), to, span)
        if to is _BOOL or not isinstance(value, int | float) or isinstance(value, bool):
            if to is _BOOL and isinstance(value, bool):
                return self._nodes.literal(value, to)
            raise DmlcError(
                f"{show(value)} is {describe(value)}, where a {to.name} is expected",
                span,
                code="E0301",
            )
        if to.is_float:
            return self._nodes.literal(round_float(float(value), to), to)
        if isinstance(value, float):
            raise DmlcError(
                f"{show(value)} meets {to.name} values: write cast(..., FLOAT32) around the "
                "integers, or cast the number",
                span,
                code="E0302",
            )
        limits = np.iinfo(to.dtype)
        if not limits.min <= value <= limits.max:
            what = "a position" if to is _INDEX else to.name
            raise DmlcError(f"{value} does not fit {what}", span, code="E0307")
        return self._nodes.literal(value, to)

    def _adapt_weak(self, value: Node, to: DataType, span: Span) -> Node:
        made: dict[Node, Node] = {}
        for node in reachable(value, lambda n: isinstance(n.dtype, DataType)):
            if isinstance(node.dtype, DataType):
                made[node] = node
            elif node.form is Op.CONSTANT:
                constant = self._constant(node.payload, to, span)
                made[node] = self._nodes.add(dataclasses.replace(constant, shape=node.shape))
            elif is_positional(node.payload):
                made[node] = self._make_position(node, to, span)
            elif node.form is Op.APPLY and is_identity(IR_OPERATIONS[str(node.payload)], to):
                made[node] = made[node.operands[0]]
            else:
                operands = tuple(made[o] for o in node.operands)
                converted = dataclasses.replace(node, operands=operands, dtype=to)
                made[node] = self._nodes.add(converted)
        return made[value]

    def _make_position(self, node: Node, to: DataType, span: Span) -> Node:
        """Index that a fold returns, in a data type; for a float it is converted through an integer
        type that holds every index."""
        count = count_points(node)
        kind = to if to.is_integer else position_type(node)
        largest = int(np.iinfo(kind.dtype).max)
        if count - 1 > largest:
            raise DmlcError(
                f"'{node.payload}' gives a position among {count} values, which {kind.name} "
                "cannot hold",
                span,
                code="E0307",
            )
        found = self._nodes.add(dataclasses.replace(node, dtype=kind))
        if to is _INDEX:
            return self.convert(found, to, to.name, soft=True)
        return found if kind is to else self.convert(found, to)

    def weak(self, value: Value, span: Span) -> Node:
        """A compile-time number as a weak node."""
        if isinstance(value, Node):
            return value
        if isinstance(value, OpenSize):
            return self._open(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            kind = Weak.INTEGER if isinstance(value, int) else Weak.FLOAT
            return self._nodes.literal(value, kind)
        return self._constant(value, _BOOL if isinstance(value, bool) else DataType.FLOAT32, span)

    def _open(self, value: OpenSize) -> Node:
        """Open size, or a fraction of one, as a node."""
        size = self._nodes.size(value.size)
        if value.over == 1:
            return size
        operands = (
            self.convert(size, DataType.FLOAT32, DataType.FLOAT32.name, soft=True),
            self._nodes.literal(float(value.over), DataType.FLOAT32),
        )
        return self._nodes.apply(OPERATIONS["div"], operands, DataType.FLOAT32, None, soft=True)

    def cast(self, value: Node, to: DataType, span: Span) -> Node:
        """Result of `cast(x, TYPE)`: a value of the compute type of TYPE, rounded to TYPE if that
        is a 16-bit float."""
        if isinstance(value.dtype, Weak):
            weak_to = DataType.INT64 if value.dtype is Weak.INTEGER else DataType.FLOAT32
            value = self._adapt_weak(value, to.compute if to.is_float else weak_to, span)
        if value.dtype is to and not value.soft:
            return value
        return self.convert(value, to, to.name)

    def convert(self, value: Node, to: DataType, named: str = "", *, soft: bool = False) -> Node:
        """Conversion node. `named` is the type that a cast names; it is recorded for `graph_stages`
        even if nothing is computed."""
        return self._nodes.add(Node(Op.CAST, named, (value,), to.compute, value.shape, soft=soft))

    def drop_rounding(self, value: Node, stored: DataType) -> Node:
        """Value to be stored in a type, without a final cast to that type: the store rounds it."""
        if value.form is not Op.CAST or value.payload != stored.name:
            return value
        operand, compute = value.operands[0], stored.compute
        return operand if operand.dtype is compute else self.convert(operand, compute)


def unify(given: Sequence[Value], spans: Sequence[Span], span: Span) -> ValueType:
    """Common type of operands: their strong type, or a weak one if all are weak."""
    strong: dict[DataType, None] = {}
    soft: dict[ValueType, None] = {}
    for value, place in zip(given, spans, strict=True):
        found = value.dtype if isinstance(value, Node) else _weak_type(value, place)
        if not isinstance(found, DataType) or (takes_type(value) and found is not _BOOL):
            soft[found] = None
        else:
            strong[found] = None
    if len(strong) > 1:
        raise _mismatch(list(strong), span)
    if strong:
        return next(iter(strong))
    if DataType.FLOAT32 in soft or (_INDEX in soft and Weak.FLOAT in soft):
        return DataType.FLOAT32
    return next((t for t in (_INDEX, Weak.FLOAT) if t in soft), Weak.INTEGER)


def count_points(fold: Node) -> int:
    """Number of values that a fold reduces to one."""
    extents = [extent for _, extent in fold.reduced]
    # Functions check this limit: see `stages.list_counted`.
    return LARGEST if any(isinstance(e, str) for e in extents) else count_most(extents)


def count_most(extents: Iterable[ir.Extent]) -> int:
    """Largest number of points that axes may have; an open size counts as the largest size."""
    return math.prod(e if isinstance(e, int) else LARGEST for e in extents)


def position_type(fold: Node) -> DataType:
    """Integer type that holds every index a fold may return."""
    return DataType.INT32 if count_points(fold) <= 2**31 else DataType.INT64


def is_identity(operation: Operation, dtype: ValueType) -> bool:
    """Whether an operation is the identity on a type, as rounding is on integers."""
    whole = isinstance(dtype, DataType) and (dtype.is_integer or dtype is _INDEX)
    return whole and operation.name in TO_WHOLE


def type_name(dtype: ValueType | None) -> str:
    if isinstance(dtype, DataType) and dtype is not _INDEX:
        return dtype.name
    return "a number"


def refuse_array(value: tuple[Value, ...], span: Span) -> DmlcError:
    return DmlcError(
        f"{span_text(span)} is an array of {len(value)} values and cannot meet a tensor element "
        "by element: index it, as in 'Sizes[0]'",
        span,
        code="E0303",
    )


def _weak_type(value: Scalar | tuple[Value, ...], span: Span) -> ValueType:
    match value:
        case bool():
            return _BOOL
        case int():
            return Weak.INTEGER
        case float():
            return Weak.FLOAT
        case OpenSize():
            return _INDEX if value.over == 1 else DataType.FLOAT32
        case tuple():
            raise refuse_array(value, span)
        case _:
            raise DmlcError(
                f"{span_text(span)} is {describe(value)}, where a number is expected",
                span,
                code="E0301",
            )


def _mismatch(found: list[DataType], span: Span) -> DmlcError:
    first, second = found[0], found[1]
    if _BOOL in (first, second):
        other = second if first is _BOOL else first
        cure = f"compare the {other.name} value with a number, or write cast(x, {other.name})"
        return DmlcError(f"BOOL and {other.name} values do not mix: {cure}", span, code="E0302")
    target = max((first, second), key=lambda t: (t.is_float, t.bytes))
    return DmlcError(
        f"{first.name} and {second.name} values do not mix: convert one, as in "
        f"cast(x, {target.name})",
        span,
        code="E0302",
    )
