"""The formatter: what it gives, and that it changes neither meaning nor its own output."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from dmlc.language import syntax
from dmlc.language.format import format_declaration, format_expression, format_file
from dmlc.language.layout import Break, Group, Indent, lay_out
from dmlc.language.parse import parse, parse_expression
from dmlc.source import Source
from tests.language import trees

DATA = Path(__file__).parents[1] / "data" / "language"


def read(text: str) -> syntax.File:
    return parse(Source("test.dml", text))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees.files)
def test_formatting_a_tree_and_reading_it_back_gives_the_tree(tree: syntax.File) -> None:
    text = format_file(tree)
    again = read(text)
    assert again == tree
    assert format_file(again) == text


@pytest.mark.parametrize("path", sorted(DATA.glob("*.dml")), ids=lambda p: p.stem)
def test_formatting_keeps_the_meaning_and_is_idempotent(path: Path) -> None:
    tree = read(path.read_text())
    text = format_file(tree)
    assert read(text) == tree
    assert format_file(read(text)) == text
    assert [c.text for c in read(text).comments] == [c.text for c in tree.comments]


def test_a_file_as_a_careful_person_writes_it() -> None:
    untidy = """
module   m
// about f
function f( x )=max(0,(x)) // trailing
enum E{A=0,B= -1}
operator  OP{ "doc"
tensors{
|Tensor|Kind|
| --|---|
|X|Input|  // of x
|LongName|Output|}
constraints{X and *LongName* must have the same `Sizes`
require((X.Sizes[0]>0)),"why"}
compute{
a=X

bcd = (a+(X*2))
// before
LongName=((a)>0?(bcd):-(1))
}
example "e"{X:f32=[1,2]
expect LongName=[ 1,2 ]}
differs "d"  in LongName[ i ]where(i==0)&&(X[0]>0) {X=[1,2]
expect LongName:f32=[1,2]instead   of [3,4]within 1
expect Other=[1,2]
}
differs "all"{}
}
// the end"""
    assert (
        format_file(read(untidy))
        == """\
module m
// about f
function f(x) = max(0, x)  // trailing
enum E { A = 0, B = -1 }

operator OP {
    "doc"
    tensors {
        | Tensor   | Kind   |
        | -------- | ------ |
        | X        | Input  |  // of x
        | LongName | Output |
    }
    constraints {
        X and LongName must have the same Sizes.
        require X.Sizes[0] > 0, "why"
    }
    compute {
        a = X

        bcd = a + X * 2
        // before
        LongName = a > 0 ? bcd : -1
    }
    example "e" {
        X: f32 = [1, 2]
        expect LongName = [1, 2]
    }
    differs "d" in LongName[i] where i == 0 && X[0] > 0 {
        X = [1, 2]
        expect LongName: f32 = [1, 2] instead of [3, 4] within 1
        expect Other         = [1, 2]
    }
    differs "all" {
    }
}
// the end
"""
    )


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("((a + b)) + c", "a + b + c"),
        ("a + (b + c)", "a + (b + c)"),
        ("a - (b - c)", "a - (b - c)"),
        ("(a * b) + c", "a * b + c"),
        ("a * (b + c)", "a * (b + c)"),
        ("(a ? b : c) ? d : e", "(a ? b : c) ? d : e"),
        ("a ? (b ? c : d) : (e ? f : g)", "a ? (b ? c : d) : e ? f : g"),
        ("-(a + b)", "-(a + b)"),
        ("-(-a)", "--a"),
        ("!(a && b) || c", "!(a && b) || c"),
        ("(a + b)[i]", "(a + b)[i]"),
        ("(A[i] else 0)[j]", "(A[i] else 0)[j]"),
        ("(1).x + inf.y", "(1).x + inf.y"),
        ("A[i] else (-inf)", "A[i] else -inf"),
        ("A[i] else (b + c)", "A[i] else (b + c)"),
        ("sum[ k:3,l : n where k<l ]( k )", "sum[k : 3, l : n where k < l](k)"),
        ("f( x , y... , like : T )", "f(x, y..., like: T)"),
        ("1e-5 + 0.10", "1e-5 + 0.10"),
        ('a == "NCX"', 'a == "NCX"'),
        ("[]", "[]"),
    ],
)
def test_expressions_have_the_parentheses_they_need(given_text: str, expected: str) -> None:
    tree = parse_expression(Source("e", given_text), 0, len(given_text))
    assert format_expression(tree) == expected
    again = parse_expression(Source("e", expected), 0, len(expected))
    assert again == tree


def test_long_expressions_break_before_operators_and_within_calls() -> None:
    long = " + ".join(f"some_rather_long_name_{i}" for i in range(8))
    lines = format_file(read(f"function f(x) = g({long}, other)")).splitlines()
    assert lines[0] == "function f(x) = g("
    assert lines[1] == "    some_rather_long_name_0"
    assert lines[2] == "        + some_rather_long_name_1"
    assert lines[-1] == "    other)"


def test_a_long_choice_takes_a_line_per_case() -> None:
    text = "function f(x) = " + " : ".join(f"x == {i} ? some_long_value_{i}" for i in range(4))
    lines = format_file(read(text + " : 0")).splitlines()
    assert lines[0] == "function f(x) = x == 0 ? some_long_value_0"
    assert lines[1:] == [
        "    : x == 1 ? some_long_value_1",
        "    : x == 2 ? some_long_value_2",
        "    : x == 3 ? some_long_value_3",
        "    : 0",
    ]


def test_a_long_enum_takes_a_line_per_member() -> None:
    members = ", ".join(f"MEMBER_NUMBER_{i} = {i}" for i in range(8))
    lines = format_file(read(f"enum E {{ {members} }}")).splitlines()
    assert lines[0] == "enum E {"
    assert lines[1] == "    MEMBER_NUMBER_0 = 0,"
    assert lines[-2:] == ["    MEMBER_NUMBER_7 = 7", "}"]


def test_blank_lines_are_kept_one_at_a_time() -> None:
    text = "function f(x) = x\n\n\n\nfunction g(x) = x\nfunction h(x) = x\n"
    assert format_file(read(text)) == (
        "function f(x) = x\n\nfunction g(x) = x\nfunction h(x) = x\n"
    )


def test_comments_stay_behind_the_lines_they_are_behind() -> None:
    text = """\
operator X {  // of X
    tensors {  /* of tensors */
        | Tensor |  // of the header
        | A      |
    }  // of the brace
    compute {
        A = 1  /* one */
        b = 2  // two
        // three
        ccc = 3
        d   = 4
    }
}
"""
    assert format_file(read(text)) == text


def test_comments_anywhere_are_kept_and_settle_at_once() -> None:
    seeds = [path.read_text() for path in sorted(DATA.glob("*.dml"))]
    shapes = ("/* {} */", "// {}\n", "\n// {}\n", "/* {}\n more */", "\n\n// {}\n\n", " /* {} */\n")
    pieces = re.compile(
        r'"[^"]*"|//[^\n]*|/\*.*?\*/|\|[^\n]*\||\.\.\.|[\d.]+e-\d|[\w.]+|&&|[=<>]+|\S', re.DOTALL
    )
    for seed in range(100):
        source = random.Random(seed)
        text = source.choice(seeds)
        for number in range(source.choice((1, 1, 2, 3, 6))):
            place = source.choice([match.start() for match in pieces.finditer(text)])
            text = text[:place] + source.choice(shapes).format(number) + text[place:]
        tree = read(text)
        formatted = format_file(tree)
        again = read(formatted)
        assert again == tree, text
        assert [c.text for c in again.comments] == [c.text for c in tree.comments], text
        assert format_file(again) == formatted, text


def test_an_empty_file_is_empty() -> None:
    assert format_file(read("")) == ""
    assert format_file(read("// only this\n\n\n/* and\n   this */\n")) == (
        "// only this\n\n/* and\n   this */\n"
    )


def test_one_operator_of_a_file_with_its_comments() -> None:
    text = (DATA / "gradients.dml").read_text()
    tree = read("// before\n" + text)
    second = tree.declarations[1]
    assert isinstance(second, syntax.Operator)
    shown = format_declaration(second)
    assert shown.startswith("operator RESAMPLE_GRAD1 {")
    assert "// where forward output pixel o reads the forward input" in shown
    assert "// before" not in shown


def test_layout_breaks_the_outermost_group_first() -> None:
    inner = Group(("(", Indent((Break(""), "abc", Break(), "def")), Break(""), ")"))
    document = Group(("f", Indent((Break(), inner))))
    assert lay_out(document, 80, 0, 0) == "f (abc def)"
    assert lay_out(document, 10, 0, 0) == "f\n    (\n        abc\n        def\n    )"
