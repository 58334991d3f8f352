"""Text positions in an editor's units: lines from 0, and code units of an encoding within a line.

The Language Server Protocol counts UTF-16 code units unless client and server agree on others, and
ends lines at `\\n`, `\\r\\n` and `\\r`. Everything else here counts characters from the start.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
import re

_LINE_BREAK = re.compile(r"\r\n|\n|\r")


class Encoding(enum.Enum):
    """Unit of columns."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"

    def width(self, text: str) -> int:
        """Number of units of a text."""
        if self is Encoding.UTF32 or text.isascii():
            return len(text)
        if self is Encoding.UTF16:
            return len(text) + sum(c > "\uffff" for c in text)
        return len(text.encode("utf-8", "surrogatepass"))


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Position:
    """Position between two characters; both numbers count from 0."""

    line: int
    column: int


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """Range between two positions."""

    start: Position
    end: Position


class Lines:
    """Text with the offsets of its lines."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self.text = text
        self.encoding = encoding
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]
        self._ends = [*(match.start() for match in _LINE_BREAK.finditer(text)), len(text)]

    def offset(self, position: Position) -> int:
        """Offset of a position. A position past the end of a line is that end, and one past the
        last line the end of the text."""
        if position.line >= len(self._starts):
            return len(self.text)
        start, end = self._starts[max(position.line, 0)], self._ends[max(position.line, 0)]
        line = self.text[start:end]
        if self.encoding is Encoding.UTF32 or line.isascii():
            return start + min(max(position.column, 0), len(line))
        left = position.column
        for number, character in enumerate(line):
            left -= self.encoding.width(character)
            if left < 0:
                return start + number
        return end

    def position(self, offset: int) -> Position:
        """Position of an offset."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect.bisect_right(self._starts, offset) - 1
        start = self._starts[line]
        return Position(line, self.encoding.width(self.text[start:offset]))

    def range(self, start: int, end: int) -> Range:
        """Range between two offsets."""
        return Range(self.position(start), self.position(end))

    def replace(self, range: Range, text: str) -> Lines:
        """Text with a range of it replaced."""
        start, end = sorted((self.offset(range.start), self.offset(range.end)))
        return Lines(self.text[:start] + text + self.text[end:], self.encoding)
