"""Pretty-printer after Wadler. A document is a text, a line break, a group (whose breaks are all
taken, or none) or an indented document."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias


@dataclasses.dataclass(frozen=True, slots=True)
class Break:
    """Possible line break; `flat` is its text if it is not taken."""

    flat: str = " "


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Group whose breaks are all taken, or none if it fits the line."""

    parts: tuple[Document, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Indent:
    """Document with additional indentation after its breaks."""

    parts: tuple[Document, ...]
    columns: int = 4


Document: TypeAlias = str | Break | Group | Indent


def lay_out(document: Document, width: int, column: int, indent: int) -> str:
    """Text of a document, with lines of at most `width` characters if breaks allow it. The first
    line starts at `column`, lines after a break at `indent`."""
    out: list[str] = []
    pending: list[tuple[Document, int, bool]] = [(document, indent, False)]
    while pending:
        part, level, flat = pending.pop()
        match part:
            case str():
                out.append(part)
                column += len(part)
            case Break() if flat:
                out.append(part.flat)
                column += len(part.flat)
            case Break():
                out.append("\n" + " " * level)
                column = level
            case Group():
                one_line = flat or _fits(part, width - column, pending)
                pending += [(p, level, one_line) for p in reversed(part.parts)]
            case Indent():
                inner = level + part.columns
                pending += [(p, inner, flat) for p in reversed(part.parts)]
    return "".join(out)


def _fits(group: Group, room: int, after: list[tuple[Document, int, bool]]) -> bool:
    """Whether a group on one line, followed by the text up to the next break, fits."""
    pending: list[tuple[Document, bool]] = [(part, True) for part in reversed(group.parts)]
    left = len(after)
    while room >= 0 and (pending or left):
        if pending:
            part, flat = pending.pop()
        else:
            # `after` is as long as the document: copying it would make long lists quadratic.
            left -= 1
            part, _, flat = after[left]
        match part:
            case str():
                room -= len(part)
            case Break():
                if not flat:
                    return True
                room -= len(part.flat)
            case Group() | Indent():
                pending += [(p, flat) for p in reversed(part.parts)]
    return room >= 0
