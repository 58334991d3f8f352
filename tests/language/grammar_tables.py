"""Writer of the parse tables that `dmlc.language.grammar_tables` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from lark.grammar import Rule
from lark.lexer import TerminalDef

from dmlc.language.grammar_tables import SHIFT, START_RULES, build_parser, find_origin

_Json: TypeAlias = dict[str, Any]
_ANY_LENGTH = 1 << 20


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
        "origin": find_origin(grammar),
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


def _order(states: Mapping[int, Mapping[str, Any]], first: list[int]) -> list[int]:
    """States in the order they are reached, with tokens in alphabetical order."""
    order = list(dict.fromkeys(first))
    seen = set(order)
    for state in order:
        for _, (kind, target) in sorted(states[state].items()):
            if kind == SHIFT and target not in seen:
                seen.add(target)
                order.append(target)
    return order


def _row(actions: Mapping[str, Any], numbers: Mapping[int, int]) -> _Json:
    """Actions of a state: shifts by token, reductions by rule."""
    shift: dict[str, int] = {}
    reduce: dict[int, list[str]] = {}
    for token, (kind, target) in sorted(actions.items()):
        if kind == SHIFT:
            shift[token] = numbers[target]
        else:
            reduce.setdefault(target["@"], []).append(token)
    return {"shift": shift, "reduce": reduce}
