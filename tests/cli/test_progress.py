"""How far a command has come, on standard error."""

from __future__ import annotations

import pytest

from dmlc import cli
from dmlc.cli import progress
from dmlc.progress import listening, track
from dmlc.runtime.threads import map_threads
from dmlc.testing.harness import Settings
from dmlc.testing.jobs import Target, run_targets


class Clock:
    """Time that goes on by so many seconds whenever it is asked for."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now = seconds, 100.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def test_quick_work_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with listening(progress.Shown(Clock(0.01))):
        assert list(track("doing", range(50))) == list(range(50))
    assert capfd.readouterr().err == ""


def test_a_log_has_a_line_a_second(capfd: pytest.CaptureFixture[str]) -> None:
    with listening(progress.Shown(Clock(0.5))):
        list(track("doing", range(10)))
    assert capfd.readouterr().err.splitlines() == [
        "doing: 4 of 10", "doing: 6 of 10", "doing: 8 of 10"
    ]  # fmt: skip


def test_a_log_of_much_work_has_a_line_for_each_tenth(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with listening(progress.Shown(Clock(1.5))):
        list(track("doing", range(200)))
    said = capfd.readouterr().err.splitlines()
    assert said == ["doing: 2 of 200", *(f"doing: {20 * k} of 200" for k in range(1, 10))]


def test_tests_of_operators_are_told_of() -> None:
    told: list[tuple[str, int, int]] = []
    target, settings = Target("onednn.ReLU"), Settings(("reference",), 0, 0, None, 0)
    with listening(lambda *said: told.append(said)):
        list(run_targets([target], settings, 1))
    assert told == [("testing operators", 0, 1), ("testing operators", 1, 1)]


def test_a_terminal_has_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with listening(progress.Shown(Clock(1))):
        list(track("doing", range(4)))
    said = capfd.readouterr().err
    assert said.split("\r\x1b[K") == [
        "", f"[{'#' * 12}{' ' * 12}] doing: 2 of 4", f"[{'#' * 18}{' ' * 6}] doing: 3 of 4", ""
    ]  # fmt: skip


def test_work_inside_work_is_not_told_of() -> None:
    told: list[tuple[str, int, int]] = []
    with listening(lambda *said: told.append(said)):
        for _ in track("outer", range(1)):
            list(track("inner", range(3)))
    assert told == [("outer", 0, 1), ("outer", 1, 1)]


@pytest.mark.parametrize("count", [1, 3])
def test_threads_are_told_of_in_order(count: int) -> None:
    told: list[int] = []
    with listening(lambda _, done, count: told.append(done)):
        assert map_threads("squaring", lambda n: n * n, range(count)) == [0, 1, 4][:count]
    assert told == list(range(count + 1))


def test_a_command_tells(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.delenv("DMLC_NO_PROGRESS")
    assert cli.run(["compile", "directml.ACTIVATION_RELU_GRAD"]) == 0
    assert "compiling kernels: 0 of 1" in capfd.readouterr().err
    monkeypatch.setenv("DMLC_NO_PROGRESS", "1")
    assert cli.run(["compile", "directml.ACTIVATION_RELU_GRAD"]) == 0
    assert "compiling kernels" not in capfd.readouterr().err
