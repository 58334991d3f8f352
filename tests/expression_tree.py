"""Reads the expressions of C, HLSL and WGSL into trees, by the precedence of their operators.

A tree is nested tuples, in which parentheses leave no trace: `a + b * c` and `a + (b * c)` are one.
It serves to see what belongs to what in generated text.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Tree: TypeAlias = str | tuple["Tree", ...]

_TOKEN = re.compile(
    r"\s*((?:0x[0-9a-f]+|\d+\.?\d*(?:e[+-]?\d+)?)[a-zA-Z]*"
    r"|(?:bitcast|vec\d)<\w+>|\w+"
    r"|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>?:(),.\[\]=])"
)
_TYPE = re.compile(r"(bool|float|double|(u?(int|char|short|long)))(16_t|64_t)?\d*")
_BINDING = {
    operator: strength
    for strength, operators in enumerate(
        ("=", "?", "||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %")
    )
    for operator in operators.split()
}


def read_tree(text: str) -> Tree:
    """The tree of an expression. Fails where the text is none."""
    reader = _Reader(text)
    tree = reader.read(0)
    assert reader.token == "", f"{reader.token!r} ends {text!r} early"
    return tree


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = [found[1] for found in _TOKEN.finditer(text)]
        assert "".join(self._tokens) == re.sub(r"\s", "", text), text
        self._text = text

    @property
    def token(self) -> str:
        """The next one; empty at the end."""
        return self._tokens[0] if self._tokens else ""

    def _take(self, wanted: str = "") -> str:
        assert self.token in ((wanted,) if wanted else self._tokens[:1]), self._text
        return self._tokens.pop(0)

    def read(self, least: int) -> Tree:
        """An expression of operators that bind at least so strongly."""
        tree = self._read_prefix()
        while _BINDING.get(self.token, -1) >= least:
            operator = self._take()
            if operator == "?":
                then = self.read(0)
                self._take(":")
                tree = ("?", tree, then, self.read(_BINDING["?"]))
            else:
                tree = (operator, tree, self.read(_BINDING[operator] + 1))
        return tree

    def _read_prefix(self) -> Tree:
        if self.token in ("-", "!", "~", "&", "+"):
            return (self._take(), self._read_prefix())
        if self.token != "(":
            return self._read_suffixes(self._take())
        if _TYPE.fullmatch(self._tokens[1]) and self._tokens[2] == ")":
            self._take()
            name = self._take()
            self._take()
            return ("cast", name, self._read_prefix())
        given = self._read_list("(", ")")
        return self._read_suffixes(given[0] if len(given) == 1 else given)

    def _read_suffixes(self, tree: Tree) -> Tree:
        while True:
            if self.token == "(":
                tree = ("call", tree, *self._read_list("(", ")"))
            elif self.token == "[":
                tree = ("element", tree, *self._read_list("[", "]"))
            elif self.token == ".":
                self._take()
                tree = ("member", tree, self._take())
            else:
                return tree

    def _read_list(self, opening: str, closing: str) -> tuple[Tree, ...]:
        self._take(opening)
        given: list[Tree] = []
        while self.token != closing:
            given.append(self.read(0))
            if self.token != closing:
                self._take(",")
        self._take(closing)
        return tuple(given)
