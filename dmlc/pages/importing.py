"""Import of a page as a description that checks: `import_page` for a file, `import_text` for a
text.

A part that the checker refuses, such as a constraint that names a row of no table, becomes a
comment, as text that was not understood does.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

from dmlc.files import read_bounded
from dmlc.language.check import check_text
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.pages.blocks import Page
from dmlc.pages.directml import find_name, read_directml
from dmlc.pages.draft import Attribute, Clause, Combination, Draft, Enum, Example, Tensor
from dmlc.pages.ledger import Figures, Ledger
from dmlc.pages.markdown import read_markdown
from dmlc.pages.onednn import is_onednn, read_onednn
from dmlc.pages.rst import read_rst
from dmlc.pages.write import Part, write
from dmlc.parameters import expect_path, expect_text
from dmlc.source import Diagnostic, DmlcError, Source

MAX_BYTES = 1 << 20
"""Largest page that is read, in bytes."""
MAX_LINE = 8000
"""Longest line that is read, in characters."""
MOST_ATTEMPTS = 20
"""Number of times that refused parts are removed one by one; after that all suspects are
removed."""
_MARKDOWN = (".md", ".markdown")
_RST = (".rst", ".rst.txt")


@dataclasses.dataclass(frozen=True, slots=True)
class ImportedPage:
    """Description made from a page."""

    name: str
    """Operator's name, without its module."""
    text: str
    """Formatted `.dml` file, which checks without an error."""
    figures: Figures


def import_page(path: str | Path) -> ImportedPage:
    """Description of the operator that a page is about.

    Pages are Markdown (`.md`) or reStructuredText (`.rst`, `.rst.txt`), of DirectML's reference or
    of oneDNN Graph's operations. Raises `DmlcError` if the file cannot be read, or is about no
    operator.
    """
    found = Path(expect_path("path", path))
    _expect_suffix(found.name)
    content = read_bounded(found, MAX_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DmlcError(f"'{found}' is not UTF-8 text: byte {error.start} is wrong") from None
    return import_text(text, found.name)


def import_text(text: str, filename: str) -> ImportedPage:
    """Description from a text, as by `import_page`. The suffix of the name determines the
    format."""
    expect_text("text", text, "the text of a page")
    _expect_suffix(filename)
    if len(text) > MAX_BYTES:
        raise DmlcError(f"'{filename}' is larger than {MAX_BYTES >> 20} MiB")
    longest = max((len(line), n) for n, line in enumerate(text.split("\n"), 1))
    if longest[0] > MAX_LINE:
        raise DmlcError(f"'{filename}': line {longest[1]} has more than {MAX_LINE} characters")
    read = read_rst if filename.endswith(_RST) else read_markdown
    try:
        page = read(filename, text)
    except RecursionError:
        raise DmlcError(f"'{filename}': lists and quotations are nested too deeply") from None
    ledger = Ledger(page)
    draft = _read(page, ledger)
    ledger.close()
    made = _drop_refused(draft, ledger)
    return ImportedPage(draft.name, made, ledger.figures())


def _expect_suffix(name: str) -> None:
    if not name.endswith((*_MARKDOWN, *_RST)):
        known = ", ".join((*_MARKDOWN, *_RST))
        raise DmlcError(f"'{name}' is no page that is read: their names end in {known}")


def _read(page: Page, ledger: Ledger) -> Draft:
    name = find_name(page)
    if name is not None:
        return read_directml(page, name, ledger)
    if is_onednn(page):
        return read_onednn(page, ledger)
    raise DmlcError(
        f"'{page.name}' is about no operator",
        notes=[
            "pages of DirectML name a structure DML_..._OPERATOR_DESC",
            "pages of oneDNN Graph have tables of inputs, outputs and supported data types",
        ],
    )


def _drop_refused(draft: Draft, ledger: Ledger) -> str:
    """Text of a description without the parts that the language refuses."""
    text = ""
    for attempt in itertools.count(1):
        lines = write(draft, ledger.page.name, ledger.remarks, ledger.prose)
        text = "\n".join(line for line, _ in lines) + "\n"
        try:
            check_text(text, f"{draft.name}.dml")
        except DmlcError as error:
            known = [part for _, part in lines]
            found = [_part_at(diagnostic, known) for diagnostic in error.diagnostics]
            if attempt >= MOST_ATTEMPTS:
                found += [*draft.functions, *draft.constraints, *draft.examples]
            left_out = [_leave_out(draft, ledger, part) for part in found]
            if not any(left_out):
                raise DmlcError(
                    f"'{ledger.page.name}' describes no operator of the language: "
                    f"{error.diagnostics[0].message}"
                ) from None
        else:
            break
    return format_file(parse(Source(f"{draft.name}.dml", text)))


def _part_at(diagnostic: Diagnostic, parts: list[Part]) -> Part:
    span = diagnostic.span
    return None if span is None else parts[span.line - 1]


def _leave_out(draft: Draft, ledger: Ledger, part: Part) -> bool:
    """Removes a part of a description, or its cell that may be wrong, and keeps the page's words as
    a comment; returns whether there was anything to remove."""
    match part:
        case Attribute(default=str(default)):
            ledger.keep(part.lines, f"the default {default} of {part.name}")
            part.default = None
        case Attribute() if part in draft.attributes:
            draft.attributes.remove(part)
            ledger.miss(part.lines, f"the attribute {part.name}, {part.type}")
        case Tensor(dimensions=str(dimensions)):
            ledger.miss(part.lines, f"the dimensions {dimensions} of {part.name}")
            part.dimensions = None
        case Tensor():
            return _leave_out_tensor(draft, ledger, part)
        case Clause() if part in draft.compute:
            for clause in draft.compute:
                ledger.miss(clause.lines, clause.words)
            draft.compute = []
        case Clause():
            for clauses in (draft.constraints, draft.functions):
                if part in clauses:
                    clauses.remove(part)
                    ledger.miss(part.lines, part.words)
                    return True
            return False
        case Example() if part in draft.examples:
            draft.examples.remove(part)
            ledger.show(part.lines)
        case Combination() if part in draft.combinations:
            draft.combinations.remove(part)
            ledger.miss(part.lines, " | ".join(part.cells))
        case Enum() if part.name in draft.enums:
            del draft.enums[part.name]
            ledger.miss(part.lines, f"the enumeration {part.name}")
        case _:
            return False
    return True


def _leave_out_tensor(draft: Draft, ledger: Ledger, part: Tensor) -> bool:
    if not draft.compute:
        for level in draft.levels:
            if part in level.tensors and len(level.tensors) > 1:
                level.tensors.remove(part)
                ledger.miss(part.lines, f"the tensor {part.name}")
                return True
        return False
    # "output is never defined" is said of the tensor.
    for clause in draft.compute:
        ledger.miss(clause.lines, clause.words)
    draft.compute = []
    return True
