"""Reader of reStructuredText pages, by docutils. Roles that docutils does not know, such as
`:ref:`, become their text. No file is included, whatever a page requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.parsers.rst import Parser
from docutils.utils import new_document

from dmlc.pages.blocks import (
    Block,
    Code,
    Formula,
    Heading,
    Page,
    PageRow,
    PageTable,
    Paragraph,
    make_key,
    words,
)

_ROLE = re.compile(r":(?P<role>[a-zA-Z][\w:+.-]*):`(?P<text>[^`<\n]*?)(?:\s*<[^`<>\n]*>)?`")
_RULE = re.compile(r"\s*(?:([=\-~^\"'#*+.`:_])\1{2,}|(?:[=\-]+\s+)+[=\-]+|\+[=\-+]+\+)\s*")
_TARGET = re.compile(r"\s*\.\. (?:index::|_[^:\n]+:|math::|note::|code-block::|warning::|\[).*")


def read_rst(name: str, text: str) -> Page:
    """Blocks of a page."""
    lines = text.replace("\r\n", "\n").split("\n")
    shown = _ROLE.sub(_show_role, "\n".join(line.expandtabs(8) for line in lines))
    parser = Parser()
    settings = get_default_settings(parser)
    settings.file_insertion_enabled = settings.raw_enabled = False
    settings.report_level, settings.halt_level = 5, 6
    tree = new_document(name, settings)
    parser.parse(shown, tree)
    reader = _RstReader(shown.split("\n"))
    blocks = tuple(reader.read(tree, 0))
    furniture = {
        number
        for number, line in enumerate(lines, 1)
        if _RULE.fullmatch(line) or _TARGET.fullmatch(line)
    }
    covered = {line for block in blocks for line in _lines_of(block)}
    return Page(name, tuple(lines), {}, blocks, frozenset(furniture - covered))


def _show_role(match: re.Match[str]) -> str:
    """Text of a role, padded to its length, since table columns are recognised by position."""
    text = f"`{match['text']}`" if match["role"] == "math" else match["text"]
    return f"{text} ".ljust(len(match[0])) if text.strip() else match[0]


def _lines_of(block: Block) -> Iterator[int]:
    match block:
        case Heading():
            yield block.line
        case Paragraph() | Code():
            yield from (line for line, _ in block.lines)
        case Formula():
            yield from block.lines
        case PageTable():
            for row in (block.header, *block.rows):
                yield from row.lines


class _RstReader:
    """Builder of blocks from docutils' tree."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    def read(self, parent: nodes.Element, level: int) -> Iterator[Block]:
        item = isinstance(parent, nodes.list_item)
        for node in parent.children:
            if isinstance(node, nodes.title | nodes.subtitle | nodes.rubric):
                text = words(node.astext())
                yield Heading(text, make_key(text), level, self.find(node, text))
            elif isinstance(node, nodes.paragraph):
                yield from self.paragraph(node, item)
            elif isinstance(node, nodes.table):
                yield from self.table(node)
            elif isinstance(node, nodes.math_block):
                yield self.formula(node)
            elif isinstance(node, nodes.literal_block | nodes.doctest_block):
                yield from self.code(node)
            elif isinstance(node, nodes.system_message):
                continue
            elif isinstance(node, nodes.Element):
                yield from self.read(node, level + isinstance(node, nodes.section))

    def find(self, node: nodes.Element, text: str) -> int:
        """First line of a node; docutils has the last line of some."""
        known = node.line or 1
        first = text.split("\n", 1)[0].strip()
        for line in (known, *range(known - 1, max(0, known - 4), -1), known + 1, known + 2):
            if 1 <= line <= len(self.lines) and first and first in self.lines[line - 1]:
                return line
        return min(known, len(self.lines))

    def span(self, node: nodes.Element) -> list[tuple[int, str]]:
        """Lines of a node whose source docutils keeps."""
        source = node.rawsource or node.astext()
        texts = [t.strip() for t in source.strip().split("\n")]
        first = self.find(node, texts[0])
        return [(n, t) for n, t in enumerate(texts, first) if t and n <= len(self.lines)]

    def paragraph(self, node: nodes.Element, item: bool) -> Iterator[Block]:
        lines = tuple(self.span(node))
        if lines:
            yield Paragraph(lines, item, isinstance(node.parent, nodes.Admonition))

    def formula(self, node: nodes.Element) -> Formula:
        lines = tuple(line for line, _ in self.span(node))
        return Formula(node.astext(), lines)

    def code(self, node: nodes.Element) -> Iterator[Block]:
        lines = self.span(node)
        if lines and not lines[0][1].startswith(".. "):
            yield Code(tuple(lines), "")

    def table(self, node: nodes.Element) -> Iterator[Block]:
        rows: list[PageRow] = []
        for row in node.findall(nodes.row):
            cells: list[str] = []
            lines: set[int] = set()
            for entry in row.children:
                parts: list[str] = []
                for paragraph in entry.findall(nodes.paragraph):
                    found = self.span(paragraph)
                    parts += [text for _, text in found]
                    lines.update(line for line, _ in found)
                cells.append(" ".join(parts))
            rows.append(PageRow(tuple(cells), tuple(sorted(lines))))
        if rows:
            yield PageTable(rows[0], tuple(rows[1:]))
