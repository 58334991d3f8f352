"""What is in a kernel's statements, for tests of what kernels look like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import find_body, list_expressions
from dmlc.kernel.rewrite import walk as walk_expression


def walk(statements: Sequence[k.Statement]) -> Iterator[k.Statement]:
    """Statements and those in them, outermost first."""
    for statement in statements:
        yield statement
        yield from walk(find_body(statement))


def list_parts(statements: Sequence[k.Statement]) -> list[k.Expression]:
    """Every expression in statements, and what each is computed from."""
    return [
        part
        for statement in walk(statements)
        for expression in list_expressions(statement)
        for part in walk_expression(expression)
    ]


def list_shuffles(kernel: k.Kernel) -> list[tuple[int, ...]]:
    """The lanes of a kernel's shuffles."""
    return [part.lanes for part in list_parts(kernel.body) if isinstance(part, k.Shuffle)]
