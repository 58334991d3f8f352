"""What a kernel's shape depends on: the device profile and the limits of an output language.

Both are frozen values. Nothing here asks a device anything, so that a kernel is decided by what
the user asked for alone, and compiles to the same bytes on every machine.
"""

from __future__ import annotations

import dataclasses

from dmlc.matrices import Instruction
from dmlc.scalars import DataType
from dmlc.sizes import Taken
from dmlc.source import Span, UnknownNameError, unknown_name


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """What a row of the schedule table is looked up by: what some stages are to a device."""

    kind: str
    """Their kernel class, such as `product`."""
    dtype: DataType
    """The type of the largest tensor that they read or store."""
    size: int | None
    """The outputs of a product, or else the elements of that tensor; None where that is known at
    run time only."""
    batches: int = 1
    rows: int = 0
    """Of a product."""
    columns: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A row of the schedule table: numbers of rules for kernels of a class on a device."""

    device: str
    kind: str
    dtype: DataType | None
    """None: any type of up to 32 bits."""
    first: int
    """The power of two from which sizes are the row's."""
    last: int | None
    """The power of two from which they are no more; None: there is none."""
    numbers: tuple[tuple[str, int | tuple[int, ...]], ...]
    """Fields of `Profile`, and their values."""
    text: str
    """The row on one line."""
    span: Span = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return f"table row {self.text}"

    @property
    def is_for_all(self) -> bool:
        """Whether sizes do not matter."""
        return self.first == 0 and self.last is None

    def suits(self, subject: Subject) -> bool:
        """Whether it is for a kernel. Tiles are for no product of which they would compute more
        than twice the outputs."""
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
"""The bytes of a type, at most, that rows for any type are for: tiles of them are as large as the
table says."""


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """How work is cut up on a kind of device. What is known of the kind has no default, so that a
    field left out is an error at import; the last fields are what a caller says."""

    name: str
    classes: tuple[str, ...]
    """The classes of its devices. Architectures have names below these: `nvidia.sm_90`."""
    grouped: bool
    """Whether the work items of a group run side by side and share memory, as on a GPU. Otherwise
    each computes elements that lie together, in vectors, as on a CPU."""
    group_size: int
    """Work items per group."""
    per_item: int
    """Elements that one work item computes (about, where they are not in one run)."""
    lanes: int
    """Elements per vector; 1 where each work item works on scalars."""
    streaming_bytes: int | None
    """Stores pass the caches by once a kernel touches this many bytes of memory; None: never."""
    groups: int
    """Work groups that keep the device busy: with fewer, large reductions are reduced in pieces."""
    piece: int
    """Points that one work group reduces at least, before they are shared out in pieces."""
    row: int
    """Elements of a line buffer, at most: a row of a reduction that another reduces along; 0:
    none."""
    bytes_per_operation: float
    """Bytes that memory moves in the time of one addition."""
    launch_bytes: int
    """Bytes that memory moves in the time it takes to launch one more kernel."""
    cached_bytes: int
    """Bytes that a work group can read again without going to memory."""
    held: int
    """Elements that a work item holds in registers, at most, from one pass over a row to the next,
    and from row to row; 0: none."""
    holding: int
    """Work items of a group, at most, where they hold rows."""
    online: int
    """Rows of scores, at least, that one kernel reduces online, each lane a row; 0: none."""
    online_run: int
    """And as many of them, at least, that read the same keys: a group takes no others together."""
    again_size: int
    """Elements of a query, or of a value, at most, where several kernels compute scores again:
    longer ones take longer than memory does. On a GPU, gradients of 96 and 128 were modelled to
    take 1.6 and 2.4 times as long so."""
    walks: bool
    """Whether a work item may walk all points of a row, and put each where it belongs."""
    vectors: int
    """Vectors of a work item of element-wise work, at most: what it has loaded before it computes
    is what memory is asked for at a time."""
    columns: int
    """Neighbouring outputs of a reduction in a group, where they are neighbours in memory: a cache
    line of floats, or two."""
    points: int
    """Points, or vectors of them, that a work item reduces at least before more of them share an
    output; and those that it reads before it adds the first."""
    fill: int
    """Groups that fill a large device: while there are fewer, more work items share an output."""
    tile: tuple[int, ...]
    """Rows and columns of a product's tile, those of a work item, points of it, and 1 where the
    next tile is read ahead; empty: what suits the sizes."""
    panel: tuple[int, int, int]
    """The most rows and columns of a work item's tile of a product, and points of its panels: two
    panels and the sums take less than half a megabyte, and the part of them that a block goes over
    stays in the first cache."""
    device_class: str = ""
    """The device class that a caller names, such as `nvidia.sm_90`; empty: none."""
    rows: tuple[Row, ...] = ()
    """Rows of the schedule table that may serve, the first that suits a kernel before others."""
    taken: Taken = ()
    """What sizes that are left open are taken for: kernels are right for all, and suit these."""
    bounds: Taken = ()
    """What sizes that are left open are at most, in the version that is compiled."""

    @property
    def per_group(self) -> int:
        """Elements that one work group computes."""
        return self.group_size * self.per_item

    def find_row(self, subject: Subject) -> Row | None:
        """The row of the schedule table for a kernel; None where there is none."""
        return next((row for row in self.rows if row.suits(subject)), None)

    def take_row(self, row: Row) -> Profile:
        """The profile with the numbers of a row, and no rows."""
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
    """The profile of that name. Raises `UnknownNameError`, naming those there are."""
    for profile in PROFILES:
        if profile.name == name:
            return profile
    raise UnknownNameError(unknown_name("device profile", name, [p.name for p in PROFILES]))


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What one kernel of an output language can address."""

    target: str
    buffers: int
    """Buffers per kernel."""
    buffers_reason: str
    elements: int
    """The number of elements a buffer can be indexed by, rounding to whole groups included."""
    elements_reason: str
    index_bits: int
    """The widest index the language can use."""
    row: int | None
    """Groups along one dimension of a launch; None where there is no such limit."""
    word_types: tuple[DataType, ...] = ()
    """Types that buffers hold two to a word of 32 bits, and kernels store word by word."""
    pair_types: tuple[DataType, ...] = ()
    """Types that buffers hold two to a word of 32 bits, and kernels store word by word where all
    that a kernel stores of one lies together, and else atomically."""
    packed_types: tuple[DataType, ...] = ()
    """Types that buffers hold several of to a word of 32 bits, those among them."""
    joined_types: tuple[DataType, ...] = ()
    """Types that buffers hold two to a word of 32 bits where all vectors of one have 16 bytes."""
    vector_lanes: int = 0
    """The lanes of the vectors that buffers and arrays are made of where they are accessed in
    vectors: 1 where a language is given none, 0 where vectors of any size lie anywhere."""
    buffer_lanes: int | None = None
    """The same of buffers alone, where these are not as arrays are."""
    group_size: int = 256
    """Work items of a group, at most: devices are not asked."""
    shared_bytes: int = 1 << 14
    """Memory of a group, at most, of one that is larger than the profile has them."""
    has_wide_positions: bool = True
    """Whether signed positions may have 64 bits."""
    instruction: Instruction | None = None
    """The matrix instruction that products may be made by; None: none."""
    unrolls: bool = False
    """Whether compilers write out the loops that they are asked to, and then keep in registers the
    arrays that these go over."""
    precise: frozenset[str] | None = None
    """The operations through which a named local pins how its operands are rounded, where the
    language pins it for named locals only. None where all arithmetic is rounded as written."""

    @property
    def whole_lanes(self) -> int:
        """The lanes of the vectors that buffers are made of."""
        return self.vector_lanes if self.buffer_lanes is None else self.buffer_lanes


RUN_TIME_COUNT = 2**31 - 1
"""The largest element count given at run time: one source serves every count up to it, with
32-bit indices that cannot wrap while the last group is rounded up."""
