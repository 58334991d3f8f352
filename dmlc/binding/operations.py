"""Scalar operations and choices, element by element: their operands' types, and their shapes."""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.binding.axes import join_shapes
from dmlc.binding.conversions import Conversions, is_identity, type_name, unify
from dmlc.binding.nodes import Node, Nodes, Op, Shape, Value, Weak, shape_of, takes_type
from dmlc.binding.positions import Positions
from dmlc.binding.tensors import show_sizes
from dmlc.binding.values import TO_WHOLE, span_text, spell
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.scalars import DataType, Operands, Operation
from dmlc.source import DmlcError, Span


class Operations:
    """Builder of nodes of scalar operations."""

    def __init__(self, nodes: Nodes, conversions: Conversions, positions: Positions) -> None:
        self._nodes = nodes
        self._conversions = conversions
        self._positions = positions
        self._quotients: dict[Node, tuple[Node, Node]] = {}
        """Numerator and denominator of each quotient of whole numbers."""

    def apply(
        self, name: str, given: Sequence[Value], span: Span, spans: Sequence[Span] | None = None
    ) -> Node:
        """Scalar operation element by element; sizes of 1 broadcast. `spans` are those of the
        operands, if they have their own."""
        operation, spans = IR_OPERATIONS[name], [span] * len(given) if spans is None else spans
        shape = _broadcast(given, spans, span)
        dtype = unify(given, spans, span)
        adapt = self._conversions.adapt
        if isinstance(dtype, Weak):
            return self._apply_weak(operation, given, dtype, shape, span)
        whole: list[Node] = []
        if dtype is DataType.INDEX:
            if name == "div":
                whole = [adapt(v, dtype, s) for v, s in zip(given, spans, strict=True)]
                dtype = DataType.FLOAT32
            elif operation.operands is Operands.FLOAT and not operation.gives_bool:
                dtype = dtype if is_identity(operation, dtype) else DataType.FLOAT32
        elif name in TO_WHOLE and name != "round" and isinstance(given[0], Node):
            quotient = self._quotients.get(given[0])
            if quotient is not None:
                # A division of whole numbers, which is exact.
                return self._positions.divide(*quotient, name)
        if not operation.operands.accept(dtype):
            if name in ("isnan", "isinf") and dtype is not DataType.BOOL:
                return self._nodes.literal(False, DataType.BOOL, shape)
            if not is_identity(operation, dtype):
                raise _refused(operation, dtype, spans[0], span)
        operands = [adapt(v, dtype, s) for v, s in zip(given, spans, strict=True)]
        if is_identity(operation, dtype):
            return operands[0]
        gives, soft = operation.result_type(dtype), all(map(takes_type, given))
        made = self._nodes.apply(operation, operands, gives, shape, soft)
        if whole:
            self._quotients[made] = (whole[0], whole[1])
        return made

    def _apply_weak(
        self, operation: Operation, given: Sequence[Value], weak: Weak, shape: Shape, span: Span
    ) -> Node:
        integral = weak is Weak.INTEGER
        if operation.operands is Operands.BOOL:
            raise DmlcError(
                f"{spell(operation)} takes booleans, but this is a number", span, code="E0301"
            )
        if operation.operands is Operands.INTEGER and not integral:
            raise DmlcError(
                f"{spell(operation)} takes integers, but this is a fraction", span, code="E0301"
            )
        if operation.gives_bool or operation.operands is Operands.INTEGER:
            # No other operand determines the type of these operands.
            to = DataType.INT32 if integral else DataType.FLOAT32
            operands = [self._conversions.adapt(v, to, span) for v in given]
            if integral and operation.name in ("isnan", "isinf"):
                return self._nodes.literal(False, DataType.BOOL, shape)
            return self._nodes.apply(operation, operands, operation.result_type(to), shape)
        operands = [self._conversions.weak(v, span) for v in given]
        if integral and is_identity(operation, DataType.INT32):
            return operands[0]
        exact = operation.operands is Operands.NUMBER and operation.name != "div"
        gives = Weak.INTEGER if integral and exact else Weak.FLOAT
        return self._nodes.apply(operation, operands, gives, shape)

    def select(
        self, given: Sequence[Value], span: Span, spans: Sequence[Span] | None = None
    ) -> Node:
        """`given[0] ? given[1] : given[2]`, element by element; `spans` as in `apply`."""
        condition, *branches = given
        spans = [span] * len(given) if spans is None else spans
        found = condition.dtype if isinstance(condition, Node) else None
        if found is not DataType.BOOL:
            raise DmlcError(
                "the condition of '?:' must be a boolean, but "
                f"{span_text(spans[0])} is {type_name(found)}",
                spans[0],
                code="E0301",
            )
        shape = _broadcast(given, spans, span)
        dtype = unify(branches, spans[1:], span)
        if isinstance(dtype, DataType):
            adapt = self._conversions.adapt
            made = [adapt(v, dtype, s) for v, s in zip(branches, spans[1:], strict=True)]
        else:
            made = [self._conversions.weak(v, span) for v in branches]
        soft = dtype in (DataType.INDEX, DataType.FLOAT32) and all(map(takes_type, branches))
        operands = (self._conversions.weak(condition, span), *made)
        return self._nodes.add(Node(Op.SELECT, "select", operands, dtype, shape, soft=soft))


def _broadcast(given: Sequence[Value], spans: Sequence[Span], span: Span) -> Shape:
    shape: Shape = None
    first = span
    for value, place in zip(given, spans, strict=True):
        found = shape_of(value)
        if shape is None:
            shape, first = found, place
        elif found is not None:
            joined = join_shapes(shape, found)
            if joined is None:
                raise DmlcError(
                    f"{span_text(first)} has sizes {show_sizes(shape)} and {span_text(place)} has "
                    f"sizes {show_sizes(found)}: tensors combine element by element if they have "
                    "the same rank, and each size is the same or 1",
                    span,
                    code="E0402",
                )
            shape = joined
    return shape


def _refused(operation: Operation, dtype: DataType, operand: Span, span: Span) -> DmlcError:
    cure = ""
    if operation.operands is Operands.BOOL:
        cure = ": compare with a number first, as in 'x != 0'"
    elif operation.operands is Operands.INTEGER:
        cure = ": write cast(..., INT32)" if dtype.is_float else ""
    elif operation.operands is Operands.FLOAT or dtype is DataType.BOOL:
        cure = f": write cast({operand.text.strip()}, FLOAT32)" if len(operand.text) < 40 else ""
    return DmlcError(
        f"{spell(operation)} takes {operation.operands.value}, but {span_text(operand)} is "
        f"{dtype.name}{cure}",
        span,
        code="E0302",
    )
