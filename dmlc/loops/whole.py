"""Primitives that make all loops of a naive nest anew: each is the one call of a script."""

from __future__ import annotations

from dmlc.loops.crossing import cross
from dmlc.loops.legality import demand
from dmlc.loops.line_buffer import line_buffer
from dmlc.loops.naive import find_kept
from dmlc.loops.nodes import Call, Nest
from dmlc.loops.online import online
from dmlc.loops.panels import dot, panel

WHOLE = tuple(each.__name__ for each in (cross, dot, line_buffer, online, panel))
"""Their names."""


def demand_whole(nest: Nest, call: Call) -> None:
    """Raises `ScheduleError` unless such a primitive is called alone, and where only one of them
    makes loops of a nest's phases, that one is called."""
    last = nest.script[-1].verb if nest.script else ""
    demand(last not in WHOLE, f"what '{last}' makes stays as it is")
    demand(not last or call.verb not in WHOLE, "it makes all loops anew, and so comes first")
    crossed = any(phase.is_across for phase in nest.phases)
    demand(call.verb == cross.__name__ or not crossed,
            "rows that are reduced down their columns are shared out by 'cross' alone")  # fmt: skip
    keeps = call.verb in (line_buffer.__name__, online.__name__)
    demand(bool(last) or keeps or not find_kept(nest.phases),
            "reductions that lie along a row are kept by 'line_buffer' or 'online'")  # fmt: skip
