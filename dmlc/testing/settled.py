"""Conditions of functions that an operator's own calls decide, independently of the binding: a
shared function asks `rounding_type == "ceil"`, and one of its operators always passes "floor"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.walk import subexpressions
from dmlc.source import Span


def find_settled(
    functions: Mapping[str, syntax.ScalarFunction], evaluated: Sequence[syntax.Expression]
) -> dict[Span, tuple[bool, str]]:
    """Comparisons with a literal, in functions, that have one result in every call among an
    operator's evaluated expressions: the result, and the function's name."""
    found: dict[Span, tuple[bool, str]] = {}
    for name, function in functions.items():
        calls = [
            part
            for expression in evaluated
            for part in subexpressions(expression)
            if isinstance(part, syntax.Call)
            and isinstance(part.function, syntax.Reference)
            and part.function.name == name
        ]
        for part in subexpressions(function.body):
            outcomes = {_compare(part, function, call) for call in calls}
            if len(outcomes) == 1 and (outcome := outcomes.pop()) is not None:
                found[part.span] = outcome, name
    return found


def _compare(
    part: syntax.Expression, function: syntax.ScalarFunction, call: syntax.Call
) -> bool | None:
    """Result of comparing a parameter with a literal in a call; None for anything else, and if the
    argument is no literal."""
    parameters = [parameter.text for parameter in function.parameters]
    match part:
        case syntax.Binary(
            operator="==" | "!=" as operator, left=syntax.Reference(name=name), right=right
        ) if name in parameters:
            given = _read(call.arguments[parameters.index(name)].value)
            wanted = _read(right)
            if given is None or wanted is None:
                return None
            return (given == wanted) == (operator == "==")
        case _:
            return None


def _read(expression: syntax.Expression) -> bool | int | float | str | None:
    """Value of a literal."""
    match expression:
        case syntax.Literal() | syntax.String():
            return expression.value
        case _:
            return None
