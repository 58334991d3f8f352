"""What fusion did to a function, as plain data: each stage as a kernel of its own, and then the
kernels there are, the bytes each moves, and why it is one.

Pictures, texts and the manifest say the same because they are made from this. Bytes are those of
tensors as a whole, in every pass over them; what caches save is not known here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from dmlc.ir import Function
from dmlc.program import Program
from dmlc.transform.fuse import Fusion
from dmlc.transform.traffic import Move, list_moves, total


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What is computed together: before fusion one stage, after it the stages of one group."""

    stages: tuple[str, ...]
    """What it stores or folds, by name."""
    inlined: tuple[str, ...]
    """What it computes where it reads it: no memory holds these."""
    near: tuple[str, ...]
    """Those of `stages` that take no memory either: nothing else reads them."""
    kernels: tuple[str, ...]
    """The program's kernels that do it, in order: mostly one. None before fusion."""
    reason: str
    moves: tuple[Move, ...]
    """The bytes read and written, by tensor."""

    def traffic(self) -> tuple[int, int] | None:
        """The bytes read and written in all; None where a size is known at run time only."""
        return total(self.moves)


@dataclasses.dataclass(frozen=True, slots=True)
class Scratch:
    """Memory between kernels: where it lies in the one allocation all share."""

    tensor: str
    bytes: int | None
    """None where a size is known at run time only."""
    offset: int | None
    """In bytes; None where a size is known at run time only: then it has memory of its own."""
    lifetime: tuple[int, int] | None
    """The numbers of the kernels that use it first and last."""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """A function before and after fusion."""

    name: str
    before: tuple[Work, ...]
    after: tuple[Work, ...]
    scratch: tuple[Scratch, ...]
    peak_scratch: int | None
    """The bytes of the one allocation that holds all memory between kernels."""
    function: Function
    """The function that was compiled, with the stages of `before`."""
    fusion: Fusion
    """What `after` was made of."""

    def traffic(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """The bytes read and written in all, before and after."""
        before, after = ([m for w in side for m in w.moves] for side in (self.before, self.after))
        return total(before), total(after)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "name": self.name,
            "before": [_describe_work(w) for w in self.before],
            "after": [_describe_work(w) for w in self.after],
            "scratch": [dataclasses.asdict(s) for s in self.scratch],
            "peak_scratch": self.peak_scratch,
        }


def make_report(
    function: Function, fusion: Fusion, kernels: Sequence[int], program: Program
) -> Report:
    """The report of a function as it was bound; `kernels` says how many kernels of the program
    each group has become, group by group."""
    before = tuple(
        Work((s.name,), (), (), (), "a kernel of its own", list_moves(function, (s.name,)))
        for s in function.stages
    )
    after: list[Work] = []
    first = 0
    for group, count in zip(fusion.groups, kernels, strict=True):
        names = tuple(k.name for k in program.kernels[first : first + count])
        first += count
        moves = fusion.list_moves(group)
        after.append(Work(group.stages, group.inlined, group.near, names, group.reason, moves))
    scratch = tuple(Scratch(t.name, t.bytes, t.offset, t.lifetime) for t in program.scratch)
    peak = None if any(s.offset is None for s in scratch) else program.scratch_bytes
    return Report(function.name, before, tuple(after), scratch, peak, function, fusion)


def _describe_work(work: Work) -> dict[str, Any]:
    traffic = work.traffic()
    return {
        "stages": list(work.stages),
        "inlined": list(work.inlined),
        "near": list(work.near),
        "kernels": list(work.kernels),
        "reason": work.reason,
        "moves": [dataclasses.asdict(m) for m in work.moves],
        "bytes_read": None if traffic is None else traffic[0],
        "bytes_written": None if traffic is None else traffic[1],
    }
