"""A stage's formula without its indices, short enough for a box: `max(x * scale, 0)`.

A tensor read at the stage's own position, broadcast or not, is its name alone; read elsewhere, it
has an ellipsis for a position. `dmlc.kernel.formula` spells formulas in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.ir import Constant, Index, Load, Stage, operands
from dmlc.kernel.formula import spell_body
from dmlc.picture.lettering import TIMES

_LONGEST = 300
"""Characters of a formula; a longer one is only summed up."""


def summarize(stage: Stage) -> str:
    """The right side of a stage's formula."""
    reduction = stage.reduction
    axes = dict(reduction.axes) if reduction is not None else {}

    def read(load: Load, positions: Sequence[str]) -> str:
        if _is_plain(stage, load, axes):
            return load.tensor
        return f"{load.tensor}[…]"

    text, guard = spell_body(stage.body, read, _LONGEST)
    if reduction is None:
        return text
    where = ""
    if guard:
        where = f" where {guard}" if _asks_data(stage) else ", within bounds,"
    if all(_is_plain(stage, load, axes) for load in stage.body.loads()):
        over = ("axes " if len(axes) > 1 else "axis ") + ", ".join(str(label) for label in axes)
        return f"{reduction.combiner} over {over}{where} of {text}"
    counts = TIMES.join(str(extent) for extent in axes.values())
    return f"{reduction.combiner} over {counts} places{where} of {text}"


def _asks_data(stage: Stage) -> bool:
    """Whether a guard looks at tensors, and not at positions alone."""
    guard = stage.body.guard
    pending = [] if guard is None else [guard]
    while pending:
        instruction = stage.body.instructions[pending.pop()]
        if isinstance(instruction, Load):
            return True
        pending.extend(operands(instruction))
    return False


def _is_plain(stage: Stage, load: Load, axes: Mapping[int, object]) -> bool:
    """Whether a tensor is read where the stage itself stands, along the axes it has: all that the
    stage has, or some of them in order."""
    rank = max([len(stage.extents), *(label + 1 for label in axes)])
    last = -1
    for axis, number in enumerate(load.indices):
        position = stage.body.instructions[number]
        if isinstance(position, Constant) and position.value == 0:
            continue
        if not isinstance(position, Index) or position.axis <= last:
            return False
        if len(load.indices) == rank and position.axis != axis:
            return False
        last = position.axis
    return True
