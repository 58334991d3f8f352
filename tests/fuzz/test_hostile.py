"""A few mutants of every kind, and that a traceback, a slow reader and a hog would be found."""

from __future__ import annotations

import time
from collections import Counter

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


@pytest.mark.parametrize(
    ("read", "limits", "kind"),
    [
        (_raise, {}, "KeyError in test_hostile.py _raise"),
        (lambda content: time.sleep(0.02), {"SECONDS": 0.01}, "slow"),
        (lambda content: None, {"MEMORY": 1}, "memory"),
    ],
)
def test_what_is_found(
    read: object, limits: dict[str, float], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(hostile, name, value)
    monkeypatch.setattr(hostile, "READERS", {"own": (lambda: [b"good"], read)})
    with pytest.raises(Finding) as raised:
        hostile.look("own", b"bad", Counter())
    assert raised.value.kind == f"own: {kind}"
    (found, *_) = hostile.read_mutants("own", 1, 1, Counter())
    assert found.kind == f"own: {kind}"
