"""What the nodes of a nest name: dimensions, and the buffers and tiles where outcomes are kept."""

from __future__ import annotations

import dataclasses
import enum

from dmlc.kernel import nodes as k
from dmlc.scalars import DataType

SHORT_VECTOR = 4
"""The lanes of vectors that take what longer ones leave over."""


class Kind(enum.Enum):
    """Who walks the steps of a loop."""

    GROUP = "group"
    """Work groups, one each."""
    LANE = "lane"
    """The work items of a group, one each."""
    LOOP = "loop"
    """One work item, one after the other."""
    UNROLL = "unroll"
    """The same, written out."""
    VECTOR = "vector"
    """One work item, as many at once as the step has elements, and what is left over in shorter
    vectors and then one by one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Dim:
    """A dimension of the points of one or several phases."""

    name: str
    """No other of the nest has it: what follows a dot tells dimensions apart that are called
    alike."""
    size: int | k.Scalar
    """Its extent: a number, or an argument of the kernel."""
    parts: tuple[tuple[Dim, int], ...] = ()
    """Of merged dimensions: each with the step that its digit of the number counts in, outermost
    first."""
    piece: tuple[Dim, int | k.Scalar] | None = None
    """Of a piece of a longer dimension: which dimension numbers the pieces, and the extent of the
    longer one."""
    within: Dim | None = None
    """Of a tile: the dimension that its points are of, from where the loops around start."""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def whole(self) -> Dim:
        """The dimension that it is a tile of, or of a tile of it; or itself."""
        return self if self.within is None else self.within.whole

    @property
    def wanted(self) -> str:
        """What places along it are called after."""
        return self.name.partition(".")[0]

    @property
    def count(self) -> k.Expression:
        """The extent as an expression."""
        return self.size if isinstance(self.size, k.Scalar) else k.Literal(k.INDEX, self.size)

    def count_steps(self, step: int) -> int:
        """The steps of a loop over it; none where its extent is an argument."""
        return -(-self.size // step) if isinstance(self.size, int) else 0


@dataclasses.dataclass(frozen=True, slots=True)
class Buffer:
    """An array of what a phase makes for others, an element for each point along a dimension; or of
    a tile, which the work items of a group may share."""

    name: str
    """What it is called where it is read."""
    dtype: DataType
    size: int
    dim: Dim
    wanted: str
    """What it is called after."""
    linear: bool = False
    """Whether it is read wherever strides say, and not at the point that a loop is at."""
    rows: Dim | None = None
    """The dimension of which the steps in the loop around it each have a row of their own."""
    pitch: int = 0
    """Elements from one row to the next."""
    front: int = 0
    """Elements before the first of a row."""
    shared: bool = False

    def __hash__(self) -> int:
        return hash(self.name)


@dataclasses.dataclass(frozen=True, slots=True)
class Into:
    """Where in a buffer a value is put: element `step` times the point along a dimension, and
    `offset`."""

    buffer: Buffer
    dim: Dim
    step: int = 1
    offset: int = 0
    tile: tuple[tuple[Dim, int], ...] = ()
    """In place of them: the dimensions of a tile, each with how far apart neighbours along it lie.
    Points count from where the loops around the tile start."""
    loose: tuple[Dim, ...] = ()
    """Of a tile: the dimensions beyond whose end anything may lie, for nothing is stored there.
    Beyond that of the others, along which sums go, 0 is put."""
    lane: int = 1
    """How far apart the lanes of a vector lie."""
    in_vectors: bool = False
    """Whether vectors are put as they are, where their lanes lie side by side."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """The accumulators of a tile of outputs."""

    rows: int
    columns: int
    pitch: int
    """From one row to the next."""
    lanes: int
    """Of the vectors in a row."""
    registers: bool
    """Whether each is a local of its own, once the loops are written out that go over them."""
