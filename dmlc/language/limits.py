"""How deep and how long a text may be, found while its tokens are read.

What nests too deep is refused before it is read to its end, so that the refusal costs the same
whatever follows. `build` measures the exact depth of what this lets pass.
"""

from __future__ import annotations

import re

from dmlc.language.grammar import Token
from dmlc.source import Note

MAX_DEPTH = 200
"""The deepest expression: parentheses, calls and operators in a row each add a level."""
MAX_NAME = 128
"""The longest name, in characters."""
LARGEST_INTEGER = 2**64 - 1
"""The largest whole number: that of UINT64."""
MAX_TOKENS = 100_000
"""How many words, numbers, marks, table cells and comments a text may have."""

TOO_DEEP = f"this expression is nested deeper than {MAX_DEPTH} levels"
TOO_DEEP_CURE = "give parts of it a name"
TOO_LONG = f"the file has more than {MAX_TOKENS} words and marks"
TOO_LONG_CURE = "declare its parts in files that it imports"

_LEVELS = {
    "QMARK": 0, "OR": 1, "AND": 2, "EQUALITY": 3, "COMPARISON": 4, "PLUS": 5, "MINUS": 5,
    "STAR": 6, "SLASH": 6, "PERCENT": 6,
}  # fmt: skip
_LAST = 7
"""One count per level of operators, and one for what stands behind a value: `.`, `[` and `(`."""
_OPENING = ("LPAR", "LSQB")
_CLOSING = ("RPAR", "RSQB")
_VALUES = {"NAME", "INTEGER", "FLOAT", "CONSTANT", "STRING", *_CLOSING}
"""What a value may end with: a '-' behind it subtracts, any other is a sign."""
_WITHIN = {*_VALUES, "PACK", "NOT", "ELSE"}
"""What may stand inside one expression; any other token ends a row of operators."""


_PIECE = re.compile(
    r"""
      "[^"\\]*+(?:\\.[^"\\]*+)*(?:"|$) | //[^\n]*+ | /\*(?:.*?\*/|.*)
    | \|(?!\|)[^\n]*\|
    | [0-9][A-Za-z0-9_.]*+ | [A-Za-z_][A-Za-z0-9_]*+ | \.\.\. | [=<>!&|]{1,2} | \S
    """,
    re.DOTALL | re.VERBOSE,
)


def is_too_long(text: str) -> bool:
    """Whether a text has more than `MAX_TOKENS` pieces, told without parsing it."""
    count = 0
    for match in _PIECE.finditer(text):
        count += 1 if text[match.start()] != "|" else text.count("|", *match.span())
        if count > MAX_TOKENS:
            return True
    return False


class Excess(Exception):
    """A text goes beyond a limit at a token."""

    def __init__(self, message: str, cure: str, token: Token) -> None:
        super().__init__(message)
        self.message = message
        self.notes = (Note(cure),)
        self.token = token


class Limits:
    """Counts tokens, open brackets and operators in a row.

    Nothing is refused here which the tree of the same tokens would have kept within the limits.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.rows: list[list[int]] = [[0] * (_LAST + 1)]
        """For each open bracket the operators since its last separator, loosest first."""
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
        """Counts what is no sign, and tells whether that is too much."""
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
