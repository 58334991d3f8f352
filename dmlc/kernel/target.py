"""What a kernel's shape depends on: the device profile and the limits of an output language.

Both are frozen values. Nothing here asks a device anything, so that a kernel is decided by what
the user asked for alone, and compiles to the same bytes on every machine.
"""

from __future__ import annotations

import dataclasses

from dmlc.matrices import Instruction
from dmlc.scalars import DataType
from dmlc.sizes import Taken
from dmlc.source import UnknownNameError, unknown_name


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """How work is cut up on a kind of device."""

    name: str
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
    walks: bool = False
    """Whether a work item may walk all points of a row, and put each where it belongs."""
    taken: Taken = ()
    """What sizes that are left open are taken for: kernels are right for all, and suit these."""

    @property
    def per_group(self) -> int:
        """Elements that one work group computes."""
        return self.group_size * self.per_item


CPU = Profile(
    "cpu",
    group_size=1,
    per_item=32768,
    lanes=16,
    streaming_bytes=24 << 20,
    groups=16,
    piece=32768,
    row=4096,
    bytes_per_operation=0.4,
    launch_bytes=1 << 18,
    cached_bytes=1 << 18,
    held=0,
    holding=1,
    online=256,
    online_run=8,
    again_size=64,
    walks=True,
)
"""One work item per contiguous run of elements, and a loop over 16-lane vectors inside. The
last-level cache still holds the result of a kernel that touches less than 24 MiB, so that writing
around it would slow down whoever reads next."""

GPU = Profile(
    "gpu",
    group_size=256,
    per_item=4,
    lanes=1,
    streaming_bytes=None,
    groups=128,
    piece=4096,
    row=0,
    bytes_per_operation=0.15,
    launch_bytes=1 << 22,
    cached_bytes=1 << 16,
    held=80,
    holding=512,
    online=1 << 14,
    online_run=64,
    again_size=80,
)
"""Neighbouring work items on neighbouring elements, four each, 256 apart."""

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
