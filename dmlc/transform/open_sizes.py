"""Symbolic simplification of index conditions under open sizes, and checks for reductions that need
known ones.

For known sizes, an index-only condition bounds a kernel's loops by a table, evaluated at compile
time. Along an axis of open size there is no table, and the loop would visit the whole axis for each
output. A comparison of indices, as for a triangle, excludes a part of the points, and stays in the
loop; an equation that fixes the index is read there (`one_place`); interpolation weights exclude
almost all, and are refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.index.intervals import NEGATED
from dmlc.ir import Apply, Constant, Extent, Function, Index, Instruction, Stage, Symbol, value_type
from dmlc.ir.below import SizeBounds
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, find_index_only, read_comparison
from dmlc.ir.verify import find_stage_fault
from dmlc.scalars import DataType
from dmlc.sizes import find_symbols
from dmlc.source import Diagnostic, Note, UnsupportedError
from dmlc.transform.keys import find_keys


def check_open(function: Function) -> None:
    """Raises `UnsupportedError` for functions that no kernel can compute for all open sizes:
    reductions that need tables along open axes, each with its size and source, and tensors with
    open strides."""
    if not function.symbols():
        return
    found = [d for stage in function.stages for d in _list_tables(stage)]
    for tensor in (*function.parameters, *function.results):
        extents = function.tensors()[tensor.name].extents
        if tensor.strides is not None and find_symbols((*extents, *tensor.strides)):
            found.append(_refuse_layout(function, tensor.name, tensor.strides))
    if found:
        raise UnsupportedError(list(dict.fromkeys(found)))


def settle_sizes(function: Function) -> Function:
    """Function without index comparisons and clamps that have the same outcome for all sizes."""
    if not function.symbols():
        return function

    def settle(stage: Stage) -> Stage:
        made = _settle(stage)
        # The verifier may need a clamp as a bound, though it never changes the index.
        fault = None if made.body == stage.body else find_stage_fault(function, made)
        return made if fault is None else stage

    return function.with_stages(map(settle, function.stages))


def _settle(stage: Stage) -> Stage:
    body = stage.body
    if not any(isinstance(i, Symbol) for i in body.instructions):
        return stage
    # Kernels evaluate the value even where its guard is false.
    free = dataclasses.replace(stage, body=dataclasses.replace(body, guard=None))
    proof, builder = SizeBounds(free), BodyBuilder()

    def change(number: int, moved: Instruction) -> int | None:
        old = body.instructions[number]
        if not isinstance(old, Apply) or not isinstance(moved, Apply):
            return None
        name, given = old.operation.name, old.operands
        if name in ("min", "max") and old.dtype is DataType.INDEX:
            for one, other in ((0, 1), (1, 0)):
                if proof.is_at_most(given[one], given[other]):
                    return moved.operands[one if name == "min" else other]
        elif name in NEGATED and value_type(body.instructions[given[0]]) is DataType.INDEX:
            for holds in (True, False):
                if proof.is_certain(number, holds):
                    return builder.add(Constant(DataType.BOOL, holds))
        return None

    return builder.remake(stage, change)


def _list_tables(stage: Stage) -> list[Diagnostic]:
    """Errors for the tables that a stage would need."""
    found: list[Diagnostic] = []
    if stage.reduction is None or stage.body.guard is None:
        return found
    facts, placed = IndexFacts(stage), find_index_only(stage.body, open_sizes=True)
    for condition in facts.conditions:
        if not placed[condition] or _compares_positions(stage, condition):
            continue
        if any(key.index.reduced for key in find_keys(facts, condition)):
            continue
        for index in facts.dependencies[condition]:
            extent = stage.extent(index)
            if isinstance(extent, str) and index.reduced:
                found.append(_refuse(stage, index, extent))
    return found


def _refuse_layout(function: Function, name: str, strides: Sequence[Extent]) -> Diagnostic:
    shown = f"{{{', '.join(map(str, strides))}}}"
    return Diagnostic(
        f"tensor '{name}' has the strides {shown} and a size that is left open: kernels take such "
        "tensors packed",
        function.tensors()[name].span,
        (Note("give its sizes, as ir.specialize does, or leave its strides out"),),
        code="E0809",
    )


def _refuse(stage: Stage, index: Index, symbol: str) -> Diagnostic:
    return Diagnostic(
        f"'{stage.name}' reduces over an axis of size '{symbol}' ({index.name}), and positions "
        f"along it alone say which of its points count: that is a table, and there is none while "
        f"'{symbol}' is left open",
        stage.span,
        (Note(f"give '{symbol}' a number, or write the points that count as a window"),),
        code="E0809",
    )


def _compares_positions(stage: Stage, value: int) -> bool:
    """Whether a condition is an order comparison of two indices."""
    values = stage.body.instructions
    compared = [left for name, left, _ in read_comparison(values, value) if name in ("lt", "le")]
    return any(value_type(values[left]) is DataType.INDEX for left in compared)
