"""Takes statements and expressions of the kernel IR apart, and puts them together changed."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast, get_args

from dmlc.kernel import nodes as k
from dmlc.source import InternalError

NUMBER = "#"
"""Stands between a wanted name and the number that tells it from others, in names as they are
first taken: no name of a tensor has it. `tidy` leaves none."""

Change: TypeAlias = Callable[[k.Expression], k.Expression]

_PARTS: dict[type[Any], tuple[str, ...]] = {
    k.Load: ("index",),
    k.Element: ("index",),
    k.Choose: ("condition", "then", "otherwise"),
    k.Convert: ("operand",),
    k.Reinterpret: ("operand",),
    k.Broadcast: ("operand",),
    k.Join: ("low", "high"),
    k.Shuffle: ("first", "second"),
    k.Let: ("value",),
    k.Variable: ("value",),
    k.Assign: ("local", "value"),
    k.Put: ("index", "value"),
    k.Store: ("index", "value", "streaming"),
    k.Prefetch: ("index",),
    k.PutHalf: ("word", "half", "value"),
    k.StoreWord: ("index", "word"),
    k.For: ("start", "stop"),
    k.If: ("condition",),
}
"""The fields that are expressions, in the order of evaluation. An `Operate` has them in one."""
_ASSIGNED: dict[type[Any], int] = {k.Assign: 0, k.PutHalf: 0, k.StoreWord: 1}
"""Which of them is a variable, and has to stay one."""
_BODY: dict[type[Any], str] = {k.For: "body", k.Halve: "body", k.If: "then"}
_DEFINED: dict[type[Any], str] = {
    k.Let: "local",
    k.Variable: "local",
    k.For: "variable",
    k.Halve: "variable",
}


def _make_reader(names: Sequence[str]) -> Callable[[Any], tuple[k.Expression, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    get = operator.attrgetter(names[0]) if names else None
    return lambda node: () if get is None else (get(node),)


_KINDS: tuple[type[Any], ...] = (*get_args(k.Expression), *get_args(k.Statement))
_READERS = {kind: _make_reader(_PARTS.get(kind, ())) for kind in _KINDS}
_READERS[k.Operate] = operator.attrgetter("operands")
_LAYOUTS = {
    kind: [(field.name, field.name in names) for field in dataclasses.fields(kind)]
    for kind, names in _PARTS.items()
}
"""All fields of a node, and whether each is an expression."""


def _rebuild(node: Any, changed: Sequence[k.Expression]) -> Any:
    """The same node of other expressions."""
    if isinstance(node, k.Operate):
        return k.Operate(node.operation, tuple(changed), node.type)
    given = iter(changed)
    kind = cast("type[Any]", type(node))
    return kind(*[next(given, None) if p else getattr(node, n) for n, p in _LAYOUTS[kind]])


def list_operands(expression: k.Expression) -> tuple[k.Expression, ...]:
    """What an expression is computed from, in order."""
    return _READERS[type(expression)](expression)


def map_operands(expression: k.Expression, change: Change) -> k.Expression:
    """The same expression of changed operands: itself, where none of them changes."""
    operands = list_operands(expression)
    changed = tuple(map(change, operands))
    if not operands or all(map(operator.is_, operands, changed)):
        return expression
    return _rebuild(expression, changed)


def walk(expression: k.Expression) -> Iterator[k.Expression]:
    """An expression and all that it is computed from."""
    pending = [expression]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(list_operands(found))


def list_expressions(statement: k.Statement) -> tuple[k.Expression, ...]:
    """The expressions of a statement itself, not of those in its body. What it defines is none."""
    found = _READERS[type(statement)](statement)
    unconditional = isinstance(statement, k.Store) and statement.streaming is None
    return found[:-1] if unconditional else found


def map_expressions(statement: k.Statement, change: Change) -> k.Statement:
    """The same statement of changed expressions: itself, where none of them changes. Its body, and
    what it defines, stay."""
    expressions = list_expressions(statement)
    changed = tuple(map(change, expressions))
    if all(map(operator.is_, expressions, changed)):
        return statement
    assigned = _ASSIGNED.get(type(statement))
    if assigned is not None and not isinstance(changed[assigned], k.Local):
        raise InternalError("a variable that is assigned was replaced by a value")
    return _rebuild(statement, changed)


def find_defined(statement: k.Statement) -> k.Local | None:
    """What a statement defines, for those after it or for its body."""
    name = _DEFINED.get(type(statement))
    return None if name is None else getattr(statement, name)


def define(statement: k.Statement, local: k.Local) -> k.Statement:
    """The same statement, which defines another local."""
    if isinstance(statement, k.Let | k.Variable):
        return type(statement)(local, statement.value)
    if not isinstance(statement, k.For | k.Halve):
        raise InternalError(f"a statement that defines nothing: {type(statement).__name__}")
    return dataclasses.replace(statement, variable=local)


def find_body(statement: k.Statement) -> tuple[k.Statement, ...]:
    """The statements in a statement."""
    name = _BODY.get(type(statement))
    return () if name is None else getattr(statement, name)


def replace_body(statement: k.Statement, body: Sequence[k.Statement]) -> k.Statement:
    """The same statement with others in it: itself, where they are those that it has."""
    before = find_body(statement)
    if len(body) == len(before) and all(map(operator.is_, body, before)):
        return statement
    if isinstance(statement, k.If):
        return k.If(statement.condition, tuple(body))
    if not isinstance(statement, k.For | k.Halve):
        raise InternalError(f"a statement without a body: {type(statement).__name__}")
    return dataclasses.replace(statement, body=tuple(body))


def substitute(statement: k.Statement, old: k.Local, new: k.Expression) -> k.Statement:
    """The same statement and all in it, with an expression for a local."""

    def change(expression: k.Expression) -> k.Expression:
        return new if expression == old else map_operands(expression, change)

    changed = map_expressions(statement, change)
    body = find_body(changed)
    return replace_body(changed, [substitute(s, old, new) for s in body]) if body else changed
