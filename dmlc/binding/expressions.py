"""Evaluates expressions for one binding: all but index notation and calls, in `indexed` and
`evaluate`.

What depends on attributes, sizes, types and `present` alone comes to a compile-time value; what
reads tensors comes to an element of an `Indexing`. A `?:`, `&&` or `||` whose condition is known
decides here, and what it does not choose is not looked at.

Each construct has one method; those of index notation are in `indexed`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dmlc.binding.builder import span_text
from dmlc.binding.facts import Binding, ir_name
from dmlc.binding.guards import list_conditions
from dmlc.binding.indexing import Indexing
from dmlc.binding.nodes import Element, Pack, Value, Weak
from dmlc.binding.packs import Expansion, entries, find_entry, make_array, zip_arrays
from dmlc.binding.untaken import TypeFinder
from dmlc.binding.values import Constant, EnumValue, apply_constant, describe, whole_number
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
    unknown_name,
)

_BINARY = {o.symbol: o for o in OPERATIONS.values() if o.symbol is not None and o.arity == 2}
_UNARY = {o.symbol: o for o in OPERATIONS.values() if o.symbol is not None and o.arity == 1}


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """What names mean inside a function, a reduction or an expansion: parameters and index
    variables, and where a function was called."""

    parameters: Mapping[str, Value]
    call: Span | None
    outer: Scope | None
    depth: int = 0
    """The index variables bound around this place, in functions and their callers together."""
    expansion: Expansion | None = None
    """The `...` that this place is expanded by, if it is: arrays stand for one entry."""
    guards: tuple[Element, ...] = ()
    """What the `where` of the reduction around this place says: points where it does not hold are
    left out."""
    conditions: tuple[Element, ...] = ()
    """What else holds where the value at this place counts: it chooses between values."""

    def outside(self) -> Scope:
        """The same names where arrays stand for themselves."""
        return dataclasses.replace(self, expansion=None)

    def under(self, conditions: tuple[Element, ...]) -> Scope:
        """The same names where further conditions hold."""
        if not conditions:
            return self
        return dataclasses.replace(self, conditions=(*self.conditions, *conditions))

    def entry(self, value: Value, span: Span) -> Value:
        """An array's entry along the axis at hand, inside an expansion; anything else as it is."""
        if self.expansion is None or not isinstance(value, tuple | Pack):
            return value
        return self.expansion.take(value, span)

    def notes(self) -> tuple[Note, ...]:
        """Where the code at hand was inlined from, innermost first."""
        chain: list[Note] = []
        scope: Scope | None = self
        while scope is not None and len(chain) < 4:
            if scope.call is not None:
                chain.append(Note("called from here", scope.call))
            scope = scope.outer
        return tuple(chain)


_Maker: TypeAlias = Callable[[list[Element]], Value]

TOP = Scope({}, None, None)


class Expressions(abc.ABC):
    """Expressions of one binding. Without a `builder`, elements of tensors may not be read."""

    def __init__(self, binding: Binding, builder: Indexing | None = None) -> None:
        self.binding = binding
        self.builder = builder
        self.locals: dict[str, Value | DmlcError] = {}
        """What each name assigned so far stands for; an error where its definition failed."""
        self.functions: dict[str, FunctionDefinition] = dict(binding.operator.functions)
        self.materialize: Callable[[Element, Span], Element] | None = None
        """Has a tensor hold a computation on whole tensors, so that its elements can be read."""
        self.place: Callable[[tuple[int, ...], _Maker, Span], Element] | None = None
        """Makes a tensor of some sizes from what gives its element at each position."""
        self.targets: list[tuple[int, ...]] | None = None
        """The sizes of the outputs that the expression at hand is to give, if it gives several."""
        self._scope = TOP

    def evaluate(
        self, expression: syntax.Expression, expected: Value | None = None, scope: Scope = TOP
    ) -> Value:
        """The value of an expression. `expected` is a value of the enum it is a member of, where
        it is one; `scope` has the index variables it may use. Raises `DmlcError`."""
        self._scope = scope
        try:
            return walk(self._visit(expression, scope, expected))
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
        if isinstance(value, Element | Pack):
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
                return self._member(expression, scope)
            case syntax.Index():
                return self._index(expression, scope)
            case syntax.Call():
                return self._call(expression, scope)
            case syntax.Reduce():
                return self._reduce_points(expression, scope)
            case syntax.Unary():
                return self._unary(expression, scope)
            case syntax.Binary():
                return self._binary(expression, scope)
            case syntax.Ternary():
                return self._ternary(expression, scope, expected)
            case syntax.Pack():
                raise DmlcError(
                    "'...' stands in an index, an array or a fold, and this is neither",
                    expression.span,
                )

    def _same(self, value: Value) -> Step[Value]:
        yield from ()
        return value

    def _array(self, expression: syntax.Array, scope: Scope, expected: Value | None) -> Step[Value]:
        items: list[Value] = []
        for item in expression.items:
            if isinstance(item, syntax.Pack):
                several: list[Value] = yield self._expand(item, scope)
                items += several
                continue
            value: Value = yield self._visit(item, scope.outside(), expected)
            if isinstance(value, Element) and self._built().shape(value) is not None:
                raise DmlcError("an array holds single values, and this is a tensor", item.span)
            items.append(value)
        return scope.entry(make_array(items), expression.span)

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
            return scope.entry(scope.parameters[name], expression.span)
        if name in self.locals:
            value = self.locals[name]
            if isinstance(value, DmlcError):
                raise value
            return scope.entry(value, expression.span)
        if name in self.binding.definitions:
            return self._tensor(name, expression.span)
        if name in self.binding.attributes:
            return scope.entry(self.binding.attributes[name], expression.span)
        if self.binding.operator.attribute(name) is not None:
            raise DmlcError(())  # Its value was refused already.
        if self.binding.names_dimension(name):
            return scope.entry(self.binding.dimension(name, expression.span), expression.span)
        if isinstance(expected, EnumValue):
            raise DmlcError(
                unknown_name(
                    f"member of {expected.enum.name}", name, expected.enum.members, expression.span
                )
            )
        if self._names_tensors(expression):
            raise DmlcError(
                f"'{name}' is an array of tensors: pick one, as in '{name}[0]', or join them",
                expression.span,
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
        extents = self.binding.extents(name, span)
        return self.builder.load(ir_name(name), self.binding.dtype(name, span), extents)

    def _is_open(self, expression: syntax.Expression, scope: Scope) -> bool:
        """Whether this is a bare name that only the other side of a comparison can explain."""
        return isinstance(expression, syntax.Reference) and not (
            expression.name in scope.parameters
            or expression.name in self.locals
            or expression.name in self.binding.definitions
            or self.binding.operator.attribute(expression.name) is not None
        )

    def _member(self, expression: syntax.Member, scope: Scope) -> Step[Value]:
        base = expression.base
        if isinstance(base, syntax.Index) and self._names_tensors(base.base):
            name: str = yield self._entry_name(base, scope)
        elif isinstance(base, syntax.Reference):
            name = base.name
        else:
            name = ""
        self._scope = scope
        return scope.entry(self._fact(name, expression), expression.span)

    def _names_tensors(self, expression: syntax.Expression) -> bool:
        """Whether this is the name of an array of tensors."""
        arrays = (t for level in self.binding.operator.levels for t in level.tensors if t.array)
        return isinstance(expression, syntax.Reference) and any(
            t.name == expression.name for t in arrays
        )

    def _entry_name(self, expression: syntax.Index, scope: Scope) -> Step[str]:
        """The name of the tensor that `InputTensors[0]` is. Raises `DmlcError`."""
        array = expression.base.span.text
        position: Value = yield self._visit(expression.indices[0], scope)
        self._scope = scope
        count = len(self.binding.members(array))
        number = whole_number(position)
        if number is None:
            raise DmlcError(
                "which tensor of an array it is must be known at compile time", expression.span
            )
        entry = find_entry(number, count)
        if entry is None:
            raise DmlcError(
                f"'{array}' has {count} tensors, and this is number {number}", expression.span
            )
        return f"{array}[{entry}]"

    def _fact(self, name: str, expression: syntax.Member) -> Value:
        fact, span = expression.member.text, expression.span
        if fact == "Count" and self._names_tensors(expression.base):
            return len(self.binding.members(name))
        if name not in self.binding.definitions:
            raise DmlcError(f"only tensors have facts such as '.{fact}'", span)
        match fact:
            case "DataType":
                return self.binding.dtype(name, span)
            case "Sizes":
                return self.binding.sizes(name, span)
            case "DimensionCount":
                return len(self.binding.sizes(name, span))
            case "ElementCount":
                count = 1
                for size in self.binding.sizes(name, span):
                    count *= size
                return count
            case "Strides":
                sizes = self.binding.sizes(name, span)
                return self.binding.tensor(name, span).strides or packed_strides(sizes)
            case _:
                raise DmlcError(unknown_name("fact", fact, FACTS, expression.member.span))

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
            inner = scope
            if symbol in ("&&", "||"):
                inner = self._under(scope, left, symbol == "&&")
            right = yield self._visit(expression.right, inner, compared)
        if symbol in ("&&", "||"):
            self._scope = scope
            return self._join(symbol, left, right, expression.span, expression.left.span)
        spans = [expression.left.span, expression.right.span]
        return self._apply(_BINARY[symbol].name, [left, right], spans, expression.span, scope)

    def _join(self, symbol: str, left: Value, right: Value, span: Span, first: Span) -> Value:
        """`&&` or `||`: a known `true &&` or `false ||` leaves the other side, which has to be a
        boolean."""
        if isinstance(left, tuple | Pack) or isinstance(right, tuple | Pack):
            pairs = zip_arrays([left, right], span)
            return make_array([self._join(symbol, a, b, span, first) for a, b in pairs])
        for side, other in ((left, right), (right, left)):
            if isinstance(side, bool) and isinstance(other, Element):
                self._expect_boolean(other, symbol, span)
                return other if side == (symbol == "&&") else side
        return self._combine(_BINARY[symbol].name, [left, right], [first, span], span)

    def _expect_boolean(self, value: Element, symbol: str, span: Span) -> None:
        if self._built().dtype(value) is not DataType.BOOL:
            raise DmlcError(f"'{symbol}' takes booleans, but one side is a number", span)

    def _built(self) -> Indexing:
        if self.builder is None:
            raise InternalError("an element without a builder")
        return self.builder

    def _ternary(
        self, expression: syntax.Ternary, scope: Scope, expected: Value | None
    ) -> Step[Value]:
        condition: Value = yield self._visit(expression.condition, scope)
        if isinstance(condition, bool):
            chosen, other = expression.then, expression.otherwise
            if not condition:
                chosen, other = other, chosen
            value: Value = yield self._visit(chosen, scope, expected)
            return self._take_type(value, other, scope, chosen.span)
        self._scope = scope
        if not isinstance(condition, Element) and not isinstance(condition, tuple | Pack):
            raise DmlcError(
                "the condition of '?:' must be a boolean, but "
                f"{span_text(expression.condition.span)} is {describe(condition)}",
                expression.condition.span,
            )
        then: Value = yield self._visit(expression.then, self._under(scope, condition, True))
        otherwise: Value
        otherwise = yield self._visit(expression.otherwise, self._under(scope, condition, False))
        self._scope = scope
        return self._select(condition, then, otherwise, expression)

    def _take_type(self, value: Value, other: syntax.Expression, scope: Scope, span: Span) -> Value:
        """A number that is chosen, in the type that the side not chosen has."""
        number = value if isinstance(value, Element) else whole_number(value)
        builder = self.builder
        if builder is None or number is None or not builder.takes_type(value):
            return value
        if isinstance(number, Element) and builder.dtype(number) is Weak.INTEGER:
            return value  # Where an extreme stands takes the type that it is assigned to.
        finder = TypeFinder(self.binding, builder, self.functions, self.locals)
        types = finder.find(other, scope.parameters)
        if len(types) == 1:
            try:
                return builder.adapt(value, next(iter(types)), span)
            except DmlcError:
                return value  # A fraction stays one where the other side has whole numbers.
        every_float = bool(types) and all(t.is_float for t in types)
        return float(number) if every_float and isinstance(number, int) else value

    def _under(self, scope: Scope, condition: Value, holds: bool) -> Scope:
        """The scope of what counts only where a condition holds, or does not."""
        if self.builder is None:
            return scope
        return scope.under(list_conditions(self.builder, condition, holds))

    def _select(
        self, condition: Value, then: Value, otherwise: Value, expression: syntax.Ternary
    ) -> Value:
        """A choice that is made at run time, or of each entry of an array."""
        if isinstance(condition, bool):
            return then if condition else otherwise
        given = [condition, then, otherwise]
        if isinstance(condition, tuple | Pack) or (
            self._are_places(given) and any(isinstance(v, tuple | Pack) for v in given)
        ):
            each = zip_arrays(given, expression.span)
            return make_array([self._select(c, t, o, expression) for c, t, o in each])
        spans = (expression.condition.span, expression.then.span, expression.otherwise.span)
        return self._built().select((condition, then, otherwise), spans, expression.span)

    def _apply(
        self, name: str, values: list[Value], spans: list[Span], span: Span, scope: Scope
    ) -> Value:
        self._scope = scope
        return self._combine(name, values, spans, span)

    def _combine(self, name: str, values: list[Value], spans: list[Span], span: Span) -> Value:
        """A scalar operation; arrays go entry by entry."""
        operation = OPERATIONS[name]
        constants = [v for v in values if not isinstance(v, Element | Pack)]
        if len(constants) == len(values):
            return apply_constant(operation, constants, span)
        if self._are_places(values) and any(isinstance(v, tuple | Pack) for v in values):
            each = zip_arrays(values, span)
            return make_array([self._combine(name, list(v), spans, span) for v in each])
        return self._built().apply(operation, values, spans, span)

    def _are_places(self, values: Sequence[Value]) -> bool:
        """Whether no whole tensor is among some values."""
        return all(
            self._built().shape(v) is None
            for value in values
            for v in (entries(value) if isinstance(value, tuple | Pack) else (value,))
            if isinstance(v, Element)
        )

    @abc.abstractmethod
    def _index(self, expression: syntax.Index, scope: Scope) -> Step[Value]:
        """`indexed` has it, and the next two."""

    @abc.abstractmethod
    def _expand(self, pack: syntax.Pack, scope: Scope) -> Step[list[Value]]: ...

    @abc.abstractmethod
    def _reduce_points(self, expression: syntax.Reduce, scope: Scope) -> Step[Value]: ...

    @abc.abstractmethod
    def _call(self, expression: syntax.Call, scope: Scope) -> Step[Value]:
        """`evaluate` has it."""
