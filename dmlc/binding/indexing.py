"""Index notation as nodes: index variables, reads at positions, reductions over variables.

Positions are INDEX values, whole numbers; what is not known to be one is refused. How far a
position reaches is worked out here for `else`, for `guards` and for divisions; that every read
stays inside is `bounds`' to prove.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dmlc import ir
from dmlc.binding.builder import span_text
from dmlc.binding.folding import Folding
from dmlc.binding.nodes import Element, Form, Node, Pack, Value, Variable, Weak
from dmlc.binding.values import describe, is_number, show, whole_number
from dmlc.ir.index import find_reach
from dmlc.ir.ranges import UNKNOWN, Interval, Ranges
from dmlc.scalars import OPERATIONS, DataType
from dmlc.source import DmlcError, Note, Span

_INDEX = DataType.INDEX
_WHOLE_ON_WHOLE = ("add", "sub", "mul", "min", "max", "neg", "abs", "sign", "mod")
"""Operations that give whole numbers where their operands are."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a read was written, for messages: the read, each of its positions (one that expands
    gives several), and where the function that has it was called."""

    span: Span
    positions: tuple[Span, ...]
    notes: tuple[Note, ...]
    reach: tuple[Interval, ...] = ()
    """How far each position reaches where the conditions around it hold."""


class Indexing(Folding):
    """Every node there is: of whole tensors, and of places that index variables name."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, Place] = {}
        """Where each read was written first, by its node."""
        self.ranges: dict[str, Interval] = {}
        """What is known of the whole numbers that stages hold, by the stage's name."""

    # Positions ----------------------------------------------------------------------------

    def bind(self, level: int, extent: int) -> Element:
        """The index variable of a level and an extent."""
        variable = Variable(level, extent)
        if variable not in self.variables:
            self.variables.append(variable)
        number = self.variables.index(variable)
        return self._add(Node(Form.INDEX, number, (), _INDEX, None, soft=True))

    def variable(self, value: Element) -> int:
        """The number of the index variable that a value is."""
        return int(self.nodes[value.node].payload)

    def position(self, value: Value, span: Span) -> Element:
        """A value as a position. Raises `DmlcError` for what is no whole number."""
        if not isinstance(value, Element):
            whole = whole_number(value)
            if whole is not None:
                return self.adapt(whole, _INDEX, span)
            if isinstance(value, Pack):
                what = f"an array of {len(value.items)} values"
            else:
                what = show(value) if is_number(value) else describe(value)
            raise DmlcError(f"a position is one whole number, but this is {what}", span)
        if self.shape(value) is not None:
            raise DmlcError(
                "a position is one whole number, but this is a whole tensor: index it", span
            )
        found = self.dtype(value)
        if found is DataType.BOOL:
            raise DmlcError("a position is a whole number, but this is a boolean", span)
        if found in (_INDEX, Weak.INTEGER):
            return self.adapt(value, _INDEX, span)
        if not self._is_whole(value):
            raise DmlcError(
                f"a position is a whole number, but {span_text(span)} may be a fraction: write "
                "floor(...), ceil(...), round(...) or trunc(...)",
                span,
            )
        if isinstance(found, Weak):
            value = self.adapt(value, DataType.FLOAT32, span)
        node = self.node(value)
        if node.form is Form.CONSTANT:
            return self._number(int(node.payload))
        if node.form is Form.CAST and self.nodes[node.operands[0]].dtype is _INDEX:
            position = Element(node.operands[0])
            if isinstance(node.dtype, DataType) and _holds(node.dtype, self.interval(position)):
                return position  # It was a number of some type for a while, and is the same.
        if node.form is Form.APPLY and node.payload in ("min", "max"):
            # Bounds are kept as bounds of positions, which what is read is held to.
            given = [self.position(Element(o), span) for o in node.operands]
            return self._whole(str(node.payload), *given)
        return self._cast(value, _INDEX, soft=True)

    def _is_whole(self, value: Element) -> bool:
        """Whether a number is whole by the way it is computed."""
        pending = [value.node]
        while pending:
            node = self.nodes[pending.pop()]
            if isinstance(node.dtype, DataType) and not node.dtype.is_float:
                continue
            match node.form:
                case Form.CONSTANT:
                    if whole_number(node.payload) is None:
                        return False
                case Form.APPLY if node.payload in ("floor", "ceil", "round", "trunc"):
                    continue
                case Form.APPLY if node.payload in _WHOLE_ON_WHOLE:
                    pending += node.operands
                case Form.SELECT:
                    pending += node.operands[1:]
                case Form.CAST:
                    pending += node.operands
                case _:
                    return False
        return True

    # Division -----------------------------------------------------------------------------

    def _round_quotient(self, name: str, value: Element) -> Element | None:
        quotient = self._quotients.get(value.node)
        if quotient is None or name == "round":
            return None
        return self.divide_whole(*quotient, name)

    def divide_whole(self, number: Element, divisor: Element, rounding: str) -> Element:
        """A quotient of positions as a position; `rounding` is `floor`, `ceil` or `trunc`."""
        if rounding == "trunc":
            return self._whole("div", number, divisor)
        low, high = self.interval(number)
        least, most = self.interval(divisor)
        if most < 0:
            negated = self._whole("neg", number), self._whole("neg", divisor)
            return self.divide_whole(*negated, rounding)
        if least <= 0:
            return self._divide_signed(number, divisor, rounding)
        # Division of whole numbers goes to zero: numbers on the other side are moved first.
        rest = self._whole("sub", divisor, self._number(1))
        zero = self._number(0)
        if rounding == "floor":
            moved = self._whole("sub", number, rest)
            if low < 0:
                number = self._choose(self._whole("lt", number, zero), moved, number)
        elif high > 0:
            moved = self._whole("add", number, rest)
            positive = self._whole("gt", number, zero)
            number = moved if low >= 0 else self._choose(positive, moved, number)
        return self._whole("div", number, divisor)

    def _divide_signed(self, number: Element, divisor: Element, rounding: str) -> Element:
        """The same for a divisor of either sign."""
        quotient = self._whole("div", number, divisor)
        rest = self._whole("mod", number, divisor)
        zero, one = self._number(0), self._number(1)
        below = self._whole("lt", rest, zero)
        other_side = self._whole("ne", below, self._whole("lt", divisor, zero))
        if rounding == "ceil":
            other_side = self._whole("not", other_side)
        moves = self._whole("and", self._whole("ne", rest, zero), other_side)
        step = self._whole("sub" if rounding == "floor" else "add", quotient, one)
        return self._choose(moves, step, quotient)

    def _number(self, value: int) -> Element:
        return self._literal(value, _INDEX)

    def _whole(self, name: str, *operands: Element) -> Element:
        operation = OPERATIONS[name]
        dtype = operation.result_type(_INDEX)
        return self._make_apply(operation, operands, dtype, None, soft=True)

    def negate(self, condition: Element) -> Element:
        """The condition that holds where another does not."""
        return self._whole("not", condition)

    def _choose(self, condition: Element, then: Element, otherwise: Element) -> Element:
        numbers = (condition.node, then.node, otherwise.node)
        return self._add(Node(Form.SELECT, "select", numbers, _INDEX, None, soft=True))

    # Reach --------------------------------------------------------------------------------

    def interval(self, value: Element) -> Interval:
        """An interval that an INDEX value lies in, wherever its variables stand."""
        stage = self.probe(value)
        if stage is None:
            return UNKNOWN
        found = Ranges(stage, self.ranges)
        for instruction in stage.body.instructions:
            found.add(instruction)
        return found[stage.body.result]

    def reach(self, value: Element, size: int) -> Interval:
        """The smallest and largest value of an INDEX value that depends on positions alone, or
        what `interval` says if that lies below `size` and above 0."""
        found = self.interval(value)
        stage = self.probe(value)
        if stage is None or (found[0] >= 0 and found[1] < size):
            return found
        exact = find_reach(stage, stage.body.result, size)
        return max(found[0], exact[0]), min(found[1], exact[1])

    def probe(self, value: Element, conditions: Sequence[Element] = ()) -> ir.Stage | None:
        """A stage that computes a value at every point of the variables it depends on, under those
        conditions that can be computed; None where the value needs other stages first."""
        if self.list_folds(value):
            return None
        ready = [c for c in conditions if not self.list_folds(c)]
        roots = [value] if not ready else [value, self._join(ready)]
        free = {v: None for root in roots for v in self.node(root).free}
        variables = sorted(free, key=self._variable_order)
        domain = tuple(self.variables[v].extent for v in variables)
        body = self.emit_values(roots, domain, variables).body()
        return ir.Stage("position", DataType.INT64, domain, body)

    # Reads --------------------------------------------------------------------------------

    def read(
        self, tensor: str, dtype: DataType, positions: Sequence[Element], place: Place
    ) -> Element:
        """The element of a tensor at a position along each axis."""
        numbers = tuple(p.node for p in positions)
        made = self._add(Node(Form.READ, tensor, numbers, dtype.compute, None))
        self.places.setdefault(made.node, place)
        return made

    def read_or(
        self,
        tensor: str,
        dtype: DataType,
        sizes: Sequence[int],
        positions: Sequence[Element],
        otherwise: Value,
        place: Place,
        span: Span,
    ) -> Value:
        """The same where the positions lie inside a tensor of these sizes, and `otherwise`
        elsewhere. It has the tensor's type, whichever of the two is all there is."""
        if 0 in sizes:
            return self._take_type(otherwise, dtype.compute, span)
        inside: list[Element] = []
        kept: list[Element] = []
        for position, size in zip(positions, sizes, strict=True):
            zero, last = self._number(0), self._number(size - 1)
            low, high = self.reach(position, size)
            if high < 0 or low >= size:
                return self._take_type(otherwise, dtype.compute, span)
            bounded = position
            if low < 0:
                inside.append(self._whole("ge", position, zero))
                bounded = self._whole("max", bounded, zero)
            if high >= size:
                inside.append(self._whole("lt", position, self._number(size)))
                bounded = self._whole("min", bounded, last)
            kept.append(bounded)
        value = self.read(tensor, dtype, kept, place)
        if not inside:
            return value
        condition = self._join(inside)
        return self.select((condition, value, otherwise), (span, span, span), span)

    def _take_type(self, value: Value, to: DataType, span: Span) -> Element:
        """A value in the type of a tensor, as if it were an element of it."""
        adapted = self.adapt(value, to, span)
        return self._add(dataclasses.replace(self.node(adapted), soft=False))

    def keep_inside(self, position: Element, size: int) -> Element:
        """A position, or the nearest place of an axis of that size where it lies outside."""
        low, high = self.interval(position)
        if low < 0:
            position = self._whole("max", position, self._number(0))
        return position if high < size else self._whole("min", position, self._number(size - 1))

    def _join(self, conditions: Sequence[Element]) -> Element:
        joined = conditions[0]
        for condition in conditions[1:]:
            joined = self._whole("and", joined, condition)
        return joined

    # Reductions ---------------------------------------------------------------------------

    def reduce(
        self,
        combiner: str,
        variables: Sequence[Element],
        value: Value,
        condition: Value,
        span: Span,
    ) -> Value:
        """A reduction over index variables, of the points where `condition` holds.

        A sum leaves out the points where a factor that depends on positions alone is 0. Whole
        numbers that no tensor gave a type are summed as INT32, or INT64 where they may grow
        beyond it, and fractions as FLOAT32; the outcome takes the type of what it meets.
        """
        element = self.weak(value, span)
        if self.shape(element) is not None:
            raise DmlcError(
                f"a whole tensor stands where '{combiner}[...]' reduces one element: index it", span
            )
        self._check_folded(combiner, element, span)
        if combiner == "mean":
            return self._average(variables, element, condition, span)
        guards = [] if condition is True else [self.weak(condition, span)]
        if combiner == "sum" and not self.node(element).placed:
            guards += [g for g in self._list_nonzero(element) if g not in guards]
        axes = tuple(self.variable(v) for v in variables)
        dtype = self.dtype(element)
        soft, outcome = self.takes_type(element), dtype
        if combiner in ir.POSITIONAL_COMBINERS:
            settled = DataType.FLOAT32 if dtype is Weak.FLOAT else dtype
            if dtype in (_INDEX, Weak.INTEGER):
                settled = self._hold_whole("max", element, 1, span)
            if isinstance(settled, DataType):
                element = self.adapt(element, settled, span)
            outcome, soft = Weak.INTEGER, False
        elif soft and dtype is not DataType.BOOL:
            whole = dtype in (_INDEX, Weak.INTEGER)
            points = math.prod(self.variables[v].extent for v in axes)
            settled = DataType.FLOAT32
            if whole:
                settled = self._hold_whole(combiner, element, points, span)
            element, outcome = self.adapt(element, settled, span), settled
            soft = not whole
        operands = (element.node,) if not guards else (element.node, self._join(guards).node)
        made = self._add(Node(Form.REDUCE, combiner, operands, outcome, None, axes, soft))
        if outcome in (DataType.INT32, DataType.INT64) and dtype in (_INDEX, Weak.INTEGER):
            return self._cast(made, _INDEX, soft=True)
        return made

    def settle(self, value: Element, span: Span) -> Element:
        """A number in a type that a tensor may hold, if it has none of its own."""
        dtype = self.dtype(value)
        if dtype is Weak.FLOAT:
            return self.adapt(value, DataType.FLOAT32, span)
        if self.node(value).payload in ir.POSITIONAL_COMBINERS:
            small = self.points(self.node(value)) <= 2**31
            return self.adapt(value, DataType.INT32 if small else DataType.INT64, span)
        if dtype in (_INDEX, Weak.INTEGER):
            return self.adapt(value, self._hold_whole("max", value, 1, span), span)
        return value

    def _average(
        self, variables: Sequence[Element], element: Element, condition: Value, span: Span
    ) -> Value:
        """The sum, divided by the number of points where the condition holds."""
        if self.dtype(element) in (_INDEX, Weak.INTEGER):
            element = self.adapt(element, DataType.FLOAT32, span)
        total = self.reduce("sum", variables, element, condition, span)
        extents = [self.variables[self.variable(v)].extent for v in variables]
        count: Value = float(math.prod(extents))
        if condition is not True:
            count = self.reduce("sum", variables, 1, condition, span)
        return self.apply(OPERATIONS["div"], [total, count], [span, span], span)

    def _hold_whole(self, combiner: str, element: Element, points: int, span: Span) -> DataType:
        """The integer type that a reduction of whole numbers fits."""
        low, high = self.interval(self.adapt(element, _INDEX, span))
        largest = max(abs(low), abs(high))
        if combiner == "sum":
            largest *= max(points, 1)
        elif combiner == "product" and largest > 1:
            largest = math.inf
        return DataType.INT32 if largest < 2**31 else DataType.INT64

    def _list_nonzero(self, value: Element) -> list[Element]:
        """The conditions under which no factor that depends on positions alone is 0."""
        found: dict[Element, None] = {}
        pending = [value.node]
        while pending:
            number = pending.pop()
            node = self.nodes[number]
            if node.form is Form.APPLY and node.payload == "mul":
                pending += reversed(node.operands)
            elif (node.form is Form.APPLY and node.payload in ("div", "neg")) or (
                node.form is Form.CAST
                and node.dtype is not DataType.BOOL
                and _widens(self.nodes[node.operands[0]].dtype, node.dtype)
            ):
                pending.append(node.operands[0])
            elif node.placed and node.free:
                found.update(dict.fromkeys(self._nonzero(number)))
        return list(found)

    def _nonzero(self, number: int) -> list[Element]:
        """The conditions under which a number is not 0."""
        node = self.nodes[number]
        if node.form is Form.SELECT:
            condition, then, otherwise = node.operands
            if self._is_number(otherwise, 0):
                held = [Element(condition)]
                return held if self._is_number(then) else held + self._nonzero(then)
            if self._is_number(then, 0) and self._is_number(otherwise):
                return [self._whole("not", Element(condition))]
        if not isinstance(node.dtype, DataType):
            return []
        zero = self._literal(0.0 if node.dtype.is_float else 0, node.dtype)
        operation = OPERATIONS["ne"]
        return [self._make_apply(operation, [Element(number), zero], DataType.BOOL, None)]

    def _is_number(self, number: int, value: int | None = None) -> bool:
        """Whether a node is that constant; without a value, whether it is one other than 0."""
        node = self.nodes[number]
        if node.form is not Form.CONSTANT:
            return False
        return node.payload != 0 if value is None else node.payload == value

    # Arrays -------------------------------------------------------------------------------

    def flatten(self, positions: Sequence[Value], sizes: Sequence[int], span: Span) -> Value:
        """The number of a place among all of a shape's, last axis fastest."""
        strides = ir.packed_strides(tuple(sizes))
        total: Element | None = None
        for value, stride in zip(positions, strides, strict=True):
            position = self.position(value, span)
            term = position if stride == 1 else self._whole("mul", position, self._number(stride))
            total = term if total is None else self._whole("add", total, term)
        return 0 if total is None else total

    def unflatten(self, number: Value, sizes: Sequence[int], span: Span) -> Value:
        """The place along each axis of a shape that a number counts to."""
        whole = self.position(number, span)
        strides = ir.packed_strides(tuple(sizes))
        made: list[Element] = []
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
            rest = whole if stride == 1 else self._whole("div", whole, self._number(stride))
            if axis > 0:
                rest = self._whole("mod", rest, self._number(max(size, 1)))
            made.append(rest)
        return Pack(tuple(made))


def _holds(dtype: DataType, reach: Interval) -> bool:
    """Whether an integer type has every number of an interval."""
    if not dtype.is_integer:
        return False
    limits = np.iinfo(dtype.dtype)
    return limits.min <= reach[0] and reach[1] <= limits.max


def _widens(source: object, target: object) -> bool:
    """Whether a conversion keeps what is not 0 from becoming 0."""
    return source is _INDEX or (source is DataType.FLOAT32 and target is DataType.FLOAT64)
