"""Stops of a function on its way to kernels, for a page with a slider: as it was bound, after each
pass that changed it, in groups, and as kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dmlc.ir import Function
from dmlc.picture.diagram import (
    Diagram,
    Kernel,
    Origins,
    View,
    find_peak,
    list_groups,
    list_tensors,
    list_unfused,
)
from dmlc.report import Trace

ABOUT: Mapping[str, str] = {
    "simplify": "Constants are folded, and what is computed twice or for nothing is gone.",
    "settle_sizes": "Comparisons and clamps that hold whatever sizes are, are gone.",
    "bisect_counts": "Counts of how far a running count stays below a value use bisection.",
    "scan_in_blocks": "Prefix sums are computed row by row, or in blocks.",
    "sort_by_ranks": "Rows are sorted where the ranks of elements say their order.",
    "settle": "What depends on positions alone is evaluated.",
    "separate": "Sums over several axes are taken one axis at a time, where weights allow it.",
    "narrow": "Reductions go over the places that pass their guards, and no others.",
    "split_walks": "Points that choose their elements are walked in order, in pieces.",
    "index_inverses": "Sums over the points that read an element find them by an inverse index.",
    "take_out_factors": "Factors that are constant over a sum are taken out of it.",
    "read_one_place": "Reductions in which one place along an axis takes part read that place.",
    "saturate_positions": "Positions that elements decide are held to 32 bits.",
}
"""Description of each pass, by its name."""

_BOUND = "Every stage as it was bound: a formula of the operator or of the graph."
_GROUPS = (
    "A frame is a group of stages that share kernels. What is computed where it is read, and "
    "takes no memory, is in the frame with its reader."
)
_KERNELS = (
    "A frame is one kernel. Inside it values stay in registers; only what is tagged on its rim "
    "goes through memory. A dashed frame holds the kernels of one group."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """Function at one stop."""

    title: str
    about: str
    view: View
    function: Function
    """Function with all the stages that the view has."""
    explained: bool = False
    """Whether its kernels show their work."""
    kernels: bool = False
    """Whether these are the kernels of the program."""


def list_stops(trace: Trace, diagram: Diagram, origins: Origins) -> tuple[list[Stop], list[str]]:
    """Stops of a function with that diagram, and the passes that changed nothing."""
    function = trace.report.function
    stops = [Stop("as bound", _BOUND, diagram.before, function)]
    idle: list[str] = []
    for name, made in trace.passes:
        if made == function:
            idle.append(name)
            continue
        about = f"{ABOUT[name]} {describe_change(function, made)}"
        stops.append(Stop(f"after {name}", about, _view(made, origins, diagram.outputs), made))
        function = made
    fused = trace.report.fusion.unfused
    groups = View(list_groups(trace.report, list_tensors(trace.report), origins), None)
    stops.append(Stop("fused groups", _GROUPS, groups, fused, explained=True))
    stops.append(Stop("kernels", _KERNELS, diagram.after, fused, explained=True, kernels=True))
    return stops, idle


def _view(function: Function, origins: Origins, outputs: tuple[str, ...]) -> View:
    kernels: tuple[Kernel, ...] = list_unfused(function, origins)
    return View(kernels, find_peak(kernels, outputs))


def describe_change(before: Function, after: Function) -> str:
    """Stages that a pass added, changed and removed, in a sentence or two."""
    old, new = ({s.name: s for s in each.stages} for each in (before, after))
    parts = (
        ("New", [n for n in new if n not in old]),
        ("Changed", [n for n, s in new.items() if n in old and old[n] != s]),
        ("Gone", [n for n in old if n not in new]),
    )
    texts = [f"{verb}: {', '.join(names)}." for verb, names in parts if names]
    return " ".join(texts) or "Its stages are the same."
