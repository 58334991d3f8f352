"""What the cells of a table mean: kinds, dimensions, ranks, data types, attribute types.

Cells are text as a reference page has it; emphasis marks and links around words are ignored. Each
mistake is added to the list of diagnostics given, with its cell, and a cell that cannot be read
gives a permissive value, so that one mistake is reported once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.definitions import (
    AttributeDefinition,
    Dimension,
    EnumDefinition,
    TensorDefinition,
    TypeCombination,
)
from dmlc.language.parse import parse_expression
from dmlc.scalars import DataType, data_type_names, find_data_type
from dmlc.source import Diagnostic, DmlcError, Note, Span, unknown_name

MAX_RANK = 8
_SHOWN = 40
"""How much of a cell a message repeats."""
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
_ALL_RANKS = tuple(range(1, MAX_RANK + 1))

_KINDS: Mapping[str, tuple[bool, bool, bool]] = {
    # kind: output, optional, array
    "input": (False, False, False),
    "output": (True, False, False),
    "optional input": (False, True, False),
    "optional output": (True, True, False),
    "array of inputs": (False, False, True),
    "array of outputs": (True, False, True),
}
_TENSOR_COLUMNS = ("Tensor", "Kind", "Dimensions", "Supported dimension counts",
                   "Supported data types")  # fmt: skip
_ATTRIBUTE_COLUMNS = ("Attribute", "Type", "Default", "Values")
_SHORT_COLUMNS = {"ranks": "Supported dimension counts", "types": "Supported data types"}
_BASES: Mapping[str, str] = {
    "float": "FLOAT", "float32": "FLOAT", "f32": "FLOAT",
    "int": "INT", "int32": "INT", "int64": "INT", "s32": "INT", "s64": "INT",
    "uint": "UINT", "uint32": "UINT", "uint64": "UINT", "u32": "UINT", "u64": "UINT",
    "bool": "BOOL", "boolean": "BOOL",
    "string": "STRING",
}  # fmt: skip

Diagnostics = list[Diagnostic]


def plain(text: str) -> str:
    """A cell's words, without emphasis marks, code marks and links."""
    unlinked = re.sub(r"\[([^\]\[]*)\]\([^()]*\)", r"\1", text)
    bare = re.sub(r"[*`\\]", "", unlinked)
    unmarked = re.sub(r"(?<!\w)(_+)([A-Za-z0-9](?:\w*[A-Za-z0-9])?)\1(?!\w)", r"\2", bare)
    return " ".join(unmarked.replace("\u00a0", " ").replace("&nbsp;", " ").split())


def _fail(diagnostics: Diagnostics, message: str, span: Span, *notes: str) -> None:
    diagnostics.append(Diagnostic(message, span, tuple(Note(n) for n in notes)))


# Rows ------------------------------------------------------------------------------------------


class _Columns:
    """The cells of a table's rows by the name of their column."""

    def __init__(
        self, table: syntax.Table, known: Sequence[str], what: str, diagnostics: Diagnostics
    ) -> None:
        self.places: dict[str, int] = {}
        self.table = table
        self.diagnostics = diagnostics
        folded = {name.lower(): name for name in known} | {
            short: name for short, name in _SHORT_COLUMNS.items() if name in known
        }
        for place, cell in enumerate(table.header.cells):
            name = folded.get(plain(cell.text).lower())
            if name is None:
                shown = (plain(cell.text) or cell.text)[:_SHOWN]
                _fail(
                    diagnostics,
                    f"unknown column '{shown}' in a table of {what}",
                    cell.span,
                    f"its columns are: {', '.join(known)}",
                )
            elif name in self.places:
                _fail(diagnostics, f"column '{name}' stands twice", cell.span)
            else:
                self.places[name] = place

    def require(self, *names: str) -> bool:
        """Whether the columns are there; a missing one is a mistake of the header."""
        missing = [n for n in names if n not in self.places]
        for name in missing:
            _fail(self.diagnostics, f"this table has no column '{name}'", self.table.header.span)
        return not missing

    def rows(self) -> Iterable[tuple[syntax.Row, Callable[[str], syntax.Cell | None]]]:
        """Each row whose cells fit the header, and how to get a cell by column."""
        width = len(self.table.header.cells)
        for row in self.table.rows:
            if len(row.cells) != width:
                _fail(
                    self.diagnostics,
                    f"this row has {len(row.cells)} cells where the header has {width}",
                    row.span,
                )
                continue
            yield row, lambda name, row=row: self.cell(row, name)

    def cell(self, row: syntax.Row, name: str) -> syntax.Cell | None:
        """A cell with something in it, or None."""
        place = self.places.get(name)
        if place is None or not plain(row.cells[place].text):
            return None
        return row.cells[place]


def read_tensors(table: syntax.Table, diagnostics: Diagnostics) -> list[TensorDefinition]:
    """The rows of a table of tensors."""
    columns = _Columns(table, _TENSOR_COLUMNS, "tensors", diagnostics)
    if not columns.require("Tensor", "Kind"):
        return []
    found: dict[str, TensorDefinition] = {}
    for row, cell in columns.rows():
        name = _name(cell("Tensor"), row, "tensor", diagnostics)
        if name is None:
            continue
        if name.text in found:
            _fail(diagnostics, f"tensor '{name.text}' stands twice in this table", name.span)
            continue
        output, optional, array = _kind(cell("Kind"), row, diagnostics)
        shape_name, dimensions = _dimensions(cell("Dimensions"), diagnostics)
        found[name.text] = TensorDefinition(
            name.text,
            output,
            optional,
            array,
            shape_name,
            dimensions,
            _ranks(cell("Supported dimension counts"), dimensions, diagnostics),
            read_data_types(cell("Supported data types"), diagnostics),
            name.span,
        )
    return list(found.values())


def _name(
    cell: syntax.Cell | None, row: syntax.Row, what: str, diagnostics: Diagnostics
) -> syntax.Name | None:
    if cell is None:
        _fail(diagnostics, f"this row names no {what}", row.span)
        return None
    text = plain(cell.text)
    if not re.fullmatch(_NAME, text):
        _fail(
            diagnostics,
            f"'{text[:_SHOWN]}' is no name of a {what}",
            cell.span,
            "a name is a letter or '_', then letters, digits and '_', 128 at most",
        )
        return None
    return syntax.Name(text, cell.span)


def _kind(
    cell: syntax.Cell | None, row: syntax.Row, diagnostics: Diagnostics
) -> tuple[bool, bool, bool]:
    if cell is None:
        _fail(diagnostics, "this row names no kind", row.span)
        return _KINDS["input"]
    text = plain(cell.text).lower()
    if text not in _KINDS:
        diagnostics.append(
            unknown_name("kind", plain(cell.text), [k.capitalize() for k in _KINDS], cell.span)
        )
    return _KINDS.get(text, _KINDS["input"])


def _dimensions(
    cell: syntax.Cell | None, diagnostics: Diagnostics
) -> tuple[str | None, tuple[Dimension, ...] | None]:
    """`{ InputDimensions[] }`, or `{ N, [C], 1, W }`."""
    if cell is None:
        return None, None
    text = plain(cell.text)
    match = re.fullmatch(r"\{\s*(.*?)\s*\}", text)
    if match is None:
        _fail(diagnostics, "expected dimensions in braces, such as { N, C, H, W }", cell.span)
        return None, None
    whole = re.fullmatch(rf"({_NAME})\s*\[\s*\]", match.group(1))
    if whole is not None:
        return whole.group(1), None
    dimensions: list[Dimension] = []
    for part in (p.strip() for p in match.group(1).split(",")):
        item = re.fullmatch(rf"(\[)?\s*(?:({_NAME})|([0-9]{{1,9}}))\s*(\])?", part)
        if item is None or bool(item.group(1)) != bool(item.group(4)):
            _fail(
                diagnostics,
                f"'{part[:_SHOWN]}' is no dimension: expected a name, a number, or [name]",
                cell.span,
            )
            return None, None
        size = None if item.group(3) is None else int(item.group(3))
        dimensions.append(Dimension(item.group(2), size, bool(item.group(1))))
    return None, tuple(dimensions)


def _ranks(
    cell: syntax.Cell | None,
    dimensions: tuple[Dimension, ...] | None,
    diagnostics: Diagnostics,
) -> tuple[int, ...]:
    """`4`, `1 to 8`, `2, 4`; without a cell, what the dimensions say."""
    if cell is None:
        if dimensions is None:
            return _ALL_RANKS
        optional = sum(d.optional for d in dimensions)
        return tuple(range(max(1, len(dimensions) - optional), len(dimensions) + 1))
    found: set[int] = set()
    for part in plain(cell.text).split(","):
        match = re.fullmatch(r"\s*([0-9]{1,3})(?:\s*(?:to|-|\u2013)\s*([0-9]{1,3}))?\s*", part)
        low, high = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
        if not 1 <= low <= high <= MAX_RANK:
            _fail(
                diagnostics,
                f"expected dimension counts from 1 to {MAX_RANK}, such as '4' or '1 to 8'",
                cell.span,
            )
            return _ALL_RANKS
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def read_data_types(cell: syntax.Cell | None, diagnostics: Diagnostics) -> tuple[DataType, ...]:
    """A list of data types; all of them where there is no cell."""
    if cell is None:
        return tuple(t for t in DataType if t is not DataType.INDEX)
    found: dict[DataType, None] = {}
    for part in re.split(r"\s*(?:,|\band\b|\bor\b)\s*", plain(cell.text)):
        if not part:
            continue
        dtype = find_data_type(part)
        if dtype is None:
            diagnostics.append(unknown_name("data type", part, data_type_names(), cell.span))
        else:
            found[dtype] = None
    return tuple(found)


# Attributes ------------------------------------------------------------------------------------


def read_attributes(
    table: syntax.Table, enums: Mapping[str, EnumDefinition], diagnostics: Diagnostics
) -> list[AttributeDefinition]:
    """The rows of a table of attributes. `enums` are the enums a type may name."""
    columns = _Columns(table, _ATTRIBUTE_COLUMNS, "attributes", diagnostics)
    if not columns.require("Attribute", "Type"):
        return []
    found: dict[str, AttributeDefinition] = {}
    for row, cell in columns.rows():
        name = _name(cell("Attribute"), row, "attribute", diagnostics)
        if name is None:
            continue
        if name.text in found:
            _fail(diagnostics, f"attribute '{name.text}' stands twice in this table", name.span)
            continue
        made = _attribute(name, cell, row, enums, diagnostics)
        if made is not None:
            found[name.text] = made
    return list(found.values())


def _attribute(
    name: syntax.Name,
    cell: Callable[[str], syntax.Cell | None],
    row: syntax.Row,
    enums: Mapping[str, EnumDefinition],
    diagnostics: Diagnostics,
) -> AttributeDefinition | None:
    type_cell, value_cell = cell("Type"), cell("Values")
    if type_cell is None:
        _fail(diagnostics, f"attribute '{name.text}' has no type", row.span)
        return None
    text = type_cell.text.strip().strip("*`")
    match = re.fullmatch(rf"({_NAME})\s*(?:\[(.*)\])?", text.replace("\\", ""))
    if match is None:
        _fail(
            diagnostics,
            f"'{text[:_SHOWN]}' is no attribute type",
            type_cell.span,
            "such as FLOAT, UINT[2], FLOAT[DimensionCount], an enum, or string",
        )
        return None
    word = match.group(1)
    base, enum = _BASES.get(word.lower()), enums.get(word)
    if base is None and enum is None:
        known = ["FLOAT", "INT", "UINT", "BOOL", "string", *enums]
        diagnostics.append(unknown_name("attribute type", word, known, type_cell.span))
        return None
    values = None if value_cell is None else _values(value_cell)
    if base == "STRING" and values is None:
        _fail(
            diagnostics,
            f"attribute '{name.text}' is a string: its 'Values' cell must list what it may be",
            type_cell.span,
        )
        return None
    length: syntax.Expression | None = None
    if match.group(2) is not None and match.group(2).strip():
        start = type_cell.span.start + type_cell.text.index("[") + 1
        end = type_cell.span.start + type_cell.text.rindex("]")
        length = _expression(type_cell.span, start, end, diagnostics)
    default_cell = cell("Default")
    default = None if default_cell is None else _default(default_cell, base, diagnostics)
    return AttributeDefinition(
        name.text,
        base or "ENUM",
        enum if base is None else None,
        values,
        match.group(2) is not None,
        length,
        default,
        name.span,
    )


def _values(cell: syntax.Cell) -> tuple[str, ...]:
    """The values of a cell, a remark such as `(default)` left out."""
    parts = re.sub(r"\([^()]*\)", "", plain(cell.text)).split(",")
    return tuple(p.strip().strip('"') for p in parts if p.strip())


def _default(
    cell: syntax.Cell, base: str | None, diagnostics: Diagnostics
) -> syntax.Expression | None:
    quoted = re.fullmatch(r"([`*_]*)(.*?)\1", cell.text, re.DOTALL)
    mark = len(quoted.group(1)) if quoted is not None else 0
    start, end = cell.span.start + mark, cell.span.end - mark
    text = cell.span.source.text[start:end].strip()
    if base == "STRING":
        return syntax.String(text.strip('"'), cell.span)
    return _expression(cell.span, start, end, diagnostics)


def _expression(
    span: Span, start: int, end: int, diagnostics: Diagnostics
) -> syntax.Expression | None:
    try:
        return parse_expression(span.source, start, end)
    except DmlcError as error:
        diagnostics += error.diagnostics
        return None


# Types -----------------------------------------------------------------------------------------


def read_types(
    table: syntax.Table, tensors: Sequence[str], diagnostics: Diagnostics
) -> list[TypeCombination]:
    """The rows of a table of type combinations. A header cell names tensors, in any case,
    separated by commas or slashes; together the columns may leave tensors out."""
    folded = {name.lower(): name for name in tensors}
    header: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for cell in table.header.cells:
        names: list[str] = []
        for part in re.split(r"\s*[,/]\s*", plain(cell.text)):
            name = folded.get(part.lower())
            if name is None:
                diagnostics.append(unknown_name("tensor", part, tensors, cell.span))
            elif name in seen:
                _fail(diagnostics, f"tensor '{name}' stands in two columns", cell.span)
            else:
                seen.add(name)
                names.append(name)
        header.append(tuple(names))
    combinations: list[TypeCombination] = []
    for row in table.rows:
        if len(row.cells) != len(header):
            _fail(
                diagnostics,
                f"this row has {len(row.cells)} cells where the header has {len(header)}",
                row.span,
            )
            continue
        types: dict[str, tuple[DataType, ...]] = {}
        for named, cell in zip(header, row.cells, strict=True):
            if not plain(cell.text):
                _fail(diagnostics, "expected data types in this cell", cell.span)
                continue
            types.update(dict.fromkeys(named, read_data_types(cell, diagnostics)))
        combinations.append(TypeCombination(types, row.span))
    return combinations
