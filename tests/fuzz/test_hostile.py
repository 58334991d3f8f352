"""A few mutants of every kind, and that a traceback, a slow reader and a hog would be found."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from dmlc.source import DmlcError
from tests.fuzz import hostile
from tests.fuzz.check import Finding
from tests.fuzz.run import run


@pytest.mark.parametrize("kind", hostile.READERS)
def test_a_few_mutants(kind: str) -> None:
    """The same ones every time."""
    tally = run(kind, 1, 2, ())
    assert not tally.findings, str(tally.findings[0])
    assert tally.ran["refused"]
    assert sum(tally.ran.values()) == 2 * hostile.MUTANTS


def test_good_contents_are_taken() -> None:
    for kind, (make, _) in hostile.READERS.items():
        if kind not in ("hostile dml", "hostile pages"):
            for content in make():
                ran: Counter[str] = Counter()
                hostile.look(kind, content, ran)
                assert ran["taken"], content


def _raise(content: bytes) -> None:
    raise (DmlcError("no") if content == b"good" else KeyError("x"))


def _grow(step: int) -> Iterator[int]:
    """The peaks of a process that grows."""
    return itertools.count(hostile.find_peak(), step)


@pytest.mark.parametrize(
    ("read", "limits", "kind"),
    [
        (_raise, {}, "KeyError in test_hostile.py _raise"),
        (lambda content: time.sleep(0.02), {"SECONDS": 0.0005}, "slow"),
        (lambda content: None, {"find_peak": _grow(1 << 40).__next__}, "memory"),
    ],
)
def test_what_is_found(
    read: object, limits: dict[str, object], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(hostile, name, value)
    monkeypatch.setattr(hostile, "READERS", {"own": (lambda: [b"good"], read)})
    with pytest.raises(Finding) as raised:
        hostile.look("own", b"bad", Counter())
    assert raised.value.kind == f"own: {kind}"
    (found, *_) = hostile.read_mutants("own", 1, 1, Counter())
    assert found.kind == f"own: {kind}"


def test_a_process_that_was_large_before_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a whole suite, whose peak is above what a reader may take."""
    monkeypatch.setattr(hostile, "find_peak", lambda: hostile.MEMORY + (1 << 30))
    monkeypatch.setattr(hostile, "READERS", {"own": (lambda: [b"good"], lambda content: None)})
    assert not hostile.read_mutants("own", 1, 1, Counter())
