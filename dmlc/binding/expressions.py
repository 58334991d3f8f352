"""Evaluates expressions for one binding: all but calls, which are in `evaluate`.

What depends on attributes, sizes, types and `present` alone comes to a compile-time value; what
reads tensors comes to an element of a `Builder`. A `?:`, `&&` or `||` whose condition is known
decides here, and what it does not choose is not looked at.

Each construct has one method. What this version gives no meaning to has one as well, and refuses
with a sentence that names it.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping

from dmlc.binding.builder import Builder, span_text
from dmlc.binding.facts import Binding
from dmlc.binding.nodes import Element, Value
from dmlc.binding.values import Constant, EnumValue, apply_constant, describe
from dmlc.ir import packed_strides
from dmlc.language import syntax
from dmlc.language.definitions import FunctionDefinition
from dmlc.language.vocabulary import FACTS, find_member
from dmlc.language.walk import Step, walk
from dmlc.scalars import OPERATIONS, DataType, find_data_type
from dmlc.source import (
    Diagnostic,
    DmlcError,
    InternalError,
    Note,
    Span,
    UnsupportedError,
    unknown_name,
)

_BINARY = {o.symbol: o for o in OPERATIONS.values() if o.symbol is not None and o.arity == 2}
_UNARY = {o.symbol: o for o in OPERATIONS.values() if o.symbol is not None and o.arity == 1}


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """What names mean inside a function: its parameters, and where it was called."""

    parameters: Mapping[str, Value]
    call: Span | None
    outer: Scope | None

    def notes(self) -> tuple[Note, ...]:
        """Where the code at hand was inlined from, innermost first."""
        chain: list[Note] = []
        scope: Scope | None = self
        while scope is not None and len(chain) < 4:
            if scope.call is not None:
                chain.append(Note("called from here", scope.call))
            scope = scope.outer
        return tuple(chain)


TOP = Scope({}, None, None)


class Expressions(abc.ABC):
    """Expressions of one binding. Without a `builder`, elements of tensors may not be read."""

    def __init__(self, binding: Binding, builder: Builder | None = None) -> None:
        self.binding = binding
        self.builder = builder
        self.locals: dict[str, Value | DmlcError] = {}
        """What each name assigned so far stands for; an error where its definition failed."""
        self.functions: dict[str, FunctionDefinition] = dict(binding.operator.functions)
        self._scope = TOP

    def evaluate(self, expression: syntax.Expression, expected: Value | None = None) -> Value:
        """The value of an expression. `expected` is a value of the enum it is a member of, where
        it is one. Raises `DmlcError`."""
        self._scope = TOP
        try:
            return walk(self._visit(expression, TOP, expected))
        except DmlcError as error:
            notes = self._scope.notes()
            if not notes:
                raise
            raise type(error)(
                [Diagnostic(d.message, d.span, d.notes + notes) for d in error.diagnostics]
            ) from None

    def constant(self, expression: syntax.Expression, expected: Value | None = None) -> Constant:
        """The value of an expression that must be known at compile time."""
        value = self.evaluate(expression, expected)
        if isinstance(value, Element):
            raise DmlcError(
                f"{span_text(expression.span)} depends on the elements of a tensor, where a "
                "compile-time value is needed",
                expression.span,
            )
        return value

    def _visit(
        self, expression: syntax.Expression, scope: Scope, expected: Value | None = None
    ) -> Step[Value]:
        """`expected` is a value this one is compared with: it says which enum a name is of."""
        match expression:
            case syntax.Literal() | syntax.String():
                return self._same(expression.value)
            case syntax.Array():
                return self._array(expression, scope, expected)
            case syntax.Reference():
                return self._reference(expression, scope, expected)
            case syntax.Member():
                return self._member(expression)
            case syntax.Index():
                return self._index(expression, scope)
            case syntax.Call():
                return self._call(expression, scope)
            case syntax.Reduce():
                name = expression.combiner.text
                raise self._unsupported(f"reduction '{name}[...](...)'", expression.span)
            case syntax.Unary():
                return self._unary(expression, scope)
            case syntax.Binary():
                return self._binary(expression, scope)
            case syntax.Ternary():
                return self._ternary(expression, scope, expected)
            case syntax.Pack():
                raise self._unsupported("pack '...'", expression.span)

    def _unsupported(self, what: str, span: Span) -> UnsupportedError:
        return UnsupportedError(
            f"{what} cannot be bound yet: this version binds formulas on whole tensors", span
        )

    def _same(self, value: Value) -> Step[Value]:
        yield from ()
        return value

    def _array(self, expression: syntax.Array, scope: Scope, expected: Value | None) -> Step[Value]:
        items: list[Constant] = []
        for item in expression.items:
            value: Value = yield self._visit(item, scope, expected)
            if isinstance(value, Element):
                raise DmlcError("an array holds compile-time values only", item.span)
            items.append(value)
        return tuple(items)

    # Names --------------------------------------------------------------------------------

    def _reference(
        self, expression: syntax.Reference, scope: Scope, expected: Value | None
    ) -> Step[Value]:
        yield from ()
        name = expression.name
        self._scope = scope
        if isinstance(expected, EnumValue):
            member = find_member(expected.enum, name)
            if member is not None:
                return EnumValue(expected.enum, member)
        if isinstance(expected, DataType):
            found = find_data_type(name)
            if found is not None:
                return found
        if name in scope.parameters:
            return scope.parameters[name]
        if name in self.locals:
            value = self.locals[name]
            if isinstance(value, DmlcError):
                raise value
            return value
        if name in self.binding.definitions:
            return self._tensor(name, expression.span)
        if name in self.binding.attributes:
            return self.binding.attributes[name]
        if self.binding.operator.attribute(name) is not None:
            raise DmlcError(())  # Its value was refused already.
        if isinstance(expected, EnumValue):
            raise DmlcError(
                unknown_name(
                    f"member of {expected.enum.name}", name, expected.enum.members, expression.span
                )
            )
        known = [*self.locals, *self.binding.definitions, *self.binding.attributes]
        raise DmlcError(unknown_name("name", name, known, expression.span))

    def _tensor(self, name: str, span: Span) -> Element:
        if self.builder is None:
            raise DmlcError(
                f"the elements of '{name}' are not known at compile time: use a fact about it, "
                f"such as {name}.Sizes",
                span,
            )
        definition = self.binding.definitions[name]
        if definition.array:
            raise self._unsupported(f"array of tensors '{name}'", span)
        extents = self.binding.extents(name, span)
        return self.builder.load(name, self.binding.dtype(name, span), extents)

    def _is_open(self, expression: syntax.Expression, scope: Scope) -> bool:
        """Whether this is a bare name that only the other side of a comparison can explain."""
        return isinstance(expression, syntax.Reference) and not (
            expression.name in scope.parameters
            or expression.name in self.locals
            or expression.name in self.binding.definitions
            or self.binding.operator.attribute(expression.name) is not None
        )

    def _member(self, expression: syntax.Member) -> Step[Value]:
        yield from ()
        base, fact, span = expression.base, expression.member.text, expression.span
        if not isinstance(base, syntax.Reference) or base.name not in self.binding.definitions:
            raise DmlcError(f"only tensors have facts such as '.{fact}'", span)
        match fact:
            case "DataType":
                return self.binding.dtype(base.name, span)
            case "Sizes":
                return self.binding.sizes(base.name, span)
            case "DimensionCount":
                return len(self.binding.sizes(base.name, span))
            case "ElementCount":
                count = 1
                for size in self.binding.sizes(base.name, span):
                    count *= size
                return count
            case "Strides":
                sizes = self.binding.sizes(base.name, span)
                return self.binding.tensor(base.name, span).strides or packed_strides(sizes)
            case _:
                raise DmlcError(unknown_name("fact", fact, FACTS, expression.member.span))

    def _index(self, expression: syntax.Index, scope: Scope) -> Step[Value]:
        base = expression.base
        if isinstance(base, syntax.Reference) and self._names_tensor(base.name, scope):
            raise self._unsupported(f"index notation {span_text(expression.span)}", expression.span)
        if any(isinstance(i, syntax.Pack) for i in expression.indices):
            raise self._unsupported("pack '...'", expression.span)
        array: Value = yield self._visit(base, scope)
        if isinstance(array, Element):
            raise self._unsupported(f"index notation {span_text(expression.span)}", expression.span)
        self._scope = scope
        for place in expression.indices:
            position: Value = yield self._visit(place, scope)
            if not isinstance(array, tuple):
                raise DmlcError(
                    f"{span_text(base.span)} is {describe(array)} and cannot be indexed",
                    expression.span,
                )
            if isinstance(position, bool) or not isinstance(position, int):
                raise DmlcError("an array's index must be a compile-time integer", place.span)
            number = position
            if not 0 <= number < len(array):
                raise DmlcError(
                    f"index {number} is out of bounds: {span_text(base.span)} has "
                    f"{len(array)} values",
                    place.span,
                )
            array = array[number]
        return array

    def _names_tensor(self, name: str, scope: Scope) -> bool:
        if name in scope.parameters:
            return isinstance(scope.parameters[name], Element)
        if name in self.locals:
            return isinstance(self.locals[name], Element)
        return name in self.binding.definitions

    # Operators ----------------------------------------------------------------------------

    def _unary(self, expression: syntax.Unary, scope: Scope) -> Step[Value]:
        value: Value = yield self._visit(expression.operand, scope)
        return self._apply(
            _UNARY[expression.operator].name, [value], [expression.operand.span], expression.span,
            scope,
        )  # fmt: skip

    def _binary(self, expression: syntax.Binary, scope: Scope) -> Step[Value]:
        symbol = expression.operator
        left: Value
        right: Value
        if symbol in ("==", "!=") and self._is_open(expression.left, scope):
            right = yield self._visit(expression.right, scope)
            left = yield self._visit(expression.left, scope, right)
        else:
            left = yield self._visit(expression.left, scope)
            if symbol in ("&&", "||") and isinstance(left, bool) and left == (symbol == "||"):
                return left
            compared = left if symbol in ("==", "!=") else None
            right = yield self._visit(expression.right, scope, compared)
        if symbol in ("&&", "||"):
            # A known `true &&` or `false ||` leaves the other side, which has to be a boolean.
            for side, other in ((left, right), (right, left)):
                if isinstance(side, bool) and isinstance(other, Element):
                    self._expect_boolean(other, symbol, expression.span)
                    return other if side == (symbol == "&&") else side
        spans = [expression.left.span, expression.right.span]
        return self._apply(_BINARY[symbol].name, [left, right], spans, expression.span, scope)

    def _expect_boolean(self, value: Element, symbol: str, span: Span) -> None:
        if self._built().dtype(value) is not DataType.BOOL:
            raise DmlcError(f"'{symbol}' takes booleans, but one side is a number", span)

    def _built(self) -> Builder:
        if self.builder is None:
            raise InternalError("an element without a builder")
        return self.builder

    def _ternary(
        self, expression: syntax.Ternary, scope: Scope, expected: Value | None
    ) -> Step[Value]:
        condition: Value = yield self._visit(expression.condition, scope)
        if not isinstance(condition, Element):
            self._scope = scope
            if not isinstance(condition, bool):
                raise DmlcError(
                    "the condition of '?:' must be a boolean, but "
                    f"{span_text(expression.condition.span)} is {describe(condition)}",
                    expression.condition.span,
                )
            chosen = expression.then if condition else expression.otherwise
            value: Value = yield self._visit(chosen, scope, expected)
            return value
        then: Value = yield self._visit(expression.then, scope)
        otherwise: Value = yield self._visit(expression.otherwise, scope)
        self._scope = scope
        spans = (expression.condition.span, expression.then.span, expression.otherwise.span)
        return self._built().select((condition, then, otherwise), spans, expression.span)

    def _apply(
        self, name: str, values: list[Value], spans: list[Span], span: Span, scope: Scope
    ) -> Value:
        self._scope = scope
        operation = OPERATIONS[name]
        constants = [v for v in values if not isinstance(v, Element)]
        if len(constants) == len(values):
            return apply_constant(operation, constants, span)
        return self._built().apply(operation, values, spans, span)

    @abc.abstractmethod
    def _call(self, expression: syntax.Call, scope: Scope) -> Step[Value]:
        """`evaluate` has it."""
