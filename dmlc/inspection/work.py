"""Lower bounds on the work of a function, from its tensor IR, for rooflines beside modelled
times."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dmlc import ir
from dmlc.inspection.model import Reread, Work
from dmlc.ir.index import find_dependencies
from dmlc.report import count_operations
from dmlc.transform.inverse_index import find_choice
from dmlc.transform.ranks import find_ranking
from dmlc.transform.scans import find_scan
from dmlc.transform.traffic import count_bytes, list_moves


def count_work(function: ir.Function) -> Work:
    """Least bytes and operations of a function with known sizes."""
    names = tuple(stage.name for stage in function.stages)
    moves = list_moves(function, names)
    results = {result.name for result in function.results}
    tables = {table.name for table in function.tables}
    moved = sum(
        (m.read or 0) + ((m.written or 0) if m.tensor in results else 0)
        for m in moves
        if m.tensor not in tables
    )
    operations = sum(_count_operations(function, stage) for stage in function.stages)
    return Work(moved, operations, _find_rereads(function))


def _count_operations(function: ir.Function, stage: ir.Stage) -> float:
    """Operations of a stage: scans and rankings are not counted as comparisons with all other
    elements, and a point that names its element is added to that one alone."""
    if find_scan(stage) is not None or find_ranking(stage) is not None:
        return math.prod(extent for extent in stage.extents if isinstance(extent, int))
    choice = None if stage.reduction is None else find_choice(stage, {})
    return count_operations(function, stage) / (1 if choice is None else choice.elements)


def _find_rereads(function: ir.Function) -> tuple[Reread, ...]:
    """Inputs that some stage reads both directly and reduced."""
    tensors = function.tensors()
    direct: dict[str, frozenset[str]] = {p.name: frozenset([p.name]) for p in function.parameters}
    """Inputs that each tensor depends on without a reduction in between."""
    folded: dict[str, dict[str, int]] = {}
    """Inputs with a reduction in between, and the bytes that one result of it depends on."""
    found: dict[str, int] = {}
    for stage in function.stages:
        read = dict.fromkeys(load.tensor for load in stage.body.loads())
        own = frozenset(name for tensor in read for name in direct.get(tensor, ()))
        behind: dict[str, int] = {}
        moved = find_dependencies(stage.body) if any(map(folded.get, read)) else ()
        for load in stage.body.loads():
            # A reduction of results depends on all that these depend on.
            along = {index for place in load.indices for index in moved[place]} if moved else ()
            times = math.prod(
                e for i in along if i.reduced and isinstance(e := stage.extent(i), int)
            )
            slices = folded.get(load.tensor, {}).items()
            most = {name: count_bytes(tensors[name]) or 0 for name, _ in slices}
            _keep_most(behind, {name: min(times * size, most[name]) for name, size in slices})
        _keep_most(found, {name: size for name, size in behind.items() if name in own})
        if stage.reduction is None:
            direct[stage.name] = own
        else:
            results = max(1, math.prod(e for e in stage.extents if isinstance(e, int)))
            whole = sum(count_bytes(tensors[name]) or 0 for name in own)
            _keep_most(behind, dict.fromkeys(own, whole // results))
        folded[stage.name] = behind
    return tuple(Reread(count_bytes(tensors[name]) or 0, size) for name, size in found.items())


def _keep_most(into: dict[str, int], sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        into[name] = max(into.get(name, 0), size)
