"""Context of an expression during evaluation, arrays and their entries, and the evaluator's base
class.

`Evaluating` is the part of the evaluator that index notation and calls, which have modules of their
own, depend on: its state, its visits, and operations on values.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.binding.builder import NodeBuilder
from dmlc.binding.facts import Binding, ir_name
from dmlc.binding.nodes import Node, Value, has_gradient, shape_of
from dmlc.binding.recurrences import Recurrent
from dmlc.binding.values import (
    COMPARED,
    OpenSize,
    Scalar,
    Undecided,
    apply_constant,
    apply_open,
    cast_constant,
    measure_all,
    refuse_open,
    span_text,
)
from dmlc.language import syntax
from dmlc.language.builtins import Given
from dmlc.language.walk import Step, Visit, walk
from dmlc.scalars import OPERATIONS, DataType
from dmlc.sizes import has_quotients, write_condition
from dmlc.source import DmlcError, InternalError, Note, Span, counted

MOST_NOTES = 4
"""Largest number of enclosing calls in the notes of an error."""


def zip_arrays(values: Sequence[Value], span: Span) -> list[tuple[Value, ...]]:
    """Entries of arrays side by side; a value that is no array is repeated. Raises `DmlcError` for
    arrays of different lengths."""
    lengths = {len(v) for v in values if isinstance(v, tuple)}
    if len(lengths) > 1:
        shown = " and ".join(str(n) for n in sorted(lengths))
        raise DmlcError(
            f"arrays of {shown} values cannot be combined element by element", span, code="E0402"
        )
    return [
        tuple(v[k] if isinstance(v, tuple) else v for v in values) for k in range(lengths.pop())
    ]


class EmptyPack(Exception):
    """Raised for an expansion `...` without entries."""


@dataclasses.dataclass(slots=True)
class Expansion:
    """Expansion `e...`, evaluated for one axis after the other."""

    span: Span
    axis: int = 0
    length: int | None = None
    """Number of entries; None before the first array."""
    first: Span | None = None
    """Span of the first array."""

    def take(self, array: tuple[Value, ...], span: Span) -> Value:
        """Entry of an array at the current axis. Raises `DmlcError` for arrays of different
        lengths, and `EmptyPack` if there is no entry."""
        if self.length is None or self.first is None:
            self.length, self.first = len(array), span
        elif self.length != len(array):
            raise DmlcError(
                f"{span_text(self.first)} has {counted(self.length, 'entry', 'entries')} and "
                f"{span_text(span)} has {len(array)}: what one '...' expands has one length",
                self.span,
                [Note(f"{len(array)} here", span)],
                code="E0402",
            )
        if not array:
            raise EmptyPack
        return array[self.axis]


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """Meaning of names inside a function, a reduction or an expansion: parameters and index
    variables, and the span of the call."""

    parameters: Mapping[str, Value]
    call: Span | None = None
    outer: Scope | None = None
    depth: int = 0
    """Number of index variables bound around the expression, in functions and their callers
    together."""
    expansion: Expansion | None = None
    """Expansion `...` around the expression, if any: arrays denote their current entry."""
    guards: tuple[Node, ...] = ()
    """Conditions in the `where` of the reduction around the expression; points outside them are
    left out."""
    conditions: tuple[Node, ...] = ()
    """Conditions of the choices around the expression: they hold where its value is used."""

    def outside(self) -> Scope:
        """Scope outside the expansion: arrays denote themselves."""
        return self if self.expansion is None else dataclasses.replace(self, expansion=None)

    def under(self, conditions: tuple[Node, ...]) -> Scope:
        """Scope under further conditions."""
        if not conditions:
            return self
        return dataclasses.replace(self, conditions=(*self.conditions, *conditions))

    def entry(self, value: Value, span: Span) -> Value:
        """Entry of an array at the current axis, inside an expansion; any other value unchanged."""
        if self.expansion is None or not isinstance(value, tuple):
            return value
        return self.expansion.take(value, span)

    def notes(self) -> tuple[Note, ...]:
        """Notes of the calls that the expression was inlined from, the innermost first."""
        chain: list[Note] = []
        scope: Scope | None = self
        while scope is not None and len(chain) < MOST_NOTES:
            if scope.call is not None:
                chain.append(Note("called from here", scope.call))
            scope = scope.outer
        return tuple(chain)


TOP = Scope({})

_Maker: TypeAlias = Callable[[list[Node]], Value]


class Evaluating(abc.ABC):
    """Evaluator of one binding's expressions. Without a `builder`, tensors' elements may not be
    read."""

    def __init__(self, binding: Binding, builder: NodeBuilder | None = None) -> None:
        self.binding = binding
        self.builder = builder
        self.locals: dict[str, Value | DmlcError] = {}
        """Value of each name assigned so far; an error if its definition failed."""
        self.recurrent: dict[str, Recurrent] = {}
        """Names that the open recurrence defines."""
        self.functions: dict[str, syntax.ScalarFunction] = dict(binding.operator.functions)
        self.materialize: Callable[[Node, Span], Node] | None = None
        """Stores a computation on whole tensors in a stage, so that its elements can be read."""
        self.place: Callable[[tuple[ir.Extent, ...], _Maker, Span], Node] | None = None
        """Makes a tensor of some sizes from a function of its indices."""
        self.differentiate: Callable[[Node, Node, Given], Node] | None = None
        """Gradient of a tensor with respect to another, for a call of `gradient`."""
        self.requires = False
        """Whether a constraint is being evaluated."""
        self.targets: list[tuple[ir.Extent, ...]] | None = None
        """Sizes of the outputs that the current expression gives, if it gives several."""

    @abc.abstractmethod
    def visit(
        self,
        expression: syntax.Expression,
        scope: Scope,
        expected: Value | None = None,
        *,
        decided: bool = True,
    ) -> Visit[Value]:
        """Value of an expression. `expected` is the other operand of a comparison; its enum
        resolves a bare name. The value may be `Undecided` unless `decided`."""

    def built(self) -> NodeBuilder:
        if self.builder is None:
            raise InternalError("an element without a builder")
        return self.builder

    def needs_sizes(self, what: str, span: Span) -> DmlcError:
        message = f"{what} {span_text(span)} needs the sizes of its tensors".lstrip()
        return DmlcError(
            message, span, ["give a description with sizes for each input"], code="E0805"
        )

    def tensor(self, name: str, span: Span) -> Node:
        if self.builder is None:
            raise DmlcError(
                f"the elements of '{name}' are not known at compile time: use a fact about it, "
                f"such as {name}.Sizes",
                span,
                code="E0305",
            )
        extents = self.binding.extents(name, span)
        return self.builder.nodes.load(ir_name(name), self.binding.dtype(name, span), extents)

    def opened(self, name: str, span: Span) -> Node:
        """Value of an open attribute: the element of an input."""
        if self.builder is None:
            raise DmlcError(
                f"attribute '{name}' is left open until kernels run, and this needs its value",
                span,
                [f"give it: --attr {name}=..., or attributes={{'{name}': ...}} in Python"],
                code="E0809",
            )
        return self.builder.nodes.element(name, DataType.FLOAT32)

    def names_tensors(self, expression: syntax.Expression) -> bool:
        """Whether an expression is the name of an array of tensors."""
        return isinstance(expression, syntax.Reference) and any(
            t.array and t.name == expression.name
            for level in self.binding.operator.levels
            for t in level.tensors
        )

    # Operations on values -----------------------------------------------------------------

    def combine(
        self, name: str, values: Sequence[Value], spans: Sequence[Span], span: Span
    ) -> Value:
        """Scalar operation; arrays go entry by entry. A comparison may be `Undecided`."""
        constants = [v for v in values if not isinstance(v, Node | tuple)]
        if len(constants) == len(values):
            if not any(isinstance(v, OpenSize) for v in constants):
                return apply_constant(OPERATIONS[name], constants, span)
            known = apply_open(OPERATIONS[name], constants)
            if known is not None:
                return known
            if name in COMPARED and (self.builder is None or self._assume(name, constants)):
                return Undecided(name, tuple(constants), span)
            if self.builder is None:
                raise refuse_open(constants, span)
        if any(isinstance(v, tuple) for v in values) and self.are_places(values):
            each = zip_arrays(values, span)
            return tuple(self.combine(name, v, spans, span) for v in each)
        return self.built().operations.apply(name, values, span, spans)

    def settle(self, value: Value) -> Value:
        """Value with undecided comparisons replaced by the assumptions of `_assume`, which each run
        of the kernels checks. Raises `DmlcError` if there is no assumption."""
        if isinstance(value, tuple):
            return tuple(self.settle(v) for v in value)
        if not isinstance(value, Undecided):
            return value
        checks: dict[str, None] = {}
        found = walk(self._weigh(value, checks))
        if isinstance(found, Undecided):
            raise refuse_open(found.given, found.span)
        self.binding.checks.update(checks)
        return found

    def foretell(self, value: Undecided) -> bool | None:
        """Result of `settle` without assumptions; None if it would raise."""
        found = walk(self._weigh(value, {}))
        return found if isinstance(found, bool) else None

    def _weigh(self, value: Scalar, checks: dict[str, None]) -> Step[bool | Undecided]:
        """Truth of a value under the assumptions that it adds to `checks`; or the first comparison
        without one."""
        if not isinstance(value, Undecided):
            return value is True
        if value.name in COMPARED:
            found = self._assume(value.name, value.given)
            if found is None:
                return value
            holds, check = found
            checks[check] = None
            return holds
        for part in value.given:
            weighed: bool | Undecided = yield self._weigh(part, checks)
            if weighed is not (value.name == "and"):
                return weighed
        return value.name == "and"

    def _assume(self, name: str, given: Sequence[Scalar]) -> tuple[bool, str] | None:
        """Assumed truth of a comparison with open sizes, and the condition in C under which it is
        true; None without an assumption. An open size is assumed to differ from the numbers it is
        compared with, and a `require` to hold."""
        found = measure_all(given)
        if found is None:
            return None
        left, right = found[0]
        if name in ("eq", "ne"):
            if name == "eq" and self.requires and has_quotients(left - right):
                # A `require` on a quotient of a size demands that the remainder is 0.
                return True, write_condition(left, "==", right)
            if not isinstance(left, int) and not isinstance(right, int):
                return None
            return name == "ne", write_condition(left, "!=", right)
        if not self.requires:
            return None
        return True, write_condition(left, COMPARED[name], right)

    def are_places(self, values: Sequence[Value]) -> bool:
        """Whether no value is a whole tensor."""
        return all(
            shape_of(v) is None
            for value in values
            for v in (value if isinstance(value, tuple) else (value,))
        )

    def join(self, symbol: str, left: Value, right: Value, span: Span, first: Span) -> Value:
        """Value of `&&` or `||`. A known `true &&` or `false ||` is the other operand, which must
        be a boolean. A known operand that decides the result makes an undecided one irrelevant."""
        if isinstance(left, tuple) or isinstance(right, tuple):
            pairs = zip_arrays([left, right], span)
            return tuple(self.join(symbol, a, b, span, first) for a, b in pairs)
        name = "and" if symbol == "&&" else "or"
        if isinstance(left, Undecided) and isinstance(right, Undecided):
            sides = [v.given if v.name == name else (v,) for v in (left, right)]
            return Undecided(name, (*sides[0], *sides[1]), span)
        for side, other in ((left, right), (right, left)):
            if isinstance(side, bool) and isinstance(other, Undecided):
                return other if side == (symbol == "&&") else side
        left, right = self.settle(left), self.settle(right)
        for side, other in ((left, right), (right, left)):
            if isinstance(side, bool) and isinstance(other, Node):
                if other.dtype is not DataType.BOOL:
                    message = f"'{symbol}' takes booleans, but one side is a number"
                    raise DmlcError(message, span, code="E0301")
                return other if side == (symbol == "&&") else side
        return self.combine(name, [left, right], [first, span], span)

    def stop_gradient(self, value: Value, span: Span) -> Value:
        """Value with derivative 0; an array entry by entry. A value without a gradient is
        unchanged."""
        if isinstance(value, tuple):
            return tuple(self.stop_gradient(entry, span) for entry in value)
        if not has_gradient(value):
            return value
        return self.built().operations.apply("stop_gradient", [value], span)

    def give_gradient(
        self, value: Value, by: Node, slope: Value, name: str, gradient: syntax.FunctionGradient
    ) -> Value:
        """Value of a function called `name`, with derivative `slope` with respect to `by`. Raises
        `DmlcError` if it is no float."""
        span, held = gradient.span, value.dtype if isinstance(value, Node) else None
        if isinstance(held, DataType) and not held.is_float:
            raise DmlcError(
                f"'{name}' gives {held.name}, and only floating-point numbers have gradients",
                span,
                [f"convert what it gives: cast(..., {by.dtype.name})"],
                code="E0707",
            )
        own = by if held is None or not isinstance(held, DataType) else self.convert(by, held, span)
        spans = [span, span, gradient.value.span]
        return self.built().operations.apply("with_gradient", [value, own, slope], span, spans)

    def convert(self, value: Value, to: DataType, span: Span) -> Value:
        """Result of `cast`."""
        if isinstance(value, Node):
            return self.built().conversions.cast(value, to, span)
        if isinstance(value, tuple):
            return tuple(self.convert(v, to, span) for v in value)
        made = cast_constant(value, to, span)
        if self.builder is None:
            return made
        return self.builder.conversions.adapt(made, to.compute, span)
