"""Traversal and rebuilding of the kernel IR's expressions and statements."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast, get_args

from dmlc.kernel import nodes as k
from dmlc.scalars import DataType
from dmlc.source import InternalError

NUMBER = "#"
"""Separates a wanted name and a number that makes it unique, in names before `cleanup`, which
removes it. No tensor's name contains it."""

Change: TypeAlias = Callable[[k.Expression], k.Expression]
More = ParamSpec("More")
Node = TypeVar("Node", bound="k.Expression | k.Statement")
_Read: TypeAlias = Callable[[Any], tuple[k.Expression, ...]]
_Make: TypeAlias = Callable[[Any, tuple[Any, ...]], Any]

_NODES: dict[type[Any], tuple[_Read, _Make]] = {
    k.Operate: (operator.attrgetter("operands"), lambda n, c: k.Operate(n.operation, c, n.type)),
    k.Load: (lambda n: (n.index,), lambda n, c: k.Load(n.buffer, c[0], n.type)),
    k.LoadLocal: (lambda n: (n.index,), lambda n, c: k.LoadLocal(n.array, c[0], n.type)),
    k.Select: (
        operator.attrgetter("condition", "then", "otherwise"),
        lambda n, c: k.Select(c[0], c[1], c[2], n.type),
    ),
    k.Convert: (lambda n: (n.operand,), lambda n, c: k.Convert(c[0], n.type)),
    k.Reinterpret: (lambda n: (n.operand,), lambda n, c: k.Reinterpret(c[0], n.type)),
    k.Broadcast: (lambda n: (n.operand,), lambda n, c: k.Broadcast(c[0], n.type)),
    k.Join: (operator.attrgetter("low", "high"), lambda n, c: k.Join(c[0], c[1], n.type)),
    k.Extract: (lambda n: (n.operand,), lambda n, c: k.Extract(c[0], n.lanes, n.type)),
    k.Shuffle: (lambda n: (n.first, n.second), lambda n, c: k.Shuffle(c[0], c[1], n.lanes, n.type)),
    k.Let: (lambda n: (n.value,), lambda n, c: k.Let(n.local, *c)),
    k.Variable: (lambda n: (n.value,), lambda n, c: k.Variable(n.local, *c)),
    k.Assign: (operator.attrgetter("local", "value"), lambda n, c: k.Assign(*c)),
    k.StoreLocal: (operator.attrgetter("index", "value"), lambda n, c: k.StoreLocal(n.array, *c)),
    k.Store: (
        lambda n: (n.index, n.value) if n.streaming is None else (n.index, n.value, n.streaming),
        lambda n, c: k.Store(n.buffer, *c),
    ),
    k.Prefetch: (lambda n: (n.index,), lambda n, c: k.Prefetch(n.buffer, *c)),
    k.InsertHalf: (
        lambda n: (n.word, n.half, n.value),
        lambda n, c: k.InsertHalf(c[0], n.buffer, *c[1:]),
    ),
    k.StoreWord: (lambda n: (n.index, n.word), lambda n, c: k.StoreWord(n.buffer, *c)),
    k.FillMatrix: (lambda n: (n.value,), lambda n, c: k.FillMatrix(n.matrix, *c)),
    k.LoadMatrix: (lambda n: (n.index,), lambda n, c: dataclasses.replace(n, index=c[0])),
    k.StoreMatrix: (lambda n: (n.index,), lambda n, c: dataclasses.replace(n, index=c[0])),
    k.For: (
        operator.attrgetter("start", "stop"),
        lambda n, c: dataclasses.replace(n, start=c[0], stop=c[1]),
    ),
    k.If: (lambda n: (n.condition,), lambda n, c: k.If(c[0], n.then, n.rare)),
}
"""How each node gives its expressions, in evaluation order, and how a node with other expressions
is made from it. Nodes not listed have no expressions."""
_READ: dict[type[Any], _Read] = {kind: read for kind, (read, _) in _NODES.items()}
_MAKE: dict[type[Any], _Make] = {kind: make for kind, (_, make) in _NODES.items()}
for _kind in (*get_args(k.Expression), *get_args(k.Statement)):
    _READ.setdefault(_kind, lambda n: ())
_ASSIGNED: dict[type[Any], int] = {k.Assign: 0, k.InsertHalf: 0, k.StoreWord: 1}
"""Position of the expression that must remain a variable."""
_BODY: dict[type[Any], str] = {k.For: "body", k.If: "then"}
_MEMORY: dict[type[Any], tuple[str, ...]] = {
    kind: names
    for kind in (*get_args(k.Expression), *get_args(k.Statement))
    if (names := tuple(f.name for f in dataclasses.fields(kind) if f.type == "str"))
    and kind not in (k.Local, k.Scalar)
}
"""Fields of a node that name a buffer, an array or a matrix."""
_DEFINED: dict[type[Any], str] = {k.Let: "local", k.Variable: "local", k.For: "variable"}


def list_operands(expression: k.Expression) -> tuple[k.Expression, ...]:
    """Operands of an expression, in order."""
    return _READ[type(expression)](expression)


def map_operands(expression: k.Expression, change: Change) -> k.Expression:
    """Expression with changed operands; the same object if none changes."""
    kind = type(expression)
    if kind not in _MAKE:
        return expression
    operands = _READ[kind](expression)
    changed = tuple(map(change, operands))
    if all(map(operator.is_, operands, changed)):
        return expression
    return _MAKE[kind](expression, changed)


def walk(expression: k.Expression) -> Iterator[k.Expression]:
    """An expression and all its subexpressions."""
    pending = [expression]
    while pending:
        found = pending.pop()
        yield found
        # Passes spend much of their time here: most expressions have no operands.
        if type(found) in _MAKE:
            pending.extend(_READ[type(found)](found))


def walk_statements(statements: Iterable[k.Statement]) -> Iterator[k.Statement]:
    """Statements and their nested statements, in order."""
    for statement in statements:
        yield statement
        if type(statement) in _BODY:
            yield from walk_statements(find_body(statement))


def walk_parts(*statements: k.Statement) -> Iterator[k.Expression]:
    """Expressions of statements, without those of their bodies, with all subexpressions."""
    for statement in statements:
        for expression in list_expressions(statement):
            yield from walk(expression)


def list_expressions(statement: k.Statement) -> tuple[k.Expression, ...]:
    """Expressions of a statement, without those of its body and the local that it defines."""
    return _READ[type(statement)](statement)


def map_expressions(statement: k.Statement, change: Change) -> k.Statement:
    """Statement with changed expressions; the same object if none changes. Its body, and the local
    that it defines, are kept."""
    expressions = list_expressions(statement)
    changed = tuple(map(change, expressions))
    if all(map(operator.is_, expressions, changed)):
        return statement
    assigned = _ASSIGNED.get(type(statement))
    if assigned is not None and not isinstance(changed[assigned], k.Local):
        raise InternalError("a variable that is assigned was replaced by a value")
    return _MAKE[type(statement)](statement, changed)


def find_defined(statement: k.Statement) -> k.Local | None:
    """Local that a statement defines, for later statements or for its body."""
    name = _DEFINED.get(type(statement))
    return None if name is None else getattr(statement, name)


def define(statement: k.Statement, local: k.Local) -> k.Statement:
    """Statement that defines another local."""
    if isinstance(statement, k.Let | k.Variable):
        return type(statement)(local, statement.value)
    if not isinstance(statement, k.For):
        raise InternalError(f"a statement that defines nothing: {type(statement).__name__}")
    return dataclasses.replace(statement, variable=local)


def find_body(statement: k.Statement) -> tuple[k.Statement, ...]:
    """Body of a statement; empty if it has none."""
    name = _BODY.get(type(statement))
    return () if name is None else getattr(statement, name)


def replace_body(statement: k.Statement, body: Sequence[k.Statement]) -> k.Statement:
    """Statement with another body; the same object if it is identical."""
    before = find_body(statement)
    if len(body) == len(before) and all(map(operator.is_, body, before)):
        return statement
    if isinstance(statement, k.If):
        return dataclasses.replace(statement, then=tuple(body))
    if not isinstance(statement, k.For):
        raise InternalError(f"a statement without a body: {type(statement).__name__}")
    return dataclasses.replace(statement, body=tuple(body))


def map_body(
    statement: k.Statement,
    write: Callable[Concatenate[tuple[k.Statement, ...], More], Sequence[k.Statement]],
    *arguments: More.args,
    **named: More.kwargs,
) -> k.Statement:
    """Statement with what `write` makes of its body; the same object if it has none."""
    body = find_body(statement)
    return replace_body(statement, write(body, *arguments, **named)) if body else statement


def map_all(
    statements: Sequence[k.Statement],
    change: Change,
    finish: Callable[[k.Statement], k.Statement] = lambda statement: statement,
) -> tuple[k.Statement, ...]:
    """Statements with every expression changed, in nested statements too. `finish` gets each
    changed statement, and returns its replacement."""
    made: list[k.Statement] = []
    for statement in statements:
        changed = map_expressions(statement, change)
        made.append(finish(map_body(changed, map_all, change, finish)))
    return tuple(made)


def rename_memory(node: Node, names: Mapping[str, str]) -> Node:
    """Statement or expression that names other buffers, arrays and matrices, as far as `names` has
    them; the same object if it names none. Expressions and statements in it are kept."""
    fields = _MEMORY.get(type(node), ())
    changed = {field: names[name] for field in fields if (name := getattr(node, field)) in names}
    return dataclasses.replace(cast("Any", node), **changed) if changed else node


def name_values(values: Mapping[str, k.Expression]) -> Change:
    """Change of an expression that puts values in place of locals and scalars, by their names."""

    def change(expression: k.Expression) -> k.Expression:
        if isinstance(expression, k.Local | k.Scalar):
            return values.get(expression.name, expression)
        return map_operands(expression, change)

    return change


def substitute(statement: k.Statement, old: k.Local, new: k.Expression) -> k.Statement:
    """Statement with an expression in place of a local, in nested statements too."""
    return map_all((statement,), name_values({old.name: new}))[0]


def inline_single(
    statements: Sequence[k.Statement], known: Mapping[str, k.Expression] = MappingProxyType({})
) -> list[k.Statement]:
    """Statements with single-use values inlined: indices that are used in the block that defines
    them, or are one sum or product and used in an unrolled loop there; what the next statement
    stores to an array; and elements of arrays, where a local is computed from them before anything
    is stored. `known` are values from outside."""
    known, made = dict(known), list[k.Statement]()
    change = name_values(known)
    uses = Counter(_list_names(walk_parts(*walk_statements(statements))))
    here, near = set(_list_names(walk_parts(*statements))), set(_list_names(_walk_near(statements)))
    assigned = {s.local.name for s in walk_statements(statements) if isinstance(s, k.Assign)}

    def is_inlined(let: k.Let, after: Sequence[k.Statement]) -> bool:
        name = let.local.name
        if uses[name] != 1:
            return False
        if let.local.type.dtype is not DataType.INDEX:
            return _is_passed_on(let, after)
        return name in here or (name in near and _is_short(let.value, assigned))

    for number, statement in enumerate(statements):
        changed = map_expressions(statement, change)
        if isinstance(changed, k.Let) and is_inlined(changed, statements[number + 1 :]):
            known[changed.local.name] = changed.value
            continue
        made.append(map_body(changed, inline_single, known))
    return made


def _list_names(parts: Iterable[k.Expression]) -> Iterator[str]:
    """Names of the locals among some expressions."""
    return (part.name for part in parts if isinstance(part, k.Local))


def _is_passed_on(let: k.Let, after: Sequence[k.Statement]) -> bool:
    """Whether a value is just stored to an array by the statement after it, or is an element of one
    from which a local is computed before anything is stored."""
    match after:
        case [k.StoreLocal(value=value), *_] if value == let.local:
            return isinstance(let.value, k.Load | k.LoadLocal | k.Select)
        case _:
            lets = itertools.takewhile(lambda each: isinstance(each, k.Let), after)
            is_element = isinstance(let.value, k.LoadLocal)
            return is_element and any(let.local in walk_parts(each) for each in lets)


def _is_short(value: k.Expression, assigned: Container[str]) -> bool:
    """Whether an index is one operation on literals and immutable locals."""
    parts = list(walk(value))
    plain = all(isinstance(part, k.Local | k.Literal | k.Operate) for part in parts)
    return plain and len(parts) <= 3 and all(name not in assigned for name in _list_names(parts))


def _walk_near(statements: Sequence[k.Statement]) -> Iterator[k.Expression]:
    """Expressions of statements and of those in their unrolled loops and conditionals."""
    for statement in statements:
        yield from walk_parts(statement)
        if not isinstance(statement, k.For) or statement.unroll:
            yield from _walk_near(find_body(statement))


def drop_unused(statements: Sequence[k.Statement]) -> list[k.Statement]:
    """Statements without definitions of unused values."""
    used: set[str] = set()

    def drop(statements: Sequence[k.Statement]) -> list[k.Statement]:
        kept: list[k.Statement] = []
        for each in reversed(statements):
            if isinstance(each, k.Let) and each.local.name not in used:
                continue
            each = map_body(each, drop)
            used.update(p.name for p in walk_parts(each) if isinstance(p, k.Local))
            kept.append(each)
        return kept[::-1]

    return drop(statements)
