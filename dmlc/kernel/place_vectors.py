"""Says where vectors are in memory by a position that several have in common and a number.

Written by itself, the position of each is a sum like any other. Beside one that is known to be a
whole number of vectors, what is so many further is seen to be one, by people and by compilers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import (
    find_body,
    list_expressions,
    map_expressions,
    map_operands,
    replace_body,
    walk,
)


def place_vectors(kernel: k.Kernel, lanes: int) -> k.Kernel:
    """The same kernel, where each vector is read and stored so far from a place that several have
    in common: then that is seen to be a whole number of vectors. As it is, where vectors have no
    fixed number of lanes."""
    if lanes < 2:
        return kernel
    sums: dict[str, k.Expression] = {}
    used: dict[str, int] = {}

    def change(expression: k.Expression) -> k.Expression:
        made = map_operands(expression, change)
        if isinstance(made, k.Load) and made.type.lanes > 1:
            return k.Load(made.buffer, _look_through(made.index, sums), made.type)
        return made

    def write(statements: Sequence[k.Statement]) -> list[k.Statement]:
        made: list[k.Statement] = []
        for each in statements:
            statement = map_expressions(each, change)
            if isinstance(statement, k.Let) and statement.local.type == k.INDEX:
                sums[statement.local.name] = statement.value
            if isinstance(statement, k.Store) and statement.value.type.lanes > 1:
                place = _look_through(statement.index, sums)
                statement = dataclasses.replace(statement, index=place)
            inside = find_body(statement)
            made.append(replace_body(statement, write(inside)) if inside else statement)
        return made

    def count(statements: Sequence[k.Statement]) -> None:
        for each in statements:
            for expression in list_expressions(each):
                for part in walk(expression):
                    if isinstance(part, k.Local):
                        used[part.name] = used.get(part.name, 0) + 1
            count(find_body(each))

    def drop(statements: Sequence[k.Statement]) -> list[k.Statement]:
        kept: list[k.Statement] = []
        for each in statements:
            if (
                isinstance(each, k.Let)
                and each.local.type == k.INDEX
                and not used.get(each.local.name)
            ):
                continue
            inside = find_body(each)
            kept.append(replace_body(each, drop(inside)) if inside else each)
        return kept

    made = write(kernel.body)
    count(made)
    return dataclasses.replace(kernel, body=tuple(drop(made)))


def _look_through(index: k.Expression, sums: Mapping[str, k.Expression]) -> k.Expression:
    """A position as a local and a number, where it is a local that is such a sum."""
    match sums.get(index.name) if isinstance(index, k.Local) else None:
        case k.Operate(operands=(k.Local(), k.Literal())) as value if value.operation.name == "add":
            return value
        case _:
            return index
