"""Kernels whose statements are text: templates of the kernel IR as it is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.ir.naming import take_name
from dmlc.kernel import nodes as k
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.names import Names
from dmlc.kernel.parse import parse_body
from dmlc.kernel.passes import run_passes
from dmlc.kernel.target import Limits
from dmlc.lowering.assemble import ACCESS, check_limits, find_index, lay_in_rows
from dmlc.scalars import DataType
from dmlc.templates import load_template


class Texts:
    """Writes the kernels of a stage, and of what is computed with it."""

    def __init__(self, function: ir.Function, stage: str, limits: Limits) -> None:
        self._function, self._stage, self._limits = function, stage, limits
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
        check_limits(self._function, largest, len(buffers), limits)
        names = Names(buffer.name for buffer in buffers)
        own = {what: dataclasses.replace(a, name=names.take(what)) for what, a in arrays.items()}
        place = find_index(largest, (0, 0), limits)
        made = k.Kernel(
            self._function.name,
            buffers,
            (),
            k.Launch(groups, 1, lanes, lay_in_rows(groups, 1, limits.row)),
            (),
            place.bits,
            tuple(describe_stage(self._function, name) for name in stages),
            walk,
            tuple(own.values()),
            1.0,
            place.signed,
            stages,
            (stages,),
            schedule=tuple(f"{'  ' * depth}{loop}" for depth, loop in enumerate(loops)),
            title=written[-1].name,
        )
        named = {what: array.name for what, array in own.items()}
        text = load_template(template).render(lanes=lanes, groups=groups, **{**named, **values})
        made = dataclasses.replace(made, body=parse_body(made, text, template))
        self.kernels.append(run_passes(made, self._function, limits))
