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

from dmlc.source import UnknownNameError, unknown_name

_KIB = 1 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A GPU as the model knows it. Times are in seconds, rates per second."""

    name: str
    title: str
    units: int
    """Its SMs, or CUs."""
    threads: int
    """That a unit can hold."""
    registers: int
    """Of 32 bits, that a unit has for its threads."""
    shared: int
    """Bytes of shared memory of a unit."""
    bandwidth: float
    """Bytes that a copy moves, reading and writing."""
    latency: float
    """From asking for memory to having it."""
    cache: float
    """Bytes that the cache all units share can move."""
    cached: int
    """Bytes that this cache holds."""
    cache_latency: float
    """From asking for what it holds to having it."""
    lookups: float
    """Bytes of the lines that the caches of its units look up."""
    rate: float
    """Instructions of one lane."""
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
"""The part of the rate that kernels reach."""


def find_device(name: str) -> Device:
    """The device of that name. Raises `UnknownNameError`, naming those there are."""
    for device in DEVICES:
        if device.name == name:
            return device
    raise UnknownNameError(unknown_name("device of the model", name, [d.name for d in DEVICES]))


@dataclasses.dataclass(frozen=True, slots=True)
class Flight:
    """A part of what a kernel loads, and what a thread has asked for at once meanwhile."""

    share: float
    bytes: float


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """What a launch asks of a device."""

    groups: int
    group_size: int
    registers: int
    """Of a thread."""
    shared_bytes: int
    """Of a group."""
    read: Mapping[str, int]
    """Bytes by tensor, each once in every pass over them."""
    touched: Mapping[str, int]
    """The same, each once, and those that are written too."""
    written: int
    sector_bytes: float
    """What the cache of all units moves for all loads and stores."""
    line_bytes: float
    """What the caches of units look up for them: lines, each once for an access of a wave."""
    instructions: float | None
    """Of all threads; None where it is not known."""
    flights: tuple[Flight, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """What the model says of a launch on a device."""

    seconds: float
    limit: str
    """What takes longest: `bandwidth`, `latency`, `cache`, `lines`, `instructions` or `launch`."""
    resident: int
    """The threads that are under way together."""


class Cache:
    """What the cache of a device holds of tensors, from kernel to kernel of a program."""

    def __init__(self, device: Device) -> None:
        self._size = device.cached
        self._launches: list[Mapping[str, int]] = []
        """What each launch has touched."""

    def count_cold(self, demand: Demand, share: float) -> int:
        """The bytes that a launch reads from memory; `share` of its groups are under way at
        once."""
        # What a group reads again is there still, if all that its neighbours read meanwhile is.
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
        """What the latest launches have touched, as many as the cache holds all of."""
        held: set[str] = set()
        size = 0
        for touched in reversed(self._launches):
            size += sum(touched.values())
            if size > self._size:
                break
            held.update(touched)
        return held

    def touch(self, demand: Demand) -> None:
        """A launch is over."""
        self._launches.append(demand.touched)


def estimate(demand: Demand, device: Device, cache: Cache) -> Estimate:
    """How long a launch takes after those that filled the cache."""
    resident = count_resident(demand, device)
    share = resident / max(1, demand.groups * demand.group_size)
    read = sum(demand.read.values())
    cold = cache.count_cold(demand, share)
    cache.touch(demand)
    waits = cold * device.latency + (read - cold) * device.cache_latency
    # Of no groups, nothing is done.
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
    """The threads of a launch that a device holds at once, whole groups of them."""
    size = max(1, demand.group_size)
    most = device.threads // size
    if demand.registers:
        most = min(most, device.registers // (demand.registers * size))
    if demand.shared_bytes:
        most = min(most, device.shared // demand.shared_bytes)
    return max(1, min(demand.groups, device.units * max(1, most))) * size


@dataclasses.dataclass(frozen=True, slots=True)
class Reread:
    """Inputs that a reduction reads, and that are needed again once it is done."""

    bytes: int
    slice_bytes: int
    """Those of them that one result of the reduction is made of."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What no way to compute a function can do without."""

    bytes: int
    """Of inputs and outputs, each once."""
    operations: float
    """On floats, at the points that take part."""
    rereads: tuple[Reread, ...] = ()


NEAR_BYTES = 1 << 16
"""What a group can hold between a reduction and the use of its result."""


def count_bytes(work: Work, device: Device) -> int:
    """The bytes that must be moved: inputs that are folded first and needed again are read twice,
    where neither a group nor the cache can hold them."""
    again = [r.bytes for r in work.rereads if r.slice_bytes > NEAR_BYTES]
    return work.bytes + (sum(again) if sum(again) > device.cached else 0)


def find_roofline(work: Work, device: Device) -> float:
    """The least seconds in which a device can do some work, in one launch."""
    moving = count_bytes(work, device) / device.bandwidth
    return device.launch + max(moving, work.operations / device.rate)


def merge_flights(flights: Iterable[Flight]) -> float:
    """The bytes in flight that would serve as well as those of all parts."""
    parts = [f for f in flights if f.share and f.bytes]
    whole = sum(f.share for f in parts)
    return whole / sum(f.share / f.bytes for f in parts) if parts else 0.0
