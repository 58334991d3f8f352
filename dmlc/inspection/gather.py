"""Inspection of a function: its kernels compiled offline for GPUs, counted, and modelled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dmlc import ir
from dmlc.binding import Graph, Operator
from dmlc.catalog import find_function
from dmlc.inspection import ptxas, radv
from dmlc.inspection.launches import LaunchFacts, read_launch
from dmlc.inspection.listing import InstructionClass, Stretch
from dmlc.inspection.machine import MachineKernel
from dmlc.inspection.model import (
    DEVICES,
    Cache,
    Demand,
    Device,
    Flight,
    count_bytes,
    estimate,
    find_roofline,
    merge_flights,
)
from dmlc.inspection.report import (
    Compiled,
    InspectedKernel,
    Inspection,
    Modelled,
    ProgramTotal,
    Roofline,
)
from dmlc.inspection.turns import weigh_stretches
from dmlc.inspection.work import count_work
from dmlc.ir.specialize import specialize
from dmlc.kernel.arithmetic import bind_sizes
from dmlc.parameters import expect_items, expect_text
from dmlc.pipeline import compile_kernels, read_steps
from dmlc.source import DmlcError, Source

_MICRO = 1e-6


def inspect(
    function: ir.Function | Operator | Graph | str,
    gpus: str | Sequence[str] = (radv.DEFAULT,),
    *,
    shader_model: str = "6.2",
    sizes: Mapping[str, int] = MappingProxyType({}),
    schedule: str | Source | None = None,
    gpu_class: str | None = None,
    schedules: str | Source | None = None,
) -> Inspection:
    """Properties of a function's kernels on GPUs, by the GPUs' own compilers; no GPU is needed.

    A function is given as to `compile`. For open sizes, `sizes` has those at which the kernels,
    which serve all, are inspected: `{"N": 32}`. `gpus` are Mesa RADV's names of AMD's GPUs, such as
    `gfx1100`, whose kernels are HLSL, for `shader_model`; or NVIDIA's, such as `sm_90`, whose
    kernels are OpenCL C. `schedule`, `gpu_class` and `schedules` are those of `compile`.

    Raises as `compile` does, `UnavailableError` for a missing compiler, `UnknownNameError` for a
    GPU that it does not know, and `UnsupportedError` for data types that a GPU lacks.
    """
    items = (gpus,) if isinstance(gpus, str) else expect_items("gpus", gpus, "names of GPUs")
    given = [expect_text("gpus", name, "the name of a GPU") for name in items]
    names = list(dict.fromkeys(given))
    expect_text("shader_model", shader_model)
    if not names:
        raise DmlcError("gpus names no GPU", notes=["gpus=['gfx1100'], say"])
    bound = find_function(function)
    bound.refuse_loops("the time of kernels is modelled for one launch")
    unknown = [symbol for symbol in bound.symbols() if symbol not in sizes]
    if unknown:
        raise DmlcError(
            f"{bound.name} has sizes that are not known: {', '.join(unknown)}",
            notes=[
                "what a kernel takes depends on them: bind it with the sizes of its tensors, or "
                f"say at which to look at it, as in sizes={{'{unknown[0]}': 1024}}"
            ],
        )
    steps = read_steps(schedule, gpu_class=gpu_class, schedules=schedules)
    of_nvidia = [name for name in names if ptxas.is_gpu(name)]
    if of_nvidia and len(of_nvidia) < len(names):
        raise DmlcError(
            "GPUs of NVIDIA and of AMD are looked at one after the other",
            notes=[f"{', '.join(of_nvidia)} run OpenCL C, and the others HLSL: other kernels"],
        )
    if of_nvidia:
        made = compile_kernels(bound, "opencl", "gpu", steps=steps)
    else:
        made = compile_kernels(bound, "hlsl", shader_model=shader_model, steps=steps)
    program, lowered, kernels = made
    if bound.symbols():
        lowered = specialize(lowered, sizes)
        kernels = tuple(bind_sizes(kernel, sizes) for kernel in kernels)
    # Versions for other sizes have no groups.
    pairs = [pair for pair in zip(program.kernels, kernels, strict=True) if pair[1].launch.count]
    sources, kernels = (tuple(each) for each in zip(*pairs, strict=True)) if pairs else ((), ())
    launches = [read_launch(lowered, kernel) for kernel in kernels]
    compiler = ptxas if of_nvidia else radv
    machines = {name: compiler.compile_kernels(sources, name) for name in names}
    compiled = [_describe_all(launches, of_gpu) for of_gpu in machines.values()]
    inspected = tuple(
        _inspect_kernel(launch, tuple(of_gpu[number] for of_gpu in compiled))
        for number, launch in enumerate(launches)
    )
    work = count_work(lowered)
    rooflines = tuple(
        Roofline(
            device.name,
            device.title,
            count_bytes(work, device),
            work.operations,
            find_roofline(work, device) / _MICRO,
            (device.launch + work.bytes / device.bandwidth) / _MICRO,
        )
        for device in DEVICES
    )
    totals = tuple(
        ProgramTotal(name, tuple(_add_up(inspected, number, device) for device in DEVICES))
        for number, name in enumerate(machines)
    )
    return Inspection(bound.name, inspected, rooflines, totals, program.warnings)


def _inspect_kernel(launch: LaunchFacts, compiled: tuple[Compiled, ...]) -> InspectedKernel:
    kernel, steps = launch.kernel, launch.steps
    return InspectedKernel(
        name=kernel.name,
        stages=kernel.stages,
        groups=steps.groups,
        group_size=steps.group_size,
        outputs=launch.outputs,
        points=launch.points,
        steps=steps.longest,
        total_steps=steps.total,
        reads_per_output=steps.loads / launch.outputs,
        bytes_read=sum(launch.read.values()),
        bytes_written=launch.written,
        cache_bytes=steps.sector_bytes,
        line_bytes=steps.line_bytes,
        assumed=launch.assumed,
        compiled=compiled,
    )


def _describe_all(
    launches: Sequence[LaunchFacts], machines: Sequence[MachineKernel]
) -> list[Compiled]:
    """Kernels of a program on one GPU, in order: each finds in a device's cache what earlier ones
    left there."""
    caches = [Cache(device) for device in DEVICES]
    return [
        _describe(launch, machine, caches)
        for launch, machine in zip(launches, machines, strict=True)
    ]


def _describe(launch: LaunchFacts, machine: MachineKernel, caches: Sequence[Cache]) -> Compiled:
    steps, listing = launch.steps, machine.listing
    whole, times = weigh_stretches(steps.body, listing)
    run = share = None
    if times is not None:
        run = sum(
            (len(s.instructions) - s.count(InstructionClass.HINT)) * n for s, n in times.items()
        )
        share = sum(s.count(InstructionClass.FMA) * n for s, n in times.items()) / run
    everything = None if run is None else run * steps.threads
    flights = _find_flights(whole, times, min(machine.wave, steps.group_size))
    demand = launch.make_demand(machine.registers, machine.shared_bytes, everything, flights)
    own: dict[str, Any] = {f.name: getattr(machine, f.name) for f in dataclasses.fields(machine)}
    return Compiled(
        **own,
        instructions=len(listing.instructions),
        instructions_per_thread=run,
        instructions_per_output=None if everything is None else everything / launch.outputs,
        instructions_per_point=None if everything is None else everything / launch.points,
        fma_share=share,
        loads=listing.count_widths(InstructionClass.LOAD),
        uniform_loads=listing.count_widths(InstructionClass.UNIFORM_LOAD),
        stores=listing.count_widths(InstructionClass.STORE),
        shared_accesses=sum(i.kind is InstructionClass.SHARED for i in listing.instructions),
        barriers=sum(i.kind is InstructionClass.BARRIER for i in listing.instructions),
        loads_in_flight=max(stretch.find_flight()[1] for stretch in whole.walk()),
        bytes_in_flight=merge_flights(flights),
        devices=tuple(
            _model(demand, device, cache) for device, cache in zip(DEVICES, caches, strict=True)
        ),
    )


def _model(demand: Demand, device: Device, cache: Cache) -> Modelled:
    found = estimate(demand, device, cache)
    moved = sum(demand.read.values()) + demand.written
    return Modelled(
        device.name, device.title, found.seconds / _MICRO, moved / found.seconds, found.limit
    )


def _find_flights(
    whole: Stretch, times: Mapping[Stretch, float] | None, lanes: int
) -> tuple[Flight, ...]:
    """Number of loads that a thread has in flight in each loop, and the loop's share of its
    loads."""
    loaded: list[tuple[float, float]] = []
    for stretch in whole.walk():
        often = 1.0 if times is None else times.get(stretch, 0.0)
        own = sum(i.bytes for i in stretch.instructions if i.kind is InstructionClass.LOAD)
        flight: float = stretch.find_flight()[0]
        # What a wave loads once for all its lanes is a small part of each lane's, and matters
        # where a loop loads nothing else.
        uniform = sum(
            i.bytes for i in stretch.instructions if i.kind is InstructionClass.UNIFORM_LOAD
        )
        if not own and uniform:
            own = flight = uniform / lanes
        loaded.append((own * often, flight))
    everything = sum(part for part, _ in loaded)
    return tuple(Flight(part / everything, flight) for part, flight in loaded if part)


def _add_up(kernels: Sequence[InspectedKernel], number: int, device: Device) -> Modelled:
    """Times of all kernels in sequence."""
    modelled = [
        next(m for m in kernel.compiled[number].devices if m.device == device.name)
        for kernel in kernels
    ]
    taken = sum(m.microseconds for m in modelled)
    moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in kernels)
    return Modelled(
        device.name, device.title, taken, moved / (taken * _MICRO) if taken else 0, None
    )
