"""Kernels whose statements come from text: templates of the kernel IR's text form."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.ir.naming import take_name
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import ZERO, guard, name_sizes, operate, size
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.names import Names
from dmlc.kernel.parse import parse_body
from dmlc.kernel.passes import run_passes
from dmlc.kernel.rewrite import map_all, map_operands
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.arrange import collapse
from dmlc.loops.element import collect_elements
from dmlc.loops.phases import Phase
from dmlc.lowering.assemble import ACCESS, check_limits, find_index, lay_in_rows, make_kernel
from dmlc.scalars import DataType
from dmlc.sizes import Measure, Size, as_extent, multiply, pack_strides
from dmlc.templates import load_template
from dmlc.transform.traffic import count_bytes


class Texts:
    """Generator of the kernels of a stage and of its derived stages."""

    def __init__(self, function: ir.Function, stage: str, limits: Limits) -> None:
        self.function, self._stage, self._limits = function, stage, limits
        self._names = dict.fromkeys(function.tensors())
        self.kernels: list[k.Kernel] = []

    def make_buffer(self, what: str, dtype: DataType, count: Measure) -> k.Buffer:
        """Memory of `count` elements between two kernels."""
        name = take_name(f"{self._stage}_{what}", self._names)
        size = count * dtype.bytes if isinstance(count, int) else None
        return k.Buffer(name, dtype, k.Access.READ, as_extent(count), size)

    def find_buffer(self, name: str) -> k.Buffer:
        """Memory of a tensor of the function."""
        tensor = self.function.tensors()[name]
        return k.Buffer(name, tensor.dtype, k.Access.READ, None, count_bytes(tensor))

    def add(
        self, template: str, values: Mapping[str, object], arrays: Mapping[str, k.Array],
        read: Sequence[k.Buffer], written: Sequence[k.Buffer], stages: tuple[str, ...],
        groups: Measure, lanes: int, most: Measure, words: tuple[str, ...],
    ) -> None:  # fmt: skip
        """Adds a kernel of `groups` groups of `lanes` items, with indices below `most`. The
        template gets the names of the arrays and the `values`; open sizes among these become
        arguments. `words` describe the loops and the order of computation."""
        limits, (*loops, walk) = self._limits, words
        largest = most if isinstance(most, int) else 0
        buffers = tuple(
            dataclasses.replace(b, access=ACCESS[b in read, b in written])
            for b in dict.fromkeys((*read, *written))
        )
        check_limits(self.function, largest, len(buffers), limits)
        names = Names(buffer.name for buffer in buffers)
        own = {what: dataclasses.replace(a, name=names.take(what)) for what, a in arrays.items()}
        place = find_index(largest, (0, 0), limits)
        # The last row of groups may have idle ones.
        row = lay_in_rows(groups, 1, limits.row) if isinstance(groups, int) else limits.row
        made = k.Kernel(
            self.function.name,
            buffers,
            (),
            k.Launch(as_extent(groups), 1, lanes, row),
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
        sizes = {what: size(value) for what, value in values.items() if isinstance(value, Size)}
        told = {**values, **{what: what for what in sizes}}
        text = load_template(template).render(lanes=lanes, **{**named, **told})
        body: Sequence[k.Statement] = map_all(parse_body(made, text, template, sizes), _shorten)
        if row is not None:
            body = guard([operate("lt", k.Position(k.Geometry.GROUP), size(groups))], body)
        body, scalars = name_sizes(body, names)
        made = dataclasses.replace(made, body=tuple(body), scalars=scalars)
        self.kernels.append(run_passes(made, self.function, limits))

    def finish(self, apart: str) -> tuple[k.Kernel, ...]:
        """All kernels, in execution order, with the reason if there are several."""
        if len(self.kernels) == 1:
            return tuple(self.kernels)
        return tuple(dataclasses.replace(kernel, apart=apart) for kernel in self.kernels)


def _shorten(expression: k.Expression) -> k.Expression:
    """Expression without additions of 0 and multiplications or divisions by 1."""
    made = map_operands(expression, _shorten)
    if not isinstance(made, k.Operate) or made.type != k.INDEX:
        return made
    left, *right = (o.value if isinstance(o, k.Literal) else None for o in made.operands)
    match made.operation.name, left, *right:
        case ("add" | "sub", _, 0) | ("mul" | "div", _, 1):
            return made.operands[0]
        case ("add", 0, _) | ("mul", 1, _):
            return made.operands[1]
        case ("mul", 0, _) | ("mul", _, 0) | ("div" | "mod", 0, _) | ("mod", _, 1):
            return ZERO
        case _:
            return made


def show(size: Measure) -> str:
    """A size for readers."""
    return f"{size:,}" if isinstance(size, int) else str(size)


def find_source(
    texts: Texts, stage: ir.Stage, body: ir.Body, profile: Profile, limits: Limits
) -> k.Buffer:
    """Memory of a body's value over a stage's domain: that of the tensor that it reads in order, or
    else memory between two kernels, of which the first computes it."""
    function, load = texts.function, body.instructions[body.result]
    own = ir.Stage(f"{stage.name}_numbers", body.dtype, stage.extents, body)
    if isinstance(load, ir.Load) and ir.reads_own_place(own, load):
        packed = tuple(map(as_extent, pack_strides(stage.extents)))
        there = pack_strides(function.tensors()[load.tensor].extents)
        if function.strides(load.tensor) == packed == tuple(map(as_extent, there)):
            return texts.find_buffer(load.tensor)
    buffer = texts.make_buffer("numbers", body.dtype, multiply(stage.extents))
    own = dataclasses.replace(own, name=buffer.name)
    known = dataclasses.replace(function, stages=(*function.stages, own))
    elements = collect_elements(known, (own.name,))
    phases, read = (Phase(collapse(elements)),), (stage.name,)
    kernel = make_kernel(known, phases, (own.name,), (read,), profile, limits)
    buffers = tuple(
        dataclasses.replace(b, count=buffer.count) if b.name == buffer.name else b
        for b in kernel.buffers
    )
    texts.kernels.append(dataclasses.replace(kernel, buffers=buffers, stages=read))
    return buffer
