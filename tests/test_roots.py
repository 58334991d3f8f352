"""What `make roots` says of the commands that it runs in bare roots, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

import pytest

from tests.roots import __main__ as roots
from tests.roots.bare_root import BareRoot
from tests.roots.d3d12 import __main__ as direct3d

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


RESULTS = {
    "operators": [
        {"name": "f.A", "cases": 1200, "passed": 1195, "failed": 1, "unsupported": 4},
        {"name": "f.B", "cases": 2, "passed": 2, "failed": 0, "unsupported": 0},
    ],
    "failures": [{"operator": "f.A", "cause": "a result is not near enough"}],
    "unsupported": [
        {"message": "error: libvkd3d cannot translate it [E0901]\n  note: gave 0x80004001"},
        {"message": "/l/A.dml:35:9: error: 'Y' is FLOAT16 and reduced [E0901]"},
        {"message": "/l/A.dml:35:9: error: 'Z' is FLOAT16 and reduced [E0901]"},
        {"message": "a line"},
    ],
}
TOLD = """2 operators, 1 of them whole: 1,202 cases, 1,197 passed, 1 failed, 4 cannot be run there
      2 FLOAT16 and reduced
      1 libvkd3d cannot translate it
      1 a line
  failed: 1 of f.A: a result is not near enough""".splitlines()


class FakeSid(BareRoot):
    """A root with Direct3D 12 whose commands end as a test has them."""

    failing = "library"

    def make(self) -> None:
        (self.folder / "dmlc/out").mkdir(parents=True)

    def run(self, command: str, log: TextIO, variables: object = None) -> int:
        log.write("opencl:0  PoCL\nd3d12:0  lavapipe\n")
        name = next(n for n, c in direct3d.list_commands(["f.A"], True) if c == command)
        if name == "library":
            (self.folder / "dmlc" / direct3d.RESULTS).write_text(json.dumps(RESULTS))
        return int(name == self.failing)

    def find_version(self, package: str) -> str:
        return "2.1"


def test_what_came_of_direct3d_is_counted_with_its_reasons(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(direct3d, "BareRoot", FakeSid)
    monkeypatch.setattr("sys.argv", ["d3d12", "f.A", "--qualify", "--folder", str(tmp_path)])
    assert direct3d.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "libvkd3d1 2.1, mesa-vulkan-drivers 2.1, python3 2.1"
    heads = [line for line in lines if not line.startswith(" ")][1:]
    assert heads == [
        "setup: passed, 0 s", "devices: passed, 0 s", "host: passed, 0 s",
        "plugin: passed, 0 s", "matrices: passed, 0 s", "library: exit status 1, 0 s",
        "qualify: passed, 0 s",
    ]  # fmt: skip
    at = lines.index(heads[5])
    assert lines[at + 1 : at + 1 + len(TOLD)] == [f"  {line}" for line in TOLD]
    assert lines[lines.index(heads[1]) + 1] == "  d3d12:0  lavapipe"
    monkeypatch.setattr(FakeSid, "failing", "setup")
    monkeypatch.setattr("sys.argv", ["d3d12", "f.A", "--folder", str(tmp_path / "other")])
    assert direct3d.main() == 1
    assert "devices" not in capsys.readouterr().out
