"""Checks of memory accesses: stray stores, reads out of bounds, races.

Guard words around every tensor reveal stores beside it, on any device (`dmlc.runtime.fences`). A
tool checks every access: Oclgrind for OpenCL, the validation layer for Vulkan, or else the
interpreter of the kernels that the text was generated from. Each program that the function compiles
to for the device's language is checked, such as that for CPUs and that for GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.api import Outputs, PlannedRun, Subject, plan_run
from dmlc.devices import compile_for, find_device, list_profiles, load_on
from dmlc.ir import Function
from dmlc.kernel.interpret import KernelFault, run_kernels
from dmlc.pipeline import USUAL, Steps, make_kernels
from dmlc.program import Program
from dmlc.runtime.arrays import bind_symbols
from dmlc.runtime.fences import check_stores
from dmlc.runtime.interface import find_runtime
from dmlc.source import Source, UnsupportedError
from dmlc.testing.case import Case

INTERPRETER = "the interpreter of kernels"


def name_tool(device: str) -> str:
    """Tool that checks memory accesses of a device; empty for the reference."""
    found = find_device(device)
    if found is None:
        return ""
    tool = find_runtime(found.runtime).find_tool()
    return INTERPRETER if tool is None else tool.name


def check_memory(case: Case, device: str) -> list[str]:
    """Faulty accesses of a case on a device, one sentence each. Raises as `check_run` does."""
    call = case.call
    return check_run(call.operator, case.inputs, call.attributes, call.make_outputs(), device)


def check_run(
    subject: Subject,
    inputs: Mapping[str, object] | Sequence[object],
    attributes: Mapping[str, object] | None = None,
    outputs: Outputs | None = None,
    device: str = "opencl",
    dims: Mapping[str, int] | None = None,
    schedule: str | Source | None = None,
    matrix_instructions: Sequence[str] = (),
    gpu_class: str | None = None,
    schedules: str | Source | None = None,
    *,
    steps: Steps = USUAL,
) -> list[str]:
    """Faulty accesses of a call of `dmlc.run`, one sentence each. The arrays are not written to.
    `steps` are those of the program compiled for the sizes alone. Raises as `dmlc.run` does;
    `UnsupportedError` for the reference, which has no kernels, and `UnavailableError`, with the
    cure, if Vulkan's validation layer is not installed."""
    plan = plan_run(
        subject, inputs, attributes, outputs, device, dims, schedule, matrix_instructions,
        gpu_class, schedules,
    )  # fmt: skip
    if plan.device is None or plan.executable is None:
        raise UnsupportedError("the reference has no kernels whose memory could be checked")
    used = plan.device
    # The program that ran may serve all sizes; the one for these sizes is checked too.
    programs = {plan.executable.program: (plan.compiled, plan.steps)}
    # A schedule is for the kernels that ran.
    for profile in list_profiles(used) if schedule is None else ():
        made = compile_for(plan.function, used, steps, profile)
        programs.setdefault(made, (plan.function, steps))
    tool = find_runtime(used.runtime).find_tool()
    found: dict[str, None] = {}
    for program, (function, own) in programs.items():
        problems = check_stores(
            program, lambda made: load_on(made, used), plan.inputs, plan.outputs
        )
        if tool is not None:
            problems += tool.watch(program, used, plan.inputs, plan.outputs)
        else:
            problems += _interpret(program, function, own, plan)
        found.update(dict.fromkeys(f"{program.profile}: {problem}" for problem in problems))
    return list(found)


def _interpret(program: Program, function: Function, steps: Steps, plan: PlannedRun) -> list[str]:
    """First faulty access of a program's kernels, found by the interpreter."""
    fused, kernels = make_kernels(function, program.target, program.profile, steps=steps)
    sizes, _ = bind_symbols(program, plan.inputs, plan.outputs)
    try:
        run_kernels(fused, kernels, plan.inputs, sizes=sizes, order=program.order(sizes))
    except KernelFault as fault:
        return [str(fault)]
    return []
