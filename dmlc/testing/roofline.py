"""Speed of a candidate relative to the memory roofline: the rate of a copy on the same device,
measured alternately with it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlc.inspection.work import count_work
from dmlc.oracle import find_work
from dmlc.source import DmlcError
from dmlc.testing.candidate import Candidate, Kernel
from dmlc.testing.case import Call, Case
from dmlc.testing.expressions import OutsideError
from dmlc.testing.fill import MILD, fill
from dmlc.testing.function import Function
from dmlc.testing.outcome import is_bindable
from dmlc.testing.timing import Timer, make_copy, race

BYTES = 4 << 20
"""Approximate number of bytes moved by a timed call, within the limit on work."""
MOST_WORK = 1 << 27
"""Largest work of the reference for it, in instructions."""
_ROUNDS = 5
_STEPS = 64


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Measured speed of a candidate on one call."""

    call: str
    bytes: int
    """Bytes that must be moved: each input and output once."""
    operations: float
    """Least number of operations on floats."""
    seconds: float
    copied: float
    """Time of a copy of as many bytes, in seconds."""
    clock: str
    """Clock, `device` or `host`; with the host's clock, the time includes transfers of the
    arrays."""

    @property
    def percent(self) -> float:
        """Percentage of the memory roofline."""
        return 100 * self.copied / max(self.seconds, 1e-12)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dataclasses.asdict(self) | {"percent": round(self.percent, 2)}

    def __str__(self) -> str:
        rate, most = (self.bytes / max(s, 1e-12) / 1e9 for s in (self.seconds, self.copied))
        flops = self.operations / max(self.seconds, 1e-12) / 1e9
        return (
            f"{self.percent:.0f} % of the memory roofline: {self.bytes / 1e6:.1f} MB in "
            f"{self.seconds * 1e6:,.0f} us, {rate:.1f} GB/s where a copy has {most:.1f}, and "
            f"{flops:.1f} GFLOP/s, by the {self.clock}'s clock\n  timed with {self.call}"
        )


def measure_roofline(candidate: Candidate, call: Call) -> MeasuredSpeed:
    """Speed of a candidate on a call that is enlarged until a run is long enough. Raises
    `DmlcError` as running it does."""
    grown = grow(candidate, call)
    work = count_work(grown.function)
    case = Case(grown, fill(grown, MILD, np.random.default_rng(0)), "timed")
    count = max(work.bytes // 8, 1)
    if isinstance(candidate, Function):
        source = np.ones(count, np.float32)
        target = np.empty_like(source)
        copy = Timer.of(lambda: np.copyto(target, source))
        kernel = Timer.of(lambda: candidate.run_once(case))
    elif isinstance(candidate, Kernel):
        kernel = Timer(*candidate.prepare(case))
        copy = make_copy(candidate.device, count)
    else:
        raise DmlcError(f"{candidate.name} cannot be timed")
    found = race(kernel, copy, _ROUNDS)
    taken = (found.first, found.second, kernel.clock)
    return MeasuredSpeed(str(grown), work.bytes, work.operations, *taken)


def grow(candidate: Candidate, call: Call) -> Call:
    """Call with larger sizes that the operator permits and the candidate takes."""
    for _ in range(_STEPS):
        if _count_bytes(call) >= BYTES or find_work(call.function) >= MOST_WORK:
            break
        larger = next(_list_larger(candidate, call), None)
        if larger is None:
            break
        call = larger
    return call


def _list_larger(candidate: Candidate, call: Call) -> Iterator[Call]:
    """Calls with one size doubled: along one axis, or else along all axes of that size; smallest
    sizes first, and sizes of 1 last."""
    sizes = call.sizes
    found = {(size, axis) for shape in sizes.values() for axis, size in enumerate(shape)}
    alike = {(size, -1) for size, _ in found}
    for size, axis in sorted(found | alike, key=lambda f: (f[1] < 0, f[0] == 1, f)):
        changed = {
            n: tuple(2 * s if s == size and axis in (k, -1) else s for k, s in enumerate(shape))
            for n, shape in sizes.items()
        }
        made = call.resize(changed, strides=False)
        if made is None or _count_bytes(made) <= _count_bytes(call) or not is_bindable(made):
            continue
        try:
            yield candidate.adapt(made)
        except OutsideError:
            continue


def _count_bytes(call: Call) -> int:
    return sum(math.prod(d.shape) * d.data_type.bytes for d in call.tensors.values())
