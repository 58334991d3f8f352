"""State of a kernel under construction: names, arrays, and values in registers."""

from __future__ import annotations

from collections.abc import Callable

from dmlc.kernel import nodes as k
from dmlc.kernel.names import Names
from dmlc.kernel.rewrite import NUMBER
from dmlc.scalars import DataType

Near = Callable[[k.Expression, int], k.Expression]
"""A local value, from the position of its view and the number of lanes wanted."""


class Frame:
    """State of one kernel under construction: its names, its arrays, and the values in registers so
    far. Full vectors have `lanes` lanes."""

    def __init__(self, names: Names, lanes: int) -> None:
        self.names = names
        self.lanes = lanes
        self.arrays: list[k.Array] = []
        self.local: dict[str, Near] = {}

    def let(self, name: str, value: k.Expression) -> k.Let:
        """Definition of a named value."""
        return k.Let(k.Local(self.names.take(name), value.type), value)

    def name(self, body: list[k.Statement], name: str, value: k.Expression) -> k.Local:
        """Appends the definition of a named value to `body`, and returns its local."""
        body.append(let := self.let(name, value))
        return let.local

    def variable(self, name: str) -> k.Local:
        """Loop variable."""
        return k.Local(self.names.take(name), k.INDEX)

    def rename(self, local: k.Local) -> k.Local:
        """Local of a copied definition."""
        return k.Local(self.names.take(local.name.partition(NUMBER)[0]), local.type)

    def array(
        self,
        name: str,
        dtype: DataType,
        size: int,
        *,
        shared: bool = False,
        registers: bool = False,
    ) -> str:
        """Adds an array that holds full vectors, and returns its name."""
        taken = self.names.take(name)
        whole = -(-size // self.lanes) * self.lanes if size > 1 and not registers else size
        self.arrays.append(k.Array(taken, dtype, whole, shared, registers=registers))
        return taken

    def size(self, array: str) -> int:
        """Number of elements of an array."""
        return next(a.size for a in self.arrays if a.name == array)
