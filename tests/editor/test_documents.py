"""Open texts: what counts in imports, what is analysed anew, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlc import summaries
from dmlc.editor.documents import Session
from dmlc.editor.positions import Position, Range
from dmlc.editor.problems import list_problems
from dmlc.language import imports, syntax
from dmlc.language.check import check_text
from dmlc.language.parse import parse
from dmlc.library import BUILT_IN
from dmlc.source import DmlcError, Source

USER = 'import "modes.dml"\nfunction f(x) = x\n'
MODES = "enum MODE { A = 0 }\n"


def test_an_open_text_counts_before_its_file(tmp_path: Path) -> None:
    (tmp_path / "modes.dml").write_text("enum MODE { A = 0, }}", "utf-8")
    session = Session()
    user = session.open(str(tmp_path / "user.dml"), USER)
    assert len(list_problems(user)) == 1
    modes = session.open(str(tmp_path / "modes.dml"), MODES)
    assert session.importers(modes) == [user]
    assert list_problems(user) == []
    session.edit(modes.name, None, "enum {")
    assert len(list_problems(user)) == 1
    session.close(modes.name)
    assert "found '}'" in list_problems(user)[0].message


def test_other_texts_are_not_analysed_anew(tmp_path: Path) -> None:
    session = Session()
    (tmp_path / "modes.dml").write_text(MODES, "utf-8")
    user = session.open(str(tmp_path / "user.dml"), USER)
    known = user.analysis
    other = session.open(str(tmp_path / "other.dml"), MODES)
    session.edit(other.name, Range(Position(0, 0), Position(0, 4)), "ENUM")
    assert session.importers(other) == []
    assert user.analysis is known


def test_a_mistake_in_an_import_stands_at_the_import(tmp_path: Path) -> None:
    (tmp_path / "modes.dml").write_text("\nenum MODE", "utf-8")
    user = Session().open(str(tmp_path / "user.dml"), USER)
    (problem,) = list_problems(user)
    assert problem.message.startswith("'modes.dml': expected")
    assert problem.range == Range(Position(0, 0), Position(0, len('import "modes.dml"')))
    assert problem.remarks[0].name == str(tmp_path / "modes.dml")
    assert problem.remarks[0].range.start.line == 1


def test_imports_reach_the_folders_that_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "modes.dml").write_text(MODES, "utf-8")
    (tmp_path / "below").mkdir()
    text = USER.replace("modes", "../modes")
    name = str(tmp_path / "below/user.dml")
    (refused,) = list_problems(Session().open(name, text))
    assert "nor below a folder that may be imported from" in refused.message
    assert list_problems(Session([tmp_path]).open(name, text)) == []


def test_a_file_of_the_library_imports_as_the_library_does() -> None:
    path = summaries.FOLDER / "directml/AVERAGE_POOLING.dml"
    text = path.read_text("utf-8")
    assert "../" in text
    assert list_problems(Session().open(str(path), text)) == []


@pytest.mark.parametrize(
    "text",
    ["", "operator", "\x00", "/* open", "enum E {}", "enum E { A = 0, A = 1 }\nfunction f(x) = y"],
)
def test_the_mistakes_are_those_of_the_checker(text: str) -> None:
    found = Session().open("text.dml", text)
    try:
        expected = check_text(text, "text.dml", BUILT_IN).diagnostics
    except DmlcError as error:
        expected = error.diagnostics
    problems = list_problems(found)
    assert len(problems) == len(expected)
    for problem, diagnostic in zip(problems, expected, strict=True):
        assert problem.message.split("\n")[0] == diagnostic.message
        assert problem.code == diagnostic.code
        if diagnostic.span is not None and diagnostic.span.start < diagnostic.span.end:
            start, end = (found.offset(p) for p in (problem.range.start, problem.range.end))
            assert (start, end) == (diagnostic.span.start, diagnostic.span.end)


def test_warnings_stand_beside_errors() -> None:
    text = (Path(__file__).parent.parent.parent / "examples/relu_grad.dml").read_text("utf-8")
    unread = text.replace("dY = Input", "idle = 1\n        dY = Input").replace("? dY", "? dYY")
    problems = list_problems(Session().open("text.dml", unread))
    assert [(p.warning, p.message.split("\n")[0]) for p in problems] == [
        (False, "unknown name 'dYY'"),
        (True, "'idle' is never read"),
        (True, "'dY' is never read"),
    ]


def test_a_place_without_width_is_seen() -> None:
    document = Session().open("text.dml", "enum E { A = 0")
    (problem,) = list_problems(document)
    assert problem.range == Range(Position(0, 13), Position(0, 14))


def test_a_file_that_many_import_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of n open files that each import all before, one edit read n^2 / 2."""
    read: list[str] = []

    def count(source: Source) -> syntax.File:
        read.append(source.name)
        return parse(source)

    monkeypatch.setattr(imports, "parse", count)
    session = Session()
    names = [str(tmp_path / f"f{number}.dml") for number in range(8)]
    for number, name in enumerate(names):
        text = "".join(f'import "f{before}.dml"\n' for before in range(number))
        session.open(name, f"{text}function g{number}(v) = v\n")
    assert not any(document.analysis.diagnostics for document in session.documents.values())
    assert len(read) == len(names) - 1
    read.clear()
    session.edit(names[0], None, "function g0(v) = v + 1\n")
    assert not any(document.analysis.diagnostics for document in session.documents.values())
    assert read == names[:1]
