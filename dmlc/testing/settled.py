"""Conditions of functions that an operator's own calls decide, whatever it is bound to: a function
that several operators share asks `rounding_type == "ceil"`, and one of them always says "floor"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.definitions import FunctionDefinition
from dmlc.language.walk import subexpressions
from dmlc.source import Span


def find_settled(
    functions: Mapping[str, FunctionDefinition], evaluated: Sequence[syntax.Expression]
) -> dict[Span, tuple[bool, str]]:
    """The comparisons with a literal, in functions, that come to one thing in every call among the
    expressions that an operator evaluates: what they come to, and the function."""
    found: dict[Span, tuple[bool, str]] = {}
    for function in functions.values():
        calls = [
            part
            for expression in evaluated
            for part in subexpressions(expression)
            if isinstance(part, syntax.Call)
            and isinstance(part.function, syntax.Reference)
            and part.function.name == function.name
        ]
        for part in subexpressions(function.body):
            outcomes = {_compare(part, function, call) for call in calls}
            if len(outcomes) == 1 and (outcome := outcomes.pop()) is not None:
                found[part.span] = outcome, function.name
    return found


def _compare(
    part: syntax.Expression, function: FunctionDefinition, call: syntax.Call
) -> bool | None:
    """What a comparison of a parameter with a literal comes to in a call; None for anything else,
    and where the call does not say."""
    match part:
        case syntax.Binary(
            operator="==" | "!=" as operator, left=syntax.Reference(name=name), right=right
        ) if name in function.parameters:
            given = _read(call.arguments[function.parameters.index(name)].value)
            wanted = _read(right)
            if given is None or wanted is None:
                return None
            return (given == wanted) == (operator == "==")
        case _:
            return None


def _read(expression: syntax.Expression) -> bool | int | float | str | None:
    """The value of a literal."""
    match expression:
        case syntax.Literal() | syntax.String():
            return expression.value
        case _:
            return None
