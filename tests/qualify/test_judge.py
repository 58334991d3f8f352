"""The verdict, and the sentences that give it reasons."""

from __future__ import annotations

import dataclasses

import pytest

from dmlc.qualify.record import Answers, Qualification, Status
from tests.qualify.records import (
    COPIED,
    FAILURE,
    MACHINE,
    REASON,
    SPEEDS,
    TESTS,
    fail,
    make_record,
)


def test_a_device_that_is_right_is_qualified() -> None:
    verdict = make_record().verdict
    assert (verdict.status, verdict.reasons, verdict.remarks) == (Status.QUALIFIED, (), ())


UNTIMED = dataclasses.replace(COPIED, problem="the device was lost")
BAD = (
    (make_record(answers=Answers(("sqrt(A) is 1, not 2", "x"), "", 1.0)),
     "The device gets 2 known answers wrong: sqrt(A) is 1, not 2."),
    (make_record(tests=fail(FAILURE)), "1 of 17 cases failed, of a.MUL."),
    (make_record(tests=dataclasses.replace(TESTS, stopped="it crashed")),
     "The tests did not come to their end: it crashed."),
    (make_record(tests=dataclasses.replace(TESTS, operators=(), left=("a.ADD", "a.MUL"))),
     "No case of any operator passed, so that nothing shows that the device is right."),
    (make_record(speeds=dataclasses.replace(SPEEDS, kernels=(UNTIMED,))),
     "The kernel 'transpose' did not run as it should: the device was lost."),
)  # fmt: skip


@pytest.mark.parametrize(("record", "said"), BAD)
def test_a_device_that_is_wrong_is_not_qualified(record: Qualification, said: str) -> None:
    assert record.verdict.status is Status.FAILED
    assert record.verdict.reasons == (said,)


LEFT = ("a.A", "a.B", "a.C", "a.D", "a.E")
UNSUPPORTED = dataclasses.replace(UNTIMED, problem="it is too large", unsupported=True)
FAIR = (
    (make_record(dataclasses.replace(MACHINE, note="without AVX-512")),
     "The device ran under a condition: without AVX-512."),
    (make_record(answers=Answers((), "dxc is missing", 0.0)),
     "The known answers could not be asked for: dxc is missing."),
    (make_record(tests=dataclasses.replace(TESTS, left=LEFT)),
     "The time ended before 5 operators could be tested: a.A, a.B, a.C and 2 others."),
    (make_record(tests=dataclasses.replace(TESTS, known=1279)),
     "Only 2 of the 1,279 operators there are were to be tested."),
    (make_record(tests=dataclasses.replace(TESTS, unsupported=(REASON,))),
     "3 cases cannot be run on the device. The most common reason: WGSL has no FLOAT64."),
    (make_record(speeds=dataclasses.replace(SPEEDS, kernels=(UNSUPPORTED,))),
     "The kernel 'transpose' cannot be timed on the device: it is too large."),
)  # fmt: skip


@pytest.mark.parametrize(("record", "said"), FAIR)
def test_what_a_person_should_know_is_a_remark(record: Qualification, said: str) -> None:
    assert record.verdict.status is Status.REMARKS
    assert record.verdict.remarks == (said,)
