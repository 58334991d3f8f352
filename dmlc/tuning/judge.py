"""One candidate: its results are held to the reference's, and only then is it timed."""

from __future__ import annotations

import dataclasses
import enum
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from dmlc.runtime.interface import AnyExecutable
from dmlc.scalars import Array
from dmlc.testing.timing import Timer
from dmlc.testing.verify import Verdict

SAMPLES = 7
"""The candidate and the usual kernels are timed so often, in turns."""


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
    """What has come of a candidate."""

    status: Status
    said: str = ""
    """Of one that has no time: why."""
    own: float = 0.0
    """Seconds of a run, the median."""
    usual: float = 0.0
    """The same of the usual kernels, in turns with it."""
    clock: str = ""
    """The clock that was read: the `device`'s, or the `host`'s."""

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "status": self.status.value}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Outcome:
        """What `to_json` gave. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        said, clock = str(found["said"]), str(found["clock"])
        return Outcome(
            Status(found["status"]), said, float(found["own"]), float(found["usual"]), clock
        )

    @property
    def gain(self) -> float:
        """How many times as fast it is; 0 where it has no time."""
        return self.usual / self.own if self.status is Status.TIMED and self.own else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """What a function is given, and what is expected of it, by the names of its tensors."""

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
    """Runs a candidate, compares each of its results with what is expected, and times it beside the
    usual kernels if all of them are near enough."""
    given = expected.inputs
    found = candidate(given)
    for name, array in found.items():
        verdict = Verdict.of(array, expected.results[name], expected.allowed[name])
        if not verdict.holds:
            return Outcome(Status.WRONG, f"{name}: {verdict}")
    timers = [timing(each, given, dict(found)) for each in (candidate, usual)]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(samples):
        for timer, taken in zip(timers, times, strict=True):
            taken.append(timer.sample())
    own, other = map(statistics.median, times)
    return Outcome(Status.TIMED, own=own, usual=other, clock=timers[0].clock)
