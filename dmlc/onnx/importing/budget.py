"""Limits on the memory and the work of an import, since a small file may ask for any amount of
either."""

from __future__ import annotations

from dmlc.source import UnsupportedError

MOST_WORK = 1 << 21
"""The most instructions of bodies that are made, counting `NODE_WORK` for each node."""
NODE_WORK = 16
"""What it takes to look at a node, or to start a step of a loop: as much as some instructions."""
MOST_BYTES = 256 << 20
"""The most bytes of constants that are computed, beside `GROWTH` times those that a model has."""
GROWTH = 16
DEEPEST = 48
"""So many functions and graphs may lie in one another."""


class BudgetError(UnsupportedError):
    """Import of a model exceeds its limits. It ends the import, at whichever node."""


class Budget:
    """Memory and work of an import so far, and the current node."""

    def __init__(self) -> None:
        self.node = "its inputs"
        self.depth = 0
        self._work = 0
        self._bytes = 0
        self._most_bytes = MOST_BYTES

    def allow(self, size: int) -> None:
        """Raises the limit on memory in proportion to the bytes of a constant in the model."""
        self._most_bytes += GROWTH * size

    def work(self, instructions: int) -> None:
        """Counts work. Raises `BudgetError`."""
        self._work += instructions
        if self._work > MOST_WORK:
            raise BudgetError(
                f"importing the model takes more than {MOST_WORK:,} instructions: it has come to "
                f"{self.node}",
                notes=["functions that call functions and loops in loops multiply: a loop is laid "
                       "out step by step"],
            )  # fmt: skip

    def hold(self, size: int) -> None:
        """Counts bytes before they are allocated. Raises `BudgetError`."""
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise BudgetError(
                f"the constants that are computed while the model is imported take more than "
                f"{self._most_bytes >> 20} MiB: {self.node} takes {size >> 20:,} MiB",
                notes=["give its input when the model runs, not as a constant of the model"],
            )
