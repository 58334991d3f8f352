"""Checks a candidate against the reference, and times it only if its results are right."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

from dmlc.runtime.interface import AnyExecutable
from dmlc.scalars import Array
from dmlc.testing.timing import Race, Timer, race
from dmlc.testing.verify import Verdict

SAMPLES = 9
"""Rounds of a race with the usual kernels."""
WORTH = 1.03
"""A candidate has to be so many times as fast, at least."""


class Status(enum.StrEnum):
    TIMED = "timed"
    WRONG = "wrong"
    """Results were not near enough: it has no time."""
    FAILED = "failed"
    """It could not be built or run."""
    HUNG = "hung"
    """It was not done in time: the device was left alone from there on."""
    UNFINISHED = "unfinished"
    """The process that watched it ended before it did."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a candidate."""

    status: Status
    said: str = ""
    """Of one that has no time: why."""
    own: float = 0.0
    """Seconds of a run, the median."""
    usual: float = 0.0
    """The same of the usual kernels, in turns with it."""
    gain: float = 0.0
    """How many times as fast it was as they were in the same round, the median; 0 where it has no
    time."""
    least: float = 0.0
    """The same of which three quarters of the rounds had more."""
    clock: str = ""
    """The clock that was read: the `device`'s, or the `host`'s."""

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Outcome:
        """Outcome from its fields. Raises `KeyError`, `TypeError` or `ValueError` for others."""
        numbers = (float(found[name]) for name in ("own", "usual", "gain", "least"))
        return Outcome(
            Status(found["status"]), str(found["said"]), *numbers, clock=str(found["clock"])
        )

    @property
    def is_quicker(self) -> bool:
        """Whether the gain is large enough, and the candidate won three quarters of the rounds."""
        return self.gain >= WORTH and self.least > 1


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """Inputs and expected results of a function, by the names of its tensors."""

    inputs: Mapping[str, Array]
    results: Mapping[str, Array]
    allowed: Mapping[str, Array]
    """What each element of a result may be off by."""


Timing = Callable[[AnyExecutable, Mapping[str, Array], Mapping[str, Array]], Timer]


def judge(
    candidate: AnyExecutable,
    usual: AnyExecutable,
    expected: Expected,
    samples: int = SAMPLES,
    timing: Timing = Timer,
) -> Outcome:
    """Runs a candidate, compares each of its results with the expected one, and times it beside the
    usual kernels if all agree."""
    given = expected.inputs
    found = candidate(given)
    for name, array in found.items():
        verdict = Verdict.of(array, expected.results[name], expected.allowed[name])
        if not verdict.holds:
            return Outcome(Status.WRONG, f"{name}: {verdict}")
    own, other = (timing(each, given, dict(found)) for each in (candidate, usual))
    return summarize(race(other, own, samples, max(own.turns, other.turns)), own.clock)


def summarize(times: Race, clock: str) -> Outcome:
    """Outcome of a race of the usual kernels and a candidate."""
    return Outcome(Status.TIMED, "", times.second, times.first, times.ratio, times.low, clock)
