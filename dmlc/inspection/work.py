"""What a function must do at least, read off its tensor IR: for rooflines beside modelled times."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dmlc import ir
from dmlc.inspection.model import Reread, Work
from dmlc.ir.index import IndexFacts, list_arrays
from dmlc.scalars import Array, DataType
from dmlc.transform.traffic import count_bytes, list_moves

_SAMPLES = 8
_MOST_POINTS = 1 << 20


def count_work(function: ir.Function) -> Work:
    """The least bytes and operations of a function whose sizes are known."""
    names = tuple(stage.name for stage in function.stages)
    moves = list_moves(function, names)
    results = {result.name for result in function.results}
    tables = {table.name for table in function.tables}
    moved = sum(
        (m.read or 0) + ((m.written or 0) if m.tensor in results else 0)
        for m in moves
        if m.tensor not in tables
    )
    operations = sum(count_operations(function, stage) for stage in function.stages)
    return Work(moved, operations, _find_rereads(function))


def count_points(stage: ir.Stage) -> int:
    """The points of a stage: of its domain, times those that each of them folds."""
    axes = () if stage.reduction is None else stage.reduction.axes
    extents = (*stage.domain, *(extent for _, extent in axes))
    return math.prod(e for e in extents if isinstance(e, int))


def count_operations(function: ir.Function, stage: ir.Stage) -> float:
    """The operations on floats of a stage, at the points that its guard lets through."""
    own = sum(
        isinstance(i, ir.Apply) and _is_float(stage.body.instructions[i.operands[0]])
        for i in stage.body.instructions
    )
    if stage.reduction is not None and not stage.dtype.is_integer:
        own += 1
    return own * count_points(stage) * find_density(function, stage)


def _is_float(instruction: ir.Instruction) -> bool:
    dtype = ir.value_type(instruction)
    return not dtype.is_integer and dtype not in (DataType.INDEX, DataType.BOOL)


def find_density(function: ir.Function, stage: ir.Stage) -> float:
    """The part of a stage's points that take part in its reduction, at some points of its domain:
    those at which positions alone hold its guard to be true. 1 where there is no such guard."""
    if stage.body.guard is None:
        return 1.0
    facts = IndexFacts(stage, list_arrays(function.tables))
    conditions = [c for c in facts.conditions if facts.known[c]]
    places: dict[ir.Index, Array] = {}
    indices = facts.depends_on(conditions)
    for index in indices:
        extent = stage.extent(index)
        if not isinstance(extent, int) or extent == 0:
            return 1.0
        most = _SAMPLES if not index.reduced else extent
        places[index] = np.unique(np.linspace(0, extent - 1, min(extent, most)).astype(np.int64))
    if math.prod(len(p) for p in places.values()) > _MOST_POINTS:
        return 1.0
    passing = IndexFacts(stage, list_arrays(function.tables), places).find_passing(conditions)
    return 1.0 if passing is None else float(passing.mean())


def _find_rereads(function: ir.Function) -> tuple[Reread, ...]:
    """The inputs that some stage needs both as they are and folded over."""
    tensors = function.tensors()
    direct: dict[str, frozenset[str]] = {p.name: frozenset([p.name]) for p in function.parameters}
    """The inputs whose elements each tensor is made of with no fold between."""
    folded: dict[str, dict[str, int]] = {}
    """Those with a fold between, and the bytes that one result of it is made of."""
    found: dict[str, int] = {}
    for stage in function.stages:
        read = dict.fromkeys(load.tensor for load in stage.body.loads())
        own = frozenset(name for tensor in read for name in direct.get(tensor, ()))
        behind: dict[str, int] = {}
        for tensor in read:
            _keep_most(behind, folded.get(tensor, {}))
        _keep_most(found, {name: size for name, size in behind.items() if name in own})
        if stage.reduction is None:
            direct[stage.name] = own
        else:
            results = max(1, math.prod(e for e in stage.domain if isinstance(e, int)))
            whole = sum(count_bytes(tensors[name]) or 0 for name in own)
            _keep_most(behind, dict.fromkeys(own, whole // results))
        folded[stage.name] = behind
    return tuple(Reread(count_bytes(tensors[name]) or 0, size) for name, size in found.items())


def _keep_most(into: dict[str, int], sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        into[name] = max(into.get(name, 0), size)
