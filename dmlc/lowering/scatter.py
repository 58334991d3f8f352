"""Kernel of a sequential scatter: each work item owns rows of the result, and combines their points
with the elements that these select, in order."""

from __future__ import annotations

import dataclasses

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.element import Elements, View, collect_elements, tensor_strides
from dmlc.loops.phases import Phase, Scatter
from dmlc.loops.sections import Sections
from dmlc.loops.space import Space
from dmlc.lowering.assemble import make_kernel
from dmlc.scalars import COMBINERS
from dmlc.sizes import known, measure
from dmlc.transform.scatter import Keyed


def lower_keyed(
    function: ir.Function, order: Keyed, profile: Profile, limits: Limits, own: Sections
) -> k.Kernel:
    """Kernel of a sequential scatter. Raises `UnsupportedError` if a limit of the target is
    exceeded."""
    stage = order.stage
    view = View(stage.name, stage.dtype, known(tensor_strides(function, stage.name)))
    phases = (_start(order, view), _collect_points(function, order, view))
    names = (stage.name,)
    return make_kernel(function, phases, names, (names,), profile, limits, own=own)


def _start(order: Keyed, view: View) -> Phase:
    """Phase that stores the initial values of the elements."""
    stage, dtype = order.stage, order.stage.dtype.compute
    nothing = ir.Constant(dtype, COMBINERS[stage.combiner or ""].identity(dtype))
    space = Space(tuple(map(measure, stage.extents)), tuple(index.axis for index in order.rows))
    return Phase(Elements(space, (nothing,), ((view, 0),)))


def _collect_points(function: ir.Function, order: Keyed, view: View) -> Phase:
    """Phase of the points, with each point's value and element."""
    added = (order.place, order.value)
    known_to = dataclasses.replace(function, stages=(*function.stages, *added))
    elements = collect_elements(known_to, tuple(stage.name for stage in added))
    results = tuple((dataclasses.replace(v, local=True), n) for v, n in elements.results)
    elements = dataclasses.replace(elements, results=results).with_parallel(range(len(order.rows)))
    along = tuple(view.strides[index.axis] for index in order.rows)
    view = dataclasses.replace(view, strides=along + (0,) * len(elements.space.inner))
    return Phase(elements, scatter=Scatter(view, order.stage.combiner or ""))
