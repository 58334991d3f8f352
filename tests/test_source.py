"""Diagnostics: what is shown, at which line and column, and which names are suggested."""

from __future__ import annotations

import copy
import pickle

import pytest

from dmlc.source import (
    Diagnostic,
    DmlcError,
    Note,
    Source,
    Span,
    UnknownNameError,
    UnsupportedError,
    nearest,
    unknown_name,
)


def at(text: str, part: str, name: str = "f.dml") -> Span:
    start = text.index(part)
    return Span(Source(name, text), start, start + len(part))


def test_lines_and_columns_count_from_one() -> None:
    source = Source("f.dml", "ab\n\ncd\r\nef")
    assert [source.locate(n) for n in (0, 1, 2, 3, 4, 8, 10)] == [
        (1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (4, 1), (4, 3)
    ]  # fmt: skip
    assert [source.line_text(n) for n in (1, 2, 3, 4)] == ["ab", "", "cd", "ef"]


def test_an_empty_source_has_one_line() -> None:
    source = Source("f.dml", "")
    assert source.locate(0) == (1, 1)
    assert source.line_text(1) == ""


def test_spans() -> None:
    text = "let value = other"
    span = at(text, "value")
    assert (span.line, span.column, span.text) == (1, 5, "value")
    assert span.to(at(text, "other")).text == "value = other"
    assert span.to(span).text == "value"


def test_a_diagnostic_underlines_its_span() -> None:
    text = "operator f\n  input X FLOAT23\n"
    assert Diagnostic("unknown type", at(text, "FLOAT23"), (Note("a hint"),)).render() == (
        "f.dml:2:11: error: unknown type\n"
        "    2 |   input X FLOAT23\n"
        "      |           ^^^^^^^\n"
        "  note: a hint"
    )


def test_without_a_span_there_is_no_excerpt() -> None:
    assert Diagnostic("no device").render() == "error: no device"


def test_notes_have_places_of_their_own() -> None:
    text = "a = 1\na = 2"
    second = Span(Source("f.dml", text), 6, 7)
    rendered = Diagnostic("defined twice", second, (Note("first here", at(text, "a")),)).render()
    assert rendered == (
        "f.dml:2:1: error: defined twice\n"
        "    2 | a = 2\n"
        "      | ^\n"
        "  f.dml:1:1: note: first here\n"
        "    1 | a = 1\n"
        "      | ^"
    )


def excerpt(span: Span) -> tuple[str, str]:
    _, line, caret = Diagnostic("m", span).render().split("\n")
    return line, caret


def test_tabs_take_one_column() -> None:
    line, caret = excerpt(at("\tx\t= bad", "bad"))
    assert line == "    1 |  x = bad"
    assert caret == "      |      ^^^"


def test_a_span_over_lines_is_underlined_on_its_first() -> None:
    line, caret = excerpt(at("x = (1 +\n 2)", "(1 +\n 2)"))
    assert (line, caret) == ("    1 | x = (1 +", "      |     ^^^^")


@pytest.mark.parametrize("text", ["x = ", "", "x = \n"])
def test_an_empty_span_gets_one_caret(text: str) -> None:
    end = len(text.rstrip("\n"))
    line, caret = excerpt(Span(Source("f.dml", text), end, end))
    assert line == "    1 | " + text.rstrip("\n")
    assert caret == "      | " + " " * end + "^"


def test_a_long_line_is_cut_around_the_span() -> None:
    text = "a" * 500 + "BAD" + "c" * 500
    line, caret = excerpt(at(text, "BAD"))
    assert len(line) <= 8 + 120
    column = caret.index("^")
    assert line[column : column + 3] == "BAD"
    assert caret.count("^") == 3


def test_a_span_longer_than_the_excerpt_stops_at_its_edge() -> None:
    text = "x" * 1000
    line, caret = excerpt(Span(Source("f.dml", text), 10, 900))
    assert len(caret) == len(line) == 8 + 120


def test_what_cannot_be_printed_is_replaced() -> None:
    line, caret = excerpt(at("a\x1b[31m\x00b bad", "bad"))
    assert line == "    1 | a�[31m�b bad"
    assert caret.index("^") == line.index("bad")


def test_errors_show_all_their_diagnostics() -> None:
    error = DmlcError([Diagnostic("one"), Diagnostic("two")])
    assert str(error) == "error: one\nerror: two"
    assert [d.message for d in error.diagnostics] == ["one", "two"]


def test_an_error_from_a_message() -> None:
    span = at("abc", "b")
    error = UnsupportedError("not yet", span, ["try a", Note("see b", span)])
    (diagnostic,) = error.diagnostics
    assert diagnostic.span is span
    assert diagnostic.notes == (Note("try a"), Note("see b", span))


def test_an_unknown_name_is_a_key_error_that_reads_well() -> None:
    error = UnknownNameError(unknown_name("operator", "RELUU", ["RELU", "GELU"]))
    assert isinstance(error, KeyError)
    assert isinstance(error, DmlcError)
    assert str(error) == "error: unknown operator 'RELUU' [E0201]\n  note: did you mean 'RELU'?"


def test_errors_are_copied_and_pickled() -> None:
    error = DmlcError("wrong", at("abc", "b"), ["a hint"])
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(other) == str(error)


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("Imput", ["Output", "Input"], "Input"),
        ("INPUT", ["Input", "Output"], "Input"),
        ("xyz", ["Input", "Output"], None),
        ("a", [], None),
        ("input", ["INPUT", "Input"], "INPUT"),
    ],
)
def test_nearest(name: str, known: list[str], expected: str | None) -> None:
    assert nearest(name, known) == expected


def test_unknown_names_come_with_help() -> None:
    few = unknown_name("tensor", "Q", ["alpha", "beta"])
    assert few.notes == (Note("known here: alpha, beta"),)
    assert unknown_name("tensor", "Q", []).notes == ()
    assert unknown_name("tensor", "Q", [f"name{n}" for n in range(50)]).notes == ()
    assert unknown_name("tensor", "q" * 500, []).message == f"unknown tensor '{'q' * 77}...'"


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("directml.CUMSUM", "directml.CUMULATIVE_SUMMATION"),
        ("BATCHNORM", "BATCH_NORMALIZATION"),
        ("directml.CLIP", None),
        ("onednn.CUMSUM", None),
    ],
)
def test_a_short_form_is_known(short: str, whole: str | None) -> None:
    known = ["directml.CUMULATIVE_SUMMATION", "directml.CUMULATIVE_PRODUCT", "BATCH_NORMALIZATION"]
    assert nearest(short, known) == whole
