"""C structure of a DirectML operator: its fields, in order."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from dmlc.pages.blocks import Code, words

OPERATOR = re.compile(r"DML_(\w+)_OPERATOR_DESC\b")
"""Names of operators' structures."""
_STRUCT = re.compile(r"\s*(?:typedef\s+)?struct\s+(DML_\w+)")
_FIELD = re.compile(
    r"\s*(?P<marks>(?:_\w+_(?:\([^()]*\))?\s+)*)(?P<type>(?:const\s+)?\w+(?:\s+const)?)\s*"
    r"(?P<stars>(?:\*\s*(?:const\s*)?)*)\s*(?P<name>[A-Za-z_]\w*)\s*(?:\[(?P<extent>\w+)\])?\s*;.*"
)
_TYPE = re.compile(r"\b(?:DML_\w+|FLOAT|float|U?INT\d*|BOOL|SIZE_T)\b")
_SIZE = re.compile(r"_Field_size_(?:opt_|full_|full_opt_)?\(([^()]*)\)")


@dataclasses.dataclass(slots=True)
class Field:
    """Field of a structure. `type` is the C type without `const` and stars."""

    name: str
    type: str
    pointer: bool = False
    optional: bool = False
    size: str | None = None
    """Length of an array: a field or a number."""
    lines: tuple[int, ...] = ()


def find_struct(code: Code) -> str | None:
    """Name of the structure that a block of code declares."""
    found = next((m for _, text in code.lines if (m := _STRUCT.match(text))), None)
    return None if found is None else found[1]


def read_struct(code: Code) -> Iterator[tuple[int, Field | None]]:
    """Lines of a structure, with the field that each declares; None for a line without one that
    should have one. Lines of the structure's punctuation are left out."""
    for line, text in code.lines:
        bare = re.sub(r"//.*|/\*.*?\*/", "", text).strip()
        match = _FIELD.fullmatch(bare)
        if match is not None:
            yield line, _make(match, line)
        elif _STRUCT.match(bare) or re.fullmatch(r"[{}]?\s*\w*\s*;?", bare):
            yield line, None


def _make(match: re.Match[str], line: int) -> Field:
    marks = match["marks"]
    size = _SIZE.search(marks)
    extent = match["extent"] if size is None else size[1].strip()
    optional = "_Maybenull_" in marks or "_opt_" in marks
    kind = re.sub(r"\bconst\b", "", match["type"]).strip()
    return Field(match["name"], kind, "*" in match["stars"], optional, extent, (line,))


def read_type(name: str, text: str, line: int) -> Field | None:
    """Field that `Type: ...` describes."""
    bare = words(text).replace("\\", "")
    match = re.match(r"\s*[^:]{0,30}?\s*:\s*(.*)", bare)
    if match is None:
        return None
    made = _FIELD.fullmatch(f"{_spread(match[1])} {name};")
    if made is None or not _TYPE.search(made["type"]):
        return None
    return _make(made, line)


def _spread(text: str) -> str:
    """Declaration such as `_Field_size_(N) const UINT*` without the page's markup."""
    text = re.sub(r"(?<![_A-Za-z])_?(Maybenull|Field_size)", r"_\1", text)
    text = re.sub(r"_Field_size_?\s*(?=\()", "_Field_size_", text)
    text = re.sub(r"_Maybenull_?(?=\s)", "_Maybenull_", text)
    return " ".join(text.replace("*", " * ").split())
