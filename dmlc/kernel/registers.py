"""Replaces register arrays by locals, once all their indices are constants.

An element becomes a scalar local, or neighbours become a vector local if they are accessed
together.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import widen, zero_of
from dmlc.kernel.expand import list_arrays
from dmlc.kernel.rewrite import (
    NUMBER,
    find_body,
    map_body,
    map_expressions,
    map_operands,
    walk_statements,
)
from dmlc.source import InternalError


def name_registers(kernel: k.Kernel) -> k.Kernel:
    """Kernel without register arrays, except those indexed by loops that the output language's
    compiler unrolls."""
    turned = find_turned(kernel)
    arrays = {a.name: a for a in kernel.arrays if a.registers and a.name not in turned}
    if not arrays:
        return kernel
    return dataclasses.replace(
        kernel,
        body=tuple(_Registers(arrays, kernel.body).write(kernel.body)),
        arrays=tuple(a for a in kernel.arrays if a.name not in arrays),
    )


def find_turned(kernel: k.Kernel) -> set[str]:
    """Arrays indexed in loops that are to be unrolled."""
    loops = [s for s in walk_statements(kernel.body) if isinstance(s, k.For) and s.unroll]
    return {name for loop in loops for name in list_arrays(loop.body)}


class _Registers:
    def __init__(self, arrays: dict[str, k.Array], body: Sequence[k.Statement]) -> None:
        self._lanes = dict.fromkeys(arrays, 1)
        self._arrays = arrays
        for statement in walk_statements(body):
            if isinstance(statement, k.StoreLocal) and statement.array in self._lanes:
                self._lanes[statement.array] = statement.value.type.lanes
        self._uses = Counter(list_arrays(body))
        self._known: dict[tuple[str, int], k.Local] = {}
        """Local of each part of an array, by the part's number."""

    def write(self, statements: Sequence[k.Statement]) -> list[k.Statement]:
        """Statements with locals in place of arrays. A local is defined at the first store to it,
        or before the conditional or loop around that if it is also used outside, and is visible
        until the end of the block."""
        made, known = list[k.Statement](), dict(self._known)
        for statement in statements:
            made += self._begin(find_body(statement))
            changed = map_expressions(statement, self._change)
            changed = map_body(changed, self.write)
            if isinstance(changed, k.StoreLocal) and changed.array in self._arrays:
                part = self._find_part(changed.array, changed.index)
                kind = k.Assign if part in self._known else k.Variable
                local = self._known.setdefault(part, self._name(part))
                changed = kind(local, changed.value)
            made.append(changed)
        self._known = known
        return made

    def _begin(self, body: Sequence[k.Statement]) -> list[k.Statement]:
        """Definitions of locals for arrays that are used both in a body and outside it."""
        made: list[k.Statement] = []
        for array, count in Counter(list_arrays(body)).items():
            if array not in self._arrays or count == self._uses[array]:
                continue
            for number in range(self._arrays[array].size // self._lanes[array]):
                if (array, number) not in self._known:
                    local = self._known[array, number] = self._name((array, number))
                    zero = widen(zero_of(local.type.dtype), local.type.lanes)
                    made.append(k.Variable(local, zero))
        return made

    def _name(self, part: tuple[str, int]) -> k.Local:
        array, number = part
        kind = k.Type(self._arrays[array].dtype, self._lanes[array])
        return k.Local(f"{array}{NUMBER}r{number}", kind)

    def _find_part(self, array: str, index: k.Expression) -> tuple[str, int]:
        if not isinstance(index, k.Literal):
            raise InternalError(f"a register of '{array}' is looked for where no place is known")
        return array, int(index.value) // self._lanes[array]

    def _change(self, expression: k.Expression) -> k.Expression:
        if not isinstance(expression, k.LoadLocal) or expression.array not in self._arrays:
            return map_operands(expression, self._change)
        array, lanes = expression.array, self._lanes[expression.array]
        local = self._known[self._find_part(array, expression.index)]
        if expression.type.lanes == lanes:
            return local
        if not isinstance(expression.index, k.Literal) or lanes > 1 < expression.type.lanes:
            raise InternalError(f"registers of '{array}' are read in several widths")
        first = int(expression.index.value)
        if lanes > 1:
            return k.Extract(local, (first % lanes,), expression.type)
        return self._gather(array, range(first, first + expression.type.lanes))

    def _gather(self, array: str, places: range) -> k.Expression:
        """Vector of scalar registers."""
        if len(places) == 1:
            return self._known[array, places[0]]
        half = len(places) // 2
        low, high = self._gather(array, places[:half]), self._gather(array, places[half:])
        return k.Join(low, high, k.Type(low.type.dtype, len(places)))
