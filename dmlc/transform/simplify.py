"""Simplifies a function without changing any bit of its results.

Every body is rebuilt value by value: equal values become one, and local `rules` replace what they
match. Then stages that copy another, duplicate another, or are never read are removed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Loop,
    Stage,
    Tensor,
    operands,
    reads_own_place,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import find_dependencies
from dmlc.ir.verify import are_sound, find_unsound_pairs
from dmlc.parameters import expect
from dmlc.scalars import GRADIENT_MARKS, Combiner, DataType
from dmlc.source import Span

_ALWAYS = Constant(DataType.BOOL, True)
"""Guard that all points pass."""
_NEVER = Constant(DataType.BOOL, False)
"""Guard that no point passes."""


def simplify(function: Function, simplified: Function | None = None) -> Function:
    """Function with constants folded, common values shared and dead stages removed.

    `simplified` is the function it was made from, if that was a result of this function: identical
    stages are not processed again. Linear in the number of instructions. `in_place` pairs are
    dropped if the removal of a copy invalidates them.
    """
    function = drop_marks(expect("function", function, Function, "an ir.Function"))
    results = {result.name for result in function.results}
    function.refuse_loops("'simplify' takes functions without loops")
    replaced: dict[str, str] = {}
    twins = _Twins()
    done: Mapping[str, Tensor]
    done = {} if simplified is None else simplified.tensors()
    promoted: dict[str, str] = {}
    stages: list[Stage] = []
    tensors = function.tensors()
    for stage in function.stages:
        made = stage
        if done.get(stage.name) is not stage or _reads_any(stage, replaced):
            made = drop_reduction(simplify_stage(stage, replaced))
        leaves = stage.name in results
        other = None if leaves else _copied(made, tensors)
        other = twins.find(made) if other is None else other
        if other != stage.name and not leaves:
            replaced[stage.name] = other
        elif other != stage.name and other not in results and other not in promoted:
            # The earlier stage becomes the result, under the result's name.
            promoted[other] = stage.name
        else:
            stages.append(made)
    named = [simplify_stage(stage, promoted) for stage in stages] if promoted else stages
    return replace_stages(function, list_live(named, results))


def drop_marks(function: Function) -> Function:
    """Function with each mark that only differentiation reads, such as `stop_gradient`, replaced by
    its value, and without the stages that only a gradient reads; the same object if it has no
    marks."""
    if not any(map(_has_marks, function.stages)):
        return function
    stages = [_drop_marks(stage) for stage in function.stages]
    kept = {result.name for result in function.results}
    kept.update(name for loop in function.loops for name in loop.stages)
    return replace_stages(function, list_live(stages, kept))


def _has_marks(stage: Stage) -> bool:
    return any(map(_is_mark, stage.body.instructions))


def _is_mark(instruction: Instruction) -> bool:
    return isinstance(instruction, Apply) and instruction.operation.name in GRADIENT_MARKS


def _drop_marks(stage: Stage) -> Stage:
    def change(_: int, moved: Instruction) -> int | None:
        return moved.operands[0] if isinstance(moved, Apply) and _is_mark(moved) else None

    return BodyBuilder().remake(stage, change) if _has_marks(stage) else stage


class _Twins:
    """Finds duplicate stages. Hashing a body is slow, so only stages that read the same tensors are
    hashed."""

    def __init__(self) -> None:
        self._alone: dict[tuple[object, ...], Stage] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def find(self, stage: Stage) -> str:
        """First stage that computes the same; the stage's own name if there is none."""
        look = (stage.dtype, stage.extents, tuple([load.tensor for load in stage.body.loads()]))
        other = self._alone.setdefault(look, stage)
        if other is stage:
            return stage.name
        if (look,) not in self._names:
            self._names[(look,)] = other.name
            self._names[look, other.body, other.reduction] = other.name
        return self._names.setdefault((look, stage.body, stage.reduction), stage.name)


def _reads_any(stage: Stage, names: Mapping[str, str]) -> bool:
    return bool(names) and any(load.tensor in names for load in stage.body.loads())


def has_positions(stage: Stage) -> bool:
    """Whether a body computes with an index, other than for loads."""
    instructions = stage.body.instructions
    made_of = [i for v in instructions if not isinstance(v, Load) for i in operands(v)]
    return any(isinstance(instructions[i], Index) for i in (*made_of, stage.body.result))


def drop_reduction(stage: Stage) -> Stage:
    """Stage without a trivial reduction; without elements, it also gets a trivial body.

    Over no points, a reduction is its combiner's identity; over one point, or over equal values
    with an idempotent combiner, it is that value. The index of a positional reduction is then 0. A
    float sum stays, as it starts with 0 and never gives -0.
    """
    compute, reduction = stage.dtype.compute, stage.reduction
    guard = stage.body.guard
    never = guard is not None and stage.body.instructions[guard] == _NEVER
    if 0 in stage.extents:
        plain = reduction is None and not has_positions(stage)
        if plain and all(reads_own_place(stage, load) for load in stage.body.loads()):
            return stage  # It is the same for all extents.
        nothing = Constant(compute, compute.dtype.type(0).item())
    elif reduction is None:
        return stage
    elif any(extent == 0 for _, extent in stage.axes) or never:
        nothing = Constant(compute, reduction.record.empty(compute))
    elif not _is_one_value(stage, reduction.record):
        return stage
    elif reduction.is_positional:
        nothing = Constant(compute, 0)
    else:
        first = Constant(DataType.INDEX, 0)
        body = stage.body.map(lambda i: first if isinstance(i, Index) and i.reduced else i)
        return simplify_stage(dataclasses.replace(stage, body=body, reduction=None))
    return dataclasses.replace(stage, body=Body.make((nothing,), 0), reduction=None)


def _is_one_value(stage: Stage, combiner: Combiner) -> bool:
    """Whether a reduction equals its body's value."""
    if stage.body.guard is not None or not combiner.keeps_zeros(stage.dtype):
        return False
    if all(extent == 1 for _, extent in stage.axes):
        return True
    if not all(isinstance(extent, int) for _, extent in stage.axes):
        return False  # The reduction may be empty at run time.
    moving = find_dependencies(stage.body)[stage.body.result]
    return combiner.idempotent and not any(index.reduced for index in moving)


def _copied(stage: Stage, tensors: Mapping[str, Tensor]) -> str | None:
    """Tensor that a stage copies element for element without changing values; None if it is no
    copy."""
    result = stage.body.instructions[stage.body.result]
    if not isinstance(result, Load) or not reads_own_place(stage, result):
        return None
    tensor = tensors[result.tensor]
    exact = stage.dtype in (tensor.dtype, tensor.dtype.compute)
    return result.tensor if exact and tensor.extents == stage.extents else None


def redirect_loads(stage: Stage, replaced: Mapping[str, str]) -> Stage:
    """Stage with the loaded tensors renamed; the same object if it loads none of them."""
    if not _reads_any(stage, replaced):
        return stage

    def redirect(each: Instruction) -> Instruction:
        if isinstance(each, Load) and each.tensor in replaced:
            return dataclasses.replace(each, tensor=replaced[each.tensor])
        return each

    return dataclasses.replace(stage, body=stage.body.map(redirect))


def rename_stage(stage: Stage, names: Mapping[str, str], span: Span | None = None) -> Stage:
    """Stage with new names for it and for the tensors that it loads; a name that is not in `names`
    stays. `span` replaces the stage's."""
    name, made = names.get(stage.name, stage.name), redirect_loads(stage, names)
    return dataclasses.replace(made, name=name, span=span or stage.span)


def rename_loop(loop: Loop, names: Mapping[str, str]) -> Loop:
    """Loop with new names for its stages and delays."""
    delays = tuple(
        dataclasses.replace(d, name=names.get(d.name, d.name), of=names.get(d.of, d.of))
        for d in loop.delays
    )
    return Loop(tuple(names.get(name, name) for name in loop.stages), delays, loop.backwards)


def list_live(
    stages: Sequence[Stage], results: Iterable[str], loops: Iterable[Loop] = ()
) -> tuple[Stage, ...]:
    """Stages on which some result depends, in order; of a loop all, or none."""
    needed = set(results)
    kept: list[Stage] = []
    closed = {loop.stages[-1]: loop for loop in loops}
    for stage in reversed(stages):
        loop = closed.get(stage.name)
        own = () if loop is None else (*loop.stages, *(delay.name for delay in loop.delays))
        if loop is not None and not needed.isdisjoint(own):
            needed.update(loop.stages)
        if stage.name in needed:
            kept.append(stage)
            needed.update(load.tensor for load in stage.body.loads())
    return tuple(reversed(kept))


def replace_soundly(function: Function, make: Callable[[Stage], Sequence[Stage]]) -> Function:
    """Function with stages replaced by those that `make` gives, if any. They must be well formed:
    loads that a condition may keep in bounds would be executed at every point."""
    stages: list[Stage] = []
    for stage in function.stages:
        made = make(stage)
        stages += made if made and are_sound(function, stages, made) else [stage]
    return function.with_stages(stages)


def replace_stages(function: Function, stages: Iterable[Stage]) -> Function:
    """Function with other stages, without the `in_place` pairs that would now read overwritten
    memory."""
    made = function.with_stages(stages)
    unsound = find_unsound_pairs(made, made.in_place)
    if not unsound:
        return made
    sound = tuple(pair for pair in made.in_place if pair not in unsound)
    return dataclasses.replace(made, in_place=sound)


def is_inlinable(stage: Stage) -> bool:
    """Whether a stage can be inlined: it reduces nothing, and storing it rounds nothing."""
    return stage.reduction is None and not stage.dtype.is_storage_only


def simplify_stage(stage: Stage, replaced: Mapping[str, str] = MappingProxyType({})) -> Stage:
    """Stage with the rules applied to its body, it and its loads renamed by `replaced`; the same
    object if nothing changes."""
    body, builder = stage.body, BodyBuilder()

    def change(_: int, moved: Instruction) -> int:
        if isinstance(moved, Load) and moved.tensor in replaced:
            moved = dataclasses.replace(moved, tensor=replaced[moved.tensor])
        return builder.add(_fold_quotient(stage, moved, builder.instructions))

    numbers = builder.copy(body, change=change)
    guard = None if body.guard is None else numbers[body.guard]
    if guard is not None and builder.instructions[guard] == _ALWAYS:
        guard = None
    if guard != body.guard or tuple(builder.instructions) != body.instructions:
        body = Body.make(builder.instructions, numbers[body.result], guard)
    elif stage.name not in replaced:
        return stage
    return dataclasses.replace(stage, name=replaced.get(stage.name, stage.name), body=body)


def _fold_quotient(stage: Stage, made: Instruction, values: Sequence[Instruction]) -> Instruction:
    """Simplified quotient or remainder of an index that is always less than the divisor, such as
    the group of a channel if there is one group; the instruction itself otherwise."""
    if not isinstance(made, Apply) or made.operation.name not in ("div", "mod"):
        return made
    place, divisor = (values[o] for o in made.operands)
    if not isinstance(place, Index) or not isinstance(divisor, Constant):
        return made
    extent = stage.extent(place)
    if not isinstance(extent, int) or extent > divisor.value:
        return made
    return Constant(DataType.INDEX, 0) if made.operation.name == "div" else place
