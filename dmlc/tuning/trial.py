"""The process that tries one candidate on a device: `python -m dmlc.tuning.trial FOLDER`.

The folder has `trial.json`, which describes the trial, and the arrays. The outcome is one line of
JSON on standard output. A kernel that never ends, or a driver that crashes, ends this process
alone."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from dmlc import ir
from dmlc.devices import compile_for, load_on
from dmlc.files import write_files
from dmlc.known_answers import find_trusted
from dmlc.pipeline import Steps
from dmlc.processes import python_command, python_environment
from dmlc.scalars import Array
from dmlc.source import DmlcError, Source
from dmlc.tuning.judge import Expected, Outcome, Status, judge

_TRIAL = "trial.json"
_LONGEST = 400
"""Characters of what is said of a failure, at most."""


def write_arrays(folder: Path, expected: Expected) -> None:
    """Writes the arrays into a folder for the trials of one function, in the order of their
    names."""
    for kind, arrays in (
        ("inputs", expected.inputs),
        ("results", expected.results),
        ("allowed", expected.allowed),
    ):
        raw = [np.ascontiguousarray(arrays[n]).reshape(-1).view(np.uint8) for n in sorted(arrays)]
        np.savez(folder / f"{kind}.npz", *raw)


def read_arrays(folder: Path, function: ir.Function) -> Expected:
    """Arrays that `write_arrays` wrote."""
    results = [r.name for r in function.results]
    return Expected(
        _read(folder / "inputs.npz", function, [p.name for p in function.parameters]),
        _read(folder / "results.npz", function, results),
        _read(folder / "allowed.npz", function, results, np.dtype(np.float64)),
    )


def _read(
    path: Path, function: ir.Function, names: Sequence[str], dtype: np.dtype[Any] | None = None
) -> dict[str, Array]:
    """Arrays of some tensors, of their types or of another one."""
    tensors, found = function.tensors(), dict[str, Array]()
    with np.load(path, allow_pickle=False) as raw:
        for number, name in enumerate(sorted(names)):
            tensor, words = tensors[name], cast("Array", raw[f"arr_{number}"])
            flat = words.reshape(-1).view(dtype or tensor.dtype.dtype)
            found[name] = flat.reshape([e for e in tensor.extents if isinstance(e, int)])
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """Description of a trial."""

    function: str
    device: str
    gpu_class: str | None
    profile: str | None
    usual: str
    """The table that the usual kernels are compiled with; empty: none."""
    table: str
    """The table with the candidate."""


def run_trial(folder: Path, trial: Trial, seconds: float) -> Outcome:
    """Outcome of a trial in a process of its own, which is ended after `seconds`."""
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
        return Outcome(Status.HUNG, f"it was not done after {seconds:g} seconds")
    except BaseException:
        _end(process)
        raise
    try:
        return Outcome.from_json(json.loads(said.decode().strip().rpartition("\n")[2]))
    except (ValueError, KeyError, TypeError):
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        why = f"its process ended with status {process.returncode}: {last}"
        return Outcome(Status.FAILED, why[:_LONGEST])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a trial's process, with child processes that its driver may have started."""
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()


def try_candidate(folder: Path) -> Outcome:
    """Runs the trial that a folder describes, in this process."""
    trial = Trial(**json.loads((folder / _TRIAL).read_text(encoding="utf-8")))
    function = ir.parse(trial.function)
    try:
        device = find_trusted(trial.device)
        if device is None:
            return Outcome(Status.FAILED, "the reference has no kernels")
        usual, candidate = (
            load_on(compile_for(function, device, _take(trial, table), trial.profile), device)
            for table in (trial.usual, trial.table)
        )
        return judge(candidate, usual, read_arrays(folder, function))
    except DmlcError as error:
        return Outcome(Status.FAILED, str(error)[:_LONGEST])


def _take(trial: Trial, table: str) -> Steps:
    own = Source("<table>", table) if table else None
    return Steps(gpu_class=trial.gpu_class, table=own)


def main(folder: str) -> None:
    """Prints the outcome of the trial in a folder."""
    outcome = try_candidate(Path(folder))
    print(json.dumps(outcome.to_json()))


if __name__ == "__main__":
    main(sys.argv[1])
