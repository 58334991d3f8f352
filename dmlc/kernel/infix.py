"""Parentheses of infix text: omitted where all readers agree on the precedence.

Some that a compiler could do without are kept: around quotients and remainders in products, sums in
shifts, and comparisons in comparisons.
"""

from __future__ import annotations

_SUMS = ("+", "-")
_PRODUCTS = ("*", "/", "%")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_LOGICAL = ("&&", "||")


def needs_parentheses(operand: str, outer: str, *, is_first: bool) -> bool:
    """Whether an operand with the operator `operand` needs parentheses as an operand of `outer`;
    `is_first` means the left one. An empty operator is unknown.

    Omitting them never changes the order of float additions and multiplications.
    """
    if outer in _SUMS:
        return not (operand in _PRODUCTS or (operand in _SUMS and is_first))
    if outer in _PRODUCTS:
        return not (operand == outer == "*" and is_first)
    if outer in _COMPARISONS:
        return operand not in (*_SUMS, *_PRODUCTS)
    if outer in _LOGICAL:
        return not (operand in _COMPARISONS or (operand == outer and is_first))
    return True
