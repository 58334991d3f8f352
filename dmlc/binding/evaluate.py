"""Evaluation of expressions for one binding; index notation is in `indexed`, calls in `calls`.

An expression of attributes, sizes, types and `present` alone evaluates to a constant; one that
reads tensors, to a node of a `NodeBuilder`. A `?:`, `&&` or `||` with a known condition is decided
here, and the operand that it does not choose is not evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping

from dmlc.binding.builder import NodeBuilder
from dmlc.binding.calls import Calls
from dmlc.binding.facts import Binding
from dmlc.binding.guards import list_conditions
from dmlc.binding.indexed import IndexNotation
from dmlc.binding.nodes import Node, Value, Weak, is_constant, takes_type
from dmlc.binding.scope import TOP, Evaluating, Expansion, Scope, zip_arrays
from dmlc.binding.untaken import TypeFinder
from dmlc.binding.values import (
    Constant,
    EnumValue,
    Undecided,
    describe,
    span_text,
    whole_number,
)
from dmlc.language import syntax
from dmlc.language.builtins import ARRAY_FACTS, FACTS, FUNCTIONS, Builtin
from dmlc.language.walk import Step, Visit, walk
from dmlc.scalars import OPERATIONS, DataType, find_data_type
from dmlc.source import DmlcError, Span, unknown_name

_BINARY = {o.symbol: o.name for o in OPERATIONS.values() if o.symbol is not None and o.arity == 2}
_UNARY = {o.symbol: o.name for o in OPERATIONS.values() if o.symbol is not None and o.arity == 1}


class Evaluator(Evaluating):
    """Evaluates expressions, a method for each construct."""

    def __init__(
        self,
        binding: Binding,
        builder: NodeBuilder | None = None,
        functions: Mapping[str, Builtin] = FUNCTIONS,
    ) -> None:
        super().__init__(binding, builder)
        self.index = IndexNotation(self)
        self.calls = Calls(self, self.index, functions)

    def evaluate(
        self, expression: syntax.Expression, expected: Value | None = None, scope: Scope = TOP
    ) -> Value:
        """The value of an expression. `expected` is a value of the enum it is a member of, where
        it is one; `scope` has the index variables it may use. Raises `DmlcError`."""
        return walk(self.visit(expression, scope, expected))

    def constant(
        self, expression: syntax.Expression, expected: Value | None = None, scope: Scope = TOP
    ) -> Constant:
        """The value of an expression that must be known at compile time."""
        value = self.evaluate(expression, expected, scope)
        if is_constant(value):
            return value
        raise DmlcError(
            f"{span_text(expression.span)} depends on the elements of a tensor, where a "
            "compile-time value is needed",
            expression.span,
            code="E0305",
        )

    def visit(
        self,
        expression: syntax.Expression,
        scope: Scope,
        expected: Value | None = None,
        *,
        decided: bool = True,
    ) -> Visit[Value]:
        match expression:
            case syntax.Literal() | syntax.String():
                return expression.value
            case syntax.Array():
                return self._array(expression, scope, expected, decided)
            case syntax.Reference():
                return self._reference(expression, scope, expected)
            case syntax.Member():
                return self._member(expression, scope)
            case syntax.Index():
                return self.index.read(expression, scope)
            case syntax.Call():
                return self.calls.call(expression, scope, decided)
            case syntax.Reduce():
                return self.index.reduce(expression, scope)
            case syntax.Unary():
                return self._unary(expression, scope)
            case syntax.Binary():
                return self._binary(expression, scope, decided)
            case syntax.Ternary():
                return self._ternary(expression, scope, expected, decided)
            case syntax.Pack():
                message = "'...' stands in an index, an array or a fold, and this is neither"
                raise DmlcError(message, expression.span, code="E0406")

    def _array(
        self, expression: syntax.Array, scope: Scope, expected: Value | None, decided: bool
    ) -> Step[Value]:
        items: list[Value] = []
        for item in expression.items:
            if isinstance(item, syntax.Pack):
                several: list[Value] = yield self.index.expand(item, scope, decided)
                items += several
                continue
            value: Value = yield self.visit(item, scope.outside(), expected, decided=decided)
            if isinstance(value, Node) and value.shape is not None:
                raise DmlcError(
                    "an array holds single values, and this is a tensor", item.span, code="E0303"
                )
            items.append(value)
        return scope.entry(tuple(items), expression.span)

    # Names --------------------------------------------------------------------------------

    def _reference(
        self, expression: syntax.Reference, scope: Scope, expected: Value | None
    ) -> Visit[Value]:
        name = expression.name
        if isinstance(expected, EnumValue):
            member = expected.enum.find(name)
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
            return self.tensor(name, expression.span)
        if name in self.binding.attributes:
            return scope.entry(self.binding.attributes[name], expression.span)
        if name in self.binding.opened:
            return self.opened(name, expression.span)
        if self.binding.operator.attribute(name) is not None:
            raise DmlcError(())  # Its value was refused already.
        if self.binding.names_dimension(name):
            return scope.entry(self.binding.dimension(name, expression.span), expression.span)
        if isinstance(expected, EnumValue):
            what, known = f"member of {expected.enum.name}", expected.enum.members
            raise DmlcError(unknown_name(what, name, known, expression.span))
        if self.names_tensors(expression):
            if scope.expansion is not None:
                return self.tensor(self._entry(expression, scope.expansion), expression.span)
            message = f"'{name}' is an array of tensors: pick one, as in '{name}[0]', or join them"
            raise DmlcError(message, expression.span, code="E0411")
        known = [*self.locals, *self.binding.definitions, *self.binding.attributes]
        raise DmlcError(unknown_name("name", name, known, expression.span))

    def _is_open(self, expression: syntax.Expression, scope: Scope) -> bool:
        """Whether an expression is a bare name, which only the other operand of a comparison
        resolves."""
        return isinstance(expression, syntax.Reference) and not (
            expression.name in scope.parameters
            or expression.name in self.locals
            or expression.name in self.binding.definitions
            or self.binding.operator.attribute(expression.name) is not None
        )

    def _member(self, expression: syntax.Member, scope: Scope) -> Step[Value]:
        base = expression.base
        name = base.span.text
        if isinstance(base, syntax.Index):
            name: str = yield self.index.entry_name(base, scope)
        elif scope.expansion is not None and self._is_of_entry(expression):
            return self._fact(self._entry(base, scope.expansion), expression)
        return scope.entry(self._fact(name, expression), expression.span)

    def _is_of_entry(self, expression: syntax.Member) -> bool:
        """Whether a fact is about each tensor of an array that '...' expands."""
        return self.names_tensors(expression.base) and expression.member.text not in ARRAY_FACTS

    def _entry(self, array: syntax.Expression, expansion: Expansion) -> str:
        """Tensor that the name of an array denotes while '...' expands it."""
        members = tuple(m.name for m in self.binding.members(array.span.text))
        name = expansion.take(members, array.span)
        return str(name)

    def _fact(self, name: str, expression: syntax.Member) -> Value:
        fact, span = expression.member.text, expression.span
        if fact == "Count" and self.names_tensors(expression.base):
            return len(self.binding.members(name))
        if name not in self.binding.definitions:
            raise DmlcError(f"only tensors have facts such as '.{fact}'", span, code="E0208")
        return FACTS[fact].evaluate(self.binding, name, span)

    # Operators ----------------------------------------------------------------------------

    def _unary(self, expression: syntax.Unary, scope: Scope) -> Step[Value]:
        operand, name = expression.operand, _UNARY[expression.operator]
        value: Value = yield self.visit(operand, scope)
        return self.combine(name, [value], [operand.span], expression.span)

    def _binary(self, expression: syntax.Binary, scope: Scope, decided: bool) -> Step[Value]:
        join = self._logical if expression.operator in ("&&", "||") else self._compute
        value: Value = yield join(expression, scope)
        compares = OPERATIONS[_BINARY[expression.operator]].gives_bool
        return self.settle(value) if decided and compares else value

    def _logical(self, expression: syntax.Binary, scope: Scope) -> Step[Value]:
        """Value of `&&` or `||`, which may be `Undecided`."""
        symbol, second = expression.operator, expression.right
        settles = symbol == "||"
        left: Value = yield self.visit(expression.left, scope, decided=False)
        if isinstance(left, bool) and left == settles:
            return left
        right: Value
        if isinstance(left, Undecided) and self.foretell(left) == settles:
            # The other side is not looked at once this one is settled; but where it is the same
            # for all sizes, nothing is taken of this one.
            attempt: Value | None = None
            if self.builder is None:
                attempt = yield self._attempt(second, scope)
            if attempt is None:
                return self.settle(left)
            right = attempt
        else:
            inner = self._under(scope, left, not settles)
            right = yield self.visit(second, inner, decided=False)
        return self.join(symbol, left, right, expression.span, expression.left.span)

    def _attempt(
        self, expression: syntax.Expression, scope: Scope, expected: Value | None = None
    ) -> Step[Value | None]:
        """Value of an operand that may turn out to be unused; None if its value rests on
        assumptions about open sizes."""
        checks = self.binding.checks
        before = dict(checks)
        value: Value | None
        try:
            value = yield self.visit(expression, scope, expected, decided=False)
        except DmlcError:
            value = None
        if checks == before:
            return value
        checks.clear()
        checks.update(before)
        return None

    def _compute(self, expression: syntax.Binary, scope: Scope) -> Step[Value]:
        symbol = expression.operator
        if symbol in ("==", "!=") and self._compares_shapes(expression):
            return symbol == "=="
        left: Value
        right: Value
        if symbol in ("==", "!=") and self._is_open(expression.left, scope):
            right = yield self.visit(expression.right, scope)
            left = yield self.visit(expression.left, scope, right)
        else:
            left = yield self.visit(expression.left, scope)
            compared = left if symbol in ("==", "!=") else None
            right = yield self.visit(expression.right, scope, compared)
        spans = [expression.left.span, expression.right.span]
        return self.combine(_BINARY[symbol], [left, right], spans, expression.span)

    def _compares_shapes(self, expression: syntax.Binary) -> bool:
        """Whether an expression compares the shapes of two tensors in a binding without sizes,
        where all shapes are equal."""
        if not self.binding.symbolic:
            return False
        sides = (expression.left, expression.right)
        facts = {
            side.member.text
            for side in sides
            if isinstance(side, syntax.Member) and side.base.span.text in self.binding.tensors
        }
        members = all(isinstance(side, syntax.Member) for side in sides)
        return members and facts in ({"Sizes"}, {"DimensionCount"})

    def _ternary(
        self, expression: syntax.Ternary, scope: Scope, expected: Value | None, decided: bool
    ) -> Step[Value]:
        found: Value = yield self.visit(expression.condition, scope, decided=False)
        checks = self.binding.checks
        before = dict(checks)
        condition = self.settle(found) if isinstance(found, Undecided) else found
        if isinstance(condition, bool):
            chosen, other = expression.then, expression.otherwise
            if not condition:
                chosen, other = other, chosen
            settled = dict(checks)
            value: Value = yield self.visit(chosen, scope, expected, decided=False)
            if self.builder is None and checks == settled != before:
                another: Value | None = yield self._attempt(other, scope, expected)
                if another is not None and _is_same(value, another):
                    checks.clear()
                    checks.update(before)
            value = self.settle(value) if decided else value
            return self._adopt_type(value, other, scope, chosen.span)
        if not isinstance(condition, Node | tuple):
            raise DmlcError(
                "the condition of '?:' must be a boolean, but "
                f"{span_text(expression.condition.span)} is {describe(condition)}",
                expression.condition.span,
                code="E0301",
            )
        then: Value = yield self.visit(expression.then, self._under(scope, condition, True))
        otherwise: Value
        otherwise = yield self.visit(expression.otherwise, self._under(scope, condition, False))
        return self._select(condition, then, otherwise, expression)

    def _adopt_type(
        self, value: Value, other: syntax.Expression, scope: Scope, span: Span
    ) -> Value:
        """Chosen number, in the type of the operand that is not chosen."""
        number = value if isinstance(value, Node) else whole_number(value)
        builder = self.builder
        if builder is None or number is None or not takes_type(value):
            return value
        if isinstance(number, Node) and number.dtype is Weak.INTEGER:
            return value  # Where an extreme stands takes the type that it is assigned to.
        finder = TypeFinder(self.binding, self.functions, self.locals)
        types = finder.find(other, scope.parameters)
        if len(types) == 1:
            try:
                return builder.conversions.adapt(value, next(iter(types)), span)
            except DmlcError:
                return value  # A fraction stays one where the other side has whole numbers.
        every_float = bool(types) and all(t.is_float for t in types)
        return float(number) if every_float and isinstance(number, int) else value

    def _under(self, scope: Scope, condition: Value, holds: bool) -> Scope:
        """Scope under one more condition, or its negation."""
        if self.builder is None:
            return scope
        return scope.under(list_conditions(self.builder.positions, condition, holds))

    def _select(
        self, condition: Value, then: Value, otherwise: Value, expression: syntax.Ternary
    ) -> Value:
        """Choice at run time, or of each entry of an array."""
        if isinstance(condition, Undecided):
            if _is_same(then, otherwise):
                return then
            condition = self.settle(condition)
        if isinstance(condition, bool):
            return then if condition else otherwise
        given = [condition, then, otherwise]
        if isinstance(condition, tuple) or (
            self.are_places(given) and any(isinstance(v, tuple) for v in given)
        ):
            each = zip_arrays(given, expression.span)
            return tuple(self._select(c, t, o, expression) for c, t, o in each)
        spans = (expression.condition.span, expression.then.span, expression.otherwise.span)
        return self.built().operations.select(given, expression.span, spans)


def _is_same(one: Value, other: Value) -> bool:
    """Whether two values are equal for certain, and of the same type."""
    return is_constant(one) and is_constant(other) and repr(one) == repr(other)
