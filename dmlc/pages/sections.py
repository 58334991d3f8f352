"""Blocks of a DirectML page with their locations: section, field, feature level."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from dmlc.pages.blocks import Block, Heading, Page, Paragraph, words

LEVEL = re.compile(r"DML_FEATURE_LEVEL_\d+_\d+")
_FIELD = re.compile(r"-?field[- ](\w+)\s*$")
_ONE_NAME = re.compile(r"`?\*{0,2}`?([A-Za-z_]\w*)`?\*{0,2}`?")
_MEMBERS = ("members", "struct-fields", "fields", "parameters")
_ANY = {
    "description": "description", "syntax": "syntax", "remarks": "remarks",
    "availability": "availability", "tensor-constraints": "constraints",
    "requirements": "requirements", "see-also": "see-also", "examples": "examples",
    "example": "examples", "related-topics": "see-also",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """Block in its section."""

    block: Block
    section: str
    """Section: `description`, `syntax`, `members`, `support` and so on; empty for others."""
    field: str | None = None
    level: str | None = None
    title: str = ""
    """Last heading before it within the section."""


def find_sections(page: Page) -> Iterator[Placed]:
    """Blocks in order; a heading belongs to the section it opens."""
    section, field, level, title, depth = "description", None, None, "", 1
    for block in page.blocks:
        if isinstance(block, Heading):
            found = LEVEL.search(block.text)
            named = _FIELD.match(block.text)
            opened = _name_section(block.key)
            if named is not None:
                section, field = "members", named[1]
            elif opened is not None:
                section, field, level, title, depth = opened, None, None, "", block.level
            elif section == "members" and block.level > depth and _ONE_NAME.fullmatch(block.text):
                field = block.text
            elif found is not None and section == "support":
                level = found[0]
            elif block.level <= depth and block.level > 1:
                section, field, level, title, depth = "", None, None, "", block.level
            else:
                title = block.text
        elif section in ("members", "") and isinstance(block, Paragraph):
            # In another language, a name that stands alone tells the section.
            named = _ONE_NAME.fullmatch(block.text.strip())
            if named is not None and block.text.strip().startswith("`"):
                section, field = "members", named[1]
                yield Placed(Heading(field, field, depth + 1, block.line), section, field)
                continue
        yield Placed(block, section, field, level, title)


def _name_section(key: str) -> str | None:
    if key in _MEMBERS:
        return "members"
    if key.startswith("tensor-support"):
        return "support"
    if key.startswith("example-"):
        return None
    return _ANY.get(key)


def show_title(text: str) -> str:
    """Title of an example, without its number."""
    return re.sub(r"^Example(?: \d+)?[.:]?\s*", "", words(text)).rstrip(".:") or "of the page"
