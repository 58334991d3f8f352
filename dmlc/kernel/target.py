"""Parameters of schedules: the device profile, and the limits of an output language.

Both are frozen values. No device is queried, so that kernels depend on the user's request alone,
and compile to the same bytes on every machine.
"""

from __future__ import annotations

import dataclasses

from dmlc.matrices import Instruction
from dmlc.scalars import DataType
from dmlc.sizes import Taken
from dmlc.source import Span, find_named


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """Key of some stages in the schedule table."""

    kind: str
    """Kernel class, such as `product`."""
    dtype: DataType
    """Type of the largest tensor that they read or store."""
    size: int | None
    """Number of outputs of a product, or else of that tensor's elements; None if known at run time
    only."""
    batches: int = 1
    rows: int = 0
    """Rows of a product."""
    columns: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A row of the schedule table: parameters of rules for kernels of a class on a device."""

    device: str
    kind: str
    dtype: DataType | None
    """Data type; None: any type of at most 32 bits."""
    first: int
    """Exponent of the power of two at which its range of sizes starts."""
    last: int | None
    """Exponent of the power of two at which its range ends, exclusive; None: unbounded."""
    numbers: tuple[tuple[str, int | tuple[int, ...]], ...]
    """Fields of `Profile`, with their values."""
    text: str
    """The row on one line."""
    span: Span = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return f"table row {self.text}"

    @property
    def is_for_all(self) -> bool:
        """Whether it applies to all sizes."""
        return self.first == 0 and self.last is None

    def suits(self, subject: Subject) -> bool:
        """Whether it applies to a kernel. Tiles do not apply to products of which they would
        compute more than twice the outputs."""
        most = subject.dtype.bytes
        if self.kind != subject.kind or (self.dtype or subject.dtype) is not subject.dtype:
            return False
        if self.dtype is None and most > WORD_BYTES:
            return False
        if subject.size is None:
            return self.is_for_all
        bits = max(0, subject.size.bit_length() - 1)
        if bits < self.first or (self.last is not None and bits >= self.last):
            return False
        tile = dict(self.numbers).get("tile")
        if not isinstance(tile, tuple):
            return True
        down, across, *_ = tile
        made = -(-subject.rows // down) * down * -(-subject.columns // across) * across
        return made <= 2 * subject.rows * subject.columns


WORD_BYTES = 4
"""Largest element size in bytes of rows for any type: tiles have the table's size for these."""


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """Parameters of schedules for a kind of device. Those of the kind have no default, so that a
    missing one is an error at import; the last fields are given by callers."""

    name: str
    classes: tuple[str, ...]
    """The classes of its devices. Architectures have names below these: `nvidia.sm_90`."""
    grouped: bool
    """Whether the work items of a group run side by side and share memory, as on a GPU. Otherwise
    each computes elements that lie together, in vectors, as on a CPU."""
    group_size: int
    """Work items per group."""
    per_item: int
    """Elements per work item (approximate if they are not one run)."""
    lanes: int
    """Elements per vector; 1 if work items are scalar."""
    streaming_bytes: int | None
    """Footprint in bytes from which a kernel's stores bypass the caches; None: never."""
    groups: int
    """Work groups that keep the device busy; with fewer, large reductions are split into chunks."""
    piece: int
    """Smallest number of points per work group before a reduction is split."""
    row: int
    """Largest number of elements of a line buffer, which holds a row of one reduction for another;
    0: none."""
    bytes_per_operation: float
    """Bytes that memory moves in the time of one addition."""
    launch_bytes: int
    """Bytes that memory moves in the time of one more launch."""
    cached_bytes: int
    """Bytes that a work group can read again from caches."""
    held: int
    """Largest number of elements that a work item keeps in registers between passes over a row, and
    between rows; 0: none."""
    holding: int
    """Largest number of work items of a group that keeps rows in registers."""
    online: int
    """Smallest number of rows of scores that one kernel reduces online, one row per lane; 0:
    none."""
    online_run: int
    """Smallest number of these rows that read the same keys, as a group takes no others
    together."""
    again_size: int
    """Largest number of elements of a query or value for which several kernels recompute scores:
    for longer ones that takes longer than memory. On a GPU, gradients of 96 and 128 were modelled
    to take 1.6 and 2.4 times as long."""
    walks: bool
    """Whether a work item may visit all points of a row in sequence, and scatter them."""
    vectors: int
    """Largest number of vectors per work item of element-wise work: as many loads are in flight at
    once."""
    columns: int
    """Adjacent outputs of a reduction in a group, if contiguous in memory: a cache line of floats,
    or two."""
    points: int
    """Smallest number of points, or vectors of points, that a work item reduces before more items
    share an output; it loads as many before it adds the first."""
    fill: int
    """Number of groups that fill a large device; with fewer, more work items share an output."""
    tile: tuple[int, ...]
    """Rows and columns of a product's tile, rows and columns per work item, points, and 1 if
    pipelined; empty: chosen by the sizes."""
    panel: tuple[int, int, int]
    """Largest rows and columns of a work item's tile of a product, and points of its panels: two
    panels and the sums take less than half a megabyte, and the part that a block uses stays in the
    L1 cache."""
    device_class: str = ""
    """Device class named by the caller, such as `nvidia.sm_90`; empty: none."""
    rows: tuple[Row, ...] = ()
    """Applicable rows of the schedule table, in order of precedence."""
    taken: Taken = ()
    """Assumed values of open sizes: kernels are correct for all sizes, and suit these."""
    bounds: Taken = ()
    """Upper bounds of open sizes in the version being compiled."""

    @property
    def per_group(self) -> int:
        """Elements per work group."""
        return self.group_size * self.per_item

    def find_row(self, subject: Subject) -> Row | None:
        """First row of the schedule table that applies to a kernel; None if there is none."""
        return next((row for row in self.rows if row.suits(subject)), None)

    def take_row(self, row: Row) -> Profile:
        """Profile with the parameters of a row, and without rows."""
        return dataclasses.replace(self, **dict(row.numbers), rows=())


# fmt: off
CPU = Profile(
    "cpu", classes=(), grouped=False, group_size=1, per_item=32768, lanes=16,
    streaming_bytes=24 << 20, groups=16, piece=32768, row=4096, bytes_per_operation=0.4,
    launch_bytes=1 << 18, cached_bytes=1 << 18, held=0, holding=1, online=256, online_run=8,
    again_size=64, walks=True, vectors=4, columns=32, points=4, fill=1024, tile=(),
    panel=(192, 256, 256),
)
"""One work item per contiguous run of elements, and a loop over 16-lane vectors inside. The
last-level cache still holds the result of a kernel that touches less than 24 MiB, so that writing
around it would slow down whoever reads next."""

GPU = Profile(
    "gpu", classes=("nvidia", "amd", "intel", "qualcomm", "apple"), grouped=True, group_size=256,
    per_item=4, lanes=1, streaming_bytes=None, groups=128, piece=4096, row=0,
    bytes_per_operation=0.15, launch_bytes=1 << 22, cached_bytes=1 << 16, held=80, holding=512,
    online=1 << 14, online_run=64, again_size=80, walks=False, vectors=4, columns=32, points=4,
    fill=1024, tile=(), panel=(192, 256, 256),
)
"""Neighbouring work items on neighbouring elements, four each, 256 apart."""
# fmt: on

PROFILES: tuple[Profile, ...] = (CPU, GPU)


def find_profile(name: str) -> Profile:
    """Profile of that name. Raises `UnknownNameError` with the known names."""
    return find_named("device profile", name, {profile.name: profile for profile in PROFILES})


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an output language on one kernel."""

    target: str
    buffers: int
    """Largest number of buffers per kernel."""
    buffers_reason: str
    elements: int
    """Largest number of elements of a buffer, including the padding to whole groups."""
    elements_reason: str
    index_bits: int
    """Width of the widest index type, in bits."""
    row: int | None
    """Largest number of groups along one dimension of a launch; None: unlimited."""
    word_types: tuple[DataType, ...] = ()
    """Types stored two to a 32-bit word, always word by word."""
    pair_types: tuple[DataType, ...] = ()
    """Types stored two to a 32-bit word: word by word if all stores of a tensor allow it, and else
    atomically."""
    packed_types: tuple[DataType, ...] = ()
    """Types stored several to a 32-bit word, those above included."""
    joined_types: tuple[DataType, ...] = ()
    """Types stored two to a 32-bit word if all vectors of a tensor have 16 bytes."""
    vector_lanes: int = 0
    """Lanes of the vectors that buffers and arrays are made of if accesses are vectors: 1 if the
    language gets no vectors, 0 if vectors of any length may be unaligned."""
    buffer_lanes: int | None = None
    """The same for buffers alone, if it differs from arrays."""
    group_size: int = 256
    """Largest number of work items of a group; devices are not asked."""
    shared_bytes: int = 1 << 14
    """Largest shared memory of a group, in bytes."""
    has_wide_positions: bool = True
    """Whether signed indices may have 64 bits."""
    instruction: Instruction | None = None
    """Matrix instruction for products; None: none."""
    unrolls: bool = False
    """Whether compilers unroll the loops that they are asked to, and then keep the arrays indexed
    by these in registers."""
    precise: frozenset[str] | None = None
    """Operations for which naming the result makes the rounding of operands exact, in a language
    that guarantees it for named locals only. None if all arithmetic is rounded as written."""

    @property
    def whole_lanes(self) -> int:
        """Lanes of the vectors that buffers are made of."""
        return self.vector_lanes if self.buffer_lanes is None else self.buffer_lanes


RUN_TIME_COUNT = 2**31 - 1
"""Largest element count given at run time: one source serves every count up to it, with 32-bit
indices that cannot wrap when the last group is rounded up."""
