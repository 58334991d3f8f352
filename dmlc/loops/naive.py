"""The initial nest of every schedule: the points of each phase in the order of its axes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import make_size
from dmlc.kernel.names import split_words
from dmlc.loops.element import Gather, Read
from dmlc.loops.nodes import Buffer, Dim, Into, Kind, Loop, Nest, Node, Once, Point, Reduce, Tile
from dmlc.loops.phases import Phase
from dmlc.loops.space import Space


def naive(phases: Sequence[Phase], count: k.Scalar | None = None) -> Nest:
    """Loops over the dimensions shared by all phases, with the loops of each phase inside. `count`
    is the number of elements, if that is an argument. Sums of columns to which all rows add lie in
    an array around the loops over rows, and are stored after these. Reductions that others read
    along a dimension of their own lie in arrays too."""
    kept = find_kept(phases)
    first = max(phases, key=lambda phase: len(phase.space.parallel))
    flat = len(phases) == len(first.space.extents) == 1 and not first.accumulators
    if count is not None or flat:
        size = count if count is not None else name_parallel(first)[0].size
        parallel = (Dim("i", size),)
    else:
        parallel = name_parallel(first)
    if kept:
        own = (len(p.space.parallel) - (n in kept) for n, p in enumerate(phases))
        parallel = parallel[: min(own)]
    dims, nodes, buffers = _nest_phases(phases, parallel, kept)
    for number in (number for number, phase in enumerate(phases) if phase.is_across):
        *body, store = nodes
        own = dict(zip(phases[-1].space.parallel, parallel, strict=True))
        rows, parts = ([own[axis] for axis in axes] for axes in part_rows(phases[-1]))
        tile = Tile(phases[number].space.inner_count, 1, 1, 1, registers=False)
        nodes = (Reduce(number, _nest(rows, tuple(body)), array=True, tile=tile), store)
        parallel = tuple(parts)
    return Nest(tuple(phases), dims, _nest(parallel, nodes), buffers=buffers)


def find_kept(phases: Sequence[Phase]) -> set[int]:
    """Phases whose reductions others read elsewhere than at their own parallel points. They lie
    along the last parallel axis, which their readers do not share."""
    made = {
        stage: number
        for number, phase in enumerate(phases)
        for each in phase.accumulators
        for stage, _ in each.stages
    }
    found: set[int] = set()
    for phase in phases:
        for value in phase.elements.values:
            if isinstance(value, Read | Gather) and value.view.local:
                number = made.get(value.view.tensor)
                if number is not None and _reads_apart(phase, value, phases[number].space):
                    found.add(number)
    return found


def _reads_apart(phase: Phase, value: Read | Gather, made: Space) -> bool:
    """Whether a phase reads a value of another space elsewhere than at its own parallel point."""
    space, steps = phase.space, value.view.strides
    if isinstance(value, Gather) or value.view.offset or any(steps[a] for a in space.inner):
        return True
    if not space.parallel or len(space.parallel) != len(made.parallel):
        return False
    last = space.parallel[-1]
    return space.outputs != made.outputs or (steps[last] != 1 and space.extents[last] != 1)


def keep_along(phase: Phase, dim: Dim, size: int, **how: Any) -> Buffer:
    """Array of a reduction, with an element for each index along a dimension."""
    stage, dtype = phase.accumulators[0].stages[0]
    return Buffer(stage, dtype.compute, size, dim, f"{split_words(stage)}_row", **how)


def _nest(dims: Sequence[Dim], nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Serial loops over some dimensions around nodes."""
    for dim in reversed(dims):
        nodes = (Loop(dim, Kind.LOOP, 1, nodes, dim.name),)
    return nodes


def part_rows(parts: Phase) -> tuple[list[int], list[int]]:
    """Parallel axes that the sums of columns reduce, and those that they keep: `parts` is the phase
    that stores them."""
    space, views = parts.space, [view for view, _ in parts.elements.results]
    kept = [axis for axis in space.parallel if any(v.strides[axis] for v in views)]
    return [axis for axis in space.parallel if axis not in kept], kept


def name_parallel(phase: Phase) -> tuple[Dim, ...]:
    """Dimensions shared by all phases, named after the indices of the formula, or numbered where
    some are none of these."""
    space = phase.space
    sizes, dims = [space.extents[axis] for axis in space.parallel], list[Dim]()
    names = [space.indices[axis] if space.indices else "" for axis in space.parallel]
    if not all(names) or len({*names}) < len(names):
        names = [f"i{number}" for number in range(len(sizes))]
    for axis, name, size in zip(space.parallel, names, sizes, strict=True):
        found = space.pieces.get(axis)
        # A preceding dimension numbers the chunk.
        piece = None
        if found is not None:
            piece = (dims[space.parallel.index(found.number)], make_size(found.size))
        dims.append(Dim(name, make_size(size), piece=piece))
    return tuple(dims)


def tell_apart(name: str, number: int) -> str:
    """Name with a suffix that is unique for each phase."""
    return f"{name}.{number}" if number else name


def name_inner(phase: Phase, parallel: Sequence[Dim], name: str, number: int) -> tuple[Dim, ...]:
    """Dimensions of a phase, given its number and the parallel dimensions it shares with others."""
    space = phase.space
    dims: list[Dim] = []
    for axis in range(len(space.extents)):
        if axis in space.parallel:
            dims.append(parallel[space.parallel.index(axis)])
            continue
        piece = space.pieces.get(axis)
        place = space.inner.index(axis)
        # Parallel dimensions have numbers of their own.
        index = space.indices[axis] if space.indices else f"i{axis}"
        own = f"{index}.{number}" if name == "i" else tell_apart(name + str(place or ""), number)
        numbered = None
        if piece is not None:
            whole = make_size(piece.size)
            numbered = (parallel[space.parallel.index(piece.number)], whole)
        dims.append(Dim(own, make_size(space.extents[axis]), piece=numbered))
    return tuple(dims)


def _nest_phases(
    phases: Sequence[Phase], parallel: Sequence[Dim], kept: Container[int]
) -> tuple[tuple[tuple[Dim, ...], ...], tuple[Node, ...], tuple[Buffer, ...]]:
    """Dimensions of phases that share the parallel ones, their loops over the points of one output,
    in the order of the axes, with sequential reductions, and arrays for those in `kept`. If a phase
    lacks the first parallel dimension, its results are stored at the first index along that. If it
    has more, it has loops over these: one for neighbours that have them alike."""
    dims: list[tuple[Dim, ...]] = []
    blocks: list[tuple[list[Dim], list[Node]]] = []
    buffers: list[Buffer] = []
    crossed = any(phase.is_across for phase in phases)
    for number, phase in enumerate(phases):
        sizes = phase.space.outputs[len(parallel) :]
        alike = bool(blocks) and sizes == tuple(dim.size for dim in blocks[-1][0])
        if not alike or number in kept or number - 1 in kept:
            names = [f"x{place or ''}" for place in range(len(sizes))]
            pairs = zip(names, sizes, strict=True)
            further = [Dim(tell_apart(name, number), make_size(size)) for name, size in pairs]
            blocks.append((further, []))
        around, body = blocks[-1]
        every = (*parallel, *around)
        shared = every[len(every) - len(phase.space.parallel) :]
        own = name_inner(phase, shared, "k" if phase.reduces else "i", number)
        dims.append(own)
        node: Node = Point(number)
        if phase.is_parallel and len(shared) < len(every):
            node = Once(parallel[0], (node,))
        step = int(phase.is_across or (crossed and number == len(phases) - 1))
        for axis in reversed(phase.space.inner):
            node = Loop(own[axis], Kind.LOOP, 1, (node,), own[axis].name, output=step)
            step *= phase.space.sizes[axis] if step else 1
        if phase.accumulators and phase.is_parallel:
            # Loads protected by a guard need a loop of their own, even of a single point.
            (node,) = _nest([Dim(tell_apart("k", number), 1)], (node,))
        into = None
        if number in kept:
            dim = around[-1]
            buffers.append(keep_along(phase, dim, dim.count_steps(1), linear=True))
            into = Into(buffers[-1], dim)
        if phase.accumulators and not phase.is_across:
            node = Reduce(number, (node,), serial=phase.counts_up, into=into)
        body.append(node)
    nodes = tuple(node for around, body in blocks for node in _nest(around, tuple(body)))
    return tuple(dims), nodes, tuple(buffers)
