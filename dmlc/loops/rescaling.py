"""Preconditions of sums that are rescaled as a maximum grows, and of conditions on tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dmlc.loops.element import Gather, Read
from dmlc.loops.nodes import Kind, Loop, Nest, Node, Point, Reduce, Rescale, walk
from dmlc.scalars import DataType


def check_rescale(nest: Nest, path: Sequence[Node]) -> Iterator[tuple[bool, str]]:
    """Rules for a `Rescale`, the last node of a path: each with whether it holds, and its
    violation."""
    *around, node = path
    if not isinstance(node, Rescale):
        return
    what = f"the maximum of phase {node.phase}"
    begun = {n.phase: place for place, n in enumerate(around) if isinstance(n, Reduce)}
    yield node.phase in begun, f"{what} is reduced nowhere around"
    combiners = [a.combiner for a in nest.phases[node.phase].accumulators]
    yield combiners == ["max"], f"{what} is none"
    inside = around[begun[node.phase] :]
    weighed = tuple(n.phase for n in inside if isinstance(n, Reduce) and n.phase != node.phase)
    yield sorted(weighed) == sorted(node.sums), f"{what} rescales other sums than are around"
    for number in weighed:
        sums = {a.combiner for a in nest.phases[number].accumulators}
        yield sums == {"sum"}, f"{what} rescales what is no sum, of phase {number}"
    whole, own = list(walk(inside[:1])), {id(n) for n in walk(node.body)}
    points = [n for n in whole if isinstance(n, Point)]
    grows = {id(n) for n in points if n.phase == node.phase}
    yield bool(grows) and grows <= own, f"{what} grows where nothing is rescaled"
    before = {id(n) for n in whole[: next(i for i, n in enumerate(whole) if n is node)]}
    early = [n for n in points if id(n) in own | before]
    used = list_readers(nest, node.phase, early)
    used += [n for n in early if n.phase in weighed]
    yield not used, f"{what} is used before it is known"


def list_readers(nest: Nest, number: int, nodes: Iterable[Node]) -> list[Point]:
    """Points that read a phase's reductions."""
    names = {name for a in nest.phases[number].accumulators for name, _ in a.stages}
    return [
        n
        for n in nodes
        if isinstance(n, Point)
        for v in nest.phases[n.phase].elements.values
        if isinstance(v, Read) and v.view.tensor in names
    ]


def find_lost(
    nest: Nest, path: Sequence[Node], node: Reduce, paths: Iterable[Sequence[Node]]
) -> list[Loop]:
    """Sequential loops of several steps around a reduction, the last node of a path, that are not
    around a point which reads its result. Results of partial reductions belong to the whole."""
    around = [n for n in path if isinstance(n, Loop) and n.kind in (Kind.LOOP, Kind.UNROLL)]
    around = [n for n in around if n.extent != 1 and n.dim.count_steps(n.step) != 1]
    parted = any(isinstance(n, Reduce) and n.phase == node.phase for n in path[:-1])
    made = [name for phase in nest.phases for a in phase.accumulators for name, _ in a.stages]
    own = [name for a in nest.phases[node.phase].accumulators for name, _ in a.stages]
    # Equal reductions of several phases may be read in place of each other.
    if not around or parted or node.into is not None or any(made.count(n) > 1 for n in own):
        return []
    reading = [own for own in paths if list_readers(nest, node.phase, own[-1:])]
    return [n for n in around if any(all(n is not m for m in own) for own in reading)]


def is_condition(nest: Nest, number: int) -> bool:
    """Whether a phase's only value is a BOOL that depends on a tile's start alone."""
    phase, dims = nest.phases[number], nest.dims[number]
    elements = phase.elements
    if phase.accumulators or len(elements.results) != 1:
        return False
    ((view, root),) = elements.results
    tiled = {dim.within for dim in dims}
    tiled |= {n.dim for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.LANE}
    read = [v.view for v in elements.values if isinstance(v, Read | Gather)]
    still = all(
        not each.strides[axis] for each in read for axis, dim in enumerate(dims) if dim in tiled
    )
    return view.local and elements.values[root].dtype is DataType.BOOL and still
