"""Interval analysis of a kernel's indices, statement by statement.

Index arithmetic never overflows, so that intervals are those of the mathematical values. Values
loaded from memory, and variables, have the interval of their type.
"""

from __future__ import annotations

import copy

from dmlc.index.intervals import UNKNOWN, Interval, combine, hull, size_range
from dmlc.kernel import nodes as k
from dmlc.kernel.target import RUN_TIME_COUNT
from dmlc.scalars import DataType, integer_limits


class Reaches:
    """Intervals of a kernel's indices, given the definitions `noted` so far."""

    def __init__(self, kernel: k.Kernel) -> None:
        launch, self._largest = kernel.launch, kernel.index_limits[1]
        # A count given at run time is checked to be at most this.
        count = launch.count if isinstance(launch.count, int) else RUN_TIME_COUNT
        self._geometry: dict[k.Geometry, Interval] = {
            k.Geometry.GROUP: (0, max(launch.count_groups(count) - 1, 0)),
            k.Geometry.LANE: (0, launch.group_size - 1),
            k.Geometry.SUBGROUP: (0, (launch.group_size - 1) // (launch.subgroup or 1)),
        }
        self._named: dict[str, Interval] = {
            scalar.name: (value, value) if isinstance(value, int) else size_range(value)
            for scalar, value in kernel.scalars
        }

    def copy(self) -> Reaches:
        """The same intervals, for a scope of their own."""
        made = copy.copy(self)
        made._named = dict(self._named)
        return made

    def note(self, local: k.Local, value: k.Expression | None = None) -> None:
        """Records the definition of a local, which hides one of the same name; `value` is None for
        a variable."""
        if local.type.dtype is DataType.INDEX:
            self._named[local.name] = UNKNOWN if value is None else self.find(value)

    def note_turns(self, loop: k.For) -> None:
        """Records the variable of a loop."""
        low, high = self.find(loop.start)[0], self.find(loop.stop)[1] - 1
        self._named[loop.variable.name] = low, max(low, high)

    def find(self, expression: k.Expression) -> Interval:
        """Interval of an index, or of an integer that an index is converted from; for a vector, of
        all lanes."""
        match expression:  # The most common cases come first.
            case k.Literal(value=value):
                return int(value), int(value)
            case k.Local(name=name) | k.Scalar(name=name):
                return self._named.get(name, UNKNOWN)
            case k.Position(geometry=geometry):
                return self._geometry[geometry]
            case k.Operate(operation=operation, operands=operands, type=k.Type(DataType.INDEX)):
                return combine(operation.name, [self.find(o) for o in operands])
            case k.Select(then=one, otherwise=other) | k.Join(low=one, high=other):
                return hull(self.find(one), self.find(other))
            case k.Broadcast(operand=operand) | k.Extract(operand=operand):
                return self.find(operand)
            case k.Numbers(values=values):
                return min(values), max(values)
            case k.Lead(bytes=most):
                return 0, most
            case k.Convert(operand=operand) if operand.type.dtype.is_integer:
                limits = integer_limits(operand.type.dtype)
                return limits if limits[1] <= self._largest else UNKNOWN
            case _:
                return UNKNOWN
