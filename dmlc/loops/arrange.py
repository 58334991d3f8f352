"""Dimensions of a kernel's passes: few, long ones in memory order.

Independent elements may be computed in any order. Every pass has the kernel's parallel dimensions,
which all passes share, and inner ones of its own. Dimensions are sorted by the memory order of the
largest tensors, and adjacent ones that every tensor traverses as one are merged; no case is treated
by name. `N, C, H, W` reduced to `C` becomes inner, parallel, inner; rows become parallel, inner;
columns inner, parallel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Sequence
from typing import Any, TypeAlias

from dmlc.loops.element import Elements, Gather, View, find_moving
from dmlc.loops.space import Piece, Space
from dmlc.sizes import Measure, estimate, multiply


def collapse(elements: Elements) -> Elements:
    """Element-wise work over the fewest and longest dimensions: sorted by the memory order of the
    first result, with adjacent ones merged that every operand traverses as one."""
    views, sizes = elements.views(), elements.space.extents
    points = multiply(sizes)
    aligned = not any(view.offset for view in views)
    if isinstance(points, int) and points <= 1:
        # Strides are never used; these are those of any packed tensor.
        return elements.over(Space((points,), (0,), packed=aligned), lambda _: (1,))
    first = elements.results[0][0]
    order = [axis for axis, size in enumerate(sizes) if size != 1]
    order.sort(key=lambda axis: -estimate(first.strides[axis]))
    runs = _merge(order, sizes, views)
    steady = len(runs) == 1 and all(view.strides[runs[0][-1]] in (0, 1) for view in views)
    return _join(elements, runs, tuple(range(len(runs))), packed=steady and aligned)


def arrange(
    passes: Sequence[Elements], parallel: int, as_written: bool = False
) -> tuple[Elements, ...]:
    """Passes over the same `parallel` first dimensions: in memory order, or `as_written`.

    A reducing pass has an inner dimension, if necessary of size 1.
    """
    domains = [p.space.extents for p in passes]
    sizes = domains[0][:parallel]
    views = [_rank(p) for p in passes]
    sort = _keep_order if as_written else _sort
    order = [axis for axis in sort(views[0], len(domains[0])) if axis < parallel]
    everyone = [view for ranked in views for view, _ in ranked]
    cut = [each for made in passes for each in made.space.pieces.items()]
    apart = {each for axis, piece in cut for each in (axis, piece.number)}
    runs = _merge(order, sizes, everyone, apart)
    arranged: list[Elements] = []
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
        position = {tuple(run): n for n, (run, is_parallel) in enumerate(every) if is_parallel}
        kept = tuple(position[tuple(run)] for run in runs)
        at = {axis: number for number, (run, _) in enumerate(every) for axis in run}
        pieces = {
            at[axis]: dataclasses.replace(piece, number=at[piece.number])
            for axis, piece in made.space.pieces.items()
        }
        arranged.append(_join(made, [run for run, _ in every], kept, pieces=pieces))
    return tuple(arranged)


def _join(
    elements: Elements, runs: Sequence[Sequence[int]], parallel: tuple[int, ...], **how: Any
) -> Elements:
    """Work over dimensions, each of which is a run of axes merged; an empty run is one point."""
    extents, names = elements.space.extents, elements.space.indices
    lengths = tuple(multiply(extents[axis] for axis in run) for run in runs)
    names = tuple("".join(names[axis] for axis in sorted(run)) for run in runs) if names else ()
    space = Space(lengths, parallel, indices=names, **how)
    return elements.over(space, lambda steps: (steps[run[-1]] if run else 0 for run in runs))


def arrange_rows(passes: Sequence[Elements], lead: int, apart: bool) -> tuple[Elements, ...]:
    """Passes that share the `lead` first dimensions and keep the others in their order; the last of
    the first ones too, if it is `apart`."""
    views = [v for p in passes for v in p.views() if not v.local]
    runs = _merge(list(range(lead - apart)), passes[0].space.extents, views)
    if apart:
        runs.append([lead - 1])
    parallel = tuple(range(len(runs)))
    return tuple(
        _join(made, [*runs, *([axis] for axis in range(lead, len(made.space.extents)))], parallel)
        for made in passes
    )


def cut(elements: Elements, axis: int, length: Measure, pieces: Measure) -> Elements:
    """Work with an inner axis cut into `pieces` chunks of `length`; the chunk's number is the first
    parallel dimension."""
    space = elements.space
    size = space.extents[axis]
    sizes = list(space.extents)
    sizes[axis] = length
    parallel = (0, *(k + 1 for k in space.parallel))
    # Chunks of one length end together: their points are an axis like any.
    is_even = isinstance(length, int) and isinstance(size, int) and size % length == 0
    own = {} if is_even else {axis + 1: Piece(0, length, size)}
    names = ("piece", *space.indices) if space.indices else ()
    made = Space((pieces, *sizes), parallel, own, indices=names)
    return elements.over(made, lambda steps: (steps[axis] * length, *steps))


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


def _rank(elements: Elements) -> Ranked:
    """Views of a pass, the largest first; of equal ones, results first."""
    steps, extents = _find_steps(elements), elements.space.extents
    views = [v for v in elements.views() if not v.local]
    stored = {view for view, _ in elements.results}

    def reach(view: View) -> tuple[int, bool]:
        taken = zip(extents, steps[view], strict=True)
        in_buffer = view in stored or bool(view.tensor)
        return (math.prod(estimate(n) for n, s in taken if s) if in_buffer else 0, view in stored)

    ranked = sorted(dict.fromkeys(views), key=reach, reverse=True)
    return [(view, steps[view]) for view in ranked]


def _find_steps(elements: Elements) -> dict[View, tuple[Measure, ...]]:
    """Stride of each view along each dimension; for a load at computed indices, plus one for each
    index that varies along it."""
    gathers = [value for value in elements.values if isinstance(value, Gather)]
    found = {view: list(view.strides) for view in elements.views()}
    for axis in range(len(elements.space.extents) if gathers else 0):
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
