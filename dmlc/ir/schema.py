"""JSON Schema of the documents that `records` writes, from the types of the same fields.

It covers the structure of objects. The verifier checks the meaning of a document: that a value is
defined before its use, that a load is in bounds.
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, cast

from dmlc.ir.records import Records, has_operation, name_class

_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}

_NUMBER = {"anyOf": [{"type": ["boolean", "number"]}, {"enum": ["inf", "-inf", "nan"]}]}
"""A number of any type, or a string for a float that JSON cannot spell."""


def describe(records: Records, kind: type, title: str) -> dict[str, Any]:
    """JSON Schema of the documents of one class."""
    schema = _Schema(records)
    head = {name: {"const": value} for name, value in records.form.head().items()}
    root = schema.describe_object(kind, head)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **root,
        "$defs": dict(sorted(schema.definitions.items())),
    }


class _Schema:
    def __init__(self, records: Records) -> None:
        self._records = records
        self.definitions: dict[str, Any] = {}

    def describe_object(self, kind: type, before: dict[str, Any]) -> dict[str, Any]:
        """Schema of a class' object; fields of `before` precede its own."""
        shape = self._records.shape(kind)
        fields = {name: self._describe(each) for name, each in shape.fields.items()}
        fields |= shape.schema
        if shape.arity is not None:
            fields["operands"] = _count(fields["operands"], shape.arity)
        return {
            "description": inspect.cleandoc(kind.__doc__ or ""),
            "type": "object",
            "properties": {**before, **fields},
            "required": [*before, *(name for name in fields if name not in shape.optional)],
            "additionalProperties": False,
        }

    def _describe(self, kind: Any) -> dict[str, Any]:
        """Schema of a field, or of an item of one, by its type."""
        given = typing.get_args(kind)
        kinds = [each for each in given if each is not types.NoneType]
        if isinstance(kind, types.UnionType):
            found = self._describe_union(kinds)
            return found if len(kinds) == len(given) else {"anyOf": [found, {"type": "null"}]}
        if typing.get_origin(kind) is tuple:
            if given[-1] is ...:
                return {"type": "array", "items": self._describe(given[0])}
            items = [self._describe(each) for each in given]
            count = len(items)
            return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}
        if kind in self._records.words:
            return dict(self._records.words[kind].schema)
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}
        if issubclass(kind, enum.Enum):
            return {"enum": [member.value for member in kind]}
        return self._refer(kind.__name__, lambda: self._define(cast(type, kind)))

    def _describe_union(self, kinds: list[Any]) -> dict[str, Any]:
        if float in kinds:
            return dict(_NUMBER)
        if len(kinds) == 1:
            return self._describe(kinds[0])
        noun = self._records.nouns.get(kinds[0])
        if noun is None:
            return {"anyOf": [self._describe(kind) for kind in kinds]}
        return self._refer(noun.capitalize(), lambda: self._choose(kinds))

    def _choose(self, kinds: list[type]) -> dict[str, Any]:
        """Schema of one of several classes, selected by `op`: to try each recursive alternative
        would take exponential time."""
        tags = {kind: self._list_tags(kind) for kind in kinds}
        return {
            "type": "object",
            "properties": {"op": {"enum": [tag for each in tags.values() for tag in each]}},
            "required": ["op"],
            "allOf": [_when(tags[kind], self._describe(kind)) for kind in kinds],
        }

    def _refer(self, name: str, define: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Reference to a definition, made once on first use, as definitions are recursive."""
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = define()
        return {"$ref": f"#/$defs/{name}"}

    def _define(self, kind: type) -> dict[str, Any]:
        tags = self._list_tags(kind)
        if not has_operation(kind):
            return self.describe_object(
                kind, {"op": {"const": tags[0]}} if kind in self._records.nouns else {}
            )
        whole = self.describe_object(kind, {"op": {"enum": tags}})
        by_arity: dict[int, list[str]] = {}
        for operation in self._records.operations.values():
            by_arity.setdefault(operation.arity, []).append(operation.name)
        operands = whole["properties"]["operands"]
        counted = [
            _when(names, {"properties": {"operands": _count(operands, arity)}})
            for arity, names in sorted(by_arity.items())
        ]
        return {**whole, "allOf": counted}

    def _list_tags(self, kind: type) -> list[str]:
        """Possible `op` values of a class' objects."""
        return list(self._records.operations) if has_operation(kind) else [name_class(kind)]


def _when(tags: list[str], then: dict[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": {"op": {"enum": tags}}}, "then": then}


def _count(items: dict[str, Any], count: int) -> dict[str, Any]:
    return {**items, "minItems": count, "maxItems": count}
