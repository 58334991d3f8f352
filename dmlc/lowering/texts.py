"""Kernels whose statements are text: templates of the kernel IR as it is written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.ir.naming import take_name
from dmlc.kernel import nodes as k
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.names import Names
from dmlc.kernel.parse import parse_body
from dmlc.kernel.passes import run_passes
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.element import collect_elements
from dmlc.loops.phases import Phase
from dmlc.loops.space import collapse
from dmlc.lowering.assemble import ACCESS, check_limits, find_index, lay_in_rows, make_kernel
from dmlc.scalars import DataType
from dmlc.templates import load_template


class Texts:
    """Writes the kernels of a stage, and of what is computed with it."""

    def __init__(self, function: ir.Function, stage: str, limits: Limits) -> None:
        self.function, self._stage, self._limits = function, stage, limits
        self._names = dict.fromkeys(function.tensors())
        self.kernels: list[k.Kernel] = []

    def make_buffer(self, what: str, dtype: DataType, count: int) -> k.Buffer:
        """Memory of so many elements between two kernels."""
        name = take_name(f"{self._stage}_{what}", self._names)
        return k.Buffer(name, dtype, k.Access.READ, count, count * dtype.bytes)

    def add(
        self, template: str, values: Mapping[str, object], arrays: Mapping[str, k.Array],
        read: Sequence[k.Buffer], written: Sequence[k.Buffer], stages: tuple[str, ...],
        groups: int, lanes: int, largest: int, words: tuple[str, ...],
    ) -> None:  # fmt: skip
        """Adds a kernel of so many groups, with positions up to the `largest`. The template is told
        the names of the arrays besides the `values`. The `words` are the loops, and how it goes
        through them."""
        limits, (*loops, walk) = self._limits, words
        buffers = tuple(
            dataclasses.replace(b, access=ACCESS[b in read, b in written])
            for b in dict.fromkeys((*read, *written))
        )
        check_limits(self.function, largest, len(buffers), limits)
        names = Names(buffer.name for buffer in buffers)
        own = {what: dataclasses.replace(a, name=names.take(what)) for what, a in arrays.items()}
        place = find_index(largest, (0, 0), limits)
        made = k.Kernel(
            self.function.name,
            buffers,
            (),
            k.Launch(groups, 1, lanes, lay_in_rows(groups, 1, limits.row)),
            (),
            place.bits,
            tuple(describe_stage(self.function, name) for name in stages),
            walk,
            tuple(own.values()),
            1.0,
            place.signed,
            stages,
            schedule=tuple(f"{'  ' * depth}{loop}" for depth, loop in enumerate(loops)),
            title=written[-1].name,
        )
        named = {what: array.name for what, array in own.items()}
        text = load_template(template).render(lanes=lanes, groups=groups, **{**named, **values})
        made = dataclasses.replace(made, body=parse_body(made, text, template))
        self.kernels.append(run_passes(made, self.function, limits))

    def finish(self, apart: str) -> tuple[k.Kernel, ...]:
        """All kernels, in the order they run, with why there are several, where there are."""
        if len(self.kernels) == 1:
            return tuple(self.kernels)
        return tuple(dataclasses.replace(kernel, apart=apart) for kernel in self.kernels)


def find_source(
    texts: Texts, stage: ir.Stage, body: ir.Body, profile: Profile, limits: Limits
) -> k.Buffer:
    """The memory of what a body says of each place of a stage's domain, in its order: that of the
    tensor that it reads, or else between two kernels, of which the first one computes it."""
    function, load = texts.function, body.instructions[body.result]
    sizes = tuple(extent for extent in stage.extents if isinstance(extent, int))
    own = ir.Stage(f"{stage.name}_numbers", body.dtype, stage.extents, body)
    if isinstance(load, ir.Load) and ir.reads_own_place(own, load):
        tensor = function.tensors()[load.tensor]
        if (
            function.strides(load.tensor)
            == ir.packed_strides(sizes)
            == ir.packed_strides(tuple(e for e in tensor.extents if isinstance(e, int)))
        ):
            size = math.prod(sizes) * tensor.dtype.bytes
            return k.Buffer(load.tensor, tensor.dtype, k.Access.READ, None, size)
    buffer = texts.make_buffer("numbers", body.dtype, math.prod(sizes))
    own = dataclasses.replace(own, name=buffer.name)
    known = dataclasses.replace(function, stages=(*function.stages, own))
    elements = collect_elements(known, (own.name,))
    phases, read = (Phase(elements, collapse(elements)),), (stage.name,)
    kernel = make_kernel(known, phases, (own.name,), (read,), profile, limits)
    buffers = tuple(
        dataclasses.replace(b, count=buffer.count) if b.name == buffer.name else b
        for b in kernel.buffers
    )
    texts.kernels.append(dataclasses.replace(kernel, buffers=buffers, stages=read))
    return buffer
