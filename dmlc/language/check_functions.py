"""Finds recursion among scalar functions, which are inlined and so must not recurse."""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.language import syntax
from dmlc.language.walk import find_chain, subexpressions
from dmlc.source import Diagnostic, Note


def calls_of(function: syntax.ScalarFunction, known: set[str]) -> list[str]:
    """The functions among `known` that a function calls, in order."""
    found: dict[str, None] = {}
    for part in subexpressions(function.body):
        if isinstance(part, syntax.Call) and isinstance(part.function, syntax.Reference):
            name = part.function.name
            if name in known:
                found[name] = None
    return list(found)


def order_by_calls(functions: Sequence[syntax.ScalarFunction]) -> list[syntax.ScalarFunction]:
    """The functions, each after those it calls; cycles are broken anywhere."""
    by_name = {f.name.text: f for f in functions}
    known = set(by_name)
    done: dict[str, syntax.ScalarFunction] = {}
    visited: set[str] = set()
    for function in functions:
        stack = [(function, False)]
        while stack:
            current, ready = stack.pop()
            name = current.name.text
            if ready:
                done[name] = current
            elif name not in visited:
                visited.add(name)
                stack.append((current, True))
                stack += [(by_name[c], False) for c in reversed(calls_of(current, known))]
    return list(done.values())


def find_recursion(
    functions: Sequence[syntax.ScalarFunction], diagnostics: list[Diagnostic]
) -> set[str]:
    """The functions that call themselves, directly or not; reports each cycle once."""
    by_name = {f.name.text: f for f in functions}
    known = set(by_name)
    calls = {name: calls_of(f, known) for name, f in by_name.items()}
    recursive: set[str] = set()
    for group in _mutual(functions, calls):
        first = min(group, key=lambda n: by_name[n].span.start)
        chain = find_chain(first, first, calls)
        if not chain:
            continue
        recursive.update(group)
        shown = " calls ".join(f"'{n}'" for n in [*chain, chain[0]])
        notes = tuple(Note("declared here", by_name[n].name.span) for n in chain[1:4])
        message = f"functions are inlined and must not recurse: {shown}"
        diagnostics.append(Diagnostic(message, by_name[chain[0]].name.span, notes))
    return recursive


def _mutual(
    functions: Sequence[syntax.ScalarFunction], calls: dict[str, list[str]]
) -> list[set[str]]:
    """The functions in groups that reach each other (Kosaraju's algorithm)."""
    callers: dict[str, list[str]] = {name: [] for name in calls}
    for name, callees in calls.items():
        for callee in callees:
            callers[callee].append(name)
    placed: set[str] = set()
    groups: list[set[str]] = []
    for function in reversed(order_by_calls(functions)):
        pending = [function.name.text]
        group: set[str] = set()
        while pending:
            name = pending.pop()
            if name not in placed:
                placed.add(name)
                group.add(name)
                pending += callers[name]
        if group:
            groups.append(group)
    return groups
