"""Frozen dataclasses as JSON and back, by the types of their fields.

An object has the fields of its class, in their order. One of several classes says which in `op`:
the class' name in small letters, or the name of the operation that it applies. Floats that JSON
cannot spell are the strings `"inf"`, `"-inf"` and `"nan"`. A class whose object has other fields,
or whose fields depend on each other, has a `Shape`; a value that is one word has a `Word`.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from dmlc.scalars import OPERATIONS, DataType, Operation, find_data_type
from dmlc.source import DmlcError, unknown_name

_Object = dict[str, Any]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """A value that is written as a string: how it is spelled and found again, and what messages
    call it."""

    spell: Callable[[Any], str]
    find: Callable[[str], object]
    expected: str


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The fields of a class' object and their types; and what makes a value of them, told where it
    stands. `take` gives the fields of a value, where these are not its own."""

    fields: Mapping[str, Any]
    make: Callable[[_Object, str], Any]
    take: Callable[[Any], _Object] | None = None
    optional: tuple[str, ...] = ()
    """Fields that may be missing."""


def find_fields(kind: type) -> dict[str, Any]:
    """The fields of a dataclass that tell its values apart, and their types. That of its operation
    is left to `op`."""
    hints = typing.get_type_hints(kind)
    compared = [f.name for f in dataclasses.fields(kind) if f.compare and f.init]
    return {name: hints[name] for name in compared if hints[name] is not Operation}


def refuse(where: str, expected: str, found: object) -> DmlcError:
    return DmlcError(f"{where}: expected {expected}, found {repr(found)[:60]}")


def read_number(dtype: DataType, value: object, where: str, key: str) -> bool | int | float:
    """A number as one of a type."""
    if dtype.is_float and value in ("inf", "-inf", "nan"):
        return float(cast(str, value))
    whole = isinstance(value, int) and not isinstance(value, bool)
    if dtype is DataType.BOOL and isinstance(value, bool):
        return value
    if dtype.is_float and (whole or isinstance(value, float)):
        try:
            return float(cast(float, value))
        except OverflowError as error:
            raise refuse(where, f"a {dtype.name} for '{key}'", value) from error
    if dtype.is_float or dtype is DataType.BOOL or not whole:
        raise refuse(where, f"a {dtype.name} for '{key}'", value)
    return cast(int, value)


def check_arity(arity: int, given: tuple[object, ...], where: str) -> None:
    if len(given) != arity:
        raise refuse(where, f"{arity} operand{'s' * (arity != 1)}", list(given))


def _find_dtype(name: str) -> DataType | None:
    return DataType.INDEX if name == DataType.INDEX.name else find_data_type(name)


_WORDS: Mapping[type, Word] = {
    DataType: Word(lambda dtype: dtype.name, _find_dtype, "a data type"),
    str: Word(str, str, "a string"),
}
_PLAIN: Mapping[type, str] = {bool: "true or false", int: "an integer", float: "a float"}
_EXTENT = "an integer or the name of a run-time size"


class Records:
    """The classes of one IR as JSON: the version of the form, its shapes and words. In messages,
    `nouns` says what values of unions are called, and `tuples` what the items of a field are."""

    def __init__(
        self,
        version: int,
        shapes: Mapping[type, Shape],
        words: Mapping[type, Word],
        nouns: Mapping[str, tuple[type, ...]],
        tuples: Mapping[str, str],
    ) -> None:
        self._version = version
        self._shapes = dict(shapes)
        self._words = {**_WORDS, **words}
        self._nouns = {kind: noun for noun, kinds in nouns.items() for kind in kinds}
        self._tuples = tuples

    def write(self, value: object) -> str:
        """JSON text, indented by two."""
        content = {"version": self._version, **self._spell(value)}
        return json.dumps(content, indent=2, allow_nan=False)

    def read(self, text: str, kind: type[T]) -> T:
        """What `write` wrote. Raises `DmlcError` on anything that is none of that class."""
        where = f"the {kind.__name__.lower()}"
        try:
            content = self._object(json.loads(text), where)
        except (ValueError, RecursionError) as error:
            raise DmlcError(f"the text is not JSON: {error}") from error
        version = self._get(content, "version", where)
        if version != self._version:
            shown = repr(version)[:40]
            raise DmlcError(
                f"expected version {self._version} of the IR's JSON form, found {shown}"
            )
        return cast(T, self._make(kind, content, where, ("version",)))

    # Writing ------------------------------------------------------------------------------

    def _spell(self, value: Any) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is tuple:
            return [self._spell(item) for item in value]
        if kind in self._words:
            return self._words[kind].spell(value)
        if isinstance(value, enum.Enum):
            return value.value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if not dataclasses.is_dataclass(kind):
            return value
        shape = self._shape(kind)
        own = shape.take(value) if shape.take else {n: getattr(value, n) for n in shape.fields}
        tag = {"op": self.tag(value)} if kind in self._nouns else {}
        return {**tag, **{name: self._spell(field) for name, field in own.items()}}

    def tag(self, value: Any) -> str:
        """The `op` of a value."""
        operation = getattr(value, "operation", None)
        return operation.name if operation else _name(cast("type[Any]", type(value)))

    def _shape(self, kind: type) -> Shape:
        if kind not in self._shapes:
            self._shapes[kind] = Shape(find_fields(kind), lambda fields, _: kind(**fields))
        return self._shapes[kind]

    # Reading ------------------------------------------------------------------------------

    def _read(
        self, kind: Any, value: object, where: str, key: str, place: str | None = None
    ) -> Any:
        """A field, or an item of it, in one of the types that fields have. Messages call it
        `place`, where it is an object."""
        place = place or f"{where}, its {key}"
        kinds = [k for k in typing.get_args(kind) if k is not types.NoneType]
        if isinstance(kind, types.UnionType):
            if len(kinds) < len(typing.get_args(kind)) and value is None:
                return None
            if all(map(dataclasses.is_dataclass, kinds)) and len(kinds) > 1:
                return self._choose(kinds, value, place)
            if set(kinds) == {int, str}:
                kind = str if isinstance(value, str) else int
                return self._plain(kind, value, where, key, _EXTENT)
            if float in kinds:
                return value  # Of which type it is, and whether it is one, `make` knows.
            (kind,) = kinds
            kinds = list(typing.get_args(kind))
        if typing.get_origin(kind) is tuple:
            return self._read_items(kinds, value, where, key)
        if kind in self._nouns:
            return self._choose([kind], value, place)
        if dataclasses.is_dataclass(kind) and kind not in self._words:
            return self._make(cast(type, kind), self._object(value, place), place)
        return self._plain(kind, value, where, key)

    def _plain(
        self, kind: Any, value: object, where: str, key: str, expected: str | None = None
    ) -> Any:
        word = self._words.get(kind)
        if word is None and issubclass(kind, enum.Enum):
            known = {member.value: member for member in kind}
            word = Word(str, known.get, f"one of {', '.join(map(repr, known))}")
        if word is None:
            if type(value) is kind:
                return value
        elif isinstance(value, str) and (found := word.find(value)) is not None:
            return found
        what = expected or (_PLAIN[kind] if word is None else word.expected)
        raise refuse(where, f"{what} for '{key}'", value)

    def _read_items(self, kinds: list[Any], value: object, where: str, key: str) -> tuple[Any, ...]:
        endless = kinds[-1] is ...
        if not isinstance(value, list):
            what = "a list" if endless else self._tuples[key]
            raise refuse(where, f"{what} for '{key}'", value)
        items = cast("list[object]", value)
        if endless:
            return tuple(
                self._read(kinds[0], item, where, key, self._place(kinds[0], item, number, where))
                for number, item in enumerate(items)
            )
        if len(items) != len(kinds):
            raise refuse(where, f"{self._tuples[key]} for '{key}'", items)
        return tuple(self._read(k, v, where, key) for k, v in zip(kinds, items, strict=True))

    def _place(self, kind: Any, item: object, number: int, where: str) -> str:
        """What messages call an item of a list: what has a name goes by it."""
        if dataclasses.is_dataclass(kind):
            noun = _name(cast(type, kind))
            if "name" not in self._shape(cast(type, kind)).fields:
                return f"{where}, {noun} {number}"
            if not isinstance(item, dict) or "name" not in item:
                return f"a {noun}"
            name = self._read(str, cast(_Object, item)["name"], f"a {noun}", "name")
            return f"{noun} '{name}'"
        members = typing.get_args(kind)
        noun = self._nouns.get(members[0]) if members else None
        return where if noun is None else f"{where}, {noun} {number}"

    def _choose(self, kinds: list[Any], value: object, where: str) -> Any:
        """A value of one of several classes, told apart by its `op`."""
        content = self._object(value, where)
        tag = self._plain(str, self._get(content, "op", where), where, "op")
        known = {_name(kind): kind for kind in kinds if "operation" not in _hints(kind)}
        applies = next((kind for kind in kinds if "operation" in _hints(kind)), None)
        kind = applies if tag in OPERATIONS else known.get(tag)
        if kind is None:
            names = [*known, *(OPERATIONS if applies else ())]
            unknown = unknown_name("operation" if applies else "statement", tag, names)
            raise DmlcError(dataclasses.replace(unknown, message=f"{where}: {unknown.message}"))
        return self._make(kind, content, f"{where} ({tag})", ("op",))

    def _make(self, kind: type, content: _Object, where: str, before: tuple[str, ...] = ()) -> Any:
        """A value of one class; `before` are the fields that have been read."""
        shape = self._shape(kind)
        fields = (*before, *shape.fields)
        for key in content:
            if key not in fields:
                unknown = unknown_name("field", key, fields)
                raise DmlcError(dataclasses.replace(unknown, message=f"{where}: {unknown.message}"))
        read: _Object = {}
        for key, type_ in shape.fields.items():
            if key in content or key not in shape.optional:
                read[key] = self._read(type_, self._get(content, key, where), where, key)
        if "operation" in _hints(kind):
            read["operation"] = operation = OPERATIONS[content["op"]]
            check_arity(operation.arity, read["operands"], where)
        return shape.make(read, where)

    def _object(self, value: object, where: str) -> _Object:
        if not isinstance(value, dict):
            raise refuse(where, "an object", value)
        return cast(_Object, value)

    def _get(self, content: _Object, key: str, where: str) -> Any:
        if key not in content:
            raise DmlcError(f"{where}: '{key}' is missing")
        return content[key]


def _hints(kind: type) -> Mapping[str, object]:
    return {f.name: f for f in dataclasses.fields(kind)}


def _name(kind: type) -> str:
    """A class' name in small letters: `put_half`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
