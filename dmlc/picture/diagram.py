"""What a picture shows, as plain data: kernels with the stages in them, and what each moves to and
from memory, once for every stage by itself and once as `fuse` groups them.

Reads the functions before and after fusion; how it looks is for `compose`, `svg`, `dot` and
`text`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from dmlc.ir import Function, Parameter, Stage, Table
from dmlc.picture.formula import summarize
from dmlc.transform.fuse import Fusion, Group


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in memory. `bytes` is None where a size is known at run time only."""

    name: str
    dtype: str
    sizes: tuple[int | str, ...]
    bytes: int | None


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
    members: tuple[str, ...] = ()
    """Where it stands for a chain of stages: all their names."""


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor that a kernel reads from memory or writes to it, `times` over."""

    tensor: str
    bytes: int | None
    """Of all times together."""
    times: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Wire:
    """A value on its way inside a kernel: from a tensor read or from a step, to a step."""

    source: str
    target: str
    from_memory: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: its steps in order, what they hand to one another, and its memory traffic."""

    number: int
    steps: tuple[Step, ...]
    wires: tuple[Wire, ...]
    reads: tuple[Transfer, ...]
    writes: tuple[Transfer, ...]
    reason: str = ""

    @property
    def read_bytes(self) -> int | None:
        return _add(t.bytes for t in self.reads)

    @property
    def written_bytes(self) -> int | None:
        return _add(t.bytes for t in self.writes)


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """A way to run a graph: its kernels in execution order, and the most memory that tensors
    between kernels take at a time."""

    kernels: tuple[Kernel, ...]
    scratch: int | None

    @property
    def bytes(self) -> int | None:
        """All that is read and written."""
        return _add(b for k in self.kernels for b in (k.read_bytes, k.written_bytes))


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


def make_diagram(function: Function, rewritten: Function, fusion: Fusion) -> Diagram:
    """The diagram of a bound function, of what the passes before fusion made of it, and of the
    groups it was fused to."""
    before = _view_unfused(function)
    after = _view_fused(rewritten, fusion)
    tensors = {
        name: _describe(tensor)
        for source in (function, fusion.function)
        for name, tensor in source.tensors().items()
    }
    return Diagram(
        function.name,
        tensors,
        tuple(p.name for p in function.parameters),
        tuple(r.name for r in function.results),
        before,
        after,
    )


# Before -------------------------------------------------------------------------------------------


def _view_unfused(function: Function) -> View:
    """Each stage as a kernel of its own."""
    tensors = function.tensors()
    kernels: list[Kernel] = []
    for number, stage in enumerate(function.stages, 1):
        read = _list_reads(stage)
        kernels.append(
            Kernel(
                number,
                (_make_step(stage),),
                tuple(Wire(name, stage.name, True) for name in read),
                tuple(Transfer(name, count_bytes(tensors[name])) for name in read),
                (Transfer(stage.name, count_bytes(stage)),),
            )
        )
    return View(tuple(kernels), _find_peak(kernels, {r.name for r in function.results}, function))


# After --------------------------------------------------------------------------------------------


def _view_fused(rewritten: Function, fusion: Fusion) -> View:
    kernels = tuple(
        _make_kernel(number, group, rewritten, fusion)
        for number, group in enumerate(fusion.groups, 1)
    )
    results = {r.name for r in fusion.function.results}
    return View(kernels, _find_peak(kernels, results, fusion.function))


def _make_kernel(number: int, group: Group, rewritten: Function, fusion: Fusion) -> Kernel:
    fused = fusion.function
    tensors, originals = fused.tensors(), {s.name: s for s in rewritten.stages}
    stages = {s.name: s for s in fused.stages}
    own = set(group.stages)
    results = {r.name for r in fused.results}
    elsewhere = {n for s in fused.stages if s.name not in own for n in _list_reads(s)}
    steps: dict[str, Stage] = {}
    wires: dict[Wire, None] = {}
    for name in group.stages:
        # What the fused stage loads is in memory or in the kernel; what the stage it was made of
        # loads besides is computed where it is read.
        loaded = set(_list_reads(stages[name]))
        pending = [originals.get(name, stages[name])]
        seen = {name}
        while pending:
            stage = pending.pop()
            steps.setdefault(stage.name, stages[stage.name] if stage.name in own else stage)
            for read in _list_reads(stage):
                inside = read not in loaded and read in originals
                wires[Wire(read, stage.name, not inside and read not in own)] = None
                if inside and read not in seen:
                    seen.add(read)
                    pending.append(originals[read])
    order = {s.name: at for at, s in enumerate((*rewritten.stages, *fused.stages))}
    passes = [[m.stage for m in p.members] for p in group.passes] or [list(group.stages)]
    times: dict[str, int] = {}
    for members in passes:
        read = dict.fromkeys(n for m in members for n in _list_reads(stages[m]) if n not in own)
        for name in read:
            times[name] = times.get(name, 0) + 1
    near = set(own - results - elsewhere) if group.passes else set[str]()
    return Kernel(
        number,
        tuple(_make_step(s) for s in sorted(steps.values(), key=lambda s: order[s.name])),
        tuple(wires),
        tuple(_transfer(tensors[name], count) for name, count in times.items()),
        tuple(_transfer(stages[name], 1) for name in group.stages if name not in near),
        group.reason,
    )


def _transfer(tensor: Parameter | Table | Stage, times: int) -> Transfer:
    size = count_bytes(tensor)
    return Transfer(tensor.name, None if size is None else size * times, times)


# Both ---------------------------------------------------------------------------------------------


def _make_step(stage: Stage) -> Step:
    return Step(
        stage.name, summarize(stage), stage.dtype.short, stage.domain, stage.reduction is not None
    )


def _list_reads(stage: Stage) -> list[str]:
    return list(dict.fromkeys(load.tensor for load in stage.body.loads()))


def _describe(tensor: Parameter | Table | Stage) -> Tensor:
    extents = tensor.domain if isinstance(tensor, Stage) else tensor.extents
    return Tensor(tensor.name, tensor.dtype.short, tuple(extents), count_bytes(tensor))


def count_bytes(tensor: Parameter | Table | Stage) -> int | None:
    """The bytes of a tensor's elements, those that a stride of 0 repeats once; None where a size
    is known at run time only."""
    extents = tensor.domain if isinstance(tensor, Stage) else tensor.extents
    sizes = [e for e in extents if isinstance(e, int)]
    if len(sizes) != len(extents):
        return None
    if isinstance(tensor, Parameter) and tensor.strides is not None and 0 not in sizes:
        sizes = [n for n, stride in zip(sizes, tensor.strides, strict=True) if stride]
    return math.prod(sizes) * tensor.dtype.bytes


def _find_peak(
    kernels: Sequence[Kernel], results: set[str], function: Function
) -> int | None:
    """The most bytes that tensors between kernels take at once, each from the kernel that writes
    it to the last that reads it."""
    made: dict[str, int] = {}
    last: dict[str, int] = {}
    sizes: dict[str, int | None] = {}
    for at, kernel in enumerate(kernels):
        for transfer in kernel.writes:
            if transfer.tensor not in results:
                made[transfer.tensor] = last[transfer.tensor] = at
                sizes[transfer.tensor] = transfer.bytes
        for transfer in kernel.reads:
            if transfer.tensor in made:
                last[transfer.tensor] = at
    live = [0] * (len(kernels) + 1)
    for name, at in made.items():
        size = sizes[name]
        if size is None:
            return None
        live[at] += size
        live[last[name] + 1] -= size
    peak = total = 0
    for change in live:
        total += change
        peak = max(peak, total)
    return peak


def _add(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(c for c in known if c is not None)
