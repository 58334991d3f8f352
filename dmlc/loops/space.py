"""Iteration spaces: the dimensions of one pass of a kernel."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dmlc.sizes import Measure, Taken, estimate, known, multiply


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A dimension that is a chunk of a longer one: `length` elements of `size`, fewer in the last.
    The index along dimension `number` selects the chunk."""

    number: int
    length: Measure
    size: Measure

    def settle(self, taken: Taken) -> Piece:
        """Chunk with numbers for open sizes."""
        return Piece(self.number, estimate(self.length, taken), estimate(self.size, taken))


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """Dimensions of one pass, outermost first."""

    extents: tuple[Measure, ...]
    parallel: tuple[int, ...]
    """Axes of the parallel dimensions, in the order common to all passes."""
    pieces: Mapping[int, Piece] = dataclasses.field(default_factory=dict[int, Piece], hash=False)
    """Axes that are chunks of longer ones, of which some may have fewer points."""
    packed: bool = False
    """Whether there is one dimension, and every view either traverses it contiguously or is
    constant: only the element count depends on the tensors' sizes."""
    indices: tuple[str, ...] = ()
    """Index of the formula that each dimension is, such as `i2`, or `i2i3` where both are merged.
    Empty where a formula has none of these."""

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple([e for e in self.extents if isinstance(e, int)])

    @property
    def inner(self) -> tuple[int, ...]:
        """Inner axes, outermost first."""
        return tuple(axis for axis in range(len(self.extents)) if axis not in self.parallel)

    @property
    def parallel_sizes(self) -> tuple[int, ...]:
        return known(self.extents[axis] for axis in self.parallel)

    @property
    def outputs(self) -> tuple[Measure, ...]:
        """Sizes of the parallel dimensions."""
        return tuple(self.extents[axis] for axis in self.parallel)

    @property
    def inner_count(self) -> int:
        sizes = self.sizes
        return math.prod([sizes[axis] for axis in self.inner])

    @property
    def count(self) -> Measure:
        """Number of points."""
        return multiply(self.extents)

    def settle(self, taken: Taken) -> Space:
        """Space with numbers for open sizes: those that symbols are assumed to have."""
        extents = tuple(max(1, estimate(extent, taken)) for extent in self.extents)
        pieces = {axis: piece.settle(taken) for axis, piece in self.pieces.items()}
        return dataclasses.replace(self, extents=extents, pieces=pieces)

    def select(self, axes: Sequence[int]) -> Space:
        """Space with some of its axes, in their order."""
        pieces = {
            axes.index(axis): dataclasses.replace(piece, number=axes.index(piece.number))
            for axis, piece in self.pieces.items()
            if axis in axes and piece.number in axes
        }
        return Space(
            tuple(self.extents[axis] for axis in axes),
            tuple(axes.index(axis) for axis in self.parallel if axis in axes),
            pieces,
            indices=tuple(self.indices[axis] for axis in axes) if self.indices else (),
        )
