"""Draft of a description: the facts found on a page, with their lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from dmlc.language.format import join_names
from dmlc.language.tables import KINDS


@dataclasses.dataclass(slots=True)
class Tensor:
    """Row of a table of tensors; cells are in the language's form, None if unknown."""

    name: str
    kind: str
    dimensions: str | None = None
    ranks: str | None = None
    types: str | None = None
    lines: tuple[int, ...] = ()

    @property
    def output(self) -> bool:
        return KINDS[self.kind.lower()][0]

    @property
    def optional(self) -> bool:
        return KINDS[self.kind.lower()][1]


@dataclasses.dataclass(slots=True)
class Attribute:
    """Row of the table of attributes."""

    name: str
    type: str
    default: str | None = None
    values: str | None = None
    lines: tuple[int, ...] = ()

    @property
    def is_array(self) -> bool:
        return self.type.endswith("]")


@dataclasses.dataclass(slots=True)
class Level:
    """Table of tensors, with a feature level if the page names one."""

    name: str | None
    tensors: list[Tensor]


@dataclasses.dataclass(slots=True)
class Combination:
    """Row of a table of types."""

    cells: tuple[str, ...]
    lines: tuple[int, ...]


@dataclasses.dataclass(slots=True)
class Clause:
    """Constraint, function or statement in the language; `words` are the page's own."""

    text: str
    words: str
    lines: tuple[int, ...]


@dataclasses.dataclass(slots=True)
class Enum:
    name: str
    members: dict[str, int]
    meanings: dict[str, str]
    lines: tuple[int, ...] = ()


@dataclasses.dataclass(slots=True)
class Example:
    """Worked example: attributes and tensors with their values, in the language's form."""

    title: str
    items: dict[str, str]
    outputs: dict[str, str]
    lines: tuple[int, ...]


@dataclasses.dataclass(slots=True)
class Draft:
    """Operator as far as it was understood."""

    name: str
    module: str
    doc: str | None = None
    introduced: str | None = None
    forward: str | None = None
    enums: dict[str, Enum] = dataclasses.field(default_factory=dict[str, Enum])
    functions: list[Clause] = dataclasses.field(default_factory=list[Clause])
    attributes: list[Attribute] = dataclasses.field(default_factory=list[Attribute])
    levels: list[Level] = dataclasses.field(default_factory=list[Level])
    header: tuple[str, ...] = ()
    """Columns of the table of types."""
    combinations: list[Combination] = dataclasses.field(default_factory=list[Combination])
    constraints: list[Clause] = dataclasses.field(default_factory=list[Clause])
    compute: list[Clause] = dataclasses.field(default_factory=list[Clause])
    examples: list[Example] = dataclasses.field(default_factory=list[Example])
    notes: list[str] = dataclasses.field(default_factory=list[str])
    """Remarks of the import itself."""
    _same: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict[str, dict[str, str]])
    """Representative of each tensor in its equivalence class, for each fact."""

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors without repetition, from the newest table."""
        found: dict[str, Tensor] = {}
        for level in self.levels:
            for tensor in level.tensors:
                found.setdefault(tensor.name, tensor)
        return list(found.values())

    def rows(self, name: str) -> Iterator[Tensor]:
        """Rows of a tensor in all tables."""
        return (t for level in self.levels for t in level.tensors if t.name == name)

    def tensor(self, name: str) -> Tensor | None:
        return next((t for t in self.tensors if t.name == name), None)

    def attribute(self, name: str) -> Attribute | None:
        return next((a for a in self.attributes if a.name == name), None)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # Sentences of the kind "must have the same" ---------------------------------------------

    def root(self, fact: str, name: str) -> str:
        known = self._same.setdefault(fact, {})
        while known.get(name, name) != name:
            name = known[name]
        return name

    def are_same(self, names: Sequence[str], fact: str) -> bool:
        return len({self.root(fact, name) for name in names}) == 1

    def require_same(
        self, names: Sequence[str], facts: Iterable[str], words: str, lines: tuple[int, ...]
    ) -> None:
        """Equates facts of tensors, unless an earlier sentence does."""
        new = [f for f in facts if not self.are_same(names, f)]
        for fact in new:
            first = self.root(fact, names[0])
            for name in names[1:]:
                self._same[fact][self.root(fact, name)] = first
        if new:
            text = f"{join_names(names)} must have the same {join_names(new)}."
            self.constraints.append(Clause(text, words, lines))

    def count(
        self, attribute: Attribute, array: Tensor, words: str, lines: tuple[int, ...]
    ) -> None:
        """Makes an attribute the number of tensors in an array."""
        if attribute.default is None:
            attribute.default = f"{array.name}.Count"
            self.require(f"{attribute.name} == {array.name}.Count", words, lines)

    def require(self, condition: str, words: str, lines: tuple[int, ...]) -> None:
        self.state(f"require {condition}", words, lines)

    def state(self, text: str, words: str, lines: tuple[int, ...]) -> None:
        """Adds a constraint, unless it is there already."""
        if all(clause.text != text for clause in self.constraints):
            self.constraints.append(Clause(text, words, lines))
