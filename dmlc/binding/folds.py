"""Reductions: of whole tensors along axes, and over index variables in index notation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlc import ir
from dmlc.binding.conversions import Conversions, count_most, position_type, type_name
from dmlc.binding.nodes import Node, Nodes, Op, Value, ValueType, Weak
from dmlc.binding.operations import Operations
from dmlc.binding.positions import Positions
from dmlc.language.builtins import REDUCTIONS
from dmlc.scalars import OPERATIONS, DataType, is_positional
from dmlc.sizes import multiply
from dmlc.source import DmlcError, InternalError, Span

_INDEX = DataType.INDEX
_WHOLE = (_INDEX, Weak.INTEGER)


class Folds:
    """Builder of reduction nodes."""

    def __init__(
        self,
        nodes: Nodes,
        conversions: Conversions,
        positions: Positions,
        operations: Operations,
    ) -> None:
        self._nodes = nodes
        self._conversions = conversions
        self._positions = positions
        self._operations = operations

    def fold(self, combiner: str, value: Node, axes: Sequence[int], span: Span) -> Node:
        """Reduction over some axes of a value with a shape; the axes stay, with size 1.

        `combiner` is one of the language's: `mean` divides the sum by the number of values in their
        own type; `argmin` and `argmax` give a weak integer. A reduction over an axis of one element
        is that element.
        """
        shape = value.shape
        if shape is None:
            raise InternalError("a fold of a value without a shape")
        _check_folded(combiner, value, span)
        folded = tuple(a for a in axes if shape[a] != 1)
        positional = is_positional(combiner)
        if not folded:
            return self._nodes.literal(0, Weak.INTEGER, shape) if positional else value
        if combiner == "mean":
            total = self.fold("sum", value, folded, span)
            count = self._count([shape[a] for a in folded], span)
            return self._operations.apply("div", [total, count], span)
        rest = tuple(1 if a in folded else e for a, e in enumerate(shape))
        dtype: ValueType = value.dtype
        if positional:
            if isinstance(dtype, Weak):
                settled = DataType.INT32 if dtype is Weak.INTEGER else DataType.FLOAT32
                value = self._conversions.adapt(value, settled, span)
            dtype = Weak.INTEGER
        return self._nodes.add(Node(Op.FOLD, combiner, (value,), dtype, rest, folded))

    def reduce(
        self,
        combiner: str,
        variables: Sequence[Node],
        value: Value,
        condition: Value,
        span: Span,
    ) -> Value:
        """Reduction over index variables, restricted to points where `condition` holds.

        A sum omits the points where a factor that depends on indices alone is 0. Whole numbers
        without a type are summed as INT32, or INT64 if the sum may exceed it, and fractions as
        FLOAT32; the result takes the type of the other operand.
        """
        adapt = self._conversions.adapt
        element = self._conversions.weak(value, span)
        if element.shape is not None:
            raise DmlcError(
                f"a whole tensor stands where '{combiner}[...]' reduces one element: index it",
                span,
                code="E0303",
            )
        _check_folded(combiner, element, span)
        if combiner == "mean":
            return self._average(variables, element, condition, span)
        guards = [] if condition is True else [self._conversions.weak(condition, span)]
        if combiner == "sum" and not element.placed:
            guards += [g for g in self._list_nonzero(element) if g not in guards]
        bound = tuple(v.free[0] for v in variables)
        dtype = element.dtype
        soft, outcome = element.takes_type, dtype
        if is_positional(combiner):
            settled = DataType.FLOAT32 if dtype is Weak.FLOAT else dtype
            if dtype in _WHOLE:
                settled = self._find_integer_type("max", element, 1, span)
            if isinstance(settled, DataType):
                element = adapt(element, settled, span)
            outcome, soft = Weak.INTEGER, False
        elif soft and dtype is not DataType.BOOL:
            outcome, soft = DataType.FLOAT32, dtype not in _WHOLE
            if not soft:
                points = count_most(v.extent for v in bound)
                outcome = self._find_integer_type(combiner, element, points, span)
            element = adapt(element, outcome, span)
        operands = (element, self._positions.all(guards)) if guards else (element,)
        made = self._nodes.add(Node(Op.REDUCE, combiner, operands, outcome, bound=bound, soft=soft))
        if outcome in (DataType.INT32, DataType.INT64) and dtype in _WHOLE:
            return self._conversions.convert(made, _INDEX, _INDEX.name, soft=True)
        return made

    def settle(self, value: Node, span: Span) -> Node:
        """Number in a storable data type; one that has a type keeps it."""
        to = value.dtype
        if to is Weak.FLOAT:
            to = DataType.FLOAT32
        elif to is Weak.INTEGER and is_positional(value.payload):
            to = position_type(value)
        elif to in _WHOLE:
            to = self._find_integer_type("max", value, 1, span)
        return self._conversions.adapt(value, to, span)

    def _average(
        self, variables: Sequence[Node], element: Node, condition: Value, span: Span
    ) -> Value:
        """Sum, divided by the number of points where the condition holds."""
        if element.dtype in _WHOLE:
            element = self._conversions.adapt(element, DataType.FLOAT32, span)
        total = self.reduce("sum", variables, element, condition, span)
        count: Value = self._count([v.free[0].extent for v in variables], span)
        if condition is not True:
            count = self.reduce("sum", variables, 1, condition, span)
        return self._operations.apply("div", [total, count], span)

    def _count(self, extents: Sequence[ir.Extent], span: Span) -> Value:
        """Number of points of some axes."""
        count = multiply(extents)
        if isinstance(count, int):
            return float(count)
        return self._conversions.adapt(self._nodes.size(count), DataType.FLOAT32, span)

    def _find_integer_type(self, combiner: str, element: Node, points: int, span: Span) -> DataType:
        """Integer type that holds every result of a reduction of whole numbers."""
        low, high = self._positions.interval(self._conversions.adapt(element, _INDEX, span))
        largest = max(abs(low), abs(high))
        if combiner == "sum":
            largest *= max(points, 1)
        elif combiner == "product" and largest > 1:
            largest = math.inf
        return DataType.INT32 if largest < 2**31 else DataType.INT64

    def _list_nonzero(self, value: Node) -> list[Node]:
        """Conditions under which every factor that depends on indices alone is nonzero."""
        found: dict[Node, None] = {}
        pending = [value]
        while pending:
            node = pending.pop()
            if node.form is Op.APPLY and node.payload == "mul":
                pending += reversed(node.operands)
            elif (node.form is Op.APPLY and node.payload in ("div", "neg")) or (
                node.form is Op.CAST
                and node.dtype is not DataType.BOOL
                and _widens(node.operands[0].dtype, node.dtype)
            ):
                pending.append(node.operands[0])
            elif node.placed and node.free:
                found.update(dict.fromkeys(self._nonzero(node)))
        return list(found)

    def _nonzero(self, node: Node) -> list[Node]:
        """Conditions under which a number is nonzero."""
        if node.form is Op.SELECT:
            condition, then, otherwise = node.operands
            if _is_number(otherwise, 0):
                return [condition] if _is_number(then) else [condition, *self._nonzero(then)]
            if _is_number(then, 0) and _is_number(otherwise):
                return [self._positions.apply("not", condition)]
        if not isinstance(node.dtype, DataType):
            return []
        zero = self._nodes.literal(0.0 if node.dtype.is_float else 0, node.dtype)
        return [self._nodes.apply(OPERATIONS["ne"], [node, zero], DataType.BOOL, None)]


def _check_folded(combiner: str, value: Node, span: Span) -> None:
    found = value.dtype
    if REDUCTIONS[combiner].booleans:
        if found is not DataType.BOOL:
            raise DmlcError(
                f"'{combiner}' folds booleans, but this is {type_name(found)}: compare it "
                "first, as in 'x != 0'",
                span,
                code="E0301",
            )
    elif found is DataType.BOOL:
        raise DmlcError(
            f"'{combiner}' folds numbers, but this is BOOL: write cast(..., INT32)",
            span,
            code="E0302",
        )
    elif combiner == "mean" and isinstance(found, DataType) and not _divides(found):
        raise DmlcError(
            f"'mean' folds floating-point numbers, but this is {found.name}: write "
            "cast(..., FLOAT32)",
            span,
            code="E0302",
        )


def _divides(dtype: DataType) -> bool:
    """Whether the average of values of a type has that type, or adapts to one."""
    return dtype.is_float or dtype is _INDEX


def _is_number(node: Node, value: int | None = None) -> bool:
    """Whether a node is that constant; without `value`, whether it is a nonzero constant."""
    if node.form is not Op.CONSTANT:
        return False
    return node.payload != 0 if value is None else node.payload == value


def _widens(source: object, target: object) -> bool:
    """Whether a conversion maps nonzero values to nonzero values."""
    return source is _INDEX or (source is DataType.FLOAT32 and target is DataType.FLOAT64)
