"""Walks trees: what expressions are made of, and visits that nest without bound.

The parser bounds how deep an expression is, and most walks recurse. Where functions are inlined
the depths of their bodies add up: such a visitor is written as a generator that yields the visits
it needs and receives their results, and `walk` drives it without the interpreter's stack.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from types import GeneratorType
from typing import Any, TypeAlias, TypeVar, cast

from dmlc.language import syntax

T = TypeVar("T")

Step: TypeAlias = Generator[Any, Any, T]
"""A visit: yields further visits, is sent what each returned, and returns its own result."""
Visit: TypeAlias = Step[T] | T
"""A visit, or its result where it needs no other visits."""


def walk(root: Visit[T]) -> T:
    """Runs a visit and everything it yields. What a visit raises is raised where it was yielded,
    and ends the whole walk unless it is caught there."""
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


def parts(expression: syntax.Expression) -> tuple[syntax.Expression, ...]:
    """The expressions an expression is made of, in the order written."""
    match expression:
        case syntax.Literal() | syntax.String() | syntax.Reference():
            return ()
        case syntax.Array():
            return expression.items
        case syntax.Member():
            return (expression.base,)
        case syntax.Index():
            otherwise = () if expression.otherwise is None else (expression.otherwise,)
            return (expression.base, *expression.indices, *otherwise)
        case syntax.Call():
            return (expression.function, *(a.value for a in expression.arguments))
        case syntax.Reduce():
            condition = () if expression.condition is None else (expression.condition,)
            return (*_extents(expression.bindings), *condition, expression.body)
        case syntax.Unary() | syntax.Pack():
            return (expression.operand,)
        case syntax.Binary():
            return (expression.left, expression.right)
        case syntax.Ternary():
            return (expression.condition, expression.then, expression.otherwise)


def subexpressions(expression: syntax.Expression) -> Iterator[syntax.Expression]:
    """An expression and everything inside it, outermost and leftmost first."""
    pending = [expression]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(reversed(parts(found)))


def expressions_of(
    statement: syntax.Statement | syntax.GraphStatement,
) -> tuple[syntax.Expression, ...]:
    """The expressions of a statement: what its indices run over, and what it says."""
    match statement:
        case syntax.ScalarFunction():
            return (statement.body, *(gradient.value for gradient in statement.gradients))
        case syntax.Assignment():
            return (*_extents(statement.indices or ()), statement.value)
        case syntax.GraphStatement():
            value = statement.value
            if isinstance(value, syntax.Gradient):
                return (*value.of, *value.wrt, *value.given)
            return (value,)


def _extents(bindings: Iterable[syntax.Binding]) -> Iterator[syntax.Expression]:
    return (b.extent for b in bindings if b.extent is not None)


def names_read(*expressions: syntax.Expression) -> dict[str, None]:
    """The bare names in expressions, each once, in the order written."""
    parts = (part for expression in expressions for part in subexpressions(expression))
    return {part.name: None for part in parts if isinstance(part, syntax.Reference)}


def find_chain(start: str, end: str, leads: Mapping[str, Iterable[str]]) -> list[str]:
    """The shortest chain of names from one to another, each of which leads to the next and the
    last to `end`, which is not in it; nothing where there is none."""
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
