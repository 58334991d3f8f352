"""Renders kernels of the kernel IR as a `Program`: source files, and their launches.

The dialect spells constructs, the template has the layout of a file; this module collects the data
of templates and hosts.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import textwrap
from collections.abc import Callable, Sequence

from dmlc import ir
from dmlc.buffer_plan import Need, Occupants, plan_buffers
from dmlc.codegen.dialect import BufferView, Dialect, ScalarView, SourceParts
from dmlc.codegen.functions import match_names
from dmlc.codegen.names import (
    NAMES_KEPT,
    Mangler,
    free_name,
    make_comment,
    make_file_stem,
    make_identifier,
    wrap_comment,
)
from dmlc.codegen.simulate import Simulated
from dmlc.codegen.spell import PREFIX, Speller
from dmlc.kernel import nodes as k
from dmlc.kernel.target import RUN_TIME_COUNT, Profile
from dmlc.program import (
    STEP,
    VERSION,
    BufferBinding,
    Dispatch,
    KernelSource,
    Origin,
    Program,
    Repeat,
    Role,
    ScalarBinding,
    TensorSpec,
    Unfused,
)
from dmlc.scalars import DataType
from dmlc.sizes import LARGEST
from dmlc.templates import load_template

_SCRIPT_WIDTH = 94
"""Largest width of a line of calls."""
_STAYS = "\0"
"""Blank at which no line may be broken."""


def render(
    function: ir.Function,
    kernels: tuple[k.Kernel, ...],
    dialect: Dialect,
    profile: Profile,
    *,
    root_signature: bool = True,
    origins: Sequence[Origin] = (),
    unfused: Unfused | None = None,
    repeats: Sequence[Repeat] = (),
    interpreted: bool = False,
) -> Program:
    """Program of a function's kernels, in execution order; `origins` has the stages that each was
    made from, and `unfused` the kernels before fusion. HLSL has a root signature unless
    `root_signature` is false, for hosts that make their own. With `interpreted`, each kernel is
    kept beside its source, for a simulated device."""
    tensors = _list_tensors(function, kernels, dialect, repeats)
    sources: list[KernelSource] = []
    writers: dict[str, int] = {}
    users: dict[str, list[int]] = {}
    places = {t.name: (t.offset, t.bytes or 0) for t in tensors if t.offset is not None}
    occupants = Occupants()
    in_place = [t for t in tensors if t.in_place]
    for number, kernel in enumerate(kernels):
        read = [b.name for b in kernel.buffers if b.access is not k.Access.WRITE]
        before = {writers[name] for name in read if name in writers}
        for buffer in kernel.buffers:
            # Earlier users of the memory that is stored to must be finished.
            if buffer.access is not k.Access.READ and buffer.name not in writers:
                for other in occupants.replace(buffer.name, *places.get(buffer.name, (0, 0))):
                    before.update(n for n in users[other] if n < number)
            users.setdefault(buffer.name, []).append(number)
        after = tuple(sorted(before))
        name = kernel.name if len(kernels) == 1 else f"{kernel.name}_{number + 1}"
        sources.append(
            _render_kernel(
                function,
                kernel,
                name,
                after,
                dialect,
                in_place,
                root_signature,
                origins[number] if origins else Origin(),
            )
        )
        for buffer in kernel.buffers:
            if buffer.access is not k.Access.READ:
                writers[buffer.name] = number
    if interpreted:
        sources = [
            dataclasses.replace(source, interpreted=Simulated(kernel, dialect))
            for source, kernel in zip(sources, kernels, strict=True)
        ]
    # A step reads elements at other places than the one that it stores.
    stepwise = bool(repeats) or any(kernel.steps for kernel in kernels)
    elementwise = not stepwise and is_elementwise(function)
    return Program(
        function.name,
        dialect.language,
        profile.name,
        tensors,
        tuple(sources),
        find_most(kernels, RUN_TIME_COUNT if elementwise or not function.symbols() else LARGEST),
        elementwise,
        max((kernel.effort for kernel in kernels), default=1.0),
        function.checks,
        unfused,
        tuple(repeats),
        gpu_class=profile.device_class,
    )


def find_most(kernels: Sequence[k.Kernel], most: int) -> int:
    """Largest count given at run time, at most `most`, for which no index wraps in the idle work
    items of the last row of groups: a negative one would pass their guard."""
    for kernel in kernels:
        launch, size = kernel.launch, kernel.index_limits[1] + 1
        if isinstance(launch.count, str) and launch.count_groups(most) * launch.per_group > size:
            row = launch.per_group * (launch.row or 1)
            most = size // row * row
    return most


def is_elementwise(function: ir.Function) -> bool:
    """Whether every tensor is packed and has the one run-time size, and no value depends on an
    index: each element is computed from those at the same index."""
    extents = {p.extents for p in function.parameters} | {s.extents for s in function.stages}
    if len(extents) != 1 or [type(e) for e in next(iter(extents))] != [str]:
        return False
    if any(t.strides is not None for t in (*function.parameters, *function.results)):
        return False
    return all(_is_positionless(stage) for stage in function.stages)


def _is_positionless(stage: ir.Stage) -> bool:
    body = stage.body
    indices = {n for n, i in enumerate(body.instructions) if isinstance(i, ir.Index)}
    if stage.reduction is not None:
        return False
    for instruction in body.instructions:
        reads = [o in indices for o in ir.operands(instruction)]
        if any(reads) if not isinstance(instruction, ir.Load) else not all(reads):
            return False
    return True


def _list_tensors(
    function: ir.Function,
    kernels: tuple[k.Kernel, ...],
    dialect: Dialect,
    repeats: Sequence[Repeat],
) -> tuple[TensorSpec, ...]:
    specs = [
        TensorSpec(p.name, Role.INPUT, p.dtype, p.extents, ir.fixed_strides(p))
        for p in function.parameters
    ]
    used = {b.name for kernel in kernels for b in kernel.buffers}
    stages = {stage.name: stage for stage in function.stages}
    for result in function.results:
        stage = stages.pop(result.name)
        over = tuple(p for r, p in function.in_place if r == stage.name) if dialect.in_place else ()
        specs.append(
            TensorSpec(
                stage.name, Role.OUTPUT, stage.dtype, stage.extents, ir.fixed_strides(result), over
            )
        )
    specs += [
        TensorSpec(stage.name, Role.SCRATCH, stage.dtype, stage.extents)
        for stage in stages.values()
        if stage.name in used
    ]
    specs += [
        TensorSpec(table.name, Role.CONSTANT, table.dtype, table.extents, values=table.values)
        for table in function.tables
        if table.name in used
    ]
    between = {b.name: b for kernel in kernels for b in kernel.buffers if b.count is not None}
    specs += [
        TensorSpec(buffer.name, Role.SCRATCH, buffer.dtype, (buffer.count,))
        for buffer in between.values()
        if buffer.count is not None
    ]
    return tuple(_plan_scratch(function, kernels, dialect, specs, repeats))


def _plan_scratch(
    function: ir.Function,
    kernels: tuple[k.Kernel, ...],
    dialect: Dialect,
    specs: list[TensorSpec],
    repeats: Sequence[Repeat],
) -> list[TensorSpec]:
    """Tensors with lifetimes and offsets in scratch memory."""
    users: dict[str, list[int]] = {}
    repeated: set[str] = set()
    for number, kernel in enumerate(kernels):
        loop = next((r for r in repeats if r.first <= number <= r.last), None)
        for buffer in kernel.buffers:
            # A tensor that one step needs is needed by the next one too.
            span = [number] if loop is None else [loop.first, number, loop.last]
            users[buffer.name] = sorted([*users.get(buffer.name, ()), *span])
            if loop is not None or kernel.steps:
                repeated.add(buffer.name)
    needs: list[Need] = []
    for spec in specs:
        if spec.role is Role.SCRATCH and spec.bytes is not None:
            first, last = users[spec.name][0], users[spec.name][-1]
            over = _find_overwritten(function, spec.name) if dialect.in_place else None
            over = None if {over, spec.name} & repeated else over
            needs.append(Need(spec.name, spec.bytes, first, last, over))
    offsets = plan_buffers(needs)
    return [
        dataclasses.replace(
            spec,
            offset=offsets.get(spec.name),
            lifetime=(users[spec.name][0], users[spec.name][-1]),
        )
        if spec.role is Role.SCRATCH
        else spec
        for spec in specs
    ]


def _find_overwritten(function: ir.Function, name: str) -> str | None:
    """Stage that only `name` reads, element by element at its own index, and may be stored over."""
    stage, readers = function.stage(name), function.readers()
    if stage is None or stage.reduction is not None:
        return None
    for load in stage.body.loads():
        source = function.stage(load.tensor)
        if source is None or readers[source.name] != (name,):
            continue
        alike = (source.dtype, source.extents) == (stage.dtype, stage.extents)
        own = [i for i in stage.body.loads() if i.tensor == source.name]
        if alike and all(ir.reads_own_place(stage, i) for i in own):
            return source.name
    return None


def _render_kernel(
    function: ir.Function,
    kernel: k.Kernel,
    name: str,
    after: tuple[int, ...],
    dialect: Dialect,
    in_place: Sequence[TensorSpec],
    root_signature: bool,
    origin: Origin,
) -> KernelSource:
    reserved = _reserved_names(dialect)
    mangler = Mangler(reserved)
    wanted = dialect.entry_point or free_name(make_identifier(name), reserved)
    entry_point = mangler.take(wanted)
    for own in dialect.own_names:
        mangler.take(own)
    speller = Speller(dialect, kernel, mangler)
    buffers = _bind_buffers(kernel, dialect, mangler)
    scalars = _bind_scalars(kernel, len(buffers), mangler, function.symbols())
    private = speller.declare_arrays("    ")
    shared = [speller.spell_array(a) for a in kernel.arrays if a.shared]
    body = private + speller.spell_body()
    launch = kernel.launch
    shown = tuple(
        BufferView(
            b.name,
            make_comment(b.tensor),
            speller.name_element(b.tensor),
            b.dtype.name.lower() + _describe_words(b.dtype, dialect.of_buffer(held)),
            b.slot,
            b.written,
            "read and written" if b.read and b.written else "written" if b.written else "read",
        )
        for b, held in zip(buffers, kernel.buffers, strict=True)
    )
    run = function.run_symbol()
    scalar_views = tuple(
        ScalarView(s.name, speller.index_type, s.slot, _describe_size(s.value, run))
        for s in scalars
    )
    parts = SourceParts(
        shown,
        scalar_views,
        tuple(speller.helpers),
        frozenset(speller.dtypes),
        "\n".join([*(b.type for b in shown), *speller.helpers.values(), *body]),
        entry_point,
        root_signature,
    )
    source = load_template(dialect.template).render(
        operator=make_comment(function.name),
        version=VERSION,
        formulas=[line for text in kernel.summary for line in wrap_comment(make_comment(text))],
        launch=_describe_launch(kernel, scalars, dialect.item),
        row=launch.row,
        schedule=_show_schedule(kernel),
        buffers=shown,
        scalars=scalar_views,
        in_place=[
            f"{make_comment(t.name)} may be stored over {_join(t.in_place)}"
            for t in in_place
            if any(b.tensor == t.name and b.written for b in buffers)
        ],
        helpers=list(speller.helpers.values()),
        entry_point=entry_point,
        group_size=launch.group_size,
        subgroup=launch.subgroup,
        shared_arrays=shared,
        body=body,
        **dialect.details(parts),
    )
    return KernelSource(
        make_file_stem(name),
        entry_point,
        source,
        buffers,
        scalars,
        Dispatch(launch.count, launch.per_group, launch.group_size, launch.row),
        after,
        dialect.shader_model,
        origin,
        row=kernel.row,
        matrix=dialect.limits.instruction if kernel.matrices else None,
    )


@functools.cache
def _reserved_names(dialect: Dialect) -> Callable[[str], bool]:
    """Predicate of names that the language or a helper function uses."""
    types = "|".join(dialect.types.values())
    own = re.compile(rf"{match_names(dialect.helpers, types)}|{PREFIX}\w+")

    @functools.lru_cache(NAMES_KEPT)
    def reserved(name: str) -> bool:
        return dialect.reserved(name) or own.fullmatch(name) is not None

    return reserved


def _bind_buffers(
    kernel: k.Kernel, dialect: Dialect, mangler: Mangler
) -> tuple[BufferBinding, ...]:
    bindings: list[BufferBinding] = []
    counters = {False: 0, True: 0}
    for number, buffer in enumerate(kernel.buffers):
        written = buffer.access is not k.Access.READ
        slot = counters[written] if dialect.registers else number
        counters[written] += 1
        bindings.append(
            BufferBinding(
                mangler.spell(buffer.name),
                buffer.name,
                buffer.dtype,
                written,
                buffer.access is not k.Access.WRITE,
                slot,
                _structure_bytes(buffer, dialect),
            )
        )
    return tuple(bindings)


def _structure_bytes(buffer: k.Buffer, dialect: Dialect) -> int:
    size = buffer.dtype.bytes * buffer.lanes
    return max(4, size) if buffer.dtype in dialect.of_buffer(buffer).limits.packed_types else size


def _describe_words(dtype: DataType, dialect: Dialect) -> str:
    if dtype not in dialect.limits.packed_types:
        return ""
    return ", four to a word" if dtype.bytes == 1 else ", two to a word"


def _bind_scalars(
    kernel: k.Kernel, first: int, mangler: Mangler, symbols: Sequence[str]
) -> tuple[ScalarBinding, ...]:
    size = kernel.index_bits // 8
    # A function with a size of that name has no loop.
    spelled = {STEP: f"1 * {STEP}"} if STEP in symbols else {}
    return tuple(
        ScalarBinding(
            mangler.spell(scalar.name),
            spelled.get(str(value), value),
            kernel.index_bits,
            first + number,
            number * size,
        )
        for number, (scalar, value) in enumerate(kernel.scalars)
    )


def _show_schedule(kernel: k.Kernel) -> list[str]:
    """Row of the schedule table that a kernel's numbers belong to, and the calls of its script, as
    many per line as fit; or else its loops."""
    row = wrap_comment(make_comment(kernel.row)) if kernel.row else []
    if not kernel.script:
        return [*row, *(make_comment(line) for line in kernel.schedule)]
    calls = (make_comment(call).replace(" ", _STAYS) for call in kernel.script)
    lines = textwrap.wrap("; ".join(calls), _SCRIPT_WIDTH, break_long_words=False)
    return [*row, *(line.replace(_STAYS, " ") for line in lines)]


def _describe_launch(kernel: k.Kernel, scalars: tuple[ScalarBinding, ...], item: str) -> str:
    launch = kernel.launch
    if scalars and scalars[0].value == launch.count and launch.per_group > 1:
        groups = f"ceil({scalars[0].name} / {launch.per_group:,}) groups"
    elif isinstance(launch.count, int):
        number = -(-launch.count // launch.per_group)
        groups = f"{number:,} group" if number == 1 else f"{number:,} groups"
    elif launch.per_group == 1:
        groups = f"{make_comment(launch.count)} groups"
    else:
        groups = f"ceil({make_comment(launch.count)} / {launch.per_group:,}) groups"
    items = f"1 {item}" if launch.group_size == 1 else f"{launch.group_size} {item}s"
    return f"{groups} of {items}; {kernel.walk}"


def _describe_size(value: int | str, run: str | None) -> str:
    """Description of a scalar for a person."""
    if isinstance(value, int) or value == run:
        return "the number of elements"
    return f"the size {value}" if value.isidentifier() else make_comment(value)


def _join(names: tuple[str, ...]) -> str:
    return " or ".join(make_comment(name) for name in names)
