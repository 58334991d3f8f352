"""Where tensors between kernels lie in one allocation: those that are never needed at the same time
share memory.

First fit by offset, in the order kernels run. What reads and writes the tensors is the caller's to
know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

ALIGNMENT = 256
"""Bytes: every device can bind a buffer from a multiple of these on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """Memory that is wanted from the kernel that writes it first to the one that reads it last,
    both included, by their numbers."""

    name: str
    bytes: int
    first: int
    last: int
    over: str | None = None
    """A tensor of the same size that `first` alone reads, each element right before it stores the
    one at its place here: the two may share memory in that kernel too."""


def plan_buffers(needs: Sequence[Need]) -> dict[str, int]:
    """The offset of each need in bytes, a multiple of `ALIGNMENT`."""
    offsets: dict[str, int] = {}
    live: list[tuple[int, int, Need]] = []
    for need in sorted(needs, key=lambda n: n.first):
        live = [place for place in live if place[2].last >= need.first]
        size = max(1, -(-need.bytes // ALIGNMENT)) * ALIGNMENT
        offset = _take_over(need, live)
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


def _take_over(need: Need, live: list[tuple[int, int, Need]]) -> int | None:
    """The offset of the tensor that a need may be stored over, which is nobody's from here on."""
    for number, (start, _, other) in enumerate(live):
        if other.name == need.over and other.last == need.first and other.bytes == need.bytes:
            del live[number]
            return start
    return None


class Occupants:
    """The tensors that lie, or last lay, in each part of the allocation, as kernels run."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, int, str]] = []

    def replace(self, name: str, start: int, size: int) -> list[str]:
        """Takes some bytes for a tensor. Gives those that had a part of them: whoever used these
        has to be done, and so have all before them, for whom these had to wait."""
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
