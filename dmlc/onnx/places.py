"""Indices that are known at export: which of them are slices, reshapes and transposes.

Each is an array with an axis for every index of a stage, of size 1 if it does not depend on that
index."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dmlc.scalars import Array


@dataclasses.dataclass(frozen=True, slots=True)
class EvenSteps:
    """Arithmetic sequence of indices, along one index of the stage."""

    start: int
    step: int
    count: int

    @property
    def end(self) -> int:
        """Index one step after the last."""
        return self.start + self.step * self.count


@dataclasses.dataclass(frozen=True, slots=True)
class RegroupedView:
    """Indices that are a permutation of a vector: it is split into axes of sizes `counts`, which
    are then transposed by `order`."""

    counts: tuple[int, ...]
    order: tuple[int, ...]


def settle(position: Array, size: int, clamp: bool) -> Array:
    """Indices clamped to an axis if that is permitted, with size 1 along each index that they do
    not depend on."""
    if clamp:
        position = np.asarray(np.clip(position, 0, size - 1))
    for axis in range(position.ndim):
        first = position.take([0], axis)
        if (position == first).all():
            position = first
    return position


def find_steps(position: Array) -> EvenSteps | None:
    """Arithmetic sequence of indices that depend on at most one index."""
    if sum(size > 1 for size in position.shape) > 1:
        return None
    line = position.reshape(-1)
    if line.size == 1:
        return EvenSteps(int(line[0]), 1, 1)
    steps = np.diff(line)
    even = steps[0] != 0 and bool((steps == steps[0]).all())
    return EvenSteps(int(line[0]), int(steps[0]), line.size) if even else None


def split_sum(position: Array) -> list[Array] | None:
    """Terms that each depend on one index, and whose sum is `position`; None if there are none."""
    origin = (0,) * position.ndim
    terms: list[Array] = []
    total = np.full((1,) * position.ndim, position[origin])
    for axis in range(position.ndim):
        if position.shape[axis] > 1:
            along = tuple(slice(None) if at == axis else slice(0, 1) for at in range(position.ndim))
            # The first term has what all of them begin with.
            terms.append(position[along] - (position[origin] if terms else 0))
            total = total + position[along] - position[origin]
    return terms if np.array_equal(total, position) else None


def find_view(position: Array, size: int) -> RegroupedView | None:
    """Indices as a view of a vector of `size` elements; None if they are none."""
    if position.size != size or position.reshape(-1)[0] != 0:
        return None
    terms = split_sum(position)
    if terms is None:
        return None
    digits = [digit for term in terms for digit in _find_digits(term.reshape(-1))]
    order = sorted(range(len(digits)), key=lambda at: -digits[at][1])
    counts = [digits[at][0] for at in order]
    if math.prod(counts) != size:
        return None
    packed = [math.prod(counts[at + 1 :]) for at in range(len(counts))]
    if [digits[at][1] for at in order] != packed:
        return None
    return RegroupedView(tuple(counts), tuple(order.index(at) for at in range(len(digits))))


def _find_digits(line: Array) -> list[tuple[int, int]]:
    """Digits of a vector of indices that starts at 0, the fastest last: the extent and the stride
    of each. Empty if it has none."""
    if line.size <= 1:
        return []
    step = int(line[1])
    even = np.arange(line.size) * step == line
    count = line.size if even.all() else int(np.argmin(even))
    if line.size % count:
        return []
    blocks = line.reshape(-1, count)
    inner = [(count, step)]
    if len(blocks) == 1:
        return inner
    outer = _find_digits(blocks[:, 0])
    regular = (blocks == blocks[:, :1] + np.arange(count) * step).all()
    return [*outer, *inner] if outer and regular else []
