"""Times of runs, relative to a copy of as many bytes on the same device.

Times are those of the device's clock if its runtime reads it; else of the host's, which includes
the transfers of arrays to the device and back.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dmlc import ir
from dmlc.devices import compile_for, load_on
from dmlc.ir import Function
from dmlc.runtime.interface import AnyDevice, AnyExecutable
from dmlc.scalars import Array

SAMPLE_SECONDS = 0.02
"""Approximate duration of a sample, which repeats a run."""
_MOST_TURNS = 200


class Timer:
    """Timer of a run with its arrays on a device."""

    def __init__(
        self, executable: AnyExecutable, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> None:
        self._begin(executable.bind(inputs, outputs))

    @staticmethod
    def of(run: Callable[[], Any]) -> Timer:
        """Timer of a function on the host."""
        made = Timer.__new__(Timer)
        made._begin(run)
        return made

    def _begin(self, run: Callable[[], Any]) -> None:
        self.run = run
        self._time: Callable[[int], float] | None = getattr(run, "time_kernels", None)
        self.clock = "host" if self._time is None else "device"
        self._seconds(2)
        once = max(self._seconds(2), 1e-7)
        self.turns = max(1, min(_MOST_TURNS, round(SAMPLE_SECONDS / once)))
        """Number of runs of a sample."""

    def sample(self, turns: int | None = None) -> float:
        """Average seconds of a run over `turns` runs, or over those of a sample. Times that are
        compared need equal numbers of runs if the start of a sample is slow, as on a device that
        wakes up for it."""
        return self._seconds(turns or self.turns)

    def _seconds(self, turns: int) -> float:
        if self._time is not None:
            return self._time(turns)
        start = time.perf_counter()
        for _ in range(turns):
            self.run()
        return (time.perf_counter() - start) / turns


@dataclasses.dataclass(frozen=True, slots=True)
class Race:
    """Times of two runs that were timed in turns, so that a machine that is busy for a while slows
    both: the median seconds of each, and of the rounds' ratios of the first to the second the
    median and the quartiles."""

    first: float
    second: float
    ratio: float
    low: float
    high: float

    @staticmethod
    def of(first: Sequence[float], second: Sequence[float]) -> Race:
        """Race from the seconds of its rounds."""
        ratios = sorted(one / max(other, 1e-12) for one, other in zip(first, second, strict=True))
        quarter = len(ratios) // 4
        medians = map(statistics.median, (first, second, ratios))
        return Race(*medians, low=ratios[quarter], high=ratios[-1 - quarter])


def race(first: Timer, second: Timer, rounds: int, turns: int | None = None) -> Race:
    """Times two runs alternately, in an order that changes from round to round. A sample has
    `turns` runs, or as many as suit each run."""
    taken: dict[Timer, list[float]] = {first: [], second: []}
    for number in range(rounds):
        for timer in [first, second][:: -1 if number % 2 else 1]:
            taken[timer].append(timer.sample(turns))
    return Race.of(taken[first], taken[second])


def make_copy(device: AnyDevice, count: int) -> Timer:
    """Timer of a copy of `count` elements of four bytes."""
    function = ir.parse(
        f"func @copy(%x: f32[{count}]) -> (%y) {{\n  %y: f32[i0 < {count}] = %x[i0]\n}}"
    )
    inputs, outputs = fill_function(function)
    return Timer(load_on(compile_for(function, device), device), inputs, outputs)


def fill_function(function: Function) -> tuple[dict[str, Array], dict[str, Array]]:
    """Arrays for the parameters and for the results of a function. Integers are indices of rows."""
    random = np.random.default_rng(1)
    return (
        dict(_make_arrays(function, [p.name for p in function.parameters], random)),
        dict(_make_arrays(function, [r.name for r in function.results], random)),
    )


def _make_arrays(
    function: Function, names: list[str], random: np.random.Generator
) -> Iterator[tuple[str, Array]]:
    tensors = function.tensors()
    for name in names:
        dtype = tensors[name].dtype
        sizes = [extent for extent in tensors[name].extents if isinstance(extent, int)]
        if dtype.is_float:
            yield name, random.uniform(0.5, 2, sizes).astype(dtype.dtype)
        else:
            yield name, random.integers(0, sizes[-1], sizes).astype(dtype.dtype)
