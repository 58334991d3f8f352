"""Index expressions: whole-number nodes, and their ranges. A number that is not provably whole is
refused. `bounds` proves that reads are in bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from dmlc import ir
from dmlc.binding.conversions import Conversions
from dmlc.binding.emission import emit
from dmlc.binding.nodes import Node, Nodes, Op, Value, Weak, join_free
from dmlc.binding.values import (
    TO_WHOLE,
    OpenSize,
    describe,
    is_number,
    show,
    span_text,
    whole_number,
)
from dmlc.index.intervals import UNKNOWN, Interval, is_within, meet
from dmlc.ir.below import is_inside_open
from dmlc.ir.index import find_reach
from dmlc.ir.ranges import Ranges
from dmlc.scalars import OPERATIONS, DataType
from dmlc.sizes import LARGEST, Measure, Size, measure, pack_strides
from dmlc.source import DmlcError, Span

_INDEX = DataType.INDEX
_WHOLE_ON_WHOLE = ("add", "sub", "mul", "min", "max", "neg", "abs", "sign", "mod")
"""Operations that map whole numbers to whole numbers."""


class Positions:
    """Builder of index expressions, with their range analysis."""

    def __init__(self, nodes: Nodes, conversions: Conversions) -> None:
        self._nodes = nodes
        self._conversions = conversions
        self.ranges: dict[str, Interval] = {}
        """Range of the whole numbers that a stage holds, by the stage's name."""
        self._probes: dict[tuple[Node, ...], tuple[int, ir.Stage | None]] = {}
        """Results of `probe`, each with the count of held values then."""

    def of(self, value: Value, span: Span) -> Node:
        """Value as an index. Raises `DmlcError` for one that is not a whole number."""
        if isinstance(value, OpenSize) and value.over == 1:
            return self.size(value.size)
        if not isinstance(value, Node):
            whole = whole_number(value)
            if whole is not None:
                return self._conversions.adapt(whole, _INDEX, span)
            if isinstance(value, tuple):
                what = f"an array of {len(value)} values"
            else:
                what = show(value) if is_number(value) else describe(value)
            raise DmlcError(
                f"a position is one whole number, but this is {what}", span, code="E0408"
            )
        if value.shape is not None:
            raise DmlcError(
                "a position is one whole number, but this is a whole tensor: index it",
                span,
                code="E0408",
            )
        if value.dtype is DataType.BOOL:
            raise DmlcError(
                "a position is a whole number, but this is a boolean", span, code="E0408"
            )
        if value.dtype in (_INDEX, Weak.INTEGER):
            return self._conversions.adapt(value, _INDEX, span)
        if not _is_whole(value):
            raise DmlcError(
                f"a position is a whole number, but {span_text(span)} may be a fraction: write "
                "floor(...), ceil(...), round(...) or trunc(...)",
                span,
                code="E0408",
            )
        if isinstance(value.dtype, Weak):
            value = self._conversions.adapt(value, DataType.FLOAT32, span)
        if value.form is Op.CONSTANT:
            return self.number(int(value.payload))
        if value.form is Op.CAST and value.operands[0].dtype is _INDEX:
            position = value.operands[0]
            if isinstance(value.dtype, DataType) and _holds(value.dtype, self.interval(position)):
                return position  # It was a number of some type for a while, and is the same.
        if value.form is Op.APPLY and value.payload in ("min", "max"):
            # Minima and maxima stay operations on indices, so that reads are proved with them.
            return self.apply(str(value.payload), *(self.of(o, span) for o in value.operands))
        return self._conversions.convert(value, _INDEX, _INDEX.name, soft=True)

    def number(self, value: int) -> Node:
        return self._nodes.literal(value, _INDEX)

    def apply(self, name: str, *operands: Node) -> Node:
        """Scalar operation on indices."""
        operation = OPERATIONS[name]
        dtype = operation.result_type(_INDEX)
        return self._nodes.apply(operation, operands, dtype, None, soft=True)

    def all(self, conditions: Sequence[Node]) -> Node:
        """Conjunction of conditions."""
        joined = conditions[0]
        for condition in conditions[1:]:
            joined = self.apply("and", joined, condition)
        return joined

    def _choose(self, condition: Node, then: Node, otherwise: Node) -> Node:
        operands = (condition, then, otherwise)
        return self._nodes.add(Node(Op.SELECT, "select", operands, _INDEX, soft=True))

    # Division -----------------------------------------------------------------------------

    def divide(self, number: Node, divisor: Node, rounding: str) -> Node:
        """Quotient of indices, rounded by `floor`, `ceil` or `trunc`."""
        if divisor.form is Op.SIZE and self.is_inside_open(number, str(divisor.payload)):
            return self.number(0)
        if rounding == "trunc":
            return self.apply("div", number, divisor)
        low, high = self.interval(number)
        least, most = self.interval(divisor)
        if most < 0:
            return self.divide(self.apply("neg", number), self.apply("neg", divisor), rounding)
        if least <= 0:
            return self._divide_signed(number, divisor, rounding)
        # Division of whole numbers goes to zero: numbers on the other side are moved first.
        rest = self.apply("sub", divisor, self.number(1))
        zero = self.number(0)
        if rounding == "floor":
            moved = self.apply("sub", number, rest)
            if low < 0:
                number = self._choose(self.apply("lt", number, zero), moved, number)
        elif high > 0:
            moved = self.apply("add", number, rest)
            positive = self.apply("gt", number, zero)
            number = moved if low >= 0 else self._choose(positive, moved, number)
        return self.apply("div", number, divisor)

    def _divide_signed(self, number: Node, divisor: Node, rounding: str) -> Node:
        """The same for a divisor of either sign."""
        quotient = self.apply("div", number, divisor)
        rest = self.apply("mod", number, divisor)
        zero, one = self.number(0), self.number(1)
        below = self.apply("lt", rest, zero)
        other_side = self.apply("ne", below, self.apply("lt", divisor, zero))
        if rounding == "ceil":
            other_side = self.apply("not", other_side)
        moves = self.apply("and", self.apply("ne", rest, zero), other_side)
        step = self.apply("sub" if rounding == "floor" else "add", quotient, one)
        return self._choose(moves, step, quotient)

    # Reach --------------------------------------------------------------------------------

    def interval(self, value: Node) -> Interval:
        """Interval that contains an INDEX value, for all values of its variables."""
        stage = self.probe(value)
        return UNKNOWN if stage is None else self._find_interval(stage)

    def _find_interval(self, stage: ir.Stage) -> Interval:
        """Interval of the value that a probe computes."""
        return Ranges.of(stage, self.ranges)[stage.body.result]

    def reach(self, value: Node, size: ir.Extent) -> Interval:
        """Smallest and largest value of an INDEX value that depends on indices alone; `interval` if
        that is within `size` already. Along an axis of open size, a value that is not proved in
        bounds reaches beyond all sizes."""
        if isinstance(size, str):
            is_inside = self.is_inside_open(value, size)
            return (0, LARGEST - 1) if is_inside else (self.interval(value)[0], math.inf)
        stage = self.probe(value)
        if stage is None:
            return UNKNOWN
        found = self._find_interval(stage)
        if is_within(found, size):
            return found
        return meet(found, find_reach(stage, stage.body.result, size))

    def is_inside_open(
        self,
        value: Node,
        size: str,
        conditions: Sequence[Node] = (),
        checks: Iterable[str] = (),
    ) -> bool:
        """Whether an INDEX value is in bounds of an axis of open size, wherever some conditions on
        indices and sizes hold."""
        stage = self.probe(value, conditions)
        if stage is None:
            return False
        ranges = Ranges.of(stage, self.ranges)
        return is_inside_open(stage, stage.body.result, size, ranges, checks)

    def probe(self, value: Node, conditions: Sequence[Node] = ()) -> ir.Stage | None:
        """Stage that computes a value at every point of its free variables, under those conditions
        that can be computed; None if the value needs other stages first."""
        key, held = (value, *conditions), self._nodes.count_held()
        known = self._probes.get(key)
        if known is None or known[0] != held:
            known = self._probes[key] = held, self._probe(value, conditions)
        return known[1]

    def _probe(self, value: Node, conditions: Sequence[Node]) -> ir.Stage | None:
        if self._nodes.list_folds(value):
            return None
        ready = [c for c in conditions if not self._nodes.list_folds(c)]
        roots = (value, self.all(ready)) if ready else (value,)
        variables = join_free(roots)
        domain = tuple(v.extent for v in variables)
        body = emit(self._nodes.loaded, roots, domain, variables).body()
        return ir.Stage("position", DataType.INT64, domain, body)

    def keep_inside(
        self, position: Node, size: ir.Extent, reach: Interval
    ) -> tuple[Node, list[Node]]:
        """Index of this `reach` clamped to the bounds of an axis, and the conditions under which
        clamping changes nothing."""
        inside: list[Node] = []
        kept = position
        if reach[0] < 0:
            inside.append(self.apply("ge", position, self.number(0)))
            kept = self.apply("max", kept, self.number(0))
        if reach[1] >= (size if isinstance(size, int) else LARGEST):
            inside.append(self.apply("lt", position, self.size(measure(size))))
            kept = self.apply("min", kept, self.last_place(size))
        return kept, inside

    def last_place(self, size: ir.Extent) -> Node:
        """Last index along an axis."""
        if isinstance(size, int):
            return self.number(size - 1)
        return self.apply("sub", self.size(measure(size)), self.number(1))

    # Numbers of places --------------------------------------------------------------------

    def unflatten(self, number: Value, sizes: Sequence[Measure], span: Span) -> Value:
        """Index along each axis for a row-major linear index."""
        whole = self.of(number, span)
        strides = pack_strides(sizes)
        made: list[Node] = []
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
            rest = whole if stride == 1 else self.apply("div", whole, self.size(stride))
            if axis > 0:
                least = max(size, 1) if isinstance(size, int) else size
                rest = self.apply("mod", rest, self.size(least))
            made.append(rest)
        return tuple(made)

    def size(self, size: Measure) -> Node:
        """Size as an index."""
        return self._nodes.size(size) if isinstance(size, Size) else self.number(size)


def _is_whole(value: Node) -> bool:
    """Whether a number is whole by construction."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node.dtype, DataType) and not node.dtype.is_float:
            continue
        match node.form:
            case Op.CONSTANT:
                if whole_number(node.payload) is None:
                    return False
            case Op.APPLY if node.payload in TO_WHOLE:
                continue
            case Op.APPLY if node.payload in _WHOLE_ON_WHOLE:
                pending += node.operands
            case Op.SELECT:
                pending += node.operands[1:]
            case Op.CAST:
                pending += node.operands
            case _:
                return False
    return True


def _holds(dtype: DataType, reach: Interval) -> bool:
    """Whether an integer type holds every number of an interval."""
    if not dtype.is_integer:
        return False
    limits = np.iinfo(dtype.dtype)
    return limits.min <= reach[0] and reach[1] <= limits.max
