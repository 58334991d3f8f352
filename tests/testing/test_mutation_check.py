"""Kernels of ten operators, broken in every way: the cases of the harness find each of them out, or
it is shown that nothing has changed. `make mutants` tries all places."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.broken_programs import KNOWN, PROGRAMS, SUBJECTS, make_trial, try_all
from tests.testing.mutants import Finder, find_difference

ROOT = Path(__file__).resolve().parents[2]

PAIRS = [(subject, program) for subject, found in SUBJECTS.items() for program in found.programs]

EQUIVALENT = {
    "its loop takes the same turns": {
        "a loop ends one early", "a loop goes one too far", "a loop takes double steps",
    },
    # What a panel is padded with.
    "no result depends on the value": {"a constant is off"},
    "its accumulator takes one term alone": {"an accumulator forgets"},
    # ReLU's gradients store past the caches from 2,097,152 elements on, which their programs in
    # parts do at once.
    "no work item comes to where it is broken": {"a store is missing", "a read goes one on"},
    # A launch has more groups or items than there is work for, and guards stop these; a vector is
    # computed twice; an array has room to spare; a guard is never at its bound, or lets through
    # what is overwritten; items share out the same elements in another order.
    "every element is computed and stored as before": {
        "a bound counts one more", "a choice is the other way", "a group takes double",
        "a group takes half", "a group's number is a lane's", "a guard is an alternative",
        "a guard is missing", "a limit is the other one", "a loop ends one early",
        "a loop goes one too far", "a loop is missing", "a number is one more",
        "a sum is a difference", "a tie is left out", "a vector loop takes half steps",
        "an array is one short", "double the items of a group", "half the items of a group",
    },
}  # fmt: skip
"""Why a break may change nothing, and which breaks that is said of. Nothing else passes."""


def test_ten_operators_are_broken() -> None:
    assert len({subject.operator for subject in SUBJECTS.values()}) == 10
    assert {program for _, program in PAIRS} == set(PROGRAMS)


@pytest.mark.grid(3)
@pytest.mark.parametrize(("subject", "program"), PAIRS)
def test_cases_find_out_what_is_broken(subject: str, program: str) -> None:
    trial = make_trial(subject, program)
    assert len(trial.results) > 4
    found = list(try_all(trial, most=1))
    finders = {finder.value for finder in Finder}
    reasons = {reason for _, reason in found}
    assert finders <= reasons
    for mutant, reason in found:
        settled = reason in finders or reason in KNOWN.values()
        assert settled or mutant.kind in EQUIVALENT.get(reason, ()), str(mutant)
    caught = sum(reason in finders for _, reason in found)
    assert caught >= 0.6 * len(found)


@pytest.mark.parametrize(
    ("subject", "program"),
    [("pooling", "opencl gpu"), ("layer normalization's gradient", "hlsl gpu")],
)
def test_what_is_found_out_is_not_said_to_be_equivalent(subject: str, program: str) -> None:
    trial = make_trial(subject, program)
    wrong = [m for m, reason in try_all(trial, most=1) if reason == Finder.RESULT.value]
    assert len(wrong) > 10
    assert {trial.show_equivalent(mutant) for mutant in wrong} == {""}
    for mutant in wrong:
        path = find_difference(mutant.whole.body, mutant.broken.body)
        assert path is not None, str(mutant)


@pytest.mark.parametrize("subject", ["pooling", "softmax of short rows"])
def test_broken_programs_give_wrong_results_on_a_device(subject: str) -> None:
    # In a process of its own: it may take this one down.
    command = [sys.executable, "-m", "tests.testing.broken_programs", "--on-device", "5", subject]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 10
    for begun, ended in zip(lines[::2], lines[1::2], strict=True):
        assert begun["mutant"] == ended["mutant"]
        assert ended["found"], ended["mutant"]
