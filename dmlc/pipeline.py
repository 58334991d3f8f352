"""The compiler in one line: from a bound function to a program.

tensor IR -> parts, one for each loop over time -> simplify -> scan in blocks -> sort by ranks
-> narrow -> index inverses -> take out factors -> saturate positions -> fuse
-> kernel IR (lower, per group of stages) -> render -> Program
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

from dmlc.alike import Alike
from dmlc.binding import Graph, Operator
from dmlc.catalog import find_function
from dmlc.codegen.dialect import Dialect
from dmlc.codegen.matrix_forms import use_matrices
from dmlc.codegen.render import render
from dmlc.codegen.support import check_support
from dmlc.codegen.targets import find_dialect
from dmlc.collection import throttle_garbage_collection
from dmlc.ir import Function
from dmlc.ir.verify import verify
from dmlc.kernel.join_steps import join_steps
from dmlc.kernel.json import kernel_to_json
from dmlc.kernel.nodes import Kernel
from dmlc.kernel.parts import Lowered, join_parts
from dmlc.kernel.passes import find_sizes
from dmlc.kernel.print import print_kernel
from dmlc.kernel.slow import find_slow, find_slow_open
from dmlc.kernel.steps import count_steps
from dmlc.kernel.target import Limits, Profile, Subject
from dmlc.kernel.verify import verify_kernel
from dmlc.loops.nodes import Nest
from dmlc.loops.sections import Sections, print_sections, read_sections
from dmlc.lowering.group import find_subject, lower_group
from dmlc.lowering.versions import lower_versions
from dmlc.matrices import Instruction, find_instruction
from dmlc.parameters import (
    expect,
    expect_flag,
    expect_integer,
    expect_items,
    expect_text,
    wrong_kind,
)
from dmlc.program import FLOAT_WIDTHS, Origin, Program, Repeat
from dmlc.progress import track
from dmlc.report import Report, Trace, count_operations, count_unfused, find_origins, make_report
from dmlc.scalars import DataType
from dmlc.scalars.operation import Unsupported
from dmlc.schedules.table import choose_profile
from dmlc.sizes import show_count
from dmlc.source import Diagnostic, Source, UnsupportedError
from dmlc.transform.cost import Budget
from dmlc.transform.crowded import split_crowded
from dmlc.transform.fuse import Fusion, Group, add_pieces, fuse
from dmlc.transform.loops import Part, part_loops
from dmlc.transform.open_sizes import check_open
from dmlc.transform.quotients import round_quotients
from dmlc.transform.rewrite import rewrite, run_passes
from dmlc.transform.simplify import drop_marks
from dmlc.transform.storage import narrow_positions, widen_booleans
from dmlc.transform.traffic import total


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """Steps from a function to its kernels that determine how these compute, and never the results.
    Tests of the compiler or of a driver replace them."""

    fuse: Callable[[Function, int, Budget], Fusion] = fuse
    """Fusion of stages into kernels: see `fuse.fuse`."""
    lower: Callable[[Function, Group, Profile, Limits], tuple[Kernel, ...]] = lower_group
    """Lowering of a group of stages to kernels: see `group.lower_group`."""
    schedule: Source | None = None
    """User's schedules for some kernels: see `loops.sections`. With them, `lower` is the
    default."""
    instructions: tuple[Instruction, ...] = ()
    """Matrix instructions for additional kernels, of which devices choose."""
    gpu_class: str | None = None
    """Class of GPUs whose rows of the schedule table are used; None for those for any GPU."""
    table: Source | None = None
    """User's rows: see `schedules.table`."""
    joins: bool = True
    """Whether one kernel executes all steps of a loop over time if that is faster than launches for
    each step."""


USUAL = Steps()
_APART = "its parts are fused one by one: there is no one fusion to describe"


@throttle_garbage_collection()
def compile(
    function: Function | Operator | Graph | str,
    target: str = "opencl",
    profile: str | None = None,
    *,
    root_signature: bool = True,
    shader_model: str | None = None,
    float_controls: Sequence[int] | None = None,
    schedule: str | Source | None = None,
    matrix_instructions: Sequence[str] = (),
    gpu_class: str | None = None,
    schedules: str | Source | None = None,
) -> Program:
    """Compiles a function for an output language and a kind of device.

    An operator, its name, or a graph stands for the function that it binds to without being told
    more: an element-wise operator needs no sizes.
    `target` is `opencl`, `hlsl` or `wgsl`; `profile` is `cpu` or `gpu`, by default what the target
    mostly runs on. HLSL carries its root signature, unless `root_signature` is false; it is written
    for `shader_model` 6.2, or 6.0 for devices without 16-bit types. `float_controls` are the widths
    in bits of the floats, all of 16, 32 and 64 by default, of which the SPIR-V of HLSL asks drivers
    to keep NaN, infinities and signs of zeros (`SignedZeroInfNanPreserve`). A device that does not
    list a width cannot take it.
    `schedule` is the text of `Program.with_schedule`, or that with a name.
    `matrix_instructions` are names of `matrices.INSTRUCTIONS`: products of halves then have kernels
    that use these, for Vulkan, beside the plain ones, and a host takes the first that its device
    has. Their results are within bounds, but their bits depend on the device.
    `gpu_class` names GPUs for which the schedule table has rows, such as `nvidia` or
    `nvidia.sm_90`; the profile is then `gpu`. `schedules` is a table of your own, as `dmlc tune`
    writes it: its rows go first. A row may change the order of sums, and says so.
    Raises `UnsupportedError` for what the target cannot express, before any lowering, and
    `DmlcError` for a schedule that is not legal.
    """
    steps = read_steps(schedule, matrix_instructions, gpu_class, schedules)
    dialect, shape = _find_kind(target, profile, shader_model, steps)
    widths = _read_widths(float_controls, dialect)
    expect_flag("root_signature", root_signature)
    bound = find_function(function)
    return _Compile(bound, dialect, shape, root_signature, widths, steps)(steps.schedule)


def as_source(given: str | Source | None, name: str = "schedule") -> Source | None:
    """Schedule file, or schedule table, from a caller's argument: its text, optionally with a
    name."""
    if given is None or isinstance(given, Source):
        return given
    return Source(f"<{name}>", expect_text(name, given))


def read_steps(
    schedule: str | Source | None = None,
    matrix_instructions: Sequence[str] = (),
    gpu_class: str | None = None,
    schedules: str | Source | None = None,
) -> Steps:
    """Steps for a caller's options: see `compile`."""
    if gpu_class is not None:
        expect_text("gpu_class", gpu_class)
    return Steps(
        schedule=as_source(schedule),
        instructions=read_instructions(matrix_instructions),
        gpu_class=gpu_class,
        table=as_source(schedules, "schedules"),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Compile:
    """Compilation of a function with any schedule."""

    function: Function
    dialect: Dialect
    shape: Profile
    root_signature: bool
    widths: tuple[int, ...]
    steps: Steps
    interpreted: bool = False

    def __call__(self, schedule: Source | None) -> Program:
        """Program with the kernels that use matrix instructions as alternatives."""
        steps = dataclasses.replace(self.steps, schedule=schedule)
        others = (use_matrices(self.dialect, row) for row in steps.instructions)
        made = [self._make(dialect, steps) for dialect in (self.dialect, *others)]
        return dataclasses.replace(functools.reduce(Program.with_alternatives, made), remake=self)

    def _make(self, dialect: Dialect, steps: Steps) -> Program:
        """Program in a dialect."""
        function, shape = self.function, self.shape
        lowered = _lower(function, dialect, shape, steps)
        program = _render(function, lowered, dialect, shape, self.root_signature, self.interpreted)
        kernels = (dataclasses.replace(k, float_controls=self.widths) for k in program.kernels)
        return dataclasses.replace(program, kernels=tuple(kernels))

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Functions do not go to other processes with programs."""
        return type(None), ()


def read_instructions(given: Sequence[str]) -> tuple[Instruction, ...]:
    """Matrix instructions that a caller names, without repetition."""
    items = expect_items("matrix_instructions", given, "a list of names")
    names = [expect_text("each of matrix_instructions", name) for name in items]
    return tuple(dict.fromkeys(map(find_instruction, names)))


def _read_widths(given: Sequence[int] | None, dialect: Dialect) -> tuple[int, ...]:
    """Float widths that a caller names, in ascending order."""
    if given is None:
        return FLOAT_WIDTHS
    expected = "a list of 16, 32 and 64, or some of these"
    items = expect_items("float_controls", given, expected)
    widths = {expect_integer("each of float_controls", width) for width in items}
    if not widths.issubset(FLOAT_WIDTHS):
        raise wrong_kind("float_controls", expected, given)
    if not dialect.shader_model:
        raise UnsupportedError(f"target '{dialect.language.target}' has no float controls")
    return tuple(sorted(widths))


@throttle_garbage_collection()
def compile_by(
    steps: Steps,
    function: Function,
    target: str = "opencl",
    profile: str | None = None,
    *,
    root_signature: bool = True,
    shader_model: str | None = None,
    interpreted: bool = False,
) -> Program:
    """Program of a function by some steps; with `interpreted`, one that keeps its kernels for a
    simulated device. Raises as `compile` does."""
    dialect, shape = _find_kind(target, profile, shader_model, steps)
    make = _Compile(function, dialect, shape, root_signature, FLOAT_WIDTHS, steps, interpreted)
    return make(steps.schedule)


@throttle_garbage_collection()
def explain(function: Function, target: str = "opencl", profile: str | None = None) -> Report:
    """Report on the program that `compile` makes of a function: bytes and kernels before and after
    fusion, with reasons. Its warnings are about slow code on GPUs, whatever the profile. Raises as
    `compile` does."""
    return _explain(function, target, profile)[0]


@throttle_garbage_collection()
def trace(function: Function, target: str = "opencl", profile: str | None = None) -> Trace:
    """Function after each pass, with `explain`'s report and `compile`'s program of it. Raises as
    `compile` does."""
    report, program = _explain(function, target, profile)
    return Trace(report, tuple(list_passes(function, target, profile)), program)


def list_passes(
    function: Function, target: str = "opencl", profile: str | None = None
) -> Iterator[tuple[str, Function]]:
    """Passes before fusion in the order of `compile`: the name of each of `rewrite.PASSES` and the
    function after it."""
    _, shape = _find_kind(target, profile)
    expect("function", function, Function, "an ir.Function")
    return run_passes(function, shape.row, walks=shape.walks)


def _explain(function: Function, target: str, profile: str | None) -> tuple[Report, Program]:
    dialect, shape = _find_kind(target, profile)
    function.refuse_loops(_APART)
    lowered = _lower(function, dialect, shape)
    program = _render(function, lowered, dialect, shape)
    ((_, fusion, kernels),) = lowered
    if not shape.grouped:
        slow = compile(function, target, "gpu").warnings
        program = dataclasses.replace(program, warnings=slow)
    return make_report(function, fusion, kernels, program), program


def find_fusion(function: Function, target: str = "opencl", profile: str | None = None) -> Fusion:
    """Fusion of `compile`: the stages that become kernels, in groups."""
    dialect, shape = _find_kind(target, profile)
    expect("function", function, Function, "an ir.Function")
    function.refuse_loops(_APART)
    return _fuse(rewrite(function, shape.row, walks=shape.walks), dialect, shape)


def list_subjects(
    function: Function, target: str = "opencl", profile: str | None = None
) -> list[Subject]:
    """Kernels of a function in the terms of the schedule table, without those that no row is for.
    Raises as `find_fusion` does."""
    dialect, shape = _find_kind(target, profile)
    fusion = find_fusion(function, target, profile)
    found = (find_subject(fusion.function, group, shape, dialect.limits) for group in fusion.groups)
    return [subject for subject in found if subject is not None]


def describe_kernels(
    function: Function,
    target: str,
    profile: str | None = None,
    *,
    as_json: bool = False,
    steps: Steps = USUAL,
) -> str:
    """Kernel IR that `compile` renders, as text for people, or as a JSON list of kernels. Raises as
    `compile` does."""
    _, kernels = make_kernels(function, target, profile, steps=steps)
    if as_json:
        return f"[{', '.join(map(kernel_to_json, kernels))}]"
    return "\n\n".join(map(print_kernel, kernels))


def describe_schedules(
    function: Function, target: str, profile: str | None = None, steps: Steps = USUAL
) -> str:
    """Script of each kernel that `compile` renders, in the form that `compile` accepts. Raises as
    `compile` does."""
    dialect, shape = _find_kind(target, profile, steps=steps)
    _, kernels = _join(function, _lower(function, dialect, shape, steps, apart=True))
    return print_sections(kernels, dialect.limits.target, shape)


def describe_nests(
    function: Function, target: str, profile: str | None = None, steps: Steps = USUAL
) -> str:
    """Loops of each kernel that `compile` renders, one per line. Raises as `compile` does."""
    dialect, shape = _find_kind(target, profile, steps=steps)
    nests: dict[str, Nest] = {}
    _, kernels = _join(function, _lower(function, dialect, shape, steps, nests, apart=True))
    lines: list[str] = []
    for kernel in kernels:
        # Kernels with handwritten statements have no nest.
        nest = nests.get(kernel.title)
        own = kernel.schedule if nest is None else str(nest).splitlines()
        lines += [f"kernel {kernel.title}", *(f"  {line}" for line in own)]
    return "\n".join(lines)


def _join(function: Function, lowered: tuple[Lowered, ...]) -> tuple[Function, tuple[Kernel, ...]]:
    """Function after fusion, and its kernels in execution order."""
    fused, groups = join_parts(function, lowered)
    return fused, tuple(kernel for group in groups for kernel in group)


def make_kernels(
    function: Function,
    target: str = "opencl",
    profile: str | None = None,
    *,
    shader_model: str | None = None,
    steps: Steps = USUAL,
    matrix_instruction: str | None = None,
) -> tuple[Function, tuple[Kernel, ...]]:
    """Function after fusion, and its kernels in execution order, as `compile` renders them: the
    plain ones, or those with a matrix instruction. Raises as `compile` does."""
    dialect, shape = _find_kind(target, profile, shader_model, steps)
    if matrix_instruction is not None:
        dialect = use_matrices(dialect, find_instruction(matrix_instruction))
    return _join(function, _lower(function, dialect, shape, steps))


def compile_kernels(
    function: Function,
    target: str,
    profile: str | None = None,
    *,
    shader_model: str | None = None,
    steps: Steps = USUAL,
) -> tuple[Program, Function, tuple[Kernel, ...]]:
    """Results of `compile` and of `make_kernels`, lowered once."""
    dialect, shape = _find_kind(target, profile, shader_model, steps)
    lowered = _lower(function, dialect, shape, steps)
    return _render(function, lowered, dialect, shape), *_join(function, lowered)


def make_budget(shape: Profile, limits: Limits) -> Budget:
    """Budget of fusion for a device profile, in an output language."""
    return Budget(
        shape.bytes_per_operation,
        shape.launch_bytes,
        shape.cached_bytes,
        limits.buffers,
        lanes=shape.lanes,
        has_positions=shape.lanes == 1,
        held=shape.held * min(shape.holding, limits.group_size),
        paired_types=limits.word_types,
        walks=shape.walks,
        least_rows=shape.online,
        least_run=shape.online_run,
        most_again=shape.again_size,
        groups=shape.groups,
        piece=shape.piece,
    )


def _find_kind(
    target: str,
    profile: str | None,
    shader_model: str | None = None,
    steps: Steps = USUAL,
) -> tuple[Dialect, Profile]:
    """Output language and device profile of a caller's arguments, with its rows of the schedule
    table."""
    expect_text("target", target, "the name of a target")
    for name, text in (("profile", profile), ("shader_model", shader_model)):
        if text is not None:
            expect_text(name, text)
    dialect = find_dialect(target, shader_model)
    shape = choose_profile(profile, dialect.profiles[0], steps.gpu_class, steps.table)
    return dialect.of_profile(shape), shape


def _lower(
    function: Function,
    dialect: Dialect,
    shape: Profile,
    steps: Steps = USUAL,
    seen: dict[str, Nest] | None = None,
    *,
    apart: bool = False,
) -> tuple[Lowered, ...]:
    """Lowers between the two IRs, with the verifier after each pass: returns the kernels of each
    group of each part. The default steps add the nest of each kernel to `seen`, by title. With
    `apart`, kernels that would be joined into one stay separate."""
    verify(function)
    function = drop_marks(function)
    if not dialect.limits.has_wide_positions:
        narrowed = narrow_positions(function)
        verify(narrowed, "narrow_positions", function)
        function = narrowed
    check_support(function, dialect, shape)
    check_open(function)
    own = Sections(seen=seen)
    if steps.schedule is not None:
        own = read_sections(steps.schedule, dialect.limits, shape)
    lowered: list[Lowered] = []
    joined: list[Lowered] = []
    for part in part_loops(function):
        if part.function is not function:
            verify(part.function, "part_loops")
            check_support(part.function, dialect, shape)
        rewritten = rewrite(part.function, shape.row, walks=shape.walks)
        fusion = _fuse(rewritten, dialect, shape, steps)
        found = whole = None
        if steps.joins and part.loop is not None and _is_short(fusion, shape):
            # What is stored for another kernel costs no launch.
            near = _fuse(rewritten, dialect, dataclasses.replace(shape, launch_bytes=0), steps)
            found = _lower_part(part, near, dialect, shape, steps, own)
            whole = _join_steps(found, dialect.limits)
        if found is None or whole is None:
            found = whole = _lower_part(part, fusion, dialect, shape, steps, own)
        lowered.append(found)
        joined.append(whole)
        own = own.follow(kernel for group in found[2] for kernel in group)
    own.check([kernel for _, _, groups in lowered for group in groups for kernel in group])
    return tuple(lowered if apart else joined)


def _lower_part(
    part: Part, fusion: Fusion, dialect: Dialect, shape: Profile, steps: Steps, own: Sections
) -> Lowered:
    """Kernels of each group of a part."""

    def make(
        function: Function, group: Group, profile: Profile, own: Sections
    ) -> tuple[Kernel, ...]:
        if steps.lower is lower_group:
            return lower_group(function, group, profile, dialect.limits, own)
        return steps.lower(function, group, profile, dialect.limits)

    def lower(function: Function, group: Group, own: Sections) -> tuple[Kernel, ...]:
        return lower_versions(function, group, shape, dialect.limits, make, own)

    # A test's lowering may know groups by their names.
    repeated = fusion.groups if steps.lower is lower_group else ()
    alike = Alike(fusion.function, repeated, lower, own)
    kernels = tuple(map(alike.lower, track("compiling kernels", fusion.groups)))
    return part, fusion, kernels


def _is_short(fusion: Fusion, shape: Profile) -> bool:
    """Whether one work group executes a step of a loop faster than the step's kernels are launched,
    at the speed of a core, or of one of the groups that keep a GPU busy."""
    moved = total(move for group in fusion.groups for move in fusion.list_moves(group))
    if moved is None:
        return False
    operations = sum(count_operations(fusion.function, stage) for stage in fusion.function.stages)
    alone = 1 if shape.group_size == 1 else shape.groups
    cost = (sum(moved) + operations * shape.bytes_per_operation) * alone
    return cost <= shape.launch_bytes * len(fusion.groups)


def _join_steps(lowered: Lowered, limits: Limits) -> Lowered | None:
    """Part of a function with one kernel for all steps of its loop, or None."""
    part, fusion, groups = lowered
    kernels, one_step = [kernel for group in groups for kernel in group], fusion.function.one_step
    joined = None if one_step is None or not kernels else join_steps(kernels, one_step, limits)
    if joined is None or one_step is None:
        return None
    sizes = find_sizes(fusion.function, joined)
    whole = {name: size for name, size in sizes.items() if name not in one_step.rows}
    verify_kernel(joined, "join_steps", whole)
    each = fusion.groups
    clauses = (f"one work group goes through all {show_count(one_step.steps)} steps",)
    group = Group(
        tuple(name for group in each for name in group.stages),
        tuple(dict.fromkeys([*clauses, *(c for group in each for c in group.reasons)])),
        inlined=tuple(dict.fromkeys(name for group in each for name in group.inlined)),
        local=tuple(name for group in each for name in group.local),
    )
    return part, dataclasses.replace(fusion, groups=(group,)), ((joined,),)


def _render(
    function: Function,
    lowered: tuple[Lowered, ...],
    dialect: Dialect,
    shape: Profile,
    root_signature: bool = True,
    interpreted: bool = False,
) -> Program:
    """Program of a function as it was bound, from the kernels of each part."""
    fused, kernels = _join(function, lowered)
    origins: list[Origin] = []
    repeats: list[Repeat] = []
    slow: list[Diagnostic] = []
    for part, fusion, groups in lowered:
        made = [kernel for group in groups for kernel in group]
        # Few work items with much to do each are what a CPU wants: these are counted for GPUs.
        tables = fusion.function.tables
        is_gpu = shape.group_size > 1
        counted = [count_steps(each, tables, traffic=False) for each in made] if is_gpu else []
        slow += find_slow(fusion.function, made, counted) if counted else ()
        slow += find_slow_open(fusion.function, made) if counted else ()
        if part.loop is not None and made and not made[0].steps:
            last = len(origins) + len(made) - 1
            repeats.append(Repeat(len(origins), last, part.steps, part.loop.backwards))
        origins += find_origins(fusion, groups, counted, part.steps)
    program = render(
        fused,
        kernels,
        dialect,
        shape,
        root_signature=root_signature,
        origins=origins,
        unfused=count_unfused(function),
        repeats=repeats,
        interpreted=interpreted,
    )
    return dataclasses.replace(program, warnings=(*function.warnings, *slow))


def _fuse(rewritten: Function, dialect: Dialect, shape: Profile, steps: Steps = USUAL) -> Fusion:
    split = split_crowded(rewritten, dialect.limits.buffers)
    if split is not rewritten:
        verify(split, "split_crowded", rewritten)
        rewritten = split
    budget = make_budget(shape, dialect.limits)
    fusion = steps.fuse(rewritten, shape.row, budget)
    verify(fusion.function, "fuse", rewritten)
    if isinstance(dialect.storage[DataType.BOOL], Unsupported):
        widened = widen_booleans(fusion.function)
        verify(widened, "widen_booleans")
        fusion = dataclasses.replace(fusion, function=widened)
    rounded = round_quotients(fusion.function)
    if rounded is not fusion.function:
        verify(rounded, "round_quotients", fusion.function)
        fusion = dataclasses.replace(fusion, function=rounded)
    fusion = add_pieces(fusion, budget)
    for group in fusion.groups:
        if group.pieces is not None:
            verify(group.pieces.function, "add_pieces")
    return fusion
