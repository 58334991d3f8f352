"""Code fragments with the properties that matter when they are nested in others."""

from __future__ import annotations

from typing import NamedTuple

from dmlc.kernel.infix import needs_parentheses


class Text(NamedTuple):
    """Code fragment of an expression. A vector of booleans is a mask of integers `mask` bytes
    wide."""

    text: str
    compound: bool = False
    mask: int = 0
    pieces: tuple[str, ...] = ()
    """Text in pieces, between which a long line may be broken."""
    operator: str = ""
    """Operator of infix text with just two operands; else empty."""
    promoted: bool = False
    """Whether the language promotes it to a wider type, and overload resolution to another
    function."""
    known: bool = False
    """Whether a compiler knows the value after unrolling loops; see `Zeros`."""

    def beside(self, operator: str, *, is_first: bool) -> str:
        """Text as the left or the right operand of an operator."""
        if self.operator and not needs_parentheses(self.operator, operator, is_first=is_first):
            return self.text
        return self.inner

    @property
    def inner(self) -> str:
        """Text as an operand of infix text."""
        return f"({self.text})" if self.compound else self.text

    @property
    def bare(self) -> str:
        """Text without the parentheses of a negative literal, where others follow anyway."""
        inside = self.text[1:-1]
        if self.text.startswith("(-") and self.text.endswith(")") and "(" not in inside:
            return inside
        return self.text
