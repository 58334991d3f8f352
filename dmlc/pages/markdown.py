"""Reader of Markdown pages, by markdown-it-py.

For pages in other languages the English source is read, if they keep it beside each sentence.
Formulas between `\\f[` and `\\f]`, or `$$`, are removed first, since they are text to Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from dmlc.pages.blocks import (
    Block,
    Code,
    Formula,
    Heading,
    Lines,
    Page,
    PageRow,
    PageTable,
    Paragraph,
    make_key,
    words,
)

_TRANSLATED = re.compile(
    r'<span data-ttu-id="[^"<>]*">(?:(?!</?span)[^\n])*</span>[ ]*'
    r'<span class="sxs-lookup">(?=<span data-)'
)
_SPAN = re.compile(r"</?span(?:\s[^<>\n]*)?>")
_ANCHOR = re.compile(r'<a name="([^"<>]*)"></a>')
_FRONT = re.compile(r"([\w.\-]+):[ \t]*(.*)")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_FORMULA = re.compile(r"\\f\[((?:(?!\\f\[).){0,4000}?)\\f\]|(?<!\\)\$\$(.{1,4000}?)\$\$", re.DOTALL)
_PLACE = re.compile("\ue000(\\d+)\ue001")
_INSIDE = "\ue002"
"""Stand-in for a further line of a formula."""


def read_markdown(name: str, text: str) -> Page:
    """Blocks of a page."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.replace("\ue000", "").replace("\ue002", "").split("\n")
    end = _find_front(lines)
    front = dict(_read_front(lines[:end]))
    body = "\n" * end + "\n".join(lines[end:])
    shown, formulas = _extract_formulas(_select_source(body))
    reader = _MarkdownReader(shown.split("\n"), formulas)
    # What stands within a line is read here: as Markdown it takes time with the square of the
    # brackets in it.
    tokens = MarkdownIt("commonmark").enable("table").disable("inline").parse(shown)
    blocks = tuple(reader.read(tokens))
    furniture = reader.furniture | set(range(1, end + 1))
    return Page(name, tuple(lines), front, blocks, frozenset(furniture))


def _find_front(lines: Sequence[str]) -> int:
    """Number of lines of the front matter."""
    if lines[0].lstrip("\ufeff").strip() != "---":
        return 0
    for number, line in enumerate(lines[1:], 2):
        if line.strip() in ("---", "..."):
            return number
    return 0


def _read_front(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        match = _FRONT.match(line)
        if match is not None:
            yield match[1], match[2].strip().strip("'\"")


def _select_source(text: str) -> str:
    """English sentences of a page that has them beside its own."""
    if "sxs-lookup" in text:
        text = _TRANSLATED.sub("", text)
    return _SPAN.sub("", text)


def _extract_formulas(text: str) -> tuple[str, list[str]]:
    """Text with a placeholder on every line of each formula, and the formulas."""
    formulas: list[str] = []

    def take(match: re.Match[str]) -> str:
        formula = match[1] if match[1] is not None else match[2]
        formulas.append(formula)
        mark = f"\ue000{len(formulas) - 1}\ue001"
        return mark + f"\n{_INSIDE}" * match[0].count("\n")

    parts: list[str] = []
    for fenced, part in _split_fences(text):
        parts.append(part if fenced else _FORMULA.sub(take, part))
    joined = "".join(parts)
    # A mark at the beginning of a line must not become code by the indent before it.
    return re.sub("(?m)^[ \t]+(?=[\ue000\ue002])", "", joined), formulas


def _split_fences(text: str) -> Iterator[tuple[bool, str]]:
    """Text in parts that are fenced, or not."""
    run: list[str] = []
    fence: str | None = None
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line)
        if fence is None and match is not None:
            yield False, "".join(run)
            run, fence = [line], match[1]
        elif fence is not None and line.strip().startswith(fence):
            yield True, "".join([*run, line])
            run, fence = [], None
        else:
            run.append(line)
    yield fence is not None, "".join(run)


class _MarkdownReader:
    """Builder of blocks from tokens."""

    def __init__(self, lines: Sequence[str], formulas: Sequence[str]) -> None:
        self.lines = lines
        self.formulas = formulas
        self.furniture: set[int] = set()

    def read(self, tokens: Sequence[Token]) -> Iterator[Block]:
        quoted = items = 0
        position = 0
        while position < len(tokens):
            token = tokens[position]
            if token.type == "table_open":
                end = position + 1
                while tokens[end].type != "table_close":
                    end += 1
                yield self.table(tokens[position:end])
                position = end
            elif token.type == "heading_open":
                yield self.heading(token, tokens[position + 1])
                position += 1
            elif token.type == "inline" and token.map is not None:
                yield from self.paragraph(token.map, items > 0, quoted > 0)
            elif token.type in ("fence", "code_block") and token.map is not None:
                yield self.code(token)
            elif token.type == "html_block" and token.map is not None:
                yield from self.paragraph(token.map, False, False)
            elif token.type == "hr" and token.map is not None:
                self.furniture.add(token.map[0] + 1)
            quoted += (token.type == "blockquote_open") - (token.type == "blockquote_close")
            items += (token.type == "list_item_open") - (token.type == "list_item_close")
            position += 1

    def heading(self, token: Token, inline: Token) -> Heading:
        first, last = token.map or [0, 1]
        self.furniture.update(range(first + 2, last + 1))
        anchor = _ANCHOR.search(inline.content)
        text = words(re.sub(r"\{#[^{}]*\}\s*$", "", _ANCHOR.sub("", inline.content)))
        key = make_key(text) if anchor is None else make_key(anchor[1])
        return Heading(text, key, int(token.tag[1:]), first + 1)

    def table(self, tokens: Sequence[Token]) -> PageTable:
        rows: list[PageRow] = []
        cells: list[str] = []
        for token in tokens:
            if token.type == "inline":
                cells.append(token.content)
            elif token.type == "tr_close":
                rows.append(PageRow(tuple(cells), (self.line,)))
                cells = []
            elif token.type == "tr_open" and token.map is not None:
                self.line = token.map[0] + 1
        self.furniture.add(rows[0].lines[0] + 1)
        return PageTable(rows[0], tuple(rows[1:]))

    def code(self, token: Token) -> Code:
        first, last = token.map or [0, 0]
        if token.type == "code_block":
            kept = [(n + 1, self.lines[n]) for n in range(first, last) if self.lines[n].strip()]
            return Code(tuple(kept), "")
        contents = token.content.split("\n")[:-1]
        begin = first + 2
        self.furniture.update({first + 1, last})
        return Code(tuple((begin + n, text) for n, text in enumerate(contents)), token.info.strip())

    def paragraph(self, where: Sequence[int], item: bool, note: bool) -> Iterator[Block]:
        """Lines of a paragraph, and the formulas among them."""
        run: list[tuple[int, str]] = []
        number = where[0]
        while number < where[1]:
            text = re.sub(r"^\s*(?:>\s?)*", "", self.lines[number])
            text = re.sub(r"^\s*[-*+]\s+", "", text) if item else text
            text = _ANCHOR.sub("", text)
            match = _PLACE.search(text)
            if match is None:
                run.append((number + 1, text.replace(_INSIDE, "")))
                number += 1
                continue
            if before := text[: match.start()].strip():
                run.append((number + 1, before))
            yield from _flush(run, item, note)
            last = number
            while last + 1 < where[1] and self.lines[last + 1].startswith(_INSIDE):
                last += 1
            found = tuple(range(number + 1, last + 2))
            yield Formula(self.formulas[int(match[1])], found)
            rest = text[match.end() :] if last == number else self.lines[last][1:]
            run = [(last + 1, rest)] if rest.strip(" .,;") else []
            number = last + 1
        yield from _flush(run, item, note)


def _flush(run: Sequence[tuple[int, str]], item: bool, note: bool) -> Iterator[Block]:
    lines: Lines = tuple((n, t) for n, t in run if t.strip())
    if lines:
        yield Paragraph(lines, item, note)
