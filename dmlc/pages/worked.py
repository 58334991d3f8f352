"""Worked examples of a page, as examples of the language.

Blocks of code have `Name: value`, and for a tensor `Name: (Sizes:{2, 3}, DataType:FLOAT32)` with
its elements in brackets below. Values before the first output of a section belong to every example
of it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from dmlc.pages.blocks import Code
from dmlc.pages.draft import Draft, Example
from dmlc.pages.ledger import Ledger, Mark
from dmlc.scalars import find_data_type

_ITEM = re.compile(r"\s*([A-Za-z_]\w*(?:\[\d+\])?)\s*(?::|=(?!=))\s*(.*)")
_SHAPE = re.compile(r"\(\s*Sizes\s*:.*\)\s*")
_NUMBERS = re.compile(r"[\s\[\],0-9.eE+\-]+")
_MEMBER = re.compile(r"DML_\w+")


@dataclasses.dataclass(slots=True)
class ExampleReader:
    """Collector of the examples of one page."""

    draft: Draft
    ledger: Ledger
    shared: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    local: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    title: str = ""
    lead: str = ""
    """Last text of the page before a block of code."""
    pending: list[tuple[set[str], Code]] = dataclasses.field(
        default_factory=list[tuple[set[str], Code]]
    )
    """Blocks of values that no example has used so far."""

    def read(self, code: Code, title: str) -> bool:
        """Reads a block of code. Returns whether it listed values."""
        items = _read_items(code)
        if not items or not all(self.is_known(name) for name in items):
            return False
        if title != self.title:
            self.title, self.local = title, {}
        values: dict[str, str] = {}
        for name, text in items.items():
            value = self.value(name, text)
            if value is None:
                return False
            values[name] = value
        outputs = {n: v for n, v in values.items() if self.is_output(n)}
        given = {n: v for n, v in values.items() if n not in outputs}
        lines = tuple(line for line, text in code.lines if text.strip())
        if outputs:
            known = {**self.shared, **self.local, **given}
            shown = f"{title}: {self.lead}" if self.lead and title else title or self.lead
            number = 1 + sum(e.title.partition(" (")[0] == shown for e in self.draft.examples)
            shown = shown if number == 1 else f"{shown} ({number})"
            self.draft.examples.append(Example(shown, known, outputs, lines))
            self.use(set(known))
        elif title:
            self.local |= given
        else:
            self.shared |= given
        if not outputs:
            self.pending.append((set(given), code))
        self.lead = ""
        self.ledger.mark(lines, Mark.LANGUAGE if outputs else Mark.FURNITURE)
        for line, text in code.lines:
            if remark := text.partition("//")[2].strip():
                self.ledger.note_prose([line], remark)
        return True

    def use(self, names: set[str]) -> None:
        """Marks the blocks whose values an example uses."""
        for given, code in self.pending:
            if given <= names:
                self.ledger.mark([n for n, text in code.lines if text.strip()], Mark.LANGUAGE)
        self.pending = [(given, code) for given, code in self.pending if not given <= names]

    def finish(self) -> None:
        """Keeps the values that no example uses."""
        for _, code in self.pending:
            self.ledger.show(n for n, text in code.lines if text.strip())

    def is_known(self, name: str) -> bool:
        bare = name.partition("[")[0]
        return self.draft.tensor(bare) is not None or self.draft.attribute(bare) is not None

    def is_output(self, name: str) -> bool:
        tensor = self.draft.tensor(name.partition("[")[0])
        return tensor is not None and tensor.output

    def value(self, name: str, text: str) -> str | None:
        """Value in the language's form."""
        bare = " ".join(re.sub(r"//[^\n]*", "", text).split())
        attribute = self.draft.attribute(name)
        if attribute is None:
            found = _SHAPE.sub("", bare, count=1).strip()
            found = re.sub(r"\] *\[", "], [", found.replace(" ]", "]").replace("[ ", "["))
            return found if found.startswith("[") and _NUMBERS.fullmatch(found) else None
        if attribute.is_array:
            inner = bare.strip("{}[] ")
            numbers = _NUMBERS.fullmatch(inner or "0") is not None
            return f"[{inner}]" if numbers and bare[:1] in ("{", "[") else None
        if bare.upper() in ("TRUE", "FALSE"):
            return bare.lower()
        if attribute.type == "TYPE":
            dtype = bare.removeprefix("DML_TENSOR_DATA_TYPE_")
            return dtype if find_data_type(dtype) is not None else None
        plain = _MEMBER.fullmatch(bare) or re.fullmatch(r"-?\d+(?:\.\d+)?", bare)
        return bare if plain else None


def _read_items(code: Code) -> dict[str, str]:
    """Names of a block with the text after each."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for _, text in code.lines:
        match = _ITEM.match(text)
        if match is not None:
            current = found.setdefault(match[1], [])
            current.append(match[2])
        elif current is not None:
            current.append(text)
        elif text.strip():
            return {}
    return {name: "\n".join(parts) for name, parts in found.items()}


def is_illustration(code: Code) -> bool:
    """Whether a block of code shows values side by side, and no formula."""
    return bool(re.search(r"-->|\[\[|\[[\d., ]+\]", code.text)) and not _shows_formula(code.lines)


def _shows_formula(lines: Sequence[tuple[int, str]]) -> bool:
    return any(re.search(r"[^=<>!]=[^=]", text) for _, text in lines)
