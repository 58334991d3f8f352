"""What differs between two records."""

from __future__ import annotations

import dataclasses

import pytest

from dmlc.qualify.compare import compare_records
from dmlc.qualify.record import Answers, Limit, Speed
from dmlc.runtime.floats import LEAST
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


def test_nothing_differs_from_itself() -> None:
    found = compare_records(make_record(tests=fail(FAILURE)), make_record(tests=fail(FAILURE)))
    assert (found.render(), found.worse) == ("nothing differs beyond noise", False)


def test_another_device() -> None:
    other = dataclasses.replace(
        MACHINE, name="Other", floats=LEAST, limits=(Limit("memory_bytes", "9"),)
    )
    assert compare_records(make_record(), make_record(other)).render().splitlines() == [
        "what they are:",
        "  name: Card -> Other",
        "what they promise:",
        "  NaN and signed zeros kept of 16, 32 and 64 bits -> NaN and signed zeros not promised",
        "  denormals kept of 16, 32 and 64 bits -> denormals not promised",
        "limits:",
        "  limits.groups: 65,535 -> (nothing)",
        "  memory_bytes: 8 -> 9",
    ]


def test_failures_are_new_and_gone() -> None:
    right, wrong = make_record(), make_record(tests=fail(FAILURE))
    line = "  a.MUL: a result is not near enough (drawn call, random data)"
    new, gone = compare_records(right, wrong), compare_records(wrong, right)
    assert new.render().splitlines()[-2:] == ["new failures:", line]
    assert gone.render().splitlines()[-2:] == ["failures that are gone:", line]
    assert (new.worse, gone.worse) == (True, False)
    # The smallest call that fails is that of one device.
    alike = make_record(tests=fail(dataclasses.replace(FAILURE, call="x=FLOAT32[3]", message="")))
    assert compare_records(wrong, alike).render() == "nothing differs beyond noise"


def test_operators_that_one_has_not_tested_are_neither_new_nor_gone() -> None:
    short = dataclasses.replace(TESTS, operators=TESTS.operators[:1], left=("a.MUL",))
    found = compare_records(make_record(tests=short), make_record(tests=fail(FAILURE)))
    assert not found.worse
    assert "failures" not in found.render()
    assert "  1 operator only the second has tested" in found.render().splitlines()


def test_known_answers() -> None:
    wrong = make_record(answers=Answers(("sqrt(A) is 1",), "", 0.0))
    new, gone = compare_records(make_record(), wrong), compare_records(wrong, make_record())
    assert "known answers that are wrong now:\n  sqrt(A) is 1" in new.render()
    assert "known answers that are right now:\n  sqrt(A) is 1" in gone.render()
    assert (new.worse, gone.worse) == (True, False)


def test_other_cases_are_said() -> None:
    other = dataclasses.replace(TESTS, seed=7, cases=9, unsupported=(REASON,))
    lines = compare_records(make_record(), make_record(tests=other)).render().splitlines()
    said = "the cases are not the same: 6 of each operator with seed 0 -> 9 with seed 7"
    assert f"  {said}" in lines
    assert "  cases that cannot be run: 0 -> 3" in lines


def _speed(ratio: float, spread: float = 0.05) -> Speed:
    return dataclasses.replace(COPIED, ratio=ratio, low=ratio - spread, high=ratio + spread)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (_speed(2.0), _speed(4.0), "transpose: 2.00 -> 4.00, 2.00 times as slow"),
        (_speed(4.0), _speed(2.0), "transpose: 4.00 -> 2.00, 2.00 times as fast"),
        (_speed(2.0), _speed(2.15), ""),
        (_speed(2.0, 1.5), _speed(4.0, 1.5), ""),
        (_speed(2.0), dataclasses.replace(COPIED, problem="lost"), "transpose: timed -> lost"),
        (_speed(2.0), dataclasses.replace(_speed(4.0), sizes="8 x 8"), ""),
    ],
)
def test_speeds_beyond_noise(one: Speed, other: Speed, said: str) -> None:
    first, second = (dataclasses.replace(SPEEDS, kernels=(speed,)) for speed in (one, other))
    lines = compare_records(make_record(), make_record(speeds=first)).parts
    assert lines[-1][0] == "speeds, as times that a copy takes"
    found = compare_records(make_record(speeds=first), make_record(speeds=second)).parts
    assert found[-1][1] == ((said,) if said else ())


def test_clocks_that_count_other_things() -> None:
    other = dataclasses.replace(SPEEDS, clock="host", kernels=(_speed(40.0),))
    found = compare_records(make_record(), make_record(speeds=other)).parts[-1][1]
    assert found == (
        "the first was timed by the device's clock and the second by the host's, so that they "
        "cannot be compared",
    )
