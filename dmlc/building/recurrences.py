"""Recurrences of a `FunctionBuilder`: the stages of one step become stages over all steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from dmlc.building.functions import FunctionBuilder, Point, Scalar, Tensor
from dmlc.ir import Delay, Extent, Index, Instruction, Load, Loop, Stage
from dmlc.source import UnsupportedError

View = Callable[[Point, Sequence[Scalar]], Scalar]
"""An element of a tensor of one step at a point of all steps, of which the first index is the
number of the step, for the index in the tensor."""


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """State of a recurrence, with the value `first` at the start and `after` after each step.
    Stages of a step read it as `before`, which is not a tensor of the function."""

    before: Tensor
    first: Tensor
    after: Tensor


def repeat_stages(
    builder: FunctionBuilder,
    start: int,
    steps: Extent,
    states: Sequence[State],
    views: Mapping[str, View],
) -> dict[str, Tensor]:
    """Extends the stages of one step, those from number `start` on, by a first axis of steps, and
    returns the tensors of all steps by their names in one step.

    Stages on which the next step depends become a loop. `views` gives the elements of the tensors
    that differ from step to step beside the states. Stages that read neither these nor a state are
    unchanged, and come first. Raises `UnsupportedError` for a loop among the stages, and for 16-bit
    floats in the loop, with the builder unchanged."""
    stages = builder.list_stages(start)
    after = [state.after.name for state in states]
    changing = _close(stages, {*views, *(state.before.name for state in states)}) | {*after}
    moving = [stage for stage in stages if stage.name in changing]
    recurring = _close(moving, {state.before.name for state in states}) | {*after}
    looped = _list_needed(moving, after) & recurring
    in_loop = [stage for stage in moving if stage.name in looped]
    narrow = [stage for stage in in_loop if stage.dtype.is_storage_only]
    if narrow:
        raise UnsupportedError(f"{narrow[0].name} holds {narrow[0].dtype.name} from step to step")
    builder.cut_stages(start)
    delays = {
        state.before.name: Delay(
            builder.take_name(f"{state.after.name}_before"), state.after.dtype,
            (steps, *state.after.extents), state.after.name,
        )
        for state in states
    }  # fmt: skip
    known = {state.before.name: state for state in states}

    def read_before(at: Point, places: Sequence[Scalar], state: State, looping: bool) -> Scalar:
        step, first = at.indices[0], at.read(state.first, *places)
        if looping:
            held = delays[state.before.name]
            value = at.read(Tensor(held.name, held.dtype, held.extents), step, *places)
        else:
            whole = dataclasses.replace(state.after, extents=(steps, *state.after.extents))
            value = at.read(whole, (step - 1).apply("max", 0), *places)
        return (step > 0).select(value, first)

    def move(stage: Stage) -> Stage:
        at = Point(1 + len(stage.extents))
        body = at.body

        def change(_: int, moved: Instruction) -> int | None:
            if isinstance(moved, Index) and not moved.reduced:
                return body.index(moved.axis + 1)
            if not isinstance(moved, Load):
                return None
            places = [body.wrap(number) for number in moved.indices]
            if moved.tensor in known:
                state = known[moved.tensor]
                return body.unwrap(read_before(at, places, state, stage.name in looped))
            if moved.tensor in views:
                return body.unwrap(views[moved.tensor](at, places))
            if moved.tensor in changing:
                step = body.unwrap(at.indices[0])
                return body.add(dataclasses.replace(moved, indices=(step, *moved.indices)))
            return None

        return dataclasses.replace(body.remake(stage, change), extents=(steps, *stage.extents))

    needed = _list_needed(moving, looped)
    before = [stage for stage in moving if stage.name in needed - looped]
    rest = [stage for stage in moving if stage.name not in needed | looped]
    builder.add_stages([stage for stage in stages if stage.name not in changing])
    builder.add_stages([move(stage) for stage in before])
    builder.add_stages(
        [move(stage) for stage in in_loop],
        Loop(tuple(stage.name for stage in in_loop), tuple(delays.values())) if states else None,
    )
    builder.add_stages([move(stage) for stage in rest])
    return {
        stage.name: Tensor(stage.name, stage.dtype, (steps, *stage.extents)) for stage in moving
    }


def _close(stages: Sequence[Stage], names: set[str]) -> set[str]:
    """The stages that depend on some tensors."""
    found: set[str] = set()
    for stage in stages:
        if any(load.tensor in names or load.tensor in found for load in stage.body.loads()):
            found.add(stage.name)
    return found


def _list_needed(stages: Sequence[Stage], names: Iterable[str]) -> set[str]:
    """Some stages, and those on which they depend."""
    found = {*names}
    for stage in reversed(stages):
        if stage.name in found:
            found.update(load.tensor for load in stage.body.loads())
    return found & {stage.name for stage in stages}
