"""Checks of scalar functions: call order, recursion, and gradients of their own. Functions are
inlined, and so must not recurse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.builtins import FUNCTIONS, REDUCTIONS, SCALAR_FUNCTIONS, find_reduction
from dmlc.language.check_expressions import ExpressionChecker
from dmlc.language.kinds import UNKNOWN, ValueKind, What
from dmlc.language.walk import (
    Step,
    find_chain,
    functions_called,
    list_called,
    parts,
    subexpressions,
    walk,
)
from dmlc.source import Diagnostic, Note, Span


def order_functions(
    functions: Sequence[syntax.ScalarFunction], diagnostics: list[Diagnostic]
) -> tuple[list[syntax.ScalarFunction], set[str]]:
    """Functions in topological order of calls, and the names of those that call themselves,
    directly or not; reports each cycle once."""
    by_name = {f.name.text: f for f in functions}
    calls = {name: _calls_of(f, by_name) for name, f in by_name.items()}
    recursive: set[str] = set()
    groups = _mutual(calls)
    for group in sorted(groups, key=lambda g: min(by_name[n].span.start for n in g)):
        first = min(group, key=lambda n: by_name[n].span.start)
        chain = find_chain(first, first, calls)
        if not chain:
            continue
        recursive.update(group)
        shown = " calls ".join(f"'{n}'" for n in [*chain, chain[0]])
        notes = tuple(Note("declared here", by_name[n].name.span) for n in chain[1:4])
        message = f"functions are inlined and must not recurse: {shown}"
        diagnostics.append(Diagnostic(message, by_name[chain[0]].name.span, notes, code="E0306"))
    return [by_name[name] for group in groups for name in group], recursive


def _calls_of(
    function: syntax.ScalarFunction, known: Mapping[str, syntax.ScalarFunction]
) -> list[str]:
    """The functions among `known` that a function calls, in order."""
    return [name for name in functions_called(function.body) if name in known]


def _mutual(calls: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Strongly connected components of the call graph, callees first (Tarjan's algorithm)."""
    lowest: dict[str, int] = {}
    """Lowlink of each function met: the earliest one on the stack that it reaches."""
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> Step[None]:
        number = lowest[name] = len(lowest)
        place = len(stack)
        stack.append(name)
        for callee in calls[name]:
            if callee not in lowest:
                yield visit(callee)
            lowest[name] = min(lowest[name], lowest[callee])
        if lowest[name] == number:
            groups.append(stack[place:])
            lowest.update(dict.fromkeys(stack[place:], len(calls)))
            del stack[place:]

    for name in calls:
        if name not in lowest:
            walk(visit(name))
    return groups


# Gradients -------------------------------------------------------------------------------------


def check_function_gradients(checker: ExpressionChecker, function: syntax.ScalarFunction) -> None:
    """Checks the gradients that a function declares. Its callees have been checked."""
    if not function.gradients:
        return
    name, seen = function.name.text, dict[str, Span]()
    parameters = [parameter.text for parameter in function.parameters]
    gives = checker.names.results.get(name, UNKNOWN)
    if not _may_be_number(gives):
        first = function.gradients[0].span
        message = f"'{name}' gives {gives.describe()}, and only numbers have gradients"
        checker.fail(message, first, "a boolean becomes a number by 'c ? 1 : 0'", code="E0707")
    for gradient in function.gradients:
        target, parameter = gradient.function, gradient.parameter
        if target.text != name:
            message = f"this is the gradient of '{target.text}', but it stands behind '{name}'"
            cure = "the gradients of a function stand right behind the function"
            checker.fail(message, target.span, cure, code="E0707")
        if parameter.text not in parameters:
            what = f"parameter of '{name}'"
            checker.fail_unknown(what, parameter.text, parameters, parameter.span, "E0707")
        elif parameter.text in seen:
            message = f"the gradient of '{name}' with respect to '{parameter.text}' is given twice"
            note = Note("the first is here", seen[parameter.text])
            checker.fail(message, parameter.span, note, code="E0707")
        seen.setdefault(parameter.text, parameter.span)
        found = checker.check_body(gradient.value, parameters)
        if not _may_be_number(found):
            message = f"a gradient is a number, and this is {found.describe()}"
            checker.fail(message, gradient.value.span, code="E0707")
    for expression in parts(function):
        _check_elementwise(checker, expression, function)


def _may_be_number(kind: ValueKind) -> bool:
    return kind.what in (What.NUMBER, What.UNKNOWN)


def _check_elementwise(
    checker: ExpressionChecker, expression: syntax.Expression, function: syntax.ScalarFunction
) -> None:
    """Refuses a formula that depends on anything but the parameters' elements, numbers and
    attributes, since the gradient with respect to it would be lost."""
    names, own = checker.names, {parameter.text for parameter in function.parameters}
    for part in subexpressions(expression):
        why: str | None = None
        match part:
            case syntax.Reference(name=name) if name not in own:
                if name in names.tensors or name in names.locals:
                    why = f"'{name}' is none of its parameters"
            case syntax.Call(function=syntax.Reference(name=name)) if name in names.functions:
                if _reduces(names.functions[name], names.functions):
                    why = f"'{name}' is more than a formula of single numbers"
            case _ if _is_whole(part):
                why = f"'{part.span.text.strip()}' is more than a formula of single numbers"
            case _:
                pass
        if why is not None:
            checker.fail(
                f"'{function.name.text}' has a gradient of its own, so it computes one number of "
                f"its parameters: {why}",
                part.span,
                "make what it needs a parameter, and reduce outside of it",
                code="E0707",
            )
            return


def _reduces(function: syntax.ScalarFunction, known: Mapping[str, syntax.ScalarFunction]) -> bool:
    """Whether a function, or a callee, reduces, reads by index or takes whole tensors."""
    return any(map(_is_whole, subexpressions(function, *list_called([function], known))))


def _is_whole(part: syntax.Expression) -> bool:
    """Whether an expression reduces, reads elements by index, or takes whole tensors."""
    match part:
        case syntax.Index() | syntax.Pack() | syntax.Reduce():
            return True
        case syntax.Call(function=syntax.Reference(name=name), arguments=arguments):
            named = any(argument.name is not None for argument in arguments)
            if name in REDUCTIONS and find_reduction(name, len(arguments), named) is not None:
                return True
            return name in FUNCTIONS and name not in SCALAR_FUNCTIONS
        case _:
            return False
