"""Parallel calls of drivers' compilers, which release Python's lock."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from dmlc.progress import track

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_threads(
    phase: str, function: Callable[[_Item], _Result], items: Sequence[_Item]
) -> list[_Result]:
    """Results of a function for each item, with a thread per core; progress is reported as by
    `track`."""
    if len(items) < 2:
        return [function(item) for item in track(phase, items)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = [pool.submit(function, item) for item in items]
        return [each.result() for each in track(phase, waiting)]
