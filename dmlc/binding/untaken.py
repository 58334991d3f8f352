"""Data types of expressions that are not evaluated: the operand that a decided `?:` drops.

A chosen number, as in `present(gamma) ? gamma[c] : 1`, takes the type of the other operand, so that
a type does not depend on which tensors are given. The dropped operand may name absent tensors; only
its type is computed, from tensors and casts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from dmlc.binding.facts import Binding
from dmlc.binding.nodes import Node, Value
from dmlc.language import syntax
from dmlc.language.builtins import ARRAY_FUNCTIONS, FUNCTIONS
from dmlc.language.kinds import BOOL, What
from dmlc.scalars import DataType, find_data_type, is_positional
from dmlc.source import DmlcError

Types: TypeAlias = frozenset[DataType]
"""Compute types that an expression may have; empty for numbers alone."""

_Names: TypeAlias = "Mapping[str, Types | _Part]"
_Part: TypeAlias = tuple[syntax.Expression, _Names]
"""Expression, and the arguments that its parameters denote."""

_NONE: Types = frozenset()
_BOOLEAN = frozenset({DataType.BOOL})
_ARITHMETIC = ("+", "-", "*", "/", "%")
_MOST_PARTS = 10_000


class TypeFinder:
    """Type inference of expressions at one point of a binding."""

    def __init__(
        self,
        binding: Binding,
        functions: Mapping[str, syntax.ScalarFunction],
        locals_: Mapping[str, Value | DmlcError],
    ) -> None:
        self._binding = binding
        self._functions = functions
        self._locals = locals_

    def find(self, expression: syntax.Expression, parameters: Mapping[str, Value]) -> Types:
        """Types that an expression may have, with these arguments of its function: the intersection
        over those of its parts that have a type."""
        common = _NONE
        names: _Names = {name: _type_of(value) for name, value in parameters.items()}
        pending: list[Types | _Part] = [(expression, names)]
        for _ in range(_MOST_PARTS):
            if not pending:
                break
            part = pending.pop()
            if isinstance(part, frozenset):
                common = (common & part) or common | part
            else:
                pending += reversed(self._parts(*part))
        return common

    def _parts(self, expression: syntax.Expression, names: _Names) -> list[Types | _Part]:
        """Parts of an expression that determine its type."""
        match expression:
            case syntax.Reference(name=name):
                return [names[name] if name in names else self._named(name)]
            case syntax.Index(base=inner) | syntax.Unary(operator="-", operand=inner):
                return [(inner, names)]
            case syntax.Call():
                return self._call(expression, names)
            case syntax.Reduce(combiner=combiner) if not is_positional(combiner.text):
                hidden = {b.variable.text: _NONE for b in expression.bindings}
                return [(expression.body, {**names, **hidden})]
            case syntax.Binary(operator=operator) if operator in _ARITHMETIC:
                return [(expression.left, names), (expression.right, names)]
            case syntax.Unary() | syntax.Binary() | syntax.Literal(value=bool()):
                return [_BOOLEAN]
            case syntax.Ternary():
                return [(expression.then, names), (expression.otherwise, names)]
            case _:
                return []

    def _named(self, name: str) -> Types:
        """Types of a local or a tensor."""
        if name in self._locals:
            return _type_of(self._locals[name])
        tensor = self._binding.tensors.get(name)
        if tensor is not None:
            return _NONE if tensor.dtype is None else frozenset({tensor.dtype.compute})
        return frozenset(t.compute for t in self._binding.absent.get(name, ()))

    def _call(self, call: syntax.Call, names: _Names) -> list[Types | _Part]:
        arguments: list[Types | _Part] = [
            (a.value.operand if isinstance(a.value, syntax.Pack) else a.value, names)
            for a in call.arguments
            if a.name is None
        ]
        name = call.function.name if isinstance(call.function, syntax.Reference) else ""
        own = self._functions.get(name)
        if own is not None:
            given = dict(zip((p.text for p in own.parameters), arguments, strict=False))
            return [(own.body, given)]
        if name == "cast":
            match call.arguments[1].value:
                case syntax.Member(base=syntax.Reference(name=tensor)):
                    return [self._named(tensor)]
                case named:
                    dtype = find_data_type(named.span.text)
                    return [] if dtype is None else [frozenset({dtype.compute})]
        entry = FUNCTIONS.get(name)
        if entry is not None and entry.gives in (What.BOOL, BOOL):
            return [_BOOLEAN]
        return [] if is_positional(name) or name in ARRAY_FUNCTIONS else arguments


def _type_of(value: Value | DmlcError) -> Types:
    if not isinstance(value, Node) or value.takes_type or not isinstance(value.dtype, DataType):
        return _NONE
    return frozenset({value.dtype})
