"""Limits on the depth and length of a text, checked while its tokens are read. Text nested too deep
is refused at once, so that the cost of a refusal does not depend on what follows. `build` measures
the exact depth of the tree."""

from __future__ import annotations

import re

from dmlc.language.grammar import Token
from dmlc.source import Note

MAX_DEPTH = 200
"""Deepest expression: parentheses, calls and operators in a chain each add a level."""
MAX_NAME = 128
"""The longest name, in characters."""
LARGEST_INTEGER = 2**64 - 1
"""The largest whole number: that of UINT64."""
MAX_TOKENS = 100_000
"""Largest number of tokens: words, numbers, marks, table cells and comments."""

TOO_DEEP = f"this expression is nested deeper than {MAX_DEPTH} levels"
TOO_DEEP_CURE = "give parts of it a name"
TOO_LONG = f"the file has more than {MAX_TOKENS} words and marks"
TOO_LONG_CURE = "declare its parts in files that it imports"

_LEVELS = {
    "QMARK": 0, "OR": 1, "AND": 2, "EQUALITY": 3, "COMPARISON": 4, "PLUS": 5, "MINUS": 5,
    "STAR": 6, "SLASH": 6, "PERCENT": 6,
}  # fmt: skip
_LAST = 7
"""Index of the last count: one per precedence of operators, and one for postfix `.`, `[` and
`(`."""
_OPENING = ("LPAR", "LSQB")
_CLOSING = ("RPAR", "RSQB")
_VALUES = {"NAME", "INTEGER", "FLOAT", "CONSTANT", "STRING", *_CLOSING}
"""Last tokens of a value: a '-' after one subtracts, any other is a sign."""
_WITHIN = {*_VALUES, "PACK", "NOT", "ELSE"}
"""Tokens inside an expression; any other ends a chain of operators."""


_PIECE = re.compile(
    r"""
      "[^"\\]*+(?:\\.[^"\\]*+)*(?:"|$) | //[^\n]*+ | /\*(?:.*?\*/|.*)
    | \|(?!\|)[^\n]*\|
    | [0-9][A-Za-z0-9_.]*+ | [A-Za-z_][A-Za-z0-9_]*+ | \.\.\. | [=<>!&|]{1,2} | \S
    """,
    re.DOTALL | re.VERBOSE,
)


def is_too_long(text: str) -> bool:
    """Whether a text has more than `MAX_TOKENS` tokens, without parsing it."""
    count = 0
    for match in _PIECE.finditer(text):
        count += 1 if text[match.start()] != "|" else text.count("|", *match.span())
        if count > MAX_TOKENS:
            return True
    return False


class Excess(Exception):
    """Raised at the token that exceeds a limit."""

    def __init__(self, message: str, cure: str, token: Token) -> None:
        super().__init__(message)
        self.message = message
        self.notes = (Note(cure),)
        self.token = token


class Limits:
    """Counter of tokens, open brackets and operators in a chain. It refuses nothing whose tree is
    within the limits."""

    def __init__(self) -> None:
        self.tokens = 0
        self.rows: list[list[int]] = [[0] * (_LAST + 1)]
        """Operators since the last separator in each open bracket, by precedence from the
        loosest."""
        self.signs = 0
        self.after_value = False

    def see(self, token: Token) -> None:
        """Counts one more token. Raises `Excess`."""
        kind = token.type
        self.tokens += token.count("|") if kind == "TABLE_ROW" else 1
        if self.tokens > MAX_TOKENS:
            raise Excess(TOO_LONG, TOO_LONG_CURE, token)
        sign = kind == "NOT" or (kind == "MINUS" and not self.after_value)
        self.signs = self.signs + 1 if sign else 0
        self.after_value = kind in _VALUES
        if self.signs > MAX_DEPTH or (not sign and self.count(kind)):
            raise Excess(TOO_DEEP, TOO_DEEP_CURE, token)

    def count(self, kind: str) -> bool:
        """Counts an operator that is no sign; returns whether the limit is exceeded."""
        row = self.rows[-1]
        if kind in _LEVELS:
            level = _LEVELS[kind]
            row[level] += 1
            row[level + 1 :] = [0] * (_LAST - level)
            return row[level] > MAX_DEPTH
        if kind in _OPENING:
            self.rows.append([0] * (_LAST + 1))
            return len(self.rows) > MAX_DEPTH + 1
        if kind in _CLOSING and len(self.rows) > 1:
            self.rows.pop()
        if kind == "DOT" or kind in _CLOSING:
            self.rows[-1][_LAST] += 1
            return self.rows[-1][_LAST] > 2 * MAX_DEPTH
        if kind == "COLON":
            row[1:] = [0] * _LAST
        elif kind not in _WITHIN:
            self.rows[-1] = [0] * (_LAST + 1)
        return False
