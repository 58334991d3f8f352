"""The compiler in one line: from a bound function to a program.

tensor IR -> simplify -> narrow -> index inverses -> take out factors -> saturate positions -> fuse
-> kernel IR (lower, per group of stages) -> render -> Program
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dmlc.binding import Graph, Operator
from dmlc.catalog import find_function
from dmlc.codegen.dialect import Dialect, Unsupported
from dmlc.codegen.render import render
from dmlc.codegen.support import check_support
from dmlc.codegen.targets import find_dialect
from dmlc.collection import throttle_garbage_collection
from dmlc.ir import Function
from dmlc.ir.verify import verify
from dmlc.kernel.group import lower_group
from dmlc.kernel.json import kernel_to_json
from dmlc.kernel.nodes import Kernel
from dmlc.kernel.print import print_kernel
from dmlc.kernel.schedule import Limits, Profile, find_profile
from dmlc.kernel.slow import find_slow
from dmlc.kernel.steps import count_steps
from dmlc.parameters import expect_flag, expect_text
from dmlc.program import Program
from dmlc.report import Report, count_unfused, find_origins, make_report
from dmlc.scalars import DataType
from dmlc.transform.cost import Budget
from dmlc.transform.fuse import Fusion, Group, fuse
from dmlc.transform.open_sizes import check_open
from dmlc.transform.rewrite import rewrite
from dmlc.transform.storage import widen_booleans


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """The steps from a function to its kernels that settle how these compute, and never what.
    Whoever tests the compiler or a driver puts others in their place."""

    fuse: Callable[[Function, int, Budget], Fusion] = fuse
    """Which stages share a kernel: see `fuse.fuse`."""
    lower: Callable[[Function, Group, Profile, Limits], tuple[Kernel, ...]] = lower_group
    """The kernels of a group of stages, as they are rendered: see `group.lower_group`."""


USUAL = Steps()


@throttle_garbage_collection()
def compile(
    function: Function | Operator | Graph | str,
    target: str = "opencl",
    profile: str | None = None,
    *,
    root_signature: bool = True,
    shader_model: str | None = None,
    contract: bool = False,
) -> Program:
    """Compiles a function for an output language and a kind of device.

    An operator, its name, or a graph stands for the function that it binds to without being told
    more: an element-wise operator needs no sizes.
    `target` is `opencl`, `hlsl` or `wgsl`; `profile` is `cpu` or `gpu`, by default what the target
    mostly runs on. HLSL carries its root signature, unless `root_signature` is false; it is written
    for `shader_model` 6.2, or 6.0 for devices without 16-bit types. With `contract`, a device may
    round a sum of FLOAT32 products once for each product and addition, where it has an instruction
    for both: closer to the exact sum, but not the same bits on every device. Raises
    `UnsupportedError` for what the target cannot express, before any lowering.
    """
    expect_text("target", target, "the name of a target")
    for name, text in (("profile", profile), ("shader_model", shader_model)):
        if text is not None:
            expect_text(name, text)
    expect_flag("root_signature", root_signature)
    expect_flag("contract", contract)
    bound = find_function(function)
    dialect = find_dialect(target, shader_model)
    shape = find_profile(profile or dialect.profiles[0])
    fusion, kernels = _lower(bound, dialect, shape)
    return _render(bound, fusion, kernels, dialect, shape, root_signature, contract)


@throttle_garbage_collection()
def compile_by(
    steps: Steps,
    function: Function,
    target: str = "opencl",
    profile: str | None = None,
    *,
    root_signature: bool = True,
) -> Program:
    """The program that some steps make of a function. Raises as `compile` does."""
    dialect = find_dialect(target)
    shape = find_profile(profile or dialect.profiles[0])
    fusion, kernels = _lower(function, dialect, shape, steps)
    return _render(function, fusion, kernels, dialect, shape, root_signature)


@throttle_garbage_collection()
def explain(function: Function, target: str = "opencl", profile: str | None = None) -> Report:
    """What `compile` makes of a function, and why: bytes and kernels before and after fusion.
    Whatever the profile is, its warnings are of what GPUs do slowly. Raises as `compile` does."""
    dialect = find_dialect(target)
    shape = find_profile(profile or dialect.profiles[0])
    fusion, kernels = _lower(function, dialect, shape)
    program = _render(function, fusion, kernels, dialect, shape)
    if shape.group_size == 1:
        slow = compile(function, target, "gpu").warnings
        program = dataclasses.replace(program, warnings=slow)
    return make_report(function, fusion, kernels, program)


def find_fusion(function: Function, target: str = "opencl", profile: str | None = None) -> Fusion:
    """The stages that `compile` makes kernels of, and how it groups them."""
    dialect = find_dialect(target)
    shape = find_profile(profile or dialect.profiles[0])
    return _fuse(rewrite(function, shape.row), dialect, shape)


def describe_kernels(
    function: Function, target: str, profile: str | None = None, *, as_json: bool = False
) -> str:
    """The kernel IR that `compile` renders, as text for people, or as a JSON list of kernels.
    Raises as `compile` does."""
    _, kernels = make_kernels(function, target, profile)
    if as_json:
        return f"[{', '.join(map(kernel_to_json, kernels))}]"
    return "\n\n".join(map(print_kernel, kernels))


def describe_schedules(function: Function, target: str, profile: str | None = None) -> str:
    """The loops of each kernel that `compile` renders, one per line. Raises as `compile` does."""
    _, kernels = make_kernels(function, target, profile)
    described = ([f"kernel {n}", *(f"  {line}" for line in kernel.schedule)]
                 for n, kernel in enumerate(kernels))  # fmt: skip
    return "\n".join(line for lines in described for line in lines)


def make_kernels(
    function: Function,
    target: str = "opencl",
    profile: str | None = None,
    *,
    shader_model: str | None = None,
    steps: Steps = USUAL,
) -> tuple[Function, tuple[Kernel, ...]]:
    """The function as fusion leaves it, and its kernels in execution order, as `compile` renders
    them. Raises as `compile` does."""
    dialect = find_dialect(target, shader_model)
    shape = find_profile(profile or dialect.profiles[0])
    fusion, kernels = _lower(function, dialect, shape, steps)
    return fusion.function, tuple(kernel for made in kernels for kernel in made)


def compile_kernels(
    function: Function,
    target: str,
    profile: str | None = None,
    *,
    shader_model: str | None = None,
) -> tuple[Program, Function, tuple[Kernel, ...]]:
    """What `compile` gives and what `make_kernels` gives, lowered once."""
    dialect = find_dialect(target, shader_model)
    shape = find_profile(profile or dialect.profiles[0])
    fusion, kernels = _lower(function, dialect, shape)
    program = _render(function, fusion, kernels, dialect, shape)
    return program, fusion.function, tuple(kernel for made in kernels for kernel in made)


def make_budget(shape: Profile, limits: Limits) -> Budget:
    """What fusion may spend on a kind of device, in an output language."""
    return Budget(
        shape.bytes_per_operation,
        shape.launch_bytes,
        shape.cached_bytes,
        limits.buffers,
        lanes=shape.lanes,
        has_positions=shape.lanes == 1,
        held=shape.held * min(shape.holding, limits.group_size),
        paired_types=limits.word_types,
    )


def _lower(
    function: Function, dialect: Dialect, shape: Profile, steps: Steps = USUAL
) -> tuple[Fusion, tuple[tuple[Kernel, ...], ...]]:
    """The passes between the two IRs, each followed by the verifier: the kernels of each group."""
    verify(function)
    check_support(function, dialect, shape)
    check_open(function)
    rewritten = rewrite(function, shape.row)
    fusion = _fuse(rewritten, dialect, shape, steps)
    return fusion, tuple(
        steps.lower(fusion.function, group, shape, dialect.limits) for group in fusion.groups
    )


def _render(
    function: Function,
    fusion: Fusion,
    kernels: tuple[tuple[Kernel, ...], ...],
    dialect: Dialect,
    shape: Profile,
    root_signature: bool = True,
    contract: bool = False,
) -> Program:
    """The program of a function as it was bound, from the kernels of each group."""
    made = tuple(kernel for of_group in kernels for kernel in of_group)
    # Few work items with much to do each are what a CPU wants: these are counted for GPUs alone.
    tables = fusion.function.tables
    counted = [count_steps(kernel, tables) for kernel in made] if shape.group_size > 1 else []
    program = render(
        fusion.function,
        made,
        dialect,
        shape,
        root_signature=root_signature,
        origins=find_origins(fusion, kernels, counted),
        unfused=count_unfused(function),
        contract=contract,
    )
    slow = find_slow(fusion.function, made, counted) if counted else ()
    return dataclasses.replace(program, warnings=(*function.warnings, *slow))


def _fuse(rewritten: Function, dialect: Dialect, shape: Profile, steps: Steps = USUAL) -> Fusion:
    fusion = steps.fuse(rewritten, shape.row, make_budget(shape, dialect.limits))
    verify(fusion.function, "fuse", rewritten)
    if isinstance(dialect.storage[DataType.BOOL], Unsupported):
        widened = widen_booleans(fusion.function)
        verify(widened, "widen_booleans")
        fusion = dataclasses.replace(fusion, function=widened)
    return fusion
