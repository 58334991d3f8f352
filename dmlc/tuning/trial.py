"""Process that tries one candidate on a device: `python -m dmlc.tuning.trial FOLDER`.

The folder has the description of the trial, `trial.json`, and the arrays. The outcome is one line
of JSON on standard output. A kernel that never ends, or a driver that crashes, ends this process
alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

from dmlc import ir
from dmlc.devices import compile_for, load_on
from dmlc.files import write_files
from dmlc.known_answers import find_trusted
from dmlc.pipeline import Steps
from dmlc.processes import python_command, python_environment
from dmlc.source import DmlcError, Source
from dmlc.tuning.judge import Expected, TrialOutcome, TrialStatus, judge

_TRIAL, _EXPECTED = "trial.json", "expected.pickle"
_LONGEST = 400
"""Largest number of characters of a failure's message."""


def write_expected(folder: Path, expected: Expected) -> None:
    """Leaves the arrays in a folder for the trials of one function."""
    write_files(folder, {_EXPECTED: pickle.dumps(expected)})


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """Description of a trial."""

    function: str
    device: str
    gpu_class: str | None
    profile: str | None
    table: str
    """Schedule table with the candidate."""


def run_trial(folder: Path, trial: Trial, seconds: float) -> TrialOutcome:
    """Outcome of a trial in a process of its own, with a limit in seconds."""
    write_files(folder, {_TRIAL: json.dumps(dataclasses.asdict(trial)).encode()})
    process = subprocess.Popen(
        python_command(__name__, str(folder)),
        env=python_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=os.name == "posix",
    )
    try:
        said, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return TrialOutcome(TrialStatus.HUNG, f"it was not done after {seconds:g} seconds")
    except BaseException:
        _end(process)
        raise
    try:
        return TrialOutcome.from_json(json.loads(said.decode().strip().rpartition("\n")[2]))
    except (ValueError, KeyError, TypeError):
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        why = f"its process ended with status {process.returncode}: {last}"
        return TrialOutcome(TrialStatus.FAILED, why[:_LONGEST])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills a trial's process, and those that its driver may have started."""
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()


def try_candidate(folder: Path) -> TrialOutcome:
    """Outcome of the trial in a folder, in this process."""
    trial = Trial(**json.loads((folder / _TRIAL).read_text(encoding="utf-8")))
    function = ir.parse(trial.function)
    try:
        device = find_trusted(trial.device)
        if device is None:
            return TrialOutcome(TrialStatus.FAILED, "the reference has no kernels")
        tables = (None, Source("<table>", trial.table))
        ways = (Steps(gpu_class=trial.gpu_class, table=table) for table in tables)
        usual, candidate = (
            load_on(compile_for(function, device, way, trial.profile), device) for way in ways
        )
        return judge(candidate, usual, pickle.loads((folder / _EXPECTED).read_bytes()))
    except DmlcError as error:
        return TrialOutcome(TrialStatus.FAILED, str(error)[:_LONGEST])


def main(folder: str) -> None:
    """Prints the outcome of the trial in a folder."""
    outcome = try_candidate(Path(folder))
    print(json.dumps(dataclasses.asdict(outcome)))


if __name__ == "__main__":
    main(sys.argv[1])
