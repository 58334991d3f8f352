"""Files that are wrong, one kind of mistake each: `dmlc check` says each in one message, with its
place and a cure. `tests/data/silent` has them, and the table what is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dmlc import cli

THOROUGH = "--thorough"
FOLDER = Path(__file__).parents[1] / "data" / "silent"
SAID: dict[str, tuple[int, str] | tuple[int, str, str]] = {
    "attribute_unread": (4, "W0001"),
    "call_attribute": (11, "W0502", THOROUGH),
    "call_out_of_bounds": (10, "W0502", THOROUGH),
    "call_rank": (7, "W0502", THOROUGH),
    "constraint_equal": (8, "E0101"),
    "constraint_typo": (8, "E0101"),
    "constraint_unmet": (9, "W0501"),
    "constraints_contradict": (9, "W0501"),
    "default_fraction": (4, "E0503"),
    "default_length": (4, "E0503"),
    "default_negative_uint": (4, "E0503"),
    "enum_default": (5, "E0201"),
    "example_attribute": (16, "E0804"),
    "example_constraint": (16, "E0801"),
    "example_lengths": (12, "E0801"),
    "example_result_length": (13, "E0506"),
    "floor_division": (11, "W0003"),
    "floor_division_paren": (11, "W0003"),
    "formula_infinite": (10, "W0503"),
    "formula_nan": (10, "W0503"),
    "forward_unknown": (2, "W0703"),
    "function_uncalled": (11, "W0001"),
    "gradient_of_round": (19, "W0702"),
    "gradient_zero": (19, "W0702"),
    "input_unread": (5, "W0001"),
    "integer_divide_example": (13, "E0506"),
    "integer_fraction": (10, "E0302"),
    "literal_too_large": (10, "E0307"),
    "local_unread": (11, "W0001"),
    "optional_output": (6, "W0001"),
    "optional_read": (11, "W0502"),
    "python_and": (10, "E0108"),
    "python_not": (10, "E0108"),
    "types_disjoint": (8, "W0501"),
    "types_row": (9, "W0501"),
}
"""The line, the code, and the option without which it is not said."""
HEAD = re.compile(r"^\S+?:(\d+):\d+: (?:error|warning): (.*) \[(\w+)\]$", re.MULTILINE)


@pytest.mark.parametrize("name", sorted(SAID))
def test_check_says_it_in_one_message(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    line, code, *options = SAID[name]
    path = str(FOLDER / f"{name}.dml")
    if options:
        assert cli.run(["check", path]) == 0
        assert capsys.readouterr().err == ""
    status = cli.run(["check", path, *options])
    said = capsys.readouterr().err
    assert [(int(at), what) for at, _, what in HEAD.findall(said)] == [(line, code)]
    assert status == code.startswith("E")
    assert "\n  note: " in said or ": write " in said or ": between " in said


def test_each_file_is_said() -> None:
    assert {path.stem for path in FOLDER.glob("*.dml")} == set(SAID)
    assert len(SAID) >= 30


def test_a_right_file_is_passed_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (FOLDER / "formula_infinite.dml").read_text("utf-8")
    right = text.replace("exp(X)", "exp(X - max(X, axes: [0]))")
    path = tmp_path / "right.dml"
    path.write_text(right, "utf-8")
    assert cli.run(["check", str(path), "--thorough"]) == 0
    assert capsys.readouterr().err == ""
