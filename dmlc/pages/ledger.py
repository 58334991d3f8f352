"""Classification of each line of a page, and the text that was not understood.

A line is *language* if the description states it; *furniture* if it belongs to the page: headings,
links, front matter; *prose* if none of its sentences has a word by which pages state a fact;
*illustration* if it belongs to a worked example; otherwise it is not understood. A line has the
class of its worst sentence. An unclassified line is not understood.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable

from dmlc.pages.blocks import Page, PageRow, words
from dmlc.source import counted


class Mark(enum.IntEnum):
    """Class of a line; of two, the larger counts."""

    FURNITURE = 0
    PROSE = 1
    ILLUSTRATION = 2
    LANGUAGE = 3
    MISSED = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Remark:
    """Text of a page that is kept as a comment."""

    line: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """Numbers of nonempty lines of a page by class."""

    page: str
    language: int
    furniture: int
    prose: int
    illustration: int
    missed: int

    @property
    def lines(self) -> int:
        return self.understood + self.missed

    @property
    def understood(self) -> int:
        return self.language + self.furniture + self.prose + self.illustration

    @property
    def share(self) -> float:
        """Fraction of the lines that was understood."""
        return self.understood / max(1, self.lines)

    def __str__(self) -> str:
        kinds = [
            f"{self.language} in the description",
            f"{self.furniture} of the page itself",
            f"{self.prose} of prose",
        ]
        if self.illustration:
            kinds.append(f"{self.illustration} of illustration")
        lines = counted(self.lines, "line")
        return f"{self.page}: {self.understood} of {lines} understood: {', '.join(kinds)}"


class Ledger:
    """Classes of the lines of one page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.marks: dict[int, Mark] = dict.fromkeys(page.furniture, Mark.FURNITURE)
        self._remarks: dict[Remark, None] = {}
        self._prose: dict[Remark, None] = {}

    def mark(self, lines: Iterable[int], mark: Mark) -> None:
        for line in lines:
            self.marks[line] = max(self.marks.get(line, mark), mark)

    def miss(self, lines: Iterable[int], text: str) -> None:
        """Records text that was not understood."""
        found = tuple(lines)
        self.mark(found, Mark.MISSED)
        self.keep(found, text)

    def miss_row(self, row: PageRow) -> None:
        """Records a row of a table that was not understood."""
        self.miss(row.lines, " | ".join(map(words, row.cells)))

    def miss_lines(self, lines: Iterable[tuple[int, str]]) -> None:
        """Records lines that were not understood, each by itself."""
        for line, text in lines:
            if text.strip():
                self.miss([line], text.strip())

    def keep(self, lines: Iterable[int], text: str) -> None:
        """Keeps text as a comment, whatever the class of its lines."""
        self._remarks[Remark(min(lines, default=0), text)] = None

    def show(self, lines: Iterable[int]) -> None:
        """Marks lines with the values of an example as an illustration."""
        found = sorted(lines)
        self.marks |= dict.fromkeys(found, Mark.ILLUSTRATION)
        self.keep(found, "\n".join(self.page.text[n - 1].rstrip() for n in found))

    def note_prose(self, lines: Iterable[int], text: str) -> None:
        """Marks text as prose, which is kept separately."""
        found = tuple(lines)
        self.mark(found, Mark.PROSE)
        self._prose[Remark(min(found, default=0), text)] = None

    @property
    def remarks(self) -> list[Remark]:
        """Kept text without repetition."""
        return list(self._remarks)

    @property
    def prose(self) -> list[Remark]:
        """Prose of the page without repetition."""
        return list(self._prose)

    def close(self) -> None:
        """Marks the unclassified lines as not understood."""
        self.miss_lines(
            (number, text)
            for number, text in enumerate(self.page.text, 1)
            if number not in self.marks
        )

    def figures(self) -> Figures:
        filled = [n for n, text in enumerate(self.page.text, 1) if text.strip()]
        count = Counter(self.marks.get(n, Mark.MISSED) for n in filled)
        return Figures(
            self.page.name,
            language=count[Mark.LANGUAGE],
            furniture=count[Mark.FURNITURE],
            prose=count[Mark.PROSE],
            illustration=count[Mark.ILLUSTRATION],
            missed=count[Mark.MISSED],
        )
