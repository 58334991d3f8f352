"""Properties of a kernel's launch that are known before a GPU's compiler runs, and its modelled
time.

Without a compiler, registers limit nothing, and the instructions counted are the operations of the
formulas, loads and stores. Such a time is less accurate than that of `inspect`. But it is the same
on every machine, and distinguishes two ways to compute one function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.inspection.model import DEVICES, Cache, Demand, Device, Flight, estimate
from dmlc.ir.slices import assume_even
from dmlc.kernel import nodes as k
from dmlc.kernel.counts import Access, Body, Steps
from dmlc.kernel.slow import count_points
from dmlc.kernel.steps import count_steps
from dmlc.report import count_operations, count_outputs, list_kernel_moves
from dmlc.source import DmlcError
from dmlc.transform.traffic import Move, count_bytes

Estimates: TypeAlias = Mapping[str, float]
"""Seconds by the names of the model's devices."""


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchFacts:
    """Properties of a kernel's launch that are known before compilation."""

    kernel: k.Kernel
    steps: Steps
    outputs: int
    points: int
    moves: tuple[Move, ...]
    touched: Mapping[str, int]
    """Distinct bytes that it reads or writes in each buffer."""
    assumed: tuple[str, ...] = ()
    """Tensors whose elements decide how long its loops are, and are assumed."""

    @property
    def read(self) -> dict[str, int]:
        """Bytes read, by tensor."""
        return {m.tensor: m.read for m in self.moves if m.read}

    @property
    def written(self) -> int:
        """Bytes written, of all tensors."""
        return sum(m.written or 0 for m in self.moves)

    def make_demand(
        self,
        registers: int,
        shared_bytes: int,
        instructions: float | None,
        flights: tuple[Flight, ...],
    ) -> Demand:
        """Demand on a device, once the resources of its machine code are known: see `Demand`."""
        return Demand(
            groups=self.steps.working,
            group_size=self.steps.group_size,
            registers=registers,
            shared_bytes=shared_bytes,
            read=self.read,
            touched=self.touched,
            written=self.written,
            sector_bytes=self.steps.sector_bytes,
            line_bytes=self.steps.line_bytes,
            instructions=instructions,
            flights=flights,
        )


def read_launch(function: ir.Function, kernel: k.Kernel) -> LaunchFacts:
    """Launch of a kernel of a function with known sizes. Raises `DmlcError` for open ones."""
    assumed = assume_even(function, kernel.stages)
    steps = count_steps(kernel, function.tables, assumed)
    if steps is None:
        raise DmlcError(f"the kernel {kernel.name} is launched by a size that is not known")
    outputs = count_outputs(function, kernel)
    found = [function.stage(name) for name in kernel.stages]
    points = max((count_points(stage) for stage in found if stage is not None), default=outputs)
    moves, tensors = list_kernel_moves(function, kernel), function.tensors()
    moved = {m.tensor: max(m.read or 0, m.written or 0) for m in moves}
    whole = {name: count_bytes(tensor) or 0 for name, tensor in tensors.items()}
    # A kernel does not know the values of open sizes.
    touched = {
        b.name: b.bytes or min(moved.get(b.name, 0), whole.get(b.name, moved.get(b.name, 0)))
        for b in kernel.buffers
    }
    return LaunchFacts(kernel, steps, outputs, max(1, points), moves, touched, tuple(assumed))


def estimate_kernels(
    function: ir.Function, kernels: Sequence[k.Kernel], devices: Sequence[Device] = DEVICES
) -> tuple[Estimates, ...]:
    """Seconds of each kernel of a function with known sizes on each device, by default those of the
    model, with the kernels in sequence. Raises `DmlcError` for open sizes."""
    caches = [Cache(device) for device in devices]
    found: list[Estimates] = []
    for kernel in kernels:
        demand = _make_uncompiled_demand(function, read_launch(function, kernel))
        pairs = zip(devices, caches, strict=True)
        found.append({d.name: estimate(demand, d, cache).seconds for d, cache in pairs})
    return tuple(found)


def _make_uncompiled_demand(function: ir.Function, launch: LaunchFacts) -> Demand:
    steps, kernel = launch.steps, launch.kernel
    computed = dict.fromkeys(name for members in kernel.passes for name in members)
    stages = [stage for stage in map(function.stage, computed) if stage is not None]
    operations = sum(count_operations(function, stage) for stage in stages)
    visits = list(_list_visits(steps.body))
    accesses = sum(
        times * body.shared + sum(access.count for access in body.accesses)
        for body, times in visits
    )
    loaded = _list_flights(steps.body)
    whole = sum(part for part, _ in loaded)
    return launch.make_demand(
        registers=0,
        shared_bytes=sum(a.size * a.dtype.bytes for a in kernel.arrays if a.shared),
        instructions=operations + steps.threads * accesses,
        flights=tuple(Flight(part / whole, flight) for part, flight in loaded if part),
    )


def _list_visits(body: Body, times: float = 1) -> Iterator[tuple[Body, float]]:
    """Body and those of its loops, each with the number of its executions per work item."""
    yield body, times
    for loop in body.loops:
        yield from _list_visits(loop.body, times * loop.turns)


def _list_flights(body: Body, copies: int = 1) -> list[tuple[float, int]]:
    """For a body, and for each of its loops, the bytes that its loads move in all, and the bytes
    requested at once per work item: loads of loops unrolled `copies` times are issued together with
    those of their body."""
    moved = sum(access.count * access.bytes for access in _loads(body))
    width, others = copies * _width(body), list[tuple[float, int]]()
    for loop in body.loops:
        written_out = loop.fixed if loop.unrolled and loop.fixed else 0
        (own, asked), *inner = _list_flights(loop.body, copies * (written_out or 1))
        if written_out:
            moved, width = moved + own, width + asked
        else:
            others.append((own, asked))
        others += inner
    return [(moved, width), *others]


def _loads(body: Body) -> list[Access]:
    return [access for access in body.accesses if not access.written]


def _width(body: Body) -> int:
    """Bytes that a work item requests at once: those of all loads of an iteration."""
    return sum(access.bytes for access in _loads(body))
