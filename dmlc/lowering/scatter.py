"""The kernel of a reduction whose points say which element each belongs to: work items have rows of
the result, and put the points of each there, one after the other."""

from __future__ import annotations

import dataclasses

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.element import Elements, View, collect_elements, tensor_strides
from dmlc.loops.nodes import Dim, Kind, Loop, Nest, Node, Point, in_vectors, share_blocks
from dmlc.loops.phases import Phase, Scatter
from dmlc.loops.sections import Sections
from dmlc.loops.space import keep_all
from dmlc.lowering.assemble import make_kernel
from dmlc.scalars import combiner_identity
from dmlc.sizes import known
from dmlc.transform.scatter import Walk, list_keys


def lower_walk(
    function: ir.Function, walk: Walk, profile: Profile, limits: Limits, own: Sections
) -> k.Kernel:
    """The kernel of a walk. Raises `UnsupportedError` where a limit of the target is passed."""
    stage = walk.stage
    steps = known(tensor_strides(function, stage.name))
    view = View(stage.name, stage.dtype, steps)
    first = _start(stage, walk.combiner, view)
    points = _collect_points(function, walk, view)
    names = {index: f"i{index.axis}" for index in walk.rows}
    rows = {i: Dim(names[i], _size(stage, i)) for i in walk.rows}
    keys = {i: Dim(f"i{i.axis}", _size(stage, i)) for i in list_keys(walk)}
    reduced = [i for i in stage.indices if i.reduced]
    walked = [Dim(f"k{n}" if n else "k", _size(stage, i)) for n, i in enumerate(reduced)]
    domain = [rows.get(i) or keys[i] for i in stage.indices if not i.reduced]
    body = _loop(list(keys.values()), Point(0), profile if steps[-1] == 1 else None, domain[-1])
    body += _loop(walked, Point(1), None, walked[-1])
    each = first.space.inner_count + points.space.inner_count
    work = sum(d.size if isinstance(d.size, int) else 0 for d in (*keys.values(), *walked))
    run = 1
    if rows:
        parts = [(dim, 1) for dim in rows.values()]
        body, run = share_blocks(parts, profile.per_item // max(1, work, each), body)
    words = f"each has {run:,} row{'' if run == 1 else 's'}, and puts points into them in order"
    nest = Nest((first, points), (tuple(domain), (*rows.values(), *walked)), body, words=words)
    return make_kernel(
        function, nest.phases, (stage.name,), ((stage.name,),), profile, limits, nest=nest, own=own
    )


def _size(stage: ir.Stage, index: ir.Index) -> int:
    extent = stage.extent(index)
    return extent if isinstance(extent, int) else 1


def _start(stage: ir.Stage, combiner: str, view: View) -> Phase:
    """What elements are before any point."""
    dtype = stage.dtype.compute
    nothing = ir.Constant(dtype, combiner_identity(combiner, dtype))
    elements = Elements(stage.extents, (nothing,), ((view, 0),))
    return Phase(elements, keep_all(elements))


def _collect_points(function: ir.Function, walk: Walk, view: View) -> Phase:
    """What a point has, and where it goes."""
    added = (walk.place, walk.value)
    known_to = dataclasses.replace(function, stages=(*function.stages, *added))
    elements = collect_elements(known_to, tuple(stage.name for stage in added))
    results = tuple((dataclasses.replace(v, local=True), n) for v, n in elements.results)
    elements = dataclasses.replace(elements, results=results)
    space = keep_all(elements)
    own = dict(
        zip((ir.Index(axis) for axis in range(len(view.strides))), view.strides, strict=True)
    )
    along = tuple(own[index] for index in walk.rows)
    steps = along + (0,) * (len(elements.domain) - len(along))
    space = dataclasses.replace(space, strides={**space.strides, view: steps})
    return Phase(elements, space, scatter=Scatter(view, walk.combiner))


def _loop(dims: list[Dim], point: Point, profile: Profile | None, last: Dim) -> tuple[Node, ...]:
    """Loops over some dimensions, the innermost in vectors where a profile is given for it."""
    node: Node = point
    for dim in reversed(dims):
        if dim is last and profile is not None:
            node = in_vectors(dim, profile.lanes, (node,), dim.wanted)
        else:
            node = Loop(dim, Kind.LOOP, 1, (node,), dim.wanted)
    return (node,)
