"""The tables of the grammar: that they are the grammar's, and what happens where they are not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from re import _parser as regex

import lark
import pytest

from dmlc.language import build, limits, mistakes, tables
from dmlc.language.grammar_tables import build_parser, load_parser
from dmlc.resources import read_resource, resource_path
from tests.language.grammar_tables import write_tables

GRAMMAR = read_resource("grammar/dml.lark")
LEXING = (build, limits, mistakes, tables)
TEXT = read_resource("library/directml/BATCH_NORMALIZATION_TRAINING_GRAD.dml")


def test_tables_are_those_of_the_grammar(check_golden: Callable[[Path, str], None]) -> None:
    check_golden(resource_path("grammar/tables.json"), write_tables(GRAMMAR))


def test_parser_of_tables_reads_as_that_of_the_grammar() -> None:
    built = build_parser(GRAMMAR)
    loaded = load_parser(GRAMMAR, write_tables(GRAMMAR))
    assert loaded.parse(TEXT, start="start") == built.parse(TEXT, start="start")
    for refused in ("operator X { tensors", "operator X { compute { y = a + } }", "graph g(x: F["):
        found: list[object] = []
        for parser in (built, loaded):
            with pytest.raises(lark.UnexpectedToken) as caught:
                parser.parse(refused, start="start")
            token = caught.value.token
            found.append((token, token.start_pos, caught.value.accepts))
        assert found[0] == found[1]


def has_possessive_group(pattern: object) -> bool:
    """Whether a parsed pattern repeats a group possessively: Python before 3.11.5 goes wrong where
    the group fails halfway (its issue 106052)."""
    if isinstance(pattern, tuple) and pattern and str(pattern[0]) == "POSSESSIVE_REPEAT":
        repeated = list(pattern[1][2])
        if len(repeated) != 1 or str(repeated[0][0]) not in ("IN", "LITERAL", "NOT_LITERAL", "ANY"):
            return True
    if isinstance(pattern, tuple | list | regex.SubPattern):
        return any(has_possessive_group(part) for part in pattern)
    return False


def test_patterns_mean_the_same_to_every_python() -> None:
    patterns = {t.name: (t.pattern.to_regexp(), 0) for t in build_parser(GRAMMAR).terminals}
    patterns["build._TEXT_OR_COMMENT"] = build._TEXT_OR_COMMENT, re.DOTALL
    for module in LEXING:
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                patterns[f"{module.__name__}.{name}"] = value.pattern, value.flags
    assert len(patterns) > 30
    wrong = [n for n, given in patterns.items() if has_possessive_group(regex.parse(*given))]
    assert wrong == []
    assert has_possessive_group(regex.parse(r"(?=(?:a|bc)++)"))
    assert not has_possessive_group(regex.parse(r"(?:[ab]*+c)*"))


@pytest.mark.parametrize("keyword", ["function", "expect", "output"])
def test_words_before_a_name_may_have_comments_behind_them(keyword: str) -> None:
    """Whatever is in the comments, and in time that grows as they do."""
    pattern = next(t.pattern for t in build_parser(GRAMMAR).terminals if t.name == keyword.upper())
    found = re.compile(pattern.to_regexp())
    for behind in (" x", "/**/x", " /* 0 */\nx", "//\n x", "/* a\n ** / */ /***/x", "\t// */\n_x"):
        assert found.match(keyword + behind), behind
    for behind in ("", "x", " 1", "/* x", "/* 0 */ = 1", "/* *", "// x", " /", "/*/x", " " * 99999):
        assert not found.match(keyword + behind), behind
    for unending in ("/*" + "*" * 99999, "/*" + "* " * 99999, "/**/" * 29999, "//\n" * 29999):
        assert not found.match(keyword + unending)


@pytest.mark.parametrize("other", ["grammar", "lark"])
def test_tables_of_another_grammar_or_lark_are_not_used(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = write_tables('start: A\nexpression: A\nA: "a"\n')
    if other == "lark":
        # As tables.json is to a reader with another version.
        monkeypatch.setattr(lark, "__version__", "1.2.2")
        parser = load_parser('start: A\nexpression: A\nA: "a"\n', tables)
        assert parser.source_path != "<deserialized>"
        assert parser.parse("a", start="start").children == ["a"]
    else:
        parser = load_parser('start: A\nexpression: A\nA: "b"\n', tables)
        assert parser.parse("b", start="start").children == ["b"]
