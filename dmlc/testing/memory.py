"""What a run does in memory that it may not: stray stores, reads out of bounds, races.

Two things look for them. Guard words around every tensor show what was stored beside it, on any
device (`dmlc.runtime.fences`). A tool watches every single access, where a runtime has one:
Oclgrind for OpenCL, the validation layer for Vulkan. Each program that the function can become for
the device's language is checked, such as that for CPUs and that for GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.api import Outputs, Subject, plan_run
from dmlc.devices import compile_for, list_profiles, load_on
from dmlc.runtime.fences import check_stores
from dmlc.runtime.interface import find_runtime
from dmlc.source import UnsupportedError
from dmlc.testing.case import Case, make_output


def check_memory(case: Case, device: str) -> list[str]:
    """What goes wrong in memory when a device runs a case, a sentence each; nothing where all is
    well. Raises as `check_run` does."""
    call = case.call
    outputs = {name: make_output(desc) for name, desc in call.outputs.items()}
    return check_run(call.operator, case.inputs, call.attributes, outputs, device)


def check_run(
    subject: Subject,
    inputs: Mapping[str, object] | Sequence[object],
    attributes: Mapping[str, object] | None = None,
    outputs: Outputs | None = None,
    device: str = "opencl",
    dims: Mapping[str, int] | None = None,
) -> list[str]:
    """What goes wrong in memory in what `dmlc.run` does when it is called so, a sentence each. The
    arrays are looked at, and not written to.

    Raises as `dmlc.run` does; `UnsupportedError` for the reference, which has no kernels, and
    `UnavailableError`, with the cure, where a tool is not installed.
    """
    plan = plan_run(subject, inputs, attributes, outputs, device, dims)
    if plan.device is None or plan.executable is None:
        raise UnsupportedError("the reference has no kernels whose memory could be checked")
    used, ran = plan.device, plan.executable.program
    # What ran may serve all sizes, so that it is checked beside what serves these alone.
    programs = [ran, *(compile_for(plan.function, used, profile=p) for p in list_profiles(used))]
    watch = find_runtime(used.runtime).check_accesses
    found: dict[str, None] = {}
    for program in dict.fromkeys(programs):
        problems = check_stores(
            program, lambda made: load_on(made, used), plan.inputs, plan.outputs
        )
        if watch is not None:
            problems += watch(program, used, plan.inputs, plan.outputs)
        found.update(dict.fromkeys(f"{program.profile}: {problem}" for problem in problems))
    return list(found)
