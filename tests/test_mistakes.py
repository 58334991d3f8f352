"""What people type first, and the message that each mistake gets: `golden/mistakes.md`.

`make golden` writes the messages anew, below the sources as they stand there. A source is checked,
unless a first line such as `// dmlc ir example.dml --tensor X=FLOAT32[4]` says what else is done.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import cli
from dmlc.source import DmlcError
from tests.goldens import GOLDEN

PATH = GOLDEN / "mistakes.md"
CASE = re.compile(
    r"^## (?P<title>[^\n]*)\n\n```dml\n(?P<source>.*?)^```\n\n```\n(?P<message>.*?)^```\n",
    re.DOTALL | re.MULTILINE,
)
TEXT = PATH.read_text("utf-8")
CURE = re.compile(r"(?:error|note): [^\n]*: |note: ")
"""A message says the cure behind a colon, or in a note."""


def read_message(source: str, capsys: pytest.CaptureFixture[str]) -> str:
    Path("example.dml").write_text(source, "utf-8")
    command = source.partition("\n")[0].removeprefix("// ")
    program, *arguments = shlex.split(command)
    if program != "dmlc":
        arguments = ["check", "example.dml"]
    cli.run(arguments)
    return capsys.readouterr().err


def test_each_mistake_gets_its_message(
    check_golden: Callable[[Path, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros(4, np.float32))

    def rewrite(case: re.Match[str]) -> str:
        message = read_message(case["source"], capsys)
        return f"## {case['title']}\n\n```dml\n{case['source']}```\n\n```\n{message}```\n"

    check_golden(PATH, CASE.sub(rewrite, TEXT))


def test_there_are_forty_and_each_names_the_cure() -> None:
    cases = list(CASE.finditer(TEXT))
    assert len(cases) == TEXT.count("\n## ") >= 40
    assert len({case["title"] for case in cases}) == len(cases)
    for case in cases:
        first = case["message"].splitlines()[0]
        assert re.search(r" \[[EW][0-9]{4}\]$", first), case["title"]
        assert CURE.search(case["message"]), case["title"]


@pytest.mark.parametrize(
    "line", ["y = " + "a" * 200_000 + " if b", "y = x" + " if a else" * 20_000]
)
def test_long_lines_are_answered_soon(line: str) -> None:
    with pytest.raises(DmlcError) as raised:
        dmlc.parse(f"graph g[N](x: FLOAT32[N]) {{ {line} }}")
    assert raised.value.diagnostics[0].code in ("E0003", "E0101", "E0108")
