"""What the command line spells in its own way."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from dmlc import DmlcError, TensorDesc
from dmlc.cli.arguments import find_subject, read_attributes, read_pairs, read_tensors
from dmlc.source import UnknownNameError
from tests.cli.conftest import Dmlc

TWO = """
module mine
operator A {
    tensors { | Tensor | Kind   | Types |
              | x      | Input  | f32   |
              | y      | Output | f32   | }
    compute { y = -x }
}
operator B {
    tensors { | Tensor | Kind   | Types |
              | x      | Input  | f32   |
              | y      | Output | f32   | }
    compute { y = abs(x) }
}
graph g[N](x: FLOAT32[N]) {
    output y = x + x
}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("X=FLOAT32[2,3]", TensorDesc("FLOAT32", (2, 3))),
        ("X=f16[2, 3]{1, 2}", TensorDesc("FLOAT16", (2, 3), (1, 2))),
        ("X=BFLOAT16", TensorDesc("BFLOAT16")),
        (" X = FLOAT64[1] ", TensorDesc("FLOAT64", (1,))),
        ("X=INT8[3]{0}", TensorDesc("INT8", (3,), (0,))),
    ],
)
def test_tensors(text: str, expected: TensorDesc) -> None:
    assert read_tensors([text]) == {"X": expected}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("X", "expected NAME=VALUE, found 'X'"),
        ("=FLOAT32", "expected NAME=VALUE"),
        ("X=", "expected NAME=VALUE"),
        ("X=FLOAT32[2", "'FLOAT32[2' describes no tensor: expected a type"),
        ("X=FLOAT32{1}", "describes no tensor"),
        ("X=[2,3]", "describes no tensor"),
        ("X=FLOAT32[]", "expected whole numbers separated by commas, found ''"),
        ("X=FLOAT32[2,,3]", "expected whole numbers separated by commas, found '2,,3'"),
        ("X=FLOAT32[2,-3]", "found '2,-3'"),
        ("X=FLOAT32[2]{x}", "found 'x'"),
        ("X=FLOAT32[\u0662]", "expected whole numbers"),
        (f"X=FLOAT32[{'9' * 30}]", "expected whole numbers"),
    ],
)
def test_tensors_that_are_none(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        read_tensors([text])
    assert message in raised.value.message
    assert raised.value.param_hint == "'--tensor'"


def test_unknown_data_type() -> None:
    with pytest.raises(DmlcError, match="unknown data type 'FLOAT23'"):
        read_tensors(["X=FLOAT23[2]"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("1e-5", 1e-5),
        (".5", 0.5),
        ("-2.", -2.0),
        ("inf", float("inf")),
        ("true", True),
        ("False", False),
        ("LINEAR", "LINEAR"),
        ("1_000", "1_000"),
        ("2,2", [2, 2]),
        ("[0.5, 1]", [0.5, 1]),
        ("[1]", [1]),
        ("[]", []),
        ("NCX", "NCX"),
    ],
)
def test_attributes(text: str, value: object) -> None:
    found = read_attributes([f"A={text}"])["A"]
    assert found == value
    assert type(found) is type(value)


def test_a_name_given_twice() -> None:
    with pytest.raises(click.BadParameter, match="'A' is given twice"):
        read_pairs("--attr", ["A=1", "B=2", "A=3"])


@pytest.fixture
def two(tmp_path: Path) -> Path:
    path = tmp_path / "two.dml"
    path.write_text(TWO, "utf-8")
    return path


def test_operators_by_name_and_file(two: Path) -> None:
    assert find_subject("onednn.ReLU").name == "onednn.ReLU"
    assert find_subject(f"{two}:A").name == "mine.A"
    assert find_subject(f"{two}:mine.B").name == "mine.B"
    plain = two.with_suffix(".txt")
    plain.write_text(TWO, "utf-8")
    with pytest.raises(DmlcError, match=r"two\.txt' is no \.dml file"):
        find_subject(f"{plain}:B")


def test_one_operator_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "one.dml"
    path.write_text(TWO.partition("operator B")[0], "utf-8")
    assert find_subject(str(path)).name == "mine.A"


def test_several_operators_need_a_name(two: Path) -> None:
    with pytest.raises(DmlcError) as raised:
        find_subject(str(two))
    assert str(raised.value) == (
        f"error: '{two}' defines 2 operators, 1 graph: say which, as in '{two}:mine.g'\n"
        "  note: it has mine.g, mine.A, mine.B"
    )


def test_no_operator(tmp_path: Path) -> None:
    path = tmp_path / "none.dml"
    path.write_text("module m\n", "utf-8")
    with pytest.raises(DmlcError, match="defines no operator and no graph"):
        find_subject(str(path))


def test_unknown_operators(two: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"known here: mine\.g, mine\.A, mine\.B"):
        find_subject(f"{two}:Quux")
    with pytest.raises(UnknownNameError, match=r"did you mean 'onednn\.ReLU'"):
        find_subject("onednn.Relu")
    with pytest.raises(DmlcError, match=r"cannot read 'missing\.dml'"):
        find_subject("missing.dml")


def test_graphs_by_name(two: Path, dmlc: Dmlc) -> None:
    assert find_subject(f"{two}:g").name == "mine.g"
    found = dmlc("ir", f"{two}:mine.g", "--dim", "N=3")
    assert found.status == 0
    assert "func @g(%x: f32[3])" in found.out
    assert "graph g[N](x: FLOAT32[N])" in dmlc("show", f"{two}:g").out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--dim", "M=3"], 1, "unknown symbol of graph 'g' 'M'"),
        (["--dim", "N=three"], 2, "expected a whole number for N, found 'three'"),
        (["--dim", "N=3", "--attr", "A=1"], 2, "mine.g is a graph, and each call in it gives"),
        (["--tensor", "x=FLOAT16[3]"], 1, "input 'x' is FLOAT32, but FLOAT16 is given"),
    ],
)
def test_bindings_of_graphs(
    arguments: list[str], status: int, message: str, two: Path, dmlc: Dmlc
) -> None:
    found = dmlc("ir", f"{two}:g", *arguments)
    assert (found.status, message in found.err) == (status, True), found.err


def test_symbols_belong_to_graphs(dmlc: Dmlc) -> None:
    found = dmlc("compile", "onednn.ReLU", "--dim", "N=3")
    assert found.status == 2
    assert "onednn.ReLU is an operator, and only graphs have symbols" in found.err


def test_one_value_is_a_list_where_the_operator_has_one() -> None:
    reduce = find_subject("directml.REDUCE")
    given = read_attributes(["Axes=1", "Function=SUM"], reduce)
    assert given == {"Axes": [1], "Function": "SUM"}
    assert read_attributes(["Axes=0,1"], reduce) == {"Axes": [0, 1]}
    assert read_attributes(["Axes=[]"], reduce) == {"Axes": []}
