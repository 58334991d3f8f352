"""Verdict on the results, in sentences for people. Speeds do not affect it: whoever ships the
device's kernels decides what is fast enough."""

from __future__ import annotations

from collections.abc import Iterator

from dmlc.qualify.record import Answers, Machine, Speeds, Status, Tests, Verdict
from dmlc.source import counted, join_words

_SHOWN = 3
"""Number of examples of a kind in a sentence; the others are counted."""


def judge(machine: Machine, answers: Answers, tests: Tests, speeds: Speeds) -> Verdict:
    """Verdict on the results."""
    reasons = tuple(_list_reasons(answers, tests, speeds))
    remarks = tuple(_list_remarks(machine, answers, tests, speeds))
    status = Status.FAILED if reasons else Status.REMARKS if remarks else Status.QUALIFIED
    return Verdict(status, reasons, remarks)


def _list_reasons(answers: Answers, tests: Tests, speeds: Speeds) -> Iterator[str]:
    """Reasons that a device is not qualified."""
    if answers.wrong:
        count = counted(len(answers.wrong), "known answer")
        yield f"The device gets {count} wrong: {answers.wrong[0]}."
    failed = sum(tested.failed for tested in tests.operators)
    if failed:
        operators = [tested.name for tested in tests.operators if tested.failed]
        cases = sum(tested.cases for tested in tests.operators)
        yield f"{failed:,} of {cases:,} cases failed, of {_name_some(operators)}."
    if tests.stopped:
        yield f"The tests did not come to their end: {tests.stopped}."
    if not any(tested.passed for tested in tests.operators):
        yield "No case of any operator passed, so that nothing shows that the device is right."
    for speed in speeds.kernels:
        if speed.problem and not speed.unsupported:
            yield f"The kernel '{speed.name}' did not run as it should: {speed.problem}."


def _list_remarks(
    machine: Machine, answers: Answers, tests: Tests, speeds: Speeds
) -> Iterator[str]:
    """Remarks for whoever ships to the device."""
    if machine.note:
        yield f"The device ran under a condition: {machine.note}."
    if answers.problem:
        yield f"The known answers could not be asked for: {answers.problem}."
    if tests.left:
        yield (
            f"The time ended before {counted(len(tests.left), 'operator')} could be tested: "
            f"{_name_some(tests.left)}."
        )
    asked = len(tests.operators) + len(tests.left)
    if asked < tests.known:
        yield f"Only {asked:,} of the {tests.known:,} operators there are were to be tested."
    unsupported = sum(reason.cases for reason in tests.unsupported)
    if unsupported:
        most = max(tests.unsupported, key=lambda reason: reason.cases)
        yield (
            f"{counted(unsupported, 'case')} cannot be run on the device. The most common reason: "
            f"{most.text}."
        )
    for speed in speeds.kernels:
        if speed.unsupported:
            yield f"The kernel '{speed.name}' cannot be timed on the device: {speed.problem}."


def _name_some(names: list[str] | tuple[str, ...]) -> str:
    """List such as `A, B, C and 4 others`."""
    if len(names) <= _SHOWN + 1:
        return join_words(names, "and")
    return f"{', '.join(names[:_SHOWN])} and {len(names) - _SHOWN:,} others"
