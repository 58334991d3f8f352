"""Takes statements and expressions of the kernel IR apart, and puts them together changed."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from dmlc.kernel import nodes as k
from dmlc.source import InternalError

NUMBER = "#"
"""Stands between a wanted name and the number that tells it from others, in names as they are
first taken: no name of a tensor has it. `tidy` leaves none."""

Change: TypeAlias = Callable[[k.Expression], k.Expression]


def list_operands(expression: k.Expression) -> tuple[k.Expression, ...]:
    """What an expression is computed from, in order."""
    match expression:
        case k.Operate(operands=operands):
            return operands
        case k.Local() | k.Literal() | k.Scalar() | k.Position() | k.Numbers() | k.Lead():
            return ()
        case k.Load(index=index) | k.Element(index=index):
            return (index,)
        case (
            k.Convert(operand=operand)
            | k.Reinterpret(operand=operand)
            | k.Broadcast(operand=operand)
        ):
            return (operand,)
        case k.Choose():
            return expression.condition, expression.then, expression.otherwise
        case k.Join(low=low, high=high):
            return low, high
        case k.Shuffle(first=first, second=second):
            return first, second


def map_operands(expression: k.Expression, change: Change) -> k.Expression:
    """The same expression of changed operands: itself, where none of them changes."""
    operands = list_operands(expression)
    changed = tuple(map(change, operands))
    if all(map(operator.is_, operands, changed)):
        return expression
    match expression:
        case k.Operate(operation=operation):
            return k.Operate(operation, changed, expression.type)
        case k.Load(buffer=buffer):
            return k.Load(buffer, changed[0], expression.type)
        case k.Element(array=array):
            return k.Element(array, changed[0], expression.type)
        case k.Convert():
            return k.Convert(changed[0], expression.type)
        case k.Reinterpret():
            return k.Reinterpret(changed[0], expression.type)
        case k.Broadcast():
            return k.Broadcast(changed[0], expression.type)
        case k.Choose():
            condition, then, otherwise = changed
            return k.Choose(condition, then, otherwise, expression.type)
        case k.Join():
            low, high = changed
            return k.Join(low, high, expression.type)
        case k.Shuffle(lanes=lanes):
            first, second = changed
            return k.Shuffle(first, second, lanes, expression.type)
        case k.Local() | k.Literal() | k.Scalar() | k.Position() | k.Numbers() | k.Lead():
            return expression


def walk(expression: k.Expression) -> Iterator[k.Expression]:
    """An expression and all that it is computed from."""
    pending = [expression]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(list_operands(found))


def list_expressions(statement: k.Statement) -> tuple[k.Expression, ...]:
    """The expressions of a statement itself, not of those in its body. What it defines is none."""
    match statement:
        case k.Let(value=value) | k.Variable(value=value):
            return (value,)
        case k.Assign(local=local, value=value):
            return local, value
        case k.Put(index=index, value=value):
            return index, value
        case k.Store(index=index, value=value, streaming=streaming):
            return (index, value) if streaming is None else (index, value, streaming)
        case k.Prefetch(index=index):
            return (index,)
        case k.PutHalf(word=word, half=half, value=value):
            return word, half, value
        case k.StoreWord(index=index, word=word):
            return index, word
        case k.For(start=start, stop=stop):
            return start, stop
        case k.If(condition=condition):
            return (condition,)
        case k.Halve() | k.Barrier():
            return ()


def map_expressions(statement: k.Statement, change: Change) -> k.Statement:
    """The same statement of changed expressions: itself, where none of them changes. Its body, and
    what it defines, stay."""
    expressions = list_expressions(statement)
    changed = tuple(map(change, expressions))
    if all(map(operator.is_, expressions, changed)):
        return statement
    match statement:
        case k.Let(local=local):
            return k.Let(local, *changed)
        case k.Variable(local=local):
            return k.Variable(local, *changed)
        case k.Assign():
            return k.Assign(_local(changed[0]), changed[1])
        case k.Put(array=array):
            return k.Put(array, *changed)
        case k.Store(buffer=buffer):
            return k.Store(buffer, *changed)
        case k.Prefetch(buffer=buffer):
            return k.Prefetch(buffer, *changed)
        case k.PutHalf(buffer=buffer):
            return k.PutHalf(_local(changed[0]), buffer, *changed[1:])
        case k.StoreWord(buffer=buffer):
            return k.StoreWord(buffer, changed[0], _local(changed[1]))
        case k.For():
            return dataclasses.replace(statement, start=changed[0], stop=changed[1])
        case k.If(then=then):
            return k.If(changed[0], then)
        case k.Halve() | k.Barrier():
            return statement


def find_defined(statement: k.Statement) -> k.Local | None:
    """What a statement defines, for those after it or for its body."""
    match statement:
        case k.Let(local=local) | k.Variable(local=local):
            return local
        case k.For(variable=variable) | k.Halve(variable=variable):
            return variable
        case _:
            return None


def define(statement: k.Statement, local: k.Local) -> k.Statement:
    """The same statement, which defines another local."""
    match statement:
        case k.Let() | k.Variable():
            return dataclasses.replace(statement, local=local)
        case k.For() | k.Halve():
            return dataclasses.replace(statement, variable=local)
        case _:
            raise InternalError(f"a statement that defines nothing: {type(statement).__name__}")


def find_body(statement: k.Statement) -> tuple[k.Statement, ...]:
    """The statements in a statement."""
    match statement:
        case k.For(body=body) | k.Halve(body=body):
            return body
        case k.If(then=then):
            return then
        case _:
            return ()


def replace_body(statement: k.Statement, body: Sequence[k.Statement]) -> k.Statement:
    """The same statement with others in it: itself, where they are those that it has."""
    before = find_body(statement)
    if len(body) == len(before) and all(map(operator.is_, body, before)):
        return statement
    match statement:
        case k.For() | k.Halve():
            return dataclasses.replace(statement, body=tuple(body))
        case k.If(condition=condition):
            return k.If(condition, tuple(body))
        case _:
            raise InternalError(f"a statement without a body: {type(statement).__name__}")


def _local(expression: k.Expression) -> k.Local:
    if not isinstance(expression, k.Local):
        raise InternalError("a variable that is assigned was replaced by a value")
    return expression
