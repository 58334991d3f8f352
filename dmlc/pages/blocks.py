"""Page as blocks: headings, paragraphs, tables, code and formulas, made by the reader of its
format. Every block has its lines, counted from 1. Other modules interpret the blocks."""

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
    """Heading. `key` is its anchor, which a translation keeps."""

    text: str
    key: str
    level: int
    line: int


@dataclasses.dataclass(frozen=True, slots=True)
class Paragraph:
    """Paragraph. `item` tells whether it is an item of a list, `note` whether it is in a
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
    """Row of a table. Cells keep their markup."""

    cells: tuple[str, ...]
    lines: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class PageTable:
    header: PageRow
    rows: tuple[PageRow, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """Block of code, without its delimiters."""

    lines: Lines
    language: str

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.lines)


@dataclasses.dataclass(frozen=True, slots=True)
class Formula:
    """Displayed formula in LaTeX."""

    text: str
    lines: tuple[int, ...]


Block: TypeAlias = Heading | Paragraph | PageTable | Code | Formula


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """Parsed page."""

    name: str
    """File name, for messages and figures."""
    text: tuple[str, ...]
    """Lines of the file."""
    front: Mapping[str, str]
    """Front matter of a Microsoft page: `UID`, `title`."""
    blocks: tuple[Block, ...]
    furniture: frozenset[int]
    """Lines of the format itself: front matter, rules of tables, fences, targets."""


_IMAGE = re.compile(r"!\[([^\[\]]*)\]\(([^()\s]+)[^()]*\)")
_REFERENCE = re.compile(r"\[([^\[\]]*)\]\s*\(@ref\s[^()]*\)")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^()]*(?:\([^()]*\))?[^()]*\)")
_TAG = re.compile(r"</?(?:a|b|i|em|strong|span|sup|sub|br|p|code|br /)(?:\s[^<>]*)?/?>")
_STAR = "\ue010"
"""Stand-in for a literal star."""
_MARKS = re.compile(
    r"(?<![\w)\]*])(\*{1,3})(?=[\w\[`({\"])(.{1,300}?)(?<=[\w\]).`}\"?!,\ue010])\1(?![\w*])"
)
"""Emphasis, with the text inside."""
_INSIDE = re.compile(r"\*\*(\w{1,40})\*\*|(?<!\w)_([a-z]{1,40})_(?!\w)")
"""Emphasis of a part of a word, and emphasis by underscores."""
_BRACKETS = {ord("["): "\ue011", ord("]"): "\ue012"}
"""Stand-ins for brackets in code, which are no links."""
_CODE = re.compile(r"(``[^`]+``|`[^`]*`)")
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]()#+.!<>~|-])")


def words(text: str) -> str:
    """Text without links, tags, emphasis and code marks, with single spaces."""
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
    """Texts between code marks."""
    return [html.unescape(part.strip("`").strip()) for part in _CODE.findall(text)]


def make_key(text: str) -> str:
    """Anchor of a heading: `Tensor support` is `tensor-support`."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")
