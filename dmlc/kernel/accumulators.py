"""The accumulators of a phase's reductions: in registers, or in private arrays.

What enters them, and how two become one, `accumulate` says; which ones a kernel has, the nest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.accumulate import Slot, begin, finish, merge, start
from dmlc.kernel.arithmetic import add, index, multiply, operate
from dmlc.kernel.emit import Near
from dmlc.kernel.names import Names, local_name, split_words
from dmlc.kernel.phases import Gathered
from dmlc.scalars import DataType


class Frame:
    """One kernel in the making: its names, its arrays, and the values at hand so far. Whole vectors
    have so many `lanes`."""

    def __init__(self, names: Names, lanes: int) -> None:
        self.names = names
        self.lanes = lanes
        self.arrays: list[k.Array] = []
        self.near: dict[str, Near] = {}

    def let(self, name: str, value: k.Expression) -> k.Let:
        """A named value."""
        return k.Let(k.Local(self.names.take(name), value.type), value)

    def name(self, body: list[k.Statement], name: str, value: k.Expression) -> k.Local:
        """The local of a value that is named in some statements."""
        body.append(let := self.let(name, value))
        return let.local

    def variable(self, name: str) -> k.Local:
        """The variable of a loop."""
        return k.Local(self.names.take(name), k.INDEX)

    def array(self, name: str, dtype: DataType, size: int, *, shared: bool = False) -> str:
        """A new array, which holds whole vectors."""
        taken = self.names.take(name)
        whole = -(-size // self.lanes) * self.lanes if size > 1 else 1
        self.arrays.append(k.Array(taken, dtype, whole, shared))
        return taken

    def size(self, array: str) -> int:
        """The elements of an array."""
        return next(a.size for a in self.arrays if a.name == array)


@dataclasses.dataclass(frozen=True, slots=True)
class Accumulators:
    """What a phase's reductions have come to so far."""

    gathered: Sequence[Gathered]
    registers: dict[int, list[tuple[k.Local, ...]]]
    """By the number of lanes of what is added, as it turns up."""
    arrays: list[tuple[str, ...]]
    """In place of them: each with `lanes` elements for each output of a block."""
    lanes: int = 1
    serial: bool = False
    suffix: str = ""
    """Of the registers' names."""

    def take(self, frame: Frame, width: int) -> list[tuple[k.Local, ...]]:
        """The registers for so many lanes."""
        if width not in self.registers:
            ending = "_rest" if self.registers else self.suffix
            self.registers[width] = [
                tuple(_name_register(frame, each, slot, ending, width) for slot in each.slots)
                for each in self.gathered
            ]
        return self.registers[width]

    def declare(self) -> list[k.Statement]:
        """The registers that were taken, at what they are before any point."""
        made: list[k.Statement] = []
        for width, states in self.registers.items():
            for each, own in zip(self.gathered, states, strict=True):
                first = [start(slot, width) for slot in each.slots]
                if self.serial:
                    first = begin(each.fold, each.slots, width)
                made += [k.Variable(local, value) for local, value in zip(own, first, strict=True)]
        return made


def _name_register(frame: Frame, each: Gathered, slot: Slot, ending: str, width: int) -> k.Local:
    words = split_words(each.name) if ending else local_name(each.name)
    return k.Local(frame.names.take(f"{words}{slot.suffix}{ending}"), k.Type(slot.dtype, width))


def make_arrays(
    frame: Frame, gathered: Sequence[Gathered], suffix: str, size: int, lanes: int
) -> Accumulators:
    """Accumulators for so many outputs, each of so many lanes."""
    arrays = [
        tuple(
            frame.array(f"{split_words(g.name)}{s.suffix}{suffix}", s.dtype, size * lanes)
            for s in g.slots
        )
        for g in gathered
    ]
    return Accumulators(gathered, {}, arrays, lanes)


def fill(frame: Frame, state: Accumulators) -> list[k.Statement]:
    """Sets arrays to what they are before any point."""
    size = frame.size(state.arrays[0][0])
    lanes = frame.lanes if size > 1 else 1
    once = size == lanes
    number = index(0) if once else frame.variable("j")
    puts = tuple(
        k.Put(name, number, start(slot, lanes))
        for each, names in zip(state.gathered, state.arrays, strict=True)
        for slot, name in zip(each.slots, names, strict=True)
    )
    if not isinstance(number, k.Local):
        return list(puts)
    return [k.For(number, index(0), index(size), lanes, puts)]


def load(
    frame: Frame, state: Accumulators, output: k.Expression, lanes: int
) -> tuple[Accumulators, list[k.Statement]]:
    """Registers that hold the accumulators of some outputs for a while."""
    body: list[k.Statement] = []
    made: list[tuple[k.Local, ...]] = []
    for each, arrays in zip(state.gathered, state.arrays, strict=True):
        own: list[k.Local] = []
        for slot, array in zip(each.slots, arrays, strict=True):
            name = frame.names.take(f"{local_name(each.name)}{slot.suffix}")
            own.append(k.Local(name, k.Type(slot.dtype, lanes)))
            body.append(k.Variable(own[-1], k.Element(array, output, own[-1].type)))
        made.append(tuple(own))
    return Accumulators(state.gathered, {lanes: made}, []), body


def keep(state: Accumulators, held: Accumulators, output: k.Expression) -> list[k.Statement]:
    """Puts back what `load` gave."""
    (registers,) = held.registers.values()
    return [
        k.Put(array, output, local)
        for arrays, own in zip(state.arrays, registers, strict=True)
        for array, local in zip(arrays, own, strict=True)
    ]


def enter(
    frame: Frame, state: Accumulators, lanes: int, points: Sequence[Sequence[k.Expression]]
) -> list[k.Statement]:
    """Points enter registers: for each reduction the parts of what it adds."""
    made: list[k.Statement] = []
    for each, own, other in zip(state.gathered, state.take(frame, lanes), points, strict=True):
        before, merged = merge(each.fold, own, other, frame.names.take, in_order=state.serial)
        made += before
        made += [k.Assign(s, m) for s, m in zip(own, merged, strict=True)]
    return made


def flush(
    frame: Frame, part: Accumulators, whole: Accumulators, output: k.Expression
) -> list[k.Statement]:
    """What a part has come to enters the whole that it is a part of."""
    if part.arrays:
        size = frame.size(part.arrays[0][0])
        lanes = frame.lanes if size > 1 else 1
        number = frame.variable("j")
        body: list[k.Statement] = []
        for place, (each, arrays) in enumerate(zip(part.gathered, part.arrays, strict=True)):
            other = [
                k.Element(a, number, k.Type(s.dtype, lanes))
                for a, s in zip(arrays, each.slots, strict=True)
            ]
            body += _merge_arrays(frame, whole, place, number, other)
        return [k.For(number, index(0), index(size), lanes, tuple(body))]
    made: list[k.Statement] = []
    for states in part.registers.values():
        if not whole.arrays:
            made += enter(frame, whole, 1, states)
            continue
        for place, state in enumerate(states):
            at = multiply(output, whole.lanes)
            made += _merge_arrays(frame, whole, place, at, state)
    return made


def _merge_arrays(
    frame: Frame,
    state: Accumulators,
    number: int,
    place: k.Expression,
    other: Sequence[k.Expression],
) -> list[k.Statement]:
    each, arrays = state.gathered[number], state.arrays[number]
    mine = [k.Element(a, place, o.type) for a, o in zip(arrays, other, strict=True)]
    made, merged = merge(each.fold, mine, other, frame.names.take)
    return made + [k.Put(a, place, m) for a, m in zip(arrays, merged, strict=True)]


def join_lanes(
    frame: Frame,
    state: Accumulators,
    count: k.Expression | None,
    width: int,
    *,
    changes: bool,
) -> tuple[Accumulators, list[k.Statement]]:
    """The lanes of each output become one, in a tree. `count` outputs of a block of so many end in
    arrays, and a single one, where that is None, in registers, which may change after that."""
    number = index(0) if count is None else frame.variable("j")
    first = multiply(number, state.lanes)
    body: list[k.Statement] = []
    half = state.lanes // 2
    while half:
        for place, (each, arrays) in enumerate(zip(state.gathered, state.arrays, strict=True)):
            theirs = [
                k.Element(a, add(first, index(half)), k.Type(s.dtype, half))
                for a, s in zip(arrays, each.slots, strict=True)
            ]
            body += _merge_arrays(frame, state, place, first, theirs)
        half //= 2
    if count is None:
        made: list[tuple[k.Local, ...]] = []
        for each, arrays in zip(state.gathered, state.arrays, strict=True):
            own: list[k.Local] = []
            for slot, array in zip(each.slots, arrays, strict=True):
                name = frame.names.take(f"{local_name(each.name)}{slot.suffix}")
                own.append(k.Local(name, k.Type(slot.dtype)))
                value = k.Element(array, index(0), own[-1].type)
                body.append((k.Variable if changes else k.Let)(own[-1], value))
            made.append(tuple(own))
        return Accumulators(state.gathered, {1: made}, []), body
    packed = state
    if state.lanes > 1:
        packed = make_arrays(frame, state.gathered, "_block", width, 1)
        for each, arrays, to in zip(state.gathered, state.arrays, packed.arrays, strict=True):
            body += [
                k.Put(b, number, k.Element(a, first, k.Type(slot.dtype)))
                for a, b, slot in zip(arrays, to, each.slots, strict=True)
            ]
    if body and isinstance(number, k.Local):
        body = [k.For(number, index(0), count, 1, tuple(body))]
    return packed, body


def join_items(
    frame: Frame,
    state: Accumulators,
    lanes: Sequence[tuple[str, int]],
    numbers: Mapping[str, k.Expression],
    axis: str,
) -> list[k.Statement]:
    """The accumulators of the work items of a group that stand along an axis become one, in a tree
    in shared memory; each gets it. `lanes` are all axes with their extents, and `numbers` says
    where along each this work item is."""
    names = [name for name, _ in lanes]
    after = names.index(axis) + 1
    extent = lanes[after - 1][1]
    apart = math.prod(side for _, side in lanes[after:])
    size = math.prod(side for _, side in lanes)
    lane = k.Position(k.Geometry.LANE)
    (states,) = state.registers.values()
    arrays: list[tuple[str, ...]] = []
    body: list[k.Statement] = []
    for each, own in zip(state.gathered, states, strict=True):
        made: list[str] = []
        for slot, local in zip(each.slots, own, strict=True):
            name = f"{split_words(each.name)}{slot.suffix}_lanes"
            made.append(frame.array(name, slot.dtype, size, shared=True))
            body.append(k.Put(made[-1], lane, local))
        arrays.append(tuple(made))
    if not arrays:
        return []
    width = frame.variable("width")
    other = add(lane, operate("mul", width, index(apart)) if apart > 1 else width)
    inside: list[k.Statement] = []
    for each, own, taken in zip(state.gathered, states, arrays, strict=True):
        theirs = [k.Element(n, other, s.type) for n, s in zip(taken, own, strict=True)]
        before, merged = merge(each.fold, own, theirs, frame.names.take)
        inside += before
        for array, local, value in zip(taken, own, merged, strict=True):
            inside += [k.Assign(local, value), k.Put(array, lane, local)]
    step = k.If(operate("lt", numbers[axis], width), tuple(inside))
    body += [k.Barrier(), k.Halve(width, extent // 2, (step, k.Barrier()))]
    others = [(n, math.prod(side for _, side in lanes[i + 1 :])) for i, n in enumerate(names)]
    first = add(*[multiply(numbers[name], step) for name, step in others if name != axis])
    for own, taken in zip(states, arrays, strict=True):
        body += [
            k.Assign(local, k.Element(array, first, local.type))
            for array, local in zip(taken, own, strict=True)
        ]
    return body


def have_at_hand(frame: Frame, state: Accumulators, body: list[k.Statement]) -> None:
    """Has the outcome at hand from here on: the accumulators, and the reductions they are."""
    if state.arrays:
        for each, arrays in zip(state.gathered, state.arrays, strict=True):
            _have_arrays(frame, each, arrays)
        return
    (states,) = state.registers.values()
    for each, own in zip(state.gathered, states, strict=True):
        for number, local in enumerate(own):
            frame.near[each.slot_name(number)] = always(local)
        for stage, dtype in each.stages:
            value = finish(each.fold, own, dtype.compute, in_order=state.serial)
            if not isinstance(value, k.Local):
                value = frame.name(body, local_name(stage), value)
            frame.near[stage] = always(value)


def _have_arrays(frame: Frame, each: Gathered, arrays: Sequence[str]) -> None:
    parts = [at_array(array, slot.dtype) for array, slot in zip(arrays, each.slots, strict=True)]
    for number, part in enumerate(parts):
        frame.near[each.slot_name(number)] = part

    def find(dtype: DataType) -> Callable[[k.Expression, int], k.Expression]:
        return lambda place, lanes: finish(
            each.fold, [part(place, lanes) for part in parts], dtype.compute
        )

    for stage, dtype in each.stages:
        frame.near[stage] = find(dtype)


def at_array(array: str, dtype: DataType) -> Near:
    """What an array has at hand."""
    return lambda place, lanes: k.Element(array, place, k.Type(dtype, lanes))


def always(value: k.Expression) -> Near:
    """One value, at hand everywhere."""
    return lambda place, lanes: value
