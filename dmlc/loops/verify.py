"""Verifier of nests: each point of each phase is computed, and only once.

It checks the structure, not the resulting kernel: loops cover their dimensions, work items have
valid axes, reductions enclose their points, buffers are filled before they are read and are large
enough.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

from dmlc.kernel.arithmetic import make_size
from dmlc.loops.element import Gather, Read
from dmlc.loops.legality import find_unlike
from dmlc.loops.nodes import (
    Dim,
    Fill,
    Into,
    Kind,
    Loop,
    Multiply,
    Nest,
    Node,
    Numbers,
    Once,
    Pack,
    Permute,
    Point,
    Reduce,
    Rescale,
    Stage,
    Tile,
    Turns,
    Where,
    list_arrangements,
    list_items,
    list_named,
    list_phases,
    walk,
)
from dmlc.loops.paths import Path, excludes, list_paths
from dmlc.loops.permute import LANES
from dmlc.loops.rescaling import check_rescale, find_lost, is_condition, list_readers
from dmlc.loops.tensorize import find_wrong
from dmlc.source import InternalError


def verify_nest(nest: Nest) -> None:
    """Raises `InternalError` with the violation if a nest does not compute each point once."""
    _Verifier(nest).verify()


@dataclasses.dataclass(frozen=True, slots=True)
class _Digit:
    """A loop as a digit of a point's index: its step, and its step count (None: all there are)."""

    loop: Loop
    step: int
    count: int | None


class _Verifier:
    def __init__(self, nest: Nest) -> None:
        self._nest = nest
        self._paths = list(list_paths(nest.body))
        self._place = 0
        """Number of the current path."""

    def _demand(self, holds: object, what: str) -> None:
        if not holds:
            raise InternalError(f"{what}:\n" + "\n".join(self._nest.list_lines()))

    def verify(self) -> None:
        self._verify_names()
        for place, path in enumerate(self._paths):
            self._place = place
            match path[-1]:
                case Loop() as loop:
                    self._verify_loop(path, loop)
                case Reduce() as node:
                    self._verify_reduction(path, node)
                case Point() as point:
                    self._verify_point(path, point)
                case Pack() as pack:
                    self._verify_pack(path, pack)
                case Fill() as fill:
                    room = fill.buffer.pitch or fill.buffer.size
                    self._demand(0 <= fill.first <= fill.last <= room,
                        f"'{fill.buffer.name}' has no {fill.first}..{fill.last}")  # fmt: skip
                case Turns() as turns:
                    self._verify_turns(path, turns)
                case Once() as once:
                    self._demand(self._settles(path, once.dim), f"'{once.dim.name}' is not known")
                case Numbers(phase=number):
                    reduced = [n.phase for n in self._before() if isinstance(n, Reduce)]
                    self._demand(number in reduced, f"what phase {number} reduces is not known")
                    again = [any(isinstance(n, Reduce) for n in walk(part))
                             for part in (path[-1].body, path[-1].others)]  # fmt: skip
                    self._demand(again == [False, True], f"phase {number} is checked the other way")
                case Permute() as permute:
                    self._demand(permute.row in self._nest.buffers, "what is permuted is no buffer")
                    self._demand(self._settles(path, permute.dim), "what is permuted is not known")
                case Stage() as stage:
                    self._verify_stage(path, stage)
                case Where(phase=number):
                    fits = all(self._settles(path, dim) for dim in self._nest.dims[number]
                               if self._moves(number, dim))  # fmt: skip
                    self._demand(fits, f"what phase {number} says is not known here")
                    self._demand(is_condition(self._nest, number),
                        f"phase {number} is no condition of a whole group")  # fmt: skip
                case Rescale():
                    for holds, what in check_rescale(self._nest, path):
                        self._demand(holds, what)
                case Multiply():
                    pass  # Coverage is verified at the end.
        self._verify_whole()
        self._verify_buffers()
        self._demand(not (wrong := find_wrong(self._nest)), wrong)

    # Names --------------------------------------------------------------------------------------

    def _verify_names(self) -> None:
        nest = self._nest
        self._demand(len(nest.dims) == len(nest.phases), "phases and their dimensions differ")
        numbers = {p[-1].phase for p in self._paths if isinstance(p[-1], _OF_PHASES)}
        self._demand(numbers <= set(range(len(nest.phases))), "a node is of no phase")
        turns = {path[-1].turn for path in self._paths if isinstance(path[-1], Turns)}
        for number, (phase, own) in enumerate(zip(nest.phases, nest.dims, strict=True)):
            fits = (len(own) == 1 and phase.space.packed) or all(
                dim.size == extent
                or not isinstance(dim.size, int)
                or not isinstance(extent, int)
                or dim in turns
                for dim, extent in zip(own, phase.space.extents, strict=False)
            )
            self._demand(fits or self._is_local(number), f"phase {number} has other dimensions")
            for axis, piece in phase.space.pieces.items():
                found = own[axis].piece if axis < len(own) else None
                same = found is None or found[1] == make_size(piece.size)
                self._demand(same, f"phase {number} has a piece of another dimension")
        dims, buffers = list_named(nest)
        for dim in dims:
            counts = [part.count_steps(step) for part, step in dim.parts]
            fits = not all(counts) or not isinstance(dim.size, int) or not counts
            fits = fits or dim.size == math.prod(counts)
            self._demand(fits, f"'{dim.name}' is not all its parts")
        loops = [n for (*_, n) in self._paths if isinstance(n, Loop) and nest.script]
        for kind, values in (("dimensions", dims), ("buffers", buffers), ("loops", loops)):
            names = collections.Counter(each.name for each in values)
            twice = [name for name, count in names.items() if count > 1]
            self._demand(not twice, f"several {kind} are called {', '.join(twice)}")
        self._demand(nest.streams <= set(range(len(nest.phases))), "no such phase streams")
        groups = math.prod(extent for _, extent in nest.lanes)
        for axes in (nest.lanes, *list_arrangements(nest)):
            fits = math.prod(extent for _, extent in axes) <= groups
            self._demand(fits, "there are not so many work items where a block has its own axes")
        self._demand(set(buffers) <= set(nest.buffers), "a buffer is not the nest's")

    def _is_local(self, number: int) -> bool:
        """Whether a phase's indices are relative to the start of a tile."""
        return any(dim.within is not None for dim in self._nest.dims[number]) or any(
            isinstance(n, Reduce) and n.phase == number and n.tile for (*_, n) in self._paths
        )

    # Loops --------------------------------------------------------------------------------------

    def _verify_loop(self, path: Path, loop: Loop) -> None:
        what, nest = f"loop '{loop.name}' over '{loop.dim.name}'", self._nest
        around = _list_loops(path[:-1])
        # Loops that fill a tile may arrange items differently, and combine nothing.
        filled = max((place for place, n in enumerate(path) if isinstance(n, Stage)), default=0)
        self._demand(loop.step > 0 and loop.extent >= 0, f"{what} takes no steps")
        self._demand(loop.body, f"{what} has nothing inside")
        if loop.kind is Kind.GROUP:
            fits = len(path) == 1 and not loop.extent
            others = sum(n.kind is Kind.GROUP for (*_, n) in self._paths if isinstance(n, Loop))
            self._demand(fits and others == 1, f"{what} is not the outermost, or not the only one")
        if loop.kind is Kind.LANE:
            axes = dict(axis for own in (nest.lanes, *list_arrangements(nest)) for axis in own)
            self._demand(axes.get(loop.wanted, 1) == loop.extent, f"{what} has no such work items")
            taken = [n for n in around if n.kind is Kind.LANE]
            free = all(n.wanted != loop.wanted for n in taken)
            self._demand(free, f"{what} takes work items that are taken")
            beside = {n.wanted in dict(nest.lanes) for n in (loop, *taken) if n in path[filled:]}
            self._demand(len(beside) == 1, f"{what} is of a block with other work items")
        if loop.kind is Kind.UNROLL:
            self._demand(loop.extent > 0, f"{what} is written out without end")
        if loop.kind is Kind.VECTOR:
            self._demand(loop.step > 1 and loop.extent <= 1, f"{what} has no vectors")
            inner = _list_loops(walk(loop.body, filled=False))
            single = all(n.kind is not Kind.VECTOR for n in inner)
            self._demand(single, f"{what} has vectors inside")
            self._verify_vector(path, loop, what)
        whole = loop.step == 1 or loop.kind is Kind.VECTOR
        self._demand(whole or loop.dim is not nest.block, f"{what} goes over a block in steps")
        alike = find_unlike((loop,)) is not loop
        self._demand(alike, f"{what} has others side by side inside that are not alike")
        steps = (loop.step, *loop.rest)
        shorter = all(a > b > 1 and a % b == 0 for a, b in itertools.pairwise(steps))
        self._demand(shorter and (not loop.rest or loop.kind is Kind.VECTOR), f"{what} has no rest")
        if loop.part is not None:
            first, last = loop.part
            self._demand(0 <= first <= last and not loop.extent, f"{what} has no such part")
        self._demand(loop.ahead is not loop.dim, f"{what} goes on in no other loop")
        serial = [n for n in path[filled:] if isinstance(n, Reduce) and n.serial]
        self._demand(not serial or (loop.kind in (Kind.LOOP, Kind.UNROLL) and not loop.backwards),
            f"{what} takes points of a sum out of their order")  # fmt: skip

    def _list_reduced(self, number: int) -> list[Dim]:
        dims, phase = self._nest.dims[number], self._nest.phases[number]
        return [dims[axis] for axis in phase.space.inner if axis < len(dims)]

    def _verify_vector(self, path: Path, loop: Loop, what: str) -> None:
        """Checks that a vector's operands and results are contiguous, or marked as not."""
        found = loop.vectorization
        if found is not None:
            size = loop.dim.size if isinstance(loop.dim.size, int) else found.last
            self._demand(0 <= found.first < found.last <= size and loop.step == LANES
                         and len(found.joints) == len(self._nest.phases),
                f"{what} has other vectors than were found")  # fmt: skip
            return
        last = loop.dim.parts[-1][0] if loop.dim.parts else loop.dim
        # Inner loops that fill a tile are scalar, or have vectors of their own.
        for number in list_phases(loop, filled=False):
            dims, phase = self._nest.dims[number], self._nest.phases[number]
            axes = [axis for axis, dim in enumerate(dims) if dim in (last, last.within)]
            for axis in axes if len(dims) == len(phase.space.extents) else ():
                beside = all(view.strides[axis] in (0, 1) for view in phase.elements.buffers())
                held = any(isinstance(n, Permute) for n in walk(loop.body))
                self._demand(beside or held, f"{what} has vectors of what lies apart")

    # Points -------------------------------------------------------------------------------------

    def _verify_point(self, path: Path, point: Point) -> None:
        number, nest = point.phase, self._nest
        phase, what = nest.phases[number], f"phase {number}"
        results = phase.elements.results
        if point.into:
            self._demand(len(point.into) == len(results), f"{what} puts other results")
        around = [n for n in path if isinstance(n, Reduce) and n.phase == number]
        self._demand(bool(around) or not phase.accumulators or phase.is_across,
            f"{what} adds to nothing")  # fmt: skip
        tile = {
            part for into in point.into for dim, _ in into.tile for part in self._list_parts(dim)
        }
        own = {part for dim in nest.dims[number] for part in self._list_parts(dim)}
        made = dict.fromkeys(n.dim for n in path if isinstance(n, Loop) and n.dim.parts
                             and self._list_parts(n.dim) & own)  # fmt: skip
        for dim in dict.fromkeys((*made, *nest.dims[number])):
            moves = self._moves(number, dim) or self._list_digits(path, dim)
            if moves and (not tile or dim in tile or dim in made):
                self._verify_coverage(path, dim, what)
        for axes in self._list_idle(path):
            added = bool(phase.accumulators) and not around[-1:] and phase.is_across
            self._demand(not added, f"{what} is added by each work item along '{axes}'")
        for into in (*point.into, *(n.into for n in around if n.into is not None)):
            self._verify_into(path, into, what)
        plain = not point.into and not point.name and not self._is_local(number)
        # A sum may be computed anew in each iteration of enclosing loops.
        within = path[path.index(around[0]) :] if around else path
        for loop in _list_loops(within):
            walked = self._list_parts(loop.dim)
            again = plain and not walked & own and _count_steps(loop) != 1
            again = again and not any(isinstance(n, Once) and n.dim in walked for n in path)
            self._demand(not again, f"{what} is done again at each step of '{loop.name}'")

    def _moves(self, number: int, dim: Dim) -> bool:
        """Whether a phase's work varies along a dimension."""
        dims, phase = self._nest.dims[number], self._nest.phases[number]
        if phase.accumulators or dim not in dims or len(dims) != len(phase.space.extents):
            return True
        axis = dims.index(dim)
        stored = any(view.strides[axis] for view, _ in phase.elements.results)
        return stored or any(phase.find_moving(axis))

    def _list_parts(self, dim: Dim) -> set[Dim]:
        """A dimension with its parts, and the dimension that it is a tile of."""
        found = {dim} if dim.within is None else {dim, *self._list_parts(dim.within)}
        return found.union(*(self._list_parts(part) for part, _ in dim.parts))

    def _list_idle(self, path: Path) -> list[str]:
        taken = {n.wanted for n in path if isinstance(n, Loop) and n.kind is Kind.LANE}
        return [name for name, extent in self._nest.lanes if extent > 1 and name not in taken]

    def _list_digits(self, path: Path, dim: Dim) -> list[_Digit]:
        """Digits that the loops of a path give a point's index along a dimension."""
        found: list[_Digit] = []
        staged = next((place for place, n in enumerate(path) if isinstance(n, Stage)), 0)
        # Loops that fill a tile iterate over it independently.
        again = {n.dim.within for n in _list_loops(path[staged:])}
        loops = [n for place, n in enumerate(path) if isinstance(n, Loop)
                 and (place >= staged or n.dim.within not in again - {None})]  # fmt: skip
        for place, loop in enumerate(loops):
            steps = self._find_steps(loop.dim, dim)
            if steps is not None:
                if all(n.dim is not loop.dim for n in loops[place + 1 :]):
                    found.append(_Digit(loop, steps, None))
            elif dim in (loop.dim, loop.dim.within, loop.dim.whole):
                is_wide = loop.kind is Kind.VECTOR
                # The remainder of vectors is executed in shorter ones, and point by point.
                step = 1 if is_wide and not loop.extent else loop.step
                found.append(_Digit(loop, step, loop.extent or None))
                found += [_Digit(loop, 1, loop.step)] * (is_wide and step > 1)
        tiles = {n.dim for n in loops if n.dim is not dim and dim in (n.dim.within, n.dim.whole)}
        return sorted(found, key=lambda d: (d.loop.dim in tiles, -d.step, d.count == 1))

    def _find_steps(self, made: Dim, wanted: Dim) -> int | None:
        """Step of a dimension in a merged one; None if it is no part of that."""
        for part, step in made.parts:
            if part is wanted or part.within is wanted:
                return step
            inner = self._find_steps(part, wanted)
            if inner is not None:
                return inner
        return None

    def _verify_coverage(self, path: Path, dim: Dim, what: str) -> None:
        """Checks that the digits of a point take each number once."""
        digits = self._list_digits(path, dim)
        size = dim.size if isinstance(dim.size, int) else None
        if not digits:
            self._demand(size in (0, 1) or self._settles(path, dim),
                f"{what} has no loop over '{dim.name}'")  # fmt: skip
            return
        width, tile = size, None
        for place, digit in enumerate(digits):
            loop, least = digit.loop, digit.count is not None and place == 0
            if loop.dim.within is dim and tile is None:
                # A tile may overrun its dimension, and the last step of that.
                tile = loop.dim.size
                self._demand(place == 0 or width == tile, f"'{loop.dim.name}' is no tile: {width}")
                width, least = tile if isinstance(tile, int) else None, False
            if digit.count is not None and width is not None:
                points = digit.count * digit.step
                fits = width <= points if least else width == points
                whole = not isinstance(tile, int) or tile % width == 0
                whole = whole or path.index(loop) < path.index(digits[place - 1].loop)
                self._demand(fits and whole,
                    f"{what}: loop '{loop.name}' takes {digit.count} steps of {digit.step} over "
                    f"'{dim.name}', which has {width}")  # fmt: skip
            elif digit.count is None:
                # Steps of a tile depend on its range alone.
                in_tile = tile is not None
                own = [d for d in digits[:place] if (d.loop.dim.within is dim) is in_tile]
                around = [d for d in own if d.loop is not loop and d.step >= digit.step
                          and path.index(d.loop) < path.index(loop)]  # fmt: skip
                inside = [d for d in own if d.count is None and d not in around]
                last = max(around, key=lambda d: path.index(d.loop), default=None)
                goes = last is None or last.step == min(d.step for d in around)
                self._demand(goes and all(d.loop is loop for d in inside),
                    f"{what}: loop '{loop.name}' goes by a range settled inside")  # fmt: skip
            width = digit.step
        self._demand(width == 1, f"{what}: '{dim.name}' is taken {width} points at a time")

    def _settles(self, path: Path, dim: Dim) -> bool:
        """Whether enclosing nodes fix an index along a dimension."""
        for node in path[:-1]:
            if isinstance(node, Turns) and dim in (node.turn, node.dim):
                return True
            if isinstance(node, Once) and dim is node.dim:
                return True
            if isinstance(node, Loop) and dim in self._list_parts(node.dim):
                return True
        return False

    # Reductions ---------------------------------------------------------------------------------

    def _verify_reduction(self, path: Path, node: Reduce) -> None:
        nest, what = self._nest, f"the reduction of phase {node.phase}"
        phase = nest.phases[node.phase]
        self._demand(phase.accumulators, f"{what} has no accumulators")
        around = [n for n in path[:-1] if isinstance(n, Reduce) and n.phase == node.phase]
        if not node.body:
            begun = [n for n in self._before() if isinstance(n, Reduce) and not n.ends]
            known = any(n.phase == node.phase for n in begun)
            self._demand(known, f"{what} ends, and has not begun")
            return
        points = [n for n in walk(node.body) if isinstance(n, Point) and n.phase == node.phase]
        self._demand(points, f"{what} has no points")
        inside = list(walk(node.body))
        grows = any(isinstance(n, Rescale) and n.phase == node.phase for n in inside)
        self._demand(grows or not list_readers(nest, node.phase, inside),
            f"{what} is read before it is done")  # fmt: skip
        later = (n for (*_, n) in self._paths[self._place :])
        ended = [n for n in later if isinstance(n, Reduce) and not n.body]
        self._demand(node.ends or any(n.phase == node.phase for n in ended), f"{what} has no end")
        if around:
            several = [n for n in walk(around[-1].body) if isinstance(n, Loop) and not n.extent
                       and (n.dim is nest.block or n.kind is Kind.VECTOR)]  # fmt: skip
            self._demand(around[-1].array or not several,
                f"{what} is a part of one that has no arrays")  # fmt: skip
        self._demand(not node.resumes or around, f"{what} resumes nothing")
        lost = find_lost(nest, path, node, self._paths)
        self._demand(not lost, f"{what} is read after loops that begin it again: {_name(lost)}")
        inner = set(self._list_reduced(node.phase))
        if not around and node.tile is None:
            kept = inner - (set() if node.into is None else {node.into.dim})
            lost = [n for n in _list_loops(path) if _count_steps(n) != 1]
            lost = [n for n in lost if self._list_parts(n.dim) & kept]
            self._demand(not lost, f"{what} begins again at each step of '{_name(lost)}'")
        wide = [n for n in walk(node.body) if isinstance(n, Loop) and n.kind is Kind.VECTOR]
        summed = [n for n in wide if self._list_parts(n.dim) & inner]
        plain = not around and not node.array and node.tile is None
        self._demand(not (plain and summed and any(not n.extent for n in summed)),
            f"{what} has no accumulators for the lanes of '{_name(summed)}'")  # fmt: skip
        joins = not node.joins or node.joins in dict(nest.lanes)
        self._demand(joins, f"{what} joins no work items")
        if node.tile is not None:
            self._verify_tile(path, node, node.tile, what)

    def _verify_tile(self, path: Path, node: Reduce, tile: Tile, what: str) -> None:
        """Checks that each output of a tile has its own accumulator."""
        fits = tile.rows > 0 and 0 < tile.columns <= tile.pitch and not tile.columns % tile.lanes
        self._demand(fits, f"{what} has a tile that overlaps itself")
        every, inner = set(self._nest.dims[node.phase]), set(self._list_reduced(node.phase))
        inner = every - inner if self._nest.phases[node.phase].is_across else inner
        own = [p for p in self._paths if isinstance(p[-1], Point) and p[-1].phase == node.phase]
        lanes = [
            n for p in own if node in p for n in _list_loops(p[len(path) :]) if n.kind is Kind.LANE
        ]
        taken = [n.dim for n in lanes if n.extent > 1]
        shared = any((({d} & every) or self._list_parts(d)) & inner for d in taken)
        self._demand(node.joins or not shared, f"{what} shares tiles that are not joined")
        for own in (p[len(path) :] for p in self._paths if p[-1] is not node and node in p):
            if not isinstance(own[-1], Point) or own[-1].phase != node.phase:
                continue
            inside = (n for n in own if isinstance(n, Reduce) and n.phase == node.phase)
            part, last = next(inside, None), 0
            if part is not None and part.tile is not None:
                last = (part.tile.rows - 1) * tile.pitch + part.tile.columns - 1
            outputs = every - set(self._list_reduced(node.phase))
            for loop in _list_loops(own[: own.index(part)] if part is not None else own):
                apart = loop.output or loop.kind in (Kind.LANE, Kind.VECTOR)
                apart = apart or _count_steps(loop) == 1 or self._nest.phases[node.phase].is_across
                self._demand(apart or not self._list_parts(loop.dim) & outputs,
                    f"outputs of '{loop.name}' have one accumulator")  # fmt: skip
                around_it = [d.step for d in self._list_digits(path, loop.dim)]
                steps = loop.extent or -(-min([_size(loop.dim), *around_it]) // loop.step)
                last += loop.output * max(0, steps - 1) * (1 if loop.extent else loop.step)
                last += loop.step - 1 if loop.kind is Kind.VECTOR and loop.dim not in inner else 0
            room = tile.rows * tile.pitch
            self._demand(last < room, f"a tile has {room} accumulators, and points go beyond")

    # Several points -----------------------------------------------------------------------------

    def _verify_pack(self, path: Path, pack: Pack) -> None:
        names = ", ".join(pack.buffers)
        stored = {view.tensor for number in list_phases(pack)
                  for view, _ in self._nest.phases[number].elements.results}  # fmt: skip
        packed = set(pack.buffers)
        self._demand(packed and packed <= stored, f"{names} is not stored where it is packed")
        self._demand(pack.in_words or packed == stored, f"{names} is not all of a vector")
        each = _list_loops(pack.body)
        dim = pack.dim.parts[0][0] if pack.in_words else pack.dim
        fits = len(each) == len(pack.body) == 1
        fits = fits and each[0].dim is dim and each[0].extent == pack.lanes and each[0].step == 1
        self._demand(fits, f"{names} is packed of other points")
        self._demand(pack.lanes == 2 or not pack.in_words, f"a word has two halves of {names}")
        self._demand(self._settles(path, pack.dim), f"the points of {names} are not known")

    def _verify_turns(self, path: Path, turns: Turns) -> None:
        size, what = _size(turns.dim), f"the turns of '{turns.dim.name}'"
        self._demand(0 <= turns.first < turns.last <= size and turns.cases, f"{what} are none")
        self._demand(self._settles(path, turns.dim), f"{what} are not known")
        whole = turns.first == 0 and turns.last == size
        self._demand(whole or turns.others, f"{what} leave points")
        many = -(-(turns.last - turns.first) // len(turns.cases))
        self._demand(_size(turns.turn) >= many, f"{what} are more than '{turns.turn.name}' has")

    def _verify_stage(self, path: Path, stage: Stage) -> None:
        names = ", ".join(buffer.name for buffer in stage.buffers)
        points = [n for n in walk(stage.body) if isinstance(n, Point)]
        filled = {into.buffer for point in points for into in point.into}
        self._demand(filled == set(stage.buffers), f"{names} is not what is filled")
        alone = all(b.shared for b in stage.buffers) or not list_items(stage)
        self._demand(alone, f"{names} is filled by work items that do not share it")
        loops = [n for n in path if isinstance(n, Loop) and n.kind in (Kind.LOOP, Kind.UNROLL)]
        again = any(_count_steps(n) != 1 for n in loops) and any(b.shared for b in stage.buffers)
        self._demand(stage.repeats or not again, f"{names} is filled again while others read it")

    # Buffers ------------------------------------------------------------------------------------

    def _verify_into(self, path: Path, into: Into, what: str) -> None:
        buffer = into.buffer
        steps = dict(into.tile)
        last = 0
        for dim, apart in steps.items():
            place = next((i for i, n in enumerate(path) if isinstance(n, Stage)), 0)
            around = [digit.step for digit in self._list_digits(path[:place], dim)]
            wide = min([_size(dim), *around])
            last += apart * (wide - 1)
        if not steps:
            first, end = self._find_part(path, into.dim)
            last = into.offset + into.step * (end - 1 - first) + into.step * first
            self._demand(into.offset >= 0 and into.step > 0, f"{what} puts before '{buffer.name}'")
            last += buffer.front
        room = buffer.size if steps else buffer.pitch or buffer.size
        self._demand(last < room, f"{what} puts beyond the end of '{buffer.name}'")
        if into.in_vectors or into.lane != 1:
            wide = [n.dim for n in path if isinstance(n, Loop) and n.kind is Kind.VECTOR]
            fits = not wide or not steps or steps.get(wide[-1], into.lane) == into.lane
            self._demand(fits, f"{what} puts vectors apart in '{buffer.name}'")

    def _find_part(self, path: Path, dim: Dim) -> tuple[int, int]:
        """Range of a dimension that a path covers, or that one of its steps covers."""
        parts = [n.part for n in _list_loops(path) if n.dim is dim and n.part]
        steps = [self._find_steps(n.dim, dim) for n in _list_loops(path)]
        least = min([_size(dim), *(step for step in steps if step is not None)])
        return parts[-1] if parts else (0, least)

    def _verify_buffers(self) -> None:
        """Checks that buffers are completely filled before they are read."""
        filled: dict[str, set[int]] = {}
        for path in self._paths:
            node = path[-1]
            for name in self._list_made(node):
                filled.setdefault(name, set())
            if isinstance(node, Reduce) and node.into is not None:
                self._note_filled(path, node.into, filled)
            if not isinstance(node, Point):
                continue
            for value in self._nest.phases[node.phase].elements.values:
                if isinstance(value, Read | Gather) and value.view.local:
                    self._demand(value.view.tensor in filled,
                        f"'{value.view.tensor}' is read before it is filled")  # fmt: skip
            for into in node.into:
                self._note_filled(path, into, filled)
        for buffer in self._nest.buffers:
            places = filled.get(buffer.name, set())
            missing = len(set(range(min(_size(buffer.dim), buffer.size))) - places)
            self._demand(-1 in places or not missing or buffer.shared,
                f"{missing} elements of '{buffer.name}' are not filled")  # fmt: skip

    def _list_made(self, node: Node) -> list[str]:
        """Names by which others read the values that a node makes."""
        match node:
            case Fill():
                return [node.buffer.name]
            case Permute():
                return list(node.patterns.named)
            case Point():
                return [node.name]
            case Reduce():
                made = self._nest.phases[node.phase].accumulators
                slots = [each.slot_name(n) for each in made for n in range(len(each.slots))]
                return [*slots, *(stage for each in made for stage, _ in each.stages)]
            case _:
                return []

    def _note_filled(self, path: Path, into: Into, filled: dict[str, set[int]]) -> None:
        places = filled.setdefault(into.buffer.name, set())
        if into.tile or into.dim is self._nest.block or _size(into.dim) > _MOST_PLACES:
            places.add(-1)
            return
        first, last = self._find_part(path, into.dim)
        wide = [n for n in _list_loops(path) if n.kind is Kind.VECTOR and n.dim is not into.dim]
        lanes = [lane * into.lane for lane in range(wide[-1].step if wide else 1)]
        starts = (into.offset + into.step * place for place in range(first, last))
        places.update(start + lane for start in starts for lane in lanes)

    def _verify_whole(self) -> None:
        """Checks that every phase is computed once on each path."""
        for number, phase in enumerate(self._nest.phases):
            own = [p for p in self._paths if isinstance(p[-1], Point | Where)
                   and p[-1].phase == number]  # fmt: skip
            self._demand(own or 0 in phase.space.extents, f"phase {number} has no points")
            for place, path in enumerate(own):
                for other in own[:place]:
                    self._demand(excludes(other, path), f"phase {number} is computed twice")

    def _before(self) -> list[Node]:
        """Nodes that precede the current one in execution order."""
        return [path[-1] for path in self._paths[: self._place]]


_MOST_PLACES = 1 << 16
_OF_PHASES = Point | Reduce | Numbers | Rescale | Where


def _size(dim: Dim) -> int:
    return dim.size if isinstance(dim.size, int) else 1


def _list_loops(nodes: Iterable[Node]) -> list[Loop]:
    return [node for node in nodes if isinstance(node, Loop)]


def _name(loops: Sequence[Loop]) -> str:
    return ", ".join(loop.name for loop in loops)


def _count_steps(loop: Loop) -> int:
    steps = loop.dim.count_steps(loop.step)
    return min(steps, loop.extent or steps) if isinstance(loop.dim.size, int) else loop.extent
