"""The outcome of each line of a page, and the parts that were not understood.

A line is language where what it says stands in the description; furniture where it belongs to the
page and not to the operator: headings, links, front matter; prose where none of its sentences has a
word by which pages state a fact; illustration where it belongs to a worked example; and else it is
not understood. A line counts as its worst sentence does. What nothing was said of is not
understood.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable

from dmlc.pages.blocks import Page
from dmlc.source import counted


class Mark(enum.IntEnum):
    """The outcome of a line; of two, the larger counts."""

    FURNITURE = 0
    PROSE = 1
    ILLUSTRATION = 2
    LANGUAGE = 3
    MISSED = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Remark:
    """Words of a page that are kept as a comment."""

    line: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """The number of lines of a page by outcome; empty lines do not count."""

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
        """The part of the lines that was understood."""
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
    """Keeps the outcomes of the lines of one page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.marks: dict[int, Mark] = dict.fromkeys(page.furniture, Mark.FURNITURE)
        self._remarks: dict[Remark, None] = {}
        self._prose: dict[Remark, None] = {}

    def mark(self, lines: Iterable[int], mark: Mark) -> None:
        for line in lines:
            self.marks[line] = max(self.marks.get(line, mark), mark)

    def miss(self, lines: Iterable[int], text: str) -> None:
        """Notes that words were not understood."""
        found = tuple(lines)
        self.mark(found, Mark.MISSED)
        self.keep(found, text)

    def keep(self, lines: Iterable[int], text: str) -> None:
        """Has words be a comment, whatever became of their lines."""
        self._remarks[Remark(min(lines, default=0), text)] = None

    def show(self, lines: Iterable[int]) -> None:
        """Has the values of an example be an illustration: the lines as they stand on the page."""
        found = sorted(lines)
        self.marks |= dict.fromkeys(found, Mark.ILLUSTRATION)
        self.keep(found, "\n".join(self.page.text[n - 1].rstrip() for n in found))

    def note_prose(self, lines: Iterable[int], text: str) -> None:
        """Marks words as prose, which is kept too, apart from the rest."""
        found = tuple(lines)
        self.mark(found, Mark.PROSE)
        self._prose[Remark(min(found, default=0), text)] = None

    @property
    def remarks(self) -> list[Remark]:
        """The words that are kept, once each."""
        return list(self._remarks)

    @property
    def prose(self) -> list[Remark]:
        """The prose of the page, once each."""
        return list(self._prose)

    def close(self) -> None:
        """Takes the lines that nothing was said of for not understood."""
        for number, text in enumerate(self.page.text, 1):
            if text.strip() and number not in self.marks:
                self.miss([number], text.strip())

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
