"""Description of an operation from a oneDNN Graph page: attributes, inputs, outputs, types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dmlc.pages.blocks import (
    Block,
    Code,
    Formula,
    Heading,
    Page,
    PageTable,
    Paragraph,
    code_spans,
    words,
)
from dmlc.pages.draft import Attribute, Combination, Draft, Level, Tensor
from dmlc.pages.ledger import Ledger, Mark
from dmlc.pages.notes import ONEDNN, read_coordinates
from dmlc.pages.outputs import FormulaReader
from dmlc.pages.sentences import SentenceReader, split
from dmlc.pages.values import TYPES, read_attribute
from dmlc.scalars import find_data_type

_NAME = re.compile(r"[A-Za-z_]\w{0,127}")
_NEED = ("required", "optional")
_PLURAL = {"input": "inputs", "output": "outputs"}
_ARRAY = re.compile(r"(\w+)_i$")


def is_onednn(page: Page) -> bool:
    """Whether a page has the tables of an operation."""
    keys = {b.key for b in page.blocks if isinstance(b, Heading)}
    tables = any(isinstance(b, PageTable) for b in page.blocks)
    return tables and {"inputs", "outputs"} <= {_PLURAL.get(key, key) for key in keys}


def read_onednn(page: Page, ledger: Ledger) -> Draft:
    """Description from a page."""
    return _OnednnReader(page, ledger).run()


class _OnednnReader:
    """Reader of a page in passes: tables first, then the facts about their rows."""

    def __init__(self, page: Page, ledger: Ledger) -> None:
        self.ledger = ledger
        title = next((b.text for b in page.blocks if isinstance(b, Heading)), "")
        match = _NAME.match(title)
        self.draft = Draft("Operation" if match is None else match[0], "onednn")
        self.placed = tuple(_assign_sections(page.blocks))
        self.sentences = SentenceReader(self.draft, ledger, ONEDNN)
        self.formulas = FormulaReader(self.draft, ledger, self.sentences)
        self.aliases: dict[str, str] = {}
        """Second and first name of each input with two names, `src / dst`."""
        self.remarks: list[tuple[str, tuple[int, ...], str]] = []

    def run(self) -> Draft:
        self.draft.levels = [Level(None, [])]
        for block, section in self.placed:
            if isinstance(block, PageTable) and section in ("inputs", "outputs"):
                self.read_arguments(block, section == "outputs")
        for block, section in self.placed:
            if isinstance(block, PageTable) and section == "attributes":
                self.read_attributes(block)
            elif isinstance(block, PageTable) and section == "types":
                self.read_types(block)
        for text, lines, name in self.remarks:
            self.sentences.read_cell(text, lines, name)
        for block, section in self.placed:
            self.read_block(block, section)
        self.require_shapes()
        self.formulas.finish()
        self.require_ranks()
        return self.draft

    # Tables -----------------------------------------------------------------------------------

    def read_arguments(self, table: PageTable, output: bool) -> None:
        """Reads `Index`, `Argument Name`, `Required or Optional`, by the cells below them."""
        self.ledger.mark(table.header.lines, Mark.FURNITURE)
        for row in table.rows:
            cells = [words(cell) for cell in row.cells]
            need = next((n for n, c in enumerate(cells) if c.lower() in _NEED), None)
            spans = [s for c in row.cells for s in code_spans(c) if _NAME.fullmatch(s)]
            names = spans or [c for c in cells if _NAME.fullmatch(c) and c.lower() not in _NEED]
            if not names or need is None or self.draft.tensor(names[0]) is not None:
                self.ledger.miss_row(row)
                continue
            name, array = names[0], _ARRAY.fullmatch(names[0])
            kind = "output" if output else "input"
            kind = kind.capitalize() if cells[need].lower() == "required" else f"Optional {kind}"
            if array is not None:
                self.aliases[name] = array[1]
                name, kind = array[1], f"Array of {'outputs' if output else 'inputs'}"
            for other in names[1:]:
                self.aliases[other] = name
                self.draft.note(f"{name} is what the page calls {' / '.join(names)}.")
            self.draft.levels[0].tensors.append(Tensor(name, kind, lines=row.lines))
            self.ledger.mark(row.lines, Mark.LANGUAGE)

    def read_attributes(self, table: PageTable) -> None:
        """Reads `Attribute Name`, `Description`, `Value Type`, `Supported Values`, and `Required or
        Optional`, recognised by the column of the types."""
        self.ledger.mark(table.header.lines, Mark.FURNITURE)
        for row in table.rows:
            cells = [words(cell) for cell in row.cells]
            place = next((n for n, c in enumerate(cells) if c.lower().strip(". ") in TYPES), None)
            if place is None or not _NAME.fullmatch(cells[0]) or place + 1 >= len(cells):
                self.ledger.miss_row(row)
                continue
            name = cells[0]
            if self.draft.tensor(name) is not None:
                name = f"{name}_attribute"
                self.draft.note(
                    f"The attribute {cells[0]} is called {name}: an input has its name."
                )
            made = Attribute(name, cells[place].lower().strip(". "), lines=row.lines)
            needed = cells[-1].lower() != "optional"
            self.draft.attributes.append(made)
            for text in read_attribute(self.draft, made, row.cells[place + 1], needed):
                self.ledger.keep(row.lines, f"{name}: {text}")
            self.ledger.mark(row.lines, Mark.LANGUAGE)
            if place > 1:
                self.remarks.append((row.cells[place - 1], row.lines, name))

    def read_types(self, table: PageTable) -> None:
        """Reads a column per tensor or group of tensors; a header may be truncated, or missing."""
        header = self.find_header([words(c) for c in table.header.cells])
        if header is None:
            for row in (table.header, *table.rows):
                self.ledger.miss_row(row)
            return
        self.draft.header = tuple(", ".join(names) for names in header if names)
        self.ledger.mark(table.header.lines, Mark.FURNITURE)
        for row in table.rows:
            kept: list[str] = []
            for names, cell in zip(header, row.cells, strict=False):
                parts = [p.strip() for p in words(cell).split(",")]
                known = [p for p in parts if find_data_type(p) is not None]
                if known != parts:
                    left = ", ".join(p for p in parts if p not in known)
                    self.ledger.keep(row.lines, f"the data types {left} of {', '.join(names)}")
                if names:
                    kept.append(", ".join(known))
                    self.permit(names, known)
            if all(kept) and len(kept) == len(self.draft.header):
                self.draft.combinations.append(Combination(tuple(kept), row.lines))
                self.ledger.mark(row.lines, Mark.LANGUAGE)
            else:
                self.ledger.miss_row(row)

    def find_header(self, cells: Sequence[str]) -> list[list[str]] | None:
        """Tensors of each column; None if a column has only the second name of another."""
        known = {t.name.lower(): t.name for t in self.draft.tensors}
        known |= {alias.lower(): name for alias, name in self.aliases.items()}
        header: list[list[str] | None] = []
        used: set[str] = set()
        for cell in cells:
            names: list[str] = []
            for part in _split_header(cell):
                near = [n for n in known if n.startswith(part) and known[n] not in used]
                found = known.get(part) or (known[near[0]] if near else None)
                if found is None:
                    return None
                names += [found] if found not in used else []
                used.add(found)
            header.append(names if cell else None)
        rest = [t.name for t in self.draft.tensors if t.name not in used]
        empty = [n for n, names in enumerate(header) if names is None]
        if len(empty) > len(rest):
            return None
        for place, name in zip(empty, rest, strict=False):
            header[place] = [name]
        return [names or [] for names in header]

    def permit(self, names: Sequence[str], types: Sequence[str]) -> None:
        for name in names:
            tensor = self.draft.tensor(name)
            if tensor is not None:
                known = [t for t in (tensor.types or "").split(", ") if t]
                tensor.types = ", ".join(dict.fromkeys([*known, *types])) or None

    # Text -------------------------------------------------------------------------------------

    def read_block(self, block: Block, section: str) -> None:
        match block:
            case Heading():
                self.ledger.mark([block.line], Mark.FURNITURE)
            case Formula():
                self.formulas.read_latex(block)
            case Paragraph():
                self.read_paragraph(block, section)
            case Code():
                if not self.formulas.read_code(block):
                    self.ledger.miss_lines(block.lines)
            case PageTable() if section not in ("attributes", "inputs", "outputs", "types"):
                for row in (block.header, *block.rows):
                    self.ledger.miss_row(row)
            case PageTable():
                pass

    def read_paragraph(self, block: Paragraph, section: str) -> None:
        lines = tuple(line for line, _ in block.lines)
        if read_coordinates(self.draft, block):
            self.ledger.mark(lines, Mark.LANGUAGE)
            return
        doc = section == "general" and self.draft.doc is None
        if doc:
            first = next(split(block), None)
            self.draft.doc = None if first is None else _show_doc(first.raw)
        self.sentences.read(block, doc=doc)

    def require_shapes(self) -> None:
        """Equates the sizes of diff_x and x, as oneDNN's names imply."""
        alike: dict[str, list[str]] = {}
        shown = {t.name for t in self.draft.tensors}
        for tensor in self.draft.tensors:
            of = tensor.name.removeprefix("diff_")
            of = self.aliases.get(of, of)
            if of in shown and of != tensor.name:
                alike.setdefault(of, [of]).append(tensor.name)
        order = [t.name for t in self.draft.tensors]
        for names in alike.values():
            names.sort(key=order.index)
            said = "oneDNN names diff_x what has the sizes of x."
            self.draft.note(said)
            self.draft.require_same(names, ("DimensionCount", "Sizes"), said, ())

    def require_ranks(self) -> None:
        """Equates ranks: a formula broadcasts tensors of equal rank."""
        given = [t.name for t in self.draft.tensors if not t.output and not t.optional]
        if self.draft.compute and self.draft.attribute("auto_broadcast") is not None:
            for name in given[1:]:
                text = f"{given[0]}.DimensionCount == {name}.DimensionCount"
                said = '"the formula here is of tensors of the same dimension count"'
                self.draft.require(f"{text}, {said}", "auto_broadcast", ())


def _split_header(cell: str) -> Iterator[str]:
    """Tensors that a header names: `Src / Dst`; `Source0/1` is src_0 and src_1."""
    before = ""
    for part in filter(None, (p.strip().lower() for p in re.split(r"[/,]", cell))):
        name = before.rstrip("0123456789") + part if part.isdigit() else part
        name = re.sub(r"^source_?(?=\d)", "src_", name)
        yield re.sub(r"^source", "src", re.sub(r"^destination", "dst", name))
        before = name


def _show_doc(text: str) -> str:
    """Sentence without the markup of formulas and of names."""
    bare = re.sub(r"\\f\$(.*?)\\f\$", r"\1", text)
    bare = re.sub(r"@ref\s+", "", bare)
    bare = words(re.sub(r"\\([A-Za-z]+)", r"\1", bare))
    bare = re.sub(r"\s*\((?:the )?variable names follow [^()]*\)", "", bare)
    return bare.rstrip(" :.,") + "."


def _assign_sections(blocks: Sequence[Block]) -> Iterator[tuple[Block, str]]:
    """Blocks with their sections."""
    section = ""
    for block in blocks:
        if isinstance(block, Heading):
            key = _PLURAL.get(block.key, block.key)
            if "attribute" in key:
                section = "attributes"
            elif key in ("inputs", "outputs", "general"):
                section = key
            elif "data-type" in key:
                section = "types"
            else:
                section = ""
            if block.level <= 1:
                section = "title"
        yield block, section
