"""What a picture shows, as plain data: kernels with the stages in them and what these hand to one
another, and what each kernel moves to and from memory; for every stage by itself and fused.

Bytes, groups and reasons are the report's (`dmlc.report`); what is added here is how the stages
of a kernel are joined. How it looks is for `compose`, `svg`, `dot` and `text`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from dmlc import ir
from dmlc.binding import Graph
from dmlc.ir import Function, Stage
from dmlc.language.syntax import Call, Gradient
from dmlc.picture.formula import summarize
from dmlc.picture.joint import Joint, Wire
from dmlc.picture.lettering import TIMES, show_bytes
from dmlc.program import Figures
from dmlc.report import Launch, Report
from dmlc.scalars import DataType
from dmlc.source import Span
from dmlc.transform.traffic import Move, count_bytes, list_moves


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in memory. `bytes` is None where a size is known at run time only."""

    name: str
    dtype: str
    sizes: tuple[int | str, ...]
    bytes: int | None
    open_bytes: str
    """Its bytes where a size is known at run time only: `4 B` times `n`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A stage as one kernel computes it: its name, its formula, and its elements' type and
    sizes."""

    name: str
    formula: str
    dtype: str
    sizes: tuple[int | str, ...]
    folds: bool
    """Whether it is a reduction."""
    call: str | None = None
    """The call it comes from, where it comes from one."""
    members: tuple[str, ...] = ()
    """Where it stands for a chain of stages: all their names."""
    combined: bool = False
    """Whether it is put together from parts that another kernel has computed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor that a kernel reads from memory or writes to it, `times` over."""

    tensor: str
    bytes: int | None
    """Of all times together."""
    text: str
    """The bytes as people write them: `25.7 MB`, or how many times that where it is the whole
    tensor; where a size is known at run time only, `4 B` times its name."""
    times: int = 1
    step: str = ""
    """Of a tensor written: the step that it comes from."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """What one launch computes: its steps in order, what they hand to one another, and its memory
    traffic. `label` is its number, or `3 to 5` where it stands for a chain of kernels."""

    label: str
    launches: int
    steps: tuple[Step, ...]
    wires: tuple[Wire, ...]
    reads: tuple[Transfer, ...]
    writes: tuple[Transfer, ...]
    reason: str = ""
    group: int | None = None
    """The number of the group that it computes with other kernels; None where it does by itself."""
    launch: Launch | None = None
    """Its work items and what they do; None before fusion, where nothing is compiled."""
    figures: Figures | None = None
    """Where it is a GPU's and sizes are known."""
    inside: tuple[Move, ...] = ()
    """What it stores and reads back itself."""
    kind: str = "kernel"
    """`group` where it stands for all kernels of one."""

    @property
    def title(self) -> str:
        """Its name for people: `kernel 3`."""
        return f"{self.kind} {self.label}"

    @property
    def read_bytes(self) -> int | None:
        return add((*(t.bytes for t in self.reads), *(m.read for m in self.inside)))

    @property
    def written_bytes(self) -> int | None:
        return add(t.bytes for t in self.writes)


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """A way to run a graph: its kernels in execution order, and the most memory that tensors
    between kernels take at a time."""

    kernels: tuple[Kernel, ...]
    scratch: int | None

    @property
    def groups(self) -> list[list[Kernel]]:
        """The kernels in order, those of one group together."""
        groups: list[list[Kernel]] = []
        for kernel in self.kernels:
            if groups and kernel.group is not None and groups[-1][0].group == kernel.group:
                groups[-1].append(kernel)
            else:
                groups.append([kernel])
        return groups

    @property
    def launches(self) -> int:
        return sum(k.launches for k in self.kernels)

    @property
    def read_bytes(self) -> int | None:
        return add(k.read_bytes for k in self.kernels)

    @property
    def written_bytes(self) -> int | None:
        return add(k.written_bytes for k in self.kernels)

    @property
    def bytes(self) -> int | None:
        """All that is read and written."""
        return add((self.read_bytes, self.written_bytes))


@dataclasses.dataclass(frozen=True, slots=True)
class GraphCall:
    """A call of an operator in a graph, or a gradient: the name its statement gives it, the
    operator's name without its module, and where it stands."""

    name: str
    operator: str
    span: Span


@dataclasses.dataclass(frozen=True, slots=True)
class Diagram:
    """A graph, or an operator, before and after fusion."""

    name: str
    tensors: Mapping[str, Tensor]
    """All that is ever in memory, in both views."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    before: View
    after: View
    calls: Mapping[str, str]
    """The calls of a graph, by the names it gives them, and the operator each calls."""


VIEWS = ("before", "after")


def find_view(diagram: Diagram, name: str) -> View:
    """The view of a name in `VIEWS`."""
    return diagram.before if name == "before" else diagram.after


def make_diagram(report: Report, calls: Sequence[GraphCall] = ()) -> Diagram:
    """The diagram of what a function was compiled to; `calls` are those of the graph it was."""
    function = report.function
    tensors = list_tensors(report)
    inputs = tuple(p.name for p in function.parameters)
    outputs = tuple(r.name for r in function.results)
    origins = Origins(calls)
    before = list_unfused(function, origins)
    after = _list_launches(report, tensors, origins)
    return Diagram(
        report.name,
        tensors,
        inputs,
        outputs,
        View(before, find_peak(before, outputs)),
        View(after, report.peak_scratch),
        {call.name: call.operator for call in calls},
    )


def list_tensors(report: Report) -> dict[str, Tensor]:
    """All that is ever in memory, before fusion and after it."""
    tensors = {
        name: _describe(tensor)
        for source in (report.function, report.fusion.function)
        for name, tensor in source.tensors().items()
    }
    for work in report.after:
        for launch in work.launches:
            tensors |= {n: _make_parts(n, dtype, count) for n, dtype, count in launch.parts}
    return tensors


def list_calls(graph: Graph) -> tuple[GraphCall, ...]:
    """The calls of operators in a graph, and its gradients, in order."""
    known = graph.definition.operators
    found: list[GraphCall] = []
    for statement in graph.definition.syntax.statements:
        if isinstance(statement.value, Call):
            called = statement.value.function.span.text
            if called in known:
                short = known[called].name.rpartition(".")[2]
                found.append(GraphCall(statement.name.text, short, statement.value.span))
        elif isinstance(statement.value, Gradient):
            names = ", ".join(name.text for name in statement.names)
            found.append(GraphCall(names, "gradient", statement.value.span))
    return tuple(found)


class Origins:
    """Which call each stage comes from: the one whose place in the text the stage has."""

    def __init__(self, calls: Sequence[GraphCall]) -> None:
        self._names = {_place(call.span): call.name for call in calls}

    def find(self, stage: Stage) -> str | None:
        return None if stage.span is None else self._names.get(_place(stage.span))


def _place(span: Span) -> tuple[str, int, int]:
    return span.source.name, span.start, span.end


def list_unfused(function: Function, origins: Origins) -> tuple[Kernel, ...]:
    """A kernel for each stage of a function, which reads and writes whole tensors."""
    tensors = {n: _describe(t) for n, t in function.tensors().items()}
    kernels: list[Kernel] = []
    for number, stage in enumerate(function.stages, 1):
        moves = list_moves(function, (stage.name,))
        read = dict.fromkeys(load.tensor for load in stage.body.loads())
        kernels.append(
            Kernel(
                str(number),
                1,
                (_make_step(stage, origins),),
                tuple(Wire(name, stage.name, True) for name in read),
                tuple(_transfer(m, m.read, tensors) for m in moves if m.tensor != stage.name),
                tuple(
                    dataclasses.replace(_transfer(m, m.written, tensors), step=stage.name)
                    for m in moves
                    if m.tensor == stage.name
                ),
            )
        )
    return tuple(kernels)


def _list_launches(
    report: Report, tensors: Mapping[str, Tensor], origins: Origins
) -> tuple[Kernel, ...]:
    """The kernels after fusion, with the stages that they have from before it."""
    kernels: list[Kernel] = []
    for number, work in enumerate(report.after):
        alone = len(work.launches) == 1
        figures = dict(zip(work.kernels, work.figures, strict=False))
        for place, launch in enumerate(work.launches):
            kernel = _make_kernel(report, launch, tensors, origins)
            kernels.append(
                dataclasses.replace(
                    kernel,
                    label=str(len(kernels) + 1),
                    reason=work.reason if place == 0 else "",
                    group=None if alone else number,
                    launch=launch,
                    figures=figures.get(launch.name),
                )
            )
    return tuple(kernels)


def list_groups(
    report: Report, tensors: Mapping[str, Tensor], origins: Origins
) -> tuple[Kernel, ...]:
    """The groups after fusion, each as if one kernel computed it."""
    kernels: list[Kernel] = []
    for work, group in zip(report.after, report.fusion.groups, strict=True):
        moves = report.fusion.list_moves(group)
        stages = work.stages
        launch = Launch("", stages, stages, moves, (), None, 1, None, None)
        kernel = _make_kernel(report, launch, tensors, origins)
        label = str(len(kernels) + 1)
        kernels.append(dataclasses.replace(kernel, label=label, reason=work.reason, kind="group"))
    return tuple(kernels)


def _make_kernel(
    report: Report, launch: Launch, tensors: Mapping[str, Tensor], origins: Origins
) -> Kernel:
    """What a launch computes and moves."""
    whole, stored = report.fusion.unfused, report.fusion.function
    order = {s.name: at for at, s in reversed([*enumerate((*whole.stages, *stored.stages))])}
    joint = Joint(launch, whole, stored)
    steps = sorted(joint.steps.values(), key=lambda s: order[s.name])
    moves = {m.tensor: m for m in launch.moves}
    return Kernel(
        "",
        1,
        tuple(_make_step(s, origins, joint.find_role(s.name)) for s in steps),
        tuple(joint.wires),
        tuple(_transfer(moves[n], moves[n].read, tensors) for n in joint.read),
        tuple(
            dataclasses.replace(_transfer(moves[n], moves[n].written, tensors), step=s)
            for n, s in joint.sources.items()
        ),
        inside=tuple(Move(n, moves[n].read) for n in joint.written if moves[n].read != 0),
    )


def _transfer(move: Move, size: int | None, tensors: Mapping[str, Tensor]) -> Transfer:
    tensor = tensors[move.tensor]
    if size is None or tensor.bytes is None:
        return Transfer(tensor.name, None, tensor.open_bytes)
    if not size or size % tensor.bytes:
        return Transfer(tensor.name, size, show_bytes(size))
    times = size // tensor.bytes
    text = show_bytes(tensor.bytes)
    return Transfer(tensor.name, size, text if times == 1 else f"{times} {TIMES} {text}", times)


def _make_parts(name: str, dtype: DataType, count: int | str) -> Tensor:
    """Memory between the kernels of one group."""
    size = count * dtype.bytes if isinstance(count, int) else None
    return Tensor(name, dtype.short, (count,), size, _show_bytes(dtype, (count,)))


def _make_step(stage: Stage, origins: Origins, role: str = "") -> Step:
    """A stage as a kernel computes it, whole or in a role that `Joint.find_role` gives."""
    formula = summarize(stage)
    if stage.reduction is not None and role == "combined":
        formula = f"{stage.reduction.combiner} of the parts of {stage.name}"
    elif role == "parts":
        formula += ", in parts"
    return Step(
        stage.name,
        formula,
        stage.dtype.short,
        stage.extents,
        stage.reduction is not None,
        origins.find(stage),
        combined=role == "combined",
    )


def _describe(tensor: ir.Tensor) -> Tensor:
    sizes = tuple(tensor.extents)
    shown = _show_bytes(tensor.dtype, sizes)
    return Tensor(tensor.name, tensor.dtype.short, sizes, count_bytes(tensor), shown)


def _show_bytes(dtype: DataType, sizes: Sequence[int | str]) -> str:
    """The bytes of so many elements, times the sizes that are known at run time only."""
    known = math.prod(size for size in sizes if isinstance(size, int)) * dtype.bytes
    symbols = [size for size in sizes if isinstance(size, str)]
    shown = [size if size.isidentifier() else f"({size})" for size in symbols]
    return f" {TIMES} ".join([show_bytes(known), *shown])


def find_peak(kernels: Sequence[Kernel], outputs: Sequence[str]) -> int | None:
    """The most bytes that tensors between kernels take at once, each from the kernel that writes
    it to the last that reads it; None where a size is known at run time only."""
    made: dict[str, int] = {}
    last: dict[str, int] = {}
    changes: list[int] = [0] * (len(kernels) + 1)
    sizes: dict[str, int] = {}
    for at, kernel in enumerate(kernels):
        for transfer in kernel.writes:
            if transfer.tensor not in outputs:
                if transfer.bytes is None:
                    return None
                made[transfer.tensor] = last[transfer.tensor] = at
                sizes[transfer.tensor] = transfer.bytes
        for transfer in kernel.reads:
            if transfer.tensor in made:
                last[transfer.tensor] = at
    for name, at in made.items():
        changes[at] += sizes[name]
        changes[last[name] + 1] -= sizes[name]
    peak = total = 0
    for change in changes:
        total += change
        peak = max(peak, total)
    return peak


def add(counts: Iterable[int | None]) -> int | None:
    """A sum, unknown where a summand is."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
