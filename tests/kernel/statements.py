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


def count_threads(kernel: k.Kernel) -> int:
    """The work items that a kernel of fixed sizes is launched with."""
    launch = kernel.launch
    assert isinstance(launch.count, int)
    return -(-launch.count // launch.per_group) * launch.group_size


def count_steps(kernel: k.Kernel) -> int:
    """How often the first work item goes through the innermost statements of its loops: what it
    does one after the other."""
    counts = {scalar.name: count for scalar, count in kernel.scalars if isinstance(count, int)}
    return _count_steps(kernel.body, counts)


def _count_steps(statements: Sequence[k.Statement], known: dict[str, int]) -> int:
    """The steps of some statements, where loops go by their first turn, and all that is tested
    holds."""
    steps = 0
    for statement in statements:
        match statement:
            case k.Let(local=local, value=value) if local.type == k.INDEX:
                found = _evaluate(value, known)
                if found is not None:
                    known[local.name] = found
            case k.For():
                start, stop = (_evaluate(e, known) for e in (statement.start, statement.stop))
                assert start is not None
                assert stop is not None
                turns = max(0, -(-(stop - start) // statement.step))
                inside = {**known, statement.variable.name: start}
                steps += turns * max(1, _count_steps(statement.body, inside))
            case _:
                steps += _count_steps(find_body(statement), dict(known))
    return steps


def _evaluate(expression: k.Expression, known: dict[str, int]) -> int | None:
    """A position where the work item is the first; None where it depends on data."""
    match expression:
        case k.Literal(value=value):
            return int(value)
        case k.Local(name=name) | k.Scalar(name=name):
            return known.get(name)
        case k.Position() | k.Lead():
            return 0
        case k.Select(then=then, otherwise=otherwise):
            found = _evaluate(then, known)
            return found if found == _evaluate(otherwise, known) else None
        case k.Operate(operation=operation, operands=operands):
            given = [_evaluate(operand, known) for operand in operands]
            if any(number is None for number in given):
                return None
            a, b = (*(n for n in given if n is not None), 1)[:2]
            found = {
                "add": a + b, "sub": a - b, "mul": a * b, "div": a // b if b else 0,
                "mod": a % b if b else 0, "min": min(a, b), "max": max(a, b),
            }  # fmt: skip
            return found.get(operation.name)
        case _:
            return None
