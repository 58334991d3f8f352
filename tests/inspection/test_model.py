"""The model's arithmetic, against values computed by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dmlc.inspection.model import (
    DEVICES,
    Cache,
    Demand,
    Device,
    Flight,
    Reread,
    Work,
    count_bytes,
    count_resident,
    estimate,
    find_device,
    find_roofline,
    merge_flights,
)
from dmlc.source import UnknownNameError

SMALL = Device(
    "small", "small", units=10, threads=1000, registers=10_000, shared=5_000, bandwidth=1e9,
    latency=1e-6, cache=4e9, cached=1_000_000, cache_latency=0.5e-6, lookups=8e9, rate=1e10,
    launch=1e-6,
)  # fmt: skip
EASY = Demand(
    groups=100, group_size=100, registers=1, shared_bytes=0, read={"x": 6_000_000},
    touched={"x": 6_000_000, "y": 3_000_000}, written=3_000_000, sector_bytes=9e6,
    line_bytes=9e6, instructions=1e6, flights=(Flight(1.0, 16),),
)  # fmt: skip


def model(demand: Demand, device: Device = SMALL) -> tuple[float, str]:
    found = estimate(demand, device, Cache(device))
    return pytest.approx(found.seconds), found.limit


def vary(**changes: Any) -> Demand:
    return dataclasses.replace(EASY, **changes)


def test_bandwidth_limits_what_asks_for_enough() -> None:
    # 9 MB at 1 GB/s. In flight: 10,000 threads of 16 B, that is 160 GB/s.
    assert model(EASY) == (1e-6 + 9e-3, "bandwidth")


def test_latency_limits_what_asks_for_little() -> None:
    # One group of 100 threads, 4 B each: 400 B in a microsecond, for 6 MB.
    assert model(vary(groups=1, flights=(Flight(1.0, 4),))) == (1e-6 + 15e-3, "latency")


def test_each_part_waits_by_its_own_flight() -> None:
    flights = (Flight(0.5, 4), Flight(0.5, 1))
    # 3 MB at 400 MB/s, and 3 MB at 100 MB/s.
    assert model(vary(groups=1, flights=flights)) == (1e-6 + 7.5e-3 + 30e-3, "latency")
    assert merge_flights(flights) == pytest.approx(1.6)
    assert merge_flights(()) == 0


def test_instructions_limit_what_computes() -> None:
    # 1e9 at 1e10 a second, of which 80% are reached.
    assert model(vary(instructions=1e9)) == (1e-6 + 0.125, "instructions")
    # Five groups keep half the units busy.
    assert model(vary(instructions=1e9, groups=5)) == (1e-6 + 0.25, "instructions")


def test_a_launch_without_groups_takes_what_a_launch_takes() -> None:
    """As of a tensor without elements."""
    nothing = vary(
        groups=0, read={}, touched={}, written=0, sector_bytes=0, line_bytes=0, instructions=0
    )
    assert model(nothing) == (1e-6, "launch")


def test_the_cache_limits_what_reads_the_same_often() -> None:
    assert model(vary(sector_bytes=80e6)) == (1e-6 + 20e-3, "cache")


def test_the_caches_of_units_limit_what_lies_apart() -> None:
    # 256 MB at 8 GB/s, where each of 10 units has a part.
    assert model(vary(line_bytes=256e6)) == (1e-6 + 32e-3, "lines")
    assert model(vary(line_bytes=256e6, groups=5)) == (1e-6 + 64e-3, "lines")


def test_what_takes_no_time_takes_a_launch() -> None:
    assert model(vary(read={}, written=0, sector_bytes=0, line_bytes=0, instructions=None)) == (
        1e-6,
        "launch",
    )


def test_registers_and_shared_memory_limit_the_threads() -> None:
    assert count_resident(EASY, SMALL) == 10_000
    # 20 registers of 100 threads: five groups fill the 10,000 of a unit.
    assert count_resident(vary(registers=20), SMALL) == 5_000
    assert count_resident(vary(shared_bytes=2_000), SMALL) == 2_000
    assert count_resident(vary(groups=3), SMALL) == 300
    # A group that fits nowhere is counted as one a unit: it is the device's to refuse.
    assert count_resident(vary(registers=1_000), SMALL) == 1_000


def test_what_a_group_reads_again_comes_from_the_cache_if_it_fits() -> None:
    twice = {"x": 1_600_000}
    held = vary(read=twice, touched={"x": 800_000}, written=0)
    assert Cache(SMALL).count_cold(held, 1.0) == 800_000
    wide = vary(read=twice | {"z": 800_000}, touched={"x": 800_000, "z": 800_000}, written=0)
    assert Cache(SMALL).count_cold(wide, 1.0) == 2_400_000
    # Half the groups at a time read half of it.
    assert Cache(SMALL).count_cold(wide, 0.5) == 1_600_000


def test_what_the_kernel_before_has_touched_is_in_the_cache() -> None:
    cache = Cache(SMALL)
    first = vary(read={"x": 400_000}, touched={"x": 400_000, "y": 400_000})
    cache.touch(first)
    assert cache.count_cold(vary(read={"y": 400_000}, touched={"y": 400_000}), 1.0) == 0
    # A launch that touches more than the cache holds drives it out.
    cache.touch(EASY)
    assert cache.count_cold(vary(read={"y": 400_000}, touched={"y": 400_000}), 1.0) == 400_000


def test_the_roofline_is_bytes_or_operations() -> None:
    assert find_roofline(Work(2_000_000, 0), SMALL) == pytest.approx(1e-6 + 2e-3)
    assert find_roofline(Work(2_000_000, 1e9), SMALL) == pytest.approx(1e-6 + 0.1)


def test_inputs_that_nothing_can_hold_are_read_twice() -> None:
    large = Work(5_000_000, 0, (Reread(2_000_000, 100_000),))
    assert count_bytes(large, SMALL) == 7_000_000
    # A group holds 64 KiB of a slice; the cache 1 MB of all.
    assert count_bytes(Work(5_000_000, 0, (Reread(2_000_000, 60_000),)), SMALL) == 5_000_000
    assert count_bytes(Work(5_000_000, 0, (Reread(900_000, 100_000),)), SMALL) == 5_000_000


def test_devices_are_found_by_name() -> None:
    assert [device.name for device in DEVICES] == ["h100", "rtx4070", "8cu"]
    h100 = find_device("h100")
    # What must be in flight to fill it: 2.1 MB, 16 kB a unit.
    assert h100.bandwidth * h100.latency == pytest.approx(2.1e6)
    with pytest.raises(UnknownNameError, match="h200"):
        find_device("h200")
