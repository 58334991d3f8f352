"""Reports on the graphs that the backend compiled."""

from __future__ import annotations

import dataclasses

from dmlc.source import counted
from dmlc.torch.timing import Timing


@dataclasses.dataclass(frozen=True, slots=True)
class GroupReport:
    """Report on a group of nodes."""

    name: str
    operators: tuple[str, ...]
    kernels: int
    read: int
    """Bytes of the tensors that it reads."""
    written: int
    timing: Timing | None = None
    """How long it took when it was compiled, if it was measured."""

    def __str__(self) -> str:
        taken = "" if self.timing is None else f", {self.timing}"
        return (
            f"{self.name}: {counted(len(self.operators), 'operator')} in "
            f"{counted(self.kernels, 'kernel')}, "
            f"{self.read:,} bytes read, {self.written:,} written{taken}\n"
            f"    {' '.join(self.operators)}"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class GraphReport:
    """Report on a graph: its groups, and the nodes that stay with eager, with the reasons."""

    name: str
    groups: tuple[GroupReport, ...]
    eager: tuple[tuple[str, str], ...]
    """An operator, and why it was not taken."""
    slower: tuple[GroupReport, ...] = ()
    """The groups that eager was faster at, and that it computes for that reason."""
    step: Timing | None = None
    """How long a step took with this graph and that of its gradient, if it was measured."""

    def hold_against_eager(self, step: Timing) -> GraphReport:
        """Report after a step was timed: if eager is faster, it computes all groups."""
        if step.own <= step.eager:
            return dataclasses.replace(self, step=step)
        slower = (*self.groups, *self.slower)
        return dataclasses.replace(self, groups=(), slower=slower, step=step)

    def __str__(self) -> str:
        taken = "" if self.step is None else f"; a step takes {self.step}"
        lines = [f"{self.name}: {counted(len(self.groups), 'group')}{taken}"]
        lines += [f"  {group}" for group in self.groups]
        lines += [f"  eager is faster: {group}" for group in self.slower]
        lines += [f"  eager: {name}: {reason}" for name, reason in self.eager]
        return "\n".join(lines)
