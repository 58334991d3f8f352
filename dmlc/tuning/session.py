"""Tuning of one function on one device: a trial of each candidate, and a state to resume from.

The state is written before and after each trial. If it has a trial that has begun and not ended,
the process was killed or the machine crashed during that trial: it is named, and not repeated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from dmlc.devices import RUNTIMES, compile_for, find_device, selector_of
from dmlc.files import read_bounded, write_files
from dmlc.ir import Function
from dmlc.kernel.nodes import Kernel
from dmlc.kernel.target import Subject
from dmlc.oracle import find_expected
from dmlc.pipeline import USUAL, Steps, compile_kernels, list_subjects
from dmlc.program import VERSION, Program
from dmlc.runtime.interface import AnyDevice
from dmlc.schedules.table import find_root, name_type, parse_table, print_row
from dmlc.source import DmlcError, Source, UnsupportedError
from dmlc.testing.bounds import bound_errors
from dmlc.testing.timing import fill_function
from dmlc.tuning.candidates import Candidate, choose_candidates
from dmlc.tuning.judge import Expected, TrialOutcome, TrialStatus
from dmlc.tuning.trial import Trial, run_trial, write_expected

SECONDS = 60.0
"""Default time limit of a trial."""
_FINALISTS = 3
"""Largest number of the fastest candidates that are timed again."""
_MOST_BYTES = 1 << 24
"""Largest file of a state or a table that is read."""
_VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Tried:
    """Candidate for kernels of a class, with the result of its trial."""

    kernel: str
    """Class, type and size of the kernels, as in a row."""
    numbers: str
    outcome: TrialOutcome
    modelled: float | None = None

    @staticmethod
    def from_json(found: dict[str, Any]) -> Tried:
        outcome = TrialOutcome.from_json(found["outcome"])
        return Tried(found["kernel"], found["numbers"], outcome, found["modelled"])


@dataclasses.dataclass(slots=True)
class Record:
    """Results of a tuning."""

    title: str
    """Function with its tensors."""
    device: str
    """Name and driver of the device."""
    device_class: str
    tried: list[Tried] = dataclasses.field(default_factory=list[Tried])
    confirmed: dict[str, Tried] = dataclasses.field(default_factory=dict[str, Tried])
    """Chosen candidate of each class of kernels, with the result of its second trial."""
    begun: str = ""
    """Kernel and numbers of the trial that is running."""
    hung: str = ""
    """Kernel and numbers of the trial that did not end."""

    def find(self, kernel: str, numbers: str) -> Tried | None:
        return next((t for t in self.tried if (t.kernel, t.numbers) == (kernel, numbers)), None)

    @staticmethod
    def from_json(found: dict[str, Any]) -> Record:
        tried = [Tried.from_json(each) for each in found["tried"]]
        confirmed = {name: Tried.from_json(each) for name, each in found["confirmed"].items()}
        fields: dict[str, Any] = {**found, "tried": tried, "confirmed": confirmed}
        return Record(**fields)


class State:
    """Records of all tunings whose rows are in one file, by a hash of function and device."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records: dict[str, Record] = {}
        if not path.exists():
            return
        try:
            found = json.loads(read_bounded(path, _MOST_BYTES))
            if found["version"] != _VERSION:
                raise ValueError
            for key, record in found["records"].items():
                self.records[key] = Record.from_json(record)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DmlcError(
                f"'{path}' is no state of this dmlc's tune", notes=["delete it to begin anew"]
            ) from None

    def write(self) -> None:
        """Writes the file as a whole or not at all."""
        records = {key: dataclasses.asdict(record) for key, record in self.records.items()}
        text = json.dumps({"version": _VERSION, "records": records}, indent=1)
        write_files(self._path.parent, {self._path.name: text.encode()})


@dataclasses.dataclass(frozen=True, slots=True)
class TrialStep:
    """Finished trial."""

    kernel: str
    numbers: str
    number: int
    count: int
    """Number of trials of this kernel."""
    outcome: TrialOutcome


Try = Callable[[Path, Trial, float], TrialOutcome]


class Session:
    """Tuning of a function on a device, which adds rows to a file."""

    def __init__(
        self,
        function: Function,
        device: str,
        rows: Path,
        gpu_class: str | None = None,
        seconds: float = SECONDS,
        *,
        retry: bool = False,
        run: Try = run_trial,
    ) -> None:
        """Raises `DmlcError` if there is nothing to tune, or if the device hung before and `retry`
        is not set; the errors of `find_device`; and `ScheduleError` for mistakes in the file of
        rows."""
        found = find_device(device)
        if found is None:
            raise UnsupportedError(
                "the reference has no kernels to tune", notes=[f"name one of {', '.join(RUNTIMES)}"]
            )
        if function.symbols():
            raise UnsupportedError(
                f"{function.name} has sizes that are not known, and times depend on them",
                notes=["bind it with the sizes of its tensors"],
            )
        function.refuse_loops("kernels of a loop over time are not tuned one by one")
        self._function, self._device, self._run = function, found, run
        self._selector, self._seconds, self._rows = selector_of(found), seconds, rows
        usual = compile_for(function, found, USUAL)
        self._target, self._gpu_class = usual.target, gpu_class
        self._profile = usual.profile if gpu_class is None else find_root(gpu_class)
        self.device_class = gpu_class or self._profile
        self._text = ""
        self._expected: Expected | None = None
        if rows.exists():
            self._text = read_bounded(rows, _MOST_BYTES).decode(errors="replace")
            parse_table(Source(str(rows), self._text))
        self._state = State(rows.with_name(f"{rows.name}.state.json"))
        self.record = self._find_record(function, found)
        if self.record.hung and not retry:
            raise DmlcError(
                f"{self.record.device} hung on {self.record.hung}, and is left alone",
                notes=["--retry tries the other candidates, and not that one"],
            )
        if self.record.begun:
            self._leave_out(self.record.begun)
        self.record.hung = ""

    def _find_record(self, function: Function, device: AnyDevice) -> Record:
        parts = (VERSION, str(function), str(device), self.device_class, self._target)
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        tensors = function.tensors()
        said = ", ".join(
            f"{name}={tensors[name].dtype.name}{list(tensors[name].extents)}"
            for name in (p.name for p in function.parameters)
        )
        fresh = Record(f"{function.name}: {said}", str(device), self.device_class)
        return self._state.records.setdefault(key, fresh)

    def _leave_out(self, begun: str) -> None:
        kernel, _, numbers = begun.partition(": ")
        why = "it was under way when its process was ended: it is not tried again"
        self.record.tried.append(Tried(kernel, numbers, TrialOutcome(TrialStatus.UNFINISHED, why)))
        self.record.begun = ""
        self._state.write()

    def list_subjects(self) -> list[Subject]:
        """Kernels without a row in the file, one of each class, type and size."""
        table = parse_table(Source(str(self._rows), self._text))
        there = [row for row in table.rows if row.device == self.device_class]
        found = list_subjects(self._function, self._target, self._profile)
        named = {name_kernel(each): each for each in found}
        return [each for each in named.values() if not any(row.suits(each) for row in there)]

    def steps(self, subjects: Sequence[Subject]) -> Iterator[TrialStep]:
        """Runs all trials. The files of rows and of the state are current after each."""
        with tempfile.TemporaryDirectory(prefix="dmlc-tune-") as name:
            folder = Path(name)
            write_expected(folder, self._find_expected())
            for subject in subjects:
                yield from self._tune(subject, folder)
                if self.record.hung:
                    return

    def _find_expected(self) -> Expected:
        if self._expected is not None:
            return self._expected
        inputs, _ = fill_function(self._function)
        allowed = bound_errors(self._function, inputs, self._device.floats)
        results = find_expected(self._function, inputs)
        self._expected = Expected(inputs, results, allowed)
        return self._expected

    def _tune(self, subject: Subject, folder: Path) -> Iterator[TrialStep]:
        kernel, record = name_kernel(subject), self.record
        program, _, _ = self._compile(None)
        candidates = choose_candidates(
            subject, self.device_class, self._profile, self._compile, program
        )
        for number, each in enumerate(candidates, 1):
            said = record.find(kernel, each.numbers)
            if said is None:
                outcome = self._try(kernel, each, folder)
                said = Tried(kernel, each.numbers, outcome, each.modelled)
                record.tried.append(said)
                self._state.write()
            yield TrialStep(kernel, each.numbers, number, len(candidates), said.outcome)
            if record.hung:
                return
        self._confirm(kernel, candidates, folder)

    def _try(self, kernel: str, each: Candidate, folder: Path) -> TrialOutcome:
        record, name = self.record, f"{kernel}: {each.numbers}"
        record.begun = name
        self._state.write()
        trial = Trial(
            str(self._function), self._selector, self._gpu_class, self._profile, each.table
        )
        try:
            with _ending_by_exception():
                outcome = self._run(folder, trial, self._seconds)
        finally:
            # A trial that a person stops may be repeated.
            record.begun = ""
            self._state.write()
        if outcome.status is TrialStatus.HUNG:
            record.hung = name
        return outcome

    def _confirm(self, kernel: str, candidates: Sequence[Candidate], folder: Path) -> None:
        """Writes the row of the fastest candidate that is faster than the usual kernels in a second
        trial as well."""
        record = self.record
        if kernel in record.confirmed:
            return
        tried = [(record.find(kernel, each.numbers), each) for each in candidates]
        quicker = [(s.outcome.gain, c) for s, c in tried if s is not None and s.outcome.is_quicker]
        for _, each in sorted(quicker, key=lambda pair: -pair[0])[:_FINALISTS]:
            outcome = self._try(kernel, each, folder)
            if record.hung:
                return
            if outcome.is_quicker:
                record.confirmed[kernel] = Tried(kernel, each.numbers, outcome, each.modelled)
                self._state.write()
                self._write_row(each, outcome)
                return

    def _write_row(self, each: Candidate, outcome: TrialOutcome) -> None:
        (row,) = parse_table(Source("<row>", each.table)).rows
        times = f"{outcome.own * 1e6:,.1f} us in place of {outcome.usual * 1e6:,.1f}"
        said = f"// {self.record.title} on {self.record.device}: {times}"
        lines = [said, f"device {self.device_class}", print_row(row)]
        self._text = self._text + ("\n" if self._text else "") + "\n".join(lines) + "\n"
        write_files(self._rows.parent, {self._rows.name: self._text.encode()})

    def _compile(self, table: Source | None) -> tuple[Program, Function, tuple[Kernel, ...]]:
        steps = Steps(gpu_class=self._gpu_class, table=table)
        return compile_kernels(
            self._function,
            self._target,
            self._profile,
            shader_model=self._device.compile_options.get("shader_model"),
            steps=steps,
        )

    @property
    def records(self) -> list[Record]:
        """Records of all tunings whose rows are in the file."""
        return list(self._state.records.values())


@contextlib.contextmanager
def _ending_by_exception() -> Generator[None]:
    """Makes SIGTERM, by which service managers and CI stop a command, raise `SystemExit`, as Ctrl-C
    raises `KeyboardInterrupt`. Only the main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def name_kernel(subject: Subject) -> str:
    """Class, type and size of a kernel, as in a row: `product FLOAT32 2^20`."""
    bits = None if subject.size is None else max(0, subject.size.bit_length() - 1)
    return f"{subject.kind} {name_type(subject.dtype)} {'any' if bits is None else f'2^{bits}'}"
