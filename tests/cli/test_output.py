"""Standard output that is full or closed, and names that a terminal or a shell would obey."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dmlc import cli
from dmlc.cli import messages, output
from dmlc.processes import python_command, python_environment, spell_command
from dmlc.source import DmlcError, printable
from tests.cli.conftest import Dmlc

ESCAPE = "\x1b]0;title\x07\x1b[2J\u202e"


def start(redirection: str) -> tuple[int, list[str]]:
    """`dmlc ops` with its output sent there: the status, and the last line of its errors."""
    command = f"{shlex.join(python_command('dmlc', 'ops'))} {redirection}"
    done = subprocess.run(
        ["sh", "-c", command], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=python_environment(), check=False,
    )  # fmt: skip
    return done.returncode, done.stderr.splitlines()[-1:]


def test_a_full_disk() -> None:
    said = "error: cannot write to standard output: no space left on device"
    assert start("> /dev/full") == (1, [said])


def test_closed_output() -> None:
    assert start(">&-") == (1, ["error: cannot write to standard output: it is closed"])


def test_a_reader_that_leaves() -> None:
    assert "error" not in "".join(start("| head -1 > /dev/null")[1])


class _Stream:
    """A terminal, or a file in an encoding."""

    closed = False

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        self.text, self.terminal, self.encoding = "", terminal, encoding

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        text.encode(self.encoding)
        self.text += text
        return len(text)

    def flush(self) -> None:
        return None


@pytest.mark.parametrize(("terminal", "shown"), [(True, "a\ufffdb\n\tc d"), (False, None)])
def test_only_terminals_are_kept_from_escapes(
    terminal: bool, shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = _Stream(terminal=terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    text = "a\x1bb\n\tc d"
    with output.guarding_output():
        sys.stdout.write(text)
    assert stream.text == (shown or text)


def test_an_encoding_without_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _Stream(terminal=False, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    with output.guarding_output():
        sys.stdout.write("Größe")
    assert stream.text == "Gr\\xf6\\xdfe"


def test_messages_do_not_reach_a_terminal_raw(capsys: pytest.CaptureFixture[str]) -> None:
    messages.show(DmlcError(f"unknown operator '{ESCAPE}'", notes=[ESCAPE]))
    assert cli.run(["show", ESCAPE]) == 1
    assert cli.run([f"--{ESCAPE}"]) == 2
    assert cli.run(["run", "directml.GEMM", "--seed", ESCAPE]) == 2
    said = capsys.readouterr().err
    assert not re.search("[\x1b\x07\u202e]", said)
    assert "\ufffd]0;title" in said
    assert printable("naïve\u00a0ß\n\t漢") == "naïve\u00a0ß\n\t漢"


# Commands -------------------------------------------------------------------------------------


def test_commands_are_words_to_a_shell() -> None:
    words: tuple[Any, ...] = ("dmlc", "run", Path("a;touch x.ir"), "--input", "a=$(b) 'c'.npy")
    assert shlex.split(spell_command(*words, platform="linux")) == [str(w) for w in words]
    assert spell_command("dmlc", Path("-o"), platform="linux") == "dmlc ./-o"
    assert spell_command("a b", "c", platform="win32") == '"a b" c'


def test_what_is_suggested_for_pages_is_quoted(dmlc: Dmlc, tmp_path: Path) -> None:
    folder = "out; touch x"
    page = Path(__file__).parents[1] / "data" / "pages"
    given = page / "activation_elu.md"
    done = dmlc("import", given, "-o", folder)
    (line,) = re.findall(r"^  (dmlc check .*)$", done.err, re.MULTILINE)
    assert shlex.split(line)[2].startswith(f"{folder}/")
