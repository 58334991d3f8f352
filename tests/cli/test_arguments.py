"""What the command line spells in its own way."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from dmlc import DmlcError, TensorDesc
from dmlc.cli.arguments import find_operator, read_attributes, read_pairs, read_tensors
from dmlc.source import UnknownNameError, UnsupportedError
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
    assert find_operator("onednn.ReLU").name == "onednn.ReLU"
    assert find_operator(f"{two}:A").name == "mine.A"
    assert find_operator(f"{two}:mine.B").name == "mine.B"
    plain = two.with_suffix(".txt")
    plain.write_text(TWO, "utf-8")
    assert find_operator(f"{plain}:B").name == "mine.B"


def test_one_operator_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "one.dml"
    path.write_text(TWO.partition("operator B")[0], "utf-8")
    assert find_operator(str(path)).name == "mine.A"


def test_several_operators_need_a_name(two: Path) -> None:
    with pytest.raises(DmlcError) as raised:
        find_operator(str(two))
    assert str(raised.value) == (
        f"error: '{two}' defines 2 operators: say which, as in '{two}:mine.A'\n"
        "  note: it has mine.A, mine.B"
    )


def test_no_operator(tmp_path: Path) -> None:
    path = tmp_path / "none.dml"
    path.write_text("module m\n", "utf-8")
    with pytest.raises(DmlcError, match="defines no operator"):
        find_operator(str(path))


def test_unknown_operators(two: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"known here: mine\.A, mine\.B"):
        find_operator(f"{two}:Quux")
    with pytest.raises(UnknownNameError, match=r"did you mean 'onednn\.ReLU'"):
        find_operator("onednn.Relu")
    with pytest.raises(DmlcError, match=r"cannot read 'missing\.dml'"):
        find_operator("missing.dml")


def test_a_graph_is_not_bound_yet(two: Path, dmlc: Dmlc) -> None:
    with pytest.raises(UnsupportedError, match="'g' is a graph, which cannot be bound yet"):
        find_operator(f"{two}:g")
    assert dmlc("ir", f"{two}:mine.g", "--dim", "N=3").status == 1


def test_symbols_belong_to_graphs(dmlc: Dmlc) -> None:
    found = dmlc("compile", "onednn.ReLU", "--dim", "N=3")
    assert found.status == 2
    assert "onednn.ReLU is an operator, and only graphs have symbols" in found.err


def test_one_value_is_a_list_where_the_operator_has_one() -> None:
    reduce = find_operator("directml.REDUCE")
    given = read_attributes(["Axes=1", "Function=SUM"], reduce)
    assert given == {"Axes": [1], "Function": "SUM"}
    assert read_attributes(["Axes=0,1"], reduce) == {"Axes": [0, 1]}
    assert read_attributes(["Axes=[]"], reduce) == {"Axes": []}
