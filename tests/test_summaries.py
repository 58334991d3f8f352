"""The index of the library, which lists are made from, is that of its files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dmlc import cli, library, summaries
from dmlc.library import check_file
from dmlc.source import InternalError

NAME = "directml.ACTIVATION_RELU"
STALE = "run `python docs/build.py`: dmlc/library/index.json is not of the files beside it"


def test_listing_the_library_reads_no_definition(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise InternalError(STALE)

    library.find.cache_clear()
    monkeypatch.setattr(library, "check_file", refuse)
    assert tuple(summaries.read_index()) == library.names(), STALE
    assert cli.run(["ops"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(library.names())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of one operator, with an index."""
    (tmp_path / "directml").mkdir()
    file = summaries.list_files()[NAME]
    for path in (file, *file.parent.glob("_*.dml")):
        shutil.copy(path, tmp_path / "directml")
    monkeypatch.setattr(summaries, "FOLDER", tmp_path)
    monkeypatch.setattr(summaries, "INDEX", tmp_path / "index.json")
    definition = check_file(summaries.list_files()[NAME]).operators[NAME]
    summaries.INDEX.write_text(summaries.write_index([definition]), encoding="utf-8")
    assert summaries.read_index() == {NAME: summaries.summarize(definition)}
    return tmp_path


def test_a_file_that_changed_is_not_in_the_index(folder: Path) -> None:
    path = folder / "directml" / "ACTIVATION_RELU.dml"
    path.write_text(path.read_text("utf-8") + "\n", encoding="utf-8")
    assert summaries.read_index() == {}


def test_a_library_may_have_no_index(folder: Path) -> None:
    (folder / "index.json").unlink()
    assert summaries.read_index() == {}
    assert list(summaries.list_files()) == [NAME]
