"""Partitions a function with loops over time: into functions that run once, and one per loop that
computes a step.

The function of one step is an ordinary function, whose tensors lack the loop's axis, so that all
passes, fusion and schedules apply to it. Slices of longer tensors (`rows`) are addressed by the
step's number. Stages outside of loops run before them if they do not depend on them, whatever their
order.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Delay,
    Extent,
    Function,
    Index,
    Instruction,
    Load,
    Loop,
    OneStep,
    Parameter,
    Result,
    Row,
    Select,
    Stage,
    Step,
    Table,
    Tensor,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import find_dependencies
from dmlc.ir.naming import take_name
from dmlc.scalars import DataType
from dmlc.sizes import Measure, as_extent, find_symbols, measure
from dmlc.source import UnsupportedError

_LARGEST_COUNT = 2**31 - 1
"""Largest number of elements of a tensor that is accessed by slices, so that indices fit in 32
bits."""


_STEP = "step"
"""The name of the number of a step among the sizes that kernels are given."""

_LEAST_STEPS = 8
"""Smallest number of steps of a loop for which a tensor is copied to another layout."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A part of a function, as a function: one step of a loop, if `loop` is set."""

    function: Function
    loop: Loop | None = None

    @property
    def steps(self) -> Extent:
        """Number of times that it runs."""
        return 1 if self.function.one_step is None else self.function.one_step.steps


def part_loops(function: Function) -> tuple[Part, ...]:
    """Parts of a verified function in the order they run; the function itself if it has no loops.
    Loops of at most one step are removed. Raises `UnsupportedError` for tensors of too many
    elements, and for a size with the name of the number of a step."""
    function = drop_short_loops(function)
    if not function.loops:
        return (Part(function),)
    function = _spread_constants(function)
    if _STEP in function.symbols():
        raise UnsupportedError(
            f"'{function.name}' has a loop over time and a size called '{_STEP}', which is what "
            "kernels call the number of the loop's step",
            function.span,
            notes=["give the size another name"],
        )
    found: list[tuple[list[Stage], Loop | None]] = []
    function = _lay_rows(function)
    levels = _find_levels(function)
    homes = {name: loop for loop in function.loops for name in loop.stages}
    for level in range(max(levels.values(), default=0) + 1):
        alone = [s for s in function.stages if s.name not in homes and levels[s.name] == level]
        if alone:
            found.append((alone, None))
        for loop in function.loops:
            own = [s for s in function.stages if homes.get(s.name) is loop]
            # Later parts read its stages.
            if levels[loop.stages[0]] == level + 1:
                found.append((own, loop))
    wanted = _find_crossing(function, [[s.name for s in own] for own, _ in found])
    return tuple(_make_part(function, own, loop, wanted) for own, loop in found)


def drop_short_loops(function: Function) -> Function:
    """Function without its loops of at most one step, in which delays are 0; the same object if
    there is none."""
    tensors = function.tensors()
    short = [loop for loop in function.loops if tensors[loop.stages[0]].extents[0] in (0, 1)]
    if not short:
        return function
    zeros = {delay.name: _zero(delay.dtype) for loop in short for delay in loop.delays}
    stages = tuple(_replace_loads(stage, zeros) for stage in function.stages)
    loops = tuple(loop for loop in function.loops if loop not in short)
    return dataclasses.replace(function, stages=stages, loops=loops)


def _replace_loads(stage: Stage, constants: Mapping[str, Constant]) -> Stage:
    """Stage with constants in place of the loads of some tensors."""
    body = stage.body.map(lambda i: constants.get(i.tensor, i) if isinstance(i, Load) else i)
    return stage if body is stage.body else dataclasses.replace(stage, body=body)


def _spread_constants(function: Function) -> Function:
    """Function with constant stages, except results, inlined: an initial state of zeros then needs
    no kernel."""
    kept = {result.name for result in function.results}
    kept |= {name for loop in function.loops for name in loop.stages}
    constants: dict[str, Constant] = {}
    for stage in function.stages:
        match stage:
            case Stage(name=name, reduction=None, body=Body(instructions=(Constant() as value,))):
                if name not in kept and value.dtype is stage.dtype:
                    constants[name] = value
            case _:
                pass
    left = (stage for stage in function.stages if stage.name not in constants)
    return function.with_stages(_replace_loads(stage, constants) for stage in left)


def _lay_rows(function: Function) -> Function:
    """Function in which each loop reads a transposed copy of a loop-invariant tensor if it reduces
    the tensor's rows with neighbouring outputs far apart. The copy is made once for all steps."""
    tensors, homes = function.tensors(), {n: loop for loop in function.loops for n in loop.stages}
    changed = homes.keys() | {delay.name for loop in function.loops for delay in loop.delays}
    names = dict.fromkeys(tensors)
    copies: dict[tuple[str, int], Stage] = {}
    made: list[Stage] = []
    begun: dict[str, int] = {}
    for stage in function.stages:
        loop = homes.get(stage.name)
        if loop is not None:
            begun.setdefault(loop.stages[0], len(made))
        steps = stage.extents[0] if stage.extents else 0
        is_long = isinstance(steps, str) or steps >= _LEAST_STEPS
        if loop is None or not is_long or stage.combiner != "sum" or len(stage.axes) != 1:
            made.append(stage)
            continue
        values = list(stage.body.instructions)
        for number, load in enumerate(stage.body.instructions):
            axis = _find_across(stage, load) if isinstance(load, Load) else None
            if not isinstance(load, Load) or axis is None or load.tensor in changed:
                continue
            key = load.tensor, axis
            if key not in copies:
                name = take_name(f"{load.tensor}_across", names)
                copies[key] = _exchange(name, tensors[load.tensor], axis)
                made.insert(begun[loop.stages[0]], copies[key])
            places = list(load.indices)
            places[axis], places[-1] = places[-1], places[axis]
            values[number] = Load(copies[key].name, tuple(places), load.dtype)
        body = Body.make(values, stage.body.result, stage.body.guard)
        made.append(stage if body == stage.body else dataclasses.replace(stage, body=body))
    return dataclasses.replace(function, stages=tuple(made)) if copies else function


def _find_across(stage: Stage, load: Load) -> int | None:
    """Axis of a tensor along which neighbouring outputs of a reduction are, if each output reduces
    the last axis at the same indices in all steps; else None."""
    last = Index(len(stage.extents) - 1)
    values = stage.body.instructions
    places = [_find_moved(values, index) for index in load.indices]
    own = [axis for axis, place in enumerate(places) if place == last]
    inner = places[-1] if places else None
    reduced = isinstance(inner, Index) and inner.reduced
    if None in places or not reduced or len(own) != 1 or Index(0) in places or last.axis < 1:
        return None
    return own[0]


def _find_moved(values: Sequence[Instruction], number: int) -> Index | Constant | None:
    """The index that an INDEX value is, plus a constant or not; or the constant that it is. None
    otherwise."""
    match values[number]:
        case Index() | Constant() as place:
            return place
        case Apply(operation=operation, operands=(first, second)) if operation.name == "add":
            place, moved_by = values[first], values[second]
            return place if isinstance(place, Index) and isinstance(moved_by, Constant) else None
        case _:
            return None


def _exchange(name: str, tensor: Tensor, axis: int) -> Stage:
    """Copy of a tensor with `axis` and the last axis exchanged."""
    builder, extents = BodyBuilder(), list(tensor.extents)
    places = [builder.index(number) for number in range(len(extents))]
    extents[axis], extents[-1] = extents[-1], extents[axis]
    places[axis], places[-1] = places[-1], places[axis]
    found = builder.add(Load(tensor.name, tuple(places), tensor.dtype.compute))
    return Stage(name, tensor.dtype, tuple(extents), builder.make(found), None, tensor.span)


def gather_loop(
    stages: Sequence[Stage], delays: Sequence[Delay], backwards: bool, others: Sequence[Loop] = ()
) -> tuple[list[Stage], Loop | None]:
    """Stages reordered so that those on paths from the delays back to their sources are adjacent,
    with their loop. Independent stages come before, all others after. None if no path leads back. A
    delay of a loop-invariant stage becomes a stage of its own. Stages of the loops `others` stay
    together."""
    found, left = list(stages), list(delays)
    while True:
        after = _list_after(found, left, others)
        straight = next((delay for delay in left if delay.of not in after), None)
        if straight is None:
            break
        left.remove(straight)
        readers = _list_after(found, [straight], others)
        found = [
            *(s for s in found if s.name not in readers),
            make_shift(straight.name, straight, backwards),
            *(s for s in found if s.name in readers),
        ]
    if not left:
        return found, None
    leading = {delay.of for delay in left}
    for stage in reversed(found):
        if stage.name in leading:
            leading.update(load.tensor for load in stage.body.loads())
    looped = {s.name for s in found if s.name in after and s.name in leading}
    own = [s for s in found if s.name in looped]
    before = [s for s in found if s.name not in after]
    rest = [s for s in found if s.name in after and s.name not in looped]
    loop = Loop(tuple(stage.name for stage in own), tuple(left), backwards)
    return [*before, *own, *rest], loop


def _list_after(
    stages: Sequence[Stage], delays: Iterable[Delay], others: Sequence[Loop]
) -> set[str]:
    """Delays, and the stages that depend on one; all of a loop if one of its stages does."""
    after = {delay.name for delay in delays}
    count = 0
    while count != len(after):
        count = len(after)
        for stage in stages:
            if any(load.tensor in after for load in stage.body.loads()):
                after.add(stage.name)
        for loop in others:
            if not after.isdisjoint(loop.stages):
                after.update(loop.stages)
    return after


def make_shift(name: str, delay: Delay, backwards: bool) -> Stage:
    """Stage with a delay's values, for readers outside of its loop."""
    builder = BodyBuilder()
    here = builder.index(0)
    place, follows = find_before(builder, here, measure(delay.extents[0]), backwards)
    rest = tuple(builder.index(axis) for axis in range(1, len(delay.extents)))
    found = builder.add(Load(delay.of, (place, *rest), delay.dtype))
    zero = builder.add(_zero(delay.dtype))
    chosen = builder.add(Select(follows, found, zero, delay.dtype))
    return Stage(name, delay.dtype, delay.extents, builder.make(chosen), None, delay.span)


def find_before(
    builder: BodyBuilder, here: int, count: Measure, backwards: bool
) -> tuple[int, int]:
    """Preceding index of `count` (the following one if `backwards`), clamped, and whether it
    exists."""
    move, hold, compare = ("add", "min", "lt") if backwards else ("sub", "max", "gt")
    end = builder.size(as_extent(count - 1)) if backwards else builder.constant(0)
    place = builder.apply(hold, builder.apply(move, here, builder.constant(1)), end)
    return place, builder.apply(compare, here, end)


def _zero(dtype: DataType) -> Constant:
    """Value of a delay at the first step."""
    return Constant(dtype, dtype.dtype.type(0).item())


def _find_levels(function: Function) -> dict[str, int]:
    """Number of loops that must run before each stage."""
    levels: dict[str, int] = {}
    homes = {name: loop for loop in function.loops for name in loop.stages}
    for stage in function.stages:
        loop = homes.get(stage.name)
        if loop is None:
            levels[stage.name] = _latest(levels, [stage])
        elif stage.name == loop.stages[0]:
            own = [s for s in function.stages if homes.get(s.name) is loop]
            levels |= dict.fromkeys(loop.stages, _latest(levels, own) + 1)
    return levels


def _latest(levels: Mapping[str, int], stages: Sequence[Stage]) -> int:
    return max((levels.get(load.tensor, 0) for s in stages for load in s.body.loads()), default=0)


def _find_crossing(function: Function, parts: Sequence[Sequence[str]]) -> dict[str, None]:
    """Stages that need memory after the part, or the step, that computes them."""
    homes = {name: number for number, names in enumerate(parts) for name in names}
    wanted = {result.name: None for result in function.results}
    wanted |= {delay.of: None for loop in function.loops for delay in loop.delays}
    for name, readers in function.readers().items():
        if any(homes[reader] != homes.get(name) for reader in readers) and name in homes:
            wanted[name] = None
    return wanted


def _make_part(
    function: Function, stages: Sequence[Stage], loop: Loop | None, wanted: Mapping[str, None]
) -> Part:
    if loop is None:
        own = {stage.name for stage in stages}
        read = dict.fromkeys(load.tensor for s in stages for load in s.body.loads())
        given = [_as_parameter(function, name) for name in read if name not in own]
        made, one_step = tuple(stages), None
        results = tuple(
            function.result(s.name) or Result(s.name) for s in stages if s.name in wanted
        )
    else:
        writer = _StepWriter(function, loop)
        made = tuple(writer.write(stage) for stage in stages)
        rows = dict(writer.rows)
        results = ()
        for stage in stages:
            if stage.name in wanted:
                size, strides = _find_row(function, stage)
                rows[stage.name] = Row(stage.name, size)
                results += (Result(stage.name, strides),)
        given = list(writer.read.values())
        one_step = OneStep(writer.steps, rows, loop.backwards)
        _check_reach(function, rows)
    names = {parameter.name for parameter in given}
    part = Function(
        function.name,
        tuple(p for p in given if isinstance(p, Parameter)),
        made,
        results,
        span=function.span,
        tables=tuple(t for t in function.tables if t.name in names),
        one_step=one_step,
        inherited=function.symbols(),
    )
    return Part(part, loop)


def _as_parameter(function: Function, name: str) -> Parameter | Table:
    """A tensor as an input of the parts that do not compute it."""
    tensor, result = function.tensors()[name], function.result(name)
    if isinstance(tensor, Parameter | Table):
        return tensor
    strides = None if result is None else result.strides
    return Parameter(name, tensor.dtype, tensor.extents, strides, tensor.span)


def _find_row(function: Function, tensor: Tensor) -> tuple[Extent, tuple[int, ...] | None]:
    """Elements from one row of a tensor to the next, and the strides of a row; no strides if it has
    open sizes, as it is then packed."""
    whole = function.strides(tensor.name)
    fixed = tuple(step for step in whole if isinstance(step, int))
    is_fixed = len(fixed) == len(whole) and not find_symbols(tensor.extents[1:])
    return whole[0], fixed[1:] if is_fixed else None


def _check_reach(function: Function, rows: Mapping[str, Row]) -> None:
    """Raises `UnsupportedError` if a tensor that is accessed by slices is too large. Those of open
    sizes are checked against `sizes.LARGEST` when run."""
    for row in rows.values():
        tensor = function.tensors()[row.whole]
        steps = zip(tensor.extents, function.strides(tensor.name), strict=True)
        reach = sum((e - 1) * s for e, s in steps if isinstance(e, int) and isinstance(s, int))
        if max(reach, math.prod(e for e in tensor.extents if isinstance(e, int))) > _LARGEST_COUNT:
            raise UnsupportedError(
                f"'{row.whole}' has more than {_LARGEST_COUNT:,} elements, the most of a tensor "
                "that a loop over time goes through",
                tensor.span,
            )


class _StepWriter:
    """Writer of the stages of one step."""

    def __init__(self, function: Function, loop: Loop) -> None:
        self._function = function
        self._own = set(loop.stages)
        self._delays = {delay.name: delay for delay in loop.delays}
        self._loop = loop
        self.steps = function.tensors()[loop.stages[0]].extents[0]
        self.read: dict[str, Parameter | Table] = {}
        """Tensors read from outside the loop, or from another step."""
        self.rows: dict[str, Row] = {}

    def write(self, stage: Stage) -> Stage:
        """Stage of one step, without its first axis."""
        body, builder = stage.body, BodyBuilder()
        dependencies = find_dependencies(body)

        def change(number: int, moved: Instruction) -> int | None:
            old = body.instructions[number]
            match moved:
                case Index(axis=0, reduced=False):
                    return builder.add(Step(self.steps))
                case Index(axis=axis, reduced=False):
                    return builder.add(Index(axis - 1))
                case Load(tensor=tensor, indices=places, dtype=dtype) if isinstance(old, Load):
                    first = body.instructions[old.indices[0]] if places else None
                    moving = any(Index(0) in dependencies[i] for i in old.indices[1:])
                    if tensor in self._delays:
                        return self._read_before(builder, self._delays[tensor], places[1:])
                    if tensor in self._own:
                        return builder.add(Load(tensor, places[1:], dtype))
                    if first == Index(0) and not moving:
                        return builder.add(Load(self._add_row(tensor), places[1:], dtype))
                    self.read[tensor] = _as_parameter(self._function, tensor)
                    return None
                case Select(condition=condition, then=then):
                    inner = builder.instructions[then]
                    if isinstance(inner, Select) and inner.condition == condition:
                        # The value before the first step is not requested.
                        return builder.select(condition, inner.then, moved.otherwise)
                    return None
                case _:
                    return None

        return dataclasses.replace(builder.remake(stage, change), extents=stage.extents[1:])

    def _read_before(self, builder: BodyBuilder, delay: Delay, places: tuple[int, ...]) -> int:
        """Value of a delay; 0 at the first step."""
        dtype = delay.dtype
        zero = builder.add(_zero(dtype))
        size, strides = _find_row(self._function, self._function.tensors()[delay.of])
        self.rows[delay.name] = Row(delay.of, size, before=True)
        rest = delay.extents[1:]
        self.read[delay.name] = Parameter(delay.name, dtype, rest, strides, delay.span)
        found = builder.add(Load(delay.name, places, dtype))
        now, steps = builder.add(Step(self.steps)), measure(self.steps)
        _, condition = find_before(builder, now, steps, self._loop.backwards)
        return builder.add(Select(condition, found, zero, dtype))

    def _add_row(self, name: str) -> str:
        """Name of the current step's slice of a tensor."""
        tensor = self._function.tensors()[name]
        size, strides = _find_row(self._function, tensor)
        row = f"{name}.now"
        self.rows[row] = Row(name, size)
        kind = tensor.dtype
        self.read[row] = Parameter(row, kind, tensor.extents[1:], strides, tensor.span)
        return row
