"""What was found of a device, as data, and its JSON form.

The form is written and read as that of the IR is: see `ir.records`. Its version grows by the same
rules. Who reads a record has it from somebody else's machine: texts come without control characters
and sizes are bounded.
"""

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
    """What a record says of its device."""

    QUALIFIED = "qualified"
    REMARKS = "qualified with remarks"
    FAILED = "not qualified"


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """A size or a count that the device does not exceed, or another property of it, as its runtime
    knows it: `name` is the runtime's word, `value` its value as text, sizes in bytes."""

    name: str
    value: str


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """What the device is: `selector` is dmlc's name for it on its machine, `driver` the version of
    its driver. `note` says what was chosen before its driver started, and why; empty for nothing.
    `facts` are those of `dmlc devices`, `floats` what it promises of floats: widths in bits, errors
    in units of the last place. `host` is the system, the processor and the Python it was found
    with."""

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
    """The known answers, all that `dmlc devices --check` asks for: `wrong` has a sentence for each
    that is wrong, `problem` says why they could not be asked for; empty where they were. `seconds`
    are next to none where an earlier run has found out."""

    wrong: tuple[str, ...]
    problem: str
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Tested:
    """An operator of which all cases were run: how many, and what came of them."""

    name: str
    cases: int
    passed: int
    failed: int
    unsupported: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed: what it was to show (`kind`), why it fails (`cause`), what was found
    (`message`), and the smallest call that fails so. `folder` keeps it for `dmlc test --replay`;
    empty where nothing does."""

    operator: str
    kind: str
    title: str
    cause: str
    message: str
    call: str
    folder: str


@dataclasses.dataclass(frozen=True, slots=True)
class Reason:
    """Why a device, or this version of dmlc, cannot express some cases, and how many."""

    text: str
    cases: int


@dataclasses.dataclass(frozen=True, slots=True)
class Tests:
    """What came of the library's tests: `cases` were drawn of each operator by `seed`, besides its
    examples, and no operator was begun after `allowed` seconds; null for no end. `known` is how
    many operators the library has, with those of files that were named, and `left` are those that
    were asked for and not come to. `stopped` says what ended the tests before their time; empty for
    nothing."""

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
    """How fast one kernel is: the median `seconds` of a run, and those of a copy of as many `bytes`
    as it reads and writes. `ratio` is the median of the one by the other in a round, `low` and
    `high` are the quartiles. `problem` says why it was not timed, such as that its results are
    wrong, and all is 0 then; `unsupported` whether the device, or this version of dmlc, says that
    it cannot."""

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
    """The speeds of kernels, timed in so many `rounds` that take turns with those of a copy, by the
    clock of the `device` or of the `host`: the host's counts the time that arrays take to the
    device and back."""

    clock: str
    rounds: int
    kernels: tuple[Speed, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What follows, in sentences: `reasons` are why a device is not qualified, `remarks` what
    whoever ships to it should know."""

    status: Status
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Qualification:
    """All that was found of a device by one version of `dmlc`, at the time `made` (UTC, as ISO 8601
    has it), and the verdict."""

    dmlc: str
    made: str
    machine: Machine
    answers: Answers
    tests: Tests
    speeds: Speeds
    verdict: Verdict


def show_plainly(text: str) -> str:
    """A text without the characters that steer a terminal; lines and tabs are kept."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


_RECORDS = Records({}, {str: Word(show_plainly, show_plainly, "a string")}, {}, {}, FORM)


def write_record(record: Qualification) -> str:
    """The record as JSON text, indented by two."""
    return _RECORDS.write(record) + "\n"


def parse_record(text: str) -> Qualification:
    """What `write_record` wrote. Raises `DmlcError` on anything that is none."""
    return _RECORDS.read(text, Qualification)


def read_record(path: str | Path) -> Qualification:
    """The record in a file. Raises `DmlcError` where it cannot be read, or holds none."""
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
    """The JSON Schema of what `write_record` writes."""
    return describe(_RECORDS, Qualification, "What dmlc qualify found of a device")
