"""Which operands of infix text may stand without parentheses: where C and everybody agree.

What a compiler could do without but a reader could not keeps them: quotients and remainders in
products, sums in shifts, one comparison in another.
"""

from __future__ import annotations

_SUMS = ("+", "-")
_PRODUCTS = ("*", "/", "%")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_LOGICAL = ("&&", "||")


def needs_parentheses(operand: str, outer: str, *, is_first: bool) -> bool:
    """Whether an operand whose own operator is `operand` needs parentheses beside `outer`;
    `is_first` says that it stands to the left. An empty operator is one that is not known.

    Without them the operands of floats are added and multiplied in the same order.
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
