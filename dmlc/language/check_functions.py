"""Scalar functions in the order of their calls; they are inlined, and so must not recurse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.walk import Step, find_chain, subexpressions, walk
from dmlc.source import Diagnostic, Note


def order_functions(
    functions: Sequence[syntax.ScalarFunction], diagnostics: list[Diagnostic]
) -> tuple[list[syntax.ScalarFunction], set[str]]:
    """The functions, each after those it calls, and the names of those that call themselves,
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
    called = [p.function for p in subexpressions(function.body) if isinstance(p, syntax.Call)]
    names = [f.name for f in called if isinstance(f, syntax.Reference)]
    return [name for name in dict.fromkeys(names) if name in known]


def _mutual(calls: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The functions in groups that reach each other, each group after those it calls (Tarjan's
    algorithm)."""
    lowest: dict[str, int] = {}
    """Of each function met, the earliest one on the stack that it is known to reach; no function
    once it is in a group."""
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
