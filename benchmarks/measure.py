"""Interleaved timing: every contender once per round, medians over the rounds.

Rounds in one process see the same machine, whatever else it does; medians of ratios within a
round would cost the outliers of both sides, so the ratio is of medians.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping

SAMPLE_SECONDS = 0.004
"""A sample repeats a contender for about this long, so that the clock does not matter."""
PAUSE_SECONDS = 0.03
"""Idle time before each sample: the threads of OpenMP spin for a while after their work is done, on
the cores that the next contender needs. After 5 ms what came next still took up to 1.4 times as
long as after 30."""


def repeats_for(run: Callable[[], object]) -> int:
    """How often to run for one sample."""
    run()
    start = time.perf_counter()
    run()
    once = max(time.perf_counter() - start, 1e-7)
    return max(1, min(20_000, round(SAMPLE_SECONDS / once)))


def sample(
    run: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of one run, as the mean over `repeats`, after a pause and one run not timed."""
    time.sleep(PAUSE_SECONDS)
    run()
    start = clock()
    for _ in itertools.repeat(None, repeats):
        run()
    return (clock() - start) / repeats


def count_cpu_seconds() -> float:
    """Seconds that processors spent on this process and on those that it started and that ended:
    they do not depend on what others do with the machine."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def measure(samplers: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median seconds of each sampler. The order is shuffled for each round, by a fixed seed:
    one that only turned would have everybody follow the same neighbour all the time."""
    taken: dict[str, list[float]] = {name: [] for name in samplers}
    names = list(samplers)
    order = random.Random(1)
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            order.shuffle(names)
            for name in names:
                taken[name].append(samplers[name]())
    finally:
        if enabled:
            gc.enable()
    return {name: statistics.median(times) for name, times in taken.items()}
