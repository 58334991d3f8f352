"""Iteration spaces of a kernel's passes: few, long dimensions in memory order.

Independent elements may be computed in any order. Every pass has the kernel's parallel dimensions,
which all passes share, and inner ones of its own. Dimensions are sorted by the memory order of the
largest tensors, and adjacent ones that every tensor traverses as one are merged; no case is treated
by name. `N, C, H, W` reduced to `C` becomes inner, parallel, inner; rows become parallel, inner;
columns inner, parallel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.loops.element import Elements, Gather, Piece, View, find_moving
from dmlc.sizes import Measure, Taken, estimate, known, measure, multiply


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """Dimensions of one pass, outermost first, and each view's strides along them."""

    extents: tuple[Measure, ...]
    strides: Mapping[View, tuple[Measure, ...]]
    """Strides in elements."""
    parallel: tuple[int, ...]
    """Axes of the parallel dimensions, in the order common to all passes."""
    pieces: Mapping[int, Piece] = dataclasses.field(default_factory=dict[int, Piece])
    """Axes that are chunks of longer ones, of which some may have fewer points."""
    packed: bool = False
    """Whether there is one dimension, and every view either traverses it contiguously or is
    constant: only the element count depends on the tensors' sizes."""
    indices: tuple[str, ...] = ()
    """Index of the formula that each dimension is, such as `i2`, or `i2i3` where both are merged.
    Empty where a formula has none of these."""

    @property
    def known_strides(self) -> Mapping[View, tuple[int, ...]]:
        """Strides of a space of known sizes."""
        return {view: known(steps) for view, steps in self.strides.items()}

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
    def is_open(self) -> bool:
        """Whether a size or a stride is known at run time only."""
        steps = (step for strides in self.strides.values() for step in strides)
        return not all(isinstance(each, int) for each in (*self.extents, *steps))

    @property
    def count(self) -> Measure:
        """Number of points."""
        return multiply(self.extents)

    def settle(self, taken: Taken) -> Space:
        """Space with numbers for open sizes: those that symbols are assumed to have."""
        strides = {v: tuple(estimate(s, taken) for s in own) for v, own in self.strides.items()}
        extents = tuple(max(1, estimate(extent, taken)) for extent in self.extents)
        pieces = {axis: piece.settle(taken) for axis, piece in self.pieces.items()}
        return dataclasses.replace(self, extents=extents, strides=strides, pieces=pieces)

    def drop_ones(self) -> Space:
        """Space without the parallel dimensions of size 1."""
        every = range(len(self.extents))
        return self.select([a for a in every if self.extents[a] != 1 or a not in self.parallel])

    def select(self, axes: Sequence[int]) -> Space:
        """Space with some of its axes, in their order; none may be a chunk of a longer one."""
        return Space(
            tuple(self.extents[axis] for axis in axes),
            {v: tuple(steps[axis] for axis in axes) for v, steps in self.strides.items()},
            tuple(axes.index(axis) for axis in self.parallel if axis in axes),
            indices=tuple(self.indices[axis] for axis in axes) if self.indices else (),
        )

    def count_steps(self, view: View) -> int | None:
        """Number of elements that a view visits, ignoring dimensions along which it is constant;
        None if known at run time only."""
        sizes = [n for n, step in zip(self.extents, self.strides[view], strict=True) if step]
        numbers = [size for size in sizes if isinstance(size, int)]
        return math.prod(numbers) if len(numbers) == len(sizes) else None


def keep_all(elements: Elements) -> Space:
    """The dimensions as they are, all parallel."""
    every = tuple(range(len(elements.domain)))
    return Space(_measure(elements.domain), elements.strides, every, indices=elements.indices)


def collapse(elements: Elements) -> Space:
    """Fewest and longest dimensions for element-wise work: sorted by the memory order of the first
    result, with adjacent ones merged that every operand traverses as one."""
    views = tuple(dict.fromkeys(elements.views()))
    aligned = not any(view.offset for view in views)
    sizes = _measure(elements.domain)
    points = multiply(sizes)
    if isinstance(points, int) and points <= 1:
        # Strides are never used; these are those of any packed tensor.
        return Space((points,), dict.fromkeys(views, (1,)), (0,), packed=aligned)
    first = elements.results[0][0]
    order = [axis for axis, size in enumerate(sizes) if size != 1]
    runs = _merge(sorted(order, key=lambda axis: -estimate(first.strides[axis])), sizes, views)
    strides = {view: tuple(view.strides[run[-1]] for run in runs) for view in views}
    lengths = tuple(multiply(sizes[axis] for axis in run) for run in runs)
    steady = len(runs) == 1 and all(steps[0] in (0, 1) for steps in strides.values())
    packed, names = steady and aligned, _name(runs, elements)
    return Space(lengths, strides, tuple(range(len(runs))), packed=packed, indices=names)


def arrange(
    passes: Sequence[Elements], parallel: int, as_written: bool = False
) -> tuple[Space, ...]:
    """Spaces of passes over the same `parallel` first dimensions: in memory order, or `as_written`.

    A reducing pass has an inner dimension, if necessary of size 1.
    """
    domains = [_measure(p.domain) for p in passes]
    sizes = domains[0][:parallel]
    views = [_rank(p, domain) for p, domain in zip(passes, domains, strict=True)]
    sort = _keep_order if as_written else _sort
    order = [axis for axis in sort(views[0], len(domains[0])) if axis < parallel]
    everyone = [view for ranked in views for view, _ in ranked]
    cut = [(axis, piece) for made in passes for axis, piece in made.pieces]
    apart = {each for axis, piece in cut for each in (axis, piece.number)}
    runs = _merge(order, sizes, everyone, apart)
    spaces: list[Space] = []
    for made, ranked, domain in zip(passes, views, domains, strict=True):
        walk_order = sort(ranked, len(domain))
        inner = [axis for axis in walk_order if axis >= parallel]
        inner_runs = _merge(inner, domain, [view for view, _ in ranked], apart)
        if made.reductions and not inner_runs:
            inner_runs = [list[int]()]
        # A run has the place of its innermost dimension; the others are directly outside of it.
        place = {axis: number for number, axis in enumerate(walk_order)}
        every = [(run, True) for run in runs] + [(run, False) for run in inner_runs]
        every.sort(key=lambda item: place[item[0][-1]] if item[0] else len(place))
        strides = {
            view: tuple(view.strides[run[-1]] if run else 0 for run, _ in every)
            for view in dict.fromkeys(made.views())
        }
        lengths = tuple(multiply(domain[axis] for axis in run) for run, _ in every)
        position = {tuple(run): n for n, (run, is_parallel) in enumerate(every) if is_parallel}
        kept = tuple(position[tuple(run)] for run in runs)
        names = _name([run for run, _ in every], made)
        at = {axis: number for number, (run, _) in enumerate(every) for axis in run}
        pieces = {
            at[axis]: dataclasses.replace(piece, number=at[piece.number])
            for axis, piece in made.pieces
        }
        spaces.append(Space(lengths, strides, kept, pieces, indices=names))
    return tuple(spaces)


def _name(runs: Sequence[Sequence[int]], elements: Elements) -> tuple[str, ...]:
    """The indices of dimensions that are merged of these axes of a domain."""
    names = elements.indices
    return tuple("".join(names[axis] for axis in sorted(run)) for run in runs) if names else ()


def _measure(domain: Sequence[ir.Extent]) -> tuple[Measure, ...]:
    return tuple(measure(extent) for extent in domain)


def arrange_rows(passes: Sequence[Elements], lead: int, apart: bool) -> tuple[Space, ...]:
    """Spaces of passes that share the `lead` first dimensions and keep the others in their order;
    the last of the first ones too, if it is `apart`."""
    sizes = tuple(e for e in passes[0].domain[:lead] if isinstance(e, int))
    views = [v for p in passes for v in p.views() if not v.local]
    runs = _merge(list(range(lead - apart)), sizes, views)
    if apart:
        runs.append([lead - 1])
    spaces: list[Space] = []
    for made in passes:
        every = [*runs, *([axis] for axis in range(lead, len(made.domain)))]
        domain = tuple(e for e in made.domain if isinstance(e, int))
        strides = {
            view: tuple(view.strides[run[-1]] for run in every)
            for view in dict.fromkeys(made.views())
        }
        lengths = tuple(math.prod(domain[axis] for axis in run) for run in every)
        names = _name(every, made)
        spaces.append(Space(lengths, strides, tuple(range(len(runs))), indices=names))
    return tuple(spaces)


def cut(space: Space, axis: int, length: Measure, pieces: Measure) -> Space:
    """Space with an inner axis cut into `pieces` chunks of `length`; the chunk's number is the
    first parallel dimension."""
    size = space.extents[axis]
    strides = {v: (s[axis] * length, *s) for v, s in space.strides.items()}
    sizes = list(space.extents)
    sizes[axis] = length
    parallel = (0, *(k + 1 for k in space.parallel))
    # Chunks of one length end together: their points are an axis like any.
    is_even = isinstance(length, int) and isinstance(size, int) and size % length == 0
    own = {} if is_even else {axis + 1: Piece(0, length, size)}
    names = ("piece", *space.indices) if space.indices else ()
    return Space((pieces, *sizes), strides, parallel, own, indices=names)


def find_length(size: int, pieces: int, line: int) -> int:
    """Length of about `pieces` chunks: equal for all if possible, and a multiple of `line`."""
    counts = sorted(range(-(-pieces // 2), 2 * pieces), key=lambda count: abs(count - pieces))
    for count in counts:
        if size % (count * line) == 0:
            return size // count
    length = -(-size // pieces)
    return -(-length // line) * line


Ranked: TypeAlias = list[tuple[View, tuple[Measure, ...]]]
"""Views, the largest first, each with its strides."""


def _rank(elements: Elements, domain: Sequence[Measure]) -> Ranked:
    """Views of a pass, the largest first; of equal ones, results first."""
    steps = _find_steps(elements)
    views = [v for v in elements.views() if not v.local]
    stored = {view for view, _ in elements.results}

    def reach(view: View) -> tuple[int, bool]:
        taken = zip(domain, steps[view], strict=True)
        in_buffer = view in stored or bool(view.tensor)
        return (math.prod(estimate(n) for n, s in taken if s) if in_buffer else 0, view in stored)

    ranked = sorted(dict.fromkeys(views), key=reach, reverse=True)
    return [(view, steps[view]) for view in ranked]


def _find_steps(elements: Elements) -> dict[View, tuple[Measure, ...]]:
    """Stride of each view along each dimension; for a load at computed indices, plus one for each
    index that varies along it."""
    gathers = [value for value in elements.values if isinstance(value, Gather)]
    found = {view: list(steps) for view, steps in elements.strides.items()}
    for axis in range(len(elements.domain) if gathers else 0):
        moving = find_moving(elements, axis)
        for gather in gathers:
            terms = sum((step for number, step in gather.terms if moving[number]), start=0)
            moved = terms + gather.view.strides[axis]
            found[gather.view][axis] = max(found[gather.view][axis], moved, key=estimate)
    return {view: tuple(steps) for view, steps in found.items()}


def _sort(ranked: Ranked, rank: int) -> list[int]:
    """Dimensions in memory order, the densest innermost: of two, the largest tensor that varies
    along both decides. Without one, they stay as written; dimensions along which no tensor varies
    are innermost."""
    order: list[int] = []
    for axis in range(rank):
        place = len(order)
        for at in reversed(range(len(order))):
            outer = _is_outer(ranked, axis, order[at])
            if outer:
                place = at
            elif outer is not None:
                break
        order.insert(place, axis)
    return order


def _is_outer(ranked: Ranked, axis: int, other: int) -> bool | None:
    """Whether a dimension is outside another one; None if no tensor decides."""
    in_memory = (own for view, own in ranked if view.tensor)
    steps = [(estimate(own[axis]), estimate(own[other])) for own in in_memory]
    for first, second in steps:
        if first and second and first != second:
            return first > second
    moves = [any(found) for found in zip(*steps, strict=True)]
    return None if len(set(moves)) < 2 else moves[0]


def _keep_order(ranked: Ranked, rank: int) -> list[int]:
    """Dimensions as they are written."""
    del ranked
    return list(range(rank))


def _merge(
    order: list[int], sizes: Sequence[Measure], views: Sequence[View], apart: Container[int] = ()
) -> list[list[int]]:
    """Runs of dimensions that every view traverses as one, outermost first; those `apart` are runs
    of their own."""
    runs: list[list[int]] = []
    for axis in order:
        outer = runs[-1][-1] if runs else None
        may = outer is not None and axis not in apart and outer not in apart
        if (
            outer is not None
            and may
            and all(v.strides[outer] == v.strides[axis] * sizes[axis] for v in views)
        ):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs
