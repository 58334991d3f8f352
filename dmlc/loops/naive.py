"""The initial nest of every schedule: the points of each phase in the order of its axes."""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import make_size
from dmlc.loops.nodes import Dim, Kind, Loop, Nest, Node, Once, Point, Reduce, Tile
from dmlc.loops.phases import Phase


def naive(phases: Sequence[Phase], count: k.Scalar | None = None) -> Nest:
    """Loops over the dimensions shared by all phases, with the loops of each phase inside. `count`
    is the number of elements, if that is an argument. Sums of columns to which all rows add lie in
    an array around the loops over rows, and are stored after these."""
    first = max(phases, key=lambda phase: len(phase.space.parallel))
    flat = len(phases) == len(first.space.extents) == 1 and not first.accumulators
    if count is not None or flat:
        size = count if count is not None else name_parallel(first)[0].size
        parallel = (Dim("i", size),)
    else:
        parallel = name_parallel(first)
    dims, nodes = nest_serial(phases, parallel)
    for number in (number for number, phase in enumerate(phases) if phase.is_across):
        *body, store = nodes
        own = dict(zip(phases[-1].space.parallel, parallel, strict=True))
        rows, parts = ([own[axis] for axis in axes] for axes in part_rows(phases[-1]))
        for dim in reversed(rows):
            body = [Loop(dim, Kind.LOOP, 1, tuple(body), dim.name)]
        tile = Tile(phases[number].space.inner_count, 1, 1, 1, registers=False)
        nodes = (Reduce(number, tuple(body), array=True, tile=tile), store)
        parallel = tuple(parts)
    for dim in reversed(parallel):
        nodes = (Loop(dim, Kind.LOOP, 1, nodes, dim.name),)
    return Nest(tuple(phases), dims, nodes)


def part_rows(parts: Phase) -> tuple[list[int], list[int]]:
    """Parallel axes that the sums of columns reduce, and those that they keep: `parts` is the phase
    that stores them."""
    space, views = parts.space, [view for view, _ in parts.elements.results]
    kept = [axis for axis in space.parallel if any(space.strides[v][axis] for v in views)]
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


def nest_serial(
    phases: Sequence[Phase], parallel: Sequence[Dim]
) -> tuple[tuple[tuple[Dim, ...], ...], tuple[Node, ...]]:
    """Dimensions of phases that share the parallel ones, and their loops over the points of one
    output, in the order of the axes, with sequential reductions. If a phase lacks the first
    parallel dimension, its results are stored at the first index along that."""
    dims: list[tuple[Dim, ...]] = []
    nodes: list[Node] = []
    crossed = any(phase.is_across for phase in phases)
    for number, phase in enumerate(phases):
        shared = parallel[len(parallel) - len(phase.space.parallel) :]
        own = name_inner(phase, shared, "k" if phase.reduces else "i", number)
        node: Node = Point(number)
        if phase.is_parallel and len(shared) < len(parallel):
            node = Once(parallel[0], (node,))
        step = int(phase.is_across or (crossed and number == len(phases) - 1))
        for axis in reversed(phase.space.inner):
            node = Loop(own[axis], Kind.LOOP, 1, (node,), own[axis].name, output=step)
            step *= phase.space.sizes[axis] if step else 1
        dims.append(own)
        reduced = Reduce(number, (node,), serial=phase.counts_up)
        nodes.append(reduced if phase.accumulators and not phase.is_across else node)
    return tuple(dims), tuple(nodes)
