"""Runs commands in process and gives back what they printed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from dmlc import cli


@dataclasses.dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str


Dmlc = Callable[..., Outcome]


@pytest.fixture
def dmlc(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Dmlc:
    """`dmlc("ops", "--json")` runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        status = cli.run([str(a) for a in arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Outcome(status, printed.out, printed.err)

    return run
