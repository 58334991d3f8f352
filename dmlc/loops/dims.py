"""Dimensions, buffers and tiles of a loop nest."""

from __future__ import annotations

import dataclasses
import enum

from dmlc.kernel import nodes as k
from dmlc.scalars import DataType

SHORT_VECTOR = 4
"""Lanes of the vectors that process the remainder of longer ones."""


class Kind(enum.Enum):
    """Kind of a loop: how its iterations are executed."""

    GROUP = "group"
    """By work groups, one iteration each."""
    LANE = "lane"
    """By the work items of a group, one iteration each."""
    LOOP = "loop"
    """Sequentially, by one work item."""
    UNROLL = "unroll"
    """Sequentially, unrolled."""
    VECTOR = "vector"
    """In vectors of `step` elements, with the remainder in shorter vectors and then scalars."""


@dataclasses.dataclass(frozen=True, slots=True)
class Dim:
    """A dimension of the points of one or several phases."""

    name: str
    """Unique name in the nest; a suffix after a dot distinguishes dimensions of equal names."""
    size: int | k.Scalar
    """Extent: a number, or an argument of the kernel."""
    parts: tuple[tuple[Dim, int], ...] = ()
    """For a merged dimension: its parts, outermost first, each with the step in which its digit
    counts."""
    piece: tuple[Dim, int | k.Scalar] | None = None
    """For a chunk of a longer dimension: the dimension that numbers the chunks, and the extent of
    the longer one."""
    within: Dim | None = None
    """For a tile: the dimension that its points belong to, from the start given by enclosing
    loops."""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_plain(self) -> bool:
        """Whether it is neither merged of others, nor a part of one."""
        return not self.parts and self.piece is None and self.within is None

    @property
    def whole(self) -> Dim:
        """The dimension of which it is a tile, directly or not; or itself."""
        return self if self.within is None else self.within.whole

    @property
    def wanted(self) -> str:
        """Stem of the names of indices along it."""
        return self.name.partition(".")[0]

    @property
    def count(self) -> k.Expression:
        """Extent as an expression."""
        return self.size if isinstance(self.size, k.Scalar) else k.Literal(k.INDEX, self.size)

    def count_steps(self, step: int) -> int:
        """Number of steps of a loop over it; 0 if its extent is an argument."""
        return -(-self.size // step) if isinstance(self.size, int) else 0


@dataclasses.dataclass(frozen=True, slots=True)
class Buffer:
    """Array for values that a phase makes for others, with an element for each point along a
    dimension; or for a tile, possibly shared by a group."""

    name: str
    """Name by which it is read."""
    dtype: DataType
    size: int
    dim: Dim
    wanted: str
    """Stem of its array's name."""
    linear: bool = False
    """Whether it is read at the offset of the view's strides, and not at the current loop index."""
    rows: Dim | None = None
    """Dimension of whose enclosing loop each iteration has its own row."""
    pitch: int = 0
    """Elements per row, padding included."""
    front: int = 0
    """Elements before the first one of a row."""
    shared: bool = False

    def __hash__(self) -> int:
        return hash(self.name)


@dataclasses.dataclass(frozen=True, slots=True)
class Into:
    """Target of a value in a buffer: element `step` times the index along the dimension, plus
    `offset`."""

    buffer: Buffer
    dim: Dim
    step: int = 1
    offset: int = 0
    tile: tuple[tuple[Dim, int], ...] = ()
    """For a tile, instead: its dimensions with their strides. Indices are relative to the start of
    the tile."""
    loose: tuple[Dim, ...] = ()
    """For a tile: dimensions beyond whose end elements may be arbitrary, as nothing is stored
    there. Beyond the end of the others, along which sums run, they are 0."""
    lane: int = 1
    """Stride between the lanes of a vector."""
    in_vectors: bool = False
    """Whether vectors with contiguous lanes are stored whole."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """Accumulators of a tile of outputs."""

    rows: int
    columns: int
    pitch: int
    """Elements per row, padding included."""
    lanes: int
    """Lanes of the vectors in a row."""
    registers: bool
    """Whether each becomes a local, once the loops over them are unrolled."""
