"""JSON serialization of frozen dataclasses, driven by the types of their fields.

An object has the fields of its class, in order. A member of a union names its class in `op`: the
class' name in snake case, or the name of the operation that it applies. Floats that JSON cannot
spell are the strings `"inf"`, `"-inf"` and `"nan"`. A class whose object has other fields, or whose
fields depend on each other, has a `Shape`; a value written as one string has a `Word`.

Documents carry a version. A reader accepts older ones, and newer minor ones, whose extra fields it
ignores. `schema` derives a JSON Schema from the same types.
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

VERSION = (2, 1)
"""Version of the JSON form of both IRs, major and minor. A minor version may add optional fields,
which older readers ignore, and operations, which they refuse by name. Any change of a document's
meaning makes a major version."""

_Object = dict[str, Any]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """A kind of JSON document."""

    title: str
    """Its name in messages, with article."""
    version: tuple[int, int]
    """Its version, major and minor."""
    mark: str = ""
    """Value of the documents' `form` field; empty if they have none."""

    def head(self) -> dict[str, str]:
        """Fields that a document begins with."""
        mark = {"form": self.mark} if self.mark else {}
        return {**mark, "version": show_version(self.version)}


IR_FORM = Format("the IR's JSON form", VERSION)


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """A value that is written as one string: its spelling, the inverse, and its name in
    messages."""

    spell: Callable[[Any], str]
    find: Callable[[str], object]
    expected: str
    schema: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"type": "string"})
    """JSON Schema of the string."""


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Fields of a class' JSON object with their types, and the constructor of a value from them,
    which is also given the location for messages. `take` gives the fields of a value if they are
    not its attributes."""

    fields: Mapping[str, Any]
    make: Callable[[_Object, str], Any]
    take: Callable[[Any], _Object] | None = None
    optional: tuple[str, ...] = ()
    """Fields that may be missing."""
    arity: int | None = None
    """Number of `operands`, if it is the same for all objects of the class."""
    schema: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Parts of the JSON Schema that field types do not imply, by field."""
    former: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Names of fields in version 1, each with its present name."""


def find_fields(kind: type) -> dict[str, Any]:
    """Fields of a dataclass that equality compares, with their types; `operation` is left out, as
    `op` names it."""
    hints = typing.get_type_hints(kind)
    compared = [f.name for f in dataclasses.fields(kind) if f.compare and f.init]
    return {name: hints[name] for name in compared if hints[name] is not Operation}


def refuse(where: str, expected: str, found: object) -> DmlcError:
    return DmlcError(f"{where}: expected {expected}, found {repr(found)[:60]}")


def read_number(dtype: DataType, value: object, where: str, key: str) -> bool | int | float:
    """Number of a data type from a JSON value. Raises `DmlcError`."""
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
    DataType: Word(
        lambda dtype: dtype.name, _find_dtype, "a data type", {"enum": [t.name for t in DataType]}
    ),
    str: Word(str, str, "a string"),
}
_PLAIN: Mapping[type, str] = {bool: "true or false", int: "an integer", float: "a float"}
_EXTENT = "an integer or the name of a run-time size"


class Records:
    """The classes of one IR as JSON: their shapes and words. In messages, `nouns` names the values
    of unions, and `tuples` the items of a field. Documents are of a `form`, and apply the
    `operations`."""

    def __init__(
        self,
        shapes: Mapping[type, Shape],
        words: Mapping[type, Word],
        nouns: Mapping[str, tuple[type, ...]],
        tuples: Mapping[str, str],
        form: Format = IR_FORM,
        operations: Mapping[str, Operation] = OPERATIONS,
    ) -> None:
        self._shapes = dict(shapes)
        self.words = {**_WORDS, **words}
        self.nouns = {kind: noun for noun, kinds in nouns.items() for kind in kinds}
        self.tuples = tuples
        self.form = form
        self.operations = operations

    def write(self, value: object) -> str:
        """JSON text of a value, indented by two."""
        content = {**self.form.head(), **self._spell(value)}
        return json.dumps(content, indent=2, allow_nan=False)

    def read(self, text: str, kind: type[T]) -> T:
        """Value of a class from the text that `write` wrote. Raises `DmlcError` for any other
        text."""
        where = f"the {name_class(kind)}"
        try:
            content = _expect_object(json.loads(text), where)
        except (ValueError, RecursionError) as error:
            raise DmlcError(f"the text is not JSON: {error}") from error
        mark = self.form.mark
        if mark and content.get("form") != mark:
            raise refuse(where, f"{mark!r} for 'form'", content.get("form"))
        version = _read_version(_get(content, "version", where), self.form)
        head = tuple(self.form.head())
        return cast(T, _Reading(self, version).make(kind, content, where, head))

    def make(self, content: _Object, kind: type[T]) -> T:
        """Value of a class from a JSON object of the present version. Raises `DmlcError` as `read`
        does."""
        return cast(T, _Reading(self, self.form.version).make(kind, content, name_class(kind)))

    def _spell(self, value: Any) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is tuple:
            return [self._spell(item) for item in value]
        if kind in self.words:
            return self.words[kind].spell(value)
        if isinstance(value, enum.Enum):
            return value.value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if not dataclasses.is_dataclass(kind):
            return value
        shape = self.shape(kind)
        own = shape.take(value) if shape.take else {n: getattr(value, n) for n in shape.fields}
        tag = {"op": self.tag(value)} if kind in self.nouns else {}
        return {**tag, **{name: self._spell(field) for name, field in own.items()}}

    def tag(self, value: Any) -> str:
        """`op` of a value."""
        operation = getattr(value, "operation", None)
        return operation.name if operation else name_class(cast("type[Any]", type(value)))

    def shape(self, kind: type) -> Shape:
        if kind not in self._shapes:
            self._shapes[kind] = Shape(find_fields(kind), lambda fields, _: kind(**fields))
        return self._shapes[kind]


class _Reading:
    """Reader of one document of a given version."""

    def __init__(self, records: Records, version: tuple[int, int]) -> None:
        self._records = records
        self._is_newer = version > records.form.version
        self._is_former = version[0] < records.form.version[0]

    def _read(
        self, kind: Any, value: object, where: str, key: str, place: str | None = None
    ) -> Any:
        """Value of a field, or of an item of one, by its type. `place` is its location in messages
        if it is an object."""
        place = place or f"{where}, its {key}"
        kinds = [k for k in typing.get_args(kind) if k is not types.NoneType]
        if isinstance(kind, types.UnionType):
            if len(kinds) < len(typing.get_args(kind)) and value is None:
                return None
            if all(map(dataclasses.is_dataclass, kinds)) and len(kinds) > 1:
                return self._choose(kinds, value, place)
            if len(kinds) == 2 and int in kinds and float not in kinds:
                (word,) = (each for each in kinds if each is not int)
                kind = word if isinstance(value, str) else int
                return self._plain(kind, value, where, key, _EXTENT)
            if float in kinds:
                return value  # `make` determines its type, and checks it.
            (kind,) = kinds
            kinds = list(typing.get_args(kind))
        origin = typing.get_origin(kind)
        if origin is tuple:
            return self._read_items(kinds, value, where, key)
        if origin is frozenset:
            return frozenset(self._read_items([*kinds, ...], value, where, key))
        if origin is Mapping:
            pair = tuple[tuple(kinds)]
            return dict(self._read_items([pair, ...], value, where, key))
        if kind in self._records.nouns:
            return self._choose([kind], value, place)
        if dataclasses.is_dataclass(kind) and kind not in self._records.words:
            return self.make(cast(type, kind), _expect_object(value, place), place)
        return self._plain(kind, value, where, key)

    def _plain(
        self, kind: Any, value: object, where: str, key: str, expected: str | None = None
    ) -> Any:
        word = self._records.words.get(kind)
        if word is None and issubclass(kind, enum.Enum):
            known = {member.value: member for member in kind}
            word = Word(str, known.get, f"one of {', '.join(map(repr, known))}")
        if word is None:
            if type(value) is kind:
                return value
            if kind is float and type(value) is int:
                return read_number(DataType.FLOAT64, value, where, key)
        elif isinstance(value, str) and (found := word.find(value)) is not None:
            return found
        what = expected or (_PLAIN[kind] if word is None else word.expected)
        raise refuse(where, f"{what} for '{key}'", value)

    def _read_items(self, kinds: list[Any], value: object, where: str, key: str) -> tuple[Any, ...]:
        endless = kinds[-1] is ...
        if not isinstance(value, list):
            what = "a list" if endless else self._records.tuples[key]
            raise refuse(where, f"{what} for '{key}'", value)
        items = cast("list[object]", value)
        if endless:
            return tuple(
                self._read(kinds[0], item, where, key, self._locate(kinds[0], item, number, where))
                for number, item in enumerate(items)
            )
        if len(items) != len(kinds):
            raise refuse(where, f"{self._records.tuples[key]} for '{key}'", items)
        return tuple(self._read(k, v, where, key) for k, v in zip(kinds, items, strict=True))

    def _locate(self, kind: Any, item: object, number: int, where: str) -> str:
        """Location of a list item in messages, by its name if it has one."""
        if dataclasses.is_dataclass(kind):
            noun = name_class(cast(type, kind))
            if "name" not in self._records.shape(cast(type, kind)).fields:
                return f"{where}, {noun} {number}"
            if not isinstance(item, dict) or "name" not in item:
                return f"a {noun}"
            name = self._read(str, cast(_Object, item)["name"], f"a {noun}", "name")
            return f"{noun} '{name}'"
        members = typing.get_args(kind)
        noun = self._records.nouns.get(members[0]) if members else None
        return where if noun is None else f"{where}, {noun} {number}"

    def _choose(self, kinds: list[Any], value: object, where: str) -> Any:
        """Value of one of several classes, selected by its `op`."""
        content = _expect_object(value, where)
        tag = self._plain(str, _get(content, "op", where), where, "op")
        known = {name_class(kind): kind for kind in kinds if not has_operation(kind)}
        applies = next((kind for kind in kinds if has_operation(kind)), None)
        kind = applies if tag in self._records.operations else known.get(tag)
        if kind is None:
            names = [*known, *(self._records.operations if applies else ())]
            unknown = unknown_name("operation" if applies else "statement", tag, names)
            raise DmlcError(dataclasses.replace(unknown, message=f"{where}: {unknown.message}"))
        return self.make(kind, content, f"{where} ({tag})", ("op",))

    def make(self, kind: type, content: _Object, where: str, before: tuple[str, ...] = ()) -> Any:
        """Value of one class; `before` are fields that have been read already."""
        shape = self._records.shape(kind)
        fields = (*before, *shape.fields)
        if self._is_former:
            content = {shape.former.get(key, key): value for key, value in content.items()}
        for key in content:
            if key not in fields and not self._is_newer:
                unknown = unknown_name("field", key, fields)
                raise DmlcError(dataclasses.replace(unknown, message=f"{where}: {unknown.message}"))
        read: _Object = {}
        for key, type_ in shape.fields.items():
            if key in content or key not in shape.optional:
                read[key] = self._read(type_, _get(content, key, where), where, key)
        arity = shape.arity
        if has_operation(kind):
            read["operation"] = operation = self._records.operations[content["op"]]
            arity = operation.arity
        if arity is not None:
            check_arity(arity, read["operands"], where)
        return shape.make(read, where)


def show_version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _read_version(given: object, form: Format) -> tuple[int, int]:
    """Version of a document, if this reader accepts it. (The first was a plain 1.)"""
    if given == 1 and type(given) is int:
        return (1, 0)
    found = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", given) if isinstance(given, str) else None
    version = None if found is None else (int(found[1]), int(found[2]))
    own = show_version(form.version)
    if version is None or version[0] < form.version[0]:
        shown = repr(given)[:40]
        raise DmlcError(f"expected version '{own}' of {form.title}, found {shown}")
    if version[0] > form.version[0]:
        raise DmlcError(
            f"this is version {show_version(version)} of {form.title}, in which the same may "
            f"mean something else: this dmlc reads versions up to {form.version[0]}",
            notes=["a newer dmlc reads it"],
        )
    return version


def _expect_object(value: object, where: str) -> _Object:
    if not isinstance(value, dict):
        raise refuse(where, "an object", value)
    return cast(_Object, value)


def _get(content: _Object, key: str, where: str) -> Any:
    if key not in content:
        raise DmlcError(f"{where}: '{key}' is missing")
    return content[key]


def has_operation(kind: type) -> bool:
    """Whether a class stands for operations of the table, each tagged by its name."""
    return any(field.name == "operation" for field in dataclasses.fields(kind))


def name_class(kind: type) -> str:
    """Name of a class in snake case: `put_half`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
