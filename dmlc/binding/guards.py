"""Clamps reads that are in bounds only under the conditions around them.

A condition of `?:`, `&&`, `||` or `where` holds only where the value read is used, and kernels
evaluate both operands of a choice. So the index of a read that only such a condition keeps in
bounds is clamped, as that of a read with `else` is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dmlc.binding.nodes import Node, Op, Value
from dmlc.binding.positions import Positions
from dmlc.index.intervals import EMPTY, UNKNOWN, Interval, is_within, meet
from dmlc.ir import Extent
from dmlc.ir.assume import assume_guard
from dmlc.ir.index import find_reach
from dmlc.scalars import DataType
from dmlc.sizes import LARGEST


def list_conditions(positions: Positions, value: Value, holds: bool) -> tuple[Node, ...]:
    """Conjunction implied by a condition, or by its negation, at one point. Empty for a constant,
    and for a condition on whole tensors."""
    found: list[Node] = []
    pending = [(value, holds)] if isinstance(value, Node) else []
    while pending:
        node, wanted = pending.pop()
        if node.dtype is not DataType.BOOL or node.shape is not None:
            continue
        if node.form is Op.APPLY and node.payload == "not":
            pending.append((node.operands[0], not wanted))
        elif node.form is Op.APPLY and node.payload == ("and" if wanted else "or"):
            pending += [(operand, wanted) for operand in reversed(node.operands)]
        else:
            found.append(node if wanted else positions.apply("not", node))
    return tuple(found)


def hold_inside(
    positions: Positions,
    position: Node,
    size: Extent,
    guards: Sequence[Node],
    conditions: Sequence[Node],
    checks: Iterable[str] = (),
) -> tuple[Node, Interval]:
    """Index clamped to the axis if necessary, and its range where the conditions hold. A point
    outside the `guards` is left out and reads nothing; outside the other `conditions` an element is
    read and not used. `checks` are assumptions about open sizes."""
    if isinstance(size, str):
        return _hold_inside_open(positions, position, size, guards, conditions, checks)
    found = everywhere = positions.reach(position, size)
    if is_within(found, size) or not (guards or conditions):
        return position, found
    if guards:
        found = meet(found, _find_reach(positions, position, size, guards, compared=False))
        if is_within(found, size):
            return position, found
    found = meet(found, _find_reach(positions, position, size, (*guards, *conditions)))
    if is_within(found, size) and size > 0:
        return positions.keep_inside(position, size, everywhere)[0], found
    return position, found


def _hold_inside_open(
    positions: Positions,
    position: Node,
    size: str,
    guards: Sequence[Node],
    conditions: Sequence[Node],
    checks: Iterable[str],
) -> tuple[Node, Interval]:
    """The same along an axis of open size."""
    for known in ((), guards):
        if positions.is_inside_open(position, size, known):
            return position, (0, LARGEST - 1)
    given = tuple(checks)
    every = (*guards, *conditions)
    if (conditions or given) and positions.is_inside_open(position, size, every, given):
        anywhere = positions.interval(position)[0], math.inf
        return positions.keep_inside(position, size, anywhere)[0], (0, LARGEST - 1)
    return position, UNKNOWN


def _find_reach(
    positions: Positions,
    position: Node,
    size: int,
    conditions: Sequence[Node],
    *,
    compared: bool = True,
) -> Interval:
    """Range of an index where conditions hold. Conditions on tensors' elements count if
    `compared`."""
    stage = positions.probe(position, conditions)
    if stage is None:
        return positions.reach(position, size)
    result = stage.body.result
    if not compared:
        return find_reach(stage, result, size)
    # Intervals first, since evaluating conditions at every point takes time.
    known = assume_guard(stage, positions.ranges)
    if known is None:
        return EMPTY
    if is_within(known[result], size):
        return known[result]
    return meet(known[result], find_reach(stage, result, size))
