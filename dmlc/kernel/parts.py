"""Assembly of the kernels of a function's parts, with names of tensors unique over all parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.ir import Function, Stage, Table
from dmlc.ir.naming import take_name
from dmlc.kernel import nodes as k
from dmlc.kernel.rows import name_memory
from dmlc.transform.fuse import Fusion
from dmlc.transform.loops import Part
from dmlc.transform.simplify import rename_stage

Lowered = tuple[Part, Fusion, tuple[tuple[k.Kernel, ...], ...]]
"""A part of a function, its fusion, and the kernels of each of its groups."""


def join_parts(
    function: Function, parts: Sequence[Lowered]
) -> tuple[Function, tuple[tuple[k.Kernel, ...], ...]]:
    """Function with the tensors of all parts, and the kernels of all groups. A slice that the steps
    of a loop store becomes the whole tensor."""
    if len(parts) == 1 and parts[0][0].loop is None:
        ((_, fusion, kernels),) = parts
        return fusion.function, kernels
    taken = dict.fromkeys(function.tensors())
    stages: list[Stage] = []
    tables: dict[str, Table] = {table.name: table for table in function.tables}
    made: list[tuple[k.Kernel, ...]] = []
    for part, fusion, kernels in parts:
        names = _name_tensors(part, fusion.function, kernels, taken)
        stages += [_name_stage(function, part, s, names) for s in fusion.function.stages]
        for table in fusion.function.tables:
            tables[names[table.name]] = dataclasses.replace(table, name=names[table.name])
        made += [tuple(name_memory(kernel, names) for kernel in group) for group in kernels]
    joined = dataclasses.replace(
        function, stages=tuple(stages), tables=tuple(tables.values()), loops=(), in_place=()
    )
    return joined, tuple(made)


def _name_tensors(
    part: Part, fused: Function, kernels: Sequence[Sequence[k.Kernel]], taken: dict[str, None]
) -> dict[str, str]:
    """Unique names of a part's tensors."""
    one_step = part.function.one_step
    names = {name: name for name in part.function.tensors()}
    if one_step is not None:
        names |= {name: row.whole for name, row in one_step.rows.items()}
    between = [b.name for group in kernels for kernel in group for b in kernel.buffers]
    for name in (*fused.tensors(), *between):
        if name not in names:
            names[name] = take_name(name, taken)
    return names


def _name_stage(function: Function, part: Part, stage: Stage, names: Mapping[str, str]) -> Stage:
    """Stage under its unique name, with the extents of its whole tensor."""
    one_step = part.function.one_step
    whole = function.stage(stage.name) if one_step and stage.name in one_step.rows else None
    extents = stage.extents if whole is None else whole.extents
    return dataclasses.replace(rename_stage(stage, names), extents=extents)
