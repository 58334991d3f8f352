"""Cache of lark's parse tables: building them takes a quarter of a second in every process, reading
them a tenth of that.

`grammar/tables.json` records its grammar and its version of lark; if either differs, the tables are
built from the grammar. A test writes the file (`make golden`).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeAlias, cast

import lark

START_RULES = ("start", "expression")

_Json: TypeAlias = dict[str, Any]
SHIFT, REDUCE = 0, 1
"""Lark's codes of parser actions."""


def build_parser(grammar: str) -> lark.Lark:
    """The parser of a grammar, from its text."""
    return lark.Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        start=list(START_RULES),
        propagate_positions=True,
        maybe_placeholders=True,
    )


def load_parser(grammar: str, tables: str) -> lark.Lark:
    """Parser of a grammar, from its tables if they match this grammar and this version of lark."""
    found = cast("_Json", json.loads(tables))
    if found["origin"] != find_origin(grammar):
        return build_parser(grammar)
    data = cast("_Json", found["data"])
    data["parser"]["parser"] = {
        "tokens": {name: name for name in cast("list[str]", found["tokens"])},
        "states": {n: _actions(row) for n, row in enumerate(cast("list[_Json]", found["states"]))},
        "start_states": found["start_states"],
        "end_states": found["end_states"],
    }
    memo = dict(enumerate(cast("list[_Json]", found["memo"])))
    reader: Any = lark.Lark
    return reader.load({"data": data, "memo": memo})


def find_origin(grammar: str) -> _Json:
    """Inputs of the tables: grammar and version of lark."""
    return {"lark": lark.__version__, "grammar": hashlib.sha256(grammar.encode()).hexdigest()}


def _actions(row: _Json) -> dict[str, tuple[int, object]]:
    """Actions in lark's form, from a row of the tables."""
    found: dict[str, tuple[int, object]] = {t: (SHIFT, s) for t, s in row["shift"].items()}
    for rule, names in row["reduce"].items():
        found.update(dict.fromkeys(names, (REDUCE, {"@": int(rule)})))
    return found
