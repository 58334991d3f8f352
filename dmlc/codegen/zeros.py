"""Run-time zeros, for dialects that have them.

Drivers were observed to fold the product with a known zero to 0, and a quotient by one to any
value, whatever the other operand is. A zero is known if it is a literal, or becomes one when a loop
is unrolled.
"""

from __future__ import annotations

import math

from dmlc.codegen.dialect import Dialect
from dmlc.codegen.names import Mangler
from dmlc.codegen.text import Text
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import find_repeated
from dmlc.scalars import DataType


class Zeros:
    """Run-time zeros of one kernel."""

    def __init__(self, dialect: Dialect, mangler: Mangler) -> None:
        self._dialect = dialect
        self._names = mangler
        self._used: dict[DataType, str] = {}
        self._known: set[str] = set()
        """Locals whose values compilers know after unrolling loops."""

    def declare(self) -> list[str]:
        """Declarations of the zeros that were used."""
        if not self._used:
            return []
        note = "// Always 0: drivers take a literal's product for 0, whatever the other factor."
        dialect, form = self._dialect, self._dialect.syntax.local
        named = [
            f"{dialect.declare(form, name, dialect.types[dtype], dtype)} = {dialect.zeros[dtype]};"
            for dtype, name in self._used.items()
        ]
        return [note, *named]

    def note(self, local: k.Local, *, known: bool) -> None:
        """Records whether a local's value is known; it replaces an earlier local of that name."""
        if known:
            self._known.add(local.name)
        else:
            self._known.discard(local.name)

    def hide(self, operand: k.Expression) -> Text | None:
        """Run-time zero in place of a literal zero, broadcast or not, if the dialect has one. It is
        a scalar also in place of a vector."""
        literal = find_repeated(operand)
        if not isinstance(literal, k.Literal) or literal.value != 0:
            return None
        dtype = literal.type.dtype
        if dtype not in self._dialect.zeros:
            return None
        name, syntax = self._name(dtype), self._dialect.syntax
        is_negative = math.copysign(1, literal.value) < 0
        made = Text(f"-{name}", compound=True) if is_negative else Text(name)
        if operand.type.lanes > 1 and not syntax.widens:
            vector = syntax.vector.format(T=self._dialect.types[dtype], n=operand.type.lanes)
            return Text(syntax.repeated.format(T=vector, a=made.text))
        return made

    def _name(self, dtype: DataType) -> str:
        """Name of the run-time zero of a type."""
        if dtype not in self._used:
            self._used[dtype] = self._names.make("zero")
        return self._used[dtype]

    def add(self, dtype: DataType, made: Text) -> Text:
        """Value plus a run-time zero, if the dialect hides zeros, so that a compiler cannot deduce
        it to be zero. It must not be -0."""
        if dtype not in self._dialect.zeros:
            return made
        text = f"{made.beside('+', is_first=True)} + {self._name(dtype)}"
        return Text(text, compound=True, operator="+")

    @staticmethod
    def may_become(operand: k.Expression) -> bool:
        """Whether a compiler may deduce from the operand that it is zero."""
        return isinstance(find_repeated(operand), k.Operate | k.Local)

    def is_known(self, local: k.Local) -> bool:
        """Whether a compiler knows a local's value after unrolling loops."""
        return local.name in self._known

    def hide_beside(self, side: k.Expression, other: k.Expression, *, known: bool) -> Text | None:
        """Run-time zero for one side of a choice whose condition is `known`, which a compiler may
        evaluate itself, or whose other side is 1: drivers turn such a choice into a converted
        condition, or for -1 into its negative, which loses the zero's sign."""
        if known:
            return self.hide(side)
        zero, one = find_repeated(side), find_repeated(other)
        if not isinstance(zero, k.Literal) or not isinstance(one, k.Literal):
            return None
        if zero.value != 0 or abs(one.value) != 1:
            return None
        kept = one.value == 1 and math.copysign(1, zero.value) > 0
        return None if kept else self.hide(side)
