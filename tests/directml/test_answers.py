"""What DirectML computed, beside the reference and the devices: see `tests.directml`."""

from __future__ import annotations

import numpy as np
import pytest

import dmlc
from dmlc.scalars import Array
from dmlc.testing.case import Case, run_case
from dmlc.testing.differences import find_all_concerned
from tests.directml.__main__ import main
from tests.directml.answers import Answer, explain, judge, list_names, read_answers, tally

NAMES = list_names()
ON_DEVICES = [f"{device} {name}" for name in NAMES for device in ("opencl", "vulkan")]


def test_there_are_as_many_as_are_said() -> None:
    assert sum(len(read_answers(name)) for name in NAMES) == 1695
    assert len(NAMES) == 154


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_gives_them(name: str) -> None:
    found = tally(read_answers(name), "reference")
    assert (found.unexplained, found.unsupported) == ([], 0)


@pytest.mark.grid(20)
@pytest.mark.parametrize("place", ON_DEVICES)
def test_a_device_gives_them(place: str) -> None:
    device, name = place.split()
    assert tally(read_answers(name), device).unexplained == []


def find_explained() -> list[Answer]:
    """The answers of which a section `differs` names an element."""
    return [
        answer
        for name in NAMES
        if dmlc.operator(name).definition.differences
        for answer in read_answers(name)
        if find_all_concerned(answer.case.call, answer.case.inputs)
    ]


def test_a_section_hides_no_error_elsewhere() -> None:
    """Each element that no section names is made wrong: all of them are found."""
    partly = 0
    for answer in find_explained():
        results = dict(answer.given)
        spoiled: dict[str, int] = {}
        for name in answer.given:
            named = [
                found[name]
                for found in find_all_concerned(answer.case.call, answer.case.inputs).values()
                if name in found
            ]
            free = ~np.any(named, axis=0) if named else np.ones(results[name].shape, bool)
            results[name] = np.where(free, spoil(results[name], answer.within[name]), results[name])
            spoiled[name] = int(np.count_nonzero(free))
            partly += bool(named) and bool(free.any())
        assert dict(explain(answer, results).unexplained) == {
            name: count for name, count in spoiled.items() if count
        }
    assert partly >= 20


def spoil(values: Array, within: float) -> Array:
    """Other numbers, further off than any bound."""
    with np.errstate(all="ignore"):
        if values.dtype.kind in "iu":
            return values ^ np.array(1, values.dtype)
        far = values + np.abs(values) + 4 * within + 1
        return np.where(np.isfinite(values), far, 0).astype(values.dtype)


def test_a_wrong_result_is_said_and_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator with a rule: a remainder is wrong where its divisor is not 0."""
    first = read_answers("directml.ELEMENT_WISE_MODULUS_FLOOR")[0]
    arguments = ["tests.directml", "--device", "reference", "MODULUS_FLOOR"]
    monkeypatch.setattr("sys.argv", arguments)
    assert main() == 0
    shown = capsys.readouterr().out
    assert "remainders of unsigned integers by 0 are all ones: 1 (9 elements)" in shown
    assert (
        "9 of 13 calls are equal on reference, 4 differ by 2 rules, 0 unsupported, 0 unexplained"
        in shown
    )

    def run_wrongly(case: Case, device: str) -> dict[str, Array]:
        results = run_case(case, device)
        return {n: spoil(array, 0.0) for n, array in results.items()}

    monkeypatch.setattr("tests.directml.answers.run_case", run_wrongly)
    assert main() == 1
    shown = capsys.readouterr().out
    assert "13 unexplained" in shown
    assert f"    unexplained, call {first.number}: " in shown
    monkeypatch.undo()
    assert not judge(first, "reference").unexplained
