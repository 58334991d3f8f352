"""The TextMate grammar colours what the language's own lexer reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dmlc.language.builtins import GRAPH_FUNCTIONS, REDUCTIONS
from dmlc.language.grammar import Token, read, terminals
from dmlc.language.mistakes import spell_keyword
from dmlc.scalars import data_type_names
from docs.textmate import make_textmate
from tests.editor.textmate import read_scopes
from tests.editor.texts import OPERATOR

ROOT = Path(__file__).parent.parent.parent
GRAMMAR = json.loads((ROOT / "grammar/dmlc.tmLanguage.json").read_text("utf-8"))
NAMES = """\
import "other.dml"
operator NAMES {
    introduced DML_FEATURE_LEVEL_3_0
    forward directml.CAST
    tensors DML_FEATURE_LEVEL_3_0 {
        | Tensor | Kind  |
        | x      | Input |
        | output | Output |
    }
    types {
        | x | output |
        | FLOAT32 | FLOAT32 |
    }
    constraints {
        *x*, `y`, and *output* must have the same Sizes.
        * *x* must be a scalar.
        x must be broadcastable to output.
        require !(present(x)) && 1 % 2 != 0 || x.DimensionCount <= 1e-5
    }
    compute {
        example = 1
        mean = -x[example + 1] else 0
        output[i...] = max[k : 3 where k < 2](mean[k] * inf / 2.5)
    }
    example "all" {
        x = [1, nan]
        expect output = [0, 1] within 1e-3
    }
    differs "a word" in output[i...] where x == 0 {
        x: FLOAT32 = [1, nan]
        expect output = [0, 1] instead of [1, 0] within 1e-3
    }
}
operator GRADIENT {
    gradient of directml.CAST with respect to InputTensor
}
operator LINES {
    gradient of directml.CAST { dY = gradient of OutputTensor }
}
graph g(x: FLOAT32[2]) {
    y = x > 0 ? x : 1
    output dx = gradient of y with respect to x from x
}
"""
SCOPES = {
    "COMMENT": "comment.", "STRING": "string.", "INTEGER": "constant.numeric.",
    "FLOAT": "constant.numeric.", "CONSTANT": "constant.language.", "EMPHASISED": "markup.",
    "TABLE_ROW": "punctuation.separator.table.", "PACK": "keyword.operator.",
    "EQUALITY": "keyword.operator.", "COMPARISON": "keyword.operator.", "OR": "keyword.operator.",
    "AND": "keyword.operator.", "NOT": "keyword.operator.", "PLUS": "keyword.operator.",
    "MINUS": "keyword.operator.", "STAR": "keyword.operator.", "SLASH": "keyword.operator.",
    "PERCENT": "keyword.operator.", "EQUAL": "keyword.operator.", "QMARK": "keyword.operator.",
    "COLON": "keyword.operator.", "_BULLET": "keyword.operator.",
}  # fmt: skip
"""What terminals are that are no keywords. Brackets, commas and full stops are punctuation."""
PUNCTUATION = {"LBRACE", "RBRACE", "LSQB", "RSQB", "LPAR", "RPAR", "COMMA", "DOT"}
IGNORED = {"SPACE", "COMMENT", "_GAP"}
LIBRARY = [
    "directml/RESAMPLE_GRAD1", "directml/CONVOLUTION", "directml/MULTIHEAD_ATTENTION",
    "onednn/ReLUBackward", "onednn/MatMul",
]  # fmt: skip


def tokens_of(text: str) -> list[Token]:
    found: list[Token] = []
    read(text, "start", found.append)
    return found


def wrong_scopes(text: str) -> list[str]:
    """The tokens of a text whose colours are not those of what they are."""
    scopes = read_scopes(GRAMMAR, text)
    found: list[str] = []
    for token in tokens_of(text):
        place = token.start_pos or 0
        scope = scopes[place]
        if spell_keyword(token.type):
            right = scope.startswith(("keyword.other.", "keyword.control.", "storage.type."))
        elif token.type == "NAME":
            right = scope.startswith(("variable.", "entity.", "support.", "constant.other."))
        elif token.type in PUNCTUATION:
            right = scope.startswith("punctuation.") or (token == "." and "entity" in scope)
        else:
            right = scope.startswith(SCOPES[token.type])
        if not right:
            found.append(f"{token.line}:{token.column} {token.type} {str(token)[:30]!r}: {scope!r}")
    return found


def test_the_file_is_what_the_program_makes() -> None:
    assert make_textmate() == GRAMMAR, "run `make docs`"


@pytest.mark.parametrize("name", LIBRARY)
def test_operators_of_the_library(name: str) -> None:
    assert wrong_scopes((ROOT / f"dmlc/library/{name}.dml").read_text("utf-8")) == []


@pytest.mark.parametrize("text", [NAMES, OPERATOR], ids=["names", "operator"])
def test_words_are_what_their_places_make_them(text: str) -> None:
    assert wrong_scopes(text) == []


def test_every_terminal_is_met() -> None:
    """A new word or mark of the language needs a colour, and a place in these texts."""
    met = {token.type for text in (NAMES, OPERATOR) for token in tokens_of(text)}
    assert {*terminals()} - met - IGNORED == set()


def test_comments_are_told_apart_from_texts() -> None:
    text = 'enum E { // a "b\n/* "c\n*/ A = 0 } operator X { "// d" }\n'
    scopes = read_scopes(GRAMMAR, text)
    assert scopes[text.index("b")].startswith("comment.line")
    assert scopes[text.index("c\n")].startswith("comment.block")
    assert scopes[text.index("A =")].startswith("variable")
    assert scopes[text.index("d")].startswith("string")


@pytest.mark.parametrize(
    ("words", "scope", "behind"),
    [
        (data_type_names(), "support.type.", ""),
        (GRAPH_FUNCTIONS, "support.function.", "(x)"),
        (REDUCTIONS, "support.function.", "[k : 3](x)"),
        (GRAPH_FUNCTIONS, "variable.", " + 1"),
        (REDUCTIONS, "variable.", "[k]"),
    ],
)
def test_words_of_the_language(words: list[str], scope: str, behind: str) -> None:
    for word in words:
        text = f"function f(x) = {word}{behind}\n"
        assert read_scopes(GRAMMAR, text)[text.index("=") + 2].startswith(scope), word


def test_a_row_ends_at_its_last_mark() -> None:
    text = "tensors { | X | Input | FLOAT32, f16 | } // note\n"
    scopes = read_scopes(GRAMMAR, text)
    assert scopes[text.index("Input")].startswith("storage.modifier")
    assert scopes[text.index("f16")].startswith("support.type")
    assert scopes[text.index("}")].startswith("punctuation.section")
    assert scopes[text.index("note")].startswith("comment")
