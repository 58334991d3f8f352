"""Checks of expressions: names, booleans and numbers, ranks, packs. Calls are in `check_calls`.

Nothing is computed, and sizes and data types are left to the binder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dmlc.language import foreign_words as foreign
from dmlc.language import syntax
from dmlc.language.builtins import (
    ARRAY_FACTS,
    FACTS,
    FUNCTIONS,
    REDUCTIONS,
    SCALAR_FUNCTIONS,
    Builtin,
)
from dmlc.language.check_calls import FOLDS, Calls
from dmlc.language.check_kinds import Checking, Expansion, TypingContext, show_ranks
from dmlc.language.kinds import (
    BOOL,
    BROKEN,
    NUMBER,
    PACK,
    STRING,
    TYPE,
    UNKNOWN,
    Form,
    SymbolTable,
    ValueKind,
    What,
    attribute_kind,
    tensor_kind,
)
from dmlc.language.limits import TOO_DEEP_CURE
from dmlc.scalars import data_type_names, find_data_type
from dmlc.source import Diagnostic, Note, Span, counted

_NUMERIC = ("+", "-", "*", "/", "%", "<", "<=", ">", ">=")


class ExpressionChecker(Checking):
    """Checker of expressions, with a method for each construct; `calls` checks the calls."""

    def __init__(
        self,
        names: SymbolTable,
        diagnostics: list[Diagnostic],
        functions: Mapping[str, Builtin] = FUNCTIONS,
    ) -> None:
        super().__init__(names, diagnostics)
        self.calls = Calls(self, functions)

    def check(
        self,
        expression: syntax.Expression,
        variables: Mapping[str, ValueKind] | None = None,
        expected: ValueKind | None = None,
    ) -> ValueKind:
        """Kind of an expression. `expected` gives the enum in which a bare name is looked up."""
        return self._start(expression, TypingContext(variables or {}), expected)

    def _start(
        self,
        expression: syntax.Expression,
        context: TypingContext,
        expected: ValueKind | None = None,
    ) -> ValueKind:
        try:
            return self.visit(expression, context, expected)
        except RecursionError:
            # The parser bounds depth for a usual stack; a caller may have used most of it up.
            message = "this expression is nested deeper than the stack that is left can hold"
            return self.fail(message, expression.span, TOO_DEEP_CURE, code="E0003")

    def check_function(self, function: syntax.ScalarFunction, recursive: bool) -> ValueKind:
        """Kind of a function's result for parameters of any kind."""
        seen: dict[str, Span] = {}
        for parameter in function.parameters:
            message = f"parameter '{parameter.text}' of '{function.name.text}' stands twice"
            self.hold_once(parameter, seen, message, "the first is here")
        return UNKNOWN if recursive else self.check_body(function.body, seen)

    def check_body(self, body: syntax.Expression, parameters: Iterable[str]) -> ValueKind:
        """Kind of a function's formula for parameters of any kind."""
        return self._start(
            body, TypingContext(dict.fromkeys(parameters, UNKNOWN), in_function=True)
        )

    def visit(
        self,
        expression: syntax.Expression,
        context: TypingContext,
        expected: ValueKind | None = None,
    ) -> ValueKind:
        match expression:
            case syntax.Literal():
                return BOOL if isinstance(expression.value, bool) else NUMBER
            case syntax.String():
                return self._string(expression, expected)
            case syntax.Array():
                return self._array(expression, context, expected)
            case syntax.Reference():
                return self._reference(expression, context, expected)
            case syntax.Member():
                return self._member(expression, context)
            case syntax.Index():
                return self._index(expression, context)
            case syntax.Call():
                return self.call(expression, context)
            case syntax.Reduce():
                return self._reduce(expression, context)
            case syntax.Unary():
                return self._unary(expression, context)
            case syntax.Binary():
                return self._binary(expression, context)
            case syntax.Ternary():
                return self._ternary(expression, context, expected)
            case syntax.Pack():
                self.expand(expression, context)
                message = "'...' stands in an index, an array or a fold, and this is neither"
                return self.fail(
                    message, expression.span, f"what folds a pack: {FOLDS}", code="E0406"
                )

    def call(self, expression: syntax.Call, context: TypingContext) -> ValueKind:
        return self.calls.check(expression, context)

    def _string(self, expression: syntax.String, expected: ValueKind | None) -> ValueKind:
        if expected is not None and expected.values is not None:
            if expression.value not in expected.values:
                self.fail_unknown("value", expression.value, expected.values, expression.span)
            return expected
        return STRING

    def _array(
        self, expression: syntax.Array, context: TypingContext, expected: ValueKind | None
    ) -> ValueKind:
        kinds: list[ValueKind] = []
        for item in expression.items:
            if isinstance(item, syntax.Pack):
                kind = self.expand(item, context)
            else:
                kind = self.visit(item, context.outside_pack(), expected)
            kinds.append(kind)
            if kind.form is Form.TENSOR:
                self.fail(
                    "an array holds single values, and this is a whole tensor",
                    item.span,
                    code="E0303",
                )
        whats = {k.what for k in kinds if not k.is_unknown}
        if len(whats) > 1:
            return self.fail(
                "the values of an array must be of one kind", expression.span, code="E0301"
            )
        what = whats.pop() if whats else What.UNKNOWN
        made = ValueKind(what, Form.ARRAY, enum=kinds[0].enum if kinds else None)
        return self.per_axis(made, context)

    # Names --------------------------------------------------------------------------------

    def _reference(
        self,
        expression: syntax.Reference,
        context: TypingContext,
        expected: ValueKind | None,
    ) -> ValueKind:
        name, span, names = expression.name, expression.span, self.names
        if expected is not None and expected.enum is not None:
            if expected.enum.find(name) is not None:
                return dataclasses.replace(expected, form=Form.SCALAR)
        elif expected is not None and expected.what is What.TYPE and find_data_type(name):
            return TYPE
        if name in context.variables:
            return self._variable(expression, context)
        if name in names.locals:
            return self.per_axis(names.locals[name], context)
        if name in names.later:
            message = f"'{name}' is used before it is defined"
            return self.fail(
                message, span, Note("it is defined here", names.later[name]), code="E0206"
            )
        if name in names.tensors:
            kind = self._tensor(expression)
            if self.names_array(expression) and context.pack is not None:
                # One of them for each that '...' expands to.
                context.pack.met = True
                kind = dataclasses.replace(kind, form=Form.TENSOR)
            return kind
        if name in names.attributes:
            return self.per_axis(attribute_kind(names.attributes[name]), context)
        if name in names.dimensions:
            return self.per_axis(names.dimensions[name], context)
        return self._unknown(expression, context, expected)

    def _variable(self, expression: syntax.Reference, context: TypingContext) -> ValueKind:
        kind = context.variables[expression.name]
        if kind.pack:
            kind = dataclasses.replace(kind, form=Form.ARRAY, pack=False)
        return kind if context.pack is None else self.per_axis(kind, context)

    def _tensor(self, expression: syntax.Reference) -> ValueKind:
        tensor = self.names.tensors[expression.name]
        if not self.names.elements:
            return self.fail(
                f"the elements of tensor '{expression.name}' are not known here",
                expression.span,
                f"use a fact about it, such as {expression.name}.Sizes",
                code="E0305",
            )
        if tensor.output:
            message = f"output '{expression.name}' is read, but no statement before defines it"
            return self.fail(message, expression.span, code="E0501")
        return tensor_kind(tensor)

    def _unknown(
        self,
        expression: syntax.Reference,
        context: TypingContext,
        expected: ValueKind | None,
    ) -> ValueKind:
        name, span, names = expression.name, expression.span, self.names
        if name in names.broken:
            return BROKEN
        if expected == BROKEN:
            return UNKNOWN
        owners = [e for e in names.enums.values() if e.find(name) is not None]
        if expected is not None and expected.is_unknown and (owners or find_data_type(name)):
            return UNKNOWN
        if expected is not None and expected.enum is not None:
            members = expected.enum.members
            return self.fail_unknown(f"member of {expected.enum.name}", name, members, span)
        if expected is not None and expected.what is What.TYPE:
            return self.fail_unknown("data type", name, data_type_names(), span, "E0203",
                                     meant=foreign.find_type(name))  # fmt: skip
        if name in names.functions or name in SCALAR_FUNCTIONS or name in REDUCTIONS:
            return self.fail(
                f"'{name}' is a function: call it, as in {name}(...)", span, code="E0208"
            )
        if owners:
            enum = owners[0].name
            message = f"'{name}' is a member of {enum}, and no {enum} is expected here"
            return self.fail(
                message, span, "compare it with an attribute of that type", code="E0208"
            )
        outer = [*names.locals, *names.tensors, *names.attributes, *names.dimensions]
        known = dict.fromkeys([*context.variables, *outer])
        cure, meant = foreign.NAMES.get(name), foreign.CONSTANTS.get(name)
        return self.fail_unknown("name", name, known, span, cure=cure, meant=meant)

    def _is_open(self, expression: syntax.Expression, context: TypingContext) -> bool:
        """Whether an expression is a bare name that only the other operand of a comparison
        resolves."""
        return isinstance(expression, syntax.Reference) and not (
            expression.name in context.variables
            or expression.name in self.names.locals
            or expression.name in self.names.tensors
            or expression.name in self.names.attributes
            or expression.name in self.names.broken
        )

    def _member(self, expression: syntax.Member, context: TypingContext) -> ValueKind:
        base, member, names = expression.base, expression.member, self.names
        if isinstance(base, syntax.Index) and self.names_array(base.base):
            self._entry(base, context)
            base, facts = base.base, list(FACTS)
        else:
            array = self.names_array(base)
            if array and context.pack is not None and member.text not in ARRAY_FACTS:
                # The fact of one of them for each that '...' expands to, whole.
                context.pack.met, context, array = True, context.outside_pack(), False
            facts = ARRAY_FACTS if array else list(FACTS)
        message = f"only tensors have facts such as '.{member.text}'"
        if not isinstance(base, syntax.Reference):
            return self.fail(message, expression.span, code="E0208")
        if base.name not in names.tensors:
            if base.name in names.broken:
                return UNKNOWN
            if any(base.name in n for n in (names.attributes, names.locals, names.dimensions)):
                return self.fail(
                    f"{message}, and '{base.name}' is none", expression.span, code="E0208"
                )
            return self.fail_unknown("tensor", base.name, names.tensors, base.span)
        if member.text not in facts:
            fact = foreign.FACTS.get(member.text)
            meant = fact if fact in facts else None
            return self.fail_unknown("fact", member.text, facts, member.span, meant=meant)
        fact = FACTS.get(member.text)
        return NUMBER if fact is None else self.per_axis(fact.gives, context)

    def _entry(self, expression: syntax.Index, context: TypingContext) -> ValueKind:
        """`InputTensors[0]`: one tensor of an array of tensors."""
        base = expression.base
        if not isinstance(base, syntax.Reference):
            return UNKNOWN
        if len(expression.indices) != 1 or isinstance(expression.indices[0], syntax.Pack):
            return self.fail("an array of tensors takes one number", expression.span, code="E0411")
        if expression.otherwise is not None:
            self.fail("'else' belongs to a read of one tensor", expression.span, code="E0410")
        self._visit_index(expression.indices[0], context)
        tensor = self.names.tensors[base.name]
        return dataclasses.replace(tensor_kind(tensor), form=Form.TENSOR)

    # Indexing and packs -------------------------------------------------------------------

    def _index(self, expression: syntax.Index, context: TypingContext) -> ValueKind:
        base = expression.base
        if self.names_array(base):
            return self._entry(expression, context)
        recurrent = self._find_recurrent(base, context)
        kind = self.visit(base, context.outside_pack()) if recurrent is None else recurrent
        array = kind.form is Form.ARRAY
        indices = [self._visit_index(index, context, array) for index in expression.indices]
        otherwise = None
        if expression.otherwise is not None:
            otherwise = self.visit(expression.otherwise, context)
        packs = any(isinstance(i, syntax.Pack) for i in expression.indices)
        count = len(expression.indices)
        if kind.form is Form.SCALAR and not context.in_function and not kind.is_unknown:
            return self.fail(
                f"'{base.span.text}' is one value and has no index", expression.span, code="E0401"
            )
        if kind.form is Form.ARRAY:
            if packs or count != 1:
                return self.fail("an array takes one index", expression.span, code="E0401")
            if expression.otherwise is not None:
                self.fail(
                    "'else' belongs to a read of a tensor, not of an array",
                    expression.span,
                    code="E0410",
                )
            picked = Form.SCALAR if context.pack is not None else indices[0].form
            return dataclasses.replace(kind, form=picked)
        ranks = kind.ranks if kind.form is Form.TENSOR and not packs else None
        if ranks is not None and count not in ranks:
            return self.fail(
                f"'{base.span.text}' has {show_ranks(ranks)} dimensions, but is read "
                f"with {counted(count, 'index', 'indices')}",
                expression.span,
                *_show_indices(expression, context, ranks),
                code="E0401",
            )
        if otherwise is not None and recurrent is not None:
            kind = dataclasses.replace(kind, what=otherwise.what)
        if otherwise is not None:
            self.agree(kind, otherwise, expression.span, "a read and the value after 'else'")
        return ValueKind(kind.what, Form.UNKNOWN if kind.form is Form.UNKNOWN else Form.SCALAR)

    def _find_recurrent(self, base: syntax.Expression, context: TypingContext) -> ValueKind | None:
        """Kind of a name that a recurrence reads before its definition is complete."""
        names = self.names
        if not isinstance(base, syntax.Reference) or base.name in context.variables:
            return None
        if base.name in names.locals or base.name not in names.recurrent:
            return None
        count = names.recurrent[base.name]
        return ValueKind(What.UNKNOWN, Form.TENSOR, ranks=frozenset({count}))

    def _visit_index(
        self, index: syntax.Expression, context: TypingContext, of_array: bool = False
    ) -> ValueKind:
        if isinstance(index, syntax.Pack):
            kind = self.expand(index, context)
        else:
            kind = self.visit(index, context)
        if kind.form is Form.TENSOR:
            return self.fail(
                "an index is one whole number, and this is a whole tensor", index.span, code="E0408"
            )
        if kind.form is Form.ARRAY and not of_array and not isinstance(index, syntax.Pack):
            return self.fail(
                f"'{index.span.text}' is an array, one value per axis, and is used without '...'",
                index.span,
                f"write '{_expanded(index)}' to give an index for each",
                code="E0406",
            )
        return self.expect_number(kind, "an index", index.span)

    def expand(self, pack: syntax.Pack, context: TypingContext) -> ValueKind:
        expansion = Expansion()
        kind = self.visit(pack.operand, dataclasses.replace(context, pack=expansion))
        if not expansion.met and not kind.is_unknown:
            return self.fail(
                "'...' expands a pack, and there is none in this expression",
                pack.span,
                code="E0406",
            )
        return kind

    def _reduce(self, expression: syntax.Reduce, context: TypingContext) -> ValueKind:
        name = expression.combiner
        if name.text not in REDUCTIONS:
            self.fail_unknown("reduction", name.text, REDUCTIONS, name.span, code="E0204")
        variables = {**context.variables, **self.bind(expression.bindings, context)}
        inner = dataclasses.replace(context, variables=variables)
        if expression.condition is not None:
            condition = self.visit(expression.condition, inner)
            self.expect(
                condition, What.BOOL, "the condition after 'where'", expression.condition.span
            )
        body = self.visit(expression.body, inner)
        if body.form is Form.TENSOR:
            self.fail(
                f"'{name.text}[...]' reduces one element at a time, and this is a whole tensor",
                expression.body.span,
                "index it, as in X[k]",
                code="E0303",
            )
        return self.folded(name.text, body, expression.body.span, Form.SCALAR)

    def bind(
        self, bindings: Sequence[syntax.Binding], context: TypingContext
    ) -> dict[str, ValueKind]:
        """Index variables of a reduction, or of an indexed definition."""
        bound: dict[str, Span] = {}
        for binding in bindings:
            name, extent = binding.variable, binding.extent
            message = f"index variable '{name.text}' is bound twice"
            self.hold_once(name, bound, message, "it is bound here first")
            if extent is None:
                continue
            kind = self.visit(extent, context.outside_pack() if binding.pack else context)
            self.expect_number(kind, f"the extent of '{name.text}'", extent.span)
            if kind.form is Form.ARRAY and not binding.pack:
                self.fail(
                    f"'{name.text}' runs over an array of sizes: write "
                    f"'{name.text}... : {extent.span.text}'",
                    binding.span,
                    code="E0407",
                )
            if kind.form is Form.SCALAR and binding.pack and not kind.is_unknown:
                message = f"'{name.text}...' needs one extent per axis, and this is one value"
                self.fail(message, extent.span, code="E0407")
            if kind.form is Form.TENSOR:
                message = f"the extent of '{name.text}' is a whole number, and this is a tensor"
                self.fail(message, extent.span, code="E0407")
        return {b.variable.text: PACK if b.pack else NUMBER for b in bindings}

    # Operators ----------------------------------------------------------------------------

    def _unary(self, expression: syntax.Unary, context: TypingContext) -> ValueKind:
        kind = self.visit(expression.operand, context)
        if expression.operator == "!":
            self.expect(kind, What.BOOL, "the operand of '!'", expression.operand.span)
            return dataclasses.replace(kind, what=What.BOOL)
        self.expect_number(kind, "the operand of '-'", expression.operand.span)
        return dataclasses.replace(kind, what=What.NUMBER, enum=None, values=None)

    def _binary(self, expression: syntax.Binary, context: TypingContext) -> ValueKind:
        symbol = expression.operator
        equality = symbol in ("==", "!=")
        if equality and self._is_open(expression.left, context):
            right = self.visit(expression.right, context)
            left = self.visit(expression.left, context, right)
        else:
            left = self.visit(expression.left, context)
            right = self.visit(expression.right, context, left if equality else None)
        sides = ((left, expression.left.span), (right, expression.right.span))
        for kind, span in sides:
            if symbol in _NUMERIC:
                cure = _cure_boolean(expression, kind)
                self.expect(kind, What.NUMBER, f"an operand of '{symbol}'", span, cure)
            elif not equality:
                self.expect(kind, What.BOOL, f"an operand of '{symbol}'", span)
        if equality:
            self.agree(left, right, expression.span, f"the sides of '{symbol}'")
        form, ranks = self.combine([left, right], context, expression.span)
        arithmetic = symbol in ("+", "-", "*", "/", "%")
        return ValueKind(What.NUMBER if arithmetic else What.BOOL, form, ranks=ranks)

    def _ternary(
        self,
        expression: syntax.Ternary,
        context: TypingContext,
        expected: ValueKind | None,
    ) -> ValueKind:
        condition = self.visit(expression.condition, context)
        self.expect(condition, What.BOOL, "the condition of '?:'", expression.condition.span)
        then = self.visit(expression.then, context, expected)
        otherwise = self.visit(expression.otherwise, context, expected)
        self.agree(then, otherwise, expression.span, "the branches of '?:'")
        if condition.form is not Form.TENSOR:
            # It may be decided at bind, where only one branch counts.
            if then == otherwise:
                return then
            what = then.what if not then.is_unknown else otherwise.what
            return ValueKind(what, Form.UNKNOWN, enum=then.enum or otherwise.enum)
        form, ranks = self.combine([condition, then, otherwise], context, expression.span)
        return ValueKind(then.what, form, ranks=ranks)


def _expanded(index: syntax.Expression) -> str:
    """Text of an expression followed by `...`, in parentheses if necessary."""
    text = " ".join(index.span.text.split())
    bare = isinstance(index, syntax.Reference | syntax.Member | syntax.Index | syntax.Call)
    return f"{text}..." if bare else f"({text})..."


def _show_indices(
    expression: syntax.Index, context: TypingContext, ranks: frozenset[int]
) -> tuple[str, ...]:
    """Suggested reads of a tensor of each rank, with the indices in scope."""
    base = expression.base
    if len(ranks) != 1 or not isinstance(base, syntax.Reference):
        return ()
    (rank,) = ranks
    given = [index.span.text for index in expression.indices]
    others = [name for name in (*context.variables, *"ijklmnop") if name not in given]
    indices = [*given, *dict.fromkeys(others)][:rank]
    return (f"an index for each dimension, as in {base.name}[{', '.join(indices)}]",)


def _cure_boolean(expression: syntax.Binary, kind: ValueKind) -> str | None:
    """Suggestion for a boolean operand of an arithmetic operator or of an ordering."""
    if kind.is_unknown or kind.what is not What.BOOL:
        return None
    left = expression.left
    orders = ("<", "<=", ">", ">=")
    chain = isinstance(left, syntax.Binary) and left.operator in orders
    if isinstance(left, syntax.Binary) and chain and expression.operator in orders:
        second = f"{left.right.span.text} {expression.operator} {expression.right.span.text}"
        return f"compare twice: {left.span.text} && {second}"
    return "a boolean becomes a number by 'c ? 1 : 0'"
