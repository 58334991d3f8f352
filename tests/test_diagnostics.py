"""The codes of errors and warnings: each is explained, its example raises it and the cure does not,
and whatever is raised has one."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import cli
from dmlc.diagnostics import FOLDER, GROUPS, explain, list_codes
from dmlc.source import DmlcError, Source, Span, UnknownNameError

PACKAGE = FOLDER.parent
CODE = re.compile(r"[EW]\d{4}")
LISTING = re.compile(r"```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ELSEWHERE = {"W0901": "tests/kernel/test_slow.py"}
"""Codes without an example, and where they are raised: no short operator has such a kernel."""

# The catalogue ---------------------------------------------------------------------------------


def examples(code: str) -> tuple[dict[str, str], dict[str, str]]:
    """The listings of the example that is wrong, and of the one that is right."""
    _, _, both = explain(code).text.partition("\nWrong:\n")
    wrong, _, right = both.partition("\nRight:\n")
    return dict(LISTING.findall(wrong)), dict(LISTING.findall(right))


@pytest.mark.parametrize("code", list_codes())
def test_a_code_is_explained(code: str) -> None:
    explanation = explain(code)
    assert CODE.fullmatch(code)
    assert explanation.code == code
    assert explanation.group in GROUPS.values()
    first, empty, prose, *_ = explanation.text.splitlines()
    assert first == f"# {code}: {explanation.title}"
    assert empty == ""
    assert prose.strip()
    assert max(map(len, explanation.text.splitlines())) <= 240
    if code not in ELSEWHERE:
        wrong, right = examples(code)
        assert wrong
        assert right


@pytest.mark.parametrize("code", sorted({*list_codes()} - {*ELSEWHERE}))
def test_its_example_raises_it_and_the_cure_does_not(
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong, right = examples(code)
    if "python" in wrong:
        names = {"dmlc": dmlc, "numpy": np}
        with pytest.raises(DmlcError) as raised:
            eval(wrong["python"], names)
        assert [d.code for d in raised.value.diagnostics] == [code]
        eval(right["python"], names)
        return
    status, said = run_example(wrong | {"dml": wrong.get("dml", right.get("dml", ""))}, capsys)
    assert re.findall(r"\[([EW]\d{4})\]$", said, re.MULTILINE) == [code]
    assert status == (1 if code.startswith("E") else 0)
    status, said = run_example({"dml": wrong.get("dml", "")} | right, capsys)
    assert (status, said) == (0, "")


def run_example(listings: dict[str, str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    Path("example.dml").write_text(listings["dml"], "utf-8")
    program, *arguments = shlex.split(listings.get("sh", "dmlc check example.dml"))
    assert program == "dmlc"
    status = cli.run(arguments)
    return status, capsys.readouterr().err


# What raises -----------------------------------------------------------------------------------

RAISING = {"DmlcError", "Diagnostic", "fail", "mistake"}
"""What makes diagnostics of a message."""
MADE_OF_OTHERS = (ast.Call, ast.List, ast.ListComp, ast.Tuple, ast.Subscript)
"""What stands first where the diagnostics are made already."""
MADE_BEFORE = ("self", "found", "broken", "diagnostics", "errors")
"""Names of such lists."""


def calls(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text("utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def name_called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_every_code_is_used_and_explained() -> None:
    used = {
        node.value
        for path in PACKAGE.rglob("*.py")
        if path.parent != FOLDER
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and CODE.fullmatch(node.value)
    }
    assert used == set(list_codes())


@pytest.mark.parametrize("package", ["language", "binding"])
def test_every_mistake_has_a_code(package: str) -> None:
    without = [
        f"{path.name}:{call.lineno}"
        for path in (PACKAGE / package).glob("*.py")
        for call in calls(path)
        if name_called(call) in RAISING
        and not any(k.arg == "code" for k in call.keywords)
        and not (call.args and isinstance(call.args[0], MADE_OF_OTHERS))
        and not ast.unparse(call.args[0]).endswith(MADE_BEFORE)
    ]
    assert not without, "\n".join(without)


# What is shown ---------------------------------------------------------------------------------


def test_a_diagnostic_ends_somewhere() -> None:
    text = "one\ntwo words\n\nend"
    span = Span(Source("a.dml", text), 4, 13)
    assert (span.line, span.column, span.end_line, span.end_column) == (2, 1, 2, 10)
    several = Span(Source("a.dml", text), 4, len(text))
    assert (several.end_line, several.end_column) == (4, 4)


def test_check_writes_codes_and_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.dml").write_text("function f(x) = x +\n    wrong\n", "utf-8")
    assert cli.run(["check", "a.dml", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == [
        {
            "code": "E0201",
            "message": "unknown name 'wrong'",
            "warning": False,
            "file": "a.dml",
            "line": 2,
            "column": 5,
            "end_line": 2,
            "end_column": 10,
            "notes": ["known here: x"],
        }
    ]


def test_a_code_outlives_what_is_said_of_the_call() -> None:
    text = (
        "operator O { tensors {\n| Tensor | Kind | Ranks | Types |\n| x | Input | 2 | f32 |\n"
        "| y | Output | 2 | f32 |\n} compute { y = x } }\n"
        "graph g[N](x: FLOAT32[N]) { output y = O(x: x) }"
    )
    with pytest.raises(DmlcError) as raised:
        dmlc.parse(text).graphs["g"].bind(dims={"N": 4})
    assert [d.code for d in raised.value.diagnostics] == ["E0803"]


def test_errors_of_a_class_have_its_code() -> None:
    assert dmlc.UnsupportedError("no").diagnostics[0].code == "E0901"
    assert dmlc.UnsupportedError("no", code="E0003").diagnostics[0].code == "E0003"
    assert dmlc.ArgumentError([dmlc.Diagnostic("a")]).diagnostics[0].code == "E0903"
    assert DmlcError("no").diagnostics[0].code is None


# dmlc explain ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spelt", ["E0401", "e0401", "[E0401]"])
def test_explain_says_what_a_code_means(spelt: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", spelt]) == 0
    assert capsys.readouterr().out == (FOLDER / "E0401.md").read_text("utf-8")


def test_explain_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain"]) == 0
    said = capsys.readouterr().out
    assert re.findall(r"^  ([EW]\d{4})  \S", said, re.MULTILINE) == list(list_codes())
    assert re.findall(r"^(\S.*):$", said, re.MULTILINE) == [*GROUPS.values(), "Warnings"]


def test_explain_names_the_nearest_of_an_unknown_code() -> None:
    with pytest.raises(UnknownNameError) as raised:
        explain("E0499")
    assert str(raised.value).splitlines() == [
        "error: unknown code 'E0499'; the nearest are [E0201]",
        "  note: E0501: an output without a definition",
        "  note: E0502: this name cannot be assigned",
        "  note: E0503: the declaration of an attribute",
    ]
    with pytest.raises(DmlcError, match="'relu' is no code of a diagnostic"):
        explain("relu")
