"""Saturates data-dependent indices to 32 bits, where values beyond that make no difference.

An index converted from a float, or from an unsigned 32-bit or a 64-bit integer, may be far outside
of every tensor, and would require kernels to compute all indices in 64 bits. Most such indices are
clamped, or compared with a size, and give the same result if they are first saturated to the range
of 32 bits; these are. Others are unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmlc.index.intervals import Interval
from dmlc.ir import Apply, Body, Cast, Function, Instruction, Select, Stage, operands, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import find_index_only
from dmlc.ir.ranges import Ranges, table_ranges
from dmlc.scalars import DataType

_LIMITS = np.iinfo(np.int32)
_FAR = 1 << 30
"""Magnitude from which an index is not saturated, as the result might differ."""
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")


def saturate_positions(function: Function) -> Function:
    """Function with indices saturated to 32 bits wherever that makes no difference; the same object
    if there are none."""
    known = table_ranges(function.tables)
    return function.with_stages(_saturate(stage, known) for stage in function.stages)


def _saturate(stage: Stage, known: dict[str, Interval]) -> Stage:
    body = stage.body
    if not any(isinstance(i, Cast) and i.dtype is DataType.INDEX for i in body.instructions):
        return stage
    ranges, builder = Ranges.of(stage, known), BodyBuilder()
    reach = [ranges[value] for value in range(len(body.instructions))]
    index_only, uses = find_index_only(body), _find_uses(body, reach)

    def hold(number: int, moved: Instruction) -> int | None:
        if not isinstance(moved, Cast) or moved.dtype is not DataType.INDEX:
            return None
        fits = _LIMITS.min <= reach[number][0] and reach[number][1] <= _LIMITS.max
        if fits or uses[number] is None or index_only[number]:
            return None
        return _hold(builder, moved.operand)

    return builder.remake(stage, hold)


def _find_uses(body: Body, reach: Sequence[Interval]) -> list[int | None]:
    """For each value, the magnitude up to which it must be exact, if larger ones may be replaced by
    any value at least as far from 0 on the same side; None if it must always be exact.

    Sums must be exact, since indices beyond 64 bits wrap.
    """
    found: list[int | None] = [0] * len(body.instructions)
    found[body.result] = None
    for number in range(len(body.instructions) - 1, -1, -1):
        instruction = body.instructions[number]
        given = operands(instruction)
        own = _measure(reach[number])
        own = found[number] if own is None else own
        for place, operand in enumerate(given):
            asked: int | None = None
            if isinstance(instruction, Apply):
                others = [reach[o] for n, o in enumerate(given) if n != place]
                asked = _pass_on(instruction.operation.name, own, others)
            elif isinstance(instruction, Select) and place > 0:
                asked = own
            before = found[operand]
            found[operand] = None if before is None or asked is None else max(before, asked)
    return found


def _pass_on(name: str, own: int | None, others: Sequence[Interval]) -> int | None:
    """The same for one operand, from that of the result and the intervals of the other operands."""
    most = _measure(others[0]) if others else None
    if most is not None and name in _COMPARED:
        return most + 1
    return None if most is None or own is None or name not in ("min", "max") else max(own, most)


def _measure(reach: Interval) -> int | None:
    """Largest magnitude of an interval; None if it is too large."""
    furthest = max(abs(reach[0]), abs(reach[1]))
    return int(furthest) if furthest < _FAR else None


def _hold(builder: BodyBuilder, value: int) -> int | None:
    """A number as an index, saturated to 32 bits; None for a type that is never saturated."""
    dtype = value_type(builder.instructions[value])
    if dtype.is_float:
        # This conversion saturates as well, and also converts NaN to 0.
        return builder.add(Cast(builder.add(Cast(value, DataType.INT32)), DataType.INDEX))
    if dtype not in (DataType.UINT32, DataType.INT64):
        return None
    if dtype is DataType.INT64:
        value = builder.apply("max", value, builder.constant(int(_LIMITS.min), dtype))
    value = builder.apply("min", value, builder.constant(int(_LIMITS.max), dtype))
    return builder.add(Cast(value, DataType.INDEX))
