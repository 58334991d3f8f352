"""How long a kernel takes on a few named devices, from counts alone.

    time = launch + max(bytes / bandwidth, bytes read / arrival, bytes in sectors / cache,
                        bytes in lines / look-ups, instructions / rate)
    arrival = resident threads * bytes in flight a thread / latency

What the cache that all units share still holds is read from there, and costs no bandwidth. Memory
answers after a while, so that it is busy only if enough has been asked for meanwhile: by
Little's law, `bandwidth * latency` bytes. `docs/reference/gpu.md` has the devices' numbers, what
the model leaves out, and how far to trust it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from dmlc.source import find_named

_KIB = 1 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """GPU in the model. Times are in seconds, rates per second."""

    name: str
    title: str
    units: int
    """Number of its SMs, or CUs."""
    threads: int
    """Largest number of threads of a unit."""
    registers: int
    """Number of 32-bit registers of a unit."""
    shared: int
    """Shared memory of a unit in bytes."""
    bandwidth: float
    """Rate of a copy in bytes, read and written."""
    latency: float
    """Latency of a load from memory."""
    cache: float
    """Rate of the shared cache of all units in bytes."""
    cached: int
    """Size of this cache in bytes."""
    cache_latency: float
    """Latency of a load that hits this cache."""
    lookups: float
    """Rate of the units' caches in bytes of the lines looked up."""
    rate: float
    """Rate of instructions of single lanes."""
    launch: float


DEVICES: tuple[Device, ...] = (
    Device("h100", "H100", 132, 2048, 65536, 228 * _KIB, 3.0e12, 700e-9, 5.5e12, 50_000_000,
           270e-9, 29.6e12, 29.6e12, 2.0e-6),
    Device("rtx4070", "RTX 4070", 46, 1536, 65536, 100 * _KIB, 460e9, 550e-9, 1.5e12, 36_000_000,
           280e-9, 14.6e12, 14.6e12, 2.5e-6),
    Device("8cu", "integrated, 8 CUs", 8, 2048, 65536, 64 * _KIB, 65e9, 500e-9, 0.5e12, 4_000_000,
           250e-9, 1.1e12, 1.1e12, 5.0e-6),
)  # fmt: skip

_ISSUED = 0.8
"""Fraction of the rate that kernels reach."""


def find_device(name: str) -> Device:
    """Device of that name. Raises `UnknownNameError`, which names the known ones."""
    return find_named("device of the model", name, {device.name: device for device in DEVICES})


@dataclasses.dataclass(frozen=True, slots=True)
class Flight:
    """Part of a kernel's loads, and the bytes in flight of a thread meanwhile."""

    share: float
    bytes: float


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """Demand of a launch on a device."""

    groups: int
    group_size: int
    registers: int
    """Registers of a thread."""
    shared_bytes: int
    """Shared memory of a group in bytes."""
    read: Mapping[str, int]
    """Bytes read by tensor, counted once in every pass over them."""
    touched: Mapping[str, int]
    """Distinct bytes read or written by tensor."""
    written: int
    sector_bytes: float
    """Bytes that the shared cache of all units moves for all loads and stores."""
    line_bytes: float
    """Bytes of the lines that the units' caches look up, each once for an access of a wave."""
    instructions: float | None
    """Instructions of all threads; None if unknown."""
    flights: tuple[Flight, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of a launch on a device."""

    seconds: float
    limit: str
    """Bottleneck: `bandwidth`, `latency`, `cache`, `lines`, `instructions` or `launch`."""
    resident: int
    """Number of resident threads."""


class Cache:
    """Contents of a device's cache, from kernel to kernel of a program."""

    def __init__(self, device: Device) -> None:
        self._size = device.cached
        self._launches: list[Mapping[str, int]] = []
        """Bytes that each launch has accessed."""

    def count_cold(self, demand: Demand, share: float) -> int:
        """Bytes that a launch reads from memory; `share` is the resident fraction of its groups."""
        # A group's repeated reads hit the cache if all that its neighbours read meanwhile fits.
        whole = sum(demand.touched.get(name, 0) for name in demand.read)
        keeps = whole * share <= self._size
        held = self._list_held()
        cold = 0
        for name, passes in demand.read.items():
            once = min(passes, demand.touched.get(name, passes))
            first = 0 if name in held else once
            cold += first if keeps else first + passes - once
        return cold

    def _list_held(self) -> set[str]:
        """Tensors of the latest launches, as many as fit in the cache as a whole."""
        held: set[str] = set()
        size = 0
        for touched in reversed(self._launches):
            size += sum(touched.values())
            if size > self._size:
                break
            held.update(touched)
        return held

    def touch(self, demand: Demand) -> None:
        """Records a launch."""
        self._launches.append(demand.touched)


def estimate(demand: Demand, device: Device, cache: Cache) -> Estimate:
    """Estimated time of a launch, given the cache as earlier launches left it."""
    resident = count_resident(demand, device)
    share = resident / max(1, demand.groups * demand.group_size)
    read = sum(demand.read.values())
    cold = cache.count_cold(demand, share)
    cache.touch(demand)
    waits = cold * device.latency + (read - cold) * device.cache_latency
    # A launch of no groups does nothing.
    busy = min(1, max(1, demand.groups) / device.units)
    parts = {
        "bandwidth": (cold + demand.written) / device.bandwidth,
        "latency": sum(waits * f.share / (resident * f.bytes) for f in demand.flights if f.bytes),
        "cache": demand.sector_bytes / device.cache,
        "lines": demand.line_bytes / (device.lookups * busy),
    }
    if demand.instructions is not None:
        parts["instructions"] = demand.instructions / (device.rate * busy * _ISSUED)
    limit = max(parts, key=parts.__getitem__)
    longest = parts[limit]
    return Estimate(
        device.launch + longest, limit if longest > device.launch else "launch", resident
    )


def count_resident(demand: Demand, device: Device) -> int:
    """Number of resident threads of a launch, in whole groups."""
    size = max(1, demand.group_size)
    most = device.threads // size
    if demand.registers:
        most = min(most, device.registers // (demand.registers * size))
    if demand.shared_bytes:
        most = min(most, device.shared // demand.shared_bytes)
    return max(1, min(demand.groups, device.units * max(1, most))) * size


@dataclasses.dataclass(frozen=True, slots=True)
class Reread:
    """Inputs that a reduction reads, and that are needed again after it."""

    bytes: int
    slice_bytes: int
    """Bytes of them that one result of the reduction depends on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Lower bounds on the work of a function."""

    bytes: int
    """Bytes of inputs and outputs, each counted once."""
    operations: float
    """Operations on floats, at the points that are not guarded out."""
    rereads: tuple[Reread, ...] = ()


NEAR_BYTES = 1 << 16
"""Bytes that a group can keep between a reduction and the use of its result."""


def count_bytes(work: Work, device: Device) -> int:
    """Bytes that must be moved: inputs that are reduced first and needed again are read twice,
    unless a group or the cache can keep them."""
    again = [r.bytes for r in work.rereads if r.slice_bytes > NEAR_BYTES]
    return work.bytes + (sum(again) if sum(again) > device.cached else 0)


def find_roofline(work: Work, device: Device) -> float:
    """Least time in seconds of some work on a device, in one launch."""
    moving = count_bytes(work, device) / device.bandwidth
    return device.launch + max(moving, work.operations / device.rate)


def merge_flights(flights: Iterable[Flight]) -> float:
    """Bytes in flight that are equivalent to those of all parts."""
    parts = [f for f in flights if f.share and f.bytes]
    whole = sum(f.share for f in parts)
    return whole / sum(f.share / f.bytes for f in parts) if parts else 0.0
