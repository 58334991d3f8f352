"""Lays out nested text within a width: a small pretty-printer after Wadler.

A document is text, a place where a line may break, a group (all of whose breaks are taken, or
none) or an indented document. Knows nothing of the language.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias


@dataclasses.dataclass(frozen=True, slots=True)
class Break:
    """A place to break a line; `flat` is what stands there otherwise."""

    flat: str = " "


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Its breaks are all taken, or none where it fits the line."""

    parts: tuple[Document, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Indent:
    """Lines broken inside start further in."""

    parts: tuple[Document, ...]
    columns: int = 4


Document: TypeAlias = str | Break | Group | Indent


def lay_out(document: Document, width: int, column: int, indent: int) -> str:
    """The document as text whose lines keep to `width` where breaks allow it.

    `column` is where its first line starts; lines after a break start at `indent`.
    """
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
    """Whether a group on one line, with what follows it up to the next break, has room."""
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
