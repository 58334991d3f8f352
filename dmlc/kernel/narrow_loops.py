"""Has loops that fill arrays start and stop where their conditions begin and cease to hold.

A loop that packs a window into a panel would test at each point whether it lies in the padding.
Where the condition compares the loop's variable, and what stays as it is, the range says it once,
and what is left is a plain copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import guard, operate
from dmlc.kernel.rewrite import NUMBER, find_body, replace_body
from dmlc.kernel.sums import Sum, add_up, join
from dmlc.scalars import DataType


def narrow_loops(kernel: k.Kernel) -> k.Kernel:
    """The same kernel with shorter loops. As it is, where positions have no sign: bounds may lie
    before the first point."""
    if not kernel.index_signed:
        return kernel
    return dataclasses.replace(kernel, body=tuple(_Narrowing().write(kernel.body)))


class _Narrowing:
    def __init__(self) -> None:
        self._count = 0

    def write(self, statements: Sequence[k.Statement]) -> list[k.Statement]:
        made: list[k.Statement] = []
        for statement in statements:
            body = find_body(statement)
            if body:
                statement = replace_body(statement, self.write(body))
            if isinstance(statement, k.For) and not statement.backwards and statement.step == 1:
                made += self._narrow(statement)
            else:
                made.append(statement)
        return made

    def _narrow(self, loop: k.For) -> list[k.Statement]:
        """A loop, after what its range is computed from."""
        match loop.body:
            case (*before, k.If(condition=condition, then=then)):
                pass
            case _:
                return [loop]
        lets = [s for s in before if isinstance(s, k.Let) and _is_free(s.value)]
        if len(lets) < len(before) or not all(isinstance(s, k.Let | k.StoreLocal) for s in then):
            return [loop]
        known: dict[str, Sum] = {}
        conditions = {let.local.name: let.value for let in lets}
        for let in lets:
            if let.local.type == k.INDEX:
                known[let.local.name] = add_up(let.value, known)
        inside = {let.local for let in lets}
        starts, stops, rest = [loop.start], [loop.stop], list[k.Expression]()
        for part in _part(condition, conditions):
            bound = _find_bound(part, loop.variable, known)
            if bound is None or inside & bound[1].terms.keys():
                rest.append(part)
            else:
                (starts if bound[0] else stops).append(bound[1].express())
        if len(starts) + len(stops) == 2:
            return [loop]
        made: list[k.Statement] = []
        first = self._name(made, "from", "max", starts)
        last = self._name(made, "to", "min", stops)
        body = (*before, *guard(rest, then))
        return [*made, dataclasses.replace(loop, start=first, stop=last, body=body)]

    def _name(
        self, made: list[k.Statement], name: str, operation: str, values: Sequence[k.Expression]
    ) -> k.Expression:
        found = values[0]
        for value in values[1:]:
            found = operate(operation, found, value)
        if len(values) == 1:
            return found
        self._count += 1
        local = k.Local(f"{name}{NUMBER}n{self._count}", k.INDEX)
        made.append(k.Let(local, found))
        return local


def _is_free(value: k.Expression) -> bool:
    """Whether a value is arithmetic on positions alone, or what is true of them."""
    match value:
        case k.Local() | k.Literal() | k.Scalar():
            return value.type.dtype in (DataType.INDEX, DataType.BOOL)
        case k.Operate(operands=operands):
            return value.type.dtype in (DataType.INDEX, DataType.BOOL) and all(
                map(_is_free, operands)
            )
        case _:
            return False


def _part(condition: k.Expression, named: dict[str, k.Expression]) -> list[k.Expression]:
    """The conditions that one joins by `and`."""
    match condition:
        case k.Local(name=name) if name in named:
            return _part(named[name], named)
        case k.Operate(operation=operation, operands=(left, right)) if operation.name == "and":
            return [*_part(left, named), *_part(right, named)]
        case _:
            return [condition]


def _find_bound(
    condition: k.Expression, variable: k.Local, known: dict[str, Sum]
) -> tuple[bool, Sum] | None:
    """Whether a condition says where a loop starts, and where it starts or stops by it; None where
    it says neither."""
    match condition:
        case k.Operate(operation=operation, operands=(left, right)) if left.type == k.INDEX:
            gone = join(add_up(right, known), add_up(left, known), -1)
        case _:
            return None
    # What is 0 or more by the condition, or more than 0, goes down by one from point to point.
    if operation.name not in ("lt", "ge") or abs(gone.terms.get(variable, 0)) != 1:
        return None
    if any(_reads(term, variable) for term in gone.terms if term != variable):
        return None
    others, rises = gone.without(variable), gone.terms[variable] > 0
    if rises:
        return None
    return operation.name == "ge", others


def _reads(expression: k.Expression, variable: k.Local) -> bool:
    operands = expression.operands if isinstance(expression, k.Operate) else ()
    return expression == variable or any(_reads(o, variable) for o in operands)
