"""Spelled code: text that knows how it goes into other text."""

from __future__ import annotations

from typing import NamedTuple

from dmlc.kernel.infix import needs_parentheses


class Text(NamedTuple):
    """Spelled code. A vector of booleans is a mask of integers `mask` bytes wide."""

    text: str
    compound: bool = False
    mask: int = 0
    pieces: tuple[str, ...] = ()
    """The same text where a long line may be broken."""
    operator: str = ""
    """The operator of infix text that is nothing but two operands and it."""
    promoted: bool = False
    """Whether the language takes it for a wider type than it has, and a call for another one."""
    known: bool = False
    """Whether a compiler knows the value once it has unrolled loops: see `Zeros`."""

    def beside(self, operator: str, *, is_first: bool) -> str:
        """As an operand of an operator, on its left or on its right."""
        if self.operator and not needs_parentheses(self.operator, operator, is_first=is_first):
            return self.text
        return self.inner

    @property
    def inner(self) -> str:
        """As an operand of infix text."""
        return f"({self.text})" if self.compound else self.text

    @property
    def bare(self) -> str:
        """Without the parentheses that a negative literal carries, where others follow anyway."""
        inside = self.text[1:-1]
        if self.text.startswith("(-") and self.text.endswith(")") and "(" not in inside:
            return inside
        return self.text
