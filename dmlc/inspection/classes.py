"""Classes of GPUs for the model of times, from the facts of the schedule table."""

from __future__ import annotations

import functools

from dmlc.inspection.model import DEVICES, Device
from dmlc.kernel.target import find_profile
from dmlc.schedules.table import find_root, read_table

_LATENCY, _CACHE_LATENCY, _LAUNCH = 600e-9, 280e-9, 3e-6
"""Latencies in seconds that no vendor publishes: between those of the model's devices."""
_CACHE = 4
"""Assumed ratio of the shared cache's bandwidth to the memory's, for all classes."""


@functools.cache
def find_class(name: str) -> Device | None:
    """Typical device of a class of GPUs; the model's largest for a class without facts, and None
    for CPUs."""
    if not find_profile(find_root(name)).grouped:
        return None
    facts = read_table().find_facts(name)
    if not facts:
        return DEVICES[0]
    bandwidth, rate = facts["bandwidth"] * 1e9, facts["rate"] * 1e9
    return Device(
        name,
        name,
        facts["units"],
        facts["threads"],
        facts["registers"],
        facts["shared"],
        bandwidth,
        _LATENCY,
        _CACHE * bandwidth,
        facts["cached"],
        _CACHE_LATENCY,
        # A line of 128 bytes in the time of an instruction of 128 lanes.
        rate,
        rate,
        _LAUNCH,
    )
