"""What is said of devices that compute wrongly, with devices made up; and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from dmlc.program import Program
from dmlc.runtime.answers import Answer, Question, Verdicts, ask, find_wrong
from dmlc.scalars import Array
from dmlc.source import DmlcError, UnavailableError, UnsupportedError
from tests.runtime import handmade

WANTED = np.array([1.0, -2.0, np.nan, 0.0, np.inf], np.float32)
INPUTS = {"X": np.arange(5, dtype=np.float32), "dY": np.arange(5, dtype=np.float32) + 0.5}
QUESTION = Question(handmade.relu_grad(), INPUTS, {"dX": Answer("f(X)", WANTED, 0, ("X",))})


def device_that_gives(values: Array) -> Callable[[Program], Callable[..., dict[str, Array]]]:
    def load(program: Program) -> Callable[..., dict[str, Array]]:
        assert program is QUESTION.program

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            assert inputs is INPUTS
            return {"dX": values}

        return run

    return load


def device_that_raises(error: Exception) -> Callable[[Program], Callable[..., dict[str, Array]]]:
    def load(program: Program) -> Callable[..., dict[str, Array]]:
        raise error

    return load


def test_a_device_that_is_right_gets_nothing_wrong() -> None:
    assert ask([QUESTION], device_that_gives(WANTED.copy())) == ()
    other_zero = np.where(WANTED == 0, np.float32(-0.0), WANTED)
    assert ask([QUESTION], device_that_gives(other_zero)) == ()


def test_what_is_wrong_is_named_with_its_operands() -> None:
    values = np.array([1.0, -2.5, 7.0, 0.0, np.inf], np.float32)
    assert ask([QUESTION], device_that_gives(values)) == (
        "f(X) is -2.5, not -2.0 (X = 1.0); 2 of 5 are wrong",
    )


@pytest.mark.parametrize(("steps", "wrong"), [(0, 0), (4, 0), (5, 1), (-5, 1)])
def test_results_may_be_off_by_so_many_units(steps: int, wrong: int) -> None:
    found = WANTED.copy()
    found[0] += steps * np.spacing(np.float32(1))
    assert find_wrong(found, Answer("f", WANTED, 4, ())).size == wrong
    found[4] = 3e38
    assert find_wrong(found, Answer("f", WANTED, 4, ())).size == wrong + 1


def test_whole_numbers_are_compared_as_such() -> None:
    wanted = np.array([2**62 + 1, 5], np.int64)
    assert find_wrong(wanted - [1, 0], Answer("f", wanted, 0, ())).tolist() == [0]


def test_what_a_device_cannot_do_it_does_not_get_wrong() -> None:
    assert ask([QUESTION], device_that_raises(UnsupportedError("no float64"))) == ()
    assert ask([QUESTION], device_that_raises(DmlcError("says no\nat all"))) == (
        f"{QUESTION.program.name} does not run: says no\nat all",
    )
    with pytest.raises(UnavailableError, match="no compiler"):
        ask([QUESTION], device_that_raises(UnavailableError("no compiler")))


IDENTITY = {"device": "A", "driver": "1"}


def count_calls(wrong: tuple[str, ...]) -> tuple[list[int], Callable[[], tuple[str, ...]]]:
    calls: list[int] = []

    def find_out() -> tuple[str, ...]:
        calls.append(1)
        return wrong

    return calls, find_out


def test_that_a_device_is_right_is_found_out_once(tmp_path: Path) -> None:
    calls, find_out = count_calls(())
    verdicts = Verdicts(tmp_path / "deep")
    for _ in range(2):
        assert verdicts.find(IDENTITY, find_out) == ()
        assert Verdicts(tmp_path / "deep").find(IDENTITY, find_out) == ()
    assert len(calls) == 1
    (kept,) = (tmp_path / "deep").iterdir()
    assert kept.read_bytes().endswith(json.dumps(IDENTITY, indent=2, sort_keys=True).encode())
    for changed in ({"driver": "2"}, {"device": "B"}):
        assert verdicts.find(IDENTITY | changed, find_out) == ()
    assert len(calls) == 3


def test_that_a_device_is_wrong_is_found_out_by_each_process(tmp_path: Path) -> None:
    calls, find_out = count_calls(("tanh is wrong", "pow is wrong"))
    verdicts = Verdicts(tmp_path)
    for _ in range(2):
        assert verdicts.find(IDENTITY, find_out) == ("tanh is wrong", "pow is wrong")
    assert len(calls) == 1
    assert Verdicts(tmp_path).find(IDENTITY, lambda: ()) == ()
    # Another driver's kept verdict, or a damaged one, says nothing.
    (kept,) = tmp_path.iterdir()
    for damaged in (b"", b"{}", b"\xff", kept.read_bytes().replace(b"A", b"B")):
        kept.write_bytes(damaged)
        assert Verdicts(tmp_path).find(IDENTITY, find_out) == ("tanh is wrong", "pow is wrong")
    assert len(calls) == 5


def test_a_folder_that_cannot_be_written_to_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    calls, find_out = count_calls(())
    verdicts = Verdicts(tmp_path / "file")
    assert verdicts.find(IDENTITY, find_out) == verdicts.find(IDENTITY, find_out) == ()
    assert len(calls) == 1


def test_what_could_not_be_found_out_is_not_kept(tmp_path: Path) -> None:
    def fail() -> tuple[str, ...]:
        raise UnavailableError("no compiler")

    verdicts = Verdicts(tmp_path)
    with pytest.raises(UnavailableError):
        verdicts.find(IDENTITY, fail)
    assert list(tmp_path.iterdir()) == []
    assert verdicts.find(IDENTITY, lambda: ("now",)) == ("now",)
