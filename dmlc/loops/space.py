"""The points of each pass of a kernel: few, long dimensions in memory's order.

The order in which independent elements are computed is free. Every pass runs over the dimensions
the kernel keeps, which all passes share, and over inner ones of its own. Dimensions are ordered as
the largest tensors lie in memory, and neighbours that every tensor walks as one are merged; no case
is told from another by name. `N, C, H, W` reduced to `C` becomes inner, kept, inner; rows become
kept, inner; columns inner, kept.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.loops.element import Elements, Gather, View, find_moving
from dmlc.sizes import Measure, Taken, estimate, known, measure, multiply


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A dimension that is one piece of a longer one: `length` elements of `size`, fewer at the
    end. Which piece, the axis `number` says."""

    number: int
    length: Measure
    size: Measure

    def settle(self, taken: Taken) -> Piece:
        """The piece with numbers for sizes that are known at run time only."""
        return Piece(self.number, estimate(self.length, taken), estimate(self.size, taken))


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """The dimensions of one pass, outermost first, and each view's strides along them."""

    extents: tuple[Measure, ...]
    strides: Mapping[View, tuple[Measure, ...]]
    """In elements."""
    parallel: tuple[int, ...]
    """The axes that are parallel dimensions, in the order all passes have them."""
    pieces: Mapping[int, Piece] = dataclasses.field(default_factory=dict[int, Piece])
    """Axes that are pieces of longer ones, of which some may have fewer points."""
    packed: bool = False
    """Whether there is one dimension, and every view either walks it element by element or stands
    still: nothing but the number of elements depends on the tensors' sizes."""

    @property
    def known_strides(self) -> Mapping[View, tuple[int, ...]]:
        """The strides, of a space whose sizes are known."""
        return {view: known(steps) for view, steps in self.strides.items()}

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple([e for e in self.extents if isinstance(e, int)])

    @property
    def inner(self) -> tuple[int, ...]:
        """The axes that are not kept, outermost first."""
        return tuple(axis for axis in range(len(self.extents)) if axis not in self.parallel)

    @property
    def parallel_sizes(self) -> tuple[int, ...]:
        return known(self.extents[axis] for axis in self.parallel)

    @property
    def outputs(self) -> tuple[Measure, ...]:
        """The sizes of the parallel dimensions."""
        return tuple(self.extents[axis] for axis in self.parallel)

    @property
    def inner_count(self) -> int:
        sizes = self.sizes
        return math.prod([sizes[axis] for axis in self.inner])

    @property
    def is_open(self) -> bool:
        """Whether a dimension's size, or how far apart its elements lie in a tensor, is known at
        run time only."""
        steps = (step for strides in self.strides.values() for step in strides)
        return not all(isinstance(each, int) for each in (*self.extents, *steps))

    @property
    def count(self) -> Measure:
        """The number of points."""
        return multiply(self.extents)

    def settle(self, taken: Taken) -> Space:
        """The space with numbers for sizes that are known at run time only: what symbols are taken
        for."""
        strides = {v: tuple(estimate(s, taken) for s in own) for v, own in self.strides.items()}
        extents = tuple(max(1, estimate(extent, taken)) for extent in self.extents)
        pieces = {axis: piece.settle(taken) for axis, piece in self.pieces.items()}
        return dataclasses.replace(self, extents=extents, strides=strides, pieces=pieces)

    def drop_ones(self) -> Space:
        """The space without the parallel dimensions of one element."""
        every = range(len(self.extents))
        return self.select([a for a in every if self.extents[a] != 1 or a not in self.parallel])

    def select(self, axes: Sequence[int]) -> Space:
        """The space along some of its axes, in their order; none is a piece of a longer one."""
        return Space(
            tuple(self.extents[axis] for axis in axes),
            {v: tuple(steps[axis] for axis in axes) for v, steps in self.strides.items()},
            tuple(axes.index(axis) for axis in self.parallel if axis in axes),
        )

    def count_steps(self, view: View) -> int | None:
        """The elements that a view comes by, those it stands still at counted once; None where
        that is known at run time only."""
        sizes = [n for n, step in zip(self.extents, self.strides[view], strict=True) if step]
        numbers = [size for size in sizes if isinstance(size, int)]
        return math.prod(numbers) if len(numbers) == len(sizes) else None


def keep_all(elements: Elements) -> Space:
    """The dimensions as they are, all of which are kept."""
    strides = {view: view.strides for view in elements.views()}
    return Space(_measure(elements.domain), strides, tuple(range(len(elements.domain))))


def collapse(elements: Elements) -> Space:
    """The fewest and longest dimensions for element-wise work. They are sorted by how the first
    result lies in memory, and neighbours that every operand walks as one are merged."""
    views = tuple(dict.fromkeys(elements.views()))
    aligned = not any(view.offset for view in views)
    sizes = _measure(elements.domain)
    points = multiply(sizes)
    if isinstance(points, int) and points <= 1:
        # No step is ever taken, so any will do: the same as for every packed tensor.
        return Space((points,), dict.fromkeys(views, (1,)), (0,), packed=aligned)
    first = elements.results[0][0]
    order = [axis for axis, size in enumerate(sizes) if size != 1]
    runs = _merge(sorted(order, key=lambda axis: -estimate(first.strides[axis])), sizes, views)
    strides = {view: tuple(view.strides[run[-1]] for run in runs) for view in views}
    lengths = tuple(multiply(sizes[axis] for axis in run) for run in runs)
    steady = len(runs) == 1 and all(steps[0] in (0, 1) for steps in strides.values())
    return Space(lengths, strides, tuple(range(len(runs))), packed=steady and aligned)


def arrange(
    passes: Sequence[Elements], parallel: int, as_written: bool = False
) -> tuple[Space, ...]:
    """The spaces of passes over the same `parallel` first dimensions: in the order of memory, or
    `as_written`.

    A reducing pass has an inner dimension, if need be one of a single point.
    """
    domains = [_measure(p.domain) for p in passes]
    sizes = domains[0][:parallel]
    views = [_rank(p, domain) for p, domain in zip(passes, domains, strict=True)]
    sort = _keep_order if as_written else _sort
    order = [axis for axis in sort(views[0], len(domains[0])) if axis < parallel]
    everyone = [view for ranked in views for view, _ in ranked]
    runs = _merge(order, sizes, everyone)
    spaces: list[Space] = []
    for made, ranked, domain in zip(passes, views, domains, strict=True):
        walk_order = sort(ranked, len(domain))
        inner = [axis for axis in walk_order if axis >= parallel]
        inner_runs = _merge(inner, domain, [view for view, _ in ranked])
        if made.reductions and not inner_runs:
            inner_runs = [list[int]()]
        # A run stands where its innermost dimension does; its other ones lie right outside.
        place = {axis: number for number, axis in enumerate(walk_order)}
        every = [(run, True) for run in runs] + [(run, False) for run in inner_runs]
        every.sort(key=lambda item: place[item[0][-1]] if item[0] else len(place))
        strides = {
            view: tuple(view.strides[run[-1]] if run else 0 for run, _ in every)
            for view in dict.fromkeys(made.views())
        }
        lengths = tuple(multiply(domain[axis] for axis in run) for run, _ in every)
        position = {tuple(run): n for n, (run, is_parallel) in enumerate(every) if is_parallel}
        spaces.append(Space(lengths, strides, tuple(position[tuple(run)] for run in runs)))
    return tuple(spaces)


def _measure(domain: Sequence[ir.Extent]) -> tuple[Measure, ...]:
    return tuple(measure(extent) for extent in domain)


def arrange_rows(passes: Sequence[Elements], lead: int, apart: bool) -> tuple[Space, ...]:
    """The spaces of passes that share the `lead` first dimensions and walk the others in the
    order they are in, each by itself; so they do the last of the first ones, if it is `apart`."""
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
        spaces.append(Space(lengths, strides, tuple(range(len(runs)))))
    return tuple(spaces)


def cut(space: Space, axis: int, length: Measure, pieces: Measure) -> Space:
    """The space with an inner axis cut into so many `pieces` of `length`, whose number is the first
    of the parallel dimensions."""
    size = space.extents[axis]
    strides = {v: (s[axis] * length, *s) for v, s in space.strides.items()}
    sizes = list(space.extents)
    sizes[axis] = length
    parallel = (0, *(k + 1 for k in space.parallel))
    # Of pieces of one length none ends before others: their points are an axis like any.
    is_even = isinstance(length, int) and isinstance(size, int) and size % length == 0
    own = {} if is_even else {axis + 1: Piece(0, length, size)}
    return Space((pieces, *sizes), strides, parallel, own)


def find_length(size: int, pieces: int, line: int) -> int:
    """The length of about so many pieces: one that all have, where there is one, of whole lines."""
    counts = sorted(range(-(-pieces // 2), 2 * pieces), key=lambda count: abs(count - pieces))
    for count in counts:
        if size % (count * line) == 0:
            return size // count
    length = -(-size // pieces)
    return -(-length // line) * line


Ranked: TypeAlias = list[tuple[View, tuple[Measure, ...]]]
"""Views, the largest first, each with how far a step along each dimension takes it."""


def _rank(elements: Elements, domain: Sequence[Measure]) -> Ranked:
    """What a pass walks through, the largest first; a result before what is as large."""
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
    """How far a step along each dimension takes each view: its stride, and more for a read at
    computed positions, each of which is taken to move by one where it moves."""
    strides = {view: view.strides for view in elements.views()}
    gathers = [value for value in elements.values if isinstance(value, Gather)]
    found = {view: list(steps) for view, steps in strides.items()}
    for axis in range(len(elements.domain) if gathers else 0):
        moving = find_moving(elements, strides, axis)
        for gather in gathers:
            terms = sum((step for number, step in gather.terms if moving[number]), start=0)
            moved = terms + gather.view.strides[axis]
            found[gather.view][axis] = max(found[gather.view][axis], moved, key=estimate)
    return {view: tuple(steps) for view, steps in found.items()}


def _sort(ranked: Ranked, rank: int) -> list[int]:
    """The dimensions as tensors have them in memory, the densest innermost: of two, the largest
    tensor that is read along both decides. Where none is they stay as they are written; what no
    tensor is read along is innermost."""
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
    """Whether a dimension is outside another one; None where no tensor says."""
    in_memory = (own for view, own in ranked if view.tensor)
    steps = [(estimate(own[axis]), estimate(own[other])) for own in in_memory]
    for first, second in steps:
        if first and second and first != second:
            return first > second
    moves = [any(found) for found in zip(*steps, strict=True)]
    return None if len(set(moves)) < 2 else moves[0]


def _keep_order(ranked: Ranked, rank: int) -> list[int]:
    """The dimensions as they are written."""
    del ranked
    return list(range(rank))


def _merge(order: list[int], sizes: Sequence[Measure], views: Sequence[View]) -> list[list[int]]:
    """Runs of dimensions that every view walks as one, outermost first."""
    runs: list[list[int]] = []
    for axis in order:
        outer = runs[-1][-1] if runs else None
        if outer is not None and all(
            v.strides[outer] == v.strides[axis] * sizes[axis] for v in views
        ):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs
