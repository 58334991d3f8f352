"""Final cleanup of a kernel for readability: common subexpressions, names, constant folding.

Phases and loops are lowered one by one, each as if it were alone. This pass reuses values of outer
scopes, and numbers a name only if another of that name is visible. It folds expressions of
literals, and puts literals at their uses: a dialect may spell some in its own way, and drivers fold
by rules of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence

import numpy as np

from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import (
    NUMBER,
    define,
    find_body,
    find_defined,
    map_body,
    map_expressions,
    map_operands,
    rename_memory,
    replace_body,
    walk,
)
from dmlc.scalars import Array, DataType, convert


def clean_up(kernel: k.Kernel) -> k.Kernel:
    """Equivalent kernel, cleaned up for readers."""
    taken = dict.fromkeys([b.name for b in kernel.buffers], 0)
    taken |= dict.fromkeys([s.name for s, _ in kernel.scalars], 0)
    arrays = {array.name: _find_unused_name(array.name, taken) for array in kernel.arrays}
    matrices = {matrix.name: _find_unused_name(matrix.name, taken) for matrix in kernel.matrices}
    fixed = {b.name for b in kernel.buffers if b.access is k.Access.READ}
    return dataclasses.replace(
        kernel,
        body=_Naming(fixed, arrays | matrices).write(kernel.body, {}, {}, taken),
        arrays=tuple(dataclasses.replace(a, name=arrays[a.name]) for a in kernel.arrays),
        matrices=tuple(dataclasses.replace(m, name=matrices[m.name]) for m in kernel.matrices),
    )


class _Naming:
    """Rewriter that eliminates recomputation of visible, unchanged values, and gives every local
    the shortest unused name."""

    def __init__(self, fixed: Container[str], memory: Mapping[str, str]) -> None:
        self._fixed = fixed
        """Buffers that the kernel does not write."""
        self._memory = memory
        """New names of arrays and matrices."""
        self._variables: set[k.Local] = set()
        self._places: dict[k.Local, k.Expression] = {}
        """Definitions of the visible index locals, by their new names."""

    def write(
        self,
        statements: Sequence[k.Statement],
        names: Mapping[str, k.Local | k.Literal],
        known: Mapping[k.Expression, k.Local],
        taken: dict[str, int],
    ) -> tuple[k.Statement, ...]:
        """Statements with new names. `names` maps visible old names to new locals, `known` maps
        values to the locals that hold them, and `taken` has the last number used for each name."""
        names, known, taken = dict(names), dict(known), dict(taken)

        def change(expression: k.Expression) -> k.Expression:
            match expression:
                case k.Local(name=name):
                    return names[name]
                case k.Literal():
                    return expression
                case k.LoadLocal():
                    return rename_memory(map_operands(expression, change), self._memory)
                case _:
                    return _fold(map_operands(expression, change))

        made: list[k.Statement] = []
        for each in statements:
            if isinstance(each, k.Let):
                value, wanted = change(each.value), each.local
                found, stays, plain = None, self._stays(value), self._spell_out(value)
                if stays:
                    found = value if isinstance(value, k.Local | k.Literal) else known.get(plain)
                if found is not None:
                    names[wanted.name] = found
                    continue
                given = k.Local(_find_unused_name(wanted.name, taken), wanted.type)
                names[wanted.name] = given
                self._variables.discard(given)
                self._places.pop(given, None)
                if stays:
                    known[plain] = given
                    if given.type == k.INDEX:
                        self._places[given] = value
                made.append(k.Let(given, value))
                continue
            statement = map_expressions(each, change)
            statement = rename_memory(statement, self._memory)
            local, body = find_defined(statement), find_body(statement)
            if local is None:
                made.append(map_body(statement, self.write, names, known, taken))
                continue
            # A loop's variable is visible in its body alone.
            around = dict(taken) if body else taken
            given = k.Local(_find_unused_name(local.name, around), local.type)
            self._places.pop(given, None)
            statement = define(statement, given)
            if body:
                inside = {**names, local.name: given}
                statement = replace_body(statement, self.write(body, inside, known, around))
            else:
                names[local.name] = given
                self._variables.add(given)
            made.append(statement)
        return tuple(made)

    def _spell_out(self, value: k.Expression) -> k.Expression:
        """Value with index locals replaced by their definitions, as a key of loads of the same
        element."""
        if isinstance(value, k.Load) and isinstance(value.index, k.Local):
            return dataclasses.replace(value, index=self._places.get(value.index, value.index))
        return value

    def _stays(self, value: k.Expression) -> bool:
        """Whether a value is immutable while its locals are visible."""
        for each in walk(value):
            match each:
                case k.Local():
                    stays = not self._variables or each not in self._variables
                case k.Load(buffer=buffer):
                    stays = buffer in self._fixed
                case _:
                    stays = not isinstance(each, k.LoadLocal)
            if not stays:
                return False
        return True


def _fold(expression: k.Expression) -> k.Expression:
    """Literal for an expression of literals, if all devices compute it alike."""
    match expression:  # The most common cases come first.
        case k.Operate(operation=operation, operands=operands):
            literals = [o for o in operands if isinstance(o, k.Literal)]
            if operation.transcendental or len(literals) < len(operands):
                return expression
            values = [np.array([o.value], o.type.dtype.dtype) for o in literals]
            with np.errstate(all="ignore"):
                return _literal(expression, np.asarray(operation.evaluate(*values)))
        case k.Convert(operand=k.Literal(type=source, value=value), type=target):
            made = convert(np.array([value], source.dtype.dtype), target.dtype)
            return _literal(expression, made)
        case k.Select(condition=k.Literal(value=holds)):
            return expression.then if holds else expression.otherwise
        case _:
            return expression


def _literal(expression: k.Expression, made: Array) -> k.Expression:
    """Literal of the expression's type, if the index type holds an index; else the expression."""
    value = made[0].item()
    if expression.type.dtype is DataType.INDEX and not 0 <= value < 2**31:
        return expression
    return k.Literal(expression.type, value)


def _find_unused_name(name: str, taken: dict[str, int]) -> str:
    """Unused name: `name`, or with a number. `taken` has the last number used for each name."""
    wanted = chosen = name.partition(NUMBER)[0]
    if wanted in taken:
        number = taken[wanted]
        while chosen in taken:
            number += 1
            chosen = f"{wanted}_{number}"
        taken[wanted] = number
    taken[chosen] = 0
    return chosen
