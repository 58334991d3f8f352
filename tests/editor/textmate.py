"""Reads texts by a TextMate grammar, as editors do: line by line, the first rule that matches
earliest. What dmlc's grammar uses of the format, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Rule = dict[str, Any]


def read_scopes(grammar: Rule, text: str) -> list[str]:
    """The innermost scope of every character; empty where there is none."""
    scopes = [""] * len(text)
    stack: list[Rule] = [grammar]
    start = 0
    for line in text.splitlines(keepends=True):
        _read_line(grammar, line, start, stack, scopes)
        start += len(line)
    return scopes


def _read_line(grammar: Rule, line: str, start: int, stack: list[Rule], scopes: list[str]) -> None:
    place, stuck = 0, -1
    while place <= len(line):
        found = _first(grammar, stack[-1], line, place)
        inside = stack[-1].get("name", "") if len(stack) > 1 else ""
        end = len(line) if found is None else found[0].start()
        _paint(scopes, start + place, start + end, inside)
        if found is None:
            return
        match, rule = found
        if rule is stack[-1]:
            _paint(scopes, start + match.start(), start + match.end(), inside)
            stack.pop()
        elif "begin" in rule:
            _paint(scopes, start + match.start(), start + match.end(), rule.get("name", ""))
            stack.append(rule)
        else:
            _paint(scopes, start + match.start(), start + match.end(), rule.get("name", inside))
            for group, capture in rule.get("captures", {}).items():
                if match.group(int(group)) is not None:
                    first, last = match.span(int(group))
                    _paint(scopes, start + first, start + last, capture["name"])
        if match.end() == place:
            if stuck == place and len(stack) == 1:
                place += 1
                continue
            stuck = place
        place = max(place, match.end())


def _paint(scopes: list[str], start: int, end: int, scope: str) -> None:
    scopes[start:end] = [scope] * (end - start)


def _first(grammar: Rule, rule: Rule, line: str, place: int) -> tuple[re.Match[str], Rule] | None:
    """The rule that matches first from a place on; the end of the open one before others."""
    best: tuple[re.Match[str], Rule] | None = None
    ends = [(rule["end"], rule)] if "end" in rule else []
    others = [(r.get("begin", r.get("match")), r) for r in _flat(grammar, rule.get("patterns", []))]
    for pattern, candidate in (*ends, *others):
        match = re.compile(pattern, re.MULTILINE).search(line, place)
        if match is not None and (best is None or match.start() < best[0].start()):
            best = match, candidate
    return best


def _flat(grammar: Rule, rules: list[Rule]) -> Iterator[Rule]:
    for rule in rules:
        if "include" in rule:
            named = grammar["repository"][rule["include"].removeprefix("#")]
            yield from _flat(grammar, named["patterns"])
        else:
            yield rule
