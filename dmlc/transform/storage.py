"""Chooses the storage types of stages, if these are not the computed types.

A 16-bit stage is read as it is stored: rounded. `carry_rounding` expresses that rounding by an
operation, so that the stage can be inlined with identical results. `store_rounded` reverses this
for the stages that are stored nevertheless: values that fit in 16 bits are stored in 16 bits.
`read_results` lets kernels read the stored tensors. `widen_booleans` and `narrow_positions` serve
languages whose buffers cannot hold booleans or 64-bit integers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Instruction,
    Load,
    Reduction,
    Select,
    Stage,
    operands,
    reads_own_place,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.naming import take_name
from dmlc.scalars import ROUNDINGS, DataType
from dmlc.transform.simplify import redirect_loads

_KEPT = ("neg", "abs", "min", "max")
"""Operations that return one of their operands, or its negative."""

_POSITIONS = 1 << 31
"""Bound of the non-negative integers that INT32 holds."""


def carry_rounding(function: Function) -> Function:
    """Function with every 16-bit stage that another reads split in two: a FLOAT32 stage with values
    rounded to the type, which others read, and the stored stage.

    Results are bit-identical. The same object if there is none.
    """
    read = function.readers()
    if not any(s.dtype.is_storage_only and s.name in read for s in function.stages):
        return function
    names = dict.fromkeys(function.tensors())
    results = {r.name for r in function.results}
    exact = _Exact(function)
    replaced: dict[str, str] = {}
    stages: list[Stage] = []
    for stage in function.stages:
        made = [redirect_loads(stage, replaced)]
        if stage.dtype.is_storage_only and stage.name in read:
            made = _split(made[0], stage.name in results, names, exact)
            if stage.name in results:
                replaced[stage.name] = made[-2].name
        for each in made:
            exact.add(each)
        stages += made
    return function.with_stages(stages)


def _split(stage: Stage, leaves: bool, names: dict[str, None], exact: _Exact) -> list[Stage]:
    """Stages that replace a 16-bit stage. Others read the last one, or the last but one if the
    stage is a result (`leaves`)."""
    dtype, compute = stage.dtype, stage.dtype.compute
    made: list[Stage] = []
    body = stage.body
    if stage.reduction is not None:
        name = take_name(f"{stage.name}_exact", names)
        source = dataclasses.replace(stage, name=name, dtype=compute)
        made.append(source)
        body = _copy(source)
    rounded = take_name(f"{stage.name}_rounded", names) if leaves else stage.name
    if not exact.holds(body, dtype):
        value = Apply(ROUNDINGS[dtype], (body.result,), compute)
        body = Body.make((*body.instructions, value), len(body.instructions))
    made.append(Stage(rounded, compute, stage.extents, body, None, stage.span))
    if leaves:
        made.append(dataclasses.replace(stage, body=_copy(made[-1]), reduction=None))
    return made


def _copy(stage: Stage) -> Body:
    builder = BodyBuilder()
    return builder.make(builder.read(stage))


def read_results(function: Function, homes: Mapping[str, tuple[int, int]]) -> Function:
    """Function in which kernels read 16-bit results instead of the equal FLOAT32 stages, except the
    kernel that computes both. `homes` gives the kernel of every stage first."""
    results = {r.name for r in function.results}
    exact = _Exact(function)
    held: dict[str, str] = {}
    stages: list[Stage] = []
    for stage in function.stages:
        kernel = homes[stage.name][0]
        read = (load.tensor for load in stage.body.loads())
        elsewhere = {n: held[n] for n in read if n in held and homes[n][0] != kernel}
        stages.append(redirect_loads(stage, elsewhere))
        exact.add(stage)
        value = stage.body.instructions[stage.body.result]
        if stage.name not in results or stage.dtype not in ROUNDINGS:
            continue
        if isinstance(value, Load) and value.tensor in homes and reads_own_place(stage, value):
            same = homes[value.tensor][0] == kernel
            if same and exact.holds(stage.body, stage.dtype):
                held[value.tensor] = stage.name
    return function.with_stages(stages)


class _Exact:
    """Tensors whose values all belong to a 16-bit type."""

    def __init__(self, function: Function) -> None:
        self._held: dict[str, list[DataType]] = {p.name: [p.dtype] for p in function.parameters}

    def add(self, stage: Stage) -> None:
        """Adds a stage that later ones may read."""
        computed = stage.dtype is DataType.FLOAT32 and stage.reduction is None
        held = [dtype for dtype in ROUNDINGS if computed and self.holds(stage.body, dtype)]
        self._held[stage.name] = [stage.dtype, *held]

    def holds(self, body: Body, dtype: DataType) -> bool:
        """Whether every value of a body belongs to a type."""
        if body.dtype is not dtype.compute:
            return False
        pending, seen = [body.result], set[int]()
        while pending:
            number = pending.pop()
            made_of = self._list_sources(body.instructions[number], dtype)
            if made_of is None:
                return False
            seen.add(number)
            pending += [each for each in made_of if each not in seen]
        return True

    def _list_sources(self, instruction: Instruction, dtype: DataType) -> tuple[int, ...] | None:
        """Operands of which a value belongs to the type if all of them do; None if it may not even
        then."""
        match instruction:
            case Apply(operation=operation) if operation is ROUNDINGS[dtype]:
                return ()
            case Apply(operation=operation, operands=operands) if operation.name in _KEPT:
                return operands
            case Select(then=then, otherwise=otherwise):
                return then, otherwise
            case Load(tensor=tensor):
                return () if dtype in self._held.get(tensor, ()) else None
            case Constant(dtype=DataType.FLOAT32):
                value = instruction.value
                rounded = float(ROUNDINGS[dtype].evaluate(np.asarray(value, np.float64)))
                return () if rounded == value or math.isnan(value) else None
            case _:
                return None


def store_rounded(function: Function, kept: Collection[str]) -> Function:
    """Function with those FLOAT32 stages in a 16-bit type whose values belong to it, except results
    and the stages in `kept`. A final rounding is dropped."""
    held = {*(r.name for r in function.results), *kept}
    exact = _Exact(function)
    stages: list[Stage] = []
    for stage in function.stages:
        exact.add(stage)
        plain = stage.dtype is DataType.FLOAT32 and stage.reduction is None
        stages.append(_narrow(stage, exact) if plain and stage.name not in held else stage)
    return function.with_stages(stages)


def _narrow(stage: Stage, exact: _Exact) -> Stage:
    for dtype, rounding in ROUNDINGS.items():
        if not exact.holds(stage.body, dtype):
            continue
        body = stage.body
        root = body.instructions[body.result]
        if isinstance(root, Apply) and root.operation is rounding:
            body = Body.make(body.instructions, root.operands[0])
        return dataclasses.replace(stage, dtype=dtype, body=body)
    return stage


def widen_booleans(function: Function) -> Function:
    """Function with every BOOL stage that is no result as UINT32. It runs after fusion, as inlined
    stages need no memory.

    Exact: readers compare the numbers with 0.
    """
    results = {r.name for r in function.results}
    widened = {s.name for s in function.stages if s.dtype is DataType.BOOL} - results
    if not widened:
        return function
    return function.with_stages(_widen(stage, widened) for stage in function.stages)


def _widen(stage: Stage, widened: set[str]) -> Stage:
    builder = BodyBuilder()

    def compare(number: int, moved: Instruction) -> int | None:
        if not isinstance(moved, Load) or moved.tensor not in widened:
            return None
        found = builder.add(dataclasses.replace(moved, dtype=DataType.UINT32))
        return builder.apply("ne", found, builder.constant(0, DataType.UINT32))

    made = builder.remake(stage, compare)
    if stage.name not in widened:
        return made
    instructions = (*made.body.instructions, Cast(made.body.result, DataType.UINT32))
    body = Body.make(instructions, len(instructions) - 1, made.body.guard)
    reduction = stage.reduction
    if reduction is not None:
        # Where no point takes part, 0 is the least of unsigned numbers, and all but 0 are true.
        reduction = Reduction(reduction.record.counterpart, reduction.axes)
    return dataclasses.replace(stage, dtype=DataType.UINT32, body=body, reduction=reduction)


def narrow_positions(function: Function) -> Function:
    """Function with INT32 in place of INT64 and UINT64 for tensors that are only used as indices:
    tables with values that fit, and argmin and argmax stages. Constant indices of a gather in ONNX
    are such. Exact."""
    if function.loops:
        return function
    long = (DataType.INT64, DataType.UINT64)
    narrowed = {
        t.name
        for t in function.tables
        if t.dtype in long and all(-_POSITIONS <= value < _POSITIONS for value in t.values)
    }
    results = {r.name for r in function.results}
    narrowed |= {s.name for s in function.stages if s.dtype in long and _finds_index(s)} - results
    for stage in function.stages:
        narrowed -= _list_numbers(stage.body)
    if not narrowed:
        return function
    tables = tuple(
        dataclasses.replace(t, dtype=DataType.INT32) if t.name in narrowed else t
        for t in function.tables
    )
    stages = tuple(_read_narrowed(stage, narrowed) for stage in function.stages)
    return dataclasses.replace(function, tables=tables, stages=stages)


def _finds_index(stage: Stage) -> bool:
    """Whether it is a positional reduction whose indices fit in INT32."""
    if not stage.is_positional:
        return False
    extents = [extent for _, extent in stage.axes]
    return all(isinstance(e, int) for e in extents) and math.prod(map(int, extents)) <= _POSITIONS


def _list_numbers(body: Body) -> set[str]:
    """Tensors whose elements a body uses other than as indices."""
    read = {n: i.tensor for n, i in enumerate(body.instructions) if isinstance(i, Load)}
    used = {body.result, body.guard}
    for instruction in body.instructions:
        if not (isinstance(instruction, Cast) and instruction.dtype is DataType.INDEX):
            used.update(operands(instruction))
    return {tensor for number, tensor in read.items() if number in used}


def _read_narrowed(stage: Stage, narrowed: set[str]) -> Stage:
    def narrow(each: Instruction) -> Instruction:
        is_narrow = isinstance(each, Load) and each.tensor in narrowed
        return dataclasses.replace(each, dtype=DataType.INT32) if is_narrow else each

    dtype = DataType.INT32 if stage.name in narrowed else stage.dtype
    return dataclasses.replace(stage, dtype=dtype, body=stage.body.map(narrow))
