"""Offsets of scratch tensors in one allocation: tensors with disjoint lifetimes share memory. First
fit by offset, in the order kernels run. The caller knows the reads and writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

ALIGNMENT = 256
"""Alignment in bytes at which every device can bind a buffer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """Memory with a lifetime: from the kernel that writes it first to the one that reads it last,
    both included, by number."""

    name: str
    bytes: int
    first: int
    last: int
    over: str | None = None
    """Tensor of the same size that only `first` reads, each element right before the store to the
    same index: the two may share memory in that kernel too."""


def plan_buffers(needs: Sequence[Need]) -> dict[str, int]:
    """Offset of each need in bytes, a multiple of `ALIGNMENT`."""
    offsets: dict[str, int] = {}
    live: list[tuple[int, int, Need]] = []
    for need in sorted(needs, key=lambda n: n.first):
        live = [place for place in live if place[2].last >= need.first]
        size = max(1, -(-need.bytes // ALIGNMENT)) * ALIGNMENT
        offset = _store_over(need, live)
        if offset is None:
            offset = 0
            for start, end, _ in live:
                if start - offset >= size:
                    break
                offset = max(offset, end)
        offsets[need.name] = offset
        live.append((offset, offset + size, need))
        live.sort(key=lambda place: place[0])
    return offsets


def _store_over(need: Need, live: list[tuple[int, int, Need]]) -> int | None:
    """Offset of the tensor that a need may be stored over, which is released."""
    for number, (start, _, other) in enumerate(live):
        if other.name == need.over and other.last == need.first and other.bytes == need.bytes:
            del live[number]
            return start
    return None


class Occupants:
    """Latest tensors in each part of the allocation, as kernels run."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, int, str]] = []

    def replace(self, name: str, start: int, size: int) -> list[str]:
        """Assigns bytes to a tensor. Returns the tensors that had any of them: kernels that use
        these must finish first, and so must all earlier ones, which these waited for."""
        if size == 0:
            return []
        end = start + size
        gone: dict[str, None] = {}
        kept: list[tuple[int, int, str]] = []
        for part in self._parts:
            first, last, other = part
            if last <= start or end <= first:
                kept.append(part)
                continue
            gone[other] = None
            kept += [(a, b, other) for a, b in ((first, start), (end, last)) if a < b]
        self._parts = [*kept, (start, end, name)]
        return list(gone)
