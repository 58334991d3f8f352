"""Makes a function smaller without changing what it computes, bit for bit.

One driver rebuilds every body, value by value: equal values become one, and local `rules` replace
what they match. Then stages that copy, that repeat another stage or that nothing reads disappear.
What shares a kernel is `fuse`'s question.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Parameter,
    Reduction,
    Select,
    Stage,
    Table,
    operands,
    reads_own_place,
    value_type,
    with_operands,
)
from dmlc.ir.index import find_dependencies
from dmlc.ir.verify import find_unsound_pairs
from dmlc.scalars import OPERATIONS, DataType, combiner_identity
from dmlc.transform.rules import RULES

_REPEATABLE = ("min", "max", "any", "all", *POSITIONAL_COMBINERS)
"""Combiners that give the same whether they take a value once or again and again."""
_ALWAYS = Constant(DataType.BOOL, True)
"""A guard that lets every point through is no guard."""
_NEVER = Constant(DataType.BOOL, False)


def simplify(function: Function, simplified: Function | None = None) -> Function:
    """The same function with constants folded, common values shared and dead stages gone.

    `simplified` is what it was made from, if that has been through here: stages that are still the
    same objects are not looked into again. Linear in the number of instructions. Pairs of
    `in_place` that no longer hold, because a copy between was removed, are dropped.
    """
    results = {r.name for r in function.results}
    replaced: dict[str, str] = {}
    twins = _Twins()
    done: Mapping[str, Parameter | Table | Stage]
    done = {} if simplified is None else simplified.tensors()
    promoted: dict[str, str] = {}
    stages: list[Stage] = []
    tensors = function.tensors()
    for stage in function.stages:
        made = stage
        if done.get(stage.name) is not stage or _reads_any(stage, replaced):
            made = drop_reduction(_with_body(stage, simplify_body(stage.body, replaced)))
        if stage.name not in results:
            source = _copied(made, tensors)
            if source is not None:
                replaced[stage.name] = source
                continue
        twin = twins.find(made)
        if twin != stage.name:
            if stage.name not in results:
                replaced[stage.name] = twin
                continue
            if twin not in results and twin not in promoted:
                # The earlier stage becomes the result, under the result's name.
                promoted[twin] = stage.name
                continue
        stages.append(made)
    named = [_rename(stage, promoted) for stage in stages]
    return drop_unsound_pairs(function.with_stages(list_live(named, results)))


class _Twins:
    """Finds stages that compute the same. To hash a body takes time, and those alone are that read
    the same tensors."""

    def __init__(self) -> None:
        self._alone: dict[tuple[object, ...], Stage] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def find(self, stage: Stage) -> str:
        """The first stage that computes the same; the stage itself where there is none."""
        look = (stage.dtype, stage.domain, tuple([load.tensor for load in stage.body.loads()]))
        other = self._alone.setdefault(look, stage)
        if other is stage:
            return stage.name
        if (look,) not in self._names:
            self._names[(look,)] = other.name
            self._names[look, other.body, other.reduction] = other.name
        return self._names.setdefault((look, stage.body, stage.reduction), stage.name)


def _reads_any(stage: Stage, names: Mapping[str, str]) -> bool:
    return bool(names) and any(load.tensor in names for load in stage.body.loads())


def _with_body(stage: Stage, body: Body) -> Stage:
    """A stage with another body; the stage itself where that is its own."""
    return stage if body is stage.body else dataclasses.replace(stage, body=body)


def simplify_bodies(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Stages with the rules applied to what they compute: what was put together from several may
    be constant now, and drivers fold constants by rules of their own."""
    return tuple(_with_body(stage, simplify_body(stage.body, {})) for stage in stages)


def _is_plain(stage: Stage) -> bool:
    """Whether a stage is element-wise, and the same whatever its extents are."""
    instructions = stage.body.instructions
    indices = {n for n, each in enumerate(instructions) if isinstance(each, Index)}
    for each in instructions:
        if isinstance(each, Load):
            if not reads_own_place(stage, each):
                return False
        elif any(operand in indices for operand in operands(each)):
            return False
    return stage.reduction is None


def drop_reduction(stage: Stage) -> Stage:
    """A stage without a reduction that folds nothing together, and of no element without a body.

    Over no points, a reduction is its combiner's identity, everywhere; over one point, or over
    points of one value where that may be taken any number of times, it is that value. The position
    it would give is 0. A sum of floats stays, for it begins with 0 and has no -0.
    """
    reduction, compute = stage.reduction, stage.dtype.compute
    combiner = "" if reduction is None else reduction.combiner
    positional = combiner in POSITIONAL_COMBINERS
    if 0 in stage.domain:
        if _is_plain(stage):
            return stage
        nothing = Constant(compute, compute.dtype.type(0).item())
    elif reduction is None:
        return stage
    elif any(extent == 0 for _, extent in reduction.axes) or _lets_none_through(stage.body):
        identity = 0 if positional else combiner_identity(combiner, compute)
        nothing = Constant(compute, identity)
    elif not _is_one_value(stage, reduction):
        return stage
    elif positional:
        nothing = Constant(compute, 0)
    else:
        return dataclasses.replace(stage, body=_at_first_point(stage.body), reduction=None)
    return dataclasses.replace(stage, body=Body.make((nothing,), 0), reduction=None)


def _lets_none_through(body: Body) -> bool:
    """Whether the guard of a body never holds."""
    return body.guard is not None and body.instructions[body.guard] == _NEVER


def _is_one_value(stage: Stage, reduction: Reduction) -> bool:
    """Whether a reduction takes one value, and is that value."""
    if stage.body.guard is not None or (reduction.combiner == "sum" and stage.dtype.is_float):
        return False
    if all(extent == 1 for _, extent in reduction.axes):
        return True
    if not all(isinstance(extent, int) for _, extent in reduction.axes):
        return False  # There may be no point at run time.
    moving = find_dependencies(stage.body)[stage.body.result]
    return reduction.combiner in _REPEATABLE and not any(index.reduced for index in moving)


def _at_first_point(body: Body) -> Body:
    """A body of a reduction where all of its indices are 0."""
    first = Constant(DataType.INDEX, 0)
    moved = (first if isinstance(i, Index) and i.reduced else i for i in body.instructions)
    return simplify_body(Body.make(tuple(moved), body.result), {})


def _copied(stage: Stage, tensors: Mapping[str, Parameter | Table | Stage]) -> str | None:
    """The tensor that a stage repeats element for element, changing nothing when it is stored."""
    result = stage.body.instructions[stage.body.result]
    if not isinstance(result, Load) or not reads_own_place(stage, result):
        return None
    tensor = tensors[result.tensor]
    exact = stage.dtype in (tensor.dtype, tensor.dtype.compute)
    return result.tensor if exact and tensor.extents == stage.domain else None


def _rename(stage: Stage, names: Mapping[str, str]) -> Stage:
    """A stage with itself and what it reads renamed."""
    if not names:
        return stage
    body = simplify_body(stage.body, names)
    return dataclasses.replace(stage, name=names.get(stage.name, stage.name), body=body)


def redirect_loads(stage: Stage, replaced: Mapping[str, str]) -> Stage:
    """A stage that reads other tensors in place of some; the stage itself where it reads none."""
    if not _reads_any(stage, replaced):
        return stage
    made = tuple(
        dataclasses.replace(i, tensor=replaced.get(i.tensor, i.tensor))
        if isinstance(i, Load)
        else i
        for i in stage.body.instructions
    )
    return dataclasses.replace(stage, body=dataclasses.replace(stage.body, instructions=made))


def list_live(stages: list[Stage], results: set[str]) -> tuple[Stage, ...]:
    """The stages that some result depends on, in order."""
    needed = set(results)
    kept: list[Stage] = []
    for stage in reversed(stages):
        if stage.name in needed:
            kept.append(stage)
            needed.update(load.tensor for load in stage.body.loads())
    return tuple(reversed(kept))


def drop_unsound_pairs(function: Function) -> Function:
    """The function without the `in_place` pairs that would now read overwritten memory."""
    unsound = find_unsound_pairs(function, function.in_place)
    if not unsound:
        return function
    sound = tuple(pair for pair in function.in_place if pair not in unsound)
    return dataclasses.replace(function, in_place=sound)


Change: TypeAlias = Callable[[int, Instruction], "int | None"]


class Builder:
    """A body in the making, in which equal values are one."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._numbers: dict[Instruction, int] = {}

    def constant(self, value: int, dtype: DataType = DataType.INDEX) -> int:
        """A whole number, as a position or in another type."""
        return self.add(Constant(dtype, value))

    def apply(self, name: str, *given: int) -> int:
        """An operation on some values of one type."""
        operation = OPERATIONS[name]
        dtype = operation.result_type(value_type(self.instructions[given[0]]))
        return self.add(Apply(operation, given, dtype))

    def join(self, conditions: Iterable[int]) -> int | None:
        """Conditions joined by `and`, in order; None where there are none."""
        guard: int | None = None
        for condition in dict.fromkeys(conditions):
            guard = condition if guard is None else self.apply("and", guard, condition)
        return guard

    def copy(
        self,
        body: Body,
        replaced: Mapping[int, int] = MappingProxyType({}),
        change: Change = lambda number, moved: None,
    ) -> list[int]:
        """The values of another body, by their numbers there: some are `replaced` by others. Of the
        rest `change` is given each, on values that are here, and says which it is, if another."""
        numbers: list[int] = []
        for number, instruction in enumerate(body.instructions):
            found = replaced.get(number)
            if found is None:
                given = tuple([numbers[o] for o in operands(instruction)])
                moved = with_operands(instruction, given)
                found = change(number, moved)
                found = self.add(moved) if found is None else found
            numbers.append(found)
        return numbers

    def make(self, result: int, guard: int | None = None) -> Body:
        """The body that gives one of the values."""
        return Body.make(self.instructions, result, guard)

    def remake(self, stage: Stage, change: Change) -> Stage:
        """A stage with some of its body's values changed, as `copy` does it."""
        numbers = self.copy(stage.body, change=change)
        guard = None if stage.body.guard is None else numbers[stage.body.guard]
        return dataclasses.replace(stage, body=self.make(numbers[stage.body.result], guard))

    def add(self, instruction: Instruction) -> int:
        """The number of the value an instruction gives, after every rule that applies to it."""
        while True:
            # To hash an instruction takes time: it is done once for each.
            number = self._numbers.setdefault(instruction, len(self.instructions))
            if number < len(self.instructions):
                return number
            found = _apply_rules(instruction, self.instructions)
            if found is None:
                self.instructions.append(instruction)
                return number
            del self._numbers[instruction]
            if isinstance(found, int):
                return found
            instruction = found


def _apply_rules(
    instruction: Instruction, values: Sequence[Instruction]
) -> int | Instruction | None:
    """What the first rule that applies makes of an instruction; None where none does."""
    # Rules are about these alone.
    if not isinstance(instruction, Apply | Select | Cast):
        return None
    for rule in RULES:
        found = rule(instruction, values)
        if found is not None:
            return found
    return None


def simplify_body(body: Body, replaced: Mapping[str, str]) -> Body:
    """A body with the rules applied, its loads redirected as `replaced` says; the body itself where
    that changes nothing."""
    builder = Builder()
    numbers: list[int] = []
    for instruction in body.instructions:
        moved = with_operands(instruction, tuple([numbers[o] for o in operands(instruction)]))
        if isinstance(moved, Load) and moved.tensor in replaced:
            moved = dataclasses.replace(moved, tensor=replaced[moved.tensor])
        numbers.append(builder.add(moved))
    guard = None if body.guard is None else numbers[body.guard]
    if guard is not None and builder.instructions[guard] == _ALWAYS:
        guard = None
    if guard == body.guard and tuple(builder.instructions) == body.instructions:
        return body
    return Body.make(builder.instructions, numbers[body.result], guard)
