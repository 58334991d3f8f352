"""Checks a candidate against the reference, and times it only if its results are right."""

from __future__ import annotations

import dataclasses
import enum
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dmlc.runtime.interface import AnyExecutable
from dmlc.scalars import Array
from dmlc.testing.timing import Timer
from dmlc.testing.verify import Verdict

SAMPLES = 9
"""Rounds: in each the candidate and the usual kernels are timed once, every other one the other way
round. Machines are busy with other work for a while, and then both are slow."""


WORTH = 1.03
"""A candidate has to be so many times as fast, at least."""


class Status(enum.Enum):
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

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "status": self.status.value}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Outcome:
        """Outcome from the result of `to_json`. Raises `KeyError`, `TypeError` or `ValueError` for
        anything else."""
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
    timers = [timing(each, given, dict(found)) for each in (candidate, usual)]
    turns = max(timer.turns for timer in timers)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(samples):
        pairs = list(zip(timers, times, strict=True))
        for timer, taken in pairs[:: -1 if number % 2 else 1]:
            taken.append(timer.sample(turns))
    return summarize(*times, timers[0].clock)


def summarize(own: Sequence[float], usual: Sequence[float], clock: str) -> Outcome:
    """Outcome of the times, in seconds, of a candidate and of the usual kernels in some rounds."""
    gains = sorted(other / max(each, 1e-12) for each, other in zip(own, usual, strict=True))
    return Outcome(
        Status.TIMED,
        own=statistics.median(own),
        usual=statistics.median(usual),
        gain=statistics.median(gains),
        least=gains[len(gains) // 4],
        clock=clock,
    )
