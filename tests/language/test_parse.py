"""The parser: what it accepts, and the exact words and places of what it refuses."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from dmlc.language import syntax
from dmlc.language.limits import TOO_DEEP, TOO_LONG
from dmlc.language.parse import MAX_BYTES, parse, parse_expression, read_source
from dmlc.source import DmlcError, Source

DATA = Path(__file__).parents[1] / "data" / "language"
GUIDE = Path(__file__).parents[3] / "shared" / "design" / "language.md"
PAGES = Path(__file__).parents[3] / "shared" / "data" / "pages"


def read(text: str) -> syntax.File:
    return parse(Source("test.dml", text))


_TOO_LARGE = (
    "this number is larger than any integer type holds: the largest is 18446744073709551615, of "
    "UINT64"
)


def mistakes(text: str) -> list[tuple[int, int, str]]:
    """Line, column and message of every mistake in a text."""
    with pytest.raises(DmlcError) as caught:
        read(text)
    return [
        (d.span.line, d.span.column, d.message) if d.span else (0, 0, d.message)
        for d in caught.value.diagnostics
    ]


def operator(tensors: str = "| Tensor | Kind |", rest: str = "compute { }") -> syntax.Operator:
    found = read(f"operator X {{ tensors {{ {tensors} \n }} {rest} }}").declarations[0]
    assert isinstance(found, syntax.Operator)
    return found


# What is accepted --------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(DATA.glob("*.dml")), ids=lambda p: p.stem)
def test_the_language_guide_examples_parse(path: Path) -> None:
    assert read(path.read_text()).declarations


def _guide_blocks() -> list[str]:
    """The guide's examples where the guide is at hand, and the copies kept here."""
    text = GUIDE.read_text() if GUIDE.is_file() else ""
    blocks: list[str] = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    whole = [block for block in blocks if not block.startswith("constraints {")]
    return [*whole, (DATA / "graph.dml").read_text()]


@pytest.mark.parametrize("block", _guide_blocks())
def test_the_guide_itself_parses(block: str) -> None:
    assert read(block).declarations


def test_a_reference_page_pasted_as_it_stands() -> None:
    text = """operator R {
    tensors {
| Tensor | Kind | Supported dimension counts | Supported data types |
| ------ | ---- | -------------------------- | -------------------- |
| InputTensor | Input | 1 to 8 | FLOAT32, FLOAT16 |
| InputGradientTensor | Input | 1 to 8 | FLOAT32, FLOAT16 |
| OutputGradientTensor | Output | 1 to 8 | FLOAT32, FLOAT16 |
    }
    constraints {
SENTENCE
    }
    compute { OutputGradientTensor = (InputTensor > 0 ? InputGradientTensor : 0) }
}"""
    # The page has it on one line.
    text = text.replace(
        "SENTENCE",
        "*InputGradientTensor*, *InputTensor*, and *OutputGradientTensor* "
        "must have the same *DataType*, *DimensionCount*, and *Sizes*.",
    )
    for variant in (text, "\ufeff" + text, text.replace("\n", "\r\n"), text.replace(" ", "\u00a0")):
        found = read(variant).declarations[0]
        assert isinstance(found, syntax.Operator)
        assert len(found.tensors[0].table.rows) == 3
        assert found.constraints is not None
        (sentence,) = found.constraints
        assert isinstance(sentence, syntax.Sentence)
        assert [n.text for n in sentence.subjects] == [
            "InputGradientTensor",
            "InputTensor",
            "OutputGradientTensor",
        ]
        assert [n.text for n in sentence.objects] == ["DataType", "DimensionCount", "Sizes"]


def _page_tables() -> list[str]:
    """Tables with a column of kinds: one as pages have them, and those of the pages at hand."""
    found = ["| Tensor | Kind | Dimensions |\n|:--|:--|:--|\n| A | Input | { N, [C], 1 } |\n"]
    for page in sorted(PAGES.glob("directml/*.md")):
        blocks = re.findall(r"(?:^\|.*\|[ \t]*\r?\n)+", page.read_text(), re.MULTILINE)
        found += [b for b in blocks if "| Kind" in b]
    return found


@pytest.mark.parametrize("table", _page_tables())
def test_tables_of_reference_pages_parse(table: str) -> None:
    assert operator(table).tensors[0].table.rows


def _page_sentences() -> list[str]:
    """What tensors must have the same of, as the pages at hand have it, and one such sentence."""
    found = ["* *A*, *B*, and *C* must have the same *DataType* and *Sizes*.\n"]
    for page in sorted(PAGES.glob("directml/*.md")):
        found += re.findall(r"^[*-]? ?\*.* must have the same .*\n", page.read_text(), re.MULTILINE)
    return found


@pytest.mark.parametrize("sentence", _page_sentences())
def test_sentences_of_reference_pages_parse(sentence: str) -> None:
    found = operator(rest=f"constraints {{\n{sentence}}} compute {{ }}")
    assert [type(c) for c in found.constraints or ()] == [syntax.Sentence]


def test_words_of_the_language_are_names_where_names_stand() -> None:
    found = read(
        "operator mean { tensors { | Tensor | Kind | } compute { "
        "output = sum + example  expect = tensors(require)  function = where1  differs = in } "
        'example "e" { output = [1]  expect expect = [2]  example = 3 } '
        'differs "d" in in[in] where instead == differs { instead = [1] instead of [differs] } }'
    ).declarations[0]
    assert isinstance(found, syntax.Operator)
    assert [s.name.text for s in found.compute or ()] == ["output", "expect", "function", "differs"]
    (difference,) = found.differences
    assert (difference.tensor, difference.condition) != (None, None)
    assert [(i.name.text, i.instead is None) for i in difference.items] == [("instead", False)]
    assert [(i.name.text, i.expected) for i in found.examples[0].items] == [
        ("output", False),
        ("expect", True),
        ("example", False),
    ]


def test_precedence() -> None:
    def tree(text: str) -> syntax.Expression:
        return parse_expression(Source("e", text), 0, len(text))

    same = [
        ("a + b * c", "a + (b * c)"),
        ("a - b - c", "(a - b) - c"),
        ("a < b == c", "(a < b) == c"),
        ("a == b && c || d", "((a == b) && c) || d"),
        ("a || b ? c : d ? e : f", "(a || b) ? c : (d ? e : f)"),
        ("-a.b[c]", "-((a.b)[c])"),
        ("-a * b", "(-a) * b"),
        ("A[i] else 0 * 2", "(A[i] else 0) * 2"),
        ("A[i] else -inf + 1", "(A[i] else (-inf)) + 1"),
    ]
    for bare, grouped in same:
        assert tree(bare) == tree(grouped), bare


def test_spans_cover_what_was_written() -> None:
    found = read("function f(x) = max(x, 1 + y)\n").declarations[0]
    assert isinstance(found, syntax.ScalarFunction)
    assert found.span.text == "function f(x) = max(x, 1 + y)"
    assert isinstance(found.body, syntax.Call)
    assert found.body.span.text == "max(x, 1 + y)"
    assert found.body.arguments[1].span.text == "1 + y"
    table = operator("| Tensor |  Kind |").tensors[0].table
    assert [c.span.text for c in table.header.cells] == ["Tensor", "Kind"]


def test_comments_are_kept_apart() -> None:
    found = read('// a\nfunction f(x) = "// no" /* b */ // c | d |\n')
    assert [c.text for c in found.comments] == ["// a", "/* b */", "// c | d |"]


def test_escapes_in_texts() -> None:
    found = read(r'import "a\"b\\c\n"').declarations[0]
    assert found == syntax.Import('a"b\\c\n', span=found.span)


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("operator", (1, 9, "expected a name, found the end of the file")),
        ("operator X {", (1, 13, "expected a text in double quotes, 'attributes', 'compute', "
                          "'constraints', 'differs', 'example', 'forward', 'gradient', "
                          "'introduced', 'tensors', 'types' or '}', found the end of the file")),
        ("function f(x) = ", (1, 16, "expected an expression, found the end of the file")),
        ("function f(x) = (x", (1, 19, "expected an operator or ')', found the end of the file")),
        ("function f(x) = x +* y", (1, 20, "expected an expression, found '*'")),
        ("function f(x) = x ? y", (1, 22, "expected an operator or ':', found the end of "
                                   "the file")),
        ("function f(x) = x $ y", (1, 19, "expected an operator, the end of the file, 'enum', "
                                   "'function', 'gradient of', 'graph', 'import' or 'operator', "
                                   "found '$'")),
        ("function 3(x) = x", (1, 10, "expected a name, found '3'")),
        ("function", (1, 9, "expected a name, found the end of the file")),
        ("function f(x) = 3x", (1, 17, "'3x' is no number: a product is 3 * x")),
        ("function f(x) = 1e999", (1, 17, "this number is larger than any float64")),
        ("op\u00e9rator X { }", (1, 1, "expected the end of the file, 'enum', 'function', 'graph', "
                                   "'import', 'module' or 'operator', found 'op\u00e9rator'")),
        ('import "abc', (1, 8, "this text is not closed: expected '\"'")),
        ("/* abc", (1, 1, "this comment is not closed: expected '*/'")),
        ("a\x00b", (1, 2, "the character U+0000 cannot stand in a .dml file")),
        ("enum E { A = 18446744073709551616 }", (1, 14, _TOO_LARGE)),
        ("function f(x) = x + " + "9" * 5000, (1, 21, _TOO_LARGE)),
        ("function f(x) = sum[k : 3]", (1, 17, "a reduction takes one expression in parentheses "
                                        "after its ']'")),
        ("function f(x) = sum[k : 3](x, y)", (1, 17, "a reduction takes one expression in "
                                              "parentheses")),
        ("function f(x) = sum[k + 1 : 3](x)", (1, 21, "expected a binding such as 'k : 3' here")),
        ("function f(x) = f(1 : 2)", (1, 19, "expected the name of an argument before ':'")),
        ("function f(x) = [1 : 2]", (1, 18, "a ':' has no meaning here")),
        ("function " + "a" * 129 + "(x) = x", (1, 10, "a name has at most 128 characters, this "
                                               "one 129")),
    ],
)  # fmt: skip
def test_a_mistake_is_named_and_placed(text: str, expected: tuple[int, int, str]) -> None:
    assert mistakes(text)[0] == expected


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ("compute { } tensors { | a | \n }", "section 'tensors' must stand before 'compute'"),
        ("tensors { | a | \n } compute { } compute { }", "section 'compute' stands twice in "
                                                        "operator 'X'"),
        ("compute { }", "operator 'X' has no 'tensors' section"),
        ("tensors { | a | \n } compute { } gradient of Y with respect to Z",
         "operator 'X' has both 'compute' and 'gradient of'"),
        ("tensors { | - | \n } compute { }", "this table has no header row"),
        ("tensors { | a | \n } compute { A[1] = 2 }", "expected the name of an index variable "
                                                      "here"),
    ],
)  # fmt: skip
def test_sections_come_once_and_in_order(sections: str, expected: str) -> None:
    assert [message for _, _, message in mistakes(f"operator X {{ {sections} }}")] == [expected]


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("operater X { }", "operator"),
        ("operator X { tensers { | a | \n } }", "tensors"),
        ("operator X { tensors { | a | \n } compute { } exampel \"e\" { } }", "example"),
    ],
)  # fmt: skip
def test_a_misspelt_word_gets_the_nearest(text: str, suggestion: str) -> None:
    with pytest.raises(DmlcError) as caught:
        read(text)
    notes = [note.message for note in caught.value.diagnostics[0].notes]
    assert notes == [f"did you mean '{suggestion}'?"]


def test_independent_mistakes_are_reported_together() -> None:
    text = """operator A {
  tensers { | a | b | }
  compute { x = }
}
operator B {
  tensors { | Tensor | }
  constraints { A, B should have the same X. }
  compute { x = (1 + 2
   y = 3 }
}
graph g(x: FLOAT32[N]) { y = foo(x }
"""
    assert [(line, column) for line, column, _ in mistakes(text)] == [
        (2, 3), (3, 17), (7, 22), (9, 4), (11, 36)
    ]  # fmt: skip


def test_mistakes_in_statements_of_one_section_are_reported_together() -> None:
    text = """operator A {
    tensors { | a | }
    constraints {
        A must be brodcastable to B.
        C must be a scalar
        D and E must be the same.
    }
    compute {
        u = 1 +
        v = 2
        w = (3 + 4
        x = 5 * / 6
        y = 7
    }
}
"""
    with pytest.raises(DmlcError) as caught:
        read(text)
    found = caught.value.diagnostics
    assert [(d.span.line, d.span.column) for d in found if d.span] == [
        (4, 19), (6, 25), (10, 11), (12, 9), (12, 17)
    ]  # fmt: skip
    # Where a statement cannot start, the one before is at fault.
    assert [note.span.text for d in found for note in d.notes if note.span] == [
        "u = 1 +",
        "(",
    ]


@pytest.mark.parametrize("end", ["", "  }\n", "}\n", "  }\n}\n}\n"])
def test_a_brace_too_few_or_too_many_does_not_hide_what_follows(end: str) -> None:
    text = "operator A {\n  tensors { | a | \n }\n  compute {\n    x = 1\n" + end
    found = mistakes(text + "enum E { A = 1 }\nenum F { A = }\n")
    assert found[1:] == [(text.count("\n") + 2, 14, "expected a whole number or '-', found '}'")]


def test_products_without_spaces_are_no_emphasis() -> None:
    found = read(
        "operator X { tensors { | Tensor | \n } constraints { *A* and _B_ must be a scalar\n"
        "*C*, *D* and `E` must have the same *Sizes* and *DataType*\n require a*b*c > (a)*b*(c) }"
        " compute { x = a*b*c y = max(a, a*b*c) } }"
    ).declarations[0]
    assert isinstance(found, syntax.Operator)
    assert found.constraints is not None
    first, second, third = found.constraints
    assert isinstance(first, syntax.Sentence)
    assert [n.text for n in first.subjects] == ["A", "B"]
    assert isinstance(second, syntax.Sentence)
    assert [n.text for n in (*second.subjects, *second.objects)] == [
        "C", "D", "E", "Sizes", "DataType"
    ]  # fmt: skip
    assert isinstance(third, syntax.Require)
    assert len(found.compute or ()) == 2


def test_sentences_of_a_list_keep_their_meaning() -> None:
    found = read(
        "operator X { tensors { | Tensor | \n } constraints {\n"
        "* *A*, and *B* must have the same *Sizes*.\n* `C` must be a scalar.\n"
        "require a > b\n- **D** and **E** must have the same *Sizes*.\n} compute { } }"
    ).declarations[0]
    assert isinstance(found, syntax.Operator)
    assert found.constraints is not None
    assert [type(c).__name__ for c in found.constraints] == [
        "Sentence", "Sentence", "Require", "Sentence"
    ]  # fmt: skip


def test_no_more_than_twenty_mistakes() -> None:
    assert len(mistakes("function f(x) = +\n" * 60)) == 20


def test_what_is_nested_too_deep_is_refused_at_once() -> None:
    for text in (
        "(" * 50_000 + "x" + ")" * 10_000,
        "-" * 50_000 + "x",
        "f(" * 30_000 + "x" + ")" * 10_000,
        " + ".join(["x"] * 40_000),
        "x ? y : " * 20_000 + "z",
        "x" + ".y" * 40_000,
        "x" + "[0]" * 30_000,
        "[" * 50_000,
        # What adds up only in the tree.
        "f(-" * 150 + "x" + ")" * 150,
    ):
        start = time.process_time()
        assert mistakes(f"function f(x) = {text}")[0][2] == TOO_DEEP
        assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "text",
    [
        "(" * 199 + "x" + ")" * 199,
        "-" * 199 + "x",
        " + ".join(["x"] * 200),
        # Each sum has few terms, each product few factors, and the signs are no terms.
        " + ".join(["-x * -y"] * 150),
        " && ".join(["-x < -y - z"] * 150),
        "x ? y : " * 199 + "z",
        "f(" + ", ".join(["x + y ? a.b : c[0]"] * 1000) + ")",
    ],
)
def test_what_is_as_deep_as_allowed_is_read(text: str) -> None:
    assert read(f"function f(x) = {text}\nfunction g(x) = {text}").declarations


def test_what_is_too_long_is_refused_at_once() -> None:
    rows = "| a | b |\n" * 40_000
    for text in ("operator X { " * 40_000, f"operator X {{ tensors {{\n{rows}", "// x\n" * 100_001):
        start = time.process_time()
        assert mistakes(text) == [(0, 0, "test.dml: the file has more than 100000 words and marks")]
        assert time.process_time() - start < 1
    # Quotes in a cell hide what follows from the count, and not from the parser.
    hidden = 'operator X { tensors { || " |\n }' + "compute { " + "x = 1\n" * 40_000
    assert mistakes(hidden)[0][2] == TOO_LONG


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DmlcError, match=r"cannot read .*: no such file"):
        read_source(tmp_path / "none.dml")
    (tmp_path / "latin.dml").write_bytes(b"// caf\xe9")
    with pytest.raises(DmlcError, match="is not UTF-8 text: byte 6 is wrong"):
        read_source(tmp_path / "latin.dml")
    with (tmp_path / "large.dml").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(DmlcError, match="is larger than 16 MiB"):
        read_source(tmp_path / "large.dml")
    with pytest.raises(DmlcError, match="is larger than 16 MiB"):
        read(" " * (MAX_BYTES + 1))
    with pytest.raises(DmlcError, match="this is no file name"):
        read_source(Path("a\0b.dml"))
