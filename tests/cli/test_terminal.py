"""What only a terminal gets, and what a shell offers: colour, values in short, completion."""

from __future__ import annotations

import importlib
import re

import ml_dtypes
import numpy as np
import pytest
from click.shell_completion import BashComplete

from dmlc import cli
from dmlc.cli import completion, messages, qualify_command
from dmlc.cli.values import describe_values
from dmlc.scalars import Array
from dmlc.source import Diagnostic, Note, Source, Span
from tests.cli.conftest import Dmlc

WRONG = Diagnostic(
    "unknown name 'y'",
    Span(Source("a.dml", "x = y"), 4, 5),
    (Note("is it: note: x?"),),
    code="E0201",
)

# Colour ----------------------------------------------------------------------------------------


def strip(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_words_and_carets_are_painted_and_nothing_else() -> None:
    text = WRONG.render()
    painted = messages.paint(text)
    assert strip(painted) == text
    assert re.findall(r"\x1b\[[0-9;]*m([^\x1b]*)\x1b\[0m", painted) == [
        "error", "[E0201]", "^", "note"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("terminal", "environment", "wanted"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    terminal: bool,
    environment: dict[str, str],
    wanted: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    messages.show(WRONG)
    said = capsys.readouterr().err
    assert ("\x1b[" in said) == wanted
    assert strip(said) == WRONG.render() + "\n"


def test_what_is_said_meanwhile_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the names of others' operators might."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    qualify_command._tell("a\x1b[2Jb\u202e")
    said = capsys.readouterr().err
    assert "a\ufffd[2Jb\ufffd" in said
    assert "\x1b[2J" not in said


def test_a_folder_steers_no_terminal(dmlc: Dmlc) -> None:
    said = dmlc(
        "compile", "directml.ACTIVATION_RELU", "--target", "opencl", "--json", "-o", "\x1b[2J"
    )
    assert said.err.splitlines() == [
        f"\ufffd[2J/{n}" for n in ("ACTIVATION_RELU.cl", "manifest.json")
    ]


# Values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.float32([-1, 2, 0.5, 3]), ["min -1, max 3, mean 1.125", "[-1, 2, 0.5, 3]"]),
        (
            np.float16([[1, np.nan], [np.inf, -np.inf]]),
            ["min 1, max 1, mean 1; 1 NaN; 2 inf", "[1, nan, inf, -inf]"],
        ),
        (np.float64([np.nan] * 2), ["2 NaN", "[nan, nan]"]),
        (
            np.arange(256, dtype=np.uint8),
            ["min 0, max 255, mean 127.5", "[0, 1, 2, 3, 4, 5, ...]"],
        ),
        (
            np.array([2**64 - 1, 1], np.uint64),
            ["min 1, max 18446744073709551615, mean 9.22337e+18", "[18446744073709551615, 1]"],
        ),
        (np.array([True, False, True]), ["2 of 3 true", "[true, false, true]"]),
        (np.array([1.5], ml_dtypes.bfloat16), ["min 1.5, max 1.5, mean 1.5", "[1.5]"]),
        (np.zeros((0, 3), np.float32), ["no elements"]),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
)
def test_values_in_short(array: Array, said: list[str]) -> None:
    assert describe_values(array) == said


# Completion ------------------------------------------------------------------------------------


def complete(line: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is offered for the last word of a line, each with its kind."""
    words = line.split(" ")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    shell = BashComplete(cli.group, {}, "dmlc", "_DMLC_COMPLETE")
    return [(c.type, c.value) for c in shell.get_completions(words[1:-1], words[-1])]


@pytest.mark.parametrize("command", ["run", "test", "graph", "compile"])
def test_operators_are_completed_by_either_part_of_their_names(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = complete(f"dmlc {command} onednn.ReL", monkeypatch)
    assert found == [
        ("file", "onednn.ReL"), ("plain", "onednn.ReLU"), ("plain", "onednn.ReLUBackward")
    ]  # fmt: skip
    assert ("plain", "directml.ACTIVATION_RELU") in complete(
        f"dmlc {command} activation_relu", monkeypatch
    )


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("dmlc ir directml.BATCH_NORMALIZATION --attr ep", [("plain", "Epsilon=")]),
        ("dmlc ir directml.ACTIVATION_RELU --tensor I", [("plain", "InputTensor=")]),
        ("dmlc run onednn.ReLU --input s", [("plain", "src=")]),
        ("dmlc run onednn.ReLU --input src=x", [("file", "src=x")]),
        ("dmlc run --verify onednn.ReLU --input ", [("plain", "src="), ("plain", "dst=")]),
        ("dmlc run onednn.ReLU --tensor src=f32[4] --attr ", []),
        ("dmlc run onednn.ReLU --device v", [("plain", "vulkan")]),
        ("dmlc run onednn.ReLU --check", [("plain", "--check-memory")]),
        ("dmlc explain e0401", [("plain", "E0401")]),
        ("dmlc expl", [("plain", "explain")]),
        ("dmlc fmt a", [("file", "a")]),
        ("dmlc ir mine.dml --attr E", []),
    ],
)
def test_words_are_completed(
    line: str, offered: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complete(line, monkeypatch) == offered


@pytest.mark.parametrize(
    ("words", "typed"), [("--attr", "5"), ("--attr ep", "5"), ("--attr ep", "ep")]
)
def test_names_of_the_library_are_completed_without_the_command(
    words: str, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bash and zsh say what is typed, and as fish does."""
    monkeypatch.setenv("COMP_WORDS", f"dmlc run --verify directml.GEMM {words}")
    monkeypatch.setenv("COMP_CWORD", typed)
    light = completion.stand_in("run")
    assert light is not None
    assert [p.opts for p in light.params] == [["operator"], ["--attr"]]
    assert completion.stand_in("test") is None
    monkeypatch.setenv("COMP_CWORD", "6")
    monkeypatch.setenv("COMP_WORDS", "dmlc run directml.GEMM --attr Alpha=1 --ver")
    assert completion.stand_in("run") is None


def test_each_command_takes_the_options_that_it_is_said_to() -> None:
    found: dict[str, list[str]] = {option: [] for option in completion.TAKERS}
    for name in completion.OPERATOR_COMMANDS:
        command = importlib.import_module(f"dmlc.cli.{name}_command").command
        for option in (o for p in command.params for o in p.opts if o in found):
            found[option].append(name)
    assert found == {option: list(names) for option, names in completion.TAKERS.items()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", shell]) == 0
    assert f"_DMLC_COMPLETE={shell}_complete" in capsys.readouterr().out
