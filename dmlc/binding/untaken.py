"""The data types of expressions that are not evaluated: what a `?:` decided at bind leaves.

A number that is chosen, as in `present(gamma) ? gamma[c] : 1`, takes the type of what would have
been chosen otherwise, so that a type does not depend on what is given. What is not chosen may name
tensors that are not there; only its types are asked for, from its tensors and casts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from dmlc.binding.facts import Binding
from dmlc.binding.nodes import Node, Value
from dmlc.ir import POSITIONAL_COMBINERS
from dmlc.language import syntax
from dmlc.language.builtins import ARRAY_FUNCTIONS, FUNCTIONS
from dmlc.language.definitions import FunctionDefinition
from dmlc.language.kinds import BOOL, What
from dmlc.language.walk import Step, Visit, walk
from dmlc.scalars import DataType, find_data_type
from dmlc.source import DmlcError

Types: TypeAlias = frozenset[DataType]
"""The compute types an expression may have; none where numbers alone do not say."""

_NONE: Types = frozenset()
_BOOLEAN = frozenset({DataType.BOOL})
_ARITHMETIC = ("+", "-", "*", "/", "%")
_MOST_CALLS = 1000


class TypeFinder:
    """Finds the types of expressions in one place of a binding."""

    def __init__(
        self,
        binding: Binding,
        functions: Mapping[str, FunctionDefinition],
        locals_: Mapping[str, Value | DmlcError],
    ) -> None:
        self._binding = binding
        self._functions = functions
        self._locals = locals_
        self._calls = 0

    def find(self, expression: syntax.Expression, parameters: Mapping[str, Value]) -> Types:
        """The types an expression may have, where its functions' parameters are these."""
        known = {name: self._type_of(value) for name, value in parameters.items()}
        return walk(self._visit(expression, known))

    def _visit(self, expression: syntax.Expression, known: Mapping[str, Types]) -> Visit[Types]:
        match expression:
            case syntax.Reference(name=name):
                return self._name(name, known)
            case syntax.Index(base=base):
                return self._visit(base, known)
            case syntax.Call():
                return self._call(expression, known)
            case syntax.Reduce(combiner=combiner, body=body):
                hidden = {b.variable.text: _NONE for b in expression.bindings}
                return self._fold(combiner.text, body, {**known, **hidden})
            case syntax.Unary(operator="-", operand=operand):
                return self._visit(operand, known)
            case syntax.Binary(operator=operator) if operator in _ARITHMETIC:
                return self._unify([expression.left, expression.right], known)
            case syntax.Unary() | syntax.Binary():
                return _BOOLEAN
            case syntax.Ternary():
                return self._unify([expression.then, expression.otherwise], known)
            case syntax.Literal(value=bool()):
                return _BOOLEAN
            case _:
                return _NONE

    def _name(self, name: str, known: Mapping[str, Types]) -> Types:
        if name in known:
            return known[name]
        if name in self._locals:
            value = self._locals[name]
            return _NONE if isinstance(value, DmlcError) else self._type_of(value)
        tensor = self._binding.tensors.get(name)
        if tensor is not None:
            return _NONE if tensor.dtype is None else frozenset({tensor.dtype.compute})
        return frozenset(t.compute for t in self._binding.absent.get(name, ()))

    def _type_of(self, value: Value) -> Types:
        if not isinstance(value, Node) or value.takes_type:
            return _NONE
        found = value.dtype
        return frozenset({found}) if isinstance(found, DataType) else _NONE

    def _unify(
        self, expressions: list[syntax.Expression], known: Mapping[str, Types]
    ) -> Step[Types]:
        """What several have in common of those that have types."""
        common = _NONE
        for expression in expressions:
            found: Types = yield self._visit(expression, known)
            common = (common & found) or common | found
        return common

    def _fold(
        self, combiner: str, operand: syntax.Expression, known: Mapping[str, Types]
    ) -> Visit[Types]:
        if combiner in POSITIONAL_COMBINERS:
            return _NONE
        return self._visit(operand, known)

    def _call(self, expression: syntax.Call, known: Mapping[str, Types]) -> Visit[Types]:
        arguments = [
            a.value.operand if isinstance(a.value, syntax.Pack) else a.value
            for a in expression.arguments
            if a.name is None
        ]
        function = expression.function
        name = function.name if isinstance(function, syntax.Reference) else ""
        own = self._functions.get(name)
        if own is not None:
            return self._inline(own, arguments, known)
        if name == "cast" and len(arguments) == 2:
            return self._named(arguments[1])
        entry = FUNCTIONS.get(name)
        if entry is not None and entry.gives in (What.BOOL, BOOL):
            return _BOOLEAN
        if name in POSITIONAL_COMBINERS or name in ARRAY_FUNCTIONS:
            return _NONE
        return self._unify(arguments, known)

    def _named(self, target: syntax.Expression) -> Types:
        """The type that the second argument of a cast says."""
        dtype = None
        match target:
            case syntax.Reference(name=name):
                dtype = find_data_type(name)
            case syntax.Member(base=syntax.Reference(name=name)):
                return self._name(name, {})
            case _:
                pass
        return _NONE if dtype is None else frozenset({dtype.compute})

    def _inline(
        self,
        function: FunctionDefinition,
        arguments: list[syntax.Expression],
        known: Mapping[str, Types],
    ) -> Step[Types]:
        self._calls += 1
        if self._calls > _MOST_CALLS:
            return _NONE
        given: dict[str, Types] = {}
        for parameter, argument in zip(function.parameters, arguments, strict=False):
            given[parameter] = yield self._visit(argument, known)
        return (yield self._visit(function.body, given))
