"""A sample of ONNX's node tests, sizes opened at random: each is imported and right, or refused.

`python -m tests.onnx.opened 0 100` tries all of them with a hundred seeds.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx import opened
from tests.onnx.node_cases import collect, read_excluded
from tests.onnx.opened import Outcome, try_opened

MODULES = ("concat", "matmul", "pad", "reshape", "resize", "slice", "split")
"""The modules whose tests are in the sample."""


def test_sizes_opened_at_random() -> None:
    cases = {n: c for n, c in collect(MODULES).items() if n not in read_excluded()}
    with np.errstate(all="ignore"):
        found = {name: try_opened(case, 0) for name, case in cases.items()}
    assert [name for name, outcome in found.items() if outcome is Outcome.WRONG] == []
    right = sum(outcome is Outcome.RIGHT for outcome in found.values())
    assert right > len(cases) * 0.7


def test_findings_are_counted_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def try_one(case: object, seed: int) -> Outcome:
        if case == "broken":
            raise ValueError("no DmlcError")
        return Outcome.WRONG if seed else Outcome.RIGHT

    monkeypatch.setattr(opened, "try_opened", try_one)
    cases = {"one": "sound", "other": "broken"}
    counts = opened.try_all(cases, range(2), 60)
    assert counts == {"RIGHT": 1, "WRONG": 1, "FAILED": 2}
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["other, seed 0: ValueError: no DmlcError", "one, seed 1: wrong",
                       "other, seed 1: ValueError: no DmlcError"]  # fmt: skip
    assert opened.try_all(cases, range(2), -1).total() == 0
