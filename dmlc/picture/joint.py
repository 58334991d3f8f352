"""Data flow inside one kernel: its stages, the values between them, and the stage of each tensor
that it stores.

A kernel may reduce part of a stage and leave the rest to the next kernel of its group: it then
stores *parts*, in memory between these kernels, which the next one combines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.ir import Function, Stage
from dmlc.report import KernelWork
from dmlc.transform.traffic import Move


@dataclasses.dataclass(frozen=True, slots=True)
class Wire:
    """Value that flows inside a kernel: from a tensor read or from a step, to a step."""

    source: str
    target: str
    from_memory: bool


class Joint:
    """Stages of a launch, from the function before fusion and the function after it. A stage of the
    latter loads from memory, or from another stage of the kernel; other loads of its original are
    of stages inlined into it."""

    def __init__(self, launch: KernelWork, whole: Function, stored: Function) -> None:
        self.launch = launch
        self._originals = {s.name: s for s in whole.stages}
        self._stored = {s.name: s for s in stored.stages}
        parts = {name for name, _, _ in launch.parts}
        read = [m.tensor for m in launch.moves if m.read != 0 and not _is_stored(launch, m)]
        # Results of the kernel before come first, next to their reader.
        self.read = sorted(read, key=lambda name: name not in parts)
        self.written = [m.tensor for m in launch.moves if _is_stored(launch, m)]
        self.steps: dict[str, Stage] = {}
        wires: dict[Wire, None] = {}
        for name in launch.fresh:
            self._trace(name, wires)
        combined = [n for n in launch.stages if n not in launch.fresh]
        # A tensor read that is not in memory is combined from its partial results again.
        wanted = dict.fromkeys(w.source for w in wires if w.from_memory and w.source not in read)
        again = [n for n in wanted if any(_is_part(tensor, n) for tensor in self.read)]
        wires = {
            dataclasses.replace(w, from_memory=w.from_memory and w.source not in again): None
            for w in wires
        }
        combined += again
        for name in combined:
            self.steps[name] = self._originals.get(name) or self._stored[name]
        for tensor in self.read:
            if tensor in parts:
                for name in _find_owners(tensor, combined or list(self.steps)):
                    wires[Wire(tensor, name, True)] = None
        self.wires = list(wires)
        self.combined = frozenset(combined)
        self.sources = {name: self._find_source(name) for name in self.written}
        """Step that computes each stored tensor."""

    def _trace(self, name: str, wires: dict[Wire, None]) -> None:
        """Adds a stage, the stages inlined into it, and the values they read."""
        loaded = set(_list_reads(self._stored[name]))
        pending, seen = [self._originals.get(name, self._stored[name])], {name}
        while pending:
            stage = pending.pop()
            self.steps[stage.name] = stage
            for read in _list_reads(stage):
                inside = read not in loaded and read in self._originals
                kept = inside or read in self.launch.stages
                wires[Wire(read, stage.name, not kept)] = None
                if inside and read not in seen:
                    seen.add(read)
                    pending.append(self._originals[read])

    def _find_source(self, tensor: str) -> str:
        if tensor in self.steps:
            return tensor
        return _find_owners(tensor, list(self.launch.stages))[-1]

    def find_role(self, name: str) -> str:
        """Role of a stage: `parts` if the kernel stores partial results of it, `combined` if it
        combines them, empty if it computes the stage as a whole."""
        if name in self.combined:
            return "combined"
        stored = [tensor for tensor, step in self.sources.items() if step == name]
        return "parts" if stored and name not in stored else ""


def _is_stored(launch: KernelWork, move: Move) -> bool:
    """Whether a kernel stores a tensor; also true of one without elements."""
    return move.written != 0 or (move.tensor in launch.stages and move.read == 0)


def _is_part(tensor: str, stage: str) -> bool:
    """Whether memory between kernels has partial results of a stage, by its name."""
    return tensor.startswith(f"{stage}_parts")


def _find_owners(tensor: str, names: Sequence[str]) -> list[str]:
    """Stages of partial results in memory: the one they are named after, or all."""
    owners = [n for n in names if _is_part(tensor, n)]
    return [max(owners, key=len)] if owners else list(names)


def _list_reads(stage: Stage) -> list[str]:
    return list(dict.fromkeys(load.tensor for load in stage.body.loads()))
