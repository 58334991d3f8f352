"""Readers of table cells: kinds, dimensions, ranks, data types, attribute types.

Cells have the text of a reference page; emphasis marks and links around words are dropped. Each
error is added to the given diagnostics with its cell, and an unreadable cell gives a permissive
value, so that one error is reported once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Iterable, Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.attribute_types import ATTRIBUTE_TYPES, ENUM, AttributeType, What
from dmlc.language.definitions import (
    AttributeDefinition,
    Dimension,
    EnumDefinition,
    TensorDefinition,
    TypeCombination,
)
from dmlc.language.foreign_words import find_type
from dmlc.language.kinds import Reporter
from dmlc.language.parse import parse_expression
from dmlc.scalars import TENSOR_TYPES, DataType, data_type_names, find_data_type
from dmlc.source import (
    Diagnostic,
    DmlcError,
    Edit,
    Fix,
    Span,
    nearest,
    replace_word,
)

MAX_RANK = 8
_SHOWN = 40
"""Number of characters of a cell in messages."""
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
_ALL_RANKS = tuple(range(1, MAX_RANK + 1))

KINDS: Mapping[str, tuple[bool, bool, bool]] = {
    # kind: output, optional, array
    "input": (False, False, False),
    "output": (True, False, False),
    "optional input": (False, True, False),
    "optional output": (True, True, False),
    "array of inputs": (False, False, True),
    "array of outputs": (True, False, True),
}
TENSOR_COLUMNS = ("Tensor", "Kind", "Dimensions", "Supported dimension counts",
                  "Supported data types")  # fmt: skip
ATTRIBUTE_COLUMNS = ("Attribute", "Type", "Default", "Values")
_SHORT_COLUMNS = {"ranks": "Supported dimension counts", "types": "Supported data types"}
_TYPES = {word: t for t in ATTRIBUTE_TYPES.values() for word in (t.name.lower(), *t.also)}
_WORDS = {*KINDS, *_TYPES}
"""Words in cells that are not names of rows."""

Diagnostics = list[Diagnostic]


def plain(text: str) -> str:
    """A cell's words, without emphasis marks, code marks and links."""
    unlinked = re.sub(r"\[([^\]\[]*)\]\([^()]*\)", r"\1", text)
    bare = re.sub(r"[*`\\]", "", unlinked)
    unmarked = re.sub(r"(?<!\w)(_+)([A-Za-z0-9](?:\w*[A-Za-z0-9])?)\1(?!\w)", r"\2", bare)
    return " ".join(unmarked.replace("\u00a0", " ").replace("&nbsp;", " ").split())


@dataclasses.dataclass(frozen=True, slots=True)
class _Cells:
    """Cells of a row by column name; `places` has the columns' indices."""

    row: syntax.TableRow
    places: Mapping[str, int]

    def __call__(self, column: str) -> syntax.Cell | None:
        """Cell of a column; None if it is empty, or the table has no such column."""
        place = self.places.get(column)
        found = None if place is None else self.row.cells[place]
        return found if found is not None and plain(found.text) else None

    def fill(self, column: str, texts: Iterable[str]) -> tuple[Fix, ...]:
        """Fixes that write one of some texts into an empty cell."""
        place = self.places.get(column)
        if place is None:
            return ()
        span = self.row.cells[place].span
        return tuple((Edit(span, f" {text} "),) for text in texts)


_TABLE_LINE = re.compile(r"\|[^\n]*\|")


def _add_column(table: syntax.Table, place: int, name: str) -> Fix:
    """Fix that adds a column of empty cells beside the one at an index."""
    edits: list[Edit] = []
    for number, line in enumerate(_TABLE_LINE.finditer(table.span.text)):
        bars = [line.start() + bar.start() for bar in re.finditer(r"\|", line[0])]
        width = len(name)
        text = name if number == 0 else "-" * width if re.fullmatch(r"[|:\s-]*", line[0]) else ""
        at = bars[min(place, len(bars) - 1)]
        edits.append(Edit(table.span.part(at, at), f"| {text.ljust(width)} "))
    return tuple(edits)


class _CellReader(Reporter):
    """Reader of cells; the names in unreadable ones are added to `broken`."""

    def __init__(self, diagnostics: Diagnostics, broken: set[str] | None = None) -> None:
        super().__init__(diagnostics)
        self.broken = set[str]() if broken is None else broken

    def lose(self, *cells: syntax.Cell) -> None:
        """Records the names in unreadable cells: those of a row, and those of sizes."""
        for text in (plain(cell.text) for cell in cells):
            if text[:1] in ("{", "["):
                self.broken.update(re.findall(_NAME, text))
            elif text.lower() not in _WORDS and find_data_type(text) is None:
                # Also the name that is meant where one has a character too many.
                self.broken.add(re.sub(r"\W", "", text))

    def name(self, cell: syntax.Cell | None, row: syntax.TableRow, what: str) -> syntax.Name | None:
        if cell is None:
            self.fail(f"this row names no {what}", row.span, code="E0107")
            return None
        text = plain(cell.text)
        if re.fullmatch(_NAME, text):
            return syntax.Name(text, span=cell.span)
        rule = "a name is a letter or '_', then letters, digits and '_', 128 at most"
        named = f"an {what}" if what == "attribute" else f"a {what}"
        self.fail(f"'{text[:_SHOWN]}' is no name of {named}", cell.span, rule, code="E0107")
        return None

    def kind(self, cells: _Cells) -> tuple[bool, bool, bool]:
        cell, kinds = cells("Kind"), [k.capitalize() for k in KINDS]
        text = "" if cell is None else plain(cell.text)
        if cell is None:
            fixes = cells.fill("Kind", kinds)
            self.fail("this row names no kind", cells.row.span, code="E0107", fixes=fixes)
        elif text.lower() not in KINDS:
            self.fail_unknown("kind", text, kinds, cell.span, code="E0107")
            # What is meant, so that one mistake is one message.
            text = nearest(text, kinds) or ""
        return KINDS.get(text.lower(), KINDS["input"])

    def dimensions(
        self, cell: syntax.Cell | None
    ) -> tuple[str | None, tuple[Dimension, ...] | None]:
        """`{ InputDimensions[] }`, or `{ N, [C], 1, W }`."""
        if cell is None:
            return None, None
        match = re.fullmatch(r"\{\s*(.*?)\s*\}", plain(cell.text))
        if match is None:
            self.lose(cell)
            self.fail(
                "expected dimensions in braces, such as { N, C, H, W }", cell.span, code="E0107"
            )
            return None, None
        whole = re.fullmatch(rf"({_NAME})\s*\[\s*\]", match.group(1))
        if whole is not None:
            return whole.group(1), None
        dimensions: list[Dimension] = []
        for part in (p.strip() for p in match.group(1).split(",")):
            item = re.fullmatch(rf"(\[)?\s*(?:({_NAME})|([0-9]{{1,9}}))\s*(\])?", part)
            if item is None or bool(item.group(1)) != bool(item.group(4)):
                message = f"'{part[:_SHOWN]}' is no dimension: expected a name, a number, or [name]"
                self.fail(message, cell.span, code="E0107")
                self.lose(cell)
                return None, None
            size = None if item.group(3) is None else int(item.group(3))
            dimensions.append(Dimension(item.group(2), size, bool(item.group(1))))
        return None, tuple(dimensions)

    def ranks(
        self, cell: syntax.Cell | None, dimensions: tuple[Dimension, ...] | None
    ) -> tuple[int, ...]:
        """Ranks such as `4`, `1 to 8` or `2, 4`; without a cell, those of the dimensions."""
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
                expected = f"dimension counts from 1 to {MAX_RANK}, such as '4' or '1 to 8'"
                self.fail(f"expected {expected}", cell.span, code="E0107")
                return _ALL_RANKS
            found.update(range(low, high + 1))
        return tuple(sorted(found))

    def data_types(self, cell: syntax.Cell | None) -> tuple[DataType, ...]:
        """List of data types; without a cell, all of them."""
        if cell is None:
            return TENSOR_TYPES
        found: dict[DataType, None] = {}
        for part in re.split(r"\s*(?:,|\band\b|\bor\b)\s*", plain(cell.text)):
            dtype = find_data_type(part)
            if dtype is not None:
                found[dtype] = None
            elif part:
                self.fail_unknown("data type", part, data_type_names(), cell.span, "E0203",
                                  meant=find_type(part))  # fmt: skip
        return tuple(found)

    def full_rows(self, table: syntax.Table) -> Iterable[syntax.TableRow]:
        """Rows with a cell for each column."""
        width = len(table.header.cells)
        for row in table.rows:
            if len(row.cells) == width:
                yield row
            else:
                has = f"this row has {len(row.cells)} cells where the header has {width}"
                end = Span(row.span.source, row.span.end, row.span.end)
                fix = (Edit(end, " |" * (width - len(row.cells))),)
                fixes = (fix,) if len(row.cells) < width else ()
                self.fail(has, row.span, code="E0107", fixes=fixes)
                self.lose(*row.cells)

    def columns(
        self, table: syntax.Table, known: Sequence[str], what: str
    ) -> Iterable[tuple[syntax.Name, _Cells]]:
        """Rows of a table of `what`, each with its unique name, which is in the first of the known
        columns. The first two columns are required."""
        places: dict[str, int] = {}
        meant: set[str | None] = set()
        folded = {name.lower(): name for name in known} | {
            short: name for short, name in _SHORT_COLUMNS.items() if name in known
        }
        for place, cell in enumerate(table.header.cells):
            name = folded.get(plain(cell.text).lower())
            if name is None:
                shown = (plain(cell.text) or cell.text)[:_SHOWN]
                columns = f"its columns are: {', '.join(known)}"
                near = nearest(shown, [k for k in known if k not in places])
                meant.add(near)
                self.fail(
                    f"unknown column '{shown}' in a table of {what}s",
                    cell.span,
                    columns,
                    code="E0106",
                    fixes=replace_word(cell.span, shown, near),
                )
            elif name in places:
                self.fail(f"column '{name}' stands twice", cell.span, code="E0106")
            else:
                places[name] = place
        missing = [n for n in known[:2] if n not in places]
        for name in missing:
            place = places[known[0]] + 1 if known[0] in places else 0
            fixes = () if name in meant else (_add_column(table, place, name),)
            message = f"this table has no column '{name}'"
            self.fail(message, table.header.span, code="E0106", fixes=fixes)
        read = () if missing else places.values()
        for row in table.rows:
            self.lose(*(c for place, c in enumerate(row.cells) if place not in read))
        seen: set[str] = set()
        for row in () if missing else self.full_rows(table):
            cells = _Cells(row, places)
            named = self.name(cells(known[0]), row, what)
            if named is None:
                self.lose(*row.cells)
                continue
            if named.text in seen:
                self.fail(
                    f"{what} '{named.text}' stands twice in this table", named.span, code="E0205"
                )
                continue
            seen.add(named.text)
            yield named, cells


def read_tensors(
    table: syntax.Table, diagnostics: Diagnostics, broken: set[str] | None = None
) -> list[TensorDefinition]:
    """Rows of a table of tensors. The names of unreadable rows are added to `broken`."""
    reader = _CellReader(diagnostics, broken)
    found: list[TensorDefinition] = []
    for name, cell in reader.columns(table, TENSOR_COLUMNS, "tensor"):
        output, optional, array = reader.kind(cell)
        shape_name, dimensions = reader.dimensions(cell("Dimensions"))
        ranks = reader.ranks(cell("Supported dimension counts"), dimensions)
        dtypes = reader.data_types(cell("Supported data types"))
        found.append(
            TensorDefinition(
                name.text, output, optional, array, shape_name, dimensions, ranks, dtypes,
                name.span,
            )
        )  # fmt: skip
    return found


# Attributes ------------------------------------------------------------------------------------


def read_attributes(
    table: syntax.Table,
    enums: Mapping[str, EnumDefinition],
    diagnostics: Diagnostics,
    broken: set[str] | None = None,
) -> list[AttributeDefinition]:
    """Rows of a table of attributes. `enums` are the enums that a type may name. The names of
    unreadable rows are added to `broken`."""
    reader = _CellReader(diagnostics, broken)
    found: list[AttributeDefinition] = []
    for name, cell in reader.columns(table, ATTRIBUTE_COLUMNS, "attribute"):
        made = _attribute(name, cell, enums, reader)
        if made is None:
            reader.lose(*cell.row.cells)
        else:
            found.append(made)
    return found


def _attribute(
    name: syntax.Name,
    cell: _Cells,
    enums: Mapping[str, EnumDefinition],
    reader: _CellReader,
) -> AttributeDefinition | None:
    type_cell, value_cell, default_cell = cell("Type"), cell("Values"), cell("Default")
    if type_cell is None:
        fixes = cell.fill("Type", [*ATTRIBUTE_TYPES, *enums])
        message = f"attribute '{name.text}' has no type"
        reader.fail(message, cell.row.span, code="E0503", fixes=fixes)
        return None
    text = type_cell.text.strip().strip("*`")
    match = re.fullmatch(rf"({_NAME})\s*(?:\[(.*)\])?", text.replace("\\", ""))
    if match is None:
        expected = "such as FLOAT, UINT[2], FLOAT[DimensionCount], an enum, or string"
        reader.fail(
            f"'{text[:_SHOWN]}' is no attribute type", type_cell.span, expected, code="E0503"
        )
        return None
    word = match.group(1)
    enum = enums.get(word)
    kind = _TYPES.get(word.lower(), None if enum is None else ENUM)
    if kind is None:
        known = [*ATTRIBUTE_TYPES, *enums]
        reader.fail_unknown("attribute type", word, known, type_cell.span, code="E0503")
        return None
    values = None if value_cell is None else _values(value_cell)
    if kind.what is What.STRING and values is None:
        needs = "is a string: its 'Values' cell must list what it may be"
        reader.fail(f"attribute '{name.text}' {needs}", type_cell.span, code="E0503")
        return None
    length: syntax.Expression | None = None
    if match.group(2) is not None and match.group(2).strip():
        start = type_cell.span.start + type_cell.text.index("[") + 1
        end = type_cell.span.start + type_cell.text.rindex("]")
        length = _expression(type_cell.span, start, end, reader.diagnostics)
    default = None if default_cell is None else _default(default_cell, kind, reader.diagnostics)
    return AttributeDefinition(
        name.text,
        kind,
        enum if kind is ENUM else None,
        values,
        match.group(2) is not None,
        length,
        default,
        name.span,
    )


def _values(cell: syntax.Cell) -> tuple[str, ...]:
    """Values of a cell, without remarks such as `(default)`."""
    parts = re.sub(r"\([^()]*\)", "", plain(cell.text)).split(",")
    return tuple(p.strip().strip('"') for p in parts if p.strip())


def _default(
    cell: syntax.Cell, kind: AttributeType, diagnostics: Diagnostics
) -> syntax.Expression | None:
    quoted = re.fullmatch(r"([`*_]*)(.*?)\1", cell.text, re.DOTALL)
    mark = len(quoted.group(1)) if quoted is not None else 0
    start, end = cell.span.start + mark, cell.span.end - mark
    text = cell.span.source.text[start:end].strip()
    if kind.what is What.STRING:
        return syntax.String(text.strip('"'), span=cell.span)
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
    table: syntax.Table,
    tensors: Sequence[str],
    diagnostics: Diagnostics,
    broken: Container[str] = (),
) -> list[TypeCombination]:
    """Rows of a table of type combinations. A header cell names tensors, in any case, separated by
    commas or slashes; columns may omit tensors. `broken` has the names of tensors whose rows could
    not be read."""
    reader = _CellReader(diagnostics)
    folded = {name.lower(): name for name in tensors}
    header: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for cell in table.header.cells:
        names: list[str] = []
        for part in re.split(r"\s*[,/]\s*", plain(cell.text)):
            name = folded.get(part.lower())
            if name is None and part in broken:
                continue
            if name is None:
                reader.fail_unknown("tensor", part, tensors, cell.span)
            elif name in seen:
                reader.fail(f"tensor '{name}' stands in two columns", cell.span, code="E0106")
            else:
                seen.add(name)
                names.append(name)
        header.append(tuple(names))
    combinations: list[TypeCombination] = []
    for row in reader.full_rows(table):
        types: dict[str, tuple[DataType, ...]] = {}
        for named, cell in zip(header, row.cells, strict=True):
            if plain(cell.text):
                types.update(dict.fromkeys(named, reader.data_types(cell)))
            else:
                reader.fail("expected data types in this cell", cell.span, code="E0107")
        combinations.append(TypeCombination(types, row.span))
    return combinations
