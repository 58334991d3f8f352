"""What `make roots` says of the commands that it runs in bare roots, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import pytest

from tests.roots import __main__ as roots
from tests.roots.bare_root import BareRoot

LAST = "==== {} in 71.25s (0:01:11) ====\n"


class FakeRoot(BareRoot):
    """A root whose commands say and end as a test has them."""

    said = LAST.format("1 failed, 20 passed, 2 errors")
    statuses = (0, 2)

    def make(self) -> None:
        self.folder.mkdir(parents=True)
        self.commands: list[str] = []

    def run(self, command: str, log: TextIO, variables: object = None) -> int:
        self.commands.append(command)
        log.write("all is well\n" if command == "make demo" else self.said)
        return self.statuses[len(self.commands) - 1]

    def find_version(self, package: str) -> str:
        return {"python3": "3.13.5"}.get(package, "")


def test_the_table_says_what_came_of_each_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(roots, "BareRoot", FakeRoot)
    monkeypatch.setattr("sys.argv", ["roots", "trixie", "--folder", str(tmp_path)])
    assert roots.main() == 1
    head, _, row = (line.split("|") for line in capsys.readouterr().out.splitlines())
    assert [cell.strip() for cell in head[1:-1]] == [
        "release", "Python", "PoCL", "Mesa", "make demo", "make test",
    ]  # fmt: skip
    assert [cell.strip() for cell in row[1:-1]] == [
        "trixie", "3.13.5", "none", "none", "passed, 0 s", "1 failed, 20 passed, 2 errors, 0 s",
    ]  # fmt: skip
    monkeypatch.setattr(FakeRoot, "statuses", (0, 0))
    monkeypatch.setattr(FakeRoot, "said", LAST.format("21 passed"))
    monkeypatch.setattr("sys.argv", ["roots", "--folder", str(tmp_path / "other")])
    assert roots.main() == 0
    assert capsys.readouterr().out.count("21 passed, 0 s") == len(roots.RELEASES)
    assert (tmp_path / "other/bookworm.test.log").read_text() == LAST.format("21 passed")
