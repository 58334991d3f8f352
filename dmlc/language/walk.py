"""Tree walks: subexpressions, and visits of unbounded depth.

The parser bounds the depth of an expression, so most walks recurse. Inlining adds the depths of
functions' bodies: such a visitor is a generator that yields the visits it needs and receives their
results, and `walk` runs it without the interpreter's stack.
"""

from __future__ import annotations

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


def parts(expression: syntax.Expression) -> tuple[syntax.Expression, ...]:
    """Operands of an expression, in source order."""
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
    """Expression and all its subexpressions, in preorder."""
    pending = [expression]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(reversed(parts(found)))


def expressions_of(
    statement: syntax.Statement | syntax.GraphStatement,
) -> tuple[syntax.Expression, ...]:
    """Expressions of a statement: the extents of its indices, and its value."""
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
    """Bare names in expressions, each once, in source order."""
    parts = (part for expression in expressions for part in subexpressions(expression))
    return {part.name: None for part in parts if isinstance(part, syntax.Reference)}


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
