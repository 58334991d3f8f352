"""`dmlc tune`: what is proved before it is timed, and where an interrupted run goes on."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import dmlc
from dmlc import cli, ir
from dmlc.devices import compile_for, find_device, load_on
from dmlc.oracle import find_expected
from dmlc.program import Program
from dmlc.runtime.interface import AnyDevice, AnyExecutable
from dmlc.schedules.table import parse_table
from dmlc.source import Source
from dmlc.testing.bounds import bound_errors
from dmlc.testing.timing import Race, Timer, fill_function
from dmlc.tuning import candidates
from dmlc.tuning.judge import Expected, TrialOutcome, TrialStatus, judge, summarize
from dmlc.tuning.page import write_page
from dmlc.tuning.session import Session, Try
from dmlc.tuning.trial import Trial, run_trial, write_expected

PLAIN = """
func @plain(%X: f32[300000]) -> (%Y) {
  %Y: f32[i0 < 300000] = add(%X[i0], 1.0)
}"""


TABLE = "device cpu\nrow elementwise any any; per_item 1024"


def find_opencl() -> AnyDevice:
    device = find_device("opencl")
    assert device is not None
    return device


def expect(function: ir.Function) -> Expected:
    inputs, _ = fill_function(function)
    allowed = bound_errors(function, inputs, find_opencl().floats)
    return Expected(inputs, find_expected(function, inputs), allowed)


def fake(
    gains: dict[str, float],
    seen: list[str],
    stop: str = "",
    hang: str = "",
    by: signal.Signals = signal.SIGINT,
) -> Try:
    """Trials without a device: how many times as fast each is; one of them is stopped by a signal,
    or hangs."""

    def run(_: Path, trial: Trial, __: float) -> TrialOutcome:
        numbers = " ".join(trial.table.split("\n")[2].split())
        if numbers == stop:
            os.kill(os.getpid(), by)
        seen.append(numbers)
        if numbers == hang:
            return TrialOutcome(TrialStatus.HUNG, "it was not done")
        return summarize(Race.of([1e-3 * gains.get(numbers, 1.0)], [1e-3]), "host")

    return run


def go(session: Session) -> None:
    for _ in session.steps(session.list_subjects()):
        pass


def make(rows: Path, **how: Any) -> Session:
    return Session(ir.parse(PLAIN), "opencl", rows, **how)


def test_a_wrong_candidate_is_never_timed() -> None:
    device, function = find_opencl(), ir.parse(PLAIN)
    right = compile_for(function, device)
    (kernel,) = right.kernels
    broken = kernel.source.replace("+ 1.0f", "+ 1.5f")
    assert broken != kernel.source
    wrong = dataclasses.replace(right, kernels=(dataclasses.replace(kernel, source=broken),))

    def load(program: Program) -> AnyExecutable:
        return load_on(program, device)

    def refuse(*_: object) -> Timer:
        raise AssertionError("it was timed")

    found = judge(load(wrong), load(right), expect(function), 1, refuse)
    assert found.status is TrialStatus.WRONG
    assert found.gain == 0
    assert "Y: 300,000 of 300,000" in found.said or "is expected" in found.said
    with pytest.raises(AssertionError, match="it was timed"):
        judge(load(right), load(right), expect(function), 1, refuse)
    assert judge(load(right), load(right), expect(function), 1).status is TrialStatus.TIMED


def test_both_are_timed_over_as_many_runs() -> None:
    """A machine that was busy when one of the two was begun would make it a sample of few runs."""
    program = compile_for(ir.parse(PLAIN), find_opencl())
    first, second = (load_on(program, find_opencl()) for _ in range(2))
    counts: list[int] = []

    class Counted(Timer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.turns = 3 + 4 * len(counts)
            counts.append(0)

        def sample(self, turns: int | None = None) -> float:
            counts.append(turns or self.turns)
            return super().sample(turns)

    assert judge(first, second, expect(ir.parse(PLAIN)), 2, Counted).status is TrialStatus.TIMED
    assert counts[2:] == [7] * 4


def test_a_machine_that_is_busy_for_a_while_makes_no_winner() -> None:
    usual = [1.0, 1.0, 5.0, 5.0, 5.0]
    own = [1.0, 1.0, 5.0, 1.0, 4.0]
    assert not summarize(Race.of(usual, own), "host").is_quicker
    own = [0.9, 0.9, 4.5, 4.5, 5.0]
    assert summarize(Race.of(usual, own), "host").is_quicker


@pytest.mark.parametrize(
    ("by", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, by: signal.Signals, raised: type[BaseException]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    rows, seen = tmp_path / "rows.txt", list[str]()
    all_seen: list[str] = []
    go(make(tmp_path / "whole.txt", run=fake({}, all_seen)))
    third = all_seen[2]
    # A process in the background may ignore SIGINT.
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(raised):
            go(make(rows, run=fake({}, seen, stop=third, by=by)))
    finally:
        signal.signal(signal.SIGINT, interrupted)
    assert seen == all_seen[:2]
    assert signal.getsignal(signal.SIGTERM) is before
    # A person stopped it: the third is tried.
    go(make(rows, run=fake({}, seen)))
    assert seen == all_seen
    state = json.loads(rows.with_name("rows.txt.state.json").read_text())
    (record,) = state["records"].values()
    assert len(record["tried"]) == len(all_seen) <= candidates.MOST
    assert not record["begun"]


def test_what_was_under_way_when_the_process_was_killed_is_left_out(tmp_path: Path) -> None:
    rows, seen = tmp_path / "rows.txt", list[str]()
    path = rows.with_name("rows.txt.state.json")

    def die(folder: Path, trial: Trial, seconds: float) -> TrialOutcome:
        # What is on disk now is what a process that is killed leaves.
        kept.append(path.read_text())
        return fake({}, seen)(folder, trial, seconds)

    kept: list[str] = []
    go(make(rows, run=die))
    first, second = seen[:2]
    path.write_text(kept[1])
    seen.clear()
    session = make(rows, run=fake({}, seen))
    go(session)
    assert first not in seen
    assert second not in seen
    assert seen
    (left,) = [t for t in session.record.tried if t.outcome.status is TrialStatus.UNFINISHED]
    assert left.numbers == second
    assert f"| `{second}` |  |  |  |  | not finished: " in write_page(session.records, "rows.txt")


def test_a_device_that_hangs_is_left_alone(tmp_path: Path) -> None:
    rows, seen = tmp_path / "rows.txt", list[str]()
    go(make(rows, run=fake({}, seen)))
    hang = seen[1]
    rows, seen = tmp_path / "other.txt", list[str]()
    session = make(rows, run=fake({}, seen, hang=hang))
    go(session)
    assert seen[-1] == hang
    assert len(seen) == 2
    assert hang in session.record.hung
    with pytest.raises(dmlc.DmlcError, match="and is left alone"):
        make(rows, run=fake({}, seen))
    again: list[str] = []
    go(make(rows, run=fake({}, again), retry=True))
    assert again
    assert hang not in again


def test_a_candidate_that_wins_twice_becomes_a_row(tmp_path: Path) -> None:
    rows, seen = tmp_path / "rows.txt", list[str]()
    go(make(tmp_path / "first.txt", run=fake({}, seen)))
    won = seen[1]
    session = make(rows, run=fake({won: 1.5}, seen))
    (subject,) = session.list_subjects()
    go(session)
    (row,) = parse_table(Source("rows", rows.read_text())).rows
    assert row.suits(subject)
    assert row.text.startswith(f"cpu elementwise FLOAT32 2^18: {won}")
    # It is there, and is not tuned again.
    assert not make(rows, run=fake({}, seen)).list_subjects()
    made = dmlc.compile(ir.parse(PLAIN), "opencl", schedules=rows.read_text())
    assert made.kernels[0].row == str(row)


def test_a_trial_has_a_limit(tmp_path: Path) -> None:
    write_expected(tmp_path, expect(ir.parse(PLAIN)))
    trial = Trial(PLAIN, "opencl", None, None, "device cpu\nrow elementwise any any; per_item 1")
    outcome = run_trial(tmp_path, trial, 0.01)
    assert outcome.status is TrialStatus.HUNG


@pytest.mark.parametrize(
    ("device", "numbers"), [("opencl", "per_item 4096"), ("vulkan", "group_size 64")]
)
def test_the_command(
    device: str, numbers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """One candidate, in a process of its own, on a device."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(candidates, "MOST", 1)
    Path("plain.ir").write_text(PLAIN)
    assert cli.run(["tune", "plain.ir", "--device", device, "-o", "rows.txt"]) == 0
    printed = capsys.readouterr()
    assert f"elementwise FLOAT32 2^18 1 of 1: {numbers}: " in printed.err
    assert "times as fast" in printed.err
    page = Path("rows.txt.md").read_text()
    assert "### `elementwise FLOAT32 2^18`" in page
    assert f"| `{numbers}` |" in page
