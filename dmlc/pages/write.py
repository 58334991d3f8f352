"""Text of a draft in the language, each line with its part of the draft."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from dmlc.language.format import WIDTH, quote
from dmlc.pages.draft import Attribute, Clause, Combination, Draft, Enum, Example, Level, Tensor
from dmlc.pages.ledger import Remark

Part: TypeAlias = Attribute | Clause | Combination | Enum | Example | Tensor | None
"""Part that a line belongs to; None for lines of every description."""
Line: TypeAlias = tuple[str, Part]


def write(
    draft: Draft, origin: str, remarks: Sequence[Remark], prose: Sequence[Remark]
) -> list[Line]:
    """Lines of a description of the page `origin`; `remarks` and `prose` become comments."""
    lines: list[Line] = [
        (f"// From the page {_bare(origin)}, by dmlc import.", None),
        (f"module {draft.module}", None),
        ("", None),
    ]
    for enum in draft.enums.values():
        lines += _write_enum(enum)
    for clause in draft.functions:
        lines += [*_comment(f"line {_first(clause)}: {clause.words}", 0), (clause.text, clause)]
        lines.append(("", None))
    lines.append((f"operator {draft.name} {{", None))
    if draft.doc:
        lines.append((f"    {quote(_bare(draft.doc))}", None))
    if draft.introduced:
        lines.append((f"    introduced {draft.introduced}", None))
    if draft.forward:
        lines.append((f"    forward {draft.forward}", None))
    lines.append(("", None))
    lines += _write_attributes(draft.attributes)
    for level in draft.levels:
        lines += _write_tensors(level)
    lines += _write_types(draft)
    lines += _write_clauses("constraints", draft.constraints)
    if draft.compute:
        lines += _write_clauses("compute", draft.compute)
    for example in draft.examples:
        lines += _write_example(example)
    lines += _write_notes(draft)
    title = "What was not put into the language, with its line on the page:"
    lines += _write_remarks(title, remarks)
    lines += _write_remarks("Prose of the page:", prose)
    return [*lines, ("}", None)]


def _bare(text: str) -> str:
    """Text on one line, without characters that the language excludes."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _comment(text: str, indent: int) -> list[Line]:
    """Comment, wrapped if too long for a line; its own line breaks stay."""
    found: list[Line] = []
    margin = " " * indent
    for number, part in enumerate(text.split("\n")):
        kept = "".join(c if c.isprintable() else " " for c in part)
        first = f"{margin}// " if number == 0 else f"{margin}//     "
        if number:
            found.append((f"{first}{kept}".rstrip(), None))
            continue
        lines = textwrap.wrap(
            _bare(kept), WIDTH, initial_indent=first, subsequent_indent=f"{margin}//     ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        found += [(line, None) for line in lines or [first.rstrip()]]
    return found


def _first(clause: Clause) -> int:
    return min(clause.lines, default=0)


def _write_enum(enum: Enum) -> list[Line]:
    lines: list[Line] = []
    for member, meaning in enum.meanings.items():
        if meaning.strip():
            lines += _comment(f"{member}: {meaning}", 0)
    members = ", ".join(f"{name} = {value}" for name, value in enum.members.items())
    return [*lines, (f"enum {enum.name} {{ {members} }}", enum), ("", None)]


def _write_table(
    head: str, columns: Sequence[str], rows: Iterable[tuple[Sequence[str | None], Part]]
) -> list[Line]:
    """Table without its empty columns."""
    filled = [(tuple(cells), part) for cells, part in rows]
    if not filled:
        return []
    used = [n for n in range(len(columns)) if n < 2 or any(cells[n] for cells, _ in filled)]
    lines: list[Line] = [(f"    {head} {{", None)]
    lines.append((f"        | {' | '.join(columns[n] for n in used)} |", None))
    lines.append((f"        | {' | '.join('---' for _ in used)} |", None))
    for cells, part in filled:
        lines.append((f"        | {' | '.join(cells[n] or '' for n in used)} |", part))
    return [*lines, ("    }", None)]


def _write_attributes(attributes: Sequence[Attribute]) -> list[Line]:
    columns = ("Attribute", "Type", "Default", "Values")
    rows = (((a.name, a.type, a.default, a.values), a) for a in attributes)
    return _write_table("attributes", columns, rows)


def _write_tensors(level: Level) -> list[Line]:
    columns = ("Tensor", "Kind", "Dimensions", "Supported dimension counts",
               "Supported data types")  # fmt: skip
    head = "tensors" if level.name is None else f"tensors {level.name}"
    rows = (((t.name, t.kind, t.dimensions, t.ranks, t.types), t) for t in level.tensors)
    return _write_table(head, columns, rows)


def _write_types(draft: Draft) -> list[Line]:
    rows = ((c.cells, c) for c in draft.combinations)
    found = _write_table("types", draft.header, rows)
    return found if draft.header else []


def _write_clauses(head: str, clauses: Sequence[Clause]) -> list[Line]:
    if not clauses:
        return []
    lines: list[Line] = [(f"    {head} {{", None)]
    lines += [(f"        {clause.text}", clause) for clause in clauses]
    return [*lines, ("    }", None)]


def _write_example(example: Example) -> list[Line]:
    lines: list[Line] = [(f"    example {quote(_bare(example.title))} {{", example)]
    lines += [(f"        {name} = {value}", example) for name, value in example.items.items()]
    lines += [
        (f"        expect {name} = {value}", example) for name, value in example.outputs.items()
    ]
    return [*lines, ("    }", example)]


def _write_notes(draft: Draft) -> list[Line]:
    lines: list[Line] = [("", None)]
    for note in draft.notes:
        lines += _comment(note, 4)
    if not draft.compute:
        lines += _comment("No formula of the page was put into the language. Write it here:", 4)
        lines += [("    // compute {", None), ("    // }", None)]
    return lines


def _write_remarks(title: str, remarks: Sequence[Remark]) -> list[Line]:
    lines = _comment(title, 4) if remarks else []
    for remark in sorted(remarks, key=lambda r: r.line):
        lines += _comment(f"line {remark.line}: {remark.text}", 4)
    return lines
