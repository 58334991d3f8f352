"""Accumulators of a phase's reductions: in registers, or in private arrays.

`accumulate` defines how values are combined; the nest determines which accumulators a kernel has.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply
from dmlc.kernel.frame import Frame, Near
from dmlc.kernel.names import local_name, split_words
from dmlc.loops.accumulate import Reduction, Slot, State, begin, count_lanes, finish, merge, start
from dmlc.loops.nodes import Tile
from dmlc.scalars import DataType
from dmlc.source import InternalError


@dataclasses.dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays of an accumulator's slots, with one state per element."""

    slots: tuple[Slot, ...]
    names: tuple[str, ...]

    def read(self, place: k.Expression, lanes: int = 1) -> list[k.Expression]:
        return [
            k.LoadLocal(name, place, k.Type(slot.dtype, lanes))
            for name, slot in zip(self.names, self.slots, strict=True)
        ]

    def write(self, place: k.Expression, values: Sequence[k.Expression]) -> list[k.Statement]:
        return [k.StoreLocal(name, place, v) for name, v in zip(self.names, values, strict=True)]


@dataclasses.dataclass(frozen=True, slots=True)
class Accumulators:
    """Accumulators of a phase's reductions."""

    accumulators: Sequence[Reduction]
    registers: dict[int, list[tuple[k.Local, ...]]]
    """Locals by the number of lanes of the added values, made on first use."""
    arrays: Sequence[Arrays] = ()
    """Arrays instead of registers: each has `lanes` elements for each output of a block."""
    lanes: int = 1
    serial: bool = False
    """Whether there is one state, which combines all points in order."""
    rises: bool = False
    """Whether each state combines its points in the order of their numbers."""
    suffix: str = ""
    """Suffix of the registers' names."""
    tile: Tile | None = None
    """Tile of outputs that the arrays hold."""

    def pair(self) -> list[tuple[Reduction, Arrays]]:
        return list(zip(self.accumulators, self.arrays, strict=True))

    def take(self, frame: Frame, width: int) -> list[tuple[k.Local, ...]]:
        """Registers for values of `width` lanes."""
        if width not in self.registers:
            ending = "_rest" if self.registers else self.suffix
            self.registers[width] = [
                _name(frame, each, width, ending) for each in self.accumulators
            ]
        return self.registers[width]

    def declare(self) -> list[k.Statement]:
        """Definitions of the registers taken, with their initial values."""
        made: list[k.Statement] = []
        for width, states in self.registers.items():
            for each, own in zip(self.accumulators, states, strict=True):
                first = [start(slot, width) for slot in each.slots]
                if self.serial:
                    first = begin(each, width)
                made += [k.Variable(local, value) for local, value in zip(own, first, strict=True)]
        return made


def _name(frame: Frame, each: Reduction, lanes: int, ending: str = "") -> tuple[k.Local, ...]:
    """Registers for an accumulator's slots."""
    words = split_words(each.name) if ending else local_name(each.name)
    return tuple(
        k.Local(frame.names.take(f"{words}{s.suffix}{ending}"), k.Type(s.dtype, lanes))
        for s in each.slots
    )


def name_arrays(
    frame: Frame,
    accumulators: Sequence[Reduction],
    ending: str,
    size: int,
    *,
    shared: bool = False,
    registers: bool = False,
) -> list[Arrays]:
    """Arrays for the slots of accumulators."""
    made: list[Arrays] = []
    for each in accumulators:
        words = split_words(each.name)
        names = (
            frame.array(
                f"{words}{s.suffix}{ending}", s.dtype, size, shared=shared, registers=registers
            )
            for s in each.slots
        )
        made.append(Arrays(each.slots, tuple(names)))
    return made


def make_arrays(
    frame: Frame, accumulators: Sequence[Reduction], suffix: str, size: int, lanes: int
) -> Accumulators:
    """Accumulators in arrays, for `size` outputs of `lanes` lanes each."""
    return Accumulators(
        accumulators, {}, name_arrays(frame, accumulators, suffix, size * lanes), lanes
    )


def make_tile(
    frame: Frame, accumulators: Sequence[Reduction], tile: Tile, lanes: int
) -> Accumulators:
    """Accumulators for a tile of outputs of `lanes` lanes each."""
    suffix, size = "_part" if tile.registers else "_tile", tile.rows * tile.pitch * lanes
    arrays = name_arrays(frame, accumulators, suffix, size, registers=tile.registers)
    return Accumulators(accumulators, {}, arrays, lanes, tile=tile)


def find_tile(state: Accumulators) -> Tile:
    if state.tile is None:
        raise InternalError("accumulators are taken for a tile that are none")
    return state.tile


def copy_tile(
    state: Accumulators, whole: Accumulators, output: k.Expression, *, back: bool
) -> list[k.Statement]:
    """Copies a part of a larger tile, from an output on, into a tile; or `back`."""
    made: list[k.Statement] = []
    tile, pitch = find_tile(state), find_tile(whole).pitch
    for mine, other in zip(state.arrays, whole.arrays, strict=True):
        for row in range(tile.rows):
            for column in range(0, tile.columns, tile.lanes):
                near = index(row * tile.pitch + column)
                far = add(output, index(row * pitch + column))
                if back:
                    made += other.write(far, mine.read(near, tile.lanes))
                else:
                    made += mine.write(near, other.read(far, tile.lanes))
    return made


def flush_tile(
    frame: Frame, state: Accumulators, whole: Accumulators, output: k.Expression
) -> list[k.Statement]:
    """Combines the lanes of each output of a tile, and the outcome with its accumulator in a larger
    one, from an output on."""
    made: list[k.Statement] = []
    tile, pitch = find_tile(state), find_tile(whole).pitch
    for row, column in itertools.product(range(tile.rows), range(tile.columns)):
        near = index((row * tile.pitch + column) * state.lanes)
        held, loaded = load(frame, state, near, state.lanes)
        joined, added = join_vectors(frame, held)
        far = add(output, index(row * pitch + column))
        made += [*loaded, *added, *flush(frame, joined, whole, far)]
    return made


def combine_block(
    frame: Frame, state: Accumulators, output: k.Expression, points: Sequence[State]
) -> list[k.Statement]:
    """Combines points with a tile, or arrays, at an output."""
    place = multiply(output, state.lanes)
    return [
        made
        for (each, own), other in zip(state.pair(), points, strict=True)
        for made in combine_arrays(frame, each, own, place, other, in_order=state.rises)
    ]


def walk_arrays(
    frame: Frame,
    state: Accumulators,
    write: Callable[[int, Reduction, Arrays, k.Expression, int], list[k.Statement]],
) -> list[k.Statement]:
    """Loop over all elements of arrays, in vectors, with a body made by `write` for an offset and a
    number of lanes."""
    tile, size = state.tile, frame.size(state.arrays[0].names[0])
    lanes = frame.lanes if size > 1 else 1
    if tile is not None:
        size, lanes = tile.rows * tile.pitch * state.lanes, max(tile.lanes, state.lanes)
    place = frame.variable("j")
    at = index(0) if size == lanes else place
    pairs = enumerate(state.pair())
    body = [made for n, (each, own) in pairs for made in write(n, each, own, at, lanes)]
    unroll = tile is not None and tile.registers
    loop = k.For(place, index(0), index(size), lanes, tuple(body), unroll=unroll)
    return body if size == lanes else [loop]


def initialize(frame: Frame, state: Accumulators) -> list[k.Statement]:
    """Sets arrays to the initial values."""
    return walk_arrays(
        frame,
        state,
        lambda _, each, own, at, lanes: own.write(at, [start(s, lanes) for s in each.slots]),
    )


def load(
    frame: Frame, state: Accumulators, output: k.Expression, lanes: int
) -> tuple[Accumulators, list[k.Statement]]:
    """Registers with the accumulators of some outputs, loaded from arrays."""
    body: list[k.Statement] = []
    made: list[tuple[k.Local, ...]] = []
    for each, arrays in state.pair():
        made.append(_name(frame, each, lanes))
        body += map(k.Variable, made[-1], arrays.read(output, lanes))
    return Accumulators(state.accumulators, {lanes: made}), body


def store_back(state: Accumulators, held: Accumulators, output: k.Expression) -> list[k.Statement]:
    """Stores the registers of `load` back to the arrays."""
    (registers,) = held.registers.values()
    pairs = zip(state.arrays, registers, strict=True)
    return [put for arrays, own in pairs for put in arrays.write(output, own)]


def combine_registers(
    frame: Frame, state: Accumulators, lanes: int, points: Sequence[State]
) -> list[k.Statement]:
    """Combines points with registers."""
    made: list[k.Statement] = []
    for each, own, other in zip(state.accumulators, state.take(frame, lanes), points, strict=True):
        before, merged = merge(each, own, other, frame.names.take, in_order=state.rises)
        made += [*before, *map(k.Assign, own, merged)]
    return made


def combine_arrays(
    frame: Frame,
    each: Reduction,
    own: Arrays,
    place: k.Expression,
    other: State,
    *,
    in_order: bool = False,
) -> list[k.Statement]:
    """Combines a state, or a point, with arrays at an offset; `in_order`, if the points of `other`
    have higher numbers."""
    mine = own.read(place, count_lanes(other))
    made, merged = merge(each, mine, other, frame.names.take, in_order=in_order)
    return [*made, *own.write(place, merged)]


def flush(
    frame: Frame, part: Accumulators, whole: Accumulators, output: k.Expression
) -> list[k.Statement]:
    """Combines partial accumulators with those of the whole reduction."""
    if part.arrays:
        return walk_arrays(
            frame,
            whole,
            lambda number, each, own, at, lanes: combine_arrays(
                frame, each, own, at, part.arrays[number].read(at, lanes)
            ),
        )
    made: list[k.Statement] = []
    for lanes, states in part.registers.items():
        if whole.arrays:
            made += combine_block(frame, whole, output, states)
        else:
            made += combine_registers(frame, whole, lanes, states)
    return made


def join_lanes(
    frame: Frame,
    state: Accumulators,
    count: k.Expression | None,
    width: int,
    *,
    changes: bool,
) -> tuple[Accumulators, list[k.Statement]]:
    """Reduces the lanes of each output to one, in a tree. `count` outputs of a block end up in
    arrays; a single output (None) in registers, which may be assigned later if `changes`."""
    number = index(0) if count is None else frame.variable("j")
    first = multiply(number, state.lanes)
    body: list[k.Statement] = []
    half = state.lanes // 2
    while half:
        for each, own in state.pair():
            other = own.read(add(first, index(half)), half)
            body += combine_arrays(frame, each, own, first, other)
        half //= 2
    if count is None:
        made: list[tuple[k.Local, ...]] = []
        for each, own in state.pair():
            made.append(_name(frame, each, 1))
            body += map(k.Variable if changes else k.Let, made[-1], own.read(index(0)))
        return Accumulators(state.accumulators, {1: made}), body
    packed = state
    if state.lanes > 1:
        packed = make_arrays(frame, state.accumulators, "_block", width, 1)
        for own, to in zip(state.arrays, packed.arrays, strict=True):
            body += to.write(number, own.read(first))
    if body and isinstance(number, k.Local):
        body = [k.For(number, index(0), count, 1, tuple(body))]
    return packed, body


def join_vectors(frame: Frame, state: Accumulators) -> tuple[Accumulators, list[k.Statement]]:
    """Reduces vector accumulators to scalars, by halves."""
    ((width, states),) = state.registers.items()
    made: list[tuple[k.Local, ...]] = []
    body: list[k.Statement] = []
    for each, own in zip(state.accumulators, states, strict=True):
        taken, half = own, width // 2
        while half:
            sides = (tuple(range(half)), tuple(range(half, 2 * half)))
            low, high = (
                [k.Extract(each, lanes, k.Type(each.type.dtype, half)) for each in taken]
                for lanes in sides
            )
            before, merged = merge(each, low, high, frame.names.take)
            taken = _name(frame, each, half, "_total" if half == 1 else "_half")
            body += [*before, *map(k.Let if half > 1 else k.Variable, taken, merged)]
            half //= 2
        made.append(taken)
    return dataclasses.replace(state, registers={1: made}), body


def publish_results(frame: Frame, state: Accumulators, body: list[k.Statement]) -> None:
    """Makes the results readable by later phases: the accumulators, and the reductions computed
    from them."""
    if state.arrays:
        for each, arrays in state.pair():
            _publish_arrays(frame, each, arrays)
        return
    (states,) = state.registers.values()
    for each, own in zip(state.accumulators, states, strict=True):
        for number, local in enumerate(own):
            frame.local[each.slot_name(number)] = always(local)
        for stage, dtype in each.stages:
            value = finish(each, own, dtype.compute, in_order=state.serial)
            if not isinstance(value, k.Local):
                value = frame.name(body, local_name(stage), value)
            frame.local[stage] = always(value)


def _publish_arrays(frame: Frame, each: Reduction, arrays: Arrays) -> None:
    def part(number: int) -> Near:
        return lambda place, lanes: arrays.read(place, lanes)[number]

    def find(dtype: DataType) -> Near:
        return lambda place, lanes: finish(each, arrays.read(place, lanes), dtype.compute)

    for number in range(len(each.slots)):
        frame.local[each.slot_name(number)] = part(number)
    for stage, dtype in each.stages:
        frame.local[stage] = find(dtype)


def always(value: k.Expression) -> Near:
    """A value that does not depend on the offset or the lanes of the read."""
    return lambda place, lanes: value
