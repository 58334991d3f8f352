"""Formula of a stage, short enough for a box: `max(x * scale, 0)`.

A tensor read at the stage's own index, broadcast or not, is written as its name, if all tensors of
the formula are; if one is read elsewhere, all have their indices: `x[i0] + x[i0 + 1]`.
`dmlc.kernel.formula` writes formulas in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.ir import Constant, Index, Load, Stage
from dmlc.ir.index import find_index_only
from dmlc.kernel.formula import spell_body

_LONGEST = 400
"""Longest formula in characters; a longer one is summarised."""


def summarize(stage: Stage) -> str:
    """Right side of a stage's formula."""
    reduction = stage.reduction
    axes = dict(reduction.axes) if reduction is not None else {}
    plain = all(_is_plain(stage, load, axes) for load in stage.body.loads())

    def read(load: Load, positions: Sequence[str]) -> str:
        return load.tensor if plain else f"{load.tensor}[{', '.join(positions)}]"

    text, guard = spell_body(stage.body, read, _LONGEST)
    if reduction is None:
        return text
    where = f" where {guard}" if guard else ""
    if plain and (not guard or _reads_data(stage)):
        over = ("axes " if len(axes) > 1 else "axis ") + ", ".join(str(label) for label in axes)
    else:
        over = ", ".join(f"r{label} < {extent}" for label, extent in axes.items())
    return f"{reduction.combiner} over {over}{where} of {text}"


def _reads_data(stage: Stage) -> bool:
    """Whether a guard reads tensors, and not only indices."""
    guard = stage.body.guard
    return guard is not None and not find_index_only(stage.body, open_sizes=True)[guard]


def _is_plain(stage: Stage, load: Load, axes: Mapping[int, object]) -> bool:
    """Whether a tensor is read at the stage's own index along all of the stage's axes, or some of
    them in order."""
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
