"""Keeps FLOAT16 and BFLOAT16 values in registers, rounded as their memory would.

A stage in a 16-bit type is read as it is stored: rounded. `carry_rounding` writes that rounding as
an operation of its own, so that the stage may be computed where it is read, with the same bits.
`store_rounded` goes the other way, for the stages that get memory nevertheless: what fits 16 bits
is stored in 16 bits. `read_results` has kernels read what is stored already.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Select,
    Stage,
    reads_own_place,
)
from dmlc.ir.naming import take_name
from dmlc.scalars import ROUNDINGS, DataType
from dmlc.transform.simplify import redirect_loads

_KEPT = ("neg", "abs", "min", "max")
"""Operations that give one of their operands, or its negative."""


def carry_rounding(function: Function) -> Function:
    """The function with every 16-bit stage that another reads parted in two: a FLOAT32 stage whose
    values are rounded to the type, which the others read, and what is stored.

    Results equal those before bit for bit. The function itself where there is none.
    """
    read = {load.tensor for stage in function.stages for load in stage.body.loads()}
    parted = [s for s in function.stages if s.dtype.is_storage_only and s.name in read]
    if not parted:
        return function
    names = {t.name: None for t in (*function.parameters, *function.tables, *function.stages)}
    results = {r.name for r in function.results}
    wanted = {s.name for s in parted}
    exact = _Exact(function)
    replaced: dict[str, str] = {}
    stages: list[Stage] = []
    for stage in function.stages:
        made = redirect_loads(stage, replaced)
        if stage.name in wanted:
            made_of = _part(made, stage.name in results, names, exact)
            if stage.name in results:
                replaced[stage.name] = made_of[-2].name
        else:
            made_of = [made]
        for each in made_of:
            exact.add(each)
        stages += made_of
    return function.with_stages(stages)


def _part(stage: Stage, leaves: bool, names: dict[str, None], exact: _Exact) -> list[Stage]:
    """The stages that a 16-bit stage becomes. The last but one is read by others where the stage
    leaves the function, and else the last."""
    dtype, compute = stage.dtype, stage.dtype.compute
    made: list[Stage] = []
    source, body = stage, stage.body
    if stage.reduction is not None:
        name = take_name(f"{stage.name}_exact", names)
        source = dataclasses.replace(stage, name=name, dtype=compute)
        made.append(source)
        body = _copy_of(name, len(stage.domain), compute)
    rounded = take_name(f"{stage.name}_rounded", names) if leaves else stage.name
    if not exact.holds(body, dtype):
        value = Apply(ROUNDINGS[dtype], (body.result,), compute)
        body = Body.make((*body.instructions, value), len(body.instructions))
    made.append(Stage(rounded, compute, stage.domain, body, None, stage.span))
    if leaves:
        copied = _copy_of(rounded, len(stage.domain), compute)
        made.append(dataclasses.replace(stage, body=copied, reduction=None))
    return made


def _copy_of(name: str, rank: int, dtype: DataType) -> Body:
    places: list[Instruction] = [Index(axis) for axis in range(rank)]
    return Body.make((*places, Load(name, tuple(range(rank)), dtype)), rank)


def read_results(function: Function, homes: Mapping[str, tuple[int, int]]) -> Function:
    """The function with 16-bit results read in place of the FLOAT32 stages that they hold every
    value of, by kernels other than the one that computes both. `homes` says which that is, first,
    of every stage."""
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
    """Knows which tensors hold nothing but values of a 16-bit type."""

    def __init__(self, function: Function) -> None:
        self._types: dict[str, DataType] = {p.name: p.dtype for p in function.parameters}
        self._known: dict[tuple[str, DataType], bool] = {}

    def add(self, stage: Stage) -> None:
        """A stage that later ones may read."""
        self._types[stage.name] = stage.dtype
        if stage.dtype is DataType.FLOAT32 and stage.reduction is None:
            for dtype in ROUNDINGS:
                self._known[stage.name, dtype] = self.holds(stage.body, dtype)

    def holds(self, body: Body, dtype: DataType) -> bool:
        """Whether every value of a body is one of the type."""
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
        """The values that must be of the type for this one to be; None where that is not enough."""
        match instruction:
            case Apply(operation=operation) if operation is ROUNDINGS[dtype]:
                return ()
            case Apply(operation=operation, operands=operands) if operation.name in _KEPT:
                return operands
            case Select(then=then, otherwise=otherwise):
                return then, otherwise
            case Load(tensor=tensor):
                known = self._types.get(tensor) is dtype or self._known.get((tensor, dtype), False)
                return () if known else None
            case Constant(dtype=DataType.FLOAT32):
                value = instruction.value
                with np.errstate(over="ignore"):
                    exact = float(dtype.dtype.type(value)) == value or math.isnan(value)
                return () if exact else None
            case _:
                return None


def store_rounded(function: Function, kept: Collection[str]) -> Function:
    """The function with those FLOAT32 stages in a 16-bit type whose values all are of that type,
    but for results and the stages `kept` as they are. A rounding right before storing goes."""
    results = {r.name for r in function.results}
    exact = _Exact(function)
    stages: list[Stage] = []
    for stage in function.stages:
        exact.add(stage)
        outside = stage.name not in results and stage.name not in kept
        if outside and stage.dtype is DataType.FLOAT32 and stage.reduction is None:
            stage = _narrow(stage, exact)
        stages.append(stage)
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
