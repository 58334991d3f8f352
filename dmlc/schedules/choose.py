"""Chooses the nest of a kernel, and how a group's points are shared out among work items and
kernels: by sizes and a profile alone, so that results have the same bits whatever runs in parallel.

What suits each kind of device, `cpu` and `gpu` say. Nothing else asks which one it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.contraction import Contraction, find_contraction, part_axes
from dmlc.loops.nodes import Call, Nest
from dmlc.loops.phases import Phase
from dmlc.loops.rfactor import PIECES, make_cut
from dmlc.loops.space import find_length
from dmlc.schedules import cpu, gpu, open_sizes, skinny
from dmlc.schedules.matrices import choose_matrices
from dmlc.schedules.panels import choose_panels, count_panels
from dmlc.schedules.rule import Work
from dmlc.schedules.streaming import CACHE_LINE, Streaming
from dmlc.schedules.tiles import choose_shape, choose_tiles, limit_shape
from dmlc.source import InternalError

_PIECES = {True: 8, False: 4}
"""Groups of a reduction in pieces, by those that keep a device busy: a GPU, or a CPU."""

_LEAST_ROWS = {False: 6, True: 16}
"""Rows of a contraction that is cut into tiles, at least, by whether it is for a GPU."""
_LEAST_COLUMNS = 16
_FILL = 4
"""Tiles of a contraction in pieces, by those that keep a CPU busy."""
_LEAST_DEPTH = 256
"""Points of a piece of a contraction, at least."""
_SECTOR = 8
"""What the points of a piece of a contraction are a multiple of where they lie side by side: memory
moves as many floats at once."""
_NEARLY = 4
"""Work items that fill a GPU, by those that are enough in pieces along another axis."""
_STRIPS = {True: 2048, False: 64}
"""What the points of a piece are a multiple of where sizes are left open, by whether they lie side
by side: what a group of a GPU reads before it adds the first. Less is left over for the end."""
_LEAST_PIECES = {False: 2, True: skinny.LEAST_PIECES}
"""Pieces of a contraction, at least, by whether it is for a GPU."""


def _is_gpu(p: Profile) -> bool:
    return p.lanes == 1


def find_product(phases: Sequence[Phase], p: Profile) -> Contraction | None:
    """The contraction that some phases are, where it is worth tiles."""
    found = find_contraction(part_axes(phases))
    if found is None or (_is_gpu(p) and skinny.find_shape(found.settle(p.taken)) is not None):
        return found
    least, sizes = _LEAST_ROWS[_is_gpu(p)], found.settle(p.taken)
    return found if sizes.rows >= least and sizes.columns >= _LEAST_COLUMNS else None


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
    """The nest of some phases: element-wise work, whose number of elements is an argument where
    `count` stands for it, or reductions, which work items make by themselves (`serial`) or
    together. The first of the `RULES` that applies makes it."""
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
    if work.is_gpu:
        made = choose_matrices(work, found)
        if made is not None:
            return made
        shape = choose_shape(found.settle(p.taken), p)
        return choose_tiles(work.function, work.phases, found, shape, work.limits)
    return choose_panels(work, found)


RULES: tuple[Callable[[Work], Nest | None], ...] = (
    skinny.choose_skinny,
    _choose_product,
    open_sizes.choose,
    gpu.choose,
    cpu.choose,
)
"""What chooses a nest, the first that applies: a rule gives None for what it is not for."""


def arrange(
    function: ir.Function, collect: Callable[[bool], tuple[Phase, ...]], p: Profile
) -> tuple[tuple[Phase, ...], bool]:
    """The phases that are collected in the order of memory, or as they are written where that is
    asked for; and whether work items reduce outputs of their own, one after the other. That suits a
    reduction, and what derives from it output by output, that depend on positions, as long as there
    are outputs enough to share out; elsewhere work items share what they reduce."""
    phases = collect(False)
    if any(phase.space.is_open for phase in phases) or find_product(phases, p) is not None:
        return phases, False
    first, *derived = phases
    is_plain = not any(phase.has_positions for phase in phases) or first.elements.results
    if is_plain or not all(phase.is_parallel for phase in derived):
        return phases, suits_serial(function, phases, p)
    if _is_gpu(p):
        return (collect(True), True) if gpu.suits_serial(first, p) else (phases, False)
    return cpu.arrange(function, phases, collect(True), p)


def suits_serial(function: ir.Function, phases: Sequence[Phase], p: Profile) -> bool:
    """Whether work items reduce outputs of their own though nothing depends on positions."""
    return not _is_gpu(p) and cpu.reduces_small_windows(function, phases, p)


def _count_groups(phases: Sequence[Phase], p: Profile, limits: Limits) -> int:
    return gpu.count_groups(phases, p, limits) if _is_gpu(p) else cpu.count_items(phases, p)


def keeps_busy(phases: Sequence[Phase], p: Profile, limits: Limits) -> bool:
    """Whether one kernel has enough groups to share out, or so little work for each that more
    would not pay."""
    product = _find_product(phases, p)
    if product is not None:
        return _count_pieces(product, p) < 2
    phases = [phase.settle(p.taken) for phase in phases]
    outputs = math.prod(phases[0].space.parallel_sizes)
    most = max(p.space.inner_count for p in phases)
    groups = _count_groups(phases, p, limits)
    # What a reduction stores as well takes its time, wherever it is stored.
    little = p.piece if phases[0].elements.results else 2 * p.piece
    return groups >= p.groups or outputs * most <= little * groups


def _find_product(phases: Sequence[Phase], p: Profile) -> Contraction | None:
    """The contraction that is cut into tiles, with numbers for sizes known at run time only."""
    if not _is_gpu(p) and any(phase.space.is_open for phase in phases):
        return None
    found = find_product(phases, p)
    return None if found is None else found.settle(p.taken)


def _count_pieces(product: Contraction, p: Profile) -> int:
    """The pieces that the points of a contraction are cut into, where it has too few tiles. Large
    tiles and pieces read less than small tiles do, so that those are counted on a GPU. What the
    pieces come to takes a fifth of the time of the products at the most, for each is deep."""
    shape = skinny.find_shape(product) if _is_gpu(p) else None
    if shape is not None:
        return skinny.count_pieces(product, shape, p)
    if _is_gpu(p):
        wanted, items = p.groups * p.group_size, limit_shape(product).count_items(product)
    else:
        wanted, items = _FILL * p.groups, count_panels(product, p)
    enough = wanted // (2 if _is_gpu(p) else _FILL)
    pieces = 1 if items >= enough else min(-(-wanted // items), product.depth // _LEAST_DEPTH)
    return pieces if pieces >= _LEAST_PIECES[_is_gpu(p)] else 1


def cut_up(phases: Sequence[Phase], p: Profile, limits: Limits) -> Call | None:
    """The call that cuts an inner axis of the first phase into pieces, the outermost one that is
    long enough; None where one kernel does."""
    product, written = _find_product(phases, p), phases[0]
    phases = [phase.settle(p.taken) for phase in phases]
    space = phases[0].space
    groups = max(1, _count_groups(phases, p, limits))
    work = math.prod(space.parallel_sizes) * space.inner_count // groups
    wanted = min(work // p.piece, -(-_PIECES[_is_gpu(p)] * p.groups // groups))
    if product is not None:
        wanted = _count_pieces(product, p)
    long = [axis for axis in space.inner if space.sizes[axis] >= wanted]
    if product is not None and _is_gpu(p) and long == [space.inner[-1]]:
        # Points that lie side by side stay so, and are read in vectors, where pieces of others
        # nearly fill a device.
        shape = skinny.find_shape(product) or limit_shape(product)
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
    # Pieces of what lies side by side start on cache lines; those of a product on sectors.
    line = 1 if axis < len(space.sizes) - 1 else CACHE_LINE if product is None else _SECTOR
    length = -(-size // pieces)
    if _is_gpu(p):
        length = find_length(size, pieces, line)
    elif phases[0].elements.results:
        length = -(-length // line) * line
    return make_cut(written, axis, length) if length < size else None


def _cut_open(
    written: Phase, axis: int, size: int, pieces: int, product: Contraction | None, p: Profile
) -> Call:
    """The call that cuts an axis whose size is left open, and taken for a number. A product has as
    many pieces as it has points for, where these are fewer than would fill a device."""
    if product is not None and pieces * _LEAST_DEPTH > size // 2:
        return make_cut(written, axis, -(-size // pieces))
    if not _is_gpu(p) or len(written.space.inner) > 1:
        return make_cut(written, axis, pieces, PIECES)
    is_beside = axis == len(written.space.extents) - 1 and product is None
    return make_cut(written, axis, pieces, PIECES, _STRIPS[is_beside])


def takes_neighbours(phases: Sequence[Phase], p: Profile, *, alone: bool) -> bool:
    """Whether one work item reduces windows of neighbouring outputs, which read much in common:
    where work items reduce outputs of their own anyway (`alone`), or there are few points."""
    few = not any(phase.space.is_open for phase in phases) and gpu.reduces_few(phases[0])
    return _is_gpu(p) and (alone or few)


def combines_again(phases: Sequence[Phase], p: Profile) -> bool:
    """Whether each work group combines the partial results of a reduction again that it applies: a
    few reads more, and a launch less. What applies it is cut up alike, which takes known sizes."""
    return _is_gpu(p)
