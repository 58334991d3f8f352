"""Hoists values out of a pass that vary from output to output only.

With vectors across outputs, such values, as the square root in a normalization, would be recomputed
for every row of points. They become a phase of their own, which stores them in arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc import ir
from dmlc.loops.element import Elements, Gather, Place, Read, View, operands, prune
from dmlc.loops.phases import Phase, with_elements
from dmlc.scalars import DataType


def hoist_values(phase: Phase, axis: int, first: int = 0) -> tuple[Phase | None, Phase]:
    """The phase to run before, over parallel dimensions alone, and the phase without the hoisted
    values.

    `axis` is the one along which outputs of a block are. The first phase is None if nothing is
    worth it; a plain load is not. Hoisted values are numbered from `first` on.
    """
    elements, strides = phase.elements, phase.space.strides
    inner = phase.space.inner
    moves = phase.find_moving(axis)
    varies: list[bool] = []
    for value in elements.values:
        own = any(varies[operand] for operand in operands(value))
        if isinstance(value, Read | Place | Gather):
            own |= any(strides[value.view][a] for a in inner)
        if isinstance(value, Gather):
            own |= value.guarded
        # The number of a point belongs to the points, even if there is only one.
        varies.append(own or (isinstance(value, Place) and value.dtype is not DataType.INDEX))
    taken = _choose(elements, varies, moves)
    if not taken:
        return None, phase
    local = tuple(int(a in phase.space.parallel) for a in range(len(phase.space.sizes)))
    views = {
        number: View(f"factor#{count}", elements.values[number].dtype, local, local=True)
        for count, number in enumerate(taken, first)
    }
    values = list(elements.values)
    for number, view in views.items():
        values[number] = Read(view, view.dtype)
    rest = prune(dataclasses.replace(elements, values=tuple(values)))
    work = prune(
        Elements(elements.domain, elements.values, tuple((v, n) for n, v in views.items()))
    )
    return with_elements(phase, work), with_elements(phase, rest)


def _choose(elements: Elements, varies: Sequence[bool], moves: Sequence[bool]) -> list[int]:
    """Outermost values that are the same for all points of an output, and cost something. Indices
    and index conditions are cheaper to recompute than to store."""
    needed = set(elements.roots())
    taken: list[int] = []
    for number in range(len(elements.values) - 1, -1, -1):
        value = elements.values[number]
        if number not in needed:
            continue
        fixed = not varies[number] and moves[number]
        plain = isinstance(value, Read | Place | ir.Constant)
        if fixed and not plain and value.dtype not in (DataType.BOOL, DataType.INDEX):
            taken.append(number)
        else:
            needed.update(operands(value))
    return taken[::-1]
