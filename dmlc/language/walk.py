"""Tree walks: subexpressions, and visits of unbounded depth.

The parser bounds the depth of an expression, so most walks recurse. Inlining adds the depths of
functions' bodies: such a visitor is a generator that yields the visits it needs and receives their
results, and `walk` runs it without the interpreter's stack.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Generator, Iterable, Iterator, Mapping
from types import GeneratorType
from typing import Any, TypeAlias, TypeVar, cast

from dmlc.language import syntax

T = TypeVar("T")

Step: TypeAlias = Generator[Any, Any, T]
"""Visit: yields further visits, receives the result of each, and returns its own."""
Visit: TypeAlias = Step[T] | T
"""Visit, or its result if it needs no other visits."""


def walk(root: Visit[T]) -> T:
    """Runs a visit and every visit it yields. An exception is raised in the visit that yielded, and
    ends the walk unless caught there."""
    if not isinstance(root, GeneratorType):
        return cast("T", root)
    stack: list[Step[Any]] = [cast("Step[Any]", root)]
    result: Any = None
    raised: Exception | None = None
    while stack:
        try:
            child = stack[-1].send(result) if raised is None else stack[-1].throw(raised)
        except StopIteration as stop:
            result, raised = stop.value, None
            stack.pop()
        except Exception as error:
            stack.pop()
            if not stack:
                raise
            raised = error
        else:
            raised = None
            if isinstance(child, GeneratorType):
                stack.append(cast("Step[Any]", child))
                result = None
            else:
                result = child
    return result


@functools.cache
def _list_fields(kind: type[syntax.Node]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if field.name != "span")


def parts(node: syntax.Node) -> Iterator[syntax.Expression]:
    """Outermost expressions below a node, in source order: the operands of an expression, the
    extents of a statement's indices and its value."""
    for name in _list_fields(type(node)):
        value: object = getattr(node, name)
        for each in cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,):
            if isinstance(each, syntax.Expression):
                yield each
            elif isinstance(each, syntax.Node):
                yield from parts(each)


def subexpressions(*nodes: syntax.Node) -> Iterator[syntax.Expression]:
    """Expressions below nodes, with the nodes that are expressions themselves, in preorder."""
    pending = list(reversed(nodes))
    while pending:
        found = pending.pop()
        if isinstance(found, syntax.Expression):
            yield found
        pending.extend(reversed([*parts(found)]))


def names_read(*nodes: syntax.Node) -> dict[str, None]:
    """Bare names in nodes, also of functions, each once, in source order."""
    found = subexpressions(*nodes)
    return {part.name: None for part in found if isinstance(part, syntax.Reference)}


def functions_called(*nodes: syntax.Node) -> dict[str, None]:
    """Functions that nodes call, each once, in source order."""
    calls = (part.function for part in subexpressions(*nodes) if isinstance(part, syntax.Call))
    return {function.name: None for function in calls if isinstance(function, syntax.Reference)}


def list_called(
    nodes: Iterable[syntax.Node], functions: Mapping[str, syntax.ScalarFunction]
) -> list[syntax.ScalarFunction]:
    """Those of `functions` that nodes call, directly or through others."""
    found: dict[str, syntax.ScalarFunction] = {}
    pending = list(nodes)
    for node in pending:
        new = {n: functions[n] for n in functions_called(node) if n in functions and n not in found}
        found |= new
        pending += new.values()
    return list(found.values())


def find_chain(start: str, end: str, leads: Mapping[str, Iterable[str]]) -> list[str]:
    """Shortest path from one name to another along `leads`, without `end`; empty if there is
    none."""
    before = {start: ""}
    pending = [start]
    for name in pending:
        for target in leads.get(name, ()):
            if target == end:
                chain = [name]
                while before[chain[-1]]:
                    chain.append(before[chain[-1]])
                return chain[::-1]
            if target not in before:
                before[target] = name
                pending.append(target)
    return []
