"""Puts the stages of a bound operator among those of a graph, and drops what no result needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.source import Span


def rename_stage(stage: ir.Stage, names: Mapping[str, str], span: Span | None) -> ir.Stage:
    """The stage under its new name, reading tensors under theirs; a name that is not among
    `names` stays. `span` is where the stage is said to come from."""
    instructions = tuple(
        ir.Load(names[i.tensor], i.indices, i.dtype)
        if isinstance(i, ir.Load) and i.tensor in names
        else i
        for i in stage.body.instructions
    )
    body = ir.Body(instructions, stage.body.result, stage.body.guard)
    name = names.get(stage.name, stage.name)
    return ir.Stage(name, stage.dtype, stage.domain, body, stage.reduction, span or stage.span)


def drop_unread(stages: Sequence[ir.Stage], results: Sequence[str]) -> tuple[ir.Stage, ...]:
    """The stages that lead to a result, in order."""
    needed = set(results)
    kept: list[ir.Stage] = []
    for stage in reversed(stages):
        if stage.name in needed:
            kept.append(stage)
            needed.update(load.tensor for load in stage.body.loads())
    return tuple(reversed(kept))
