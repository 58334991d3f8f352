"""Random functions of the tensor IR: several stages, gathered, reduced and guarded, with tables.

Functions are read here as data: what each instruction means is said by `possible` and `folds`, and
neither the reference's nor the compiler's evaluation takes part.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np
from hypothesis import strategies as st

from dmlc import ir
from dmlc.scalars import DataType as T
from tests.fuzz import folds
from tests.fuzz.operations import apply
from tests.fuzz.possible import (
    PLACES,
    Array,
    Floats,
    Rules,
    Values,
    Wholes,
    cast,
    constant,
    fold_rules,
    known_wholes,
    load,
    place_rules,
    reload,
    select,
    spread,
    store,
)
from tests.strategies import functions as well_formed
from tests.strategies import make_array

COUNT = 7
"""Elements of tensors whose size is said at run time."""


@dataclasses.dataclass(frozen=True)
class FunctionCase:
    """A function, and the seed of what it is run on."""

    function: ir.Function
    seed: int

    def bind(self) -> ir.Function:
        return self.function

    def text(self) -> str:
        return str(self.function)

    def describe(self) -> str:
        return f"seed {self.seed}\n{self.function}"

    def inputs(self) -> dict[str, Array]:
        """Elements that share a place in memory are equal."""
        random = np.random.default_rng(self.seed)
        made: dict[str, Array] = {}
        for parameter in self.function.parameters:
            sizes = _sizes(parameter.extents)
            if parameter.strides is None or 0 in sizes:
                made[parameter.name] = make_array(parameter.dtype, sizes, random)
                continue
            last = sum((n - 1) * s for n, s in zip(sizes, parameter.strides, strict=True))
            memory = make_array(parameter.dtype, (last + 1,), random)
            strides = [s * memory.itemsize for s in parameter.strides]
            made[parameter.name] = np.lib.stride_tricks.as_strided(memory, sizes, strides)
        return made

    def expected(self, rules: Rules, inputs: Mapping[str, Array]) -> dict[str, Values]:
        """What each result may be."""
        tensors = {p.name: load(p.dtype, inputs[p.name]) for p in self.function.parameters}
        for table in self.function.tables:
            values = np.array(table.values, table.dtype.dtype).reshape(table.extents)
            tensors[table.name] = load(table.dtype, values)
        found: dict[str, Values] = {}
        with np.errstate(all="ignore"):
            for stage in self.function.stages:
                value = _evaluate(stage, tensors, rules)
                found[stage.name] = store(rules, value, stage.dtype)
                # What is not a result need not be stored, but for what 16 bits round away.
                kept = found[stage.name] if stage.dtype.is_storage_only else value
                tensors[stage.name] = reload(kept, stage.dtype)
        return {r.name: found[r.name] for r in self.function.results}

    def smaller(self) -> Iterator[FunctionCase]:
        """Functions with fewer results, stages and instructions."""
        function = self.function
        for result in function.results:
            if len(function.results) > 1:
                yield self._with(function.stages, (result,))
        for at, stage in enumerate(function.stages):
            rest = (*function.stages[:at], *function.stages[at + 1 :])
            yield self._with(rest, tuple(r for r in function.results if r.name != stage.name))
            for body in _smaller_bodies(stage.body):
                made = dataclasses.replace(stage, body=body)
                yield self._with(
                    (*function.stages[:at], made, *function.stages[at + 1 :]), function.results
                )
        for result in function.results:
            if result.strides is not None:
                plain = tuple(ir.Result(r.name) for r in function.results)
                yield self._with(function.stages, plain)
                break

    def _with(self, stages: tuple[ir.Stage, ...], results: tuple[ir.Result, ...]) -> FunctionCase:
        read = {load.tensor for s in stages for load in s.body.loads()}
        kept = tuple(s for s in stages if s.name in read or s.name in {r.name for r in results})
        made = dataclasses.replace(
            self.function,
            stages=kept,
            results=results,
            parameters=tuple(p for p in self.function.parameters if p.name in read),
            tables=tuple(t for t in self.function.tables if t.name in read),
            in_place=(),
        )
        return FunctionCase(made, self.seed)


def _sizes(extents: tuple[ir.Extent, ...]) -> tuple[int, ...]:
    return tuple(e if isinstance(e, int) else COUNT for e in extents)


def _smaller_bodies(body: ir.Body) -> Iterator[ir.Body]:
    """Bodies where a value is one of its operands, or a number, or the guard is left out."""
    if body.guard is not None:
        yield ir.Body.make(body.instructions, body.result)
        for value in ir.operands(body.instructions[body.guard]):
            if ir.value_type(body.instructions[value]) is T.BOOL:
                yield ir.Body.make(body.instructions, body.result, value)
    for at, instruction in reversed(list(enumerate(body.instructions))):
        dtype = ir.value_type(instruction)
        for value in ir.operands(instruction):
            if ir.value_type(body.instructions[value]) is dtype:
                yield _redirect(body, at, value)
        if isinstance(instruction, ir.Apply | ir.Select | ir.Cast):
            number: bool | int | float = False if dtype is T.BOOL else 1.0 if dtype.is_float else 1
            made = (
                *body.instructions[:at],
                ir.Constant(dtype, number),
                *body.instructions[at + 1 :],
            )
            yield ir.Body.make(made, body.result, body.guard)


def _redirect(body: ir.Body, old: int, new: int) -> ir.Body:
    """What reads one value reads another, before it."""

    def moved(value: int) -> int:
        return new if value == old else value

    made: list[ir.Instruction] = []
    for instruction in body.instructions:
        match instruction:
            case ir.Apply():
                given = tuple(moved(o) for o in instruction.operands)
                made.append(dataclasses.replace(instruction, operands=given))
            case ir.Load():
                given = tuple(moved(o) for o in instruction.indices)
                made.append(dataclasses.replace(instruction, indices=given))
            case ir.Cast():
                made.append(dataclasses.replace(instruction, operand=moved(instruction.operand)))
            case ir.Select():
                parts = (instruction.condition, instruction.then, instruction.otherwise)
                made.append(ir.Select(*map(moved, parts), instruction.dtype))
            case _:
                made.append(instruction)
    guard = None if body.guard is None else moved(body.guard)
    return ir.Body.make(made, moved(body.result), guard)


# Evaluation --------------------------------------------------------------------------------


def _evaluate(stage: ir.Stage, tensors: Mapping[str, Values], rules: Rules) -> Values:
    domain = _sizes(stage.extents)
    reduction = stage.reduction
    inner = () if reduction is None else _sizes(tuple(e for _, e in reduction.axes))
    shape = (*domain, *inner)
    axes = [ir.Index(axis) for axis in range(len(domain))]
    if reduction is not None:
        axes += [ir.Index(label, True) for label, _ in reduction.axes]
    mesh: dict[ir.Index, Array] = {}
    for place, (index, extent) in enumerate(zip(axes, shape, strict=True)):
        sizes = [1] * len(shape)
        sizes[place] = extent
        mesh[index] = np.arange(extent).reshape(sizes)
    body = stage.body
    values: list[Values] = []
    placed: list[bool] = []
    for instruction in body.instructions:
        given = [values[o] for o in ir.operands(instruction)]
        free = not isinstance(instruction, ir.Load)
        placed.append(free and all(placed[o] for o in ir.operands(instruction)))
        kind = place_rules(rules) if placed[-1] else rules
        values.append(_evaluate_one(instruction, given, mesh, tensors, kind))
    result = spread(values[body.result], shape)
    if reduction is None:
        return result
    guard: Wholes | None = None
    if body.guard is not None:
        found = values[body.guard]
        assert isinstance(found, Wholes)
        guard = found
    known = placed[body.result] and (body.guard is None or placed[body.guard])
    kind = fold_rules(rules, known)
    made = folds.fold(kind, reduction.combiner, result, guard, shape, len(inner))
    if reduction.combiner.startswith("arg"):
        return cast(PLACES, made, stage.dtype)
    return made


def _evaluate_one(
    instruction: ir.Instruction,
    given: list[Values],
    mesh: Mapping[ir.Index, Array],
    tensors: Mapping[str, Values],
    rules: Rules,
) -> Values:
    match instruction:
        case ir.Constant():
            return constant(instruction.dtype, instruction.value)
        case ir.Index():
            return known_wholes(T.INDEX, mesh[instruction])
        case ir.Apply():
            return apply(rules, instruction.operation.name, *given)
        case ir.Cast():
            return cast(rules, given[0], instruction.dtype)
        case ir.Select():
            condition = given[0]
            assert isinstance(condition, Wholes)
            return select(condition, given[1], given[2])
        case ir.Load():
            return _read(tensors[instruction.tensor], given)


def _read(tensor: Values, places: list[Values]) -> Values:
    held = tensor.low if isinstance(tensor, Floats) else tensor.value
    whole = [p for p in places if isinstance(p, Wholes)]
    known = np.asarray(True)
    for place in whole:
        known = known & place.known
    kept = [np.clip(p.value, 0, max(n - 1, 0)) for p, n in zip(whole, held.shape, strict=True)]
    at = tuple(np.broadcast_arrays(*kept)) if kept else ()
    if 0 in held.shape:
        # No point comes to be: any value of the right shape will do.
        shape = at[0].shape
        return load(tensor.dtype, np.zeros(shape, tensor.dtype.dtype))

    def pick(a: Array) -> Array:
        return np.broadcast_to(a, held.shape)[at]

    if isinstance(tensor, Wholes):
        return Wholes(tensor.dtype, pick(tensor.value), pick(tensor.known) & known)
    low = pick(tensor.low)
    high, nan = low if tensor.exact else pick(tensor.high), pick(tensor.nan)
    if not known.all():
        low, high = np.where(known, low, -math.inf), np.where(known, high, math.inf)
        nan = np.where(known, nan, True)
    return Floats(
        tensor.dtype, low, high, nan, pick(np.asarray(tensor.top)), pick(np.asarray(tensor.least))
    )


# Strategies --------------------------------------------------------------------------------


@st.composite
def functions(draw: st.DrawFn) -> FunctionCase:
    """A function, some of whose parameters are tables."""
    function = draw(well_formed(transcendental=draw(st.integers(0, 5)) == 0))
    seed = draw(st.integers(0, 2**16))
    random = np.random.default_rng(seed)
    tables: list[ir.Table] = []
    for parameter in function.parameters:
        sizes = tuple(e for e in parameter.extents if isinstance(e, int))
        packed = len(sizes) == len(parameter.extents) and parameter.strides is None
        dtype = parameter.dtype
        over = any(p == parameter.name for _, p in function.in_place)
        if packed and not dtype.is_storage_only and not over and draw(st.integers(0, 2)) == 0:
            values = make_array(dtype, sizes, random).ravel().tolist()
            tables.append(ir.Table(parameter.name, dtype, sizes, tuple(values)))
    names = {t.name for t in tables}
    kept = tuple(p for p in function.parameters if p.name not in names)
    made = dataclasses.replace(function, parameters=kept, tables=tuple(tables))
    return FunctionCase(made, seed)
