"""Kinds of diagnostics, by code: their meaning, and a small example with its cure.

Each kind is a Markdown file in this folder, `E0401.md`. Its first line has code and title. An
explanation follows, then a wrong example and a right one: a `.dml` file, called `example.dml`, or
Python, and the command that shows the diagnostic if it is not `dmlc check`. Code that detects an
error names its code: `DmlcError(..., code="E0401")`. The first two digits are its topic: see
`GROUPS`.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path

from dmlc.source import DmlcError, Note, UnknownNameError

FOLDER = Path(__file__).resolve().parent
GROUPS = {
    "00": "Files and limits",
    "01": "Syntax",
    "02": "Names",
    "03": "Kinds and data types of values",
    "04": "Shapes, positions and reductions",
    "05": "Operators and their tables",
    "06": "Graphs",
    "07": "Gradients",
    "08": "What a caller gives",
    "09": "Targets, devices and speed",
}
"""Topics of codes, by their first two digits."""
_CODE = re.compile(r"[EW][0-9]{4}")
_NEAREST = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a code."""

    code: str
    title: str
    text: str
    """Markdown text; the first line is code and title."""

    @property
    def is_warning(self) -> bool:
        return self.code.startswith("W")

    @property
    def group(self) -> str:
        """Topic."""
        return GROUPS[self.code[1:3]]


@functools.cache
def list_codes() -> tuple[str, ...]:
    """All codes, errors first, without reading files."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.md")))


def explain(code: str) -> Explanation:
    """Explanation of a code; case does not matter. Raises `UnknownNameError` with the nearest
    codes."""
    wanted = code.strip().strip("[]").upper()
    if wanted not in list_codes():
        if not _CODE.fullmatch(wanted):
            raise DmlcError(
                f"'{code[:40]}' is no code of a diagnostic",
                notes=["a code is a letter and four digits, such as E0201 or W0001"],
                code="E0201",
            )
        near = sorted(list_codes(), key=lambda known: _distance(known, wanted))[:_NEAREST]
        notes = [Note(f"{known}: {explain(known).title}") for known in near]
        raise UnknownNameError(f"unknown code '{wanted}'; the nearest are", None, notes, "E0201")
    text = (FOLDER / f"{wanted}.md").read_text(encoding="utf-8")
    title = text.partition("\n")[0].partition(": ")[2]
    return Explanation(wanted, title, text)


def _distance(known: str, wanted: str) -> tuple[bool, int]:
    return known[0] != wanted[0], abs(int(known[1:]) - int(wanted[1:]))
