"""Contents of a picture as plain data: kernels with their stages and the values between these, and
the memory traffic of each kernel; for unfused stages and after fusion.

Bytes, groups and reasons are from the report (`dmlc.report`); this module adds the data flow inside
kernels. `compose`, `svg`, `dot` and `text` draw it.
"""

from __future__ import annotations

import dataclasses
import itertools
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
from dmlc.report import KernelWork, Report
from dmlc.scalars import DataType
from dmlc.source import Span
from dmlc.transform.traffic import Move, count_bytes, list_moves


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """Tensor in memory. `bytes` is None if a size is known only at run time."""

    name: str
    dtype: str
    sizes: tuple[int | str, ...]
    bytes: int | None
    open_bytes: str
    """Bytes of a tensor with sizes known only at run time: `4 B` times `n`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """Stage as one kernel computes it: its name, its formula, and its elements' type and sizes."""

    name: str
    formula: str
    dtype: str
    sizes: tuple[int | str, ...]
    folds: bool
    """Whether it is a reduction."""
    call: str | None = None
    """Call that it comes from, if any."""
    members: tuple[str, ...] = ()
    """Names of all stages in the chain that it stands for."""
    combined: bool = False
    """Whether it combines partial results of another kernel."""


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """Tensor that a kernel reads from memory or writes to it, `times` over."""

    tensor: str
    bytes: int | None
    """Bytes of all times together."""
    text: str
    """Bytes in words: `25.7 MB`, multiplied if the whole tensor is moved several times; with sizes
    known only at run time, `4 B` times their names."""
    times: int = 1
    step: str = ""
    """Step that computes a tensor written."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """Work of one launch: its steps in order, the values between them, and its memory traffic.
    `label` is its number, or `3 to 5` for a chain of kernels."""

    label: str
    launches: int
    steps: tuple[Step, ...]
    wires: tuple[Wire, ...]
    reads: tuple[Transfer, ...]
    writes: tuple[Transfer, ...]
    reason: str = ""
    group: int | None = None
    """Number of the group that it computes with other kernels; None for a kernel by itself."""
    launch: KernelWork | None = None
    """Launch with its work items; None before fusion, where nothing is compiled."""
    figures: Figures | None = None
    """Figures of a kernel for a GPU with known sizes."""
    inside: tuple[Move, ...] = ()
    """Tensors that it stores and reads back itself."""
    kind: str = "kernel"
    """`group` if it stands for all kernels of one."""

    @property
    def title(self) -> str:
        """Name for people: `kernel 3`."""
        return f"{self.kind} {self.label}"

    @property
    def read_bytes(self) -> int | None:
        return add((*(t.bytes for t in self.reads), *(m.read for m in self.inside)))

    @property
    def written_bytes(self) -> int | None:
        return add(t.bytes for t in self.writes)


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Way to run a graph: its kernels in execution order, and the peak size of tensors between
    kernels."""

    kernels: tuple[Kernel, ...]
    scratch: int | None

    @property
    def groups(self) -> list[list[Kernel]]:
        """Kernels in order, with those of one group together."""
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
        """Bytes read and written in all."""
        return add((self.read_bytes, self.written_bytes))


@dataclasses.dataclass(frozen=True, slots=True)
class GraphCall:
    """Call of an operator in a graph, or a gradient: the name in its statement, the operator's name
    without its module, and its span."""

    name: str
    operator: str
    span: Span


@dataclasses.dataclass(frozen=True, slots=True)
class Diagram:
    """Graph, or operator, before and after fusion."""

    name: str
    tensors: Mapping[str, Tensor]
    """Tensors in memory in either view."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    before: View
    after: View
    calls: Mapping[str, str]
    """Operator of each call of a graph, by the name in its statement."""


VIEWS = ("before", "after")


def find_view(diagram: Diagram, name: str) -> View:
    """View of a name in `VIEWS`."""
    return diagram.before if name == "before" else diagram.after


def make_diagram(report: Report, calls: Sequence[GraphCall] = ()) -> Diagram:
    """Diagram of a compiled function; `calls` are those of its graph."""
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
    """Tensors in memory before fusion and after it."""
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
    """Calls of operators in a graph, and its gradients, in order."""
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
    """Call of each stage: the one whose span contains the stage's."""

    def __init__(self, calls: Sequence[GraphCall]) -> None:
        self._names = {_place(call.span): call.name for call in calls}

    def find(self, stage: Stage) -> str | None:
        return None if stage.span is None else self._names.get(_place(stage.span))


def _place(span: Span) -> tuple[str, int, int]:
    return span.source.name, span.start, span.end


def list_unfused(function: Function, origins: Origins) -> tuple[Kernel, ...]:
    """Kernel for each stage of a function, which reads and writes whole tensors."""
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
    """Kernels after fusion, with their stages from before it."""
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
    """Groups after fusion, each in the form of one kernel."""
    kernels: list[Kernel] = []
    for work, group in zip(report.after, report.fusion.groups, strict=True):
        moves = report.fusion.list_moves(group)
        stages = work.stages
        launch = KernelWork("", stages, stages, moves, (), None, 1, None, None)
        kernel = _make_kernel(report, launch, tensors, origins)
        label = str(len(kernels) + 1)
        kernels.append(dataclasses.replace(kernel, label=label, reason=work.reason, kind="group"))
    return tuple(kernels)


def _make_kernel(
    report: Report, launch: KernelWork, tensors: Mapping[str, Tensor], origins: Origins
) -> Kernel:
    """Work and traffic of a launch."""
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
    """Stage as a kernel computes it, whole or in a role given by `Joint.find_role`."""
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
    """Bytes of a tensor, times the sizes known only at run time."""
    known = math.prod(size for size in sizes if isinstance(size, int)) * dtype.bytes
    symbols = [size for size in sizes if isinstance(size, str)]
    shown = [size if size.isidentifier() else f"({size})" for size in symbols]
    return f" {TIMES} ".join([show_bytes(known), *shown])


def find_peak(kernels: Sequence[Kernel], outputs: Sequence[str]) -> int | None:
    """Peak of the bytes of tensors between kernels, each live from the kernel that writes it to the
    last that reads it; None if a size is known only at run time."""
    last = {t.tensor: at for at, kernel in enumerate(kernels) for t in kernel.reads}
    changes = [0] * (len(kernels) + 1)
    for at, kernel in enumerate(kernels):
        for transfer in kernel.writes:
            if transfer.tensor not in outputs:
                if transfer.bytes is None:
                    return None
                changes[at] += transfer.bytes
                changes[max(at, last.get(transfer.tensor, at)) + 1] -= transfer.bytes
    return max(itertools.accumulate(changes))


def add(counts: Iterable[int | None]) -> int | None:
    """Sum, None if a summand is."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
