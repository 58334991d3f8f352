"""Mutants of formulas: one operation exchanged for another, as by a typing error.

An exchange has a span in the source, so that it is the same in every binding of an operator. For an
operator with `gradient of`, the formula is that of the forward operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeVar, cast

from dmlc import ir
from dmlc.binding.facts import Binding
from dmlc.binding.gradient import lower
from dmlc.language import syntax
from dmlc.language.builtins import REDUCTIONS, SCALAR_FUNCTIONS, find_reduction
from dmlc.language.definitions import OperatorDefinition
from dmlc.language.walk import parts, subexpressions
from dmlc.source import Span

_T = TypeVar("_T", bound=syntax.Node)

_OPERATORS: Mapping[str, str] = {
    "+": "-", "-": "+", "*": "/", "/": "*", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
    "==": "!=", "!=": "==", "&&": "||", "||": "&&",
}  # fmt: skip
_FUNCTIONS: Mapping[str, str] = {
    "min": "max", "max": "min", "floor": "ceil", "ceil": "floor", "round": "floor",
    "trunc": "floor",
}  # fmt: skip
_REDUCTIONS: Mapping[str, str] = {
    "sum": "max", "mean": "sum", "max": "min", "min": "max", "product": "sum", "any": "all",
    "all": "any", "argmin": "argmax", "argmax": "argmin",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """Exchange of one part of a formula for another."""

    part: syntax.Expression
    instead: syntax.Expression = dataclasses.field(repr=False)
    what: str
    """Description, as in `'-' for '+'`."""

    @property
    def place(self) -> Span:
        return self.part.span

    def __str__(self) -> str:
        place = self.place
        text = " ".join(place.text.split())
        shown = text if len(text) <= 60 else text[:57] + "..."
        return f"{place.source.name}:{place.line}:{place.column}: {self.what} in '{shown}'"


def list_exchanges(definition: OperatorDefinition) -> tuple[Exchange, ...]:
    """Exchanges in an operator's formula and in the functions that it calls."""
    found: list[Exchange] = []
    for expression in list_formula(definition):
        inside = list(subexpressions(expression))
        conditions = {id(p.condition): None for p in inside if isinstance(p, syntax.Ternary)}
        for part in inside:
            if id(part) in conditions and _compares_equal(part):
                continue  # To turn it round is to swap the arms.
            found += _exchange(part)
    return tuple(found)


def list_formula(definition: OperatorDefinition) -> list[syntax.Expression]:
    """Expressions of an operator's formula, and the bodies of the functions it calls."""
    while definition.gradient is not None:
        definition = definition.gradient.forward
    found = [e for s in definition.compute or () for e in parts(s)]
    return [*found, *list_called(definition, found)]


def list_called(
    definition: OperatorDefinition, expressions: list[syntax.Expression]
) -> list[syntax.Expression]:
    """Bodies of the file's functions that expressions call, directly or through others."""
    called: dict[str, syntax.Expression] = {}
    pending = list(expressions)
    for expression in pending:
        for part in subexpressions(expression):
            if isinstance(part, syntax.Call) and isinstance(part.function, syntax.Reference):
                function = definition.functions.get(part.function.name)
                if function is not None and function.name.text not in called:
                    called[function.name.text] = function.body
                    pending.append(function.body)
    return list(called.values())


def lower_exchanged(binding: Binding, exchange: Exchange) -> ir.Function:
    """Function of a binding with an exchange. Raises `DmlcError` for an invalid one, such as a read
    out of bounds."""
    return lower(_put(binding, exchange))


def _put(binding: Binding, exchange: Exchange) -> Binding:
    operator, gradient, forward = binding.operator, binding.operator.gradient, binding.forward
    if gradient is not None and forward is not None:
        forward = _put(forward, exchange)
        gradient = dataclasses.replace(gradient, forward=forward.operator)
        operator = dataclasses.replace(operator, gradient=gradient)
        return dataclasses.replace(binding, operator=operator, forward=forward, checks={})
    old, new = exchange.part, exchange.instead
    compute = tuple(_replace(s, old, new) for s in operator.compute or ())
    functions = {
        name: dataclasses.replace(f, body=_replace(f.body, old, new))
        for name, f in operator.functions.items()
    }
    operator = dataclasses.replace(operator, compute=compute, functions=functions)
    return dataclasses.replace(binding, operator=operator, checks={})


def _replace(node: _T, old: syntax.Node, new: syntax.Node) -> _T:
    """Tree with one node replaced; the same object if the node is not in it."""
    if node is old:
        return cast("_T", new)
    if not _holds(node.span, old.span):
        return node
    changed: dict[str, object] = {}
    for field in dataclasses.fields(node):
        value: object = getattr(node, field.name)
        made = value
        if isinstance(value, syntax.Node):
            made = _replace(value, old, new)
        elif isinstance(value, tuple):
            items = cast("tuple[object, ...]", value)
            replaced = [_replace(i, old, new) if isinstance(i, syntax.Node) else i for i in items]
            same = all(one is other for one, other in zip(items, replaced, strict=True))
            made = items if same else tuple(replaced)
        if made is not value:
            changed[field.name] = made
    return dataclasses.replace(node, **changed) if changed else node


def _holds(outer: Span, inner: Span) -> bool:
    return outer.source == inner.source and outer.start <= inner.start and inner.end <= outer.end


# One expression --------------------------------------------------------------------------------


def _compares_equal(part: syntax.Expression) -> bool:
    return isinstance(part, syntax.Binary) and part.operator in ("==", "!=")


def _exchange(part: syntax.Expression) -> Iterator[Exchange]:
    match part:
        case syntax.Binary(operator=operator) if operator in _OPERATORS:
            other = _OPERATORS[operator]
            made = dataclasses.replace(part, operator=other)
            yield Exchange(part, made, f"'{other}' for '{operator}'")
        case syntax.Binary(operator="%"):
            yield Exchange(part, part.left, "no '%'")
        case syntax.Unary():
            yield Exchange(part, part.operand, f"no '{part.operator}'")
        case syntax.Ternary():
            swapped = dataclasses.replace(part, then=part.otherwise, otherwise=part.then)
            yield Exchange(part, swapped, "the arms of '?:' swapped")
        case syntax.Literal():
            yield _exchange_literal(part)
        case syntax.Index():
            yield from _exchange_positions(part)
        case syntax.Reduce():
            yield from _exchange_reduction(part)
        case syntax.Call(function=syntax.Reference(name=name)):
            yield from _exchange_call(part, name)
        case _:
            return


def _exchange_literal(part: syntax.Literal) -> Exchange:
    value = not part.value if isinstance(part.value, bool) else part.value + 1
    text = str(value).lower()
    made = syntax.Literal(text, value, span=part.span)
    return Exchange(part, made, f"{text} for {part.text}")


def _exchange_positions(part: syntax.Index) -> Iterator[Exchange]:
    """Reads of the next element along an axis; at the last index, the same element, unless the
    formula has a value for indices out of bounds."""
    otherwise = part.otherwise
    if otherwise is None and isinstance(part.base, syntax.Reference):
        otherwise = part
    for number, index in enumerate(part.indices):
        one = syntax.Literal("1", 1, span=index.span)
        if isinstance(index, syntax.Pack):
            next_one = syntax.Binary("+", index.operand, one, span=index.operand.span)
            moved: syntax.Expression = syntax.Pack(next_one, span=index.span)
        else:
            moved = syntax.Binary("+", index, one, span=index.span)
        indices = (*part.indices[:number], moved, *part.indices[number + 1 :])
        made = dataclasses.replace(part, indices=indices, otherwise=otherwise)
        yield Exchange(part, made, f"one place on along '{index.span.text}'")


def _exchange_reduction(part: syntax.Reduce) -> Iterator[Exchange]:
    name = part.combiner.text
    other = syntax.Name(_REDUCTIONS[name], span=part.combiner.span)
    yield Exchange(part, dataclasses.replace(part, combiner=other), f"'{other.text}' for '{name}'")
    if part.condition is not None:
        yield Exchange(part, dataclasses.replace(part, condition=None), "no 'where'")
    for number, binding in enumerate(part.bindings):
        if binding.extent is None:
            continue
        span = binding.extent.span
        one = syntax.Literal("1", 1, span=span)
        shorter = syntax.Binary("-", binding.extent, one, span=span)
        made = dataclasses.replace(binding, extent=shorter)
        bindings = (*part.bindings[:number], made, *part.bindings[number + 1 :])
        short = dataclasses.replace(part, bindings=bindings)
        yield Exchange(part, short, f"the last point of '{binding.text}' left out")


def _exchange_call(part: syntax.Call, name: str) -> Iterator[Exchange]:
    function, first = part.function, part.arguments[0].value if part.arguments else None
    named = any(a.name is not None for a in part.arguments)
    reduces = find_reduction(name, len(part.arguments), named) is not None
    other = (_REDUCTIONS if reduces else _FUNCTIONS).get(name)
    if other is not None:
        made = dataclasses.replace(part, function=syntax.Reference(other, span=function.span))
        yield Exchange(part, made, f"'{other}' for '{name}'")
    elif name in SCALAR_FUNCTIONS and name not in REDUCTIONS and len(part.arguments) == 1 and first:
        yield Exchange(part, first, f"no '{name}'")
    elif name == "clamp" and first is not None:
        for bound, kept, lost in ((1, "max", "upper"), (2, "min", "lower")):
            least = syntax.Reference(kept, span=function.span)
            made = syntax.Call(least, (part.arguments[0], part.arguments[bound]), span=part.span)
            yield Exchange(part, made, f"no {lost} bound")
