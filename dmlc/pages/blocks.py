"""A page as its format's reader gives it: headings, paragraphs, tables, code and formulas.

Every block knows its lines, counted from 1. Other modules interpret the blocks.
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Mapping
from typing import TypeAlias

Lines: TypeAlias = tuple[tuple[int, str], ...]
"""Lines of a page with their numbers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Heading:
    """A heading. `key` is its name in a link, which a translation leaves as it is."""

    text: str
    key: str
    level: int
    line: int


@dataclasses.dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text. `item` tells whether it is an item of a list, `note` whether it stands in a
    quotation."""

    lines: Lines
    item: bool = False
    note: bool = False

    @property
    def text(self) -> str:
        return " ".join(text.strip() for _, text in self.lines)

    @property
    def line(self) -> int:
        return self.lines[0][0]


@dataclasses.dataclass(frozen=True, slots=True)
class PageRow:
    """A row of a table. Cells keep their marks."""

    cells: tuple[str, ...]
    lines: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class PageTable:
    header: PageRow
    rows: tuple[PageRow, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """A block of code, without the lines that mark its beginning and its end."""

    lines: Lines
    language: str

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.lines)


@dataclasses.dataclass(frozen=True, slots=True)
class Formula:
    """A formula in LaTeX that stands for itself."""

    text: str
    lines: tuple[int, ...]


Block: TypeAlias = Heading | Paragraph | PageTable | Code | Formula


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A page that was read."""

    name: str
    """Of its file, for messages and figures."""
    text: tuple[str, ...]
    """Its lines as they stand in the file."""
    front: Mapping[str, str]
    """The front matter of a page of Microsoft's: `UID`, `title`."""
    blocks: tuple[Block, ...]
    furniture: frozenset[int]
    """The lines that belong to the format: front matter, rules of tables, fences, targets."""


_IMAGE = re.compile(r"!\[([^\[\]]*)\]\(([^()\s]+)[^()]*\)")
_REFERENCE = re.compile(r"\[([^\[\]]*)\]\s*\(@ref\s[^()]*\)")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^()]*(?:\([^()]*\))?[^()]*\)")
_TAG = re.compile(r"</?(?:a|b|i|em|strong|span|sup|sub|br|p|code|br /)(?:\s[^<>]*)?/?>")
_STAR = "\ue010"
"""The stand-in for a star that is no mark."""
_MARKS = re.compile(
    r"(?<![\w)\]*])(\*{1,3})(?=[\w\[`({\"])(.{1,300}?)(?<=[\w\]).`}\"?!,\ue010])\1(?![\w*])"
)
"""Emphasis, with the text inside."""
_INSIDE = re.compile(r"\*\*(\w{1,40})\*\*|(?<!\w)_([a-z]{1,40})_(?!\w)")
"""Emphasis of a part of a word, and that by underscores."""
_BRACKETS = {ord("["): "\ue011", ord("]"): "\ue012"}
"""The stand-ins for brackets in code, which are no links."""
_CODE = re.compile(r"(``[^`]+``|`[^`]*`)")
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]()#+.!<>~|-])")


def words(text: str) -> str:
    """A text without links, tags, emphasis and code marks, with single spaces."""
    parts = _CODE.split(_TAG.sub("", text))
    found: list[str] = []
    for number, part in enumerate(parts):
        if number % 2:
            found.append(part.strip("`").strip().translate(_BRACKETS))
        else:
            found.append(part)
    joined = _IMAGE.sub(r"image \2 (\1)", "".join(found))
    joined = _LINK.sub(r"\1", _REFERENCE.sub(r"\1", joined))
    bare = joined.replace("\\*", _STAR)
    for _ in range(2):
        bare = _MARKS.sub(r"\2", bare)
    bare = _INSIDE.sub(lambda m: m[1] or m[2], bare)
    bare = _ESCAPED.sub(r"\1", bare).replace(_STAR, "*")
    for plain, mark in _BRACKETS.items():
        bare = bare.replace(mark, chr(plain))
    text = " ".join(html.unescape(bare).replace("\u00a0", " ").split())
    return re.sub(r" (?=[),;])", "", text)


def code_spans(text: str) -> list[str]:
    """The text between code marks."""
    return [html.unescape(part.strip("`").strip()) for part in _CODE.findall(text)]


def make_key(text: str) -> str:
    """The name of a heading in a link: `Tensor support` is `tensor-support`."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")
