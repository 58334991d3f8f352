"""Description of an operator from a DirectML page: structure, members, constraints, tables,
formulas."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dmlc.pages.blocks import (
    Code,
    Formula,
    Heading,
    Page,
    PageTable,
    Paragraph,
    words,
)
from dmlc.pages.columns import find_columns, read_tensor
from dmlc.pages.draft import Attribute, Draft, Enum, Level, Tensor
from dmlc.pages.extents import read_extents
from dmlc.pages.facts import DIRECTML
from dmlc.pages.formulas import NO_OPERATOR
from dmlc.pages.known import find_enums, find_operators
from dmlc.pages.ledger import Ledger, Mark
from dmlc.pages.outputs import FormulaReader
from dmlc.pages.sections import LEVEL, Placed, find_sections, show_title
from dmlc.pages.sentences import SentenceReader, split
from dmlc.pages.structs import OPERATOR, Field, find_struct, read_struct, read_type
from dmlc.pages.worked import ExampleReader, is_illustration

_BASES = {"FLOAT": "FLOAT", "float": "FLOAT", "UINT": "UINT", "UINT32": "UINT", "UINT64": "UINT",
          "INT": "INT", "INT32": "INT", "INT64": "INT", "BOOL": "BOOL", "SIZE_T": "UINT",
          "DML_SCALAR_UNION": "NUMBER", "DML_TENSOR_DATA_TYPE": "TYPE"}  # fmt: skip
_PAIRS = {"DML_SCALE_BIAS": ("FLOAT[2]", "[1, 0]"), "DML_SIZE_2D": ("UINT[2]", None)}
_TENSOR, _OPERATOR = "DML_TENSOR_DESC", "DML_OPERATOR_DESC"
_NONE = NO_OPERATOR.strip('"')
_MEMBER = re.compile(r"(DML_[A-Z0-9_]+)\s*[.:]?\s*(.*)", re.DOTALL)


def find_name(page: Page) -> str | None:
    """Operator that a page is about."""
    for text in (page.front.get("UID", ""), page.front.get("title", "")):
        if match := OPERATOR.search(text):
            return match[1]
    for block in page.blocks:
        if isinstance(block, Heading) and (match := OPERATOR.search(block.text)):
            return match[1]
        if isinstance(block, Code) and (match := OPERATOR.search(find_struct(block) or "")):
            return match[1]
    return None


def read_directml(page: Page, name: str, ledger: Ledger) -> Draft:
    """Description from a page."""
    return _DirectmlReader(page, name, ledger).run()


class _DirectmlReader:
    """Reader of a page in passes: names first, then the facts about them."""

    def __init__(self, page: Page, name: str, ledger: Ledger) -> None:
        self.ledger = ledger
        self.draft = Draft(name, "directml")
        self.placed: Sequence[Placed] = tuple(find_sections(page))
        self.fields: dict[str, Field] = {}
        self.aliases: dict[str, str] = {}
        """Structure's names of members that have other names."""
        self.sentences = SentenceReader(self.draft, ledger, DIRECTML)
        self.formulas = FormulaReader(self.draft, ledger, self.sentences)
        self.sentences.take = self.formulas.read_inline
        self.examples = ExampleReader(self.draft, ledger)

    def run(self) -> Draft:
        self.read_introduced()
        self.read_fields()
        self.read_tables()
        self.make_rows()
        # Other sentences repeat what the constraints state.
        for placed in sorted(self.placed, key=lambda p: p.section != "constraints"):
            self.read_block(placed)
        self.examples.finish()
        self.formulas.finish()
        return self.draft

    # Names ------------------------------------------------------------------------------------

    def read_introduced(self) -> None:
        for placed in self.placed:
            block = placed.block
            if isinstance(block, Paragraph) and placed.field is None:
                levels = set(LEVEL.findall(words(block.text)))
                said = placed.section == "availability" or not self.sentences.english
                if len(levels) == 1 and (said or "This operator was introduced" in block.text):
                    self.draft.introduced = self.draft.introduced or levels.pop()
                    self.ledger.mark([block.line] if said else [], Mark.LANGUAGE)
        if re.search(r"_GRAD\d*$", self.draft.name):
            self.find_forward()

    def find_forward(self) -> None:
        """Forward operator: the first one that the description of a gradient links to."""
        for placed in self.placed:
            if placed.section == "description" and isinstance(placed.block, Paragraph):
                found = OPERATOR.search(placed.block.text.upper())
                if found is not None and found[1] != self.draft.name:
                    self.draft.forward = found[1]
                    return

    def read_fields(self) -> None:
        """Reads the fields of the structure, or the members if there is none."""
        members: dict[str, Field] = {}
        for placed in self.placed:
            block = placed.block
            if isinstance(block, Code) and find_struct(block) is not None:
                for line, field in read_struct(block):
                    self.ledger.mark([line], Mark.FURNITURE if field is None else Mark.LANGUAGE)
                    if field is not None:
                        self.fields.setdefault(field.name, field)
            elif isinstance(block, Paragraph) and placed.field is not None:
                found = read_type(placed.field, block.text, block.line)
                if found is not None and placed.field not in members:
                    members.setdefault(placed.field, found)
                    self.ledger.mark([block.line], Mark.LANGUAGE)
                elif re.match(r"An? optional\b", words(block.text)) and placed.field in members:
                    members[placed.field].optional = True
        if not self.fields:
            self.fields = members
            return
        for name, found in members.items():
            if name in self.fields:
                own = self.fields[name]
                own.size, own.optional = own.size or found.size, own.optional or found.optional
        extra = [n for n in members if n not in self.fields]
        missing = [n for n in self.fields if n not in members]
        if len(extra) == len(missing) == 1:
            self.aliases[extra[0]] = missing[0]
            self.draft.note(f"The page calls {missing[0]} {extra[0]} where it describes it.")

    # Tables -----------------------------------------------------------------------------------

    def read_tables(self) -> None:
        levels: dict[str | None, Level] = {}
        for placed in self.placed:
            block = placed.block
            if not isinstance(block, PageTable) or placed.section == "requirements":
                continue
            places = find_columns(block)
            if places is None:
                continue
            level = levels.setdefault(placed.level, Level(placed.level, []))
            if level.tensors:
                self.draft.note("The page has a table for each function: types are those of any.")
            self.ledger.mark(block.header.lines, Mark.FURNITURE)
            for row in block.rows:
                made = read_tensor(row, places, self.kind_of(words(row.cells[places["name"]])))
                if made is None:
                    self.ledger.miss_row(row)
                    continue
                tensor, left = made
                _add_row(level.tensors, tensor)
                self.ledger.mark(row.lines, Mark.LANGUAGE)
                if left:
                    self.ledger.miss(row.lines, left)
        self.draft.levels = sorted(levels.values(), key=lambda t: _order(t.name))

    def kind_of(self, name: str) -> str | None:
        """Kind of a tensor by its field, for a table in another language."""
        field = self.fields.get(name)
        if field is None:
            return None
        kind = "output" if name.startswith("Output") else "input"
        if field.size is not None:
            return f"Array of {kind}s"
        return f"Optional {kind}" if field.optional else kind.capitalize()

    # Rows -------------------------------------------------------------------------------------

    def make_rows(self) -> None:
        """Makes attributes of the fields that are no tensors, and tensors if no table has them."""
        if not self.draft.levels:
            rows = [
                Tensor(f.name, self.kind_of(f.name) or "Input", lines=f.lines)
                for f in self.fields.values() if f.type == _TENSOR
            ]  # fmt: skip
            self.draft.levels = [Level(None, rows)]
            self.draft.note(
                "The page has no table of tensors: any type and dimension count is permitted."
            )
        for field in self.fields.values():
            if field.type != _TENSOR and self.draft.tensor(field.name) is None:
                attribute = self.make_attribute(field)
                if attribute is None:
                    self.ledger.miss(field.lines, f"{field.type} {field.name}")
                else:
                    self.draft.attributes.append(attribute)
        for field in self.fields.values():
            tensor, count = self.draft.tensor(field.name), self.draft.attribute(field.size or "")
            if tensor is not None and count is not None:
                said = f"{field.name} has {count.name} entries"
                self.draft.count(count, tensor, said, field.lines)
        order = list(self.fields)
        self.draft.attributes.sort(key=lambda a: self.place(a, order))

    def place(self, attribute: Attribute, order: Sequence[str]) -> tuple[int, int]:
        """Sort key of a row: a length precedes the first array of that length."""
        uses = [order.index(f.name) for f in self.fields.values() if f.size == attribute.name]
        own = order.index(attribute.name)
        return min([own, *uses]), 0 if uses else 1

    def make_attribute(self, field: Field) -> Attribute | None:
        made = Attribute(field.name, "", lines=field.lines)
        if field.type in _PAIRS:
            made.type, default = _PAIRS[field.type]
            made.default = default if field.optional or field.pointer else None
            return made
        if field.type == _OPERATOR:
            values = find_operators(field.name) or (_NONE,)
            made.type = "STRING"
            made.values = ", ".join(f"`{v}`" for v in values)
            self.draft.note(
                f"The values of {field.name} are the library's, which may have its parameters too."
            )
            made.default = NO_OPERATOR if _NONE in values else None
        elif field.type in _BASES:
            made.type = _BASES[field.type]
        elif re.fullmatch(r"DML_[A-Z0-9_]+", field.type):
            made.type = self.add_enum(field)
        else:
            return None
        if field.size is not None or (field.pointer and field.type in _BASES):
            size = field.size or ""
            known = size.isdigit() or size in self.fields
            made.type += f"[{size}]" if known else "[]"
        return made

    def add_enum(self, field: Field) -> str:
        """Type of an enumeration field: with the members of the library, or of the page."""
        members = dict(find_enums().get(field.type, {}))
        listed: list[str] = []
        for placed in self.placed:
            if placed.field == field.name and isinstance(placed.block, Paragraph):
                match = _MEMBER.match(words(placed.block.text))
                if placed.block.item and match and match[1].startswith(f"{field.type}_"):
                    listed.append(match[1].removeprefix(f"{field.type}_"))
        for name in listed:
            members.setdefault(name, len(members))
        if len(listed) > 1:
            members = {name: value for name, value in members.items() if name in listed}
        elif members:
            self.draft.note(f"The members of {field.type} are the library's.")
        if not members:
            self.draft.note(
                f"{field.name} is a number here: the page does not say what a {field.type} may be."
            )
            return "UINT"
        known = self.draft.enums.setdefault(field.type, Enum(field.type, {}, {}, field.lines))
        known.members = members
        return field.type

    # Blocks -----------------------------------------------------------------------------------

    def read_block(self, placed: Placed) -> None:
        block, field = placed.block, placed.field
        field = self.aliases.get(field or "", field)
        match block:
            case Heading():
                self.read_heading(block, placed)
            case Paragraph():
                self.read_paragraph(block, placed, field)
            case Code():
                self.read_code(block, placed)
            case PageTable() if placed.section in ("requirements", "see-also") or _is_legend(block):
                for row in (block.header, *block.rows):
                    self.ledger.mark(row.lines, Mark.FURNITURE)
            case PageTable():
                if find_columns(block) is None:
                    for row in (block.header, *block.rows):
                        self.ledger.miss_row(row)
            case Formula():
                self.formulas.read_latex(block)

    def read_heading(self, block: Heading, placed: Placed) -> None:
        known = placed.field in (None, *self.fields, *self.aliases)
        if placed.section == "members" and not known:
            self.ledger.miss([block.line], f"{placed.field} is no field of the structure")
        else:
            self.ledger.mark([block.line], Mark.FURNITURE)

    def read_paragraph(self, block: Paragraph, placed: Placed, field: str | None) -> None:
        lines = [line for line, _ in block.lines]
        if placed.section in ("see-also", "requirements") or _is_links(block.text):
            self.read_links(block)
            return
        if all(self.ledger.marks.get(line) is Mark.LANGUAGE for line in lines):
            return
        if field is not None and re.match(r"Type\b", words(block.text)):
            self.ledger.miss(lines, words(block.text))
            return
        if placed.section == "examples":
            self.read_lead(block)
            return
        if block.item and self.read_member(block, field):
            return
        doc = placed.section == "description" and self.draft.doc is None
        if doc:
            first = next(split(block), None)
            self.draft.doc = None if first is None else words(first.raw)
        self.sentences.read(block, field, doc)

    def read_lead(self, block: Paragraph) -> None:
        """Reads text between the examples, which may be a title."""
        lines = [line for line, _ in block.lines]
        text = words(block.text)
        self.examples.lead = text.rstrip(":") if text.endswith(":") else ""
        self.ledger.mark(lines, Mark.ILLUSTRATION)
        if not self.examples.lead:
            self.ledger.keep(lines, text)

    def read_links(self, block: Paragraph) -> None:
        """Reads a list of links to other pages."""
        for line, text in block.lines:
            if _is_links(text):
                self.ledger.mark([line], Mark.FURNITURE)
            else:
                self.sentences.read(Paragraph(((line, text),)))

    def read_member(self, block: Paragraph, field: str | None) -> bool:
        """Reads an item about a member of an enumeration; returns whether it was one."""
        match = _MEMBER.match(words(block.text))
        owner = self.fields.get(field or "")
        enum = None if owner is None else self.draft.enums.get(owner.type)
        if match is None or enum is None:
            return False
        member = match[1].removeprefix(f"{enum.name}_")
        if member not in enum.members:
            return False
        enum.meanings[member] = match[2]
        self.ledger.mark([line for line, _ in block.lines], Mark.LANGUAGE)
        return True

    def read_code(self, block: Code, placed: Placed) -> None:
        lines = [line for line, text in block.lines if text.strip()]
        if find_struct(block) is not None:
            known = set(self.ledger.marks)
            self.ledger.miss_lines(each for each in block.lines if each[0] not in known)
            return
        title = show_title(placed.title) if placed.title else ""
        if placed.section == "examples" and self.examples.read(block, title):
            return
        extents = read_extents(block.lines, self.draft) if "Sizes[" in block.text else None
        if extents is not None:
            for clause in extents:
                self.draft.require(clause.text.removeprefix("require "), clause.words, clause.lines)
            self.ledger.mark(lines, Mark.LANGUAGE)
            return
        if self.formulas.read_code(block):
            return
        shown = "\n".join(text.rstrip() for _, text in block.lines if text.strip())
        if placed.section == "examples" or is_illustration(block):
            self.ledger.mark(lines, Mark.ILLUSTRATION)
            self.ledger.keep(lines, shown)
        else:
            self.ledger.miss_lines(block.lines)


def _is_links(text: str) -> bool:
    return re.fullmatch(r"[\s*\-.,]*(?:\[[^\[\]]*\]\([^()]*\)[\s.,]*)+", text) is not None


def _is_legend(table: PageTable) -> bool:
    """Whether a table names the header file of the structure, in any language."""
    return not any(words(c) for c in table.header.cells) and "directml" in str(table.rows)


def _order(level: str | None) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", level or ""))


def _add_row(tensors: list[Tensor], tensor: Tensor) -> None:
    """Adds a row, or merges its types and ranks into the row of that name."""
    known = next((t for t in tensors if t.name == tensor.name), None)
    if known is None:
        tensors.append(tensor)
        return
    types = [*(known.types or "").split(", "), *(tensor.types or "").split(", ")]
    known.types = ", ".join(dict.fromkeys(filter(None, types))) or None
    if known.ranks != tensor.ranks:
        both = [*_order_ranks(known.ranks), *_order_ranks(tensor.ranks)]
        known.ranks = f"{min(both)} to {max(both)}" if both else None
    known.lines += tensor.lines


def _order_ranks(ranks: str | None) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", ranks or "1 to 8")]
