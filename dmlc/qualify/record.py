"""Results of a device's qualification, as data and as JSON.

The form is written and read as that of the IR (`ir.records`), with the same rules for its version.
A record may come from another machine: control characters are removed from its texts, and sizes are
bounded."""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path
from typing import Any

from dmlc.files import read_bounded
from dmlc.ir.records import Format, Records, Word
from dmlc.ir.schema import describe
from dmlc.runtime.floats import FloatPromises
from dmlc.source import DmlcError

FORM = Format("the JSON form of a qualification", (1, 0), "dmlc qualification")
_MOST_BYTES = 64 << 20


class Status(enum.StrEnum):
    """Status of a device's qualification."""

    QUALIFIED = "qualified"
    REMARKS = "qualified with remarks"
    FAILED = "not qualified"


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """Maximum size or count of the device, or another property of it, under the runtime's `name`;
    `value` as text, sizes in bytes."""

    name: str
    value: str


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """Device and its host. `selector` is dmlc's name for the device, `driver` the version of its
    driver. `note` says which settings were chosen before the driver started, and why; empty for
    none. `facts` are those of `dmlc devices`, `floats` the promises about floats: widths in bits,
    errors in units of the last place. `host` is the system, the processor and the Python."""

    selector: str
    runtime: str
    name: str
    driver: str
    note: str
    facts: tuple[str, ...]
    floats: FloatPromises
    limits: tuple[Limit, ...]
    host: str


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """Known answers, as `dmlc devices --check` asks for them: `wrong` has a sentence for each wrong
    one, `problem` the reason if none could be computed. `seconds` are close to 0 if an earlier run
    kept the answers."""

    wrong: tuple[str, ...]
    problem: str
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Tested:
    """Operator of which all cases were run, with their number and outcomes."""

    name: str
    cases: int
    passed: int
    failed: int
    unsupported: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Failed case: its purpose (`kind`), the reason of the failure (`cause`), the finding
    (`message`), and the smallest call that fails alike. `folder` keeps it for `dmlc test --replay`;
    empty if none does."""

    operator: str
    kind: str
    title: str
    cause: str
    message: str
    call: str
    folder: str


@dataclasses.dataclass(frozen=True, slots=True)
class Reason:
    """Reason that a device, or this version of dmlc, cannot express some cases, and their
    number."""

    text: str
    cases: int


@dataclasses.dataclass(frozen=True, slots=True)
class Tests:
    """Results of the library's tests: `cases` were drawn for each operator by `seed`, besides its
    examples. No operator was begun after `allowed` seconds; null for no limit. `known` is the
    number of operators, those of named files included; `left` are the operators asked for and not
    reached. `stopped` says what ended the tests early; empty for nothing."""

    seed: int
    cases: int
    allowed: int | None
    seconds: float
    known: int
    operators: tuple[Tested, ...]
    left: tuple[str, ...]
    failures: tuple[Failure, ...]
    unsupported: tuple[Reason, ...]
    stopped: str


@dataclasses.dataclass(frozen=True, slots=True)
class Speed:
    """Speed of a kernel: the median `seconds` of a run, and of a copy of as many `bytes` as it
    reads and writes. `ratio` is the median ratio of both in a round, `low` and `high` are its
    quartiles. `problem` says why it was not timed, such as wrong results; all numbers are 0 then.
    `unsupported` says whether the device, or this version of dmlc, cannot express it."""

    name: str
    sizes: str
    bytes: int
    seconds: float
    copy_seconds: float
    ratio: float
    low: float
    high: float
    problem: str
    unsupported: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Speeds:
    """Speeds of kernels, timed in `rounds` that alternate with a copy, by the clock of the `device`
    or of the `host`. The host's time includes the transfers of arrays."""

    clock: str
    rounds: int
    kernels: tuple[Speed, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict in sentences: `reasons` that a device is not qualified, `remarks` for whoever ships
    to it."""

    status: Status
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Qualification:
    """Results for a device of one version of `dmlc`, at the time `made` (UTC, ISO 8601), and the
    verdict."""

    dmlc: str
    made: str
    machine: Machine
    answers: Answers
    tests: Tests
    speeds: Speeds
    verdict: Verdict


def show_plainly(text: str) -> str:
    """Text without the control characters that steer a terminal; line breaks and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


_RECORDS = Records({}, {str: Word(show_plainly, show_plainly, "a string")}, {}, {}, FORM)


def write_record(record: Qualification) -> str:
    """Record as JSON text, indented by two."""
    return _RECORDS.write(record) + "\n"


def parse_record(text: str) -> Qualification:
    """Record from the text of `write_record`. Raises `DmlcError` for any other text."""
    return _RECORDS.read(text, Qualification)


def read_record(path: str | Path) -> Qualification:
    """Record in a file. Raises `DmlcError` if it cannot be read, or holds none."""
    text = read_bounded(path, _MOST_BYTES).decode(errors="replace")
    try:
        return parse_record(text)
    except DmlcError as error:
        said = show_plainly(error.diagnostics[0].message)
        notes = [note.message for note in error.diagnostics[0].notes]
        raise DmlcError(
            f"'{path}' is no file that this dmlc's `qualify` wrote: {said}", notes=notes
        ) from error


def record_schema() -> dict[str, Any]:
    """JSON Schema of the text of `write_record`."""
    return describe(_RECORDS, Qualification, "What dmlc qualify found of a device")
