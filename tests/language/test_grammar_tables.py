"""The tables of the grammar: that they are the grammar's, and what happens where they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lark
import pytest

from dmlc.language.grammar_tables import build_parser, load_parser, write_tables
from dmlc.resources import read_resource, resource_path

GRAMMAR = read_resource("grammar/dml.lark")
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
