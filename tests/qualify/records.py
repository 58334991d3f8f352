"""Records of devices that are made up."""

from __future__ import annotations

import dataclasses
from typing import Any

from dmlc.qualify.judge import judge
from dmlc.qualify.record import (
    Answers,
    Failure,
    Limit,
    Machine,
    Qualification,
    Reason,
    Speed,
    Speeds,
    Tested,
    Tests,
)
from dmlc.runtime.floats import KEEPING

MACHINE = Machine(
    "vulkan:0", "vulkan", "Card", "driver 1.2", "", ("Vulkan, discrete GPU",), KEEPING,
    (Limit("limits.groups", "65,535"), Limit("memory_bytes", "8")), "Linux 6, x86_64, Python 3.11",
)  # fmt: skip
ANSWERS = Answers((), "", 0.5)
TESTS = Tests(
    0, 6, None, 2.5, 2, (Tested("a.ADD", 9, 9, 0, 0, 1.0), Tested("a.MUL", 8, 8, 0, 0, 1.0)),
    (), (), (), "",
)  # fmt: skip
COPIED = Speed("transpose", "64 x 64", 32768, 2e-4, 1e-4, 2.0, 1.9, 2.1, "", False)
SPEEDS = Speeds("device", 9, (COPIED,))
FAILURE = Failure(
    "a.MUL", "drawn call", "random data", "a result is not near enough",
    "y: 1 of 2 elements differ", "x=FLOAT32[2]", "report/kept/a.MUL-1",
)  # fmt: skip
REASON = Reason("WGSL has no FLOAT64", 3)


def make_record(
    machine: Machine = MACHINE,
    answers: Answers = ANSWERS,
    tests: Tests = TESTS,
    speeds: Speeds = SPEEDS,
    **fields: Any,
) -> Qualification:
    """A record with the verdict that its parts have."""
    verdict = judge(machine, answers, tests, speeds)
    made = "2026-01-02T03:04:05+00:00"
    record = Qualification("1.2.3", made, machine, answers, tests, speeds, verdict)
    return dataclasses.replace(record, **fields)


def fail(*failures: Failure) -> Tests:
    """Tests in which one operator has failures."""
    count = len(failures)
    operators = (TESTS.operators[0], Tested("a.MUL", 8, 8 - count, count, 0, 1.0))
    return dataclasses.replace(TESTS, operators=operators, failures=failures)
