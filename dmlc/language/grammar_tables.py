"""Cache of lark's parse tables: building them takes a quarter of a second in every process, reading
them a tenth of that.

`grammar/tables.json` records its grammar and its version of lark; if either differs, the tables are
built from the grammar. `make golden` writes the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

START_RULES = ("start", "expression")

_Json: TypeAlias = dict[str, Any]
_ANY_LENGTH = 1 << 20
_SHIFT, _REDUCE = 0, 1
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
    if found["origin"] != _origin(grammar):
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


def write_tables(grammar: str) -> str:
    """Tables of a grammar, one line per state. The text is deterministic: states, which lark
    numbers arbitrarily, are numbered in the order they are reached from the first."""
    parser: Any = build_parser(grammar)
    data, memo = cast("tuple[_Json, dict[int, _Json]]", parser.memo_serialize([TerminalDef, Rule]))
    table = cast("_Json", data["parser"].pop("parser"))
    tokens = cast("dict[int, str]", table["tokens"])
    states = {
        state: {tokens[token]: action for token, action in actions.items()}
        for state, actions in cast("dict[int, dict[int, Any]]", table["states"]).items()
    }
    order = _order(states, [table["start_states"][rule] for rule in START_RULES])
    numbers = {state: number for number, state in enumerate(order)}
    head: _Json = {
        "origin": _origin(grammar),
        "tokens": sorted(tokens.values()),
        "start_states": {rule: numbers[s] for rule, s in sorted(table["start_states"].items())},
        "end_states": {rule: numbers[s] for rule, s in sorted(table["end_states"].items())},
        "data": data,
    }
    for entry in memo.values():
        if "_width" in entry.get("pattern", {}):
            # "Any length" has another number in every version of Python.
            least, most = entry["pattern"]["_width"]
            entry["pattern"]["_width"] = [least, min(most, _ANY_LENGTH)]
    parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    for name, rows in (
        ("memo", [memo[n] for n in range(len(memo))]),
        ("states", [_row(states[state], numbers) for state in order]),
    ):
        parts.append(f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _origin(grammar: str) -> _Json:
    """Inputs of the tables: grammar and version of lark."""
    return {"lark": lark.__version__, "grammar": hashlib.sha256(grammar.encode()).hexdigest()}


def _order(states: Mapping[int, Mapping[str, Any]], first: list[int]) -> list[int]:
    """States in the order they are reached, with tokens in alphabetical order."""
    order = list(dict.fromkeys(first))
    seen = set(order)
    for state in order:
        for _, (kind, target) in sorted(states[state].items()):
            if kind == _SHIFT and target not in seen:
                seen.add(target)
                order.append(target)
    return order


def _row(actions: Mapping[str, Any], numbers: Mapping[int, int]) -> _Json:
    """Actions of a state: shifts by token, reductions by rule."""
    shift: dict[str, int] = {}
    reduce: dict[int, list[str]] = {}
    for token, (kind, target) in sorted(actions.items()):
        if kind == _SHIFT:
            shift[token] = numbers[target]
        else:
            reduce.setdefault(target["@"], []).append(token)
    return {"shift": shift, "reduce": reduce}


def _actions(row: _Json) -> dict[str, tuple[int, object]]:
    """Actions in lark's form, from `_row`."""
    found: dict[str, tuple[int, object]] = {t: (_SHIFT, s) for t, s in row["shift"].items()}
    for rule, names in row["reduce"].items():
        found.update(dict.fromkeys(names, (_REDUCE, {"@": int(rule)})))
    return found
