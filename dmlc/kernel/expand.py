"""Writes out loops that work items of a GPU run side by side: all that their steps read is read
before the first of them computes.

A work item waits for memory once then, and not once for each step. Compilers for GPUs would have to
prove that no step reads what one before it stores.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply, subtract_known
from dmlc.kernel.rewrite import (
    NUMBER,
    find_body,
    map_expressions,
    map_operands,
    replace_body,
    walk,
)
from dmlc.scalars import DataType

_MOST_STEPS = 16
"""Steps that are written out, at most."""


def expand_loops(kernel: k.Kernel) -> k.Kernel:
    """The kernel with loops written out that are to be, where all they do is to compute and store.
    As it is, where groups have one work item."""
    if kernel.launch.group_size == 1:
        return kernel
    stored = {b.name for b in kernel.buffers if b.access is not k.Access.READ}
    body = _expand(kernel.body, stored, itertools.count())
    return dataclasses.replace(kernel, body=tuple(body))


def _expand(
    statements: Sequence[k.Statement], stored: set[str], numbers: Iterator[int]
) -> list[k.Statement]:
    made: list[k.Statement] = []
    for statement in statements:
        steps = _list_steps(statement)
        if isinstance(statement, k.For) and steps:
            made += _write_out(statement, steps, stored, numbers)
        else:
            inside = find_body(statement)
            made.append(
                replace_body(statement, _expand(inside, stored, numbers)) if inside else statement
            )
    return made


def _list_steps(statement: k.Statement) -> list[k.Expression]:
    """What the variable of a loop is in each of its steps; nothing where it stays a loop."""
    if not isinstance(statement, k.For) or not statement.unroll:
        return []
    start, length = statement.start, _measure(statement.start, statement.stop)
    straight = all(isinstance(s, k.Let | k.Store | k.Assign) for s in statement.body)
    if length is None or not straight or length > _MOST_STEPS * statement.step:
        return []
    return [
        index(int(start.value) + gone) if isinstance(start, k.Literal) else add(start, index(gone))
        for gone in range(0, length, statement.step)
    ]


def _measure(start: k.Expression, stop: k.Expression) -> int | None:
    """The length of a range, where it is known."""
    match stop:
        case k.Operate(operation=operation, operands=(first, k.Literal(value=length))) if (
            operation.name == "add" and first == start
        ):
            return int(length)
        case _:
            return subtract_known(stop, start)


def _write_out(
    loop: k.For, steps: Sequence[k.Expression], stored: set[str], numbers: Iterator[int]
) -> list[k.Statement]:
    reads: list[k.Statement] = []
    rest: list[k.Statement] = []
    assigned = {s.local.name for s in loop.body if isinstance(s, k.Assign)}
    for step in steps:
        known = {loop.variable.name: step}
        late = set(assigned)
        for statement in loop.body:
            made = map_expressions(statement, lambda e, known=known: _replace(e, known))
            if not isinstance(made, k.Let):
                rest.append(made)
                continue
            if isinstance(made.value, k.Local | k.Literal):
                known[made.local.name] = made.value
                continue
            name = f"{made.local.name}{NUMBER}step{next(numbers)}"
            local = k.Local(name, made.local.type)
            known[made.local.name] = local
            parts = list(walk(made.value))
            early = local.type.dtype is DataType.INDEX or any(isinstance(p, k.Load) for p in parts)
            waits = any(
                (isinstance(p, k.Local) and p.name in late)
                or (isinstance(p, k.Load) and p.buffer in stored)
                for p in parts
            )
            if not early or waits:
                late.add(name)
            (rest if name in late else reads).append(k.Let(local, made.value))
    return [*reads, *rest]


def _replace(expression: k.Expression, known: Mapping[str, k.Expression]) -> k.Expression:
    """An expression with others for some of its locals; sums and products of positions are kept
    short."""
    if isinstance(expression, k.Local):
        return known.get(expression.name, expression)
    made = map_operands(expression, lambda e: _replace(e, known))
    match made:
        case k.Operate(operands=(left, k.Literal(value=number)), type=k.INDEX) if (
            made.operation.name == "mul"
        ):
            return multiply(left, int(number))
        case k.Operate(operands=(left, right), type=k.INDEX) if made.operation.name == "add":
            return add(left, right)
        case _:
            return made
