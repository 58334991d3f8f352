"""Choice of a kernel's nest, and of how a group's points are distributed over work items and
kernels: by sizes and a profile alone, so that results are bit-identical whatever runs in parallel.

`cpu` and `gpu` have the rules of each kind of device. Only this module asks which kind it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.arrange import find_length
from dmlc.loops.contraction import Contraction, find_contraction, part_axes
from dmlc.loops.nodes import Call, Nest
from dmlc.loops.phases import Phase
from dmlc.loops.rfactor import PIECES, make_cut
from dmlc.schedules import cpu, gpu, open_sizes, skinny
from dmlc.schedules.crossing import choose_crossing
from dmlc.schedules.line_buffer import choose_line_buffer
from dmlc.schedules.matrices import choose_matrices
from dmlc.schedules.online import choose_online
from dmlc.schedules.panels import (
    LEAST_DEPTH,
    choose_dots,
    choose_panels,
    count_pieces,
    suits_dots,
)
from dmlc.schedules.rule import Work
from dmlc.schedules.streaming import CACHE_LINE, Streaming
from dmlc.schedules.tiles import choose_shape, choose_tiles, limit_shape
from dmlc.sizes import Measure
from dmlc.source import InternalError

_PIECES = {True: 8, False: 4}
"""Groups of a chunked reduction, as a multiple of those that keep a device busy: on a GPU, and on a
CPU."""

_LEAST_ROWS = {False: 6, True: 16}
"""Smallest number of rows of a tiled contraction, by whether it is for a GPU."""
_LEAST_COLUMNS = 16
_LEAST_OF_WINDOWS = 8
"""Rows and columns of a contraction over windows, at least, for tiles of a GPU: what a window reads
again comes from them."""
_SHORT = 4
"""Size of a chunk, in reductions that are repeated for it."""
_SECTOR = 8
"""Number that divides the contiguous points of a contraction's chunk: memory moves as many floats
at once."""
_NEARLY = 4
"""Work items that fill a GPU, as a multiple of those that suffice for chunks along another axis."""
_STRIPS = {True: 2048, False: 64}
"""Number that divides the points of a chunk of open size, by whether they are contiguous: what a
group of a GPU loads before it adds the first, so that less remains for the end."""


def find_product(phases: Sequence[Phase], p: Profile) -> Contraction | None:
    """Contraction of some phases, if it is worth tiles."""
    found = find_contraction(part_axes(phases))
    if found is None or (p.grouped and skinny.find_shape(found.settle(p.taken)) is not None):
        return found
    sizes, rows, columns = found.settle(p.taken), _LEAST_ROWS[p.grouped], _LEAST_COLUMNS
    if p.grouped and found.phase.has_positions:
        rows = columns = _LEAST_OF_WINDOWS
    return found if sizes.rows >= rows and sizes.columns >= columns else None


def choose(
    function: ir.Function,
    phases: Sequence[Phase],
    p: Profile,
    limits: Limits,
    streaming: Streaming,
    *,
    serial: bool,
    count: k.Scalar | None,
) -> Nest:
    """Nest of some phases: element-wise work, with the number of elements as argument `count` if
    that is given, or reductions, by single work items (`serial`) or by several together. The first
    of the `RULES` that applies makes it."""
    work = Work(function, tuple(phases), p, limits, streaming, serial, count)
    for rule in RULES:
        nest = rule(work)
        if nest is not None:
            return nest
    raise InternalError(f"no rule applies to '{function.name}'")


def _choose_product(work: Work) -> Nest | None:
    p = work.profile
    found = None if work.is_open and not work.is_gpu else find_product(work.phases, p)
    if found is None:
        return None
    if not work.is_gpu:
        return choose_panels(work, found)
    made = choose_matrices(work, found)
    return made or choose_tiles(work, found, choose_shape(found.settle(p.taken), p))


RULES: tuple[Callable[[Work], Nest | None], ...] = (
    choose_crossing,
    choose_line_buffer,
    choose_online,
    skinny.choose_skinny,
    choose_dots,
    _choose_product,
    open_sizes.choose,
    gpu.choose,
    cpu.choose,
)
"""Rules in the order they are tried; each returns None if it does not apply."""


def arrange(
    function: ir.Function, collect: Callable[..., tuple[Phase, ...]], p: Profile
) -> tuple[tuple[Phase, ...], bool]:
    """Phases that `collect` returns, in memory order or `as_written`, and whether each work item
    reduces its own outputs sequentially: that suits a reduction that depends on indices, with its
    point-wise derived stages, if there are enough outputs to distribute."""
    phases = collect()
    if any(phase.is_open for phase in phases) or find_product(phases, p) is not None:
        return phases, False
    first, *derived = phases
    is_plain = not any(phase.has_positions for phase in phases) or first.elements.results
    if is_plain or not all(phase.is_parallel for phase in derived):
        return phases, suits_serial(function, phases, p)
    if p.grouped:
        serial = gpu.suits_serial(first, p)
        return (collect(as_written=True), True) if serial else (phases, False)
    return cpu.arrange(function, phases, collect(as_written=True), p)


def suits_serial(function: ir.Function, phases: Sequence[Phase], p: Profile) -> bool:
    """Whether each work item reduces its own outputs although nothing depends on indices."""
    return not p.grouped and cpu.reduces_small_windows(function, phases, p)


def _count_groups(phases: Sequence[Phase], p: Profile, limits: Limits) -> int:
    return gpu.count_groups(phases, p, limits) if p.grouped else cpu.count_items(phases, p)


def keeps_busy(phases: Sequence[Phase], p: Profile, limits: Limits) -> bool:
    """Whether one kernel has enough groups, or so little work for each that more would not pay."""
    product = _find_product(phases, p)
    if not p.grouped and suits_dots(phases) is not None:
        return True
    if product is not None:
        return _count_pieces(product, p, limits) < 2
    phases = [phase.settle(p.taken) for phase in phases]
    outputs = math.prod(phases[0].space.parallel_sizes)
    most = max(p.space.inner_count for p in phases)
    groups = _count_groups(phases, p, limits)
    # Stages that a reduction also stores take time wherever they are stored.
    little = p.piece if phases[0].elements.results else 2 * p.piece
    return groups >= p.groups or outputs * most <= little * groups


def _find_product(phases: Sequence[Phase], p: Profile) -> Contraction | None:
    """Contraction to be tiled, with numbers for open sizes."""
    if not p.grouped and any(phase.is_open for phase in phases):
        return None
    found = find_product(phases, p)
    return None if found is None else found.settle(p.taken)


def _count_pieces(product: Contraction, p: Profile, limits: Limits) -> int:
    """Number of chunks of a contraction with too few tiles. On a GPU, small tiles are counted, as
    large tiles in chunks read less than these. Combining the chunks takes a fifth of the products'
    time at most, as each is deep."""
    if not p.grouped:
        return count_pieces(product, p)
    shape = skinny.find_shape(product, limits)
    if shape is not None:
        return skinny.count_pieces(product, shape, p)
    wanted, items = p.groups * p.group_size, limit_shape(product).count_items(product)
    pieces = min(-(-wanted // items), product.depth // LEAST_DEPTH)
    return pieces if items < wanted // 2 and pieces >= skinny.LEAST_PIECES else 1


def cut_up(phases: Sequence[Phase], p: Profile, limits: Limits) -> Call | None:
    """Call that cuts an inner axis of the first phase into chunks, the outermost one that is long
    enough; None if one kernel suffices."""
    product, written = _find_product(phases, p), phases[0]
    phases = [phase.settle(p.taken) for phase in phases]
    space = phases[0].space
    groups = max(1, _count_groups(phases, p, limits))
    work = math.prod(space.parallel_sizes) * space.inner_count // groups
    wanted = min(work // p.piece, -(-_PIECES[p.grouped] * p.groups // groups))
    if product is not None:
        wanted = _count_pieces(product, p, limits)
    long = [axis for axis in space.inner if space.sizes[axis] >= wanted]
    if product is not None and p.grouped and long == [space.inner[-1]]:
        # Contiguous points are not cut, so that they are read in vectors, if chunks of others
        # nearly fill a device.
        shape = skinny.find_shape(product, limits) or limit_shape(product)
        items = _NEARLY * shape.count_items(product)
        full = -(-p.groups * p.group_size // items)
        long = [axis for axis in space.inner if space.sizes[axis] >= full]
    axis = long[0] if long else max(space.inner, key=lambda a: space.sizes[a])
    size = space.sizes[axis]
    pieces = min(wanted, size)
    if (product is None and groups >= p.groups) or pieces < 2:
        return None
    if not isinstance(written.space.extents[axis], int):
        return _cut_open(written, axis, size, pieces, product, p)
    # Chunks of contiguous points start at cache lines; those of a product at sectors.
    line = 1 if axis < len(space.sizes) - 1 else CACHE_LINE if product is None else _SECTOR
    length = -(-size // pieces)
    if p.grouped:
        length = find_length(size, pieces, line)
    elif phases[0].elements.results:
        length = -(-length // line) * line
    return make_cut(written, axis, length) if length < size else None


def _cut_open(
    written: Phase, axis: int, size: int, pieces: int, product: Contraction | None, p: Profile
) -> Call:
    """Call that cuts an axis of open size, given its assumed size. A product has only as many
    chunks as it has enough points for, and a pass that applies reductions to contiguous rows as
    many as they have points for."""
    if product is not None and pieces * LEAST_DEPTH > size // 2:
        return make_cut(written, axis, -(-size // pieces))
    is_beside = axis == len(written.space.extents) - 1 and product is None
    if is_beside and not written.accumulators and len(written.space.inner) == 1:
        unit = _STRIPS[True]
        return make_cut(written, axis, max(1, size // pieces // unit) * unit)
    if not p.grouped or len(written.space.inner) > 1:
        unit = (_STRIPS[False],) if p.grouped and is_beside else ()
        return make_cut(written, axis, pieces, PIECES, *unit)
    return make_cut(written, axis, pieces, PIECES, _STRIPS[is_beside])


def takes_neighbours(phases: Sequence[Phase], p: Profile, *, alone: bool) -> bool:
    """Whether one work item reduces windows of neighbouring outputs, which share loads: if each
    work item reduces its own outputs anyway (`alone`), or there are few points."""
    few = not any(phase.is_open for phase in phases) and gpu.reduces_few(phases[0])
    return p.grouped and (alone or few)


def combines_again(phases: Sequence[Phase], p: Profile) -> bool:
    """Whether each work group recombines the partial results of a reduction that it uses: this
    takes a few more loads, and saves a launch. It requires known sizes, as its users are cut
    alike."""
    return p.grouped


def repeats_cheaply(phase: Phase, count: Measure, p: Profile) -> bool:
    """Whether each work group that needs a reduction of `count` points may repeat it: for all of
    the group's outputs, these are few beside what it reads itself. Counts of open size are."""
    if not isinstance(count, int):
        return True
    outputs = math.prod(phase.settle(p.taken).space.parallel_sizes)
    columns = min(p.columns, outputs) if gpu.lies_across((phase,)) else 1
    return _SHORT * count * columns <= p.piece
