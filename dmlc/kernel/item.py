"""A work item of a CPU kernel with reductions, in the making: what its phases share.

Names and arrays, the block of outputs the item folds, and the reductions that are at hand so far.
"""

from __future__ import annotations

from dmlc.kernel import nodes as k
from dmlc.kernel.build import Builder
from dmlc.kernel.emit import Names, Near, index, multiply, operate
from dmlc.kernel.phases import Phase
from dmlc.kernel.schedule import Limits, Profile
from dmlc.scalars import DataType


class Item:
    """What the phases of one kernel share. `width` is the number of outputs in a block."""

    def __init__(
        self,
        names: Names,
        profile: Profile,
        limits: Limits,
        buffers: tuple[k.Buffer, ...],
        width: int,
    ) -> None:
        self.names = names
        self.profile = profile
        self.limits = limits
        self.buffers = buffers
        self.width = width
        self.near: dict[str, Near] = {}
        self.arrays: list[k.Array] = []
        self.first: k.Expression = index(0)
        """The first output of the block, along the innermost kept dimension."""
        self.count: k.Expression = index(width)
        """The outputs of the block: fewer at the end."""

    @property
    def in_blocks(self) -> bool:
        """Whether the item folds several outputs at once."""
        return self.width > 1

    def builder(self, phase: Phase) -> Builder:
        """Positions and names for one phase."""
        return Builder(
            phase.elements,
            phase.space.walk,
            self.profile,
            self.limits,
            self.buffers,
            self.names,
        )

    def array(self, name: str, dtype: DataType, size: int) -> str:
        """A new array of the work item's own; whole vectors fit."""
        taken = self.names.take(name)
        lanes = self.profile.lanes
        whole = -(-size // lanes) * lanes if size > 1 else 1
        self.arrays.append(k.Array(taken, dtype, whole))
        return taken

    def find_block(self, number: k.Expression, size: int, body: list[k.Statement]) -> None:
        """Settles which of `size` outputs are in the block of that number."""
        self.first = multiply(number, self.width)
        if isinstance(self.first, k.Operate):
            local = k.Local(self.names.take("first"), k.INDEX)
            body.append(k.Let(local, self.first))
            self.first = local
        if size % self.width:
            rest = operate("sub", index(size), self.first)
            local = k.Local(self.names.take("count"), k.INDEX)
            body.append(k.Let(local, operate("min", index(self.width), rest)))
            self.count = local
