"""Judgement of one candidate: its results are compared with the reference, then it is timed."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

from dmlc.runtime.interface import AnyExecutable
from dmlc.scalars import Array
from dmlc.testing.compare import Verdict
from dmlc.testing.timing import Race, Timer, race

SAMPLES = 9
"""Rounds of a race with the usual kernels."""
WORTH = 1.03
"""Least speedup of a candidate that replaces the usual kernels."""


class TrialStatus(enum.StrEnum):
    TIMED = "timed"
    WRONG = "wrong"
    """A result is outside its error bound; it was not timed."""
    FAILED = "failed"
    """It was not built, or did not run."""
    HUNG = "hung"
    """It exceeded its time, and the device was not used any more."""
    UNFINISHED = "unfinished"
    """The tuning was ended during its trial."""


@dataclasses.dataclass(frozen=True, slots=True)
class TrialOutcome:
    """Result of a candidate's trial."""

    status: TrialStatus
    said: str = ""
    """Reason that it was not timed."""
    own: float = 0.0
    """Median seconds of a run."""
    usual: float = 0.0
    """Median seconds of the usual kernels, timed in turns with it."""
    gain: float = 0.0
    """Median speedup over the usual kernels in the same round; 0 if it was not timed."""
    least: float = 0.0
    """Lower quartile of that speedup."""
    clock: str = ""
    """Clock: `device` or `host`."""

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> TrialOutcome:
        """Outcome from its fields. Raises `KeyError`, `TypeError` or `ValueError` for others."""
        numbers = (float(found[name]) for name in ("own", "usual", "gain", "least"))
        return TrialOutcome(
            TrialStatus(found["status"]), str(found["said"]), *numbers, clock=str(found["clock"])
        )

    @property
    def is_quicker(self) -> bool:
        """Whether it is faster by enough, and in three quarters of the rounds."""
        return self.gain >= WORTH and self.least > 1


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """Inputs of a function and its expected results, by the names of its tensors."""

    inputs: Mapping[str, Array]
    results: Mapping[str, Array]
    allowed: Mapping[str, Array]
    """Error bound of each element of a result."""


Timing = Callable[[AnyExecutable, Mapping[str, Array], Mapping[str, Array]], Timer]


def judge(
    candidate: AnyExecutable,
    usual: AnyExecutable,
    expected: Expected,
    samples: int = SAMPLES,
    timing: Timing = Timer,
) -> TrialOutcome:
    """Runs a candidate, compares each of its results with the expected one, and times it beside the
    usual kernels if all agree."""
    given = expected.inputs
    found = candidate(given)
    for name, array in found.items():
        verdict = Verdict.of(array, expected.results[name], expected.allowed[name])
        if not verdict.holds:
            return TrialOutcome(TrialStatus.WRONG, f"{name}: {verdict}")
    own, other = (timing(each, given, dict(found)) for each in (candidate, usual))
    return summarize(race(other, own, samples, max(own.turns, other.turns)), own.clock)


def summarize(times: Race, clock: str) -> TrialOutcome:
    """Outcome of a race of the usual kernels and a candidate."""
    return TrialOutcome(
        TrialStatus.TIMED, "", times.second, times.first, times.ratio, times.low, clock
    )
