"""Tokens of a text that may have errors, and the context of an offset.

The parser's own lexer needs a text that is valid up to the offset. This one recognises less:
comments, string literals, table rows, words, numbers and marks; the declaration and section around
an offset; and open brackets.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
import re
from collections.abc import Iterator, Sequence


class TokenKind(enum.Enum):
    COMMENT = "comment"
    STRING = "string"
    ROW = "row"
    WORD = "word"
    NUMBER = "number"
    MARK = "mark"


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """Token from `start` to `end`."""

    kind: TokenKind
    text: str
    start: int
    end: int
    first: bool
    """Whether it is the first on its line."""


DECLARATIONS = ("module", "import", "enum", "function", "operator", "graph")
SECTIONS = (
    "introduced", "forward", "attributes", "tensors", "types", "constraints", "compute", "gradient",
    "example", "differs",
)  # fmt: skip
TABLES = ("attributes", "tensors", "types")

_PIECE = re.compile(
    r"""
      (?P<comment> //[^\n]*+ | /\*(?:.*?\*/|.*) )
    | (?P<string> "[^"\\]*+(?:\\.[^"\\]*+)*" | "[^\n]*+ )
    | (?P<row> (?<!\|)\|(?!\|)[^\n]*+ )
    | (?P<word> [A-Za-z_][A-Za-z0-9_]*+ )
    | (?P<number> [0-9][A-Za-z0-9_]*+(?:\.[0-9][A-Za-z0-9_]*+)? )
    | (?P<mark> \.\.\. | == | != | <= | >= | && | \|\| | [^\s] )
    """,
    re.DOTALL | re.VERBOSE,
)


def list_tokens(text: str) -> Iterator[Token]:
    """Tokens of a text. A table row extends to its last `|`, or to the end of its line if a further
    cell is begun."""
    place = 0
    while (match := _PIECE.search(text, place)) is not None:
        kind, start, end = TokenKind(match.lastgroup), match.start(), match.end()
        if kind is TokenKind.ROW:
            last = text.rindex("|", start, end)
            behind = text[last + 1 : end].lstrip()
            if last > start and ("}" in behind or behind[:2] in ("", "//", "/*")):
                end = last + 1
        first = place == 0 or "\n" in text[place:start]
        yield Token(kind, text[start:end], start, end, first)
        place = end


@dataclasses.dataclass(frozen=True, slots=True)
class Bracket:
    """Open bracket, and the dotted name before it: `directml.CAST` of `directml.CAST(`."""

    mark: str
    start: int
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """Context of an offset."""

    offset: int
    inside: Token | None
    """Comment, string literal or table row that contains the offset."""
    keyword: str
    """Keyword of the enclosing declaration: `operator`; empty without one."""
    name: str
    declared_at: int
    """Start of the declaration."""
    section: str
    """Enclosing section of an operator: `compute`; empty between sections."""
    head: tuple[str, ...]
    """Words before the brace of the section: `gradient of X`."""
    depth: int
    """Number of open braces."""
    statement: int
    """Start of the statement, or of the line at the level of statements."""
    brackets: tuple[Bracket, ...]
    """Open `(` and `[`, the innermost last."""
    before: tuple[Token, ...]
    """Tokens of the statement before the offset, or before the word that ends there."""


_DECLARES = re.compile(r'(?:operator|graph|enum|module)\s+[A-Za-z_]|import\s*"')
_OPENS = re.compile(
    r"(?:attributes|types|constraints|compute|tensors(?:\s+[A-Za-z_]\w*)?"
    r"|(?:gradient\s+of|forward)\s+[\w.]+)"
    r'\s*\{|(?:example|differs)\s*"'
)
_STATEMENT = re.compile(
    r"""
      (?:(?:output|expect|function)\s+)?+ [A-Za-z_]\w*
          (?:\[[^\]\n]*\] | \([^()\n]*\) | (?:,[ \t]*[A-Za-z_]\w*)+)?
          (?:[ \t]*:[ \t]*[A-Za-z_]\w*)? [ \t]*=(?!=)
    | require\b
    """,
    re.ASCII | re.VERBOSE,
)
_FUNCTION_GRADIENT = re.compile(r"gradient\s+of\s+[A-Za-z_]", re.ASCII)
"""Gradient after a function, in which the function's parameters are visible."""


class _Scan:
    """Scanner of tokens up to an offset."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.keyword = ""
        self.name = ""
        self.declared_at = 0
        self.closed: tuple[str, str, int] = ("", "", 0)
        """Declaration closed last."""
        self.section = ""
        self.head: tuple[str, ...] = ()
        self.depth = 0
        self.statement = 0
        self.since: list[Token] = []
        """Tokens of the current statement, or before the next brace."""
        self.brackets: list[Bracket] = []

    def see(self, token: Token) -> None:
        if token.kind is TokenKind.COMMENT:
            return
        if token.first and token.kind is TokenKind.WORD:
            self.mend(token)
        if token.first and self.declares(token):
            self.depth, self.section, self.head = 0, "", ()
            self.keyword, self.name, self.declared_at = token.text, "", token.start
            self.start_statement(token.start)
        elif token.kind is TokenKind.MARK and token.text in "{}":
            self.brace(token)
            return
        elif token.first and self.states(token):
            self.start_statement(token.start)
        if self.depth == 0 and len(self.since) == 1 and self.since[0].start == self.declared_at:
            self.name = token.text
        self.bracket(token)
        self.since.append(token)

    def context(self, offset: int, inside: Token | None, word: Token | None = None) -> Context:
        """Context of an offset up to which the text was scanned, or of the word that ends there."""
        before = self.since[:-1] if self.since and self.since[-1] == word else self.since
        return Context(
            offset, inside, self.keyword, self.name, self.declared_at, self.section, self.head,
            self.depth, self.statement, tuple(self.brackets), tuple(before),
        )  # fmt: skip

    def start_statement(self, place: int) -> None:
        self.statement, self.since, self.brackets = place, [], []

    def mend(self, token: Token) -> None:
        """Recovers from missing braces: a section is always in an operator."""
        if _OPENS.match(self.text, token.start) is None:
            return
        if self.depth == 0 and not self.keyword and self.closed[0] == "operator":
            self.keyword, self.name, self.declared_at = self.closed
        if self.keyword == "operator" and self.depth != 1 and self.name:
            self.depth, self.section, self.head = 1, "", ()
            self.start_statement(token.start)

    def declares(self, token: Token) -> bool:
        """Whether a declaration starts here. If one is open, it was not closed."""
        if self.depth == 0:
            return token.text in DECLARATIONS
        return _DECLARES.match(self.text, token.start) is not None

    def states(self, token: Token) -> bool:
        """Whether the first token of a line starts a statement, or a section: it looks like one,
        and is a word that no open bracket and no operator precedes."""
        if self.depth == 0 or token.kind is TokenKind.ROW:
            return self.depth == 0 and not self.keyword
        if self.depth == 1 and self.keyword == "operator":
            return token.kind is TokenKind.STRING or token.text in SECTIONS
        if _STATEMENT.match(self.text, token.start):
            return True
        if self.section == "compute" and _FUNCTION_GRADIENT.match(self.text, token.start):
            return False
        last = self.since[-1] if self.since else None
        goes_on = last is not None and last.kind is TokenKind.MARK and last.text not in (*")].",)
        return not self.brackets and not goes_on and token.kind is not TokenKind.MARK

    def brace(self, token: Token) -> None:
        if token.text == "{":
            self.depth += 1
            words = tuple(t.text for t in self.since if t.kind is not TokenKind.ROW)
            if self.depth == 2 and self.keyword == "operator" and words and words[0] in SECTIONS:
                self.section, self.head = words[0], words
        else:
            self.depth = max(0, self.depth - 1)
            if self.depth <= 1:
                self.section, self.head = "", ()
            if self.depth == 0:
                if self.keyword:
                    self.closed = (self.keyword, self.name, self.declared_at)
                self.keyword, self.name, self.declared_at = "", "", token.end
        self.start_statement(token.end)

    def bracket(self, token: Token) -> None:
        if token.kind is not TokenKind.MARK:
            return
        if token.text in "([":
            self.brackets.append(Bracket(token.text, token.start, dotted_before(self.since)))
        elif token.text in ")]" and self.brackets:
            self.brackets.pop()


def dotted_before(tokens: Sequence[Token]) -> str:
    """Dotted name at the end of tokens, or empty."""
    parts: list[str] = []
    for token in reversed(tokens):
        wanted = TokenKind.WORD if len(parts) % 2 == 0 else TokenKind.MARK
        if token.kind is not wanted or (wanted is TokenKind.MARK and token.text != "."):
            break
        parts.append(token.text)
    if len(parts) % 2 == 0:
        parts = parts[:-1]
    return "".join(reversed(parts))


def find_context(
    text: str, tokens: Sequence[Token], offset: int, word: Token | None = None
) -> Context:
    """Context of an offset in a text, or of the word that ends there."""
    scan = _Scan(text)
    inside: Token | None = None
    for token in tokens:
        if token == word:
            scan.see(token)
            break
        if token.end > offset or (token.end == offset and _is_open(token)):
            if token.start < offset:
                inside = token if token.kind in _WHOLE else None
            break
        scan.see(token)
    return scan.context(offset, inside, word)


def list_words(
    text: str, tokens: Sequence[Token], name: str | None = None
) -> Iterator[tuple[Token, Context]]:
    """Words of a text, also in table rows, each with its context as by `find_context`; with `name`,
    only those equal to it."""
    scan = _Scan(text)
    for token in tokens:
        if token.kind is TokenKind.ROW:
            for word in _words_of(token):
                if name in (None, word.text):
                    yield word, scan.context(word.end, token)
        scan.see(token)
        if token.kind is TokenKind.WORD and name in (None, token.text):
            yield token, scan.context(token.end, None, token)


def _words_of(row: Token) -> Iterator[Token]:
    """Words in a table row."""
    for match in re.finditer(r"[A-Za-z_][A-Za-z0-9_]*", row.text):
        start, end = row.start + match.start(), row.start + match.end()
        yield Token(TokenKind.WORD, match.group(), start, end, False)


_WHOLE = (TokenKind.COMMENT, TokenKind.STRING, TokenKind.ROW)


def find_word(tokens: Sequence[Token], offset: int) -> Token | None:
    """Word that contains the offset, or ends there, also in a table row."""
    number = bisect.bisect_right(tokens, offset, key=lambda token: token.start) - 1
    for token in tokens[max(number - 1, 0) : number + 1][::-1]:
        if token.kind is TokenKind.WORD and token.start <= offset <= token.end:
            return token
        if token.kind is TokenKind.ROW and token.start <= offset <= token.end:
            for word in _words_of(token):
                if word.start <= offset <= word.end:
                    return word
    return None


def statement_tokens(tokens: Sequence[Token], context: Context) -> tuple[Token, ...]:
    """Tokens of the statement around an offset: up to the next one, approximately."""
    first = bisect.bisect_left(tokens, context.statement, key=lambda token: token.start)
    found: list[Token] = []
    for token in tokens[first:]:
        ends = token.text in ("{", "}") and token.kind is TokenKind.MARK
        if ends or (token.first and found and token.start > context.offset):
            break
        if token.kind is not TokenKind.COMMENT:
            found.append(token)
    return tuple(found)


def _is_open(token: Token) -> bool:
    """Whether the end of a token is inside it: for a line comment, a row, an unterminated
    string."""
    match token.kind:
        case TokenKind.COMMENT:
            return token.text.startswith("//") or not token.text.endswith("*/")
        case TokenKind.ROW:
            return True
        case TokenKind.STRING:
            return len(token.text) < 2 or not token.text.endswith('"')
        case TokenKind.WORD | TokenKind.NUMBER:
            return True
        case TokenKind.MARK:
            return False
