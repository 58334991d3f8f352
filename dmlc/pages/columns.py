"""Tables of DirectML pages: the meaning of columns and cells, in any language.

An English header determines the columns. In another language the cells do: data types, dimension
counts and dimensions look alike everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dmlc.language.tables import KINDS
from dmlc.pages.blocks import PageRow, PageTable, words
from dmlc.pages.draft import Tensor
from dmlc.scalars import find_data_type

_HEADERS: Mapping[str, str] = {
    "tensor": "name", "kind": "kind", "dimensions": "dimensions",
    "supported dimension counts": "ranks", "supported data types": "types",
    "dimension counts": "ranks", "data types": "types", "supported dimensions": "ranks",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_]\w{0,127}")
_RANKS = re.compile(r"([1-8])(?:\s+(?:\w+|-|\u2013|\u2014)\s+([1-8]))?")
_DIMENSIONS = re.compile(r"\{\s*(?:[A-Za-z_]\w*\s*\[\s*\]|\[?\w+\]?(?:\s*,\s*\[?\w+\]?)*)\s*\}")


def find_columns(table: PageTable) -> dict[str, int] | None:
    """Columns of a table of tensors; None for any other table."""
    places: dict[str, int] = {}
    for place, cell in enumerate(table.header.cells):
        known = _HEADERS.get(words(cell).lower())
        if known is not None:
            places.setdefault(known, place)
    if "name" in places and len(places) > 1:
        return places
    columns = [[words(row.cells[n]) for row in table.rows if n < len(row.cells)]
               for n in range(len(table.header.cells))]  # fmt: skip
    for place, cells in enumerate(columns):
        kind = _tell(cells)
        if kind is not None:
            places.setdefault(kind, place)
    # Which of the two that are left is the kind follows from where the name is.
    rest = [n for n in range(len(columns)) if n not in places.values()]
    if "types" in places and "name" not in places and rest:
        places["name"] = rest.pop(0)
    if rest and "kind" not in places:
        places["kind"] = rest[0]
    return places if {"name", "types"} <= places.keys() else None


def _tell(cells: Sequence[str]) -> str | None:
    if not cells:
        return None
    if all(read_types(c)[0] for c in cells):
        return "types"
    if all(_read_ranks(c) for c in cells):
        return "ranks"
    if all(_DIMENSIONS.fullmatch(c) for c in cells):
        return "dimensions"
    if all(c.lower() in KINDS for c in cells):
        return "kind"
    return None


def read_types(text: str) -> tuple[list[str], list[str]]:
    """Data types of a list, by the page's names, and the words that are none."""
    parts = [p.strip() for p in re.split(r",|;|\band\b|\bor\b", text) if p.strip()]
    known = [p for p in parts if find_data_type(p) is not None]
    return known, [p for p in parts if p not in known]


def _read_ranks(text: str) -> str | None:
    """`4`, `1 to 8`, `2, 4`, in any language."""
    found: list[str] = []
    for part in text.split(","):
        match = _RANKS.fullmatch(part.strip())
        if match is None or int(match[2] or 8) < int(match[1]):
            return None
        found.append(match[1] if match[2] is None else f"{match[1]} to {match[2]}")
    return ", ".join(found)


def read_tensor(
    row: PageRow, places: Mapping[str, int], kind: str | None
) -> tuple[Tensor, str] | None:
    """Tensor of a row, and its text that was not understood; None if the row names no tensor.
    `kind` is that of its field, for a page in another language."""

    def cell(name: str) -> str:
        place = places.get(name)
        return "" if place is None or place >= len(row.cells) else words(row.cells[place])

    name, left = cell("name"), ""
    if not _NAME.fullmatch(name):
        return None
    known = cell("kind").capitalize() if cell("kind").lower() in KINDS else kind
    if known is None:
        known = "Output" if name.startswith("Output") else "Input"
    tensor = Tensor(name, known, lines=row.lines)
    types, unknown = read_types(cell("types"))
    tensor.types = ", ".join(types) or None
    if unknown:
        left = f"the data types {', '.join(unknown)} of {name}"
    tensor.ranks = _read_ranks(cell("ranks"))
    if tensor.ranks is None and cell("ranks"):
        left = f"the dimension counts '{cell('ranks')}' of {name}"
    if _DIMENSIONS.fullmatch(cell("dimensions")):
        tensor.dimensions = cell("dimensions")
    elif cell("dimensions"):
        left = f"the dimensions '{cell('dimensions')}' of {name}"
    return tensor, left
