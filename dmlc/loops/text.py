"""Serialization of frozen dataclasses as plain values, and of plain values as lines of text.

A record is a dict of the fields that differ from their defaults; for a union, `op` names the class.
As a line, it has a word for its class, the first field, and the others after their names:
`loop i by 4 extent 2 as k: 0..64`. A remark for readers follows the colon. Child nodes are on
indented lines below; those of a field other than `body` follow a line of its own, such as `else`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from dmlc.ir.records import name_class
from dmlc.source import DmlcError

Record = dict[str, Any]

WORDS = {"step": "by", "name": "as"}
"""Names of fields in text, if different."""
_FIELDS = {word: field for field, word in WORDS.items()}
BODIES = {"body": "", "cases": "case", "others": "else"}
"""Fields that contain nodes, with the headings of their lines."""
_PLAIN = re.compile(r"=?[^\W\d][\w.#@]*")
_TOKEN = re.compile(r'[\[\]()]|"(?:[^"\\]|\\.)*"(?=[\s\])]|$)|[^\s\[\]()"]+')
_SPELLED: dict[Any, str] = {True: "yes", False: "no", None: "none"}


class PlainForm:
    """Conversion to plain values: words for values spelled as one, and `op` for the classes of a
    union."""

    def __init__(self, spell: Mapping[type, Callable[[Any], Any]], tagged: Sequence[type]) -> None:
        self._spell = spell
        self._tagged = tagged

    def make(self, value: Any) -> Any:
        kind = cast("type[Any]", type(value))
        if kind in self._spell:
            return self._spell[kind](value)
        if isinstance(value, enum.Enum):
            return value.value if isinstance(value.value, str) else value.name
        if isinstance(value, Mapping):
            pairs = cast("Mapping[Any, Any]", value)
            return [[self.make(key), self.make(each)] for key, each in pairs.items()]
        if isinstance(value, frozenset):
            return sorted(cast("frozenset[Any]", value))
        if isinstance(value, tuple):
            return [self.make(each) for each in cast("tuple[Any, ...]", value)]
        if not dataclasses.is_dataclass(kind):
            return value if value is None or isinstance(value, bool | int | str) else str(value)
        return self.record(value)

    def record(self, value: Any, without: Sequence[str] = ()) -> Record:
        """Fields of a dataclass, without some."""
        kind = cast("type[Any]", type(value))
        named = _list_defaults(kind)
        operation = value.operation.name if "operation" in named else None
        tag = {"op": operation or name_class(kind)} if kind in self._tagged else {}
        return tag | {
            name: self.make(own)
            for name, default in named.items()
            if name not in ("operation", *without) and (own := getattr(value, name)) != default
        }

    def list_fields(self, value: Any) -> Iterator[str]:
        """Dataclass as text for readers, one line per item of its fields."""
        for name, field in self.record(value).items():
            parts = cast("Record", field) if isinstance(field, dict) else {"": field}
            for part, own in parts.items():
                label = f"{name} {part}".strip()
                if not isinstance(own, list):
                    yield f"{label} {_write(own)}"
                    continue
                items = enumerate(cast("list[Any]", own))
                yield from (f"{label} {number}: {_write(each)}" for number, each in items)

    def tree(
        self, nodes: Sequence[Any], remark: Callable[[Any, Sequence[Any]], str], depth: int = 0,
        around: tuple[Any, ...] = (),
    ) -> Iterator[str]:  # fmt: skip
        """Nodes as lines; `remark` gets a node and its enclosing nodes."""
        for node in nodes:
            record, indent = self.record(node, tuple(BODIES)), "  " * depth
            yield indent + write_line(record, remark(node, around))
            for name, word in BODIES.items():
                own = any(field.name == name for field in dataclasses.fields(node))
                bodies = getattr(node, name) if own else ()
                for body in bodies if name == "cases" else [bodies] if bodies else []:
                    yield from [indent + word] if word else []
                    yield from self.tree(body, remark, depth + 1, (*around, node))


@functools.cache
def _list_defaults(kind: type[Any]) -> Mapping[str, Any]:
    """The fields of a dataclass that count when values are compared, each with its default."""
    return {f.name: find_default(f) for f in dataclasses.fields(kind) if f.compare}


def find_default(field: dataclasses.Field[Any]) -> Any:
    """Default of a field; a value unequal to all others if it has none."""
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


# Lines -----------------------------------------------------------------------------------------


def write_line(record: Record, remark: str = "") -> str:
    """Line of a record with `op`."""
    noun, (_, first), *others = record["op"], *(item for item in record.items() if item[0] != "op")
    if "kind" in record:
        noun, others = record["kind"], [item for item in others if item[0] != "kind"]
    words = [noun, _write(first), *_write_fields(others)]
    return " ".join(words) + (f": {remark}" if remark else "")


def _write_fields(fields: Sequence[tuple[str, Any]]) -> list[str]:
    return [word for name, value in fields for word in (WORDS.get(name, name), _write(value))]


def _write(value: Any) -> str:
    match value:
        case None | bool():
            return _SPELLED[value]
        case int():
            return f"{value:,}"
        case str():
            fits = _PLAIN.fullmatch(value) and value not in _SPELLED.values()
            return value if fits else json.dumps(value)
        case list():
            items = cast("list[Any]", value)
            return f"[{' '.join(map(_write, items))}]"
        case _:
            record = dict(cast("Record", value))
            noun = [record.pop("op")] if "op" in record else []
            return f"({' '.join([*noun, *_write_fields(list(record.items()))])})"


def read_line(line: str, first: Callable[[str], str], kinds: Sequence[str] = ()) -> Record:
    """Record of a line; `first` gives the first field of a class. Raises `DmlcError`."""
    # Both strings and remarks may contain colons.
    words: list[str] = []
    at = 0
    text = line.strip()
    while at < len(text) and not text.startswith(":", at):
        found = _TOKEN.match(text, at)
        word = found[0] if found else text[at:]
        ended = not word.startswith('"') and word.endswith(":")
        words.append(word.removesuffix(":") if ended else word)
        at += len(word)
        if ended:
            break
        at += len(text[at:]) - len(text[at:].lstrip())
    noun, *rest = words
    record = {"op": "loop", "kind": noun} if noun in kinds else {"op": noun}
    tokens = [first(record["op"]), *rest]
    found_fields = _read_fields(tokens, line)
    if tokens:
        raise DmlcError(f"'{tokens[0]}' is not expected in '{line.strip()}'")
    return record | found_fields


def _read_fields(tokens: list[str], line: str) -> Record:
    """Fields and their values, up to a closing bracket."""
    made: Record = {}
    while tokens and tokens[0] != ")":
        name = tokens.pop(0)
        made[_FIELDS.get(name, name)] = _read(tokens, line)
    return made


def _read(tokens: list[str], line: str) -> Any:
    if not tokens:
        raise DmlcError(f"a value is missing in '{line.strip()}'")
    token = tokens.pop(0)
    if token in "[(":
        items: list[Any] = []
        made: Any = items
        if token == "(":
            made = _read_fields(tokens, line)
        while token == "[" and tokens and tokens[0] != "]":
            items.append(_read(tokens, line))
        if not tokens or tokens.pop(0) not in "])":
            raise DmlcError(f"a bracket is not closed in '{line.strip()}'")
        return made
    if token.startswith('"'):
        return json.loads(token)
    if re.fullmatch(r"-?\d[\d,]*", token):
        return int(token.replace(",", ""))
    return {word: value for value, word in _SPELLED.items()}.get(token, token)


def read_tree(
    lines: Sequence[str], first: Callable[[str], str], kinds: Sequence[str]
) -> list[Record]:
    """Records of indented lines, with child nodes in their bodies."""
    made: Record = {}
    around: list[tuple[int, Record, str]] = [(-1, made, "body")]
    names = {word: field for field, word in BODIES.items() if word}
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2
        while around[-1][0] >= depth:
            around.pop()
        _, owner, field = around[-1]
        name = names.get(line.strip())
        nodes = cast("list[Any]", owner.setdefault(field, [] if field != "cases" else [[]]))
        nodes = nodes[-1] if field == "cases" else nodes
        if name is None:
            nodes.append(read_line(line, first, kinds))
            around.append((depth, nodes[-1], "body"))
            continue
        if not nodes:
            raise DmlcError(f"nothing stands before '{line.strip()}'")
        nodes[-1].setdefault(name, [])
        if name == "cases":
            nodes[-1][name].append([])
        around.append((depth, nodes[-1], name))
    return made.get("body", [])
