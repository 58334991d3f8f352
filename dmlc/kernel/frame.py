"""A kernel in the making: its names, its arrays, and the values that are at hand."""

from __future__ import annotations

from collections.abc import Callable

from dmlc.kernel import nodes as k
from dmlc.kernel.names import Names
from dmlc.scalars import DataType

Near = Callable[[k.Expression, int], k.Expression]
"""A local value, from the position of its view and the number of lanes wanted."""


class Frame:
    """One kernel in the making: its names, its arrays, and the values in registers so far. Whole
    vectors have so many `lanes`."""

    def __init__(self, names: Names, lanes: int) -> None:
        self.names = names
        self.lanes = lanes
        self.arrays: list[k.Array] = []
        self.local: dict[str, Near] = {}

    def let(self, name: str, value: k.Expression) -> k.Let:
        """A named value."""
        return k.Let(k.Local(self.names.take(name), value.type), value)

    def name(self, body: list[k.Statement], name: str, value: k.Expression) -> k.Local:
        """The local of a value that is named in some statements."""
        body.append(let := self.let(name, value))
        return let.local

    def variable(self, name: str) -> k.Local:
        """The variable of a loop."""
        return k.Local(self.names.take(name), k.INDEX)

    def array(
        self,
        name: str,
        dtype: DataType,
        size: int,
        *,
        shared: bool = False,
        registers: bool = False,
    ) -> str:
        """A new array, which holds whole vectors."""
        taken = self.names.take(name)
        whole = -(-size // self.lanes) * self.lanes if size > 1 and not registers else size
        self.arrays.append(k.Array(taken, dtype, whole, shared, registers=registers))
        return taken

    def size(self, array: str) -> int:
        """The elements of an array."""
        return next(a.size for a in self.arrays if a.name == array)
